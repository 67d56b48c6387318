//! `biplane bench scaling`: what grows with the number of partitions, and how long starts and the
//! loss of the primary take, on clusters of three nodes of its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::calls::{self, Destination};
use super::cluster::{Cluster, NODES};
use super::connection::Connection;
use super::options::{ScalingArgs, Workload};
use super::report::Report;
use super::table::{number, ratio};
use super::topology::{self, TopologyArgs};
use super::{BenchError, measure};

/// Rest before a measurement, so that the nodes have done what the last one left.
const REST: Duration = Duration::from_secs(2);
/// How long idle nodes are looked at.
const IDLE: Duration = Duration::from_secs(10);
/// Longest time until a cluster acknowledges a write again.
const SERVICE_LIMIT: Duration = Duration::from_secs(120);
/// Between two attempts at a write.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(5);
/// Where idle partitions are.
const TOPICS: u32 = 3;
const PARTITIONS: u32 = 2;
/// User and password of a development cluster.
const USER: &str = "iggy";
/// Stream of the writes that ask whether there is service.
const PROBE: &str = "bench-service";

/// A line of the result.
struct Line {
    figure: String,
    values: Vec<f64>,
}

/// Runs everything and prints a table.
pub(super) fn run(args: &ScalingArgs) -> Result<(), BenchError> {
    let mut lines = Vec::new();
    let mut timeouts = args.heartbeat_timeouts.iter();
    let outcome = partitions(args, &mut lines)
        .and_then(|()| timeouts.try_for_each(|timeout| failover(args, timeout, &mut lines)));
    // What was measured is worth telling, whatever ended the rest.
    print!("{}", table(lines));
    outcome
}

fn partitions(args: &ScalingArgs, lines: &mut Vec<Line>) -> Result<(), BenchError> {
    let mut cluster = Cluster::start(&args.cluster, &[])?;
    push(
        lines,
        "start of empty nodes, s",
        seconds(cluster.ready_after()),
    );
    for &partitions in &args.partitions {
        let words = format!("--producers 8 --batch 100 --partitions {partitions}");
        let figure = format!("8 producers, 100 x 1,000 B, {partitions} partitions: ");
        for report in loads(args, &cluster, Workload::Produce, &words)? {
            let produced = report.produce.as_ref();
            let rate = produced.map_or(0.0, |figures| figures.megabytes_per_second);
            push(lines, &format!("{figure}MB/s"), rate);
            let bytes = ratio(&report, "produced bytes/s").unwrap_or(0.0);
            push(lines, &format!("{figure}bytes / raw stream"), bytes);
        }
    }
    idle(args, &cluster, "no idle partition", lines)?;
    let topology = topology(args, &cluster);
    topology::run(&topology)?;
    let beside = format!("{} idle partitions", topology.streams * TOPICS * PARTITIONS);
    idle(args, &cluster, &beside, lines)?;
    let destination = prepare(&mut login(primary(&cluster)?)?)?;
    cluster.restart()?;
    let ready = cluster.ready_after();
    let served = until_served(&cluster, &destination, None)?;
    push(
        lines,
        &format!("start with {beside}, primary known, s"),
        seconds(ready),
    );
    let figure = format!("start with {beside}, first acknowledged write, s");
    push(lines, &figure, seconds(ready + served));
    Ok(())
}

/// Latency of a small producer and the nodes' processor time, `beside` what there is.
fn idle(
    args: &ScalingArgs,
    cluster: &Cluster,
    beside: &str,
    lines: &mut Vec<Line>,
) -> Result<(), BenchError> {
    thread::sleep(REST);
    let (before, started) = (cluster.cpu_seconds()?, Instant::now());
    thread::sleep(IDLE);
    let used = cluster.cpu_seconds()? - before;
    let share = used / started.elapsed().as_secs_f64() / f64::from(NODES) * 100.0;
    push(lines, &format!("{beside}: % of a core, a node"), share);
    let words = "--producers 1 --batch 10 --size 100";
    for report in loads(args, cluster, Workload::Produce, words)? {
        for (ratio_of, name) in [("send p50", "p50"), ("send p99", "p99")] {
            let figure = format!("1 producer, 10 x 100 B, {beside}: {name} / ping-pong time");
            push(lines, &figure, ratio(&report, ratio_of).unwrap_or(0.0));
        }
    }
    Ok(())
}

fn loads(
    args: &ScalingArgs,
    cluster: &Cluster,
    workload: Workload,
    words: &str,
) -> Result<Vec<Report>, BenchError> {
    let one = |round: u32| {
        eprintln!("round {round} of {}: {words}", args.repetitions);
        thread::sleep(REST);
        measure(cluster.load((workload, words), args.seconds)?)
    };
    (1..=args.repetitions).map(one).collect()
}

fn topology(args: &ScalingArgs, cluster: &Cluster) -> TopologyArgs {
    TopologyArgs {
        address: cluster.address(0),
        user: USER.to_owned(),
        password: USER.to_owned(),
        streams: args.idle_partitions.div_ceil(TOPICS * PARTITIONS),
        topics: TOPICS,
        partitions: PARTITIONS,
        connections: 8,
        pids: Vec::new(),
        clean: false,
    }
}

/// Kills the primary again and again, each time of a cluster that is whole.
fn failover(args: &ScalingArgs, timeout: &str, lines: &mut Vec<Line>) -> Result<(), BenchError> {
    let options = ["--heartbeat-timeout", timeout];
    let mut cluster = Cluster::start(&args.cluster, &options)?;
    let destination = prepare(&mut login(primary(&cluster)?)?)?;
    let figure =
        format!("primary killed, heartbeat timeout {timeout}: first acknowledged write, s");
    for round in 1..=args.repetitions {
        eprintln!("round {round} of {}: the primary dies", args.repetitions);
        if round > 1 {
            cluster.restart()?;
        }
        until_served(&cluster, &destination, None)?;
        thread::sleep(REST);
        let primary = primary(&cluster)?;
        let dead = (0..NODES).find(|&node| cluster.address(node) == primary);
        cluster.kill(dead.unwrap_or(0))?;
        let served = until_served(&cluster, &destination, dead)?;
        push(lines, &figure, seconds(served));
    }
    Ok(())
}

/// The stream of the writes that ask whether there is service.
fn prepare(connection: &mut Connection) -> Result<Destination, BenchError> {
    calls::create_probe(connection, PROBE)?;
    Destination::new(PROBE, 0, 1)
}

/// Time until a write is acknowledged, by whichever node leads. `dead` is not asked.
fn until_served(
    cluster: &Cluster,
    destination: &Destination,
    dead: Option<u16>,
) -> Result<Duration, BenchError> {
    let batch = calls::batch(&[7; 100], 1, crate::clock::wall_micros())?;
    let started = Instant::now();
    let nodes = (0..NODES).filter(|&node| Some(node) != dead);
    for node in nodes.cycle() {
        let written = login(cluster.address(node)).and_then(|mut connection| {
            let primary = calls::primary(&mut connection)?;
            if let Some(address) = primary.filter(|&address| address != cluster.address(node)) {
                connection = login(address)?;
            }
            calls::send(&mut connection, destination, &batch)
        });
        match written {
            Ok(()) => break,
            Err(error) if started.elapsed() > SERVICE_LIMIT => return Err(error),
            Err(_) => thread::sleep(ATTEMPT_PAUSE),
        }
    }
    Ok(started.elapsed())
}

fn primary(cluster: &Cluster) -> Result<SocketAddr, BenchError> {
    let mut connection = login(cluster.address(0))?;
    Ok(calls::primary(&mut connection)?.unwrap_or(cluster.address(0)))
}

fn login(address: SocketAddr) -> Result<Connection, BenchError> {
    Connection::login(address, USER, USER)
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Adds a value to its figure's line.
fn push(lines: &mut Vec<Line>, figure: &str, value: f64) {
    match lines.iter_mut().find(|line| line.figure == figure) {
        Some(line) => line.values.push(value),
        None => lines.push(Line {
            figure: figure.to_owned(),
            values: vec![value],
        }),
    }
}

fn table(lines: Vec<Line>) -> String {
    let mut out = String::from("| Figure | Median | All |\n|---|---|---|\n");
    for Line { figure, mut values } in lines {
        values.sort_unstable_by(f64::total_cmp);
        let all: Vec<String> = values.iter().map(|value| number(*value)).collect();
        let median = number(values[values.len() / 2]);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {figure} | {median} | {} |", all.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_figure_share_a_line_with_their_median() {
        let mut lines = Vec::new();
        for value in [3.0, 100.0, 20.0] {
            push(&mut lines, "a", value);
        }
        push(&mut lines, "b", 0.5);
        let text = table(lines);
        assert!(text.contains("| a | 20.0 | 3.00, 20.0, 100 |"), "{text}");
        assert!(text.contains("| b | 0.500 | 0.500 |"), "{text}");
    }
}
