//! Group append and scan. Prints a digest of each result, so that the work stays honest.
//!
//! The disk is in memory: what is measured is this crate, not a device.

use biplane_journal::{
    Disk, DiskCompletion, DiskOp, DiskReply, MemoryDisk, QueueId, Wal, WalConfig, WalOutput,
    recover,
};
use biplane_wire::{Checksum, ClusterId, Command, GroupId, Message, Op, PrepareHeader, prepare};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const OPS: u64 = 1000;
const BODY: usize = 1024;

fn config() -> WalConfig {
    WalConfig::metadata(QueueId(1), ClusterId(1), OPS, 1 << 20)
}

fn chain() -> Vec<Message> {
    let mut parent = Checksum::ZERO;
    let body = vec![0x5a; BODY];
    let mut prepares = Vec::new();
    for op in 1..=OPS {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.frame.set_cluster(ClusterId(1));
        header.set_group(GroupId::METADATA);
        header.set_op(Op(op));
        header.set_parent(parent);
        let message = prepare::build_with_body(header, &body);
        parent = message.generic().frame.checksum();
        prepares.push(message);
    }
    prepares
}

fn empty_log() -> Wal {
    let mut disk = MemoryDisk::new();
    disk.put(&config().path, b"");
    let recovered = recover(&config(), &disk, Op(0)).expect("an empty log opens");
    Wal::open(config(), &recovered, &mut Vec::new())
}

/// Appends `group` prepares between two completions, answering each write at once without
/// doing it. Returns the number of writes and durable ops.
fn append_all(wal: &mut Wal, prepares: &[Message], group: usize) -> (u64, u64) {
    let (mut writes, mut durable) = (0, 0);
    let mut out = Vec::new();
    for together in prepares.chunks(group) {
        for message in together {
            wal.append(message.clone(), &mut out)
                .expect("there is room");
        }
        while let Some(output) = out.pop() {
            match output {
                WalOutput::Disk(request) => {
                    writes += u64::from(matches!(request.op, DiskOp::Write { .. }));
                    let (queue, token) = (request.queue, request.token);
                    let done = DiskCompletion {
                        queue,
                        token,
                        result: Ok(DiskReply::Done),
                    };
                    wal.complete(done, &mut out).expect("it succeeded");
                }
                WalOutput::Durable { .. } => durable += 1,
                WalOutput::Truncated { .. } | WalOutput::Drained { .. } => {}
            }
        }
    }
    (writes, durable)
}

fn bench_append(criterion: &mut Criterion) {
    let prepares = chain();
    let mut group = criterion.benchmark_group("append");
    group.throughput(Throughput::Elements(OPS));
    for size in [1, 8, 64] {
        let digest = append_all(&mut empty_log(), &prepares, size);
        println!(
            "append in groups of {size}: {} writes, {} durable",
            digest.0, digest.1
        );
        group.bench_function(format!("groups of {size}"), |bencher| {
            bencher.iter_batched(
                empty_log,
                |mut wal| append_all(&mut wal, &prepares, size),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn bench_scan(criterion: &mut Criterion) {
    let mut disk = MemoryDisk::new();
    let bytes: Vec<u8> = chain().iter().flat_map(Message::to_vec).collect();
    disk.put(&config().path, &bytes);
    let recovered = recover(&config(), &disk, Op(0)).expect("the log opens");
    println!(
        "scan: {} entries, head {}",
        recovered.entries.len(),
        recovered.head()
    );
    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("intact", |bencher| {
        bencher.iter(|| {
            recover(&config(), &disk, Op(0))
                .expect("the log opens")
                .head()
        });
    });
    // A header in the middle is gone: the scan has to search for the next one.
    disk.flip(&config().path, bytes.len() as u64 / 2 / 1280 * 1280, 1);
    let recovered = recover(&config(), &disk, Op(0)).expect("the log opens");
    println!(
        "damaged scan: {} entries, {:?}",
        recovered.entries.len(),
        recovered.damage
    );
    group.bench_function("with a damaged header", |bencher| {
        bencher.iter(|| {
            recover(&config(), &disk, Op(0))
                .expect("the log opens")
                .head()
        });
    });
    group.finish();
    assert!(disk.poll().is_none());
}

criterion_group!(benches, bench_append, bench_scan);
criterion_main!(benches);
