//! A `biplane dev` process, its screen, and the processes it is responsible for.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{show_logs, wait_until};

/// How long a start may take until the cluster says that it is ready.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// "Within seconds" of a stop, with room for a slow machine.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The supervisor.
#[derive(Debug)]
pub(crate) struct DevCluster {
    process: Child,
    screen: Receiver<String>,
    seen: Vec<String>,
    ended: bool,
    data: PathBuf,
}

fn command(nodes: u8, base_port: u16, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biplane"));
    command
        .args([
            "dev",
            "--nodes",
            &nodes.to_string(),
            "--base-port",
            &base_port.to_string(),
        ])
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null());
    command
}

/// Runs a `biplane dev` that is expected to refuse, and returns what it said.
pub(crate) fn refusal(nodes: u8, base_port: u16, data: &Path) -> Output {
    let mut process = command(nodes, base_port, data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the supervisor starts");
    let deadline = Instant::now() + STOP_LIMIT;
    while process.try_wait().expect("a child can be asked").is_none() {
        if Instant::now() > deadline {
            let _ = process.kill();
            let output = process.wait_with_output().expect("its output");
            panic!("it should have refused and runs: {}", text(&output));
        }
        thread::sleep(Duration::from_millis(20));
    }
    process.wait_with_output().expect("its output")
}

/// Both outputs of a process.
pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

impl DevCluster {
    pub(crate) fn start(nodes: u8, base_port: u16, data: &Path) -> Self {
        Self::spawn(command(nodes, base_port, data), data)
    }

    /// With TLS everywhere.
    pub(crate) fn start_tls(nodes: u8, base_port: u16, data: &Path) -> Self {
        let mut command = command(nodes, base_port, data);
        command.arg("--tls");
        Self::spawn(command, data)
    }

    fn spawn(mut command: Command, data: &Path) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the supervisor starts");
        let stdout = process.stdout.take().expect("a pipe");
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            process,
            screen,
            seen: Vec::new(),
            ended: false,
            data: data.to_owned(),
        }
    }

    /// Waits for the line that says the cluster is ready and returns the screen so far.
    pub(crate) fn ready(&mut self) -> Vec<String> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            match self
                .screen
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    let ready = line.contains("the cluster is ready");
                    self.seen.push(line);
                    if ready {
                        return self.seen.clone();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "not ready after {READY_LIMIT:?}; the screen: {:#?}",
                        self.seen
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before it was ready; the screen: {:#?}", self.seen)
                }
            }
        }
    }

    /// Sends `signal` and waits for the end, which must come within seconds.
    pub(crate) fn stop(&mut self, signal: &str) -> ExitStatus {
        let asked = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(asked.success(), "kill {signal}");
        let status = wait_until("the end of biplane dev", STOP_LIMIT, || {
            let status = self.process.try_wait().expect("a child can be asked");
            status.ok_or_else(|| format!("it still runs after {signal}"))
        });
        self.ended = true;
        self.seen.extend(self.screen.try_iter());
        status
    }

    /// Everything it printed so far.
    pub(crate) fn screen(&mut self) -> &[String] {
        self.seen.extend(self.screen.try_iter());
        &self.seen
    }
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        if !self.ended {
            // Its nodes end by themselves when the pipes to them close.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if thread::panicking() {
            println!(
                "--- the screen of biplane dev\n{}",
                self.screen().join("\n")
            );
            show_logs(&self.data);
        }
    }
}

/// Processes, other than zombies, that were started with `folder` on their command line. Empty
/// where the system has no `/proc`.
pub(crate) fn processes_with(folder: &Path) -> Vec<u32> {
    let wanted = folder.display().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            String::from_utf8_lossy(&line)
                .contains(&wanted)
                .then_some(id)
        })
        .collect()
}
