//! The poll table of chapter 06 section 23.8, the slice of 23.7 and edges of the ceiling.

use biplane_journal::ReadBytes;
use biplane_wire::xxh3;

use super::*;
use crate::batch::{BatchHeader, verify_first};
use crate::io::concat_parts;
use crate::testing::{T, segment_of_two, stamped};

struct Bytes(ReadBytes);

impl BatchSource for Bytes {
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn whole(&self) -> BodyPart {
        BodyPart::Read(self.0.clone())
    }

    fn range(&self, range: Range<usize>) -> Option<BodyPart> {
        self.0.slice(range).map(BodyPart::Read)
    }
}

fn poll_of(
    log: &[u8],
    strategy: Strategy,
    count: u32,
    committed: u64,
    stored: Option<u64>,
) -> PollReply {
    let start = resolve(strategy, count, Some(committed), stored);
    let mut selection = Selection::new(start, count, committed, usize::MAX);
    let mut rest = log;
    while let Some(header) = BatchHeader::read(rest) {
        let (batch, after) = rest.split_at(header.length as usize);
        rest = after;
        if selection.offer(&header.meta(), &Bytes(ReadBytes::copy_of(batch))) == Taken::Done {
            break;
        }
    }
    selection.finish(3, committed)
}

fn offsets(reply: &PollReply) -> Vec<u64> {
    let body = concat_parts(&reply.body);
    assert_eq!(body.len(), reply.body_len);
    assert_eq!(body[12..16], reply.count.to_le_bytes());
    let mut rest = &body[PREFIX_BYTES..];
    let mut out = Vec::new();
    while !rest.is_empty() {
        let header = verify_first(rest).unwrap();
        let mut at = BATCH_HEADER;
        for _ in 0..header.count {
            let delta = u32::from_le_bytes(rest[at + 24..at + 28].try_into().unwrap());
            let len = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
            at += 48 + len(at + 32) + len(at + 36);
            out.push(header.base_offset + u64::from(delta));
        }
        rest = &rest[header.length as usize..];
    }
    assert_eq!(reply.last_offset, out.last().copied());
    out
}

const BATCH_HEADER: usize = 256;

#[test]
fn poll_table_of_the_two_batch_segment() {
    let log = segment_of_two();
    let poll = |strategy, count, stored| poll_of(&log, strategy, count, 2, stored);
    for (strategy, count, stored, want) in [
        (Strategy::First, 1, None, vec![0]),
        (Strategy::First, 10, None, vec![0, 1, 2]),
        (Strategy::Next, 10, None, vec![0, 1, 2]),
        (Strategy::Offset(0), 10, None, vec![0, 1, 2]),
        (Strategy::Last, 10, None, vec![0, 1, 2]),
        (Strategy::Timestamp(T + 100), 10, None, vec![0, 1, 2]),
        (Strategy::Timestamp(0), 10, None, vec![0, 1, 2]),
        (Strategy::Offset(1), 10, None, vec![1, 2]),
        (Strategy::Last, 2, None, vec![1, 2]),
        (Strategy::Last, 1, None, vec![2]),
        (Strategy::Timestamp(T + 101), 10, None, vec![2]),
        (Strategy::Timestamp(T + 200), 10, None, vec![2]),
        (Strategy::Next, 10, Some(1), vec![2]),
        (Strategy::Offset(3), 10, None, vec![]),
        (Strategy::Timestamp(T + 201), 10, None, vec![]),
        (Strategy::Next, 10, Some(2), vec![]),
        (Strategy::Next, 10, Some(u64::MAX), vec![]),
        (Strategy::First, 0, None, vec![]),
        (Strategy::Last, 0, None, vec![]),
    ] {
        assert_eq!(
            offsets(&poll(strategy, count, stored)),
            want,
            "{strategy:?} {count} {stored:?}"
        );
    }
    let whole = concat_parts(&poll(Strategy::First, 10, None).body);
    assert_eq!((whole.len(), xxh3(&whole)), (688, 0xa59b_79e9_e255_0586));
    let tail = concat_parts(&poll(Strategy::Offset(1), 10, None).body);
    assert_eq!((tail.len(), xxh3(&tail)), (635, 0xc41c_590c_0d2d_1623));
    let empty = concat_parts(&poll(Strategy::Offset(3), 10, None).body);
    assert_eq!(empty, prefix(3, 2, 0));
}

#[test]
fn slice_of_the_stamped_batch_is_the_vector() {
    let log = stamped(&[0, 1], T, 3, 100, T + 123_456);
    let reply = poll_of(&log, Strategy::Offset(101), 10, 101, None);
    let body = concat_parts(&reply.body);
    assert_eq!((body.len(), xxh3(&body)), (326, 0xedf9_c947_fd99_60d6));
}

#[test]
fn nothing_above_the_ceiling_is_taken() {
    let log = segment_of_two();
    assert_eq!(
        offsets(&poll_of(&log, Strategy::First, 10, 1, None)),
        [0, 1]
    );
    // A ceiling inside a batch cannot come from a commit, yet it cuts.
    assert_eq!(offsets(&poll_of(&log, Strategy::First, 10, 0, None)), [0]);
    assert_eq!(resolve(Strategy::First, 10, None, None), Start::Nothing);
}

#[test]
fn start_below_the_oldest_message_falls_forward() {
    let log = segment_of_two()[363..].to_vec();
    for strategy in [Strategy::First, Strategy::Offset(0)] {
        assert_eq!(offsets(&poll_of(&log, strategy, 10, 2, None)), [2]);
    }
}

#[test]
fn a_hole_between_batches_ends_the_run() {
    let mut log = stamped(&[0, 1], T, 3, 0, T + 1);
    log.extend(stamped(&[0, 1], T, 3, 4, T + 2));
    assert_eq!(
        offsets(&poll_of(&log, Strategy::First, 10, 5, None)),
        [0, 1]
    );
}

#[test]
fn count_cuts_inside_a_batch_and_across_batches() {
    let mut log = stamped(&[0, 1, 2, 3], T, 3, 0, T + 1);
    log.extend(stamped(&[0, 1, 2, 3], T, 3, 4, T + 2));
    for from in 0..8u64 {
        for count in 1..9u32 {
            let reply = poll_of(&log, Strategy::Offset(from), count, 7, None);
            let want = (8 - from).min(u64::from(count));
            assert_eq!(
                (u64::from(reply.count), reply.last_offset),
                (want, Some(from + want - 1))
            );
            verify_all(&concat_parts(&reply.body)[PREFIX_BYTES..]);
        }
    }
}

fn verify_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let header = verify_first(bytes).unwrap();
        bytes = &bytes[header.length as usize..];
    }
}
