//! What a node says about itself and its cluster (chapter 07 sections 8.2 to 8.4).

use std::net::IpAddr;

use biplane_metadata_plane::state::permissions::Action;
use biplane_wire::request::GetClient;
use biplane_wire::response::{
    ClientDetails, ClientRecord, ClusterMetadata, ConsumerGroupMembership, NodeRecord, NodeRole,
    NodeStatus, Stats,
};
use biplane_wire::{Codec as _, Counted, ErrorCode, ProtocolVersion, Text32};

use super::connection::ConnectionId;
use super::session::Session;
use crate::clock;
use crate::config::Member;
use crate::diagnostics::HostFacts;
use crate::node::{Node, SERVER_VERSION};

/// A node with the address meant for a client at `client`. The status is always healthy: clients
/// ignore a primary that is anything else.
pub(crate) fn node_record(member: &Member, client: IpAddr, role: NodeRole) -> NodeRecord<'_> {
    NodeRecord {
        name: Text32(&member.name),
        ip: Text32(member.address_for(client)),
        tcp: member.ports.tcp,
        quic: member.ports.quic,
        http: member.ports.http,
        websocket: member.ports.websocket,
        role,
        status: NodeStatus::Healthy,
    }
}

impl Node {
    /// Code 12: every node, with the address meant for this client; the leader is the metadata
    /// primary, and there is none while its view is being decided.
    pub(crate) fn cluster_metadata(&self, connection: ConnectionId) -> Vec<u8> {
        let client = self
            .clients
            .get(connection)
            .map_or(std::net::Ipv4Addr::LOCALHOST.into(), |session| {
                session.address.ip()
            });
        let leader = self.metadata_leader();
        let role = |member: &Member| {
            if leader == Some(member.replica) {
                NodeRole::Primary
            } else {
                NodeRole::Backup
            }
        };
        let nodes = self
            .identity
            .roster
            .iter()
            .map(|member| node_record(member, client, role(member)))
            .collect();
        let name = Text32(&self.identity.cluster_name);
        ClusterMetadata {
            name,
            nodes: Counted(nodes),
        }
        .encode()
    }

    fn memberships(&self, session: &Session) -> Vec<ConsumerGroupMembership> {
        let Some(bound) = session.bound else {
            return Vec::new();
        };
        self.metadata
            .state()
            .memberships_of(bound.client)
            .map(|(stream, topic, group)| ConsumerGroupMembership {
                stream,
                topic,
                group: u32::try_from(group).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// Client details of one connection; empty when it is gone.
    pub(crate) fn client_details(&self, connection: ConnectionId) -> Vec<u8> {
        let Some(session) = self.clients.get(connection) else {
            return Vec::new();
        };
        let consumer_groups = self.memberships(session);
        let address = session.address.to_string();
        let client = client_record(connection, session, &address, consumer_groups.len());
        ClientDetails {
            client,
            consumer_groups,
        }
        .encode()
    }

    pub(super) fn may_read_servers(&self, user: u32) -> Result<(), ErrorCode> {
        let state = self.metadata.state();
        state.authorize(user, Action::ReadServers)
    }

    /// Code 21.
    pub(crate) fn read_client(&self, body: &[u8], user: u32) -> Result<Vec<u8>, ErrorCode> {
        let wanted = GetClient::decode(body)
            .map_err(|_| ErrorCode::InvalidCommand)?
            .client_id;
        let found = self
            .clients
            .iter()
            .map(|(id, _)| id)
            .find(|id| Session::shown_id(*id) == wanted);
        let Some(id) = found else {
            return Ok(Vec::new());
        };
        self.may_read_servers(user)?;
        Ok(self.client_details(id))
    }

    /// Code 22.
    pub(crate) fn read_clients(&self, user: u32) -> Result<Vec<u8>, ErrorCode> {
        self.may_read_servers(user)?;
        let mut body = Vec::new();
        for (id, session) in self.clients.iter() {
            let address = session.address.to_string();
            let groups = self.memberships(session).len();
            client_record(id, session, &address, groups).write(&mut body);
        }
        Ok(body)
    }

    /// Code 10: the answer, once the host has been looked at.
    pub(crate) fn stats_of(&self, host: &HostFacts) -> Vec<u8> {
        let totals = self.totals();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let stats = Stats {
            process_id: std::process::id(),
            cpu_usage: host.cpu_percent,
            total_cpu_usage: host.total_cpu_percent,
            memory_usage: host.memory_bytes,
            total_memory: host.total_memory_bytes,
            available_memory: host.available_memory_bytes,
            run_time: clock::wall_micros().saturating_sub(self.started_micros),
            start_time: self.started_micros,
            read_bytes: host.read_bytes,
            written_bytes: host.written_bytes,
            messages_size: totals.bytes,
            streams_count: totals.streams,
            topics_count: totals.topics,
            partitions_count: totals.partitions,
            segments_count: totals.segments,
            messages_count: totals.messages,
            clients_count: count(self.clients.len()),
            consumer_groups_count: totals.groups,
            hostname: Text32(&host.hostname),
            os_name: Text32(&host.os_name),
            os_version: Text32(&host.os_version),
            kernel_version: Text32(&host.kernel_version),
            server_version: Text32(SERVER_VERSION),
            server_semver: ProtocolVersion::CURRENT.0,
            cache_metrics: Counted(Vec::new()),
            threads_count: count(threads),
            free_disk_space: host.free_disk_bytes,
            total_disk_space: host.total_disk_bytes,
        };
        stats.encode()
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for stream in self.metadata.state().streams().by_id().values() {
            totals.streams += 1;
            for topic in stream.topics().values() {
                totals.topics += 1;
                totals.groups += count(topic.groups().len());
                totals.partitions += count(topic.partitions.len());
            }
        }
        for group in self.partitions.groups() {
            if let Some(stats) = self.partitions.stats(group) {
                totals.segments = totals.segments.saturating_add(stats.segments_count);
                totals.messages = totals.messages.saturating_add(stats.messages_count);
                totals.bytes = totals.bytes.saturating_add(stats.size_bytes);
            }
        }
        totals
    }
}

fn client_record<'a>(
    id: ConnectionId,
    session: &Session,
    address: &'a str,
    groups: usize,
) -> ClientRecord<'a> {
    ClientRecord {
        client_id: Session::shown_id(id),
        user_id: session.bound.map_or(u32::MAX, |bound| bound.user_id),
        transport: session.transport,
        address: Text32(address),
        consumer_groups_count: count(groups),
    }
}

/// What the cluster holds, as this node knows it.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) streams: u32,
    pub(crate) topics: u32,
    pub(crate) partitions: u32,
    pub(crate) groups: u32,
    pub(crate) segments: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
