//! Producers on a cluster, and what must be true of every node afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iggy::prelude::{Client, StreamClient};

use crate::support::ledger::Ledger;
use crate::support::messages::Plan;
use crate::support::producers::{Pace, Producers};
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::{connect, create_topic};
use crate::support::wait_until;

const STREAM: &str = "mesh";
const TOPIC: &str = "load";
const PARTITIONS: u32 = 2;
/// How long a producer may be without service, whatever was done to the cluster.
const SERVICE_LIMIT: Duration = Duration::from_secs(40);
const POLL_COUNT: u32 = 1_000;
/// Messages of a batch.
const BATCH: u64 = 5;

/// Producers, and the check of what they were promised.
pub(crate) struct Load {
    producers: Producers,
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
        let pause = u64::try_from(pause.as_millis()).expect("a short pause");
        let pace = Pace {
            batch: BATCH..=BATCH,
            pause: pause..=pause,
            patience: SERVICE_LIMIT,
            served: 3,
        };
        let load = Self {
            producers: Producers::start(ledger, addresses, (STREAM, TOPIC), pace),
        };
        load.wait_served("service at the start").await;
        load
    }

    /// Batches acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.producers.batches()
    }

    /// Waits until every partition has acknowledged some batches more than now.
    pub(crate) async fn wait_served(&self, what: &str) -> Duration {
        self.producers.wait_served(what).await
    }

    /// Stops, and checks on every node that all that was acknowledged is there and in its place.
    /// `check_alive` panics when a node is not there any more.
    pub(crate) async fn finish(mut self, addresses: &[SocketAddr], mut check_alive: impl FnMut()) {
        self.producers.finish().await;
        let ledger = &self.producers.ledger;
        let mut contents: Vec<Vec<Vec<u64>>> = Vec::new();
        for (node, address) in addresses.iter().enumerate() {
            contents.push(read_all(node, *address, ledger, &mut check_alive));
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
            ledger.acknowledged(),
            ledger.failures()
        );
    }
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
