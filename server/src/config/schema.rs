//! Every key of the configuration file: its type, its default, whether it has an effect here, and
//! what it is for (chapter 09 section 5).
//!
//! This table is the one source of defaults, of the names of environment variables, of the file
//! that `biplane config example` prints, and of what counts as an unknown key. Rules between and
//! within values are in [`super::validate`].

mod operation;
mod transports;

/// What a value must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// A string that is never shown.
    Secret,
    /// `true` or `false`.
    Flag,
    /// A whole number of at most so much.
    Whole(u64),
    /// A string such as `"5s"`.
    Duration,
    /// A string such as `"64 MiB"`; an environment variable may hold a bare number.
    Size,
    /// An array of strings.
    Texts,
    /// `"all"`, a number, a range or a NUMA form (chapter 09 section 4.4).
    CpuAllocation,
    /// A duration of at most `u32::MAX` seconds, or a word (chapter 09 section 4.3).
    Expiry,
}

/// What a key does in this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// What its text says.
    Honoured,
    /// Checked, and then nothing: it tunes a part that only the original server has.
    Internal,
    /// Checked; the part it belongs to is not served yet.
    NotServed,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Dotted path; `[]` stands for an index.
    pub(super) path: &'static str,
    /// Type.
    pub(super) kind: Kind,
    /// Default as the file writes it; empty where a missing key stays missing.
    pub(super) default: &'static str,
    /// Effect.
    pub(super) effect: Effect,
    /// Must be in every entry of its array.
    pub(super) mandatory: bool,
    /// What it is for, in one line.
    pub(super) about: &'static str,
}

const fn key(path: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key {
        path,
        kind,
        default,
        effect: Effect::Honoured,
        mandatory: false,
        about,
    }
}

impl Key {
    const fn internal(mut self) -> Self {
        self.effect = Effect::Internal;
        self
    }

    const fn not_served(mut self) -> Self {
        self.effect = Effect::NotServed;
        self
    }

    const fn mandatory(mut self) -> Self {
        self.mandatory = true;
        self
    }

    /// The array this key's entry belongs to, and the rest of the path.
    pub(super) fn entry(&self) -> Option<(&'static str, &'static str)> {
        self.path.rsplit_once("[].")
    }
}

use Kind::{Duration, Flag, Secret, Size, Text, Whole};

const U8: Kind = Whole(u8::MAX as u64);
const U16: Kind = Whole(u16::MAX as u64);
const U32: Kind = Whole(u32::MAX as u64);
/// TOML has signed numbers only.
const U64: Kind = Whole(i64::MAX as u64);

const CORE: &[Key] = &[
    key(
        "path",
        Text,
        "\"local_data\"",
        "data folder; created when missing",
    ),
    key(
        "runtime.path",
        Text,
        "\"runtime\"",
        "folder under `path`, emptied at each boot; holds current_config.toml",
    ),
    key(
        "cluster.enabled",
        Flag,
        "false",
        "replicate with the nodes of the roster",
    ),
    key(
        "cluster.name",
        Text,
        "\"iggy-cluster\"",
        "equal on all nodes; part of the identity on disk",
    ),
    key(
        "cluster.heartbeat_timeout",
        Duration,
        "\"5s\"",
        "a backup that hears nothing for so long starts an election; at least 2s and 4 x \
         commit_broadcast_interval",
    ),
    key(
        "cluster.commit_broadcast_interval",
        Duration,
        "\"500ms\"",
        "between two Commit messages of a primary",
    ),
    key(
        "cluster.prepare_retransmit_interval",
        Duration,
        "\"250ms\"",
        "until an unacknowledged prepare is sent again",
    ),
    key(
        "cluster.view_change_retransmit_interval",
        Duration,
        "\"500ms\"",
        "until the messages of an election are sent again",
    ),
    key(
        "cluster.view_change_status_timeout",
        Duration,
        "\"5s\"",
        "an election that takes longer moves on; at least 4 x view_change_retransmit_interval",
    ),
    key(
        "cluster.request_start_view_retransmit_interval",
        Duration,
        "\"1s\"",
        "until a node that looks for the view asks again",
    ),
    key(
        "cluster.view_probe_attempts_max",
        U32,
        "5",
        "such questions before the node stands for election, 1..=100",
    ),
    key(
        "cluster.repair_retry_interval",
        Duration,
        "\"1s\"",
        "until a repair or transfer without progress asks again",
    ),
    key(
        "cluster.repair_gap_debounce_interval",
        Duration,
        "\"1s\"",
        "a gap must last so long before it is repaired; 500 ms at least take effect",
    ),
    key(
        "cluster.repair_chunk_max",
        U64,
        "128",
        "prepares per answer, 1..=1024 and below message_bus.peer_queue_capacity",
    ),
    key(
        "cluster.superblock_wedged_fatal_timeout",
        Duration,
        "\"2m\"",
        "the process ends with status 3 when a superblock cannot be written for so long; at least \
         30s, or zero for never",
    ),
    key(
        "cluster.auth.enabled",
        Flag,
        "false",
        "replicas prove that they know the secret",
    ),
    key(
        "cluster.auth.shared_secret",
        Secret,
        "\"\"",
        "at least 32 bytes; mandatory with cluster.auth.enabled",
    ),
    key(
        "cluster.auth.previous_shared_secret",
        Secret,
        "\"\"",
        "accepted, too, while secrets are rotated; at least 32 bytes",
    ),
    key(
        "cluster.tls.enabled",
        Flag,
        "false",
        "TLS 1.3 between replicas; needs cluster.auth.enabled",
    ),
    key(
        "cluster.tls.self_signed",
        Flag,
        "false",
        "mint a certificate at each boot; the secret alone proves membership",
    ),
    key(
        "cluster.tls.cert_file",
        Text,
        "\"\"",
        "PEM chain, leaf first, with the roster ip as an IP SAN",
    ),
    key("cluster.tls.key_file", Text, "\"\"", "PEM key"),
    key(
        "cluster.tls.ca_file",
        Text,
        "\"\"",
        "PEM roots; a dialer trusts these and no others",
    ),
    key(
        "cluster.coordinator.skip_shard_zero_for_replicas",
        Flag,
        "true",
        "thread placement",
    )
    .internal(),
    key(
        "cluster.coordinator.skip_shard_zero_for_clients",
        Flag,
        "false",
        "thread placement",
    )
    .internal(),
    key(
        "cluster.nodes[].name",
        Text,
        "",
        "unique name, shown to clients",
    )
    .mandatory(),
    key(
        "cluster.nodes[].ip",
        Text,
        "",
        "literal address, used to listen and to dial between replicas",
    )
    .mandatory(),
    key("cluster.nodes[].replica_id", U8, "", "0..n-1, unique").mandatory(),
    key("cluster.nodes[].ports.tcp", U16, "", "clients over TCP").mandatory(),
    key("cluster.nodes[].ports.tcp_replica", U16, "", "replicas").mandatory(),
    key(
        "cluster.nodes[].ports.quic",
        U16,
        "",
        "clients over QUIC; mandatory with quic.enabled",
    ),
    key(
        "cluster.nodes[].ports.http",
        U16,
        "",
        "REST API; mandatory with http.enabled",
    ),
    key(
        "cluster.nodes[].ports.websocket",
        U16,
        "",
        "clients over WebSocket; mandatory with websocket.enabled",
    ),
    key(
        "cluster.nodes[].advertised_address",
        Text,
        "",
        "what clients are told; else the ip",
    ),
    key(
        "cluster.nodes[].advertised_addresses[].client_cidr",
        Text,
        "",
        "clients of this network are told `address`; the longest match wins",
    )
    .mandatory(),
    key(
        "cluster.nodes[].advertised_addresses[].address",
        Text,
        "",
        "address or host name",
    )
    .mandatory(),
    key(
        "node.advertised_address",
        Text,
        "",
        "what clients are told when clustering is off; else the address of the first listener",
    ),
    key(
        "message_bus.max_batch",
        U64,
        "256",
        "frames per write, 1..=512",
    ),
    key(
        "message_bus.max_message_size",
        Size,
        "\"64 MiB\"",
        "largest frame, above 256 bytes and at most 256 MiB; equal on all nodes",
    ),
    key(
        "message_bus.peer_queue_capacity",
        U64,
        "256",
        "frames queued per connection of a replica or client",
    ),
    key(
        "message_bus.reconnect_period",
        Duration,
        "\"5 s\"",
        "longest pause between dials; a dial is given up after it, 1 s at least and 3 s at most",
    ),
    key(
        "message_bus.close_peer_timeout",
        Duration,
        "\"2 s\"",
        "to write what is queued on a link that ends",
    ),
    key(
        "message_bus.close_grace",
        Duration,
        "\"2 s\"",
        "to end a TLS session in order",
    ),
    key(
        "message_bus.handshake_grace",
        Duration,
        "\"10 s\"",
        "for the handshakes of a connection together: TLS, replica, WebSocket",
    ),
    key(
        "metadata.prepare_queue_depth",
        U64,
        "32",
        "operations in flight, 1..=127; equal on all nodes",
    ),
    key(
        "metadata.journal_slots",
        U64,
        "1024",
        "operations kept in the log, at least 4 x max(64, prepare_queue_depth)",
    ),
    key(
        "metadata.clients_table_max",
        U64,
        "8192",
        "sessions of the cluster, 2..=65536; equal on all nodes",
    ),
    key(
        "partition.prepare_queue_depth",
        U64,
        "32",
        "operations of a partition in flight, 1..=127; equal on all nodes",
    ),
    key(
        "partition.validate_checksum",
        Flag,
        "true",
        "verify batches read from disk",
    ),
    key(
        "partition.wal_bytes_max",
        Size,
        "\"256 MiB\"",
        "prepare log of a `persisted` partition, a multiple of 4 KiB up to 4 GiB",
    ),
    key(
        "partition.dedup_clients_max",
        U64,
        "4096",
        "producers remembered per partition, 1..=65536; equal on all nodes",
    ),
    key(
        "partition.consumer_offsets_max",
        U64,
        "4096",
        "stored offsets per kind and partition, 1..=262144",
    ),
    key(
        "partition.offset_reservation_lease",
        U64,
        "65536",
        "offsets a single replica reserves ahead, 1..=16777216",
    )
    .internal(),
    key(
        "partition.evicted_ring_capacity",
        U64,
        "4096",
        "flushed prepares kept for repair, 1..=65536",
    ),
    key(
        "partition.evicted_ring_bytes_max",
        Size,
        "\"16 MiB\"",
        "bytes of those, at most 256 MiB",
    ),
    key(
        "partition.transfer_served_cache_bytes_max",
        Size,
        "\"2176 MiB\"",
        "transfers served at once: this over the largest artifact, one at least; at most 64 GiB",
    ),
    key(
        "partition.transfer_artifact_bytes_max",
        Size,
        "\"1088 MiB\"",
        "largest artifact, at least 1 GiB + message_bus.max_message_size",
    ),
];

/// All keys in the order of the example file: scalars of the root first.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    CORE.iter().chain(transports::KEYS).chain(operation::KEYS)
}

/// The key at `path`, where every index is written `[]`.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// Arrays of tables.
pub(super) const ARRAYS: [&str; 3] = [
    "cluster.nodes",
    "cluster.nodes[].advertised_addresses",
    "http.jwt.trusted_issuers",
];

/// Tables of earlier releases that some files still hold; nothing in them has an effect.
pub(super) const OLD_TABLES: [&str; 2] = ["segment", "recovery"];

/// Tables in which an unknown key refuses the boot; elsewhere it is named in a warning (chapter 09
/// section 1.1). The root is the empty path.
pub(super) const CLOSED: [&str; 7] = [
    "",
    "cluster",
    "cluster.auth",
    "cluster.tls",
    "cluster.coordinator",
    "cluster.nodes[]",
    "cluster.nodes[].advertised_addresses[]",
];

/// Keys that moved or went, and what a file should say instead (chapter 09 section 1.1).
pub(super) const REMOVED: [(&str, &str); 13] = [
    (
        "system",
        "the keys of [system] are at the root of the file now: path, [runtime], [logging], \
         [sharding] and so on",
    ),
    (
        "partition.enforce_fsync",
        "is the topic option durability = replicated or persisted now",
    ),
    (
        "partition.consumer_offset_enforce_fsync",
        "is the topic option consumer_offset_durability now",
    ),
    (
        "partition.messages_required_to_save",
        "is the topic option messages_required_to_save now",
    ),
    (
        "partition.size_of_messages_required_to_save",
        "is the topic option size_of_messages_required_to_save now",
    ),
    (
        "partition.path",
        "the folders of partitions have fixed names; delete it",
    ),
    (
        "topic",
        "topic keys are topic options now: max_topic_size, message_expiry; delete the table",
    ),
    (
        "stream",
        "the folders of streams have fixed names; delete the table",
    ),
    ("extra", "was removed; delete it"),
    (
        "message_saver",
        "was removed; topics have messages_required_to_save; delete the table",
    ),
    ("segment.size", "is the topic option segment_size now"),
    (
        "segment.preallocate",
        "is the topic option preallocate_segments now",
    ),
    ("tcp.socket", "was removed; delete the table"),
];
