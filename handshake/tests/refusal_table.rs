//! Every way to get in without the secret, in one table: what the exchange is, who notices, and
//! under which reason. The single cases are played out at length in the other files; this is the
//! list to read when asking whether one was forgotten.

mod support;

use biplane_handshake::{Acceptor, Channel, Dialer, Frame, Identity, Keys, cluster_id};
use biplane_wire::ReplicaId;
use support::*;

const PLAIN: Channel = Channel::Plaintext;

/// A good exchange between replicas 0 and 2 with these nonces.
fn good(dialer_nonce: u8, acceptor_nonce: u8, channel: &Channel) -> [Frame; 3] {
    let dialer = Dialer::new(
        node(0),
        ReplicaId(2),
        keys(S1),
        channel.clone(),
        counting(dialer_nonce),
    );
    let acceptor = Acceptor::new(node(2), keys(S1), channel.clone(), counting(acceptor_nonce));
    let exchange = connect(dialer.unwrap(), acceptor.unwrap());
    exchange.frames.try_into().expect("three frames")
}

/// What an acceptor with these keys says to two frames.
fn acceptor_says(auth: Option<Keys>, channel: &Channel, frames: [&[u8]; 2]) -> &'static str {
    use biplane_handshake::HelloOutcome;
    match acceptor(auth, channel.clone()).on_hello(frames[0]) {
        HelloOutcome::Accepted(_) => "accepted",
        HelloOutcome::Reject(rejection) => rejection.reason.label(),
        HelloOutcome::SendChallenge { next, .. } => match next.on_finish(frames[1]) {
            Ok(_) => "accepted",
            Err(reason) => reason.label(),
        },
    }
}

/// What a dialer with these keys says to a frame in place of the challenge.
fn dialer_says(auth: Option<Keys>, channel: &Channel, frame: &[u8]) -> &'static str {
    let (_, waiting) = hello(dialer(auth, channel.clone()));
    match waiting.on_challenge(frame) {
        Ok(_) => "accepted",
        Err(reason) => reason.label(),
    }
}

/// `frame` with the code of `other`.
fn with_code_of(frame: &Frame, other: &Frame) -> Frame {
    let mut frame = *frame;
    frame[160..192].copy_from_slice(&other[160..192]);
    frame
}

#[test]
fn every_exchange_that_is_not_the_real_one_is_refused_with_its_reason() {
    let [h, c, f] = good(0, 0x80, &PLAIN);
    let [old_h, old_c, old_f] = good(0x40, 0xc0, &PLAIN);
    let session = tls(counting(1));
    let [_, other_c, other_f] = good(0, 0x80, &tls(counting(2)));
    let (mut foreign_h, mut foreign_c) = (h, c);
    foreign_h[32..48].copy_from_slice(&cluster_id("other").to_bytes());
    foreign_c[32..48].copy_from_slice(&cluster_id("other").to_bytes());
    let one = || keys(S1);

    let acceptor_rows = [
        (
            "the real exchange",
            one(),
            &PLAIN,
            [&h[..], &f[..]],
            "accepted",
        ),
        (
            "reordered: finish first",
            one(),
            &PLAIN,
            [&f, &h],
            "unknown_command",
        ),
        (
            "reordered: hello twice",
            one(),
            &PLAIN,
            [&h, &h],
            "unknown_command",
        ),
        (
            "reordered: a challenge",
            one(),
            &PLAIN,
            [&h, &c],
            "unknown_command",
        ),
        (
            "replayed: a whole exchange",
            one(),
            &PLAIN,
            [&old_h, &old_f],
            "mac_mismatch",
        ),
        (
            "replayed: the finish",
            one(),
            &PLAIN,
            [&h, &old_f],
            "mac_mismatch",
        ),
        (
            "reflected: the acceptor's own code",
            one(),
            &PLAIN,
            [&h, &with_code_of(&f, &c)],
            "mac_mismatch",
        ),
        (
            "truncated hello",
            one(),
            &PLAIN,
            [&h[..255], &f],
            "frame_truncated",
        ),
        (
            "truncated finish",
            one(),
            &PLAIN,
            [&h, &f[..255]],
            "frame_truncated",
        ),
        (
            "wrong cluster",
            one(),
            &PLAIN,
            [&foreign_h, &f],
            "cluster_mismatch",
        ),
        (
            "wrong direction: own id",
            one(),
            &PLAIN,
            [&with(&h, 61, 2), &f],
            "directional_rule",
        ),
        (
            "wrong direction: no member",
            one(),
            &PLAIN,
            [&with(&h, 61, 9), &f],
            "directional_rule",
        ),
        (
            "another member's name",
            one(),
            &PLAIN,
            [&with(&h, 61, 1), &f],
            "peer_mismatch",
        ),
        (
            "no authentication",
            one(),
            &PLAIN,
            [&h_without_nonce(&h), &f],
            "auth_required",
        ),
        ("wrong key", keys(S2), &PLAIN, [&h, &f], "mac_mismatch"),
        (
            "old key during a rotation",
            rotating(S2, S1),
            &PLAIN,
            [&h, &f],
            "accepted",
        ),
        (
            "old key after a rotation",
            keys(S2),
            &PLAIN,
            [&h, &f],
            "mac_mismatch",
        ),
        (
            "plain codes inside TLS",
            one(),
            &session,
            [&h, &f],
            "mac_mismatch",
        ),
        (
            "codes of another TLS session",
            one(),
            &session,
            [&h, &other_f],
            "mac_mismatch",
        ),
        (
            "codes of TLS on a plain link",
            one(),
            &PLAIN,
            [&h, &other_f],
            "mac_mismatch",
        ),
    ];
    for (case, auth, channel, frames, expected) in acceptor_rows {
        assert_eq!(
            acceptor_says(auth, channel, frames),
            expected,
            "acceptor: {case}"
        );
    }

    let dialer_rows = [
        ("the real exchange", one(), &PLAIN, &c[..], "accepted"),
        (
            "reordered: its own hello",
            one(),
            &PLAIN,
            &h,
            "unknown_command",
        ),
        ("reordered: a finish", one(), &PLAIN, &f, "unknown_command"),
        ("replayed challenge", one(), &PLAIN, &old_c, "mac_mismatch"),
        (
            "reflected: its own code",
            one(),
            &PLAIN,
            &with_code_of(&c, &f),
            "mac_mismatch",
        ),
        (
            "truncated challenge",
            one(),
            &PLAIN,
            &c[..255],
            "frame_truncated",
        ),
        (
            "wrong cluster",
            one(),
            &PLAIN,
            &foreign_c,
            "cluster_mismatch",
        ),
        (
            "another member answers",
            one(),
            &PLAIN,
            &with(&c, 61, 1),
            "peer_mismatch",
        ),
        ("wrong key", keys(S2), &PLAIN, &c, "mac_mismatch"),
        (
            "old key during a rotation",
            rotating(S2, S1),
            &PLAIN,
            &c,
            "accepted",
        ),
        (
            "old key after a rotation",
            keys(S2),
            &PLAIN,
            &c,
            "mac_mismatch",
        ),
        (
            "plain codes inside TLS",
            one(),
            &session,
            &c,
            "mac_mismatch",
        ),
        (
            "codes of another TLS session",
            one(),
            &session,
            &other_c,
            "mac_mismatch",
        ),
        (
            "refusal: cluster",
            one(),
            &PLAIN,
            &with(&c, 192, 2),
            "cluster_mismatch",
        ),
        (
            "refusal: direction",
            one(),
            &PLAIN,
            &with(&c, 192, 3),
            "directional_rule",
        ),
        (
            "refusal: unknown status",
            one(),
            &PLAIN,
            &with(&c, 192, 77),
            "unknown_command",
        ),
    ];
    for (case, auth, channel, frame, expected) in dialer_rows {
        assert_eq!(
            dialer_says(auth, channel, frame),
            expected,
            "dialer: {case}"
        );
    }
}

fn h_without_nonce(hello: &Frame) -> Frame {
    let mut hello = *hello;
    hello[128..160].fill(0);
    hello
}

#[test]
fn dialing_against_the_direction_is_refused_before_a_byte_is_sent() {
    for (own, peer, label) in [
        (
            2,
            0,
            "replica 2 does not dial 0, it waits for that peer's call",
        ),
        (
            1,
            1,
            "replica 1 does not dial 1, it waits for that peer's call",
        ),
        (0, 3, "peer 3 is outside a roster of 3"),
    ] {
        let identity = Identity {
            replica: ReplicaId(own),
            ..node(0)
        };
        let dialer = Dialer::new(identity, ReplicaId(peer), keys(S1), PLAIN, counting(1));
        assert_eq!(
            dialer.err().map(|error| error.to_string()).as_deref(),
            Some(label)
        );
    }
}
