//! Producers on a cluster, and what must be true of every node afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iggy::prelude::{Client, StreamClient};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ledger::Ledger;
use crate::support::messages::Plan;
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::{Application, connect, create_topic};
use crate::support::wait_until;

const STREAM: &str = "mesh";
const TOPIC: &str = "load";
const PARTITIONS: u32 = 2;
/// How long a producer may be without service, whatever was done to the cluster.
const SERVICE_LIMIT: Duration = Duration::from_secs(40);
const POLL_COUNT: u32 = 1_000;
/// Messages of a batch.
const BATCH: u64 = 5;

/// Producers that send until told to stop, one per partition.
pub(crate) struct Load {
    pub(crate) ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    producers: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    /// Creates the topic and starts. Each producer pauses for `pause` between its batches.
    pub(crate) async fn start(addresses: &[SocketAddr], seed: u64, pause: Duration) -> Self {
        let setup = connect(addresses[0]).await.expect("the client connects");
        setup
            .create_stream(STREAM)
            .await
            .expect("the stream is created");
        create_topic(&setup, STREAM, TOPIC, PARTITIONS)
            .await
            .expect("the topic is created");
        setup.shutdown().await.expect("the client closes");
        let plan = Plan {
            seed,
            payload_max: 500,
        };
        let ledger = Arc::new(Ledger::new(plan, PARTITIONS));
        let stop = Arc::new(AtomicBool::new(false));
        let producers = (0..PARTITIONS)
            .map(|partition| {
                let application = Application::new(addresses.to_vec(), partition as usize);
                let (ledger, stop) = (Arc::clone(&ledger), Arc::clone(&stop));
                tokio::spawn(produce(ledger, application, partition, stop, pause))
            })
            .collect();
        let load = Self {
            ledger,
            stop,
            producers,
        };
        load.wait_served("service at the start").await;
        load
    }

    /// Batches acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.ledger.acknowledged().iter().sum()
    }

    /// Waits until every partition has acknowledged some batches more than now.
    pub(crate) async fn wait_served(&self, what: &str) -> Duration {
        const BATCHES: usize = 3;
        let start = Instant::now();
        let before = self.ledger.acknowledged();
        loop {
            let now = self.ledger.acknowledged();
            let served = |(now, before): (&usize, &usize)| now - before >= BATCHES;
            if now.iter().zip(&before).all(served) {
                return start.elapsed();
            }
            let failures = self.ledger.failures();
            let gave_up = self.producers.iter().any(JoinHandle::is_finished);
            assert!(
                start.elapsed() < SERVICE_LIMIT && !gave_up,
                "{what}: batches were {before:?}, are {now:?}; {failures}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops, and checks on every node that all that was acknowledged is there and in its place.
    /// `check_alive` panics when a node is not there any more.
    pub(crate) async fn finish(self, addresses: &[SocketAddr], mut check_alive: impl FnMut()) {
        self.stop.store(true, Ordering::Relaxed);
        for producer in self.producers {
            producer
                .await
                .expect("the producer does not panic")
                .expect("every batch is answered");
        }
        let mut contents: Vec<Vec<Vec<u64>>> = Vec::new();
        for (node, address) in addresses.iter().enumerate() {
            contents.push(read_all(node, *address, &self.ledger, &mut check_alive));
        }
        for node in 1..contents.len() {
            for (partition, (ours, theirs)) in contents[0].iter().zip(&contents[node]).enumerate() {
                let common = ours.len().min(theirs.len());
                assert!(
                    ours[..common] == theirs[..common],
                    "nodes 0 and {node} differ in partition {partition}"
                );
            }
        }
        println!(
            "{:?} batches acknowledged; failed attempts: {}",
            self.ledger.acknowledged(),
            self.ledger.failures()
        );
    }
}

async fn produce(
    ledger: Arc<Ledger>,
    mut application: Application,
    partition: u32,
    stop: Arc<AtomicBool>,
    pause: Duration,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let first = ledger.begin(partition, BATCH);
        let start = Instant::now();
        loop {
            let mut messages = ledger.plan.batch(first, BATCH);
            match application
                .send(STREAM, TOPIC, partition, &mut messages)
                .await
            {
                Ok(response) => {
                    ledger.acknowledge(partition, first, BATCH, &response)?;
                    break;
                }
                Err(reason) if start.elapsed() > SERVICE_LIMIT => return Err(reason),
                Err(reason) => ledger.failed(partition, reason),
            }
            sleep(Duration::from_millis(20)).await;
        }
        sleep(pause).await;
    }
    application.close().await;
    Ok(())
}

/// The message numbers of all partitions as `node` itself serves them, once it holds all that was
/// acknowledged.
fn read_all(
    node: usize,
    address: SocketAddr,
    ledger: &Ledger,
    check_alive: &mut impl FnMut(),
) -> Vec<Vec<u64>> {
    let mut raw: Option<RawClient> = None;
    (0..ledger.partition_count())
        .map(|partition| {
            let end = ledger.end(partition);
            let mut content = Vec::new();
            let what = format!("node {node} holds {end} messages of partition {partition}");
            wait_until(&what, SERVICE_LIMIT, || {
                check_alive();
                let mut attempt = || -> Result<(), RawError> {
                    let raw = match &mut raw {
                        Some(raw) => raw,
                        none => none.insert(RawClient::login(address)?),
                    };
                    read(raw, partition, ledger.plan, &mut content, end)
                };
                if let Err(error) = attempt() {
                    raw = None;
                    return Err(error.to_string());
                }
                if (content.len() as u64) < end {
                    return Err(format!("it holds {}", content.len()));
                }
                Ok(())
            });
            if let Err(reason) = ledger.check_whole(partition, &content) {
                panic!("node {node}, partition {partition}: {reason}");
            }
            content
        })
        .collect()
}

fn read(
    raw: &mut RawClient,
    partition: u32,
    plan: Plan,
    content: &mut Vec<u64>,
    end: u64,
) -> Result<(), RawError> {
    while (content.len() as u64) < end {
        let next = content.len() as u64;
        let polled = raw.poll(STREAM, TOPIC, partition, next, POLL_COUNT)?;
        if polled.messages.is_empty() {
            return Ok(());
        }
        for (offset, message) in (next..).zip(polled.messages) {
            assert_eq!(message.offset, offset, "offsets without gap");
            let number = plan.number(message.id).expect("a message of this test");
            assert_eq!(message.payload, plan.message(number).payload);
            content.push(number);
        }
    }
    Ok(())
}
