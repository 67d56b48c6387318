//! The `biplane` binary: the command line, and nothing else.

use std::process::ExitCode;

use biplane_server::cli::{Cli, Command};
use biplane_server::{bench, dev, inspect, serve};
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Dev(args) => outcome(dev::run(&args)),
        Command::Serve(args) => serve::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Bench(command) => outcome(bench::run(*command)),
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
