//! Between the records of a snapshot and the state.

use std::collections::BTreeMap;

use biplane_wire::{
    ClientId, GlobalPermissions, GroupId, Permissions, StreamFlags, StreamPermissions, TopicFlags,
};

use super::fields::{Bytes, OptionsRecord, Wide};
use super::records::{
    ClientTableRecord, GroupRecord, MemberRecord, PartitionRecord, PermissionerRecord,
    PermissionsRecord, RevocationRecord, SessionRecord, Skipped, StatsRecord,
    StreamPermissionsRecord, StreamRecord, StreamsRecord, TokenRecord, TopicRecord, UserRecord,
    UsersRecord,
};
use super::{SessionImage, SnapshotError, TableImage};
use crate::options::Compression;
use crate::state::groups::{Group, Member, Revocation};
use crate::state::streams::{Partition, Stream, Streams, Topic};
use crate::state::users::{Token, User, UserStatus, Users};

type Decoded<T> = Result<T, SnapshotError>;

fn require(condition: bool, what: &'static str) -> Decoded<()> {
    if condition {
        Ok(())
    } else {
        Err(SnapshotError::Inconsistent(what))
    }
}

pub(super) fn users_record(users: &Users) -> UsersRecord {
    let skipped = || Skipped;
    UsersRecord {
        items: users
            .by_id()
            .values()
            .map(|user| (user.id.into(), user_record(user)))
            .collect(),
        tokens: users
            .tokens()
            .iter()
            .map(|(owner, tokens)| {
                let tokens = tokens
                    .iter()
                    .map(|(name, token)| (name.clone(), token_record(*owner, name, token)))
                    .collect();
                (*owner, tokens)
            })
            .collect(),
        permissioner: PermissionerRecord(
            skipped(),
            skipped(),
            skipped(),
            skipped(),
            skipped(),
            skipped(),
        ),
    }
}

fn token_record(owner: u32, name: &str, token: &Token) -> TokenRecord {
    TokenRecord {
        user_id: owner,
        name: name.to_owned(),
        hash: token.hash.clone(),
        expiry: token.expiry,
    }
}

fn user_record(user: &User) -> UserRecord {
    let status = match user.status {
        UserStatus::Active => "active",
        UserStatus::Inactive => "inactive",
    };
    UserRecord {
        id: user.id,
        username: user.username.clone(),
        password_hash: user.password_hash.clone(),
        status: status.to_owned(),
        created_at: user.created_at,
        permissions: user.permissions.as_ref().map(permissions_record),
        options: OptionsRecord(user.options.clone()),
    }
}

fn permissions_record(permissions: &Permissions) -> PermissionsRecord {
    PermissionsRecord {
        global: global_bits(&permissions.global),
        streams: some_map(&permissions.streams, |stream| StreamPermissionsRecord {
            manage_stream: stream.flags.manage_stream,
            read_stream: stream.flags.read_stream,
            manage_topics: stream.flags.manage_topics,
            read_topics: stream.flags.read_topics,
            poll_messages: stream.flags.poll_messages,
            send_messages: stream.flags.send_messages,
            topics: some_map(&stream.topics, |topic| {
                [
                    topic.manage_topic,
                    topic.read_topic,
                    topic.poll_messages,
                    topic.send_messages,
                ]
            }),
        }),
    }
}

/// No list where there are no entries, as a block without entries has none.
fn some_map<V, R>(map: &BTreeMap<u32, V>, record: impl Fn(&V) -> R) -> Option<BTreeMap<u32, R>> {
    if map.is_empty() {
        return None;
    }
    Some(map.iter().map(|(id, value)| (*id, record(value))).collect())
}

fn global_bits(global: &GlobalPermissions) -> [bool; 10] {
    [
        global.manage_servers,
        global.read_servers,
        global.manage_users,
        global.read_users,
        global.manage_streams,
        global.read_streams,
        global.manage_topics,
        global.read_topics,
        global.poll_messages,
        global.send_messages,
    ]
}

pub(super) fn users(record: UsersRecord) -> Decoded<Users> {
    let mut users = Users::default();
    for (key, record) in record.items {
        require(
            key == u64::from(record.id),
            "the key of a user is not its id",
        )?;
        let user = user(record)?;
        let free = users.by_name(&user.username).is_none() && !users.by_id().contains_key(&user.id);
        require(free, "two users share an id or a name")?;
        users.insert(user);
    }
    for (owner, tokens) in record.tokens {
        require(
            !users.has_token_list(owner),
            "two lists of tokens share an owner",
        )?;
        users.reset_tokens(owner);
        for (name, token) in tokens {
            require(
                users.token(owner, &name).is_none(),
                "two tokens share a name",
            )?;
            let token = Token {
                hash: token.hash,
                expiry: token.expiry,
            };
            users.insert_token(owner, &name, token);
        }
    }
    Ok(users)
}

fn user(record: UserRecord) -> Decoded<User> {
    let status = match record.status.as_str() {
        "active" => UserStatus::Active,
        "inactive" => UserStatus::Inactive,
        _ => return Err(SnapshotError::Inconsistent("a user has an unknown status")),
    };
    check_name(&record.username)?;
    Ok(User {
        id: record.id,
        username: record.username,
        password_hash: record.password_hash,
        status,
        created_at: record.created_at,
        permissions: record.permissions.map(permissions),
        options: record.options.0,
    })
}

/// Replies carry names behind a length byte.
fn check_name(name: &str) -> Decoded<()> {
    require(
        (1..=255).contains(&name.len()),
        "a name is empty or too long",
    )
}

fn permissions(record: PermissionsRecord) -> Permissions {
    let streams = record.streams.into_iter().flatten();
    Permissions {
        global: global(record.global),
        streams: streams
            .map(|(id, record)| (id, stream_permissions(record)))
            .collect(),
    }
}

fn stream_permissions(record: StreamPermissionsRecord) -> StreamPermissions {
    let topic = |bits: [bool; 4]| {
        let [manage_topic, read_topic, poll_messages, send_messages] = bits;
        TopicFlags {
            manage_topic,
            read_topic,
            poll_messages,
            send_messages,
        }
    };
    StreamPermissions {
        flags: StreamFlags {
            manage_stream: record.manage_stream,
            read_stream: record.read_stream,
            manage_topics: record.manage_topics,
            read_topics: record.read_topics,
            poll_messages: record.poll_messages,
            send_messages: record.send_messages,
        },
        topics: record
            .topics
            .into_iter()
            .flatten()
            .map(|(id, bits)| (id, topic(bits)))
            .collect(),
    }
}

fn global(bits: [bool; 10]) -> GlobalPermissions {
    let [
        servers,
        see_servers,
        users,
        see_users,
        streams,
        see_streams,
        rest @ ..,
    ] = bits;
    let [topics, see_topics, poll, send] = rest;
    GlobalPermissions {
        manage_servers: servers,
        read_servers: see_servers,
        manage_users: users,
        read_users: see_users,
        manage_streams: streams,
        read_streams: see_streams,
        manage_topics: topics,
        read_topics: see_topics,
        poll_messages: poll,
        send_messages: send,
    }
}

pub(super) fn streams_record(streams: &Streams) -> StreamsRecord {
    StreamsRecord {
        items: streams
            .by_id()
            .values()
            .map(|stream| (stream.id.into(), stream_record(stream)))
            .collect(),
        revision: streams.revision(),
    }
}

fn stream_record(stream: &Stream) -> StreamRecord {
    let topics = stream.topics().values();
    StreamRecord {
        id: stream.id,
        name: stream.name.clone(),
        created_at: stream.created_at,
        stats: StatsRecord::default(),
        topics: topics
            .map(|topic| (topic.id.into(), topic_record(topic)))
            .collect(),
        options: OptionsRecord(stream.options.clone()),
    }
}

fn topic_record(topic: &Topic) -> TopicRecord {
    TopicRecord {
        id: topic.id,
        name: topic.name.clone(),
        created_at: topic.created_at,
        message_expiry: topic.message_expiry,
        compression: topic.compression.as_str().to_owned(),
        max_topic_size: topic.max_topic_size,
        stats: StatsRecord::default(),
        partitions: topic.partitions.iter().map(partition_record).collect(),
        groups: topic
            .groups()
            .values()
            .map(|group| (group.id, group_record(group)))
            .collect(),
        next_group_id: topic.next_group_id,
        options: OptionsRecord(topic.options.clone()),
    }
}

fn partition_record(partition: &Partition) -> PartitionRecord {
    PartitionRecord {
        id: partition.id,
        consensus_group_id: partition.consensus_group_id,
        created_at: partition.created_at,
        created_revision: partition.created_revision,
        deleted_up_to_offset: partition.deleted_up_to_offset,
        purge_generation: partition.purge_generation,
        created_view: partition.created_view,
    }
}

fn group_record(group: &Group) -> GroupRecord {
    let revocation =
        |entry: &Revocation| RevocationRecord(entry.partition, entry.target, entry.created_at);
    let member = |key: u32, member: &Member| MemberRecord {
        id: key,
        client: Wide(member.client.0),
        partitions: member.partitions.clone(),
        pending: member.pending.iter().map(revocation).collect(),
    };
    GroupRecord {
        id: group.id,
        generation: group.generation,
        name: group.name.clone(),
        members: group
            .members()
            .iter()
            .map(|(k, m)| (u64::from(*k), member(*k, m)))
            .collect(),
    }
}

pub(super) fn streams(record: StreamsRecord) -> Decoded<Streams> {
    let mut streams = Streams::restored(record.revision);
    for (key, record) in record.items {
        require(
            key == u64::from(record.id),
            "the key of a stream is not its id",
        )?;
        require(
            record.id < GroupId::STREAM_COUNT_MAX,
            "a stream id is too large",
        )?;
        check_name(&record.name)?;
        let mut stream = Stream {
            id: record.id,
            name: record.name,
            created_at: record.created_at,
            options: record.options.0,
            topics: BTreeMap::new(),
            topic_names: BTreeMap::new(),
        };
        for (key, record) in record.topics {
            require(
                key == u64::from(record.id),
                "the key of a topic is not its id",
            )?;
            let topic = topic(record)?;
            require(
                stream.insert_topic(topic),
                "two topics share an id or a name",
            )?;
        }
        require(streams.insert(stream), "two streams share an id or a name")?;
    }
    Ok(streams)
}

fn topic(record: TopicRecord) -> Decoded<Topic> {
    require(
        record.id < GroupId::TOPIC_COUNT_MAX,
        "a topic id is too large",
    )?;
    check_name(&record.name)?;
    let compression = Compression::from_name(&record.compression).ok_or(
        SnapshotError::Inconsistent("a topic has an unknown compression"),
    )?;
    let partitions: Vec<Partition> = record.partitions.into_iter().map(partition).collect();
    let ascending = partitions.is_sorted_by(|a, b| a.id < b.id);
    require(ascending, "partitions are not in ascending order")?;
    let legal = partitions
        .last()
        .is_none_or(|last| last.id < GroupId::PARTITION_COUNT_MAX);
    require(legal, "a partition id is too large")?;
    let mut topic = Topic {
        id: record.id,
        name: record.name,
        created_at: record.created_at,
        message_expiry: record.message_expiry,
        compression,
        max_topic_size: record.max_topic_size,
        options: record.options.0,
        partitions,
        groups: BTreeMap::new(),
        group_names: BTreeMap::new(),
        next_group_id: record.next_group_id,
    };
    for (key, record) in record.groups {
        require(
            key == record.id,
            "the key of a consumer group is not its id",
        )?;
        let group = group(record)?;
        topic.next_group_id = topic.next_group_id.max(group.id.saturating_add(1));
        require(
            topic.insert_group(group),
            "two consumer groups share an id or a name",
        )?;
    }
    Ok(topic)
}

fn partition(record: PartitionRecord) -> Partition {
    Partition {
        id: record.id,
        consensus_group_id: record.consensus_group_id,
        created_at: record.created_at,
        created_revision: record.created_revision,
        deleted_up_to_offset: record.deleted_up_to_offset,
        purge_generation: record.purge_generation,
        created_view: record.created_view,
    }
}

fn group(record: GroupRecord) -> Decoded<Group> {
    check_name(&record.name)?;
    let mut members = BTreeMap::new();
    for (key, record) in record.members {
        require(
            key == u64::from(record.id),
            "the key of a member is not its id",
        )?;
        let pending = record
            .pending
            .into_iter()
            .map(|RevocationRecord(partition, target, at)| Revocation {
                partition,
                target,
                created_at: at,
            });
        let member = Member {
            client: ClientId(record.client.0),
            partitions: record.partitions,
            pending: pending.collect(),
        };
        let free = members.insert(record.id, member).is_none();
        require(free, "two members share a key")?;
    }
    Group::restore(record.id, record.name, record.generation, members)
        .ok_or(SnapshotError::Inconsistent("a client is a member twice"))
}

pub(super) fn table_record(table: &TableImage) -> ClientTableRecord {
    let record = |image: &SessionImage| SessionRecord {
        client: Wide(image.client),
        epoch: image.epoch,
        user_id: image.user_id,
        watermark: image.watermark,
        watermark_checksum: Wide(image.watermark_checksum),
        reply: Bytes(image.reply.clone()),
    };
    ClientTableRecord {
        slots: table
            .slots
            .iter()
            .map(|(slot, image)| (*slot, record(image)))
            .collect(),
        fences: table.fences.iter().map(record).collect(),
    }
}

pub(super) fn table(record: ClientTableRecord) -> TableImage {
    let image = |record: SessionRecord| SessionImage {
        client: record.client.0,
        epoch: record.epoch,
        user_id: record.user_id,
        watermark: record.watermark,
        watermark_checksum: record.watermark_checksum.0,
        reply: record.reply.0,
    };
    TableImage {
        slots: record
            .slots
            .into_iter()
            .map(|(slot, record)| (slot, image(record)))
            .collect(),
        fences: record.fences.into_iter().map(image).collect(),
    }
}
