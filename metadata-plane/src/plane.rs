//! The metadata plane: one consensus group, its state machine, its files, and everything that
//! repairs or replaces them, composed.
//!
//! The parts are siblings and do not know each other; this file carries what one says to the
//! next. A step takes one input and runs until nothing is left to carry.

mod admission;
mod births;
mod cleanups;
mod config;
mod confirmation;
mod machine;
mod maintenance;
mod open;
mod outcomes;
mod removals;
mod repairing;
mod status;
mod storage;
mod transfer;
mod waiters;

use biplane_journal::{DiskCompletion, DiskRequest, QueueId};
use biplane_repair::{Budget, Requester};
use biplane_state_transfer::{MemorySpool, Provider, PullBudget, Puller};
use biplane_vsr as vsr;
use biplane_vsr::Replica;
use biplane_wire::{Message, Op, PrepareHeader, ReplicaFrame, ReplicaId};

pub use config::{Config, Limits, OpenError, RootUser, Timers};
pub use status::Status;

use crate::forwarding::Forwarding;
use crate::io::{HaltReason, Input, Output};
use births::Births;
use cleanups::Cleanups;
use confirmation::Confirmation;
use machine::Machine;
use storage::{Storage, StorageEvent};
use transfer::Install;
use waiters::Waiters;

/// The metadata plane of one node. See the front page of the crate.
pub struct MetadataPlane {
    config: Config,
    replica: Replica,
    machine: Machine,
    storage: Storage,
    requester: Requester,
    repair_budget: Budget,
    puller: Puller,
    /// How the last attempt to catch up ended, where it did not succeed.
    trouble: Option<String>,
    pull_budget: PullBudget,
    spool: MemorySpool,
    provider: Provider,
    install: Option<Install>,
    forwarding: Forwarding,
    waiters: Waiters,
    cleanups: Cleanups,
    confirmation: Confirmation,
    births: Births,
    /// See [`MetadataPlane::is_topology_settled`].
    unsettled: Option<Op>,
    /// Access tokens that were found expired and wait for their deletion, last first.
    expired: Vec<(u32, String)>,
    /// Highest op that a checkpoint took out of the log.
    watermark: Op,
    wall_micros: u64,
    ticks: u64,
    /// What the consensus core has said and nobody has carried out yet.
    core_outputs: Vec<vsr::Output>,
    halted: bool,
}

impl MetadataPlane {
    /// Takes in what happened and appends what is to be done about it, in order.
    ///
    /// After [`Output::Halt`] all further input is ignored.
    pub fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        if self.halted {
            return;
        }
        self.look();
        match input {
            Input::Tick { wall_micros } => self.on_tick(wall_micros, out),
            Input::Frame(frame) => self.on_frame(frame, out),
            Input::Disk(completion) => self.on_disk(completion, out),
            Input::Peer { replica, connected } => self.on_peer(replica, connected, out),
            Input::Submit { token, request } => self.on_submit(token, request, out),
            Input::Register {
                token,
                client,
                user_id,
            } => {
                self.on_register(token, client, user_id, out);
            }
            Input::Logout {
                token,
                client,
                session,
                request,
            } => {
                self.on_logout(token, client, session, request, out);
            }
            Input::CompleteRevocation(key) => self.propose_revocation(key),
            Input::PartitionView(view) => self.machine.numbers.views.note_reached(view),
        }
        self.settle(out);
    }

    /// Whether completions of this disk queue belong to the plane.
    pub fn owns(queue: QueueId) -> bool {
        Storage::owns(queue)
    }

    fn on_frame(&mut self, frame: ReplicaFrame, out: &mut Vec<Output>) {
        match frame {
            ReplicaFrame::RepairPrepare(frame) => self.on_repair_prepare(frame),
            ReplicaFrame::RequestPrepares(frame) => self.on_request_prepares(&frame, out),
            ReplicaFrame::RepairDone(frame) => self.on_repair_done(frame.header(), out),
            ReplicaFrame::RangeEvicted(frame) => self.on_range_evicted(frame.header(), out),
            ReplicaFrame::RequestStateTransfer(frame) => self.on_transfer_request(&frame, out),
            ReplicaFrame::RequestStateChunk(frame) => self.on_chunk_request(&frame, out),
            ReplicaFrame::StateTransferTarget(frame) => self.on_transfer_target(&frame, out),
            ReplicaFrame::StateChunk(frame) => self.on_state_chunk(&frame, out),
            ReplicaFrame::ForwardRegister(frame) => self.on_forward_register(&frame, out),
            ReplicaFrame::ForwardLogout(frame) => self.on_forward_logout(&frame, out),
            ReplicaFrame::ForwardRegisterResult(frame) => self.on_register_result(&frame, out),
            ReplicaFrame::ForwardLogoutResult(frame) => self.on_logout_result(&frame, out),
            // Nobody of this generation sends one; executing it would trust a peer's word for a
            // client it never authenticated here.
            ReplicaFrame::RoutedRequest(_) => {}
            ReplicaFrame::Commit(frame) => {
                let before = self.replica.heartbeat();
                let commit = frame.header().commit();
                self.step_core(vsr::Input::Frame(ReplicaFrame::Commit(frame)));
                if self.replica.heartbeat() != before {
                    self.confirmation.heard(commit);
                    self.births.heard(commit);
                }
            }
            ReplicaFrame::Prepare(frame) => {
                let (before, op) = (self.replica.op_head(), frame.header().op());
                self.step_core(vsr::Input::Frame(ReplicaFrame::Prepare(frame)));
                // Taken from the primary of the view. Had anything from here on been committed,
                // the prepare would not be on its way any more.
                if before < op && self.replica.op_head() == op {
                    self.births.heard(Op(op.0 - 1));
                }
            }
            frame => self.step_core(vsr::Input::Frame(frame)),
        }
    }

    fn on_peer(&mut self, replica: ReplicaId, connected: bool, out: &mut Vec<Output>) {
        self.step_core(vsr::Input::Peer { replica, connected });
        self.forwarding.set_connected(replica, connected);
        if !connected {
            self.requester.on_peer_lost(replica);
            self.fail_forwards_to(replica, out);
        }
    }

    fn on_disk(&mut self, completion: DiskCompletion, out: &mut Vec<Output>) {
        self.with_disk(out, |storage, disk| storage.complete(completion, disk));
    }

    /// Runs `work` on the files and passes their requests on.
    fn with_disk<R>(
        &mut self,
        out: &mut Vec<Output>,
        work: impl FnOnce(&mut Storage, &mut Vec<DiskRequest>) -> R,
    ) -> R {
        let mut disk = Vec::new();
        let result = work(&mut self.storage, &mut disk);
        out.extend(disk.into_iter().map(Output::Disk));
        result
    }

    fn step_core(&mut self, input: vsr::Input) {
        self.replica
            .step(input, &mut self.machine, &mut self.core_outputs);
        self.births.look(&self.replica);
    }

    /// Tells the state machine how the replica stands and what the log can take; the core asks
    /// it about requests and prepares.
    fn look(&mut self) {
        let limit = self.storage.op_limit();
        let pipeline = u64::from(self.config.limits.prepare_queue_depth);
        self.machine.caught_up = self.replica.is_caught_up_primary();
        self.machine.op_limit = limit;
        self.machine.has_room = self.replica.op_head().0.saturating_add(pipeline) <= limit.0
            && self.storage.no_room().is_none();
    }

    /// Carries effects and events among the parts until nothing is left.
    fn settle(&mut self, out: &mut Vec<Output>) {
        loop {
            self.carry(out);
            if self.halted {
                return;
            }
            let applied = self.commit(out);
            if self.halted {
                return;
            }
            self.look();
            let promoted = self
                .replica
                .promote(&mut self.machine, &mut self.core_outputs);
            self.advance_install(out);
            self.advance_repair(out);
            self.checkpoint_if_due(out);
            let is_quiet = self.core_outputs.is_empty() && !self.storage.has_events();
            if is_quiet && !applied && !promoted {
                break;
            }
        }
        self.settle_topology(out);
        if self.confirmation.is_due(self.replica.commit_min()) {
            out.push(Output::Confirmed);
        }
    }

    /// Carries out what the core said, and tells it what has become durable.
    fn carry(&mut self, out: &mut Vec<Output>) {
        while !self.core_outputs.is_empty() || self.storage.has_events() {
            for output in std::mem::take(&mut self.core_outputs) {
                self.on_core_output(output, out);
            }
            for event in self.storage.take_events() {
                self.on_storage_event(event, out);
            }
            if self.halted {
                return;
            }
        }
    }

    fn on_core_output(&mut self, output: vsr::Output, out: &mut Vec<Output>) {
        match output {
            vsr::Output::Send { to, message } => out.push(Output::Send { to, message }),
            vsr::Output::Append { prepare } => {
                self.with_disk(out, |storage, disk| storage.append(prepare, disk));
            }
            vsr::Output::Truncate { from } => {
                self.with_disk(out, |storage, disk| storage.truncate(from, disk));
            }
            vsr::Output::PersistView {
                view,
                log_view,
                commit_max,
            } => {
                self.with_disk(out, |storage, disk| {
                    storage.persist_view(view, log_view, commit_max, disk);
                });
            }
            vsr::Output::Promoted { .. } => {}
            vsr::Output::Denied {
                token,
                request,
                reason,
                ..
            } => {
                self.on_denied(token, &request, reason, out);
            }
            vsr::Output::Canceled { token, .. } => self.on_canceled(token, out),
            vsr::Output::Transfer(notice) => self.on_transfer_notice(notice, out),
            vsr::Output::Role(role) => out.push(Output::Role(role)),
            vsr::Output::Halt(reason) => self.halt(HaltReason::Replica(reason), out),
        }
    }

    fn on_storage_event(&mut self, event: StorageEvent, out: &mut Vec<Output>) {
        match event {
            StorageEvent::Appended { op, checksum } => {
                self.step_core(vsr::Input::Appended { op, checksum });
            }
            StorageEvent::Refused { op, checksum } => {
                self.step_core(vsr::Input::AppendFailed { op, checksum });
            }
            StorageEvent::Truncated { from } => self.step_core(vsr::Input::Truncated { from }),
            StorageEvent::ViewPersisted {
                view,
                log_view,
                commit_max,
            } => {
                self.step_core(vsr::Input::ViewPersisted {
                    view,
                    log_view,
                    commit_max,
                });
            }
            StorageEvent::SnapshotWritten { op } => self.on_snapshot_written(op, out),
            StorageEvent::Checkpointed { op } => self.on_checkpointed(op, out),
            StorageEvent::Failed(error) => self.halt(HaltReason::Journal(error), out),
        }
    }

    /// Applies what is committed; whether anything was.
    fn commit(&mut self, out: &mut Vec<Output>) -> bool {
        let mut any = false;
        while let Some(prepare) = self.next_to_apply() {
            let header = *prepare.header::<PrepareHeader>();
            let committed = match self.machine.commit(&prepare) {
                Ok(committed) => committed,
                Err(reason) => {
                    self.halt(
                        HaltReason::Undecodable {
                            op: header.op(),
                            reason,
                        },
                        out,
                    );
                    return true;
                }
            };
            // The reply is in the table by now: cached first, delivered after.
            let number = self.replica.applied(header.op());
            if self.replica.is_primary() {
                self.confirmation.followed(header.op(), self.ticks);
            }
            let is_new = self.births.is_new(header.op());
            let changes = committed.topology.iter().cloned();
            out.extend(changes.map(|change| Output::Topology(change.dated(is_new))));
            out.extend(committed.session.map(Output::Session));
            if let Some(waiter) = number.and_then(|number| self.waiters.take(number)) {
                self.deliver(waiter, &header, &committed, out);
            }
            any = true;
        }
        any
    }

    /// The next prepare to apply. State that is about to be replaced is left alone.
    fn next_to_apply(&self) -> Option<Message> {
        if self.install.is_some() {
            return None;
        }
        let next = self.replica.next_committed()?;
        (!self.waits_for_disk(next)).then(|| next.clone())
    }

    fn halt(&mut self, reason: HaltReason, out: &mut Vec<Output>) {
        self.halted = true;
        out.push(Output::Halt(reason));
    }
}
