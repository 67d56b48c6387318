//! The `biplane` binary: the command line, and nothing else.

use std::process::ExitCode;

use biplane_server::cli::{Cli, Command};
use biplane_server::{bench, config_command, dev, inspect, serve, status};
use clap::Parser as _;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => serve::run(&cli.serve),
        Some(Command::Dev(args)) => outcome(dev::run(&args)),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Config(command)) => config_command::run(&command),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Status(args)) => status::run(&args),
        Some(Command::Bench(command)) => outcome(bench::run(*command)),
    }
}

fn outcome<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("biplane: {error}");
            ExitCode::FAILURE
        }
    }
}
