//! Nodes with HTTP listeners, and a client that sends one request and reads one answer: no
//! redirections, no retries, and bytes as they are.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::ports::HeldPorts;
use super::server::{self, TIMERS};
use super::web_tls::Certificate;
use super::{PASSWORD, TestFolder, Turn, USER, show_logs, turn, wait_until};

const SERVING_LIMIT: Duration = Duration::from_secs(40);
const ANSWER_LIMIT: Duration = Duration::from_secs(45);

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct WebAnswer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl WebAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// `id` of an error's body.
    pub(crate) fn error_id(&self) -> Option<u64> {
        let value: Value = serde_json::from_slice(&self.body).ok()?;
        value.get("id")?.as_u64()
    }
}

/// A request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WebRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) bearer: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: Option<&'a [u8]>,
    /// Lines of the head, each with its end.
    pub(crate) more: &'a str,
}

/// Sends a request on a connection of its own.
///
/// # Errors
/// What the socket said, or what is wrong with the answer.
pub(crate) fn send(address: SocketAddr, request: &WebRequest<'_>) -> Result<WebAnswer, String> {
    raw(address, &bytes(address, request))
}

fn bytes(address: SocketAddr, request: &WebRequest<'_>) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{}",
        request.method, request.target, request.more
    );
    if let Some(token) = request.bearer {
        let _ = write!(head, "authorization: Bearer {token}\r\n");
    }
    if let Some(content_type) = request.content_type {
        let _ = write!(head, "content-type: {content_type}\r\n");
    }
    if let Some(body) = request.body {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(request.body.unwrap_or_default());
    bytes
}

/// Sends these very bytes and reads an answer.
///
/// # Errors
/// As [`send`].
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Result<WebAnswer, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(2)).map_err(told)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT)).map_err(told)?;
    // A server that refuses a body may answer before it is sent.
    let sent = socket.write_all(bytes);
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    parse(&answer).ok_or_else(|| {
        let text = String::from_utf8_lossy(&answer).into_owned();
        format!("no answer: {text:?} (sent {sent:?}, read {read:?})")
    })
}

/// Reads an answer; `None` where there is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<WebAnswer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = bytes[end + 4..].to_vec();
    Some(WebAnswer {
        status,
        headers,
        body,
    })
}

struct WebNode {
    http: SocketAddr,
    process: Option<Child>,
}

/// One or three nodes that accept each other's tokens.
pub(crate) struct WebCluster {
    nodes: Vec<WebNode>,
    config: PathBuf,
    clustered: bool,
    /// What the nodes show, where they speak TLS.
    tls: Option<Arc<Certificate>>,
    folder: TestFolder,
    _turn: Turn,
}

impl WebCluster {
    /// Starts `count` nodes and waits until each of them is ready. `more` is put at the end of
    /// the configuration.
    pub(crate) fn start(count: usize, more: &str) -> Self {
        let mut cluster = Self::launch(count, more);
        cluster.wait_ready();
        cluster
    }

    /// Starts `count` nodes and waits for nothing.
    pub(crate) fn launch(count: usize, more: &str) -> Self {
        Self::launch_with(count, more, None)
    }

    /// Starts `count` nodes that speak TLS and waits for nothing.
    pub(crate) fn launch_tls(count: usize, tls: Arc<Certificate>) -> Self {
        Self::launch_with(count, &tls.section(), Some(tls))
    }

    fn launch_with(count: usize, more: &str, tls: Option<Arc<Certificate>>) -> Self {
        let turn = turn();
        let folder = TestFolder::new();
        let held = HeldPorts::any(3 * u16::try_from(count).expect("few"));
        let config = folder.path().join("cluster.toml");
        let clustered = count > 1;
        fs::write(&config, config_text(&held.ports, clustered, more)).expect("the file");
        let nodes = held.ports.chunks(3).map(|ports| WebNode {
            http: (Ipv4Addr::LOCALHOST, ports[2]).into(),
            process: None,
        });
        let nodes = nodes.collect();
        drop(held);
        let mut cluster = Self {
            nodes,
            config,
            clustered,
            tls,
            folder,
            _turn: turn,
        };
        for node in 0..count {
            cluster.spawn(node);
        }
        cluster
    }

    /// Waits until every running node is ready and names a primary.
    pub(crate) fn wait_ready(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_none() {
                continue;
            }
            wait_until(&format!("node {node} to be ready"), SERVING_LIMIT, || {
                self.check_alive();
                let answer = self.get(node, "/health/ready", None)?;
                (answer.status == 200)
                    .then_some(())
                    .ok_or_else(|| answer.text())
            });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].http
    }

    pub(crate) fn get(
        &self,
        node: usize,
        target: &str,
        bearer: Option<&str>,
    ) -> Result<WebAnswer, String> {
        let request = WebRequest {
            method: "GET",
            target,
            bearer,
            ..WebRequest::default()
        };
        self.send(node, &request)
    }

    /// Sends a request on a connection of its own, over TLS where the nodes speak it.
    pub(crate) fn send(&self, node: usize, request: &WebRequest<'_>) -> Result<WebAnswer, String> {
        let address = self.address(node);
        match &self.tls {
            Some(tls) => tls.raw(address, &bytes(address, request)),
            None => send(address, request),
        }
    }

    pub(crate) fn json(
        &self,
        node: usize,
        method: &str,
        target: &str,
        bearer: Option<&str>,
        body: &str,
    ) -> WebAnswer {
        let request = WebRequest {
            method,
            target,
            bearer,
            content_type: Some("application/json"),
            body: Some(body.as_bytes()),
            ..WebRequest::default()
        };
        self.send(node, &request).expect("an answer")
    }

    /// A token of a user.
    pub(crate) fn token(&self, node: usize, username: &str, password: &str) -> String {
        let body = format!(r#"{{"username":"{username}","password":"{password}"}}"#);
        let answer = self.json(node, "POST", "/users/login", None, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let json = answer.json();
        json["access_token"]["token"]
            .as_str()
            .expect("a token")
            .to_owned()
    }

    /// A token of the root user.
    pub(crate) fn root(&self) -> String {
        self.token(0, USER, PASSWORD)
    }

    /// The node that leads the metadata group, as `node` sees it.
    pub(crate) fn primary(&self, node: usize, token: &str) -> Option<usize> {
        let answer = self.get(node, "/cluster/metadata", Some(token)).ok()?;
        let json = answer.json();
        let nodes = json["nodes"].as_array()?.clone();
        nodes.iter().position(|node| node["role"] == "leader")
    }

    pub(crate) fn kill9(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().expect("the node runs");
        process.kill().expect("the process can be killed");
        process.wait().expect("the process ends");
    }

    pub(crate) fn restart(&mut self, node: usize) {
        assert!(self.nodes[node].process.is_none(), "node {node} still runs");
        self.spawn(node);
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

    /// What the nodes have logged.
    pub(crate) fn logs(&self) -> String {
        let read = |node| {
            let path = server::log(self.folder.path(), node);
            fs::read_to_string(path).unwrap_or_default()
        };
        (0..self.nodes.len()).map(read).collect()
    }

    fn spawn(&mut self, node: usize) {
        let (folder, command) = (self.folder.path(), server::program());
        let process = server::serve(command, folder, &self.config, node, self.clustered);
        self.nodes[node].process = Some(process);
    }
}

impl Drop for WebCluster {
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

fn config_text(ports: &[u16], clustered: bool, more: &str) -> String {
    let mut text = format!(
        "[tcp]\naddress = \"127.0.0.1:{}\"\n\n[http]\naddress = \"127.0.0.1:{}\"\n\n\
         [websocket]\nenabled = false\n\n[quic]\nenabled = false\n\n\
         [logging]\nfile_enabled = false\n\n\
         [message_bus]\nreconnect_period = \"200ms\"\n\n{more}\n",
        ports[0], ports[2]
    );
    if !clustered {
        return text;
    }
    text.push_str("[cluster]\nenabled = true\nname = \"web\"\n");
    text.push_str(TIMERS);
    text.push_str(
        "\n[cluster.auth]\nenabled = true\nshared_secret = \"0123456789abcdef0123456789abcdef\"\n",
    );
    for (node, ports) in ports.chunks(3).enumerate() {
        let _ = write!(
            text,
            "\n[[cluster.nodes]]\nname = \"node-{node}\"\nip = \"127.0.0.1\"\n\
             replica_id = {node}\nports = {{ tcp = {}, tcp_replica = {}, http = {} }}\n",
            ports[0], ports[1], ports[2]
        );
    }
    text
}
