//! WebSocket: the official client's own, plain and with TLS, against one node and three; and what
//! happens to whoever frames messages differently.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use async_tungstenite::tungstenite::{Bytes, Message, WebSocket, client};
use biplane_wire::{ClientId, Command, Operation, RequestHeader};
use iggy::prelude::{
    AutoLogin, Client, ClusterClient, Credentials, Identifier, IggyClient, IggyClientBuilder,
    IggyDuration, IggyMessage, MessageClient, NonZeroIggyDuration, Partitioning, StreamClient,
    SystemClient,
};
use tokio::time::timeout;

use crate::support::cluster::Cluster;
use crate::support::dev_cluster::DevCluster;
use crate::support::messages::Plan;
use crate::support::ports::HeldPorts;
use crate::support::sdk::{create_topic, named, poll_all};
use crate::support::{PASSWORD, TestFolder, USER, turn};

const LIMIT: Duration = Duration::from_secs(15);

async fn connect(address: SocketAddr, tls: bool) -> IggyClient {
    let client = IggyClientBuilder::new()
        .with_websocket()
        .with_server_address(address.to_string())
        .with_auto_sign_in(AutoLogin::Enabled(Credentials::UsernamePassword(
            USER.to_owned(),
            PASSWORD.into(),
        )))
        .with_reconnection_interval(
            NonZeroIggyDuration::new(Duration::from_millis(200)).expect("not zero"),
        )
        .with_reestablish_after(IggyDuration::new(Duration::from_millis(200)))
        .with_tls_enabled(tls)
        .with_tls_domain("localhost".to_owned())
        .with_tls_validate_certificate(false)
        .build()
        .expect("a client");
    timeout(LIMIT, client.connect())
        .await
        .expect("a connection in time")
        .expect("a connection");
    client
}

/// Sends and polls planned messages of all sizes, some of them larger than a WebSocket frame of
/// the listener.
async fn work(client: &IggyClient, stream: &str) {
    client.create_stream(stream).await.expect("a stream");
    create_topic(client, stream, "topic", 1)
        .await
        .expect("a topic");
    let plan = Plan {
        seed: 11,
        payload_max: 100_000,
    };
    let (stream, topic) = (named(stream), named("topic"));
    for batch in 0..10 {
        let mut messages = plan.batch(batch * 10 + 1, 10);
        let partition = Partitioning::partition_id(0);
        client
            .send_messages(&stream, &topic, &partition, &mut messages)
            .await
            .expect("a batch");
    }
}

async fn check(client: &IggyClient, stream: &str) {
    let plan = Plan {
        seed: 11,
        payload_max: 100_000,
    };
    let polled = poll_all(client, stream, "topic", 0).await;
    assert_eq!(polled.len(), 100);
    for (number, message) in (1..).zip(&polled) {
        plan.message(number).check(message).expect("as it was sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_serves_websocket_clients_and_leads_them_to_its_primary() {
    let mut cluster = Cluster::start_with("[websocket]\nmax_frame_size = \"2 MiB\"\n");
    let primary = cluster.primary();
    let backup = (primary + 1) % 3;
    let client = connect(cluster.websocket(backup), false).await;
    // Metadata writes are refused by a backup, so the client has followed the roster.
    work(&client, "ws").await;
    check(&client, "ws").await;
    let me = client.get_me().await.expect("details");
    assert_eq!(me.transport.to_lowercase(), "websocket");
    let nodes = client.get_cluster_metadata().await.expect("metadata").nodes;
    let told: Vec<u16> = nodes.iter().map(|node| node.endpoints.websocket).collect();
    let bound: Vec<u16> = (0..3).map(|node| cluster.websocket(node).port()).collect();
    assert_eq!(told, bound);

    // The primary dies. This client keeps dialling it (only the one over TCP walks the roster), so
    // the application takes another node, and is led to the next primary.
    let _ = timeout(Duration::from_secs(2), client.shutdown()).await;
    cluster.kill9(primary);
    let next = cluster.primary();
    let other = (0..3).find(|node| *node != primary && *node != next);
    let client = connect(cluster.websocket(other.expect("three nodes")), false).await;
    client.create_stream("after").await.expect("a stream");
    check(&client, "ws").await;
    client.shutdown().await.expect("the client ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_and_three_serve_websocket_clients_over_tls() {
    let _turn = turn();
    for (nodes, distances) in [
        (1, &[0, 100, 1_000][..]),
        (3, &[0, 1, 2, 100, 101, 102, 1_000, 1_001, 1_002]),
    ] {
        let folder = TestFolder::new();
        let port = HeldPorts::shaped(distances).ports[0];
        let mut dev = DevCluster::start_tls(nodes, port, folder.path());
        dev.ready();
        for node in 0..u16::from(nodes) {
            let address = (Ipv4Addr::LOCALHOST, port + 100 + node).into();
            let client = connect(address, true).await;
            let stream = format!("tls-{node}");
            work(&client, &stream).await;
            check(&client, &stream).await;
            client.shutdown().await.expect("the client ends");
        }
        // Whoever speaks no TLS gets nothing.
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port + 100)).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        assert!(client("ws://localhost/", stream).is_err());
    }
}

/// A ping of the protocol as bytes.
fn ping(number: u64) -> Vec<u8> {
    let mut header = RequestHeader::new(Command::Request);
    header.set_client(ClientId(7));
    header.set_operation(Operation::NonReplicated);
    header.set_code(1);
    header.set_request(biplane_wire::RequestNumber(number));
    biplane_wire::Message::from_parts(header, &[]).to_vec()
}

fn open(address: SocketAddr, path: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    client(format!("ws://{address}{path}"), stream)
        .expect("an upgrade")
        .0
}

#[test]
fn one_frame_is_one_binary_message_and_nothing_else_is() {
    let cluster = Cluster::start_with("[websocket]\nmax_message_size = \"1 MiB\"\n");
    let address = cluster.websocket(0);

    // Any path; a ping of WebSocket between two of the protocol.
    let mut socket = open(address, "/any/path?at=all");
    socket.send(Message::Binary(ping(1).into())).expect("sent");
    assert_eq!(reply_to(&mut socket), 1);
    socket
        .send(Message::Ping(Bytes::from_static(b"x")))
        .expect("sent");
    let answer = socket.read().expect("an answer");
    assert_eq!(answer, Message::Pong(Bytes::from_static(b"x")));
    // In pieces that are split anywhere it is still one message.
    let bytes = Bytes::from(ping(2));
    for (part, last) in [(0..1, false), (1..200, false), (200..256, true)] {
        use async_tungstenite::tungstenite::protocol::frame::Frame;
        use async_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
        let kind = if part.start == 0 {
            Data::Binary
        } else {
            Data::Continue
        };
        let frame = Frame::message(bytes.slice(part), OpCode::Data(kind), last);
        socket.send(Message::Frame(frame)).expect("sent");
    }
    assert_eq!(reply_to(&mut socket), 2);

    let two = [ping(1), ping(2)].concat();
    let mut long = ping(1);
    long.push(0);
    for (what, message) in [
        ("two frames", Message::Binary(two.into())),
        ("a byte too many", Message::Binary(long.into())),
        (
            "a byte missing",
            Message::Binary(Bytes::from(ping(1)).slice(..255)),
        ),
        ("nothing", Message::Binary(Bytes::new())),
        ("text", Message::Text("ping".into())),
        ("too large", Message::Binary(vec![0; 2 << 20].into())),
    ] {
        let mut socket = open(address, "/");
        let _ = socket.send(message);
        let ended = matches!(socket.read(), Err(_) | Ok(Message::Close(_)));
        assert!(ended, "{what} does not end the connection");
    }

    // No upgrade: an answer of HTTP at most, and the end.
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.write_all(&ping(1)).expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
        "{answer:?}"
    );
    let mut socket = open(address, "/");
    socket.send(Message::Binary(ping(3).into())).expect("sent");
    assert_eq!(reply_to(&mut socket), 3, "the listener still serves");
}

/// Reads one reply and returns its request number.
fn reply_to(socket: &mut WebSocket<TcpStream>) -> u64 {
    let Message::Binary(bytes) = socket.read().expect("a reply") else {
        panic!("not a binary message");
    };
    let size = u32::from_le_bytes(bytes[48..52].try_into().expect("four bytes"));
    assert_eq!(size as usize, bytes.len());
    assert_eq!(bytes[60], Command::Reply as u8);
    u64::from_le_bytes(bytes[200..208].try_into().expect("eight bytes"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_reply_comes_in_frames_that_the_client_accepts() {
    let cluster = Cluster::start();
    let client = connect(cluster.websocket(0), false).await;
    client.create_stream("large").await.expect("a stream");
    create_topic(&client, "large", "topic", 1)
        .await
        .expect("a topic");
    let (stream, topic) = (named("large"), named("topic"));
    // Three of these are one poll reply beyond the client's frame limit of 16 MiB.
    for number in 1..=3u8 {
        let payload = vec![number; 7 << 20];
        let message = IggyMessage::builder()
            .payload(payload.into())
            .build()
            .expect("a message");
        let partition = Partitioning::partition_id(0);
        client
            .send_messages(&stream, &topic, &partition, &mut [message])
            .await
            .expect("a large message");
    }
    let polled = poll_all(&client, "large", "topic", 0).await;
    let sizes: Vec<usize> = polled.iter().map(|message| message.payload.len()).collect();
    assert_eq!(sizes, [7 << 20; 3]);
    let one: Identifier = named("large");
    let details = client
        .get_stream(&one)
        .await
        .expect("a read")
        .expect("the stream");
    assert_eq!(details.messages_count, 3);
    client.shutdown().await.expect("the client ends");
}
