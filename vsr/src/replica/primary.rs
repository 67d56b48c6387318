//! The primary at work: admitting requests, preparing them, counting acknowledgements, sending
//! again what got lost (chapter 03 sections 6.1, 6.2, 6.6, 6.7, 6.8).

use biplane_wire::{
    Checksum, ClientId, Command, FrameBuffer, Op, Operation, PrepareHeader, PrepareOkHeader,
    RoutedRequestHeader, prepare,
};

use super::{Context, Handled, Replica};
use crate::constants::{CODE_NOT_COMMITTED, HEARTBEATS_UNTIL_IDLE};
use crate::io::{Admission, DenyReason, Output, Refusal};
use crate::log::Trust;
use crate::mutation::mutated;
use crate::pipeline::{Counted, InFlight, Waiting};
use crate::plane::{Plane, Promotion};
use crate::quorum::ReplicaSet;
use crate::status::{Ignored, Status};
use crate::timeout::TimerName;

impl Replica {
    /// A client request for this group: a frame with a routed request header in which client,
    /// user, operation, request number, request checksum and release are final, and the body as
    /// it shall be replicated. `token` comes back with whatever becomes of it.
    pub fn admit<P: Plane>(
        &mut self,
        request: FrameBuffer,
        token: u64,
        wall_micros: u64,
        plane: &mut P,
        out: &mut Vec<Output>,
    ) -> Admission {
        if let Some(reason) = self.refusal(&request) {
            return Admission::Refused { request, reason };
        }
        self.timers.set_wall_micros(wall_micros);
        let mut cx = Context { plane, out };
        if !self.requests.is_empty() {
            // Those who wait come first, or requests of one client would change places.
            self.promote_waiting(&mut cx);
        }
        let admission = if self.is_pipeline_full() || !self.requests.is_empty() {
            self.enqueue(request, token)
        } else {
            Admission::Prepared {
                op: self.prepare_request(request, token, &mut cx),
            }
        };
        self.settle(&mut cx);
        admission
    }

    /// As [`Self::admit`], but the request waits in the queue until the plane lets it through
    /// in [`Plane::promote`].
    pub fn park(&mut self, request: FrameBuffer, token: u64) -> Admission {
        match self.refusal(&request) {
            Some(reason) => Admission::Refused { request, reason },
            None => self.enqueue(request, token),
        }
    }

    fn refusal(&self, request: &FrameBuffer) -> Option<Refusal> {
        if !self.leads() || self.halted.is_some() {
            return Some(Refusal::NotPrimary);
        }
        if self.is_transferring() {
            return Some(Refusal::Transferring);
        }
        let client = request.header::<RoutedRequestHeader>().client();
        if self.config.single_in_flight && self.is_in_flight(client) {
            return Some(Refusal::InFlight);
        }
        None
    }

    fn is_in_flight(&self, client: ClientId) -> bool {
        self.pipeline.has_client(client)
            || self
                .requests
                .iter()
                .any(|waiting| waiting.client() == client)
    }

    fn is_pipeline_full(&self) -> bool {
        self.pipeline.len() >= usize::from(self.config.limits.prepare_queue)
    }

    fn enqueue(&mut self, request: FrameBuffer, token: u64) -> Admission {
        if self.requests.len() >= usize::from(self.config.limits.request_queue) {
            return Admission::Refused {
                request,
                reason: Refusal::Full,
            };
        }
        self.requests.push_back(Waiting { request, token });
        self.timers.wake_at(self.timers.now() + 1);
        Admission::Queued
    }

    /// Turns waiting requests into prepares while there is room; whether any was. Call it
    /// after applied ops made room.
    pub fn promote<P: Plane>(&mut self, plane: &mut P, out: &mut Vec<Output>) -> bool {
        if self.requests.is_empty() {
            return false;
        }
        let mut cx = Context { plane, out };
        let promoted = self.promote_waiting(&mut cx);
        self.settle(&mut cx);
        promoted
    }

    pub(crate) fn promote_waiting<P: Plane>(&mut self, cx: &mut Context<'_, P>) -> bool {
        let mut promoted = false;
        while self.is_primary() && !self.is_pipeline_full() {
            let Some(waiting) = self.requests.front() else {
                break;
            };
            let verdict = cx.plane.promote(&waiting.request);
            if verdict == Promotion::Wait {
                break;
            }
            let Some(Waiting { request, token }) = self.requests.pop_front() else {
                break;
            };
            match verdict {
                Promotion::Prepare => {
                    let op = self.prepare_request(request, token, cx);
                    cx.out.push(Output::Promoted { token, op });
                    promoted = true;
                }
                Promotion::Deny(code) => {
                    let reason = DenyReason::Plane;
                    cx.out.push(Output::Denied {
                        token,
                        request: request.freeze(),
                        code,
                        reason,
                    });
                }
                Promotion::Drop | Promotion::Wait => {}
            }
        }
        promoted
    }

    /// Builds the next prepare and puts it in log and pipeline. Leaving and acknowledging it
    /// are decided elsewhere.
    fn prepare_request<P: Plane>(
        &mut self,
        mut request: FrameBuffer,
        token: u64,
        cx: &mut Context<'_, P>,
    ) -> Op {
        let header = self.next_header(&request);
        cx.plane.stamp(&header, request.body_mut());
        let message = prepare::build(request, header);
        let built = message.header::<PrepareHeader>();
        let (op, checksum, client) = (built.op(), built.frame.checksum(), built.client());
        self.last_timestamp = built.timestamp();
        self.op_head = op;
        self.pipeline.push(InFlight {
            op,
            checksum,
            client,
            token: Some(token),
            acknowledged: ReplicaSet::EMPTY,
            quorum: false,
        });
        if !self.timers.is_running(TimerName::Prepare) {
            self.timers.start(TimerName::Prepare);
        }
        self.hasten_heartbeat();
        self.journal(message, Trust::Verified, true, cx);
        op
    }

    fn next_header(&self, request: &FrameBuffer) -> PrepareHeader {
        let routed = request.header::<RoutedRequestHeader>();
        let mut header = PrepareHeader::for_request(routed);
        header.frame.set_cluster(self.config.cluster);
        header.frame.set_replica(self.config.replica);
        header.frame.set_view(self.view);
        header
            .frame
            .set_size(u32::try_from(request.size()).expect("a request fits its frame"));
        header.set_group(self.config.group);
        header.set_op(self.op_head.next());
        header.set_commit(self.commit_max);
        let floor = self.last_timestamp.saturating_add(1);
        let wall_micros = self.timers.wall_micros();
        header.set_timestamp(if mutated!(TimestampUnordered) {
            wall_micros
        } else {
            wall_micros.max(floor)
        });
        // The identity of the head is known to whoever leads; a log that begins on transferred
        // state whose last prepare nobody has any more begins a new chain.
        header.set_parent(self.identity_at(self.op_head).unwrap_or_default());
        if matches!(header.operation(), Operation::Register | Operation::Logout) {
            header.set_request_checksum(Checksum::ZERO);
        }
        debug_assert!(header.frame.command() == Command::Prepare);
        header
    }

    pub(crate) fn on_prepare_ok(&mut self, header: &PrepareOkHeader) -> Handled {
        self.check_sender(&header.frame, header.group())?;
        if self.status != Status::Normal {
            return Err(Ignored::Status);
        }
        if !self.leads() {
            return Err(Ignored::NotPrimary);
        }
        if header.frame.view() < self.view && !mutated!(StaleAcknowledgement) {
            return Err(Ignored::ViewOlder);
        }
        if header.frame.view() > self.view {
            return Err(Ignored::ViewNewer);
        }
        if self.is_transferring() {
            return Err(Ignored::Transferring);
        }
        self.count_acknowledgement(
            header.op(),
            header.prepare_checksum(),
            header.frame.replica(),
        )
    }

    pub(crate) fn count_acknowledgement(
        &mut self,
        op: Op,
        checksum: Checksum,
        from: biplane_wire::ReplicaId,
    ) -> Handled {
        assert!(self.leads(), "only the primary counts");
        let quorum = self.quorums.replication;
        match self.pipeline.acknowledge(op, checksum, from, quorum) {
            Counted::Unknown => Err(Ignored::UnknownPrepare),
            Counted::Again => Err(Ignored::Counted),
            Counted::Added => Ok(()),
            Counted::Quorum => {
                self.commit_contiguous();
                Ok(())
            }
        }
    }

    /// The commit point follows the run of prepares with a quorum directly above it.
    fn commit_contiguous(&mut self) {
        let before = self.commit_max;
        while self
            .pipeline
            .get(self.commit_max.next())
            .is_some_and(|entry| entry.quorum)
        {
            self.commit_max = self.commit_max.next();
        }
        if self.commit_max == before {
            return;
        }
        if self.op_head > self.commit_max {
            self.timers.start(TimerName::Prepare);
        } else {
            self.timers.stop(TimerName::Prepare);
        }
    }

    pub(crate) fn on_prepare_timer<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if !self.leads() || self.op_head <= self.commit_max {
            self.timers.stop(TimerName::Prepare);
            return;
        }
        if self.view_is_durable() && !mutated!(NoRetransmission) {
            self.retransmit(cx);
        }
        self.timers.back_off(TimerName::Prepare, &mut self.prng);
    }

    fn retransmit<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        let others = ReplicaSet::all(self.config.replica_count).without(self.config.replica);
        let mut op = self.commit_max.next();
        while op <= self.op_head {
            let missing = match self.pipeline.get(op) {
                Some(entry) if !entry.quorum => others.minus(entry.acknowledged),
                _ => ReplicaSet::EMPTY,
            };
            for replica in missing.iter() {
                self.retransmit_prepare(op, replica, cx);
            }
            op = op.next();
        }
    }

    pub(crate) fn on_commit_timer<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if !self.leads() {
            self.timers.stop(TimerName::Commit);
            return;
        }
        if self.view_observed > self.view {
            self.begin_probe(cx);
            return;
        }
        let is_idle = self.has_nothing_to_tell();
        if !is_idle {
            self.heartbeats_idle = 0;
        }
        let interval = match self.heartbeats_idle >= HEARTBEATS_UNTIL_IDLE {
            true => self.config.timers.commit_idle,
            false => self.config.timers.commit,
        };
        self.timers.start_for(TimerName::Commit, interval);
        if self.view_is_durable() && !self.is_mute && !mutated!(NoHeartbeat) {
            self.broadcast_commit(cx.out);
            self.heartbeats_idle = self.heartbeats_idle.saturating_add(u8::from(is_idle));
        }
    }

    /// Whether this replica, where it leads, keeps its heartbeats to itself: its owner knows that
    /// it cannot commit anything for now. Backups take over after the usual silence if they are
    /// enough; if they are not, it goes on when it may speak again. To everybody else these
    /// heartbeats were lost on the way.
    pub fn set_mute(&mut self, is_mute: bool) {
        self.is_mute = is_mute;
    }

    /// Whether backups that heard the last heartbeats lack nothing.
    fn has_nothing_to_tell(&self) -> bool {
        self.op_head == self.commit_min
            && self.commit_min == self.commit_max
            && self.requests.is_empty()
    }

    /// There is something to tell, or somebody new to tell it to: the heartbeats come at their
    /// usual interval again, the next one within it.
    pub(crate) fn hasten_heartbeat(&mut self) {
        self.heartbeats_idle = 0;
        self.timers.hasten(TimerName::Commit);
    }

    /// Leaves the role behind: whoever waits for a prepare of this view is told that its fate
    /// is open, and requests that only waited are refused.
    pub(crate) fn release_clients<P>(&mut self, cx: &mut Context<'_, P>) {
        for (token, op) in self.pipeline.take_tokens() {
            cx.out.push(Output::Canceled { token, op });
        }
        for Waiting { request, token } in self.requests.drain(..) {
            let (code, reason) = (CODE_NOT_COMMITTED, DenyReason::ViewChanged);
            cx.out.push(Output::Denied {
                token,
                request: request.freeze(),
                code,
                reason,
            });
        }
    }
}
