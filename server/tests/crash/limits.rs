//! Nodes at the limits the operating system sets: no room on the disk, few files open.

use std::time::Duration;

use iggy::prelude::{Client, Durability, StreamClient};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::time::sleep;

use crate::load::{Load, STREAM};
use crate::rounds::topic;
use crate::support::cluster::{Cluster, NODES};
use crate::support::ledger::Ledger;
use crate::support::messages::Plan;
use crate::support::sdk::{Application, connect};
use crate::support::seed;

/// No file of a node may be longer while its disk is full.
const FULL_BYTES: u64 = 192 << 10;
/// Files a node may have open in the test of few, and the partitions it serves with them.
const FILES_MAX: u32 = 160;
const PARTITIONS: u32 = 300;

async fn begin(cluster: &Cluster) {
    let setup = connect(cluster.address(0))
        .await
        .expect("the client connects");
    setup
        .create_stream(STREAM)
        .await
        .expect("the stream is created");
    setup.shutdown().await.expect("the client closes");
}

/// Lets no file of any node grow beyond `bytes`, or beyond what the test itself may write.
fn limit_files(cluster: &Cluster, bytes: Option<u64>) {
    let own = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: bytes.or(own.current),
        maximum: own.maximum,
    };
    for node in 0..NODES {
        let pid = i32::try_from(cluster.pid(node))
            .ok()
            .and_then(Pid::from_raw);
        prlimit(pid, Resource::Fsize, limit).expect("the limit of an own process");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_service_returns_with_the_room() {
    let seed = seed("a_full_disk_loses_nothing_and_service_returns_with_the_room");
    let payload_max = 4_000;
    let plan = Plan { seed, payload_max };
    let mut cluster = Cluster::start();
    begin(&cluster).await;
    topic(&mut cluster, "persisted", Durability::Persisted, 2).await;
    topic(&mut cluster, "replicated", Durability::Replicated, 2).await;
    let start = |name| Load::start(name, Ledger::new(plan, 2), &cluster.addresses());
    let mut loads = [start("persisted"), start("replicated")];
    for load in &loads {
        load.wait_served("service before the disk is full").await;
    }
    limit_files(&cluster, Some(FULL_BYTES));
    // Long enough for every log to meet the limit.
    sleep(Duration::from_secs(8)).await;
    cluster.check_alive();
    let complaints = (0..NODES).filter(|node| cluster.log_text(*node).contains("no space left"));
    assert!(complaints.count() > 0, "no node met the limit");
    limit_files(&cluster, None);
    for load in &loads {
        load.wait_served("service once there is room").await;
    }
    for load in &mut loads {
        load.finish().await;
        for node in 0..NODES {
            load.check_at(&mut cluster, node, true);
        }
        load.check_whole();
    }
    // What was written around the full disk is there after a crash of all, too.
    cluster.kill9_all();
    for node in 0..NODES {
        cluster.restart(node);
    }
    let [persisted, _] = &mut loads;
    for node in 0..NODES {
        persisted.check_at(&mut cluster, node, true);
    }
    println!(
        "{} batches acknowledged around a full disk",
        persisted.batches()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_are_served_with_few_open_files() {
    let seed = seed("many_partitions_are_served_with_few_open_files");
    let payload_max = 200;
    let plan = Plan { seed, payload_max };
    let mut cluster = Cluster::start_with_files(FILES_MAX);
    begin(&cluster).await;
    topic(&mut cluster, "many", Durability::Persisted, PARTITIONS).await;
    let mut application = Application::new(cluster.addresses(), 0);
    for partition in 0..PARTITIONS {
        let mut message = plan.batch(u64::from(partition) + 1, 1);
        let mut attempts = 0;
        while let Err(reason) = application
            .send(STREAM, "many", partition, &mut message)
            .await
        {
            attempts += 1;
            assert!(attempts < 200, "partition {partition}: {reason}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    application.close().await;
    for node in 0..NODES {
        let open = std::fs::read_dir(format!("/proc/{}/fd", cluster.pid(node)))
            .expect("the node runs")
            .count();
        println!("node {node} has {open} files open for {PARTITIONS} partitions");
        assert!(open < FILES_MAX as usize);
    }
    cluster.kill9_all();
    for node in 0..NODES {
        cluster.restart(node);
    }
    let mut raw = cluster.raw(0);
    for partition in 0..PARTITIONS {
        let what = format!("partition {partition} after the restart");
        let polled = crate::support::wait_until(&what, Duration::from_secs(60), || {
            cluster.check_alive();
            let polled = raw.poll(STREAM, "many", partition, 0, 1);
            let polled = polled.map_err(|error| error.to_string())?;
            if polled.messages.is_empty() {
                return Err("it is empty".to_owned());
            }
            Ok(polled)
        });
        let number = polled
            .messages
            .first()
            .and_then(|message| plan.number(message.id));
        assert_eq!(number, Some(u64::from(partition) + 1), "{what}");
    }
    for node in 0..NODES {
        let log = cluster.log_text(node);
        assert!(!log.contains("Too many open files"), "node {node} ran out");
    }
}
