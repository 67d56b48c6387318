//! Where values come from: the file, the environment above it, the defaults below; and what is said
//! of keys nobody knows.

use crate::config::*;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    Variables::of(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn checked(text: &str, pairs: &[(&str, &str)]) -> Checked {
    Config::check(text, &variables(pairs))
}

fn only_problem(text: &str, pairs: &[(&str, &str)]) -> Problem {
    let mut problems = checked(text, pairs).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_defaults() {
    let text = "path = \"file\"\n[heartbeat]\ninterval = \"20s\"\n";
    let pairs = [
        ("IGGY_PATH", "environment"),
        ("IGGY_MESSAGE_BUS_MAX_MESSAGE_SIZE", "67108864"),
        ("IGGY_TCP_ENABLED", "FALSE"),
        ("IGGY_SHARDING_CPU_ALLOCATION", "1"),
        ("IGGY_HTTP_CORS_ALLOWED_METHODS", "[GET, \"PUT\"]"),
        ("IGGY_HEARTBEAT_INTERVAL", ""),
        ("IGGY_ROOT_USERNAME", "not a key"),
        ("IGGY_KAFKA_ANYTHING", "not a key"),
        ("OTHER_PATH", "not ours"),
    ];
    let checked = checked(text, &pairs);
    assert_eq!(checked.problems, []);
    let config = checked.config.unwrap();
    assert_eq!(config.path, "environment");
    assert_eq!(config.message_bus.max_message_size.0, 64 << 20);
    assert!(!config.tcp.enabled);
    assert_eq!(config.sharding.cpu_allocation, "1");
    assert_eq!(config.http.cors.allowed_methods, ["GET", "PUT"]);
    assert_eq!(
        config.heartbeat.interval.ticks(),
        2_000,
        "an empty variable is unset"
    );
}

#[test]
fn a_text_that_reads_as_something_else_is_refused_and_the_variable_named() {
    let cases = [
        ("IGGY_CLUSTER_NAME", "1", "cluster.name", "string"),
        ("IGGY_CLUSTER_NAME", "true", "cluster.name", "string"),
        (
            "IGGY_CLUSTER_SUPERBLOCK_WEDGED_FATAL_TIMEOUT",
            "0",
            "cluster.superblock_wedged_fatal_timeout",
            "string",
        ),
        (
            "IGGY_CLUSTER_AUTH_SHARED_SECRET",
            "12345678901234567890123456789012",
            "cluster.auth.shared_secret",
            "no secret may be",
        ),
        ("IGGY_TCP_ENABLED", "yes", "tcp.enabled", "true or false"),
        (
            "IGGY_METADATA_JOURNAL_SLOTS",
            "many",
            "metadata.journal_slots",
            "whole number",
        ),
        (
            "IGGY_METADATA_JOURNAL_SLOTS",
            "255",
            "metadata.journal_slots",
            "256",
        ),
        ("IGGY_NONSENSE", "1", "IGGY_NONSENSE", "no key"),
        ("IGGY_SYSTEM_PATH", "x", "IGGY_SYSTEM_PATH", "SYSTEM_"),
    ];
    for (name, value, key, rule) in cases {
        let problem = only_problem("", &[(name, value)]);
        assert_eq!(problem.place, Place::Variable(name.to_owned()));
        assert_eq!(problem.key, key);
        assert!(problem.rule.contains(rule), "{problem}");
        assert!(!problem.to_string().contains("1234567890"), "{problem}");
    }
    let wedged = ("IGGY_CLUSTER_SUPERBLOCK_WEDGED_FATAL_TIMEOUT", "disabled");
    assert_eq!(checked("", &[wedged]).problems, []);
}

#[test]
fn one_variable_of_the_roster_replaces_all_of_it() {
    let file = "[quic]\nenabled = false\n[http]\nenabled = false\n[websocket]\nenabled = false\n\
                [cluster]\nenabled = true\n\
                [[cluster.nodes]]\nname = \"file\"\nip = \"10.0.0.9\"\nreplica_id = 0\n\
                ports = { tcp = 8090, tcp_replica = 9090 }\n";
    let roster = [
        ("IGGY_CLUSTER_NODES_0_NAME", "a"),
        ("IGGY_CLUSTER_NODES_0_IP", "10.0.0.1"),
        ("IGGY_CLUSTER_NODES_0_REPLICA_ID", "0"),
        ("IGGY_CLUSTER_NODES_0_PORTS_TCP", "8090"),
        ("IGGY_CLUSTER_NODES_0_PORTS_TCP_REPLICA", "9090"),
        (
            "IGGY_CLUSTER_NODES_0_ADVERTISED_ADDRESSES_0_CLIENT_CIDR",
            "10.0.0.0/8",
        ),
        (
            "IGGY_CLUSTER_NODES_0_ADVERTISED_ADDRESSES_0_ADDRESS",
            "a.example",
        ),
    ];
    let config = checked(file, &roster);
    assert_eq!(config.problems, []);
    let nodes = config.config.unwrap().cluster.nodes;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].name, "a");
    assert_eq!(nodes[0].advertised_addresses[0].address, "a.example");
    let problems = checked(file, &roster[..1]).problems;
    let missing: Vec<&str> = problems
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    assert_eq!(
        missing,
        [
            "cluster.nodes[0].ip",
            "cluster.nodes[0].replica_id",
            "cluster.nodes[0].ports.tcp",
            "cluster.nodes[0].ports.tcp_replica"
        ]
    );
    let skipped = ("IGGY_CLUSTER_NODES_2_NAME", "c");
    let problems = checked(file, &[&roster[..], &[skipped]].concat()).problems;
    assert!(
        problems
            .iter()
            .any(|problem| problem.key == "cluster.nodes[1].name")
    );
}

#[test]
fn every_problem_is_found_with_its_line() {
    let text = "nonsense = 1\n\n[cluster]\nenabled = true\nheartbeat_timeout = \"1s\"\n\
                repair_chunk_max = \"many\"\n\n[tcp]\naddress = \"localhost:8090\"\n";
    let problems = checked(text, &[]).problems;
    let found: Vec<(Place, &str)> = problems
        .iter()
        .map(|problem| (problem.place.clone(), problem.key.as_str()))
        .collect();
    for expected in [
        (Place::Line(1), "nonsense"),
        (Place::Line(5), "cluster.heartbeat_timeout"),
        (Place::Line(6), "cluster.repair_chunk_max"),
        (Place::Line(9), "tcp.address"),
        (Place::Line(3), "cluster.nodes"),
    ] {
        assert!(found.contains(&expected), "{expected:?} not in {found:?}");
    }
    let heartbeat = &problems
        .iter()
        .find(|problem| problem.key.ends_with("_timeout"))
        .unwrap();
    assert_eq!(
        heartbeat.to_string(),
        "line 5: cluster.heartbeat_timeout = \"1s\": must be at least 2s"
    );
}

#[test]
fn keys_nobody_knows() {
    for (text, key) in [
        ("nonsense = 1", "nonsense"),
        ("[nonsense]", "nonsense"),
        ("[cluster]\ntypo = 1", "cluster.typo"),
        ("[cluster.auth]\ntypo = 1", "cluster.auth.typo"),
        ("[cluster.tls]\nca = \"typo\"", "cluster.tls.ca"),
        (
            "[cluster.coordinator]\ntypo = 1",
            "cluster.coordinator.typo",
        ),
    ] {
        let problem = only_problem(text, &[]);
        assert_eq!(
            (problem.key.as_str(), problem.rule.as_str()),
            (key, "there is no such key")
        );
    }
    for (text, key, instead) in [
        ("[system]\npath = \"x\"", "system", "root of the file"),
        (
            "[partition]\nenforce_fsync = true",
            "partition.enforce_fsync",
            "durability",
        ),
        (
            "[segment]\nsize = \"1 GiB\"",
            "segment.size",
            "segment_size",
        ),
        ("[tcp.socket]\nnodelay = true", "tcp.socket", "removed"),
        (
            "[message_saver]\nenabled = true",
            "message_saver",
            "removed",
        ),
    ] {
        let problem = only_problem(text, &[]);
        assert_eq!(problem.key, key);
        assert!(problem.rule.contains(instead), "{problem}");
    }
    let checked = checked("[heartbeat]\nfuture = 1\n[recovery]\nx = 1\n", &[]);
    assert_eq!(checked.problems, []);
    let warnings = checked.config.unwrap().warnings.join("\n");
    assert!(warnings.contains("heartbeat.future"), "{warnings}");
    assert!(warnings.contains("[recovery]"), "{warnings}");
}

#[test]
fn keys_without_effect_are_named_when_they_are_said() {
    let quiet = "[quic]\nenabled = false\n";
    assert!(Config::parse(quiet).unwrap().warnings.is_empty());
    let loud = format!("{quiet}[memory_pool]\nenabled = false\n[sharding]\npin_cores = true\n");
    let warnings = Config::parse(&loud).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "the other has its default: {warnings:?}");
    assert!(warnings[0].starts_with("memory_pool.enabled has no effect"));
    let warnings = Config::parse("").unwrap().warnings.join("\n");
    assert!(warnings.contains("quic.enabled"), "{warnings}");
}

#[test]
fn the_example_checks_clean_and_changes_nothing() {
    let text = example();
    let checked = checked(&text, &[]);
    assert_eq!(checked.problems, []);
    let config = checked.config.unwrap();
    assert_eq!(config.effective, Config::parse("").unwrap().effective);
    for key in schema::keys() {
        let name = key.path.rsplit("[].").next().unwrap();
        let name = if name == key.path {
            key.path.rsplit('.').next().unwrap()
        } else {
            name
        };
        assert!(text.contains(name), "{} is not in the example", key.path);
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "narrow lines"
    );
}

#[test]
fn what_is_in_effect_reads_back() {
    let config = Config::parse("[heartbeat]\ninterval = \"7s\"\n").unwrap();
    let again = Config::parse(&config.effective_text()).unwrap();
    assert_eq!(again.effective, config.effective);
    assert_eq!(again.heartbeat.interval.ticks(), 700);
}

#[test]
fn the_env_file_lies_below_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.env");
    std::fs::write(
        &path,
        "# comment\nIGGY_PATH=below\nIGGY_TCP_ENABLED=\"false\"\n",
    )
    .unwrap();
    let own = variables(&[
        ("IGGY_ENV_PATH", path.to_str().unwrap()),
        ("IGGY_PATH", "above"),
    ]);
    let all = own.with_env_file().unwrap();
    assert_eq!(all.get("IGGY_PATH"), Some("above"));
    assert_eq!(all.get("IGGY_TCP_ENABLED"), Some("false"));
    std::fs::write(&path, "IGGY_PATH='unfinished\n").unwrap();
    let broken = variables(&[("IGGY_ENV_PATH", path.to_str().unwrap())]);
    assert!(matches!(
        broken.with_env_file(),
        Err(ConfigError::DotEnv { .. })
    ));
    let missing = variables(&[("IGGY_ENV_PATH", "/nowhere/at/all.env")]);
    assert!(
        missing.with_env_file().is_ok(),
        "a missing file is no error"
    );
}
