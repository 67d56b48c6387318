//! Streams, topics and partitions as the state holds them, and how they are found.

use std::collections::BTreeMap;

use biplane_wire::{ErrorCode, GroupId, Identifier, View};

use super::groups::Group;
use crate::options::{Compression, OptionsMap, TopicSettings};

/// One partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Id within the topic; ids are dense.
    pub id: u32,
    /// Number minted by the primary that created it; never used for routing.
    pub consensus_group_id: u64,
    /// Timestamp of the creating prepare, microseconds.
    pub created_at: u64,
    /// Revision of the state at its creation: tells incarnations of one key apart.
    pub created_revision: u64,
    /// Messages below this offset are to be deleted; 0 means none.
    pub deleted_up_to_offset: u64,
    /// How often the partition was purged.
    pub purge_generation: u64,
    /// First view of its group, as the primary that admitted its creation chose it.
    pub created_view: u32,
}

/// One topic of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Id within the stream.
    pub id: u32,
    /// Name, unique within the stream.
    pub name: String,
    /// Timestamp of the creating prepare, microseconds.
    pub created_at: u64,
    /// 0 server default, `u64::MAX` never, else microseconds.
    pub message_expiry: u64,
    /// Compression of stored messages.
    pub compression: Compression,
    /// 0 server default, `u64::MAX` unlimited, else bytes.
    pub max_topic_size: u64,
    /// Options as stored.
    pub options: OptionsMap,
    /// Partitions, ascending by id.
    pub partitions: Vec<Partition>,
    pub(crate) groups: BTreeMap<u64, Group>,
    pub(crate) group_names: BTreeMap<String, u64>,
    /// Id of the next consumer group; never goes back.
    pub next_group_id: u64,
}

impl Topic {
    /// Consumer groups by id, ascending.
    pub fn groups(&self) -> &BTreeMap<u64, Group> {
        &self.groups
    }

    /// The consumer group an identifier names.
    pub fn group(&self, identifier: &Identifier<'_>) -> Option<&Group> {
        self.groups.get(&self.group_id(identifier)?)
    }

    /// Id of the consumer group an identifier names.
    pub(super) fn group_id(&self, identifier: &Identifier<'_>) -> Option<u64> {
        match identifier {
            Identifier::Numeric(id) => {
                let id = u64::from(*id);
                self.groups.contains_key(&id).then_some(id)
            }
            Identifier::Named(name) => self.group_names.get(name.as_str()).copied(),
        }
    }

    /// The partition with this id.
    pub fn partition(&self, id: u32) -> Option<&Partition> {
        let at = self
            .partitions
            .binary_search_by_key(&id, |partition| partition.id)
            .ok()?;
        self.partitions.get(at)
    }

    /// Ids of all partitions, ascending.
    pub fn partition_ids(&self) -> Vec<u32> {
        self.partitions
            .iter()
            .map(|partition| partition.id)
            .collect()
    }

    /// Everything a partition needs to know of its topic.
    pub fn settings(&self) -> TopicSettings {
        let mut settings = TopicSettings::read(&self.options);
        settings.compression = self.compression;
        // Zero stands for the default of the server, which is "never" and "unlimited".
        settings.message_expiry = nonzero_or_max(self.message_expiry);
        settings.max_topic_size = nonzero_or_max(self.max_topic_size);
        settings
    }
}

fn nonzero_or_max(value: u64) -> u64 {
    if value == 0 { u64::MAX } else { value }
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Id.
    pub id: u32,
    /// Name, unique.
    pub name: String,
    /// Timestamp of the creating prepare, microseconds.
    pub created_at: u64,
    /// Options as stored.
    pub options: OptionsMap,
    pub(crate) topics: BTreeMap<u32, Topic>,
    pub(crate) topic_names: BTreeMap<String, u32>,
}

impl Stream {
    /// Topics by id, ascending.
    pub fn topics(&self) -> &BTreeMap<u32, Topic> {
        &self.topics
    }

    /// The topic an identifier names.
    pub fn topic(&self, identifier: &Identifier<'_>) -> Option<&Topic> {
        self.topics.get(&self.topic_id(identifier)?)
    }

    /// Id of the topic an identifier names.
    pub(super) fn topic_id(&self, identifier: &Identifier<'_>) -> Option<u32> {
        match identifier {
            Identifier::Numeric(id) => self.topics.contains_key(id).then_some(*id),
            Identifier::Named(name) => self.topic_names.get(name.as_str()).copied(),
        }
    }
}

/// All streams with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub(super) by_id: BTreeMap<u32, Stream>,
    pub(super) names: BTreeMap<String, u32>,
    /// Raised by every change of the topology; stamps the partitions it creates.
    pub(super) revision: u64,
}

impl Streams {
    /// Streams by id, ascending.
    pub fn by_id(&self) -> &BTreeMap<u32, Stream> {
        &self.by_id
    }

    /// Revision of the topology.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The stream an identifier names.
    pub fn stream(&self, identifier: &Identifier<'_>) -> Option<&Stream> {
        self.by_id.get(&self.stream_id(identifier)?)
    }

    /// The topic two identifiers name.
    ///
    /// # Errors
    ///
    /// 1009 where the stream is missing, 2010 where the topic is.
    pub fn topic(
        &self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<(&Stream, &Topic), ErrorCode> {
        let stream = self.stream(stream).ok_or(ErrorCode::StreamIdNotFound)?;
        let topic = stream.topic(topic).ok_or(ErrorCode::TopicIdNotFound)?;
        Ok((stream, topic))
    }

    /// The topic with these ids.
    pub fn topic_by_id(&self, stream: u32, topic: u32) -> Option<&Topic> {
        self.by_id.get(&stream)?.topics.get(&topic)
    }

    pub(super) fn topic_mut_by_id(&mut self, stream: u32, topic: u32) -> Option<&mut Topic> {
        self.by_id.get_mut(&stream)?.topics.get_mut(&topic)
    }

    /// The partition of a group key with its topic.
    pub fn partition(&self, group: GroupId) -> Option<(&Topic, &Partition)> {
        let key = group.unpack()?;
        let topic = self.topic_by_id(key.stream, key.topic)?;
        topic
            .partition(key.partition)
            .map(|partition| (topic, partition))
    }

    /// Id of the stream an identifier names.
    pub(super) fn stream_id(&self, identifier: &Identifier<'_>) -> Option<u32> {
        match identifier {
            Identifier::Numeric(id) => self.by_id.contains_key(id).then_some(*id),
            Identifier::Named(name) => self.names.get(name.as_str()).copied(),
        }
    }

    pub(super) fn stream_mut(
        &mut self,
        identifier: &Identifier<'_>,
    ) -> Result<&mut Stream, ErrorCode> {
        let id = self
            .stream_id(identifier)
            .ok_or(ErrorCode::StreamIdNotFound)?;
        self.by_id.get_mut(&id).ok_or(ErrorCode::StreamIdNotFound)
    }

    pub(super) fn topic_mut(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<(u32, &mut Topic), ErrorCode> {
        let stream = self.stream_mut(stream)?;
        let id = stream.topic_id(topic).ok_or(ErrorCode::TopicIdNotFound)?;
        let topic = stream
            .topics
            .get_mut(&id)
            .ok_or(ErrorCode::TopicIdNotFound)?;
        Ok((stream.id, topic))
    }

    pub(super) fn raise_revision(&mut self) -> u64 {
        self.revision = self.revision.wrapping_add(1);
        self.revision
    }

    /// The highest number minted for a partition; 0 where there is none.
    pub fn consensus_group_id_max(&self) -> u64 {
        let numbers = self.partitions().map(|it| it.consensus_group_id);
        numbers.max().unwrap_or(0)
    }

    /// The highest view in which a partition was created; 0 where there is none.
    pub fn created_view_max(&self) -> View {
        let views = self.partitions().map(|it| View(it.created_view));
        views.max().unwrap_or(View(0))
    }

    fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.by_id
            .values()
            .flat_map(|stream| stream.topics.values())
            .flat_map(|topic| topic.partitions.iter())
    }
}
