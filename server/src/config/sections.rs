//! The sections and keys of the configuration file as the server reads them (chapter 09 section 5).
//!
//! No default stands here: [`super::schema`] has one for every key, and a file is laid over all of
//! them before it is read into these structs. What a key means is said at the key there.

use serde::Deserialize;

use super::values::{ConfigDuration, ConfigSize, Secret};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// Data folder; created when missing.
    pub path: String,
    /// What is written anew at each boot.
    pub runtime: Runtime,
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
    /// Client WebSocket listener.
    pub websocket: WebSocket,
    /// Client QUIC listener: validated, not served yet.
    pub quic: Quic,
    /// REST API.
    pub http: Http,
    /// Stale client detection.
    pub heartbeat: Heartbeat,
    /// Consumer group timing.
    pub consumer_group: ConsumerGroup,
    /// Personal access tokens.
    pub personal_access_token: PersonalAccessToken,
    /// Retention.
    pub data_maintenance: DataMaintenance,
    /// Shutdown and reconciliation; the rest is thread placement of the original server.
    pub sharding: Sharding,
    /// Log output.
    pub logging: Logging,
    /// Export of logs and traces: not served.
    pub telemetry: Telemetry,
    /// At-rest encryption: not served.
    pub encryption: Encryption,
    /// Memory pool of the original server.
    pub memory_pool: MemoryPool,
    /// All keys with the values in effect, without secrets: what is shown and written down.
    #[serde(skip)]
    pub effective: toml::Table,
    /// What an operator should know and what refuses no boot.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// `[runtime]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Runtime {
    /// Folder under `path`, emptied at each boot.
    pub path: String,
}

/// `[cluster]`.
#[derive(Debug, Clone, Deserialize)]
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
    /// The roster.
    pub nodes: Vec<RosterNode>,
}

/// `[cluster.auth]`.
#[derive(Debug, Clone, Default, Deserialize)]
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

/// One `[[cluster.nodes]]` entry.
#[derive(Debug, Clone, Deserialize)]
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
pub struct AdvertisedAddress {
    /// Network of the client.
    pub client_cidr: String,
    /// Address for clients of that network.
    pub address: String,
}

/// Ports of a roster entry. A missing optional port reads 0 (transport absent).
#[derive(Debug, Clone, Copy, Default, Deserialize)]
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
#[derive(Debug, Clone, Deserialize)]
pub struct NodeSection {
    /// Address reported to clients when clustering is off.
    pub advertised_address: Option<String>,
}

/// `[message_bus]`.
#[derive(Debug, Clone, Deserialize)]
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
    /// Budget of a replica handshake, and of a TLS or WebSocket handshake of a client.
    pub handshake_grace: ConfigDuration,
}

/// `[metadata]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Metadata {
    /// Prepares in flight.
    pub prepare_queue_depth: usize,
    /// Journal capacity in prepares.
    pub journal_slots: usize,
    /// Sessions kept; equal on every node.
    pub clients_table_max: usize,
}

/// `[partition]`.
#[derive(Debug, Clone, Deserialize)]
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
    /// What the transfers that are served at once may hold.
    pub transfer_served_cache_bytes_max: ConfigSize,
    /// Largest artifact.
    pub transfer_artifact_bytes_max: ConfigSize,
}

/// `[tcp]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Tcp {
    /// Serve clients over TCP.
    pub enabled: bool,
    /// `IP:PORT`; with clustering the port comes from the roster.
    pub address: String,
    /// TLS on the same port, in place of plain TCP.
    pub tls: ListenerTls,
}

/// `[tcp.tls]` and `[websocket.tls]`.
#[derive(Debug, Clone, Deserialize)]
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

/// `[websocket]`.
#[derive(Debug, Clone, Deserialize)]
pub struct WebSocket {
    /// Serve clients over WebSocket.
    pub enabled: bool,
    /// `IP:PORT`; with clustering the port comes from the roster.
    pub address: String,
    /// Bytes read at once.
    pub read_buffer_size: Option<ConfigSize>,
    /// Bytes gathered before a write.
    pub write_buffer_size: Option<ConfigSize>,
    /// Bytes that may wait to be written.
    pub max_write_buffer_size: Option<ConfigSize>,
    /// Largest message of a client.
    pub max_message_size: Option<ConfigSize>,
    /// Largest WebSocket frame of a client.
    pub max_frame_size: Option<ConfigSize>,
    /// Accept frames that are not masked.
    pub accept_unmasked_frames: bool,
    /// TLS on the same port, in place of plain WebSocket.
    pub tls: ListenerTls,
}

/// `[quic]`: what validation and the roster need of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Quic {
    /// Wanted.
    pub enabled: bool,
    /// `IP:PORT`.
    pub address: String,
    /// Streams of a connection served at once.
    pub max_concurrent_bidi_streams: u64,
    /// First datagram size.
    pub initial_mtu: ConfigSize,
    /// Bytes in flight.
    pub send_window: ConfigSize,
    /// Bytes of a connection that may arrive unread.
    pub receive_window: ConfigSize,
    /// Bytes of a stream that may arrive unread.
    pub stream_receive_window: ConfigSize,
}

/// `[http]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Http {
    /// Wanted.
    pub enabled: bool,
    /// `IP:PORT`.
    pub address: String,
    /// Largest request body.
    pub max_request_size: ConfigSize,
    /// The web interface of the original server, whose files are not part of this one.
    pub web_ui: bool,
    /// TLS on the same port.
    pub tls: HttpTls,
    /// Cross-origin rules.
    pub cors: HttpCors,
    /// Metrics route.
    pub metrics: HttpMetrics,
    /// Tokens.
    pub jwt: HttpJwt,
}

/// `[http.tls]`.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpTls {
    /// Speak HTTPS.
    pub enabled: bool,
    /// PEM chain.
    pub cert_file: String,
    /// PEM key.
    pub key_file: String,
}

/// `[http.cors]`.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpCors {
    /// Answer preflights.
    pub enabled: bool,
    /// Methods.
    pub allowed_methods: Vec<String>,
    /// Origins.
    pub allowed_origins: Vec<String>,
    /// Request headers.
    pub allowed_headers: Vec<String>,
    /// Response headers.
    pub exposed_headers: Vec<String>,
    /// Cookies and the like.
    pub allow_credentials: bool,
    /// Pages of public networks may call into this one.
    pub allow_private_network: bool,
}

/// `[http.metrics]`.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpMetrics {
    /// Serve them.
    pub enabled: bool,
    /// Route.
    pub endpoint: String,
}

/// `[http.jwt]`.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpJwt {
    /// Signature.
    pub algorithm: String,
    /// `iss` of issued tokens.
    pub issuer: String,
    /// `aud` of issued tokens.
    pub audience: String,
    /// Accepted issuers.
    pub valid_issuers: Vec<String>,
    /// Accepted audiences.
    pub valid_audiences: Vec<String>,
    /// Tolerated difference of clocks.
    pub clock_skew: ConfigDuration,
    /// How long an issued token is not valid yet.
    pub not_before: ConfigDuration,
    /// Life of a token.
    pub access_token_expiry: String,
    /// Signs.
    pub encoding_secret: Secret,
    /// Verifies.
    pub decoding_secret: Secret,
    /// The secrets are base64 text.
    pub use_base64_secret: bool,
    /// Issuers whose tokens act as one of our users: not served yet.
    #[serde(default)]
    pub trusted_issuers: Vec<toml::Value>,
}

/// `[heartbeat]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Heartbeat {
    /// Evict silent group members.
    pub enabled: bool,
    /// Stale after 1.2 times this.
    pub interval: ConfigDuration,
}

/// `[consumer_group]`.
#[derive(Debug, Clone, Deserialize)]
pub struct ConsumerGroup {
    /// A cooperative revocation is forced after this.
    pub rebalancing_timeout: ConfigDuration,
}

/// `[personal_access_token]`.
#[derive(Debug, Clone, Deserialize)]
pub struct PersonalAccessToken {
    /// Tokens per user.
    pub max_tokens_per_user: u32,
    /// Expired token removal.
    pub cleaner: TokenCleaner,
}

/// `[personal_access_token.cleaner]`.
#[derive(Debug, Clone, Deserialize)]
pub struct TokenCleaner {
    /// Remove expired tokens.
    pub enabled: bool,
    /// Between two looks.
    pub interval: ConfigDuration,
}

/// `[data_maintenance]`.
#[derive(Debug, Clone, Deserialize)]
pub struct DataMaintenance {
    /// Retention of sealed segments.
    pub messages: MessagesCleaner,
}

/// `[data_maintenance.messages]`.
#[derive(Debug, Clone, Deserialize)]
pub struct MessagesCleaner {
    /// Run retention.
    pub cleaner_enabled: bool,
    /// Period of retention.
    pub interval: ConfigDuration,
}

/// `[sharding]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Sharding {
    /// Processors of the original server's shards; checked for its syntax.
    pub cpu_allocation: String,
    /// Queue of an original shard.
    pub inbox_capacity: usize,
    /// Queue of an original shard.
    pub reply_inbox_capacity: usize,
    /// Time to flush what is committed at a stop.
    pub shutdown_drain_timeout: ConfigDuration,
    /// Step of that wait.
    pub shutdown_poll_interval: ConfigDuration,
    /// Longest stop; the process ends itself then.
    pub shutdown_join_timeout: ConfigDuration,
    /// Between two looks for partitions that should be open.
    pub reconcile_periodic_interval: ConfigDuration,
}

/// `[logging]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Logging {
    /// Folder under `path`.
    pub path: String,
    /// Filter directive; `RUST_LOG` wins.
    pub level: String,
    /// Write files next to standard error.
    pub file_enabled: bool,
    /// Size at which a new file is begun; zero is no limit.
    pub max_file_size: ConfigSize,
    /// Size of all files; zero is no limit.
    pub max_total_size: ConfigSize,
    /// Between two looks at ages and sizes.
    pub rotation_check_interval: ConfigDuration,
    /// Age at which a file is removed.
    pub retention: ConfigDuration,
}

/// `[telemetry]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Telemetry {
    /// Refused when on.
    pub enabled: bool,
}

/// `[encryption]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Encryption {
    /// Refused when on.
    pub enabled: bool,
}

/// `[memory_pool]`: checked, without effect.
#[derive(Debug, Clone, Deserialize)]
pub struct MemoryPool {
    /// Wanted.
    pub enabled: bool,
    /// Bytes.
    pub size: ConfigSize,
    /// Buffers per bucket.
    pub bucket_capacity: u64,
}
