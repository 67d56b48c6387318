//! Three `biplane serve` processes with one configuration file, free ports and folders of their
//! own. They end with the value, also when a test fails, and then their last log lines are shown.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use super::ports::HeldPorts;
use super::raw_client::{RawClient, RawNode};
use super::server::{self, TIMERS};
use super::{TestFolder, Turn, show_logs, turn, wait_until};

/// Nodes of a test cluster.
pub(crate) const NODES: usize = 3;
/// How long a boot or an election may take before a test gives up.
const SERVING_LIMIT: Duration = Duration::from_secs(30);

/// A running cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    config: PathBuf,
    folder: TestFolder,
    /// Files a node may have open; as many as the test itself when absent.
    files_max: Option<u32>,
    _turn: Turn,
}

#[derive(Debug)]
struct Node {
    client: SocketAddr,
    websocket: SocketAddr,
    process: Option<Child>,
}

impl Cluster {
    /// Starts all nodes and waits until each of them serves logins and they name one primary.
    pub(crate) fn start() -> Self {
        Self::start_as("", TIMERS, None)
    }

    /// The same with the intervals and timeouts that a configuration file without any has.
    pub(crate) fn start_with_default_timers() -> Self {
        Self::start_as("", "", None)
    }

    /// The same with nodes that may have so many files open.
    pub(crate) fn start_with_files(files_max: u32) -> Self {
        Self::start_as("", TIMERS, Some(files_max))
    }

    /// The same with more sections in the file. A node with TLS for TCP clients cannot be asked
    /// whether it serves, so a caller must not add that.
    pub(crate) fn start_with(sections: &str) -> Self {
        Self::start_as(sections, TIMERS, None)
    }

    fn start_as(sections: &str, timers: &str, files_max: Option<u32>) -> Self {
        let turn = turn();
        let folder = TestFolder::new();
        let held = HeldPorts::any(3 * NODES as u16);
        let (clients, rest) = held.ports.split_at(NODES);
        let (websockets, replicas) = rest.split_at(NODES);
        let config = folder.path().join("cluster.toml");
        fs::write(
            &config,
            config_text(clients, websockets, replicas, (sections, timers)),
        )
        .expect("the configuration file");
        let nodes = clients
            .iter()
            .zip(websockets)
            .map(|(port, websocket)| Node {
                client: (Ipv4Addr::LOCALHOST, *port).into(),
                websocket: (Ipv4Addr::LOCALHOST, *websocket).into(),
                process: None,
            })
            .collect();
        drop(held);
        let mut cluster = Self {
            nodes,
            config,
            folder,
            files_max,
            _turn: turn,
        };
        for node in 0..NODES {
            cluster.spawn(node);
        }
        cluster.wait_serving();
        cluster
    }

    /// Client address of `node`.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].client
    }

    /// WebSocket address of `node`.
    pub(crate) fn websocket(&self, node: usize) -> SocketAddr {
        self.nodes[node].websocket
    }

    /// Client addresses in order of replica id.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.client).collect()
    }

    /// Process id of `node`.
    pub(crate) fn pid(&self, node: usize) -> u32 {
        self.nodes[node]
            .process
            .as_ref()
            .expect("the node runs")
            .id()
    }

    /// Memory of `node` that is in use, in bytes; 0 where the system does not tell.
    pub(crate) fn memory(&self, node: usize) -> u64 {
        let process = self.nodes[node].process.as_ref().expect("the node runs");
        let status = fs::read_to_string(format!("/proc/{}/status", process.id()));
        status
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            })
            .map_or(0, |kib| kib << 10)
    }

    /// Kills `node` with SIGKILL and reaps it.
    pub(crate) fn kill9(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().expect("the node runs");
        process.kill().expect("the process can be killed");
        process.wait().expect("the process ends");
    }

    /// Kills every node that runs with SIGKILL, none of them waiting for another's end.
    pub(crate) fn kill9_all(&mut self) {
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                process.kill().expect("the process can be killed");
            }
        }
        for node in &mut self.nodes {
            if let Some(mut process) = node.process.take() {
                process.wait().expect("the process ends");
            }
        }
    }

    /// Starts `node` again on the data it had.
    pub(crate) fn restart(&mut self, node: usize) {
        assert!(self.nodes[node].process.is_none(), "node {node} still runs");
        self.spawn(node);
    }

    /// A logged-in raw connection to `node`.
    pub(crate) fn raw(&mut self, node: usize) -> RawClient {
        wait_until(&format!("a login at node {node}"), SERVING_LIMIT, || {
            self.check_alive();
            RawClient::login(self.nodes[node].client).map_err(|error| error.to_string())
        })
    }

    /// The metadata primary on which all running nodes agree, waiting for an election if need be.
    pub(crate) fn primary(&mut self) -> usize {
        wait_until(
            "one primary named by all running nodes",
            SERVING_LIMIT,
            || {
                self.check_alive();
                let mut named = Vec::new();
                for (id, node) in self.nodes.iter().enumerate() {
                    if node.process.is_some() {
                        let primary = self.primary_named_by(id)?;
                        if named.last().is_some_and(|other| *other != primary) {
                            return Err(format!("node {id} names {primary}, others {named:?}"));
                        }
                        named.push(primary);
                    }
                }
                let primary = *named.first().ok_or("no node runs")?;
                if self.nodes[primary].process.is_none() {
                    return Err(format!("the primary is node {primary}, which is dead"));
                }
                Ok(primary)
            },
        )
    }

    fn primary_named_by(&self, node: usize) -> Result<usize, String> {
        let says = |what: String| format!("node {node}: {what}");
        let mut raw = RawClient::login(self.nodes[node].client)
            .map_err(|error| says(format!("login: {error}")))?;
        let roster = raw
            .cluster_metadata()
            .map_err(|error| says(format!("cluster metadata: {error}")))?;
        self.check_roster(&roster);
        roster
            .iter()
            .position(|entry| entry.is_primary)
            .ok_or_else(|| says("no primary".into()))
    }

    fn check_roster(&self, roster: &[RawNode]) {
        let listed: Vec<_> = roster
            .iter()
            .map(|entry| format!("{} {}:{}", entry.name, entry.ip, entry.tcp))
            .collect();
        let wanted: Vec<_> = (0..NODES)
            .map(|node| format!("node-{node} {}", self.nodes[node].client))
            .collect();
        assert_eq!(listed, wanted, "the cluster metadata is the roster");
    }

    fn wait_serving(&mut self) {
        for node in 0..NODES {
            let mut raw = self.raw(node);
            raw.ping().expect("a ping is answered");
        }
        self.primary();
    }

    /// Panics when a node that should run has ended by itself.
    pub(crate) fn check_alive(&mut self) {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let Some(process) = &mut node.process else {
                continue;
            };
            if let Some(status) = process.try_wait().expect("a child can be asked") {
                node.process = None;
                panic!("node {id} ended by itself: {status}");
            }
        }
    }

    /// Kills `node` unless it is down already.
    pub(crate) fn kill9_if_running(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            self.kill9(node);
        }
    }

    /// Removes all that `node`, which is down, has on its disk.
    pub(crate) fn wipe(&mut self, node: usize) {
        assert!(self.nodes[node].process.is_none(), "node {node} still runs");
        let data = self.data(node);
        if data.exists() {
            fs::remove_dir_all(data).expect("the data folder can be removed");
        }
    }

    /// Asks every running node to stop, and waits for their ends.
    pub(crate) fn stop_all(&mut self) {
        for node in &self.nodes {
            if let Some(process) = &node.process {
                let asked = Command::new("kill")
                    .args(["-TERM", &process.id().to_string()])
                    .status();
                assert!(asked.expect("kill runs").success(), "kill -TERM");
            }
        }
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let Some(mut process) = node.process.take() else {
                continue;
            };
            let status = wait_until(&format!("the end of node {id}"), SERVING_LIMIT, || {
                let ended = process.try_wait().expect("a child can be asked");
                ended.ok_or_else(|| "it still runs".to_owned())
            });
            assert!(status.success(), "node {id} stops in order: {status}");
        }
    }

    /// The data folder of `node`.
    pub(crate) fn data(&self, node: usize) -> PathBuf {
        server::data(self.folder.path(), node)
    }

    /// All that `node` has logged.
    pub(crate) fn log_text(&self, node: usize) -> String {
        fs::read_to_string(self.log(node)).expect("a log")
    }

    fn log(&self, node: usize) -> PathBuf {
        server::log(self.folder.path(), node)
    }

    fn spawn(&mut self, node: usize) {
        // Another build of the server, for runs that are long.
        let program = std::env::var_os("BIPLANE_TEST_PROGRAM")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_biplane").into());
        let command = match self.files_max {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""))
                    .arg(program);
                shell
            }
        };
        let process = server::serve(command, self.folder.path(), &self.config, node, true);
        self.nodes[node].process = Some(process);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        if std::thread::panicking() {
            show_logs(self.folder.path());
        }
    }
}

fn config_text(
    clients: &[u16],
    websockets: &[u16],
    replicas: &[u16],
    (sections, timers): (&str, &str),
) -> String {
    let mut text = String::from("[message_bus]\nreconnect_period = \"200ms\"\n\n");
    text.push_str("[quic]\nenabled = false\n[http]\nenabled = false\n");
    text.push_str(sections);
    text.push_str("[cluster]\nenabled = true\nname = \"end-to-end\"\n");
    text.push_str(timers);
    let ports = clients.iter().zip(websockets).zip(replicas);
    for (node, ((client, websocket), replica)) in ports.enumerate() {
        let _ = write!(
            text,
            "\n[[cluster.nodes]]\nname = \"node-{node}\"\nip = \"127.0.0.1\"\n\
             replica_id = {node}\nports = {{ tcp = {client}, websocket = {websocket}, \
             tcp_replica = {replica} }}\n"
        );
    }
    text
}
