//! Journal repair of a group: asking for missing operations and answering peers that lack some
//! (chapter 04 sections 2.5, 2.8 and 2.11).

use biplane_repair::{
    self as repair, GroupStatus, GroupView, HeldOp, History, Ingested, PlaneKind, PrepareSource,
    RepairOutput, ServeFacts, TransferState, WindowFacts,
};
use biplane_vsr as vsr;
use biplane_wire::{
    Message, Op, Operation, PrepareHeader, RepairRangeReplyHeader, ReplicaId,
    RequestPreparesHeader, prepare,
};

use super::Group;
use crate::batch::{self, BatchHeader};
use crate::context::Context;
use crate::log_state::LogState;
use crate::purge_marker;
use crate::segments::Segments;

/// The log as repair reads it.
struct LogSource<'a>(&'a vsr::Log);

impl PrepareSource for LogSource<'_> {
    fn prepare(&self, op: Op) -> Option<Message> {
        self.0.get(op).cloned()
    }

    fn next_held(&self, from: Op, to: Op) -> Option<Op> {
        self.0.next_held(from, to)
    }
}

/// The history of a partition: what its segments reach, what its log holds.
struct GroupHistory<'a> {
    log: &'a vsr::Log,
    state: &'a LogState,
    durable_next: u64,
}

impl<'a> GroupHistory<'a> {
    fn of(replica: &'a vsr::Replica, state: &'a LogState, segments: &Segments) -> Self {
        let reached = segments.next_offset().max(state.committed_next);
        Self {
            log: replica.log(),
            state,
            durable_next: if reached > state.unbacked { reached } else { 0 },
        }
    }
}

impl History for GroupHistory<'_> {
    fn stand_in(&self) -> u64 {
        self.durable_next
    }

    fn window(&self, floor: Op, to: Op) -> WindowFacts {
        let last = self.log.last().unwrap_or(Op::ZERO);
        WindowFacts::scan(floor, to, last, |op| match self.log.get(op) {
            None => HeldOp::Missing,
            Some(prepare) => held_op(op, prepare, self.state.purge_floor),
        })
    }
}

/// A prepare as the connect test sees it.
fn held_op(op: Op, prepare: &Message, purge_floor: Op) -> HeldOp {
    if prepare.header::<PrepareHeader>().operation() != Operation::SendMessages {
        return HeldOp::Other;
    }
    match BatchHeader::read(prepare.body()) {
        Some(batch) if op > purge_floor => HeldOp::Batch {
            base_offset: batch.base_offset,
        },
        _ => HeldOp::PurgedBatch,
    }
}

/// Whether a repaired prepare that is not journaled holds what its checksums say.
fn is_sound(prepare: &Message) -> bool {
    let header = prepare.header::<PrepareHeader>();
    let is_batch = header.operation() == Operation::SendMessages;
    prepare::verify_ingest(header, prepare.body()).is_ok()
        && (!is_batch || batch::verify(prepare.body()).is_ok())
}

fn group_status(status: vsr::Status) -> GroupStatus {
    match status {
        vsr::Status::Normal => GroupStatus::Normal,
        vsr::Status::ViewChange => GroupStatus::ViewChange,
        vsr::Status::Recovering => GroupStatus::Recovering,
    }
}

impl Group {
    fn repair_view(&self) -> GroupView {
        let status = self.replica.status();
        GroupView {
            status: group_status(status.status),
            view: status.view,
            commit_min: status.commit_min,
            commit_max: status.commit_max,
            head: status.op_head,
            transfer: match status.transfer_stage {
                vsr::TransferStage::Idle if self.puller.is_scheduled() => TransferState::Scheduled,
                vsr::TransferStage::Idle => TransferState::Idle,
                _ => TransferState::Active,
            },
            purge_deferred: self.purge.is_running(),
        }
    }

    /// Whether something is about to decide anew what is missing: a purge that makes room, or
    /// news of purges. Asking meanwhile would bring the same answer as fast as the network
    /// carries it.
    fn repair_waits(&self) -> bool {
        self.raise.is_some() || self.purge.is_making_room() && !self.replica.is_primary()
    }

    /// Every tick: a session moves on, a gap that lasts opens one.
    pub(super) fn tick_repair(&mut self, context: &mut Context<'_>) {
        if self.repair_waits() {
            return;
        }
        let need = self.replica.repair_need();
        let view = self.repair_view();
        let mut out = std::mem::take(&mut context.scratch.repair);
        self.requester
            .tick(&view, need.as_ref(), context.repairs, &mut out);
        self.act_on_repair(out, context);
    }

    /// After a step that may have changed the log.
    pub(super) fn advance_repair(&mut self, context: &mut Context<'_>) {
        if !self.requester.has_session() || self.repair_waits() {
            return;
        }
        let need = self.replica.repair_need();
        let view = self.repair_view();
        let mut out = std::mem::take(&mut context.scratch.repair);
        self.requester
            .advance(&view, need.as_ref(), context.repairs, &mut out);
        self.act_on_repair(out, context);
    }

    fn act_on_repair(&mut self, mut out: Vec<RepairOutput>, context: &mut Context<'_>) {
        for output in out.drain(..) {
            match output {
                RepairOutput::Send { to, message } => context.send(to, message),
                RepairOutput::ArmTransfer { .. } | RepairOutput::RaiseFloor { .. }
                    if self.is_stuck_before_purge() => {}
                RepairOutput::ArmTransfer { from } => self.arm_transfer(from, context),
                // Raising the applied point skips operations. Their messages are here, their
                // stored positions are not: a replica that knows where it stands has the whole
                // state sent instead. One that restarted without a log does not know.
                RepairOutput::RaiseFloor { .. } if self.replica.commit_min() > Op::ZERO => {
                    self.arm_transfer(self.replica.primary(), context);
                }
                // Where the log is on disk a restart tells where it stands. Messages of operations
                // that neither it nor the log has come from an install that was cut short before
                // its positions were written: it is done again.
                RepairOutput::RaiseFloor { .. } if self.state.persisted => {
                    self.arm_transfer(self.whom_to_ask(self.replica.primary(), context), context);
                }
                // A window without messages says nothing about those below.
                RepairOutput::RaiseFloor { to } if self.lacks_evidence(to) => {
                    self.arm_transfer(self.replica.primary(), context);
                }
                RepairOutput::RaiseFloor { to } => self.want_raise(to, context),
                RepairOutput::Opened {
                    peer,
                    from,
                    to,
                    kind,
                } => {
                    tracing::debug!(group = %self.spec.group, %peer, %from, %to, ?kind, "repair");
                }
                RepairOutput::Closed { peer, outcome } => {
                    self.note_repair(peer, outcome);
                    tracing::debug!(group = %self.spec.group, %peer, ?outcome, "repair closed");
                }
            }
        }
        context.scratch.repair = out;
    }

    pub(super) fn lacks_evidence(&self, floor: Op) -> bool {
        let to = self.replica.commit_max();
        if floor >= to {
            return false;
        }
        // More may have been committed since the session asked: what is missing of it is no
        // evidence either.
        let window = GroupHistory::of(&self.replica, &self.state, &self.segments).window(floor, to);
        window.base_min.is_none()
    }

    /// A peer lacks operations.
    pub(super) fn serve_repair(
        &mut self,
        from: ReplicaId,
        request: &RequestPreparesHeader,
        context: &mut Context<'_>,
    ) {
        self.note_peer_behind(context);
        let status = self.replica.status();
        let log = self.replica.log();
        let retained = log.first().unwrap_or(status.commit_min.next());
        let facts = ServeFacts {
            cluster: context.node.identity.cluster,
            replica: context.node.identity.replica,
            group: self.spec.group,
            plane: PlaneKind::Partition,
            status: group_status(status.status),
            transferring: status.transfer_stage != vsr::TransferStage::Idle,
            purge_deferred: self.purge.is_imminent(context.now),
            primary: status.primary,
            retained_from: retained.max(self.purge_retained_from()),
            commit_max: status.commit_max,
            head: status.op_head,
            chunk_max: u32::try_from(context.node.limits.repair_chunk_max).unwrap_or(u32::MAX),
        };
        repair::serve(request, &facts, &LogSource(log), |message| {
            context.send(from, message);
            true
        });
    }

    /// The first op that is of use after a purge: its marker, because it says which purge that
    /// was, or what follows.
    fn purge_retained_from(&self) -> Op {
        let floor = self.state.purge_floor;
        let held = self.replica.log().get(floor);
        let is_marker = held.is_some_and(|prepare| {
            purge_marker::is_marker(prepare.header::<PrepareHeader>(), prepare.body())
        });
        if is_marker { floor } else { floor.next() }
    }

    /// A repaired prepare: byte 60 still says so.
    pub(super) fn on_repair_prepare(
        &mut self,
        from: ReplicaId,
        message: Message,
        context: &mut Context<'_>,
    ) {
        let prepare = message.repair_to_prepare();
        let header = *prepare.header::<PrepareHeader>();
        if self.purge.is_running() || self.requester.admits(&self.repair_view(), &header).is_err() {
            return;
        }
        let content = held_op(header.op(), &prepare, self.state.purge_floor);
        if !self.has_log_room(&header, context) {
            // What it says of offsets counts all the same: it may be that a transfer is due.
            if is_sound(&prepare) {
                let outcome = Ingested::OutOfReach;
                self.requester.on_ingested(header.op(), outcome, content);
            }
            return;
        }
        let out = &mut context.scratch.vsr;
        let outcome = match self
            .replica
            .ingest_repaired(prepare.clone(), &mut self.state, out)
        {
            vsr::Ingest::Journaled => Ingested::Stored,
            vsr::Ingest::Duplicate => Ingested::Duplicate,
            // Far above what is applied here the log takes nothing yet, but the offsets of a
            // sound batch say whether the applied point may be raised to it.
            vsr::Ingest::Ignored(vsr::IngestRefusal::OutOfScope) if is_sound(&prepare) => {
                Ingested::OutOfReach
            }
            vsr::Ingest::Ignored(reason) => {
                tracing::debug!(group = %self.spec.group, op = %header.op(), ?reason, "repair");
                if is_sound(&prepare) {
                    self.notice_loss_in_repair(from, &header, context);
                }
                return;
            }
        };
        self.requester.on_ingested(header.op(), outcome, content);
    }

    /// A peer no longer has the start of what was asked.
    pub(super) fn on_range_evicted(
        &mut self,
        reply: &RepairRangeReplyHeader,
        context: &mut Context<'_>,
    ) {
        let need = self.replica.repair_need();
        let view = self.repair_view();
        let mut out = std::mem::take(&mut context.scratch.repair);
        let budget = &mut *context.repairs;
        self.requester
            .on_range_evicted(&view, need.as_ref(), reply, budget, &mut out);
        self.act_on_repair(out, context);
    }

    /// A peer sent what it was going to send.
    pub(super) fn on_repair_done(
        &mut self,
        reply: &RepairRangeReplyHeader,
        context: &mut Context<'_>,
    ) {
        self.translate(context);
        self.walk_commits(context);
        let need = self.replica.repair_need();
        let view = self.repair_view();
        let history = GroupHistory::of(&self.replica, &self.state, &self.segments);
        let mut out = std::mem::take(&mut context.scratch.repair);
        let budget = &mut *context.repairs;
        self.requester
            .on_done(&view, need.as_ref(), reply, &history, budget, &mut out);
        self.act_on_repair(out, context);
    }
}
