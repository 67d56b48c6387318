//! One `biplane serve` process, the same for every kind of test cluster: its data and its log are
//! in the test's folder, and nothing of the developer's environment reaches it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Timers at the short end of what chapter 09 section 5.2 allows.
pub(crate) const TIMERS: &str = r#"
heartbeat_timeout = "2s"
commit_broadcast_interval = "100ms"
prepare_retransmit_interval = "100ms"
view_change_retransmit_interval = "200ms"
view_change_status_timeout = "2s"
request_start_view_retransmit_interval = "300ms"
repair_retry_interval = "300ms"
repair_gap_debounce_interval = "500ms"
"#;

/// The server of this build.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_biplane"))
}

/// The data folder of a node.
pub(crate) fn data(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("data-{node}"))
}

/// The file a node logs to.
pub(crate) fn log(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("node-{node}.log"))
}

/// Starts `command`, which runs the server, as `node` with its files in `folder`; as a node of
/// a cluster it is told which one it is.
pub(crate) fn serve(
    mut command: Command,
    folder: &Path,
    config: &Path,
    node: usize,
    is_replica: bool,
) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log(folder, node))
        .expect("a log");
    command.args(["serve", "--with-default-root-credentials", "--supervised"]);
    if is_replica {
        command.arg("--replica-id").arg(node.to_string());
    }
    command
        .arg("--config")
        .arg(config)
        .arg("--data")
        .arg(data(folder, node))
        .env_remove("IGGY_CONFIG_PATH")
        .env_remove("IGGY_ROOT_USERNAME")
        .env_remove("IGGY_ROOT_PASSWORD")
        .env("IGGY_ENV_PATH", folder.join("none.env"))
        .env("IGGY_DISPLAY_CONFIG", "0")
        // A supervised node stops when this pipe closes, so it cannot outlive a test process that
        // is itself killed.
        .stdin(Stdio::piped())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("the server starts")
}
