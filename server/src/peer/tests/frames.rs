//! An established link: what closes it, what is dropped from it, and what is kept.

use biplane_wire::Command;

use super::support::*;

/// A mesh as replica 2, and replica 0 linked to it without authentication.
fn linked() -> (Running, Raw, Vec<std::net::SocketAddr>) {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&hello(None));
    running.wait_up(0);
    (running, raw, addresses)
}

#[test]
fn frames_behind_the_hello_in_one_segment_are_consumed() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    raw.say(&[&hello(None)[..], &commit(7).to_vec(), &commit(8).to_vec()].concat());
    running.wait_up(0);
    assert_eq!((running.wait_frame(0), running.wait_frame(0)), (7, 8));
    raw.assert_open();
}

#[test]
fn the_hello_may_come_byte_by_byte_and_with_a_body() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, None, None);
    let mut raw = Raw::connect(addresses[2]);
    let long = with(&hello(None), 48, &(256u32 + 5000).to_le_bytes());
    for byte in long {
        raw.say(&[byte]);
    }
    raw.say(&[0xee; 5000]);
    raw.say(&commit(3).to_vec());
    running.wait_up(0);
    assert_eq!(running.wait_frame(0), 3);
}

#[test]
fn a_bad_seal_is_dropped_and_the_link_stays() {
    let (running, mut raw, _) = linked();
    for at in [0, 5, 20, 60 + 70, 255] {
        let flipped = with(&commit(1).to_vec(), at, &[commit(1).to_vec()[at] ^ 0x40]);
        raw.say(&flipped);
    }
    raw.say(&commit(2).to_vec());
    assert_eq!(
        running.wait_frame(0),
        2,
        "the first that is passed on is the intact one"
    );
    running.wait_total("refused_frames", 5);
    let link = running.mesh.link_counters(biplane_wire::ReplicaId(0));
    let link = link.expect("a member of the roster");
    let refused: Vec<_> = link
        .refused()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(refused, [("seal", 5)], "counted for the peer it came from");
    let received = link.received.report();
    let [replication, rest @ ..] = &received[..] else {
        panic!("{received:?}");
    };
    assert_eq!((replication.frames, replication.bytes), (1, 256));
    assert!(rest.iter().all(|kind| kind.frames == 0), "{rest:?}");
}

#[test]
fn commands_that_no_replica_sends_are_dropped_and_counted() {
    let (running, mut raw, _) = linked();
    // Reserved, pings and pongs, a client's request, what goes to clients, the handshake again.
    let refused = [0, 1, 2, 3, 4, 5, 8, 13, 14, 15, 16];
    for command in refused {
        raw.say(&with(&commit(1).to_vec(), 60, &[command]));
        raw.say(&resealed(&commit(1), 60, &[command]));
    }
    raw.say(&commit(9).to_vec());
    assert_eq!(running.wait_frame(0), 9);
    let counted = running.wait_total("refused_frames", 1);
    assert_eq!(counted, 2 * refused.len() as u64);
    raw.assert_open();
}

#[test]
fn frames_of_strangers_are_dropped_and_counted() {
    let (running, mut raw, _) = linked();
    raw.say(&resealed(&commit(1), 32, &[0xad; 16]));
    raw.say(&resealed(&commit(1), 61, &[3]));
    raw.say(&resealed(&commit(1), 61, &[255]));
    // A frame of another member is legal: prepares are relayed.
    raw.say(&commit_from(1, 4).to_vec());
    assert_eq!(running.wait_frame(0), 4);
    let counted = running.wait_total("foreign_frames", 3);
    assert_eq!(counted, 3);
}

#[test]
fn illegal_sizes_and_commands_close_the_connection() {
    let good = commit(1).to_vec();
    for (bytes, what) in [
        (with(&good, 48, &255u32.to_le_bytes()), "size 255"),
        (with(&good, 48, &0u32.to_le_bytes()), "size 0"),
        (with(&good, 48, &u32::MAX.to_le_bytes()), "size 4 GiB"),
        (
            with(&good, 48, &((64u32 << 20) + 1).to_le_bytes()),
            "one above the cap",
        ),
        (with(&good, 60, &[30]), "command 30"),
        (with(&good, 60, &[255]), "command 255"),
    ] {
        let (running, mut raw, addresses) = linked();
        raw.say(&bytes);
        assert_eq!(raw.rest(), b"", "{what}");
        running.wait_down(0);
        running.wait_count(|counters| &counters.closed_framing, 1);
        // And the peer may come back.
        let mut again = Raw::connect(addresses[2]);
        again.say(&hello(None));
        running.wait_up(0);
    }
}

#[test]
fn the_largest_legal_frame_is_read_and_its_end_inside_closes() {
    let (running, mut raw, _) = linked();
    let size = 64u32 << 20;
    raw.say(&with(&commit(1).to_vec(), 48, &size.to_le_bytes()));
    raw.assert_open();
    raw.say(&[0; 100_000]);
    drop(raw);
    running.wait_down(0);
}

#[test]
fn a_reset_in_the_middle_of_a_frame_ends_the_link_and_the_peer_comes_back() {
    let (running, mut raw, addresses) = linked();
    raw.say(&commit(1).to_vec()[..100]);
    socket2::SockRef::from(&raw.socket)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("an option");
    drop(raw);
    running.wait_down(0);
    let mut again = Raw::connect(addresses[2]);
    again.say(&hello(None));
    running.wait_up(0);
    again.say(&commit(5).to_vec());
    assert_eq!(running.wait_frame(0), 5);
    assert_eq!(Command::Commit, commit(5).command());
}

#[test]
fn a_second_connection_is_closed_and_the_first_stays() {
    let (running, mut raw, addresses) = linked();
    let mut second = Raw::connect(addresses[2]);
    second.say(&hello(None));
    assert_eq!(second.rest(), b"", "closed without a word");
    running.wait_count(|counters| &counters.links_refused, 1);
    raw.say(&commit(6).to_vec());
    assert_eq!(running.wait_frame(0), 6);
    // Without authentication silence is no proof: the first connection still stays.
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    let mut third = Raw::connect(addresses[2]);
    third.say(&hello(None));
    assert_eq!(third.rest(), b"");
    raw.say(&commit(7).to_vec());
    assert_eq!(running.wait_frame(0), 7);
}

#[test]
fn a_member_replaces_its_own_silent_connection() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, keys(S1), None);
    let mut first = Raw::connect(addresses[2]);
    first.greet(0, 2, keys(S1));
    running.wait_up(0);
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    let mut second = Raw::connect(addresses[2]);
    second.greet(0, 2, keys(S1));
    running.wait_up(0);
    assert_eq!(first.rest(), b"", "the old one is closed at once");
    second.say(&commit(1).to_vec());
    assert_eq!(running.wait_frame(0), 1);
    running.assert_quiet();
}
