//! Operations on topics and partitions (protocol specification, chapter 05, section 4.3).

use std::collections::BTreeSet;

use biplane_wire::request::{
    Assignment, CreatePartitionsWithAssignments, CreateTopicWithAssignments, PartitionsRequest,
    TopicRequest, UpdateTopic,
};
use biplane_wire::{ErrorCode, GroupId};

use super::assignment::assign_eager;
use super::ids::lowest_free;
use super::streams::{Partition, Topic};
use super::topology::{TopologyChange, deletions, specify};
use super::{Applied, MetadataState, replies};
use crate::options::{HeaderSettings, OptionsMap, check_readable};

/// The ids that assignments come to above `base`, each checked.
fn partition_ids(assignments: &[Assignment], base: u32) -> Result<Vec<u32>, ErrorCode> {
    let mut seen = BTreeSet::new();
    for assignment in assignments {
        let id = base
            .checked_add(assignment.partition_id())
            .ok_or(ErrorCode::InvalidPartitionsCount)?;
        if id >= GroupId::PARTITION_COUNT_MAX {
            return Err(ErrorCode::PartitionIdSpaceExhausted);
        }
        if !seen.insert(id) {
            return Err(ErrorCode::InvalidPartitionsCount);
        }
    }
    Ok(assignments
        .iter()
        .map(|a| base.saturating_add(a.partition_id()))
        .collect())
}

/// Adds partitions to a topic, ascending by id whatever their order in the body.
fn add_partitions(
    topic: &mut Topic,
    ids: &[u32],
    assignments: &[Assignment],
    stamp: &Partition,
) -> Vec<u32> {
    for (id, assignment) in ids.iter().zip(assignments) {
        let consensus_group_id = assignment.consensus_group_id();
        topic.partitions.push(Partition {
            id: *id,
            consensus_group_id,
            ..*stamp
        });
    }
    topic.partitions.sort_by_key(|partition| partition.id);
    topic.partition_ids()
}

fn created(stream: u32, topic: &Topic, ids: &[u32]) -> Vec<TopologyChange> {
    ids.iter()
        .filter_map(|id| topic.partition(*id))
        .filter_map(|partition| specify(stream, topic, partition))
        .map(TopologyChange::PartitionCreated)
        .collect()
}

/// Options and partition count of a topic, for the partitions it keeps.
fn updated(stream: u32, topic: &Topic) -> TopologyChange {
    let partitions_count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    let settings = topic.settings();
    TopologyChange::TopicUpdated {
        stream,
        topic: topic.id,
        settings,
        partitions_count,
    }
}

impl MetadataState {
    pub(super) fn create_topic(
        &mut self,
        body: &CreateTopicWithAssignments<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        let request = &body.request;
        let stream = self.streams.stream_mut(&request.stream)?;
        if stream.topic_names.contains_key(request.name.as_str()) {
            return Err(ErrorCode::TopicNameAlreadyExists);
        }
        let id = lowest_free(&stream.topics);
        if id >= GroupId::TOPIC_COUNT_MAX {
            return Err(ErrorCode::TooManyTopics);
        }
        let ids = partition_ids(body.assignments.entries, 0)?;
        check_readable(&request.options)?;
        check_readable(&body.derived)?;
        let (options, header) = OptionsMap::for_new_topic(&request.options, &body.derived);
        let created_revision = self.streams.raise_revision();
        let stream = self.streams.stream_mut(&request.stream)?;
        let mut topic = Topic {
            id,
            name: request.name.as_str().to_owned(),
            created_at: now,
            message_expiry: header.message_expiry,
            compression: header.compression,
            max_topic_size: header.max_topic_size,
            options,
            partitions: Vec::new(),
            groups: Default::default(),
            group_names: Default::default(),
            next_group_id: 0,
        };
        let stamp = Partition::stamp(now, created_revision, body.assignments.created_view.0);
        add_partitions(&mut topic, &ids, body.assignments.entries, &stamp);
        let mut payload = Vec::new();
        replies::put_new_topic(&mut payload, &topic);
        let topology = created(stream.id, &topic, &topic.partition_ids());
        stream.topic_names.insert(topic.name.clone(), id);
        stream.topics.insert(id, topic);
        Ok(Applied {
            rejection: None,
            payload,
            topology,
        })
    }

    pub(super) fn update_topic(&mut self, body: &UpdateTopic<'_>) -> Result<Applied, ErrorCode> {
        let stream = self.streams.stream_mut(&body.stream)?;
        let id = stream
            .topic_id(&body.topic)
            .ok_or(ErrorCode::TopicIdNotFound)?;
        if stream
            .topic_names
            .get(body.name.as_str())
            .is_some_and(|owner| *owner != id)
        {
            return Err(ErrorCode::TopicNameAlreadyExists);
        }
        check_readable(&body.options)?;
        let stream_id = stream.id;
        let topic = stream
            .topics
            .get_mut(&id)
            .ok_or(ErrorCode::TopicIdNotFound)?;
        let before = topic.settings();
        let old = std::mem::replace(&mut topic.name, body.name.as_str().to_owned());
        let mut header = HeaderSettings {
            compression: topic.compression,
            message_expiry: topic.message_expiry,
            max_topic_size: topic.max_topic_size,
        };
        header.overlay(body.options.iter(), false);
        topic.compression = header.compression;
        topic.message_expiry = header.message_expiry;
        topic.max_topic_size = header.max_topic_size;
        topic.options.overlay(&body.options, true);
        let mut topology = Vec::new();
        if topic.settings() != before {
            topology.push(updated(stream_id, topic));
        }
        stream.topic_names.remove(&old);
        stream.topic_names.insert(body.name.as_str().to_owned(), id);
        Ok(Applied::with_topology(topology))
    }

    pub(super) fn delete_topic(&mut self, body: &TopicRequest<'_>) -> Result<Applied, ErrorCode> {
        let stream = self.streams.stream_mut(&body.stream)?;
        let id = stream
            .topic_id(&body.topic)
            .ok_or(ErrorCode::TopicIdNotFound)?;
        let topic = stream
            .topics
            .remove(&id)
            .ok_or(ErrorCode::TopicIdNotFound)?;
        stream.topic_names.remove(&topic.name);
        let stream = stream.id;
        self.forget_memberships(stream, &topic);
        self.streams.raise_revision();
        Ok(Applied::with_topology(deletions(stream, &topic).collect()))
    }

    pub(super) fn create_partitions(
        &mut self,
        body: &CreatePartitionsWithAssignments<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        let target = &body.request;
        let (_, topic) = self.streams.topic_mut(&target.stream, &target.topic)?;
        let base = match topic.partitions.last() {
            Some(last) => last
                .id
                .checked_add(1)
                .ok_or(ErrorCode::InvalidPartitionsCount)?,
            None => 0,
        };
        let ids = partition_ids(body.assignments.entries, base)?;
        let created_revision = self.streams.raise_revision();
        let (stream, topic) = self.streams.topic_mut(&target.stream, &target.topic)?;
        let stamp = Partition::stamp(now, created_revision, body.assignments.created_view.0);
        let all = add_partitions(topic, &ids, body.assignments.entries, &stamp);
        for group in topic.groups.values_mut() {
            assign_eager(group, &all);
        }
        let mut topology = created(stream, topic, &ids);
        topology.push(updated(stream, topic));
        Ok(Applied::with_topology(topology))
    }

    pub(super) fn delete_partitions(
        &mut self,
        body: &PartitionsRequest<'_>,
    ) -> Result<Applied, ErrorCode> {
        let target = body;
        let (stream, topic) = self.streams.topic_mut(&target.stream, &target.topic)?;
        let count = usize::try_from(body.count).map_err(|_| ErrorCode::InvalidPartitionsCount)?;
        let left = topic
            .partitions
            .len()
            .checked_sub(count)
            .ok_or(ErrorCode::InvalidPartitionsCount)?;
        if count == 0 {
            return Ok(Applied::default());
        }
        let removed = topic.partitions.split_off(left);
        let all = topic.partition_ids();
        for group in topic.groups.values_mut() {
            assign_eager(group, &all);
        }
        let deleted = |partition: &Partition| {
            let group = GroupId::partition(stream, topic.id, partition.id)?;
            let created_revision = partition.created_revision;
            Some(TopologyChange::PartitionDeleted {
                group,
                created_revision,
            })
        };
        let mut topology: Vec<TopologyChange> = removed.iter().filter_map(deleted).collect();
        topology.push(updated(stream, topic));
        self.streams.raise_revision();
        Ok(Applied::with_topology(topology))
    }
}

impl Partition {
    /// What all partitions of one creating prepare share.
    fn stamp(created_at: u64, created_revision: u64, created_view: u32) -> Self {
        Self {
            id: 0,
            consensus_group_id: 0,
            created_at,
            created_revision,
            deleted_up_to_offset: 0,
            purge_generation: 0,
            created_view,
        }
    }
}
