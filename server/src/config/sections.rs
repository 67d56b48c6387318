//! The sections and keys of the configuration file with their defaults (chapter 09 section 5).
//!
//! Every struct is complete without a file: a missing key takes the default of the table in the
//! chapter. Sections of transports this server does not serve yet are read and ignored with a
//! warning, so that one file can be shared with the original server.

use serde::Deserialize;

use super::values::{ConfigDuration, ConfigSize, Secret};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Data folder; created when missing.
    pub path: String,
    /// Replica roster, timers and authentication.
    pub cluster: Cluster,
    /// Address reported to clients when clustering is off.
    pub node: NodeSection,
    /// Frame and queue limits of all connections.
    pub message_bus: MessageBus,
    /// Metadata plane limits.
    pub metadata: Metadata,
    /// Partition plane limits.
    pub partition: Partition,
    /// Client TCP listener.
    pub tcp: Tcp,
    /// Stale client detection.
    pub heartbeat: Heartbeat,
    /// Consumer group timing.
    pub consumer_group: ConsumerGroup,
    /// Personal access tokens.
    pub personal_access_token: PersonalAccessToken,
    /// Retention.
    pub data_maintenance: DataMaintenance,
    /// Log output.
    pub logging: Logging,
    /// Read for compatibility; wiped folder of the original server.
    pub runtime: toml::Table,
    /// Not served yet.
    pub quic: toml::Table,
    /// Not served yet.
    pub websocket: toml::Table,
    /// Not served yet.
    pub http: toml::Table,
    /// Thread placement of the original server; accepted and ignored.
    pub sharding: toml::Table,
    /// Not exported.
    pub telemetry: toml::Table,
    /// Read to refuse `enabled = true`: at-rest encryption is not served yet.
    pub encryption: toml::Table,
    /// Memory pool of the original server; accepted and ignored.
    pub memory_pool: toml::Table,
    /// Segment keys without effect.
    pub segment: toml::Table,
    /// Recovery keys without effect.
    pub recovery: toml::Table,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: "local_data".to_owned(),
            cluster: Cluster::default(),
            node: NodeSection::default(),
            message_bus: MessageBus::default(),
            metadata: Metadata::default(),
            partition: Partition::default(),
            tcp: Tcp::default(),
            heartbeat: Heartbeat::default(),
            consumer_group: ConsumerGroup::default(),
            personal_access_token: PersonalAccessToken::default(),
            data_maintenance: DataMaintenance::default(),
            logging: Logging::default(),
            runtime: toml::Table::new(),
            quic: toml::Table::new(),
            websocket: toml::Table::new(),
            http: toml::Table::new(),
            sharding: toml::Table::new(),
            telemetry: toml::Table::new(),
            encryption: toml::Table::new(),
            memory_pool: toml::Table::new(),
            segment: toml::Table::new(),
            recovery: toml::Table::new(),
        }
    }
}

/// `[cluster]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Off: one replica, no replica listener.
    pub enabled: bool,
    /// Hashed into the cluster id.
    pub name: String,
    /// A backup that heard nothing for this long starts an election.
    pub heartbeat_timeout: ConfigDuration,
    /// Period of the primary's Commit broadcast.
    pub commit_broadcast_interval: ConfigDuration,
    /// First retransmission of an unacknowledged prepare.
    pub prepare_retransmit_interval: ConfigDuration,
    /// Retransmission of StartViewChange and DoViewChange.
    pub view_change_retransmit_interval: ConfigDuration,
    /// A view change that takes longer moves to the next view.
    pub view_change_status_timeout: ConfigDuration,
    /// Period of RequestStartView probes.
    pub request_start_view_retransmit_interval: ConfigDuration,
    /// Probe timer firings before a recovering replica stands for election.
    pub view_probe_attempts_max: u32,
    /// Repair without progress asks again after this.
    pub repair_retry_interval: ConfigDuration,
    /// How long a gap must last before it is repaired.
    pub repair_gap_debounce_interval: ConfigDuration,
    /// Prepares per repair chunk.
    pub repair_chunk_max: usize,
    /// The process exits when a superblock cannot be written for this long; zero: never.
    pub superblock_wedged_fatal_timeout: ConfigDuration,
    /// Shared secret authentication of replicas.
    pub auth: ClusterAuth,
    /// TLS between replicas.
    pub tls: ClusterTls,
    /// Thread placement of the original server; accepted and ignored.
    pub coordinator: Coordinator,
    /// The roster.
    pub nodes: Vec<RosterNode>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            enabled: false,
            name: "iggy-cluster".to_owned(),
            heartbeat_timeout: ConfigDuration::from_millis(5000),
            commit_broadcast_interval: ConfigDuration::from_millis(500),
            prepare_retransmit_interval: ConfigDuration::from_millis(250),
            view_change_retransmit_interval: ConfigDuration::from_millis(500),
            view_change_status_timeout: ConfigDuration::from_millis(5000),
            request_start_view_retransmit_interval: ConfigDuration::from_millis(1000),
            view_probe_attempts_max: 5,
            repair_retry_interval: ConfigDuration::from_millis(1000),
            repair_gap_debounce_interval: ConfigDuration::from_millis(1000),
            repair_chunk_max: 128,
            superblock_wedged_fatal_timeout: ConfigDuration::from_millis(120_000),
            auth: ClusterAuth::default(),
            tls: ClusterTls::default(),
            coordinator: Coordinator::default(),
            nodes: Vec::new(),
        }
    }
}

/// `[cluster.auth]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterAuth {
    /// Require the keyed MAC handshake.
    pub enabled: bool,
    /// Signs and verifies.
    pub shared_secret: Secret,
    /// Verifies only, while secrets are rotated.
    pub previous_shared_secret: Secret,
}

/// `[cluster.tls]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTls {
    /// TLS 1.3 between replicas; needs `cluster.auth.enabled`.
    pub enabled: bool,
    /// Mint a certificate at boot instead of reading files.
    pub self_signed: bool,
    /// PEM chain.
    pub cert_file: String,
    /// PEM key.
    pub key_file: String,
    /// PEM roots trusted by the dialer.
    pub ca_file: String,
}

impl ClusterTls {
    /// True when any of the files is named.
    pub fn names_a_file(&self) -> bool {
        [&self.cert_file, &self.key_file, &self.ca_file]
            .iter()
            .any(|file| !file.trim().is_empty())
    }
}

/// `[cluster.coordinator]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Coordinator {
    /// Ignored.
    pub skip_shard_zero_for_replicas: bool,
    /// Ignored.
    pub skip_shard_zero_for_clients: bool,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self {
            skip_shard_zero_for_replicas: true,
            skip_shard_zero_for_clients: false,
        }
    }
}

/// One `[[cluster.nodes]]` entry.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RosterNode {
    /// Unique name, shown in cluster metadata.
    pub name: String,
    /// Literal IP: replica bind and dial address, and the last resort for clients.
    pub ip: String,
    /// 0-based, unique.
    pub replica_id: u8,
    /// Ports of every transport.
    pub ports: Ports,
    /// Address reported to clients.
    #[serde(default)]
    pub advertised_address: Option<String>,
    /// Address reported to clients of a network.
    #[serde(default)]
    pub advertised_addresses: Vec<AdvertisedAddress>,
}

/// One selector of `advertised_addresses`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedAddress {
    /// Network of the client.
    pub client_cidr: String,
    /// Address for clients of that network.
    pub address: String,
}

/// Ports of a roster entry. A missing optional port reads 0 (transport absent).
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Ports {
    /// Client TCP.
    pub tcp: u16,
    /// Replica plane.
    pub tcp_replica: u16,
    /// Client QUIC.
    #[serde(default)]
    pub quic: u16,
    /// HTTP.
    #[serde(default)]
    pub http: u16,
    /// WebSocket.
    #[serde(default)]
    pub websocket: u16,
}

/// `[node]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSection {
    /// Address reported to clients when clustering is off.
    pub advertised_address: Option<String>,
}

/// `[message_bus]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct MessageBus {
    /// Frames per vectored write.
    pub max_batch: usize,
    /// Largest accepted frame, inclusive.
    pub max_message_size: ConfigSize,
    /// Frames queued per connection and direction.
    pub peer_queue_capacity: usize,
    /// Period of the dial sweep.
    pub reconnect_period: ConfigDuration,
    /// Drain time of a lost connection.
    pub close_peer_timeout: ConfigDuration,
    /// Time to close a connection in an orderly way.
    pub close_grace: ConfigDuration,
    /// Budget of a replica handshake.
    pub handshake_grace: ConfigDuration,
}

impl Default for MessageBus {
    fn default() -> Self {
        Self {
            max_batch: 256,
            max_message_size: ConfigSize(64 * 1024 * 1024),
            peer_queue_capacity: 256,
            reconnect_period: ConfigDuration::from_millis(5000),
            close_peer_timeout: ConfigDuration::from_millis(2000),
            close_grace: ConfigDuration::from_millis(2000),
            handshake_grace: ConfigDuration::from_millis(10_000),
        }
    }
}

/// `[metadata]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Prepares in flight.
    pub prepare_queue_depth: usize,
    /// Journal capacity in prepares.
    pub journal_slots: usize,
    /// Sessions kept; equal on every node.
    pub clients_table_max: usize,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            prepare_queue_depth: 32,
            journal_slots: 1024,
            clients_table_max: 8192,
        }
    }
}

/// `[partition]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Partition {
    /// Prepares in flight per partition.
    pub prepare_queue_depth: usize,
    /// Verify batches read from disk.
    pub validate_checksum: bool,
    /// Budget of the persisted prepare log.
    pub wal_bytes_max: ConfigSize,
    /// Producers remembered per partition.
    pub dedup_clients_max: usize,
    /// Stored offsets per kind and partition.
    pub consumer_offsets_max: usize,
    /// Offsets reserved ahead by a single replica.
    pub offset_reservation_lease: u64,
    /// Flushed prepares kept for repair.
    pub evicted_ring_capacity: usize,
    /// Bytes of flushed prepares kept for repair.
    pub evicted_ring_bytes_max: ConfigSize,
    /// Provider cache.
    pub transfer_served_cache_bytes_max: ConfigSize,
    /// Largest artifact.
    pub transfer_artifact_bytes_max: ConfigSize,
}

impl Default for Partition {
    fn default() -> Self {
        Self {
            prepare_queue_depth: 32,
            validate_checksum: true,
            wal_bytes_max: ConfigSize(256 << 20),
            dedup_clients_max: 4096,
            consumer_offsets_max: 4096,
            offset_reservation_lease: 65_536,
            evicted_ring_capacity: 4096,
            evicted_ring_bytes_max: ConfigSize(16 << 20),
            transfer_served_cache_bytes_max: ConfigSize(2176 << 20),
            transfer_artifact_bytes_max: ConfigSize(1088 << 20),
        }
    }
}

/// `[tcp]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// Serve clients over TCP.
    pub enabled: bool,
    /// `IP:PORT`; with clustering the port comes from the roster.
    pub address: String,
    /// TLS on the same port, in place of plain TCP.
    pub tls: ListenerTls,
}

/// `[tcp.tls]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct ListenerTls {
    /// Speak TLS with clients.
    pub enabled: bool,
    /// Mint a certificate at boot while `cert_file` does not exist.
    pub self_signed: bool,
    /// PEM chain.
    pub cert_file: String,
    /// PEM key.
    pub key_file: String,
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            enabled: false,
            self_signed: true,
            cert_file: "core/certs/iggy_cert.pem".to_owned(),
            key_file: "core/certs/iggy_key.pem".to_owned(),
        }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            enabled: true,
            address: "127.0.0.1:8090".to_owned(),
            tls: ListenerTls::default(),
        }
    }
}

/// `[heartbeat]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Evict silent group members.
    pub enabled: bool,
    /// Stale after 1.2 times this.
    pub interval: ConfigDuration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: ConfigDuration::from_millis(30_000),
        }
    }
}

/// `[consumer_group]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct ConsumerGroup {
    /// A cooperative revocation is forced after this.
    pub rebalancing_timeout: ConfigDuration,
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self {
            rebalancing_timeout: ConfigDuration::from_millis(30_000),
        }
    }
}

/// `[personal_access_token]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct PersonalAccessToken {
    /// Tokens per user.
    pub max_tokens_per_user: u32,
    /// Expired token removal.
    pub cleaner: toml::Table,
}

impl Default for PersonalAccessToken {
    fn default() -> Self {
        Self {
            max_tokens_per_user: 100,
            cleaner: toml::Table::new(),
        }
    }
}

/// `[data_maintenance]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DataMaintenance {
    /// Retention of sealed segments.
    pub messages: MessagesCleaner,
}

/// `[data_maintenance.messages]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct MessagesCleaner {
    /// Run retention.
    pub cleaner_enabled: bool,
    /// Period of retention.
    pub interval: ConfigDuration,
}

impl Default for MessagesCleaner {
    fn default() -> Self {
        Self {
            cleaner_enabled: true,
            interval: ConfigDuration::from_millis(60_000),
        }
    }
}

/// `[logging]`. Log lines go to standard error.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Logging {
    /// Filter directive; `RUST_LOG` wins.
    pub level: String,
}

impl Default for Logging {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}
