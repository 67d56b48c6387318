//! `biplane serve` processes with a configuration file each, so that two nodes of a cluster can
//! disagree about it, and with a proxy in every link where a test wants to break links.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use crate::proxy::Proxy;
use crate::support::ports::HeldPorts;
use crate::support::raw_client::RawClient;
use crate::support::server::{self, TIMERS};
use crate::support::{TestFolder, Turn, show_logs, turn, wait_until};

/// The shared secret of every test that needs one. Its derived key is a published vector.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// How long a boot or an election may take before a test gives up.
const SERVING_LIMIT: Duration = Duration::from_secs(30);

/// Clients come over TCP alone.
const TCP_ONLY: &str =
    "[quic]\nenabled = false\n[http]\nenabled = false\n[websocket]\nenabled = false\n";

/// Sections that a test adds to a node's file: `[cluster.auth]`, `[cluster.tls]` and the like.
pub(crate) fn auth(secret: &str) -> String {
    format!("[cluster.auth]\nenabled = true\nshared_secret = \"{secret}\"\n")
}

/// What a node is started with.
#[derive(Debug, Clone)]
pub(crate) struct NodeSetup {
    /// Name of the cluster.
    pub(crate) cluster: &'static str,
    /// More sections of the file.
    pub(crate) sections: String,
}

impl NodeSetup {
    pub(crate) fn new(sections: String) -> Self {
        Self {
            cluster: "mesh",
            sections,
        }
    }
}

/// Some nodes on free ports. They end with the value, also when a test fails, and then their last
/// log lines are shown.
pub(crate) struct Nodes {
    clients: Vec<u16>,
    replicas: Vec<u16>,
    processes: Vec<Option<Child>>,
    proxies: Vec<(usize, usize, Proxy)>,
    log_level: &'static str,
    pub(crate) folder: TestFolder,
    _turn: Turn,
}

impl Nodes {
    /// Reserves ports for `count` nodes; none runs yet.
    pub(crate) fn new(count: usize, with_proxies: bool, log_level: &'static str) -> Self {
        let turn = turn();
        let pairs: Vec<(usize, usize)> = (0..count)
            .flat_map(|low| (low + 1..count).map(move |high| (low, high)))
            .filter(|_| with_proxies)
            .collect();
        let held = HeldPorts::any((2 * count + pairs.len()) as u16);
        let (clients, rest) = held.ports.split_at(count);
        let (replicas, fronts) = rest.split_at(count);
        let (clients, replicas, fronts) = (clients.to_vec(), replicas.to_vec(), fronts.to_vec());
        drop(held);
        let proxies = pairs
            .into_iter()
            .zip(fronts)
            .map(|((low, high), front)| (low, high, Proxy::start(front, replicas[high])))
            .collect();
        Self {
            clients,
            replicas,
            processes: (0..count).map(|_| None).collect(),
            proxies,
            log_level,
            folder: TestFolder::new(),
            _turn: turn,
        }
    }

    /// Three nodes with one setup, once they serve.
    pub(crate) fn cluster(sections: String, with_proxies: bool, log_level: &'static str) -> Self {
        let mut nodes = Self::new(3, with_proxies, log_level);
        let setup = NodeSetup::new(sections);
        for node in 0..3 {
            nodes.configure(node, &setup);
            nodes.start(node);
        }
        nodes.wait_serving();
        nodes
    }

    pub(crate) fn client_address(&self, node: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.clients[node]).into()
    }

    pub(crate) fn client_addresses(&self) -> Vec<SocketAddr> {
        (0..self.clients.len())
            .map(|node| self.client_address(node))
            .collect()
    }

    pub(crate) fn replica_address(&self, node: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.replicas[node]).into()
    }

    /// The proxy between two nodes.
    pub(crate) fn link(&self, low: usize, high: usize) -> &Proxy {
        let found = self
            .proxies
            .iter()
            .find(|(a, b, _)| (*a, *b) == (low, high));
        &found.expect("a cluster with proxies").2
    }

    /// Writes the file of `node`.
    pub(crate) fn configure(&self, node: usize, setup: &NodeSetup) {
        let mut text = format!(
            "{TCP_ONLY}[message_bus]\nreconnect_period = \"500ms\"\nhandshake_grace = \"2s\"\n\n\
             [cluster]\nenabled = true\nname = \"{}\"\n{TIMERS}\n{}",
            setup.cluster, setup.sections
        );
        for (other, (client, replica)) in self.clients.iter().zip(&self.replicas).enumerate() {
            // Whoever dials finds the proxy in the roster; the node itself its own port.
            let front = self
                .proxies
                .iter()
                .find(|(low, high, _)| (*low, *high) == (node, other))
                .map_or(*replica, |(_, _, proxy)| proxy.port());
            let _ = write!(
                text,
                "\n[[cluster.nodes]]\nname = \"node-{other}\"\nip = \"127.0.0.1\"\n\
                 replica_id = {other}\nports = {{ tcp = {client}, tcp_replica = {front} }}\n"
            );
        }
        fs::write(self.config(node), text).expect("the configuration file");
    }

    fn config(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}.toml"))
    }

    fn log_file(&self, node: usize) -> PathBuf {
        server::log(self.folder.path(), node)
    }

    /// What `node` has logged so far.
    pub(crate) fn log(&self, node: usize) -> String {
        fs::read_to_string(self.log_file(node)).unwrap_or_default()
    }

    /// Starts node 0 without clustering.
    pub(crate) fn start_single(&mut self, sections: &str) {
        let text = format!(
            "{TCP_ONLY}{sections}[tcp]\naddress = \"{}\"\n",
            self.client_address(0)
        );
        fs::write(self.config(0), text).expect("the configuration file");
        self.start(0);
    }

    /// Starts `node` on the data it had.
    pub(crate) fn start(&mut self, node: usize) {
        assert!(self.processes[node].is_none(), "node {node} still runs");
        let mut command = server::program();
        command.env("RUST_LOG", self.log_level);
        let (folder, config) = (self.folder.path(), self.config(node));
        let process = server::serve(command, folder, &config, node, true);
        self.processes[node] = Some(process);
    }

    fn pid(&self, node: usize) -> u32 {
        self.processes[node].as_ref().expect("the node runs").id()
    }

    /// Sends a signal by its name.
    fn signal(&self, node: usize, name: &str) {
        let status = Command::new("kill")
            .args([name, &self.pid(node).to_string()])
            .status()
            .expect("a process can be signalled");
        assert!(status.success(), "kill {name}");
    }

    /// Stops the process without its knowing; its sockets stay open.
    pub(crate) fn freeze(&self, node: usize) {
        self.signal(node, "-STOP");
    }

    pub(crate) fn thaw(&self, node: usize) {
        self.signal(node, "-CONT");
    }

    /// Kills `node` with SIGKILL and reaps it.
    pub(crate) fn kill9(&mut self, node: usize) {
        let mut process = self.processes[node].take().expect("the node runs");
        process.kill().expect("the process can be killed");
        process.wait().expect("the process ends");
    }

    /// Asks `node` to stop, and waits until it has.
    pub(crate) fn stop(&mut self, node: usize) {
        self.signal(node, "-TERM");
        let mut process = self.processes[node].take().expect("the node runs");
        wait_until(
            &format!("node {node} stopped"),
            SERVING_LIMIT,
            || match process.try_wait().expect("a child can be asked") {
                Some(status) if status.success() => Ok(()),
                Some(status) => panic!("node {node} ended with {status}"),
                None => Err("it runs".to_owned()),
            },
        );
    }

    /// Waits for a node that ends by itself; true when it says that all went well.
    pub(crate) fn wait_end(&mut self, node: usize) -> bool {
        let mut process = self.processes[node].take().expect("the node runs");
        wait_until(
            &format!("node {node} ended"),
            SERVING_LIMIT,
            || match process.try_wait().expect("a child can be asked") {
                Some(status) => Ok(status.success()),
                None => Err("it runs".to_owned()),
            },
        )
    }

    /// Panics when a node that should run has ended by itself.
    pub(crate) fn check_alive(&mut self) {
        for (id, slot) in self.processes.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            if let Some(status) = process.try_wait().expect("a child can be asked") {
                *slot = None;
                panic!("node {id} ended by itself: {status}");
            }
        }
    }

    /// A logged-in raw connection to `node`.
    pub(crate) fn raw(&mut self, node: usize) -> RawClient {
        let address = self.client_address(node);
        wait_until(&format!("a login at node {node}"), SERVING_LIMIT, || {
            self.check_alive();
            RawClient::login(address).map_err(|error| error.to_string())
        })
    }

    /// Waits until every node serves logins.
    pub(crate) fn wait_serving(&mut self) {
        for node in 0..self.processes.len() {
            self.raw(node).ping().expect("a ping is answered");
        }
    }

    /// The metadata primary as `node` names it.
    pub(crate) fn primary_named_by(&mut self, node: usize) -> usize {
        let mut raw = self.raw(node);
        wait_until("a primary", SERVING_LIMIT, || {
            let roster = raw.cluster_metadata().map_err(|error| error.to_string())?;
            let primary = roster.iter().position(|entry| entry.is_primary);
            primary.ok_or_else(|| "none is named".to_owned())
        })
    }

    /// Waits until the log of `node` contains `text` once more than `seen` times.
    pub(crate) fn wait_logged(&self, node: usize, text: &str, limit: Duration) {
        wait_until(&format!("node {node} logs {text}"), limit, || {
            if self.log(node).contains(text) {
                Ok(())
            } else {
                Err("it does not".to_owned())
            }
        });
    }

    /// Resident memory of `node` in bytes.
    pub(crate) fn memory(&self, node: usize) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid(node)));
        let status = status.expect("a process has a status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number of KiB")
            * 1024
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            show_logs(self.folder.path());
        }
    }
}
