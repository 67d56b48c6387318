//! Producers of one topic that go on through crashes, and the partitions' content as nodes serve
//! it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::cluster::Cluster;
use crate::support::ledger::Ledger;
use crate::support::producers::{Pace, Producers};
use crate::support::raw_client::{RawClient, RawError};
use crate::support::wait_until;

/// The stream of every topic.
pub(crate) const STREAM: &str = "crash";
/// How long a node may take to hold what was acknowledged.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
const POLL_COUNT: u32 = 1_000;
/// Messages known from earlier reads that are read once more.
const OVERLAP: usize = 100;

/// One topic, its producers (one per partition) and what they were promised.
pub(crate) struct Load {
    pub(crate) topic: String,
    pub(crate) ledger: Arc<Ledger>,
    producers: Producers,
    /// What was read of each partition, from whichever node: content never changes.
    contents: Vec<Vec<u64>>,
}

impl Load {
    pub(crate) fn start(topic: &str, ledger: Ledger, addresses: &[SocketAddr]) -> Self {
        let ledger = Arc::new(ledger);
        let pace = Pace {
            batch: 1..=10,
            pause: 0..=8,
            patience: Duration::from_secs(60),
            served: 3,
        };
        let partitions = ledger.partition_count() as usize;
        Self {
            topic: topic.to_owned(),
            producers: Producers::start(Arc::clone(&ledger), addresses, (STREAM, topic), pace),
            ledger,
            contents: vec![Vec::new(); partitions],
        }
    }

    /// Waits until every partition has acknowledged some batches more than now.
    pub(crate) async fn wait_served(&self, what: &str) {
        let what = format!("{}: {what}", self.topic);
        self.producers.wait_served(&what).await;
    }

    /// Tells the producers to stop at once; the cluster may be gone.
    pub(crate) fn abandon(&self) {
        self.producers.abandon();
    }

    pub(crate) async fn finish(&mut self) {
        self.producers.finish().await;
    }

    pub(crate) fn batches(&self) -> usize {
        self.producers.batches()
    }

    /// Reads at `node` until it holds all that is acknowledged by now, and checks that what was
    /// read before is still the same and that every promise is kept. `again`: from the first
    /// message on, not only what is new.
    pub(crate) fn check_at(&mut self, cluster: &mut Cluster, node: usize, again: bool) {
        let mut raw = cluster.raw(node);
        for partition in 0..self.ledger.partition_count() {
            let end = self.ledger.end(partition);
            let known = &self.contents[partition as usize];
            let start = if again {
                0
            } else {
                known.len().saturating_sub(OVERLAP)
            };
            let mut held = known[..start].to_vec();
            let what = format!("node {node} holds partition {partition} of {}", self.topic);
            wait_until(&what, CATCH_UP_LIMIT, || {
                cluster.check_alive();
                match self.read_on(&mut raw, partition, &mut held, end) {
                    Ok(()) if held.len() as u64 >= end => Ok(()),
                    Ok(()) => Err(format!("{} of {end} messages", held.len())),
                    Err(RawError::Broken(reason)) => panic!("{what}: {reason}"),
                    Err(error) => {
                        raw = RawClient::login(cluster.address(node))
                            .map_err(|error| error.to_string())?;
                        Err(error.to_string())
                    }
                }
            });
            let common = known.len().min(held.len());
            assert!(
                held[..common] == known[..common],
                "{what}: what was served before has changed"
            );
            if let Err(reason) = self.ledger.check(partition, &held) {
                panic!("{what}: {reason}");
            }
            if held.len() > known.len() {
                self.contents[partition as usize] = held;
            }
        }
    }

    /// Every promise is within what was read.
    pub(crate) fn check_whole(&self) {
        for (partition, content) in (0..).zip(&self.contents) {
            if let Err(reason) = self.ledger.check_whole(partition, content) {
                panic!("{}, partition {partition}: {reason}", self.topic);
            }
        }
    }

    /// Reads until `end` or until the node has no more; offsets are without a gap.
    fn read_on(
        &self,
        raw: &mut RawClient,
        partition: u32,
        held: &mut Vec<u64>,
        end: u64,
    ) -> Result<(), RawError> {
        let plan = self.ledger.plan;
        while (held.len() as u64) < end {
            let next = held.len() as u64;
            let polled = raw.poll(STREAM, &self.topic, partition, next, POLL_COUNT)?;
            if polled.messages.is_empty() {
                return Ok(());
            }
            for (offset, message) in (next..).zip(polled.messages) {
                let broken = |what: String| RawError::Broken(format!("offset {offset}: {what}"));
                if message.offset != offset {
                    return Err(broken(format!("the node says {}", message.offset)));
                }
                let number = plan.number(message.id);
                let number = number.ok_or_else(|| broken("an id nobody sent".to_owned()))?;
                if message.payload != plan.message(number).payload {
                    return Err(broken("another payload than was sent".to_owned()));
                }
                held.push(number);
            }
        }
        Ok(())
    }
}
