//! What a frame costs in allocations, counted by an allocator: decoding, verifying, stamping and
//! borrowed deframing take none; a frame that is taken out of the deframer to live on takes its
//! buffer and its reference count.

mod support;

use allocation_counter::measure;
use biplane_wire::request::{ClientRequest, MetadataBody};
use biplane_wire::*;
use support::{captured_exchanges, captured_replica_frames};

fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

#[test]
fn typed_decode_and_every_check_allocate_nothing() {
    for captured in captured_replica_frames() {
        let message = captured.message();
        let bytes = captured.bytes.as_slice();
        let count = allocations(|| {
            let borrowed = FrameRef::parse(bytes).expect("captured");
            assert!(Summary::from(borrowed).verdict().is_acceptable());
            let Ok(frame) = decode_replica(message) else {
                return;
            };
            assert!(frame.route().is_some());
            match &frame {
                ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => {
                    let header = typed.header();
                    prepare::verify_ingest(header, typed.body()).expect("captured");
                    if header.operation().is_metadata_plane() {
                        MetadataBody::decode(header.operation(), typed.body()).expect("captured");
                    }
                }
                ReplicaFrame::DoViewChange(typed) => {
                    let suffix = Suffix::of_do_view_change(typed).expect("captured");
                    assert_eq!(suffix.iter().count(), suffix.len());
                }
                ReplicaFrame::StartView(typed) => {
                    Suffix::of_start_view(typed).expect("captured");
                }
                ReplicaFrame::StateTransferTarget(typed) if typed.header().available() => {
                    let manifest = Manifest::decode(typed.body()).expect("captured");
                    assert_eq!(manifest.iter().count(), manifest.len());
                }
                _ => {}
            }
        });
        assert_eq!(count, 0, "{}", captured.kind);
    }
}

#[test]
fn requests_allocate_nothing() {
    for exchange in captured_exchanges() {
        let request = exchange.request;
        let count = allocations(|| {
            let typed = decode_client(request).expect("captured");
            ClientRequest::of(typed.header(), typed.body()).expect("captured");
        });
        assert_eq!(count, 0, "{}", exchange.name);
    }
}

#[test]
fn batches_allocate_nothing() {
    let mut builder = BatchBuilder::new();
    for id in 0..100 {
        builder.push(id, 5, &[7; 300], &[]).expect("fits");
    }
    let mut batch = builder.finish().expect("fits");
    let count = allocations(|| {
        let view = Batch::decode(&batch, Verify::Checksums).expect("sound");
        assert_eq!(view.frames().count(), 100);
        let selection = view.select(BatchQuery::Offset(50), 80, 1_000);
        assert_eq!(selection.count(), 31);
        stamp_batch(&mut batch, 1, 2, 3).expect("sound");
    });
    assert_eq!(count, 0);
}

/// Small frames, and large ones that need a buffer of their own.
fn stream() -> (Vec<u8>, usize) {
    let mut stream = Vec::new();
    let mut frames = 0;
    for body in [0, 1, 700, 40_000, 3, 200_000, 100_000] {
        let frame = Message::from_parts(ReplyHeader::new(Command::Reply), &vec![5; body]);
        stream.extend_from_slice(&frame.to_vec());
        frames += 1;
    }
    (stream, frames)
}

#[test]
fn borrowed_deframing_allocates_nothing_per_frame() {
    let (stream, frames) = stream();
    let mut deframer = Deframer::new(FRAME_SIZE_MAX_DEFAULT);
    let pass = |deframer: &mut Deframer| {
        let mut seen = 0;
        let mut left = stream.as_slice();
        while seen < frames {
            let taken = deframer.push(left);
            left = &left[taken..];
            while let Some(frame) = deframer.next_ref().expect("sound") {
                assert_eq!(frame.body().len(), frame.size() - HEADER_SIZE);
                seen += 1;
            }
        }
    };
    // The first pass takes the staging buffer and the largest frame's.
    assert!(allocations(|| pass(&mut deframer)) > 0);
    let count = allocations(|| {
        for _ in 0..50 {
            pass(&mut deframer);
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn an_owned_frame_takes_its_buffer_and_its_reference_count() {
    let frame = Message::from_parts(ReplyHeader::new(Command::Reply), &[5; 700]).to_vec();
    let stream = frame.repeat(40);
    let mut deframer = Deframer::new(FRAME_SIZE_MAX_DEFAULT);
    deframer.push(&frame);
    deframer.next().expect("sound").expect("whole");
    let mut seen = 0;
    let count = allocations(|| {
        deframer.push(&stream);
        while let Some(message) = deframer.next().expect("sound") {
            drop(decode_replica(message));
            seen += 1;
        }
    });
    assert_eq!(seen, 40);
    assert_eq!(count, 2 * seen);
}
