//! The tables of chapter 09 as data: every key is accepted with its default, and every value that
//! breaks a rule is refused by that rule, at its line. Written from the chapter, not from the
//! program's own table.

mod rules;

use crate::config::*;
use rules::{ACCEPTED, CLUSTER, REFUSED};

/// Key and default, as the chapter has them; empty where the chapter says "unset".
const DEFAULTS: &[(&str, &str)] = &[
    ("path", r#""local_data""#),
    ("runtime.path", r#""runtime""#),
    ("cluster.enabled", "false"),
    ("cluster.name", r#""iggy-cluster""#),
    ("cluster.heartbeat_timeout", r#""5s""#),
    ("cluster.commit_broadcast_interval", r#""500ms""#),
    ("cluster.prepare_retransmit_interval", r#""250ms""#),
    ("cluster.view_change_retransmit_interval", r#""500ms""#),
    ("cluster.view_change_status_timeout", r#""5s""#),
    ("cluster.request_start_view_retransmit_interval", r#""1s""#),
    ("cluster.view_probe_attempts_max", "5"),
    ("cluster.repair_retry_interval", r#""1s""#),
    ("cluster.repair_gap_debounce_interval", r#""1s""#),
    ("cluster.repair_chunk_max", "128"),
    ("cluster.superblock_wedged_fatal_timeout", r#""2m""#),
    ("cluster.auth.enabled", "false"),
    ("cluster.auth.shared_secret", r#""""#),
    ("cluster.auth.previous_shared_secret", r#""""#),
    ("cluster.tls.enabled", "false"),
    ("cluster.tls.self_signed", "false"),
    ("cluster.tls.cert_file", r#""""#),
    ("cluster.tls.key_file", r#""""#),
    ("cluster.tls.ca_file", r#""""#),
    ("cluster.coordinator.skip_shard_zero_for_replicas", "true"),
    ("cluster.coordinator.skip_shard_zero_for_clients", "false"),
    ("node.advertised_address", ""),
    ("message_bus.max_batch", "256"),
    ("message_bus.max_message_size", r#""64 MiB""#),
    ("message_bus.peer_queue_capacity", "256"),
    ("message_bus.reconnect_period", r#""5 s""#),
    ("message_bus.close_peer_timeout", r#""2 s""#),
    ("message_bus.close_grace", r#""2 s""#),
    ("message_bus.handshake_grace", r#""10 s""#),
    ("metadata.prepare_queue_depth", "32"),
    ("metadata.journal_slots", "1024"),
    ("metadata.clients_table_max", "8192"),
    ("partition.prepare_queue_depth", "32"),
    ("partition.validate_checksum", "true"),
    ("partition.wal_bytes_max", r#""256 MiB""#),
    ("partition.dedup_clients_max", "4096"),
    ("partition.consumer_offsets_max", "4096"),
    ("partition.offset_reservation_lease", "65536"),
    ("partition.evicted_ring_capacity", "4096"),
    ("partition.evicted_ring_bytes_max", r#""16 MiB""#),
    ("partition.transfer_served_cache_bytes_max", r#""2176 MiB""#),
    ("partition.transfer_artifact_bytes_max", r#""1088 MiB""#),
    ("tcp.enabled", "true"),
    ("tcp.address", r#""127.0.0.1:8090""#),
    ("tcp.tls.enabled", "false"),
    ("tcp.tls.self_signed", "true"),
    ("tcp.tls.cert_file", r#""core/certs/iggy_cert.pem""#),
    ("tcp.tls.key_file", r#""core/certs/iggy_key.pem""#),
    ("quic.enabled", "true"),
    ("quic.address", r#""127.0.0.1:8080""#),
    ("quic.max_concurrent_bidi_streams", "1"),
    ("quic.initial_mtu", r#""1200 B""#),
    ("quic.send_window", r#""64 MiB""#),
    ("quic.receive_window", r#""64 MiB""#),
    ("quic.stream_receive_window", r#""64 MiB""#),
    ("quic.keep_alive_interval", r#""10 s""#),
    ("quic.max_idle_timeout", r#""30 s""#),
    ("quic.certificate.self_signed", "true"),
    ("quic.certificate.cert_file", r#""""#),
    ("quic.certificate.key_file", r#""""#),
    ("websocket.enabled", "true"),
    ("websocket.address", r#""127.0.0.1:8092""#),
    ("websocket.read_buffer_size", ""),
    ("websocket.write_buffer_size", ""),
    ("websocket.max_write_buffer_size", ""),
    ("websocket.max_message_size", ""),
    ("websocket.max_frame_size", ""),
    ("websocket.accept_unmasked_frames", "false"),
    ("websocket.tls.enabled", "false"),
    ("websocket.tls.self_signed", "true"),
    ("websocket.tls.cert_file", r#""core/certs/iggy_cert.pem""#),
    ("websocket.tls.key_file", r#""core/certs/iggy_key.pem""#),
    ("http.enabled", "true"),
    ("http.address", r#""127.0.0.1:3000""#),
    ("http.max_request_size", r#""2 MB""#),
    ("http.web_ui", "false"),
    ("http.tls.enabled", "false"),
    ("http.cors.enabled", "true"),
    (
        "http.cors.allowed_methods",
        r#"["GET", "POST", "PUT", "DELETE"]"#,
    ),
    ("http.cors.allowed_origins", r#"["*"]"#),
    (
        "http.cors.allowed_headers",
        r#"["content-type", "authorization"]"#,
    ),
    ("http.cors.exposed_headers", r#"["iggy-view"]"#),
    ("http.cors.allow_credentials", "false"),
    ("http.cors.allow_private_network", "false"),
    ("http.metrics.enabled", "true"),
    ("http.metrics.endpoint", r#""/metrics""#),
    ("http.jwt.algorithm", r#""HS256""#),
    ("http.jwt.issuer", r#""iggy.apache.org""#),
    ("http.jwt.audience", r#""iggy.apache.org""#),
    ("http.jwt.valid_issuers", r#"["iggy.apache.org"]"#),
    ("http.jwt.valid_audiences", r#"["iggy.apache.org"]"#),
    ("http.jwt.access_token_expiry", r#""1 h""#),
    ("http.jwt.clock_skew", r#""5 s""#),
    ("http.jwt.not_before", r#""0 s""#),
    ("http.jwt.encoding_secret", r#""""#),
    ("http.jwt.decoding_secret", r#""""#),
    ("http.jwt.use_base64_secret", "false"),
    ("heartbeat.enabled", "true"),
    ("heartbeat.interval", r#""30 s""#),
    ("consumer_group.rebalancing_timeout", r#""30s""#),
    ("personal_access_token.max_tokens_per_user", "100"),
    ("personal_access_token.cleaner.enabled", "true"),
    ("personal_access_token.cleaner.interval", r#""1 m""#),
    ("data_maintenance.messages.cleaner_enabled", "true"),
    ("data_maintenance.messages.interval", r#""1 m""#),
    ("sharding.cpu_allocation", r#""numa:auto""#),
    ("sharding.pin_cores", "true"),
    ("sharding.inbox_capacity", "1024"),
    ("sharding.reply_inbox_capacity", "1024"),
    ("sharding.shutdown_drain_timeout", r#""10 s""#),
    ("sharding.shutdown_poll_interval", r#""50 ms""#),
    ("sharding.shutdown_join_timeout", r#""30 s""#),
    ("sharding.reconcile_periodic_interval", r#""1 s""#),
    ("logging.path", r#""logs""#),
    ("logging.level", r#""info""#),
    ("logging.file_enabled", "true"),
    ("logging.max_file_size", r#""500 MB""#),
    ("logging.max_total_size", r#""4 GB""#),
    ("logging.rotation_check_interval", r#""1 h""#),
    ("logging.retention", r#""7 days""#),
    ("telemetry.enabled", "false"),
    ("telemetry.service_name", r#""iggy""#),
    ("telemetry.logs.transport", r#""grpc""#),
    (
        "telemetry.logs.endpoint",
        r#""http://localhost:7281/v1/logs""#,
    ),
    ("telemetry.traces.transport", r#""grpc""#),
    (
        "telemetry.traces.endpoint",
        r#""http://localhost:7281/v1/traces""#,
    ),
    ("encryption.enabled", "false"),
    ("encryption.key", r#""""#),
    ("memory_pool.enabled", "true"),
    ("memory_pool.size", r#""4 GiB""#),
    ("memory_pool.bucket_capacity", "8192"),
];

/// A file with one value laid over it.
fn with(base: &str, key: &str, value: &str) -> String {
    let parsed: Table = toml::from_str(&format!("value = {value}")).expect(value);
    let mut file: Table = toml::from_str(base).expect("a file");
    layers::put(&mut file, key, parsed["value"].clone());
    toml::to_string(&file).expect("a file")
}

#[test]
fn the_chapter_and_the_program_know_the_same_keys() {
    let known: Vec<&str> = schema::keys()
        .filter(|key| key.entry().is_none())
        .map(|key| key.path)
        .collect();
    for (key, default) in DEFAULTS {
        let found = schema::find(key).unwrap_or_else(|| panic!("{key} is not known"));
        assert_eq!(found.default, *default, "{key}");
    }
    for key in known {
        // The chapter names these two in one breath with the certificate of TCP.
        let paired = key.starts_with("http.tls.");
        let listed = DEFAULTS.iter().any(|(listed, _)| *listed == key);
        assert!(listed || paired, "{key} is not in the chapter");
    }
}

#[test]
fn every_key_is_accepted_with_its_default() {
    for (key, default) in DEFAULTS.iter().filter(|(_, default)| !default.is_empty()) {
        let text = with("", key, default);
        let checked = Config::check(&text, &Variables::default());
        assert_eq!(checked.problems, [], "{key} = {default}");
        let same = checked.config.unwrap().effective == Config::parse("").unwrap().effective;
        assert!(same, "{key} = {default} changes something");
    }
}

#[test]
fn every_wrong_value_is_refused_by_its_rule() {
    for (key, value, rule) in REFUSED {
        let text = with(CLUSTER, key, value);
        let checked = Config::check(&text, &Variables::default());
        let found = checked
            .problems
            .iter()
            .find(|problem| problem.rule.contains(rule));
        let found = found.unwrap_or_else(|| {
            panic!("{key} = {value}: \"{rule}\" not in {:?}", checked.problems);
        });
        // A missing secret is the fault of the switch that wants it.
        let cause = found.key == *key || found.rule.contains("mandatory");
        assert!(cause, "{key} = {value}: {found}");
        let Place::Line(line) = found.place else {
            panic!("{key} = {value}: no line: {found}");
        };
        let name = key.rsplit('.').next().unwrap();
        let shown = text.lines().nth(line - 1).unwrap();
        assert!(
            shown.contains(name) || found.key != *key,
            "{key}: line {line} is {shown}"
        );
    }
}

#[test]
fn the_edges_of_the_rules_are_accepted() {
    for (key, value) in ACCEPTED {
        let text = with(CLUSTER, key, value);
        let checked = Config::check(&text, &Variables::default());
        assert_eq!(checked.problems, [], "{key} = {value}");
    }
}

#[test]
fn relations_between_keys() {
    let both = |pairs: &[(&str, &str)]| {
        pairs.iter().fold(CLUSTER.to_owned(), |text, (key, value)| {
            with(&text, key, value)
        })
    };
    let outcome = |pairs: &[(&str, &str)]| {
        let checked = Config::check(&both(pairs), &Variables::default());
        checked.problems.first().map(|problem| problem.key.clone())
    };
    let heartbeat = ("cluster.heartbeat_timeout", r#""2s""#);
    let commit = "cluster.commit_broadcast_interval";
    assert_eq!(outcome(&[heartbeat, (commit, r#""500ms""#)]), None);
    assert_eq!(
        outcome(&[heartbeat, (commit, r#""501ms""#)]).as_deref(),
        Some("cluster.heartbeat_timeout")
    );
    let queue = ("message_bus.peer_queue_capacity", "256");
    assert!(outcome(&[("cluster.repair_chunk_max", "256"), queue]).is_some());
    assert_eq!(outcome(&[("cluster.repair_chunk_max", "255"), queue]), None);
    // Raising the frame size alone is refused by the artifact floor.
    let bus = ("message_bus.max_message_size", r#""65 MiB""#);
    assert_eq!(
        outcome(&[bus]).as_deref(),
        Some("partition.transfer_artifact_bytes_max")
    );
    let artifact = ("partition.transfer_artifact_bytes_max", r#""1089 MiB""#);
    assert_eq!(outcome(&[bus, artifact]), None);
    let depth = ("metadata.prepare_queue_depth", "65");
    assert!(outcome(&[depth, ("metadata.journal_slots", "259")]).is_some());
    assert_eq!(outcome(&[depth, ("metadata.journal_slots", "260")]), None);
}

#[test]
fn a_wildcard_listener_needs_an_address_to_tell_without_clustering() {
    let wildcard = "[tcp]\naddress = \"0.0.0.0:8090\"\n";
    let problem = Config::check(wildcard, &Variables::default())
        .problems
        .remove(0);
    assert_eq!(problem.key, "node.advertised_address");
    let told = format!("{wildcard}[node]\nadvertised_address = \"node.example\"\n");
    assert_eq!(Config::check(&told, &Variables::default()).problems, []);
    let clustered = with(CLUSTER, "tcp.address", "\"0.0.0.0:8090\"");
    assert_eq!(
        Config::check(&clustered, &Variables::default()).problems,
        []
    );
    // The first listener that is on decides.
    let off = "[tcp]\nenabled = false\naddress = \"0.0.0.0:8090\"\n";
    assert_eq!(Config::check(off, &Variables::default()).problems, []);
}

#[test]
fn the_minimal_example_of_the_chapter_needs_its_secret_and_nothing_else() {
    let text = r#"
path = "/var/lib/node"
[tcp]
address = "0.0.0.0:8090"
[quic]
enabled = false
[http]
enabled = false
[websocket]
enabled = false
[cluster]
enabled = true
name = "iggy-cluster"
[cluster.auth]
enabled = true
[[cluster.nodes]]
name = "n0"
ip = "10.0.0.10"
replica_id = 0
ports = { tcp = 8090, tcp_replica = 9090 }
[[cluster.nodes]]
name = "n1"
ip = "10.0.0.11"
replica_id = 1
ports = { tcp = 8090, tcp_replica = 9090 }
"#;
    let problems = Config::check(text, &Variables::default()).problems;
    let keys: Vec<&str> = problems
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    assert_eq!(keys, ["cluster.auth.shared_secret"]);
    let secret = "0123456789abcdef0123456789abcdef".to_owned();
    let name = "IGGY_CLUSTER_AUTH_SHARED_SECRET".to_owned();
    let variables = Variables::of([(name, secret)]);
    assert_eq!(Config::check(text, &variables).problems, []);
}
