//! Which of the oldest segments may go (chapter 06 sections 15.1 and 15.2). Pure.
//!
//! The active segment never goes, nor one that ends above the lowest stored position: a stuck
//! consumer blocks retention.

use crate::limits::{Limits, TopicOptions};
use crate::segments::{Segment, Segments};

/// The facts of one pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// Wall clock in microseconds.
    pub(crate) now_micros: u64,
    /// Age after which messages may go; 0 and `u64::MAX` for never.
    pub(crate) message_expiry: u64,
    /// Sealed bytes above which the oldest go, if there is a bound.
    pub(crate) size_max: Option<u64>,
    /// Lowest stored position.
    pub(crate) barrier: Option<u64>,
    /// Segments one pass may remove.
    pub(crate) segments_max: usize,
}

/// The bound on the sealed bytes of one partition.
pub(crate) fn partition_bytes_max(options: &TopicOptions, limits: &Limits) -> Option<u64> {
    let total = options.max_topic_size;
    if total == 0 || total == u64::MAX {
        return None;
    }
    let share = total / u64::from(options.partitions_count.max(1));
    Some(
        share.max(
            options
                .segment_size
                .saturating_add(limits.message_bytes_max as u64),
        ),
    )
}

/// How many of the oldest segments a pass removes.
pub(crate) fn expired(segments: &Segments, pass: &Pass) -> usize {
    let sealed = segments.count() - 1;
    let mut bytes: u64 = segments
        .iter()
        .take(sealed)
        .map(|segment| segment.size)
        .sum();
    let mut count = 0;
    for segment in segments.iter().take(sealed.min(pass.segments_max)) {
        let too_old = is_expired(segment, pass);
        let too_many = pass.size_max.is_some_and(|most| bytes > most);
        if !(too_old || too_many) || is_held(segment, pass.barrier) {
            break;
        }
        bytes -= segment.size;
        count += 1;
    }
    count
}

/// How many of the oldest segments end at or below `up_to`.
pub(crate) fn up_to(
    segments: &Segments,
    up_to: u64,
    barrier: Option<u64>,
    segments_max: usize,
) -> usize {
    let sealed = segments.count() - 1;
    let gone = |segment: &&Segment| {
        segment.end().is_none_or(|end| end <= up_to) && !is_held(segment, barrier)
    };
    segments
        .iter()
        .take(sealed.min(segments_max))
        .take_while(gone)
        .count()
}

/// End offset of the `count`-th oldest sealed segment, clamped to those there are.
pub(crate) fn sealed_end(segments: &Segments, count: u32) -> Option<u64> {
    let sealed = segments.count() - 1;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(sealed);
    segments
        .iter()
        .take(count)
        .next_back()
        .and_then(Segment::end)
}

fn is_expired(segment: &Segment, pass: &Pass) -> bool {
    let never = pass.message_expiry == 0 || pass.message_expiry == u64::MAX;
    let until = segment.max_timestamp.saturating_add(pass.message_expiry);
    !never && segment.max_timestamp != 0 && until <= pass.now_micros
}

fn is_held(segment: &Segment, barrier: Option<u64>) -> bool {
    barrier.is_some_and(|barrier| segment.end().is_some_and(|end| end > barrier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::BatchMeta;

    /// Four sealed segments of 100 bytes with 10 messages each, and an active one.
    fn segments() -> Segments {
        let mut segments = Segments::fresh(0, 100);
        let batches = (0..5).map(|i| BatchMeta {
            base_offset: i * 10,
            base_timestamp: 1000 * (i + 1),
            count: 10,
            len: if i < 4 { 100 } else { 50 },
        });
        let plan = segments.plan(batches.collect());
        segments.apply(plan);
        assert_eq!(segments.count(), 5);
        segments
    }

    const IDLE: Pass = Pass {
        now_micros: 0,
        message_expiry: u64::MAX,
        size_max: None,
        barrier: None,
        segments_max: 16,
    };

    #[test]
    fn age_removes_leading_segments_and_never_the_active_one() {
        let segments = segments();
        let at = |now_micros| Pass {
            now_micros,
            message_expiry: 500,
            ..IDLE
        };
        assert_eq!(expired(&segments, &at(1499)), 0);
        assert_eq!(expired(&segments, &at(1500)), 1);
        assert_eq!(expired(&segments, &at(3500)), 3);
        assert_eq!(expired(&segments, &at(u64::MAX)), 4);
        assert_eq!(
            expired(
                &segments,
                &Pass {
                    message_expiry: 0,
                    ..at(u64::MAX)
                }
            ),
            0
        );
        assert_eq!(
            expired(
                &segments,
                &Pass {
                    segments_max: 2,
                    ..at(u64::MAX)
                }
            ),
            2
        );
    }

    #[test]
    fn size_removes_until_the_bound_holds() {
        let segments = segments();
        let with = |most| Pass {
            size_max: Some(most),
            ..IDLE
        };
        assert_eq!(expired(&segments, &with(400)), 0);
        assert_eq!(expired(&segments, &with(399)), 1);
        assert_eq!(expired(&segments, &with(150)), 3);
        assert_eq!(expired(&segments, &with(0)), 4);
    }

    #[test]
    fn a_stored_position_blocks_what_it_has_not_passed() {
        let segments = segments();
        let with = |barrier| Pass {
            size_max: Some(0),
            barrier: Some(barrier),
            ..IDLE
        };
        assert_eq!(expired(&segments, &with(8)), 0);
        assert_eq!(expired(&segments, &with(9)), 1);
        assert_eq!(expired(&segments, &with(29)), 3);
        assert_eq!(up_to(&segments, 49, Some(19), 16), 2);
        assert_eq!(up_to(&segments, 18, None, 16), 1);
        assert_eq!(up_to(&segments, 19, None, 16), 2);
        assert_eq!(up_to(&segments, u64::MAX, None, 3), 3);
    }

    #[test]
    fn count_of_segments_becomes_an_offset() {
        let segments = segments();
        assert_eq!(sealed_end(&segments, 1), Some(9));
        assert_eq!(sealed_end(&segments, 3), Some(29));
        assert_eq!(sealed_end(&segments, 99), Some(39));
        assert_eq!(sealed_end(&segments, 0), None);
        assert_eq!(sealed_end(&Segments::fresh(0, 100), 1), None);
    }

    #[test]
    fn bound_of_a_partition_leaves_room_for_one_segment() {
        let limits = Limits {
            message_bytes_max: 10,
            ..Limits::default()
        };
        let topic = |max_topic_size, partitions_count| TopicOptions {
            max_topic_size,
            partitions_count,
            segment_size: 100,
            ..TopicOptions::default()
        };
        assert_eq!(partition_bytes_max(&topic(u64::MAX, 1), &limits), None);
        assert_eq!(partition_bytes_max(&topic(0, 1), &limits), None);
        assert_eq!(partition_bytes_max(&topic(1000, 2), &limits), Some(500));
        assert_eq!(partition_bytes_max(&topic(1000, 100), &limits), Some(110));
    }
}
