//! Producers of one topic, one per partition, that send until told to stop and go on through
//! whatever is done to the cluster meanwhile.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Random;
use super::ledger::Ledger;
use super::sdk::Application;

/// Pause after an attempt that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(30);
/// Pause between two looks at what was acknowledged.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// What producers send, and how.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Messages of a batch.
    pub(crate) batch: RangeInclusive<u64>,
    /// Milliseconds between two batches.
    pub(crate) pause: RangeInclusive<u64>,
    /// How long one batch may take, and how long all may be without service.
    pub(crate) patience: Duration,
    /// Batches more that each partition must acknowledge before the producers count as served.
    pub(crate) served: usize,
}

/// The producers, and what they were promised.
pub(crate) struct Producers {
    pub(crate) ledger: Arc<Ledger>,
    pace: Pace,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<(), String>>>,
}

impl Producers {
    pub(crate) fn start(
        ledger: Arc<Ledger>,
        addresses: &[SocketAddr],
        (stream, topic): (&'static str, &str),
        pace: Pace,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..ledger.partition_count())
            .map(|partition| {
                let application = Application::new(addresses.to_vec(), partition as usize);
                let producer = Producer {
                    ledger: Arc::clone(&ledger),
                    stream,
                    topic: topic.to_owned(),
                    partition,
                    pace: pace.clone(),
                    stop: Arc::clone(&stop),
                };
                tokio::spawn(producer.run(application))
            })
            .collect();
        Self {
            ledger,
            pace,
            stop,
            tasks,
        }
    }

    /// Waits until every partition has acknowledged some batches more than now.
    pub(crate) async fn wait_served(&self, what: &str) -> Duration {
        let start = Instant::now();
        let before = self.ledger.acknowledged();
        loop {
            let now = self.ledger.acknowledged();
            let served = |(now, before): (&usize, &usize)| now - before >= self.pace.served;
            if now.iter().zip(&before).all(served) {
                return start.elapsed();
            }
            let failures = self.ledger.failures();
            let gave_up = self.tasks.iter().any(JoinHandle::is_finished);
            assert!(
                start.elapsed() < self.pace.patience && !gave_up,
                "{what}: batches were {before:?}, are {now:?}; a producer gave up: {gave_up}; \
                 failed attempts: {failures}"
            );
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Tells the producers to stop at once; the cluster may be gone.
    pub(crate) fn abandon(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// Lets every producer finish the batch it is at.
    pub(crate) async fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            task.await
                .expect("the producer does not panic")
                .expect("every batch is answered");
        }
    }

    /// Batches acknowledged so far.
    pub(crate) fn batches(&self) -> usize {
        self.ledger.acknowledged().iter().sum()
    }
}

struct Producer {
    ledger: Arc<Ledger>,
    stream: &'static str,
    topic: String,
    partition: u32,
    pace: Pace,
    stop: Arc<AtomicBool>,
}

impl Producer {
    async fn run(self, mut application: Application) -> Result<(), String> {
        let (ledger, partition) = (&self.ledger, self.partition);
        let mut random = Random::new(ledger.plan.seed ^ u64::from(partition));
        let mut within = |range: &RangeInclusive<u64>| random.between(*range.start(), *range.end());
        while !self.stop.load(Ordering::Relaxed) {
            let count = within(&self.pace.batch);
            let first = ledger.begin(partition, count);
            let start = Instant::now();
            loop {
                let mut messages = ledger.plan.batch(first, count);
                let sent = application.send(self.stream, &self.topic, partition, &mut messages);
                match sent.await {
                    Ok(response) => {
                        ledger.acknowledge(partition, first, count, &response)?;
                        break;
                    }
                    Err(reason) if start.elapsed() > self.pace.patience => return Err(reason),
                    Err(reason) => ledger.failed(partition, reason),
                }
                sleep(RETRY_PAUSE).await;
            }
            sleep(Duration::from_millis(within(&self.pace.pause))).await;
        }
        application.close().await;
        Ok(())
    }
}
