//! What clients ask of the planes: sessions, topology, messages, positions, polls.
//!
//! Every message carries an id of its own (client, serial), so that a reader's view names the
//! writer. Ids of streams and topics are learned from a node, as clients of the server do, and
//! may be stale: that is part of the load.

mod groups;
mod users;

use biplane_wire::request::{
    CreateStream, CreateTopic, DeleteConsumerOffset, DeleteSegments, PartitionsRequest,
    StoreConsumerOffset, StreamRequest, TopicRequest,
};
use biplane_wire::{
    AckLevel, BatchBuilder, ClientId, Codec as _, Consumer, ConsumerKind, GroupId, Identifier,
    Name, Operation, OptionalPartition, Options as TlvOptions, PartitionKey, Partitioning,
    SendMessages, SendMetadata, TlvBuilder, TlvKind, Verify, response::PolledMessages,
};

use self::groups::Membership;
use super::{Step, Workload, client_id};
use crate::machine::{Answer, Call, Directory, PollCall, PollFrom, Reader};
use crate::options::Options;
use crate::prng::Prng;

/// Streams at most, without churn.
const STREAMS: usize = 2;
/// Requests between two looks at the directory.
const DIRECTORY_EVERY: u64 = 15;

/// The user of every client.
const ROOT_ID: u32 = 0;

/// A client of the planes.
#[derive(Debug)]
pub struct PlanesWorkload {
    /// Number of the client; part of every message's id.
    index: u32,
    client: ClientId,
    user_id: u32,
    session: Option<u64>,
    /// Client ids used so far: another user needs another one.
    lives: u32,
    /// Who it will be after a logout.
    next_user: u32,
    membership: Option<Membership>,
    groups: bool,
    users: bool,
    request: u64,
    message: u64,
    directory: Directory,
    directory_at: Option<u64>,
    calls: u64,
    partitions: u32,
    churn: bool,
    purge: bool,
    upkeep: bool,
    names: u64,
    /// Broker times of batches that were read.
    times: Vec<u64>,
}

/// Times of read batches that are remembered.
const TIMES: usize = 8;

impl PlanesWorkload {
    /// The workload of the client with this number.
    #[must_use]
    pub fn new(index: u32, options: &Options) -> Self {
        // The second of a pair of twins goes by the id of the first.
        let twin = options.twins && index % 2 == 1;
        Self {
            index,
            client: client_id(if twin { index - 1 } else { index }),
            user_id: ROOT_ID,
            session: None,
            lives: 0,
            next_user: ROOT_ID,
            membership: None,
            groups: options.groups,
            users: options.users,
            request: 0,
            message: 0,
            directory: Directory::default(),
            directory_at: None,
            calls: 0,
            partitions: options.partitions,
            churn: options.churn,
            purge: options.purge,
            upkeep: options.upkeep,
            times: Vec::new(),
            names: u64::from(index) << 32,
        }
    }

    fn register(&self) -> Call {
        Call::Register {
            client: self.client,
            user_id: self.user_id,
        }
    }

    fn request(&mut self, group: GroupId, operation: Operation, body: Vec<u8>) -> Call {
        self.request += 1;
        let (client, request) = (self.client, self.request);
        let session = self.session.unwrap_or(0);
        Call::Request {
            group,
            client,
            user_id: self.user_id,
            session,
            request,
            operation,
            body,
        }
    }

    fn metadata(&mut self, operation: Operation, body: Vec<u8>) -> Call {
        self.request(GroupId::METADATA, operation, body)
    }

    /// A name; some are used again on purpose.
    fn name(&mut self, prng: &mut Prng, kind: char) -> String {
        if prng.chance(500_000) {
            return format!("{kind}{}", prng.below(4));
        }
        self.names += 1;
        format!("{kind}-{:x}", self.names)
    }

    fn create_stream(&mut self, prng: &mut Prng) -> Call {
        let name = self.name(prng, 's');
        let name = Name::new(&name).expect("a short name");
        let body = CreateStream {
            name,
            options: TlvOptions::EMPTY,
        }
        .encode();
        self.metadata(Operation::CreateStream, body)
    }

    fn create_topic(&mut self, stream: u32, prng: &mut Prng) -> Call {
        let name = self.name(prng, 't');
        let mut options = TlvBuilder::default();
        let policy = |prng: &mut Prng| -> &'static [u8] {
            if prng.chance(500_000) {
                b"persisted"
            } else {
                b"replicated"
            }
        };
        options.option("durability", TlvKind::STRING, policy(prng));
        options.option("consumer_offset_durability", TlvKind::STRING, policy(prng));
        if prng.chance(500_000) {
            let count = prng.between(1, 8) as u32;
            let bytes = count.to_le_bytes();
            options.option("messages_required_to_save", TlvKind::U32, &bytes);
        }
        if self.upkeep {
            options.option("segment_size", TlvKind::U64, &(1u64 << 20).to_le_bytes());
            if prng.chance(300_000) {
                let expiry = prng.between(1_000_000, 10_000_000).to_le_bytes();
                options.option("message_expiry", TlvKind::U64, &expiry);
            }
            if prng.chance(300_000) {
                let size = (prng.between(1, 8) << 20).to_le_bytes();
                options.option("max_topic_size", TlvKind::U64, &size);
            }
        }
        let options = options.into_bytes();
        let body = CreateTopic {
            stream: Identifier::Numeric(stream),
            partitions: prng.between(1, u64::from(self.partitions)) as u32,
            name: Name::new(&name).expect("a short name"),
            options: TlvOptions::parse(&options).expect("options built here"),
        };
        let body = body.encode();
        self.metadata(Operation::CreateTopic, body)
    }

    fn send(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        let mut batch = BatchBuilder::new();
        let count = 1 + prng.exponential(3).min(16);
        for _ in 0..count {
            self.message += 1;
            let id = u128::from(self.index + 1) << 64 | u128::from(self.message);
            let mut payload = vec![0; 16 + prng.exponential(60) as usize];
            payload[..16].copy_from_slice(&id.to_le_bytes());
            batch
                .push(id, 1 + self.message, &payload, &[])
                .expect("a small batch");
        }
        let metadata = SendMetadata {
            stream: Identifier::Numeric(key.stream),
            topic: Identifier::Numeric(key.topic),
            partitioning: Partitioning::PartitionId(key.partition),
            messages_count: count as u32,
        };
        let batch = batch.finish().expect("a small batch");
        let body = SendMessages::encode(&metadata, &batch);
        let group = group_of(key);
        self.request(group, Operation::SendMessages, body)
    }

    fn store(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        let body = StoreConsumerOffset {
            consumer: Consumer {
                kind: ConsumerKind::Consumer,
                id: Identifier::Numeric(1 + prng.below(3) as u32),
            },
            stream: Identifier::Numeric(key.stream),
            topic: Identifier::Numeric(key.topic),
            partition: OptionalPartition(Some(key.partition)),
            offset: prng.below(1 + self.message * 2),
            ack: self.ack(prng),
        };
        let body = body.encode();
        self.request(group_of(key), Operation::StoreConsumerOffset, body)
    }

    fn ack(&self, prng: &mut Prng) -> AckLevel {
        match self.upkeep && prng.chance(500_000) {
            true => AckLevel::NoAck,
            false => AckLevel::Quorum,
        }
    }

    fn forget(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        let body = DeleteConsumerOffset {
            consumer: Consumer {
                kind: ConsumerKind::Consumer,
                id: Identifier::Numeric(1 + prng.below(3) as u32),
            },
            stream: Identifier::Numeric(key.stream),
            topic: Identifier::Numeric(key.topic),
            partition: OptionalPartition(Some(key.partition)),
            ack: self.ack(prng),
        };
        let body = body.encode();
        self.request(group_of(key), Operation::DeleteConsumerOffset, body)
    }

    fn delete_segments(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        let body = DeleteSegments {
            stream: Identifier::Numeric(key.stream),
            topic: Identifier::Numeric(key.topic),
            partition: key.partition,
            count: prng.between(1, 3) as u32,
        };
        let body = body.encode();
        self.metadata(Operation::DeleteSegments, body)
    }

    /// What only runs with upkeep ask for.
    fn tend(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        match prng.below(4) {
            0 => self.delete_segments(key, prng),
            1 => {
                let known = prng.pick(&self.times).copied();
                let from = PollFrom::Timestamp(known.unwrap_or(0) + prng.below(2));
                self.poll_from(key, from, prng)
            }
            _ => self.forget(key, prng),
        }
    }

    fn poll(&self, key: PartitionKey, prng: &mut Prng) -> Call {
        let from = match prng.below(4) {
            0 => PollFrom::Offset(prng.below(1 + self.message * 2)),
            1 => PollFrom::First,
            2 => PollFrom::Last,
            _ => PollFrom::Next,
        };
        self.poll_from(key, from, prng)
    }

    fn poll_from(&self, key: PartitionKey, from: PollFrom, prng: &mut Prng) -> Call {
        let query = PollCall {
            consumer: 1 + prng.below(3) as u32,
            as_group: false,
            from,
            count: 1 + prng.exponential(10) as u32,
            auto_commit: prng.chance(200_000),
            primary_only: prng.chance(200_000),
        };
        Call::Poll {
            group: group_of(key),
            reader: self.reader(),
            query,
        }
    }

    fn reader(&self) -> Reader {
        Reader {
            client: self.client,
            user_id: self.user_id,
        }
    }

    fn administer(&mut self, prng: &mut Prng) -> Call {
        let streams = self.directory.streams.clone();
        let Some(&stream) = prng.pick(&streams) else {
            return self.create_stream(prng);
        };
        let topics: Vec<PartitionKey> = self.directory.partitions.clone();
        let some = prng.pick(&topics).copied();
        let id = Identifier::Numeric;
        match (prng.below(if self.churn { 8 } else { 4 }), some) {
            (0, _) if streams.len() < STREAMS || self.churn => self.create_stream(prng),
            (1, Some(key)) => {
                let (stream, topic) = (id(key.stream), id(key.topic));
                let body = PartitionsRequest {
                    stream,
                    topic,
                    count: 1,
                }
                .encode();
                self.metadata(Operation::CreatePartitions, body)
            }
            (3, Some(key)) if self.purge => {
                let (stream, topic) = (id(key.stream), id(key.topic));
                let body = TopicRequest { stream, topic }.encode();
                self.metadata(Operation::PurgeTopic, body)
            }
            (6, Some(key)) => {
                let (stream, topic) = (id(key.stream), id(key.topic));
                let body = PartitionsRequest {
                    stream,
                    topic,
                    count: 1,
                }
                .encode();
                self.metadata(Operation::DeletePartitions, body)
            }
            (4, Some(key)) => {
                let (stream, topic) = (id(key.stream), id(key.topic));
                let body = TopicRequest { stream, topic }.encode();
                self.metadata(Operation::DeleteTopic, body)
            }
            (5, _) => {
                let body = StreamRequest { stream: id(stream) }.encode();
                self.metadata(Operation::DeleteStream, body)
            }
            _ => self.create_topic(stream, prng),
        }
    }
}

fn is_delete_segments(call: &Call) -> bool {
    matches!(call, Call::Request { operation, .. } if *operation == Operation::DeleteSegments)
}

fn group_of(key: PartitionKey) -> GroupId {
    GroupId::partition(key.stream, key.topic, key.partition).expect("small ids")
}

impl Workload for PlanesWorkload {
    fn next(&mut self, prng: &mut Prng) -> Call {
        self.calls += 1;
        if self.session.is_none() {
            return self.register();
        }
        let stale = self
            .directory_at
            .is_none_or(|at| self.calls - at >= DIRECTORY_EVERY);
        if stale {
            return Call::Directory;
        }
        let partitions = self.directory.partitions.clone();
        let Some(&key) = prng.pick(&partitions) else {
            self.directory_at = None;
            return self.administer(prng);
        };
        if self.upkeep && prng.chance(100_000) {
            return self.tend(key, prng);
        }
        let administer = if self.churn || self.purge { 15 } else { 3 };
        let groups = if self.groups { 25 } else { 0 };
        let users = if self.users { 6 } else { 0 };
        match prng.weighted(&[60, 10, 25, groups, users, administer]) {
            0 => self.send(key, prng),
            1 => self.store(key, prng),
            2 => self.poll(key, prng),
            3 => self.consume_in_group(key, prng),
            4 => self.manage_users(prng),
            _ => {
                self.directory_at = None;
                self.administer(prng)
            }
        }
    }

    fn outcome(&mut self, call: &Call, answer: &Answer) -> Step {
        if let (Answer::Polled { status: 0, body }, true) = (answer, self.upkeep) {
            self.remember_time(body);
        }
        match answer {
            Answer::Registered { session, watermark } => {
                self.session = Some(*session);
                self.request = self.request.max(*watermark);
                Step::Done
            }
            Answer::Synced(partitions) => {
                self.synced(partitions.as_deref());
                Step::Done
            }
            Answer::Directory(directory) => {
                self.directory = directory.clone();
                self.directory_at = Some(self.calls);
                Step::Done
            }
            Answer::Evicted(_) => {
                self.session = None;
                Step::Done
            }
            Answer::LoggedOut => {
                self.session = None;
                self.become_another();
                Step::Done
            }
            Answer::Transient { .. }
                if matches!(call, Call::Request { group, .. }
                if !self.knows(*group)) =>
            {
                // The partition may be gone for good.
                Step::Done
            }
            // Where the metadata group is led, the partition may be followed and have nothing
            // sealed: that node will not do it however often it is asked.
            Answer::Transient { maybe: false, .. } if is_delete_segments(call) => Step::Done,
            Answer::Transient { .. } => {
                self.directory_at = None;
                Step::Retry
            }
            Answer::Refused(_) => {
                self.refused(call);
                Step::Done
            }
            Answer::Replied { code, .. } => {
                self.replied(call, *code);
                Step::Done
            }
            Answer::Polled { body, .. } => {
                self.polled(call, body);
                Step::Done
            }
        }
    }
}

impl PlanesWorkload {
    fn remember_time(&mut self, body: &[u8]) {
        let Ok(answer) = PolledMessages::decode(body) else {
            return;
        };
        let Some(Ok(batch)) = answer.batches(Verify::Layout).next() else {
            return;
        };
        if self.times.len() == TIMES {
            self.times.remove(0);
        }
        self.times.push(batch.header().base_timestamp());
    }

    /// Whether the group exists as far as this client can tell; it cannot when topics come and
    /// go.
    fn knows(&self, group: GroupId) -> bool {
        !self.churn || group.is_metadata()
    }
}
