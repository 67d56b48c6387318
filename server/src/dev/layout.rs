//! Where a development cluster lives: its folder, its ports, and the configuration file that all
//! of its nodes share.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::DevArgs;

/// Distance between a node's client port and its replica port.
const REPLICA_PORT_DISTANCE: u16 = 1000;
/// Distance between a node's client port and its WebSocket port.
const WEBSOCKET_PORT_DISTANCE: u16 = 100;
/// Distance between a node's client port and its HTTP port.
const HTTP_PORT_DISTANCE: u16 = 200;

/// Why a development cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The folder cannot be created or written.
    #[error("the data folder {} cannot be used: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Another process runs on the folder.
    #[error("the data folder {} is in use by another `biplane dev`", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder belongs to a cluster of another size.
    #[error(
        "the data folder {} holds a cluster of {found} nodes and {wanted} were asked for; use \
         --nodes {found}, another --data folder, or remove the folder",
        path.display()
    )]
    OtherSize {
        /// The folder.
        path: PathBuf,
        /// Nodes in the folder.
        found: u8,
        /// Nodes asked for.
        wanted: u8,
    },
    /// A port is taken.
    #[error(
        "port {port} ({purpose} of node {node}) is taken: {source}; stop what listens there or \
         choose another --base-port"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// What it is for.
        purpose: &'static str,
        /// Replica id.
        node: u8,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// A checked and locked folder with its configuration file.
#[derive(Debug)]
pub(super) struct Layout {
    /// Absolute folder.
    pub(super) folder: PathBuf,
    /// The file every node reads.
    pub(super) config: PathBuf,
    /// Nodes.
    pub(super) nodes: u8,
    base_port: u16,
    tls: bool,
    heartbeat_timeout: Duration,
    /// Held for as long as the cluster runs.
    _lock: File,
}

impl Layout {
    /// Checks folder and ports and writes the configuration file.
    ///
    /// # Errors
    /// [`LayoutError`] with a sentence for the operator.
    pub(super) fn prepare(args: &DevArgs) -> Result<Self, LayoutError> {
        let unusable = |source| LayoutError::Folder {
            path: args.data.clone(),
            source,
        };
        fs::create_dir_all(&args.data).map_err(unusable)?;
        let folder = fs::canonicalize(&args.data).map_err(unusable)?;
        let lock = lock(&folder)?;
        check_size(&folder, args.nodes)?;
        let layout = Self {
            config: folder.join("cluster.toml"),
            folder,
            nodes: args.nodes,
            base_port: args.base_port,
            tls: args.tls,
            heartbeat_timeout: args.heartbeat_timeout,
            _lock: lock,
        };
        layout.check_ports()?;
        let mut text = layout.config_text();
        // The nodes accept each other's tokens, and the cluster page can ask all of them.
        let secret = secret().map_err(unusable)?;
        let _ = write!(text, "\n[http.jwt]\nencoding_secret = \"{secret}\"\n");
        if layout.tls {
            text.push_str(&protection().map_err(unusable)?);
        }
        let mut file = private_file(&layout.config).map_err(unusable)?;
        file.write_all(text.as_bytes()).map_err(unusable)?;
        Ok(layout)
    }

    /// Client address of `node`.
    pub(super) fn client_address(&self, node: u8) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base_port + u16::from(node)).into()
    }

    /// Replica address of `node`.
    pub(super) fn replica_address(&self, node: u8) -> SocketAddr {
        let port = self.base_port + REPLICA_PORT_DISTANCE + u16::from(node);
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// WebSocket address of `node`.
    pub(super) fn websocket_address(&self, node: u8) -> SocketAddr {
        let port = self.base_port + WEBSOCKET_PORT_DISTANCE + u16::from(node);
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// HTTP address of `node`.
    pub(super) fn http_address(&self, node: u8) -> SocketAddr {
        let port = self.base_port + HTTP_PORT_DISTANCE + u16::from(node);
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Data folder of `node`.
    pub(super) fn node_folder(&self, node: u8) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }

    /// Log file of `node`.
    pub(super) fn log_file(&self, node: u8) -> PathBuf {
        self.folder.join(format!("node-{node}.log"))
    }

    fn check_ports(&self) -> Result<(), LayoutError> {
        for node in 0..self.nodes {
            let wanted = [
                ("client port", self.client_address(node)),
                ("WebSocket port", self.websocket_address(node)),
                ("HTTP port", self.http_address(node)),
                ("replica port", self.replica_address(node)),
            ];
            for (purpose, address) in wanted {
                // The probe is closed at once; the node itself binds again a moment later.
                TcpListener::bind(address).map_err(|source| LayoutError::PortTaken {
                    port: address.port(),
                    purpose,
                    node,
                    source,
                })?;
            }
        }
        Ok(())
    }

    fn config_text(&self) -> String {
        let mut text = String::from(
            "# Written by `biplane dev` at each start; edits are lost.\n\
             # One node alone: biplane serve --config FILE --replica-id N --data DIR\n",
        );
        let enabled = self.nodes > 1;
        let _ = write!(
            text,
            "[tcp]\naddress = \"{}\"\n\n[websocket]\naddress = \"{}\"\n\n\
             [http]\naddress = \"{}\"\n\n[quic]\nenabled = false\n\n\
             # The supervisor keeps what a node writes to standard error.\n\
             [logging]\nfile_enabled = false\n\n\
             [cluster]\nenabled = {enabled}\nname = \"biplane-dev\"\n\
             heartbeat_timeout = \"{}ms\"\n",
            self.client_address(0),
            self.websocket_address(0),
            self.http_address(0),
            self.heartbeat_timeout.as_millis(),
        );
        for node in 0..self.nodes {
            let _ = write!(
                text,
                "\n[[cluster.nodes]]\nname = \"node-{node}\"\nip = \"127.0.0.1\"\n\
                 replica_id = {node}\n\
                 ports = {{ tcp = {}, websocket = {}, http = {}, tcp_replica = {} }}\n",
                self.client_address(node).port(),
                self.websocket_address(node).port(),
                self.http_address(node).port(),
                self.replica_address(node).port(),
            );
        }
        text
    }
}

/// 64 characters of chance.
fn secret() -> std::io::Result<String> {
    let mut secret = String::new();
    for _ in 0..4 {
        let part = getrandom::u64().map_err(std::io::Error::other)?;
        let _ = write!(secret, "{part:016x}");
    }
    Ok(secret)
}

/// The sections of `--tls`, with a secret of this start: all nodes start together.
fn protection() -> std::io::Result<String> {
    let secret = secret()?;
    Ok(format!(
        "\n[tcp.tls]\nenabled = true\ncert_file = \"\"\n\n\
         [websocket.tls]\nenabled = true\ncert_file = \"\"\n\n\
         [cluster.auth]\nenabled = true\nshared_secret = \"{secret}\"\n\n\
         [cluster.tls]\nenabled = true\nself_signed = true\n"
    ))
}

/// Creates or empties a file that may hold a secret.
fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn lock(folder: &Path) -> Result<File, LayoutError> {
    let unusable = |source| LayoutError::Folder {
        path: folder.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join("lock"))
        .map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(LayoutError::InUse {
            path: folder.to_owned(),
        }),
        Err(fs::TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// Data written by a cluster of another size can never be opened again by this one (the superblock
/// names the replica count), so say it before any node does.
fn check_size(folder: &Path, wanted: u8) -> Result<(), LayoutError> {
    let found = (0..=u8::MAX)
        .take_while(|node| folder.join(format!("node-{node}")).is_dir())
        .count();
    let found = u8::try_from(found).unwrap_or(u8::MAX);
    if found != 0 && found != wanted {
        return Err(LayoutError::OtherSize {
            path: folder.to_owned(),
            found,
            wanted,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Identity, Variables};

    fn args(folder: &Path, nodes: u8, base_port: u16) -> DevArgs {
        DevArgs {
            nodes,
            base_port,
            data: folder.to_owned(),
            tls: false,
            heartbeat_timeout: Duration::from_secs(3),
        }
    }

    /// A base whose ports are all free, below those the system gives to outgoing connections.
    fn free_base_port() -> u16 {
        let distances = [0, WEBSOCKET_PORT_DISTANCE, REPLICA_PORT_DISTANCE];
        let is_free = |base: u16| {
            let ports = distances
                .iter()
                .flat_map(|distance| (0..5).map(move |node| base + distance + node));
            ports
                .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)))
                .all(|bound| bound.is_ok())
        };
        for _ in 0..1_000 {
            let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let base = 12_000 + probe.local_addr().unwrap().port() % 18_000;
            if is_free(base) {
                return base;
            }
        }
        panic!("no free ports on the loopback");
    }

    #[test]
    fn the_written_file_is_a_valid_cluster() {
        let folder = tempfile::tempdir().unwrap();
        for (nodes, tls) in [(1, false), (3, false), (5, false), (1, true), (3, true)] {
            let path = folder.path().join(format!("{nodes}-{tls}"));
            let args = DevArgs {
                tls,
                ..args(&path, nodes, free_base_port())
            };
            let layout = Layout::prepare(&args).unwrap();
            let config = Config::load(&layout.config, &Variables::default()).unwrap();
            assert_eq!(config.cluster.tls.enabled, tls);
            assert_eq!(config.tcp.tls.enabled, tls);
            assert_eq!(config.cluster.heartbeat_timeout.ticks(), 300);
            assert_eq!(
                config.cluster.auth.shared_secret.0.len(),
                64 * usize::from(tls)
            );
            let id = (nodes > 1).then_some(0);
            let identity = Identity::new(&config, id).unwrap();
            assert_eq!(identity.replica_count(), nodes);
            assert_eq!(
                identity.client_listen_address(&config).unwrap(),
                layout.client_address(0)
            );
            assert_eq!(
                identity.websocket_listen_address(&config).unwrap(),
                layout.websocket_address(0)
            );
            assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        }
    }

    #[test]
    fn a_taken_port_is_named_with_its_purpose() {
        let folder = tempfile::tempdir().unwrap();
        let base = free_base_port();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 1)).unwrap();
        let error = Layout::prepare(&args(folder.path(), 3, base))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("port {} (client port of node 1)", base + 1)),
            "{error}"
        );
    }

    #[test]
    fn a_folder_of_another_size_or_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for node in 0..3 {
            fs::create_dir(folder.path().join(format!("node-{node}"))).unwrap();
        }
        let error = Layout::prepare(&args(folder.path(), 5, free_base_port())).unwrap_err();
        assert!(error.to_string().contains("--nodes 3"), "{error}");
        let held = Layout::prepare(&args(folder.path(), 3, free_base_port())).unwrap();
        let error = Layout::prepare(&args(folder.path(), 3, free_base_port())).unwrap_err();
        assert!(matches!(error, LayoutError::InUse { .. }), "{error}");
        drop(held);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"x").unwrap();
        let error = Layout::prepare(&args(&file, 3, free_base_port())).unwrap_err();
        assert!(error.to_string().contains("cannot be used"), "{error}");
    }
}
