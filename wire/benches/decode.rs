//! What a frame costs: typed decode, prepare checks, batch verification, stamping, slicing,
//! deframing. Each group prints a digest of its results, so that the work cannot be optimised
//! away unnoticed and two runs can be compared.

use std::hint::black_box;

use biplane_wire::*;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const MESSAGES: u32 = 1_000;

fn commit_frame() -> Message {
    let mut header = CommitHeader::new(Command::Commit);
    header.set_commit(Op(7));
    header.set_group(GroupId::METADATA);
    Message::sealed(header, &[])
}

fn prepare_frame() -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_operation(Operation::CreateStream);
    header.set_op(Op(9));
    header.set_group(GroupId::METADATA);
    prepare::build_with_body(header, b"\x06orders")
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for id in 0..MESSAGES {
        let payload = [id as u8; 100];
        builder
            .push(u128::from(id), 1_000 + u64::from(id), &payload, &[])
            .expect("fits");
    }
    builder.finish().expect("within the span")
}

fn headers(c: &mut Criterion) {
    let commit = commit_frame();
    let prepare = prepare_frame();
    let digest = xxh3(&[commit.to_vec(), prepare.to_vec()].concat());
    println!("frames digest {digest:016x}");
    c.bench_function("header/commit_view_and_seal", |b| {
        let header = *commit.header::<CommitHeader>();
        b.iter(|| {
            let header = black_box(&header);
            (seal_is_valid(header), header.validate().is_ok())
        });
    });
    c.bench_function("header/prepare_identity", |b| {
        b.iter(|| black_box(prepare.header::<PrepareHeader>()).identity_is_valid());
    });
    c.bench_function("frame/decode_commit", |b| {
        b.iter(|| decode_replica(black_box(commit.clone())).is_ok());
    });
    c.bench_function("frame/decode_prepare", |b| {
        b.iter(|| decode_replica(black_box(prepare.clone())).is_ok());
    });
}

fn batches(c: &mut Criterion) {
    let batch = batch();
    println!("batch digest {:016x}", xxh3(&batch));
    let mut group = c.benchmark_group("batch");
    group.throughput(Throughput::Bytes(batch.len() as u64));
    group.bench_function("verify", |b| {
        b.iter(|| Batch::decode(black_box(&batch), Verify::Checksums).is_ok());
    });
    group.bench_function("layout", |b| {
        b.iter(|| Batch::decode(black_box(&batch), Verify::Layout).is_ok());
    });
    group.bench_function("stamp", |b| {
        let mut batch = batch.clone();
        b.iter(|| stamp_batch(black_box(&mut batch), 7, 100, 5).is_ok());
    });
    let view = Batch::decode(&batch, Verify::Layout).expect("valid");
    group.bench_function("select_half", |b| {
        b.iter(|| {
            view.select(black_box(BatchQuery::Offset(500)), u64::MAX, 1_000)
                .count()
        });
    });
    group.finish();
}

fn deframe(c: &mut Criterion) {
    let one = commit_frame().to_vec();
    let stream = one.repeat(STAGING_SIZE / one.len());
    println!("stream digest {:016x}", xxh3(&stream));
    let mut group = c.benchmark_group("deframe");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    group.bench_function("small_frames", |b| {
        let mut deframer = Deframer::new(FRAME_SIZE_MAX_DEFAULT);
        b.iter(|| {
            deframer.push(black_box(&stream));
            let mut count = 0;
            while let Ok(Some(_)) = deframer.next() {
                count += 1;
            }
            count
        });
    });
    group.finish();
    c.bench_function("frame/request_to_prepare_in_place", |b| {
        let header = *prepare_frame().header::<PrepareHeader>();
        let make = || FrameBuffer::zeroed(HEADER_SIZE + 26 + 4_096);
        let build = |mut buffer: FrameBuffer| {
            buffer.reframe(26);
            prepare::build(buffer, header)
        };
        b.iter_batched(make, build, BatchSize::SmallInput);
    });
}

criterion_group!(benches, headers, batches, deframe);
criterion_main!(benches);
