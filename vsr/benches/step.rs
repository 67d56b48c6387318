//! How fast the core alone is: prepares through a group of three, idle ticks, merges.
//!
//! Three replicas are joined by a vector; frames are passed on as values, without sockets or
//! disks. Each bench ends with a digest of what was committed, so the work stays honest.

use std::collections::VecDeque;
use std::hint::black_box;

use biplane_vsr::suffix_merge::{Vote, VoteEntry, merge};
use biplane_vsr::{
    Admission, Boot, Config, Durability, Forward, Input, Limits, Output, Plane, Promotion, Replica,
    Source, Timers,
};
use biplane_wire::{
    Checksum, ClientId, ClusterId, Command, FrameBuffer, GroupId, Message, Op, Operation,
    PrepareHeader, ReplicaId, RequestNumber, RoutedRequestHeader, View, decode_replica, prepare,
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
    number: u64,
}

impl Group {
    fn new() -> Self {
        let open = |replica| Replica::open(config(replica), Boot::fresh()).expect("valid");
        Self {
            replicas: (0..3).map(open).collect(),
            frames: VecDeque::with_capacity(1024),
            out: Vec::with_capacity(64),
            number: 0,
        }
    }

    /// Admits `count` empty requests and lets everything that follows happen.
    fn commit(&mut self, count: u64) {
        for _ in 0..count {
            self.number += 1;
            let mut header = RoutedRequestHeader::new(Command::Request);
            header.set_client(ClientId(1));
            header.set_session(1);
            header.set_request(RequestNumber(self.number));
            header.set_operation(Operation::SendMessages);
            let request = FrameBuffer::from_parts(&header, &[]);
            let admission =
                self.replicas[0].admit(request, self.number, 1, &mut Nothing, &mut self.out);
            assert!(matches!(admission, Admission::Prepared { .. }));
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
        while let Some(prepare) = replica.next_committed() {
            let op = prepare.header::<PrepareHeader>().op();
            replica.applied(op);
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

fn idle(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("thousand idle groups");
    group.throughput(Throughput::Elements(1000));
    let open = |_| Replica::open(config(1), Boot::fresh()).expect("valid");
    let mut replicas: Vec<Replica> = (0..1000).map(open).collect();
    let mut out = Vec::new();
    let mut ticks = 0_u64;
    group.bench_function("tick", |bencher| {
        bencher.iter(|| {
            ticks += 1;
            for replica in &mut replicas {
                replica.step(Input::Tick { wall_micros: ticks }, &mut Nothing, &mut out);
            }
            out.clear();
        });
    });
    println!("digest: {ticks} ticks, view {}", replicas[0].view());
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

criterion_group!(benches, prepares, idle, merges);
criterion_main!(benches);
