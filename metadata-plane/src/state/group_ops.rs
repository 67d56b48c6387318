//! Operations on consumer groups (protocol specification, chapter 05, section 6).

use std::collections::BTreeSet;

use biplane_wire::request::{
    CompleteConsumerGroupRevocation, ConsumerGroupRequest, CreateConsumerGroup,
    JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared,
};
use biplane_wire::{ClientId, ErrorCode, Identifier};

use super::assignment::complete_revocation;
use super::groups::Group;
use super::streams::Topic;
use super::topology::TopologyChange;
use super::{Applied, GroupAddress, MetadataState, replies};
use crate::revocation::RevocationKey;

impl MetadataState {
    pub(super) fn create_group(
        &mut self,
        body: &CreateConsumerGroup<'_>,
    ) -> Result<Applied, ErrorCode> {
        let (_, topic) = self.streams.topic_mut(&body.stream, &body.topic)?;
        if topic.group_names.contains_key(body.name.as_str()) {
            return Err(ErrorCode::ConsumerGroupNameAlreadyExists);
        }
        let id = topic.next_group_id;
        topic.next_group_id = topic.next_group_id.wrapping_add(1);
        let group = Group::new(id, body.name.as_str().to_owned());
        let mut payload = Vec::new();
        replies::put_group(&mut payload, topic, &group);
        topic.group_names.insert(group.name.clone(), id);
        topic.groups.insert(id, group);
        Ok(Applied::with_payload(payload))
    }

    pub(super) fn delete_group(
        &mut self,
        body: &ConsumerGroupRequest<'_>,
    ) -> Result<Applied, ErrorCode> {
        let (stream, topic) = self.streams.topic_mut(&body.stream, &body.topic)?;
        let id = topic
            .group_id(&body.group)
            .ok_or(ErrorCode::ConsumerGroupIdNotFound)?;
        let group = topic
            .groups
            .remove(&id)
            .ok_or(ErrorCode::ConsumerGroupIdNotFound)?;
        topic.group_names.remove(&group.name);
        let topic = topic.id;
        for member in group.members.values() {
            self.forget_membership(member.client, (stream, topic, id));
        }
        self.streams.raise_revision();
        Ok(Applied::with_topology(vec![TopologyChange::GroupDeleted {
            stream,
            topic,
            group: id,
        }]))
    }

    pub(super) fn join_group(
        &mut self,
        body: &JoinConsumerGroupPrepared<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        let (stream, topic, group) = self.group_mut(&body.stream, &body.topic, &body.group)?;
        let partitions = topic.partition_ids();
        let in_flight: BTreeSet<u32> = body.in_flight.iter().collect();
        let address = (stream, topic.id, group);
        let Some(group) = topic.groups.get_mut(&group) else {
            return Err(ErrorCode::ConsumerGroupIdNotFound);
        };
        if group.join(body.client, &partitions, &in_flight, now) {
            self.memberships
                .entry(body.client)
                .or_default()
                .insert(address);
        }
        Ok(Applied::default())
    }

    pub(super) fn leave_group(
        &mut self,
        body: &LeaveConsumerGroupPrepared<'_>,
    ) -> Result<Applied, ErrorCode> {
        let (stream, topic, group) = self.group_mut(&body.stream, &body.topic, &body.group)?;
        let address = (stream, topic.id, group);
        if !leave(topic, group, body.client) {
            return Err(ErrorCode::ConsumerGroupMemberNotFound);
        }
        self.forget_membership(body.client, address);
        Ok(Applied::default())
    }

    /// Takes a client out of every group; groups it is no member of are not touched.
    pub(super) fn remove_member(&mut self, client: ClientId) -> Applied {
        let mut removed = false;
        for (stream, topic, group) in self.memberships.remove(&client).unwrap_or_default() {
            if let Some(topic) = self.streams.topic_mut_by_id(stream, topic) {
                removed |= leave(topic, group, client);
            }
        }
        if removed {
            self.streams.raise_revision();
        }
        Applied::default()
    }

    /// Never fails: everything it names may be gone by now.
    pub(super) fn complete_revocation(
        &mut self,
        body: &CompleteConsumerGroupRevocation<'_>,
    ) -> Applied {
        let Ok((_, topic)) = self.streams.topic_mut(&body.stream, &body.topic) else {
            return Applied::default();
        };
        let Some(group) = topic.groups.get_mut(&body.group_id) else {
            return Applied::default();
        };
        let source = group.member_of(body.source_client).map(|(key, _)| key);
        if source.is_some_and(|source| complete_revocation(group, source, body.partition)) {
            self.streams.raise_revision();
        }
        Applied::default()
    }

    fn group_mut(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        group: &Identifier<'_>,
    ) -> Result<(u32, &mut Topic, u64), ErrorCode> {
        let (stream, topic) = self.streams.topic_mut(stream, topic)?;
        let group = topic
            .group_id(group)
            .ok_or(ErrorCode::ConsumerGroupIdNotFound)?;
        Ok((stream, topic, group))
    }

    /// Drops the memberships in all groups of a topic that is going away.
    pub(super) fn forget_memberships(&mut self, stream: u32, topic: &Topic) {
        for group in topic.groups.values() {
            for member in group.members.values() {
                self.forget_membership(member.client, (stream, topic.id, group.id));
            }
        }
    }

    fn forget_membership(&mut self, client: ClientId, address: GroupAddress) {
        if let Some(addresses) = self.memberships.get_mut(&client) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.memberships.remove(&client);
            }
        }
    }
}

/// Takes a client out of one group; false where it is no member.
fn leave(topic: &mut Topic, group: u64, client: ClientId) -> bool {
    let partitions = topic.partition_ids();
    topic
        .groups
        .get_mut(&group)
        .is_some_and(|group| group.leave(client, &partitions))
}

/// A partition that a member still owns but must give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRevocation {
    /// Names it, as the proposal to complete it does.
    pub key: RevocationKey,
    /// Key of the member that gets the partition.
    pub target: u32,
    /// Timestamp of the join that caused it, microseconds.
    pub created_at: u64,
}

impl MetadataState {
    /// Every pending revocation, ascending by stream, topic, group and owner.
    pub fn pending_revocations(&self) -> impl Iterator<Item = PendingRevocation> + '_ {
        // Only groups with members can have any, and those are listed by member.
        let groups: BTreeSet<GroupAddress> = self.memberships.values().flatten().copied().collect();
        groups
            .into_iter()
            .flat_map(|address| self.pending_in(address))
    }

    /// Whether a revocation is pending.
    pub fn is_pending(&self, key: &RevocationKey) -> bool {
        self.streams
            .topic_by_id(key.stream, key.topic)
            .and_then(|topic| topic.groups().get(&key.group))
            .and_then(|group| group.member_of(key.client))
            .is_some_and(|(_, member)| {
                member
                    .pending
                    .iter()
                    .any(|entry| entry.partition == key.partition)
            })
    }

    fn pending_in(&self, address: GroupAddress) -> Vec<PendingRevocation> {
        let (stream, topic, group) = address;
        let found = self.streams.topic_by_id(stream, topic);
        let Some(found) = found.and_then(|topic| topic.groups().get(&group)) else {
            return Vec::new();
        };
        let mut pending = Vec::new();
        for member in found.members().values() {
            let client = member.client;
            pending.extend(member.pending.iter().map(|entry| PendingRevocation {
                key: RevocationKey {
                    stream,
                    topic,
                    group,
                    client,
                    partition: entry.partition,
                },
                target: entry.target,
                created_at: entry.created_at,
            }));
        }
        pending
    }
}
