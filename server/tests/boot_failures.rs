//! Nodes that cannot start: the last line of each says why, and what to do.
//!
//! The binary is run as an operator runs it, once for every row of a table. What is looked at is
//! the end of what it prints, and its exit status.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with a configuration and perhaps the data of a node that has run.
struct Scene {
    folder: tempfile::TempDir,
}

/// How a node is started: more arguments, and more environment.
#[derive(Default)]
struct Start {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// Run through this shell script, which ends with `exec "$@"`.
    shell: Option<&'static str>,
    /// As somebody who owns nothing.
    as_nobody: bool,
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Lines of a configuration without listeners that could be in somebody's way.
fn single(more: &str) -> String {
    format!(
        "[tcp]\naddress = \"127.0.0.1:0\"\n[http]\nenabled = false\n\
         [websocket]\nenabled = false\n[quic]\nenabled = false\n{more}"
    )
}

fn clustered(name: &str, auth: &str) -> String {
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let mut text = single(&format!(
        "[cluster]\nenabled = true\nname = \"{name}\"\n[cluster.auth]\nenabled = true\n{auth}\n"
    ));
    for node in 0..3 {
        let (tcp, replica) = (ports[node], ports[node + 3]);
        text.push_str(&format!(
            "[[cluster.nodes]]\nname = \"n{node}\"\nreplica_id = {node}\nip = \"127.0.0.1\"\n\
             ports = {{ tcp = {tcp}, tcp_replica = {replica} }}\n"
        ));
    }
    text
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Scene {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("node.toml"), config).expect("the file");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, start: &Start) -> Command {
        let program = env!("CARGO_BIN_EXE_biplane");
        let mut command = match start.shell {
            Some(script) => {
                let mut command = Command::new("sh");
                command.args(["-c", script, "sh", program]);
                command
            }
            None => Command::new(program),
        };
        command.arg("serve");
        if !start.arguments.iter().any(|word| word == "--config") {
            command.arg("--config").arg(self.path("node.toml"));
        }
        if !start.arguments.iter().any(|word| word == "--data") {
            command.arg("--data").arg(self.path("data"));
        }
        command
            .args(&start.arguments)
            .env_clear()
            .envs(start.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        if start.as_nobody {
            command.uid(65_534).gid(65_534);
        }
        command
    }

    /// Runs a node that ends by itself.
    fn fails(&self, start: &Start) -> Output {
        let child = self
            .command(start)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let id = child.id();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        match ended.recv_timeout(Duration::from_secs(30)) {
            Ok(output) => output.expect("the process ends"),
            Err(_) => {
                let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
                panic!("the node serves, or hangs");
            }
        }
    }

    /// Runs a node until it has data, and kills it.
    fn has_run(&self, start: &Start) {
        let mut child = self
            .command(start)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let begun = Instant::now();
        let ready = self.path("data/runtime/current_config.toml");
        let superblock = self.path("data/metadata/superblock.a");
        while !(ready.exists() && superblock.exists()) {
            assert!(begun.elapsed() < Duration::from_secs(30), "no data is made");
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }
}

/// What the node says at its end: an error with these parts, and advice with those.
fn assert_end(what: &str, output: &Output, error_parts: &[&str], advice_parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{what}: {text}");
    let line = text.lines().next_back().expect("a line");
    let line = line.strip_prefix("biplane: ").expect(line);
    let (error, advice) = line.split_once(". What to do: ").expect(line);
    println!("{what}\n    {error}\n    {advice}");
    for part in error_parts {
        assert!(error.contains(part), "{what}: {part} in {error}");
    }
    for part in advice_parts {
        assert!(advice.contains(part), "{what}: {part} in {advice}");
    }
    assert!(!text.contains("panicked"), "{what}: {text}");
    assert!(!text.contains(SECRET), "{what}: the secret is told");
}

fn arguments(words: &[&str]) -> Start {
    Start {
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Start::default()
    }
}

fn member(id: &str) -> Start {
    arguments(&["--replica-id", id, "--with-default-root-credentials"])
}

#[test]
fn a_configuration_that_is_not_right() {
    let scene = Scene::new(&single(""));
    let none = arguments(&["--config", "nowhere.toml"]);
    let output = scene.fails(&none);
    assert_end("no file", &output, &["nowhere.toml"], &["config example"]);
    for (what, text, parts) in [
        ("no TOML", "[tcp\n".to_owned(), ["line 1", "node.toml"]),
        (
            "an unknown key",
            single("[tpc]\nenabled = true\n"),
            ["tpc", "line 9"],
        ),
        (
            "a wrong value",
            single("[heartbeat]\ninterval = \"soon\"\n"),
            ["heartbeat.interval", "soon"],
        ),
        (
            "something that is not served",
            single("[encryption]\nenabled = true\n"),
            ["encryption", "line"],
        ),
    ] {
        let scene = Scene::new(&text);
        let output = scene.fails(&Start::default());
        assert_end(what, &output, &parts, &["config check"]);
    }
    let scene = Scene::new(&single("[logging]\nlevel = \"a=b=c\"\n"));
    let output = scene.fails(&Start::default());
    assert_end("a level", &output, &["logging.level"], &["info"]);
    let cluster = Scene::new(&clustered("c", &format!("shared_secret = \"{SECRET}\"")));
    let output = cluster.fails(&Start::default());
    assert_end("no id", &output, &["replica-id"], &["command line"]);
    let output = cluster.fails(&member("7"));
    assert_end(
        "an id of nobody",
        &output,
        &["replica-id", "7"],
        &["command line"],
    );
}

#[test]
fn secrets_and_passwords_that_are_missing_or_short() {
    let cluster = Scene::new(&clustered("c", &format!("shared_secret = \"{SECRET}\"")));
    let output = cluster.fails(&arguments(&["--replica-id", "0"]));
    let (name, password) = ("IGGY_ROOT_USERNAME", "IGGY_ROOT_PASSWORD");
    assert_end(
        "no root",
        &output,
        &[name, password],
        &["equal on all nodes"],
    );
    let half = Start {
        environment: vec![(name, "root".to_owned())],
        ..arguments(&["--replica-id", "0"])
    };
    let output = cluster.fails(&half);
    assert_end("half of it", &output, &[name, password], &["set both"]);
    for (what, auth) in [
        ("no secret", ""),
        ("a short secret", "shared_secret = \"short\""),
    ] {
        let cluster = Scene::new(&clustered("c", auth));
        let output = cluster.fails(&member("0"));
        assert_end(what, &output, &["cluster.auth"], &[]);
    }
}

#[test]
fn ports_and_addresses_that_cannot_be_had() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let with = |address: &str| single("").replace("127.0.0.1:0", address);
    let output = Scene::new(&with(&address)).fails(&Start::default());
    assert_end(
        "a port in use",
        &output,
        &[&address],
        &["another process", "port"],
    );
    let http = single("").replace(
        "[http]\nenabled = false",
        &format!("[http]\naddress = \"{address}\""),
    );
    let output = Scene::new(&http).fails(&Start::default());
    assert_end("HTTP in use", &output, &[&address], &["another process"]);
    // An address for documentation: no host has it.
    let output = Scene::new(&with("192.0.2.1:8090")).fails(&Start::default());
    assert_end(
        "not of this host",
        &output,
        &["192.0.2.1"],
        &["none of this host"],
    );
    let tls = single("").replace(
        "[http]\nenabled = false",
        "[http]\naddress = \"127.0.0.1:0\"\n[http.tls]\nenabled = true\n\
         cert_file = \"no.pem\"\nkey_file = \"no.key\"",
    );
    let output = Scene::new(&tls).fails(&Start::default());
    assert_end("no certificate", &output, &["http.tls", "no.pem"], &[]);
}

#[test]
fn data_folders_that_cannot_be_used() {
    let scene = Scene::new(&single(""));
    fs::write(scene.path("data"), "a file").expect("a file");
    let output = scene.fails(&Start::default());
    assert_end("a file", &output, &["data"], &["another data folder"]);

    let scene = Scene::new(&single(""));
    let mut first = scene
        .command(&Start::default())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let begun = Instant::now();
    while !scene.path("data/runtime/current_config.toml").exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = scene.fails(&Start::default());
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    assert_end("in use", &output, &["in use"], &["--data"]);
}

#[test]
fn a_folder_of_somebody_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new(&single(""));
    scene.has_run(&Start::default());
    let start = if rustix::process::geteuid().is_root() {
        // Modes do not stop the administrator; this process becomes nobody, who may enter.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scene.folder.path(), open).expect("a mode");
        Start {
            as_nobody: true,
            ..Start::default()
        }
    } else {
        let closed = fs::Permissions::from_mode(0o500);
        fs::set_permissions(scene.path("data/biplane.lock"), closed).expect("a mode");
        Start::default()
    };
    let output = scene.fails(&start);
    assert_end("not ours", &output, &["data", "denied"], &["chown"]);
}

/// Changes a byte in the middle of what is there.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(path, bytes).expect("the file");
}

#[test]
fn data_that_is_damaged_or_of_another_node() {
    let config = clustered("c", &format!("shared_secret = \"{SECRET}\""));
    let run = || {
        let scene = Scene::new(&config);
        scene.has_run(&member("0"));
        scene
    };
    let scene = run();
    damage(&scene.path("data/metadata/superblock.a"));
    let output = scene.fails(&member("0"));
    let replace = ["move it away", "Replace a dead node", "backup"];
    assert_end("a superblock", &output, &["superblock"], &replace);

    let scene = run();
    let output = scene.fails(&member("1"));
    let foreign = ["another node", "--replica-id"];
    assert_end(
        "the id of another",
        &output,
        &["belongs to replica 0", "this is replica 1"],
        &foreign,
    );

    fs::write(scene.path("node.toml"), config.replace("\"c\"", "\"d\"")).expect("the file");
    let output = scene.fails(&member("0"));
    assert_end(
        "another cluster",
        &output,
        &["belongs to"],
        &["cluster.name"],
    );

    let scene = run();
    damage(&scene.path("data/metadata/root.user"));
    let output = scene.fails(&member("0"));
    assert_end("the root user", &output, &["root.user"], &["copy the file"]);
}

#[test]
fn a_disk_without_room() {
    let scene = Scene::new(&single("[logging]\nfile_enabled = false\n"));
    // A limit on the size of files is to a process what a full disk is.
    let full = Start {
        shell: Some("ulimit -f 0; trap '' XFSZ; exec \"$@\""),
        ..Start::default()
    };
    let output = scene.fails(&full);
    assert_end("no room", &output, &[], &["make room"]);
}
