//! Clients that send nonsense: every command with a body that was valid once and then was
//! mutilated, on every node. The nodes stay up, and other clients are served as before.

use biplane_wire::request::{
    ChangePassword, CreateConsumerGroup, CreatePersonalAccessToken, CreateStream, CreateTopic,
    DeletePersonalAccessToken, DeleteSegments, DescribeOptions, GetClient, GetConsumerOffset,
    OptionScope, PartitionsRequest, PollMessages, StoreConsumerOffset, StreamRequest, TopicRequest,
    UserRequest,
};
use biplane_wire::{
    AckLevel, BatchBuilder, ClientCode, Codec as _, Consumer, ConsumerKind, Identifier, Message,
    Name, Operation, OptionalPartition, Options, Partitioning, PollingKind, PollingStrategy,
    SendMessages, SendMetadata, Text8,
};
use iggy::prelude::{Client, IggyMessage, MessageClient, StreamClient};

use crate::support::cluster::{Cluster, NODES};
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::{connect, create_topic, named, poll_all};
use crate::support::{Random, seed};

/// Requests between two checks that the connection still answers.
const BURST: u64 = 40;
/// Requests in all, unless `BIPLANE_ABUSE_REQUESTS` says otherwise.
const REQUESTS: u64 = 6_000;

const STREAM: &str = "abused";
const TOPIC: &str = "topic";

/// A request as a client would send it.
struct Valid {
    operation: Operation,
    code: u32,
    body: Vec<u8>,
}

fn requests() -> u64 {
    match std::env::var("BIPLANE_ABUSE_REQUESTS") {
        Ok(text) => text.parse().expect("BIPLANE_ABUSE_REQUESTS is a number"),
        Err(_) => REQUESTS,
    }
}

/// One or more valid bodies for every command.
fn corpus() -> Vec<Valid> {
    let name = |text: &'static str| Name::new(text).expect("a legal name");
    let stream = Identifier::named(STREAM).expect("a legal name");
    let topic = Identifier::named(TOPIC).expect("a legal name");
    let victim = Identifier::named("victim").expect("a legal name");
    let both = TopicRequest { stream, topic }.encode();
    let with_group = [
        both.as_slice(),
        &Identifier::named("group").expect("a name").encode(),
    ];
    let with_group = with_group.concat();
    let consumer = Consumer {
        kind: ConsumerKind::Consumer,
        id: Identifier::Numeric(7),
    };
    let member = Consumer {
        kind: ConsumerKind::Group,
        id: Identifier::named("group").expect("a legal name"),
    };
    let poll = |consumer, kind| {
        PollMessages {
            consumer,
            stream,
            topic,
            partition: OptionalPartition(Some(0)),
            strategy: PollingStrategy { kind, value: 1 },
            count: 10,
            auto_commit: true,
        }
        .encode()
    };
    let offset = |consumer| {
        let partition = OptionalPartition(Some(0));
        let get = GetConsumerOffset {
            consumer,
            stream,
            topic,
            partition,
        }
        .encode();
        let ack = AckLevel::Quorum;
        let store = StoreConsumerOffset {
            consumer,
            stream,
            topic,
            partition,
            offset: 1,
            ack,
        };
        (get, store.encode())
    };
    let mut builder = BatchBuilder::new();
    for _ in 0..3 {
        builder.push(0, 1, b"payload", b"").expect("a small batch");
    }
    let batch = builder.finish().expect("a small batch");
    let send = |partitioning| {
        let metadata = SendMetadata {
            stream,
            topic,
            partitioning,
            messages_count: 3,
        };
        SendMessages::encode(&metadata, &batch)
    };
    let partitions = PartitionsRequest {
        stream,
        topic,
        count: 1,
    }
    .encode();
    let (get, store) = offset(consumer);
    let (member_get, member_store) = offset(member);
    let user = UserRequest { user: victim }.encode();
    let flagged = |mut body: Vec<u8>| {
        body.extend_from_slice(&[1, 1, 0, 0, 0, 0]);
        body
    };
    let mut list = vec![
        (ClientCode::Ping, vec![]),
        (ClientCode::GetStats, vec![]),
        (ClientCode::GetSnapshot, vec![1, 1, 100]),
        (ClientCode::GetClusterMetadata, vec![]),
        (
            ClientCode::DescribeOptions,
            DescribeOptions {
                scope: OptionScope::Topic,
            }
            .encode(),
        ),
        (ClientCode::AttachConsumerSession, vec![1; 24]),
        (ClientCode::GetMe, vec![]),
        (ClientCode::GetClient, GetClient { client_id: 1 }.encode()),
        (ClientCode::GetClients, vec![]),
        (ClientCode::GetUser, user.clone()),
        (ClientCode::GetUsers, vec![]),
        (
            ClientCode::CreateUser,
            [&[6][..], b"victim", &[6], b"secret", &[1, 0]].concat(),
        ),
        (ClientCode::DeleteUser, user.clone()),
        (ClientCode::UpdateUser, flagged(user.clone())),
        (ClientCode::UpdatePermissions, flagged(user)),
        (
            ClientCode::ChangePassword,
            ChangePassword {
                user: victim,
                current: Text8::new("secret").expect("short"),
                new: Text8::new("secret2").expect("short"),
            }
            .encode(),
        ),
        (ClientCode::GetPersonalAccessTokens, vec![]),
        (
            ClientCode::CreatePersonalAccessToken,
            CreatePersonalAccessToken {
                name: name("token"),
                expiry: 0,
            }
            .encode(),
        ),
        (
            ClientCode::DeletePersonalAccessToken,
            DeletePersonalAccessToken {
                name: name("token"),
            }
            .encode(),
        ),
        (ClientCode::SendMessages, send(Partitioning::PartitionId(0))),
        (ClientCode::SendMessages, send(Partitioning::Balanced)),
        (
            ClientCode::SendMessages,
            send(Partitioning::MessagesKey(b"key")),
        ),
        (
            ClientCode::FlushUnsavedBuffer,
            [both.as_slice(), &[0; 5]].concat(),
        ),
        (ClientCode::GetConsumerOffset, get.clone()),
        (ClientCode::GetConsumerOffset, member_get),
        (ClientCode::GetConsumerOffsetRouting, get),
        (ClientCode::StoreConsumerOffset, store.clone()),
        (ClientCode::StoreConsumerOffset, member_store),
        (ClientCode::DeleteConsumerOffset, store),
        (ClientCode::GetStream, StreamRequest { stream }.encode()),
        (ClientCode::GetStreams, vec![]),
        (
            ClientCode::CreateStream,
            CreateStream {
                name: name("another"),
                options: Options::EMPTY,
            }
            .encode(),
        ),
        (
            ClientCode::DeleteStream,
            StreamRequest {
                stream: Identifier::named("another").expect("a name"),
            }
            .encode(),
        ),
        (
            ClientCode::UpdateStream,
            [&StreamRequest { stream }.encode()[..], &[6], b"abused"].concat(),
        ),
        (ClientCode::PurgeStream, StreamRequest { stream }.encode()),
        (ClientCode::GetTopic, both.clone()),
        (ClientCode::GetTopics, StreamRequest { stream }.encode()),
        (
            ClientCode::CreateTopic,
            CreateTopic {
                stream,
                partitions: 1,
                name: name("more"),
                options: Options::EMPTY,
            }
            .encode(),
        ),
        (
            ClientCode::DeleteTopic,
            TopicRequest {
                stream,
                topic: Identifier::named("more").expect("a name"),
            }
            .encode(),
        ),
        (
            ClientCode::UpdateTopic,
            [both.as_slice(), &[5], b"topic"].concat(),
        ),
        (ClientCode::PurgeTopic, both.clone()),
        (ClientCode::CreatePartitions, partitions.clone()),
        (ClientCode::DeletePartitions, partitions),
        (
            ClientCode::DeleteSegments,
            DeleteSegments {
                stream,
                topic,
                partition: 0,
                count: 1,
            }
            .encode(),
        ),
        (ClientCode::GetConsumerGroups, both),
        (
            ClientCode::CreateConsumerGroup,
            CreateConsumerGroup {
                stream,
                topic,
                name: name("group"),
            }
            .encode(),
        ),
    ];
    for code in [
        ClientCode::GetConsumerGroup,
        ClientCode::DeleteConsumerGroup,
        ClientCode::JoinConsumerGroup,
        ClientCode::LeaveConsumerGroup,
        ClientCode::SyncConsumerGroup,
    ] {
        list.push((code, with_group.clone()));
    }
    for code in [
        ClientCode::PollMessages,
        ClientCode::PollMessagesOnPrimary,
        ClientCode::GetPollRouting,
    ] {
        for kind in [PollingKind::Offset, PollingKind::First, PollingKind::Next] {
            list.push((code, poll(consumer, kind)));
            list.push((code, poll(member, kind)));
        }
    }
    list.into_iter()
        .map(|(code, body)| {
            let operation = code.operation();
            let code = match operation {
                Operation::NonReplicated => code.as_u32(),
                _ => 0,
            };
            Valid {
                operation,
                code,
                body,
            }
        })
        .collect()
}

/// What is sent in place of a valid request.
fn mutilate(valid: &Valid, random: &mut Random) -> (Operation, u32, Vec<u8>) {
    let mut body = valid.body.clone();
    let (mut operation, mut code) = (valid.operation, valid.code);
    for _ in 0..random.between(0, 3) {
        let at = random.between(0, body.len() as u64) as usize;
        match random.between(0, 6) {
            0 => body.truncate(at),
            1 if at < body.len() => body[at] ^= 1 << random.between(0, 7),
            2 if at < body.len() => {
                body[at] = [0, 1, 0x7f, 0x80, 0xff][random.between(0, 4) as usize]
            }
            3 => {
                let more = random.between(1, 64) as usize;
                let more = random.bytes(more);
                body.splice(at..at, more);
            }
            4 if at + 4 <= body.len() => {
                let value = [0, 1, u32::MAX, 1 << 31, 1000][random.between(0, 4) as usize];
                body[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            5 if random.one_in(4) => {
                let length = random.between(0, 300) as usize;
                body = random.bytes(length);
            }
            6 if random.one_in(4) => {
                let all = Operation::ALL;
                operation = all[random.between(0, all.len() as u64 - 1) as usize];
                code = random.between(0, 700) as u32;
            }
            _ => {}
        }
    }
    // Leaving is tried elsewhere; here it would only cost logins.
    if matches!(operation, Operation::Logout | Operation::Register) {
        operation = Operation::NonReplicated;
    }
    (operation, code, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutilated_requests_of_every_command_hurt_nobody() {
    let seed = seed("mutilated_requests_of_every_command_hurt_nobody");
    let mut random = Random::new(seed);
    let mut cluster = Cluster::start();
    let client = connect(cluster.address(0))
        .await
        .expect("the client connects");
    for stream in [STREAM, "quiet"] {
        client.create_stream(stream).await.expect("create stream");
        create_topic(&client, stream, TOPIC, 2)
            .await
            .expect("create topic");
    }
    let corpus = corpus();
    let (mut sent, mut answered, mut logins) = (0, 0, 0);
    let mut attackers: Vec<Option<RawClient>> = (0..NODES).map(|_| None).collect();
    while sent < requests() {
        let node = random.between(0, NODES as u64 - 1) as usize;
        let mut attacker = attackers[node].take().unwrap_or_else(|| {
            logins += 1;
            cluster.raw(node)
        });
        let mut alive = true;
        for _ in 0..BURST {
            let valid = &corpus[random.between(0, corpus.len() as u64 - 1) as usize];
            let (operation, code, body) = mutilate(valid, &mut random);
            sent += 1;
            if attacker.post(operation, code, &body).is_err() {
                alive = false;
                break;
            }
        }
        match attacker.drain() {
            Ok(answers) => answered += answers,
            // To be shown the door is an answer, too; to be left without one is not.
            Err(RawError::Evicted(_)) => alive = false,
            Err(RawError::Io(error)) if error.kind() != std::io::ErrorKind::WouldBlock => {
                alive = false;
            }
            Err(other) => panic!("node {node} after {sent} requests: {other}"),
        }
        cluster.check_alive();
        if alive {
            attackers[node] = Some(attacker);
        }
    }
    println!("{sent} requests, {answered} answers, {logins} logins");
    assert!(answered as u64 > sent / 2, "most requests are answered");
    let mut messages: Vec<IggyMessage> = (0..100)
        .map(|number| IggyMessage::from(format!("message {number}")))
        .collect();
    let partitioning = iggy::prelude::Partitioning::partition_id(0);
    client
        .send_messages(&named("quiet"), &named(TOPIC), &partitioning, &mut messages)
        .await
        .expect("others are served");
    assert_eq!(poll_all(&client, "quiet", TOPIC, 0).await.len(), 100);
    client.shutdown().await.expect("the client ends");
    cluster.primary();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_no_requests_hurt_nobody() {
    let seed = seed("frames_that_are_no_requests_hurt_nobody");
    let mut random = Random::new(seed);
    let mut cluster = Cluster::start();
    for round in 0..120 {
        let node = round % NODES;
        let mut raw = RawClient::connect(cluster.address(node)).expect("a connection");
        let mut header = biplane_wire::RequestHeader::new(biplane_wire::Command::Request);
        header.set_operation(Operation::NonReplicated);
        let mut frame = Message::from_parts(header, &[]).to_vec();
        let length = random.between(1, 40);
        for _ in 0..length {
            let at = random.between(0, frame.len() as u64 - 1) as usize;
            frame[at] = random.next() as u8;
        }
        if random.one_in(3) {
            let length = random.between(0, 2_000) as usize;
            frame = random.bytes(length);
        }
        // The node may close at once; then writing fails, which is fine.
        let _ = raw.post_frame(&frame);
        let _ = raw.post_frame(&frame);
        drop(raw);
        cluster.check_alive();
    }
    for node in 0..NODES {
        cluster.raw(node).ping().expect("a ping is answered");
    }
}
