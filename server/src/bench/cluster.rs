//! Development clusters for the time of a measurement.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use super::BenchError;
use super::options::{ClusterArgs, Load, LoadArgs, Workload};
use super::usage::{self, Sample, children};

/// Nodes of a cluster.
pub(super) const NODES: u16 = 3;
/// How long the nodes may take to end after their supervisor.
const END_BUDGET: Duration = Duration::from_secs(20);

/// Three nodes on loopback, with their supervisor.
#[derive(Debug)]
pub(super) struct Cluster {
    supervisor: Child,
    folder: PathBuf,
    nodes: Vec<u32>,
    base_port: u16,
    options: Vec<String>,
    ready_after: Duration,
}

impl Cluster {
    /// Starts a cluster with an empty folder of its own; `options` are further ones of
    /// `biplane dev`.
    pub(super) fn start(args: &ClusterArgs, options: &[&str]) -> Result<Self, BenchError> {
        let name = format!("biplane-bench-{}", std::process::id());
        let folder = args.folder.join(name);
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let started = Instant::now();
        let mut cluster = Self {
            supervisor: supervise(&folder, args.base_port, &options)?,
            folder,
            nodes: Vec::new(),
            base_port: args.base_port,
            options,
            ready_after: Duration::ZERO,
        };
        cluster.wait_until_ready(started)?;
        Ok(cluster)
    }

    /// Stops all nodes in order and starts them again with what they have on the disk.
    pub(super) fn restart(&mut self) -> Result<(), BenchError> {
        self.stop();
        let started = Instant::now();
        self.supervisor = supervise(&self.folder, self.base_port, &self.options)?;
        self.wait_until_ready(started)
    }

    fn wait_until_ready(&mut self, started: Instant) -> Result<(), BenchError> {
        let output = self.supervisor.stdout.take();
        let mut lines = BufReader::new(output.ok_or(BenchError::Worker)?).lines();
        let ready = lines.any(|line| line.is_ok_and(|line| line.contains("the cluster is ready")));
        self.ready_after = started.elapsed();
        // Whatever the supervisor says later must not fill its pipe.
        thread::spawn(move || lines.for_each(drop));
        if !ready {
            return Err(BenchError::Options(
                "the cluster did not start; its reason is above".to_owned(),
            ));
        }
        self.nodes = children(self.supervisor.id());
        Ok(())
    }

    /// From the start of the processes to a cluster with a primary.
    pub(super) const fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Client address of `node`.
    pub(super) fn address(&self, node: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base_port + node).into()
    }

    /// Kills `node` with SIGKILL: it has no time for anything.
    pub(super) fn kill(&self, node: u16) -> Result<(), BenchError> {
        let pid = self.nodes.get(usize::from(node)).copied();
        usage::kill(pid.unwrap_or_default()).map_err(local("cannot kill a node"))
    }

    /// The load of these words, for this cluster.
    pub(super) fn load(
        &self,
        (workload, words): (Workload, &str),
        seconds: f64,
    ) -> Result<Load, BenchError> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: LoadArgs,
        }
        let line = Line::try_parse_from(["bench"].into_iter().chain(words.split_whitespace()))
            .map_err(|error| BenchError::Options(error.to_string()))?;
        let mut load = Load {
            workload,
            args: line.args,
        };
        load.args.address = self.address(0);
        load.args.seconds = seconds;
        load.args.pids.clone_from(&self.nodes);
        load.args.probe_dir = Some(self.folder.clone());
        Ok(load)
    }

    /// Resident size of the largest node, in 10^6 bytes.
    pub(super) fn resident_megabytes(&self) -> Result<f64, BenchError> {
        let mut largest: f64 = 0.0;
        for pid in &self.nodes {
            let sample = Sample::of(*pid).map_err(local("cannot look at a node"))?;
            largest = largest.max(sample.resident_megabytes());
        }
        Ok(largest)
    }

    /// Processor seconds of all nodes so far.
    pub(super) fn cpu_seconds(&self) -> Result<f64, BenchError> {
        let mut sum = 0.0;
        for pid in &self.nodes {
            sum += Sample::of(*pid)
                .map_err(local("cannot look at a node"))?
                .cpu_seconds();
        }
        Ok(sum)
    }

    /// The nodes end when their supervisor's end of their standard input closes.
    fn stop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        let deadline = Instant::now() + END_BUDGET;
        let alive = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        while self.nodes.iter().any(alive) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("biplane: {} is left behind: {error}", self.folder.display());
        }
    }
}

fn supervise(folder: &Path, base_port: u16, options: &[String]) -> Result<Child, BenchError> {
    let program = std::env::current_exe().map_err(local("where this program is"))?;
    Command::new(program)
        .args(["dev", "--nodes", &NODES.to_string(), "--data"])
        .arg(folder)
        .args(["--base-port", &base_port.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(local("cannot start a cluster"))
}

fn local(what: &str) -> impl Fn(std::io::Error) -> BenchError {
    let what = what.to_owned();
    move |source| BenchError::Local {
        what: what.clone(),
        source,
    }
}
