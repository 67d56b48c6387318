//! `biplane serve`: one node in this process, until it is asked to stop.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use tracing::{error, info, warn};

use crate::advice::advice;
use crate::cli::ServeArgs;
use crate::config::{Config, ConfigError, Identity, Variables};
use crate::file_disk::DataFolder;
use crate::node::{BootError, Node, NodeEnd, Settings, StopHandle};
use crate::observe::{LogFiles, LoggingError};
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
    /// Nothing can be logged.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// Signals cannot be caught.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The node stopped by itself.
    #[error("the node stopped: {reason}")]
    Halted {
        /// Why.
        reason: String,
        /// What an operator does about it.
        advice: &'static str,
        /// Exit status (chapter 09 section 3).
        status: u8,
    },
}

/// Runs a node to its end.
pub fn run(args: &ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let advice = advice(&error);
            // For the files; the screen gets one plain line at its end (chapter 09).
            error!(advice, "the node ends: {error}");
            eprintln!("biplane: {error}. What to do: {advice}");
            if args.supervised {
                let node = args.replica_id.unwrap_or(0);
                Report::Failed {
                    node,
                    reason: error.to_string(),
                }
                .print();
            }
            match error {
                ServeError::Halted { status, .. } => ExitCode::from(status),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let variables = Variables::of_process()?;
    let config = match &args.config {
        Some(path) => Config::load(path, &variables)?,
        None => Config::find(&variables)?,
    };
    // Before the folder is touched: a wrong id must not cost anybody's data.
    Identity::new(&config, args.replica_id)?;
    let path = args
        .data
        .clone()
        .unwrap_or_else(|| PathBuf::from(&config.path));
    let folder = DataFolder::open(&path).map_err(BootError::Folder)?;
    if args.fresh {
        folder.empty().map_err(BootError::Folder)?;
    }
    let logs = LogFiles::of(&config.logging, folder.path());
    observe::install(&config.logging.level, variables.get("RUST_LOG"), logs)?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    if variables.display_config() {
        info!("configuration:\n{}", config.effective_text().trim_end());
    }
    runtime::configure(EXECUTOR_THREADS);
    let join_timeout = config.sharding.shutdown_join_timeout.0;
    let settings = Settings {
        config,
        variables,
        replica_id: args.replica_id,
        folder,
        with_default_root: args.with_default_root_credentials,
        supervised: args.supervised,
    };
    let (node, stop) = Node::boot(settings)?;
    let on_signal = stop.clone();
    signals::on_stop(move || {
        on_signal.stop();
        end_after(join_timeout);
    })
    .map_err(ServeError::Signals)?;
    if args.supervised {
        stop_with_input(stop, join_timeout);
    }
    // On an executor thread, next to the sockets' tasks, not on this one.
    match runtime::block_on(runtime::spawn(node.run())) {
        NodeEnd::Stopped => Ok(()),
        NodeEnd::Halted {
            reason,
            advice,
            status,
        } => Err(ServeError::Halted {
            reason,
            advice,
            status,
        }),
    }
}

/// Ends the process when a stop takes longer than its budget. What was acknowledged is safe with
/// the other replicas, or on disk where the topic asked for that.
fn end_after(budget: Duration) {
    thread::spawn(move || {
        thread::sleep(budget);
        eprintln!(
            "biplane: the stop took longer than sharding.shutdown_join_timeout; what the other \
             nodes have is fetched from them at the next start"
        );
        std::process::exit(1);
    });
}

/// A supervised node stops when its supervisor is gone, however that came about.
fn stop_with_input(stop: StopHandle, budget: Duration) {
    thread::spawn(move || {
        let mut sink = [0; 64];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut sink), Ok(count) if count > 0) {}
        stop.stop();
        end_after(budget);
    });
}
