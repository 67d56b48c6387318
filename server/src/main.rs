//! The `biplane` binary: the command line, and nothing else.

use std::process::ExitCode;

use biplane_server::cli::{Cli, Command};
use biplane_server::{dev, serve};
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Dev(args) => match dev::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("biplane: {error}");
                ExitCode::FAILURE
            }
        },
        Command::Serve(args) => serve::run(&args),
    }
}
