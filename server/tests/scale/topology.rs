//! Streams and topics in great number, created side by side, and a look at every partition.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use biplane_wire::request::{CreateStream, CreateTopic};
use biplane_wire::{
    BatchBuilder, Codec as _, Identifier, Name, Operation, Options, Partitioning, SendMetadata,
};

use crate::support::raw_client::{RawClient, RawError};

/// Topics of a stream.
pub(crate) const TOPICS: u32 = 3;
/// Partitions of a topic.
pub(crate) const PARTITIONS: u32 = 2;

/// Connections that create at the same time: each has one request under way.
pub(crate) const CONNECTIONS: usize = 32;
/// Time for one request, retries included.
const PATIENCE: Duration = Duration::from_secs(30);
/// Status codes that ask for a retry.
const TRANSIENT: [u32; 2] = [57, 58];

/// What the creation was like.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) requests: u32,
    pub(crate) seconds: f64,
    pub(crate) slowest: Duration,
}

pub(crate) fn stream(index: u32) -> String {
    format!("scale-{index}")
}

pub(crate) fn topic(index: u32) -> String {
    format!("topic-{index}")
}

/// A write, repeated under its number while the answer is that it could not be taken yet.
fn write(client: &mut RawClient, operation: Operation, body: &[u8]) -> Vec<u8> {
    let start = Instant::now();
    client.next_request();
    loop {
        match client.write(operation, body) {
            Ok(reply) => return reply,
            Err(RawError::Status(code) | RawError::Rejected(code))
                if TRANSIENT.contains(&code) && start.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{operation:?}: {error}"),
        }
    }
}

fn create_one(client: &mut RawClient, index: u32, slowest: &mut Duration) {
    let mut timed = |operation, body: Vec<u8>| {
        let start = Instant::now();
        write(client, operation, &body);
        *slowest = start.elapsed().max(*slowest);
    };
    let options = Options::EMPTY;
    let name = stream(index);
    let create = CreateStream {
        name: Name::new(&name).expect("a name"),
        options,
    };
    timed(Operation::CreateStream, create.encode());
    for at in 0..TOPICS {
        let text = topic(at);
        let create = CreateTopic {
            stream: Identifier::named(&name).expect("a name"),
            partitions: PARTITIONS,
            name: Name::new(&text).expect("a name"),
            options: Options::EMPTY,
        };
        timed(Operation::CreateTopic, create.encode());
    }
}

/// Creates `streams` streams by connections to the primary, with all their topics.
pub(crate) fn create(clients: Vec<RawClient>, streams: u32) -> Created {
    let next = AtomicU32::new(0);
    let start = Instant::now();
    let work = |mut client: RawClient| {
        let mut slowest = Duration::ZERO;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= streams {
                return slowest;
            }
            if index.is_multiple_of(1000) && index > 0 {
                let seconds = start.elapsed().as_secs_f64();
                println!("{index} of {streams} streams after {seconds:.1} s");
            }
            create_one(&mut client, index, &mut slowest);
        }
    };
    let slowest = thread::scope(|scope| {
        let (work, clients) = (&work, clients.into_iter());
        let workers: Vec<_> = clients
            .map(|client| scope.spawn(move || work(client)))
            .collect();
        let times = workers
            .into_iter()
            .map(|worker| worker.join().expect("the requests are taken"));
        times.max().unwrap_or_default()
    });
    Created {
        requests: streams * (1 + TOPICS),
        seconds: start.elapsed().as_secs_f64(),
        slowest,
    }
}

/// Polls every partition of every stream at one node; the messages found.
pub(crate) fn poll_all(node: SocketAddr, streams: u32) -> u64 {
    let mut client = RawClient::login(node).expect("a login");
    let mut found = 0;
    for index in 0..streams {
        for at in 0..TOPICS {
            for partition in 0..PARTITIONS {
                let polled = client
                    .poll(&stream(index), &topic(at), partition, 0, 100)
                    .unwrap_or_else(|error| panic!("stream {index}, topic {at}: {error}"));
                found += polled.messages.len() as u64;
            }
        }
    }
    found
}

/// Sends one message to a partition, at whichever node leads it; which one that was.
pub(crate) fn send(nodes: &mut [RawClient], index: u32, at: u32, partition: u32) -> usize {
    let (name, text) = (stream(index), topic(at));
    let metadata = SendMetadata {
        stream: Identifier::named(&name).expect("a name"),
        topic: Identifier::named(&text).expect("a name"),
        partitioning: Partitioning::PartitionId(partition),
        messages_count: 1,
    }
    .encode();
    let mut batch = BatchBuilder::new();
    let payload = format!("{index}/{at}/{partition}");
    batch.push(0, 1, payload.as_bytes(), &[]).expect("room");
    let length = u32::try_from(metadata.len()).expect("short");
    let body = [
        &length.to_le_bytes()[..],
        &metadata,
        &batch.finish().expect("a batch"),
    ]
    .concat();
    let start = Instant::now();
    for client in nodes.iter_mut() {
        client.next_request();
    }
    loop {
        for (node, client) in nodes.iter_mut().enumerate() {
            match client.write(Operation::SendMessages, &body) {
                Ok(_) => return node,
                Err(RawError::Status(code)) if TRANSIENT.contains(&code) => {}
                Err(error) => panic!("a message for stream {index}: {error}"),
            }
        }
        assert!(start.elapsed() < PATIENCE, "nobody leads stream {index}");
        thread::sleep(Duration::from_millis(20));
    }
}
