//! Purge of a partition: its messages and positions go, its offsets start at 0 again (chapter
//! 06 section 15.3).
//!
//! A purge is committed in the metadata group and applied here by each replica at a point of its
//! own. A batch stamped before it and one stamped after it must not be mixed up, so the primary
//! stops minting, lets its log run dry and purges first; a backup goes on accepting what
//! continues its offsets and purges when the primary's batches start over, or when nothing is
//! under way any more. An interrupted purge is repeated: its record is written last.

use biplane_journal::{Chunk, DiskError, DiskOp, DiskReply};
use biplane_wire::Op;

use super::Group;
use crate::consumer_offsets::ConsumerKey;
use crate::context::Context;
use crate::paths::{CONSUMERS, GROUPS};
use crate::purge_record;
use crate::script::{Progress, Script};
use crate::segments::Segments;

/// Ticks a primary waits for its log to run dry.
const PRIMARY_PATIENCE: u64 = 200;
/// Ticks of silence after which a backup purges on its own.
const BACKUP_QUIET: u64 = 100;
/// Ticks a backup waits in any case.
const BACKUP_PATIENCE: u64 = 1000;

/// The purge of one group.
#[derive(Debug)]
pub(crate) struct Purge {
    applied: u64,
    wanted: u64,
    /// Tick at which the wish was learned, and the last tick at which the log moved.
    since: u64,
    moved: (u64, Op),
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// The frontier 0 is being written.
    Frontier,
    /// Files are removed and created.
    Files(Script),
}

impl Purge {
    pub(crate) fn new(applied: u64, wanted: u64) -> Self {
        Self {
            applied,
            wanted,
            since: 0,
            moved: (0, Op::ZERO),
            stage: Stage::Idle,
        }
    }

    /// The generation the files have seen.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether a committed purge is not applied yet.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > self.applied
    }

    /// Whether files are being moved by a purge.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// A transfer brought the state after this generation.
    pub(crate) fn advance_to(&mut self, generation: u64) {
        self.applied = self.applied.max(generation);
    }
}

impl Group {
    /// Metadata committed a purge.
    pub(crate) fn want_purge(&mut self, generation: u64, now: u64) {
        if generation > self.purge.wanted {
            self.purge.wanted = generation;
            self.purge.since = now;
            self.purge.moved = (now, self.replica.op_head());
        }
    }

    pub(super) fn tick_purge(&mut self, context: &mut Context<'_>) {
        if let Stage::Files(script) = &mut self.purge.stage {
            script.tick(context);
            return;
        }
        if !self.purge.is_wanted() || self.purge.is_running() || !self.purge_is_due(context.now) {
            return;
        }
        if self.flusher.is_busy() || !self.offset_writer.is_idle() || self.files_are_busy() {
            return;
        }
        self.start_purge(context);
    }

    fn purge_is_due(&mut self, now: u64) -> bool {
        let status = self.replica.status();
        if self.purge.moved.1 != status.op_head {
            self.purge.moved = (now, status.op_head);
        }
        let waited = now - self.purge.since;
        let dry = status.op_head == status.commit_min && status.commit_min >= status.commit_max;
        if status.is_primary {
            return dry || waited >= PRIMARY_PATIENCE;
        }
        let started_over = self
            .state
            .refused_stamp
            .is_some_and(|refused| refused.base_offset == 0);
        let quiet = now - self.purge.moved.0 >= BACKUP_QUIET;
        started_over || dry && quiet || waited >= BACKUP_PATIENCE
    }

    /// The frontier first: should anything after it be cut short, offsets start at 0 all the
    /// same.
    fn start_purge(&mut self, context: &mut Context<'_>) {
        self.cancel_transfer(context);
        self.frontier = 0;
        self.purge.stage = Stage::Frontier;
        self.state.purge_deferred = true;
        self.persist_frontier(context);
        if self.superblock.is_idle() {
            self.on_frontier_durable(0, context);
        }
    }

    pub(super) fn on_frontier_durable(&mut self, frontier: u64, context: &mut Context<'_>) {
        if frontier == 0 && matches!(self.purge.stage, Stage::Frontier) {
            let steps = self.purge_steps();
            self.forget_everything(context);
            self.purge.stage = Stage::Files(Script::start(self.queues.files(), steps, context));
        }
    }

    fn purge_steps(&self) -> Vec<DiskOp> {
        let mut steps = Vec::new();
        for segment in self.segments.iter() {
            steps.push(DiskOp::Remove {
                path: self.paths.log(segment.start),
            });
            steps.push(DiskOp::Remove {
                path: self.paths.index(segment.start),
            });
        }
        steps.extend(self.empty_segment(0));
        for key in self.state.offsets.keys() {
            steps.push(DiskOp::Remove {
                path: self.paths.offset(key),
            });
        }
        steps.extend(self.sync_offset_folders());
        steps.push(self.purge_record_step(self.purge.wanted));
        steps
    }

    /// Creates the empty segment at `start` and makes the folder's entries durable.
    pub(super) fn empty_segment(&self, start: u64) -> [DiskOp; 3] {
        let create = |path| DiskOp::Write {
            path,
            offset: 0,
            data: Vec::new(),
            sync: true,
        };
        [
            create(self.paths.log(start)),
            create(self.paths.index(start)),
            DiskOp::SyncDir {
                path: self.paths.dir().clone(),
            },
        ]
    }

    pub(super) fn sync_offset_folders(&self) -> [DiskOp; 2] {
        [CONSUMERS, GROUPS].map(|name| DiskOp::SyncDir {
            path: self.paths.file(name),
        })
    }

    pub(super) fn purge_record_step(&self, generation: u64) -> DiskOp {
        let bytes = purge_record::encode(generation, self.spec.created_revision);
        let path = self.paths.file(purge_record::FILE_NAME);
        DiskOp::Replace {
            path,
            data: vec![Chunk::from(bytes.to_vec())],
        }
    }

    /// Memory follows at once: from here on the partition is empty.
    fn forget_everything(&mut self, context: &mut Context<'_>) {
        context.provider.forget(self.spec.group);
        self.abandon_polls(context);
        self.polls.forget_served();
        self.clients.forget_auto_commits();
        self.flusher.abandon();
        self.segments = Segments::fresh(0, self.spec.options.segment_size);
        let state = &mut self.state;
        state.offsets.clear();
        state.purge_floor = self.replica.op_head();
        state.next_offset = 0;
        state.committed_next = 0;
        state.rewind_floor = 0;
        state.unbacked = 0;
        state.retained_from = 0;
        state.marks = Vec::new();
        state.refused_stamp = None;
        self.refusing_since = None;
        // What stays in memory for repair holds messages that no longer exist.
        for entry in &mut state.resident {
            (entry.base_offset, entry.next_offset) = (0, 0);
        }
        self.unflushed_bytes = 0;
        self.unflushed_since = None;
        self.stats = Default::default();
        self.answer_deferred(context);
    }

    /// A step of the purge's file work completed; `false` when the token was another's.
    pub(super) fn on_purge_step(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> bool {
        let Stage::Files(script) = &mut self.purge.stage else {
            return false;
        };
        match script.complete(token, result, context) {
            Progress::NotMine => return false,
            Progress::Running => {}
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "purge step failed, will retry");
            }
            Progress::Done => {
                self.purge.applied = self.purge.wanted;
                self.purge.stage = Stage::Idle;
                self.state.purge_deferred = false;
                tracing::info!(group = %self.spec.group, "purged");
            }
        }
        true
    }

    /// Files of positions that a transfer does not list.
    pub(super) fn offset_file_keys(&self) -> Vec<ConsumerKey> {
        self.state.offsets.keys()
    }
}
