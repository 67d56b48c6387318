//! Walks a log file from front to back and says what stands where.
//!
//! Records follow each other without framing, so the walk goes from header to header. Where no
//! header is believable it searches byte by byte for the next one that is: what lies between is
//! garbage of unknown content. What the findings mean for the log is decided in `recovery.rs`.

mod evidence;
mod reader;

use biplane_wire::{Checksum, FrameBuffer, HEADER_SIZE, Header, Message, Op, PrepareHeader};

use self::reader::Reader;
use crate::disk::{DiskError, DiskView};
use crate::memory_disk::SECTOR_BYTES;
use crate::path::DiskPath;
use crate::record::{
    HeaderFinding, LogScope, RecordForm, SEAL_BYTES, inspect_header, may_be_header,
};

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
        /// Highest op whose header stands where the body should. The header in front may have
        /// strayed to the place of a shorter record, and its length passes over those behind.
        covers: Option<Op>,
    },
    /// No believable header up to the next finding or the end.
    Garbage {
        /// How many records it may have been.
        records: u64,
    },
    /// An authentic record of another log, up to the next finding or the end: a write that went
    /// astray, or a read that did. Somebody wrote it whole, so it is never what an interrupted
    /// write left.
    Astray {
        /// How many records of this log may lie below it: a long one covers many short ones.
        records: u64,
    },
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
    reader: Reader<'a>,
    scope: LogScope,
    form: RecordForm,
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
            reader: Reader::new(view, path, file_len),
            scope,
            form,
        }
    }

    pub(crate) fn walk(&mut self) -> Result<Vec<Found>, ScanError> {
        let mut found = Vec::new();
        let mut doubtful = false;
        let mut has_own = false;
        let mut offset = 0;
        while offset < self.reader.file_len() {
            let (len, finding) = self.examine(offset, doubtful || has_own)?;
            let is_garbage = matches!(finding, Finding::Garbage { .. } | Finding::Astray { .. });
            has_own |= matches!(finding, Finding::Intact(_) | Finding::BodyDamaged { .. });
            found.push(Found {
                offset,
                len,
                doubtful,
                finding,
            });
            doubtful |= is_garbage;
            offset += len;
        }
        // A disk that gives back nothing at all is failing; its data is not damaged.
        let any_intact = found
            .iter()
            .any(|each| matches!(each.finding, Finding::Intact(_)));
        match self.reader.medium_error() {
            Some(error) if !any_intact => Err(error.into()),
            _ => Ok(found),
        }
    }

    /// What stands at `offset`, and how long it is; at least one byte.
    ///
    /// A record of another log that comes first says that the file is not what its name says,
    /// and nothing of it is touched. Behind a believable header of this log (`may_stray`) it is
    /// damage of this log, and behind garbage it may be the content of a body, too.
    fn examine(&mut self, offset: u64, may_stray: bool) -> Result<(u64, Finding), ScanError> {
        let rest = self.reader.file_len() - offset;
        let Some(header) = self.reader.header(offset)? else {
            return Ok((rest, Finding::CutOff));
        };
        match inspect_header(&header, self.scope) {
            HeaderFinding::Prepare => {}
            HeaderFinding::Foreign if !may_stray => return Err(ScanError::Foreign { offset }),
            HeaderFinding::Foreign => {
                let next = self.search(offset + 1, self.reader.file_len())?;
                let size = u64::from(PrepareHeader::over(&header).frame.size());
                // Where its own log seals records, the seal came with it.
                let covered = (size + SEAL_BYTES as u64).min(next - offset);
                let begun = covered.div_ceil(self.form.record_len(HEADER_SIZE));
                let records = begun.max(self.records_lost(offset, next)?);
                return Ok((next - offset, Finding::Astray { records }));
            }
            HeaderFinding::Invalid => {
                let next = self.search(offset + 1, self.reader.file_len())?;
                let records = self.records_lost(offset, next)?;
                return Ok((next - offset, Finding::Garbage { records }));
            }
        }
        let size = PrepareHeader::over(&header).frame.size() as usize;
        let len = self.form.record_len(size);
        if len > rest {
            return Ok((rest, Finding::CutOff));
        }
        Ok((len, self.read_record(offset, size)?))
    }

    /// How many records may have stood in `[start, end)`, at least one.
    ///
    /// Where headers went bad but not the sizes in them, those lead from one to the next, and
    /// exactly to the end. Where they do not, it may have been as many as fit; several that
    /// stood next to each other leave one stretch.
    fn records_lost(&mut self, start: u64, end: u64) -> Result<u64, DiskError> {
        let shortest = self.form.record_len(HEADER_SIZE);
        let (mut records, mut offset) = (0, start);
        while let Some(len) = self.claimed_len(offset, end)? {
            records += 1;
            offset += len;
        }
        records += (end - offset) / shortest;
        // A sector that cannot be read takes all records that begin in it.
        let headers_in_sector = SECTOR_BYTES.div_ceil(HEADER_SIZE as u64) + 1;
        let begun = self.reader.unreadable_sectors(start, end) * headers_in_sector;
        let begun = begun.min((end - start) / HEADER_SIZE as u64);
        Ok(records.max(begun).max(1))
    }

    /// The length that a header which is not believed claims for its record, if that ends by
    /// `end`.
    fn claimed_len(&mut self, offset: u64, end: u64) -> Result<Option<u64>, DiskError> {
        if offset + HEADER_SIZE as u64 > end {
            return Ok(None);
        }
        let Some(header) = self.reader.header(offset)? else {
            return Ok(None);
        };
        let size = PrepareHeader::over(&header).frame.size() as usize;
        let len = self.form.record_len(size);
        Ok((size >= HEADER_SIZE && len <= end - offset).then_some(len))
    }

    /// Reads the record at `offset` whose believable header says that its frame has `size`
    /// bytes, all of which lie in the file.
    fn read_record(&mut self, offset: u64, size: usize) -> Result<Finding, ScanError> {
        let mut frame = FrameBuffer::zeroed(size);
        self.reader.read_exact(offset, frame.bytes_mut())?;
        let mut seal = [0; SEAL_BYTES];
        if self.form == RecordForm::Sealed {
            self.reader.read_exact(offset + size as u64, &mut seal)?;
        }
        if self.form.body_is_intact(&frame, seal) {
            return Ok(Finding::Intact(frame.freeze()));
        }
        let header = *frame.header::<PrepareHeader>();
        let end = offset + self.form.record_len(size);
        Ok(Finding::BodyDamaged {
            op: header.op(),
            checksum: header.frame.checksum(),
            commit: header.commit(),
            covers: self.highest_within(offset + HEADER_SIZE as u64, end)?,
        })
    }

    /// Highest op of the records that seem to begin in `[start, end)`.
    fn highest_within(&mut self, start: u64, end: u64) -> Result<Option<Op>, ScanError> {
        let (mut highest, mut offset) = (None, self.search(start, end)?);
        while offset < end {
            let header = self.reader.header(offset)?;
            highest = highest.max(header.map(|header| PrepareHeader::over(&header).op()));
            offset = self.search(offset + 1, end)?;
        }
        Ok(highest)
    }

    /// The next offset in `[from, to)` where a whole record of this log seems to stand; `to`
    /// when there is none.
    fn search(&mut self, from: u64, to: u64) -> Result<u64, ScanError> {
        let (scope, file_len) = (self.scope, self.reader.file_len());
        let likely = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .is_some_and(|header| may_be_header(header, scope))
        };
        let mut offset = from;
        while offset < to {
            let at_hand = self.reader.headers_from(offset)?;
            if at_hand.is_empty() {
                break;
            }
            let Some(skipped) = at_hand.windows(HEADER_SIZE).position(likely) else {
                offset += (at_hand.len() - HEADER_SIZE + 1) as u64;
                continue;
            };
            offset += skipped as u64;
            if let Some(header) = self.reader.header(offset)?
                && inspect_header(&header, scope) == HeaderFinding::Prepare
            {
                let size = PrepareHeader::over(&header).frame.size() as usize;
                if self.form.record_len(size) <= file_len - offset {
                    return Ok(offset.min(to));
                }
            }
            offset += 1;
        }
        Ok(to)
    }

    /// Whether the finding at `index`, without valid content and at the end of the file, is what
    /// an interrupted write left.
    pub(crate) fn was_interrupted(
        &mut self,
        found: &[Found],
        index: usize,
    ) -> Result<bool, ScanError> {
        let Some(last) = found.get(index) else {
            return Ok(false);
        };
        // Where the bytes before are no whole record, this may not be where one started.
        let before = index.checked_sub(1).and_then(|before| found.get(before));
        let is_start = before.is_none_or(|before| matches!(before.finding, Finding::Intact(_)));
        let stretch = evidence::Stretch {
            start: last.offset,
            end: last.end(),
            starts_record: is_start && !last.doubtful,
        };
        Ok(evidence::was_interrupted(
            &mut self.reader,
            self.scope,
            self.form,
            stretch,
        )?)
    }
}
