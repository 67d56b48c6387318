//! Reading one segment back after a restart (chapter 06 section 16.1).
//!
//! Batches are verified one after the other. Where that stops before the end of the file the
//! question is whether the rest is a tail that was never finished, and may be cut, or damage in
//! the middle of data that was, and must not be.

use biplane_journal::{DiskError, DiskPath, DiskView, ReadBuffer};
use xxhash_rust::xxh3::Xxh3;

use crate::batch::{self, BATCH_HEADER, BatchError, BatchHeader};
use crate::segments::{INDEX_ENTRY_BYTES, INDEX_STRIDE, IndexEntry, Segment};

/// Base offset of a batch and its checksum: what tells it from another at the same offset.
pub(crate) type BatchMark = (u64, u64);

/// Marks kept of what a restarted replica has on disk: as many batches as a peer may still send
/// again.
pub(crate) const MARKS_MAX: usize = 4096;

/// Bytes asked of the disk at once.
const WINDOW: usize = 4 << 20;

/// Why a segment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScanError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes that are no batch, with valid batches after them or of unknown origin.
    #[error("{path} is damaged at byte {at}")]
    Damaged {
        /// The log file.
        path: DiskPath,
        /// Position of the first bad byte.
        at: u64,
    },
    /// A batch of another partition, or with an offset that does not continue.
    #[error("{path} holds a batch out of place at byte {at}")]
    OutOfPlace {
        /// The log file.
        path: DiskPath,
        /// Position of the batch.
        at: u64,
    },
}

/// What a scan expects of the segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect {
    /// Id every batch must carry.
    pub(crate) partition: u64,
    /// Offset the segment is named after.
    pub(crate) start: u64,
    /// Whether an unfinished tail may be cut.
    pub(crate) is_last: bool,
    /// Whether what stands behind damage may be given up.
    pub(crate) is_tolerant: bool,
}

/// A scanned segment.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// The segment up to its last whole batch.
    pub(crate) segment: Segment,
    /// Length of the log file, above `segment.size` when a tail is to be cut.
    pub(crate) file_len: u64,
    /// Whether the segment ends at damage that was not a torn tail.
    pub(crate) is_cut: bool,
    /// Base offset and checksum of its last batches.
    pub(crate) marks: Vec<BatchMark>,
    /// Whether the index file agrees with the log, as far as it goes.
    pub(crate) index_agrees: bool,
}

/// Walks the segment from the entry `from` of its index, or from the start.
pub(crate) fn scan(
    view: &dyn DiskView,
    path: &DiskPath,
    expect: Expect,
    index: &[IndexEntry],
    from: Option<IndexEntry>,
) -> Result<Scanned, ScanError> {
    let file_len = view.len(path)?.unwrap_or(0);
    let mut segment = Segment::empty(expect.start);
    let mut expected_index = index.iter().copied().peekable();
    let mut index_agrees = true;
    if let Some(entry) = from {
        segment = resume(expect.start, index, entry);
        while expected_index
            .next_if(|e| e.position < entry.position)
            .is_some()
        {}
    }
    let mut window = Window::new(view, path, file_len);
    let mut digest = Xxh3::new();
    let mut marks = Vec::new();
    let mut is_cut = false;
    while segment.size < file_len {
        let at = segment.size;
        let header = match window.batch(at)? {
            Ok(header) => header,
            Err(error) => {
                let torn = expect.is_last && is_torn(&mut window, at, error, expect.partition)?;
                if torn {
                    break;
                }
                if expect.is_tolerant {
                    is_cut = true;
                    break;
                }
                return Err(ScanError::Damaged {
                    path: path.clone(),
                    at,
                });
            }
        };
        if !is_in_place(&header, expect.partition, segment.next) {
            return Err(ScanError::OutOfPlace {
                path: path.clone(),
                at,
            });
        }
        if let Some(entry) = expected_index.next_if(|entry| entry.position <= at) {
            index_agrees &= entry.position == at
                && entry.offset == header.base_offset
                && entry.timestamp == header.base_timestamp;
        }
        digest.update(window.held(at, header.length));
        push_mark(&mut marks, (header.base_offset, header.checksum));
        segment.append(&header.meta());
    }
    segment.digest = from.is_none().then(|| digest.digest());
    segment.index_size = index.len() as u64 * INDEX_ENTRY_BYTES as u64;
    index_agrees &= expected_index.next().is_none();
    index_agrees &= segment.size == 0 || !index.is_empty();
    Ok(Scanned {
        segment,
        file_len,
        is_cut,
        marks,
        index_agrees,
    })
}

fn is_in_place(header: &BatchHeader, partition: u64, expected: u64) -> bool {
    header.partition_id == partition
        && header.base_offset == expected
        && header.count > 0
        && header
            .base_offset
            .checked_add(u64::from(header.count))
            .is_some()
}

/// Adds the mark of the next batch; the oldest ones go when there are twice too many.
pub(crate) fn push_mark(marks: &mut Vec<BatchMark>, mark: BatchMark) {
    marks.push(mark);
    if marks.len() >= 2 * MARKS_MAX {
        marks.drain(..MARKS_MAX);
    }
}

/// The segment as it was before the batch at `entry`, by its index alone.
fn resume(start: u64, index: &[IndexEntry], entry: IndexEntry) -> Segment {
    let mut segment = Segment::empty(start);
    segment.size = entry.position;
    segment.next = entry.offset;
    segment.messages = entry.offset.saturating_sub(start);
    for known in index
        .iter()
        .take_while(|known| known.position < entry.position)
    {
        let far = |last: &IndexEntry| known.position.saturating_sub(last.position) >= INDEX_STRIDE;
        if segment.index.last().is_none_or(far) {
            segment.index.push(*known);
        }
        segment.max_timestamp = segment.max_timestamp.max(known.timestamp);
    }
    segment
}

/// Whether the bytes from `at` on are a write that never finished: they hold no valid batch, and
/// they are cut short or were never written.
fn is_torn(
    window: &mut Window<'_>,
    at: u64,
    error: BatchError,
    partition: u64,
) -> Result<bool, ScanError> {
    if error != BatchError::Incomplete && !window.is_zero_from(at)? {
        return Ok(false);
    }
    Ok(!window.has_batch_after(at, partition)?)
}

/// A moving view over a file that is too large to hold.
struct Window<'a> {
    view: &'a dyn DiskView,
    path: &'a DiskPath,
    file_len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(view: &'a dyn DiskView, path: &'a DiskPath, file_len: u64) -> Self {
        Self {
            view,
            path,
            file_len,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// Verifies the batch at `at`.
    fn batch(&mut self, at: u64) -> Result<Result<BatchHeader, BatchError>, ScanError> {
        let header = match BatchHeader::read(self.bytes_at(at, BATCH_HEADER)?) {
            Some(header) => header,
            None => return Ok(Err(BatchError::Incomplete)),
        };
        // A length beyond the file cannot be told from garbage: the reserved bytes decide.
        if header.length > self.file_len - at {
            let reserved = &self.bytes_at(at, BATCH_HEADER)?[52..BATCH_HEADER];
            let clean = reserved.iter().all(|byte| *byte == 0);
            return Ok(Err(if clean {
                BatchError::Incomplete
            } else {
                BatchError::Layout
            }));
        }
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        Ok(batch::verify_first(self.bytes_at(at, length)?))
    }

    /// At least `len` bytes from `at`, or what the file has.
    fn bytes_at(&mut self, at: u64, len: usize) -> Result<&[u8], ScanError> {
        let available = usize::try_from(self.file_len.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = len.min(available);
        let held = at >= self.start && at + len as u64 <= self.start + self.bytes.len() as u64;
        if !held {
            let wanted = len.max(WINDOW).min(available);
            let mut buffer = ReadBuffer::zeroed(wanted);
            let read = self.view.read(self.path, at, buffer.as_mut_bytes())?;
            self.bytes.clear();
            self.bytes
                .extend_from_slice(&buffer.as_bytes()[..read.min(wanted)]);
            self.start = at;
        }
        let from = usize::try_from(at - self.start)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        Ok(&self.bytes[from..])
    }

    /// Bytes of a batch that was just looked at.
    fn held(&self, at: u64, len: u64) -> &[u8] {
        let from = usize::try_from(at.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.bytes
            .get(from..from.saturating_add(len))
            .unwrap_or(&[])
    }

    fn is_zero_from(&mut self, at: u64) -> Result<bool, ScanError> {
        let mut at = at;
        while at < self.file_len {
            let bytes = self.bytes_at(at, 1)?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(bytes.is_empty());
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Whether a whole valid batch of this partition starts anywhere after `at`.
    fn has_batch_after(&mut self, at: u64, partition: u64) -> Result<bool, ScanError> {
        let id = partition.to_le_bytes();
        let mut at = at + 1;
        while at + BATCH_HEADER as u64 <= self.file_len {
            let bytes = self.bytes_at(at, BATCH_HEADER)?;
            let found = bytes
                .windows(BATCH_HEADER)
                .position(|window| plausible(window, &id));
            let Some(skip) = found else {
                at += (bytes.len() + 1).saturating_sub(BATCH_HEADER).max(1) as u64;
                continue;
            };
            at += skip as u64;
            let header = BatchHeader::read(self.bytes_at(at, BATCH_HEADER)?);
            if header.is_some_and(|header| header.count > 0) && self.batch(at)?.is_ok() {
                return Ok(true);
            }
            at += 1;
        }
        Ok(false)
    }
}

fn plausible(window: &[u8], id: &[u8; 8]) -> bool {
    window[..8] == *id && window[52..].iter().all(|byte| *byte == 0)
}
