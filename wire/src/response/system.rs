//! Responses about the server itself: statistics, cluster, clients, options, routing.

use crate::codec::{Codec, Counted, Cursor, body, read_many};
use crate::error::DecodeError;
use crate::primitive::{Bytes32, Name, Text32};
use crate::request::AttachConsumerSession;

body! {
    /// Cache counters of one partition in [`Stats`].
    #[derive(Copy)]
    pub struct CacheMetrics {
        /// The stream.
        stream: u32,
        /// The topic.
        topic: u32,
        /// The partition.
        partition: u32,
        /// Reads served from the cache.
        hits: u64,
        /// Reads that missed.
        misses: u64,
        /// Hits over both.
        hit_ratio: f32,
    }
}

body! {
    /// GetStats (10).
    pub struct Stats<'a> {
        /// Process id.
        process_id: u32,
        /// Share of one processor, percent.
        cpu_usage: f32,
        /// Use of all processors, percent.
        total_cpu_usage: f32,
        /// Bytes.
        memory_usage: u64,
        /// Bytes.
        total_memory: u64,
        /// Bytes.
        available_memory: u64,
        /// Microseconds.
        run_time: u64,
        /// Microseconds since the epoch.
        start_time: u64,
        /// Bytes.
        read_bytes: u64,
        /// Bytes.
        written_bytes: u64,
        /// Bytes.
        messages_size: u64,
        /// Number of streams.
        streams_count: u32,
        /// Number of topics.
        topics_count: u32,
        /// Number of partitions.
        partitions_count: u32,
        /// Number of segments.
        segments_count: u32,
        /// Number of messages.
        messages_count: u64,
        /// Number of connected clients.
        clients_count: u32,
        /// Number of consumer groups.
        consumer_groups_count: u32,
        /// Host name.
        hostname: Text32<'a>,
        /// Name of the operating system.
        os_name: Text32<'a>,
        /// Version of the operating system.
        os_version: Text32<'a>,
        /// Version of the kernel.
        kernel_version: Text32<'a>,
        /// Version of the server.
        server_version: Text32<'a>,
        /// The same packed, 0 for none.
        server_semver: u32,
        /// Cache counters.
        cache_metrics: Counted<CacheMetrics>,
        /// Number of threads.
        threads_count: u32,
        /// Bytes.
        free_disk_space: u64,
        /// Bytes.
        total_disk_space: u64,
    }
}

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeRole {
    /// The metadata primary.
    Primary = 0,
    /// Any other member.
    Backup = 1,
}

/// How a node is. A server sends [`NodeStatus::Healthy`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeStatus {
    /// Up.
    Healthy = 0,
    /// Coming up.
    Starting = 1,
    /// Going down.
    Stopping = 2,
    /// Not reachable.
    Unreachable = 3,
    /// Under maintenance.
    Maintenance = 4,
}

impl<'a> Codec<'a> for NodeRole {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            0 => Ok(Self::Primary),
            1 => Ok(Self::Backup),
            value => Err(DecodeError::Undefined {
                field,
                value: u64::from(value),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl<'a> Codec<'a> for NodeStatus {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            0 => Ok(Self::Healthy),
            1 => Ok(Self::Starting),
            2 => Ok(Self::Stopping),
            3 => Ok(Self::Unreachable),
            4 => Ok(Self::Maintenance),
            value => Err(DecodeError::Undefined {
                field,
                value: u64::from(value),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

body! {
    /// A node as clients see it: in [`ClusterMetadata`] and in [`Routing`].
    #[derive(Copy, Eq)]
    pub struct NodeRecord<'a> {
        /// Name.
        name: Text32<'a>,
        /// Address, possibly a host name.
        ip: Text32<'a>,
        /// TCP port; 0 when the transport is off, here and below.
        tcp: u16,
        /// QUIC port.
        quic: u16,
        /// HTTP port.
        http: u16,
        /// WebSocket port.
        websocket: u16,
        /// Role.
        role: NodeRole,
        /// Status.
        status: NodeStatus,
    }
}

body! {
    /// GetClusterMetadata (12).
    #[derive(Eq)]
    pub struct ClusterMetadata<'a> {
        /// Name of the cluster.
        name: Text32<'a>,
        /// All members in roster order.
        nodes: Counted<NodeRecord<'a>>,
    }
}

/// GetPollRouting (103) and GetConsumerOffsetRouting (123): where the partition's primary is,
/// and the session to attach there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing<'a> {
    /// The caller's own session.
    pub attach: AttachConsumerSession,
    /// The primary of the partition.
    pub node: NodeRecord<'a>,
}

impl<'a> Codec<'a> for Routing<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let attach = AttachConsumerSession::read(cursor, "attach")?;
        let node = NodeRecord::read(cursor, "node")?;
        Ok(Self { attach, node })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.attach.write(out);
        self.node.write(out);
    }
}

body! {
    /// One option in the answer to DescribeOptions (13), which is `Counted<OptionSpec>`.
    #[derive(Copy, Eq)]
    pub struct OptionSpec<'a> {
        /// Key.
        key: Name<'a>,
        /// Canonical kind of the value.
        kind: u8,
        /// Default in canonical form.
        default: Bytes32<'a>,
        /// Text for people.
        description: Text32<'a>,
    }
}

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransportKind {
    /// TCP, with or without TLS.
    Tcp = 1,
    /// QUIC.
    Quic = 2,
    /// HTTP.
    Http = 3,
    /// WebSocket, with or without TLS.
    WebSocket = 4,
}

impl<'a> Codec<'a> for TransportKind {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            1 => Ok(Self::Tcp),
            2 => Ok(Self::Quic),
            3 => Ok(Self::Http),
            4 => Ok(Self::WebSocket),
            value => Err(DecodeError::Undefined {
                field,
                value: u64::from(value),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

body! {
    /// A connection in GetClients (22) and at the start of [`ClientDetails`].
    #[derive(Copy, Eq)]
    pub struct ClientRecord<'a> {
        /// Low 32 bits of the transport id.
        client_id: u32,
        /// The user; `u32::MAX` for none.
        user_id: u32,
        /// Transport.
        transport: TransportKind,
        /// Peer address, `ip:port`.
        address: Text32<'a>,
        /// Number of group memberships.
        consumer_groups_count: u32,
    }
}

body! {
    /// A group membership in [`ClientDetails`].
    #[derive(Copy, Eq)]
    pub struct ConsumerGroupMembership {
        /// The stream.
        stream: u32,
        /// The topic.
        topic: u32,
        /// The group.
        group: u32,
    }
}

/// GetMe (20) and GetClient (21): a record and `consumer_groups_count` memberships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDetails<'a> {
    /// The connection.
    pub client: ClientRecord<'a>,
    /// Its memberships; as many as the record says.
    pub consumer_groups: Vec<ConsumerGroupMembership>,
}

impl<'a> Codec<'a> for ClientDetails<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let client = ClientRecord::read(cursor, "client")?;
        let consumer_groups = read_many(cursor, client.consumer_groups_count, "memberships")?;
        Ok(Self {
            client,
            consumer_groups,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let count = self.client.consumer_groups_count as usize;
        assert!(self.consumer_groups.len() == count, "the record counts");
        self.client.write(out);
        self.consumer_groups.write(out);
    }
}
