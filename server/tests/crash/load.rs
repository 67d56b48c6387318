//! Producers of one topic that go on through crashes, and the partitions' content as nodes serve
//! it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ledger::Ledger;
use crate::support::cluster::Cluster;
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::Application;
use crate::support::{Random, wait_until};

/// The stream of every topic.
pub(crate) const STREAM: &str = "crash";
/// Batches each partition must acknowledge before the load counts as served.
const BATCHES_SERVED: usize = 3;
/// How long a producer may be without service.
const SERVICE_LIMIT: Duration = Duration::from_secs(60);
/// How long a node may take to hold what was acknowledged.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
const POLL_COUNT: u32 = 1_000;
/// Messages known from earlier reads that are read once more.
const OVERLAP: usize = 100;

/// One topic, its producers (one per partition) and what they were promised.
pub(crate) struct Load {
    pub(crate) topic: String,
    pub(crate) ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    producers: Vec<JoinHandle<Result<(), String>>>,
    /// What was read of each partition, from whichever node: content never changes.
    contents: Vec<Vec<u64>>,
}

impl Load {
    pub(crate) fn start(topic: &str, ledger: Ledger, addresses: &[SocketAddr]) -> Self {
        let ledger = Arc::new(ledger);
        let stop = Arc::new(AtomicBool::new(false));
        let producers = (0..ledger.partition_count())
            .map(|partition| {
                let application = Application::new(addresses.to_vec(), partition as usize);
                let (ledger, stop) = (Arc::clone(&ledger), Arc::clone(&stop));
                tokio::spawn(produce(
                    ledger,
                    application,
                    topic.to_owned(),
                    partition,
                    stop,
                ))
            })
            .collect();
        let contents = vec![Vec::new(); ledger.partition_count() as usize];
        Self {
            topic: topic.to_owned(),
            ledger,
            stop,
            producers,
            contents,
        }
    }

    /// Waits until every partition has acknowledged some batches more than now.
    pub(crate) fn wait_served(&self, what: &str) {
        let before = self.ledger.acknowledged();
        wait_until(&format!("{}: {what}", self.topic), SERVICE_LIMIT, || {
            if self.producers.iter().any(JoinHandle::is_finished) {
                return Err(format!("a producer gave up: {}", self.ledger.failures()));
            }
            let now = self.ledger.acknowledged();
            let served = |(now, before): (&usize, &usize)| now - before >= BATCHES_SERVED;
            if now.iter().zip(&before).all(served) {
                return Ok(());
            }
            let failures = self.ledger.failures();
            Err(format!(
                "batches were {before:?}, are {now:?}; failed attempts: {failures}"
            ))
        });
    }

    /// Tells the producers to stop after the batch they are at; the cluster may be gone by then.
    pub(crate) fn abandon(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for producer in &self.producers {
            producer.abort();
        }
    }

    pub(crate) async fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for producer in self.producers.drain(..) {
            producer
                .await
                .expect("the producer does not panic")
                .expect("every batch is answered");
        }
    }

    pub(crate) fn batches(&self) -> usize {
        self.ledger.acknowledged().iter().sum()
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

async fn produce(
    ledger: Arc<Ledger>,
    mut application: Application,
    topic: String,
    partition: u32,
    stop: Arc<AtomicBool>,
) -> Result<(), String> {
    let mut random = Random::new(ledger.plan.seed ^ u64::from(partition));
    while !stop.load(Ordering::Relaxed) {
        let count = random.between(1, 10);
        let first = ledger.begin(partition, count);
        let start = Instant::now();
        loop {
            let mut messages = ledger.plan.batch(first, count);
            let sent = application.send(STREAM, &topic, partition, &mut messages);
            match sent.await {
                Ok(response) => {
                    ledger.acknowledge(partition, first, count, &response)?;
                    break;
                }
                Err(reason) if start.elapsed() > SERVICE_LIMIT => return Err(reason),
                Err(reason) => ledger.failed(partition, reason),
            }
            sleep(Duration::from_millis(30)).await;
        }
        sleep(Duration::from_millis(random.between(0, 8))).await;
    }
    application.close().await;
    Ok(())
}
