//! What the plane does by itself: ticks, checkpoints, expired tokens, revocations, and the
//! logouts of connections that ended.

use biplane_vsr as vsr;
use biplane_vsr::sessions::REQUEST_DISCONNECT;
use biplane_wire::request::DeletePersonalAccessTokenPrepared;
use biplane_wire::{
    ClientId, Codec, ForwardLogoutHeader, ForwardLogoutResultHeader, ForwardRegisterHeader,
    ForwardRegisterResultHeader, Name, Op, Operation, ReplicaId, RequestNumber, Typed,
};

use super::MetadataPlane;
use super::admission::own_request;
use super::outcomes::Failure;
use super::storage::Saved;
use super::waiters::{Origin, Waiter};
use crate::forwarding::{Errand, Parked};
use crate::io::{HaltReason, Output};
use crate::revocation::RevocationKey;
use crate::sessions;
use crate::snapshot::encode_snapshot;

/// Most tokens looked at by one search for expired ones.
const EXPIRED_TOKENS_MAX: usize = 256;

impl MetadataPlane {
    pub(super) fn on_tick(&mut self, wall_micros: u64, out: &mut Vec<Output>) {
        self.wall_micros = wall_micros;
        self.ticks += 1;
        self.step_core(vsr::Input::Tick { wall_micros });
        let leads = self.replica.is_caught_up_primary();
        let applied = leads.then(|| self.replica.commit_min());
        let heartbeat = u64::from(self.replica.config().timers.heartbeat);
        self.confirmation.tick(applied, heartbeat, self.ticks);
        self.with_disk(out, |storage, disk| storage.tick(disk));
        // Prepares leave when they are durable here. A primary without room holds up everybody
        // until another one leads.
        let is_mute = self.storage.full_ticks() > self.replica.config().timers.heartbeat;
        self.replica.set_mute(is_mute);
        let limit = self.config.timers.superblock_stuck_ticks;
        if limit != 0 && self.storage.stuck_ticks() > limit {
            return self.halt(HaltReason::SuperblockStuck, out);
        }
        for parked in self.forwarding.expired(self.ticks) {
            self.fail_parked(parked, Failure::TimedOut, out);
        }
        self.retry_cleanups(out);
        self.expire_tokens();
        self.tick_transfer(out);
        self.tick_repair(out);
    }

    /// A checkpoint is due where the log is nearly full of applied ops.
    pub(super) fn checkpoint_if_due(&mut self, out: &mut Vec<Output>) {
        let margin = self.config.limits.checkpoint_margin();
        let op = self.replica.commit_min();
        let newest = self.storage.saved().map_or(Op::ZERO, |saved| saved.op);
        let idle = !self.storage.is_checkpointing() && self.install.is_none();
        if !idle || op <= newest || self.storage.free_slots() > margin {
            return;
        }
        let table = sessions::image(&self.machine.table);
        let payload = encode_snapshot(self.wall_micros, op, &self.machine.state, &table);
        let saved = Saved::new(op, payload.into());
        self.with_disk(out, |storage, disk| storage.begin_checkpoint(saved, disk));
    }

    /// Superblock and snapshot agree on disk: what the snapshot covers may go from the log. The
    /// entry at its op stays, because votes name it.
    pub(super) fn on_checkpointed(&mut self, op: Op, out: &mut Vec<Output>) {
        let below = op.previous().unwrap_or(Op::ZERO);
        self.watermark = self.watermark.max(below);
        self.replica.log_mut().evict_through(below);
        self.with_disk(out, |storage, disk| storage.drain(op, disk));
        self.finish_install(op, out);
    }

    /// Proposes the deletion of the access token that expired first. One at a time is in hand,
    /// because they share a client id; the next tick finds the next.
    fn expire_tokens(&mut self) {
        let interval = u64::from(self.config.timers.token_cleaner_ticks);
        if interval == 0 || !self.replica.is_caught_up_primary() {
            return;
        }
        if self.ticks.is_multiple_of(interval) {
            let users = self.machine.state.users();
            self.expired = users.expired_tokens(self.wall_micros, EXPIRED_TOKENS_MAX);
            self.expired.reverse();
        }
        let Some((user_id, name)) = self.expired.last().cloned() else {
            return;
        };
        let Ok(name) = Name::new(&name) else {
            return;
        };
        let body = DeletePersonalAccessTokenPrepared {
            user_id,
            name,
            only_if_expired: true,
        };
        let operation = Operation::DeletePersonalAccessToken;
        if self.propose(operation, ClientId(0), 0, RequestNumber(0), &body.encode()) {
            self.expired.pop();
        }
    }

    /// Proposes the completion of a revocation, where this replica may.
    pub(super) fn propose_revocation(&mut self, key: RevocationKey) {
        let is_pending = self.machine.state.is_pending(&key);
        if is_pending && self.replica.is_caught_up_primary() {
            let operation = Operation::CompleteConsumerGroupRevocation;
            let request = RequestNumber(u64::MAX);
            self.propose(operation, key.proposer(), 1, request, &key.body());
        }
    }

    /// Proposes an operation that nobody waits for; whether the core took it.
    fn propose(
        &mut self,
        operation: Operation,
        client: ClientId,
        session: u64,
        request: RequestNumber,
        body: &[u8],
    ) -> bool {
        let frame = own_request(operation, client, session, request, 0, body);
        let number = self.waiters.add(Waiter::Proposal);
        let is_taken = self.admit(frame, number).is_none();
        if !is_taken {
            self.waiters.take(number);
        }
        is_taken
    }

    fn retry_cleanups(&mut self, out: &mut Vec<Output>) {
        let machine = &self.machine;
        let due = self
            .cleanups
            .due(|client, session| machine.has_session(client, session));
        for (client, session) in due {
            let status = self.replica.status();
            let leads = status.primary == self.config.replica;
            if leads {
                let request = REQUEST_DISCONNECT;
                self.submit_logout(Origin::Nobody, client, session, request, out);
            } else if status.status == vsr::Status::Normal {
                self.send_logout(None, client, session, REQUEST_DISCONNECT, out);
            }
        }
    }

    pub(super) fn forward_register(
        &mut self,
        token: u64,
        client: ClientId,
        user_id: u32,
        out: &mut Vec<Output>,
    ) {
        let to = self.replica.primary();
        if !self.forwarding.is_connected(to) {
            let origin = Origin::Here(token);
            return self.fail_register(origin, client, Failure::Unreachable, out);
        }
        let (view, deadline) = (self.replica.view(), self.forward_deadline());
        let message = self
            .forwarding
            .register(token, client, user_id, to, view, deadline);
        out.push(Output::Send { to, message });
    }

    pub(super) fn forward_logout(
        &mut self,
        token: u64,
        client: ClientId,
        session: u64,
        request: RequestNumber,
        out: &mut Vec<Output>,
    ) {
        if self.forwarding.is_connected(self.replica.primary()) {
            self.send_logout(Some(token), client, session, request, out);
        } else {
            self.fail_logout(Origin::Here(token), client, Failure::Unreachable, out);
        }
    }

    fn send_logout(
        &mut self,
        token: Option<u64>,
        client: ClientId,
        session: u64,
        request: RequestNumber,
        out: &mut Vec<Output>,
    ) {
        let to = self.replica.primary();
        let (view, deadline) = (self.replica.view(), self.forward_deadline());
        let whose = (client, session);
        let message = self
            .forwarding
            .logout(token, whose, request, to, view, deadline);
        out.push(Output::Send { to, message });
    }

    fn forward_deadline(&self) -> u64 {
        self.ticks + u64::from(self.config.timers.forward_ticks)
    }

    pub(super) fn fail_forwards_to(&mut self, replica: ReplicaId, out: &mut Vec<Output>) {
        for parked in self.forwarding.lost_with(replica) {
            // It was sent: whether it arrived is unknown.
            self.fail_parked(parked, Failure::TimedOut, out);
        }
    }

    fn fail_parked(&mut self, parked: Parked, failure: Failure, out: &mut Vec<Output>) {
        let origin = parked.token.map_or(Origin::Nobody, Origin::Here);
        match parked.errand {
            Errand::Register => self.fail_register(origin, parked.client, failure, out),
            Errand::Logout => self.fail_logout(origin, parked.client, failure, out),
        }
    }

    /// Whether a frame comes from another member of this cluster.
    pub(super) fn is_peer(&self, replica: ReplicaId) -> bool {
        replica.0 < self.config.replica_count && replica != self.config.replica
    }

    pub(super) fn on_forward_register(
        &mut self,
        frame: &Typed<ForwardRegisterHeader>,
        out: &mut Vec<Output>,
    ) {
        let header = frame.header();
        let replica = header.frame.replica();
        if header.frame.cluster() != self.config.cluster || !self.is_peer(replica) {
            return;
        }
        let origin = Origin::There {
            replica,
            nonce: header.nonce(),
        };
        self.submit_register(origin, header.client(), header.user_id(), out);
    }

    pub(super) fn on_forward_logout(
        &mut self,
        frame: &Typed<ForwardLogoutHeader>,
        out: &mut Vec<Output>,
    ) {
        let header = frame.header();
        let replica = header.frame.replica();
        if header.frame.cluster() != self.config.cluster || !self.is_peer(replica) {
            return;
        }
        let origin = Origin::There {
            replica,
            nonce: header.nonce(),
        };
        let (session, request) = (header.session(), header.request());
        self.submit_logout(origin, header.client(), session, request, out);
    }

    pub(super) fn on_register_result(
        &mut self,
        frame: &Typed<ForwardRegisterResultHeader>,
        out: &mut Vec<Output>,
    ) {
        let header = frame.header();
        let (nonce, client) = (header.nonce(), header.client());
        let Some(outcome) = header.outcome() else {
            return;
        };
        let Some(parked) = self.forwarding.answered(Errand::Register, nonce, client) else {
            return;
        };
        let origin = parked.token.map_or(Origin::Nobody, Origin::Here);
        match Failure::of_register(outcome) {
            None => {
                let (epoch, watermark) = (header.epoch(), header.watermark().0);
                self.finish_register(origin, client, epoch, watermark, out);
            }
            Some(failure) => self.fail_register(origin, client, failure, out),
        }
    }

    pub(super) fn on_logout_result(
        &mut self,
        frame: &Typed<ForwardLogoutResultHeader>,
        out: &mut Vec<Output>,
    ) {
        let header = frame.header();
        let (nonce, client) = (header.nonce(), header.client());
        let Some(outcome) = header.outcome() else {
            return;
        };
        let Some(parked) = self.forwarding.answered(Errand::Logout, nonce, client) else {
            return;
        };
        let origin = parked.token.map_or(Origin::Nobody, Origin::Here);
        match Failure::of_logout(outcome) {
            None => self.finish_logout(origin, client, header.commit(), out),
            Some(failure) => self.fail_logout(origin, client, failure, out),
        }
    }
}
