//! Selecting messages of a stored batch for a poll (chapter 01 section 12.7).
//!
//! A slice is a rewritten header in front of a byte range of the stored frames. Base offset
//! and deltas stay as they were, because clients compute the offset from both.

use std::ops::Range;

use super::header::BatchHeader;
use super::view::Batch;
use super::{BATCH_HEADER_SIZE, header::ChecksumHash};

/// Which messages of a batch a poll wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchQuery {
    /// Those at or above an offset.
    Offset(u64),
    /// The whole batch, when its base timestamp is at or above this one.
    Timestamp(u64),
}

/// What a poll gets of a batch.
#[allow(clippy::large_enum_variant)] // Short-lived, and a box would be an allocation per poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSelection {
    /// No message.
    Nothing,
    /// All of it: serve the stored bytes unchanged.
    Whole {
        /// Number of messages.
        count: u32,
        /// Largest offset served.
        offset_last: u64,
    },
    /// Some messages: serve `header`, then `start..end` of the stored batch bytes.
    Part {
        /// The rewritten header, checksum included.
        header: BatchHeader,
        /// Start of the range in the batch bytes.
        start: usize,
        /// End of the range in the batch bytes.
        end: usize,
        /// Number of messages.
        count: u32,
        /// Largest offset served.
        offset_last: u64,
    },
}

impl BatchSelection {
    /// Number of messages selected.
    #[must_use]
    pub const fn count(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Whole { count, .. } | Self::Part { count, .. } => *count,
        }
    }

    /// Largest offset served.
    #[must_use]
    pub const fn offset_last(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Whole { offset_last, .. } | Self::Part { offset_last, .. } => Some(*offset_last),
        }
    }
}

impl Batch<'_> {
    /// Selects messages: none above `offset_visible`, those that match `query`, at most
    /// `count_max`.
    #[must_use]
    pub fn select(&self, query: BatchQuery, offset_visible: u64, count_max: u32) -> BatchSelection {
        if let BatchQuery::Timestamp(wanted) = query
            && self.header().base_timestamp() < wanted
        {
            return BatchSelection::Nothing;
        }
        let mut selected: Option<(Range<usize>, u64)> = None;
        let mut count = 0;
        for (range, frame) in self.frame_ranges() {
            let offset = self.offset_of(&frame);
            if offset > offset_visible || count == count_max {
                break;
            }
            if matches!(query, BatchQuery::Offset(wanted) if offset < wanted) {
                continue;
            }
            count += 1;
            selected = match selected {
                None => Some((range, offset)),
                Some((before, last)) => Some((before.start..range.end, last.max(offset))),
            };
        }
        match selected {
            None => BatchSelection::Nothing,
            Some((_, offset_last)) if count == self.message_count() => {
                BatchSelection::Whole { count, offset_last }
            }
            Some((range, offset_last)) => self.part(range, offset_last),
        }
    }

    /// Frames that fall below a wanted offset between selected ones stay in the range: it is
    /// contiguous, and the count is that of the range.
    fn part(&self, range: Range<usize>, offset_last: u64) -> BatchSelection {
        let within = || {
            self.frame_ranges()
                .filter(|(frame, _)| frame.start >= range.start && frame.end <= range.end)
        };
        let count = u32::try_from(within().count()).unwrap_or(u32::MAX);
        let mut header = *self.header();
        header.set_batch_length((BATCH_HEADER_SIZE + range.len()) as u64);
        header.set_message_count(count);
        let mut hash = ChecksumHash::new(&header);
        for (_, frame) in within() {
            hash.add(frame.header.checksum());
        }
        header.set_batch_checksum(hash.finish());
        let Range { start, end } = range;
        BatchSelection::Part {
            header,
            start,
            end,
            count,
            offset_last,
        }
    }
}
