//! Too much of everything: handshakes, frames, and peers that do not read.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use biplane_wire::ReplicaId;

use super::super::MeshConfig;
use super::support::*;
use crate::runtime;

#[test]
fn a_peer_that_does_not_read_blocks_nobody_else() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut stuck = Raw::connect(addresses[2]);
    stuck.say(&hello(None));
    running.wait_up(0);
    let mut alive = Raw::connect(addresses[2]);
    alive.say(&with(&hello(None), 61, &[1]));
    running.wait_up(1);

    // Enough for the queue and for whatever the kernel buffers.
    let large = biplane_wire::Message::sealed(
        {
            let mut header = biplane_wire::CommitHeader::new(biplane_wire::Command::Commit);
            header.frame.set_cluster(identity(2).cluster);
            header
        },
        &vec![0; 100_000],
    );
    let mut dropped = 0;
    for _ in 0..1_000 {
        if !running.mesh.send(ReplicaId(0), large.clone()) {
            dropped += 1;
        }
        runtime::block_on(runtime::sleep(Duration::from_micros(200)));
    }
    assert!(dropped > 0, "the queue has an end");
    let counted = running.wait_total("dropped_queue_full", 1);
    assert_eq!(counted, dropped);
    let dropped_for = |peer| {
        let link = running.mesh.link_counters(ReplicaId(peer));
        link.expect("a member of the roster").dropped()
    };
    let [stuck_lost, alive_lost] = [0, 1].map(dropped_for);
    assert!(
        stuck_lost.contains(&("queue_full", dropped)),
        "{stuck_lost:?}"
    );
    assert!(
        alive_lost.iter().all(|(_, count)| *count == 0),
        "{alive_lost:?}"
    );
    assert!(
        running.mesh.queued(ReplicaId(0)) > 0,
        "it still does not read"
    );

    let start = Instant::now();
    for view in 0..50 {
        assert!(running.mesh.send(ReplicaId(1), commit(view)));
        let frame = alive.frame();
        assert_eq!(frame[52..56], view.to_le_bytes());
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    alive.say(&commit_from(1, 3).to_vec());
    assert_eq!(running.wait_frame(1), 3);
}

#[test]
fn a_burst_leaves_in_a_few_writes_and_in_order() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    running.wait_up(0);
    for round in 0..20u32 {
        for index in 0..200 {
            assert!(running.mesh.send(ReplicaId(0), commit(round * 200 + index)));
        }
        for index in 0..200 {
            assert_eq!(raw.frame()[52..56], (round * 200 + index).to_le_bytes());
        }
    }
    // The last frame may be here before it is counted there.
    let frames = running.wait_total("frames_out", 4_000);
    let batches = running.mesh.counters().batches_out.load(Ordering::Relaxed);
    println!("{frames} frames in {batches} writes");
    assert_eq!(frames, 4_000);
    let link = running.mesh.link_counters(ReplicaId(0));
    let sent = link.expect("a member of the roster").sent.report();
    assert_eq!(
        (sent[0].traffic, sent[0].bytes),
        ("replication", 4_000 * 256)
    );
    assert!(batches * 4 < frames, "{frames} frames in {batches} writes");
}

#[test]
fn what_is_queued_is_written_before_a_link_closes_and_the_port_is_free_again() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    running.wait_up(0);
    for view in 0..200 {
        assert!(running.mesh.send(ReplicaId(0), commit(view)));
    }
    let start = Instant::now();
    runtime::block_on(running.mesh.shut_down());
    assert!(start.elapsed() < Duration::from_millis(1_900));
    assert!(
        !running.mesh.send(ReplicaId(0), commit(1)),
        "no link any more"
    );
    assert_eq!(raw.rest().len(), 200 * 256);
    drop(running);
    // In the same process, at the same address.
    let again = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    again.wait_up(0);
}

#[test]
fn shutting_down_does_not_wait_for_a_peer_that_does_not_read() {
    let addresses = addresses();
    let running = Running::start(MeshConfig {
        close_timeout: Duration::from_millis(300),
        ..config(2, &addresses)
    });
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    running.wait_up(0);
    let mut header = biplane_wire::CommitHeader::new(biplane_wire::Command::Commit);
    header.frame.set_cluster(identity(2).cluster);
    let large = biplane_wire::Message::sealed(header, &vec![0; 1 << 20]);
    for _ in 0..100 {
        running.mesh.send(ReplicaId(0), large.clone());
    }
    let start = Instant::now();
    runtime::block_on(running.mesh.shut_down());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn the_257th_stranger_is_closed_at_once_and_slots_come_back() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(addresses[2]).expect("the backlog is long"))
        .collect();
    let overflow = running.wait_count(|counters| &counters.handshakes_overflow, 44);
    assert_eq!(overflow, 44);
    let closed = |socket: &TcpStream| {
        socket.set_nonblocking(true).expect("an option");
        matches!((&mut &*socket).read(&mut [0]), Ok(0))
            || matches!((&mut &*socket).read(&mut [0]), Err(error)
                if error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let start = Instant::now();
    while silent.iter().filter(|socket| closed(socket)).count() < 44 {
        assert!(
            start.elapsed() < Duration::from_millis(1_900),
            "closed at once"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    // The budget of 2 s ends the others, and then there is room.
    running.wait_count(|counters| &counters.handshakes_failed, 256);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    running.wait_up(0);
    drop(silent);
}

#[test]
fn a_link_comes_back_quickly_after_its_acceptor_was_away() {
    let addresses = addresses();
    let low = Running::start(MeshConfig {
        reconnect_period: Duration::from_secs(5),
        ..config(0, &addresses)
    });
    let high = Running::secured(2, &addresses, None, None);
    low.wait_up(2);
    high.wait_up(0);
    std::thread::sleep(Duration::from_millis(1_100));
    drop(high);
    low.wait_down(2);
    std::thread::sleep(Duration::from_millis(700));
    let start = Instant::now();
    let high = Running::secured(2, &addresses, None, None);
    low.wait_up(2);
    high.wait_up(0);
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}
