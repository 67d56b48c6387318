//! Putting a state together from a snapshot.
//!
//! The indexes are not part of a snapshot; they are rebuilt here as the parts come in.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::ClientId;

use super::groups::Group;
use super::streams::{Stream, Streams, Topic};
use super::users::Users;
use super::{GroupAddress, MetadataState};

impl Streams {
    /// No streams, at a revision.
    pub(crate) fn restored(revision: u64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Adds a stream; false where its id or name is taken.
    pub(crate) fn insert(&mut self, stream: Stream) -> bool {
        let id = stream.id;
        if self.by_id.contains_key(&id) || self.names.contains_key(&stream.name) {
            return false;
        }
        self.names.insert(stream.name.clone(), id);
        self.by_id.insert(id, stream);
        true
    }
}

impl Stream {
    /// Adds a topic; false where its id or name is taken.
    pub(crate) fn insert_topic(&mut self, topic: Topic) -> bool {
        let id = topic.id;
        if self.topics.contains_key(&id) || self.topic_names.contains_key(&topic.name) {
            return false;
        }
        self.topic_names.insert(topic.name.clone(), id);
        self.topics.insert(id, topic);
        true
    }
}

impl Topic {
    /// Adds a consumer group; false where its id or name is taken.
    pub(crate) fn insert_group(&mut self, group: Group) -> bool {
        let id = group.id;
        if self.groups.contains_key(&id) || self.group_names.contains_key(&group.name) {
            return false;
        }
        self.group_names.insert(group.name.clone(), id);
        self.groups.insert(id, group);
        true
    }
}

impl MetadataState {
    /// A state of these parts; memberships follow from the groups.
    pub(crate) fn restore(streams: Streams, users: Users) -> Self {
        let mut state = Self {
            streams,
            users,
            memberships: BTreeMap::new(),
        };
        state.memberships = state.derive_memberships();
        state
    }

    /// Consumer groups of each client, as the groups have it.
    fn derive_memberships(&self) -> BTreeMap<ClientId, BTreeSet<GroupAddress>> {
        let mut memberships: BTreeMap<ClientId, BTreeSet<_>> = BTreeMap::new();
        for stream in self.streams.by_id.values() {
            for topic in stream.topics.values() {
                for group in topic.groups.values() {
                    for member in group.members().values() {
                        let address = (stream.id, topic.id, group.id);
                        memberships
                            .entry(member.client)
                            .or_default()
                            .insert(address);
                    }
                }
            }
        }
        memberships
    }

    /// Checks what must hold between the parts of the state.
    ///
    /// # Panics
    ///
    /// Where an index contradicts what it indexes: a bug of this crate.
    pub fn check_invariants(&self) {
        let streams = &self.streams;
        assert_eq!(
            streams.names.len(),
            streams.by_id.len(),
            "every stream has its own name"
        );
        for (id, stream) in &streams.by_id {
            assert_eq!(*id, stream.id, "a stream is kept under its id");
            assert_eq!(
                streams.names.get(&stream.name),
                Some(id),
                "a name leads to its stream"
            );
            assert_eq!(
                stream.topic_names.len(),
                stream.topics.len(),
                "topic names are distinct"
            );
            for (id, topic) in &stream.topics {
                assert_eq!(*id, topic.id, "a topic is kept under its id");
                assert_eq!(
                    stream.topic_names.get(&topic.name),
                    Some(id),
                    "names lead to topics"
                );
                topic.check_invariants();
            }
        }
        assert_eq!(
            self.derive_memberships(),
            self.memberships,
            "memberships follow groups"
        );
        self.users.check_invariants();
    }
}

impl Topic {
    fn check_invariants(&self) {
        let ascending = self.partitions.is_sorted_by(|a, b| a.id < b.id);
        assert!(ascending, "partitions are ascending by id");
        assert_eq!(
            self.group_names.len(),
            self.groups.len(),
            "group names are distinct"
        );
        for (id, group) in &self.groups {
            assert!(
                *id < self.next_group_id,
                "group ids are never handed out again"
            );
            assert_eq!(
                self.group_names.get(&group.name),
                Some(id),
                "names lead to groups"
            );
            let mut owned = BTreeSet::new();
            for (key, member) in group.members() {
                let found = group.member_of(member.client).map(|(key, _)| key);
                assert_eq!(found, Some(*key), "a client leads to its member");
                for partition in &member.partitions {
                    assert!(owned.insert(*partition), "a partition has one owner");
                    assert!(
                        self.partition(*partition).is_some(),
                        "owned partitions exist"
                    );
                }
                for entry in &member.pending {
                    assert!(
                        member.owns(entry.partition),
                        "a pending partition is still owned"
                    );
                }
            }
        }
    }
}
