//! What the end-to-end tests share: a cluster of real processes, a client that talks to one chosen
//! node in raw frames, planned messages that can be recognised by their id, and waiting with a
//! deadline.
//!
//! Nothing here knows how the server works inside: it sees processes, sockets and files.

pub(crate) mod cluster;
pub(crate) mod dev_cluster;
pub(crate) mod ledger;
pub(crate) mod messages;
pub(crate) mod polled;
pub(crate) mod ports;
pub(crate) mod producers;
pub(crate) mod raw_client;
pub(crate) mod sdk;
pub(crate) mod server;
pub(crate) mod web;
pub(crate) mod web_tls;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

/// Root user of every test cluster, as `--with-default-root-credentials` makes it.
pub(crate) const USER: &str = "iggy";
/// Its password.
pub(crate) const PASSWORD: &str = "iggy";

static TURN: Mutex<()> = Mutex::new(());

/// The right to run a cluster, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _guard: MutexGuard<'static, ()>,
}

/// Waits for the other clusters of this test process to be gone. Timers of seconds on a machine
/// with few cores leave no room for two clusters at a time.
pub(crate) fn turn() -> Turn {
    // A test that failed poisons the lock and has cleaned up all the same.
    Turn {
        _guard: TURN.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

/// A folder that goes with the value, unless `BIPLANE_TEST_KEEP` asks to keep it for a look.
#[derive(Debug)]
pub(crate) struct TestFolder(Option<TempDir>);

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self(Some(tempfile::tempdir().expect("a folder for the test")))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0
            .as_ref()
            .expect("the folder is there until drop")
            .path()
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        if std::env::var_os("BIPLANE_TEST_KEEP").is_some()
            && let Some(folder) = self.0.take()
        {
            println!("kept: {}", folder.keep().display());
        }
    }
}

/// Prints the last lines of the `node-N.log` files in `folder`.
pub(crate) fn show_logs(folder: &Path) {
    const LINES_SHOWN: usize = 60;
    for node in 0..5 {
        let path = folder.join(format!("node-{node}.log"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        println!(
            "--- node {node}, last {} of {} log lines",
            shown.len(),
            lines.len()
        );
        println!("{}", shown.join("\n"));
    }
}

/// The seed of `test`: from `BIPLANE_TEST_SEED`, else from the clock. Prints how to run it again.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = match std::env::var("BIPLANE_TEST_SEED") {
        Ok(text) => text.parse().expect("BIPLANE_TEST_SEED is a number"),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| {
                // The clock's low bits are the ones that differ between runs.
                Random::new(since.as_nanos() as u64).next() >> 16
            }),
    };
    println!(
        "seed {seed}; again with: BIPLANE_TEST_SEED={seed} cargo test -p biplane-server \
         --test {} {test}",
        env!("CARGO_CRATE_NAME")
    );
    seed
}

/// A small seeded generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Asks `probe` every 50 ms until it has an answer.
///
/// # Panics
/// After `limit`, with what was waited for and the probe's last words.
pub(crate) fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(found) => return found,
            Err(reason) => {
                assert!(
                    start.elapsed() < limit,
                    "{limit:?} passed without {what}: {reason}"
                );
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}
