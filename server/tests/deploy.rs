//! What lies in `deploy/` against the binary: every flag is one it has, every variable and every
//! key of the configuration is one it reads, and every file that is named is where it should be.

use std::fs;
use std::path::{Path, PathBuf};

use biplane_server::cli::{Cli, Command, ServeArgs};
use biplane_server::config::{Config, Identity, Variables};
use clap::Parser as _;

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a JSON list behind `start` on the only line that has it.
fn list(text: &str, start: &str) -> Vec<String> {
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(start))
        .collect();
    let [line] = lines[..] else {
        panic!("one line with {start}: {lines:?}");
    };
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn served(words: &[String]) -> ServeArgs {
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    match cli.command {
        Some(Command::Serve(args)) => args,
        other => panic!("{words:?} is {other:?}"),
    }
}

/// The entry point of the image with the arguments of one service of the compose file.
fn service(compose: &str, node: usize) -> ServeArgs {
    let from = compose
        .find(&format!("\n  node-{node}:\n"))
        .expect("the service");
    let rest = &compose[from + 1..];
    let until = rest.find("\n  node-").or(rest.find("\nvolumes:"));
    let text = &rest[..until.expect("an end")];
    let mut words = list(&deploy("Dockerfile"), "ENTRYPOINT ");
    words.extend(list(text, "command: "));
    served(&words)
}

/// The configuration in the compose file, and the variables its nodes get, with values in place of
/// those that the operator exports.
fn configuration(compose: &str) -> (String, Variables) {
    let (_, content) = compose
        .split_once("    content: |\n")
        .expect("a configuration");
    let lines = content
        .lines()
        .map(|line| match line.strip_prefix("      ") {
            Some(line) => line,
            None if line.trim().is_empty() => "",
            None => panic!("{line} is not part of it"),
        });
    let text = lines.collect::<Vec<_>>().join("\n");
    let (_, environment) = compose.split_once("  environment:\n").expect("variables");
    let pairs = environment
        .lines()
        .take_while(|line| line.starts_with("    "))
        .map(|line| {
            let (name, value) = line.trim().split_once(": ").expect("name and value");
            let value = if value.starts_with("${") {
                "0123456789abcdef0123456789abcdef"
            } else {
                value
            };
            (name.to_owned(), value.to_owned())
        });
    (text, Variables::of(pairs))
}

#[test]
fn the_compose_file_starts_three_nodes_that_fit_together() {
    let compose = deploy("compose.yaml");
    let (text, variables) = configuration(&compose);
    for name in [
        "IGGY_CLUSTER_AUTH_SHARED_SECRET",
        "IGGY_ROOT_USERNAME",
        "IGGY_ROOT_PASSWORD",
    ] {
        assert!(variables.get(name).is_some(), "{name}");
    }
    let checked = Config::check(&text, &variables);
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    let config = checked.config.expect("a configuration");
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    for node in 0..3 {
        let args = service(&compose, node);
        assert_eq!(args.replica_id.map(usize::from), Some(node));
        assert_eq!(args.data, Some(PathBuf::from("/var/lib/biplane")));
        let file = args.config.expect("a file");
        let target = format!("target: {}", file.display());
        assert!(compose.contains(&target), "{target}");
        let identity = Identity::new(&config, args.replica_id).expect("a member");
        let own = &config.cluster.nodes[node];
        let ip = format!("ipv4_address: {} }}", own.ip);
        assert!(compose.contains(&ip), "{ip}");
        for port in [own.ports.tcp, own.ports.http] {
            let mapped = format!("127.0.0.1:{port}:{port}");
            assert!(compose.contains(&mapped), "{mapped}");
        }
        let http = identity.http_listen_address(&config).expect("an address");
        assert!(
            http.ip().is_unspecified(),
            "{http} is not reached from outside"
        );
        assert_eq!(http.port(), own.ports.http);
    }
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_tree() {
    let dockerfile = deploy("Dockerfile");
    let toolchain =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../rust-toolchain.toml"))
            .expect("the toolchain");
    let (_, rest) = toolchain.split_once("channel = \"").expect("a channel");
    let channel: String = rest.chars().take_while(|letter| *letter != '"').collect();
    let mut numbers = channel.split('.');
    let minor = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    let from = format!("FROM rust:{}-slim", minor.join("."));
    assert!(dockerfile.contains(&from), "{from} in\n{dockerfile}");
    let words = list(&dockerfile, "ENTRYPOINT ");
    assert_eq!(words[0], "/usr/local/bin/biplane");
    let args = served(&words);
    let volume = format!("VOLUME {}", args.data.expect("a folder").display());
    assert!(dockerfile.contains(&volume), "{volume}");
    let ignored = deploy("Dockerfile.dockerignore");
    assert!(ignored.lines().any(|line| line == "**/target"));
}

#[test]
fn the_unit_starts_the_node_it_is_named_after() {
    let unit = deploy("biplane@.service").replace("\\\n", " ");
    let setting = |name: &str| {
        let mut lines = unit.lines().filter_map(|line| line.strip_prefix(name));
        let first = lines.next().unwrap_or_else(|| panic!("{name} is missing"));
        assert!(lines.next().is_none(), "{name} twice");
        first.to_owned()
    };
    let line = setting("ExecStart=").replace("%i", "2");
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[0], "/usr/local/bin/biplane");
    let args = served(&words);
    assert_eq!(args.replica_id, Some(2));
    assert_eq!(
        args.config,
        Some(PathBuf::from("/etc/biplane/cluster.toml"))
    );
    // Below what systemd makes for the user, since the rest of the file system is read-only.
    let state = Path::new("/var/lib").join(setting("StateDirectory="));
    let data = args.data.expect("a folder");
    assert!(data.starts_with(&state), "{}", data.display());
    assert_eq!(setting("ProtectSystem="), "strict");
    // What the comment says to put into the file of variables is read from there.
    for name in [
        "IGGY_ROOT_USERNAME",
        "IGGY_ROOT_PASSWORD",
        "IGGY_CLUSTER_AUTH_SHARED_SECRET",
    ] {
        assert!(unit.contains(name), "{name}");
    }
}
