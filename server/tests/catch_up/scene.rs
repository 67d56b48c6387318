//! A cluster with topics that are filled, and what every node must serve of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use iggy::prelude::{
    Client, Consumer, ConsumerOffsetClient, Durability, IggyClient, IggyMessage, MessageClient,
    Partitioning, StreamClient, TopicClient, TopicCreateOptions,
};

use crate::content::{self, Content};
use crate::support::cluster::{Cluster, NODES};
use crate::support::raw_client::RawClient;
use crate::support::sdk::{Application, connect, named};
use crate::support::{Random, wait_until};

pub(crate) const STREAM: &str = "catch-up";
/// How long a node may take to hold what the others have.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
/// How long a write may take while a primary is replaced.
const SERVICE_LIMIT: Duration = Duration::from_secs(40);

/// The cluster and the messages each partition holds at least.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) seed: u64,
    ends: BTreeMap<(String, u32), u64>,
}

/// Messages `first..first + count` with payloads of `size` bytes, recognisable by their id.
pub(crate) fn batch(seed: u64, first: u64, count: u64, size: usize) -> Vec<IggyMessage> {
    let message = |number: u64| {
        let payload = Random::new(seed ^ number).bytes(size);
        IggyMessage::builder()
            .id(u128::from(seed | 1) << 64 | u128::from(number + 1))
            .payload(payload.into())
            .build()
            .expect("a message within the limits")
    };
    (first..first + count).map(message).collect()
}

impl Scene {
    pub(crate) async fn start(seed: u64) -> Self {
        let scene = Self {
            cluster: Cluster::start(),
            seed,
            ends: BTreeMap::new(),
        };
        let client = scene.client().await;
        client
            .create_stream(STREAM)
            .await
            .expect("the stream is created");
        client.shutdown().await.expect("the client closes");
        scene
    }

    pub(crate) async fn client(&self) -> IggyClient {
        for node in (0..NODES).cycle().take(20 * NODES) {
            if let Ok(client) = connect(self.cluster.address(node)).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no node takes a login");
    }

    /// A topic of this durability.
    pub(crate) async fn topic(&mut self, name: &str, partitions: u32, durability: Durability) {
        let client = self.client().await;
        let options = TopicCreateOptions {
            partitions_count: Some(partitions),
            durability,
            ..TopicCreateOptions::default()
        };
        let created = client.create_topic(&named(STREAM), name, &options).await;
        created.expect("the topic is created");
        client.shutdown().await.expect("the client closes");
        for partition in 0..partitions {
            self.ends.insert((name.to_owned(), partition), 0);
        }
    }

    /// Sends `batches` of `count` messages with payloads of `size` bytes to a partition, and
    /// stores the last of them as a position.
    pub(crate) async fn fill(
        &mut self,
        client: &IggyClient,
        (topic, partition): (&str, u32),
        batches: u64,
        (count, size): (u64, usize),
    ) {
        let end = self
            .ends
            .get_mut(&(topic.to_owned(), partition))
            .expect("a topic");
        let (stream, name) = (named(STREAM), named(topic));
        let partitioning = Partitioning::partition_id(partition);
        for _ in 0..batches {
            let mut messages = batch(self.seed, *end, count, size);
            let sent = client.send_messages(&stream, &name, &partitioning, &mut messages);
            let response = sent
                .await
                .unwrap_or_else(|error| panic!("{topic}: {error}"));
            let offset = response
                .confirmations
                .first()
                .map(|first| first.base_offset);
            assert_eq!(
                offset,
                Some(*end),
                "{topic}/{partition}: the batch continues"
            );
            *end += count;
        }
        let consumer = Consumer::default();
        let stored =
            client.store_consumer_offset(&consumer, &stream, &name, Some(partition), *end - 1);
        stored
            .await
            .unwrap_or_else(|error| panic!("{topic}/{partition}: {error}"));
    }

    /// Kills a node unless it is down, and removes all it has.
    pub(crate) fn wipe(&mut self, node: usize) {
        self.cluster.kill9_if_running(node);
        // A node that led must have been voted out before an empty one of its name comes back.
        self.cluster.primary();
        self.cluster.wipe(node);
    }

    /// Waits until `node` itself serves the last message of every partition and knows all topics.
    pub(crate) fn wait_joined(&mut self, node: usize) -> Duration {
        let start = Instant::now();
        let mut raw = self.cluster.raw(node);
        for ((topic, partition), end) in &self.ends {
            let Some(last) = end.checked_sub(1) else {
                continue;
            };
            let what = format!("node {node} has {topic}/{partition} up to {last}");
            wait_until(&what, JOIN_LIMIT, || {
                self.cluster.check_alive();
                let polled = raw.poll(STREAM, topic, *partition, last, 1);
                match polled {
                    Ok(polled) if polled.messages.len() == 1 => {
                        let wanted = u128::from(self.seed | 1) << 64 | u128::from(last + 1);
                        assert_eq!(polled.messages[0].id, wanted, "{topic}/{partition}/{last}");
                        Ok(())
                    }
                    Ok(polled) => Err(format!("its current offset is {}", polled.current_offset)),
                    Err(error) => {
                        if let Ok(fresh) = RawClient::login(self.cluster.address(node)) {
                            raw = fresh;
                        }
                        Err(error.to_string())
                    }
                }
            });
        }
        start.elapsed()
    }

    /// The node that came back carries the cluster through the loss of another one: with the
    /// present primary gone, every topic takes messages, and all of the others is still there.
    pub(crate) async fn survive_with(&mut self, joiner: usize) {
        let primary = self.cluster.primary();
        let lost = if primary == joiner {
            (joiner + 1) % NODES
        } else {
            primary
        };
        self.cluster.kill9(lost);
        let mut application = Application::new(self.cluster.addresses(), joiner);
        for ((topic, partition), end) in &mut self.ends {
            let start = Instant::now();
            loop {
                let mut messages = batch(self.seed, *end, 1, 100);
                let sent = application
                    .send(STREAM, topic, *partition, &mut messages)
                    .await;
                match sent {
                    Ok(_) => break,
                    Err(reason) => assert!(
                        start.elapsed() < SERVICE_LIMIT,
                        "{topic}/{partition} takes nothing without node {lost}: {reason}"
                    ),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // An attempt without an answer may have been committed before the one with an answer.
            *end += 1;
        }
        application.close().await;
        self.wait_joined(joiner);
        self.cluster.restart(lost);
        self.wait_joined(lost);
    }

    /// Stops all nodes in order and compares what they have.
    pub(crate) fn compare_stopped(&mut self) -> Content {
        self.wait_rest();
        self.cluster.stop_all();
        let folders: Vec<_> = (0..NODES).map(|node| self.cluster.data(node)).collect();
        let content = content::assert_same(&folders);
        assert!(!content.is_empty(), "there is something to compare");
        content
    }

    /// Waits until all nodes serve all there is, also what was sent by others than this scene.
    fn wait_rest(&mut self) {
        for node in 0..NODES {
            self.wait_joined(node);
        }
        let mut raws: Vec<RawClient> = (0..NODES).map(|node| self.cluster.raw(node)).collect();
        for (topic, partition) in self.ends.keys() {
            wait_until(
                &format!("one end of {topic}/{partition}"),
                JOIN_LIMIT,
                || {
                    let mut ends = Vec::new();
                    for raw in &mut raws {
                        let polled = raw.poll(STREAM, topic, *partition, 0, 1);
                        ends.push(polled.map_err(|error| error.to_string())?.current_offset);
                    }
                    let is_one = ends.iter().all(|end| *end == ends[0]);
                    is_one.then_some(()).ok_or_else(|| format!("{ends:?}"))
                },
            );
        }
    }
}
