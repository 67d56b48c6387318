//! The layout of the transcript, against the bytes written out in chapter 02.

use super::*;
use crate::link::cluster_id;

fn counting(from: u8) -> [u8; 32] {
    core::array::from_fn(|index| from + index as u8)
}

fn bytes(channel: &Channel, direction: Direction) -> Vec<u8> {
    let transcript = Transcript {
        cluster: cluster_id("iggy-cluster"),
        dialer: ReplicaId(0),
        acceptor: ReplicaId(2),
        dialer_nonce: &counting(0),
        acceptor_nonce: &counting(0x80),
        channel,
    };
    transcript.bytes(direction).to_vec()
}

#[test]
fn plaintext_transcript_of_the_dialer_equals_the_published_bytes() {
    let expected = concat!(
        "6170616368652d69676779207265706c6963612d61757468207631",
        "21bb05c88727bab88d0ec27be8a72d460002",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "000000000000000000000000000000000000000000000000000000000000000000",
        "01",
    );
    assert_eq!(
        hex::encode(bytes(&Channel::Plaintext, Direction::Dialer)),
        expected
    );
}

#[test]
fn direction_is_the_last_byte_and_nothing_else() {
    let dialer = bytes(&Channel::Plaintext, Direction::Dialer);
    let acceptor = bytes(&Channel::Plaintext, Direction::Acceptor);
    assert_eq!(dialer[..142], acceptor[..142]);
    assert_eq!((dialer[142], acceptor[142]), (1, 2));
}

#[test]
fn tls_changes_the_mode_byte_even_with_an_all_zero_exporter() {
    let plain = bytes(&Channel::Plaintext, Direction::Dialer);
    let zeros = bytes(&Channel::Tls { exporter: [0; 32] }, Direction::Dialer);
    assert_eq!((plain[109], zeros[109]), (0, 1));
    assert_eq!(plain[110..], zeros[110..]);

    let bound = bytes(
        &Channel::Tls {
            exporter: counting(0xe0),
        },
        Direction::Dialer,
    );
    assert_eq!(bound[..110], zeros[..110]);
    assert_eq!(bound[110..142], counting(0xe0));
}
