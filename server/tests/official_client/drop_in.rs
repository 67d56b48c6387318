//! A user stops the original server and starts this one with the same file, environment and flags:
//! without a subcommand, on ports the system chooses, under a service manager, until SIGTERM.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use iggy::prelude::{Client, ClusterClient, StreamClient};

use crate::support::sdk::connect_as;
use crate::support::{TestFolder, Turn, turn, wait_until};

const START_LIMIT: Duration = Duration::from_secs(20);
/// Its drain has nothing to do; the limit is that of a slow machine.
const STOP_LIMIT: Duration = Duration::from_secs(10);

const FILE: &str = "path = \"data\"\n\
    [tcp]\naddress = \"127.0.0.1:0\"\n\
    [websocket]\naddress = \"127.0.0.1:0\"\n\
    [quic]\nenabled = false\n\
    [http]\nenabled = false\n\
    [heartbeat]\ninterval = \"20s\"\n";

/// A process in a folder of its own, killed and reaped when dropped.
struct Server {
    process: Child,
    data: PathBuf,
}

/// `biplane` with this test's environment and nothing of the caller's.
fn biplane(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biplane"));
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("IGGY_") || name == "RUST_LOG" || name == "NOTIFY_SOCKET" {
            command.env_remove(name);
        }
    }
    command.env("IGGY_ENV_PATH", folder.join("test.env"));
    command
}

impl Server {
    fn start(folder: &Path, mut command: Command) -> Self {
        // What an earlier process wrote would be taken for this one's.
        let current = folder
            .join("data")
            .join("runtime")
            .join("current_config.toml");
        let _ = fs::remove_file(current);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join("node-0.log"))
            .expect("a log");
        let process = command.stderr(log).spawn().expect("the server starts");
        Self {
            process,
            data: folder.join("data"),
        }
    }

    /// The configuration it wrote once it accepted.
    fn current(&mut self) -> toml::Table {
        let path = self.data.join("runtime").join("current_config.toml");
        wait_until("current_config.toml", START_LIMIT, || {
            if let Some(status) = self.process.try_wait().expect("a child can be asked") {
                panic!("it ended: {status}");
            }
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            Ok(text.parse::<toml::Table>().expect("a valid file"))
        })
    }

    fn stop(&mut self) -> Option<i32> {
        let id = self.process.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.expect("kill runs").success());
        wait_until("the end after SIGTERM", STOP_LIMIT, || {
            let status = self.process.try_wait().expect("a child can be asked");
            status
                .map(|status| status.code())
                .ok_or("it runs".to_owned())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn address(current: &toml::Table, section: &str) -> SocketAddr {
    let text = current[section]["address"].as_str().expect("an address");
    text.parse().expect("IP:PORT")
}

fn prepared() -> (Turn, TestFolder) {
    let (turn, folder) = (turn(), TestFolder::new());
    fs::write(folder.path().join("server.toml"), FILE).expect("a file");
    (turn, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_the_environment_and_a_service_manager_are_all_it_takes() {
    let (_turn, folder) = prepared();
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(START_LIMIT)).expect("a limit");
    fs::write(
        folder.path().join("test.env"),
        "IGGY_ROOT_USERNAME=admin\nIGGY_ROOT_PASSWORD=\"from the file\"\n\
         IGGY_HEARTBEAT_INTERVAL=9s\n",
    )
    .expect("a file");
    let start = || {
        let mut command = biplane(folder.path());
        command
            .env("IGGY_CONFIG_PATH", "server.toml")
            .env("IGGY_ROOT_PASSWORD", "secret")
            .env(
                "IGGY_CLUSTER_AUTH_SHARED_SECRET",
                "not shown to anybody, 32 bytes at least",
            )
            .env("NOTIFY_SOCKET", folder.path().join("notify"));
        Server::start(folder.path(), command)
    };
    let told = || {
        let mut message = [0; 256];
        let length = socket
            .recv(&mut message)
            .expect("the service manager is told");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };

    let mut server = start();
    assert!(told().contains("READY=1"));
    let current = server.current();
    let (tcp, websocket) = (address(&current, "tcp"), address(&current, "websocket"));
    assert!(
        tcp.port() != 0 && websocket.port() != 0 && tcp != websocket,
        "{tcp} {websocket}"
    );
    assert_eq!(
        current["heartbeat"]["interval"].as_str(),
        Some("9s"),
        "the variable wins"
    );
    assert!(
        !current.to_string().contains("not shown"),
        "no secret is written"
    );
    let client = connect_as(tcp, "admin", "secret").await.expect("a login");
    let nodes = client.get_cluster_metadata().await.expect("metadata").nodes;
    assert_eq!(nodes.len(), 1);
    assert_eq!(
        nodes[0].endpoints.tcp,
        tcp.port(),
        "clients are told the bound port"
    );
    assert_eq!(nodes[0].endpoints.websocket, websocket.port());
    client.create_stream("kept").await.expect("a stream");
    client.shutdown().await.expect("the client ends");
    let log = server.data.join("logs").join("iggy-server.log");
    let logged = fs::read_to_string(&log).expect("a log file");
    assert!(logged.contains("listening"), "{logged}");
    assert!(!logged.contains("not shown"), "no secret is logged");
    assert_eq!(server.stop(), Some(0), "a clean end");
    assert!(told().contains("STOPPING=1"));

    // Again on the same data: the stream is there, what lay in runtime is not.
    fs::write(server.data.join("runtime").join("left"), "").expect("a file");
    let mut server = start();
    let tcp = address(&server.current(), "tcp");
    assert!(!server.data.join("runtime").join("left").exists());
    let client = connect_as(tcp, "admin", "secret").await.expect("a login");
    assert_eq!(client.get_streams().await.expect("streams").len(), 1);
    client.shutdown().await.expect("the client ends");

    // A second process on the data is refused, whatever it is asked to delete.
    let mut second = biplane(folder.path());
    second.env("IGGY_CONFIG_PATH", "server.toml").arg("--fresh");
    let refused = second.output().expect("it ends");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("in use by another process"),
        "{}",
        stderr(&refused)
    );
    let client = connect_as(tcp, "admin", "secret")
        .await
        .expect("it still serves");
    assert_eq!(client.get_streams().await.expect("streams").len(), 1);
    client.shutdown().await.expect("the client ends");
    assert_eq!(server.stop(), Some(0));

    // With --fresh it is an empty node with other credentials.
    let mut fresh = biplane(folder.path());
    fresh
        .env("IGGY_CONFIG_PATH", "server.toml")
        .env("IGGY_ENV_PATH", folder.path().join("none.env"))
        .args(["--fresh", "--with-default-root-credentials"]);
    let mut server = Server::start(folder.path(), fresh);
    let tcp = address(&server.current(), "tcp");
    let client = connect_as(tcp, "iggy", "iggy").await.expect("a login");
    assert_eq!(client.get_streams().await.expect("streams").len(), 0);
    client.shutdown().await.expect("the client ends");
    assert_eq!(server.stop(), Some(0));
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_boot_that_is_refused_says_why_in_one_line_and_ends_with_status_1() {
    let (_turn, folder) = prepared();
    // Arguments, variables, and what is said.
    type Case = (
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
        &'static str,
    );
    let cases: [Case; 6] = [
        (&[], &[("IGGY_NONSENSE", "1")], "IGGY_NONSENSE"),
        (
            &[],
            &[("IGGY_HEARTBEAT_INTERVAL", "5")],
            "heartbeat.interval",
        ),
        (&["--replica-id", "1"], &[], "only 0 is possible"),
        (&["--config", "missing.toml"], &[], "missing.toml"),
        (&[], &[("IGGY_ROOT_USERNAME", "admin")], "set together"),
        (
            &[],
            &[("IGGY_ENCRYPTION_ENABLED", "true")],
            "encryption.enabled",
        ),
    ];
    for (arguments, variables, expected) in cases {
        let mut command = biplane(folder.path());
        command
            .env("IGGY_CONFIG_PATH", "server.toml")
            .env("RUST_LOG", "off");
        command.args(arguments).envs(variables.iter().copied());
        let output = command.output().expect("it ends");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{expected} not in {said}");
        assert!(said.contains(". What to do: "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn config_check_explains_and_config_example_is_clean() {
    let (_turn, folder) = prepared();
    let run = |arguments: &[&str]| {
        let output = biplane(folder.path())
            .args(arguments)
            .output()
            .expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let (status, example) = run(&["config", "example"]);
    assert_eq!(status, Some(0));
    fs::write(folder.path().join("example.toml"), example).expect("a file");
    let (status, said) = run(&["config", "check", "example.toml"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.ends_with("example.toml: no problem\n"), "{said}");
    let wrong =
        "[heartbeat]\ninterval = 5\n[metadata]\njournal_slots = 1\nprepare_queue_depth = 0\n";
    fs::write(folder.path().join("wrong.toml"), wrong).expect("a file");
    let (status, said) = run(&["config", "check", "wrong.toml"]);
    assert_eq!(status, Some(1));
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("warning"))
        .collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].starts_with("wrong.toml: line 2: heartbeat.interval = 5: must be a string"));
    assert!(lines[1].starts_with("wrong.toml: line 4: metadata.journal_slots = 1: must be 256"));
    assert!(
        lines[2].starts_with("wrong.toml: line 5: metadata.prepare_queue_depth = 0: must be 1")
    );
    assert_eq!(lines[3], "wrong.toml: 3 problems");
    assert_eq!(run(&["config", "check", "missing.toml"]).0, Some(1));
}
