//! Bytes nobody meant: every single flipped bit of a good exchange, and random frames in every
//! state. No input panics, and none is taken for a peer unless the protocol says it is one.

mod support;

use biplane_handshake::{Channel, Frame, HelloOutcome, Then};
use support::*;

const SEED: u64 = 0x6861_6e64_7368;

/// Flips each bit of `good` and returns the bytes at which at least one flip was refused.
fn refused_bytes(good: &Frame, mut accepts: impl FnMut(&Frame) -> bool) -> Vec<usize> {
    assert!(accepts(good), "the frame itself is good");
    (0..256)
        .filter(|&at| (0..8).any(|bit| !accepts(&with(good, at, good[at] ^ 1 << bit))))
        .collect()
}

fn ranges(parts: &[std::ops::Range<usize>]) -> Vec<usize> {
    parts.iter().cloned().flatten().collect()
}

#[test]
fn every_flipped_bit_is_refused_where_the_tables_look_and_ignored_elsewhere() {
    let fresh_dialer = || hello(dialer(keys(S1), Channel::Plaintext));
    let fresh_acceptor = || acceptor(keys(S1), Channel::Plaintext);
    let exchange = connect(dialer(keys(S1), Channel::Plaintext), fresh_acceptor());
    let [first, second, third] = exchange.frames.try_into().expect("three frames");

    // A flipped nonce in the hello is not refused at once: it is another nonce. The dialer notices.
    let refused = refused_bytes(&first, |frame| {
        let HelloOutcome::SendChallenge { frame: answer, .. } = fresh_acceptor().on_hello(frame)
        else {
            return false;
        };
        fresh_dialer().1.on_challenge(&answer).is_ok()
    });
    // Cluster, the low bytes of size (its high bytes only announce a body), command, id, nonce.
    assert_eq!(refused, ranges(&[32..48, 49..50, 60..62, 128..160]));

    let refused = refused_bytes(&second, |frame| {
        fresh_dialer().1.on_challenge(frame).is_ok()
    });
    assert_eq!(refused, ranges(&[32..48, 49..50, 60..62, 128..193]));

    let refused = refused_bytes(&third, |frame| {
        challenge(fresh_acceptor(), &first)
            .1
            .on_finish(frame)
            .is_ok()
    });
    assert_eq!(refused, ranges(&[32..48, 49..50, 60..62, 160..192]));
}

#[test]
fn every_bit_of_every_relevant_field_is_covered() {
    // Stronger than the test above for the secret-bearing fields: no single bit of them is slack.
    let fresh_dialer = || hello(dialer(keys(S1), tls(counting(4)))).1;
    let (first, _) = hello(dialer(keys(S1), tls(counting(4))));
    let (second, _) = challenge(acceptor(keys(S1), tls(counting(4))), &first);
    for at in 128..193 {
        for bit in 0..8 {
            let flipped = with(&second, at, second[at] ^ 1 << bit);
            assert!(
                fresh_dialer().on_challenge(&flipped).is_err(),
                "byte {at} bit {bit}"
            );
        }
    }
}

#[test]
fn random_frames_end_in_a_reason_and_never_in_an_authenticated_peer() {
    println!("seed {SEED:#x}; change SEED in tests/hostile.rs to try another");
    let mut prng = Prng::new(SEED);
    for round in 0..20_000 {
        let mut bytes = vec![0; prng.below(600)];
        prng.fill(&mut bytes);
        // Half of the frames get past the first checks, so that the later ones are reached, too.
        if bytes.len() >= 256 && round % 2 == 0 {
            bytes[48..52].copy_from_slice(&256_u32.to_le_bytes());
            bytes[60] = 14 + prng.below(3) as u8;
            bytes[61] = prng.below(3) as u8;
            bytes[32..48].copy_from_slice(&node(0).cluster.to_bytes());
            bytes[192] = prng.below(2) as u8;
        }
        let (first, waiting) = hello(dialer(keys(S1), Channel::Plaintext));
        assert!(waiting.on_challenge(&bytes).is_err());
        let (_, waiting) = challenge(acceptor(keys(S1), Channel::Plaintext), &first);
        assert!(waiting.on_finish(&bytes).is_err());
        match acceptor(keys(S1), Channel::Plaintext).on_hello(&bytes) {
            HelloOutcome::Accepted(peer) => panic!("nobody proved to be {peer:?}"),
            HelloOutcome::SendChallenge { next, .. } => assert!(next.peer().0 < 2),
            HelloOutcome::Reject(refused) => assert!(!refused.reason.label().is_empty()),
        }
        match acceptor(None, Channel::Plaintext).on_hello(&bytes) {
            HelloOutcome::Accepted(established) => assert_eq!(established.key(), None),
            HelloOutcome::SendChallenge { .. } => panic!("authentication is off"),
            HelloOutcome::Reject(refused) => assert_eq!(refused.frame, None),
        }
    }
}

#[test]
fn same_inputs_give_the_same_frames() {
    println!("seed {SEED:#x}");
    let run = |seed| {
        let mut prng = Prng::new(seed);
        let mut exporter = [0; 32];
        prng.fill(&mut exporter);
        connect(
            dialer(keys(S1), tls(exporter)),
            acceptor(keys(S1), tls(exporter)),
        )
        .frames
    };
    assert_eq!(run(SEED), run(SEED));
    assert_ne!(run(SEED), run(SEED + 1));
}

#[test]
fn no_debug_form_shows_a_secret() {
    let exporter = [0xa7; 32];
    let (_, waiting) = hello(dialer(keys(S1), tls(exporter)));
    let (first, _) = hello(dialer(keys(S1), tls(exporter)));
    let (_, next) = challenge(acceptor(keys(S1), tls(exporter)), &first);
    let Then::Read(machine) = acceptor(rotating(S1, S2), tls(exporter)).start().then else {
        panic!("an acceptor reads first")
    };
    let texts = [
        format!("{:?}", tls(exporter)),
        format!("{:?}", rotating(S1, S2)),
        format!("{:?}", dialer(keys(S1), tls(exporter))),
        format!("{:?}", acceptor(keys(S1), tls(exporter))),
        format!("{waiting:?} {next:?} {machine:?}"),
    ];
    // The exporter as a list of numbers or hex, the secrets, the start of the derived key.
    for text in texts {
        for secret in ["167", "a7a7", S1, S2, "57, 236", "39ec54"] {
            assert!(!text.contains(secret), "{text} shows {secret}");
        }
    }
}
