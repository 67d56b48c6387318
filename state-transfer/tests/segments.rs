//! The walk over a SEGMENT_LOG artifact: the vector of chapter 04 section 8.8, every way to cut
//! it into chunks, and every defect.

mod support;

use biplane_state_transfer::{SegmentDefect, SegmentWalk, WalkedBatch, WalkedSegment};
use biplane_wire::batch::{BatchBuilder, stamp_batch};
use support::golden;

const SEGMENT: &str = include_str!("golden/segment.txt");
const BATCH_MAX: u64 = 1 << 20;

fn walk(
    frontier: u64,
    bytes: &[u8],
    chunk: usize,
) -> Result<(Vec<WalkedBatch>, WalkedSegment), SegmentDefect> {
    let mut walk = SegmentWalk::new(frontier, BATCH_MAX);
    let mut batches = Vec::new();
    for chunk in bytes.chunks(chunk) {
        walk.feed(chunk, |batch| batches.push(batch))?;
    }
    walk.finish().map(|segment| (batches, segment))
}

/// A segment of batches with these message counts.
fn segment(base_offset: u64, counts: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = base_offset;
    for count in counts {
        let mut builder = BatchBuilder::new();
        for index in 0..*count {
            let payload = vec![index as u8; 10 + index as usize];
            builder
                .push(u128::from(index) + 1, 1_000, &payload, &[])
                .expect("it fits");
        }
        let mut batch = builder.finish().expect("it fits");
        stamp_batch(&mut batch, 0, next, 2_000_u64.wrapping_add(next)).expect("a sound batch");
        bytes.extend_from_slice(&batch);
        next = next.wrapping_add(u64::from(*count));
    }
    bytes
}

#[test]
fn vector_walks_to_its_end() {
    let bytes = golden(SEGMENT);
    assert_eq!(biplane_wire::xxh3(&bytes), 0x034b_c13b_aef5_d4eb);
    let (batches, segment) = walk(1000, &bytes, 309).expect("a sound segment");
    let batch = WalkedBatch {
        position: 0,
        base_offset: 1000,
        base_timestamp: 1_694_968_446_131_680,
        length: 309,
        message_count: 1,
        checksum: u64::from_le_bytes(*bytes[40..].first_chunk().expect("a header")),
    };
    assert_eq!(batches, [batch]);
    assert_eq!(
        (segment.base_offset, segment.next_offset, segment.length),
        (1000, 1001, 309)
    );
}

#[test]
fn vector_is_refused_under_another_frontier_or_cut() {
    let bytes = golden(SEGMENT);
    let refused = walk(999, &bytes, 309).expect_err("it starts at 1000");
    let expected = SegmentDefect::Offset {
        position: 0,
        base_offset: 1000,
        expected: 999,
    };
    assert_eq!(refused, expected);
    for end in 1..bytes.len() {
        let refused = walk(1000, &bytes[..end], 100).expect_err("it is cut");
        assert_eq!(
            refused,
            SegmentDefect::Incomplete { position: 0 },
            "at {end}"
        );
    }
    assert_eq!(walk(1000, &[], 1), Err(SegmentDefect::Empty));
}

#[test]
fn every_chunk_size_sees_the_same_batches() {
    let bytes = segment(50, &[1, 3, 2, 7]);
    let whole = walk(50, &bytes, bytes.len()).expect("a sound segment");
    assert_eq!(whole.0.len(), 4);
    assert_eq!((whole.1.next_offset, whole.1.batches), (63, 4));
    assert_eq!(whole.1.last_timestamp, 2_000 + 56);
    for chunk in 1..=bytes.len() {
        assert_eq!(
            walk(50, &bytes, chunk),
            Ok(whole.clone()),
            "chunks of {chunk}"
        );
    }
}

#[test]
fn every_flip_of_covered_bytes_is_refused() {
    let bytes = segment(0, &[2, 1]);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        assert!(walk(0, &flipped, 64).is_err(), "byte {at}");
    }
}

#[test]
fn holes_and_repetitions_are_refused() {
    let [first, second, third] = [segment(0, &[2]), segment(2, &[2]), segment(4, &[2])];
    assert!(walk(0, &[&first[..], &second, &third].concat(), 99).is_ok());
    let hole = walk(0, &[&first[..], &third].concat(), 99).expect_err("a hole");
    assert!(matches!(
        hole,
        SegmentDefect::Offset {
            base_offset: 4,
            expected: 2,
            ..
        }
    ));
    let twice = walk(0, &[&first[..], &first].concat(), 99).expect_err("an overlap");
    assert!(matches!(
        twice,
        SegmentDefect::Offset {
            base_offset: 0,
            expected: 2,
            ..
        }
    ));
}

#[test]
fn declared_lengths_are_not_trusted() {
    let mut bytes = segment(0, &[1]);
    for length in [0, 255, BATCH_MAX + 1, u64::MAX] {
        bytes[32..40].copy_from_slice(&length.to_le_bytes());
        let refused = walk(0, &bytes, 7).expect_err("no such batch");
        assert_eq!(
            refused,
            SegmentDefect::BatchLength {
                position: 0,
                length
            }
        );
    }
}

#[test]
fn offsets_do_not_run_over() {
    let bytes = segment(u64::MAX - 1, &[2]);
    let refused = walk(u64::MAX - 1, &bytes, 99).expect_err("no offset is left");
    assert_eq!(refused, SegmentDefect::OffsetOverflow { position: 0 });
}
