//! Decoding a batch in place: layout only, or with both levels of checksums
//! (chapter 01 section 12.4).

use std::ops::Range;

use thiserror::Error;
use zerocopy::FromBytes;

use super::header::{BatchHeader, ChecksumHash, FrameHeader};
use super::{BATCH_HEADER_SIZE, FRAME_HEADER_SIZE};
use crate::checksum::xxh3;
use crate::error_code::ErrorCode;

/// Why bytes are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The layout is wrong.
    #[error("malformed batch: {0}")]
    Malformed(BatchFault),
    /// A frame does not match its stored checksum.
    #[error("message at offset {offset}: stored {stored:016x}, computed {computed:016x}")]
    MessageChecksum {
        /// Offset of the message, `base_offset + offset_delta`.
        offset: u64,
        /// The stored checksum.
        stored: u64,
        /// The recomputed checksum.
        computed: u64,
    },
    /// The header does not match the stored batch checksum.
    #[error("batch checksum: stored {stored:016x}, computed {computed:016x}")]
    BatchChecksum {
        /// The stored checksum.
        stored: u64,
        /// The recomputed checksum.
        computed: u64,
    },
}

/// A rule of layout that a batch or the body around it breaks (sections 12.4 and 12.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchFault {
    /// Fewer than 256 bytes.
    #[error("shorter than a batch header")]
    ShorterThanHeader,
    /// `batch_length` is below 256.
    #[error("batch length below a header")]
    LengthBelowHeader,
    /// Bytes 52..256 of the batch header are not zero.
    #[error("reserved header bytes are not zero")]
    ReservedNotZero,
    /// Fewer bytes than `batch_length` says.
    #[error("shorter than its batch length")]
    ShorterThanLength,
    /// A frame overruns the batch or its reserved bytes are not zero.
    #[error("a frame is malformed")]
    Frame,
    /// `message_count` is not the number of frames.
    #[error("message count is not the number of frames")]
    MessageCount,
    /// Bytes follow where the buffer must be the batch.
    #[error("bytes behind the batch")]
    Surplus,
    /// A SendMessages body ends before its metadata does.
    #[error("shorter than its metadata")]
    ShorterThanMetadata,
    /// The metadata does not decode, or does not fill `metadata_length`.
    #[error("metadata does not fill its length")]
    Metadata,
    /// A SendMessages request without messages.
    #[error("a batch without messages")]
    NoMessages,
    /// `messages_count` of the metadata is not `message_count` of the batch.
    #[error("metadata counts other messages than the batch")]
    MetadataCount,
}

impl BatchError {
    /// The error code a client gets.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_) => ErrorCode::InvalidCommand,
            Self::MessageChecksum { .. } => ErrorCode::InvalidMessageChecksum,
            Self::BatchChecksum { .. } => ErrorCode::InvalidBatchChecksum,
        }
    }
}

/// How much of a batch to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Lengths, reserved bytes and counts.
    Layout,
    /// Also every frame checksum and the batch checksum.
    Checksums,
}

/// One message in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFrame<'a> {
    /// Its header.
    pub header: &'a FrameHeader,
    /// Its payload.
    pub payload: &'a [u8],
    /// Its user headers, an opaque TLV block.
    pub user_headers: &'a [u8],
    /// The whole frame.
    pub bytes: &'a [u8],
}

impl<'a> MessageFrame<'a> {
    /// The frame at the start of `blob` and what follows; `None` when it is malformed.
    fn split(blob: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, _) = FrameHeader::ref_from_prefix(blob).ok()?;
        if header.reserved() != 0 {
            return None;
        }
        let length = usize::try_from(header.frame_length()).ok()?;
        let (bytes, rest) = blob.split_at_checked(length)?;
        let content = bytes.get(FRAME_HEADER_SIZE..)?;
        let (payload, user_headers) = content.split_at_checked(header.payload_length() as usize)?;
        Some((
            Self {
                header,
                payload,
                user_headers,
                bytes,
            },
            rest,
        ))
    }

    /// What the stored checksum should be.
    #[must_use]
    pub fn computed_checksum(&self) -> u64 {
        xxh3(self.bytes.get(8..).unwrap_or_default())
    }
}

/// A batch whose layout holds. Its length is known and its frames end where it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    header: &'a BatchHeader,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The batch at the start of `bytes` and what follows it.
    ///
    /// # Errors
    ///
    /// The first check of section 12.4 that fails.
    pub fn decode_prefix(bytes: &'a [u8], verify: Verify) -> Result<(Self, &'a [u8]), BatchError> {
        let Ok((header, _)) = BatchHeader::ref_from_prefix(bytes) else {
            return Err(BatchError::Malformed(BatchFault::ShorterThanHeader));
        };
        let length = header.batch_length();
        if length < BATCH_HEADER_SIZE as u64 {
            return Err(BatchError::Malformed(BatchFault::LengthBelowHeader));
        }
        if !header.reserved_is_zero() {
            return Err(BatchError::Malformed(BatchFault::ReservedNotZero));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = bytes.split_at_checked(length) else {
            return Err(BatchError::Malformed(BatchFault::ShorterThanLength));
        };
        let batch = Self { header, bytes };
        match verify {
            Verify::Layout => batch.walk()?,
            Verify::Checksums => batch.walk_verifying()?,
        }
        Ok((batch, rest))
    }

    /// The batch that `bytes` must be.
    ///
    /// # Errors
    ///
    /// As [`Batch::decode_prefix`]; a surplus is malformed.
    pub fn decode(bytes: &'a [u8], verify: Verify) -> Result<Self, BatchError> {
        match Self::decode_prefix(bytes, verify)? {
            (batch, []) => Ok(batch),
            _ => Err(BatchError::Malformed(BatchFault::Surplus)),
        }
    }

    fn walk(&self) -> Result<(), BatchError> {
        let mut blob = self.blob();
        let mut count = 0_u64;
        while let Some((_, rest)) = MessageFrame::split(blob) {
            blob = rest;
            count += 1;
        }
        self.check_end(blob, count)
    }

    fn walk_verifying(&self) -> Result<(), BatchError> {
        let mut blob = self.blob();
        let mut count = 0_u64;
        let mut hash = ChecksumHash::new(self.header);
        while let Some((frame, rest)) = MessageFrame::split(blob) {
            let stored = frame.header.checksum();
            let computed = frame.computed_checksum();
            if stored != computed {
                let offset = self.offset_of(&frame);
                return Err(BatchError::MessageChecksum {
                    offset,
                    stored,
                    computed,
                });
            }
            hash.add(stored);
            blob = rest;
            count += 1;
        }
        self.check_end(blob, count)?;
        let stored = self.header.batch_checksum();
        let computed = hash.finish();
        if stored != computed {
            return Err(BatchError::BatchChecksum { stored, computed });
        }
        Ok(())
    }

    fn check_end(&self, rest: &[u8], count: u64) -> Result<(), BatchError> {
        if !rest.is_empty() {
            return Err(BatchError::Malformed(BatchFault::Frame));
        }
        if count != u64::from(self.header.message_count()) {
            return Err(BatchError::Malformed(BatchFault::MessageCount));
        }
        Ok(())
    }

    /// The batch header.
    #[must_use]
    pub const fn header(&self) -> &'a BatchHeader {
        self.header
    }

    /// Header and frames.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The frames.
    #[must_use]
    pub fn blob(&self) -> &'a [u8] {
        self.bytes.get(BATCH_HEADER_SIZE..).unwrap_or_default()
    }

    /// Number of messages.
    #[must_use]
    pub fn message_count(&self) -> u32 {
        self.header.message_count()
    }

    /// The messages in order.
    pub fn frames(&self) -> impl Iterator<Item = MessageFrame<'a>> + use<'a> {
        let mut blob = self.blob();
        std::iter::from_fn(move || {
            let (frame, rest) = MessageFrame::split(blob)?;
            blob = rest;
            Some(frame)
        })
    }

    /// The messages with their byte ranges in [`Batch::bytes`].
    pub fn frame_ranges(&self) -> impl Iterator<Item = (Range<usize>, MessageFrame<'a>)> + use<'a> {
        let mut start = BATCH_HEADER_SIZE;
        self.frames().map(move |frame| {
            let range = start..start + frame.bytes.len();
            start = range.end;
            (range, frame)
        })
    }

    /// Offset of a message of this batch in the partition.
    #[must_use]
    pub fn offset_of(&self, frame: &MessageFrame<'_>) -> u64 {
        self.header
            .base_offset()
            .wrapping_add(u64::from(frame.header.offset_delta()))
    }

    /// Offset of the last message; `None` for a batch without messages. Frames are in order of
    /// offset, but their deltas are not checked anywhere, so this is the largest.
    #[must_use]
    pub fn offset_last(&self) -> Option<u64> {
        self.frames().map(|frame| self.offset_of(&frame)).max()
    }

    /// Recomputes the batch checksum from header and stored frame checksums.
    #[must_use]
    pub fn computed_checksum(&self) -> u64 {
        self.header
            .checksum_over(self.frames().map(|frame| frame.header.checksum()))
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?})", self.header)
    }
}

/// Walks batch records back to back: a poll reply or a segment.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    verify: Verify,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// A walk over `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], verify: Verify) -> Self {
        Self {
            rest: bytes,
            verify,
            failed: false,
        }
    }

    /// What has not been walked; after an error, from the bad record on.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    /// The next record. An error ends the walk: nothing behind a bad record can be trusted.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.failed {
            return None;
        }
        match Batch::decode_prefix(self.rest, self.verify) {
            Ok((batch, rest)) => {
                self.rest = rest;
                Some(Ok(batch))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
