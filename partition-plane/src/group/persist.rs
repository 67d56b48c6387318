//! What must be on disk before this replica promises something: view and log view in the
//! superblock, and, for topics with a persisted policy, every prepare in the prepare log
//! (chapter 06 sections 2.2, 3.3 and 7.2).

use biplane_journal::{
    AppendRefusal, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskReply, SuperblockRecord,
    Wal, WalOutput,
};
use biplane_vsr as vsr;
use biplane_wire::{Message, Op, PrepareHeader, View};

use super::Group;
use crate::admission::LogRoom;
use crate::context::{Context, Node};
use crate::io::Output;
use crate::recovery::incarnation_mark;
use crate::script::{Progress, Script};

/// At least what a record of the log has beside its frame.
const RECORD_OVERHEAD: u64 = 64;

/// The prepare log of a group that has one.
pub(crate) struct LogGlue {
    wal: Option<Wal>,
    /// Op whose effect, with all below it, is in synced files: where a restart begins to apply.
    checkpoint: Op,
    /// Op through which the log was last drained.
    drained: Op,
    /// Segments were found by a restart. What a process wrote and did not live to sync looks
    /// like the rest, and must be synced before the log may forget it.
    found: bool,
    /// That sync, while it is under way.
    syncing: Option<Script>,
}

impl LogGlue {
    pub(crate) fn new(wal: Option<Wal>, checkpoint: Op, found: bool) -> Self {
        Self {
            wal,
            checkpoint,
            drained: Op::ZERO,
            found,
            syncing: None,
        }
    }

    /// Whether files that were found are being synced.
    pub(crate) fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// What the disk has no room for, while the log waits for some.
    pub(crate) fn no_room(&self) -> Option<&DiskError> {
        self.wal.as_ref().and_then(Wal::no_room)
    }

    /// Whether a segment that stays may have bytes that are not synced.
    pub(crate) fn has_found_segments(&self) -> bool {
        self.found && self.wal.is_some()
    }

    /// Whether more than half of the log's budget is taken.
    fn is_filling(&self, node: &Node) -> bool {
        let half = node.limits.wal_bytes_max / 2;
        self.wal.as_ref().is_some_and(|wal| wal.free_bytes() < half)
    }

    /// What admission must know of it.
    pub(crate) fn room(&self, node: &Node) -> Option<LogRoom> {
        self.wal.as_ref().map(|wal| LogRoom {
            frame_bytes_max: node.limits.wal_prepare_bytes_max,
            free_bytes: wal.free_bytes().saturating_sub(RECORD_OVERHEAD),
        })
    }
}

impl Group {
    pub(super) fn append(&mut self, prepare: Message, context: &mut Context<'_>) {
        let header = prepare.header::<PrepareHeader>();
        let (op, checksum) = (header.op(), header.frame.checksum());
        let Some(wal) = &mut self.log.wal else {
            unreachable!("only groups with a prepare log ask for durable operations");
        };
        let mut outputs = Vec::new();
        let refused = wal.append(prepare, &mut outputs).err();
        self.pass_log(outputs, context);
        let input = match refused {
            None => return,
            // A checkpoint covers it: its effect is in files that are synced.
            Some(AppendRefusal::Drained) => vsr::Input::Appended { op, checksum },
            Some(_) => vsr::Input::AppendFailed { op, checksum },
        };
        self.step_replica(input, context);
    }

    pub(super) fn truncate_log(&mut self, from: Op, context: &mut Context<'_>) {
        let mut outputs = Vec::new();
        match &mut self.log.wal {
            Some(wal) => wal.truncate(from, &mut outputs),
            None => self.step_replica(vsr::Input::Truncated { from }, context),
        }
        self.pass_log(outputs, context);
    }

    /// A transfer brought this replica to an op: the log goes on from its prepare.
    pub(super) fn restart_log(&mut self, context: &mut Context<'_>) -> Option<Vec<DiskOp>> {
        let prepare = self.checkpoint_prepare()?;
        self.log.checkpoint = prepare
            .header::<PrepareHeader>()
            .op()
            .max(self.log.checkpoint);
        let mut outputs = Vec::new();
        if let Some(wal) = &mut self.log.wal {
            // Refused only when the log has it already or has failed, which stops the group.
            let _ = wal.append(prepare, &mut outputs);
        }
        self.pass_log(outputs, context);
        None
    }

    fn pass_log(&mut self, outputs: Vec<WalOutput>, context: &mut Context<'_>) {
        for output in outputs {
            match output {
                WalOutput::Disk(request) => context.out.push(Output::Disk(request)),
                WalOutput::Durable { op, checksum } => {
                    self.step_replica(vsr::Input::Appended { op, checksum }, context);
                }
                WalOutput::Truncated { from } => {
                    self.step_replica(vsr::Input::Truncated { from }, context);
                }
                WalOutput::Drained { .. } => {}
            }
        }
    }

    /// A completion of the prepare log's queue.
    pub(super) fn on_log_disk(&mut self, done: DiskCompletion, context: &mut Context<'_>) {
        let Some(wal) = &mut self.log.wal else { return };
        let mut outputs = Vec::new();
        if let Err(error) = wal.complete(done, &mut outputs) {
            let (group, reason) = (self.spec.group, error.to_string());
            context.out.push(Output::Halt { group, reason });
        }
        self.pass_log(outputs, context);
    }

    /// When the log fills, a restart shall begin where everything below is in synced files: the
    /// superblock learns it first, then the log is drained. Looked at after every step, since
    /// the last of these files may be a segment or a position.
    pub(super) fn checkpoint_log(&mut self, context: &mut Context<'_>) {
        if !self.log.is_filling(context.node) || self.files_are_busy() || self.log.is_syncing() {
            return;
        }
        let durable = self.superblock.durable();
        let recorded = durable.map_or(Op::ZERO, |record| record.checkpoint_op);
        if self.log.drained < self.log.checkpoint {
            // A restart found a log that was not drained any more, or one that a purge has cut
            // short, or the superblock is on its way.
            if recorded >= self.log.checkpoint {
                self.drain_log(self.log.checkpoint, context);
            } else if self.superblock.is_idle() {
                self.persist_frontier(context);
            }
            return;
        }
        let through = self.applied_in_files();
        if through.is_none_or(|through| through <= self.log.checkpoint) {
            return;
        }
        if self.log.found {
            return self.sync_found_segments(context);
        }
        self.log.checkpoint = through.unwrap_or(self.log.checkpoint);
        self.persist_frontier(context);
    }

    /// The newest operation in memory whose effect is in files, as is that of all below it.
    fn applied_in_files(&self) -> Option<Op> {
        if self.offset_writer.is_behind(&self.state.offsets) {
            return None;
        }
        let (resident, on_disk) = (&self.state.resident, self.segments.next_offset());
        let first = resident.partition_point(|entry| entry.next_offset <= on_disk);
        Some(resident.get(first.checked_sub(1)?)?.op)
    }

    fn sync_found_segments(&mut self, context: &mut Context<'_>) {
        let names = self.segments.iter().map(|segment| segment.start);
        let paths = names.flat_map(|start| [self.paths.log(start), self.paths.index(start)]);
        let syncs = paths.map(|path| DiskOp::Sync { path });
        let dir = DiskOp::SyncDir {
            path: self.paths.dir().clone(),
        };
        let steps: Vec<DiskOp> = syncs.chain([dir]).collect();
        self.log.syncing = Some(Script::start(self.queues.files(), steps, context));
    }

    pub(super) fn tick_log(&mut self, context: &mut Context<'_>) {
        if self.log.no_room().is_some()
            && let Some(wal) = &mut self.log.wal
        {
            let mut outputs = Vec::new();
            wal.tick(&mut outputs);
            self.pass_log(outputs, context);
        }
        if let Some(script) = &mut self.log.syncing {
            script.tick(context);
        }
    }

    /// A completion that may belong to the sync of what a restart found.
    pub(super) fn on_log_files_step(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(script) = &mut self.log.syncing else {
            return false;
        };
        match script.complete(token, result, context) {
            Progress::NotMine => return false,
            Progress::Running => {}
            Progress::Retrying(error) if error.kind == DiskErrorKind::NotFound => {
                // Retention, a purge or a transfer took it: what is left is looked at anew.
                self.log.syncing = None;
            }
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "sync failed, will retry");
            }
            Progress::Done => (self.log.syncing, self.log.found) = (None, false),
        }
        true
    }

    /// Whether the log has room for a prepare that it does not hold. What stands above a hole
    /// leaves room for what fills it: nothing is applied before, and nothing leaves the log.
    pub(super) fn has_log_room(&self, prepare: &PrepareHeader, context: &Context<'_>) -> bool {
        let Some(room) = self.log.room(context.node) else {
            return true;
        };
        let size = u64::from(prepare.frame.size());
        let reserve = room.frame_bytes_max as u64 + RECORD_OVERHEAD;
        if room.free_bytes >= size + reserve {
            return true;
        }
        let log = self.replica.log();
        if log.checksum(prepare.op()) == Some(prepare.frame.checksum()) {
            return true;
        }
        let mut next = self.replica.commit_min().next();
        while next < prepare.op() && log.checksum(next).is_some() {
            next = next.next();
        }
        next == prepare.op() && room.free_bytes >= size
    }

    fn drain_log(&mut self, checkpoint: Op, context: &mut Context<'_>) {
        if checkpoint <= self.log.drained {
            return;
        }
        self.log.drained = checkpoint;
        let mut outputs = Vec::new();
        if let Some(wal) = &mut self.log.wal {
            wal.drain(checkpoint, &mut outputs);
        }
        self.pass_log(outputs, context);
    }

    pub(super) fn superblock_record(
        &self,
        view: View,
        log_view: View,
        commit_max: Op,
        node: &Node,
    ) -> SuperblockRecord {
        SuperblockRecord {
            view,
            log_view,
            commit_max,
            checkpoint_op: self.log.checkpoint,
            checkpoint_checksum: incarnation_mark(self.spec.created_revision),
            offset_frontier: self.frontier,
            ..SuperblockRecord::fresh(node.identity.journal())
        }
    }

    pub(super) fn persist_view(
        &mut self,
        view: View,
        log_view: View,
        commit_max: Op,
        context: &mut Context<'_>,
    ) {
        let record = self.superblock_record(view, log_view, commit_max, context.node);
        self.persist(record, context);
    }

    /// Writes the frontier with the view that is asked for at present.
    pub(super) fn persist_frontier(&mut self, context: &mut Context<'_>) {
        let status = self.replica.status();
        let newest = self.superblock.newest().copied();
        let view = newest.map_or(status.view_durable, |record| record.view);
        let log_view = newest.map_or(status.log_view_durable, |record| record.log_view);
        let commit_max = newest.map_or(Op::ZERO, |record| record.commit_max);
        self.persist_view(view, log_view, commit_max, context);
    }

    pub(super) fn persist(&mut self, record: SuperblockRecord, context: &mut Context<'_>) {
        if self.promise_without_files(record, context).is_some() {
            return;
        }
        let persist = self.superblock.persist(record, &mut context.scratch.disk);
        context.pass_disk();
        if persist == biplane_journal::Persist::AlreadyDurable {
            self.step_replica(persisted(&record), context);
        }
    }

    /// A completion of the superblock's queue.
    pub(super) fn on_superblock_disk(&mut self, done: DiskCompletion, context: &mut Context<'_>) {
        let durable = self.superblock.complete(&done, &mut context.scratch.disk);
        context.pass_disk();
        let input = match durable {
            Some(record) => {
                self.on_frontier_durable(record.offset_frontier, context);
                self.on_install_frontier(record.offset_frontier, context);
                self.drain_log(record.checkpoint_op, context);
                persisted(&record)
            }
            None => vsr::Input::PersistFailed,
        };
        self.step_replica(input, context);
    }
}

/// What the replica is told of a record that is durable.
fn persisted(record: &SuperblockRecord) -> vsr::Input {
    vsr::Input::ViewPersisted {
        view: record.view,
        log_view: record.log_view,
        commit_max: record.commit_max,
    }
}
