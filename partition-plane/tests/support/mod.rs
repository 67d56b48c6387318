//! Planes joined by queues: a network, disks and clients in one deterministic world.
//!
//! Time passes in ticks; between two ticks every frame is delivered and every disk request
//! executed, unless a test holds some back. All choices come from a seeded generator.
#![allow(dead_code, unreachable_pub)]

pub mod world;

use biplane_journal::MemoryDisk;
use biplane_partition_plane::{
    Config, ConsumerKey, GroupSpec, Input, Limits, OffsetReply, Output, PartitionPlane, PollQuery,
    PollReply, Strategy, TopicOptions, concat_parts,
};
use biplane_wire::{
    BatchBuilder, ClientId, ClusterId, Command, FrameBuffer, GroupId, HEADER_SIZE, Message,
    Operation, ReplicaId, ReplyHeader, RequestNumber, RoutedRequestHeader, View,
};

pub const CLUSTER: ClusterId = ClusterId(0xC1);
pub const WALL: u64 = 1_700_000_000_000_000;

pub fn group() -> GroupId {
    GroupId::partition(1, 2, 3).unwrap()
}

pub fn spec(options: TopicOptions) -> GroupSpec {
    GroupSpec {
        group: group(),
        created_revision: 7,
        created_view: View(0),
        is_new: true,
        options,
        purge_generation: 0,
        deleted_up_to: 0,
    }
}

pub fn config(replica: u8, replica_count: u8, limits: Limits, seed: u64) -> Config {
    Config {
        cluster: CLUSTER,
        replica: ReplicaId(replica),
        replica_count,
        limits,
        timers: biplane_vsr::Timers::tiny(),
        view_probe_attempts_max: 3,
        seed,
    }
}

/// A small generator: the tests print its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The seed of a random test: from the environment, or the given one. Printed in any case.
pub fn seed(name: &str, default: u64) -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(default);
    println!("{name}: SEED={seed}");
    seed
}

fn header(client: u128, request: u64, operation: Operation, body: usize) -> RoutedRequestHeader {
    let mut header = RoutedRequestHeader::new(Command::Request);
    header.frame.set_cluster(CLUSTER);
    header
        .frame
        .set_size(u32::try_from(HEADER_SIZE + body).unwrap());
    header.set_client(ClientId(client));
    header.set_request(RequestNumber(request));
    header.set_session(1);
    header.set_user_id(1);
    header.set_operation(operation);
    header.set_group(group());
    header
}

pub fn batch(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for payload in payloads {
        builder.push(1, WALL, payload, &[]).unwrap();
    }
    builder.finish().unwrap()
}

/// The body of a SendMessages as a client sends it.
pub fn send_body(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![
        22, 0, 0, 0, 1, 4, 1, 0, 0, 0, 1, 4, 2, 0, 0, 0, 2, 4, 3, 0, 0, 0,
    ];
    body.extend(u32::try_from(payloads.len()).unwrap().to_le_bytes());
    body.extend(batch(payloads));
    body
}

pub fn send_request(client: u128, request: u64, payloads: &[Vec<u8>]) -> FrameBuffer {
    let body = send_body(payloads);
    FrameBuffer::from_parts(
        &header(client, request, Operation::SendMessages, body.len()),
        &body,
    )
}

/// The same for another group.
pub fn send_request_to(group: GroupId, client: u128, payloads: &[Vec<u8>]) -> FrameBuffer {
    let body = send_body(payloads);
    let mut header = header(client, 1, Operation::SendMessages, body.len());
    header.set_group(group);
    FrameBuffer::from_parts(&header, &body)
}

pub fn store_request(client: u128, request: u64, key: ConsumerKey, offset: u64) -> FrameBuffer {
    let key_of = group().unpack().unwrap();
    let body = biplane_partition_plane::offset_request::encode(key, key_of, Some(offset));
    let header = header(client, request, Operation::StoreConsumerOffset, body.len());
    FrameBuffer::from_parts(&header, &body)
}

pub fn delete_request(client: u128, request: u64, key: ConsumerKey) -> FrameBuffer {
    let key_of = group().unpack().unwrap();
    let body = biplane_partition_plane::offset_request::encode(key, key_of, None);
    let header = header(client, request, Operation::DeleteConsumerOffset, body.len());
    FrameBuffer::from_parts(&header, &body)
}

pub fn poll_query(strategy: Strategy, count: u32) -> PollQuery {
    PollQuery {
        key: ConsumerKey::Consumer(1),
        strategy,
        count,
        auto_commit: false,
        primary_only: false,
    }
}

/// What a client got.
#[derive(Debug)]
pub enum Answer {
    Reply { status: u32, message: Message },
    Poll(PollReply),
    Offset(OffsetReply),
}

impl Answer {
    pub fn status(&self) -> u32 {
        match self {
            Self::Reply { status, message } => {
                assert_eq!(message.header::<ReplyHeader>().status(), *status);
                *status
            }
            Self::Poll(reply) => reply.status,
            Self::Offset(reply) => reply.status,
        }
    }

    /// Base offset of a confirmed send.
    pub fn base_offset(&self) -> Option<u64> {
        let Self::Reply { status: 0, message } = self else {
            return None;
        };
        let tail: [u8; 8] = message.body().get(16..24)?.try_into().ok()?;
        Some(u64::from_le_bytes(tail))
    }
}

/// The payloads of a poll body with their offsets, every batch verified.
pub fn messages(reply: &PollReply) -> Vec<(u64, Vec<u8>)> {
    let body = concat_parts(&reply.body);
    assert_eq!(body.len(), reply.body_len);
    if body.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::new();
    for record in biplane_wire::Batches::new(&body[16..], biplane_wire::Verify::Checksums) {
        let record = record.unwrap();
        for frame in record.frames() {
            out.push((record.offset_of(&frame), frame.payload.to_vec()));
        }
    }
    assert_eq!(out.len(), reply.count as usize);
    out
}

/// One plane over one disk, without a network.
pub struct Single {
    pub plane: PartitionPlane,
    pub disk: MemoryDisk,
    pub answers: Vec<(u64, Answer)>,
    pub sent: Vec<(ReplicaId, Message)>,
    pub fenced: Vec<String>,
    pub ticks: u64,
    token: u64,
}

impl Single {
    pub fn new(limits: Limits) -> Self {
        Self::with_disk(limits, MemoryDisk::new())
    }

    pub fn with_disk(limits: Limits, disk: MemoryDisk) -> Self {
        let plane = PartitionPlane::new(config(0, 1, limits, 1));
        Self {
            plane,
            disk,
            answers: Vec::new(),
            sent: Vec::new(),
            fenced: Vec::new(),
            ticks: 0,
            token: 0,
        }
    }

    pub fn open(&mut self, spec: GroupSpec) {
        let mut out = Vec::new();
        self.plane.open_group(spec, &self.disk, &mut out);
        self.take(out);
        self.settle();
    }

    pub fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.plane.step(input, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Vec<Output>) {
        use biplane_journal::Disk;
        for output in out {
            match output {
                Output::Disk(request) => self.disk.submit(request),
                Output::Reply {
                    token,
                    status,
                    message,
                } => {
                    self.answers
                        .push((token, Answer::Reply { status, message }));
                }
                Output::PollReply { token, reply } => {
                    self.answers.push((token, Answer::Poll(reply)));
                }
                Output::OffsetReply { token, reply } => {
                    self.answers.push((token, Answer::Offset(reply)));
                }
                Output::Send { to, message } => self.sent.push((to, message)),
                Output::Fenced { reason, .. } => self.fenced.push(reason),
                Output::Halt { reason, .. } => panic!("halted: {reason}"),
                Output::Role(_) => {}
            }
        }
    }

    /// Executes disk requests until there are none.
    pub fn settle(&mut self) {
        use biplane_journal::Disk;
        while let Some(done) = self.disk.poll() {
            self.step(Input::Disk(done));
        }
        self.plane.check_invariants();
    }

    pub fn tick(&mut self, count: u64) {
        for _ in 0..count {
            self.ticks += 1;
            self.step(Input::Tick {
                wall_micros: WALL + self.ticks * 10_000,
            });
            self.settle();
        }
    }

    fn token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Submits and runs the disk; the answer.
    pub fn submit(&mut self, request: FrameBuffer) -> Answer {
        let token = self.token();
        self.step(Input::Submit {
            token,
            group: group(),
            request,
        });
        self.answer(token)
    }

    pub fn send(&mut self, client: u128, request: u64, payloads: &[Vec<u8>]) -> Answer {
        self.submit(send_request(client, request, payloads))
    }

    pub fn poll(&mut self, query: PollQuery) -> PollReply {
        let token = self.token();
        self.step(Input::Poll {
            token,
            group: group(),
            query,
        });
        match self.answer(token) {
            Answer::Poll(reply) => reply,
            other => panic!("not a poll reply: {other:?}"),
        }
    }

    pub fn stored(&mut self, key: ConsumerKey) -> Option<[u8; 20]> {
        let token = self.token();
        self.step(Input::GetOffset {
            token,
            group: group(),
            key,
        });
        match self.answer(token) {
            Answer::Offset(reply) => reply.body,
            other => panic!("not an offset reply: {other:?}"),
        }
    }

    fn answer(&mut self, token: u64) -> Answer {
        for _ in 0..50 {
            self.settle();
            if let Some(at) = self
                .answers
                .iter()
                .position(|(answered, _)| *answered == token)
            {
                return self.answers.remove(at).1;
            }
            self.tick(1);
        }
        panic!("no answer");
    }

    /// Kills the process; what was written stays.
    pub fn crash(&mut self, limits: Limits) {
        self.disk.crash_keeping_all();
        self.plane = PartitionPlane::new(config(0, 1, limits, 2));
        self.answers.clear();
    }

    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let path = format!("streams/1/topics/2/partitions/3/{name}");
        self.disk
            .get(&biplane_journal::DiskPath::new(&path).unwrap())
    }
}
