//! The few calls that a load needs, typed.

use std::net::{IpAddr, SocketAddr};

use biplane_wire::request::{CreateStream, CreateTopic, PollMessages, StreamRequest};
use biplane_wire::response::{ClusterMetadata, NodeRole, PolledMessages};
use biplane_wire::{
    BatchBuilder, ClientCode, Codec as _, Consumer, ConsumerKind, Identifier, Message, Name,
    Operation, OptionalPartition, Options, Partitioning, PollingKind, PollingStrategy,
    SendMetadata, TlvBuilder, TlvKind,
};

use super::BenchError;
use super::connection::{Connection, payload};
use super::options::{DurabilityOption, Load};

/// Name of the one topic of each stream.
const TOPIC: &str = "load";
/// Segments of topics that are kept small, in bytes.
const SEGMENT_SIZE: u64 = 64 << 20;

/// Address of the metadata primary as the node behind `connection` sees it; `None` on a node
/// without clustering, or while there is no primary.
pub(super) fn primary(connection: &mut Connection) -> Result<Option<SocketAddr>, BenchError> {
    let reply = connection.read(ClientCode::GetClusterMetadata, &[])?;
    let cluster = ClusterMetadata::decode(reply.body()).map_err(broken)?;
    let primary = cluster
        .nodes
        .0
        .iter()
        .find(|node| node.role == NodeRole::Primary);
    Ok(primary.and_then(|node| {
        let ip = node.ip.0.parse::<IpAddr>().ok()?;
        (node.tcp != 0).then_some((ip, node.tcp).into())
    }))
}

/// Creates a stream with the one topic that `load` uses.
pub(super) fn create(
    connection: &mut Connection,
    stream: &str,
    load: &Load,
) -> Result<(), BenchError> {
    create_stream(connection, stream)?;
    let mut options = TlvBuilder::new();
    if load.args.durability == DurabilityOption::Persisted {
        options.option("durability", TlvKind::STRING, b"persisted");
    }
    if let Some(megabytes) = load.args.topic_max {
        let bytes = u64::from(megabytes) * 1_000_000;
        options.option("max_topic_size", TlvKind::U64, &bytes.to_le_bytes());
        // Only whole segments go.
        options.option("segment_size", TlvKind::U64, &SEGMENT_SIZE.to_le_bytes());
    }
    create_topic(connection, stream, TOPIC, load.partitions(), &options)
}

/// Creates a stream whose topic has one partition and the options of a new one.
pub(super) fn create_probe(connection: &mut Connection, stream: &str) -> Result<(), BenchError> {
    create_stream(connection, stream)?;
    create_topic(connection, stream, TOPIC, 1, &TlvBuilder::new())
}

/// Creates a stream.
pub(super) fn create_stream(connection: &mut Connection, name: &str) -> Result<(), BenchError> {
    let body = CreateStream {
        name: Name::new(name).map_err(broken)?,
        options: Options::EMPTY,
    }
    .encode();
    payload(&connection.replicate(Operation::CreateStream, &[], &body)?).map(drop)
}

/// Creates a topic.
pub(super) fn create_topic(
    connection: &mut Connection,
    stream: &str,
    topic: &str,
    partitions: u32,
    options: &TlvBuilder,
) -> Result<(), BenchError> {
    let body = CreateTopic {
        stream: Identifier::named(stream).map_err(broken)?,
        partitions,
        name: Name::new(topic).map_err(broken)?,
        options: Options::parse(options.bytes()).map_err(broken)?,
    }
    .encode();
    payload(&connection.replicate(Operation::CreateTopic, &[], &body)?).map(drop)
}

/// Deletes a stream with all that is in it.
pub(super) fn delete(connection: &mut Connection, stream: &str) -> Result<(), BenchError> {
    let body = StreamRequest {
        stream: Identifier::named(stream).map_err(broken)?,
    }
    .encode();
    payload(&connection.replicate(Operation::DeleteStream, &[], &body)?)?;
    Ok(())
}

/// Where a producer's batches go: the encoded metadata that precedes each of them.
#[derive(Debug)]
pub(super) struct Destination(Vec<u8>);

impl Destination {
    /// A partition, with `count` messages in each request.
    pub(super) fn new(stream: &str, partition: u32, count: u32) -> Result<Self, BenchError> {
        let metadata = SendMetadata {
            stream: Identifier::named(stream).map_err(broken)?,
            topic: Identifier::named(TOPIC).map_err(broken)?,
            partitioning: Partitioning::PartitionId(partition),
            messages_count: count,
        }
        .encode();
        let length = u32::try_from(metadata.len()).unwrap_or(u32::MAX);
        Ok(Self([&length.to_le_bytes(), metadata.as_slice()].concat()))
    }
}

/// A batch of `count` messages with this payload.
pub(super) fn batch(payload: &[u8], count: u32, origin: u64) -> Result<Vec<u8>, BenchError> {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(0, origin, payload, &[]).map_err(broken)?;
    }
    builder.finish().map_err(broken)
}

/// Sends a batch and waits until it is committed.
pub(super) fn send(
    connection: &mut Connection,
    destination: &Destination,
    batch: &[u8],
) -> Result<(), BenchError> {
    connection
        .replicate(Operation::SendMessages, &destination.0, batch)
        .map(drop)
}

/// A consumer's position.
#[derive(Debug)]
pub(super) struct Reader {
    body: Vec<u8>,
    value_at: usize,
}

impl Reader {
    /// A reader of a partition that takes at most `count` messages at a time.
    pub(super) fn new(stream: &str, partition: u32, count: u32) -> Result<Self, BenchError> {
        let body = PollMessages {
            consumer: Consumer {
                kind: ConsumerKind::Consumer,
                id: Identifier::Numeric(1),
            },
            stream: Identifier::named(stream).map_err(broken)?,
            topic: Identifier::named(TOPIC).map_err(broken)?,
            partition: OptionalPartition(Some(partition)),
            strategy: PollingStrategy {
                kind: PollingKind::Offset,
                value: 0,
            },
            count,
            auto_commit: false,
        }
        .encode();
        // The offset, the count and the flag are the last 13 bytes.
        let value_at = body.len() - 13;
        Ok(Self { body, value_at })
    }

    /// Polls from `offset` on.
    pub(super) fn poll(
        &mut self,
        connection: &mut Connection,
        offset: u64,
    ) -> Result<Message, BenchError> {
        self.body[self.value_at..self.value_at + 8].copy_from_slice(&offset.to_le_bytes());
        connection.read(ClientCode::PollMessages, &self.body)
    }
}

/// The messages of a poll's reply.
pub(super) fn polled(reply: &Message) -> Result<PolledMessages<'_>, BenchError> {
    PolledMessages::decode(reply.body()).map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> BenchError {
    BenchError::Protocol(error.to_string())
}
