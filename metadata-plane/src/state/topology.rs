//! What a metadata change means to the owners of partitions, as values.
//!
//! There is no replicated message that creates a partition group: every replica derives its
//! groups from the metadata it has applied (protocol specification, chapter 05, section 10).

use biplane_wire::{GroupId, View};

use super::MetadataState;
use super::streams::{Partition, Topic};
use crate::options::TopicSettings;

/// Everything a node needs to materialise one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Key of the partition group.
    pub group: GroupId,
    /// Stream id.
    pub stream: u32,
    /// Topic id.
    pub topic: u32,
    /// Partition id.
    pub partition: u32,
    /// Incarnation of the key: a folder or group with another one belongs to a predecessor.
    pub created_revision: u64,
    /// First view of the group.
    pub created_view: View,
    /// Timestamp of creation, microseconds.
    pub created_at: u64,
    /// Messages below this offset are to be deleted; 0 means none.
    pub deleted_up_to_offset: u64,
    /// Purges committed so far.
    pub purge_generation: u64,
    /// Options of the topic, with defaults for those not stored.
    pub settings: TopicSettings,
    /// Partitions of the topic at this moment; the size limit of the topic is divided by it.
    pub partitions_count: u32,
}

/// One consequence of a committed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyChange {
    /// A partition exists from now on.
    PartitionCreated(PartitionSpec),
    /// A partition exists, perhaps since before this node came up: its group may have a past,
    /// here too. The plane says so in place of [`TopologyChange::PartitionCreated`].
    PartitionLearnt(PartitionSpec),
    /// A partition is gone, with its data and its consumer offsets.
    PartitionDeleted {
        /// Key of the partition group.
        group: GroupId,
        /// Incarnation that is gone.
        created_revision: u64,
    },
    /// All messages and consumer offsets of a partition are to be dropped.
    PartitionPurged {
        /// Key of the partition group.
        group: GroupId,
        /// Incarnation.
        created_revision: u64,
        /// Purges committed so far.
        purge_generation: u64,
    },
    /// Messages below an offset are to be deleted.
    PartitionTruncated {
        /// Key of the partition group.
        group: GroupId,
        /// Incarnation.
        created_revision: u64,
        /// Watermark, never below an earlier one of the same purge generation.
        up_to_offset: u64,
    },
    /// Options or the partition count of a topic have changed for partitions that stay.
    TopicUpdated {
        /// Stream id.
        stream: u32,
        /// Topic id.
        topic: u32,
        /// All options from now on.
        settings: TopicSettings,
        /// Partitions of the topic from now on.
        partitions_count: u32,
    },
    /// A consumer group is gone; its stored offsets are to be dropped.
    GroupDeleted {
        /// Stream id.
        stream: u32,
        /// Topic id.
        topic: u32,
        /// Group id.
        group: u64,
    },
    /// The whole state was replaced by that of another replica: compare with the full listing.
    Replaced,
}

impl TopologyChange {
    /// The same change, of an operation that is or is not known to be younger than this node's
    /// boot.
    #[must_use]
    pub(crate) fn dated(self, is_new: bool) -> Self {
        match self {
            Self::PartitionCreated(spec) if !is_new => Self::PartitionLearnt(spec),
            change => change,
        }
    }
}

/// The specification of one partition. None only for ids beyond the limits of a group key.
pub(super) fn specify(stream: u32, topic: &Topic, partition: &Partition) -> Option<PartitionSpec> {
    Some(PartitionSpec {
        group: GroupId::partition(stream, topic.id, partition.id)?,
        stream,
        topic: topic.id,
        partition: partition.id,
        created_revision: partition.created_revision,
        created_view: View(partition.created_view),
        created_at: partition.created_at,
        deleted_up_to_offset: partition.deleted_up_to_offset,
        purge_generation: partition.purge_generation,
        settings: topic.settings(),
        partitions_count: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
    })
}

/// The deletion of every partition of a topic.
pub(super) fn deletions(stream: u32, topic: &Topic) -> impl Iterator<Item = TopologyChange> + '_ {
    topic.partitions.iter().filter_map(move |partition| {
        let group = GroupId::partition(stream, topic.id, partition.id)?;
        let created_revision = partition.created_revision;
        Some(TopologyChange::PartitionDeleted {
            group,
            created_revision,
        })
    })
}

impl MetadataState {
    /// Every partition, ascending by stream, topic and partition id.
    pub fn topology(&self) -> impl Iterator<Item = PartitionSpec> + '_ {
        self.streams.by_id().values().flat_map(|stream| {
            stream.topics().values().flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .filter_map(|partition| specify(stream.id, topic, partition))
            })
        })
    }
}
