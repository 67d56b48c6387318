//! What a frame costs: typed decode with its seal, prepare identity, batch verification and
//! stamping, deframing, bodies.
//!
//! Each case is measured by criterion, and at the end a table compares its fastest sample with a
//! plain memory copy of as many bytes, measured in the same run: in pieces of at most 256 KiB
//! into one warm buffer, the fastest copy there is. Each case returns a digest that
//! is printed, so that the work cannot be optimised away unnoticed and two runs can be compared.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use biplane_wire::request::ClientRequest;
use biplane_wire::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Bytes a driver reads at once.
const READ_SIZE: usize = 256 * 1024;

/// A case: its name, the bytes it goes over, and the work, which answers with a digest.
struct Case {
    name: &'static str,
    bytes: usize,
    run: Box<dyn FnMut() -> u64>,
}

fn case(name: &'static str, bytes: usize, run: impl FnMut() -> u64 + 'static) -> Case {
    let run = Box::new(run);
    Case { name, bytes, run }
}

fn commit_frame() -> Message {
    let mut header = CommitHeader::new(Command::Commit);
    header.set_commit(Op(7));
    header.set_group(GroupId::METADATA);
    Message::sealed(header, &[])
}

fn prepare_frame(body: usize) -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_operation(Operation::SendMessages);
    header.set_op(Op(9));
    prepare::build_with_body(header, &vec![7; body])
}

/// A batch of `count` messages of `payload` bytes each.
fn batch(count: u32, payload: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for id in 0..count {
        let payload = vec![id as u8; payload];
        builder
            .push(u128::from(id), 1_000 + u64::from(id), &payload, &[])
            .expect("fits");
    }
    builder.finish().expect("within the span")
}

fn headers() -> Vec<Case> {
    let commit = *commit_frame().header_bytes();
    let prepare = *prepare_frame(0).header_bytes();
    let mut to_seal = *CommitHeader::over(&commit);
    let mut to_identify = *PrepareHeader::over(&prepare);
    vec![
        case("header/commit_decode_with_seal", 256, move || {
            u64::from(decode_header::<CommitHeader>(black_box(&commit)).is_ok())
        }),
        case("header/prepare_decode_and_verify", 256, move || {
            let header = decode_header::<PrepareHeader>(black_box(&prepare));
            u64::from(header.is_ok_and(PrepareHeader::identity_is_valid))
        }),
        case("header/seal", 256, move || {
            checksum::seal(black_box(&mut to_seal));
            to_seal.frame.checksum().0 as u64
        }),
        case("header/identity", 256, move || {
            black_box(&mut to_identify).stamp_identity();
            to_identify.frame.checksum().0 as u64
        }),
    ]
}

fn batches() -> Vec<Case> {
    let small = batch(1_000, 100);
    let large = batch(1_000, 1_000);
    let (small_size, size) = (small.len(), large.len());
    let [validated, laid_out, mut stamped, selected] = [(); 4].map(|()| large.clone());
    vec![
        case("batch/validate_1000x100", small_size, move || {
            u64::from(Batch::decode(black_box(&small), Verify::Checksums).is_ok())
        }),
        case("batch/validate_1000x1000", size, move || {
            u64::from(Batch::decode(black_box(&validated), Verify::Checksums).is_ok())
        }),
        case("batch/layout_1000x1000", size, move || {
            u64::from(Batch::decode(black_box(&laid_out), Verify::Layout).is_ok())
        }),
        case("batch/stamp_1000x1000", size, move || {
            u64::from(stamp_batch(black_box(&mut stamped), 7, 100, 5).is_ok())
        }),
        case("batch/select_half_1000x1000", size, move || {
            let view = Batch::decode(&selected, Verify::Layout).expect("valid");
            let query = black_box(BatchQuery::Offset(500));
            u64::from(view.select(query, u64::MAX, 1_000).count())
        }),
    ]
}

/// Sends `stream` through a deframer as a driver does: into the slice it offers, in reads of
/// at most [`READ_SIZE`].
fn drive(deframer: &mut Deframer, stream: &[u8], take: impl Fn(&mut Deframer) -> u64) -> u64 {
    let mut left = stream;
    let mut sizes = 0;
    while !left.is_empty() {
        let room = deframer.read_slice();
        let count = room.len().min(left.len()).min(READ_SIZE);
        let (read, rest) = left.split_at(count);
        room[..count].copy_from_slice(read);
        deframer.advance(count);
        left = rest;
        sizes += take(deframer);
    }
    sizes
}

fn borrowed(deframer: &mut Deframer) -> u64 {
    let mut sizes = 0;
    while let Ok(Some(frame)) = deframer.next_ref() {
        sizes += black_box(frame).size() as u64;
    }
    sizes
}

fn owned(deframer: &mut Deframer) -> u64 {
    let mut sizes = 0;
    while let Ok(Some(frame)) = deframer.next() {
        sizes += black_box(frame).size() as u64;
    }
    sizes
}

fn deframing() -> Vec<Case> {
    let megabyte = prepare_frame(1_000_000).to_vec().repeat(16);
    let mebibyte = prepare_frame(1024 * 1024).to_vec().repeat(16);
    let small = commit_frame().to_vec().repeat(4_096);
    let mut mixed = Vec::new();
    for body in [
        0, 1_000, 0, 0, 20_000, 0, 100, 0, 262_144, 0, 4_000, 1_000_000,
    ] {
        mixed.extend_from_slice(&commit_frame().to_vec());
        mixed.extend_from_slice(&prepare_frame(body).to_vec());
    }
    let streams = [
        ["deframe/1MB_borrowed", "deframe/1MB_owned"],
        ["deframe/1MiB_borrowed", "deframe/1MiB_owned"],
        ["deframe/mixed_borrowed", "deframe/mixed_owned"],
        ["deframe/commits_borrowed", "deframe/commits_owned"],
    ];
    let mut cases = Vec::new();
    for (names, stream) in streams.iter().zip([megabyte, mebibyte, mixed, small]) {
        let stream: Rc<[u8]> = stream.into();
        for (name, takes) in names.iter().zip([borrowed, owned]) {
            let stream = Rc::clone(&stream);
            let mut deframer = Deframer::new(FRAME_SIZE_MAX_DEFAULT);
            cases.push(case(name, stream.len(), move || {
                drive(&mut deframer, black_box(&stream), takes)
            }));
        }
    }
    cases
}

fn bodies() -> Vec<Case> {
    let mut body = Vec::new();
    let mut options = TlvBuilder::new();
    options.option("durability", TlvKind::STRING, b"persisted");
    options.option("segment_size", TlvKind::U64, &[0; 8]);
    let create = request::CreateTopic {
        stream: Identifier::Numeric(1),
        partitions: 3,
        name: Name::new("events").expect("short"),
        options: Options::parse(options.bytes()).expect("valid"),
    };
    codec::Codec::write(&create, &mut body);
    let size = body.len();
    let header = *prepare_frame(0).header::<PrepareHeader>();
    vec![
        case("body/create_topic", size, move || {
            u64::from(ClientRequest::decode(ClientCode::CreateTopic, black_box(&body)).is_ok())
        }),
        case("frame/request_to_prepare_in_place", 4_352, move || {
            let mut buffer = FrameBuffer::zeroed(HEADER_SIZE + 26 + 4_096);
            buffer.reframe(26);
            prepare::build(buffer, header).size() as u64
        }),
    ]
}

/// The fastest time of one run among the samples of criterion.
fn fastest(c: &mut Criterion, name: &str, bytes: usize, run: &mut dyn FnMut() -> u64) -> Duration {
    let best = Cell::new(Duration::MAX);
    let mut group = c.benchmark_group("wire");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(name, |b| {
        b.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds {
                black_box(run());
            }
            let elapsed = start.elapsed();
            let one = elapsed.as_nanos() / u128::from(rounds);
            best.set(best.get().min(Duration::from_nanos(one as u64)));
            elapsed
        });
    });
    group.finish();
    best.get()
}

fn all(c: &mut Criterion) {
    let mut lines = Vec::new();
    let cases = [headers(), batches(), deframing(), bodies()];
    for mut case in cases.into_iter().flatten() {
        let digest = (case.run)();
        let time = fastest(c, case.name, case.bytes, &mut case.run);
        let source = vec![1_u8; case.bytes];
        let mut target = vec![0_u8; case.bytes.min(READ_SIZE)];
        let mut copy = || {
            for piece in black_box(&source).chunks(READ_SIZE) {
                black_box(&mut target)[..piece.len()].copy_from_slice(piece);
            }
            0
        };
        let copied = fastest(c, &format!("copy_for/{}", case.name), case.bytes, &mut copy);
        let per_second = case.bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9;
        let fraction = copied.as_secs_f64() / time.as_secs_f64().max(1e-9) * 100.0;
        lines.push(format!(
            "{:<36} {:>12} ns {:>8.2} GB/s {:>7.1} % of a copy   digest {digest}",
            case.name,
            time.as_nanos(),
            per_second,
            fraction,
        ));
    }
    println!("\nfastest run of each case, and a copy of as many bytes in comparison:");
    for line in lines {
        println!("{line}");
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = all
}
criterion_main!(benches);
