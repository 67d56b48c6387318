//! The configuration as a whole: a shared file, identities, and the refusals an operator meets.

mod chapter;
mod sources;

use super::*;

const THREE: &str = r#"
path = "data"
[quic]
enabled = false
[http]
enabled = false
[websocket]
enabled = false
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
advertised_address = "One.example.org"
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

fn refusal(text: &str) -> String {
    Config::parse(text)
        .expect_err("must be refused")
        .to_string()
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

#[test]
fn an_empty_file_is_a_single_node_with_the_documented_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.path, "local_data");
    assert_eq!(config.message_bus.max_message_size.0, 67_108_864);
    assert_eq!(config.cluster.heartbeat_timeout.ticks(), 500);
    let identity = Identity::new(&config, None).unwrap();
    assert!(!identity.clustered);
    assert_eq!(identity.replica_count(), 1);
    let own = identity.own();
    assert_eq!(
        (own.name.as_str(), own.advertised.as_str()),
        ("iggy-node", "127.0.0.1")
    );
    assert_eq!((own.ports.tcp, own.ports.websocket), (8090, 8092));
    assert_eq!(
        (own.ports.quic, own.ports.http),
        (0, 3000),
        "QUIC is not served"
    );
    assert_eq!(
        identity.client_listen_address(&config).unwrap().port(),
        8090
    );
    assert_eq!(
        identity.websocket_listen_address(&config).unwrap().port(),
        8092
    );
    assert!(Identity::new(&config, Some(0)).is_ok());
    assert!(Identity::new(&config, Some(1)).is_err());
}

#[test]
fn one_file_serves_every_node_of_a_cluster() {
    let config = Config::parse(THREE).unwrap();
    for id in 0..3u8 {
        let identity = Identity::new(&config, Some(id)).unwrap();
        assert_eq!(identity.replica, ReplicaId(id));
        assert_eq!(identity.replica_count(), 3);
        let replica = identity.own().replica_address.unwrap();
        assert_eq!(replica.port(), 9090 + u16::from(id));
        let listen = identity.client_listen_address(&config).unwrap();
        assert_eq!(listen.port(), 8090 + u16::from(id));
        assert_eq!(identity.own().ports.websocket, 0, "the transport is off");
    }
    let error = Identity::new(&config, Some(3)).unwrap_err().to_string();
    assert!(error.contains("0, 1, 2"), "{error}");
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
    let node_2 = "ip = \"127.0.0.1\"\nreplica_id = 2";
    let other = |ip: &str| THREE.replace(node_2, &format!("ip = \"{ip}\"\nreplica_id = 2"));
    let cases = [
        (
            THREE.replace("\"node-1\"", "\"node-0\""),
            "nodes[1].name",
            "name is used twice",
        ),
        (
            THREE.replace("\"node-1\"", "\" \""),
            "nodes[1].name",
            "must not be blank",
        ),
        (
            THREE.replace("replica_id = 2", "replica_id = 1"),
            "nodes[2].replica_id",
            "replica_id 1 is used twice",
        ),
        (
            THREE.replace("replica_id = 2", "replica_id = 3"),
            "nodes[2].replica_id = 3",
            "must be below the 3 nodes",
        ),
        (
            THREE.replace("tcp = 8091", "tcp = 8090"),
            "nodes[1].ports.tcp",
            "127.0.0.1:8090 is used twice",
        ),
        (
            THREE.replace("tcp = 8091", "tcp = 8080"),
            "nodes[1].ports.tcp",
            "127.0.0.1:8080 is used twice",
        ),
        (
            THREE.replace("tcp_replica = 9091", "tcp_replica = 9090"),
            "nodes[1].ports.tcp_replica",
            "used twice",
        ),
        (
            THREE.replace("tcp = 8091", "tcp = 0"),
            "nodes[1].ports.tcp = 0",
            "must not be 0",
        ),
        (
            THREE.replace("tcp = 8091", "tcp = 65536"),
            "nodes[1].ports.tcp",
            "0..=65535",
        ),
        (
            THREE.replace("tcp = 8091, ", ""),
            "nodes[1].ports.tcp",
            "mandatory in every entry",
        ),
        (other("node-a"), "nodes[2].ip", "literal"),
        (other("0.0.0.0"), "nodes[2].ip", "wildcard"),
        (
            THREE.replace("One.example.org", "1.2.3.4.5"),
            "advertised",
            "neither an IP",
        ),
        (
            THREE.replace("10.1.0.0/16", "10.9.0.0/8"),
            "[1].client_cidr",
            "used twice",
        ),
        (
            THREE.replace("10.1.0.0/16", "10.9.0.0/40"),
            "[1].client_cidr",
            "not a network",
        ),
        (
            THREE.replace("name = \"node-2\"", "name = \"node-2\"\ntypo = 1"),
            "nodes[2].typo",
            "no such key",
        ),
        (
            THREE.replace("[websocket]\nenabled = false", ""),
            "nodes[1].ports.websocket",
            "mandatory while websocket.enabled",
        ),
        (
            "[cluster]\nenabled = true".to_owned(),
            "cluster.nodes",
            "roster is empty",
        ),
        (
            "[cluster]\nnodes = 1".to_owned(),
            "cluster.nodes",
            "[[cluster.nodes]]",
        ),
        (
            format!("{THREE}[cluster.tls]\nenabled = true\nself_signed = true\n"),
            "cluster.tls.enabled",
            "needs cluster.auth",
        ),
        (
            with_auth("[cluster.tls]\nenabled = true\n"),
            "cluster.tls.cert_file",
            "mandatory",
        ),
        (
            with_auth("[cluster.tls]\nenabled = true\ncert_file = \"a\"\nkey_file = \"b\"\n"),
            "cluster.tls.ca_file",
            "mandatory",
        ),
        (
            format!("{THREE}[cluster.auth]\nenabled = true\n"),
            "cluster.auth.shared_secret",
            "mandatory",
        ),
        (
            format!(
                "{THREE}[cluster.auth]\nshared_secret = \"{}\"\n",
                "s".repeat(31)
            ),
            "cluster.auth.shared_secret",
            "at least 32 bytes",
        ),
        (
            format!(
                "{THREE}[cluster.auth]\nshared_secret = \"{0}\"\n\
                 previous_shared_secret = \"{0}\"\n",
                "s".repeat(32)
            ),
            "cluster.auth.previous_shared_secret",
            "must differ",
        ),
    ];
    for (text, key, expected) in cases {
        let message = refusal(&text);
        assert!(
            message.contains(expected),
            "\"{expected}\" not in: {message}"
        );
        assert!(message.contains(key), "\"{key}\" not in: {message}");
        assert!(!message.contains("ssss"), "a secret is quoted: {message}");
    }
}

#[test]
fn two_nodes_tell_no_client_the_same_place() {
    let told = |one: &str, two: &str| {
        format!(
            "[quic]\nenabled = false\n[http]\nenabled = false\n[websocket]\nenabled = false\n\
             [cluster]\nenabled = true\n\
             [[cluster.nodes]]\nname = \"a\"\nip = \"10.0.0.1\"\nreplica_id = 0\n\
             ports = {{ tcp = 8090, tcp_replica = 9090 }}\n{one}\n\
             [[cluster.nodes]]\nname = \"b\"\nip = \"10.0.0.2\"\nreplica_id = 1\n\
             ports = {{ tcp = 8090, tcp_replica = 9090 }}\n{two}\n"
        )
    };
    let default = "advertised_address = \"gate.example\"";
    let selector = |cidr: &str| {
        format!(
            "advertised_addresses = [{{ client_cidr = \"{cidr}\", address = \"gate.example\" }}]"
        )
    };
    let refused = [
        told(default, default),
        told(&selector("10.0.0.0/8"), &selector("10.1.0.0/16")),
        told(default, &selector("10.0.0.0/8")),
        told("advertised_address = \"10.0.0.2\"", ""),
    ];
    for text in refused {
        assert!(refusal(&text).contains("cluster.nodes[1]"), "{text}");
    }
    let own = "advertised_addresses = [{ client_cidr = \"10.0.0.0/7\", address = \"a.example\" }]";
    let accepted = [
        told("", ""),
        told(&selector("10.0.0.0/8"), &selector("11.0.0.0/8")),
        // The clients of the one are told something else by the other.
        told(&format!("{default}\n{own}"), &selector("10.0.0.0/8")),
    ];
    for text in accepted {
        Config::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn a_secret_of_a_wrong_type_is_refused_without_being_quoted() {
    for line in [
        "shared_secret = 271828182845904523",
        "shared_secret = [\"271828182845904523\"]",
        "shared_secret = { a = \"271828182845904523\" }",
        "shared_secret = \"271828182845904523",
        "shared_secret = 271828182845904523xyz",
        "shared_secret \"271828182845904523\"",
    ] {
        let text = format!("[cluster.auth]\nenabled = true\n{line}\n");
        let checked = Config::check(&text, &Variables::default());
        assert!(!checked.problems.is_empty(), "{line}");
        for problem in checked.problems {
            let shown = problem.to_string();
            assert!(!shown.contains("27182818"), "{line}: {shown}");
            assert!(shown.contains("line 3"), "{line}: {shown}");
        }
    }
}

#[test]
fn no_secret_stays_in_what_is_shown() {
    let secret = "s".repeat(40);
    let jwt = format!("[http.jwt]\nencoding_secret = \"{secret}\"\n");
    let mut config = Config::parse(&with_auth(&jwt)).unwrap();
    assert!(!config.effective_text().contains("sss"));
    assert!(!format!("{config:?}").contains("sss"));
    config.forget_secrets();
    assert_eq!(config.cluster.auth.shared_secret, Secret::default());
    assert_eq!(config.http.jwt.encoding_secret, Secret::default());
}
