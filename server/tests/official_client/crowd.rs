//! Many clients that do nothing, guess passwords, or never read: the node lives, its memory stays
//! within bounds, and a client that works goes on working.
//!
//! `BIPLANE_CROWD` is the number of idle connections (each needs a descriptor here and in the
//! server), with a tenth as many wrong logins a second; 500 where nothing is said.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use biplane_wire::EvictionReason;
use iggy::prelude::{
    Client, IggyClient, IggyMessage, MessageClient, Partitioning, PollingStrategy, StreamClient,
};

use crate::support::cluster::Cluster;
use crate::support::raw_client::{RawClient, RawError};
use crate::support::sdk::{connect, create_topic, named};

/// Memory the crowd may cost a node, in bytes, besides so much for each idle connection.
const MEMORY_MAX: u64 = 400 << 20;
const MEMORY_PER_CONNECTION: u64 = 96 << 10;
/// A turn with the crowd, or without.
const WINDOW: Duration = Duration::from_secs(3);
const WINDOWS: usize = 3;
/// Share of its undisturbed throughput that a working client keeps. The aim is 0.8; a machine that
/// runs other things at the same time measures those, too, so the test asks for less.
const SHARE_MIN: f64 = 0.5;
const CLIENTS_THAT_DO_NOT_READ: usize = 4;

fn crowd() -> usize {
    match std::env::var("BIPLANE_CROWD") {
        Ok(text) => text.parse().expect("BIPLANE_CROWD is a number"),
        Err(_) => 500,
    }
}

/// Batches sent and polled within a window.
async fn work(client: &IggyClient) -> u64 {
    let (stream, topic) = (named("crowd"), named("topic"));
    let partition = Partitioning::partition_id(0);
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < WINDOW {
        let mut batch: Vec<IggyMessage> = (0..20)
            .map(|_| {
                IggyMessage::builder()
                    .payload(vec![7; 500].into())
                    .build()
                    .expect("a message")
            })
            .collect();
        client
            .send_messages(&stream, &topic, &partition, &mut batch)
            .await
            .expect("a batch");
        let consumer = iggy::prelude::Consumer::default();
        let last = PollingStrategy::last();
        client
            .poll_messages(&stream, &topic, Some(0), &consumer, &last, 20, false)
            .await
            .expect("a poll");
        rounds += 1;
    }
    rounds
}

/// Guesses passwords on its own connections at a steady pace while `on` says so.
fn guess(address: SocketAddr, per_second: u64, on: Arc<AtomicBool>, end: Arc<AtomicBool>) -> u64 {
    let mut refused = 0;
    let pause = Duration::from_micros(1_000_000 / per_second.max(1));
    let mut next = Instant::now();
    while !end.load(Ordering::Relaxed) {
        if !on.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
            next = Instant::now();
            continue;
        }
        let outcome = RawClient::login_as(address, "iggy", "wrong password");
        match outcome {
            Err(RawError::Evicted(EvictionReason::InvalidCredentials)) => refused += 1,
            // Too many at once, or later than this side waits.
            Err(RawError::Rejected(57 | 58) | RawError::Io(_)) => {}
            Ok(_) => panic!("a wrong password is accepted"),
            Err(other) => panic!("{other}"),
        }
        next += pause;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    refused
}

/// Asks for large polls and reads nothing.
fn never_read(address: SocketAddr) -> TcpStream {
    let raw = RawClient::login(address).expect("a login");
    let (mut stream, poll) = raw.into_poll("crowd", "topic", 1_000);
    stream.set_nonblocking(true).expect("a socket");
    // Until the server stops reading, too, or has been sent a thousand.
    for _ in 0..1_000 {
        if stream.write_all(&poll).is_err() {
            break;
        }
    }
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_does_not_keep_a_client_from_working() {
    let crowd = crowd();
    let mut cluster = Cluster::start();
    let primary = cluster.primary();
    let address = cluster.address(primary);
    let client = connect(address).await.expect("a client");
    client.create_stream("crowd").await.expect("a stream");
    create_topic(&client, "crowd", "topic", 1)
        .await
        .expect("a topic");
    work(&client).await;
    let memory_before = cluster.memory(primary);

    let idle: Vec<TcpStream> = (0..crowd)
        .map(|at| {
            TcpStream::connect(address).unwrap_or_else(|error| panic!("connection {at}: {error}"))
        })
        .collect();
    let silent: Vec<TcpStream> = (0..CLIENTS_THAT_DO_NOT_READ)
        .map(|_| never_read(address))
        .collect();
    let (on, end) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let guesses = Arc::new(AtomicU64::new(0));
    // A wrong login takes two hashing threads some 20 ms, so enough guessers must wait at once.
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (on, end, guesses) = (Arc::clone(&on), Arc::clone(&end), Arc::clone(&guesses));
            let pace = (crowd as u64 / 10).div_ceil(16);
            thread::spawn(move || {
                guesses.fetch_add(guess(address, pace, on, end), Ordering::Relaxed);
            })
        })
        .collect();

    // In turns, so that whatever else the machine does falls on both.
    let (mut quiet, mut crowded) = (0, 0);
    let mut memory = 0;
    for _ in 0..WINDOWS {
        quiet += work(&client).await;
        on.store(true, Ordering::Relaxed);
        crowded += work(&client).await;
        on.store(false, Ordering::Relaxed);
        memory = memory.max(cluster.memory(primary));
    }
    end.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a guesser ends well");
    }
    let share = crowded as f64 / quiet as f64;
    let grown = memory.saturating_sub(memory_before);
    println!(
        "{crowd} idle connections, {} logins refused, {} MiB more memory; {quiet} rounds without \
         guessing, {crowded} with: {share:.2}",
        guesses.load(Ordering::Relaxed),
        grown >> 20
    );
    cluster.check_alive();
    assert!(guesses.load(Ordering::Relaxed) > 0, "somebody was refused");
    assert!(
        share >= SHARE_MIN,
        "{quiet} rounds without the crowd, {crowded} with it"
    );
    let limit = MEMORY_MAX + MEMORY_PER_CONNECTION * crowd as u64;
    assert!(grown < limit, "{grown} bytes more, {limit} allowed");

    // The idle ones were connected all the time, and are served when they ask.
    for stream in idle.iter().step_by(crowd.div_ceil(20).max(1)) {
        let mut raw = RawClient::over(stream.try_clone().expect("a handle"));
        raw.ping().expect("an idle connection is served");
    }
    // Those that did not read get what was kept for them.
    for mut stream in silent {
        stream.set_nonblocking(false).expect("a socket");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a limit");
        let mut header = [0; 256];
        stream.read_exact(&mut header).expect("a reply was kept");
        assert_eq!(header[60], 8, "it is a reply");
    }
    client.shutdown().await.expect("the client ends");
}
