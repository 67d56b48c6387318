//! The metadata primary is killed again and again under load. Clients go on, nothing acknowledged
//! is lost or moved, and each killed node comes back on its data in time to be one of the two that
//! the next kill leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::{Client, IggyClient, StreamClient};
use tokio::time::sleep;

use crate::support::cluster::{Cluster, NODES};
use crate::support::ledger::Ledger;
use crate::support::messages::Plan;
use crate::support::producers::{Pace, Producers};
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::{Application, connect, create_topic, poll_all};
use crate::support::{Random, seed, wait_until};

const STREAM: &str = "orders";
const TOPIC: &str = "events";
const PARTITIONS: u32 = 3;
const ROUNDS: usize = 10;
/// Batches per partition that must be acknowledged after a kill before it counts as survived.
const BATCHES_AFTER_KILL: usize = 5;
/// How long a producer may be without service around one kill.
const SERVICE_LIMIT: Duration = Duration::from_secs(40);
/// How long a restarted node may take to hold what was acknowledged without it.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(40);
const POLL_COUNT: u32 = 1_000;

/// Creates a topic and sends a message to it: the metadata group and a partition group that did
/// not exist before the kill both serve.
async fn use_a_new_topic(application: &mut Application, plan: Plan, topic: &str) {
    let start = Instant::now();
    while let Err(reason) = application.create_topic(STREAM, topic).await {
        assert!(
            start.elapsed() < SERVICE_LIMIT,
            "topic {topic} is not created: {reason}"
        );
        sleep(Duration::from_millis(50)).await;
    }
    loop {
        let mut message = plan.batch(1, 1);
        match application.send(STREAM, topic, 0, &mut message).await {
            Ok(_) => return,
            Err(reason) => {
                assert!(
                    start.elapsed() < SERVICE_LIMIT,
                    "topic {topic} takes nothing: {reason}"
                );
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The content of one partition on one node, read from that node itself.
struct Reading {
    partition: u32,
    content: Vec<u64>,
    /// As the last empty reply said.
    current_offset: u64,
}

impl Reading {
    /// Reads on until at least `end` messages are there, each compared with its plan. An error is
    /// worth another try later.
    fn advance(&mut self, raw: &mut RawClient, plan: Plan, end: u64) -> Result<(), RawError> {
        let partition = self.partition;
        while (self.content.len() as u64) < end {
            let next = self.content.len() as u64;
            let polled = match raw.poll(STREAM, TOPIC, partition, next, POLL_COUNT) {
                Err(RawError::Broken(reason)) => panic!("{reason}"),
                other => other?,
            };
            assert_eq!(polled.partition, partition, "the reply names the partition");
            if polled.messages.is_empty() {
                self.current_offset = polled.current_offset;
                return Ok(());
            }
            for (offset, message) in (next..).zip(polled.messages) {
                assert_eq!(
                    message.offset, offset,
                    "partition {partition}: offsets without gap"
                );
                let number = plan.number(message.id).unwrap_or_else(|| {
                    panic!(
                        "partition {partition}, offset {offset}: foreign id {:032x}",
                        message.id
                    )
                });
                let planned = plan.message(number);
                assert_eq!(
                    message.payload, planned.payload,
                    "payload at {partition}/{offset}"
                );
                assert_eq!(
                    message.headers.is_empty(),
                    planned.headers.is_none(),
                    "headers"
                );
                self.content.push(number);
            }
        }
        Ok(())
    }
}

/// Waits until `node` itself holds everything acknowledged by now, and checks all of it.
fn wait_caught_up(cluster: &mut Cluster, node: usize, ledger: &Ledger) -> Vec<Vec<u64>> {
    let start = Instant::now();
    let mut raw = cluster.raw(node);
    let mut contents = Vec::new();
    for partition in 0..ledger.partition_count() {
        let end = ledger.end(partition);
        let mut reading = Reading {
            partition,
            content: Vec::new(),
            current_offset: 0,
        };
        let limit = CATCH_UP_LIMIT.saturating_sub(start.elapsed());
        wait_until(
            &format!("node {node} caught up in {partition}"),
            limit,
            || {
                cluster.check_alive();
                if let Err(error) = reading.advance(&mut raw, ledger.plan, end) {
                    raw = RawClient::login(cluster.address(node))
                        .map_err(|error| error.to_string())?;
                    return Err(error.to_string());
                }
                let held = reading.content.len() as u64;
                if held < end {
                    Err(format!(
                        "it serves {held} of {end} messages, current offset {}",
                        reading.current_offset
                    ))
                } else {
                    Ok(())
                }
            },
        );
        if let Err(reason) = ledger.check(partition, &reading.content) {
            panic!("node {node}, partition {partition}: {reason}");
        }
        contents.push(reading.content);
    }
    contents
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_messages_survive_ten_kills_of_the_primary() {
    let seed = seed("acknowledged_messages_survive_ten_kills_of_the_primary");
    let plan = Plan {
        seed,
        payload_max: 2_000,
    };
    let mut random = Random::new(seed);
    let mut cluster = Cluster::start();
    let setup = connect(cluster.address(0))
        .await
        .expect("the client connects");
    setup
        .create_stream(STREAM)
        .await
        .expect("the stream is created");
    create_topic(&setup, STREAM, TOPIC, PARTITIONS)
        .await
        .expect("the topic is created");
    setup.shutdown().await.expect("the client closes");

    let ledger = Arc::new(Ledger::new(plan, PARTITIONS));
    let pace = Pace {
        batch: 1..=10,
        pause: 5..=25,
        patience: SERVICE_LIMIT,
        served: BATCHES_AFTER_KILL,
    };
    let addresses = cluster.addresses();
    let mut load = Producers::start(Arc::clone(&ledger), &addresses, (STREAM, TOPIC), pace);
    let mut application = Application::new(cluster.addresses(), 0);
    load.wait_served("service before the first kill").await;
    for round in 1..=ROUNDS {
        sleep(Duration::from_millis(random.between(200, 4_000))).await;
        let primary = cluster.primary();
        cluster.kill9(primary);
        let what = format!("service after kill {round}, of node {primary}");
        let served = load.wait_served(&what).await;
        use_a_new_topic(&mut application, plan, &format!("after-{round}")).await;
        // Sometimes it misses little, sometimes more than can be repaired prepare by prepare.
        sleep(Duration::from_millis(random.between(0, 4_000))).await;
        cluster.restart(primary);
        let start = Instant::now();
        wait_caught_up(&mut cluster, primary, &ledger);
        println!(
            "round {round}: killed node {primary}, all partitions served after {served:?}, back \
             and caught up in {:?}; {:?} batches acknowledged",
            start.elapsed(),
            ledger.acknowledged()
        );
    }
    load.finish().await;
    application.close().await;
    println!("failed attempts: {}", ledger.failures());

    let contents: Vec<_> = (0..NODES)
        .map(|node| wait_caught_up(&mut cluster, node, &ledger))
        .collect();
    let primary = cluster.primary();
    let reader = connect(cluster.address(primary))
        .await
        .expect("the client connects");
    check_everything(&reader, &ledger, &contents).await;
}

/// Reads all partitions through the client and compares them with the ledger and with what each
/// node held; then the topics that were made between kills.
async fn check_everything(reader: &IggyClient, ledger: &Ledger, contents: &[Vec<Vec<u64>>]) {
    let plan = ledger.plan;
    for partition in 0..PARTITIONS {
        let messages = poll_all(reader, STREAM, TOPIC, partition).await;
        let mut content = Vec::new();
        for message in &messages {
            let number = plan.number(message.header.id).expect("an id of the plan");
            plan.message(number)
                .check(message)
                .unwrap_or_else(|reason| panic!("{reason}"));
            content.push(number);
        }
        if let Err(reason) = ledger.check_whole(partition, &content) {
            panic!("partition {partition}: {reason}");
        }
        for (node, held) in contents.iter().enumerate() {
            let held = &held[partition as usize];
            let common = held.len().min(content.len());
            assert!(
                held[..common] == content[..common],
                "node {node} differs in {partition}"
            );
        }
    }
    for round in 1..=ROUNDS {
        let messages = poll_all(reader, STREAM, &format!("after-{round}"), 0).await;
        let first = messages.first().expect("the topic has its message");
        plan.message(1)
            .check(first)
            .unwrap_or_else(|reason| panic!("{reason}"));
    }
}
