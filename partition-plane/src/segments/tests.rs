//! Roll rule, index entries and lookups.

use super::*;

fn batch(base_offset: u64, count: u32, len: u64) -> BatchMeta {
    BatchMeta {
        base_offset,
        base_timestamp: 1000 + base_offset,
        count,
        len,
    }
}

fn run(lens: &[u64]) -> Vec<BatchMeta> {
    (0..)
        .zip(lens)
        .map(|(i, len)| batch(i * 2, 2, *len))
        .collect()
}

fn flush(segments: &mut Segments, batches: &[BatchMeta]) -> FlushPlan {
    let plan = segments.plan(batches.to_vec());
    segments.apply(plan.clone());
    plan
}

#[test]
fn two_batches_of_the_specification_roll_by_bytes_alone() {
    let batches = [
        BatchMeta {
            len: 363,
            ..batch(0, 2, 0)
        },
        BatchMeta {
            len: 309,
            ..batch(2, 1, 0)
        },
    ];
    for segment_size in [300, 363] {
        let mut together = Segments::fresh(0, segment_size);
        flush(&mut together, &batches);
        let mut apart = Segments::fresh(0, segment_size);
        flush(&mut apart, &batches[..1]);
        assert_eq!(apart.active(), &Segment::empty(2));
        flush(&mut apart, &batches[1..]);
        let bounds = |segments: &Segments| -> Vec<(u64, u64, bool)> {
            segments
                .iter()
                .map(|s| (s.start, s.size, s.sealed))
                .collect()
        };
        assert_eq!(
            bounds(&together)[..2],
            [(0, 363, true), (2, 309, segment_size < 309)]
        );
        assert_eq!(bounds(&together), bounds(&apart));
    }
    let mut one = Segments::fresh(0, 1 << 20);
    flush(&mut one, &batches);
    assert_eq!(
        (one.count(), one.active().size, one.next_offset()),
        (1, 672, 3)
    );
}

#[test]
fn segment_bounds_do_not_depend_on_grouping() {
    let lens = [100, 500, 30, 470, 999, 1, 1000, 1500, 20];
    let batches = run(&lens);
    let mut whole = Segments::fresh(0, 1000);
    flush(&mut whole, &batches);
    for split in 1..batches.len() {
        let mut parts = Segments::fresh(0, 1000);
        flush(&mut parts, &batches[..split]);
        flush(&mut parts, &batches[split..]);
        let starts = |s: &Segments| s.iter().map(|s| (s.start, s.size)).collect::<Vec<_>>();
        assert_eq!(starts(&whole), starts(&parts), "split at {split}");
    }
}

#[test]
fn one_index_entry_per_chunk_and_segment() {
    let mut segments = Segments::fresh(0, 1000);
    let batches = run(&[600, 500, 10]);
    let plan = flush(&mut segments, &batches);
    let shapes: Vec<_> = plan
        .parts
        .iter()
        .map(|p| (p.start, p.creates, p.position, p.batches.clone()))
        .collect();
    assert_eq!(shapes, [(0, false, 0, 0..2), (4, true, 0, 2..3)]);
    let entry = |offset| IndexEntry {
        offset,
        timestamp: 1000 + offset,
        position: 0,
    };
    assert_eq!(plan.parts[0].index, Some((0, entry(0))));
    assert_eq!(plan.parts[1].index, Some((0, entry(4))));
    let plan = flush(&mut segments, &[batch(6, 1, 50)]);
    let (at, entry) = plan.parts[0].index.unwrap();
    assert_eq!((at, entry.position, plan.parts[0].position), (24, 10, 10));
}

#[test]
fn a_full_recovered_segment_is_sealed_before_the_next_append() {
    let mut full = Segment::empty(0);
    full.append(&batch(0, 5, 1200));
    let mut segments = Segments::recovered(vec![full], 1000);
    let plan = flush(&mut segments, &[batch(5, 1, 10)]);
    assert_eq!(plan.parts.len(), 1);
    assert_eq!((plan.parts[0].start, plan.parts[0].creates), (5, true));
    assert!(segments.iter().next().unwrap().sealed);
}

#[test]
fn lookups_find_a_batch_at_or_before() {
    let mut segments = Segments::fresh(0, 200 << 10);
    let lens: Vec<u64> = (0..10).map(|_| 50 << 10).collect();
    flush(&mut segments, &run(&lens));
    assert_eq!(segments.count(), 3);
    let at = |offset| segments.locate(offset).map(|l| (l.start, l.position));
    assert_eq!(at(0), Some((0, 0)));
    assert_eq!(at(3), Some((0, 0)));
    assert_eq!(at(4), Some((0, 100 << 10)));
    assert_eq!(at(8), Some((8, 0)));
    assert_eq!(at(19), Some((16, 0)));
    assert_eq!(at(20), None);
    let on = |timestamp| {
        segments
            .locate_timestamp(timestamp)
            .map(|l| (l.start, l.position))
    };
    assert_eq!(on(0), Some((0, 0)));
    assert_eq!(on(1004), Some((0, 100 << 10)));
    assert_eq!(on(1007), Some((8, 0)));
    assert_eq!(on(1018), Some((16, 0)));
    assert_eq!(on(1019), None);
    assert_eq!(segments.after(0).map(|l| l.start), Some(8));
}

#[test]
fn removal_spares_the_active_segment_and_reads_fall_forward() {
    let mut segments = Segments::fresh(0, 100);
    flush(&mut segments, &run(&[100, 100, 50]));
    assert_eq!(segments.remove_oldest().unwrap().start, 0);
    assert_eq!(segments.locate(0).map(|l| l.start), Some(2));
    assert_eq!(segments.remove_oldest().unwrap().start, 2);
    assert_eq!(segments.remove_oldest(), None);
    assert_eq!(segments.first_offset(), Some(4));
}

#[test]
fn index_entries_survive_a_round_trip_without_their_torn_tail() {
    let entries = [1, 2].map(|i| IndexEntry {
        offset: i,
        timestamp: 9 * i,
        position: 70 * i,
    });
    let mut bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
    bytes.extend([7; 23]);
    assert_eq!(IndexEntry::decode_all(&bytes), entries);
}
