//! Every combination of modes and every step of a rotation, both roles on one link (chapter 02
//! sections 7.3 and 8.1).

mod support;

use biplane_handshake::{
    Acceptor, Channel, Dialer, Identity, KeySlot, Keys, RejectReason, SetupError, cluster_id,
};
use biplane_wire::{Command, ReplicaId};
use support::*;

#[test]
fn off_to_off_registers_both_sides_after_one_frame() {
    let exchange = connect(
        dialer(None, Channel::Plaintext),
        acceptor(None, Channel::Plaintext),
    );
    assert_eq!(exchange.frames.len(), 1);
    for (end, peer) in [(exchange.dialer, 2), (exchange.acceptor, 0)] {
        let End::Established(established) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            (established.peer(), established.key()),
            (ReplicaId(peer), None)
        );
    }
}

#[test]
fn off_to_off_of_another_name_is_closed_without_a_frame() {
    let other = Identity {
        cluster: cluster_id("other"),
        ..node(0)
    };
    let dialer = Dialer::new(other, ReplicaId(2), None, Channel::Plaintext, [0; 32]).unwrap();
    let exchange = connect(dialer, acceptor(None, Channel::Plaintext));
    assert_eq!(
        exchange.dialer.label(),
        "established",
        "it learns of it by the end of the stream"
    );
    assert_eq!(
        exchange.acceptor,
        End::Closed(RejectReason::ClusterMismatch)
    );
    assert_eq!(exchange.frames.len(), 1);
}

#[test]
fn on_to_on_registers_both_sides_after_three_frames() {
    for channel in [Channel::Plaintext, tls(counting(3)), tls([0; 32])] {
        let exchange = connect(
            dialer(keys(S1), channel.clone()),
            acceptor(keys(S1), channel),
        );
        assert_eq!(
            (exchange.dialer.peer(), exchange.acceptor.peer()),
            (Some(2), Some(0))
        );
        assert_eq!(exchange.frames.len(), 3);
    }
}

#[test]
fn on_to_off_registers_at_the_acceptor_only() {
    let exchange = connect(
        dialer(keys(S1), Channel::Plaintext),
        acceptor(None, Channel::Plaintext),
    );
    assert_eq!(exchange.acceptor.peer(), Some(0), "its nonce is ignored");
    assert_eq!(exchange.dialer, End::Starved);
    // What the acceptor sends next is consensus traffic: a Commit, say.
    let (_, waiting) = hello(dialer(keys(S1), Channel::Plaintext));
    let commit = frame(&[(48, "00010000"), (60, "0902")]);
    let (expected, command) = (Command::ReplicaChallenge, Command::Commit);
    let reason = RejectReason::UnknownCommand { expected, command };
    assert_eq!(waiting.on_challenge(&commit).unwrap_err(), reason);
}

#[test]
fn off_to_on_is_closed_without_a_frame() {
    let exchange = connect(
        dialer(None, Channel::Plaintext),
        acceptor(keys(S1), Channel::Plaintext),
    );
    assert_eq!(exchange.dialer.label(), "established");
    assert_eq!(exchange.acceptor, End::Closed(RejectReason::AuthRequired));
    assert_eq!(
        exchange.frames.len(),
        1,
        "the missing nonce is a log label, never a status"
    );
}

#[test]
fn on_to_on_of_another_name_is_told() {
    let other = Identity {
        cluster: cluster_id("other"),
        ..node(0)
    };
    let dialer = Dialer::new(
        other,
        ReplicaId(2),
        keys(S1),
        Channel::Plaintext,
        counting(0),
    );
    let exchange = connect(dialer.unwrap(), acceptor(keys(S1), Channel::Plaintext));
    assert_eq!(
        exchange.acceptor,
        End::Closed(RejectReason::ClusterMismatch)
    );
    assert_eq!(
        exchange.dialer,
        End::Closed(RejectReason::Refused { status: 2 })
    );
}

#[test]
fn rosters_of_different_size_are_told_by_the_directional_rule() {
    // The dialer believes in five replicas and is number 3; the acceptor is 2 of three, or 4 of
    // five in a roster where the dialer does not exist.
    let dialer = || {
        let identity = Identity {
            replica_count: 5,
            ..node(3)
        };
        Dialer::new(
            identity,
            ReplicaId(4),
            keys(S1),
            Channel::Plaintext,
            counting(0),
        )
        .unwrap()
    };
    let exchange = connect(dialer(), acceptor(keys(S1), Channel::Plaintext));
    let announced = ReplicaId(3);
    assert_eq!(
        exchange.acceptor,
        End::Closed(RejectReason::DirectionalRule { announced })
    );
    assert_eq!(
        exchange.dialer,
        End::Closed(RejectReason::Refused { status: 3 })
    );
}

#[test]
fn wrong_address_in_the_roster_is_named_with_authentication_and_unseen_without() {
    // Replica 2 answers where replica 1 is expected.
    let dial_one = |auth| Dialer::new(node(0), ReplicaId(1), auth, Channel::Plaintext, counting(0));
    let exchange = connect(
        dial_one(keys(S1)).unwrap(),
        acceptor(keys(S1), Channel::Plaintext),
    );
    let (expected, found) = (ReplicaId(1), ReplicaId(2));
    let reason = RejectReason::PeerMismatch { expected, found };
    assert_eq!(exchange.dialer, End::Closed(reason));
    assert_eq!(reason.to_string(), "expected replica 1, but 2 answers");
    assert_eq!(exchange.acceptor, End::Starved);

    let exchange = connect(dial_one(None).unwrap(), acceptor(None, Channel::Plaintext));
    assert_eq!(
        (exchange.dialer.peer(), exchange.acceptor.peer()),
        (Some(1), Some(0))
    );
}

#[test]
fn rolling_a_secret_keeps_every_pair_connected() {
    // Each step rolls all nodes from one form to the next; during it any mixture may meet.
    let forms: [fn() -> Option<Keys>; 4] = [
        || keys(S1),
        || rotating(S1, S2),
        || rotating(S2, S1),
        || keys(S2),
    ];
    use KeySlot::{Current, Previous};
    // Under which key each side verifies the other: (dialer's view, acceptor's view).
    let expected = [
        (0, 0, Current, Current),
        (0, 1, Current, Current),
        (1, 0, Current, Current),
        (1, 1, Current, Current),
        (1, 2, Previous, Previous),
        (2, 1, Previous, Previous),
        (2, 2, Current, Current),
        (2, 3, Current, Current),
        (3, 2, Current, Current),
        (3, 3, Current, Current),
    ];
    for (low, high, seen_by_dialer, seen_by_acceptor) in expected {
        let exchange = connect(
            dialer(forms[low](), Channel::Plaintext),
            acceptor(forms[high](), Channel::Plaintext),
        );
        let key = |end: End| match end {
            End::Established(established) => established.key(),
            other => panic!("forms {low} and {high}: {other:?}"),
        };
        assert_eq!(
            key(exchange.dialer),
            Some(seen_by_dialer),
            "{low} dials {high}"
        );
        assert_eq!(
            key(exchange.acceptor),
            Some(seen_by_acceptor),
            "{low} dials {high}"
        );
    }
    // Skipping a step disconnects somebody: that is why there are three.
    for (low, high) in [(0, 2), (2, 0), (1, 3), (3, 1), (0, 3), (3, 0)] {
        let exchange = connect(
            dialer(forms[low](), Channel::Plaintext),
            acceptor(forms[high](), Channel::Plaintext),
        );
        assert!(
            exchange.dialer.peer().is_none() || exchange.acceptor.peer().is_none(),
            "{low} dials {high}"
        );
    }
}

#[test]
fn whole_mesh_connects_with_one_link_per_pair() {
    for replica_count in [1, 2, 3, 5, 7, 255] {
        let identity = |replica| Identity {
            replica_count,
            ..node(replica)
        };
        for low in 0..replica_count.min(8) {
            for high in 0..replica_count.min(8) {
                let dial = Dialer::new(
                    identity(low),
                    ReplicaId(high),
                    keys(S1),
                    Channel::Plaintext,
                    counting(low + 1),
                );
                if high <= low {
                    let (replica, peer) = (ReplicaId(low), ReplicaId(high));
                    let expected = SetupError::PeerNotHigher { replica, peer };
                    assert_eq!(dial.expect_err("one direction per pair"), expected);
                    continue;
                }
                let accept =
                    Acceptor::new(identity(high), keys(S1), Channel::Plaintext, counting(0x90));
                let exchange = connect(dial.unwrap(), accept.unwrap());
                assert_eq!(exchange.dialer.peer(), Some(high));
                assert_eq!(exchange.acceptor.peer(), Some(low));
            }
        }
    }
}

#[test]
fn illegal_setups_are_refused_before_a_byte_is_sent() {
    let plain = Channel::Plaintext;
    let dial = |identity, peer, auth, channel, nonce| {
        Dialer::new(identity, ReplicaId(peer), auth, channel, nonce).err()
    };
    let replica_count = 3;
    let outside = |replica| SetupError::ReplicaOutOfRange {
        replica,
        replica_count,
    };
    let some = counting(0);
    assert_eq!(
        dial(node(3), 4, None, plain.clone(), some),
        Some(outside(ReplicaId(3)))
    );
    assert_eq!(
        dial(node(0), 3, None, plain.clone(), some),
        Some(SetupError::PeerOutOfRange {
            peer: ReplicaId(3),
            replica_count
        })
    );
    assert_eq!(
        dial(node(1), 1, None, plain.clone(), some),
        Some(SetupError::PeerNotHigher {
            replica: ReplicaId(1),
            peer: ReplicaId(1)
        })
    );
    assert_eq!(
        dial(node(0), 1, None, tls(some), some),
        Some(SetupError::TlsWithoutAuth)
    );
    assert_eq!(
        dial(node(0), 1, keys(S1), plain.clone(), [0; 32]),
        Some(SetupError::ZeroNonce)
    );
    assert_eq!(
        dial(node(0), 1, None, plain.clone(), [0; 32]),
        None,
        "no nonce is needed"
    );

    let accept =
        |identity, auth, channel, nonce| Acceptor::new(identity, auth, channel, nonce).err();
    assert_eq!(
        accept(node(3), None, plain.clone(), some),
        Some(outside(ReplicaId(3)))
    );
    assert_eq!(
        accept(node(2), None, tls(some), some),
        Some(SetupError::TlsWithoutAuth)
    );
    assert_eq!(
        accept(node(2), keys(S1), plain.clone(), [0; 32]),
        Some(SetupError::ZeroNonce)
    );
    assert_eq!(accept(node(0), None, plain, [0; 32]), None);
}
