//! What an attacker or a confused peer can do with whole frames: reorder, replay, reflect,
//! truncate, alter, relay, claim. Each is refused, and each with its own reason.

mod support;

use biplane_handshake::{
    Acceptor, Channel, Dialer, Frame, HelloOutcome, KeySlot, Machine, RejectReason, Then,
};
use biplane_wire::{Command, ReplicaId};
use support::*;

/// A good exchange between replicas 0 and 2 under S1, as it went over the wire.
fn good() -> [Frame; 3] {
    let exchange = connect(
        dialer(keys(S1), Channel::Plaintext),
        acceptor(keys(S1), Channel::Plaintext),
    );
    assert_eq!(
        (exchange.dialer.peer(), exchange.acceptor.peer()),
        (Some(2), Some(0))
    );
    exchange.frames.try_into().expect("three frames")
}

fn fresh_dialer(nonce: u8) -> Dialer {
    Dialer::new(
        node(0),
        ReplicaId(2),
        keys(S1),
        Channel::Plaintext,
        counting(nonce),
    )
    .unwrap()
}

fn fresh_acceptor(nonce: u8) -> Acceptor {
    Acceptor::new(node(2), keys(S1), Channel::Plaintext, counting(nonce)).unwrap()
}

/// What the dialer says to `frame` in place of a challenge.
fn to_dialer(dialer: Dialer, frame: &[u8]) -> RejectReason {
    let (_, waiting) = hello(dialer);
    waiting
        .on_challenge(frame)
        .expect_err("not a good challenge")
}

/// What the acceptor says to `frame` in place of a finish, after a good hello.
fn to_acceptor(acceptor: Acceptor, frame: &[u8]) -> RejectReason {
    let [hello, ..] = good();
    let (_, waiting) = challenge(acceptor, &hello);
    waiting.on_finish(frame).expect_err("not a good finish")
}

#[test]
fn frames_out_of_order_are_refused_as_unknown_commands() {
    let [hello, challenge, finish] = good();
    use Command::{ReplicaChallenge, ReplicaFinish, ReplicaHello};
    let unknown = |expected, command| RejectReason::UnknownCommand { expected, command };
    assert_eq!(
        to_dialer(fresh_dialer(0), &hello),
        unknown(ReplicaChallenge, ReplicaHello)
    );
    assert_eq!(
        to_dialer(fresh_dialer(0), &finish),
        unknown(ReplicaChallenge, ReplicaFinish)
    );
    let acceptor = || fresh_acceptor(0x80);
    assert_eq!(
        to_acceptor(acceptor(), &hello),
        unknown(ReplicaFinish, ReplicaHello)
    );
    assert_eq!(
        to_acceptor(acceptor(), &challenge),
        unknown(ReplicaFinish, ReplicaChallenge)
    );
    for (first, command) in [(challenge, ReplicaChallenge), (finish, ReplicaFinish)] {
        let refused = rejection(acceptor(), &first);
        assert_eq!(refused.reason, unknown(ReplicaHello, command));
    }
    // Only the challenge carries something in the place of a nonce, so only it is answered.
    assert!(rejection(fresh_acceptor(0x80), &challenge).frame.is_some());
    assert!(rejection(fresh_acceptor(0x80), &finish).frame.is_none());
}

#[test]
fn client_that_finds_the_replica_port_is_told_or_dropped_by_its_client_id() {
    let [hello, ..] = good();
    let anonymous = with(&frame(&[(48, "00010000")]), 60, 5);
    let identified = with(&hello, 60, 5);
    let (expected, command) = (Command::ReplicaHello, Command::Request);
    let reason = RejectReason::UnknownCommand { expected, command };
    let refused = rejection(fresh_acceptor(0x80), &anonymous);
    assert_eq!((refused.reason, refused.frame), (reason, None));
    let refused = rejection(fresh_acceptor(0x80), &identified);
    assert_eq!(refused.reason, reason);
    assert_eq!(refused.frame.expect("a refusal")[192], 1);
    let off = acceptor(None, Channel::Plaintext);
    assert_eq!(
        rejection(off, &identified).frame,
        None,
        "authentication off: never a frame"
    );
}

#[test]
fn replayed_frames_fail_against_fresh_nonces() {
    let [hello_frame, challenge_frame, finish_frame] = good();
    // An old challenge does not cover the dialer's new nonce.
    assert_eq!(
        to_dialer(fresh_dialer(1), &challenge_frame),
        RejectReason::MacMismatch
    );
    // An old hello is answered, with a new nonce, which the old finish does not cover.
    let (answer, waiting) = challenge(fresh_acceptor(0x81), &hello_frame);
    assert_ne!(answer, challenge_frame);
    assert_eq!(
        waiting.on_finish(&finish_frame),
        Err(RejectReason::MacMismatch)
    );
    // With the old nonce it would have been good: freshness is all that stands against it.
    let (_, waiting) = challenge(fresh_acceptor(0x80), &hello_frame);
    assert!(waiting.on_finish(&finish_frame).is_ok());
}

#[test]
fn reflected_codes_fail_in_both_directions() {
    let [hello_frame, challenge_frame, finish_frame] = good();
    let put_mac = |frame: &Frame, from: &Frame| {
        let mut frame = *frame;
        frame[160..192].copy_from_slice(&from[160..192]);
        frame
    };
    let to_dialer_back = put_mac(&challenge_frame, &finish_frame);
    assert_eq!(
        to_dialer(fresh_dialer(0), &to_dialer_back),
        RejectReason::MacMismatch
    );
    let to_acceptor_back = put_mac(&finish_frame, &challenge_frame);
    assert_eq!(
        to_acceptor(fresh_acceptor(0x80), &to_acceptor_back),
        RejectReason::MacMismatch
    );

    // The dialer's own nonce mirrored as the acceptor's, under a code it never made.
    let mut mirrored = challenge_frame;
    mirrored[128..160].copy_from_slice(&hello_frame[128..160]);
    assert_eq!(
        to_dialer(fresh_dialer(0), &mirrored),
        RejectReason::MacMismatch
    );
    // The whole hello sent back, dressed as a challenge.
    let dressed = with(&with(&hello_frame, 60, 15), 61, 2);
    assert_eq!(
        to_dialer(fresh_dialer(0), &dressed),
        RejectReason::MacMismatch
    );
}

#[test]
fn acceptor_cannot_be_used_to_make_a_dialers_code_for_another_link() {
    // 0 calls the attacker; the attacker, as 0, calls 1 with 0's nonce and hands 1's challenge
    // back. The code names acceptor 1, the dialer dialed 2.
    let (hello_frame, waiting) = hello(fresh_dialer(0));
    let other = Acceptor::new(node(1), keys(S1), Channel::Plaintext, counting(9)).unwrap();
    let (challenge_frame, _) = challenge(other, &hello_frame);
    let as_dialed = with(&challenge_frame, 61, 2);
    let found = ReplicaId(1);
    assert_eq!(
        waiting.on_challenge(&as_dialed).unwrap_err(),
        RejectReason::MacMismatch
    );
    assert_eq!(
        to_dialer(fresh_dialer(0), &challenge_frame),
        RejectReason::PeerMismatch {
            expected: ReplicaId(2),
            found
        }
    );
}

#[test]
fn truncated_frames_are_refused_at_every_length_and_never_answered() {
    let [hello_frame, challenge_frame, finish_frame] = good();
    for length in 0..256 {
        let reason = RejectReason::FrameTruncated { length };
        assert_eq!(
            to_dialer(fresh_dialer(0), &challenge_frame[..length]),
            reason
        );
        assert_eq!(
            to_acceptor(fresh_acceptor(0x80), &finish_frame[..length]),
            reason
        );
        let refused = rejection(fresh_acceptor(0x80), &hello_frame[..length]);
        assert_eq!((refused.reason, refused.frame), (reason, None));
    }
}

#[test]
fn bodies_are_ignored_in_every_frame() {
    let long = |frame: &Frame| {
        let mut frame = frame.to_vec();
        frame[48..52].copy_from_slice(&(256_u32 + 1000).to_le_bytes());
        frame.resize(256 + 1000, 0xff);
        frame
    };
    let [hello_frame, challenge_frame, finish_frame] = good();
    let (_, waiting) = hello(fresh_dialer(0));
    assert_eq!(
        waiting.on_challenge(&long(&challenge_frame)).unwrap().frame,
        finish_frame
    );
    let (answer, waiting) = challenge(fresh_acceptor(0x80), &long(&hello_frame));
    assert_eq!(answer, challenge_frame);
    assert!(waiting.on_finish(&long(&finish_frame)).is_ok());
    // A driver that drains bodies elsewhere may hand in the header alone.
    let (answer, _) = challenge(fresh_acceptor(0x80), &long(&hello_frame)[..256]);
    assert_eq!(answer, challenge_frame);
}

#[test]
fn unreadable_headers_are_refused_and_never_answered() {
    let [hello_frame, challenge_frame, finish_frame] = good();
    let sized = |frame: &Frame, size: u32| {
        let mut frame = *frame;
        frame[48..52].copy_from_slice(&size.to_le_bytes());
        frame
    };
    for size in [0, 1, 255] {
        let reason = RejectReason::FrameSizeIllegal { size };
        let refused = rejection(fresh_acceptor(0x80), &sized(&hello_frame, size));
        assert_eq!((refused.reason, refused.frame), (reason, None));
        assert_eq!(
            to_dialer(fresh_dialer(0), &sized(&challenge_frame, size)),
            reason
        );
        assert_eq!(
            to_acceptor(fresh_acceptor(0x80), &sized(&finish_frame, size)),
            reason
        );
    }
    for command in [30, 31, 255] {
        let reason = RejectReason::CommandIllegal { command };
        let refused = rejection(fresh_acceptor(0x80), &with(&hello_frame, 60, command));
        assert_eq!((refused.reason, refused.frame), (reason, None));
        assert_eq!(
            to_dialer(fresh_dialer(0), &with(&challenge_frame, 60, command)),
            reason
        );
        assert_eq!(
            to_acceptor(fresh_acceptor(0x80), &with(&finish_frame, 60, command)),
            reason
        );
    }
}

#[test]
fn frames_of_another_cluster_are_refused_wherever_they_come() {
    let [hello_frame, challenge_frame, finish_frame] = good();
    let foreign = |frame: &Frame| with(frame, 47, frame[47] ^ 1);
    let refused = rejection(fresh_acceptor(0x80), &foreign(&hello_frame));
    assert_eq!(refused.reason, RejectReason::ClusterMismatch);
    assert_eq!(refused.frame.map(|frame| frame[192]), Some(2));
    let reason = to_dialer(fresh_dialer(0), &foreign(&challenge_frame));
    assert_eq!(reason, RejectReason::ClusterMismatch);
    let reason = to_acceptor(fresh_acceptor(0x80), &foreign(&finish_frame));
    assert_eq!(reason, RejectReason::ClusterMismatch);
}

#[test]
fn every_announced_id_is_judged_by_the_directional_rule() {
    for own in 0..3 {
        for announced in 0..=255 {
            let (hello_frame, _) = hello(fresh_dialer(0));
            let hello_frame = with(&hello_frame, 61, announced);
            for auth in [true, false] {
                let keys = auth.then(|| keys(S1).unwrap());
                let acceptor =
                    Acceptor::new(node(own), keys, Channel::Plaintext, counting(5)).unwrap();
                let outcome = acceptor.on_hello(&hello_frame);
                let legal = announced < own;
                match outcome {
                    HelloOutcome::Accepted(peer) => {
                        assert!(legal && !auth);
                        assert_eq!(peer.peer(), ReplicaId(announced));
                    }
                    HelloOutcome::SendChallenge { next, .. } => {
                        assert!(legal && auth);
                        assert_eq!(next.peer(), ReplicaId(announced));
                    }
                    HelloOutcome::Reject(refused) => {
                        assert!(!legal);
                        let announced = ReplicaId(announced);
                        assert_eq!(refused.reason, RejectReason::DirectionalRule { announced });
                        assert_eq!(refused.frame.map(|frame| frame[192]), auth.then_some(3));
                    }
                }
            }
        }
    }
}

#[test]
fn hello_cannot_change_its_mind_about_its_id_in_the_finish() {
    // Replica 1 knows the secret. It says hello as 1 and finishes as 0: the code is its own.
    let one = Dialer::new(
        node(1),
        ReplicaId(2),
        keys(S1),
        Channel::Plaintext,
        counting(7),
    );
    let (hello_frame, waiting) = hello(one.unwrap());
    let (challenge_frame, next) = challenge(fresh_acceptor(0x80), &hello_frame);
    let finish = waiting.on_challenge(&challenge_frame).unwrap();
    let refused = next.on_finish(&with(&finish.frame, 61, 0)).unwrap_err();
    let (expected, found) = (ReplicaId(1), ReplicaId(0));
    assert_eq!(refused, RejectReason::PeerMismatch { expected, found });
    // The finish of replica 0 does not do for replica 1, either.
    let [_, _, finish_frame] = good();
    let (_, next) = challenge(fresh_acceptor(0x80), &hello_frame);
    assert_eq!(
        next.on_finish(&with(&finish_frame, 61, 1)),
        Err(RejectReason::MacMismatch)
    );
}

#[test]
fn wrong_and_retired_keys_are_refused_by_whoever_sees_a_code_first() {
    for (ours, theirs) in [
        (keys(S1), keys(S2)),
        (rotating(S1, S2), keys(S2)),
        (keys(S2), keys(S1)),
    ] {
        // The acceptor speaks first, so it is the dialer that refuses, and no status is exchanged.
        let exchange = connect(
            dialer(theirs.clone(), Channel::Plaintext),
            acceptor(ours.clone(), Channel::Plaintext),
        );
        assert_eq!(exchange.dialer, End::Closed(RejectReason::MacMismatch));
        assert_eq!(exchange.acceptor, End::Starved);
        assert_eq!(exchange.frames.len(), 2);
    }
    // A dialer that ignores the acceptor's code gets no further than the acceptor's own check.
    let finish_by = |secret| {
        let exchange = connect(
            dialer(keys(secret), Channel::Plaintext),
            acceptor(keys(secret), Channel::Plaintext),
        );
        exchange.frames[2]
    };
    let to = |auth| {
        let (hello_frame, _) = hello(fresh_dialer(0));
        challenge(acceptor(auth, Channel::Plaintext), &hello_frame).1
    };
    assert_eq!(
        to(keys(S2)).on_finish(&finish_by(S1)),
        Err(RejectReason::MacMismatch)
    );
    let during = to(rotating(S2, S1)).on_finish(&finish_by(S1)).unwrap();
    assert_eq!(during.key(), Some(KeySlot::Previous));
    assert_eq!(
        to(keys(S1)).on_finish(&finish_by(S2)),
        Err(RejectReason::MacMismatch)
    );
}

#[test]
fn relay_between_two_sessions_is_found_out() {
    for (dialed, accepted) in [
        (tls(counting(1)), tls(counting(2))),
        (tls([0; 32]), Channel::Plaintext),
        (Channel::Plaintext, tls([0; 32])),
        (Channel::Plaintext, tls(counting(1))),
    ] {
        let exchange = connect(dialer(keys(S1), dialed), acceptor(keys(S1), accepted));
        assert_eq!(exchange.dialer, End::Closed(RejectReason::MacMismatch));
        assert_eq!(exchange.acceptor, End::Starved);
    }
}

#[test]
fn missing_or_wrong_finish_is_met_with_silence() {
    let [hello_frame, _, finish_frame] = good();
    for (last, label) in [
        (with(&finish_frame, 60, 14), "unknown_command"),
        (
            with(&finish_frame, 160, finish_frame[160] ^ 1),
            "mac_mismatch",
        ),
    ] {
        let action = fresh_acceptor(0x80).start();
        let Then::Read(machine) = action.then else {
            panic!("an acceptor reads first")
        };
        assert!(action.send.is_none());
        let action = machine.step(&hello_frame);
        let Then::Read(machine @ Machine::AcceptorFinish(_)) = action.then else {
            panic!("the hello was good")
        };
        let action = machine.step(&last);
        assert!(action.send.is_none(), "nothing is told about secrets");
        let Then::Close(reason) = action.then else {
            panic!("the finish was not good")
        };
        assert_eq!(reason.label(), label);
    }
}
