//! Segments on their way in: chunks go to staging files, and are walked over once they are
//! written (chapter 04 section 3.11).
//!
//! The request for the next chunk leaves before the last one is looked at: the peer reads and
//! sends while this node writes and verifies. Chunks are gathered and written several at once,
//! because disks take large pieces more quickly. What is written is made durable piece by piece,
//! so that the sync at the end, which everything waits for, finds little left to do.

use std::collections::BTreeMap;

use biplane_journal::{Chunk, DiskError, DiskOp, DiskPath, DiskReply};
use biplane_state_transfer::{MemorySpool, SegmentWalk, WalkedBatch, WalkedSegment, artifact_kind};
use biplane_wire::{ManifestEntry, StateChunkHeader, Typed};

use super::Group;
use crate::context::Context;
use crate::paths::STAGING;
use crate::scan::{BatchMark, MARKS_MAX, push_mark};
use crate::segments::{BatchMeta, Segment, index_name, log_name};

/// Writes under way at which no further chunk is asked for.
const WRITES_MAX: usize = 16;

/// Bytes of a staging file that are written before they are made durable.
const SYNC_BYTES: u64 = 32 << 20;

/// A segment that is staged, or that is here already.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) entry: ManifestEntry,
    /// It is a segment of this group already: there is nothing to move.
    pub(super) held: bool,
    pub(super) walked: Option<WalkedSegment>,
    pub(super) segment: Segment,
    /// Its last batches, as far as it was walked over.
    pub(super) marks: Vec<BatchMark>,
    /// What is left to do for one that is pulled.
    work: Option<Work>,
}

/// The pull of one segment.
#[derive(Debug)]
struct Work {
    /// Tells it from an earlier attempt at the same segment, whose writes may be under way.
    number: u64,
    walk: SegmentWalk,
    gathered: Gathered,
    /// Writes under way.
    unwalked: u32,
    /// No more chunks follow.
    is_whole: bool,
    /// Bytes written since the last sync was asked for, and whether one is under way.
    unsynced: u64,
    syncing: bool,
}

/// Chunks that follow each other and wait to be written.
#[derive(Debug, Default)]
struct Gathered {
    offset: u64,
    bytes: u64,
    chunks: Vec<Typed<StateChunkHeader>>,
}

/// What a request of the spool was for.
#[derive(Debug)]
enum Purpose {
    /// Chunks, to be walked over.
    Chunks {
        base: u64,
        number: u64,
        chunks: Vec<Typed<StateChunkHeader>>,
    },
    /// Durability ahead of the end.
    SyncAhead { base: u64, number: u64 },
    /// Names, indexes, the last sync.
    Files,
}

/// What is kept of an attempt until it is installed.
#[derive(Debug, Default)]
pub(super) struct Spool {
    pub(super) segments: BTreeMap<u64, Staged>,
    pub(super) offsets: MemorySpool,
    requests: BTreeMap<u64, Purpose>,
    numbers: u64,
}

impl Spool {
    /// Whether so much is under way that the peer should wait.
    pub(super) fn is_behind(&self) -> bool {
        self.requests.len() >= WRITES_MAX
    }

    /// Whether a completion is one of its own.
    pub(super) fn owns(&self, token: u64) -> bool {
        self.requests.contains_key(&token)
    }

    /// The last batches of segments that follow each other, as far back as all of them are known.
    pub(super) fn marks_of(&self, segments: &[u64]) -> Vec<BatchMark> {
        let mut marks = Vec::new();
        for staged in segments.iter().filter_map(|base| self.segments.get(base)) {
            if staged.held {
                marks.clear();
            }
            marks.extend_from_slice(&staged.marks);
            let surplus = marks.len().saturating_sub(MARKS_MAX);
            marks.drain(..surplus);
        }
        marks
    }

    /// Whether nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.requests.is_empty()
    }

    /// The pull of a segment, if that is still the one with this number.
    fn work(
        &mut self,
        base: u64,
        number: u64,
    ) -> Option<(&mut Work, &mut Segment, &mut Vec<BatchMark>)> {
        let staged = self.segments.get_mut(&base)?;
        let work = staged.work.as_mut().filter(|work| work.number == number)?;
        Some((work, &mut staged.segment, &mut staged.marks))
    }
}

impl Staged {
    /// A segment of the group itself.
    pub(super) fn held(entry: ManifestEntry, segment: &Segment) -> Self {
        let walked = WalkedSegment {
            base_offset: segment.start,
            next_offset: segment.next,
            length: segment.size,
            batches: segment.messages,
            last_timestamp: segment.max_timestamp,
        };
        Self {
            entry,
            held: true,
            walked: Some(walked),
            segment: segment.clone(),
            marks: Vec::new(),
            work: None,
        }
    }
}

impl Group {
    fn staging_path(&self, name: &str) -> DiskPath {
        self.paths.file(&format!("{name}{STAGING}"))
    }

    pub(super) fn staged_log(&self, base: u64) -> DiskPath {
        self.staging_path(&log_name(base))
    }

    pub(super) fn staged_index(&self, base: u64) -> DiskPath {
        self.staging_path(&index_name(base))
    }

    fn spool(&mut self, op: DiskOp, purpose: Purpose, context: &mut Context<'_>) {
        let queue = match purpose {
            // Chunks that follow shall not wait for it.
            Purpose::SyncAhead { .. } => self.queues.files(),
            Purpose::Chunks { .. } | Purpose::Files => self.queues.spool(),
        };
        let token = context.submit(queue, op);
        self.transfer.spool.requests.insert(token, purpose);
    }

    /// Takes the next bytes of a segment; `false` when they continue nothing.
    pub(super) fn spool_segment(
        &mut self,
        entry: &ManifestEntry,
        offset: u64,
        chunk: Typed<StateChunkHeader>,
        context: &mut Context<'_>,
    ) -> bool {
        let base = entry.frontier;
        if offset == 0 {
            self.begin_segment(entry, context);
            let path = self.staged_log(base);
            self.spool(DiskOp::Remove { path }, Purpose::Files, context);
        }
        let staged = self.transfer.spool.segments.get_mut(&base);
        let Some(work) = staged.and_then(|staged| staged.work.as_mut()) else {
            return false;
        };
        let gathered = &mut work.gathered;
        if gathered.chunks.is_empty() {
            gathered.offset = offset;
        }
        gathered.bytes += chunk.body().len() as u64;
        gathered.chunks.push(chunk);
        if gathered.bytes >= u64::from(context.node.limits.transfer_block_bytes) {
            self.write_gathered(base, context);
        }
        true
    }

    /// Writes the chunks of a segment that wait for that.
    fn write_gathered(&mut self, base: u64, context: &mut Context<'_>) {
        let staged = self.transfer.spool.segments.get_mut(&base);
        let Some(work) = staged.and_then(|staged| staged.work.as_mut()) else {
            return;
        };
        let Gathered { offset, chunks, .. } = std::mem::take(&mut work.gathered);
        if chunks.is_empty() {
            return;
        }
        work.unwalked += 1;
        let number = work.number;
        let bodies = chunks.iter();
        let op = DiskOp::Write {
            path: self.staged_log(base),
            offset,
            data: bodies
                .map(|chunk| Chunk::Body(chunk.message().clone()))
                .collect(),
            sync: false,
        };
        let purpose = Purpose::Chunks {
            base,
            number,
            chunks,
        };
        self.spool(op, purpose, context);
    }

    fn begin_segment(&mut self, entry: &ManifestEntry, context: &Context<'_>) {
        let spool = &mut self.transfer.spool;
        spool.numbers += 1;
        let batch_bytes_max = context.node.limits.message_bytes_max as u64;
        let work = Work {
            number: spool.numbers,
            walk: SegmentWalk::new(entry.frontier, batch_bytes_max),
            gathered: Gathered::default(),
            unwalked: 0,
            is_whole: false,
            unsynced: 0,
            syncing: false,
        };
        let staged = Staged {
            entry: *entry,
            held: false,
            walked: None,
            segment: Segment::empty(entry.frontier),
            marks: Vec::new(),
            work: Some(work),
        };
        spool.segments.insert(entry.frontier, staged);
    }

    /// All bytes of a segment are there; some may not be written and walked over. `false` when
    /// there was no segment.
    pub(super) fn complete_segment(
        &mut self,
        entry: &ManifestEntry,
        context: &mut Context<'_>,
    ) -> bool {
        self.write_gathered(entry.frontier, context);
        let staged = self.transfer.spool.segments.get_mut(&entry.frontier);
        let Some(work) = staged.and_then(|staged| staged.work.as_mut()) else {
            return false;
        };
        work.is_whole = true;
        if work.unwalked == 0 {
            self.finish_segment(entry.frontier, context);
        }
        true
    }

    /// The walk reached the end: the index follows, then both files are made durable.
    fn finish_segment(&mut self, base: u64, context: &mut Context<'_>) {
        let Some(staged) = self.transfer.spool.segments.get_mut(&base) else {
            return;
        };
        let Some(work) = staged.work.take() else {
            return;
        };
        let Ok(walked) = work.walk.finish() else {
            return self.disprove_segment(base, context);
        };
        staged.walked = Some(walked);
        let index = staged.segment.index.iter();
        let bytes: Vec<u8> = index.flat_map(|entry| entry.encode()).collect();
        staged.segment.index_size = bytes.len() as u64;
        let (log, index) = (self.staged_log(base), self.staged_index(base));
        self.spool(DiskOp::Sync { path: log }, Purpose::Files, context);
        let data = vec![Chunk::from(bytes)];
        let op = DiskOp::Replace { path: index, data };
        self.spool(op, Purpose::Files, context);
    }

    /// The bytes of a segment are those that were announced, and no segment.
    fn disprove_segment(&mut self, base: u64, context: &mut Context<'_>) {
        let Some(staged) = self.transfer.spool.segments.get(&base) else {
            return;
        };
        let entry = staged.entry;
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.disprove(&entry, &mut out);
        self.act_on_pull(out, context);
    }

    pub(super) fn discard(&mut self, entry: &ManifestEntry, context: &mut Context<'_>) {
        let spool = &mut self.transfer.spool;
        if entry.kind != artifact_kind::SEGMENT_LOG {
            return spool.offsets.discard(entry);
        }
        let base = entry.frontier;
        let staged = spool.segments.get(&base);
        let Some(held) = staged
            .filter(|staged| staged.entry == *entry)
            .map(|staged| staged.held)
        else {
            return;
        };
        spool.segments.remove(&base);
        if held {
            return;
        }
        for path in [self.staged_log(base), self.staged_index(base)] {
            self.spool(DiskOp::Remove { path }, Purpose::Files, context);
        }
    }

    /// A request of the spool completed.
    pub(super) fn on_spool(
        &mut self,
        token: u64,
        result: Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        let Some(purpose) = self.transfer.spool.requests.remove(&token) else {
            return;
        };
        match (purpose, result) {
            // The file may be gone with the attempt it was for.
            (Purpose::SyncAhead { base, number }, Err(_))
                if self.transfer.spool.work(base, number).is_none() => {}
            (_, Err(error)) => self.staging_failed(&error, context),
            (
                Purpose::Chunks {
                    base,
                    number,
                    chunks,
                },
                Ok(_),
            ) => self.walk_chunks((base, number), &chunks, context),
            (Purpose::SyncAhead { base, number }, Ok(_)) => {
                if let Some((work, ..)) = self.transfer.spool.work(base, number) {
                    work.syncing = false;
                }
            }
            (Purpose::Files, Ok(_)) => {}
        }
        self.pace_transfer(context);
    }

    /// What is on disk is unknown now: nothing staged may be used again.
    fn staging_failed(&mut self, error: &DiskError, context: &mut Context<'_>) {
        tracing::warn!(group = %self.spec.group, %error, "staging failed");
        let mut out = std::mem::take(&mut context.scratch.pull);
        let staged = std::mem::take(&mut self.transfer.spool.segments);
        self.transfer.fetched = None;
        // The puller keeps what was complete for its next attempt, unless it is told.
        for staged in staged.values() {
            self.puller.disprove(&staged.entry, &mut out);
        }
        self.puller.reject(None, &mut out);
        self.act_on_pull(out, context);
    }

    /// Walks over chunks that were written.
    fn walk_chunks(
        &mut self,
        (base, number): (u64, u64),
        chunks: &[Typed<StateChunkHeader>],
        context: &mut Context<'_>,
    ) {
        let Some((work, segment, marks)) = self.transfer.spool.work(base, number) else {
            return;
        };
        work.unwalked -= 1;
        let mut walked = Ok(());
        for chunk in chunks {
            work.unsynced += chunk.body().len() as u64;
            walked = walked.and_then(|()| {
                work.walk.feed(chunk.body(), |batch| {
                    segment.append(&meta_of(&batch));
                    push_mark(marks, (batch.base_offset, batch.checksum));
                })
            });
        }
        if walked.is_err() {
            return self.disprove_segment(base, context);
        }
        if work.is_whole && work.unwalked == 0 {
            return self.finish_segment(base, context);
        }
        if work.unsynced >= SYNC_BYTES && !work.syncing {
            (work.unsynced, work.syncing) = (0, true);
            let path = self.staged_log(base);
            let purpose = Purpose::SyncAhead { base, number };
            self.spool(DiskOp::Sync { path }, purpose, context);
        }
    }

    /// Forgets what was staged: it has become current.
    pub(super) fn forget_staged(&mut self) {
        self.transfer.spool.segments.clear();
        self.transfer.spool.offsets.clear();
    }
}

fn meta_of(batch: &WalkedBatch) -> BatchMeta {
    BatchMeta {
        base_offset: batch.base_offset,
        base_timestamp: batch.base_timestamp,
        count: batch.message_count,
        len: batch.length,
    }
}
