//! Values that the rules of chapter 09 refuse, with a part of the rule, and values at the edge of
//! what they allow.

/// Three nodes with a port for every transport.
pub(super) const CLUSTER: &str = r#"
[cluster]
enabled = true
[[cluster.nodes]]
name = "n0"
ip = "10.0.0.10"
replica_id = 0
ports = { tcp = 8090, quic = 8080, http = 3000, websocket = 8092, tcp_replica = 9090 }
[[cluster.nodes]]
name = "n1"
ip = "10.0.0.11"
replica_id = 1
ports = { tcp = 8090, quic = 8080, http = 3000, websocket = 8092, tcp_replica = 9090 }
[[cluster.nodes]]
name = "n2"
ip = "10.0.0.12"
replica_id = 2
ports = { tcp = 8090, quic = 8080, http = 3000, websocket = 8092, tcp_replica = 9090 }
"#;

/// Key, value, and a part of the rule that refuses it, in a cluster with every transport on.
pub(super) const REFUSED: &[(&str, &str, &str)] = &[
    ("path", "1", "string"),
    ("path", r#"" ""#, "blank"),
    ("runtime.path", r#""..""#, "folder below"),
    ("runtime.path", r#""/tmp""#, "folder below"),
    ("runtime.path", r#""metadata""#, "folder below"),
    ("runtime.path", r#""streams/x""#, "folder below"),
    ("runtime.path", r#""""#, "folder below"),
    ("cluster.enabled", "1", "true or false"),
    ("cluster.name", r#""  ""#, "blank"),
    ("cluster.heartbeat_timeout", r#""1900ms""#, "at least 2s"),
    ("cluster.heartbeat_timeout", "5", "unit"),
    ("cluster.heartbeat_timeout", r#""5""#, "unit"),
    ("cluster.heartbeat_timeout", r#""-5s""#, "not a duration"),
    (
        "cluster.commit_broadcast_interval",
        r#""0""#,
        "longer than zero",
    ),
    (
        "cluster.prepare_retransmit_interval",
        r#""none""#,
        "longer than zero",
    ),
    (
        "cluster.view_change_retransmit_interval",
        r#""0s""#,
        "longer than zero",
    ),
    (
        "cluster.view_change_status_timeout",
        r#""1999ms""#,
        "at least 4 times",
    ),
    (
        "cluster.request_start_view_retransmit_interval",
        r#""0""#,
        "longer than zero",
    ),
    ("cluster.view_probe_attempts_max", "0", "1..=100"),
    ("cluster.view_probe_attempts_max", "101", "1..=100"),
    ("cluster.view_probe_attempts_max", "-1", "whole number"),
    (
        "cluster.repair_retry_interval",
        r#""0""#,
        "longer than zero",
    ),
    (
        "cluster.repair_gap_debounce_interval",
        r#""0""#,
        "longer than zero",
    ),
    ("cluster.repair_chunk_max", "0", "1..=1024"),
    ("cluster.repair_chunk_max", "1025", "1..=1024"),
    (
        "cluster.superblock_wedged_fatal_timeout",
        r#""29s""#,
        "at least 30s",
    ),
    (
        "cluster.auth.shared_secret",
        r#""0123456789abcdef0123456789abcde""#,
        "32 bytes",
    ),
    ("cluster.auth.shared_secret", "7", "string"),
    ("cluster.auth.enabled", "true", "mandatory"),
    (
        "cluster.auth.previous_shared_secret",
        r#""short""#,
        "32 bytes",
    ),
    ("cluster.tls.enabled", "true", "cluster.auth"),
    ("cluster.nodes", "[]", "empty"),
    ("node.advertised_address", r#""0.0.0.0""#, "wildcard"),
    ("node.advertised_address", r#""::""#, "wildcard"),
    ("node.advertised_address", r#""host:80""#, "neither"),
    ("message_bus.max_batch", "0", "1..=512"),
    ("message_bus.max_batch", "513", "1..=512"),
    ("message_bus.max_message_size", r#""256""#, "above 256"),
    ("message_bus.max_message_size", r#""257 MiB""#, "256 MiB"),
    ("message_bus.max_message_size", "67108864", "string"),
    ("message_bus.max_message_size", r#""unlimited""#, "size"),
    (
        "message_bus.peer_queue_capacity",
        "128",
        "above cluster.repair_chunk_max",
    ),
    ("message_bus.reconnect_period", r#""0""#, "longer than zero"),
    (
        "message_bus.close_peer_timeout",
        r#""0""#,
        "longer than zero",
    ),
    ("message_bus.close_grace", r#""0""#, "longer than zero"),
    ("message_bus.handshake_grace", r#""0""#, "longer than zero"),
    ("metadata.prepare_queue_depth", "0", "1..=127"),
    ("metadata.prepare_queue_depth", "128", "1..=127"),
    ("metadata.journal_slots", "255", "256..=1048576"),
    ("metadata.journal_slots", "1048577", "256..=1048576"),
    ("metadata.clients_table_max", "1", "2..=65536"),
    ("metadata.clients_table_max", "65537", "2..=65536"),
    ("partition.prepare_queue_depth", "0", "1..=127"),
    ("partition.prepare_queue_depth", "128", "1..=127"),
    ("partition.wal_bytes_max", r#""128 MiB""#, "bytes"),
    ("partition.wal_bytes_max", r#""5 GiB""#, "bytes"),
    (
        "partition.wal_bytes_max",
        r#""268435457""#,
        "multiple of 4096",
    ),
    ("partition.dedup_clients_max", "0", "1..=65536"),
    ("partition.dedup_clients_max", "65537", "1..=65536"),
    ("partition.consumer_offsets_max", "0", "1..=262144"),
    ("partition.consumer_offsets_max", "262145", "1..=262144"),
    ("partition.offset_reservation_lease", "0", "1..=16777216"),
    (
        "partition.offset_reservation_lease",
        "16777217",
        "1..=16777216",
    ),
    ("partition.evicted_ring_capacity", "0", "1..=65536"),
    ("partition.evicted_ring_capacity", "65537", "1..=65536"),
    ("partition.evicted_ring_bytes_max", r#""0""#, "bytes"),
    ("partition.evicted_ring_bytes_max", r#""257 MiB""#, "bytes"),
    (
        "partition.transfer_served_cache_bytes_max",
        r#""0""#,
        "bytes",
    ),
    (
        "partition.transfer_served_cache_bytes_max",
        r#""65 GiB""#,
        "bytes",
    ),
    (
        "partition.transfer_artifact_bytes_max",
        r#""1087 MiB""#,
        "1 GiB and",
    ),
    (
        "partition.transfer_artifact_bytes_max",
        r#""65 GiB""#,
        "1 GiB and",
    ),
    ("tcp.address", r#""localhost:8090""#, "literal IP"),
    ("tcp.address", r#""127.0.0.1""#, "IP:PORT"),
    ("quic.address", r#""x""#, "IP:PORT"),
    ("websocket.address", r#""x""#, "IP:PORT"),
    ("http.address", r#""x""#, "IP:PORT"),
    ("quic.max_concurrent_bidi_streams", "0", "1..=4294967295"),
    (
        "quic.max_concurrent_bidi_streams",
        "4294967296",
        "1..=4294967295",
    ),
    ("quic.initial_mtu", r#""1199""#, "1200..=65535"),
    ("quic.initial_mtu", r#""65536""#, "1200..=65535"),
    ("quic.send_window", r#""4611686018427387904""#, "bytes"),
    ("quic.receive_window", r#""4 GiB""#, "bytes"),
    ("quic.stream_receive_window", r#""65 MiB""#, "bytes"),
    ("quic.stream_receive_window", r#""0""#, "bytes"),
    ("quic.keep_alive_interval", "10", "unit"),
    ("websocket.read_buffer_size", r#""0""#, "must not be 0"),
    ("websocket.write_buffer_size", r#""0""#, "must not be 0"),
    ("websocket.write_buffer_size", r#""none""#, "size"),
    (
        "websocket.max_write_buffer_size",
        r#""128 KiB""#,
        "above websocket.write_buffer_size",
    ),
    (
        "websocket.max_message_size",
        r#""65 MiB""#,
        "message_bus.max_message_size",
    ),
    ("websocket.max_message_size", r#""0""#, "must not be 0"),
    (
        "websocket.max_frame_size",
        r#""65 MiB""#,
        "websocket.max_message_size",
    ),
    ("http.max_request_size", r#""257 MiB""#, "bytes"),
    ("http.tls.enabled", r#""yes""#, "true or false"),
    ("http.cors.allowed_origins", r#"["a", "*"]"#, "first entry"),
    ("http.cors.allowed_methods", r#""GET""#, "array of strings"),
    ("http.cors.allow_credentials", "true", "without *"),
    ("http.metrics.endpoint", r#""metrics""#, "start with /"),
    ("http.jwt.algorithm", r#""RS256""#, "HS256"),
    (
        "http.jwt.access_token_expiry",
        r#""server_default""#,
        "server default",
    ),
    ("http.jwt.access_token_expiry", r#""200 years""#, "seconds"),
    ("heartbeat.interval", r#""0""#, "longer than zero"),
    (
        "consumer_group.rebalancing_timeout",
        r#""0""#,
        "longer than zero",
    ),
    ("personal_access_token.max_tokens_per_user", "0", "above 0"),
    (
        "personal_access_token.cleaner.interval",
        r#""0""#,
        "longer than zero",
    ),
    (
        "data_maintenance.messages.interval",
        r#""0""#,
        "longer than zero",
    ),
    ("sharding.cpu_allocation", "0", "number above 0"),
    ("sharding.cpu_allocation", r#""4..4""#, "range"),
    ("sharding.cpu_allocation", r#""numa:speed=1""#, "numa"),
    ("sharding.inbox_capacity", "0", "1..=1048576"),
    ("sharding.reply_inbox_capacity", "1048577", "1..=1048576"),
    ("sharding.shutdown_drain_timeout", r#""0""#, "600s"),
    ("sharding.shutdown_drain_timeout", r#""601s""#, "600s"),
    ("sharding.shutdown_poll_interval", r#""6s""#, "5s"),
    ("sharding.shutdown_poll_interval", r#""0""#, "5s"),
    (
        "sharding.shutdown_join_timeout",
        r#""9s""#,
        "shutdown_drain_timeout",
    ),
    ("sharding.shutdown_join_timeout", r#""901s""#, "900s"),
    ("sharding.reconcile_periodic_interval", r#""31s""#, "30s"),
    ("logging.path", r#""../logs""#, "folder below"),
    ("logging.path", r#""runtime""#, "differ from runtime.path"),
    ("logging.level", r#""""#, "blank"),
    ("logging.max_file_size", r#""5 GB""#, "max_total_size"),
    (
        "logging.rotation_check_interval",
        r#""999ms""#,
        "at least 1s",
    ),
    ("logging.retention", r#""0""#, "at least 1s"),
    ("telemetry.enabled", "true", "must be false"),
    ("encryption.enabled", "true", "must be false"),
    ("memory_pool.size", r#""511 MiB""#, "512 MiB"),
    ("memory_pool.size", r#""536870913""#, "multiple of 4096"),
    ("memory_pool.bucket_capacity", "64", "at least 128"),
    ("memory_pool.bucket_capacity", "8191", "power of two"),
];

/// Key and value that are at the edge of what the same rules allow.
pub(super) const ACCEPTED: &[(&str, &str)] = &[
    ("cluster.heartbeat_timeout", r#""2s""#),
    ("cluster.view_change_status_timeout", r#""2s""#),
    ("cluster.superblock_wedged_fatal_timeout", r#""disabled""#),
    ("cluster.superblock_wedged_fatal_timeout", r#""30s""#),
    (
        "cluster.auth.shared_secret",
        r#""0123456789abcdef0123456789abcdef""#,
    ),
    ("cluster.repair_chunk_max", "255"),
    ("message_bus.peer_queue_capacity", "129"),
    ("message_bus.max_message_size", r#""257""#),
    ("metadata.prepare_queue_depth", "127"),
    ("metadata.journal_slots", "256"),
    ("metadata.clients_table_max", "2"),
    ("partition.wal_bytes_max", r#""134225920""#),
    ("partition.transfer_artifact_bytes_max", r#""1088 MiB""#),
    ("quic.keep_alive_interval", r#""0""#),
    ("websocket.max_write_buffer_size", r#""129 KiB""#),
    ("http.cors.allowed_origins", r#"["*", "a"]"#),
    ("http.jwt.access_token_expiry", r#""never_expire""#),
    ("sharding.cpu_allocation", "4"),
    ("sharding.cpu_allocation", r#""0..4""#),
    ("sharding.cpu_allocation", r#""all""#),
    (
        "sharding.cpu_allocation",
        r#""numa:nodes=0,1;cores=4;no_ht=true""#,
    ),
    ("sharding.shutdown_drain_timeout", r#""30s""#),
    ("logging.max_total_size", r#""0""#),
    ("node.advertised_address", r#""host.example""#),
];
