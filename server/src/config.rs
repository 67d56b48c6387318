//! Configuration: the file, the environment, their validation, and the node identity that comes
//! out of them.
//!
//! ```text
//!   file ──────► table ─┐
//!   environment ────────┼─► names and types ─► defaults ─► Config ─► rules
//!   (.env below it) ────┘        │                                    │
//!                                └──────────── problems ◄─────────────┘
//! ```
//!
//! The file is the one of chapter 09. A boot is refused by the first problem; `biplane config
//! check` shows all of them.

mod advertised;
mod environment;
mod example;
mod layers;
mod problem;
mod schema;
mod sections;
mod structure;
mod validate;
mod values;
mod variables;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use biplane_wire::{ClusterId, ReplicaId};
use toml::{Table, Value};
use zeroize::{Zeroize as _, Zeroizing};

pub use example::example;
pub use problem::{Place, Problem};
pub use sections::{
    AdvertisedAddress, Cluster, ClusterAuth, ClusterTls, Config, Http, HttpCors, HttpJwt, HttpTls,
    ListenerTls, Logging, Ports, RosterNode, WebSocket,
};
pub use validate::HEARTBEAT_TIMEOUT_MIN;
pub use values::{ConfigDuration, ConfigSize, Secret};
pub(crate) use values::{Expiry, parse_expiry};
pub use variables::{Variables, is_configuration};

use problem::Problems;

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
    /// The file of environment variables cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    DotEnv {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: dotenvy::Error,
    },
    /// A rule is broken.
    #[error("configuration{}: {problem}", match path {
        Some(path) => format!(" {}", path.display()),
        None => String::new(),
    })]
    Refused {
        /// The file, when there is one.
        path: Option<PathBuf>,
        /// The first of perhaps several problems.
        problem: Box<Problem>,
    },
    /// The command line does not go with the configuration.
    #[error("{key}: {reason}")]
    Rule {
        /// The flag or key.
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

/// Everything that was found out about a configuration.
#[derive(Debug)]
pub struct Checked {
    /// What a node would be started with; none when the text cannot be read at all.
    pub config: Option<Config>,
    /// Broken rules, in the order they were found.
    pub problems: Vec<Problem>,
}

impl Config {
    /// Reads and validates the file at `path`, with `variables` laid over it.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that fails.
    pub fn load(path: &Path, variables: &Variables) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        Self::check(&text, variables).into_config(Some(path))
    }

    /// Finds the file that `variables` name, if there is one, and reads and validates it. A missing
    /// file is a warning only.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that fails.
    pub fn find(variables: &Variables) -> Result<Self, ConfigError> {
        let (wanted, found) = variables.config_file();
        if let Some(path) = found {
            return Self::load(&path, variables);
        }
        let mut config = Self::check("", variables).into_config(None)?;
        config.warnings.push(format!(
            "there is no configuration file {}; every key has its default",
            wanted.display()
        ));
        Ok(config)
    }

    /// Reads and validates a file's text, without an environment.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that fails.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::check(text, &Variables::default()).into_config(None)
    }

    /// Finds every problem of a file's text with `variables` laid over it.
    pub fn check(text: &str, variables: &Variables) -> Checked {
        let mut problems = Problems::default();
        let mut warnings = Vec::new();
        let mut table = layers::read(text, &mut problems);
        if !problems.found.is_empty() {
            return Checked {
                config: None,
                problems: problems.found,
            };
        }
        environment::overlay(&mut table, variables, &mut problems);
        structure::check(&mut table, &mut problems, &mut warnings);
        for array in schema::ARRAYS {
            // Entries with problems of their own say nothing about the rest.
            if problems.has_below(array) {
                layers::remove(&mut table, array);
            }
        }
        layers::fill(&mut table, layers::defaults());
        let config = table.clone().try_into::<Self>();
        forget(&mut table);
        let config = match config {
            Ok(mut config) => {
                validate::validate(&config, &mut problems);
                warnings.extend(validate::without_effect(&table));
                config.effective = table;
                config.warnings = warnings;
                Some(config)
            }
            Err(error) => {
                problems.add("", error.message());
                None
            }
        };
        Checked {
            config,
            problems: problems.found,
        }
    }

    /// Wipes the secrets. Nothing asks for them once the keys are derived.
    pub(crate) fn forget_secrets(&mut self) {
        self.cluster.auth.shared_secret = Secret::default();
        self.cluster.auth.previous_shared_secret = Secret::default();
        self.http.jwt.encoding_secret = Secret::default();
        self.http.jwt.decoding_secret = Secret::default();
    }

    /// The values in effect as a file, without the secrets.
    pub fn effective_text(&self) -> String {
        toml::to_string(&self.effective).unwrap_or_default()
    }

    /// Notes what a listener was bound to, in the values in effect.
    pub(crate) fn bound(&mut self, key: &str, address: SocketAddr) {
        layers::put(&mut self.effective, key, Value::String(address.to_string()));
    }

    /// Notes a bound port of the roster entry of `replica`.
    pub(crate) fn bound_port(&mut self, replica: ReplicaId, transport: &str, port: u16) {
        let index = self
            .cluster
            .nodes
            .iter()
            .position(|node| node.replica_id == replica.0);
        if let Some(index) = index {
            let path = format!("cluster.nodes[{index}].ports.{transport}");
            layers::put(&mut self.effective, &path, Value::Integer(port.into()));
        }
    }
}

impl Checked {
    fn into_config(self, path: Option<&Path>) -> Result<Config, ConfigError> {
        match (self.problems.into_iter().next(), self.config) {
            (None, Some(config)) => Ok(config),
            (Some(problem), _) => Err(ConfigError::Refused {
                path: path.map(Path::to_owned),
                problem: Box::new(problem),
            }),
            (None, None) => Err(ConfigError::rule("configuration", "cannot be read")),
        }
    }
}

/// Reads a configuration file. Its text is wiped when dropped: it may hold secrets.
///
/// # Errors
/// [`ConfigError::Unreadable`].
pub fn read_file(path: &Path) -> Result<Zeroizing<String>, ConfigError> {
    let read = std::fs::read_to_string(path).map(Zeroizing::new);
    read.map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Wipes and removes the secrets of a table.
fn forget(table: &mut Table) {
    for key in schema::keys().filter(|key| key.kind == schema::Kind::Secret) {
        if let Some(Value::String(text)) = layers::get_mut(table, key.path) {
            text.zeroize();
        }
        layers::remove(table, key.path);
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
            .map(|node| Member::from_roster(config, node))
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
        let advertised = match &config.node.advertised_address {
            Some(address) => advertised::canonical(address),
            None => advertised::derived(config).unwrap_or_default(),
        };
        let tcp = listen_address("tcp.address", &config.tcp.address)?;
        let websocket = listen_address("websocket.address", &config.websocket.address)?;
        let http = listen_address("http.address", &config.http.address)?;
        let ports = served(
            config,
            Ports {
                tcp: tcp.port(),
                websocket: websocket.port(),
                http: http.port(),
                ..Ports::default()
            },
        );
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

    /// Where this node listens for clients over TCP.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when `tcp.address` is not `IP:PORT`.
    pub fn client_listen_address(&self, config: &Config) -> Result<SocketAddr, ConfigError> {
        let configured = listen_address("tcp.address", &config.tcp.address)?;
        Ok(self.with_roster_port(configured, |ports| ports.tcp))
    }

    /// Where this node listens for clients over WebSocket.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when `websocket.address` is not `IP:PORT`.
    pub fn websocket_listen_address(&self, config: &Config) -> Result<SocketAddr, ConfigError> {
        let configured = listen_address("websocket.address", &config.websocket.address)?;
        Ok(self.with_roster_port(configured, |ports| ports.websocket))
    }

    /// Where this node listens for HTTP.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when `http.address` is not `IP:PORT`.
    pub fn http_listen_address(&self, config: &Config) -> Result<SocketAddr, ConfigError> {
        let configured = listen_address("http.address", &config.http.address)?;
        Ok(self.with_roster_port(configured, |ports| ports.http))
    }

    fn with_roster_port(&self, address: SocketAddr, port: impl Fn(&Ports) -> u16) -> SocketAddr {
        match self.clustered {
            true => SocketAddr::new(address.ip(), port(&self.own().ports)),
            false => address,
        }
    }

    /// Takes the port a listener was really bound to, which clients are told from now on.
    pub(crate) fn bound(&mut self, set: impl FnOnce(&mut Ports)) {
        let own = self.replica;
        if let Some(member) = self.roster.iter_mut().find(|member| member.replica == own) {
            set(&mut member.ports);
        }
    }
}

impl Member {
    fn from_roster(config: &Config, node: &RosterNode) -> Result<Self, ConfigError> {
        let ip: IpAddr = node.ip.parse().map_err(|_| {
            ConfigError::rule(
                format!("cluster.nodes ({}) ip", node.name),
                format!("\"{}\" is not a literal IP address", node.ip),
            )
        })?;
        let mut selectors = node.advertised_addresses.clone();
        for selector in &mut selectors {
            selector.address = advertised::canonical(&selector.address);
        }
        selectors.sort_by_key(|selector| std::cmp::Reverse(advertised::prefix_length(selector)));
        Ok(Self {
            name: node.name.clone(),
            replica: ReplicaId(node.replica_id),
            advertised: match &node.advertised_address {
                Some(address) => advertised::canonical(address),
                None => node.ip.clone(),
            },
            selectors,
            replica_address: Some(SocketAddr::new(ip, node.ports.tcp_replica)),
            ports: served(config, node.ports),
        })
    }

    /// The address to report to a client that connects from `client` (chapter 09 section 5.6).
    pub fn address_for(&self, client: IpAddr) -> &str {
        self.selectors
            .iter()
            .find(|selector| advertised::cidr_contains(&selector.client_cidr, client))
            .map_or(&self.advertised, |selector| &selector.address)
    }
}

/// The ports clients are told: 0 for a transport that is off or not served.
fn served(config: &Config, ports: Ports) -> Ports {
    let when = |enabled: bool, port: u16| if enabled { port } else { 0 };
    Ports {
        tcp: when(config.tcp.enabled, ports.tcp),
        websocket: when(config.websocket.enabled, ports.websocket),
        quic: 0,
        http: when(config.http.enabled, ports.http),
        tcp_replica: ports.tcp_replica,
    }
}

fn listen_address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse()
        .map_err(|_| ConfigError::rule(key, format!("\"{text}\" is not IP:PORT with a literal IP")))
}

#[cfg(test)]
mod tests;
