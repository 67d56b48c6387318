//! The figures, and what must hold whatever they are.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use biplane_journal::{ReadBuffer, open_snapshot};
use biplane_metadata_plane::snapshot::{decode_snapshot, encode_snapshot};

use crate::process::{cpu_seconds, descriptors, entries};
use crate::support::cluster::{Cluster, NODES};
use crate::support::wait_until;
use crate::topology::{CONNECTIONS, PARTITIONS, TOPICS, create, poll_all, send};

/// Streams unless `BIPLANE_SCALE_STREAMS` names another number.
const STREAMS: u32 = 20;
/// Time for the whole cluster to be ready.
const READY_LIMIT: Duration = Duration::from_secs(600);
/// Streams for which every partition is polled at every node and gets a message.
const SAMPLE: u32 = 20;

fn streams() -> u32 {
    std::env::var("BIPLANE_SCALE_STREAMS").map_or(STREAMS, |text| {
        text.parse().expect("BIPLANE_SCALE_STREAMS is a number")
    })
}

/// Waits until every node has said once more than `before` that it is ready.
fn wait_ready(cluster: &mut Cluster, before: &[usize; NODES]) {
    wait_until("all nodes ready", READY_LIMIT, || {
        cluster.check_alive();
        for (node, before) in before.iter().enumerate() {
            if count_ready(cluster, node) <= *before {
                return Err(format!("node {node} is not ready"));
            }
        }
        Ok(())
    });
}

fn count_ready(cluster: &Cluster, node: usize) -> usize {
    cluster.log_text(node).matches("\"ready\":true").count()
}

/// Processor seconds of each node since it was started.
fn used(cluster: &Cluster) -> [f64; NODES] {
    std::array::from_fn(|node| cpu_seconds(cluster.pid(node)))
}

/// Processor use of each node over `seconds`, in percent of a core.
fn idle(cluster: &Cluster, seconds: u64) -> [f64; NODES] {
    let look = || std::array::from_fn(|node| cpu_seconds(cluster.pid(node)));
    let (start, before): (Instant, [f64; NODES]) = (Instant::now(), look());
    thread::sleep(Duration::from_secs(seconds));
    let (after, passed): ([f64; NODES], f64) = (look(), start.elapsed().as_secs_f64());
    std::array::from_fn(|node| (after[node] - before[node]) / passed * 100.0)
}

fn snapshot(cluster: &Cluster) {
    let path = cluster.data(0).join("metadata/snapshot.bin");
    let Ok(bytes) = fs::read(path) else {
        println!("snapshot: none yet");
        return;
    };
    let mut buffer = ReadBuffer::zeroed(bytes.len());
    buffer.as_mut_bytes().copy_from_slice(&bytes);
    let file = open_snapshot(&buffer.freeze()).expect("a sealed snapshot");
    let start = Instant::now();
    let found = decode_snapshot(file.payload.as_bytes()).expect("our own snapshot");
    let decoded = start.elapsed();
    let start = Instant::now();
    let again = encode_snapshot(found.created_at, found.op, &found.state, &found.table);
    let encoded = start.elapsed();
    assert!(again == file.payload.as_bytes(), "the same bytes again");
    println!(
        "snapshot: {} bytes; in this build {decoded:.0?} to read, {encoded:.0?} to make",
        bytes.len()
    );
}

fn clients(cluster: &mut Cluster) -> Vec<crate::support::raw_client::RawClient> {
    (0..NODES).map(|node| cluster.raw(node)).collect()
}

/// Sends a message to each partition of the first streams, and finds `expected` of them in each
/// partition at every node.
fn write_and_read(cluster: &mut Cluster, streams: u32, expected: u64) {
    let mut nodes = clients(cluster);
    let start = Instant::now();
    for index in 0..streams {
        for at in 0..TOPICS {
            for partition in 0..PARTITIONS {
                send(&mut nodes, index, at, partition);
            }
        }
    }
    let sent = u64::from(streams * TOPICS * PARTITIONS);
    let seconds = start.elapsed().as_secs_f64();
    println!("{sent} partitions written to in {seconds:.2} s");
    for node in 0..NODES {
        wait_until(
            "the messages at every node",
            Duration::from_secs(30),
            || match poll_all(cluster.address(node), streams) {
                found if found == sent * expected => Ok(()),
                found => Err(format!("{found} messages at node {node}")),
            },
        );
    }
}

#[test]
fn thousands_of_partitions_cost_little() {
    let streams = streams();
    let groups = streams * TOPICS * PARTITIONS;
    let rest = if streams > STREAMS { 20 } else { 2 };
    let sample = SAMPLE.min(streams - 1);
    let mut cluster = Cluster::start_with_default_timers();
    wait_ready(&mut cluster, &[0; NODES]);
    let primary = cluster.primary();
    // One login after the other, and before memory is looked at: a password costs a good deal of
    // both.
    let clients = (0..CONNECTIONS).map(|_| cluster.raw(primary)).collect();
    let before: [u64; NODES] = std::array::from_fn(|node| cluster.memory(node));
    let created = create(clients, streams);
    println!(
        "{streams} streams, {groups} partitions: {:.1} s, {:.0} requests a second, {:.0} \
         partitions a second, slowest request {:.0?}",
        created.seconds,
        f64::from(created.requests) / created.seconds,
        f64::from(groups) / created.seconds,
        created.slowest
    );
    println!("with {:.2?} seconds of a core so far", used(&cluster));
    let start = Instant::now();
    for node in 0..NODES {
        assert_eq!(poll_all(cluster.address(node), streams), 0);
    }
    let polled = start.elapsed().as_secs_f64();
    println!("every partition polled at every node in {polled:.1} s");
    for (node, before) in before.iter().enumerate() {
        let used = cluster.memory(node).saturating_sub(*before);
        println!(
            "node {node}: {} MB resident, {} bytes a partition, {} descriptors, {} entries below \
             streams",
            cluster.memory(node) / 1_000_000,
            used / u64::from(groups),
            descriptors(cluster.pid(node)),
            entries(&cluster.data(node).join("streams"))
        );
    }
    thread::sleep(Duration::from_secs(rest / 4));
    println!("idle: {:.1?} percent of a core", idle(&cluster, rest));

    let said = std::array::from_fn(|node| count_ready(&cluster, node));
    let start = Instant::now();
    cluster.stop_all();
    println!("stopped in {:.1} s", start.elapsed().as_secs_f64());
    snapshot(&cluster);
    let start = Instant::now();
    (0..NODES).for_each(|node| cluster.restart(node));
    wait_ready(&mut cluster, &said);
    println!(
        "restarted in {:.1} s, with {:.2?} seconds of a core",
        start.elapsed().as_secs_f64(),
        used(&cluster)
    );
    let primary = cluster.primary();
    write_and_read(&mut cluster, sample, 1);
    thread::sleep(Duration::from_secs(rest / 2));
    println!("idle: {:.1?} percent of a core", idle(&cluster, rest));

    cluster.kill9(primary);
    let start = Instant::now();
    write_and_read_without(&mut cluster, primary, streams - 1);
    println!(
        "a message to the last partition {:.1} s after its primary was killed",
        start.elapsed().as_secs_f64()
    );
    thread::sleep(Duration::from_secs(rest / 4));
    let said = std::array::from_fn(|node| match node == primary {
        true => count_ready(&cluster, node),
        false => 0,
    });
    let start = Instant::now();
    cluster.restart(primary);
    wait_ready(&mut cluster, &said);
    println!("back in {:.1} s", start.elapsed().as_secs_f64());
    write_and_read(&mut cluster, sample, 2);
}

/// Sends a message to a partition while one node is down.
fn write_and_read_without(cluster: &mut Cluster, dead: usize, index: u32) {
    let alive = (0..NODES).filter(|node| *node != dead);
    let mut nodes: Vec<_> = alive.map(|node| cluster.raw(node)).collect();
    send(&mut nodes, index, TOPICS - 1, PARTITIONS - 1);
}
