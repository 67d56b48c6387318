//! Logins and logouts carried from a backup to the primary and their answers back (protocol
//! specification, chapter 03, section 12).
//!
//! Credentials are verified where the client is connected; only the verified identity travels,
//! one hop, and the answer is matched by nonce and client. What is not answered in time counts
//! as unknown, because it may have committed.

use std::collections::BTreeMap;

use biplane_wire::{
    ClientId, ClusterId, Command, ForwardLogoutHeader, ForwardLogoutOutcome,
    ForwardLogoutResultHeader, ForwardRegisterHeader, ForwardRegisterOutcome,
    ForwardRegisterResultHeader, Message, Op, ReplicaId, RequestNumber, View,
};

/// What was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// A login.
    Register,
    /// A logout.
    Logout,
}

/// A forwarded login or logout that has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) errand: Errand,
    pub(crate) client: ClientId,
    /// Token of the driver; None where the plane asked by itself.
    pub(crate) token: Option<u64>,
    /// Where it was sent.
    pub(crate) to: ReplicaId,
    /// Tick at which it counts as unanswered.
    deadline: u64,
}

/// Forwarded logins and logouts of this replica.
#[derive(Debug)]
pub(crate) struct Forwarding {
    cluster: ClusterId,
    replica: ReplicaId,
    counter: u64,
    parked: BTreeMap<u128, Parked>,
    /// Replicas that cannot be reached now.
    unreachable: Vec<ReplicaId>,
}

impl Forwarding {
    /// `incarnation` is random and new at every boot: nonces must not repeat.
    pub(crate) fn new(cluster: ClusterId, replica: ReplicaId, incarnation: u128) -> Self {
        let counter = u64::try_from(incarnation & u128::from(u64::MAX)).unwrap_or(1);
        Self {
            cluster,
            replica,
            counter,
            parked: BTreeMap::new(),
            unreachable: Vec::new(),
        }
    }

    /// How many are not answered.
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn set_connected(&mut self, replica: ReplicaId, connected: bool) {
        self.unreachable.retain(|other| *other != replica);
        if !connected {
            self.unreachable.push(replica);
        }
    }

    pub(crate) fn is_connected(&self, replica: ReplicaId) -> bool {
        !self.unreachable.contains(&replica)
    }

    /// Parks an errand and gives its nonce.
    fn park(
        &mut self,
        errand: Errand,
        client: ClientId,
        token: Option<u64>,
        to: ReplicaId,
        deadline: u64,
    ) -> u128 {
        // Zero is skipped: a nonce whose halves are both zero would not be one.
        self.counter = self.counter.wrapping_add(1).max(1);
        let nonce = u128::from(self.replica.0) << 64 | u128::from(self.counter);
        self.parked.insert(
            nonce,
            Parked {
                errand,
                client,
                token,
                to,
                deadline,
            },
        );
        nonce
    }

    /// A login to send to `to`.
    pub(crate) fn register(
        &mut self,
        token: u64,
        client: ClientId,
        user_id: u32,
        to: ReplicaId,
        view: View,
        deadline: u64,
    ) -> Message {
        let nonce = self.park(Errand::Register, client, Some(token), to, deadline);
        let mut header = ForwardRegisterHeader::new(Command::ForwardRegister);
        header.frame.set_cluster(self.cluster);
        header.frame.set_view(view);
        header.frame.set_replica(self.replica);
        header.set_client(client);
        header.set_nonce(nonce);
        header.set_user_id(user_id);
        Message::sealed(header, &[])
    }

    /// A logout to send to `to`.
    pub(crate) fn logout(
        &mut self,
        token: Option<u64>,
        (client, session): (ClientId, u64),
        request: RequestNumber,
        to: ReplicaId,
        view: View,
        deadline: u64,
    ) -> Message {
        let nonce = self.park(Errand::Logout, client, token, to, deadline);
        let mut header = ForwardLogoutHeader::new(Command::ForwardLogout);
        header.frame.set_cluster(self.cluster);
        header.frame.set_view(view);
        header.frame.set_replica(self.replica);
        header.set_client(client);
        header.set_nonce(nonce);
        header.set_session(session);
        header.set_request(request);
        Message::sealed(header, &[])
    }

    /// The errand that an answer belongs to; it is parked no more.
    pub(crate) fn answered(
        &mut self,
        errand: Errand,
        nonce: u128,
        client: ClientId,
    ) -> Option<Parked> {
        let parked = self.parked.get(&nonce)?;
        if parked.client != client || parked.errand != errand {
            return None;
        }
        self.parked.remove(&nonce)
    }

    /// Errands that nobody has answered by `now`; they are parked no more.
    pub(crate) fn expired(&mut self, now: u64) -> Vec<Parked> {
        self.take_where(|parked| parked.deadline <= now)
    }

    /// Errands sent to a replica that is gone; they are parked no more.
    pub(crate) fn lost_with(&mut self, replica: ReplicaId) -> Vec<Parked> {
        self.take_where(|parked| parked.to == replica)
    }

    fn take_where(&mut self, condition: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let nonces: Vec<u128> = self
            .parked
            .iter()
            .filter(|(_, p)| condition(p))
            .map(|(nonce, _)| *nonce)
            .collect();
        nonces
            .iter()
            .filter_map(|nonce| self.parked.remove(nonce))
            .collect()
    }

    /// The answer to a login that another replica forwarded: epoch and watermark, or why not.
    pub(crate) fn register_result(
        &self,
        nonce: u128,
        client: ClientId,
        view: View,
        outcome: Result<(u64, u64), ForwardRegisterOutcome>,
    ) -> Message {
        let mut header = ForwardRegisterResultHeader::new(Command::ForwardRegisterResult);
        header.frame.set_cluster(self.cluster);
        header.frame.set_view(view);
        header.frame.set_replica(self.replica);
        header.set_nonce(nonce);
        header.set_client(client);
        match outcome {
            Ok((epoch, watermark)) => {
                header.set_epoch(epoch);
                header.set_watermark(RequestNumber(watermark));
                header.set_outcome(ForwardRegisterOutcome::Ok);
            }
            Err(reason) => header.set_outcome(reason),
        }
        Message::sealed(header, &[])
    }

    /// The answer to a logout that another replica forwarded: the op, or why not.
    pub(crate) fn logout_result(
        &self,
        nonce: u128,
        client: ClientId,
        view: View,
        outcome: Result<Op, ForwardLogoutOutcome>,
    ) -> Message {
        let mut header = ForwardLogoutResultHeader::new(Command::ForwardLogoutResult);
        header.frame.set_cluster(self.cluster);
        header.frame.set_view(view);
        header.frame.set_replica(self.replica);
        header.set_nonce(nonce);
        header.set_client(client);
        match outcome {
            Ok(commit) => {
                header.set_commit(commit);
                header.set_outcome(ForwardLogoutOutcome::Ok);
            }
            Err(reason) => header.set_outcome(reason),
        }
        Message::sealed(header, &[])
    }
}
