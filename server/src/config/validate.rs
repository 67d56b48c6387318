//! Rules between and within keys (chapter 09 sections 5.2 to 5.15), in the order of section 5.15:
//! a boot is refused by the first that fails.

mod roster;
mod transports;

use std::path::{Component, Path};
use std::time::Duration;

use toml::Table;

use super::advertised;
use super::problem::Problems;
use super::schema::{self, Effect};
use super::sections::{Cluster, Config};
use super::values::{ConfigDuration, ConfigSize};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Checks every rule.
pub(super) fn validate(config: &Config, problems: &mut Problems) {
    folders(config, problems);
    memory_pool(config, problems);
    maintenance(config, problems);
    not_served(config, problems);
    sharding(config, problems);
    cluster(&config.cluster, problems);
    node(config, problems);
    transports::addresses(config, problems);
    metadata(config, problems);
    partition(config, problems);
    logging(config, problems);
    transports::http(config, problems);
    if config.cluster.enabled {
        roster::ports(config, problems);
    }
    message_bus(config, problems);
    transports::websocket(config, problems);
    transports::quic(config, problems);
    positive(
        problems,
        "consumer_group.rebalancing_timeout",
        config.consumer_group.rebalancing_timeout,
    );
    if config.heartbeat.enabled {
        positive(problems, "heartbeat.interval", config.heartbeat.interval);
    }
}

/// What an operator should know of keys that were said and do nothing.
pub(super) fn without_effect(effective: &Table) -> Vec<String> {
    let defaults = super::layers::defaults();
    let (mut effective, mut defaults) = (effective.clone(), defaults);
    let mut warnings = Vec::new();
    for key in schema::keys().filter(|key| key.effect == Effect::Internal) {
        let said = super::layers::get_mut(&mut effective, key.path).cloned();
        let default = super::layers::get_mut(&mut defaults, key.path).cloned();
        if said != default {
            warnings.push(format!(
                "{} has no effect: it tunes a part that this server does not have",
                key.path
            ));
        }
    }
    let on = super::layers::get_mut(&mut effective, "quic.enabled");
    if on.and_then(|value| value.as_bool()) == Some(true) {
        warnings.push(
            "quic.enabled is on, and QUIC clients cannot be served yet: nothing listens there and \
             clients are told port 0"
                .to_owned(),
        );
    }
    warnings
}

fn positive(problems: &mut Problems, key: &str, value: ConfigDuration) {
    problems.check(value.0 > Duration::ZERO, key, "must be longer than zero");
}

fn within(problems: &mut Problems, key: &str, value: ConfigDuration, low: &str, high: &str) {
    let bound = |text| ConfigDuration::parse(text).map_or(Duration::ZERO, |bound| bound.0);
    let holds = value.0 >= bound(low) && value.0 <= bound(high) && !value.0.is_zero();
    let low = if low == "0" { "above zero" } else { low };
    problems.check(holds, key, format!("must be {low} to {high}"));
}

fn range(problems: &mut Problems, key: &str, value: u64, low: u64, high: u64) {
    problems.check(
        (low..=high).contains(&value),
        key,
        format!("must be {low}..={high}"),
    );
}

fn bytes(problems: &mut Problems, key: &str, size: ConfigSize, low: u64, high: u64) {
    problems.check(
        (low..=high).contains(&size.0),
        key,
        format!("must be {low}..={high} bytes"),
    );
}

/// Folders below the data folder. One of them is emptied at each boot, so none may lead elsewhere.
fn folders(config: &Config, problems: &mut Problems) {
    const TAKEN: [&str; 3] = ["metadata", "state", "streams"];
    for (key, path) in [
        ("runtime.path", &config.runtime.path),
        ("logging.path", &config.logging.path),
    ] {
        let mut components = Path::new(path).components();
        let first = components.clone().next();
        let below = components.all(|component| matches!(component, Component::Normal(_)));
        let taken = first.is_none_or(|first| TAKEN.iter().any(|name| first.as_os_str() == *name));
        problems.check(
            below && !taken,
            key,
            "must be a folder below `path`, other than metadata, state and streams",
        );
    }
    problems.check(
        config.runtime.path != config.logging.path,
        "logging.path",
        "must differ from runtime.path, which is emptied at each boot",
    );
    problems.check(!config.path.trim().is_empty(), "path", "must not be blank");
}

fn memory_pool(config: &Config, problems: &mut Problems) {
    let pool = &config.memory_pool;
    problems.check(
        pool.size.0 >= 512 * MIB && pool.size.0.is_multiple_of(4096),
        "memory_pool.size",
        "must be at least 512 MiB and a multiple of 4096 bytes",
    );
    problems.check(
        pool.bucket_capacity >= 128 && pool.bucket_capacity.is_power_of_two(),
        "memory_pool.bucket_capacity",
        "must be at least 128 and a power of two",
    );
}

fn maintenance(config: &Config, problems: &mut Problems) {
    let cleaner = &config.data_maintenance.messages;
    if cleaner.cleaner_enabled {
        positive(
            problems,
            "data_maintenance.messages.interval",
            cleaner.interval,
        );
    }
    let tokens = &config.personal_access_token;
    problems.check(
        tokens.max_tokens_per_user > 0,
        "personal_access_token.max_tokens_per_user",
        "must be above 0",
    );
    if tokens.cleaner.enabled {
        let key = "personal_access_token.cleaner.interval";
        positive(problems, key, tokens.cleaner.interval);
    }
}

/// What a file may ask for and this server does not do: refused, never silently otherwise.
fn not_served(config: &Config, problems: &mut Problems) {
    problems.check(
        !config.telemetry.enabled,
        "telemetry.enabled",
        "must be false: this server exports no telemetry",
    );
    problems.check(
        !config.http.web_ui,
        "http.web_ui",
        "must be false: the files of that interface are not part of this server",
    );
    problems.check(
        config.http.jwt.trusted_issuers.is_empty(),
        "http.jwt.trusted_issuers",
        "must be empty: tokens of other issuers are not served yet",
    );
    problems.check(
        !config.encryption.enabled,
        "encryption.enabled",
        "must be false: encryption at rest is not served yet",
    );
}

fn sharding(config: &Config, problems: &mut Problems) {
    let sharding = &config.sharding;
    let queue = 1..=1_048_576;
    for (key, value) in [
        ("sharding.inbox_capacity", sharding.inbox_capacity),
        (
            "sharding.reply_inbox_capacity",
            sharding.reply_inbox_capacity,
        ),
    ] {
        range(problems, key, value as u64, *queue.start(), *queue.end());
    }
    let drain = sharding.shutdown_drain_timeout;
    within(
        problems,
        "sharding.shutdown_drain_timeout",
        drain,
        "0",
        "600s",
    );
    let poll = sharding.shutdown_poll_interval;
    within(problems, "sharding.shutdown_poll_interval", poll, "0", "5s");
    problems.check(
        poll <= drain,
        "sharding.shutdown_poll_interval",
        "must not be longer than sharding.shutdown_drain_timeout",
    );
    let join = sharding.shutdown_join_timeout;
    problems.check(
        join >= drain && join.0 <= Duration::from_secs(900),
        "sharding.shutdown_join_timeout",
        "must be at least sharding.shutdown_drain_timeout and at most 900s",
    );
    let reconcile = sharding.reconcile_periodic_interval;
    within(
        problems,
        "sharding.reconcile_periodic_interval",
        reconcile,
        "0",
        "30s",
    );
}

fn cluster(cluster: &Cluster, problems: &mut Problems) {
    let chunk = cluster.repair_chunk_max as u64;
    range(problems, "cluster.repair_chunk_max", chunk, 1, 1024);
    let wedged = cluster.superblock_wedged_fatal_timeout.0;
    problems.check(
        wedged.is_zero() || wedged >= Duration::from_secs(30),
        "cluster.superblock_wedged_fatal_timeout",
        "must be zero (never) or at least 30s",
    );
    if !cluster.enabled {
        return;
    }
    problems.check(
        !cluster.name.trim().is_empty(),
        "cluster.name",
        "must not be blank",
    );
    timers(cluster, problems);
    if !problems.has_below("cluster.nodes") {
        roster::roster(cluster, problems);
    }
    secrets(cluster, problems);
    replica_tls(cluster, problems);
}

/// Shortest `cluster.heartbeat_timeout` (chapter 09).
pub const HEARTBEAT_TIMEOUT_MIN: Duration = Duration::from_secs(2);

fn timers(cluster: &Cluster, problems: &mut Problems) {
    let heartbeat = cluster.heartbeat_timeout.0;
    problems.check(
        heartbeat >= HEARTBEAT_TIMEOUT_MIN,
        "cluster.heartbeat_timeout",
        "must be at least 2s",
    );
    let commit = cluster.commit_broadcast_interval;
    positive(problems, "cluster.commit_broadcast_interval", commit);
    let prepare = cluster.prepare_retransmit_interval;
    positive(problems, "cluster.prepare_retransmit_interval", prepare);
    problems.check(
        heartbeat >= commit.0.saturating_mul(4),
        "cluster.heartbeat_timeout",
        "must be at least 4 times cluster.commit_broadcast_interval",
    );
    let retransmit = cluster.view_change_retransmit_interval;
    positive(
        problems,
        "cluster.view_change_retransmit_interval",
        retransmit,
    );
    let status = cluster.view_change_status_timeout;
    positive(problems, "cluster.view_change_status_timeout", status);
    let request = cluster.request_start_view_retransmit_interval;
    positive(
        problems,
        "cluster.request_start_view_retransmit_interval",
        request,
    );
    problems.check(
        status.0 >= retransmit.0.saturating_mul(4),
        "cluster.view_change_status_timeout",
        "must be at least 4 times cluster.view_change_retransmit_interval",
    );
    let attempts = u64::from(cluster.view_probe_attempts_max);
    range(
        problems,
        "cluster.view_probe_attempts_max",
        attempts,
        1,
        100,
    );
    let retry = cluster.repair_retry_interval;
    positive(problems, "cluster.repair_retry_interval", retry);
    let debounce = cluster.repair_gap_debounce_interval;
    positive(problems, "cluster.repair_gap_debounce_interval", debounce);
}

fn secrets(cluster: &Cluster, problems: &mut Problems) {
    let auth = &cluster.auth;
    let (secret, previous) = (&auth.shared_secret.0, &auth.previous_shared_secret.0);
    let key = "cluster.auth.shared_secret";
    problems.check(
        !(auth.enabled && secret.is_empty()),
        key,
        "is mandatory when cluster.auth is enabled",
    );
    let long = "must have at least 32 bytes";
    problems.check(secret.is_empty() || secret.len() >= 32, key, long);
    let key = "cluster.auth.previous_shared_secret";
    problems.check(previous.is_empty() || previous.len() >= 32, key, long);
    problems.check(
        previous.is_empty() || previous != secret,
        key,
        "must differ from shared_secret",
    );
}

fn replica_tls(cluster: &Cluster, problems: &mut Problems) {
    let tls = &cluster.tls;
    problems.check(
        !tls.enabled || cluster.auth.enabled,
        "cluster.tls.enabled",
        "needs cluster.auth.enabled = true",
    );
    for (key, file) in [
        ("cluster.tls.cert_file", &tls.cert_file),
        ("cluster.tls.key_file", &tls.key_file),
        ("cluster.tls.ca_file", &tls.ca_file),
    ] {
        problems.check(
            !tls.enabled || tls.self_signed || !file.trim().is_empty(),
            key,
            "is mandatory when cluster.tls is enabled without self_signed",
        );
    }
}

fn node(config: &Config, problems: &mut Problems) {
    let key = "node.advertised_address";
    match &config.node.advertised_address {
        Some(address) => {
            let wildcard = advertised::literal(address).is_some_and(|ip| ip.is_unspecified());
            problems.check(!wildcard, key, "must not be a wildcard address");
            problems.check(
                advertised::is_valid(address),
                key,
                "is neither an IP address nor a host name",
            );
        }
        None if !config.cluster.enabled => problems.check(
            advertised::derived(config).is_some(),
            key,
            "is mandatory while the first listener listens on a wildcard address: clients must be \
             told where to find it",
        ),
        None => {}
    }
}

fn metadata(config: &Config, problems: &mut Problems) {
    let metadata = &config.metadata;
    let depth = metadata.prepare_queue_depth as u64;
    range(problems, "metadata.prepare_queue_depth", depth, 1, 127);
    let (slots, floor) = (metadata.journal_slots as u64, 4 * depth.max(64));
    range(problems, "metadata.journal_slots", slots, floor, 1_048_576);
    let clients = metadata.clients_table_max as u64;
    range(problems, "metadata.clients_table_max", clients, 2, 65_536);
}

fn partition(config: &Config, problems: &mut Problems) {
    let partition = &config.partition;
    for (key, value, high) in [
        (
            "partition.prepare_queue_depth",
            partition.prepare_queue_depth,
            127,
        ),
        (
            "partition.dedup_clients_max",
            partition.dedup_clients_max,
            65_536,
        ),
        (
            "partition.consumer_offsets_max",
            partition.consumer_offsets_max,
            262_144,
        ),
        (
            "partition.evicted_ring_capacity",
            partition.evicted_ring_capacity,
            65_536,
        ),
    ] {
        range(problems, key, value as u64, 1, high);
    }
    let lease = partition.offset_reservation_lease;
    range(
        problems,
        "partition.offset_reservation_lease",
        lease,
        1,
        16_777_216,
    );
    let (key, wal) = ("partition.wal_bytes_max", partition.wal_bytes_max);
    bytes(problems, key, wal, 2 * (64 * MIB + 4096), 4 * GIB);
    problems.check(
        wal.0.is_multiple_of(4096),
        key,
        "must be a multiple of 4096 bytes",
    );
    let ring = partition.evicted_ring_bytes_max;
    bytes(
        problems,
        "partition.evicted_ring_bytes_max",
        ring,
        1,
        256 * MIB,
    );
    let served = partition.transfer_served_cache_bytes_max;
    let key = "partition.transfer_served_cache_bytes_max";
    bytes(problems, key, served, 1, 64 * GIB);
    // Every segment, with one message above its size, must fit an artifact.
    let artifact = partition.transfer_artifact_bytes_max;
    let floor = GIB + config.message_bus.max_message_size.0;
    let key = "partition.transfer_artifact_bytes_max";
    problems.check(
        (floor..=64 * GIB).contains(&artifact.0),
        key,
        format!(
            "must be {floor}..={} bytes: 1 GiB and message_bus.max_message_size at least",
            64 * GIB
        ),
    );
}

fn logging(config: &Config, problems: &mut Problems) {
    let logging = &config.logging;
    problems.check(
        !logging.level.trim().is_empty(),
        "logging.level",
        "must not be blank",
    );
    let total = logging.max_total_size.0;
    problems.check(
        total == 0 || logging.max_file_size.0 <= total,
        "logging.max_file_size",
        "must not be above logging.max_total_size",
    );
    for (key, value) in [
        (
            "logging.rotation_check_interval",
            logging.rotation_check_interval,
        ),
        ("logging.retention", logging.retention),
    ] {
        problems.check(
            value.0 >= Duration::from_secs(1),
            key,
            "must be at least 1s",
        );
    }
}

fn message_bus(config: &Config, problems: &mut Problems) {
    let bus = &config.message_bus;
    range(
        problems,
        "message_bus.max_batch",
        bus.max_batch as u64,
        1,
        512,
    );
    problems.check(
        (257..=256 * MIB).contains(&bus.max_message_size.0),
        "message_bus.max_message_size",
        "must be above 256 bytes and at most 256 MiB",
    );
    problems.check(
        bus.peer_queue_capacity > config.cluster.repair_chunk_max,
        "message_bus.peer_queue_capacity",
        "must be above cluster.repair_chunk_max",
    );
    positive(
        problems,
        "message_bus.reconnect_period",
        bus.reconnect_period,
    );
    positive(
        problems,
        "message_bus.close_peer_timeout",
        bus.close_peer_timeout,
    );
    positive(problems, "message_bus.close_grace", bus.close_grace);
    positive(problems, "message_bus.handshake_grace", bus.handshake_grace);
}
