//! Strangers at the replica ports of a cluster that works: a thousand connections that are silent,
//! slow, wrong or absurd, and that come back when they are closed.
//!
//! The quick variant paces its producers, so that it compares service and not the speed of a shared
//! machine. `BIPLANE_HOSTILE_SECONDS` makes it long (that many seconds a window) and unpaced.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use biplane_wire::{Command, HandshakeHeader, Header as _, ReplicaId};
use tokio::time::sleep;

use crate::load::Load;
use crate::nodes::{Nodes, SECRET, auth};
use crate::support::{Random, seed};

const CONNECTIONS: usize = 1_000;
const THREADS: usize = 4;
/// A closed connection is opened again after this.
const RETRY: Duration = Duration::from_millis(500);
/// Turns of each thread per second.
const TURN: Duration = Duration::from_millis(50);
const MEMORY_GROWTH_MAX: u64 = 64 << 20;

/// What a connection does once it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Silent,
    Garbage,
    Slow,
    Huge,
    HelloThenGarbage,
}

const KINDS: [Kind; 5] = [
    Kind::Silent,
    Kind::Garbage,
    Kind::Slow,
    Kind::Huge,
    Kind::HelloThenGarbage,
];

struct Stranger {
    kind: Kind,
    address: SocketAddr,
    socket: Option<TcpStream>,
    next: Instant,
    sent: usize,
}

/// A hello that is right in every byte, from replica 0; the secret is what it lacks.
fn hello(nonce: u8) -> Vec<u8> {
    let mut header = HandshakeHeader::new(Command::ReplicaHello);
    header
        .frame
        .set_cluster(biplane_handshake::cluster_id("mesh"));
    header.frame.set_replica(ReplicaId(0));
    header.set_nonce([nonce.max(1); 32]);
    header.bytes().to_vec()
}

impl Stranger {
    fn turn(&mut self, random: &mut Random, opened: &AtomicU64) {
        if Instant::now() < self.next {
            return;
        }
        let Some(socket) = &mut self.socket else {
            self.next = Instant::now() + RETRY;
            if let Ok(socket) = TcpStream::connect_timeout(&self.address, TURN) {
                socket.set_nonblocking(true).expect("an option");
                opened.fetch_add(1, Ordering::Relaxed);
                self.socket = Some(socket);
                self.sent = 0;
                self.next = Instant::now();
            }
            return;
        };
        let bytes = match (self.kind, self.sent) {
            (Kind::Silent, _) => Vec::new(),
            (Kind::Garbage, 0..4096) => random.bytes(512),
            (Kind::Slow, _) => vec![0],
            (Kind::Huge, 0) => {
                let mut frame = hello(1);
                frame[48..52].copy_from_slice(&(64u32 << 20).to_le_bytes());
                frame
            }
            (Kind::Huge, 1..100_000) => random.bytes(4096),
            (Kind::HelloThenGarbage, 0) => hello(random.next() as u8),
            (Kind::HelloThenGarbage, _) => random.bytes(256),
            _ => Vec::new(),
        };
        self.next = Instant::now()
            + if self.kind == Kind::Slow {
                Duration::from_secs(1)
            } else {
                TURN
            };
        let mut gone = false;
        if !bytes.is_empty() {
            match socket.write(&bytes) {
                Ok(count) => self.sent += count,
                Err(error) => gone = error.kind() != ErrorKind::WouldBlock,
            }
        }
        match socket.read(&mut [0; 512]) {
            Ok(0) => gone = true,
            Err(error) if error.kind() != ErrorKind::WouldBlock => gone = true,
            _ => {}
        }
        if gone {
            self.socket = None;
            self.next = Instant::now() + RETRY;
        }
    }
}

/// A running attack, until dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn start(addresses: &[SocketAddr], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(AtomicU64::new(0));
        let threads = (0..THREADS)
            .map(|thread| {
                let mut strangers: Vec<Stranger> = (0..CONNECTIONS / THREADS)
                    .map(|index| Stranger {
                        kind: KINDS[index % KINDS.len()],
                        address: addresses[index % addresses.len()],
                        socket: None,
                        next: Instant::now(),
                        sent: 0,
                    })
                    .collect();
                let (stop, opened) = (Arc::clone(&stop), Arc::clone(&opened));
                let mut random = Random::new(seed ^ thread as u64);
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        for stranger in &mut strangers {
                            stranger.turn(&mut random, &opened);
                        }
                        thread::sleep(TURN / 2);
                    }
                })
            })
            .collect();
        Self {
            stop,
            opened,
            threads,
        }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The longest time for which this process itself got no turn: on a shared machine that is what a
/// low rate may mean.
struct Stalls {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Stalls {
    fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !seen.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(TURN);
                longest = longest.max(start.elapsed() - TURN);
            }
            longest
        });
        Self { stop, thread }
    }

    fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}

/// Batches acknowledged in a window, per second.
async fn rate(load: &Load, window: Duration) -> f64 {
    let (before, start) = (load.acknowledged(), Instant::now());
    sleep(window).await;
    (load.acknowledged() - before) as f64 / start.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hostile_connections_change_neither_service_nor_memory() {
    let seed = seed("a_thousand_hostile_connections");
    let long: Option<u64> = std::env::var("BIPLANE_HOSTILE_SECONDS")
        .ok()
        .map(|text| text.parse().expect("a number of seconds"));
    let window = Duration::from_secs(long.unwrap_or(3));
    let pause = Duration::from_millis(if long.is_some() { 0 } else { 25 });
    let mut nodes = Nodes::cluster(auth(SECRET), false, "info");
    let load = Load::start(&nodes.client_addresses(), seed, pause).await;
    let targets: Vec<SocketAddr> = (0..3).map(|node| nodes.replica_address(node)).collect();
    sleep(window / 2).await;
    let before: Vec<u64> = (0..3).map(|node| nodes.memory(node)).collect();

    let stalls = Stalls::watch();
    let (mut quiet, mut attacked, mut opened, mut highest) = (0.0, 0.0, 0, vec![0; 3]);
    for round in 0..2 {
        let alone = rate(&load, window).await;
        let attack = Attack::start(&targets, seed + round);
        // Not before all of them are there.
        sleep(Duration::from_secs(1)).await;
        let under = rate(&load, window).await;
        for (node, highest) in highest.iter_mut().enumerate() {
            *highest = (*highest).max(nodes.memory(node));
        }
        println!(
            "round {round}: {alone:.0} batches/s alone, {under:.0} under {} connections",
            attack.opened()
        );
        quiet += alone;
        attacked += under;
        opened += attack.opened();
    }
    nodes.check_alive();
    let growth: Vec<u64> = highest
        .iter()
        .zip(&before)
        .map(|(high, before)| high.saturating_sub(*before) >> 20)
        .collect();
    println!(
        "throughput under attack: {:.0} % of {:.0} batches/s; {opened} connections in all; memory \
         grew by {growth:?} MiB from {:?} MiB; the machine stood still for {:?} at most",
        100.0 * attacked / quiet,
        quiet / 2.0,
        before.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>(),
        stalls.longest(),
    );
    assert!(opened >= CONNECTIONS as u64);
    assert!(attacked >= 0.8 * quiet, "service suffers");
    if long.is_none() {
        let limit = MEMORY_GROWTH_MAX >> 20;
        assert!(growth.iter().all(|mib| *mib < limit), "memory grows");
    }
    let addresses = nodes.client_addresses();
    load.finish(&addresses, || nodes.check_alive()).await;
    // Nobody of them was taken for a replica: each node has the two links it began with.
    for node in 0..3 {
        let connected = nodes.log(node).matches("replica connected").count();
        assert!(connected >= 2, "node {node}");
        assert!(
            !nodes.log(node).contains("replica disconnected"),
            "node {node} lost a link"
        );
    }
}
