//! The official client's HTTP transport runs its calls, at a node and at a follower of three.

use std::sync::Arc;
use std::time::Duration;

use iggy::prelude::{
    Client, ClusterClient, Consumer, ConsumerGroupClient, ConsumerOffsetClient, HttpClient,
    HttpClientConfig, IggyError, IggyMessage, MessageClient, OptionsScope, PartitionClient,
    Partitioning, PersonalAccessTokenClient, PollingStrategy, SegmentClient, SnapshotCompression,
    StreamClient, StreamUpdateOptions, SystemClient, SystemSnapshotType, TopicClient,
    TopicCreateOptions, TopicUpdateOptions, UserClient, UserStatus, UserUpdateOptions,
};

use super::support::sdk::named;
use super::support::web::WebCluster;
use super::support::{PASSWORD, USER};

fn client(cluster: &WebCluster, node: usize) -> HttpClient {
    let config = HttpClientConfig {
        api_url: format!("http://{}", cluster.address(node)),
        retries: 0,
        ..HttpClientConfig::default()
    };
    HttpClient::create(Arc::new(config)).expect("a client")
}

/// Follower reads may lag, so a look is repeated until it shows what it should.
async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<Option<T>, IggyError>>,
{
    for _ in 0..100 {
        if let Ok(Some(found)) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} does not show up");
}

async fn every_call(cluster: &WebCluster, node: usize) {
    let client = client(cluster, node);
    client.connect().await.expect("connect");
    client.ping().await.expect("ping");
    assert!(client.get_streams().await.is_err(), "before a login");
    let wrong = client.login_user(USER, "wrong-password").await;
    assert!(wrong.is_err());
    let identity = client.login_user(USER, PASSWORD).await.expect("login");
    assert_eq!(identity.user_id, 0);
    streams_and_topics(&client).await;
    messages(&client).await;
    groups(&client).await;
    users(&client).await;
    tokens(cluster, node, &client).await;
    system(&client).await;
    client
        .purge_topic(&named("s"), &named("t"))
        .await
        .expect("purge topic");
    client
        .purge_stream(&named("s"))
        .await
        .expect("purge stream");
    client
        .delete_topic(&named("s"), &named("t"))
        .await
        .expect("delete topic");
    client
        .delete_stream(&named("s"))
        .await
        .expect("delete stream");
    client.logout_user().await.expect("logout");
}

async fn streams_and_topics(client: &HttpClient) {
    let created = client.create_stream("first").await.expect("create stream");
    assert_eq!(created.name, "first");
    client
        .update_stream(&named("first"), "s", &StreamUpdateOptions::default())
        .await
        .expect("update stream");
    eventually("the stream", || async {
        client.get_stream(&named("s")).await
    })
    .await;
    let streams = client.get_streams().await.expect("get streams");
    assert!(streams.iter().any(|stream| stream.name == "s"));
    let none = client.get_stream(&named("nothing")).await;
    assert!(none.expect("get stream").is_none());
    let options = TopicCreateOptions {
        partitions_count: Some(2),
        ..TopicCreateOptions::default()
    };
    let topic = client
        .create_topic(&named("s"), "t", &options)
        .await
        .expect("create topic");
    assert_eq!(topic.partitions_count, 2);
    client
        .update_topic(
            &named("s"),
            &named("t"),
            "t",
            &TopicUpdateOptions::default(),
        )
        .await
        .expect("update topic");
    client
        .create_partitions(&named("s"), &named("t"), 2)
        .await
        .expect("create partitions");
    client
        .delete_partitions(&named("s"), &named("t"), 1)
        .await
        .expect("delete partitions");
    eventually("three partitions", || async {
        let topic = client.get_topic(&named("s"), &named("t")).await?;
        Ok(topic.filter(|topic| topic.partitions_count == 3))
    })
    .await;
    let topics = client.get_topics(&named("s")).await.expect("get topics");
    assert_eq!(topics.len(), 1);
    client
        .delete_segments(&named("s"), &named("t"), 0, 1)
        .await
        .expect("delete segments");
}

async fn messages(client: &HttpClient) {
    let (stream, topic) = (named("s"), named("t"));
    let mut batch: Vec<IggyMessage> = (0..10)
        .map(|number| IggyMessage::from(format!("message {number}")))
        .collect();
    // The partition may have been made a moment ago.
    let mut sent = None;
    for _ in 0..100 {
        let partition = Partitioning::partition_id(0);
        match client
            .send_messages(&stream, &topic, &partition, &mut batch)
            .await
        {
            Ok(response) => {
                sent = Some(response);
                break;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    sent.expect("send messages");
    let consumer = Consumer::new(named("reader"));
    let polled = eventually("ten messages", || async {
        let polled = client
            .poll_messages(
                &stream,
                &topic,
                Some(0),
                &consumer,
                &PollingStrategy::offset(0),
                100,
                false,
            )
            .await?;
        Ok((polled.messages.len() == 10).then_some(polled))
    })
    .await;
    assert_eq!(polled.current_offset, 9);
    for (number, message) in polled.messages.iter().enumerate() {
        assert_eq!(message.payload, format!("message {number}").as_bytes());
        assert_eq!(message.header.offset, number as u64);
        assert_ne!(message.header.id, 0);
    }
    client
        .store_consumer_offset(&consumer, &stream, &topic, Some(0), 4)
        .await
        .expect("store offset");
    let offset = eventually("the offset", || async {
        client
            .get_consumer_offset(&consumer, &stream, &topic, Some(0))
            .await
    })
    .await;
    assert_eq!((offset.stored_offset, offset.current_offset), (4, 9));
    client
        .delete_consumer_offset(&consumer, &stream, &topic, Some(0))
        .await
        .expect("delete offset");
    let flushed = client.flush_unsaved_buffer(&stream, &topic, 0, false).await;
    assert!(flushed.is_err(), "there is no route for it");
}

async fn groups(client: &HttpClient) {
    let (stream, topic) = (named("s"), named("t"));
    client
        .create_consumer_group(&stream, &topic, "g")
        .await
        .expect("create group");
    let group = eventually("the group", || async {
        client
            .get_consumer_group(&stream, &topic, &named("g"))
            .await
    })
    .await;
    assert_eq!((group.members_count, group.partitions_count), (0, 3));
    let groups = client
        .get_consumer_groups(&stream, &topic)
        .await
        .expect("get groups");
    assert_eq!(groups.len(), 1);
    client
        .delete_consumer_group(&stream, &topic, &named("g"))
        .await
        .expect("delete group");
}

async fn users(client: &HttpClient) {
    client
        .create_user("ann", "secret-1", UserStatus::Active, None)
        .await
        .expect("create user");
    let ann = named("ann");
    client
        .change_password(&ann, "secret-1", "secret-2")
        .await
        .expect("change password");
    client
        .update_permissions(&ann, None)
        .await
        .expect("update permissions");
    client
        .update_user(
            &ann,
            Some("anna"),
            Some(UserStatus::Inactive),
            &UserUpdateOptions::default(),
        )
        .await
        .expect("update user");
    let anna = eventually("the user", || async {
        client.get_user(&named("anna")).await
    })
    .await;
    assert_eq!(anna.status, UserStatus::Inactive);
    assert_eq!(client.get_users().await.expect("get users").len(), 2);
    client
        .delete_user(&named("anna"))
        .await
        .expect("delete user");
}

async fn tokens(cluster: &WebCluster, node: usize, root: &HttpClient) {
    let raw = root
        .create_personal_access_token("robot", iggy::prelude::IggyExpiry::NeverExpire)
        .await
        .expect("create token");
    eventually("the token", || async {
        let tokens = root.get_personal_access_tokens().await?;
        Ok((tokens.len() == 1).then_some(()))
    })
    .await;
    let robot = client(cluster, node);
    robot
        .login_with_personal_access_token(&raw.token)
        .await
        .expect("login by token");
    robot.get_stats().await.expect("the robot is root");
    root.delete_personal_access_token("robot")
        .await
        .expect("delete token");
}

async fn system(client: &HttpClient) {
    let stats = client.get_stats().await.expect("get stats");
    assert!(stats.streams_count >= 1 && stats.process_id > 0);
    let cluster = client
        .get_cluster_metadata()
        .await
        .expect("cluster metadata");
    assert!(!cluster.nodes.is_empty());
    client.get_clients().await.expect("get clients");
    let options = client.describe_options(OptionsScope::Topic).await;
    assert!(!options.expect("options").is_empty());
    let archive = client
        .snapshot(SnapshotCompression::Stored, vec![SystemSnapshotType::Test])
        .await
        .expect("snapshot");
    assert!(archive.0.starts_with(b"PK"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_on_one_node() {
    let cluster = WebCluster::start(1, "");
    every_call(&cluster, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_on_every_node_of_three() {
    let cluster = WebCluster::start(3, "");
    for node in 0..cluster.len() {
        every_call(&cluster, node).await;
    }
}
