//! What must be on disk before this replica promises something: view and log view in the
//! superblock, and, for topics with a persisted policy, every prepare in the prepare log
//! (chapter 06 sections 2.2, 3.3 and 7.2).

use biplane_journal::{AppendRefusal, DiskCompletion, DiskOp, SuperblockRecord, Wal, WalOutput};
use biplane_vsr as vsr;
use biplane_wire::{Message, Op, PrepareHeader, View};

use super::Group;
use crate::admission::LogRoom;
use crate::context::{Context, Node};
use crate::io::Output;
use crate::recovery::incarnation_mark;

/// The prepare log of a group that has one.
pub(crate) struct LogGlue {
    wal: Option<Wal>,
    /// Op whose effect, with all below it, is in synced files: where a restart begins to apply.
    checkpoint: Op,
    /// Op through which the log was last drained.
    drained: Op,
}

impl LogGlue {
    pub(crate) fn new(wal: Option<Wal>, checkpoint: Op) -> Self {
        Self {
            wal,
            checkpoint,
            drained: checkpoint,
        }
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
            free_bytes: wal.free_bytes(),
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

    /// Effects up to `through` are in synced files. When the log fills, a restart shall begin
    /// there: the superblock learns it first, then the log is drained.
    pub(super) fn checkpoint_log(&mut self, through: Op, context: &mut Context<'_>) {
        let behind = self.offset_writer.is_behind(&self.state.offsets);
        if through <= self.log.checkpoint || behind || !self.log.is_filling(context.node) {
            return;
        }
        self.log.checkpoint = through;
        self.persist_frontier(context);
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
            let (view, log_view) = (record.view, record.log_view);
            self.step_replica(vsr::Input::ViewPersisted { view, log_view }, context);
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
                vsr::Input::ViewPersisted {
                    view: record.view,
                    log_view: record.log_view,
                }
            }
            None => vsr::Input::PersistFailed,
        };
        self.step_replica(input, context);
    }
}
