//! A poll that needs the disk: chunk by chunk from a segment, then from what is in memory.
//!
//! A job reads only bytes below the flushed end it knew when it asked, and goes on in memory as
//! soon as memory reaches back far enough, so a flush or an eviction in between cannot open a
//! hole. A batch that does not verify, a vanished file or a failing disk end the walk: what was
//! collected before is the answer.

use std::ops::Range;

use biplane_journal::{DiskError, DiskOp, DiskReply, ReadBytes};

use crate::batch::{self, BATCH_HEADER, BatchError, BatchHeader};
use crate::context::{Context, Queues};
use crate::io::{BodyPart, PollQuery};
use crate::log_state::LogState;
use crate::paths::Paths;
use crate::poll::{BatchSource, Selection, Start, Taken};
use crate::segments::{Location, Segments};

/// Largest read of a poll, for a batch that does not fit a chunk.
const READ_BYTES_MAX: u32 = 1 << 30;

/// A poll under way.
#[derive(Debug)]
pub(crate) struct PollJob {
    pub(crate) token: u64,
    pub(crate) query: PollQuery,
    pub(crate) selection: Selection,
    /// Last committed offset when the poll was planned.
    pub(crate) committed: u64,
    /// Tick at which the poll is answered with what it has.
    pub(crate) deadline: u64,
    read: Option<Read>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    token: u64,
    location: Location,
    len: u32,
}

/// What a job wants after a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JobStep {
    /// It waits for the disk.
    Waiting,
    /// It is complete.
    Finished,
}

impl PollJob {
    pub(crate) fn new(
        token: u64,
        query: PollQuery,
        start: Start,
        committed: u64,
        now: u64,
    ) -> Self {
        let selection = Selection::new(start, query.count, committed);
        Self {
            token,
            query,
            selection,
            committed,
            deadline: now,
            read: None,
        }
    }

    /// Whether the read `token` is this job's.
    pub(crate) fn awaits(&self, token: u64) -> bool {
        self.read.is_some_and(|read| read.token == token)
    }

    /// Takes what memory has, or asks the disk.
    pub(crate) fn advance(
        &mut self,
        state: &LogState,
        segments: &Segments,
        files: (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        if self.selection.is_full() {
            return JobStep::Finished;
        }
        let location = match self.selection.looking_for() {
            Start::Nothing => return JobStep::Finished,
            Start::Offset(offset) if state.oldest_resident().is_some_and(|old| offset >= old) => {
                None
            }
            Start::Offset(offset) => segments.locate(offset),
            Start::Timestamp(wanted) if state.is_time_resident(wanted) => None,
            Start::Timestamp(wanted) => segments.locate_timestamp(wanted),
        };
        match location {
            None => {
                state.select(&mut self.selection);
                JobStep::Finished
            }
            Some(location) => self.ask(location, read_len(context), files, context),
        }
    }

    fn ask(
        &mut self,
        location: Location,
        len: u32,
        (paths, queues): (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        let left = location.size.saturating_sub(location.position);
        let len = len.min(u32::try_from(left).unwrap_or(u32::MAX));
        if len == 0 {
            return JobStep::Finished;
        }
        let (path, offset) = (paths.log(location.start), location.position);
        let queue = queues.reads(self.token);
        let token = context.submit(queue, DiskOp::Read { path, offset, len });
        self.read = Some(Read {
            token,
            location,
            len,
        });
        JobStep::Waiting
    }

    /// The answer to the job's read.
    pub(crate) fn on_read(
        &mut self,
        result: &Result<DiskReply, DiskError>,
        state: &LogState,
        segments: &Segments,
        files: (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        let Some(read) = self.read.take() else {
            return JobStep::Finished;
        };
        let Ok(DiskReply::Data(bytes)) = result else {
            return JobStep::Finished;
        };
        match self.take(bytes, context.node.limits.validate_checksum) {
            Walk::Full | Walk::Broken => JobStep::Finished,
            Walk::Through(0) => {
                // Not one whole batch: a larger read, unless the file has no more.
                let at_end = bytes.len() < read.len as usize
                    || u64::from(read.len) >= read.location.size - read.location.position;
                if at_end || read.len >= READ_BYTES_MAX {
                    return JobStep::Finished;
                }
                self.ask(read.location, read.len.saturating_mul(4), files, context)
            }
            Walk::Through(consumed) => {
                let position = read.location.position + consumed as u64;
                let location = Location {
                    position,
                    ..read.location
                };
                self.continue_at(location, state, segments, files, context)
            }
        }
    }

    fn continue_at(
        &mut self,
        location: Location,
        state: &LogState,
        segments: &Segments,
        files: (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        let next = self.selection.next_offset();
        let in_memory =
            next.is_some_and(|next| state.oldest_resident().is_some_and(|oldest| next >= oldest));
        if in_memory {
            state.select(&mut self.selection);
            return JobStep::Finished;
        }
        let location = match location.position < location.size {
            true => Some(location),
            false => segments.after(location.start),
        };
        match location {
            Some(location) => self.ask(location, read_len(context), files, context),
            None => {
                state.select(&mut self.selection);
                JobStep::Finished
            }
        }
    }

    /// Offers every whole batch of a read.
    fn take(&mut self, bytes: &ReadBytes, verify: bool) -> Walk {
        let mut at = 0;
        while let Some(rest) = bytes.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
            let header = match look(rest, verify) {
                Ok(header) => header,
                Err(BatchError::Incomplete) => break,
                Err(_) => return Walk::Broken,
            };
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            let end = at.saturating_add(length);
            let Some(batch) = bytes.slice(at..end) else {
                break;
            };
            if self.selection.offer(&header.meta(), &ReadSource(batch)) == Taken::Done {
                return Walk::Full;
            }
            at = end;
        }
        Walk::Through(at)
    }
}

enum Walk {
    /// The selection is complete.
    Full,
    /// A batch is damaged.
    Broken,
    /// Whole batches up to this byte were offered.
    Through(usize),
}

fn look(bytes: &[u8], verify: bool) -> Result<BatchHeader, BatchError> {
    if verify {
        return batch::verify_first(bytes);
    }
    let header = BatchHeader::read(bytes).ok_or(BatchError::Incomplete)?;
    if header.length < BATCH_HEADER as u64 || header.count == 0 {
        return Err(BatchError::Layout);
    }
    if header.length > bytes.len() as u64 {
        return Err(BatchError::Incomplete);
    }
    Ok(header)
}

fn read_len(context: &Context<'_>) -> u32 {
    u32::try_from(context.node.limits.read_chunk_bytes).unwrap_or(READ_BYTES_MAX)
}

struct ReadSource(ReadBytes);

impl BatchSource for ReadSource {
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn whole(&self) -> BodyPart {
        BodyPart::Read(self.0.clone())
    }

    fn range(&self, range: Range<usize>) -> Option<BodyPart> {
        self.0.slice(range).map(BodyPart::Read)
    }
}
