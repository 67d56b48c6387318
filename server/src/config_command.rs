//! `biplane config`: a file's problems, all of them, and a file to begin with.

use std::process::ExitCode;

use crate::cli::ConfigCommand;
use crate::config::{Config, Place, Variables, example, read_file};

/// Runs the command. A file with problems, or one that cannot be read, ends with status 1.
pub fn run(command: &ConfigCommand) -> ExitCode {
    match command {
        ConfigCommand::Example => {
            print!("{}", example());
            ExitCode::SUCCESS
        }
        ConfigCommand::Check { file } => {
            let read = Variables::of_process().and_then(|found| Ok((read_file(file)?, found)));
            let (text, variables) = match read {
                Ok(read) => read,
                Err(error) => {
                    eprintln!("biplane: {error}");
                    return ExitCode::FAILURE;
                }
            };
            let checked = Config::check(&text, &variables);
            let mut problems: Vec<_> = checked.problems.iter().collect();
            problems.sort_by_key(|problem| match problem.place {
                Place::Line(line) => line,
                _ => usize::MAX,
            });
            for problem in problems {
                println!("{}: {problem}", file.display());
            }
            for warning in checked.config.iter().flat_map(|config| &config.warnings) {
                println!("{}: warning: {warning}", file.display());
            }
            match checked.problems.len() {
                0 => {
                    println!("{}: no problem", file.display());
                    ExitCode::SUCCESS
                }
                count => {
                    let s = if count == 1 { "" } else { "s" };
                    println!("{}: {count} problem{s}", file.display());
                    ExitCode::FAILURE
                }
            }
        }
    }
}
