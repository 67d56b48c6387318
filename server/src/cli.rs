//! Command line: what an operator can ask the binary to do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::options::BenchCommand;
use crate::config::{ConfigDuration, HEARTBEAT_TIMEOUT_MIN};
use crate::inspect::InspectArgs;

/// Replicated message streaming, compatible with Apache Iggy clients and replicas.
#[derive(Debug, Parser)]
#[command(name = "biplane", version, about, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; to run one node where nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The arguments of `serve`, without the word.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole cluster on this machine's loopback, for development
    Dev(DevArgs),
    /// Run one node; the same as no subcommand
    Serve(ServeArgs),
    /// Check a configuration file, or print an example of one
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Put a load on a running cluster and measure it
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
    /// Print the frames of a capture, one line each
    Inspect(InspectArgs),
    /// Show the nodes of a cluster: roles, views, lag, links, disks. Exit code 0: all is well;
    /// 1: nobody could be asked; 2: a node is away or not ready; 3: no metadata primary
    Status(StatusArgs),
}

/// Arguments of `biplane dev`.
#[derive(Debug, Clone, Args)]
pub struct DevArgs {
    /// How many replicas: 1, 3 or 5
    #[arg(long, default_value_t = 3, value_parser = parse_nodes)]
    pub nodes: u8,
    /// Client port of the first node; replica ports start 1000 above
    #[arg(long, default_value_t = 8090)]
    #[arg(value_parser = clap::value_parser!(u16).range(1024..=64_000))]
    pub base_port: u16,
    /// Folder for data and logs; created when missing, reused when present
    #[arg(long, default_value = "./biplane-data")]
    pub data: PathBuf,
    /// TLS everywhere: between the nodes, and for clients with a certificate minted for localhost
    #[arg(long)]
    pub tls: bool,
    /// How long a backup waits for its primary before it starts an election; at least 2s
    #[arg(long, default_value = "5s", value_parser = parse_heartbeat_timeout)]
    pub heartbeat_timeout: Duration,
}

/// What can be done with a configuration file.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Explain every problem of a file, with the environment laid over it
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print a file with every key, its default and what it is for
    Example,
}

/// Arguments of `biplane serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// This node's replica_id in [[cluster.nodes]]; mandatory when clustering is on
    #[arg(long)]
    pub replica_id: Option<u8>,
    /// Configuration file; else IGGY_CONFIG_PATH, else core/server/config.toml, here or above
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Data folder; wins over the `path` key
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Delete everything in the data folder first; in a cluster the node is filled by the others
    #[arg(long, short)]
    pub fresh: bool,
    /// Create the root user as iggy/iggy where IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD are unset
    #[arg(long)]
    pub with_default_root_credentials: bool,
    /// Print one JSON line to standard output at each change of role or view, and stop when
    /// standard input closes; for supervisors
    #[arg(long, hide = true)]
    pub supervised: bool,
}

/// Arguments of `biplane status`.
#[derive(Clone, Args)]
pub struct StatusArgs {
    /// HTTP address of any node
    #[arg(long, default_value = "127.0.0.1:3000")]
    pub address: SocketAddr,
    /// User who may read servers
    #[arg(long, env = "BIPLANE_USERNAME")]
    pub username: Option<String>,
    /// Its password; better in the environment than in the list of processes
    #[arg(long, env = "BIPLANE_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// A personal access token, in place of user and password
    #[arg(long, env = "BIPLANE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The nodes' HTTP certificate (PEM), when they use TLS
    #[arg(long)]
    pub cert_file: Option<PathBuf>,
    /// Look again every two seconds
    #[arg(long)]
    pub watch: bool,
    /// Print one JSON object, or one a line with --watch
    #[arg(long)]
    pub json: bool,
}

impl std::fmt::Debug for StatusArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the credentials.
        f.debug_struct("StatusArgs")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn parse_heartbeat_timeout(text: &str) -> Result<Duration, String> {
    let ConfigDuration(timeout) = ConfigDuration::parse(text)?;
    if timeout < HEARTBEAT_TIMEOUT_MIN {
        return Err(format!("must be at least {HEARTBEAT_TIMEOUT_MIN:?}"));
    }
    Ok(timeout)
}

fn parse_nodes(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        other => Err(format!(
            "{other} is not possible: a cluster has 1, 3 or 5 nodes"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_subcommand_it_serves() {
        let cli = Cli::try_parse_from(["biplane", "--replica-id", "2", "-f"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!((cli.serve.replica_id, cli.serve.fresh), (Some(2), true));
        let cli = Cli::try_parse_from(["biplane", "serve", "--fresh"]).unwrap();
        let Some(Command::Serve(args)) = cli.command else {
            panic!("serve is a subcommand");
        };
        assert!(args.fresh);
    }

    #[test]
    fn an_even_cluster_is_refused_with_a_reason() {
        let error = Cli::try_parse_from(["biplane", "dev", "--nodes", "2"]).unwrap_err();
        assert!(error.to_string().contains("1, 3 or 5"), "{error}");
    }
}
