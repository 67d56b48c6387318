//! `biplane bench topology`: how fast streams and topics are created, and what they cost a node.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use biplane_wire::TlvBuilder;
use clap::Args;

use super::BenchError;
use super::calls;
use super::connection::Connection;
use super::record::Record;
use super::usage::Sample;

/// Rest before memory is looked at.
const REST: Duration = Duration::from_secs(2);

/// Arguments of `biplane bench topology`.
#[derive(Debug, Clone, Args)]
pub struct TopologyArgs {
    /// Client address of any node
    #[arg(long, default_value = "127.0.0.1:8090")]
    pub address: SocketAddr,
    /// User
    #[arg(long, default_value = "iggy")]
    pub user: String,
    /// Password
    #[arg(
        long,
        env = "BIPLANE_PASSWORD",
        hide_env_values = true,
        default_value = "iggy"
    )]
    pub password: String,
    /// Streams to create
    #[arg(long, default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub streams: u32,
    /// Topics in each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub topics: u32,
    /// Partitions of each topic
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub partitions: u32,
    /// Connections that create side by side
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub connections: u32,
    /// Process ids of the nodes, to measure their memory
    #[arg(long, value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// Delete what was created
    #[arg(long)]
    pub clean: bool,
}

/// Creates, measures, prints.
pub(super) fn run(args: &TopologyArgs) -> Result<(), BenchError> {
    let login = |address| Connection::login(address, &args.user, &args.password);
    let mut control = login(args.address)?;
    let address = calls::primary(&mut control)?.unwrap_or(args.address);
    let before = resident(&args.pids)?;
    let connections = (0..args.connections)
        .map(|_| login(address))
        .collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    let created = each(args, connections, started, create_one)?;
    let seconds = started.elapsed().as_secs_f64();
    let figures = created.figures(seconds);
    let groups = u64::from(args.streams) * u64::from(args.topics) * u64::from(args.partitions);
    println!(
        "{} streams x {} topics x {} partitions: {} requests in {seconds:.1} s, {:.0} a second; \
         p50 {:.1} ms, p99 {:.1} ms, {} repeated",
        args.streams,
        args.topics,
        args.partitions,
        figures.requests,
        figures.requests_per_second,
        figures.latency.p50 / 1e3,
        figures.latency.p99 / 1e3,
        figures.retries
    );
    thread::sleep(REST);
    for ((pid, before), after) in args.pids.iter().zip(before).zip(resident(&args.pids)?) {
        println!(
            "  node process {pid}: resident {before:.0} MB before, {after:.0} MB after; {:.2} kB a \
             partition group",
            (after - before) * 1e3 / groups as f64
        );
    }
    if args.clean {
        let connections = (0..args.connections)
            .map(|_| login(address))
            .collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        let deleted = each(args, connections, started, delete_one)?;
        let figures = deleted.figures(started.elapsed().as_secs_f64());
        println!(
            "deleted: {:.0} streams a second",
            figures.requests_per_second
        );
    }
    Ok(())
}

type Work = fn(&TopologyArgs, &mut Connection, u32, &mut Record, Instant) -> Result<(), BenchError>;

/// Does `work` for every stream, on all connections side by side.
fn each(
    args: &TopologyArgs,
    connections: Vec<Connection>,
    started: Instant,
    work: Work,
) -> Result<Record, BenchError> {
    let (next, failed) = (AtomicU32::new(0), AtomicBool::new(false));
    let one = |mut connection: Connection| -> Result<Record, BenchError> {
        let mut record = Record::new(Duration::ZERO);
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= args.streams {
                break;
            }
            if let Err(error) = work(args, &mut connection, index, &mut record, started) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(record)
    };
    let mut all = Record::new(Duration::ZERO);
    thread::scope(|scope| {
        let workers: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(|| one(connection)))
            .collect();
        for worker in workers {
            all.merge(&worker.join().map_err(|_| BenchError::Worker)??);
        }
        Ok(all)
    })
}

fn name(index: u32) -> String {
    format!("topology-{}-{index}", std::process::id())
}

fn create_one(
    args: &TopologyArgs,
    connection: &mut Connection,
    index: u32,
    record: &mut Record,
    started: Instant,
) -> Result<(), BenchError> {
    let stream = name(index);
    timed(record, started, || {
        calls::create_stream(connection, &stream)
    })?;
    for topic in 0..args.topics {
        let topic = format!("topic-{topic}");
        timed(record, started, || {
            calls::create_topic(
                connection,
                &stream,
                &topic,
                args.partitions,
                &TlvBuilder::new(),
            )
        })?;
    }
    Ok(())
}

fn delete_one(
    _: &TopologyArgs,
    connection: &mut Connection,
    index: u32,
    record: &mut Record,
    started: Instant,
) -> Result<(), BenchError> {
    timed(record, started, || calls::delete(connection, &name(index)))
}

fn timed(
    record: &mut Record,
    started: Instant,
    request: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let sent = Instant::now();
    super::load::repeat(record, request)?;
    record.request(started.elapsed(), sent.elapsed(), 1, 0);
    Ok(())
}

fn resident(pids: &[u32]) -> Result<Vec<f64>, BenchError> {
    let looks = pids.iter().map(|pid| {
        let sample = Sample::of(*pid).map_err(|source| BenchError::Local {
            what: format!("cannot look at process {pid}"),
            source,
        })?;
        Ok(sample.resident_megabytes())
    });
    looks.collect()
}
