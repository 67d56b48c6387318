//! Journal repair: asking for missing prepares, taking them in, and serving those of others
//! (protocol specification, chapter 04, section 2).

use biplane_repair::{
    GroupView, HeldOp, Ingested, NoHistory, PlaneKind, PrepareSource, RepairOutput, ServeFacts,
    serve,
};
use biplane_vsr::{Ingest, Log, TransferStage};
use biplane_wire::{
    Command, GroupId, Message, Op, PrepareHeader, RepairRangeReplyHeader, RequestPreparesHeader,
    Typed,
};

use super::MetadataPlane;
use crate::io::Output;

/// The log of the core as a source of prepares.
struct Held<'a>(&'a Log);

impl PrepareSource for Held<'_> {
    fn prepare(&self, op: Op) -> Option<Message> {
        self.0.get(op).cloned()
    }

    fn next_held(&self, from: Op, to: Op) -> Option<Op> {
        self.0.next_held(from, to)
    }
}

impl MetadataPlane {
    fn group_view(&self) -> GroupView {
        GroupView::of(&self.replica.status(), self.puller.is_scheduled(), false)
    }

    pub(super) fn tick_repair(&mut self, out: &mut Vec<Output>) {
        let (view, need) = (self.group_view(), self.replica.repair_need());
        let mut said = Vec::new();
        self.repair_budget.begin_tick();
        self.requester
            .tick(&view, need.as_ref(), &mut self.repair_budget, &mut said);
        self.carry_repair(said, out);
    }

    /// Looks again after anything that changed log, commit point, view or transfer.
    pub(super) fn advance_repair(&mut self, out: &mut Vec<Output>) {
        let (view, need) = (self.group_view(), self.replica.repair_need());
        let mut said = Vec::new();
        self.requester
            .advance(&view, need.as_ref(), &mut self.repair_budget, &mut said);
        self.carry_repair(said, out);
    }

    fn carry_repair(&mut self, said: Vec<RepairOutput>, out: &mut Vec<Output>) {
        for output in said {
            match output {
                RepairOutput::Send { to, message } => out.push(Output::Send { to, message }),
                RepairOutput::ArmTransfer { from } => self.start_transfer(from, out),
                // Only partitions have history outside of their log.
                RepairOutput::RaiseFloor { .. } => {}
                RepairOutput::Closed { peer, outcome } => {
                    self.trouble = biplane_repair::trouble(peer, outcome);
                }
                RepairOutput::Opened { .. } => {}
            }
        }
    }

    /// A prepare of somebody else's log. The core checks its content against the chain and
    /// against what the view's log names.
    pub(super) fn on_repair_prepare(&mut self, frame: Typed<PrepareHeader>) {
        let view = self.group_view();
        if self.requester.admits(&view, frame.header()).is_err() {
            return;
        }
        let op = frame.header().op();
        let message = frame.into_message();
        if message.command() != Command::RepairPrepare {
            return;
        }
        let prepare = message.repair_to_prepare();
        let (machine, said) = (&mut self.machine, &mut self.core_outputs);
        let outcome = match self.replica.ingest_repaired(prepare, machine, said) {
            Ingest::Journaled => Ingested::Stored,
            Ingest::Duplicate => Ingested::Duplicate,
            Ingest::Ignored(_) => return,
        };
        self.requester.on_ingested(op, outcome, HeldOp::Other);
    }

    pub(super) fn on_repair_done(&mut self, reply: &RepairRangeReplyHeader, out: &mut Vec<Output>) {
        if reply.frame.cluster() != self.config.cluster {
            return;
        }
        // What the chunk brought counts as progress only once it is applied.
        self.carry(out);
        self.commit(out);
        if self.halted {
            return;
        }
        let (view, need) = (self.group_view(), self.replica.repair_need());
        let mut said = Vec::new();
        let budget = &mut self.repair_budget;
        self.requester
            .on_done(&view, need.as_ref(), reply, &NoHistory, budget, &mut said);
        self.carry_repair(said, out);
    }

    pub(super) fn on_range_evicted(
        &mut self,
        reply: &RepairRangeReplyHeader,
        out: &mut Vec<Output>,
    ) {
        if reply.frame.cluster() != self.config.cluster {
            return;
        }
        let (view, need) = (self.group_view(), self.replica.repair_need());
        let mut said = Vec::new();
        let budget = &mut self.repair_budget;
        self.requester
            .on_range_evicted(&view, need.as_ref(), reply, budget, &mut said);
        self.carry_repair(said, out);
    }

    pub(super) fn on_request_prepares(
        &mut self,
        frame: &Typed<RequestPreparesHeader>,
        out: &mut Vec<Output>,
    ) {
        let request = frame.header();
        let to = request.frame.replica();
        if request.frame.cluster() != self.config.cluster || !self.is_peer(to) {
            return;
        }
        let status = self.replica.status();
        let facts = ServeFacts {
            cluster: self.config.cluster,
            replica: self.config.replica,
            group: GroupId::METADATA,
            plane: PlaneKind::Metadata,
            status: status.status,
            transferring: status.transfer_stage != TransferStage::Idle,
            purge_deferred: false,
            primary: status.primary,
            retained_from: self.watermark.next(),
            commit_max: status.commit_max,
            head: status.op_head,
            chunk_max: self.config.limits.repair_chunk_max,
        };
        serve(request, &facts, &Held(self.replica.log()), |message| {
            out.push(Output::Send { to, message });
            true
        });
    }
}
