//! The JSON of answers (chapter 08 section 5.1): members in the order of the specification, byte
//! counts as text.

use std::collections::BTreeMap;

use base64ct::{Base64, Encoding as _};
use biplane_wire::response::{
    ClientDetails, ClientRecord, ClusterMetadata, ConsumerGroupDetails, ConsumerGroupRecord,
    NodeRole, NodeStatus, OptionSpec, PartitionRecord, Stats, StreamDetails, StreamRecord,
    TopicDetails, TopicRecord, TransportKind, UserDetails, UserRecord,
};
use biplane_wire::{Options32, PermissionsBlock, TlvField, TlvKind};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::permissions::PermissionsJson;
use super::sizes;

/// A byte count.
pub(crate) struct Size(pub(crate) u64);

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&sizes::text(self.0))
    }
}

/// Options as stored: those that were asked for, and those that were filled in.
pub(crate) struct OptionsJson<'a> {
    explicit: Options32<'a>,
    derived: Options32<'a>,
}

#[derive(Serialize)]
struct OptionJson {
    value: String,
    explicit: bool,
}

impl Serialize for OptionsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = BTreeMap::new();
        for (options, explicit) in [(&self.derived, false), (&self.explicit, true)] {
            for (key, field) in options.0.iter() {
                let value = value_text(field);
                all.insert(key, OptionJson { value, explicit });
            }
        }
        let mut map = serializer.serialize_map(Some(all.len()))?;
        for (key, value) in &all {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// An option's value as text.
fn value_text(field: TlvField<'_>) -> String {
    let signed = |bytes: &[u8]| {
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(wide).to_string()
    };
    let unsigned = |bytes: &[u8]| {
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        u128::from_le_bytes(wide).to_string()
    };
    let fits = field.kind.value_size() == Some(field.data.len());
    match (field.kind.0, fits) {
        (2, _) => String::from_utf8_lossy(field.data).into_owned(),
        (3, true) => (field.data[0] != 0).to_string(),
        (4..=8, true) => signed(field.data),
        (9..=13, true) => unsigned(field.data),
        (14, true) => f32::from_le_bytes(field.data.try_into().unwrap_or_default()).to_string(),
        (15, true) => f64::from_le_bytes(field.data.try_into().unwrap_or_default()).to_string(),
        _ => Base64::encode_string(field.data),
    }
}

/// Name of a kind of value.
pub(crate) const fn kind_name(kind: TlvKind) -> Option<&'static str> {
    Some(match kind.0 {
        1 => "raw",
        2 => "string",
        3 => "bool",
        4 => "int8",
        5 => "int16",
        6 => "int32",
        7 => "int64",
        8 => "int128",
        9 => "uint8",
        10 => "uint16",
        11 => "uint32",
        12 => "uint64",
        13 => "uint128",
        14 => "float32",
        15 => "float64",
        _ => return None,
    })
}

/// The kind of a name.
pub(crate) fn kind_of(name: &str) -> Option<TlvKind> {
    (1..=15)
        .map(TlvKind)
        .find(|kind| kind_name(*kind) == Some(name))
}

#[derive(Serialize)]
pub(crate) struct StreamJson<'a> {
    id: u32,
    created_at: u64,
    name: &'a str,
    size: Size,
    messages_count: u64,
    topics_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    topics: Option<Vec<TopicJson<'a>>>,
    options: OptionsJson<'a>,
}

impl<'a> From<StreamRecord<'a>> for StreamJson<'a> {
    fn from(stream: StreamRecord<'a>) -> Self {
        Self {
            id: stream.id,
            created_at: stream.created_at,
            name: stream.name.as_str(),
            size: Size(stream.size),
            messages_count: stream.messages_count,
            topics_count: stream.topics_count,
            topics: None,
            options: OptionsJson {
                explicit: stream.options,
                derived: Options32::default(),
            },
        }
    }
}

impl<'a> From<StreamDetails<'a>> for StreamJson<'a> {
    fn from(details: StreamDetails<'a>) -> Self {
        let topics = details.topics.into_iter().map(TopicJson::from).collect();
        Self {
            topics: Some(topics),
            ..Self::from(details.stream)
        }
    }
}

#[derive(Serialize)]
pub(crate) struct TopicJson<'a> {
    id: u32,
    created_at: u64,
    name: &'a str,
    size: Size,
    message_expiry: u64,
    compression_algorithm: &'static str,
    max_topic_size: u64,
    messages_count: u64,
    partitions_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<Vec<PartitionJson>>,
    options: OptionsJson<'a>,
}

impl<'a> From<TopicRecord<'a>> for TopicJson<'a> {
    fn from(topic: TopicRecord<'a>) -> Self {
        Self {
            id: topic.id,
            created_at: topic.created_at,
            name: topic.name.as_str(),
            size: Size(topic.size),
            message_expiry: topic.message_expiry,
            compression_algorithm: if topic.compression == 2 {
                "gzip"
            } else {
                "none"
            },
            max_topic_size: topic.max_topic_size,
            messages_count: topic.messages_count,
            partitions_count: topic.partitions_count,
            partitions: None,
            options: OptionsJson {
                explicit: topic.explicit_options,
                derived: topic.derived_options,
            },
        }
    }
}

impl<'a> From<TopicDetails<'a>> for TopicJson<'a> {
    fn from(details: TopicDetails<'a>) -> Self {
        let partitions = details.partitions.iter().map(PartitionJson::from);
        Self {
            partitions: Some(partitions.collect()),
            ..Self::from(details.topic)
        }
    }
}

#[derive(Serialize)]
struct PartitionJson {
    id: u32,
    created_at: u64,
    segments_count: u32,
    current_offset: u64,
    size: Size,
    messages_count: u64,
}

impl From<&PartitionRecord> for PartitionJson {
    fn from(partition: &PartitionRecord) -> Self {
        Self {
            id: partition.id,
            created_at: partition.created_at,
            segments_count: partition.segments_count,
            current_offset: partition.current_offset,
            size: Size(partition.size),
            messages_count: partition.messages_count,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct UserJson<'a> {
    id: u32,
    created_at: u64,
    status: &'static str,
    username: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<Option<PermissionsJson>>,
    options: OptionsJson<'a>,
}

impl<'a> From<UserRecord<'a>> for UserJson<'a> {
    fn from(user: UserRecord<'a>) -> Self {
        Self {
            id: user.id,
            created_at: user.created_at,
            status: if user.status == 1 {
                "active"
            } else {
                "inactive"
            },
            username: user.username.as_str(),
            permissions: None,
            options: OptionsJson {
                explicit: user.options,
                derived: Options32::default(),
            },
        }
    }
}

impl<'a> From<UserDetails<'a>> for UserJson<'a> {
    fn from(details: UserDetails<'a>) -> Self {
        let permissions = details.permissions.as_ref();
        let permissions = permissions.map(PermissionsBlock::to_permissions);
        Self {
            permissions: Some(permissions.map(|all| PermissionsJson::from(&all))),
            ..Self::from(details.user)
        }
    }
}

#[derive(Serialize)]
pub(crate) struct GroupJson<'a> {
    id: u32,
    name: &'a str,
    partitions_count: u32,
    members_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<MemberJson>>,
}

#[derive(Serialize)]
struct MemberJson {
    id: u32,
    partitions_count: u32,
    partitions: Vec<u32>,
}

impl<'a> From<ConsumerGroupRecord<'a>> for GroupJson<'a> {
    fn from(group: ConsumerGroupRecord<'a>) -> Self {
        Self {
            id: group.id,
            name: group.name.as_str(),
            partitions_count: group.partitions_count,
            members_count: group.members_count,
            members: None,
        }
    }
}

impl<'a> From<ConsumerGroupDetails<'a>> for GroupJson<'a> {
    fn from(details: ConsumerGroupDetails<'a>) -> Self {
        let members = details.members.into_iter().map(|member| MemberJson {
            id: member.id,
            partitions_count: u32::try_from(member.partitions.len()).unwrap_or(u32::MAX),
            partitions: member.partitions,
        });
        Self {
            members: Some(members.collect()),
            ..Self::from(details.group)
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ClientJson<'a> {
    client_id: u32,
    user_id: Option<u32>,
    address: &'a str,
    transport: &'static str,
    consumer_groups_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_groups: Option<Vec<MembershipJson>>,
}

#[derive(Serialize)]
struct MembershipJson {
    stream_id: u32,
    topic_id: u32,
    group_id: u32,
}

impl<'a> From<ClientRecord<'a>> for ClientJson<'a> {
    fn from(client: ClientRecord<'a>) -> Self {
        Self {
            client_id: client.client_id,
            user_id: (client.user_id != u32::MAX).then_some(client.user_id),
            address: client.address.0,
            transport: match client.transport {
                TransportKind::Tcp => "TCP",
                TransportKind::Quic => "QUIC",
                TransportKind::Http => "HTTP",
                TransportKind::WebSocket => "WebSocket",
            },
            consumer_groups_count: client.consumer_groups_count,
            consumer_groups: None,
        }
    }
}

impl<'a> From<ClientDetails<'a>> for ClientJson<'a> {
    fn from(details: ClientDetails<'a>) -> Self {
        let groups = details.consumer_groups.iter();
        let mut groups: Vec<_> = groups
            .map(|membership| MembershipJson {
                stream_id: membership.stream,
                topic_id: membership.topic,
                group_id: membership.group,
            })
            .collect();
        groups.sort_by_key(|membership| membership.group_id);
        Self {
            consumer_groups: Some(groups),
            ..Self::from(details.client)
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ClusterJson<'a> {
    name: &'a str,
    nodes: Vec<NodeJson<'a>>,
}

#[derive(Serialize)]
struct NodeJson<'a> {
    name: &'a str,
    ip: &'a str,
    endpoints: EndpointsJson,
    role: &'static str,
    status: &'static str,
}

#[derive(Serialize)]
struct EndpointsJson {
    tcp: u16,
    quic: u16,
    http: u16,
    websocket: u16,
}

impl<'a> From<ClusterMetadata<'a>> for ClusterJson<'a> {
    fn from(cluster: ClusterMetadata<'a>) -> Self {
        let nodes = cluster.nodes.0.into_iter().map(|node| NodeJson {
            name: node.name.0,
            ip: node.ip.0,
            endpoints: EndpointsJson {
                tcp: node.tcp,
                quic: node.quic,
                http: node.http,
                websocket: node.websocket,
            },
            role: match node.role {
                NodeRole::Primary => "leader",
                NodeRole::Backup => "follower",
            },
            status: match node.status {
                NodeStatus::Healthy => "healthy",
                NodeStatus::Starting => "starting",
                NodeStatus::Stopping => "stopping",
                NodeStatus::Unreachable => "unreachable",
                NodeStatus::Maintenance => "maintenance",
            },
        });
        Self {
            name: cluster.name.0,
            nodes: nodes.collect(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct OptionSpecJson<'a> {
    key: &'a str,
    kind: &'static str,
    default_value: &'a [u8],
    description: &'a str,
}

impl<'a> From<OptionSpec<'a>> for OptionSpecJson<'a> {
    fn from(option: OptionSpec<'a>) -> Self {
        Self {
            key: option.key.as_str(),
            kind: kind_name(TlvKind(option.kind)).unwrap_or("raw"),
            default_value: option.default.0,
            description: option.description.0,
        }
    }
}

#[derive(Serialize)]
struct CacheJson {
    hits: u64,
    misses: u64,
    hit_ratio: f32,
}

#[derive(Serialize)]
pub(crate) struct StatsJson<'a> {
    process_id: u32,
    cpu_usage: f32,
    total_cpu_usage: f32,
    memory_usage: Size,
    total_memory: Size,
    available_memory: Size,
    run_time: u64,
    start_time: u64,
    read_bytes: Size,
    written_bytes: Size,
    messages_size_bytes: Size,
    streams_count: u32,
    topics_count: u32,
    partitions_count: u32,
    segments_count: u32,
    messages_count: u64,
    clients_count: u32,
    consumer_groups_count: u32,
    hostname: &'a str,
    os_name: &'a str,
    os_version: &'a str,
    kernel_version: &'a str,
    iggy_server_version: &'a str,
    iggy_server_semver: Option<u32>,
    cache_metrics: BTreeMap<String, CacheJson>,
    threads_count: u32,
    free_disk_space: Size,
    total_disk_space: Size,
}

/// JSON has no word for what is not a number.
fn finite(number: f32) -> f32 {
    if number.is_finite() { number } else { 0.0 }
}

impl<'a> From<Stats<'a>> for StatsJson<'a> {
    fn from(stats: Stats<'a>) -> Self {
        let caches = stats.cache_metrics.0.iter().map(|cache| {
            let key = format!("{}-{}-{}", cache.stream, cache.topic, cache.partition);
            let cache = CacheJson {
                hits: cache.hits,
                misses: cache.misses,
                hit_ratio: finite(cache.hit_ratio),
            };
            (key, cache)
        });
        Self {
            process_id: stats.process_id,
            cpu_usage: finite(stats.cpu_usage),
            total_cpu_usage: finite(stats.total_cpu_usage),
            memory_usage: Size(stats.memory_usage),
            total_memory: Size(stats.total_memory),
            available_memory: Size(stats.available_memory),
            run_time: stats.run_time,
            start_time: stats.start_time,
            read_bytes: Size(stats.read_bytes),
            written_bytes: Size(stats.written_bytes),
            messages_size_bytes: Size(stats.messages_size),
            streams_count: stats.streams_count,
            topics_count: stats.topics_count,
            partitions_count: stats.partitions_count,
            segments_count: stats.segments_count,
            messages_count: stats.messages_count,
            clients_count: stats.clients_count,
            consumer_groups_count: stats.consumer_groups_count,
            hostname: stats.hostname.0,
            os_name: stats.os_name.0,
            os_version: stats.os_version.0,
            kernel_version: stats.kernel_version.0,
            iggy_server_version: stats.server_version.0,
            iggy_server_semver: (stats.server_semver != 0).then_some(stats.server_semver),
            cache_metrics: caches.collect(),
            threads_count: stats.threads_count,
            free_disk_space: Size(stats.free_disk_space),
            total_disk_space: Size(stats.total_disk_space),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_text() {
        let text = |kind: u8, data: &[u8]| {
            value_text(TlvField {
                kind: TlvKind(kind),
                data,
            })
        };
        assert_eq!(text(2, b"gzip"), "gzip");
        assert_eq!(text(3, &[1]), "true");
        assert_eq!(text(4, &[0xfe]), "-2");
        assert_eq!(text(6, &(-7i32).to_le_bytes()), "-7");
        assert_eq!(text(12, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(text(15, &1.5f64.to_le_bytes()), "1.5");
        // A value of the wrong size is shown, not read.
        assert_eq!(text(12, &[1]), "AQ==");
        assert_eq!(text(1, &[0, 255]), "AP8=");
    }

    #[test]
    fn kinds_have_one_name_each() {
        for kind in (1..=15).map(TlvKind) {
            assert_eq!(kind_of(kind_name(kind).unwrap()), Some(kind));
        }
        assert_eq!(kind_of("text"), None);
    }
}
