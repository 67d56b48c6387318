//! What a node checks on behalf of its planes before it hands a call on: permissions, sessions,
//! and who owns a partition in a consumer group (chapter 05 section 6, chapter 06 section 4.1).

use biplane_metadata_plane::io::Input as MetadataInput;
use biplane_metadata_plane::state::groups::Member;
use biplane_metadata_plane::state::permissions::Action;
use biplane_wire::request::{ConsumerGroupRequest, DeleteConsumerOffset, StoreConsumerOffset};
use biplane_wire::response::PolledMessages;
use biplane_wire::{
    ClientId, Codec as _, Consumer, ConsumerKind, ErrorCode, EvictionReason, GroupId, Identifier,
    Operation, PartitionKey,
};

use super::PlanesNode;
use super::requests::Request;
use crate::machine::{Answer, GroupAddress, PollCall, Reader};

/// Microseconds after which a partition is taken from a member that does not let go of it.
const REBALANCE_MICROS: u64 = 3_000_000;

fn refused(code: ErrorCode) -> Answer {
    Answer::Refused(code.as_u32())
}

impl PlanesNode {
    /// Every consumer group.
    pub(super) fn consumer_groups(&self) -> Vec<GroupAddress> {
        let mut groups = Vec::new();
        for stream in self.metadata.state().streams().by_id().values() {
            for topic in stream.topics().values() {
                let ids = topic.groups().keys();
                let small = ids.filter_map(|&id| u32::try_from(id).ok());
                groups.extend(small.map(|id| (stream.id, topic.id, id)));
            }
        }
        groups
    }

    fn member(&self, (stream, topic, group): GroupAddress, client: ClientId) -> Option<&Member> {
        let id = Identifier::Numeric;
        let streams = self.metadata.state().streams();
        let (_, topic) = streams.topic(&id(stream), &id(topic)).ok()?;
        let (_, member) = topic.groups().get(&u64::from(group))?.member_of(client)?;
        Some(member)
    }

    /// The partitions a member may poll.
    pub(super) fn assignment(&self, group: GroupAddress, client: ClientId) -> Option<Vec<u32>> {
        let member = self.member(group, client)?;
        Some(member.pollable().collect())
    }

    /// Partitions of a group whose owner was served more here than it has stored.
    pub(super) fn in_flight(&self, target: &ConsumerGroupRequest<'_>) -> Vec<u32> {
        let streams = self.metadata.state().streams();
        let Ok((stream, topic)) = streams.topic(&target.stream, &target.topic) else {
            return Vec::new();
        };
        let Some(group) = topic.group(&target.group) else {
            return Vec::new();
        };
        let Ok(id) = u32::try_from(group.id) else {
            return Vec::new();
        };
        let owned = topic.partitions.iter().map(|partition| partition.id);
        let owned = owned.filter(|&partition| group.is_owned(partition));
        let busy = owned.filter(|&partition| {
            let key = GroupId::partition(stream.id, topic.id, partition);
            key.is_some_and(|key| !self.partitions.drained(key, id))
        });
        busy.collect()
    }

    /// Whether a connection may act for this session: one that logged in again elsewhere has
    /// taken it over (chapter 03 section 7.3).
    fn check_session(&self, client: ClientId, session: u64) -> Result<(), Answer> {
        let known = self.metadata.session(client);
        if known.is_some_and(|known| known.epoch > session) {
            return Err(Answer::Evicted(EvictionReason::NoSession));
        }
        Ok(())
    }

    fn check_group(
        &self,
        key: PartitionKey,
        consumer: &Consumer<'_>,
        client: ClientId,
    ) -> Result<(), Answer> {
        if consumer.kind == ConsumerKind::Consumer {
            return Ok(());
        }
        let Identifier::Numeric(group) = consumer.id else {
            return Err(refused(ErrorCode::ConsumerGroupIdNotFound));
        };
        let member = self.member((key.stream, key.topic, group), client);
        match member {
            Some(member) if member.owns(key.partition) => Ok(()),
            _ => Err(refused(ErrorCode::ConsumerGroupPartitionNotOwned)),
        }
    }

    /// The checks before a request goes to its partition.
    pub(super) fn admit_to_partition(&self, request: &Request) -> Result<(), Answer> {
        self.check_session(request.client, request.session())?;
        let Some(key) = request.group.unpack() else {
            return Err(refused(ErrorCode::ResourceNotFound));
        };
        let action = match request.operation {
            Operation::SendMessages => Action::Send(key.stream, key.topic),
            _ => Action::Poll(key.stream, key.topic),
        };
        let state = self.metadata.state();
        state.authorize(request.user_id, action).map_err(refused)?;
        let malformed = |_| refused(ErrorCode::InvalidCommand);
        match request.operation {
            Operation::StoreConsumerOffset => {
                let body = StoreConsumerOffset::decode(&request.body).map_err(malformed)?;
                self.check_group(key, &body.consumer, request.client)
            }
            Operation::DeleteConsumerOffset => {
                let body = DeleteConsumerOffset::decode(&request.body).map_err(malformed)?;
                self.check_group(key, &body.consumer, request.client)
            }
            _ => Ok(()),
        }
    }

    /// The checks before a poll.
    pub(super) fn admit_poll(
        &self,
        group: GroupId,
        reader: Reader,
        call: &PollCall,
    ) -> Result<(), Answer> {
        let Some(key) = group.unpack() else {
            return Err(refused(ErrorCode::ResourceNotFound));
        };
        let state = self.metadata.state();
        let action = Action::Poll(key.stream, key.topic);
        state.authorize(reader.user_id, action).map_err(refused)?;
        if !call.as_group {
            return Ok(());
        }
        let address = (key.stream, key.topic, call.consumer);
        let member = self.member(address, reader.client);
        if member.is_some_and(|member| member.may_poll(key.partition)) {
            return Ok(());
        }
        let body = PolledMessages::head(PolledMessages::RESYNC, 0, 0).to_vec();
        Err(Answer::Polled { status: 0, body })
    }

    /// Partitions that were let go of change hands.
    pub(super) fn complete_revocations(&mut self, wall_micros: u64) {
        if !self.metadata.replica().is_primary() {
            return;
        }
        let pending = self.metadata.state().pending_revocations();
        let done = pending.filter(|pending| {
            let key = pending.key;
            let group = GroupId::partition(key.stream, key.topic, key.partition);
            let id = u32::try_from(key.group).ok();
            let drained = group
                .zip(id)
                .is_some_and(|(group, id)| self.partitions.drained(group, id));
            drained || wall_micros.saturating_sub(pending.created_at) >= REBALANCE_MICROS
        });
        let done: Vec<_> = done.map(|pending| pending.key).collect();
        for key in done {
            self.step_metadata(MetadataInput::CompleteRevocation(key));
        }
    }
}
