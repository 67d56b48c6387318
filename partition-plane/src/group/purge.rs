//! Purge of a partition: its messages and positions go, its offsets start at 0 again (chapter
//! 06 section 15.3).
//!
//! A purge is committed in the metadata group and every replica learns of it in its own time. A
//! batch stamped before it and one stamped after it must not be mixed up, so the primary stops
//! minting, lets its log run dry and puts a marker into it (see [`crate::purge_marker`]); every
//! replica purges when it comes to the marker. Until then it goes on as before.
//!
//! A primary of another make leaves no marker. Its purge shows in that its batches start over;
//! a backup then purges before it takes the first of them. And a backup that cannot reach a
//! marker by its log any more, because it lost the log or its peers have dropped that part,
//! purges at once: it holds no marker, so all it holds is from before it. Such a replica is
//! *ahead* of the log: what the log brings is without effect until the offsets start over.
//!
//! Where the purge took place is recorded first, that it took place last: one that is
//! interrupted is finished when the partition is opened again.

use biplane_journal::{Chunk, DiskError, DiskOp, DiskReply};
use biplane_wire::{Op, RequestNumber};

use super::Group;
use super::requests::OWN_TOKEN;
use crate::consumer_offsets::ConsumerKey;
use crate::context::Context;
use crate::paths::{CONSUMERS, GROUPS};
use crate::purge_record::{self, Floor};
use crate::script::{Progress, Script};
use crate::segments::Segments;
use crate::{offset_request, purge_marker};

/// Ticks a primary waits for its log to run dry before it puts a marker into it.
const PRIMARY_PATIENCE: u64 = 200;
/// Ticks of silence after which a backup purges without a marker, and after which a primary
/// does that cannot get its marker committed.
const PATIENCE: u64 = 1000;

/// The purge of one group.
#[derive(Debug)]
pub(crate) struct Purge {
    applied: u64,
    wanted: u64,
    /// Tick at which the wish was learned, and the last tick at which the log moved.
    since: u64,
    moved: (u64, Op),
    /// The walk came to a purge.
    reached: Option<Target>,
    /// The log alone does not lead to the purge any more.
    is_stuck: bool,
    stage: Stage,
}

/// What a purge is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    /// Ops up to here lose their effect.
    floor: Op,
    generation: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A committed marker, at the floor.
    Marker,
    /// A committed batch above the floor starts over.
    Batch,
    /// The log does not say where it ends: the floor is taken anew when it is used.
    Own,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// The frontier 0 is being written.
    Frontier(Target),
    /// Files are removed and created.
    Files(Target, Script),
}

impl Purge {
    pub(crate) fn new(applied: u64, wanted: u64, now: u64) -> Self {
        Self {
            applied,
            wanted,
            since: now,
            moved: (now, Op::ZERO),
            reached: None,
            is_stuck: false,
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

    /// Whether a backup that cannot go on by its log purges next.
    pub(crate) fn is_making_room(&self) -> bool {
        self.is_stuck && self.is_wanted()
    }

    /// Whether the purge is waiting for, or busy with, something that a tick moves.
    pub(crate) fn is_due(&self) -> bool {
        self.is_wanted() || self.reached.is_some() || self.is_running()
    }

    /// Whether files are being moved by a purge.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Whether peers should wait until it is applied here before they ask for the log.
    pub(crate) fn is_imminent(&self, now: u64) -> bool {
        self.is_running() || self.is_wanted() && now - self.since < PRIMARY_PATIENCE
    }

    /// A transfer brought the state after this generation.
    pub(crate) fn advance_to(&mut self, generation: u64) {
        self.applied = self.applied.max(generation);
        self.reached = None;
        self.is_stuck = false;
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

    /// Whether offsets may be given out: not while it is open where the present ones end.
    pub(super) fn may_mint(&self) -> bool {
        !self.purge.is_due() && !self.state.is_ahead && !self.state.unapplied.has_marker()
    }

    /// The walk came to a marker of this generation.
    pub(super) fn reach_marker(&mut self, op: Op, generation: u64) {
        self.purge.reached = Some(Target {
            floor: op,
            generation,
            kind: Kind::Marker,
        });
    }

    /// The walk came to a batch that starts over without a marker before it.
    pub(super) fn reach_start(&mut self, op: Op) {
        let floor = Op(op.0 - 1);
        let generation = self.purge.wanted;
        let kind = Kind::Batch;
        self.purge.reached = Some(Target {
            floor,
            generation,
            kind,
        });
    }

    /// The log alone cannot bring this replica further while a purge is pending; the purge
    /// makes room for a transfer. `false` when none is pending.
    pub(super) fn is_stuck_before_purge(&mut self) -> bool {
        let is_stuck = self.purge.is_wanted() && !self.replica.is_primary();
        self.purge.is_stuck |= is_stuck;
        is_stuck
    }

    pub(super) fn tick_purge(&mut self, context: &mut Context<'_>) {
        if !self.home.has_files() {
            if self.purge.is_due() {
                self.make_files(context);
            }
            return;
        }
        match &mut self.purge.stage {
            Stage::Files(_, script) => return script.tick(context),
            Stage::Frontier(_) => return,
            Stage::Idle => {}
        }
        let Some(target) = self.purge_target(context.now) else {
            return self.propose_marker(context);
        };
        if self.flusher.is_busy() || !self.offset_writer.is_idle() || self.files_are_busy() {
            return;
        }
        self.start_purge(target, context);
    }

    fn purge_target(&mut self, now: u64) -> Option<Target> {
        if self.purge.reached.is_some() {
            return self.purge.reached;
        }
        let status = self.replica.status();
        if self.purge.moved.1 != status.op_head {
            self.purge.moved = (now, status.op_head);
        }
        if !self.purge.is_wanted() {
            return None;
        }
        let generation = self.purge.wanted;
        let own = Target {
            floor: self.purge_floor_now(),
            generation,
            kind: Kind::Own,
        };
        if biplane_vsr::mutated!(PurgeAtOnce) && !status.is_primary {
            return Some(own);
        }
        let waited = now - self.purge.since >= PATIENCE;
        if status.is_primary {
            let is_blocked = waited && self.state.unapplied.has_marker();
            return is_blocked.then_some(own);
        }
        let refused = self.state.refused_stamp;
        if let Some(refused) = refused.filter(|refused| refused.base_offset == 0) {
            let floor = refused.op.previous().unwrap_or_default();
            let kind = Kind::Batch;
            return Some(Target {
                floor,
                generation,
                kind,
            });
        }
        let has_log = status.commit_min > Op::ZERO || self.replica.log().span() > 0;
        let is_silent = now - self.purge.moved.0 >= PATIENCE && waited;
        (!has_log || self.purge.is_stuck || is_silent && self.is_dry()).then_some(own)
    }

    fn is_dry(&self) -> bool {
        let status = self.replica.status();
        status.op_head == status.commit_min && status.commit_min >= status.commit_max
    }

    /// What stands before the purge for certain: up to the last marker, or to where offsets
    /// start over, or else all there is without a hole.
    fn purge_floor_now(&self) -> Op {
        let mut last = self.replica.commit_min();
        while self.replica.log().contains(last.next()) {
            last = last.next();
        }
        if let Some(marker) = self.state.unapplied.last_marker(last) {
            return marker;
        }
        let start = self.state.unapplied.first_start();
        let start = start.filter(|_| !self.state.is_replaying && self.state.committed_next > 0);
        start
            .and_then(Op::previous)
            .map_or(last, |below| last.min(below))
    }

    /// A primary says in the log where its purge is.
    fn propose_marker(&mut self, context: &mut Context<'_>) {
        let is_open = self.purge.is_wanted() || self.state.is_ahead;
        let is_said = self.state.unapplied.has_marker();
        let patient = !self.is_dry() && context.now - self.purge.since < PRIMARY_PATIENCE;
        // What is committed and not applied yet may hold the marker already.
        let is_behind = self.replica.commit_min() < self.replica.commit_max();
        if !self.replica.is_primary() || !is_open || is_said || is_behind || patient {
            return;
        }
        let body = offset_request::encode(purge_marker::KEY, self.key, None);
        let operation = biplane_wire::Operation::DeleteConsumerOffset;
        let generation = self.purge.wanted.max(self.purge.applied);
        let request = self.own_frame(operation, RequestNumber(generation), &body);
        let wall_micros = context.wall_micros;
        let out = &mut context.scratch.vsr;
        // Refused, it is proposed again on a later tick.
        let _ = self
            .replica
            .admit(request, OWN_TOKEN, wall_micros, &mut self.state, out);
    }

    /// The frontier first: should anything after it be cut short, offsets start at 0 all the
    /// same.
    fn start_purge(&mut self, target: Target, context: &mut Context<'_>) {
        self.cancel_transfer(context);
        self.frontier = 0;
        self.purge.stage = Stage::Frontier(target);
        self.state.purge_deferred = true;
        self.persist_frontier(context);
        if self.superblock.is_idle() {
            self.on_frontier_durable(0, context);
        }
    }

    pub(super) fn on_frontier_durable(&mut self, frontier: u64, context: &mut Context<'_>) {
        let Stage::Frontier(target) = self.purge.stage else {
            return;
        };
        if frontier != 0 {
            return;
        }
        let floor = match target.kind {
            Kind::Marker | Kind::Batch => target.floor,
            Kind::Own => self.purge_floor_now(),
        };
        let target = Target { floor, ..target };
        let steps = self.purge_steps(&target);
        self.forget_everything(&target, context);
        let script = Script::start(self.queues.files(), steps, context);
        self.purge.stage = Stage::Files(target, script);
        self.purge.reached = None;
    }

    /// Where the purge is, for a restart: the effect of what is committed up to there is gone.
    fn purge_floor_step(&self, target: &Target) -> DiskOp {
        let known = match target.kind {
            Kind::Marker => target.floor,
            Kind::Batch | Kind::Own => target.floor.min(self.replica.commit_min()),
        };
        let floor = Floor {
            generation: target.generation.max(self.purge.applied),
            op: known,
            is_ahead: target.kind == Kind::Own,
        };
        let bytes = floor.encode(self.spec.created_revision);
        DiskOp::Replace {
            path: self.paths.file(purge_record::FLOOR_NAME),
            data: vec![Chunk::from(bytes.to_vec())],
        }
    }

    fn purge_steps(&self, target: &Target) -> Vec<DiskOp> {
        let mut steps = vec![self.purge_floor_step(target)];
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
        steps.push(self.purge_record_step(target.generation.max(self.purge.applied)));
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
    fn forget_everything(&mut self, target: &Target, context: &mut Context<'_>) {
        context.provider.forget(self.spec.group);
        self.abandon_polls(context);
        self.polls.forget_served();
        self.clients.forget_auto_commits();
        self.cold.decide();
        self.flusher.abandon();
        self.segments = Segments::fresh(0, self.spec.options.segment_size);
        let state = &mut self.state;
        state.offsets.clear();
        state.purge_floor = state.purge_floor.max(target.floor);
        state.is_ahead = target.kind == Kind::Own;
        state.is_unmarked = target.kind == Kind::Own;
        state.is_replaying = false;
        state.committed_next = 0;
        state.rewind_floor = 0;
        state.unbacked = 0;
        state.retained_from = 0;
        state.marks = Vec::new();
        state.refused_stamp = None;
        state.unapplied.forget_through(target.floor);
        state.follow_log();
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
        let Stage::Files(target, script) = &mut self.purge.stage else {
            return false;
        };
        let target = *target;
        match script.complete(token, result, context) {
            Progress::NotMine => return false,
            Progress::Running => {}
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "purge step failed, will retry");
            }
            Progress::Done => self.purge_done(target, context),
        }
        true
    }

    fn purge_done(&mut self, target: Target, context: &mut Context<'_>) {
        self.purge.applied = self.purge.applied.max(target.generation);
        self.purge.stage = Stage::Idle;
        self.state.purge_deferred = false;
        tracing::info!(group = %self.spec.group, floor = %target.floor, "purged");
        if std::mem::take(&mut self.purge.is_stuck) && !self.replica.is_primary() {
            self.arm_transfer(self.replica.primary(), context);
        }
    }

    /// Files of positions that a transfer does not list.
    pub(super) fn offset_file_keys(&self) -> Vec<ConsumerKey> {
        self.state.offsets.keys()
    }
}
