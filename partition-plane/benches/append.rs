//! Batches through one replica and through three, polls of the tail, and ticks of idle groups.
//!
//! The disk answers at once and keeps nothing: what is measured is the plane. Each benchmark
//! prints what it moved, so that a faster run that did less shows.

use std::hint::black_box;

use biplane_journal::{
    DirEntry, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskPath, DiskReply, DiskRequest,
    DiskVerb, DiskView, ReadBytes,
};
use biplane_partition_plane::{
    Config, ConsumerKey, GroupSpec, Input, Limits, Output, PartitionPlane, PollQuery, Strategy,
    TopicOptions,
};
use biplane_wire::{
    BatchBuilder, ClientId, ClusterId, Command, FrameBuffer, GroupId, HEADER_SIZE, Operation,
    ReplicaId, RequestNumber, RoutedRequestHeader, View, decode_replica,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const CLUSTER: ClusterId = ClusterId(1);
const WALL: u64 = 1_700_000_000_000_000;

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

fn complete(request: DiskRequest) -> Input {
    let DiskRequest { queue, token, op } = request;
    let reply = match op {
        DiskOp::Read { .. } => DiskReply::Data(ReadBytes::copy_of(&[])),
        _ => DiskReply::Done,
    };
    Input::Disk(DiskCompletion {
        queue,
        token,
        result: Ok(reply),
    })
}

fn group(partition: u32) -> GroupId {
    GroupId::partition(1, 2, partition).expect("a legal partition")
}

fn spec(partition: u32) -> GroupSpec {
    GroupSpec {
        group: group(partition),
        created_revision: 1,
        created_view: View(0),
        is_new: true,
        options: TopicOptions::default(),
        purge_generation: 0,
        deleted_up_to: 0,
    }
}

/// Planes joined without a queue of their own: frames and requests are handed over at once.
struct World {
    planes: Vec<PartitionPlane>,
    work: Vec<(usize, Input)>,
    out: Vec<Output>,
    replies: u64,
    body_bytes: u64,
}

impl World {
    fn new(count: u8, groups: u32) -> Self {
        let plane = |replica| {
            PartitionPlane::new(Config {
                cluster: CLUSTER,
                replica: ReplicaId(replica),
                replica_count: count,
                limits: Limits::default(),
                timers: biplane_vsr::Timers::default(),
                view_probe_attempts_max: 5,
                seed: u64::from(replica) + 1,
            })
        };
        let planes = (0..count).map(plane).collect();
        let (work, out) = (Vec::new(), Vec::new());
        let mut world = Self {
            planes,
            work,
            out,
            replies: 0,
            body_bytes: 0,
        };
        for at in 0..usize::from(count) {
            for partition in 0..groups {
                world.planes[at].open_group(spec(partition), &Nothing, &mut world.out);
                world.take(at);
            }
        }
        world.run();
        world
    }

    fn take(&mut self, at: usize) {
        for output in self.out.drain(..) {
            match output {
                Output::Disk(request) => self.work.push((at, complete(request))),
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
                Output::PollReply { reply, .. } => self.body_bytes += reply.body_len as u64,
                _ => {}
            }
        }
    }

    fn step(&mut self, at: usize, input: Input) {
        self.planes[at].step(input, &mut self.out);
        self.take(at);
    }

    fn run(&mut self) {
        while !self.work.is_empty() {
            for (at, input) in std::mem::take(&mut self.work) {
                self.step(at, input);
            }
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
    header.set_group(group(0));
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

fn appends(criterion: &mut Criterion) {
    for replicas in [1u8, 3] {
        for (count, payload) in [(1000, 1000), (1000, 100), (1, 100)] {
            let batch = batch(count, payload);
            let name = format!("append/{replicas} replicas/{count} x {payload} bytes");
            let mut group = criterion.benchmark_group(name);
            group.throughput(Throughput::Bytes(batch.len() as u64));
            let mut world = World::new(replicas, 1);
            let mut number = 0;
            group.bench_function("batch", |bencher| {
                bencher.iter_batched(
                    || {
                        number += 1;
                        request(number, &batch, u32::try_from(count).expect("few messages"))
                    },
                    |request| {
                        let token = world.replies;
                        let input = Input::Submit {
                            token,
                            group: self::group(0),
                            request,
                        };
                        world.step(0, input);
                        world.run();
                    },
                    BatchSize::LargeInput,
                );
            });
            group.finish();
            println!("confirmed {} of {number}", world.replies);
            assert_eq!(world.replies, number);
        }
    }
}

fn polls(criterion: &mut Criterion) {
    let mut world = World::new(1, 1);
    let batch = batch(1000, 1000);
    for number in 1..=10 {
        let request = request(number, &batch, 1000);
        world.step(
            0,
            Input::Submit {
                token: number,
                group: group(0),
                request,
            },
        );
        world.run();
    }
    let mut bench = criterion.benchmark_group("poll/memory");
    for (name, offset, count) in [("whole batch", 3000, 1000), ("slice", 3500, 100)] {
        let key = ConsumerKey::Consumer(1);
        let strategy = Strategy::Offset(offset);
        let query = PollQuery {
            key,
            strategy,
            count,
            auto_commit: false,
            primary_only: false,
        };
        bench.bench_function(name, |bencher| {
            bencher.iter(|| {
                world.step(
                    0,
                    Input::Poll {
                        token: 1,
                        group: group(0),
                        query,
                    },
                );
                black_box(world.body_bytes)
            });
        });
    }
    bench.finish();
    println!("polled {} bytes", world.body_bytes);
}

fn ticks(criterion: &mut Criterion) {
    let mut world = World::new(3, 5000);
    for _ in 0..10 {
        for at in 0..3 {
            world.step(at, Input::Tick { wall_micros: WALL });
        }
        world.run();
    }
    let mut micros = WALL;
    criterion.bench_function("tick/5000 idle groups on 3 replicas", |bencher| {
        bencher.iter(|| {
            micros += 10_000;
            for at in 0..3 {
                world.step(
                    at,
                    Input::Tick {
                        wall_micros: micros,
                    },
                );
            }
            world.run();
        });
    });
    let led = world.planes[0].groups().filter(|group| {
        world.planes[0]
            .status(*group)
            .is_some_and(|status| status.is_primary)
    });
    println!("{} groups led", led.count());
}

criterion_group!(benches, appends, polls, ticks);
criterion_main!(benches);
