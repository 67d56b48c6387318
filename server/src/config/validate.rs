//! Rules between and within keys (chapter 09 sections 5.2 to 5.15); the first failure wins.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::sections::{AdvertisedAddress, Cluster, Config};
use super::values::ConfigSize;
use super::{ConfigDuration, ConfigError};

/// Checks every rule this server depends on.
pub(super) fn validate(config: &Config) -> Result<(), ConfigError> {
    cluster(&config.cluster)?;
    metadata(config)?;
    partition(config)?;
    message_bus(config)?;
    artifact_floor(config)?;
    unsupported(config)?;
    if config.heartbeat.enabled {
        positive("heartbeat.interval", config.heartbeat.interval)?;
    }
    positive(
        "consumer_group.rebalancing_timeout",
        config.consumer_group.rebalancing_timeout,
    )
}

fn rule(condition: bool, key: &str, reason: impl Into<String>) -> Result<(), ConfigError> {
    if condition {
        Ok(())
    } else {
        Err(ConfigError::rule(key, reason))
    }
}

fn positive(key: &str, value: ConfigDuration) -> Result<(), ConfigError> {
    rule(value.0 > Duration::ZERO, key, "must be longer than zero")
}

fn range(key: &str, value: usize, low: usize, high: usize) -> Result<(), ConfigError> {
    rule(
        (low..=high).contains(&value),
        key,
        format!("{value} is outside {low}..={high}"),
    )
}

fn cluster(cluster: &Cluster) -> Result<(), ConfigError> {
    range(
        "cluster.repair_chunk_max",
        cluster.repair_chunk_max,
        1,
        1024,
    )?;
    let wedged = cluster.superblock_wedged_fatal_timeout.0;
    rule(
        wedged.is_zero() || wedged >= Duration::from_secs(30),
        "cluster.superblock_wedged_fatal_timeout",
        "must be zero (never exit) or at least 30s",
    )?;
    if !cluster.enabled {
        return Ok(());
    }
    rule(
        !cluster.name.trim().is_empty(),
        "cluster.name",
        "must not be blank",
    )?;
    let heartbeat = cluster.heartbeat_timeout.0;
    rule(
        heartbeat >= Duration::from_secs(2),
        "cluster.heartbeat_timeout",
        "must be at least 2s",
    )?;
    positive(
        "cluster.commit_broadcast_interval",
        cluster.commit_broadcast_interval,
    )?;
    positive(
        "cluster.prepare_retransmit_interval",
        cluster.prepare_retransmit_interval,
    )?;
    rule(
        heartbeat >= cluster.commit_broadcast_interval.0 * 4,
        "cluster.heartbeat_timeout",
        "must be at least 4 times cluster.commit_broadcast_interval",
    )?;
    positive(
        "cluster.view_change_retransmit_interval",
        cluster.view_change_retransmit_interval,
    )?;
    positive(
        "cluster.request_start_view_retransmit_interval",
        cluster.request_start_view_retransmit_interval,
    )?;
    rule(
        cluster.view_change_status_timeout.0 >= cluster.view_change_retransmit_interval.0 * 4,
        "cluster.view_change_status_timeout",
        "must be at least 4 times cluster.view_change_retransmit_interval",
    )?;
    let attempts = cluster.view_probe_attempts_max as usize;
    range("cluster.view_probe_attempts_max", attempts, 1, 100)?;
    positive(
        "cluster.repair_retry_interval",
        cluster.repair_retry_interval,
    )?;
    positive(
        "cluster.repair_gap_debounce_interval",
        cluster.repair_gap_debounce_interval,
    )?;
    roster(cluster)?;
    secrets(cluster)
}

fn roster(cluster: &Cluster) -> Result<(), ConfigError> {
    let count = cluster.nodes.len();
    rule(
        count > 0,
        "cluster.nodes",
        "clustering is on but the roster is empty",
    )?;
    rule(
        count <= 32,
        "cluster.nodes",
        "at most 32 replicas form a cluster",
    )?;
    let (mut names, mut ids, mut endpoints) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for node in &cluster.nodes {
        let key = format!("cluster.nodes ({})", node.name);
        rule(
            !node.name.trim().is_empty(),
            "cluster.nodes",
            "a node has a blank name",
        )?;
        rule(
            names.insert(node.name.as_str()),
            &key,
            "the name is used twice",
        )?;
        let ip: IpAddr = node.ip.parse().map_err(|_| {
            ConfigError::rule(&key, format!("ip \"{}\" is not a literal IP", node.ip))
        })?;
        rule(
            !ip.is_unspecified(),
            &key,
            "ip must not be a wildcard address",
        )?;
        let id = usize::from(node.replica_id);
        rule(
            id < count,
            &key,
            format!("replica_id {id} must be below the {count} nodes"),
        )?;
        rule(
            ids.insert(id),
            &key,
            format!("replica_id {id} is used twice"),
        )?;
        rule(node.ports.tcp != 0, &key, "ports.tcp must not be 0")?;
        rule(
            node.ports.tcp_replica != 0,
            &key,
            "ports.tcp_replica must not be 0",
        )?;
        let ports = node.ports;
        let all = [
            ports.tcp,
            ports.tcp_replica,
            ports.quic,
            ports.http,
            ports.websocket,
        ];
        for port in all.into_iter().filter(|port| *port != 0) {
            rule(
                endpoints.insert((ip, port)),
                &key,
                format!("{ip}:{port} is used twice"),
            )?;
        }
        if let Some(address) = &node.advertised_address {
            advertised(&key, address)?;
        }
        rule(
            node.advertised_addresses.len() <= 16,
            &key,
            "at most 16 advertised_addresses",
        )?;
        for selector in &node.advertised_addresses {
            advertised(&key, &selector.address)?;
            rule(
                parse_cidr(&selector.client_cidr).is_some(),
                &key,
                format!("client_cidr \"{}\" is not a network", selector.client_cidr),
            )?;
        }
    }
    Ok(())
}

/// A literal IP or a host name (chapter 09 section 4.5).
fn advertised(key: &str, address: &str) -> Result<(), ConfigError> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let numeric = address
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let valid = address.len() <= 253 && !numeric && address.split('.').all(label);
    rule(
        valid,
        key,
        format!("\"{address}\" is neither an IP address nor a host name"),
    )
}

fn secrets(cluster: &Cluster) -> Result<(), ConfigError> {
    let auth = &cluster.auth;
    let secret = &auth.shared_secret.0;
    let previous = &auth.previous_shared_secret.0;
    let key = "cluster.auth.shared_secret";
    rule(
        !(auth.enabled && secret.is_empty()),
        key,
        "is mandatory when cluster.auth is enabled",
    )?;
    rule(
        secret.is_empty() || secret.len() >= 32,
        key,
        "must have at least 32 bytes",
    )?;
    let key = "cluster.auth.previous_shared_secret";
    rule(
        previous.is_empty() || previous.len() >= 32,
        key,
        "must have at least 32 bytes",
    )?;
    rule(
        previous.is_empty() || previous != secret,
        key,
        "must differ from shared_secret",
    )?;
    let tls = &cluster.tls;
    rule(
        !tls.enabled || auth.enabled,
        "cluster.tls.enabled",
        "needs cluster.auth.enabled = true",
    )?;
    for (key, file) in [
        ("cluster.tls.cert_file", &tls.cert_file),
        ("cluster.tls.key_file", &tls.key_file),
        ("cluster.tls.ca_file", &tls.ca_file),
    ] {
        rule(
            !tls.enabled || tls.self_signed || !file.trim().is_empty(),
            key,
            "is mandatory when cluster.tls is enabled without self_signed",
        )?;
    }
    Ok(())
}

fn metadata(config: &Config) -> Result<(), ConfigError> {
    let metadata = &config.metadata;
    range(
        "metadata.prepare_queue_depth",
        metadata.prepare_queue_depth,
        1,
        127,
    )?;
    let floor = 4 * metadata.prepare_queue_depth.max(64);
    range(
        "metadata.journal_slots",
        metadata.journal_slots,
        floor,
        1_048_576,
    )?;
    range(
        "metadata.clients_table_max",
        metadata.clients_table_max,
        2,
        65_536,
    )
}

fn partition(config: &Config) -> Result<(), ConfigError> {
    let partition = &config.partition;
    range(
        "partition.prepare_queue_depth",
        partition.prepare_queue_depth,
        1,
        127,
    )?;
    range(
        "partition.dedup_clients_max",
        partition.dedup_clients_max,
        1,
        65_536,
    )?;
    range(
        "partition.consumer_offsets_max",
        partition.consumer_offsets_max,
        1,
        262_144,
    )?;
    range(
        "partition.evicted_ring_capacity",
        partition.evicted_ring_capacity,
        1,
        65_536,
    )?;
    let bytes = |key: &str, size: ConfigSize, low: u64, high: u64| {
        rule(
            (low..=high).contains(&size.0),
            key,
            format!("{size} is outside {low}..={high} bytes"),
        )
    };
    let wal_floor = 2 * ((64 << 20) + 4096);
    bytes(
        "partition.wal_bytes_max",
        partition.wal_bytes_max,
        wal_floor,
        4 << 30,
    )?;
    bytes(
        "partition.evicted_ring_bytes_max",
        partition.evicted_ring_bytes_max,
        1,
        256 << 20,
    )?;
    Ok(())
}

fn message_bus(config: &Config) -> Result<(), ConfigError> {
    let bus = &config.message_bus;
    range("message_bus.max_batch", bus.max_batch, 1, 512)?;
    rule(
        bus.max_message_size.0 > 256 && bus.max_message_size.0 <= 256 << 20,
        "message_bus.max_message_size",
        "must be above 256 bytes and at most 256 MiB",
    )?;
    rule(
        bus.peer_queue_capacity > config.cluster.repair_chunk_max,
        "message_bus.peer_queue_capacity",
        "must be above cluster.repair_chunk_max",
    )?;
    positive("message_bus.reconnect_period", bus.reconnect_period)?;
    positive("message_bus.close_peer_timeout", bus.close_peer_timeout)?;
    positive("message_bus.close_grace", bus.close_grace)?;
    positive("message_bus.handshake_grace", bus.handshake_grace)
}

/// Every segment, with one message above its size, must fit an artifact.
fn artifact_floor(config: &Config) -> Result<(), ConfigError> {
    let artifact = config.partition.transfer_artifact_bytes_max.0;
    let floor = (1 << 30) + config.message_bus.max_message_size.0;
    rule(
        (floor..=64 << 30).contains(&artifact),
        "partition.transfer_artifact_bytes_max",
        format!("{artifact} is outside {floor}..={} bytes", 64u64 << 30),
    )
}

/// What the file may ask for and this server does not serve yet: refused, never silently plain.
fn unsupported(config: &Config) -> Result<(), ConfigError> {
    let on = |table: &toml::Table| {
        table
            .get("enabled")
            .and_then(toml::Value::as_bool)
            .unwrap_or(false)
    };
    rule(
        !on(&config.encryption),
        "encryption.enabled",
        "at-rest encryption is not served yet",
    )
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= bits).then_some((address, prefix))
}

/// Prefix length of a selector, for "longest match first".
pub(super) fn prefix_length(selector: &AdvertisedAddress) -> u8 {
    parse_cidr(&selector.client_cidr).map_or(0, |(_, prefix)| prefix)
}

/// True when `client` lies in the network `cidr`. Families never cross; an IPv4 client mapped into
/// IPv6 counts as IPv4.
pub(super) fn cidr_contains(cidr: &str, client: IpAddr) -> bool {
    let Some((network, prefix)) = parse_cidr(cidr) else {
        return false;
    };
    match (network.to_canonical(), client.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(client)) => {
            // `::ffff:a.b.c.d/(96 + k)` means `a.b.c.d/k`.
            let prefix = if prefix > 32 { prefix - 96 } else { prefix };
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            network.to_bits() & mask == client.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(client)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            network.to_bits() & mask == client.to_bits() & mask
        }
        _ => false,
    }
}
