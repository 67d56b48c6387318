//! What the members of a consumer group are still working on, as far as this node knows (chapter
//! 05 section 6.3): a member that joins gets such a partition only once its owner has committed
//! what it was served.

use biplane_wire::GroupId;
use biplane_wire::request::ConsumerGroupRequest;

use crate::node::Node;

/// The progress of a consumer group at the partitions of this node.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Partitions that were served to their owner beyond what it has committed, in the order of the
    /// topic.
    pub(crate) in_flight: Vec<u32>,
    /// Partitions of which the same holds, and which nobody owns any more.
    orphaned: Vec<GroupId>,
    group: u32,
}

impl Node {
    /// Looks at every partition of the group's topic. A group that does not exist has none.
    pub(crate) fn progress_of(&self, target: &ConsumerGroupRequest<'_>) -> Progress {
        let streams = self.metadata.state().streams();
        let Ok((stream, topic)) = streams.topic(&target.stream, &target.topic) else {
            return Progress::default();
        };
        let Some(group) = topic.group(&target.group) else {
            return Progress::default();
        };
        let Ok(id) = u32::try_from(group.id) else {
            return Progress::default();
        };
        let mut progress = Progress {
            group: id,
            ..Progress::default()
        };
        for partition in topic.partition_ids() {
            let Some(place) = GroupId::partition(stream.id, topic.id, partition) else {
                continue;
            };
            if self.partitions.drained(place, id) {
                continue;
            }
            if group.is_owned(partition) {
                progress.in_flight.push(partition);
            } else {
                progress.orphaned.push(place);
            }
        }
        progress
    }

    /// What was served to members that are gone holds nobody up.
    pub(crate) fn forget_served(&mut self, progress: &Progress) {
        for partition in &progress.orphaned {
            self.partitions.forget_served(*partition, progress.group);
        }
    }
}
