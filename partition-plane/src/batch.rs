//! The message batch: the one layout of request body, prepare body, segment record and poll
//! reply (chapter 01 section 12, chapter 06 section 1.4). Views over bytes that are never moved.
//!
//! A batch is verified once where it enters a node: at admission on the primary, before
//! journaling on a backup, when a segment is read. Stamping rewrites three header fields and
//! hashes 44 bytes and 8 per message, never the messages.

use biplane_wire::xxh3;
use xxhash_rust::xxh3::Xxh3;

use crate::segments::BatchMeta;

/// Size of the batch header.
pub const BATCH_HEADER: usize = 256;
/// Size of a message frame's header.
pub const FRAME_HEADER: usize = 48;

/// The fields of a batch header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// The partition id (not the group); 0 from a producer.
    pub partition_id: u64,
    /// Offset of the first message; 0 from a producer.
    pub base_offset: u64,
    /// Broker append time in microseconds; 0 from a producer.
    pub base_timestamp: u64,
    /// Smallest message time of the producer, in microseconds.
    pub origin_timestamp: u64,
    /// Bytes of the batch, header included.
    pub length: u64,
    /// Checksum over the fields above, the count and the frames' checksums.
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

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

impl BatchHeader {
    /// Reads the header in front of `bytes`; nothing is verified.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<BATCH_HEADER>()?;
        Some(Self {
            partition_id: u64_at(header, 0)?,
            base_offset: u64_at(header, 8)?,
            base_timestamp: u64_at(header, 16)?,
            origin_timestamp: u64_at(header, 24)?,
            length: u64_at(header, 32)?,
            checksum: u64_at(header, 40)?,
            count: u32_at(header, 48)?,
        })
    }

    /// The 256 header bytes.
    pub fn encode(&self) -> [u8; BATCH_HEADER] {
        let mut out = [0; BATCH_HEADER];
        out[..8].copy_from_slice(&self.partition_id.to_le_bytes());
        out[8..16].copy_from_slice(&self.base_offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.base_timestamp.to_le_bytes());
        out[24..32].copy_from_slice(&self.origin_timestamp.to_le_bytes());
        out[32..40].copy_from_slice(&self.length.to_le_bytes());
        out[40..48].copy_from_slice(&self.checksum.to_le_bytes());
        out[48..52].copy_from_slice(&self.count.to_le_bytes());
        out
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

    fn hasher(&self) -> ChecksumHasher {
        let mut hasher = ChecksumHasher {
            hash: Xxh3::new(),
            held: [0; HELD],
            len: 0,
        };
        hasher.hash.update(&self.encode()[..40]);
        hasher.hash.update(&self.count.to_le_bytes());
        hasher
    }
}

const HELD: usize = 1024;

/// The batch checksum over a stream of frame checksums, fed in runs that are worth a call.
struct ChecksumHasher {
    hash: Xxh3,
    held: [u8; HELD],
    len: usize,
}

impl ChecksumHasher {
    fn frame(&mut self, checksum: &[u8; 8]) {
        if self.len == HELD {
            self.hash.update(&self.held);
            self.len = 0;
        }
        self.held[self.len..self.len + 8].copy_from_slice(checksum);
        self.len += 8;
    }

    fn finish(mut self) -> u64 {
        self.hash.update(&self.held[..self.len]);
        self.hash.digest()
    }
}

/// The frames of a blob, as long as their layout holds.
struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<&'a [u8], BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((frame, rest)) = split_frame(self.rest) else {
            self.rest = &[];
            return Some(Err(BatchError::Layout));
        };
        self.rest = rest;
        Some(Ok(frame))
    }
}

fn split_frame(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = blob.first_chunk::<FRAME_HEADER>()?;
    if header[40..48] != [0; 8] {
        return None;
    }
    let headers = u32_at(header, 32)? as usize;
    let payload = u32_at(header, 36)? as usize;
    blob.split_at_checked(FRAME_HEADER.checked_add(headers)?.checked_add(payload)?)
}

/// Checks header bounds and reserved bytes and cuts the batch off the front of `bytes`.
fn split_batch(bytes: &[u8]) -> Result<(BatchHeader, &[u8]), BatchError> {
    let header = BatchHeader::read(bytes).ok_or(BatchError::Incomplete)?;
    let reserved = &bytes[52..BATCH_HEADER];
    if header.length < BATCH_HEADER as u64 || reserved.iter().fold(0, |seen, b| seen | b) != 0 {
        return Err(BatchError::Layout);
    }
    let length = usize::try_from(header.length).map_err(|_| BatchError::Incomplete)?;
    let batch = bytes.get(..length).ok_or(BatchError::Incomplete)?;
    Ok((header, batch))
}

/// Verifies the batch in front of `bytes` in full; more may follow it.
///
/// # Errors
///
/// The first rule of chapter 01 section 12.4 that is broken.
pub fn verify_first(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let (header, batch) = split_batch(bytes)?;
    let mut hasher = header.hasher();
    let mut count = 0u32;
    for frame in (Frames {
        rest: &batch[BATCH_HEADER..],
    }) {
        let frame = frame?;
        let Some((stored, covered)) = frame.split_first_chunk::<8>() else {
            return Err(BatchError::Layout);
        };
        if *stored != xxh3(covered).to_le_bytes() {
            return Err(BatchError::Frame);
        }
        hasher.frame(stored);
        count = count.wrapping_add(1);
    }
    if count != header.count {
        return Err(BatchError::Layout);
    }
    if hasher.finish() != header.checksum {
        return Err(BatchError::Checksum);
    }
    Ok(header)
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
    let mut header = BatchHeader::read(batch).expect("a batch verified at admission");
    header.base_offset = base_offset;
    header.base_timestamp = base_timestamp;
    let mut hasher = header.hasher();
    for frame in (Frames {
        rest: &batch[BATCH_HEADER..],
    }) {
        let frame = frame.expect("frames verified at admission");
        hasher.frame(frame.first_chunk().expect("a frame has a header"));
    }
    header.checksum = hasher.finish();
    batch[..BATCH_HEADER].copy_from_slice(&header.encode());
    header.meta()
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
    let (header, batch) = split_batch(batch).ok()?;
    let mut at = BATCH_HEADER;
    let mut frames = Frames {
        rest: batch.get(BATCH_HEADER..)?,
    };
    for _ in 0..skip {
        at += frames.next()?.ok()?.len();
    }
    let start = at;
    let mut checksums = Vec::new();
    while checksums.len() < take as usize {
        let Some(frame) = frames.next() else { break };
        let frame = frame.ok()?;
        checksums.push(*frame.first_chunk::<8>()?);
        at += frame.len();
    }
    if checksums.is_empty() {
        return None;
    }
    let count = u32::try_from(checksums.len()).ok()?;
    let mut cut = BatchHeader {
        length: (BATCH_HEADER + at - start) as u64,
        count,
        ..header
    };
    let mut hasher = cut.hasher();
    checksums.iter().for_each(|checksum| hasher.frame(checksum));
    cut.checksum = hasher.finish();
    Some(Slice {
        header: cut.encode(),
        frames: start..at,
        count,
    })
}

#[cfg(test)]
mod tests;
