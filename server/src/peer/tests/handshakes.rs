//! Handshakes over sockets: the behaviour checks of chapter 02 (V6), and nodes that are configured
//! differently.

use std::time::Instant;

use super::support::*;

const NONCE: [u8; 32] = [7; 32];

fn acceptor() -> (Running, Raw) {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, keys(S1), None);
    let raw = Raw::connect(addresses[2]);
    (running, raw)
}

/// What is read back after `bytes`, up to the end of the stream.
fn answer_to(bytes: &[u8]) -> Vec<u8> {
    let (running, mut raw) = acceptor();
    raw.say(bytes);
    let answer = raw.rest();
    running.wait_count(|counters| &counters.handshakes_failed, 1);
    running.assert_quiet();
    answer
}

#[test]
fn refusals_are_told_to_those_who_authenticate_and_nobody_else() {
    let told = hello(Some(NONCE));
    let mut foreign = with(&told, 32, &[0; 16]);
    foreign[32..34].copy_from_slice(&[0xad, 0xde]);
    for (bytes, status) in [
        (foreign, 2),
        (with(&told, 61, &[2]), 3),
        (with(&told, 61, &[200]), 3),
        (with(&told, 60, &[5]), 1),
    ] {
        let answer = answer_to(&bytes);
        assert_eq!(answer.len(), 256);
        assert_eq!((answer[60], answer[61], answer[192]), (15, 2, status));
        assert!(
            answer[128..192].iter().all(|byte| *byte == 0),
            "no nonce and no code"
        );
    }
    assert_eq!(answer_to(&hello(None)), b"", "no nonce");
    assert_eq!(answer_to(&with(&told, 48, &[255, 0])), b"", "no frame");
    assert_eq!(answer_to(&with(&told, 60, &[30])), b"", "no command");
}

#[test]
fn a_second_hello_in_place_of_the_finish_is_met_with_silence() {
    let (running, mut raw) = acceptor();
    raw.say(&hello(Some(NONCE)));
    assert_eq!(raw.frame()[60], 15);
    raw.say(&hello(Some(NONCE)));
    assert_eq!(raw.rest(), b"");
    running.assert_quiet();
}

#[test]
fn every_handshake_has_a_nonce_of_its_own() {
    let addresses = addresses();
    let running = Running::secured(2, &addresses, keys(S1), None);
    let mut nonces = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(addresses[2]);
        raw.say(&hello(Some(NONCE)));
        nonces.insert(raw.frame()[128..160].to_vec());
    }
    assert_eq!(nonces.len(), 20);
    running.assert_quiet();
}

#[test]
fn a_client_of_tls_is_turned_away_at_once() {
    let (running, mut raw) = acceptor();
    let start = Instant::now();
    // A hello of TLS that is shorter than a frame.
    raw.say(&[0x16, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3]);
    assert_eq!(raw.rest(), b"");
    assert!(
        start.elapsed() < std::time::Duration::from_millis(1_900),
        "not after the budget"
    );
    running.wait_count(|counters| &counters.handshakes_failed, 1);
}

#[test]
fn silence_ends_with_the_budget() {
    let (running, mut raw) = acceptor();
    raw.say(&hello(Some(NONCE))[..255]);
    let start = Instant::now();
    assert_eq!(raw.rest(), b"");
    assert!(
        start.elapsed() >= std::time::Duration::from_millis(1_900),
        "the budget is 2 s"
    );
    running.wait_count(|counters| &counters.handshakes_failed, 1);
}

/// A pair of meshes, replicas 0 and 2, and who of them registers the other.
#[test]
fn unequal_modes_link_nobody_who_authenticates() {
    for (dialer, acceptor) in [(keys(S1), keys(S2)), (keys(S1), None), (None, keys(S1))] {
        let addresses = addresses();
        let modes = (dialer.is_some(), acceptor.is_some());
        let low = Running::secured(0, &addresses, dialer, None);
        let high = Running::secured(2, &addresses, acceptor, None);
        let dials = low.wait_count(|counters| &counters.dials, 4);
        assert!(dials >= 4, "it keeps trying");
        match modes {
            // The acceptor takes the hello, and learns by the end of the stream.
            (true, false) => high.wait_up(0),
            (false, true) => low.wait_up(2),
            _ => {
                low.assert_quiet();
                high.assert_quiet();
            }
        }
        for (side, authenticates) in [(&low, modes.0), (&high, modes.1)] {
            if authenticates {
                side.assert_quiet();
            }
        }
    }
}

#[test]
fn a_secret_is_rotated_without_a_refusal() {
    let rotating = |new: &str, old: &str| {
        Some(biplane_handshake::Keys::from_secrets(new, Some(old)).expect("legal secrets"))
    };
    for (dialer, acceptor) in [
        (keys(S1), rotating(S1, S2)),
        (rotating(S1, S2), rotating(S2, S1)),
        (rotating(S2, S1), keys(S2)),
    ] {
        let addresses = addresses();
        let low = Running::secured(0, &addresses, dialer, None);
        let high = Running::secured(2, &addresses, acceptor, None);
        low.wait_up(2);
        high.wait_up(0);
    }
}
