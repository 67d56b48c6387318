//! Consumer groups: who is a member, which partitions a member owns and which it must give up.
//!
//! A group lives in a topic. Its members are consensus clients, keyed by the lowest free number
//! of the group; its id is handed out by the topic once and never again (protocol
//! specification, chapter 05, sections 6.1 to 6.3).

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::ClientId;

use super::assignment::{assign_cooperative, assign_eager};
use super::ids::lowest_free;

/// A partition that a member still owns but has been told to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Partition to hand over.
    pub partition: u32,
    /// Key of the member that gets it.
    pub target: u32,
    /// Timestamp of the join that caused it, microseconds since the epoch.
    pub created_at: u64,
}

/// One member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Consensus client id of the session that joined.
    pub client: ClientId,
    /// Owned partitions; the order is replicated state.
    pub partitions: Vec<u32>,
    /// Owned partitions on their way to another member.
    pub pending: Vec<Revocation>,
}

impl Member {
    /// A member that owns nothing.
    fn new(client: ClientId) -> Self {
        Self {
            client,
            partitions: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// True where the member owns `partition`, pending or not: it may commit offsets.
    pub fn owns(&self, partition: u32) -> bool {
        self.partitions.contains(&partition)
    }

    /// True where the member owns `partition` and need not give it up: it may poll.
    pub fn may_poll(&self, partition: u32) -> bool {
        self.owns(partition) && !self.is_pending(partition)
    }

    /// Partitions the member may poll, in list order.
    pub fn pollable(&self) -> impl Iterator<Item = u32> + '_ {
        self.partitions
            .iter()
            .copied()
            .filter(|partition| !self.is_pending(*partition))
    }

    fn is_pending(&self, partition: u32) -> bool {
        self.pending
            .iter()
            .any(|entry| entry.partition == partition)
    }
}

/// One consumer group of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Id within the topic.
    pub id: u64,
    /// Name, unique within the topic.
    pub name: String,
    /// Raised by every change of the assignment.
    pub generation: u64,
    /// Members by key.
    pub(crate) members: BTreeMap<u32, Member>,
    /// Key of each client that is a member.
    keys: BTreeMap<ClientId, u32>,
}

impl Group {
    /// A group without members.
    pub(crate) fn new(id: u64, name: String) -> Self {
        Self {
            id,
            name,
            generation: 0,
            members: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// A group as a snapshot holds it; None where two members share a client.
    pub(crate) fn restore(
        id: u64,
        name: String,
        generation: u64,
        members: BTreeMap<u32, Member>,
    ) -> Option<Self> {
        let keys: BTreeMap<ClientId, u32> = members
            .iter()
            .map(|(key, member)| (member.client, *key))
            .collect();
        let distinct = keys.len() == members.len();
        distinct.then_some(Self {
            id,
            name,
            generation,
            members,
            keys,
        })
    }

    /// Members by key, ascending.
    pub fn members(&self) -> &BTreeMap<u32, Member> {
        &self.members
    }

    /// Key and member of a client.
    pub fn member_of(&self, client: ClientId) -> Option<(u32, &Member)> {
        let key = *self.keys.get(&client)?;
        self.members.get(&key).map(|member| (key, member))
    }

    /// True where some member owns `partition`.
    pub fn is_owned(&self, partition: u32) -> bool {
        self.members.values().any(|member| member.owns(partition))
    }

    /// Adds a member and shares partitions with it; false where the client is one already.
    pub(crate) fn join(
        &mut self,
        client: ClientId,
        partitions: &[u32],
        in_flight: &BTreeSet<u32>,
        now: u64,
    ) -> bool {
        if self.keys.contains_key(&client) {
            return false;
        }
        let key = lowest_free(&self.members);
        self.members.insert(key, Member::new(client));
        self.keys.insert(client, key);
        assign_cooperative(self, partitions, in_flight, now);
        true
    }

    /// Removes a member and deals its partitions out; false where the client is no member.
    pub(crate) fn leave(&mut self, client: ClientId, partitions: &[u32]) -> bool {
        let Some(key) = self.keys.remove(&client) else {
            return false;
        };
        self.members.remove(&key);
        assign_eager(self, partitions);
        true
    }
}
