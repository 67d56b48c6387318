//! `biplane serve`: one node in this process, until it is asked to stop.

use std::io::Read as _;
use std::process::ExitCode;
use std::thread;

use tracing::error;

use crate::cli::ServeArgs;
use crate::config::{Config, ConfigError};
use crate::node::{BootError, Node, NodeEnd, Settings, StopHandle};
use crate::supervised::Report;
use crate::{observe, runtime, signals};

/// Executor threads of a node. Its protocol work is one loop; sockets share that thread, so that a
/// frame goes from socket to plane to socket without a wake-up in between.
const EXECUTOR_THREADS: usize = 1;

/// Why serving ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The file is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node does not start.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The log level is refused.
    #[error("{0}")]
    Logging(String),
    /// Signals cannot be caught.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The node stopped by itself.
    #[error("the node stopped: {0}")]
    Halted(String),
}

/// Runs a node to its end.
pub fn run(args: &ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(%error, "biplane serve ends");
            eprintln!("biplane: {error}");
            if args.supervised {
                let node = args.replica_id.unwrap_or(0);
                Report::Failed {
                    node,
                    reason: error.to_string(),
                }
                .print();
            }
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::parse("")?,
    };
    observe::install(&config.logging.level).map_err(ServeError::Logging)?;
    runtime::configure(EXECUTOR_THREADS);
    let settings = Settings {
        config,
        replica_id: args.replica_id,
        data: args.data.clone(),
        with_default_root: args.with_default_root_credentials,
        supervised: args.supervised,
    };
    let (node, stop) = Node::boot(settings)?;
    let on_signal = stop.clone();
    signals::on_stop(move || on_signal.stop()).map_err(ServeError::Signals)?;
    if args.supervised {
        stop_with_input(stop);
    }
    // On an executor thread, next to the sockets' tasks, not on this one.
    match runtime::block_on(runtime::spawn(node.run())) {
        NodeEnd::Stopped => Ok(()),
        NodeEnd::Halted(reason) => Err(ServeError::Halted(reason)),
    }
}

/// A supervised node stops when its supervisor is gone, however that came about.
fn stop_with_input(stop: StopHandle) {
    thread::spawn(move || {
        let mut sink = [0; 64];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut sink), Ok(count) if count > 0) {}
        stop.stop();
    });
}
