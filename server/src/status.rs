//! `biplane status`: what every node of a cluster says about itself, as a table or as JSON, with
//! an exit code for scripts.
//!
//! It asks the node at `--address` for the cluster's nodes, and then each of them over HTTP.

mod table;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::cli::StatusArgs;
use crate::http::{Handed, Handover, Peers};
use crate::runtime;

/// Pause between two looks.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
/// Every node answers, is ready, and a primary is known.
const HEALTHY: u8 = 0;
/// The cluster could not be asked.
const FAILED: u8 = 1;
/// It serves, with less than it has: a node is away, or not ready.
const DEGRADED: u8 = 2;
/// Nobody leads the metadata group: writes to it wait.
const LEADERLESS: u8 = 3;

/// Why the cluster could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// No credential was given.
    #[error(
        "say who asks: --token, or --username and --password (or BIPLANE_TOKEN, \
         BIPLANE_USERNAME and BIPLANE_PASSWORD)"
    )]
    NoCredential,
    /// The node does not answer.
    #[error("{address} does not answer: is it the HTTP address of a node, and is TLS as there?")]
    NoAnswer {
        /// Its address.
        address: SocketAddr,
    },
    /// The node refuses.
    #[error("{address} answers {status}: {reason}")]
    Refused {
        /// Its address.
        address: SocketAddr,
        /// HTTP status.
        status: u16,
        /// What it says.
        reason: String,
    },
    /// The certificate to believe cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
}

/// A cluster at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ClusterStatus {
    /// Its name.
    cluster: String,
    /// Metadata primary by name: the node that says it leads.
    primary: Option<String>,
    /// The nodes in roster order.
    nodes: Vec<NodeStatus>,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct NodeStatus {
    /// Its name.
    name: String,
    /// Its HTTP address.
    address: String,
    /// Its report; absent when it does not answer.
    report: Option<Value>,
    /// Bytes of its disk as it says them, free and in all.
    disk: Option<(String, String)>,
}

impl NodeStatus {
    fn is_ready(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report["ready"] == Value::Bool(true))
    }
}

impl ClusterStatus {
    fn exit_code(&self) -> u8 {
        if self.primary.is_none() {
            LEADERLESS
        } else if self.nodes.iter().all(NodeStatus::is_ready) {
            HEALTHY
        } else {
            DEGRADED
        }
    }
}

/// Runs the command to its end.
pub fn run(args: &StatusArgs) -> ExitCode {
    match watch(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("biplane: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn watch(args: &StatusArgs) -> Result<u8, StatusError> {
    let certificate = args.cert_file.as_deref();
    let peers = Peers::believing(certificate)?;
    let token = runtime::block_on(token(args, &peers))?;
    loop {
        let status = runtime::block_on(look(args.address, &token, &peers))?;
        if args.json {
            println!("{}", serde_json::to_string(&status).unwrap_or_default());
        } else {
            if args.watch {
                // Clear, and begin at the top.
                print!("\x1b[2J\x1b[H");
            }
            print!("{}", table::text(&status));
        }
        if !args.watch {
            return Ok(status.exit_code());
        }
        std::thread::sleep(WATCH_PERIOD);
    }
}

async fn token(args: &StatusArgs, peers: &Peers) -> Result<String, StatusError> {
    if let Some(token) = &args.token {
        return Ok(token.clone());
    }
    let (Some(username), Some(password)) = (&args.username, &args.password) else {
        return Err(StatusError::NoCredential);
    };
    let body = serde_json::json!({ "username": username, "password": password }).to_string();
    let request = Handed {
        method: "POST",
        target: "/users/login",
        authorization: None,
        content_type: Some("application/json"),
        body: body.as_bytes(),
        forwarded: false,
    };
    let answer = exchange(args.address, &request, peers).await?;
    let token = answer["access_token"]["token"].as_str();
    token.map(str::to_owned).ok_or(StatusError::NoAnswer {
        address: args.address,
    })
}

async fn exchange(
    address: SocketAddr,
    request: &Handed<'_>,
    peers: &Peers,
) -> Result<Value, StatusError> {
    let Handover::Answered(answer) = peers.hand(address, request).await else {
        return Err(StatusError::NoAnswer { address });
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if answer.status != 200 {
        let reason = body["reason"].as_str().unwrap_or("no reason given");
        return Err(StatusError::Refused {
            address,
            status: answer.status,
            reason: reason.to_owned(),
        });
    }
    Ok(body)
}

async fn get(
    address: SocketAddr,
    target: &str,
    token: &str,
    peers: &Peers,
) -> Result<Value, StatusError> {
    let authorization = format!("Bearer {token}");
    let request = Handed {
        method: "GET",
        target,
        authorization: Some(&authorization),
        content_type: None,
        body: &[],
        forwarded: false,
    };
    exchange(address, &request, peers).await
}

async fn look(
    address: SocketAddr,
    token: &str,
    peers: &Peers,
) -> Result<ClusterStatus, StatusError> {
    let own = get(address, "/status", token, peers).await?;
    let metadata = get(address, "/cluster/metadata", token, peers).await?;
    let roster = metadata["nodes"].as_array().cloned().unwrap_or_default();
    let mut nodes = Vec::new();
    for entry in &roster {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        let port = entry["endpoints"]["http"].as_u64().unwrap_or(0);
        let ip = entry["ip"].as_str().and_then(|ip| ip.parse().ok());
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        let theirs = ip.zip(port).map(|(ip, port)| SocketAddr::new(ip, port));
        let is_own = roster.len() == 1 || own["name"] == entry["name"];
        let theirs = if is_own { Some(address) } else { theirs };
        let report = match theirs {
            _ if is_own => Some(own.clone()),
            Some(theirs) => get(theirs, "/status", token, peers).await.ok(),
            None => None,
        };
        let stats = match (&report, theirs) {
            (Some(_), Some(theirs)) => get(theirs, "/stats", token, peers).await.ok(),
            _ => None,
        };
        let text = |stats: &Value, key: &str| stats[key].as_str().unwrap_or("?").to_owned();
        nodes.push(NodeStatus {
            name,
            address: theirs
                .map(|address| address.to_string())
                .unwrap_or_default(),
            report,
            disk: stats.map(|stats| {
                let (free, total) = ("free_disk_space", "total_disk_space");
                (text(&stats, free), text(&stats, total))
            }),
        });
    }
    let cluster = metadata["name"].as_str().unwrap_or_default().to_owned();
    let primary = nodes.iter().find(|node| {
        let report = node.report.as_ref();
        report.is_some_and(|report| report["metadata"]["leads"] == Value::Bool(true))
    });
    // A node that died a moment ago may still be named by others; who leads says so itself.
    let primary = primary.map(|node| node.name.clone());
    Ok(ClusterStatus {
        cluster,
        primary,
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(report: Option<Value>) -> NodeStatus {
        NodeStatus {
            name: "n".to_owned(),
            address: String::new(),
            report,
            disk: None,
        }
    }

    #[test]
    fn the_exit_code_says_what_is_worst() {
        let ready = || node(Some(serde_json::json!({ "ready": true })));
        let status = |primary: Option<&str>, nodes| ClusterStatus {
            cluster: String::new(),
            primary: primary.map(str::to_owned),
            nodes,
        };
        let code = |primary, nodes| status(primary, nodes).exit_code();
        assert_eq!(code(Some("n"), vec![ready(), ready()]), HEALTHY);
        assert_eq!(code(Some("n"), vec![ready(), node(None)]), DEGRADED);
        let busy = node(Some(serde_json::json!({ "ready": false })));
        assert_eq!(code(Some("n"), vec![ready(), busy]), DEGRADED);
        assert_eq!(code(None, vec![ready()]), LEADERLESS);
    }
}
