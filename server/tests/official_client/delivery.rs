//! A quiet cluster: messages of every size come back as they were sent, wherever the client
//! connects and however many producers there are.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use iggy::prelude::{
    Client, ClusterClient, ClusterNodeRole, Consumer, ConsumerOffsetClient, Identifier, IggyClient,
    IggyMessage, MessageClient, Partitioning, PollingStrategy, StreamClient, TopicClient,
};

use crate::support::cluster::{Cluster, NODES};
use crate::support::messages::Plan;
use crate::support::sdk::{connect, create_topic, named, poll_all};
use crate::support::{Random, seed};

const STREAM: &str = "orders";
const TOPIC: &str = "events";
const PARTITIONS: u32 = 3;

/// Partition, base offset, first number and count of a confirmed batch.
type Confirmed = (u32, u64, u64, u64);
/// Numbers of the messages of each partition, in order of offset.
type Expected = BTreeMap<u32, Vec<u64>>;

async fn client_of(cluster: &Cluster, node: usize) -> IggyClient {
    connect(cluster.address(node))
        .await
        .unwrap_or_else(|error| panic!("connection to node {node}: {error}"))
}

async fn create_stream_and_topic(client: &IggyClient) {
    let stream = client
        .create_stream(STREAM)
        .await
        .expect("the stream is created");
    assert_eq!(stream.name, STREAM);
    create_topic(client, STREAM, TOPIC, PARTITIONS)
        .await
        .expect("the topic is created");
    let topic = client
        .get_topic(&named(STREAM), &named(TOPIC))
        .await
        .expect("the topic can be read")
        .expect("the topic exists");
    assert_eq!(topic.name, TOPIC);
    assert_eq!(topic.partitions_count, PARTITIONS);
    let ids: Vec<u32> = topic
        .partitions
        .iter()
        .map(|partition| partition.id)
        .collect();
    assert_eq!(ids, [0, 1, 2]);
}

/// Sends messages `first..first + count` to one partition and returns the base offset.
async fn send(client: &IggyClient, plan: Plan, partition: u32, first: u64, count: u64) -> u64 {
    let mut messages = plan.batch(first, count);
    let response = client
        .send_messages(
            &named(STREAM),
            &named(TOPIC),
            &Partitioning::partition_id(partition),
            &mut messages,
        )
        .await
        .unwrap_or_else(|error| panic!("send of {count} messages from {first}: {error}"));
    let [confirmation] = response.confirmations.as_slice() else {
        panic!(
            "one confirmation expected, got {:?}",
            response.confirmations
        );
    };
    assert_eq!(confirmation.partition_id, partition);
    confirmation.base_offset
}

fn check_partition(plan: Plan, partition: u32, numbers: &[u64], messages: &[IggyMessage]) {
    assert_eq!(
        messages.len(),
        numbers.len(),
        "messages in partition {partition}"
    );
    for (number, message) in numbers.iter().zip(messages) {
        if let Err(reason) = plan.message(*number).check(message) {
            panic!("partition {partition}: {reason}");
        }
        assert!(message.header.timestamp > 0, "the server stamps the time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_come_back_as_they_were_sent() {
    const MESSAGES: u64 = 10_000;
    let seed = seed("ten_thousand_messages_come_back_as_they_were_sent");
    let mut random = Random::new(seed);
    let plan = Plan {
        seed,
        payload_max: 100_000,
    };
    let cluster = Cluster::start();
    let client = client_of(&cluster, 0).await;
    create_stream_and_topic(&client).await;

    let mut expected = Expected::new();
    let mut next = 1;
    while next <= MESSAGES {
        // Mostly small batches, now and then a large one.
        let size = if random.one_in(10) {
            random.between(1, 200)
        } else {
            random.between(1, 30)
        };
        let count = size.min(MESSAGES + 1 - next);
        let partition = random.between(0, u64::from(PARTITIONS) - 1) as u32;
        let base_offset = send(&client, plan, partition, next, count).await;
        let numbers = expected.entry(partition).or_default();
        assert_eq!(
            base_offset,
            numbers.len() as u64,
            "partition {partition}: no gap, no reuse"
        );
        numbers.extend(next..next + count);
        next += count;
    }
    for partition in 0..PARTITIONS {
        let messages = poll_all(&client, STREAM, TOPIC, partition).await;
        check_partition(plan, partition, &expected[&partition], &messages);
    }
    let topic = client
        .get_topic(&named(STREAM), &named(TOPIC))
        .await
        .expect("read")
        .expect("is");
    assert_eq!(
        topic.messages_count, MESSAGES,
        "the topic counts its messages"
    );
    client.shutdown().await.expect("the client closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyed_and_balanced_sends_reach_the_confirmed_partition() {
    let seed = seed("keyed_and_balanced_sends_reach_the_confirmed_partition");
    let plan = Plan {
        seed,
        payload_max: 1_000,
    };
    let cluster = Cluster::start();
    let client = client_of(&cluster, 0).await;
    create_stream_and_topic(&client).await;

    let key = Partitioning::messages_key_str("customer-7").expect("a short key");
    let mut expected = Expected::new();
    let mut keyed = Vec::new();
    for number in 1..=60 {
        let partitioning = if number % 2 == 0 {
            Partitioning::balanced()
        } else {
            Partitioning::from_partitioning(&key)
        };
        let mut message = plan.batch(number, 1);
        let response = client
            .send_messages(&named(STREAM), &named(TOPIC), &partitioning, &mut message)
            .await
            .expect("the message is taken");
        let confirmation = &response.confirmations[0];
        let numbers = expected.entry(confirmation.partition_id).or_default();
        assert_eq!(confirmation.base_offset, numbers.len() as u64);
        numbers.push(number);
        if number % 2 == 1 {
            keyed.push(confirmation.partition_id);
        }
    }
    keyed.dedup();
    assert_eq!(keyed.len(), 1, "one key, one partition: {keyed:?}");
    for partition in 0..PARTITIONS {
        let messages = poll_all(&client, STREAM, TOPIC, partition).await;
        let numbers = expected.remove(&partition).unwrap_or_default();
        check_partition(plan, partition, &numbers, &messages);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_dials_a_backup_is_served() {
    let seed = seed("a_client_that_dials_a_backup_is_served");
    let plan = Plan {
        seed,
        payload_max: 10_000,
    };
    let mut cluster = Cluster::start();
    let primary = cluster.primary();
    let backups: Vec<usize> = (0..NODES).filter(|node| *node != primary).collect();

    let client = client_of(&cluster, backups[0]).await;
    let metadata = client
        .get_cluster_metadata()
        .await
        .expect("the roster can be read");
    let leaders: Vec<u16> = metadata
        .nodes
        .iter()
        .filter(|node| node.role == ClusterNodeRole::Leader)
        .map(|node| node.endpoints.tcp)
        .collect();
    assert_eq!(
        leaders,
        [cluster.address(primary).port()],
        "the roster names the primary"
    );
    let dialled = client.get_connection_info().await.server_address;
    assert_eq!(
        dialled,
        cluster.address(primary).to_string(),
        "the client followed the roster"
    );

    create_stream_and_topic(&client).await;
    let first = send(&client, plan, 1, 1, 50).await;
    assert_eq!(first, 0);
    // A second client, at the other backup, sees what the first one did and goes on.
    let other = client_of(&cluster, backups[1]).await;
    assert_eq!(send(&other, plan, 1, 51, 50).await, 50);
    let numbers: Vec<u64> = (1..=100).collect();
    for reader in [&client, &other] {
        let messages = poll_all(reader, STREAM, TOPIC, 1).await;
        check_partition(plan, 1, &numbers, &messages);
    }
}

async fn produce(address: SocketAddr, plan: Plan) -> Vec<Confirmed> {
    const BATCHES: u64 = 150;
    let client = connect(address).await.expect("the client connects");
    let mut random = Random::new(plan.seed);
    let mut confirmed = Vec::new();
    let mut next = 1;
    for _ in 0..BATCHES {
        let count = random.between(1, 20);
        let partition = random.between(0, u64::from(PARTITIONS) - 1) as u32;
        let base_offset = send(&client, plan, partition, next, count).await;
        confirmed.push((partition, base_offset, next, count));
        next += count;
    }
    confirmed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_at_once_share_a_topic() {
    let seed = seed("two_clients_at_once_share_a_topic");
    let cluster = Cluster::start();
    let plans = [1, 2].map(|producer| Plan {
        seed: seed ^ producer << 32,
        payload_max: 5_000,
    });
    let setup = client_of(&cluster, 0).await;
    create_stream_and_topic(&setup).await;

    let producers: Vec<_> = plans
        .into_iter()
        .enumerate()
        .map(|(at, plan)| tokio::spawn(produce(cluster.address(at), plan)))
        .collect();
    let mut expected: BTreeMap<u32, BTreeMap<u64, (Plan, u64)>> = BTreeMap::new();
    for (plan, producer) in plans.into_iter().zip(producers) {
        for (partition, base, first, count) in producer.await.expect("the producer ends") {
            for at in 0..count {
                let taken = expected
                    .entry(partition)
                    .or_default()
                    .insert(base + at, (plan, first + at));
                assert!(
                    taken.is_none(),
                    "offset {} of {partition} confirmed twice",
                    base + at
                );
            }
        }
    }
    for (partition, offsets) in &expected {
        let messages = poll_all(&setup, STREAM, TOPIC, *partition).await;
        assert_eq!(
            messages.len(),
            offsets.len(),
            "messages in partition {partition}"
        );
        for (offset, (plan, number)) in offsets {
            let message = &messages[*offset as usize];
            if let Err(reason) = plan.message(*number).check(message) {
                panic!("partition {partition}: {reason}");
            }
        }
    }
    let streams = setup
        .get_streams()
        .await
        .expect("the streams can be listed");
    let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, [STREAM]);
    let missing = Identifier::named("no-such-stream").expect("a legal name");
    assert!(
        setup
            .get_stream(&missing)
            .await
            .expect("absence is no error")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_goes_on_after_the_offset_it_stored() {
    let seed = seed("a_consumer_goes_on_after_the_offset_it_stored");
    let plan = Plan {
        seed,
        payload_max: 1_000,
    };
    let cluster = Cluster::start();
    let client = client_of(&cluster, 0).await;
    create_stream_and_topic(&client).await;
    send(&client, plan, 2, 1, 30).await;

    let (stream, topic) = (named(STREAM), named(TOPIC));
    let consumer = Consumer::new(named("reader"));
    for first in [0, 10, 20] {
        // A fresh client each time: what it knows of the position comes from the cluster.
        let reader = client_of(&cluster, first as usize / 10).await;
        let polled = reader
            .poll_messages(
                &stream,
                &topic,
                Some(2),
                &consumer,
                &PollingStrategy::next(),
                10,
                true,
            )
            .await
            .expect("the poll is answered");
        let offsets: Vec<u64> = polled
            .messages
            .iter()
            .map(|message| message.header.offset)
            .collect();
        assert_eq!(offsets, (first..first + 10).collect::<Vec<_>>());
        let stored = reader
            .get_consumer_offset(&consumer, &stream, &topic, Some(2))
            .await
            .expect("the offset can be read")
            .expect("the poll stored an offset");
        assert_eq!(
            (stored.stored_offset, stored.current_offset),
            (first + 9, 29)
        );
    }
    client
        .store_consumer_offset(&consumer, &stream, &topic, Some(2), 4)
        .await
        .expect("an offset can be stored by hand");
    let polled = client
        .poll_messages(
            &stream,
            &topic,
            Some(2),
            &consumer,
            &PollingStrategy::next(),
            1,
            false,
        )
        .await
        .expect("the poll is answered");
    assert_eq!(polled.messages[0].header.offset, 5);
}
