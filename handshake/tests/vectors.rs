//! The computed vectors of the protocol specification (chapter 01 section 16.3, chapter 02 vectors
//! V1, V3, V4 and V5) and three handshakes recorded from running nodes. V2 is with the keys, which
//! do not leave their file.

mod support;

use biplane_handshake::{
    Acceptor, Channel, Dialer, EXPORTER_LABEL, EXPORTER_LENGTH, Frame, Identity, KeySlot, Keys,
    RejectReason, cluster_id,
};
use biplane_wire::ReplicaId;
use ring::{digest, hkdf};
use support::*;

const CL: &str = "21bb05c88727bab88d0ec27be8a72d46";

/// Bytes 32..62 of a frame: cluster, size 256, command, replica.
fn head(command: u8, replica: u8) -> String {
    format!("{CL}00010000{:016x}{command:02x}{replica:02x}", 0)
}

#[test]
fn cluster_ids_equal_the_published_ones() {
    for (name, bytes, number) in [
        (
            "iggy-cluster",
            CL,
            0x462d_a7e8_7bc2_0e8d_b8ba_2787_c805_bb21,
        ),
        (
            "iggy-vsr-dev",
            "f41be0a95eec68992dd68cb2d9a3014d",
            0x4d01_a3d9_b28c_d62d_9968_ec5e_a9e0_1bf4,
        ),
        (
            "test",
            "4878ca0425c739fa427f7eda20fe845f",
            0x5f84_fe20_da7e_7f42_fa39_c725_04ca_7848,
        ),
        (
            "prod-eu-1",
            "e353ef9e5fbfc9b66c0c0c52e88cdcf7",
            0xf7dc_8ce8_520c_0c6c_b6c9_bf5f_9eef_53e3,
        ),
        (
            "a",
            "17762fddd969a453925d65717ac3eea2",
            0xa2ee_c37a_7165_5d92_53a4_69d9_dd2f_7617,
        ),
        (
            "Iggy-Cluster",
            "0224c4cd4d5c36ffaf9fac099297dac5",
            0xc5da_9792_09ac_9faf_ff36_5c4d_cdc4_2402_u128,
        ),
    ] {
        let id = cluster_id(name);
        assert_eq!(hex::encode(id.to_bytes()), bytes, "{name}");
        assert_eq!(u128::from_le_bytes(id.to_bytes()), number, "{name}");
    }
    assert_ne!(
        cluster_id("test"),
        cluster_id("test "),
        "the name is not trimmed"
    );
}

/// Chapter 02 V3: key, channel, the dialer's code, the acceptor's code.
fn published_codes() -> Vec<(&'static str, Channel, &'static str, &'static str)> {
    vec![
        (
            S1,
            Channel::Plaintext,
            "d4a75d4f66277769f726cb169b1558f38d1c2738ca0084d9c73fe6247bd2acb9",
            "5204feb31df4dd52a43cdd32ace830fb2482b31968151ae34e982e71460342cc",
        ),
        (
            S2,
            Channel::Plaintext,
            "24c16b1c164a27488ce9335c0eda5457e8cfc7c0bebc2e38997f290da4afd9cb",
            "a28a55034dd2ad36bdffb06cbfc69855467d51eafb15e9734d13f9ff8a6324c4",
        ),
        (
            S1,
            tls(counting(0xe0)),
            "6ebb59637fed7b83186266124d64a6e5f4427798d673f1d89f4654a2585eefd8",
            "fc7e1b4dd959b2d450cbcf796e2fc8f0880c12e9d105ece059fb1f8762364585",
        ),
        (
            S1,
            tls([0; 32]),
            "c0100b3c3ae4322f115d41a92220378ee5fab365fef36ca72bcd80b021deef9c",
            "4dc07b84de7f386b60089f8d59eb4f1e1599fa066d496efa086cc9e0979fc559",
        ),
    ]
}

#[test]
fn codes_and_whole_frames_equal_the_published_ones() {
    for (secret, channel, mac_dialer, mac_acceptor) in published_codes() {
        let (hello_frame, waiting) = hello(dialer(keys(secret), channel.clone()));
        let nonce_dialer = hex::encode(counting(0));
        assert_eq!(
            hello_frame,
            frame(&[(32, &head(14, 0)), (128, &nonce_dialer)])
        );

        let (challenge_frame, next) = challenge(acceptor(keys(secret), channel), &hello_frame);
        let nonce_acceptor = hex::encode(counting(0x80));
        let expected = frame(&[
            (32, &head(15, 2)),
            (128, &nonce_acceptor),
            (160, mac_acceptor),
        ]);
        assert_eq!(hex::encode(challenge_frame), hex::encode(expected));

        let finish = waiting
            .on_challenge(&challenge_frame)
            .expect("both hold the secret");
        let expected = frame(&[(32, &head(16, 0)), (160, mac_dialer)]);
        assert_eq!(hex::encode(finish.frame), hex::encode(expected));
        assert_eq!(
            next.on_finish(&finish.frame).expect("a good finish").peer(),
            ReplicaId(0)
        );
    }
}

#[test]
fn node_in_rotation_accepts_the_codes_of_both_secrets_and_signs_with_the_new_one() {
    for (secret, channel, mac_dialer, mac_acceptor) in published_codes() {
        let slot = if secret == S2 {
            KeySlot::Current
        } else {
            KeySlot::Previous
        };
        let both = || rotating(S2, S1);
        let (hello_frame, waiting) = hello(dialer(both(), channel.clone()));
        let foreign = frame(&[
            (32, &head(15, 2)),
            (128, &hex::encode(counting(0x80))),
            (160, mac_acceptor),
        ]);
        let finish = waiting
            .on_challenge(&foreign)
            .expect("either secret verifies");
        assert_eq!(finish.established.key(), Some(slot));

        let (challenge_frame, next) = challenge(acceptor(both(), channel.clone()), &hello_frame);
        let foreign = frame(&[(32, &head(16, 0)), (160, mac_dialer)]);
        let established = next.on_finish(&foreign).expect("either secret verifies");
        assert_eq!(established.key(), Some(slot));

        // Its own codes are those of a node that has the new secret alone.
        let (_, only_new) = hello(dialer(keys(S2), channel.clone()));
        let expected = only_new
            .on_challenge(&challenge_frame)
            .expect("signed with the new one");
        assert_eq!(expected.established.key(), Some(KeySlot::Current));
        assert_eq!(finish.frame, expected.frame);
    }
}

#[test]
fn frames_of_the_wire_chapter_equal_the_published_ones() {
    let identity = |replica| Identity {
        replica_count: 2,
        ..node(replica)
    };
    let (off, _) = Dialer::new(
        identity(0),
        ReplicaId(1),
        None,
        Channel::Plaintext,
        [0x11; 32],
    )
    .unwrap()
    .hello();
    let v30 = frame(&[(32, &format!("{CL}0001")), (60, "0e")]);
    assert_eq!(
        off, v30,
        "authentication off: no nonce, whatever was handed in"
    );

    let ones = "11".repeat(32);
    let v31 = frame(&[(32, &format!("{CL}0001")), (60, "0e"), (128, &ones)]);
    let v32 = frame(&[
        (32, &format!("{CL}0001")),
        (60, "0f01"),
        (128, &"22".repeat(32)),
        (
            160,
            "044b521980f2163017c3fa3730ab0587838513d52fe697b0c6f947a3e8d33b48",
        ),
    ]);
    let v33 = frame(&[
        (32, &format!("{CL}0001")),
        (60, "10"),
        (
            160,
            "a883c0ee40ebada280ceb697aba6e4555ccf902d9f033f2691ab08708cb2cd08",
        ),
    ]);
    let on = Dialer::new(
        identity(0),
        ReplicaId(1),
        keys(S1),
        Channel::Plaintext,
        [0x11; 32],
    );
    let (hello_frame, waiting) = hello(on.unwrap());
    assert_eq!(hello_frame, v31);
    let one = || Acceptor::new(identity(1), keys(S1), Channel::Plaintext, [0x22; 32]).unwrap();
    let (challenge_frame, next) = challenge(one(), &v31);
    assert_eq!(challenge_frame, v32);
    let finish = waiting.on_challenge(&v32).unwrap();
    assert_eq!(finish.frame, v33);
    assert!(next.on_finish(&v33).is_ok());

    let v34 = frame(&[(32, &format!("{CL}0001")), (60, "0f01"), (192, "02")]);
    let refused = rejection(one(), &with(&v31, 32, 0));
    assert_eq!(
        (refused.reason, refused.frame),
        (RejectReason::ClusterMismatch, Some(v34))
    );
}

#[test]
fn refusals_equal_the_published_ones_and_are_read_back() {
    let (hello_frame, _) = hello(dialer(keys(S1), Channel::Plaintext));
    for (offset, byte, label, status) in [
        (60, 5, "unknown_command", 1),
        (32, 0xad, "cluster_mismatch", 2),
        (61, 2, "directional_rule", 3),
        (61, 200, "directional_rule", 3),
    ] {
        let refused = rejection(
            acceptor(keys(S1), Channel::Plaintext),
            &with(&hello_frame, offset, byte),
        );
        let expected = frame(&[(32, &head(15, 2)), (192, &hex::encode([status]))]);
        assert_eq!(refused.frame, Some(expected), "{label}");
        assert_eq!(refused.reason.label(), label);

        let (_, waiting) = hello(dialer(keys(S1), Channel::Plaintext));
        let read = waiting.on_challenge(&expected).unwrap_err();
        assert_eq!(read, RejectReason::Refused { status });
        assert_eq!(read.label(), label);
        assert!(read.is_remote() && !refused.reason.is_remote());
    }
}

/// HKDF-Expand-Label of RFC 8446 section 7.1.
fn expand_label(
    algorithm: hkdf::Algorithm,
    secret: &[u8],
    label: &[u8],
    context: &[u8],
    length: usize,
) -> Vec<u8> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let byte = |value: usize| [u8::try_from(value).expect("a short label")];
    let label = [b"tls13 ", label].concat();
    let info = [
        &u16::try_from(length).expect("a short output").to_be_bytes()[..],
        &byte(label.len()),
        &label,
        &byte(context.len()),
        context,
    ];
    let mut output = vec![0; length];
    hkdf::Prk::new_less_safe(algorithm, secret)
        .expand(&info, Length(length))
        .and_then(|expanded| expanded.fill(&mut output))
        .expect("a short output");
    output
}

#[test]
fn exporter_values_equal_the_published_ones() {
    for (hkdf, hash, length, expected) in [
        (
            hkdf::HKDF_SHA256,
            &digest::SHA256,
            32,
            "748551f30f5ee2caffe18af4814df93d35a6eb29641ee255f929e884c72df2e1",
        ),
        (
            hkdf::HKDF_SHA384,
            &digest::SHA384,
            48,
            "89e10e554e81bc01ae77ab310675f8a74aad6de080d12fdc4b0b9755b0b11a5b",
        ),
    ] {
        let master: Vec<u8> = (0..length).collect();
        let empty = digest::digest(hash, b"");
        let empty = empty.as_ref();
        let derived = expand_label(hkdf, &master, EXPORTER_LABEL, empty, usize::from(length));
        let value = expand_label(hkdf, &derived, b"exporter", empty, EXPORTER_LENGTH);
        assert_eq!(hex::encode(value), expected);
    }
}

/// One recorded handshake, as the three frames.
struct Recorded {
    secret: String,
    cluster: String,
    hello: Frame,
    challenge: Frame,
    finish: Frame,
}

fn recorded() -> Vec<Recorded> {
    let text = include_str!("golden/handshake-auth-plaintext.json");
    let file: serde_json::Value = serde_json::from_str(text).expect("json");
    let string = |value: &serde_json::Value| value.as_str().expect("a string").to_owned();
    let bytes = |value| {
        hex::decode(string(value))
            .expect("hex")
            .try_into()
            .expect("256 bytes")
    };
    let list = file["handshakes"].as_array().expect("a list");
    list.iter()
        .map(|entry| Recorded {
            secret: string(&file["shared_secret"]),
            cluster: string(&file["cluster_name"]),
            hello: bytes(&entry["hello"]),
            challenge: bytes(&entry["challenge"]),
            finish: bytes(&entry["finish"]),
        })
        .collect()
}

#[test]
fn recorded_handshakes_are_reproduced_byte_for_byte_in_both_roles() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 3);
    for Recorded {
        secret,
        cluster,
        hello: first,
        challenge: second,
        finish: third,
    } in recorded
    {
        let (low, high) = (ReplicaId(first[61]), ReplicaId(second[61]));
        let nonce = |frame: &Frame| -> [u8; 32] { frame[128..160].try_into().unwrap() };
        let auth = || Some(Keys::from_secrets(&secret, None).unwrap());
        let node = |replica| Identity {
            cluster: cluster_id(&cluster),
            replica,
            replica_count: 3,
        };
        let ours = Dialer::new(node(low), high, auth(), Channel::Plaintext, nonce(&first));
        let (hello_frame, waiting) = hello(ours.unwrap());
        assert_eq!(hello_frame, first);
        let finish = waiting
            .on_challenge(&second)
            .expect("a recorded challenge verifies");
        assert_eq!(finish.frame, third);
        assert_eq!(finish.established.peer(), high);
        assert_eq!(finish.established.key(), Some(KeySlot::Current));

        let ours = Acceptor::new(node(high), auth(), Channel::Plaintext, nonce(&second));
        let (challenge_frame, next) = challenge(ours.unwrap(), &first);
        assert_eq!(challenge_frame, second);
        assert_eq!(next.peer(), low);
        assert_eq!(
            next.on_finish(&third)
                .expect("a recorded finish verifies")
                .peer(),
            low
        );
    }
}
