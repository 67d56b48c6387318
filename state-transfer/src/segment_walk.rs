//! The content check of a SEGMENT_LOG artifact, batch by batch as its chunks arrive (chapter 04
//! sections 3.11 and 4.3).
//!
//! A digest says that the bytes are those the server has; this says that they are a segment:
//! batches back to back, each whole and sound, offsets without hole from the announced one on.
//! What the walk sees of each batch is what a sparse index is rebuilt from. At most one batch is
//! held in memory.

use biplane_wire::batch::BATCH_HEADER_SIZE;
use biplane_wire::{Batch, BatchError, Verify};

/// A batch the walk went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedBatch {
    /// Where it starts in the segment.
    pub position: u64,
    /// Offset of its first message.
    pub base_offset: u64,
    /// When it was appended, in microseconds.
    pub base_timestamp: u64,
    /// Its length with header.
    pub length: u64,
    /// How many messages it has.
    pub message_count: u32,
    /// Its checksum.
    pub checksum: u64,
}

/// A segment the walk went over to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedSegment {
    /// Offset of its first message.
    pub base_offset: u64,
    /// Offset after its last message.
    pub next_offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// How many batches it has.
    pub batches: u64,
    /// Append time of its last batch, in microseconds.
    pub last_timestamp: u64,
}

/// Why bytes are not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentDefect {
    /// A batch does not decode or does not verify.
    #[error("the batch at {position} does not verify: {error}")]
    Batch {
        /// Where it starts.
        position: u64,
        /// What is wrong with it.
        error: BatchError,
    },
    /// A batch declares a length no batch can have.
    #[error("the batch at {position} declares {length} bytes")]
    BatchLength {
        /// Where it starts.
        position: u64,
        /// What it declares.
        length: u64,
    },
    /// No batch at all.
    #[error("the segment is empty")]
    Empty,
    /// A batch without messages.
    #[error("the batch at {position} has no messages")]
    EmptyBatch {
        /// Where it starts.
        position: u64,
    },
    /// The last batch is cut.
    #[error("the segment ends inside the batch at {position}")]
    Incomplete {
        /// Where it starts.
        position: u64,
    },
    /// A batch does not start at the offset at which the one before ended.
    #[error("the batch at {position} starts at offset {base_offset} instead of {expected}")]
    Offset {
        /// Where it starts.
        position: u64,
        /// Its first offset.
        base_offset: u64,
        /// The offset that comes next.
        expected: u64,
    },
    /// Offsets run over the end of the number range.
    #[error("the offsets of the batch at {position} overflow")]
    OffsetOverflow {
        /// Where it starts.
        position: u64,
    },
}

/// A whole batch, and the bytes behind it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// A walk in progress.
#[derive(Clone, Debug)]
pub struct SegmentWalk {
    batch_bytes_max: u64,
    base_offset: u64,
    next_offset: u64,
    position: u64,
    batches: u64,
    last_timestamp: u64,
    /// The start of the batch whose end has not arrived.
    partial: Vec<u8>,
}

impl SegmentWalk {
    /// A walk over the segment that starts at offset `frontier`. A batch that declares more than
    /// `batch_bytes_max` is refused before memory is spent on it.
    #[must_use]
    pub fn new(frontier: u64, batch_bytes_max: u64) -> Self {
        Self {
            batch_bytes_max,
            base_offset: frontier,
            next_offset: frontier,
            position: 0,
            batches: 0,
            last_timestamp: 0,
            partial: Vec::new(),
        }
    }

    /// Takes the next bytes and hands out each batch they complete.
    ///
    /// # Errors
    ///
    /// The first defect. The walk can not go on after it.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(WalkedBatch),
    ) -> Result<(), SegmentDefect> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.partial.is_empty() {
                match self.split(rest)? {
                    Some((batch, after)) => {
                        sink(self.check(batch)?);
                        rest = after;
                        continue;
                    }
                    None => {
                        self.partial.extend_from_slice(rest);
                        return Ok(());
                    }
                }
            }
            let wanted = self.wanted(&self.partial)?.unwrap_or(BATCH_HEADER_SIZE);
            let missing = wanted.saturating_sub(self.partial.len());
            let (taken, after) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(taken);
            rest = after;
            if self.wanted(&self.partial)? == Some(self.partial.len()) {
                let mut batch = std::mem::take(&mut self.partial);
                sink(self.check(&batch)?);
                // Its memory serves the next one.
                batch.clear();
                self.partial = batch;
            }
        }
        Ok(())
    }

    /// Ends the walk.
    ///
    /// # Errors
    ///
    /// When the segment is empty or ends inside a batch.
    pub fn finish(self) -> Result<WalkedSegment, SegmentDefect> {
        if !self.partial.is_empty() {
            return Err(SegmentDefect::Incomplete {
                position: self.position,
            });
        }
        if self.batches == 0 {
            return Err(SegmentDefect::Empty);
        }
        Ok(WalkedSegment {
            base_offset: self.base_offset,
            next_offset: self.next_offset,
            length: self.position,
            batches: self.batches,
            last_timestamp: self.last_timestamp,
        })
    }

    /// The first batch of `bytes` and what follows it, when it is there to its end.
    fn split<'a>(&self, bytes: &'a [u8]) -> Result<Option<Split<'a>>, SegmentDefect> {
        let wanted = self.wanted(bytes)?;
        Ok(wanted.and_then(|wanted| bytes.split_at_checked(wanted)))
    }

    /// The length the batch at the start of `bytes` declares, once its header is there.
    fn wanted(&self, bytes: &[u8]) -> Result<Option<usize>, SegmentDefect> {
        if bytes.len() < BATCH_HEADER_SIZE {
            return Ok(None);
        }
        let declared = bytes.get(32..40).and_then(<[u8]>::first_chunk);
        let Some(length) = declared.map(|declared| u64::from_le_bytes(*declared)) else {
            return Ok(None);
        };
        let defect = SegmentDefect::BatchLength {
            position: self.position,
            length,
        };
        if length < BATCH_HEADER_SIZE as u64 || length > self.batch_bytes_max {
            return Err(defect);
        }
        usize::try_from(length).map(Some).map_err(|_| defect)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<WalkedBatch, SegmentDefect> {
        let position = self.position;
        let batch = Batch::decode(bytes, Verify::Checksums)
            .map_err(|error| SegmentDefect::Batch { position, error })?;
        let base_offset = batch.header().base_offset();
        let message_count = batch.message_count();
        if message_count == 0 {
            return Err(SegmentDefect::EmptyBatch { position });
        }
        if base_offset != self.next_offset {
            let expected = self.next_offset;
            return Err(SegmentDefect::Offset {
                position,
                base_offset,
                expected,
            });
        }
        let next = base_offset.checked_add(u64::from(message_count));
        self.next_offset = next.ok_or(SegmentDefect::OffsetOverflow { position })?;
        let length = bytes.len() as u64;
        self.position = position.saturating_add(length);
        self.batches += 1;
        let base_timestamp = batch.header().base_timestamp();
        self.last_timestamp = base_timestamp;
        Ok(WalkedBatch {
            position,
            base_offset,
            base_timestamp,
            length,
            message_count,
            checksum: batch.header().batch_checksum(),
        })
    }
}
