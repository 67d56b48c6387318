//! The keys of how a node runs: sessions, cleaners, threads, logs (chapter 09 sections 5.12 to
//! 5.14).

use super::{Key, U32, U64, key};
use crate::config::schema::Kind::{CpuAllocation, Duration, Flag, Secret, Size, Text};

pub(super) const KEYS: &[Key] = &[
    key(
        "heartbeat.enabled",
        Flag,
        "true",
        "evict silent members of consumer groups",
    ),
    key(
        "heartbeat.interval",
        Duration,
        "\"30 s\"",
        "members silent for 1.2 x this are evicted",
    ),
    key(
        "consumer_group.rebalancing_timeout",
        Duration,
        "\"30s\"",
        "a partition that is to change hands does so after this at the latest",
    ),
    key(
        "personal_access_token.max_tokens_per_user",
        U32,
        "100",
        "tokens a user may hold",
    ),
    key(
        "personal_access_token.cleaner.enabled",
        Flag,
        "true",
        "delete expired tokens",
    ),
    key(
        "personal_access_token.cleaner.interval",
        Duration,
        "\"1 m\"",
        "between two looks for them",
    ),
    key(
        "data_maintenance.messages.cleaner_enabled",
        Flag,
        "true",
        "delete sealed segments as the options of their topic say",
    ),
    key(
        "data_maintenance.messages.interval",
        Duration,
        "\"1 m\"",
        "between two looks for them",
    ),
    key(
        "sharding.cpu_allocation",
        CpuAllocation,
        "\"numa:auto\"",
        "processors of the original server's shards",
    )
    .internal(),
    key("sharding.pin_cores", Flag, "true", "thread placement").internal(),
    key(
        "sharding.inbox_capacity",
        U64,
        "1024",
        "queue between shards, 1..=1048576",
    )
    .internal(),
    key(
        "sharding.reply_inbox_capacity",
        U64,
        "1024",
        "queue between shards, 1..=1048576",
    )
    .internal(),
    key(
        "sharding.shutdown_drain_timeout",
        Duration,
        "\"10 s\"",
        "a stopping node flushes what is committed for so long, at most 600 s",
    ),
    key(
        "sharding.shutdown_poll_interval",
        Duration,
        "\"50 ms\"",
        "step of that wait, at most 5 s and shutdown_drain_timeout",
    )
    .internal(),
    key(
        "sharding.shutdown_join_timeout",
        Duration,
        "\"30 s\"",
        "a stop that takes longer ends the process with status 1; at least \
         shutdown_drain_timeout, at most 900 s",
    ),
    key(
        "sharding.reconcile_periodic_interval",
        Duration,
        "\"1 s\"",
        "between two looks at the partitions that should be open, at most 30 s",
    ),
    key(
        "logging.path",
        Text,
        "\"logs\"",
        "folder under `path` for iggy-server.log*",
    ),
    key(
        "logging.level",
        Text,
        "\"info\"",
        "filter directive; RUST_LOG wins",
    ),
    key(
        "logging.file_enabled",
        Flag,
        "true",
        "write log lines to files next to standard error",
    ),
    key(
        "logging.max_file_size",
        Size,
        "\"500 MB\"",
        "a file of this size or of an hour is closed; zero for no limit of either",
    ),
    key(
        "logging.max_total_size",
        Size,
        "\"4 GB\"",
        "the oldest files beyond this are removed; zero for no limit",
    ),
    key(
        "logging.rotation_check_interval",
        Duration,
        "\"1 h\"",
        "between two looks at ages and sizes, at least 1 s",
    ),
    key(
        "logging.retention",
        Duration,
        "\"7 days\"",
        "files older than this are removed, at least 1 s",
    ),
    key(
        "telemetry.enabled",
        Flag,
        "false",
        "must stay off: nothing is exported",
    )
    .not_served(),
    key(
        "telemetry.service_name",
        Text,
        "\"iggy\"",
        "name in exported records",
    )
    .not_served(),
    key("telemetry.logs.transport", Text, "\"grpc\"", "grpc or http").not_served(),
    key(
        "telemetry.logs.endpoint",
        Text,
        "\"http://localhost:7281/v1/logs\"",
        "collector",
    )
    .not_served(),
    key(
        "telemetry.traces.transport",
        Text,
        "\"grpc\"",
        "grpc or http",
    )
    .not_served(),
    key(
        "telemetry.traces.endpoint",
        Text,
        "\"http://localhost:7281/v1/traces\"",
        "collector",
    )
    .not_served(),
    key(
        "encryption.enabled",
        Flag,
        "false",
        "must stay off: encryption at rest is not served",
    )
    .not_served(),
    key("encryption.key", Secret, "\"\"", "base64 of 32 bytes").not_served(),
    key("memory_pool.enabled", Flag, "true", "buffer pool").internal(),
    key(
        "memory_pool.size",
        Size,
        "\"4 GiB\"",
        "at least 512 MiB, a multiple of 4096",
    )
    .internal(),
    key(
        "memory_pool.bucket_capacity",
        U64,
        "8192",
        "a power of two, at least 128",
    )
    .internal(),
];
