//! Configuration: the file, its validation, and the node identity that comes out of it.
//!
//! The file is the one of chapter 09: `[cluster]` with `[[cluster.nodes]]`, `[message_bus]`,
//! `[metadata]`, `[partition]`, `[tcp]` and the rest. The first rule that fails refuses the boot
//! with one line that names the key.

mod secrets;
mod sections;
mod validate;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use biplane_wire::{ClusterId, ReplicaId};
use zeroize::Zeroizing;

pub use sections::{
    AdvertisedAddress, Cluster, ClusterAuth, ClusterTls, Config, ListenerTls, Ports, RosterNode,
};
pub use values::{ConfigDuration, ConfigSize, Secret};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is not TOML, or a key has a wrong type or name.
    #[error("the configuration file {} is not valid: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, key and reason.
        message: String,
    },
    /// A key holds a value that breaks a rule.
    #[error("configuration key {key}: {reason}")]
    Rule {
        /// Dotted path of the key.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl ConfigError {
    fn rule(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Rule {
            key: key.into(),
            reason: reason.into(),
        }
    }
}

impl Config {
    /// Reads and validates the file at `path`, with the secrets of the environment.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that fails.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map(Zeroizing::new)
            .map_err(|source| ConfigError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
        let mut config = Self::read(&text).map_err(|error| match error {
            ConfigError::Syntax { message, .. } => ConfigError::Syntax {
                path: path.to_owned(),
                message,
            },
            other => other,
        })?;
        config.take_secrets(|name| std::env::var(name).ok())?;
        validate::validate(&config)?;
        Ok(config)
    }

    /// Reads and validates a file's text.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that fails.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config = Self::read(text)?;
        validate::validate(&config)?;
        Ok(config)
    }

    fn read(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: PathBuf::from("(text)"),
            message: describe(text, &error),
        })
    }

    /// Sections that are present in the file but have no effect in this server.
    pub fn ignored_sections(&self) -> Vec<&'static str> {
        [
            ("quic", &self.quic),
            ("websocket", &self.websocket),
            ("http", &self.http),
            ("telemetry", &self.telemetry),
            ("sharding", &self.sharding),
            ("memory_pool", &self.memory_pool),
        ]
        .into_iter()
        .filter(|(_, table)| !table.is_empty())
        .map(|(name, _)| name)
        .collect()
    }
}

/// Place, key and reason. Not the whole line, as the library would have it: it may hold a secret,
/// and this text goes to the log.
fn describe(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let key = text.lines().nth(line).and_then(|text| text.split_once('='));
    let key = key.map(|(key, _)| key.trim()).filter(|key| {
        key.bytes()
            .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'))
    });
    let (line, message) = (line + 1, error.message());
    match key {
        Some(key) => format!("line {line}, column {column}, key {key}: {message}"),
        None => format!("line {line}, column {column}: {message}"),
    }
}

/// Who this node is and whom it talks to.
#[derive(Debug, Clone)]
pub struct Identity {
    /// First 16 bytes of BLAKE3 of the cluster name.
    pub cluster: ClusterId,
    /// Name shown to clients.
    pub cluster_name: String,
    /// This node.
    pub replica: ReplicaId,
    /// All nodes in roster order; one synthetic entry when clustering is off.
    pub roster: Vec<Member>,
    /// Replicas talk to each other (clustering is on).
    pub clustered: bool,
}

/// A node of the roster with parsed addresses.
#[derive(Debug, Clone)]
pub struct Member {
    /// Roster name.
    pub name: String,
    /// Replica id.
    pub replica: ReplicaId,
    /// Address reported to clients.
    pub advertised: String,
    /// Selectors by client network, longest prefix first.
    pub selectors: Vec<AdvertisedAddress>,
    /// Replica plane address; `None` when clustering is off.
    pub replica_address: Option<SocketAddr>,
    /// Client ports; 0 is "transport absent".
    pub ports: Ports,
}

impl Identity {
    /// Derives the identity of `replica_id` from a validated configuration.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when the id is not in the roster, or not 0 without clustering.
    pub fn new(config: &Config, replica_id: Option<u8>) -> Result<Self, ConfigError> {
        let cluster = biplane_handshake::cluster_id(&config.cluster.name);
        if !config.cluster.enabled {
            return Self::single(config, replica_id, cluster);
        }
        let Some(id) = replica_id else {
            return Err(ConfigError::rule(
                "--replica-id",
                "clustering is on: say which node of [[cluster.nodes]] this is",
            ));
        };
        if !config
            .cluster
            .nodes
            .iter()
            .any(|node| node.replica_id == id)
        {
            let known: Vec<String> = config
                .cluster
                .nodes
                .iter()
                .map(|node| node.replica_id.to_string())
                .collect();
            return Err(ConfigError::rule(
                "--replica-id",
                format!(
                    "{id} is not in [[cluster.nodes]]; the roster has {}",
                    known.join(", ")
                ),
            ));
        }
        let roster = config
            .cluster
            .nodes
            .iter()
            .map(Member::from_roster)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            cluster,
            cluster_name: config.cluster.name.clone(),
            replica: ReplicaId(id),
            roster,
            clustered: true,
        })
    }

    fn single(
        config: &Config,
        replica_id: Option<u8>,
        cluster: ClusterId,
    ) -> Result<Self, ConfigError> {
        if replica_id.is_some_and(|id| id != 0) {
            return Err(ConfigError::rule(
                "--replica-id",
                "clustering is off: only 0 is possible",
            ));
        }
        let address = tcp_address(config)?;
        let advertised = config
            .node
            .advertised_address
            .clone()
            .unwrap_or_else(|| address.ip().to_string());
        let ports = Ports {
            tcp: address.port(),
            tcp_replica: 0,
            quic: 0,
            http: 0,
            websocket: 0,
        };
        Ok(Self {
            cluster,
            cluster_name: "single-node".to_owned(),
            replica: ReplicaId(0),
            roster: vec![Member {
                name: "iggy-node".to_owned(),
                replica: ReplicaId(0),
                advertised,
                selectors: Vec::new(),
                replica_address: None,
                ports,
            }],
            clustered: false,
        })
    }

    /// Number of replicas.
    pub fn replica_count(&self) -> u8 {
        u8::try_from(self.roster.len()).unwrap_or(u8::MAX)
    }

    /// The roster entry of this node.
    pub fn own(&self) -> &Member {
        self.member(self.replica).unwrap_or(&self.roster[0])
    }

    /// The roster entry of `replica`.
    pub fn member(&self, replica: ReplicaId) -> Option<&Member> {
        self.roster.iter().find(|member| member.replica == replica)
    }

    /// Where this node listens for clients.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when `tcp.address` is not `IP:PORT`.
    pub fn client_listen_address(&self, config: &Config) -> Result<SocketAddr, ConfigError> {
        let configured = tcp_address(config)?;
        if self.clustered {
            Ok(SocketAddr::new(configured.ip(), self.own().ports.tcp))
        } else {
            Ok(configured)
        }
    }
}

impl Member {
    fn from_roster(node: &RosterNode) -> Result<Self, ConfigError> {
        let ip: IpAddr = node.ip.parse().map_err(|_| {
            ConfigError::rule(
                format!("cluster.nodes ({}) ip", node.name),
                format!("\"{}\" is not a literal IP address", node.ip),
            )
        })?;
        let mut selectors = node.advertised_addresses.clone();
        selectors.sort_by_key(|selector| std::cmp::Reverse(validate::prefix_length(selector)));
        Ok(Self {
            name: node.name.clone(),
            replica: ReplicaId(node.replica_id),
            advertised: node
                .advertised_address
                .clone()
                .unwrap_or_else(|| node.ip.clone()),
            selectors,
            replica_address: Some(SocketAddr::new(ip, node.ports.tcp_replica)),
            ports: node.ports,
        })
    }

    /// The address to report to a client that connects from `client` (chapter 09 section 5.6).
    pub fn address_for(&self, client: IpAddr) -> &str {
        self.selectors
            .iter()
            .find(|selector| validate::cidr_contains(&selector.client_cidr, client))
            .map_or(&self.advertised, |selector| &selector.address)
    }
}

fn tcp_address(config: &Config) -> Result<SocketAddr, ConfigError> {
    config.tcp.address.parse().map_err(|_| {
        ConfigError::rule(
            "tcp.address",
            format!(
                "\"{}\" is not IP:PORT with a literal IP",
                config.tcp.address
            ),
        )
    })
}

#[cfg(test)]
mod tests;
