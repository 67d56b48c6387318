//! Building a batch as a producer does (chapter 01 sections 12.1 to 12.3).

use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use super::header::{BatchHeader, FrameHeader};
use super::{BATCH_HEADER_SIZE, FRAME_HEADER_SIZE};
use crate::checksum::xxh3;

/// Why a message does not fit a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchOverflow {
    /// Origin timestamps of one batch lie within 2^32 - 1 microseconds.
    #[error("origin timestamps of a batch are more than 71 minutes apart")]
    TimestampSpan,
    /// Payload or user headers are longer than their length fields can say.
    #[error("a message part is longer than its length field can say")]
    Length,
    /// More messages than the count field can say.
    #[error("more messages than a batch can count")]
    Count,
}

/// Collects messages into the bytes of one batch.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    origins: Vec<u64>,
}

impl BatchBuilder {
    /// A batch without messages.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_HEADER_SIZE],
            origins: Vec::new(),
        }
    }

    /// Number of messages so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Whether there are no messages yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// Adds a message: its id, origin timestamp in microseconds, payload, and user headers as
    /// a TLV block or nothing.
    ///
    /// # Errors
    ///
    /// [`BatchOverflow::Length`] or [`BatchOverflow::Count`]; the batch is as before.
    pub fn push(
        &mut self,
        id: u128,
        origin_timestamp: u64,
        payload: &[u8],
        user_headers: &[u8],
    ) -> Result<&mut Self, BatchOverflow> {
        let length = |part: &[u8]| u32::try_from(part.len()).map_err(|_| BatchOverflow::Length);
        let mut header = FrameHeader::new();
        header.set_id(id);
        header.set_payload_length(length(payload)?);
        header.set_user_headers_length(length(user_headers)?);
        let index = u32::try_from(self.len()).map_err(|_| BatchOverflow::Count)?;
        header.set_offset_delta(index);
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.extend_from_slice(user_headers);
        self.origins.push(origin_timestamp);
        Ok(self)
    }

    /// The batch as a producer sends it: partition, base offset and base timestamp zero.
    ///
    /// # Errors
    ///
    /// [`BatchOverflow::TimestampSpan`].
    pub fn finish(self) -> Result<Vec<u8>, BatchOverflow> {
        let Self { mut bytes, origins } = self;
        if bytes.is_empty() {
            bytes.resize(BATCH_HEADER_SIZE, 0);
        }
        let origin_first = origins.iter().copied().min().unwrap_or(0);
        let mut header = BatchHeader::new();
        header.set_origin_timestamp(origin_first);
        header.set_batch_length(bytes.len() as u64);
        header.set_message_count(origins.len() as u32);
        let mut checksums = Vec::with_capacity(origins.len());
        let mut start = BATCH_HEADER_SIZE;
        for origin in origins {
            let delta = u32::try_from(origin - origin_first);
            let delta = delta.map_err(|_| BatchOverflow::TimestampSpan)?;
            let (length, checksum) = seal_frame(&mut bytes[start..], delta);
            checksums.push(checksum);
            start += length;
        }
        header.set_batch_checksum(header.checksum_over(checksums.into_iter()));
        bytes[..BATCH_HEADER_SIZE].copy_from_slice(header.as_bytes());
        Ok(bytes)
    }
}

/// Completes the frame at the start of `bytes`; its length and checksum.
fn seal_frame(bytes: &mut [u8], timestamp_delta: u32) -> (usize, u64) {
    let Ok((header, _)) = FrameHeader::mut_from_prefix(bytes) else {
        unreachable!("the builder wrote this frame");
    };
    header.set_timestamp_delta(timestamp_delta);
    let length = header.frame_length() as usize;
    debug_assert!(length >= FRAME_HEADER_SIZE);
    let checksum = xxh3(&bytes[8..length]);
    bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    (length, checksum)
}
