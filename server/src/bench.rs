//! `biplane bench`: load over real sockets, with the raw probes of the same run beside it.
//!
//! The clients here speak the wire crate's protocol from plain threads, so they can be pointed at
//! any node of any server that speaks it. Figures go to the terminal, and on demand to a JSON
//! document and a page with plots.

mod calls;
mod cluster;
mod connection;
mod load;
pub mod options;
mod page;
mod probe;
mod record;
mod report;
mod scaling;
mod table;
pub mod topology;
mod usage;

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use connection::Connection;
use load::Plan;
use options::{BenchCommand, Load, LoadArgs, Workload};
use probe::Probes;
use record::Figures;
use report::Report;
use usage::{Sample, Usage};

/// Between two progress lines on a terminal, and elsewhere.
const PROGRESS_FAST: Duration = Duration::from_millis(250);
const PROGRESS_SLOW: Duration = Duration::from_secs(2);
/// Looks at the nodes while a load runs.
const LOOKS: u32 = 20;

/// Why a load could not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Options that contradict each other or the protocol.
    #[error("{0}")]
    Options(String),
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The node.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A connection that broke.
    #[error("a connection broke: {0}")]
    Io(io::Error),
    /// User or password cannot be sent.
    #[error("user and password must have 1 to 255 and 0 to 255 bytes")]
    Credentials,
    /// The server refused a request.
    #[error("the server answered with error code {0}")]
    Status(u32),
    /// The server ended the session.
    #[error("the server ended the session: {0}")]
    Evicted(String),
    /// Bytes that are not the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// A worker panicked.
    #[error("a worker ended unexpectedly")]
    Worker,
    /// A probe, or a process to measure.
    #[error("{what}: {source}")]
    Local {
        /// What was tried.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Runs what was asked for and prints what it found.
///
/// # Errors
/// [`BenchError`] with a sentence for the user.
pub fn run(command: BenchCommand) -> Result<(), BenchError> {
    let (workload, args) = match command {
        BenchCommand::Produce(args) => (Workload::Produce, args),
        BenchCommand::Consume(args) => (Workload::Consume, args),
        BenchCommand::ProduceConsume(args) => (Workload::ProduceConsume, args),
        BenchCommand::Latency(args) => (Workload::Latency, args),
        BenchCommand::Table(args) => return table::run(&args),
        BenchCommand::Topology(args) => return topology::run(&args),
        BenchCommand::Scaling(args) => return scaling::run(&args),
    };
    let report = measure(Load { workload, args })?;
    let args = &report.load.args;
    let text = report.text();
    let json = serde_json::to_string_pretty(&report)
        .map_err(|error| BenchError::Options(error.to_string()))?;
    match &args.json {
        Some(path) if path.as_os_str() == "-" => println!("{json}"),
        Some(path) => {
            write(path, &json)?;
            print!("{text}");
        }
        None => print!("{text}"),
    }
    if let Some(path) = &args.html {
        write(path, &page::render(&report))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(path, text).map_err(|source| BenchError::Local {
        what: format!("cannot write {}", path.display()),
        source,
    })
}

fn measure(load: Load) -> Result<Report, BenchError> {
    let args = &load.args;
    args.check().map_err(BenchError::Options)?;
    let before = probes(args)?;
    let login = |address| Connection::login(address, &args.user, &args.password);
    let mut control = login(args.address)?;
    let address = calls::primary(&mut control)?.unwrap_or(args.address);
    if address != args.address {
        control = login(address)?;
    }
    let tag = std::process::id();
    let streams: Vec<String> = (0..args.streams)
        .map(|index| format!("bench-{tag}-{index}"))
        .collect();
    for stream in &streams {
        calls::create(&mut control, stream, &load)?;
    }
    let outcome = carry_out(&load, address, streams.clone(), &mut control);
    if !args.keep {
        for stream in &streams {
            let deleted = calls::delete(&mut control, stream);
            if let (Err(error), Ok(_)) = (deleted, &outcome) {
                eprintln!("biplane: stream {stream} is left behind: {error}");
            }
        }
    }
    let (produce, consume, nodes) = outcome?;
    let probes =
        before.map(|before| probes(args).map(|after| after.unwrap_or(before).best(before)));
    let probes = probes.transpose()?;
    let ratios = probes.as_ref().map_or_else(Vec::new, |probes| {
        report::ratios(&load, produce.as_ref(), consume.as_ref(), probes)
    });
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        started: crate::clock::wall_micros() / 1_000_000,
        load,
        produce,
        consume,
        probes,
        ratios,
        nodes,
    })
}

fn probes(args: &LoadArgs) -> Result<Option<Probes>, BenchError> {
    if args.no_probes {
        return Ok(None);
    }
    let folder = args.probe_dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let probes = Probes::run(&folder).map_err(|source| BenchError::Local {
        what: format!("a raw probe failed in {}", folder.display()),
        source,
    })?;
    Ok(Some(probes))
}

type Measured = (Option<Figures>, Option<Figures>, Vec<Usage>);

fn carry_out(
    load: &Load,
    address: SocketAddr,
    streams: Vec<String>,
    control: &mut Connection,
) -> Result<Measured, BenchError> {
    let args = &load.args;
    let login = |_| Connection::login(address, &args.user, &args.password);
    let connect = |workers: u32| (0..workers).map(login).collect::<Result<Vec<_>, _>>();
    let producers = connect(load.producers())?;
    let consumers = connect(load.consumers())?;
    let mut plan = Plan {
        load: load.clone(),
        streams,
        epoch: Instant::now(),
        from: Instant::now(),
        until: Instant::now(),
        produced: AtomicU64::new(0),
        consumed: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    if load.workload == Workload::Consume {
        eprintln!("filling {} MB into each partition", args.fill);
        load::fill(&plan, control)?;
    }
    plan.epoch = Instant::now();
    plan.from = plan.epoch + args.warmup();
    plan.until = plan.from + args.duration();
    let plan = Arc::new(plan);
    let sampler = sample(Arc::clone(&plan));
    let progress = progress(Arc::clone(&plan));
    let outcome = load::run(&plan, producers, consumers);
    let _ = progress.join();
    let samples = sampler.join().map_err(|_| BenchError::Worker)?;
    let outcome = outcome?;
    let produce = outcome.produced.figures(args.seconds);
    let consume = outcome.consumed.figures(args.seconds);
    let bytes = produce.bytes + consume.bytes;
    let nodes = samples?
        .iter()
        .filter_map(|(pid, samples)| Usage::of(*pid, samples, bytes))
        .collect();
    Ok((
        (load.producers() > 0).then_some(produce),
        (load.consumers() > 0).then_some(consume),
        nodes,
    ))
}

type Samples = Result<Vec<(u32, Vec<Sample>)>, BenchError>;

/// Looks at the nodes' processes when the measured time begins, [`LOOKS`] times in it and at its
/// end.
fn sample(plan: Arc<Plan>) -> thread::JoinHandle<Samples> {
    thread::spawn(move || {
        let pids = plan.load.args.pids.iter();
        let mut nodes: Vec<(u32, Vec<Sample>)> = pids.map(|pid| (*pid, Vec::new())).collect();
        for look in 0..=LOOKS {
            let at = plan.from + (plan.until - plan.from) * look / LOOKS;
            while Instant::now() < at && !plan.failed.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5).min(at - Instant::now().min(at)));
            }
            for (pid, samples) in &mut nodes {
                let sample = Sample::of(*pid).map_err(|source| BenchError::Local {
                    what: format!("cannot look at process {pid}"),
                    source,
                })?;
                samples.push(sample);
            }
        }
        Ok(nodes)
    })
}

/// Keeps a line up to date on standard error while the load runs.
fn progress(plan: Arc<Plan>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let terminal = io::stderr().is_terminal();
        let interval = if terminal {
            PROGRESS_FAST
        } else {
            PROGRESS_SLOW
        };
        let mut last = (Instant::now(), 0, 0);
        while Instant::now() < plan.until && !plan.failed.load(Ordering::Relaxed) {
            let left = plan.until.saturating_duration_since(Instant::now());
            thread::sleep(interval.min(left));
            let now = Instant::now();
            let produced = plan.produced.load(Ordering::Relaxed);
            let consumed = plan.consumed.load(Ordering::Relaxed);
            let seconds = (now - last.0).as_secs_f64().max(1e-3);
            let rate = |now: u64, then: u64| (now - then) as f64 / 1e6 / seconds;
            let line = format!(
                "{:>6.1} s of {:.1}: in {:.1} MB/s, out {:.1} MB/s{}",
                (now - plan.epoch).as_secs_f64(),
                (plan.until - plan.epoch).as_secs_f64(),
                rate(produced, last.1),
                rate(consumed, last.2),
                if now < plan.from { " (warming up)" } else { "" }
            );
            if terminal {
                eprint!("\r{line:<78}");
                let _ = io::stderr().flush();
            } else {
                eprintln!("{line}");
            }
            last = (now, produced, consumed);
        }
        if terminal {
            eprint!("\r{:78}\r", "");
        }
    })
}
