//! The official client's own producer and consumer, as applications use them: direct and in the
//! background, alone and in a group, with each way to commit, through the loss of a node, and while
//! partitions change hands.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use iggy::prelude::{
    AutoCommit, AutoCommitWhen, BackgroundConfig, Client, Consumer, ConsumerGroupClient,
    ConsumerOffsetClient, DirectConfig, Identifier, IggyClient, IggyConsumer, IggyDuration,
    IggyExpiry, IggyMessage, MaxTopicSize, MessageClient, NonZeroIggyDuration, Partitioning,
    PollingStrategy, StreamClient, TopicClient,
};
use tokio::time::{sleep, timeout};

use crate::support::cluster::Cluster;
use crate::support::sdk::{connect, create_topic, named};

const LIMIT: Duration = Duration::from_secs(30);
/// A killed primary is replaced within an election; clients then have to find the next.
const FAILOVER_LIMIT: Duration = Duration::from_secs(90);
const QUIET: Duration = Duration::from_millis(1_500);

fn message(text: &str) -> IggyMessage {
    let payload = text.as_bytes().to_vec().into();
    IggyMessage::builder()
        .payload(payload)
        .build()
        .expect("a message")
}

fn interval(millis: u64) -> NonZeroIggyDuration {
    NonZeroIggyDuration::new(Duration::from_millis(millis)).expect("not zero")
}

fn text_of(message: &IggyMessage) -> String {
    String::from_utf8(message.payload.to_vec()).expect("a text")
}

/// Reads until `count` messages came or none came for a while.
async fn read(consumer: &mut IggyConsumer, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        match timeout(QUIET, consumer.next()).await {
            Ok(Some(Ok(received))) => texts.push(text_of(&received.message)),
            Ok(Some(Err(error))) => panic!("after {texts:?}: {error}"),
            Ok(None) | Err(_) => break,
        }
    }
    texts
}

async fn total(client: &IggyClient, stream: &str, topic: &str) -> u64 {
    let details = client
        .get_topic(&named(stream), &named(topic))
        .await
        .expect("a read");
    details.expect("the topic").messages_count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_and_single_consumers() {
    let cluster = Cluster::start();
    let client = connect(cluster.address(1)).await.expect("a client");

    // Direct: streams and topics are made on the way; every way to choose a partition.
    let producer = client
        .producer("shop", "orders")
        .expect("names")
        .direct(
            DirectConfig::builder()
                .batch_length(50)
                .linger_time(IggyDuration::from(0))
                .build(),
        )
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(3, IggyExpiry::NeverExpire, MaxTopicSize::Unlimited)
        .build();
    producer.init().await.expect("stream and topic");
    let batch = |from: usize| {
        (from..from + 120)
            .map(|at| message(&format!("{at}")))
            .collect()
    };
    producer.send(batch(0)).await.expect("balanced");
    let key = std::sync::Arc::new(Partitioning::messages_key_str("customer-7").expect("a key"));
    producer
        .send_with_partitioning(batch(120), Some(key))
        .await
        .expect("keyed");
    let second = std::sync::Arc::new(Partitioning::partition_id(2));
    producer
        .send_with_partitioning(batch(240), Some(second))
        .await
        .expect("to partition 2");
    assert_eq!(total(&client, "shop", "orders").await, 360);
    let details = client
        .get_topic(&named("shop"), &named("orders"))
        .await
        .expect("a read");
    let counts: Vec<u64> = details
        .expect("the topic")
        .partitions
        .iter()
        .map(|partition| partition.messages_count)
        .collect();
    assert!(counts[2] >= 120, "{counts:?}");
    producer.shutdown().await;

    // In the background: everything is there once it has been shut down.
    let producer = client
        .producer("shop", "background")
        .expect("names")
        .background(
            BackgroundConfig::builder()
                .num_shards(2)
                .batch_length(40)
                .build(),
        )
        .create_topic_if_not_exists(1, IggyExpiry::NeverExpire, MaxTopicSize::Unlimited)
        .build();
    producer.init().await.expect("a topic");
    for at in 0..500 {
        producer
            .send_one(message(&format!("{at}")))
            .await
            .expect("queued");
    }
    producer.shutdown().await;
    let start = Instant::now();
    while total(&client, "shop", "background").await < 500 {
        assert!(
            start.elapsed() < LIMIT,
            "the background never sends the rest"
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(total(&client, "shop", "background").await, 500);

    // One consumer after the other goes on where the one before it committed.
    create_topic(&client, "shop", "single", 1)
        .await
        .expect("a topic");
    let partition = Partitioning::partition_id(0);
    for at in 0..100 {
        let mut one = [message(&format!("{at}"))];
        client
            .send_messages(&named("shop"), &named("single"), &partition, &mut one)
            .await
            .expect("a message");
    }
    for (name, commit) in [
        ("on-poll", AutoCommit::When(AutoCommitWhen::PollingMessages)),
        (
            "on-all",
            AutoCommit::When(AutoCommitWhen::ConsumingAllMessages),
        ),
        (
            "on-each",
            AutoCommit::When(AutoCommitWhen::ConsumingEachMessage),
        ),
        (
            "on-nth",
            AutoCommit::When(AutoCommitWhen::ConsumingEveryNthMessage(10)),
        ),
        ("interval", AutoCommit::Interval(interval(100))),
        (
            "interval-or-each",
            AutoCommit::IntervalOrWhen(interval(100), AutoCommitWhen::ConsumingEachMessage),
        ),
        ("by-hand", AutoCommit::Disabled),
    ] {
        let build = || {
            client
                .consumer(name, "shop", "single", 0)
                .expect("names")
                .auto_commit(commit)
                .polling_strategy(PollingStrategy::next())
                .poll_interval(IggyDuration::from(5_000))
                .batch_length(20)
                .build()
        };
        let mut first = build();
        first.init().await.expect("a consumer");
        // Without a commit the next poll would bring the same batch again.
        let count = if commit == AutoCommit::Disabled {
            20
        } else {
            40
        };
        let texts = read(&mut first, count).await;
        let expected: Vec<String> = (0..count).map(|at| at.to_string()).collect();
        assert_eq!(texts, expected, "{name}");
        if commit == AutoCommit::Disabled {
            first.store_offset(19, Some(0)).await.expect("stored");
        }
        // What an interval has yet to commit it commits now.
        sleep(Duration::from_millis(400)).await;
        first.shutdown().await.expect("the consumer ends");
        drop(first);
        let consumer = Consumer::new(Identifier::named(name).expect("a name"));
        let stored = client
            .get_consumer_offset(&consumer, &named("shop"), &named("single"), Some(0))
            .await
            .expect("a read")
            .unwrap_or_else(|| panic!("{name} committed nothing"));
        assert!(
            (count as u64 - 1..60).contains(&stored.stored_offset),
            "{name}: {stored:?}"
        );
        let mut second = build();
        second.init().await.expect("a consumer");
        let texts = read(&mut second, 1).await;
        assert_eq!(
            texts,
            [(stored.stored_offset + 1).to_string()],
            "{name} goes on"
        );
        second.shutdown().await.expect("the consumer ends");
    }
    client.shutdown().await.expect("the client ends");
}

/// One member of a group that reads in a task of its own, until asked to stop.
struct Member {
    client: IggyClient,
    task: tokio::task::JoinHandle<()>,
}

type Seen = std::sync::Arc<std::sync::Mutex<BTreeMap<String, usize>>>;

/// Counts what comes. An error is followed by another attempt: that is what an application does.
async fn note(consumer: &mut IggyConsumer, seen: &Seen) {
    while let Some(received) = consumer.next().await {
        if let Ok(received) = received {
            let text = text_of(&received.message);
            *seen.lock().expect("no panic").entry(text).or_default() += 1;
        }
    }
}

async fn member(address: SocketAddr, seen: &Seen) -> Member {
    let client = connect(address).await.expect("a client");
    let mut consumer = client
        .consumer_group("readers", "stream", "topic")
        .expect("names")
        .auto_commit(AutoCommit::When(AutoCommitWhen::ConsumingEachMessage))
        .create_consumer_group_if_not_exists()
        .auto_join_consumer_group()
        .polling_strategy(PollingStrategy::next())
        .poll_interval(IggyDuration::from(5_000))
        .polling_retry_interval(interval(200))
        .batch_length(10)
        .build();
    consumer.init().await.expect("a member");
    let seen = std::sync::Arc::clone(seen);
    let task = tokio::spawn(async move { note(&mut consumer, &seen).await });
    Member { client, task }
}

/// What the server says of the group, for the one who has to find out why.
async fn describe(client: &IggyClient) -> String {
    let (stream, topic, group) = (named("stream"), named("topic"), named("readers"));
    let consumer = Consumer::group(named("readers"));
    let mut text = match client.get_consumer_group(&stream, &topic, &group).await {
        Ok(details) => format!("{details:?}"),
        Err(error) => error.to_string(),
    };
    for partition in 0..6 {
        let stored = client
            .get_consumer_offset(&consumer, &stream, &topic, Some(partition))
            .await;
        text.push_str(&format!("\npartition {partition}: {stored:?}"));
    }
    text
}

async fn wait_for(client: &IggyClient, seen: &Seen, wanted: &BTreeSet<String>, limit: Duration) {
    let start = Instant::now();
    loop {
        let missing: Vec<String> = {
            let seen = seen.lock().expect("no panic");
            wanted
                .iter()
                .filter(|text| !seen.contains_key(*text))
                .cloned()
                .collect()
        };
        if missing.is_empty() {
            return;
        }
        if start.elapsed() >= limit {
            let state = describe(client).await;
            panic!("{} never came: {missing:?}\n{state}", missing.len());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_shares_a_topic_and_survives_members_and_the_primary() {
    let mut cluster = Cluster::start();
    let primary = cluster.primary();
    let others: Vec<usize> = (0..3).filter(|node| *node != primary).collect();
    let client = connect(cluster.address(others[0])).await.expect("a client");
    client.create_stream("stream").await.expect("a stream");
    create_topic(&client, "stream", "topic", 6)
        .await
        .expect("a topic");
    let seen = Seen::default();
    let mut members = Vec::new();
    for node in [0, 1, 2] {
        members.push(member(cluster.address(node), &seen).await);
    }
    let (stream, topic, group) = (named("stream"), named("topic"), named("readers"));
    let details = client
        .get_consumer_group(&stream, &topic, &group)
        .await
        .expect("a read")
        .expect("the group");
    assert_eq!(details.members_count, 3);
    let mut owned: Vec<u32> = Vec::new();
    for member in &details.members {
        assert_eq!(member.partitions.len(), 2, "{details:?}");
        owned.extend(&member.partitions);
    }
    owned.sort_unstable();
    assert_eq!(owned, [0, 1, 2, 3, 4, 5], "each partition has one owner");

    let mut wanted = BTreeSet::new();
    let mut sent = 0;
    for _ in 0..60 {
        wanted.insert(send_some(&client, &mut sent, LIMIT).await);
    }
    wait_for(&client, &seen, &wanted, LIMIT).await;
    let twice = seen
        .lock()
        .expect("no panic")
        .values()
        .filter(|count| **count > 1)
        .count();
    assert_eq!(twice, 0, "nobody left, so nothing comes twice");

    // A member goes: the others take over.
    let gone = members.pop().expect("three members");
    gone.task.abort();
    gone.client.shutdown().await.expect("the client ends");
    for _ in 0..60 {
        wanted.insert(send_some(&client, &mut sent, LIMIT).await);
    }
    wait_for(&client, &seen, &wanted, Duration::from_secs(60)).await;

    for member in members {
        member.task.abort();
        member.client.shutdown().await.expect("the client ends");
    }

    // The primary goes: a producer and a consumer of one partition find the next one. (The members
    // of a group whose node died stay in it until somebody deletes it: chapter 05 section 7.)
    let reader = connect(cluster.address(others[1])).await.expect("a client");
    let mut consumer = reader
        .consumer("reader", "stream", "topic", 0)
        .expect("names")
        .auto_commit(AutoCommit::When(AutoCommitWhen::ConsumingEachMessage))
        .polling_strategy(PollingStrategy::next())
        .poll_interval(IggyDuration::from(5_000))
        .polling_retry_interval(interval(200))
        .build();
    consumer.init().await.expect("a consumer");
    let read_alone = Seen::default();
    let seen = std::sync::Arc::clone(&read_alone);
    let task = tokio::spawn(async move { note(&mut consumer, &seen).await });
    let first: BTreeSet<String> = (0..20).map(|at| format!("message {}", at * 6)).collect();
    wait_for(&client, &read_alone, &first, LIMIT).await;
    cluster.kill9(primary);
    let mut after = BTreeSet::new();
    for _ in 0..30 {
        let text = send_some(&client, &mut sent, FAILOVER_LIMIT).await;
        if (sent - 1).is_multiple_of(6) {
            after.insert(text);
        }
    }
    wait_for(&client, &read_alone, &after, FAILOVER_LIMIT).await;
    task.abort();
    let _ = timeout(Duration::from_secs(2), reader.shutdown()).await;
    let _ = timeout(Duration::from_secs(2), client.shutdown()).await;
}

/// Sends the next message to the next partition; again after an error, until `limit`.
async fn send_some(client: &IggyClient, sent: &mut u32, limit: Duration) -> String {
    let text = format!("message {sent}");
    let partition = Partitioning::partition_id(*sent % 6);
    *sent += 1;
    let start = Instant::now();
    loop {
        let mut one = [message(&text)];
        let (stream, topic) = (named("stream"), named("topic"));
        let attempt = client.send_messages(&stream, &topic, &partition, &mut one);
        match timeout(Duration::from_secs(35), attempt).await {
            Ok(Ok(_)) => return text,
            outcome => {
                assert!(start.elapsed() < limit, "{text}: {outcome:?}");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_in_work_changes_hands_once_its_owner_has_committed() {
    let mut cluster = Cluster::start();
    let primary = cluster.primary();
    let first = connect(cluster.address(primary)).await.expect("a client");
    let second = connect(cluster.address(primary)).await.expect("a client");
    first.create_stream("s").await.expect("a stream");
    create_topic(&first, "s", "t", 2).await.expect("a topic");
    let (stream, topic, group) = (named("s"), named("t"), named("g"));
    for partition in 0..2 {
        let partition = Partitioning::partition_id(partition);
        let mut one = [message("work")];
        first
            .send_messages(&stream, &topic, &partition, &mut one)
            .await
            .expect("a message");
    }
    first
        .create_consumer_group(&stream, &topic, "g")
        .await
        .expect("a group");
    first
        .join_consumer_group(&stream, &topic, &group)
        .await
        .expect("joined");
    let consumer = Consumer::group(named("g"));
    for partition in 0..2 {
        let polled = first
            .poll_messages(
                &stream,
                &topic,
                Some(partition),
                &consumer,
                &PollingStrategy::next(),
                10,
                false,
            )
            .await
            .expect("a poll");
        assert_eq!(polled.messages.len(), 1, "partition {partition}");
    }
    let owners = || async {
        let details = first
            .get_consumer_group(&stream, &topic, &group)
            .await
            .expect("a read");
        let members = details.expect("the group").members;
        let mut owners: Vec<Vec<u32>> = members
            .iter()
            .map(|member| member.partitions.clone())
            .collect();
        owners.sort();
        owners
    };
    second
        .join_consumer_group(&stream, &topic, &group)
        .await
        .expect("joined");
    // Both partitions are in work, so the newcomer has none, for as long as that lasts.
    for _ in 0..10 {
        assert_eq!(owners().await, [vec![], vec![0, 1]]);
        sleep(Duration::from_millis(100)).await;
    }
    for partition in 0..2 {
        first
            .store_consumer_offset(&consumer, &stream, &topic, Some(partition), 0)
            .await
            .expect("committed");
    }
    let start = Instant::now();
    loop {
        let owners = owners().await;
        if owners.iter().all(|partitions| partitions.len() == 1) {
            break;
        }
        // Well before the rebalance would be forced.
        assert!(start.elapsed() < Duration::from_secs(10), "{owners:?}");
        sleep(Duration::from_millis(100)).await;
    }
    first.shutdown().await.expect("the client ends");
    second.shutdown().await.expect("the client ends");
}
