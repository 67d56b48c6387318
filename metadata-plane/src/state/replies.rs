//! Payloads of replies: descriptions of streams, topics, groups and users.
//!
//! Replies to operations are built here from the state alone and are the same on all replicas.
//! Reads share the records and add the counters of the node that answers (protocol
//! specification, chapter 05, sections 4.5 and 11).

use biplane_wire::request::CreateUser;
use biplane_wire::response::{
    ConsumerGroupMember, ConsumerGroupRecord, PartitionRecord, StreamRecord, TopicRecord,
    UserDetails, UserRecord,
};
use biplane_wire::{Codec, Name, Options, Options32, PermissionsBlock};

use super::groups::Group;
use super::streams::{Partition, Stream, Topic};
use super::users::User;

/// Counters of a stream, a topic or a partition. They belong to the node that answers and are
/// no part of the replicated state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of all messages.
    pub size_bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Segments; only partitions report them.
    pub segments: u32,
    /// Offset of the last message; only partitions report it.
    pub current_offset: u64,
}

impl Counters {
    /// Adds what a part of the whole counts.
    pub(super) fn add(&mut self, part: Self) {
        self.size_bytes = self.size_bytes.saturating_add(part.size_bytes);
        self.messages = self.messages.saturating_add(part.messages);
        self.segments = self.segments.saturating_add(part.segments);
    }
}

/// Counts of the state fit 32 bits by its limits.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A name of the state: every one was a name of a body or was checked as one.
fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("names of the state have 1 to 255 bytes")
}

/// A block that the state wrote itself.
fn options(block: &[u8]) -> Options32<'_> {
    Options32(Options::parse(block).expect("stored options form a block"))
}

fn put_stream_record(
    out: &mut Vec<u8>,
    stream: &Stream,
    counters: Counters,
    options: Options32<'_>,
) {
    StreamRecord {
        id: stream.id,
        created_at: stream.created_at,
        topics_count: count(stream.topics.len()),
        size: counters.size_bytes,
        messages_count: counters.messages,
        name: name(&stream.name),
        options,
    }
    .write(out);
}

/// Payload of CreateStream: no topics, no counters, options as sent.
pub(super) fn put_new_stream(out: &mut Vec<u8>, stream: &Stream, sent: Options<'_>) {
    put_stream_record(out, stream, Counters::default(), Options32(sent));
}

/// A stream with the options as stored.
pub(super) fn put_stream(out: &mut Vec<u8>, stream: &Stream, counters: Counters) {
    put_stream_record(out, stream, counters, options(&stream.options.block_all()));
}

/// Payload of CreateTopic: topic and partitions, no counters.
pub(super) fn put_new_topic(out: &mut Vec<u8>, topic: &Topic) {
    put_topic(out, topic, Counters::default());
    for partition in &topic.partitions {
        put_partition(out, partition, Counters::default());
    }
}

/// A topic without its partitions.
pub(super) fn put_topic(out: &mut Vec<u8>, topic: &Topic, counters: Counters) {
    TopicRecord {
        id: topic.id,
        created_at: topic.created_at,
        partitions_count: count(topic.partitions.len()),
        message_expiry: topic.message_expiry,
        compression: topic.compression.as_u8(),
        max_topic_size: topic.max_topic_size,
        size: counters.size_bytes,
        messages_count: counters.messages,
        name: name(&topic.name),
        explicit_options: options(&topic.options.block(true)),
        derived_options: options(&topic.options.block(false)),
    }
    .write(out);
}

/// A partition.
pub(super) fn put_partition(out: &mut Vec<u8>, partition: &Partition, counters: Counters) {
    PartitionRecord {
        id: partition.id,
        created_at: partition.created_at,
        segments_count: counters.segments,
        current_offset: counters.current_offset,
        size: counters.size_bytes,
        messages_count: counters.messages,
    }
    .write(out);
}

/// A group without its members.
pub(super) fn put_group(out: &mut Vec<u8>, topic: &Topic, group: &Group) {
    ConsumerGroupRecord {
        id: u32::try_from(group.id).unwrap_or(u32::MAX),
        partitions_count: count(topic.partitions.len()),
        members_count: count(group.members().len()),
        name: name(&group.name),
    }
    .write(out);
}

/// A group followed by its members with the partitions they own.
pub(super) fn put_group_details(out: &mut Vec<u8>, topic: &Topic, group: &Group) {
    put_group(out, topic, group);
    for (key, member) in group.members() {
        ConsumerGroupMember {
            id: *key,
            partitions: member.partitions.clone(),
        }
        .write(out);
    }
}

/// Payload of CreateUser: status byte, options and permissions as sent.
pub(super) fn put_new_user(out: &mut Vec<u8>, user: &User, body: &CreateUser<'_>) {
    let user = UserRecord {
        id: user.id,
        created_at: user.created_at,
        status: body.status,
        username: body.username,
        options: Options32(body.options),
    };
    UserDetails {
        user,
        permissions: body.permissions.0,
    }
    .write(out);
}

fn user_record<'a>(user: &'a User, block: &'a [u8]) -> UserRecord<'a> {
    UserRecord {
        id: user.id,
        created_at: user.created_at,
        status: user.status.as_u8(),
        username: name(&user.username),
        options: options(block),
    }
}

/// A user without its permissions.
pub(super) fn put_user(out: &mut Vec<u8>, user: &User) {
    user_record(user, &user.options.block_all()).write(out);
}

/// A user with its permissions.
pub(super) fn put_user_details(out: &mut Vec<u8>, user: &User) {
    let block = user.options.block_all();
    let granted = user.permissions.as_ref().map(Codec::encode);
    let permissions = granted
        .as_deref()
        .map(|bytes| PermissionsBlock::parse(bytes).expect("encoded permissions form a block"));
    UserDetails {
        user: user_record(user, &block),
        permissions,
    }
    .write(out);
}
