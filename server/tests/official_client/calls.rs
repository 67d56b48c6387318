//! Every call of the official client's traits, one after the other, at a cluster of three and at a
//! single node: what it answers, and what it answers to a user who may not.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use iggy::prelude::{
    Client, ClusterClient, Consumer, ConsumerGroupClient, ConsumerOffsetClient, GlobalPermissions,
    Identifier, IggyClient, IggyDuration, IggyError, IggyExpiry, IggyMessage, MaxTopicSize,
    MessageClient, OptionsScope, PartitionClient, Partitioning, Permissions,
    PersonalAccessTokenClient, PollingStrategy, SegmentClient, SnapshotCompression, StreamClient,
    StreamPermissions, StreamUpdateOptions, SystemClient, SystemSnapshotType, TopicClient,
    TopicUpdateOptions, UserClient, UserStatus, UserUpdateOptions,
};

use crate::support::cluster::Cluster;
use crate::support::dev_cluster::DevCluster;
use crate::support::ports::HeldPorts;
use crate::support::sdk::{connect, connect_as, create_topic, named};
use crate::support::{PASSWORD, TestFolder, USER, turn};

const STREAM: &str = "calls";
const TOPIC: &str = "topic";

async fn root(address: SocketAddr) -> IggyClient {
    connect(address).await.expect("root connects")
}

/// The error code of a call that must fail.
fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    result.expect_err("the call is refused").as_code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_on_a_cluster() {
    let cluster = Cluster::start();
    every_call(cluster.address(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_on_a_single_node() {
    let folder = TestFolder::new();
    let _turn = turn();
    let port = HeldPorts::shaped(&[0, 100, 1_000]).ports[0];
    let mut dev = DevCluster::start(1, port, folder.path());
    dev.ready();
    every_call((Ipv4Addr::LOCALHOST, port).into()).await;
}

async fn every_call(address: SocketAddr) {
    let client = root(address).await;
    streams(&client).await;
    topics(&client).await;
    messages_and_offsets(&client).await;
    consumer_groups(&client, address).await;
    users(&client, address).await;
    permissions(&client, address).await;
    tokens(&client, address).await;
    system(&client).await;
    client.shutdown().await.expect("the client ends");
}

async fn streams(client: &IggyClient) {
    let created = client.create_stream(STREAM).await.expect("create stream");
    assert_eq!(created.name, STREAM);
    assert_eq!((created.topics_count, created.messages_count), (0, 0));
    assert_eq!(
        code(client.create_stream(STREAM).await),
        1012,
        "the name is taken"
    );
    let other = client.create_stream("other").await.expect("create stream");
    assert_ne!(other.id, created.id);
    client
        .update_stream(&named("other"), "renamed", &StreamUpdateOptions::default())
        .await
        .expect("update stream");
    let by_id = Identifier::numeric(other.id).expect("an id");
    let found = client.get_stream(&by_id).await.expect("get stream");
    assert_eq!(found.expect("it exists").name, "renamed");
    let names: Vec<String> = client
        .get_streams()
        .await
        .expect("get streams")
        .into_iter()
        .map(|stream| stream.name)
        .collect();
    assert_eq!(names, [STREAM, "renamed"]);
    client.delete_stream(&by_id).await.expect("delete stream");
    assert!(
        client
            .get_stream(&named("renamed"))
            .await
            .expect("get stream")
            .is_none()
    );
    assert_eq!(code(client.delete_stream(&by_id).await), 1009, "it is gone");
}

async fn topics(client: &IggyClient) {
    let stream = named(STREAM);
    create_topic(client, STREAM, TOPIC, 2)
        .await
        .expect("create topic");
    create_topic(client, STREAM, "second", 1)
        .await
        .expect("create topic");
    assert_eq!(
        code(create_topic(client, STREAM, TOPIC, 1).await),
        2013,
        "the name is taken"
    );
    let options = TopicUpdateOptions {
        message_expiry: Some(IggyExpiry::ExpireDuration(IggyDuration::new(
            Duration::from_secs(3600),
        ))),
        max_topic_size: Some(MaxTopicSize::Unlimited),
        ..TopicUpdateOptions::default()
    };
    client
        .update_topic(&stream, &named("second"), "third", &options)
        .await
        .expect("update topic");
    let third = client
        .get_topic(&stream, &named("third"))
        .await
        .expect("get topic");
    let third = third.expect("it exists");
    assert_eq!(third.max_topic_size, MaxTopicSize::Unlimited);
    assert_eq!(
        third.message_expiry,
        IggyExpiry::ExpireDuration(IggyDuration::new(Duration::from_secs(3600)))
    );
    client
        .create_partitions(&stream, &named("third"), 3)
        .await
        .expect("create partitions");
    client
        .delete_partitions(&stream, &named("third"), 1)
        .await
        .expect("delete partitions");
    let names: BTreeMap<String, u32> = client
        .get_topics(&stream)
        .await
        .expect("get topics")
        .into_iter()
        .map(|topic| (topic.name, topic.partitions_count))
        .collect();
    assert_eq!(
        names,
        BTreeMap::from([(TOPIC.to_owned(), 2), ("third".to_owned(), 3)])
    );
    client
        .delete_topic(&stream, &named("third"))
        .await
        .expect("delete topic");
    let gone = client
        .get_topic(&stream, &named("third"))
        .await
        .expect("get topic");
    assert!(gone.is_none());
}

async fn messages_and_offsets(client: &IggyClient) {
    let (stream, topic) = (named(STREAM), named(TOPIC));
    let mut messages: Vec<IggyMessage> = (0..10)
        .map(|number| IggyMessage::from(format!("message {number}")))
        .collect();
    client
        .send_messages(
            &stream,
            &topic,
            &Partitioning::partition_id(0),
            &mut messages,
        )
        .await
        .expect("send messages");
    let consumer = Consumer::new(named("reader"));
    let mut seen = Vec::new();
    for (strategy, count) in [
        (PollingStrategy::first(), 3),
        (PollingStrategy::offset(8), 10),
        (PollingStrategy::last(), 4),
        (PollingStrategy::next(), 2),
    ] {
        let polled = client
            .poll_messages(&stream, &topic, Some(0), &consumer, &strategy, count, false)
            .await
            .expect("poll messages");
        seen.push(
            polled
                .messages
                .iter()
                .map(|message| message.header.offset)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(
        seen,
        [vec![0, 1, 2], vec![8, 9], vec![6, 7, 8, 9], vec![0, 1]]
    );
    let polled = client
        .poll_messages(
            &stream,
            &topic,
            Some(0),
            &consumer,
            &PollingStrategy::next(),
            4,
            true,
        )
        .await
        .expect("poll messages");
    assert_eq!(polled.messages.len(), 4);
    let stored = || client.get_consumer_offset(&consumer, &stream, &topic, Some(0));
    assert_eq!(
        stored()
            .await
            .expect("get offset")
            .expect("stored")
            .stored_offset,
        3
    );
    client
        .store_consumer_offset(&consumer, &stream, &topic, Some(0), 7)
        .await
        .expect("store offset");
    let found = stored().await.expect("get offset").expect("stored");
    assert_eq!(
        (
            found.partition_id,
            found.current_offset,
            found.stored_offset
        ),
        (0, 9, 7)
    );
    client
        .delete_consumer_offset(&consumer, &stream, &topic, Some(0))
        .await
        .expect("delete offset");
    assert!(stored().await.expect("get offset").is_none());
    assert_eq!(
        code(client.flush_unsaved_buffer(&stream, &topic, 0, false).await),
        5
    );
    client
        .delete_segments(&stream, &topic, 0, 1)
        .await
        .expect("delete segments");
    client
        .purge_topic(&stream, &topic)
        .await
        .expect("purge topic");
    client.purge_stream(&stream).await.expect("purge stream");
}

async fn consumer_groups(client: &IggyClient, address: SocketAddr) {
    let (stream, topic) = (named(STREAM), named(TOPIC));
    let created = client
        .create_consumer_group(&stream, &topic, "group")
        .await
        .expect("create group");
    assert_eq!((created.name.as_str(), created.members_count), ("group", 0));
    let again = client.create_consumer_group(&stream, &topic, "group").await;
    assert_eq!(code(again), 5004, "the name is taken");
    let other = root(address).await;
    for member in [client, &other] {
        member
            .join_consumer_group(&stream, &topic, &named("group"))
            .await
            .expect("join group");
    }
    let group = client
        .get_consumer_group(&stream, &topic, &named("group"))
        .await
        .expect("get group")
        .expect("it exists");
    assert_eq!((group.members_count, group.partitions_count), (2, 2));
    other
        .leave_consumer_group(&stream, &topic, &named("group"))
        .await
        .expect("leave group");
    let groups = client
        .get_consumer_groups(&stream, &topic)
        .await
        .expect("get groups");
    let members: Vec<u32> = groups.iter().map(|group| group.members_count).collect();
    assert_eq!(members, [1]);
    client
        .leave_consumer_group(&stream, &topic, &named("group"))
        .await
        .expect("leave group");
    client
        .delete_consumer_group(&stream, &topic, &named("group"))
        .await
        .expect("delete group");
    let gone = client
        .get_consumer_group(&stream, &topic, &named("group"))
        .await;
    assert!(gone.expect("get group").is_none());
    other.shutdown().await.expect("the client ends");
}

async fn users(client: &IggyClient, address: SocketAddr) {
    let created = client
        .create_user("ann", "secret-1", UserStatus::Active, None)
        .await
        .expect("create user");
    assert_eq!(
        (created.username.as_str(), created.status),
        ("ann", UserStatus::Active)
    );
    let again = client
        .create_user("ann", "secret-1", UserStatus::Active, None)
        .await;
    assert_eq!(code(again), 46, "the name is taken");
    let ann = named("ann");
    client
        .change_password(&ann, "secret-1", "secret-2")
        .await
        .expect("change password");
    let wrong = client.change_password(&ann, "secret-1", "secret-3").await;
    assert_eq!(code(wrong), 42, "the current password is checked");
    let session = connect_as(address, "ann", "secret-2")
        .await
        .expect("ann logs in");
    session.logout_user().await.expect("logout");
    session.shutdown().await.expect("the client ends");
    assert!(
        connect_as(address, "ann", "secret-1").await.is_err(),
        "the old password is void"
    );
    client
        .update_user(
            &ann,
            Some("anna"),
            Some(UserStatus::Inactive),
            &UserUpdateOptions::default(),
        )
        .await
        .expect("update user");
    let anna = client
        .get_user(&named("anna"))
        .await
        .expect("get user")
        .expect("it exists");
    assert_eq!((anna.id, anna.status), (created.id, UserStatus::Inactive));
    assert!(
        connect_as(address, "anna", "secret-2").await.is_err(),
        "an inactive user does not get in"
    );
    let names: Vec<String> = client
        .get_users()
        .await
        .expect("get users")
        .into_iter()
        .map(|user| user.username)
        .collect();
    assert_eq!(names, [USER, "anna"]);
    client
        .delete_user(&named("anna"))
        .await
        .expect("delete user");
    assert!(
        client
            .get_user(&named("anna"))
            .await
            .expect("get user")
            .is_none()
    );
    assert!(
        client.delete_user(&named(USER)).await.is_err(),
        "root stays"
    );
}

/// What a user may do is what it was given, at the next call after it was given.
async fn permissions(client: &IggyClient, address: SocketAddr) {
    const DENIED: u32 = 41;
    client
        .create_user("bob", PASSWORD, UserStatus::Active, None)
        .await
        .expect("create user");
    let (stream, topic) = (named(STREAM), named(TOPIC));
    let bob = connect_as(address, "bob", PASSWORD)
        .await
        .expect("bob logs in");
    let mut message = [IggyMessage::from("hello")];
    let consumer = Consumer::default();
    let (first, partition) = (PollingStrategy::first(), Partitioning::partition_id(0));
    assert_eq!(code(bob.create_stream("bobs").await), DENIED);
    assert_eq!(code(bob.delete_stream(&stream).await), DENIED);
    assert_eq!(code(create_topic(&bob, STREAM, "bobs", 1).await), DENIED);
    assert_eq!(code(bob.delete_topic(&stream, &topic).await), DENIED);
    assert_eq!(code(bob.purge_topic(&stream, &topic).await), DENIED);
    assert_eq!(
        code(bob.create_partitions(&stream, &topic, 1).await),
        DENIED
    );
    assert_eq!(
        code(bob.create_consumer_group(&stream, &topic, "bobs").await),
        DENIED
    );
    assert_eq!(
        code(
            bob.create_user("eve", PASSWORD, UserStatus::Active, None)
                .await
        ),
        DENIED
    );
    assert_eq!(code(bob.get_users().await), DENIED);
    assert_eq!(code(bob.get_stats().await), DENIED);
    assert_eq!(code(bob.get_clients().await), DENIED);
    assert_eq!(
        code(
            bob.send_messages(&stream, &topic, &partition, &mut message)
                .await
        ),
        DENIED
    );
    let polled = bob
        .poll_messages(&stream, &topic, Some(0), &consumer, &first, 1, false)
        .await;
    assert_eq!(code(polled), DENIED);

    let id = client
        .get_stream(&stream)
        .await
        .expect("get stream")
        .expect("it exists")
        .id;
    let given = Permissions {
        global: GlobalPermissions {
            read_servers: true,
            ..GlobalPermissions::default()
        },
        streams: Some(BTreeMap::from([(
            id as usize,
            StreamPermissions {
                send_messages: true,
                poll_messages: true,
                ..StreamPermissions::default()
            },
        )])),
    };
    client
        .update_permissions(&named("bob"), Some(given.clone()))
        .await
        .expect("update permissions");
    let stored = client
        .get_user(&named("bob"))
        .await
        .expect("get user")
        .expect("it exists");
    assert_eq!(stored.permissions, Some(given));
    bob.send_messages(&stream, &topic, &partition, &mut message)
        .await
        .expect("bob may send now");
    let polled = bob
        .poll_messages(&stream, &topic, Some(0), &consumer, &first, 1, false)
        .await
        .expect("bob may poll now");
    assert_eq!(polled.messages.len(), 1);
    bob.get_stats()
        .await
        .expect("bob may look at the server now");
    assert_eq!(code(bob.create_stream("bobs").await), DENIED);
    bob.shutdown().await.expect("the client ends");
    client
        .delete_user(&named("bob"))
        .await
        .expect("delete user");
}

async fn tokens(client: &IggyClient, address: SocketAddr) {
    let token = client
        .create_personal_access_token("ci", IggyExpiry::NeverExpire)
        .await
        .expect("create token");
    let again = client
        .create_personal_access_token("ci", IggyExpiry::NeverExpire)
        .await;
    assert_eq!(code(again), 51, "the name is taken");
    let names: Vec<String> = client
        .get_personal_access_tokens()
        .await
        .expect("get tokens")
        .into_iter()
        .map(|token| token.name)
        .collect();
    assert_eq!(names, ["ci"]);
    let other = root(address).await;
    other.logout_user().await.expect("logout");
    let identity = other
        .login_with_personal_access_token(&token.token)
        .await
        .expect("the token logs in");
    assert_eq!(identity.user_id, 0, "as root, who made it");
    other.get_streams().await.expect("and works");
    other.shutdown().await.expect("the client ends");
    client
        .delete_personal_access_token("ci")
        .await
        .expect("delete token");
    assert!(
        client
            .get_personal_access_tokens()
            .await
            .expect("get tokens")
            .is_empty()
    );
}

async fn system(client: &IggyClient) {
    client.ping().await.expect("ping");
    let me = client.get_me().await.expect("get me");
    assert_eq!((me.user_id, me.transport.as_str()), (Some(0), "TCP"));
    let found = client.get_client(me.client_id).await.expect("get client");
    assert_eq!(found.expect("it is connected").address, me.address);
    let clients = client.get_clients().await.expect("get clients");
    assert!(
        clients.iter().any(|other| other.client_id == me.client_id),
        "{clients:?}"
    );
    let stats = client.get_stats().await.expect("get stats");
    assert_eq!(
        (
            stats.streams_count,
            stats.topics_count,
            stats.partitions_count
        ),
        (1, 1, 2)
    );
    assert!(
        stats.process_id > 0 && stats.memory_usage.as_bytes_u64() > 0,
        "{stats:?}"
    );
    assert!(stats.total_memory.as_bytes_u64() >= stats.available_memory.as_bytes_u64());
    assert!(stats.total_disk_space.as_bytes_u64() >= stats.free_disk_space.as_bytes_u64());
    assert!(stats.total_disk_space.as_bytes_u64() > 0 && !stats.os_name.is_empty());
    let archive = client
        .snapshot(SnapshotCompression::Deflated, vec![SystemSnapshotType::All])
        .await
        .expect("snapshot");
    assert!(archive.0.starts_with(b"PK"), "a ZIP archive");
    let mixed = vec![SystemSnapshotType::All, SystemSnapshotType::Test];
    let refused = client.snapshot(SnapshotCompression::Stored, mixed).await;
    assert_eq!(code(refused), 3);
    let options = client
        .describe_options(OptionsScope::Topic)
        .await
        .expect("describe options");
    let keys: Vec<&str> = options.iter().map(|option| option.key.as_str()).collect();
    assert!(
        keys.contains(&"durability") && keys.contains(&"segment_size"),
        "{keys:?}"
    );
    let cluster = client
        .get_cluster_metadata()
        .await
        .expect("get cluster metadata");
    assert!(!cluster.nodes.is_empty());
}
