//! Committed metadata becomes partition groups on this node (chapter 06 section 2.2).
//!
//! The two planes do not know each other; what one has committed is handed to the other here, in
//! commit order.

use std::collections::BTreeMap;

use biplane_metadata_plane::options::{Durability, TopicSettings};
use biplane_metadata_plane::state::topology::{PartitionSpec, TopologyChange};
use biplane_partition_plane::{ConsumerKey, DurabilityPolicy, GroupSpec, Input, TopicOptions};
use biplane_wire::GroupId;
use tracing::{debug, info};

use super::Node;

impl Node {
    /// Opens every partition that metadata names; at boot.
    pub(super) fn open_partitions(&mut self) {
        if !self.metadata.is_topology_settled() {
            info!("partitions wait for deletions that are not known committed");
            return;
        }
        let specs: Vec<PartitionSpec> = self.metadata.state().topology().collect();
        info!(partitions = specs.len(), "opening partitions");
        for spec in specs {
            self.open_partition(&spec, false);
        }
    }

    /// `is_new`: the creating operation is being applied right now, and is younger than this node.
    fn open_partition(&mut self, spec: &PartitionSpec, is_new: bool) {
        debug!(group = %spec.group, revision = spec.created_revision, "opening a partition");
        let view = self.commit.view(&self.view);
        self.partitions
            .open_group(group_spec(spec, is_new), &view, &mut self.partition_out);
    }

    pub(super) fn on_topology(&mut self, change: TopologyChange) {
        match change {
            TopologyChange::PartitionCreated(spec) => self.open_partition(&spec, true),
            TopologyChange::PartitionLearnt(spec) => self.open_partition(&spec, false),
            TopologyChange::PartitionDeleted { group, .. } => {
                self.step_partitions(Input::CloseGroup { group });
            }
            TopologyChange::PartitionPurged { group, .. }
            | TopologyChange::PartitionTruncated { group, .. } => self.update_partition(group),
            TopologyChange::TopicUpdated { stream, topic, .. } => self.update_topic(stream, topic),
            TopologyChange::GroupDeleted {
                stream,
                topic,
                group,
            } => {
                self.forget_group(stream, topic, group);
            }
            TopologyChange::Replaced => self.reconcile(),
        }
    }

    /// The specification as metadata has it now.
    fn specification(&self, group: GroupId) -> Option<PartitionSpec> {
        self.metadata
            .state()
            .topology()
            .find(|spec| spec.group == group)
    }

    fn update_partition(&mut self, group: GroupId) {
        if let Some(spec) = self.specification(group) {
            self.step_partitions(Input::UpdateGroup(group_spec(&spec, false)));
        }
    }

    fn update_topic(&mut self, stream: u32, topic: u32) {
        let specs: Vec<PartitionSpec> = self
            .metadata
            .state()
            .topology()
            .filter(|spec| (spec.stream, spec.topic) == (stream, topic))
            .collect();
        for spec in specs {
            self.step_partitions(Input::UpdateGroup(group_spec(&spec, false)));
        }
    }

    /// Stored positions of a deleted consumer group are reclaimed through the log.
    fn forget_group(&mut self, stream: u32, topic: u32, group: u64) {
        let Ok(id) = u32::try_from(group) else { return };
        let groups: Vec<GroupId> = self
            .partitions
            .groups()
            .filter(|group| {
                group
                    .unpack()
                    .is_some_and(|key| (key.stream, key.topic) == (stream, topic))
            })
            .collect();
        for group in groups {
            let key = ConsumerKey::Group(id);
            self.step_partitions(Input::ForgetOffset { group, key });
        }
    }

    /// The whole state was replaced: close what is gone, open what is new, update the rest.
    fn reconcile(&mut self) {
        let wanted: BTreeMap<GroupId, PartitionSpec> = self
            .metadata
            .state()
            .topology()
            .map(|spec| (spec.group, spec))
            .collect();
        let present: Vec<GroupId> = self.partitions.opened_groups().collect();
        for group in present {
            if !wanted.contains_key(&group) {
                self.step_partitions(Input::CloseGroup { group });
            }
        }
        for spec in wanted.values() {
            // Opening a running group of the same incarnation only updates it.
            self.open_partition(spec, false);
        }
    }
}

fn group_spec(spec: &PartitionSpec, is_new: bool) -> GroupSpec {
    GroupSpec {
        group: spec.group,
        created_revision: spec.created_revision,
        created_view: spec.created_view,
        is_new,
        options: topic_options(&spec.settings, spec.partitions_count),
        purge_generation: spec.purge_generation,
        deleted_up_to: spec.deleted_up_to_offset,
    }
}

fn topic_options(settings: &TopicSettings, partitions_count: u32) -> TopicOptions {
    let policy = |durability| match durability {
        Durability::Replicated => DurabilityPolicy::Replicated,
        Durability::Persisted => DurabilityPolicy::Persisted,
    };
    TopicOptions {
        durability: policy(settings.durability),
        consumer_offset_durability: policy(settings.consumer_offset_durability),
        messages_required_to_save: settings.messages_required_to_save,
        size_of_messages_required_to_save: settings.size_of_messages_required_to_save,
        segment_size: settings.segment_size,
        message_expiry: settings.message_expiry,
        max_topic_size: settings.max_topic_size,
        partitions_count,
    }
}
