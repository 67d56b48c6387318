//! The configuration as a whole: a shared file, identities, and the refusals an operator meets.

use super::*;

const THREE: &str = r#"
path = "data"
[cluster]
enabled = true
name = "iggy-cluster"
[[cluster.nodes]]
name = "node-0"
ip = "127.0.0.1"
replica_id = 0
ports = { tcp = 8090, quic = 8080, http = 3000, websocket = 8095, tcp_replica = 9090 }
[[cluster.nodes]]
name = "node-1"
ip = "127.0.0.1"
replica_id = 1
ports = { tcp = 8091, tcp_replica = 9091 }
advertised_address = "one.example.org"
advertised_addresses = [
    { client_cidr = "10.0.0.0/8", address = "10.0.0.1" },
    { client_cidr = "10.1.0.0/16", address = "10.1.0.1" },
]
[[cluster.nodes]]
name = "node-2"
ip = "127.0.0.1"
replica_id = 2
ports = { tcp = 8092, tcp_replica = 9092 }
"#;

/// The shared file with authentication on, and more sections.
fn with_auth(more: &str) -> String {
    let secret = "s".repeat(32);
    format!("{THREE}[cluster.auth]\nenabled = true\nshared_secret = \"{secret}\"\n{more}")
}

#[test]
fn replica_tls_needs_authentication_and_files_or_none() {
    let files = "cert_file = \"a\"\nkey_file = \"b\"\nca_file = \"c\"\n";
    for more in [
        format!("[cluster.tls]\nenabled = true\n{files}"),
        "[cluster.tls]\nenabled = true\nself_signed = true\n".to_owned(),
        "[cluster.tls]\nenabled = false\n".to_owned(),
    ] {
        assert!(Config::parse(&with_auth(&more)).is_ok(), "{more}");
    }
}

fn refusal(text: &str) -> String {
    Config::parse(text)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn an_empty_file_is_a_single_node_with_the_documented_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.path, "local_data");
    assert_eq!(config.message_bus.max_message_size.0, 67_108_864);
    assert_eq!(config.cluster.heartbeat_timeout.ticks(), 500);
    let identity = Identity::new(&config, None).unwrap();
    assert!(!identity.clustered);
    assert_eq!(identity.replica_count(), 1);
    assert_eq!(identity.own().name, "iggy-node");
    assert_eq!(
        identity.client_listen_address(&config).unwrap().port(),
        8090
    );
    assert!(Identity::new(&config, Some(1)).is_err());
}

#[test]
fn one_file_serves_every_node_of_a_cluster() {
    let config = Config::parse(THREE).unwrap();
    for id in 0..3u8 {
        let identity = Identity::new(&config, Some(id)).unwrap();
        assert_eq!(identity.replica, ReplicaId(id));
        assert_eq!(identity.replica_count(), 3);
        assert_eq!(
            identity.own().replica_address.unwrap().port(),
            9090 + u16::from(id)
        );
        let listen = identity.client_listen_address(&config).unwrap();
        assert_eq!(listen.port(), 8090 + u16::from(id));
    }
    assert!(
        Identity::new(&config, Some(3))
            .unwrap_err()
            .to_string()
            .contains("0, 1, 2")
    );
    assert!(Identity::new(&config, None).is_err());
}

#[test]
fn the_most_specific_selector_names_the_address_for_a_client() {
    let config = Config::parse(THREE).unwrap();
    let identity = Identity::new(&config, Some(0)).unwrap();
    let node = identity.member(ReplicaId(1)).unwrap();
    let address = |client: &str| node.address_for(client.parse().unwrap()).to_owned();
    assert_eq!(address("10.1.2.3"), "10.1.0.1");
    assert_eq!(address("10.2.2.3"), "10.0.0.1");
    assert_eq!(address("::ffff:10.2.2.3"), "10.0.0.1");
    assert_eq!(address("192.168.0.1"), "one.example.org");
    assert_eq!(address("fe80::1"), "one.example.org");
}

#[test]
fn refusals_name_the_key() {
    let cases = [
        (
            THREE.replace("\"node-1\"", "\"node-0\""),
            "name is used twice",
        ),
        (
            THREE.replace("replica_id = 2", "replica_id = 1"),
            "replica_id 1 is used twice",
        ),
        (
            THREE.replace("replica_id = 2", "replica_id = 7"),
            "replica_id 7",
        ),
        (
            THREE.replace("tcp = 8091", "tcp = 8090"),
            "127.0.0.1:8090 is used twice",
        ),
        (
            THREE.replace(
                "ip = \"127.0.0.1\"\nreplica_id = 2",
                "ip = \"host\"\nreplica_id = 2",
            ),
            "ip",
        ),
        (
            THREE.replace(
                "ip = \"127.0.0.1\"\nreplica_id = 2",
                "ip = \"0.0.0.0\"\nreplica_id = 2",
            ),
            "wildcard",
        ),
        (
            THREE.replace("one.example.org", "1.2.3.4.5"),
            "neither an IP address",
        ),
        (
            THREE.replace(
                "enabled = true",
                "enabled = true\nheartbeat_timeout = \"1s\"",
            ),
            "at least 2s",
        ),
        (
            THREE.replace("enabled = true", "enabled = true\nheartbeat_timeout = 5"),
            "heartbeat_timeout",
        ),
        (
            THREE.replace("enabled = true", "enabled = true\ntypo = 5"),
            "typo",
        ),
        ("nonsense = 1".to_owned(), "nonsense"),
        ("[cluster]\nenabled = true".to_owned(), "roster is empty"),
        (
            "[cluster.auth]\nenabled = true\n[cluster]\nenabled = true".to_owned(),
            "roster",
        ),
        (
            "[metadata]\nprepare_queue_depth = 128".to_owned(),
            "metadata.prepare_queue_depth",
        ),
        (
            "[metadata]\njournal_slots = 100".to_owned(),
            "metadata.journal_slots",
        ),
        (
            "[message_bus]\nmax_message_size = \"1 GiB\"".to_owned(),
            "max_message_size",
        ),
        (
            "[message_bus]\npeer_queue_capacity = 128".to_owned(),
            "peer_queue_capacity",
        ),
        ("[tcp.tls]\nenabled = 1".to_owned(), "enabled"),
        ("[encryption]\nenabled = true".to_owned(), "encryption"),
        (
            format!("{THREE}[cluster.tls]\nenabled = true\nself_signed = true\n"),
            "needs cluster.auth",
        ),
        (
            with_auth("[cluster.tls]\nenabled = true\n"),
            "cluster.tls.cert_file",
        ),
        (
            with_auth("[cluster.tls]\nenabled = true\ncert_file = \"a\"\nkey_file = \"b\"\n"),
            "cluster.tls.ca_file",
        ),
        (with_auth("[cluster.tls]\nca = \"typo\"\n"), "ca"),
        (
            format!(
                "{THREE}[cluster.auth]\nshared_secret = \"{}\"\n",
                "s".repeat(31)
            ),
            "at least 32 bytes",
        ),
        (
            format!(
                "{THREE}[cluster.auth]\nshared_secret = \"{0}\"\n\
                 previous_shared_secret = \"{0}\"\n",
                "s".repeat(32)
            ),
            "must differ",
        ),
    ];
    for (text, expected) in cases {
        let message = refusal(&text);
        assert!(
            message.contains(expected),
            "\"{expected}\" not in: {message}"
        );
    }
}

#[test]
fn sections_without_effect_are_named() {
    let config = Config::parse("[http]\nenabled = true\n[quic]\naddress = \"x\"").unwrap();
    assert_eq!(config.ignored_sections(), ["quic", "http"]);
}
