//! What a poll returns (chapter 06 section 11): where it starts, which frames of which batches
//! it takes, and how a batch taken in part is rewritten. Pure: the caller brings the batches,
//! from memory or from disk, in offset order.

use std::ops::Range;
use std::sync::Arc;

use crate::batch;
use crate::io::{BodyPart, PollReply};
use crate::segments::BatchMeta;

/// Size of the prefix of a poll body.
pub const PREFIX_BYTES: usize = 16;

/// Where a poll starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// At this offset.
    Offset(u64),
    /// At the first batch appended at or after this time, in microseconds.
    Timestamp(u64),
    /// At the oldest message.
    First,
    /// So that the newest message is the last one returned.
    Last,
    /// After the stored position.
    Next,
}

/// A strategy resolved against the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing can be returned.
    Nothing,
    /// From this offset on, or from the oldest retained message when it is gone.
    Offset(u64),
    /// From the first batch with at least this broker time.
    Timestamp(u64),
}

/// Resolves a strategy. `committed` is the offset of the last committed message and `stored`
/// the consumer's position.
pub fn resolve(
    strategy: Strategy,
    count: u32,
    committed: Option<u64>,
    stored: Option<u64>,
) -> Start {
    let Some(committed) = committed else {
        return Start::Nothing;
    };
    if count == 0 {
        return Start::Nothing;
    }
    let start = match strategy {
        Strategy::Timestamp(timestamp) => return Start::Timestamp(timestamp),
        Strategy::Offset(offset) => offset,
        Strategy::First => 0,
        Strategy::Last => committed.saturating_sub(u64::from(count) - 1),
        Strategy::Next => match stored.map(|stored| stored.checked_add(1)) {
            None => 0,
            Some(Some(next)) => next,
            Some(None) => return Start::Nothing,
        },
    };
    if start > committed {
        Start::Nothing
    } else {
        Start::Offset(start)
    }
}

/// The prefix of a poll body.
pub fn prefix(partition: u32, current_offset: u64, count: u32) -> [u8; PREFIX_BYTES] {
    let mut out = [0; PREFIX_BYTES];
    out[..4].copy_from_slice(&partition.to_le_bytes());
    out[4..12].copy_from_slice(&current_offset.to_le_bytes());
    out[12..].copy_from_slice(&count.to_le_bytes());
    out
}

/// What became of a batch that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Offer the batch after it.
    More,
    /// The selection is complete, or cannot go on without a hole.
    Done,
}

/// Where the bytes of a batch live, so that parts of them can be referred to.
pub trait BatchSource {
    /// The batch's bytes.
    fn bytes(&self) -> &[u8];
    /// The whole batch as a part.
    fn whole(&self) -> BodyPart;
    /// A range of the batch's bytes as a part.
    fn range(&self, range: Range<usize>) -> Option<BodyPart>;
}

/// The messages a poll has collected so far: always a contiguous run.
#[derive(Debug)]
pub struct Selection {
    start: Start,
    ceiling: u64,
    wanted: u32,
    next: Option<u64>,
    parts: Vec<BodyPart>,
    bytes: usize,
    bytes_max: usize,
    count: u32,
}

impl Selection {
    /// Collects at most `count` messages up to offset `ceiling`, and no further batch once it
    /// has `bytes_max` bytes.
    pub fn new(start: Start, count: u32, ceiling: u64, bytes_max: usize) -> Self {
        let wanted = if start == Start::Nothing { 0 } else { count };
        Self {
            start,
            ceiling,
            wanted,
            next: None,
            parts: Vec::new(),
            bytes: 0,
            bytes_max,
            count: 0,
        }
    }

    /// Whether nothing more can be taken.
    pub fn is_full(&self) -> bool {
        self.count >= self.wanted
            || self.bytes >= self.bytes_max
            || self.next.is_some_and(|next| next > self.ceiling)
    }

    /// Messages collected.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Offset after the last message collected.
    pub fn next_offset(&self) -> Option<u64> {
        self.next
    }

    /// Where the next batch is looked for.
    pub fn looking_for(&self) -> Start {
        self.next.map_or(self.start, Start::Offset)
    }

    /// Considers the batch `meta`, which comes after every batch offered before.
    pub fn offer(&mut self, meta: &BatchMeta, source: &impl BatchSource) -> Taken {
        if self.is_full() || meta.base_offset > self.ceiling {
            return Taken::Done;
        }
        let skip = match self.looking_for() {
            Start::Nothing => return Taken::Done,
            Start::Timestamp(timestamp) if meta.base_timestamp < timestamp => return Taken::More,
            Start::Timestamp(_) => 0,
            Start::Offset(offset) if meta.next_offset() <= offset => return Taken::More,
            Start::Offset(offset) => offset.saturating_sub(meta.base_offset),
        };
        if self.next.is_some_and(|next| meta.base_offset > next) {
            return Taken::Done;
        }
        let below_ceiling = self.ceiling - meta.base_offset;
        let available = u64::from(meta.count).min(below_ceiling.saturating_add(1)) - skip;
        let take = u32::try_from(available)
            .unwrap_or(u32::MAX)
            .min(self.wanted - self.count);
        if skip == 0 && take == meta.count {
            self.parts.push(source.whole());
            self.bytes += source.bytes().len();
        } else if self
            .cut(source, u32::try_from(skip).unwrap_or(u32::MAX), take)
            .is_none()
        {
            // Not a batch after all: what stands before it is served, it is not skipped.
            return Taken::Done;
        }
        self.count += take;
        self.next = Some(meta.base_offset + skip + u64::from(take));
        if self.is_full() {
            Taken::Done
        } else {
            Taken::More
        }
    }

    fn cut(&mut self, source: &impl BatchSource, skip: u32, take: u32) -> Option<()> {
        let slice = batch::slice(source.bytes(), skip, take)?;
        if slice.count != take {
            return None;
        }
        self.bytes += slice.header.len() + slice.frames.len();
        let frames = source.range(slice.frames)?;
        self.parts.push(BodyPart::Bytes(Arc::from(slice.header)));
        self.parts.push(frames);
        Some(())
    }

    /// The reply body.
    pub fn finish(self, partition: u32, current_offset: u64) -> PollReply {
        let head = prefix(partition, current_offset, self.count);
        let mut body = Vec::with_capacity(1 + self.parts.len());
        body.push(BodyPart::Bytes(Arc::from(head)));
        body.extend(self.parts);
        let last_offset = self.next.map(|next| next - 1);
        let body_len = PREFIX_BYTES + self.bytes;
        PollReply {
            status: 0,
            body,
            body_len,
            count: self.count,
            last_offset,
        }
    }
}

impl PollReply {
    /// No messages.
    pub fn empty(partition: u32, current_offset: u64) -> Self {
        Selection::new(Start::Nothing, 0, 0, 0).finish(partition, current_offset)
    }

    /// Refused with `status`.
    pub fn refused(status: u32) -> Self {
        Self {
            status,
            body: Vec::new(),
            body_len: 0,
            count: 0,
            last_offset: None,
        }
    }
}

#[cfg(test)]
mod tests;
