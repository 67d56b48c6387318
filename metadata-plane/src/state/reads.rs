//! Bodies of metadata reads, from the locally applied state.
//!
//! Each function answers one read command; permission is checked first, but what does not exist
//! is reported as absent to everybody. The caller adds the counters of its partitions through
//! [`Statistics`] (protocol specification, chapter 05, sections 8.2 and 11).

use biplane_wire::request::{ConsumerGroupRequest, DescribeOptions, OptionScope, TopicRequest};
use biplane_wire::response::{OptionSpec, PersonalAccessTokenRecord, SyncReply};
use biplane_wire::{
    Bytes32, ClientId, Codec, Counted, ErrorCode, GroupId, Identifier, Name, Text32,
};

use super::permissions::Action;
use super::streams::{Stream, Topic};
use super::{MetadataState, replies};
use crate::options::describe_topic_options;

pub use super::replies::Counters;

/// Counters of the partitions this node holds.
pub trait Statistics {
    /// Counters of one partition; zeros where it is not materialised here.
    fn partition(&self, group: GroupId) -> Counters;
}

/// No counters: every partition reads as empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStatistics;

impl Statistics for NoStatistics {
    fn partition(&self, _group: GroupId) -> Counters {
        Counters::default()
    }
}

fn partition_counters(
    statistics: &dyn Statistics,
    stream: u32,
    topic: u32,
    partition: u32,
) -> Counters {
    GroupId::partition(stream, topic, partition)
        .map_or_else(Counters::default, |group| statistics.partition(group))
}

fn topic_counters(statistics: &dyn Statistics, stream: u32, topic: &Topic) -> Counters {
    let mut sum = Counters::default();
    for partition in &topic.partitions {
        let counters = partition_counters(statistics, stream, topic.id, partition.id);
        sum.add(counters);
    }
    sum
}

fn stream_counters(statistics: &dyn Statistics, stream: &Stream) -> Counters {
    let mut sum = Counters::default();
    for topic in stream.topics().values() {
        let counters = topic_counters(statistics, stream.id, topic);
        sum.add(counters);
    }
    sum
}

impl MetadataState {
    /// GetStream (200): header and topic headers, empty where the stream is missing.
    ///
    /// # Errors
    ///
    /// 41, as for every read below that says so.
    pub fn read_stream(
        &self,
        user_id: u32,
        stream: &Identifier<'_>,
        statistics: &dyn Statistics,
    ) -> Result<Vec<u8>, ErrorCode> {
        let mut out = Vec::new();
        let Some(stream) = self.streams.stream(stream) else {
            return Ok(out);
        };
        self.authorize(user_id, Action::ReadStream(stream.id))?;
        replies::put_stream(&mut out, stream, stream_counters(statistics, stream));
        for topic in stream.topics().values() {
            let counters = topic_counters(statistics, stream.id, topic);
            replies::put_topic(&mut out, topic, counters);
        }
        Ok(out)
    }

    /// GetStreams (201): all stream headers, without a count.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn read_streams(
        &self,
        user_id: u32,
        statistics: &dyn Statistics,
    ) -> Result<Vec<u8>, ErrorCode> {
        self.authorize(user_id, Action::ListStreams)?;
        let mut out = Vec::new();
        for stream in self.streams.by_id().values() {
            replies::put_stream(&mut out, stream, stream_counters(statistics, stream));
        }
        Ok(out)
    }

    /// GetTopic (300): header and partitions, empty where stream or topic are missing.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn read_topic_details(
        &self,
        user_id: u32,
        target: &TopicRequest<'_>,
        statistics: &dyn Statistics,
    ) -> Result<Vec<u8>, ErrorCode> {
        let mut out = Vec::new();
        let Ok((stream, topic)) = self.streams.topic(&target.stream, &target.topic) else {
            return Ok(out);
        };
        self.authorize(user_id, Action::ReadTopic(stream.id, topic.id))?;
        replies::put_topic(
            &mut out,
            topic,
            topic_counters(statistics, stream.id, topic),
        );
        for partition in &topic.partitions {
            let counters = partition_counters(statistics, stream.id, topic.id, partition.id);
            replies::put_partition(&mut out, partition, counters);
        }
        Ok(out)
    }

    /// GetTopics (301): a count and the topic headers; count 0 where the stream is missing.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn read_topics(
        &self,
        user_id: u32,
        stream: &Identifier<'_>,
        statistics: &dyn Statistics,
    ) -> Result<Vec<u8>, ErrorCode> {
        let Some(stream) = self.streams.stream(stream) else {
            return Ok(0_u32.to_le_bytes().to_vec());
        };
        self.authorize(user_id, Action::ListTopics(stream.id))?;
        let count = u32::try_from(stream.topics().len()).unwrap_or(u32::MAX);
        let mut out = count.to_le_bytes().to_vec();
        for topic in stream.topics().values() {
            let counters = topic_counters(statistics, stream.id, topic);
            replies::put_topic(&mut out, topic, counters);
        }
        Ok(out)
    }

    /// GetUser (31): user with permissions, empty where missing. Oneself is always visible.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn read_user(&self, user_id: u32, user: &Identifier<'_>) -> Result<Vec<u8>, ErrorCode> {
        let mut out = Vec::new();
        let Some(user) = self.users.user(user) else {
            return Ok(out);
        };
        if user.id != user_id {
            self.authorize(user_id, Action::ReadUsers)?;
        }
        replies::put_user_details(&mut out, user);
        Ok(out)
    }

    /// GetUsers (32): all user headers, without a count.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn read_users(&self, user_id: u32) -> Result<Vec<u8>, ErrorCode> {
        self.authorize(user_id, Action::ReadUsers)?;
        let mut out = Vec::new();
        for user in self.users.by_id().values() {
            replies::put_user(&mut out, user);
        }
        Ok(out)
    }

    /// GetPersonalAccessTokens (41): the caller's own, name and expiry each, 0 for never.
    pub fn read_tokens(&self, user_id: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, token) in self.users.tokens_of(user_id) {
            let name = Name::new(name).expect("names of the state have 1 to 255 bytes");
            PersonalAccessTokenRecord {
                name,
                expiry_at: token.expiry.unwrap_or(0),
            }
            .write(&mut out);
        }
        out
    }

    /// GetConsumerGroup (600): group with members, empty where the group is missing.
    ///
    /// # Errors
    ///
    /// 1009 or 2010 where stream or topic are missing, 41.
    pub fn read_group(
        &self,
        user_id: u32,
        target: &ConsumerGroupRequest<'_>,
    ) -> Result<Vec<u8>, ErrorCode> {
        let (stream, topic) = self.streams.topic(&target.stream, &target.topic)?;
        self.authorize(user_id, Action::ReadTopic(stream.id, topic.id))?;
        let mut out = Vec::new();
        if let Some(group) = topic.group(&target.group) {
            replies::put_group_details(&mut out, topic, group);
        }
        Ok(out)
    }

    /// GetConsumerGroups (601): all group headers of a topic, without a count.
    ///
    /// # Errors
    ///
    /// 1009 or 2010 where stream or topic are missing, 41.
    pub fn read_groups(
        &self,
        user_id: u32,
        target: &TopicRequest<'_>,
    ) -> Result<Vec<u8>, ErrorCode> {
        let (stream, topic) = self.streams.topic(&target.stream, &target.topic)?;
        self.authorize(user_id, Action::ReadTopic(stream.id, topic.id))?;
        let mut out = Vec::new();
        for group in topic.groups().values() {
            replies::put_group(&mut out, topic, group);
        }
        Ok(out)
    }

    /// SyncConsumerGroup (606): generation and the partitions the client may poll; empty where
    /// the client is no member or anything is missing. Needs no permission.
    pub fn sync_group(&self, client: ClientId, target: &ConsumerGroupRequest<'_>) -> Vec<u8> {
        let member = self
            .streams
            .topic(&target.stream, &target.topic)
            .ok()
            .and_then(|(_, topic)| {
                let group = topic.group(&target.group)?;
                group
                    .member_of(client)
                    .map(|(_, member)| (group.generation, member))
            });
        member.map_or_else(Vec::new, |(generation, member)| {
            SyncReply {
                generation,
                partitions: member.pollable().collect(),
            }
            .encode()
        })
    }

    /// DescribeOptions (13): the catalogue of a scope; 1 topic, 2 stream, 3 user.
    ///
    /// # Errors
    ///
    /// 3 for another scope or a missing byte.
    pub fn describe_options(&self, body: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        let request = DescribeOptions::decode(body).map_err(|_| ErrorCode::InvalidCommand)?;
        let descriptions = match request.scope {
            OptionScope::Topic => describe_topic_options(),
            OptionScope::Stream | OptionScope::User => Vec::new(),
        };
        let specs = descriptions.iter().map(|entry| OptionSpec {
            key: Name::new(entry.key).expect("keys of the catalogue are names"),
            kind: entry.kind.0,
            default: Bytes32(&entry.default),
            description: Text32(entry.description),
        });
        Ok(Counted(specs.collect()).encode())
    }
}
