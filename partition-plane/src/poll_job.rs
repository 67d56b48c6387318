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
const READ_BYTES_MAX: u64 = 1 << 30;

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
    /// What the disk was last asked to find.
    sought: Option<Start>,
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
        context: &Context<'_>,
    ) -> Self {
        let limits = &context.node.limits;
        let selection = Selection::new(start, query.count, committed, limits.poll_bytes_max);
        Self {
            token,
            query,
            selection,
            committed,
            deadline: context.now + limits.poll_ticks_max,
            read: None,
            sought: None,
        }
    }

    /// Whether the read `token` is this job's.
    pub(crate) fn awaits(&self, token: u64) -> bool {
        self.read.is_some_and(|read| read.token == token)
    }

    /// Takes what memory has, and asks the disk for what it lacks.
    pub(crate) fn advance(
        &mut self,
        state: &LogState,
        segments: &Segments,
        files: (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        while !self.selection.is_full() {
            let start = self.selection.looking_for();
            let location = match start {
                Start::Nothing => return JobStep::Finished,
                Start::Offset(offset) if state.resident_offsets().contains(&offset) => None,
                Start::Offset(offset) => segments.locate(offset),
                Start::Timestamp(wanted) if state.is_time_resident(wanted) => None,
                Start::Timestamp(wanted) => segments.locate_timestamp(wanted),
            };
            if let Some(location) = location {
                // Coming back to the same place means that the disk does not have it.
                if self.sought.replace(start) == Some(start) {
                    return JobStep::Finished;
                }
                return self.ask(location, files, context);
            }
            state.select(&mut self.selection);
            if self.selection.looking_for() == start {
                return JobStep::Finished;
            }
        }
        JobStep::Finished
    }

    fn ask(
        &mut self,
        location: Location,
        (paths, queues): (&Paths, Queues),
        context: &mut Context<'_>,
    ) -> JobStep {
        let left = location.size.saturating_sub(location.position);
        let chunk = context.node.limits.read_chunk_bytes as u64;
        let len = location.span.max(chunk).min(left).min(READ_BYTES_MAX);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
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
            Walk::Through { consumed, wanted } => {
                // A batch longer than what was read is asked for with the length it announces;
                // one that announces more than the segment has is damage.
                let asked = read.location.size - read.location.position;
                let at_end = bytes.len() < read.len as usize;
                if consumed == 0 && (at_end || wanted <= u64::from(read.len) || wanted > asked) {
                    return JobStep::Finished;
                }
                let position = read.location.position + consumed as u64;
                let location = Location {
                    position,
                    span: wanted,
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
        if self.selection.count() > 0 {
            return match location.position < location.size {
                true if !self.is_in_memory(state) => self.ask(location, files, context),
                _ => self.advance(state, segments, files, context),
            };
        }
        let location = match location.position < location.size {
            true => Some(location),
            false => segments.after(location.start),
        };
        match location {
            Some(location) => self.ask(location, files, context),
            None => {
                state.select(&mut self.selection);
                JobStep::Finished
            }
        }
    }

    fn is_in_memory(&self, state: &LogState) -> bool {
        let next = self.selection.next_offset();
        next.is_some_and(|next| state.resident_offsets().contains(&next))
    }

    /// Offers every whole batch of a read.
    fn take(&mut self, bytes: &ReadBytes, verify: bool) -> Walk {
        let mut at = 0;
        let mut wanted = 0;
        while let Some(rest) = bytes.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
            let header = match look(rest, verify) {
                Ok(header) => header,
                Err(BatchError::Incomplete) => {
                    wanted = BatchHeader::read(rest).map_or(0, |header| header.length);
                    break;
                }
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
        Walk::Through {
            consumed: at,
            wanted,
        }
    }
}

enum Walk {
    /// The selection is complete.
    Full,
    /// A batch is damaged.
    Broken,
    /// Whole batches up to byte `consumed` were offered; the next one announces `wanted` bytes,
    /// 0 when that is not known.
    Through { consumed: usize, wanted: u64 },
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
