//! Committed metadata becomes partition groups of this node, as in the server.

use std::collections::BTreeMap;

use biplane_journal::{DiskPath, DiskView};
use biplane_metadata_plane::options::{Durability as TopicDurability, TopicSettings};
use biplane_metadata_plane::state::topology::{PartitionSpec, TopologyChange};
use biplane_partition_plane::{ConsumerKey, DurabilityPolicy, GroupSpec, Input, TopicOptions};
use biplane_vsr::Durability;
use biplane_wire::{GroupId, Operation, View};

use super::PlanesNode;
use crate::machine::GroupFacts;

impl PlanesNode {
    /// Opens every partition that metadata names; at boot.
    pub(super) fn open_partitions(&mut self, disk: &dyn DiskView) {
        if self.metadata.is_topology_settled() {
            let specs: Vec<PartitionSpec> = self.metadata.state().topology().collect();
            for spec in specs {
                self.open_partition(&spec, false, disk);
            }
        }
        self.remember();
    }

    /// Remembers what metadata says, for the oracles: they ask after every step.
    fn remember(&mut self) {
        let specs = self.metadata.state().topology();
        let known = |spec: PartitionSpec| {
            let facts = facts_of(&spec)?;
            Some((
                spec.group,
                Known {
                    settings: spec.settings,
                    facts,
                },
            ))
        };
        self.known = specs.filter_map(known).collect();
    }

    fn open_partition(&mut self, spec: &PartitionSpec, is_new: bool, disk: &dyn DiskView) {
        let spec = self.group_spec(spec, is_new);
        let view = self.commit.view(disk);
        self.partitions
            .open_group(spec, &view, &mut self.partition_out);
    }

    pub(super) fn on_topology(&mut self, change: TopologyChange, disk: &dyn DiskView) {
        match change {
            TopologyChange::PartitionCreated(spec) => self.open_partition(&spec, true, disk),
            TopologyChange::PartitionLearnt(spec) => self.open_partition(&spec, false, disk),
            TopologyChange::PartitionDeleted { group, .. } => {
                self.step_partitions(Input::CloseGroup { group });
            }
            TopologyChange::PartitionPurged { group, .. }
            | TopologyChange::PartitionTruncated { group, .. } => {
                self.update(|spec| spec.group == group);
            }
            TopologyChange::TopicUpdated { stream, topic, .. } => {
                self.update(|spec| (spec.stream, spec.topic) == (stream, topic));
            }
            TopologyChange::GroupDeleted {
                stream,
                topic,
                group,
            } => {
                self.forget_group(stream, topic, group);
            }
            TopologyChange::Replaced => self.reconcile(disk),
        }
        self.remember();
    }

    fn update(&mut self, concerned: impl Fn(&PartitionSpec) -> bool) {
        let specs: Vec<PartitionSpec> =
            self.metadata.state().topology().filter(concerned).collect();
        for spec in specs {
            let spec = self.group_spec(&spec, false);
            self.step_partitions(Input::UpdateGroup(spec));
        }
    }

    fn forget_group(&mut self, stream: u32, topic: u32, group: u64) {
        let Ok(id) = u32::try_from(group) else { return };
        let of_topic = |group: &GroupId| {
            group
                .unpack()
                .is_some_and(|key| (key.stream, key.topic) == (stream, topic))
        };
        let groups: Vec<GroupId> = self.partitions.groups().filter(of_topic).collect();
        for group in groups {
            self.step_partitions(Input::ForgetOffset {
                group,
                key: ConsumerKey::Group(id),
            });
        }
    }

    /// The whole state was replaced: close what is gone, open what is new, update the rest.
    fn reconcile(&mut self, disk: &dyn DiskView) {
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
            self.open_partition(spec, false, disk);
        }
    }

    pub(super) fn policy(&self, group: GroupId, operation: Operation) -> Durability {
        if group.is_metadata() {
            return Durability::Disk;
        }
        let policy = self.known.get(&group).map(|known| match operation {
            Operation::SendMessages => known.settings.durability,
            _ => known.settings.consumer_offset_durability,
        });
        match policy {
            Some(TopicDurability::Persisted) => Durability::Disk,
            _ => Durability::Memory,
        }
    }

    pub(super) fn group_facts(&self, group: GroupId) -> Option<GroupFacts> {
        if group.is_metadata() {
            return Some(self.metadata_facts.clone());
        }
        self.known.get(&group).map(|known| known.facts.clone())
    }
}

/// What oracles ask about a partition.
pub(super) struct Known {
    settings: TopicSettings,
    facts: GroupFacts,
}

/// Where the metadata group keeps its promises.
pub(super) fn metadata_facts() -> GroupFacts {
    let path = |text: &str| DiskPath::new(text).expect("letters and dots");
    GroupFacts {
        incarnation: 0,
        purges: 0,
        deleted_up_to: 0,
        expires: false,
        first_view: View(0),
        superblock: path("metadata"),
        prepare_log: Some((path("metadata/journal.wal"), 0)),
    }
}

fn facts_of(spec: &PartitionSpec) -> Option<GroupFacts> {
    let key = spec.group.unpack()?;
    let (stream, topic, partition) = (key.stream, key.topic, key.partition);
    let dir = format!("streams/{stream}/topics/{topic}/partitions/{partition}");
    let revision = spec.created_revision;
    let log = DiskPath::new(&format!("{dir}/prepares-{revision}/prepares.wal")).ok()?;
    Some(GroupFacts {
        incarnation: revision,
        purges: spec.purge_generation,
        deleted_up_to: spec.deleted_up_to_offset,
        expires: spec.settings.message_expiry != u64::MAX
            || spec.settings.max_topic_size != u64::MAX,
        first_view: spec.created_view,
        superblock: DiskPath::new(&dir).ok()?,
        prepare_log: Some((log, 8)),
    })
}

impl PlanesNode {
    fn group_spec(&self, spec: &PartitionSpec, is_new: bool) -> GroupSpec {
        GroupSpec {
            group: spec.group,
            created_revision: spec.created_revision,
            created_view: spec.created_view,
            is_new,
            options: topic_options(&spec.settings, spec.partitions_count, self.scale),
            purge_generation: spec.purge_generation,
            deleted_up_to: spec.deleted_up_to_offset,
        }
    }
}

/// Sizes are divided by `scale`: the smallest segment a topic may have would never fill here.
fn topic_options(settings: &TopicSettings, partitions_count: u32, scale: u64) -> TopicOptions {
    let policy = |durability| match durability {
        TopicDurability::Replicated => DurabilityPolicy::Replicated,
        TopicDurability::Persisted => DurabilityPolicy::Persisted,
    };
    let max_topic_size = match settings.max_topic_size {
        u64::MAX => u64::MAX,
        size => size / scale,
    };
    TopicOptions {
        durability: policy(settings.durability),
        consumer_offset_durability: policy(settings.consumer_offset_durability),
        messages_required_to_save: settings.messages_required_to_save,
        size_of_messages_required_to_save: settings.size_of_messages_required_to_save,
        segment_size: settings.segment_size / scale,
        message_expiry: settings.message_expiry,
        max_topic_size,
        partitions_count,
    }
}
