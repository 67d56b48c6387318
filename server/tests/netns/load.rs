//! Producers for `run.py`, which breaks the network under them: addresses as arguments, commands on
//! standard input, one line of answer for each.
//!
//! ```text
//! served     waits until every partition has acknowledged some batches more; milliseconds
//! finish     stops, reads everything from each node itself, and compares; "intact"
//! ```
//!
//! A promise that is not kept ends the process with an error.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

#[allow(dead_code, reason = "shared with the tests of the mesh")]
#[path = "../mesh/load.rs"]
mod load;
#[allow(dead_code, reason = "shared with the tests of the official client")]
#[path = "../support/mod.rs"]
mod support;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        // What `cargo bench` adds.
        .filter(|argument| argument != "--bench")
        .collect();
    let Some((seed, addresses)) = arguments.split_first() else {
        println!("usage: netns_load SEED ADDRESS...; run.py starts it");
        return;
    };
    let seed = seed.parse().expect("a seed");
    let addresses: Vec<SocketAddr> = addresses
        .iter()
        .map(|address| address.parse().expect("IP:PORT"))
        .collect();
    let load = load::Load::start(&addresses, seed, Duration::from_millis(20)).await;
    say("started");
    let mut lines = std::io::stdin().lock().lines();
    loop {
        match lines.next().and_then(Result::ok).as_deref() {
            Some("served") => {
                let waited = load.wait_served("service").await;
                say(&waited.as_millis().to_string());
            }
            Some("finish") => {
                load.finish(&addresses, || {}).await;
                say("intact");
                return;
            }
            Some(other) => panic!("no command: {other}"),
            None => return,
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("somebody listens");
}
