//! `biplane dev`: a whole cluster on loopback, each node its own process.
//!
//! The supervisor checks folder and ports, starts the nodes, shows who is primary, and stops all of
//! them on Ctrl-C. A node that dies stays down, with the command that starts it again on the
//! screen: failover is what a developer wants to try here.

mod board;
mod layout;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use board::Board;
use layout::Layout;
pub use layout::LayoutError;

use crate::cli::DevArgs;
use crate::config::is_configuration;
use crate::signals;
use crate::supervised::Report;

/// How long nodes may take to stop before they are killed.
const STOP_BUDGET: Duration = Duration::from_secs(15);
/// How often the supervisor looks whether a node has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why a development cluster could not run.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// Folder or ports.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A process cannot be started.
    #[error("cannot start node {node}: {source}")]
    Spawn {
        /// Replica id.
        node: u8,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Signals cannot be caught.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// Every node ended by itself.
    #[error("no node is left running; see the log files in {0}")]
    AllEnded(String),
}

enum Event {
    Report(Report),
    Stop,
}

struct Node {
    id: u8,
    process: Child,
    ended: bool,
}

/// Runs the cluster until Ctrl-C.
///
/// # Errors
/// [`DevError`] with a sentence for the developer.
pub fn run(args: &DevArgs) -> Result<(), DevError> {
    let layout = Layout::prepare(args)?;
    let addresses =
        (0..layout.nodes).map(|node| (layout.client_address(node), layout.replica_address(node)));
    let mut board = Board::new(addresses);
    let (sender, events) = mpsc::channel();
    let stop = sender.clone();
    signals::on_stop(move || {
        let _ = stop.send(Event::Stop);
    })
    .map_err(DevError::Signals)?;
    println!(
        "starting {} node{} in {}",
        layout.nodes,
        if layout.nodes == 1 { "" } else { "s" },
        layout.folder.display()
    );
    let mut nodes = Vec::new();
    for id in 0..layout.nodes {
        match start(&layout, id, &sender) {
            Ok(process) => nodes.push(Node {
                id,
                process,
                ended: false,
            }),
            Err(source) => {
                stop_all(&mut nodes);
                return Err(DevError::Spawn { node: id, source });
            }
        }
    }
    let outcome = follow(&layout, &mut board, &mut nodes, &events);
    stop_all(&mut nodes);
    println!("stopped");
    outcome
}

fn follow(
    layout: &Layout,
    board: &mut Board,
    nodes: &mut [Node],
    events: &Receiver<Event>,
) -> Result<(), DevError> {
    loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Report(report)) => print(board.report(report)),
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                println!("stopping");
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        for node in nodes.iter_mut().filter(|node| !node.ended) {
            let Ok(Some(status)) = node.process.try_wait() else {
                continue;
            };
            node.ended = true;
            // Its last words may still be on the way through the reader thread.
            while let Ok(event) = events.recv_timeout(POLL_INTERVAL) {
                match event {
                    Event::Report(report) => print(board.report(report)),
                    Event::Stop => return Ok(()),
                }
            }
            let log = layout.log_file(node.id).display().to_string();
            print(board.exited(node.id, &describe(status), &log, &again(layout, node.id)));
        }
        if nodes.iter().all(|node| node.ended) {
            return Err(DevError::AllEnded(layout.folder.display().to_string()));
        }
    }
}

fn print(lines: Vec<String>) {
    for line in lines {
        println!("{line}");
    }
}

fn arguments(layout: &Layout, id: u8) -> Vec<String> {
    vec![
        "serve".to_owned(),
        "--config".to_owned(),
        layout.config.display().to_string(),
        "--replica-id".to_owned(),
        id.to_string(),
        "--data".to_owned(),
        layout.node_folder(id).display().to_string(),
        "--with-default-root-credentials".to_owned(),
    ]
}

fn again(layout: &Layout, id: u8) -> String {
    format!("biplane {}", arguments(layout, id).join(" "))
}

fn start(layout: &Layout, id: u8, events: &Sender<Event>) -> std::io::Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(layout.log_file(id))?;
    let mut command = Command::new(std::env::current_exe()?);
    // The layout is this program's: what a shell says of other servers does not reach the nodes.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_configuration(name)) {
        command.env_remove(name);
    }
    let mut process = command
        .env("IGGY_ENV_PATH", layout.folder.join("none.env"))
        .env("IGGY_DISPLAY_CONFIG", "0")
        .args(arguments(layout, id))
        .arg("--supervised")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    if let Some(stdout) = process.stdout.take() {
        let events = events.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(report) = Report::parse(&line) {
                    let _ = events.send(Event::Report(report));
                }
            }
        });
    }
    Ok(process)
}

/// Closes every node's standard input, which asks it to stop, and waits.
fn stop_all(nodes: &mut [Node]) {
    for node in nodes.iter_mut() {
        drop(node.process.stdin.take());
    }
    let deadline = Instant::now() + STOP_BUDGET;
    for node in nodes.iter_mut().filter(|node| !node.ended) {
        loop {
            match node.process.try_wait() {
                Ok(Some(_)) | Err(_) => break,
                Ok(None) if Instant::now() >= deadline => {
                    println!("node {} does not stop and is killed", node.id);
                    let _ = node.process.kill();
                    let _ = node.process.wait();
                    break;
                }
                Ok(None) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(signal) = status.signal() {
            return format!("killed by signal {signal}");
        }
    }
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => "no exit status".to_owned(),
    }
}
