//! The message batch as the plane uses it (chapter 01 section 12, chapter 06 section 1.4): the
//! views of the wire crate, with the fields the plane keeps of a batch and the reasons it tells
//! apart.
//!
//! A batch is verified once where it enters a node: at admission on the primary, before
//! journaling on a backup, when a segment is read. Stamping rewrites three header fields and
//! hashes 44 bytes and 8 per message, never the messages.

use biplane_wire::batch::BATCH_HEADER_SIZE;
use biplane_wire::{
    Batch, BatchError as WireError, BatchHeader as WireHeader, Verify, stamp_batch,
};

use crate::segments::BatchMeta;

/// Size of the batch header.
pub const BATCH_HEADER: usize = BATCH_HEADER_SIZE;

/// The fields of a batch header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// The partition id (not the group); 0 from a producer.
    pub partition_id: u64,
    /// Offset of the first message; 0 from a producer.
    pub base_offset: u64,
    /// Broker append time in microseconds; 0 from a producer.
    pub base_timestamp: u64,
    /// Bytes of the batch, header included.
    pub length: u64,
    /// Checksum over header fields and the frames' checksums.
    pub checksum: u64,
    /// Frames in the batch.
    pub count: u32,
}

/// Why bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the header or the announced length.
    #[error("the batch is incomplete")]
    Incomplete,
    /// Reserved bytes set, frames that do not tile the batch, a wrong count, surplus bytes.
    #[error("the batch layout is broken")]
    Layout,
    /// A frame's checksum does not match its bytes.
    #[error("a message checksum does not match")]
    Frame,
    /// The batch checksum does not match.
    #[error("the batch checksum does not match")]
    Checksum,
}

impl BatchError {
    /// The status code a client is refused with.
    pub fn status(self) -> u32 {
        match self {
            Self::Incomplete | Self::Layout => crate::status::INVALID_COMMAND,
            Self::Frame => crate::status::INVALID_MESSAGE_CHECKSUM,
            Self::Checksum => crate::status::INVALID_BATCH_CHECKSUM,
        }
    }
}

impl From<WireError> for BatchError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Malformed(_) => Self::Layout,
            WireError::MessageChecksum { .. } => Self::Frame,
            WireError::BatchChecksum { .. } => Self::Checksum,
        }
    }
}

impl BatchHeader {
    /// Reads the header in front of `bytes`; nothing is verified.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        WireHeader::over(bytes).map(Self::of)
    }

    fn of(header: &WireHeader) -> Self {
        Self {
            partition_id: header.partition_id(),
            base_offset: header.base_offset(),
            base_timestamp: header.base_timestamp(),
            length: header.batch_length(),
            checksum: header.batch_checksum(),
            count: header.message_count(),
        }
    }

    /// What the segments need to know of the batch.
    pub fn meta(&self) -> BatchMeta {
        BatchMeta {
            base_offset: self.base_offset,
            base_timestamp: self.base_timestamp,
            count: self.count,
            len: self.length,
        }
    }
}

/// Verifies the batch in front of `bytes` in full; more may follow it.
///
/// # Errors
///
/// The first rule of chapter 01 section 12.4 that is broken.
pub fn verify_first(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = WireHeader::over(bytes).ok_or(BatchError::Incomplete)?;
    let is_header = header.batch_length() >= BATCH_HEADER as u64 && header.reserved_is_zero();
    if is_header && header.batch_length() > bytes.len() as u64 {
        return Err(BatchError::Incomplete);
    }
    let (batch, _) = Batch::decode_prefix(bytes, Verify::Checksums)?;
    Ok(BatchHeader::of(batch.header()))
}

/// Verifies that `bytes` is exactly one batch with at least one message.
///
/// # Errors
///
/// The first rule that is broken.
pub fn verify(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = verify_first(bytes)?;
    if header.length != bytes.len() as u64 || header.count == 0 {
        return Err(BatchError::Layout);
    }
    Ok(header)
}

/// Gives a verified batch its place: base offset and broker time are written and the batch
/// checksum is computed over them. Frames are not touched.
///
/// # Panics
///
/// When `batch` is not a batch; it was verified at admission.
pub fn stamp(batch: &mut [u8], base_offset: u64, base_timestamp: u64) -> BatchMeta {
    let partition = BatchHeader::read(batch).and_then(|it| u32::try_from(it.partition_id).ok());
    let partition = partition.expect("a batch converted at admission");
    stamp_batch(batch, partition, base_offset, base_timestamp)
        .expect("a batch verified at admission");
    let header = BatchHeader::read(batch);
    header.expect("a batch has a header").meta()
}

/// A part of a batch: a rewritten header and a range of frames that stay where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The rewritten batch header.
    pub header: [u8; BATCH_HEADER],
    /// The frames, as a range of the batch's bytes.
    pub frames: std::ops::Range<usize>,
    /// Number of frames.
    pub count: u32,
}

/// Cuts frames `skip..skip + take` out of a batch. `take` is bounded by the batch; `None` when
/// no frame is left or the layout is broken.
pub fn slice(batch: &[u8], skip: u32, take: u32) -> Option<Slice> {
    let (batch, _) = Batch::decode_prefix(batch, Verify::Layout).ok()?;
    let chosen = || batch.frame_ranges().skip(skip as usize).take(take as usize);
    let mut frames: Option<std::ops::Range<usize>> = None;
    let mut count = 0;
    for (range, _) in chosen() {
        frames = Some(frames.map_or(range.clone(), |before| before.start..range.end));
        count += 1;
    }
    let frames = frames?;
    let mut header = *batch.header();
    header.set_batch_length((BATCH_HEADER + frames.len()) as u64);
    header.set_message_count(count);
    let checksum = header.checksum_over(chosen().map(|(_, frame)| frame.header.checksum()));
    header.set_batch_checksum(checksum);
    Some(Slice {
        header: header.to_bytes(),
        frames,
        count,
    })
}

#[cfg(test)]
mod tests;
