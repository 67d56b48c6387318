//! Walks a log file from front to back and says what stands where.
//!
//! Records follow each other without framing, so the walk goes from header to header. Where no
//! header is believable it searches byte by byte for the next one that is: what lies between is
//! garbage of unknown content. Reading goes in pieces of at most [`READ_BYTES`]. What the
//! findings mean for the log is decided in `recovery.rs`.

use biplane_wire::{Checksum, FrameBuffer, HEADER_SIZE, Header, Message, Op, PrepareHeader};

use crate::disk::{DiskError, DiskErrorKind, DiskVerb, DiskView};
use crate::memory_disk::SECTOR_BYTES;
use crate::path::DiskPath;
use crate::record::{
    HeaderFinding, LogScope, RecordForm, SEAL_BYTES, inspect_header, may_be_header,
};

/// Most bytes read at once.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Shortest run of zeros at the start of a write that counts as a lost sector. A header starts
/// with its identity, which is not that many zeros.
const LOST_HEAD_BYTES: u64 = 16;
/// Shortest run of zeros at the end. Longer, because a body may well end in some zeros.
const LOST_TAIL_BYTES: u64 = 64;

/// What a stretch of the file holds.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// A prepare with believable header and body.
    Intact(Message),
    /// A believable header in front of something else than its body.
    BodyDamaged {
        op: Op,
        checksum: Checksum,
        commit: Op,
    },
    /// No believable header up to the next finding or the end.
    Garbage,
    /// A record that the end of the file cuts off: bytes that were never all written.
    CutOff,
}

/// A stretch of the file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) finding: Finding,
    /// It comes after garbage, so its start was found by searching. Bytes of a damaged body can
    /// look like a record; whoever uses this one checks its chain.
    pub(crate) doubtful: bool,
}

impl Found {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Why a walk stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    Disk(DiskError),
    Foreign { offset: u64 },
}

impl From<DiskError> for ScanError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// Walks one file. The findings are contiguous and cover it.
pub(crate) struct Scanner<'a> {
    view: &'a dyn DiskView,
    path: &'a DiskPath,
    scope: LogScope,
    form: RecordForm,
    file_len: u64,
    window_start: u64,
    window: Vec<u8>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        view: &'a dyn DiskView,
        path: &'a DiskPath,
        scope: LogScope,
        form: RecordForm,
        file_len: u64,
    ) -> Self {
        Self {
            view,
            path,
            scope,
            form,
            file_len,
            window_start: 0,
            window: Vec::new(),
        }
    }

    pub(crate) fn walk(&mut self) -> Result<Vec<Found>, ScanError> {
        let mut found = Vec::new();
        let mut doubtful = false;
        let mut offset = 0;
        while offset < self.file_len {
            let (len, finding) = self.examine(offset)?;
            found.push(Found {
                offset,
                len,
                doubtful,
                finding,
            });
            doubtful |= matches!(
                found.last(),
                Some(Found {
                    finding: Finding::Garbage,
                    ..
                })
            );
            offset += len;
        }
        Ok(found)
    }

    /// What stands at `offset`, and how long it is; at least one byte.
    fn examine(&mut self, offset: u64) -> Result<(u64, Finding), ScanError> {
        let rest = self.file_len - offset;
        let Some(header) = self.header(offset)? else {
            return Ok((rest, Finding::CutOff));
        };
        match inspect_header(&header, self.scope) {
            HeaderFinding::Foreign => return Err(ScanError::Foreign { offset }),
            HeaderFinding::Invalid => {
                let next = self.search(offset + 1)?;
                return Ok((next - offset, Finding::Garbage));
            }
            HeaderFinding::Prepare => {}
        }
        let size = PrepareHeader::over(&header).frame.size() as usize;
        let len = self.form.record_len(size);
        if len > rest {
            return Ok((rest, Finding::CutOff));
        }
        Ok((len, self.read_record(offset, size)?))
    }

    /// Reads the record at `offset` whose believable header says that its frame has `size`
    /// bytes, all of which lie in the file.
    fn read_record(&mut self, offset: u64, size: usize) -> Result<Finding, ScanError> {
        let mut frame = FrameBuffer::zeroed(size);
        self.read_exact(offset, frame.bytes_mut())?;
        let mut seal = [0; SEAL_BYTES];
        if self.form == RecordForm::Sealed {
            self.read_exact(offset + size as u64, &mut seal)?;
        }
        if self.form.body_is_intact(&frame, seal) {
            return Ok(Finding::Intact(frame.freeze()));
        }
        let header = frame.header::<PrepareHeader>();
        Ok(Finding::BodyDamaged {
            op: header.op(),
            checksum: header.frame.checksum(),
            commit: header.commit(),
        })
    }

    /// The next offset from `from` on where a whole record of this log seems to stand; the end
    /// of the file when there is none.
    fn search(&mut self, from: u64) -> Result<u64, ScanError> {
        let mut offset = from;
        while self.load_header(offset)? {
            let start = self.index(offset);
            let scope = self.scope;
            let rest = self.window.get(start..).unwrap_or_default();
            let likely = |bytes: &[u8]| {
                bytes
                    .first_chunk()
                    .is_some_and(|header| may_be_header(header, scope))
            };
            let Some(skipped) = rest.windows(HEADER_SIZE).position(likely) else {
                offset += (rest.len() - HEADER_SIZE + 1) as u64;
                continue;
            };
            offset += skipped as u64;
            if let Some(header) = self.header(offset)?
                && inspect_header(&header, scope) == HeaderFinding::Prepare
            {
                let size = PrepareHeader::over(&header).frame.size() as usize;
                if self.form.record_len(size) <= self.file_len - offset {
                    return Ok(offset);
                }
            }
            offset += 1;
        }
        Ok(self.file_len)
    }

    /// The 256 bytes at `offset`; `None` when the file ends before.
    fn header(&mut self, offset: u64) -> Result<Option<[u8; HEADER_SIZE]>, ScanError> {
        if !self.load_header(offset)? {
            return Ok(None);
        }
        let rest = self.window.get(self.index(offset)..).unwrap_or_default();
        Ok(rest.first_chunk::<HEADER_SIZE>().copied())
    }

    /// Sees to it that the window holds the 256 bytes at `offset`; false when the file ends
    /// before.
    fn load_header(&mut self, offset: u64) -> Result<bool, ScanError> {
        if self.file_len.saturating_sub(offset) < HEADER_SIZE as u64 {
            return Ok(false);
        }
        let needed = offset + HEADER_SIZE as u64;
        if offset < self.window_start || needed > self.window_end() {
            self.fill(offset)?;
        }
        if needed > self.window_end() {
            return Err(self.shrunk());
        }
        Ok(true)
    }

    fn window_end(&self) -> u64 {
        self.window_start + self.window.len() as u64
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.window_start).unwrap_or(usize::MAX)
    }

    fn fill(&mut self, offset: u64) -> Result<(), ScanError> {
        let wanted = (self.file_len - offset).min(READ_BYTES as u64) as usize;
        self.window.resize(wanted, 0);
        let read = self.view.read(self.path, offset, &mut self.window)?;
        self.window.truncate(read);
        self.window_start = offset;
        Ok(())
    }

    /// Fills `buf` from `offset`, out of the window where it reaches, in pieces otherwise.
    fn read_exact(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ScanError> {
        if offset >= self.window_start && offset + buf.len() as u64 <= self.window_end() {
            let start = self.index(offset);
            buf.copy_from_slice(&self.window[start..start + buf.len()]);
            return Ok(());
        }
        let mut position = offset;
        for piece in buf.chunks_mut(READ_BYTES) {
            if self.view.read(self.path, position, piece)? != piece.len() {
                return Err(self.shrunk());
            }
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// A file that was longer a moment ago is changed by somebody else.
    fn shrunk(&self) -> ScanError {
        let kind = DiskErrorKind::Io(None);
        ScanError::Disk(DiskError {
            verb: DiskVerb::Read,
            path: self.path.clone(),
            kind,
        })
    }

    /// Whether the bytes `[start, end)` show that a sector of them was never written: a sector,
    /// or the part of the first or last one that belongs to them, is all zeros.
    pub(crate) fn has_lost_sector(&mut self, start: u64, end: u64) -> Result<bool, ScanError> {
        let mut piece = vec![0; READ_BYTES];
        let mut offset = start;
        while offset < end {
            // Pieces end at sector boundaries, so no sector is split between two of them.
            let stop = (offset / SECTOR_BYTES * SECTOR_BYTES + READ_BYTES as u64).min(end);
            let bytes = &mut piece[..(stop - offset) as usize];
            self.read_exact(offset, bytes)?;
            if piece_has_lost_sector(bytes, offset, start, end) {
                return Ok(true);
            }
            offset = stop;
        }
        Ok(false)
    }
}

fn piece_has_lost_sector(bytes: &[u8], offset: u64, start: u64, end: u64) -> bool {
    let mut position = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let boundary = (position / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let len = (boundary - position).min(rest.len() as u64);
        let (sector, after) = rest.split_at(len as usize);
        let needed = if len == SECTOR_BYTES || position == start {
            LOST_HEAD_BYTES
        } else {
            LOST_TAIL_BYTES
        };
        debug_assert!(position + len <= end);
        if len >= needed && sector.iter().all(|byte| *byte == 0) {
            return true;
        }
        position += len;
        rest = after;
    }
    false
}
