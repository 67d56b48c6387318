//! Group commit across files: many small synced writes of many logs share one sync.
//!
//! A node has a prepare log per partition, and a sync of one file makes nothing else durable. So
//! small synced writes do not go to their files first: they are put one behind the other into a
//! redo file, one write and one sync for all that have gathered meanwhile, and are done when that
//! is done. Their own files follow later, in few large writes.
//!
//! ```text
//!   Write{sync} of log A ─┐                       ┌─ redo.0 ─┐   later: A, B, C written
//!   Write{sync} of log B ─┼─► gather ─► one batch ┤          ├─► and synced, the epoch is
//!   Write{sync} of log C ─┘    one write+sync     └─ redo.1 ─┘   retired, its file reused
//! ```
//!
//! The machine stands between planes and disk and keeps the contract of [`DiskOp`]: whoever is
//! above it cannot tell it from a disk that is quick at syncing. Two files take turns. Each turn
//! is an *epoch*: when its file is full, the next epoch begins in the other one, and the writes of
//! the old epoch go to where they belong. Once those are synced and a batch of the new epoch says
//! so, the old epoch is *retired*: nothing of it will be written again.
//!
//! After a crash, [`Replay::read`] finds the batches of every epoch that was not retired, and
//! [`Replay::view`] shows the files as they would be with those writes in place. Recovery reads
//! through that view, and [`GroupCommit::open`] puts the writes in place before anything else
//! touches these files.
//!
//! What must not happen is that an old write is repeated over something newer. So an operation
//! that renames, removes, replaces, cuts or reads a file, or overwrites part of it, waits until
//! the epochs that hold writes of it are retired. Such operations are rare.
//!
//! A full disk is waited out: a batch, and whatever a log asked for, is tried again until there is
//! room, and nobody is answered before. Any other failure is passed on.
//!
//! A batch carries a checksum seeded with a number drawn for the life of the process. Nobody
//! outside knows it, so no payload can pass for a batch. What a scan cannot know: when the very
//! last batch of a file is damaged on the medium, it looks like one that a crash interrupted.

mod format;
mod machine;
mod replay;

use std::collections::{BTreeMap, VecDeque};

use self::format::BLOCK_BYTES;
use crate::disk::{Chunk, DiskCompletion, DiskOp, DiskRequest, QueueId};
use crate::path::DiskPath;

pub use self::replay::{Replay, ReplayError, ReplayedView};

/// Bytes of one redo file by default.
pub const REDO_FILE_BYTES_DEFAULT: u64 = 8 << 20;

/// Largest write that is gathered, in bytes: a larger one costs more to write twice than a sync
/// of its own.
pub const GATHERED_BYTES_MAX: u64 = 64 << 10;

/// First number of the two queues of this machine; no plane uses them.
const QUEUE_REDO: QueueId = QueueId(0b11 << 62);
const QUEUE_FILES: QueueId = QueueId((0b11 << 62) | 1);

/// Ticks between attempts to write an epoch's files after a failure.
const RETRY_TICKS: u64 = 10;

/// Files whose synced writes are gathered: prepare logs, which nobody reads while they are open.
const GATHERED_NAME: &str = "prepares.wal";

/// Sizes, and the number that tells this process's batches from all other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommitConfig {
    /// Bytes of each redo file.
    pub file_bytes: u64,
    /// Largest write that is gathered, in bytes.
    pub gathered_bytes_max: u64,
    /// Drawn anew at every start, and told to nobody.
    pub salt: u64,
}

impl GroupCommitConfig {
    /// The sizes a node uses.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            file_bytes: REDO_FILE_BYTES_DEFAULT,
            gathered_bytes_max: GATHERED_BYTES_MAX,
            salt,
        }
    }

    /// Sizes with which files fill up after a few writes.
    #[must_use]
    pub fn tiny(salt: u64) -> Self {
        Self {
            file_bytes: 8 * BLOCK_BYTES,
            gathered_bytes_max: 2 * BLOCK_BYTES,
            salt,
        }
    }
}

/// Whether the redo files exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// Not yet, or no more.
    Absent,
    /// Those of an earlier life are being replayed and removed.
    Removing,
    /// They are being made.
    Creating,
    /// Ready to be written.
    Ready,
    /// They cannot be made: every write is synced in its own file.
    Off,
    /// A batch could not be written: what the files hold is unknown.
    Failed,
}

/// Bytes to put into a file at a position, in the order they were asked for.
type Writes = Vec<(u64, Vec<Chunk>)>;

/// The machine. See the file's head.
#[derive(Debug)]
pub struct GroupCommit {
    config: GroupCommitConfig,
    files: Files,
    /// Number of the present epoch; its batches are in file `epoch % 2`.
    epoch: u64,
    /// Number of the next batch of the epoch, and where it goes.
    batch: u64,
    len: u64,
    /// Writes that wait for the next batch.
    queued: VecDeque<DiskRequest>,
    /// Writes in the batch that is being written.
    writing: Option<Vec<DiskRequest>>,
    /// Writes of the present epoch, whose files do not have them yet.
    dirty: BTreeMap<DiskPath, Writes>,
    /// Writes of the epoch before.
    retiring: BTreeMap<DiskPath, Writes>,
    /// Requests under way for them, by token.
    flushing: BTreeMap<u64, DiskPath>,
    /// Requests that met a full disk: a batch, or one that a log waits for.
    full: Vec<DiskRequest>,
    /// What a full disk may ask to be said again: the batch under way, and what was let through
    /// for the logs.
    repeatable: BTreeMap<(QueueId, u64), DiskOp>,
    /// Files whose writes failed, and when they are tried again.
    unflushed: Vec<DiskPath>,
    retry_at: u64,
    /// The last epoch whose files are synced, the last one of which the batch under way says so,
    /// and the last one of which a durable batch does.
    flushed: u64,
    noted: u64,
    retired: u64,
    /// Old redo files, still to be removed, after a replay. The older epoch first.
    replayed: Vec<DiskPath>,
    /// Requests that wait, by the queue they came in.
    lines: BTreeMap<QueueId, VecDeque<DiskRequest>>,
    /// Requests under way that make or remove redo files, and whether one of them failed.
    changes_left: u64,
    change_failed: bool,
    /// Answers to be handed on.
    answers: VecDeque<DiskCompletion>,
    /// What is under way of each queue.
    under_way: BTreeMap<QueueId, UnderWay>,
    token: u64,
    now: u64,
}

/// Requests of one queue that are not answered: of one kind at a time, so that they keep their
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnderWay {
    gathered: usize,
    direct: usize,
}

impl GroupCommit {
    /// Goes on from what [`Replay::read`] found. Nothing is created until it is needed.
    #[must_use]
    pub fn open(config: GroupCommitConfig, replay: Replay, out: &mut Vec<DiskRequest>) -> Self {
        assert!(
            config.file_bytes >= 4 * BLOCK_BYTES + config.gathered_bytes_max,
            "a file holds its head, the largest write and a note"
        );
        let (writes, replayed) = replay.into_parts();
        let mut this = Self {
            config,
            files: Files::Absent,
            epoch: 1,
            batch: 0,
            len: BLOCK_BYTES,
            queued: VecDeque::new(),
            writing: None,
            dirty: BTreeMap::new(),
            retiring: writes,
            flushing: BTreeMap::new(),
            full: Vec::new(),
            repeatable: BTreeMap::new(),
            unflushed: Vec::new(),
            retry_at: 0,
            flushed: 0,
            noted: 0,
            retired: 0,
            replayed,
            lines: BTreeMap::new(),
            changes_left: 0,
            change_failed: false,
            answers: VecDeque::new(),
            under_way: BTreeMap::new(),
            token: 0,
            now: 0,
        };
        if !this.replayed.is_empty() {
            this.files = Files::Removing;
            this.flush_files(out);
        }
        this
    }

    /// Takes a request of a plane. Call [`Self::flush`] once all that have arrived together have
    /// been handed over.
    pub fn submit(&mut self, request: DiskRequest, out: &mut Vec<DiskRequest>) {
        if let Some(line) = self.lines.get_mut(&request.queue) {
            line.push_back(request);
        } else if let Some(request) = self.route(request, out) {
            self.lines
                .entry(request.queue)
                .or_default()
                .push_back(request);
        }
    }

    /// Whether a completion is for a request of this machine's own.
    #[must_use]
    pub fn owns(queue: QueueId) -> bool {
        queue == QUEUE_REDO || queue == QUEUE_FILES
    }

    /// The queue whose requests everybody waits for: a driver gives it a thread of its own.
    #[must_use]
    pub fn is_urgent(queue: QueueId) -> bool {
        queue == QUEUE_REDO
    }

    /// Whether the write of a request shall be gathered.
    fn is_gathered(&self, op: &DiskOp) -> bool {
        match op {
            DiskOp::Write {
                path,
                data,
                sync: true,
                ..
            } => {
                self.files != Files::Off
                    && path.name() == GATHERED_NAME
                    && Chunk::total(data) <= self.config.gathered_bytes_max
            }
            _ => false,
        }
    }

    /// Whether `op` must wait until no epoch holds writes of the files it touches.
    fn is_barred(&self, op: &DiskOp) -> bool {
        self.touched(op, &self.dirty)
            || self.touched(op, &self.retiring)
            || self.queued.iter().any(|queued| conflicts(op, &queued.op))
    }

    fn touched(&self, op: &DiskOp, held: &BTreeMap<DiskPath, Writes>) -> bool {
        if held.is_empty() {
            return false;
        }
        match op {
            DiskOp::CreateDirs { .. } | DiskOp::SyncDir { .. } | DiskOp::Sync { .. } => false,
            DiskOp::Write {
                path, offset, data, ..
            } => held.get(path).is_some_and(|writes| {
                let end = offset + Chunk::total(data);
                let mut ranges = writes.iter();
                ranges.any(|(at, data)| *at < end && *offset < at + Chunk::total(data))
            }),
            DiskOp::Read { path, .. }
            | DiskOp::Truncate { path, .. }
            | DiskOp::Replace { path, .. } => held.contains_key(path),
            DiskOp::Rename { from, to } => held
                .keys()
                .any(|path| path.is_within(from) || path.is_within(to)),
            DiskOp::Remove { path } | DiskOp::RemoveTree { path } => {
                held.keys().any(|held| held.is_within(path))
            }
        }
    }
}

/// Whether `op` must not pass the waiting write `queued`.
fn conflicts(op: &DiskOp, queued: &DiskOp) -> bool {
    let DiskOp::Write {
        path, offset, data, ..
    } = queued
    else {
        return false;
    };
    match op {
        DiskOp::CreateDirs { .. } | DiskOp::SyncDir { .. } | DiskOp::Sync { .. } => false,
        DiskOp::Write {
            path: other,
            offset: start,
            data: bytes,
            ..
        } => {
            other == path
                && *start < offset + Chunk::total(data)
                && *offset < start + Chunk::total(bytes)
        }
        DiskOp::Rename { from, to } => path.is_within(from) || path.is_within(to),
        op => path.is_within(op.path()),
    }
}
