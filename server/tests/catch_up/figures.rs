//! How quickly a node with an empty disk is back, as a fraction of what the loopback carries in
//! the same run, and what writers notice of it.
//!
//! ```text
//! BIPLANE_CATCH_UP_MB=1000 cargo test --release -p biplane-server --test catch_up figures -- \
//!     --nocapture
//! ```

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iggy::prelude::{Client, Durability, IggyClient, MessageClient, Partitioning};

use crate::scene::{STREAM, Scene, batch};
use crate::support::sdk::named;
use crate::support::seed;

/// Bytes a second, in millions, that one stream over the loopback carries.
fn loopback() -> f64 {
    const PIECE: usize = 256 << 10;
    const PIECES: usize = 2_000;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let writer = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let piece = vec![7; PIECE];
        for _ in 0..PIECES {
            stream.write_all(&piece).expect("the reader reads");
        }
    });
    let (mut stream, _) = listener.accept().expect("the writer connects");
    let (mut piece, mut total) = (vec![0; PIECE], 0);
    let start = Instant::now();
    loop {
        match stream.read(&mut piece).expect("the writer writes") {
            0 => break,
            read => total += read,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    writer.join().expect("the writer ends");
    assert_eq!(total, PIECE * PIECES, "all of it arrived");
    total as f64 / 1e6 / seconds
}

/// Bytes a second, in millions, that one thread writes to a new file in `folder` and makes
/// durable.
fn disk(folder: &Path, megabytes: u64) -> f64 {
    let path = folder.join("raw");
    let piece = vec![7; 1_000_000];
    let start = Instant::now();
    let mut file = File::create(&path).expect("a file");
    for _ in 0..megabytes {
        file.write_all(&piece).expect("the disk takes it");
    }
    file.sync_all().expect("the disk keeps it");
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path).expect("the file goes");
    megabytes as f64 / seconds
}

/// Opens a file for whole blocks that go around the page cache; `None` where the file system
/// refuses.
fn around(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    options.custom_flags(i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?);
    options.open(path).ok()
}

/// Does something with every megabyte of a file, in memory that starts at a page.
fn each_piece(megabytes: u64, mut act: impl FnMut(&mut [u8], u64) -> std::io::Result<()>) {
    let mut memory = vec![7; (1 << 20) + 4096];
    let start = memory.as_ptr().align_offset(4096);
    for piece in 0..megabytes {
        act(&mut memory[start..start + (1 << 20)], piece << 20).expect("the disk does it");
    }
}

/// Bytes a second, in millions, that are read from one file while as many are written to another:
/// what a disk has left for a transfer whose two ends share it.
fn read_and_written(folder: &Path, megabytes: u64) -> Option<f64> {
    let (one, other) = (folder.join("raw-1"), folder.join("raw-2"));
    let (from, to) = (around(&one)?, around(&other)?);
    each_piece(megabytes, |piece, at| from.write_all_at(piece, at));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| each_piece(megabytes, |piece, at| from.read_exact_at(piece, at)));
        each_piece(megabytes, |piece, at| to.write_all_at(piece, at));
        to.sync_all().expect("the disk keeps it");
    });
    let seconds = start.elapsed().as_secs_f64();
    for path in [one, other] {
        std::fs::remove_file(path).expect("the file goes");
    }
    Some(megabytes as f64 * 1.048_576 / seconds)
}

/// Bytes and seconds of the largest transfer a node installed, by its log: from the request to
/// the end of the install.
fn largest_transfer(log: &str) -> (f64, f64) {
    let field = |line: &str, name: &str| -> f64 {
        let value = line.split_whitespace().find_map(|it| it.strip_prefix(name));
        let value = value.and_then(|it| it.parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {line}"))
    };
    let installed = log
        .lines()
        .filter(|line| line.contains("state transfer installed"));
    let transfers = installed.map(|line| {
        (
            field(line, "bytes="),
            (field(line, "millis=") / 1e3).max(0.01),
        )
    });
    transfers
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("the partition was transferred")
}

/// Sends batches of 100 messages of 1,000 bytes, one after the other, until told to stop; how
/// many a second were taken.
async fn writes(client: Arc<IggyClient>, seed: u64, stop: Arc<AtomicBool>) -> f64 {
    let (start, mut batches) = (Instant::now(), 0u32);
    let (stream, topic) = (named(STREAM), named("load"));
    let partitioning = Partitioning::partition_id(0);
    let mut messages = batch(seed, 0, 100, 1_000);
    while !stop.load(Ordering::Relaxed) {
        let sent = client.send_messages(&stream, &topic, &partitioning, &mut messages);
        sent.await.expect("the batch is taken");
        batches += 1;
    }
    f64::from(batches) / start.elapsed().as_secs_f64()
}

/// The rate of writes while `meanwhile` runs.
async fn writes_during(client: &Arc<IggyClient>, seed: u64, meanwhile: impl FnOnce()) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(writes(Arc::clone(client), seed, Arc::clone(&stop)));
    meanwhile();
    stop.store(true, Ordering::Relaxed);
    writer.await.expect("the writer does not panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catch_up_figures() {
    // More than a primary keeps in memory for a peer that is behind, or repair does it all.
    let megabytes: u64 = std::env::var("BIPLANE_CATCH_UP_MB").map_or(160, |text| {
        text.parse().expect("BIPLANE_CATCH_UP_MB is a number")
    });
    let mut scene = Scene::start(seed("catch_up_figures")).await;
    scene.topic("large", 1, Durability::Replicated).await;
    scene.topic("load", 1, Durability::Replicated).await;
    let client = scene.client().await;
    scene
        .fill(&client, ("large", 0), megabytes, (1_000, 1_000))
        .await;
    let folder = scene.cluster.data(0);
    let (raw, disk) = (loopback(), disk(&folder, megabytes));
    let shared = read_and_written(&folder, megabytes).unwrap_or(f64::NAN);

    // Alone.
    let joiner = (scene.cluster.primary() + 1) % 3;
    scene.wipe(joiner);
    scene.cluster.restart(joiner);
    let start = Instant::now();
    scene.wait_joined(joiner);
    let alone = start.elapsed().as_secs_f64();
    let (bytes, seconds) = largest_transfer(&scene.cluster.log_text(joiner));
    assert!(bytes >= megabytes as f64 * 1e6, "all of it was transferred");

    // While writers go on.
    let (client, seed) = (Arc::new(client), scene.seed);
    let pause = || std::thread::sleep(Duration::from_secs(2));
    let before = writes_during(&client, seed, pause).await;
    let primary = scene.cluster.primary();
    let other = (0..3).find(|node| *node != joiner && *node != primary);
    let other = other.expect("three nodes");
    scene.wipe(other);
    let down = writes_during(&client, seed, pause).await;
    let mut loaded = 0.0;
    let during = writes_during(&client, seed, || {
        scene.cluster.restart(other);
        let start = Instant::now();
        scene.wait_joined(other);
        loaded = start.elapsed().as_secs_f64();
    })
    .await;
    client.shutdown().await.expect("the client closes");

    let (rate, pull) = (megabytes as f64 / alone, bytes / 1e6 / seconds);
    println!("figures for {megabytes} MB");
    println!("loopback, one stream: {raw:.0} MB/s");
    println!("one file, written and synced: {disk:.0} MB/s");
    println!("one file read while another is written, around the page cache: {shared:.0} MB/s");
    println!(
        "transfer, request to installed: {seconds:.2} s, {pull:.0} MB/s, {:.3} of loopback, {:.3} \
         of disk, {:.3} of a disk that both ends share",
        pull / raw,
        pull / disk,
        pull / shared
    );
    println!(
        "start to caught up, nothing else to do: {alone:.2} s, {rate:.0} MB/s, {:.3} of loopback",
        rate / raw
    );
    println!("start to caught up while a client writes: {loaded:.2} s");
    println!(
        "batches a second: {before:.0} with three nodes, {down:.0} with two, {during:.0} while the \
         third is fed ({:.2} of before)",
        during / before
    );
    assert!(during > 0.0, "commits flow while a replica is fed");
    scene.compare_stopped();
}
