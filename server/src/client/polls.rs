//! Polling and the routing that goes with it (chapter 06 sections 11 and 12, chapter 07 section
//! 9.5).

use biplane_partition_plane::{Input, PollQuery, PollReply, Strategy};
use biplane_wire::request::{AttachConsumerSession, GetConsumerOffset, PollMessages};
use biplane_wire::response::{NodeRole, PolledMessages, Routing};
use biplane_wire::{
    ClientId, Codec as _, Consumer, ConsumerKind, ErrorCode, GroupId, Op, PollingKind,
    PollingStrategy,
};

use super::dispatch::Request;
use super::reply::{self, Position};
use super::resolve::Ownership;
use super::session::{Bound, Wait, Waiting};
use super::system;
use crate::node::Node;

/// Commit intervals a frontier is waited for (chapter 07 section 7.1).
const FRONTIER_INTERVALS: u64 = 6;

fn strategy(strategy: PollingStrategy) -> Strategy {
    match strategy.kind {
        PollingKind::Offset => Strategy::Offset(strategy.value),
        PollingKind::Timestamp => Strategy::Timestamp(strategy.value),
        PollingKind::First => Strategy::First,
        PollingKind::Last => Strategy::Last,
        PollingKind::Next => Strategy::Next,
    }
}

/// Whose position, and where: what a poll has in common with an offset request.
fn named<'a>(poll: &PollMessages<'a>) -> GetConsumerOffset<'a> {
    GetConsumerOffset {
        consumer: poll.consumer,
        stream: poll.stream,
        topic: poll.topic,
        partition: poll.partition,
    }
}

/// A plain consumer that names no partition means the first; a group member must name one.
fn default_partition(consumer: &Consumer<'_>) -> Option<u32> {
    (consumer.kind == ConsumerKind::Consumer).then_some(0)
}

impl Node {
    /// Whose membership this connection's requests are judged by: its own session, or the one it
    /// is attached to, as long as that still lives.
    pub(crate) fn member_of(&self, request: &Request) -> Result<Option<ClientId>, ErrorCode> {
        let Some(session) = self.clients.get(request.connection) else {
            return Ok(None);
        };
        if let Some(attached) = session.attached {
            let parent = self.metadata.session(attached.client);
            if parent.is_none_or(|parent| parent.epoch != attached.epoch) {
                return Err(ErrorCode::StaleClient);
            }
        }
        Ok(session.member())
    }

    /// Codes 100 and 104.
    pub(crate) fn poll(&mut self, request: Request, bound: Bound, primary_only: bool) {
        let attached = self
            .clients
            .get(request.connection)
            .and_then(|session| session.attached);
        if primary_only && attached.is_none() {
            return self.refuse(&request, ErrorCode::Unauthenticated);
        }
        let member = match self.member_of(&request) {
            Ok(member) => member,
            Err(code) => return self.refuse(&request, code),
        };
        let Ok(wanted) = PollMessages::decode(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let default = default_partition(&wanted.consumer);
        let target = match self.resolve(&named(&wanted), bound.user_id, member, default) {
            Ok(target) => target,
            Err(code) => return self.refuse(&request, code),
        };
        if target.ownership != Ownership::Full {
            let head = PolledMessages::head(PolledMessages::RESYNC, 0, 0);
            return self.succeed(&request, &head);
        }
        let query = PollQuery {
            key: target.key,
            strategy: strategy(wanted.strategy),
            count: wanted.count,
            auto_commit: wanted.auto_commit,
            primary_only,
        };
        let (header, size, group) = (request.header(), request.size(), target.group);
        let wait = Wait::Poll { group };
        let token = self
            .clients
            .wait(request.connection, header, size, true, wait);
        self.step_partitions(Input::Poll {
            token,
            group,
            query,
        });
    }

    /// The partition plane has answered a poll.
    pub(crate) fn on_polled(&mut self, waiting: &Waiting, group: GroupId, answer: PollReply) {
        let client = waiting.header.client();
        let commit = self.metadata.commit_min();
        let position = Position {
            op: waiting.header.session(),
            commit,
        };
        let frame = if answer.status != 0 {
            reply::status_code(&waiting.header, client, position, answer.status)
        } else if answer.body_len == 0 {
            let partition = group.unpack().map_or(0, |key| key.partition);
            let head = PolledMessages::head(partition, 0, 0);
            reply::success(&waiting.header, client, position, &head)
        } else {
            reply::parts(
                &waiting.header,
                client,
                position,
                answer.body,
                answer.body_len,
            )
        };
        self.finish(waiting, frame);
    }

    /// Code 103.
    pub(crate) fn route_poll(&mut self, request: Request, bound: Bound) {
        match PollMessages::decode(request.frame.body()) {
            Ok(wanted) if wanted.auto_commit => self.route(request, bound),
            _ => self.refuse(&request, ErrorCode::InvalidCommand),
        }
    }

    /// Code 123, and 103 once its own rule holds: names the node that leads a partition, with the
    /// caller's own identity to present there.
    pub(crate) fn route(&mut self, request: Request, bound: Bound) {
        let Some(session) = self.clients.get(request.connection) else {
            return;
        };
        let (watermark, address) = (session.watermark, session.address);
        if self.metadata.commit_min() < watermark {
            let budget = self.frontier_budget();
            return self.hold_or_refuse(request, budget);
        }
        let Ok(named) = GetConsumerOffset::decode(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let default = default_partition(&named.consumer);
        let target = match self.resolve(&named, bound.user_id, Some(bound.client), default) {
            Ok(target) => target,
            Err(code) => return self.refuse(&request, code),
        };
        if target.ownership == Ownership::None {
            return self.refuse(&request, ErrorCode::ConsumerGroupPartitionNotOwned);
        }
        let leader = self
            .partitions
            .status(target.group)
            .filter(|status| !status.transferring)
            .and_then(|status| self.identity.member(status.primary));
        let Some(leader) = leader else {
            return self.refuse(&request, ErrorCode::TransientNotAccepted);
        };
        let watermark = watermark.max(self.metadata.commit_min());
        let routing = Routing {
            attach: AttachConsumerSession {
                client: bound.client,
                session: bound.epoch,
                metadata_watermark: watermark.0,
            },
            node: system::node_record(leader, address.ip(), NodeRole::Backup),
        };
        let body = routing.encode();
        self.succeed(&request, &body);
    }

    /// Code 14: this connection acts for a session that is bound elsewhere.
    pub(crate) fn attach(&mut self, request: Request, bound: Bound) {
        let Ok(wanted) = AttachConsumerSession::decode(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let own = self
            .clients
            .get(request.connection)
            .map_or(Op::ZERO, |session| session.watermark);
        let frontier = own.0.max(wanted.metadata_watermark).max(wanted.session);
        if self.metadata.commit_min().0 < frontier {
            let budget = self.frontier_budget();
            return self.hold_or_refuse(request, budget);
        }
        let parent = self.metadata.session(wanted.client);
        let valid = parent.is_some_and(|parent| {
            parent.epoch == wanted.session && parent.user_id == bound.user_id
        });
        if !valid {
            return self.refuse(&request, ErrorCode::StaleClient);
        }
        if let Some(session) = self.clients.get_mut(request.connection) {
            let (client, epoch) = (wanted.client, wanted.session);
            session.attached = Some(Bound {
                user_id: bound.user_id,
                client,
                epoch,
            });
        }
        self.succeed(&request, &[]);
    }

    /// How long a request waits for this node's metadata to reach what its client has seen.
    pub(crate) fn frontier_budget(&self) -> u64 {
        u64::from(self.config.cluster.commit_broadcast_interval.ticks()) * FRONTIER_INTERVALS
    }
}
