//! What a batch costs the plane on its way through three replicas, counted and not timed:
//! allocations, bytes copied and passes of hashing per byte of payload, on the primary, on a
//! backup and for a poll.
//!
//! Copies and hashes are counted where the wire crate makes them; nothing else in the path
//! touches a payload.

use allocation_counter::measure;
use biplane_journal::{
    DirEntry, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskPath, DiskReply, DiskRequest,
    DiskVerb, DiskView,
};
use biplane_partition_plane::{
    Config, ConsumerKey, GroupSpec, Input, Limits, Output, PartitionPlane, PollQuery, Strategy,
    TopicOptions,
};
use biplane_wire::meter::{self, Moved};
use biplane_wire::{
    BatchBuilder, ClientId, ClusterId, Command, FrameBuffer, GroupId, HEADER_SIZE, Operation,
    ReplicaId, RequestNumber, RoutedRequestHeader, View, decode_replica,
};

const CLUSTER: ClusterId = ClusterId(1);
const WALL: u64 = 1_700_000_000_000_000;
const REPLICAS: u8 = 3;

struct Nothing;

impl DiskView for Nothing {
    fn len(&self, _: &DiskPath) -> Result<Option<u64>, DiskError> {
        Ok(None)
    }

    fn read(&self, path: &DiskPath, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
        let path = path.clone();
        Err(DiskError {
            verb: DiskVerb::Read,
            path,
            kind: DiskErrorKind::NotFound,
        })
    }

    fn list(&self, _: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        Ok(Vec::new())
    }
}

fn group() -> GroupId {
    GroupId::partition(1, 2, 0).expect("a legal partition")
}

/// What one step of a plane cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    allocations: u64,
    /// Of those, in steps that asked something of the disk or heard from it.
    with_disk: u64,
    moved: Moved,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.allocations += other.allocations;
        self.with_disk += other.with_disk;
        self.moved.copied += other.moved.copied;
        self.moved.hashed += other.moved.hashed;
    }
}

/// Three planes joined hand to hand. The disk keeps nothing and answers when it is asked to.
struct World {
    planes: Vec<PartitionPlane>,
    /// Steps to be made: of which replica, and whether of a disk.
    work: Vec<(usize, Input)>,
    disk: Vec<(usize, DiskRequest)>,
    out: Vec<Output>,
    replies: u64,
    polled: usize,
    cost: [Cost; REPLICAS as usize],
}

impl World {
    fn new(options: TopicOptions) -> Self {
        let plane = |replica| {
            PartitionPlane::new(Config {
                cluster: CLUSTER,
                replica: ReplicaId(replica),
                replica_count: REPLICAS,
                limits: Limits::default(),
                timers: biplane_vsr::Timers::default(),
                view_probe_attempts_max: 5,
                seed: u64::from(replica) + 1,
            })
        };
        let mut world = Self {
            planes: (0..REPLICAS).map(plane).collect(),
            work: Vec::with_capacity(64),
            disk: Vec::with_capacity(64),
            out: Vec::with_capacity(64),
            replies: 0,
            polled: 0,
            cost: Default::default(),
        };
        let spec = GroupSpec {
            group: group(),
            created_revision: 1,
            created_view: View(0),
            is_new: true,
            options,
            purge_generation: 0,
            deleted_up_to: 0,
        };
        for at in 0..usize::from(REPLICAS) {
            world.planes[at].open_group(spec.clone(), &Nothing, &mut world.out);
            world.take(at);
        }
        world.run();
        world.answer_disk();
        world
    }

    fn take(&mut self, at: usize) {
        for output in self.out.drain(..) {
            match output {
                Output::Disk(request) => self.disk.push((at, request)),
                Output::Send { to, message } => {
                    let frame = decode_replica(message).expect("our own frames decode");
                    let from = ReplicaId(u8::try_from(at).expect("few replicas"));
                    self.work
                        .push((usize::from(to.0), Input::Frame { from, frame }));
                }
                Output::Reply { status, .. } => {
                    assert_eq!(status, 0);
                    self.replies += 1;
                }
                Output::PollReply { reply, .. } => self.polled += reply.body_len,
                _ => {}
            }
        }
    }

    /// One step, whose cost is counted for that replica.
    fn step(&mut self, at: usize, input: Input) {
        let is_disk = matches!(input, Input::Disk(_));
        let before = meter::moved();
        let (planes, out) = (&mut self.planes, &mut self.out);
        let counted = measure(|| planes[at].step(input, out));
        let after = meter::moved();
        let asks = |output: &Output| matches!(output, Output::Disk(_));
        let with_disk = is_disk || self.out.iter().any(asks);
        self.cost[at].add(Cost {
            allocations: counted.count_total,
            with_disk: if with_disk { counted.count_total } else { 0 },
            moved: Moved {
                copied: after.copied - before.copied,
                hashed: after.hashed - before.hashed,
            },
        });
        self.take(at);
    }

    fn run(&mut self) {
        while let Some((at, input)) = self.work.pop() {
            self.step(at, input);
        }
    }

    fn answer_disk(&mut self) {
        while let Some((at, request)) = self.disk.pop() {
            let DiskRequest { queue, token, op } = request;
            assert!(!matches!(op, DiskOp::Read { .. }));
            let result = Ok(DiskReply::Done);
            let completion = DiskCompletion {
                queue,
                token,
                result,
            };
            self.step(at, Input::Disk(completion));
            self.run();
        }
    }
}

fn request(number: u64, batch: &[u8], count: u32) -> FrameBuffer {
    let mut body = vec![
        22, 0, 0, 0, 1, 4, 1, 0, 0, 0, 1, 4, 2, 0, 0, 0, 2, 4, 0, 0, 0, 0,
    ];
    body.extend(count.to_le_bytes());
    body.extend_from_slice(batch);
    let mut header = RoutedRequestHeader::new(Command::Request);
    header
        .frame
        .set_size(u32::try_from(HEADER_SIZE + body.len()).expect("a small frame"));
    header.set_client(ClientId(7));
    header.set_request(RequestNumber(number));
    header.set_session(1);
    header.set_operation(Operation::SendMessages);
    header.set_group(group());
    FrameBuffer::from_parts(&header, &body)
}

fn batch(count: usize, payload: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for id in 0..count {
        builder
            .push(id as u128 + 1, WALL, &vec![id as u8; payload], &[])
            .expect("it fits");
    }
    builder.finish().expect("it fits")
}

/// Cost per batch of each replica, over `batches` batches after as many that warm up.
fn per_batch(count: u32, payload: usize, batches: u64) -> [[f64; 4]; REPLICAS as usize] {
    let batch = batch(count as usize, payload);
    let mut world = World::new(TopicOptions::default());
    for number in 1..=2 * batches {
        if number == batches + 1 {
            world.cost = Default::default();
        }
        let request = request(number, &batch, count);
        let (token, group) = (number, group());
        world.step(
            0,
            Input::Submit {
                token,
                group,
                request,
            },
        );
        world.run();
        world.answer_disk();
    }
    assert_eq!(world.replies, 2 * batches);
    let bytes = (batches * u64::from(count) * payload as u64) as f64;
    world.cost.map(|cost| {
        [
            (cost.allocations - cost.with_disk) as f64 / batches as f64,
            cost.with_disk as f64 / batches as f64,
            cost.moved.copied as f64 / bytes,
            cost.moved.hashed as f64 / bytes,
        ]
    })
}

#[test]
fn a_batch_is_hashed_once_and_never_copied_on_its_way_through_a_replica() {
    for (count, payload, batches, flushing_max) in [(1000, 1000, 200, 16.0), (1, 100, 5000, 0.1)] {
        for (at, [allocations, flushing, copied, hashed]) in
            per_batch(count, payload, batches).into_iter().enumerate()
        {
            let role = if at == 0 { "primary" } else { "backup" };
            println!(
                "{count} x {payload} B on the {role}: {allocations:.3} allocations a batch and \
                 {flushing:.3} for its flush, {copied:.3} bytes copied and {hashed:.3} hashed a \
                 byte of payload"
            );
            assert!(allocations <= 0.01, "{role}: {allocations}");
            assert!(flushing <= flushing_max, "{role}: {flushing}");
            // Headers count against the payload: 304 bytes of the small batch are nothing else.
            let headers = f64::from(256 + 48 * count) / (f64::from(count) * payload as f64);
            assert!(copied <= 0.01 + 4.0 * headers, "{role}: {copied}");
            assert!(hashed <= 1.01 + 8.0 * headers, "{role}: {hashed}");
        }
    }
}

#[test]
fn a_poll_from_memory_copies_and_hashes_no_payload() {
    let batch = batch(1000, 1000);
    let mut world = World::new(TopicOptions::default());
    for number in 1..=5 {
        let request = request(number, &batch, 1000);
        let (token, group) = (number, group());
        world.step(
            0,
            Input::Submit {
                token,
                group,
                request,
            },
        );
        world.run();
        // The first of a partition waits for its files.
        world.answer_disk();
        world.run();
    }
    for (what, offset, count) in [("whole batches", 1000, 3000), ("a slice", 1500, 700)] {
        world.cost = Default::default();
        world.polled = 0;
        let query = PollQuery {
            key: ConsumerKey::Consumer(1),
            strategy: Strategy::Offset(offset),
            count,
            auto_commit: false,
            primary_only: false,
        };
        let (token, group) = (1, group());
        world.step(
            0,
            Input::Poll {
                token,
                group,
                query,
            },
        );
        let Cost {
            allocations, moved, ..
        } = world.cost[0];
        println!(
            "poll of {what}: {} bytes, {allocations} allocations, {moved:?}",
            world.polled
        );
        assert!(world.polled >= count as usize * 1000);
        assert!(moved.copied < 1024, "{moved:?}");
        // A slice has a header of its own, over the checksums of its frames.
        assert!(moved.hashed < 64 + 8 * u64::from(count), "{moved:?}");
        assert!(allocations < 16, "{allocations}");
    }
}
