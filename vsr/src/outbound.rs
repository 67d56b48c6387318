//! Every frame that leaves.
//!
//! The single place where frames are built and sent. Each function asserts who may send its
//! frame, in which status and view, and what must be on disk; the callers made those facts
//! true, so a failure here is a bug of ours and stops the replica before it can lie to others.

use std::collections::VecDeque;

use biplane_wire::{
    Command, CommitHeader, DoViewChangeHeader, FramePrefix, HEADER_SIZE, Message, Op,
    PrepareHeader, PrepareOkHeader, ReplicaId, RequestStartViewHeader, StartViewChangeHeader,
    StartViewHeader,
};

use crate::config::Forward;
use crate::constants::ACKNOWLEDGEMENT_FRAMES_MAX;
use crate::io::Output;
use crate::pending::ProbeAnswer;
use crate::replica::{Context, Replica};
use crate::status::Status;

/// Acknowledgement frames that were sent, oldest first, to be written over when their receivers
/// are done with them: the one frame a backup makes for every op costs no allocation then.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    sent: VecDeque<Message>,
    /// Whether one was made since the last look.
    used: bool,
}

impl Acknowledgements {
    /// A frame of this header, sealed.
    fn frame(&mut self, mut header: PrepareOkHeader) -> Message {
        self.used = true;
        header.frame.set_size(HEADER_SIZE as u32);
        biplane_wire::seal(&mut header);
        if let Some(mut oldest) = self.sent.pop_front() {
            if oldest.reuse_for(&header) {
                self.sent.push_back(oldest.clone());
                return oldest;
            }
            self.sent.push_front(oldest);
        }
        let message = Message::from_parts(header, &[]);
        if self.sent.len() < ACKNOWLEDGEMENT_FRAMES_MAX {
            self.sent.push_back(message.clone());
        }
        message
    }

    /// Frees them when none was needed since the last call: thousands of groups are idle.
    pub(crate) fn release_idle(&mut self) {
        if !std::mem::take(&mut self.used) {
            self.sent = VecDeque::new();
        }
    }
}

impl Replica {
    fn stamp_frame(&self, frame: &mut FramePrefix) {
        frame.set_cluster(self.config.cluster);
        frame.set_replica(self.config.replica);
        frame.set_view(self.view);
    }

    fn send(&self, to: ReplicaId, message: Message, out: &mut Vec<Output>) {
        assert!(to != self.config.replica, "nothing is sent to oneself");
        assert!(to.0 < self.config.replica_count, "only to members");
        assert!(self.halted.is_none(), "a stopped replica is silent");
        out.push(Output::Send { to, message });
    }

    fn broadcast(&self, message: &Message, out: &mut Vec<Output>) {
        for to in (0..self.config.replica_count).map(ReplicaId) {
            if to != self.config.replica {
                self.send(to, message.clone(), out);
            }
        }
    }

    /// A prepare to the next replica of the ring that is connected, up to the primary.
    pub(crate) fn forward_prepare(&self, prepare: &Message, out: &mut Vec<Output>) {
        self.assert_prepare_may_leave(prepare);
        let count = self.config.replica_count;
        let mut next = ReplicaId((self.config.replica.0 + 1) % count);
        while next != self.primary() {
            if self.connected.contains(next) {
                self.send(next, prepare.clone(), out);
                return;
            }
            next = ReplicaId((next.0 + 1) % count);
        }
    }

    /// A prepare again, to a replica whose acknowledgement is missing.
    pub(crate) fn retransmit_prepare<P>(&mut self, op: Op, to: ReplicaId, cx: &mut Context<'_, P>) {
        assert!(self.leads(), "only the primary sends prepares again");
        let view = self.view;
        let Some(held) = self.log.held_mut(op) else {
            return;
        };
        if self.config.forward == Forward::AfterDurable && !held.is_durable() {
            return;
        }
        held.message = held.message.prepare_in_view(view);
        let message = held.message.clone();
        self.assert_prepare_may_leave(&message);
        self.send(to, message, cx.out);
    }

    fn assert_prepare_may_leave(&self, prepare: &Message) {
        let header = prepare.header::<PrepareHeader>();
        assert!(
            header.frame.command() == Command::Prepare,
            "a prepare goes out as a prepare"
        );
        assert!(
            self.status == Status::Normal,
            "prepares leave normal replicas"
        );
        assert!(
            header.frame.view() == self.view,
            "a prepare leaves under the current view"
        );
        assert!(
            header.op() > self.commit_min,
            "applied ops are not passed on"
        );
        if self.leads() {
            assert!(
                self.view_is_durable(),
                "the view is durable before its prepares leave"
            );
        }
        let held = self
            .log
            .held(header.op())
            .expect("what leaves is in the log");
        assert!(
            held.checksum() == header.frame.checksum(),
            "and it is the same"
        );
        let is_ready = self.config.forward == Forward::Immediately || held.is_durable();
        assert!(is_ready, "durable before it is passed on");
    }

    /// The promise that `op` is held here.
    pub(crate) fn send_prepare_ok(&mut self, op: Op, out: &mut Vec<Output>) {
        assert!(
            self.status == Status::Normal,
            "only normal replicas acknowledge"
        );
        assert!(!self.leads(), "the primary counts itself without a frame");
        assert!(!self.is_transferring(), "not while state is replaced");
        assert!(!self.ceded, "not before a view was adopted");
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        assert!(self.log_view_is_durable(), "and so is the log of it");
        assert!(op <= self.op_head, "only ops of the log");
        let held = self.log.held(op).expect("only what is held");
        assert!(
            held.is_durable(),
            "only what is as durable as the plane asks"
        );
        assert!(
            self.log.is_verified(op),
            "only what is known to be of this view"
        );
        let header = PrepareOkHeader::acknowledging(held.header());
        self.send_acknowledgement(header, out);
    }

    fn send_acknowledgement(&mut self, mut header: PrepareOkHeader, out: &mut Vec<Output>) {
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        header.set_commit(self.commit_max);
        let message = self.acknowledgements.frame(header);
        self.send(self.primary(), message, out);
    }

    /// The same promise for a prepare that is applied here and not held any more.
    pub(crate) fn send_prepare_ok_applied(
        &mut self,
        prepare: &PrepareHeader,
        out: &mut Vec<Output>,
    ) {
        assert!(
            self.status == Status::Normal,
            "only normal replicas acknowledge"
        );
        assert!(!self.leads(), "the primary counts itself without a frame");
        assert!(!self.is_transferring(), "not while state is replaced");
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        assert!(self.log_view_is_durable(), "and so is the log of it");
        assert!(prepare.op() <= self.commit_min, "only what is applied");
        self.send_acknowledgement(PrepareOkHeader::acknowledging(prepare), out);
    }

    /// Heartbeat: the applied op, never merely what is known to be committed.
    pub(crate) fn broadcast_commit(&mut self, out: &mut Vec<Output>) {
        assert!(self.leads(), "only the primary has a heartbeat");
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        // Within a view only a larger counter counts; it goes on from the last one accepted.
        self.heartbeat = (self.view, self.heartbeat.1.saturating_add(1));
        let mut header = CommitHeader::new(Command::Commit);
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        header.set_commit(self.commit_min);
        header.set_timestamp_monotonic(self.heartbeat.1);
        self.broadcast(&Message::sealed(header, &[]), out);
    }

    pub(crate) fn broadcast_start_view_change(&self, out: &mut Vec<Output>) {
        assert!(
            self.status == Status::ViewChange,
            "only from within a view change"
        );
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        let mut header = StartViewChangeHeader::new(Command::StartViewChange);
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        self.broadcast(&Message::sealed(header, &[]), out);
    }

    pub(crate) fn broadcast_do_view_change(&self, out: &mut Vec<Output>) {
        assert!(
            self.status == Status::ViewChange,
            "only from within a view change"
        );
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        assert!(self.votes.own_sent, "the vote was released");
        let mut header = DoViewChangeHeader::new(Command::DoViewChange);
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        header.set_log_view(self.log_view_announced());
        header.set_commit(self.commit_announced());
        let message = self.own_suffix().do_view_change(header);
        self.broadcast(&message, out);
    }

    /// The log of the view to everybody: it has just started, or somebody lives in the past.
    pub(crate) fn broadcast_start_view(&self, out: &mut Vec<Output>) {
        let message = self.start_view_message(0);
        self.broadcast(&message, out);
    }

    pub(crate) fn answer_probe(&self, answer: ProbeAnswer, out: &mut Vec<Output>) {
        let message = self.start_view_message(answer.incarnation);
        self.send(answer.to, message, out);
    }

    fn start_view_message(&self, incarnation: u128) -> Message {
        assert!(self.leads(), "only the primary announces the log");
        assert!(
            self.log_view == self.view,
            "and only of a view that has started"
        );
        assert!(
            self.view_is_durable(),
            "the view is durable before it is spoken for"
        );
        let mut header = StartViewHeader::new(Command::StartView);
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        header.set_commit(self.commit_announced());
        header.set_incarnation(incarnation);
        self.announced_suffix().start_view(header)
    }

    /// The question who leads. It promises nothing, so nothing need be durable.
    pub(crate) fn broadcast_request_start_view(&self, out: &mut Vec<Output>) {
        assert!(
            self.status != Status::Normal,
            "a normal replica knows who leads"
        );
        let mut header = RequestStartViewHeader::new(Command::RequestStartView);
        self.stamp_frame(&mut header.frame);
        header.set_group(self.config.group);
        header.set_incarnation(self.config.incarnation);
        self.broadcast(&Message::sealed(header, &[]), out);
    }
}
