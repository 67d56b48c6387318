//! How fast the core alone is: prepares through a group of three, idle ticks, merges.
//!
//! Three replicas are joined by a vector; frames are passed on as values, without sockets or
//! disks, but sealed and checked as on a wire. The memory of evicted prepares serves the next
//! requests, as it would with a pool of receive buffers. Each bench ends with a digest of what
//! was committed, so the work stays honest.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use biplane_vsr::suffix_merge::{Vote, VoteEntry, merge};
use biplane_vsr::{
    Admission, Boot, Config, Durability, Forward, Input, Limits, Output, Plane, Promotion, Replica,
    Source, Timers, WakeWheel,
};
use biplane_wire::{
    Checksum, ClientId, ClusterId, Command, CommitHeader, FrameBuffer, GroupId, Message, Op,
    Operation, PrepareHeader, ReplicaId, RequestNumber, RoutedRequestHeader, View, decode_replica,
    prepare,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

struct Nothing;

impl Plane for Nothing {
    fn durability(&self, _prepare: &PrepareHeader) -> Durability {
        Durability::Memory
    }
    fn stamp(&mut self, _header: &PrepareHeader, _body: &mut [u8]) {}
    fn accept(&mut self, _prepare: &Message, _source: Source) -> Result<(), &'static str> {
        Ok(())
    }
    fn truncated(&mut self, _from: Op, _removed: &[Message]) {}
    fn promote(&mut self, _request: &FrameBuffer) -> Promotion {
        Promotion::Prepare
    }
}

fn config(replica: u8) -> Config {
    Config {
        cluster: ClusterId(7),
        replica: ReplicaId(replica),
        replica_count: 3,
        group: GroupId(5),
        forward: Forward::Immediately,
        halt_on_fork: false,
        single_in_flight: false,
        limits: Limits {
            prepare_queue: 127,
            ..Limits::default()
        },
        timers: Timers::default(),
        incarnation: 0,
        seed: 1,
    }
}

struct Group {
    replicas: Vec<Replica>,
    frames: VecDeque<(ReplicaId, Message)>,
    out: Vec<Output>,
    /// Prepares of the past, oldest first. Nobody else holds the first ones any more.
    past: VecDeque<Message>,
    number: u64,
}

impl Group {
    fn new() -> Self {
        let open = |replica| Replica::open(config(replica), Boot::fresh()).expect("valid");
        Self {
            replicas: (0..3).map(open).collect(),
            frames: VecDeque::with_capacity(1024),
            out: Vec::with_capacity(64),
            past: VecDeque::with_capacity(1024),
            number: 0,
        }
    }

    fn request(&mut self) -> FrameBuffer {
        self.number += 1;
        let mut header = RoutedRequestHeader::new(Command::Request);
        header.set_client(ClientId(1));
        header.set_session(1);
        header.set_request(RequestNumber(self.number));
        header.set_operation(Operation::SendMessages);
        match self.past.pop_front().map(Message::try_unique) {
            Some(Ok(mut used)) => {
                used.set_header(&header);
                return used;
            }
            Some(Err(held)) => self.past.push_front(held),
            None => {}
        }
        FrameBuffer::from_parts(&header, &[])
    }

    /// Admits `count` empty requests and lets everything that follows happen.
    fn commit(&mut self, count: u64) {
        for _ in 0..count {
            let request = self.request();
            let admission =
                self.replicas[0].admit(request, self.number, 1, &mut Nothing, &mut self.out);
            let Admission::Prepared { op } = admission else {
                panic!("there is room: {admission:?}");
            };
            let prepare = self.replicas[0].log().get(op).expect("it was prepared");
            self.past.push_back(prepare.clone());
            self.after(0);
        }
        while let Some((to, message)) = self.frames.pop_front() {
            let frame = decode_replica(message).expect("own frames");
            let index = usize::from(to.0);
            self.replicas[index].step(Input::Frame(frame), &mut Nothing, &mut self.out);
            self.after(index);
        }
    }

    fn after(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let mut applied = None;
        while let Some(prepare) = replica.next_committed() {
            let op = prepare.header::<PrepareHeader>().op();
            replica.applied(op);
            applied = Some(op);
        }
        if let Some(op) = applied {
            replica.log_mut().evict_through(op);
        }
        for output in self.out.drain(..) {
            if let Output::Send { to, message } = output {
                self.frames.push_back((to, message));
            }
        }
    }
}

fn prepares(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("three cores");
    const BATCH: u64 = 64;
    group.throughput(Throughput::Elements(BATCH));
    let mut cluster = Group::new();
    group.bench_function("prepare to commit", |bencher| {
        bencher.iter(|| cluster.commit(BATCH))
    });
    let status = cluster.replicas[0].status();
    assert_eq!(status.commit_min, status.op_head, "everything is committed");
    println!("digest: op {} commit {}", status.op_head, status.commit_min);
    group.finish();
}

/// A host of many groups as the planes are: a wheel says whom a tick is for.
struct Host {
    replicas: Vec<Replica>,
    ticked_at: Vec<u64>,
    wheel: WakeWheel<usize>,
    /// The tick on which each is to come up.
    filed: Vec<u64>,
    now: u64,
    visits: u64,
    out: Vec<Output>,
}

impl Host {
    /// Backups that heard their primary on staggered ticks, as they do in a running cluster.
    fn new(count: usize) -> Self {
        let open = |_| Replica::open(config(1), Boot::fresh()).expect("valid");
        let mut host = Self {
            replicas: (0..count).map(open).collect(),
            ticked_at: vec![0; count],
            wheel: WakeWheel::default(),
            filed: vec![0; count],
            now: 0,
            visits: 0,
            out: Vec::new(),
        };
        for index in 0..count {
            host.step(index, Input::Tick { wall_micros: 0 });
        }
        host
    }

    fn step(&mut self, index: usize, input: Input) {
        let replica = &mut self.replicas[index];
        let is_tick = u64::from(matches!(input, Input::Tick { .. }));
        let passed = self.now - self.ticked_at[index];
        replica.skip_ticks(passed.saturating_sub(is_tick));
        self.ticked_at[index] = self.now;
        replica.step(input, &mut Nothing, &mut self.out);
        self.out.clear();
        let wake = self.now + replica.ticks_to_wake();
        if !(self.now + 1..=wake).contains(&self.filed[index]) {
            self.filed[index] = wake;
            self.wheel.set(index, wake);
        }
        self.visits += 1;
    }

    fn tick(&mut self) {
        self.now += 1;
        for index in self.wheel.take(self.now) {
            if self.filed[index] != self.now {
                continue;
            }
            self.step(
                index,
                Input::Tick {
                    wall_micros: self.now,
                },
            );
        }
    }

    /// The heartbeats of one tick: every group hears its primary each 50 ticks.
    fn hear(&mut self, heartbeat: &Message) {
        let count = self.replicas.len();
        let mut index = (self.now % 50) as usize;
        while index < count {
            let mut header = *heartbeat.header::<CommitHeader>();
            header.set_timestamp_monotonic(self.now);
            let frame = decode_replica(Message::sealed(header, &[])).expect("own frames");
            self.step(index, Input::Frame(frame));
            index += 50;
        }
    }
}

fn heartbeat() -> Message {
    let mut header = CommitHeader::new(Command::Commit);
    header.frame.set_cluster(ClusterId(7));
    header.set_group(GroupId(5));
    Message::sealed(header, &[])
}

/// What idle groups cost a host: a tick on which none is due, and one with its heartbeats.
fn idle(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("idle groups");
    for count in [1, 1000, 10_000] {
        let mut host = Host::new(count);
        let quiet = host.replicas[0].ticks_to_wake() - 1;
        group.bench_function(format!("tick of {count}, nothing due"), |bencher| {
            bencher.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                let mut left = iterations;
                while left > 0 {
                    // A fresh run up to the tick before the first deadline.
                    let mut wheel = host.wheel.clone();
                    let start = Instant::now();
                    for tick in 1..=quiet.min(left) {
                        black_box(wheel.take(host.now + tick));
                    }
                    spent += start.elapsed();
                    left -= quiet.min(left);
                }
                spent
            });
        });
        let beat = heartbeat();
        group.bench_function(format!("tick of {count} with heartbeats"), |bencher| {
            bencher.iter(|| {
                host.tick();
                host.hear(&beat);
            });
        });
        let view = host.replicas[0].view();
        println!(
            "digest: tick {} visits {} view {view}",
            host.now, host.visits
        );
        assert!(view == View(0), "nobody missed a heartbeat");
    }
    group.finish();
}

/// An op costs the same whatever number of idle groups is on the host.
fn beside_idle(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("one busy group beside idle ones");
    const BATCH: u64 = 64;
    group.throughput(Throughput::Elements(BATCH));
    for count in [1, 100, 1000, 10_000] {
        let mut cluster = Group::new();
        let mut host = Host::new(count);
        let beat = heartbeat();
        group.bench_function(format!("{count} idle"), |bencher| {
            bencher.iter(|| {
                cluster.commit(BATCH);
                // At a million ops a second a tick of 10 ms comes once in 150 batches.
                if cluster.number.is_multiple_of(150 * BATCH) {
                    host.tick();
                    host.hear(&beat);
                }
            });
        });
    }
    group.finish();
}

fn merges(bench: &mut Criterion) {
    let mut parent = Checksum::ZERO;
    let mut entries = Vec::new();
    for op in 1..=128_u64 {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_parent(parent);
        header.set_timestamp(op);
        let message = prepare::build_with_body(header, &[]);
        parent = message.header::<PrepareHeader>().frame.checksum();
        let header = Some(*message.header::<PrepareHeader>());
        entries.push(VoteEntry {
            header,
            nack: false,
            present: true,
        });
    }
    entries.reverse();
    let vote = |replica| Vote {
        replica: ReplicaId(replica),
        log_view: View(1),
        op: Op(128),
        commit: Op(1),
        entries: entries.clone(),
    };
    let votes = [vote(0), vote(1), vote(2)];
    bench.bench_function("merge of three full votes", |bencher| {
        bencher.iter(|| black_box(merge(black_box(&votes), 3, Op(0))));
    });
}

criterion_group!(benches, prepares, idle, beside_idle, merges);
criterion_main!(benches);
