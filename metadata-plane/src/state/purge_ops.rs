//! Operations that drop messages: purge and truncation.
//!
//! Nothing here touches message data. The state records how often a partition was purged and
//! below which offset messages are to go; the owners of partitions act on it.

use biplane_wire::request::{StreamRequest, TopicRequest, TruncatePartition};
use biplane_wire::{ErrorCode, GroupId};

use super::streams::Topic;
use super::topology::TopologyChange;
use super::{Applied, MetadataState};

/// Marks every partition of a topic as purged once more.
fn purge(stream: u32, topic: &mut Topic, changes: &mut Vec<TopologyChange>) {
    let id = topic.id;
    for partition in &mut topic.partitions {
        partition.purge_generation = partition.purge_generation.wrapping_add(1);
        // A watermark of the old messages would delete those that come after the purge.
        partition.deleted_up_to_offset = 0;
        if let Some(group) = GroupId::partition(stream, id, partition.id) {
            changes.push(TopologyChange::PartitionPurged {
                group,
                created_revision: partition.created_revision,
                purge_generation: partition.purge_generation,
            });
        }
    }
}

impl MetadataState {
    pub(super) fn purge_stream(&mut self, body: &StreamRequest<'_>) -> Result<Applied, ErrorCode> {
        let stream = self.streams.stream_mut(&body.stream)?;
        let mut changes = Vec::new();
        let id = stream.id;
        for topic in stream.topics.values_mut() {
            purge(id, topic, &mut changes);
        }
        let any = stream
            .topics
            .values()
            .any(|topic| !topic.partitions.is_empty());
        if any {
            self.streams.raise_revision();
        }
        Ok(Applied::with_topology(changes))
    }

    pub(super) fn purge_topic(&mut self, body: &TopicRequest<'_>) -> Result<Applied, ErrorCode> {
        let (stream, topic) = self.streams.topic_mut(&body.stream, &body.topic)?;
        let mut changes = Vec::new();
        purge(stream, topic, &mut changes);
        if !topic.partitions.is_empty() {
            self.streams.raise_revision();
        }
        Ok(Applied::with_topology(changes))
    }

    pub(super) fn truncate_partition(
        &mut self,
        body: &TruncatePartition<'_>,
    ) -> Result<Applied, ErrorCode> {
        let (stream, topic) = self.streams.topic_mut(&body.stream, &body.topic)?;
        let at = topic
            .partitions
            .binary_search_by_key(&body.partition, |partition| partition.id)
            .map_err(|_| ErrorCode::PartitionNotFound)?;
        let topic_id = topic.id;
        let partition = topic
            .partitions
            .get_mut(at)
            .ok_or(ErrorCode::PartitionNotFound)?;
        partition.deleted_up_to_offset = partition.deleted_up_to_offset.max(body.up_to_offset);
        let group = GroupId::partition(stream, topic_id, partition.id);
        let change = group.map(|group| TopologyChange::PartitionTruncated {
            group,
            created_revision: partition.created_revision,
            up_to_offset: partition.deleted_up_to_offset,
        });
        // The revision moves even where the watermark does not: it is replicated state.
        self.streams.raise_revision();
        Ok(Applied::with_topology(change.into_iter().collect()))
    }
}
