//! Snapshots: the bytes of the specification, a captured file, and round trips.

mod support;

use biplane_metadata_plane::snapshot::{
    SessionImage, SnapshotError, TableImage, decode_snapshot, encode_snapshot,
};
use biplane_wire::{ClientId, Op, Operation, xxh3};
use support::bodies::{
    create_group, create_user, global_permissions, join, name, option, plain_topic,
};
use support::{apply, fresh, hex};

/// Payload of the captured file, without its trailer.
fn captured() -> &'static [u8] {
    let file = include_bytes!("golden/metadata-snapshot.bin");
    &file[..file.len() - 20]
}

/// The register reply of the specification's example.
fn example_reply() -> Vec<u8> {
    let mut reply = vec![0; 32];
    reply.extend(hex(
        "ffeeddccbbaa0099887766554433221100010000020000000000000008",
    ));
    reply.extend([0; 99]);
    reply.extend(hex(
        "0f0e0d0c0b0a0908070605040302010005000000000000000500000000000000",
    ));
    reply.extend(hex("e01d2398900506"));
    reply.extend([0; 9]);
    reply.push(1);
    reply.extend([0; 47]);
    assert_eq!(reply.len(), 256);
    reply
}

/// The snapshot S1 of chapter 04, section 8.7.
fn example() -> Vec<u8> {
    let mut bytes = hex(
        "9705cf0006059098231de006939192009700a469676779a168a6616374697665cf0006059098231de0929ac3
         c3c3c3c3c3c3c3c3c3c0809192009192a263699400a26369a174c096909090909090929192009600a173cf00
         06059098231de0930000009192009b00a174cf0006059098231de0cfffffffffffffffffa46e6f6e65cfffff
         ffffffffffff9300000091970001cf0006059098231de001000000919201940102a1679192009400c4100001
         02030405060708090a0b0c0d0e0f910090028192a6737472696e67b06332566e625756756446397a6158706c
         9292a675696e743634ac41414141514141414141413dc280019291920096c410000102030405060708090a0b
         0c0d0e0f050700c410",
    );
    bytes.extend([0; 16]);
    bytes.extend(hex("c50100"));
    bytes.extend(example_reply());
    bytes.extend(hex("90cd2c00"));
    bytes
}

#[test]
fn example_of_the_specification_is_reproduced_byte_for_byte() {
    let bytes = example();
    assert_eq!(bytes.len(), 552);
    assert_eq!(xxh3(&bytes), 0x38e8_538b_f877_ffcb);
    let snapshot = decode_snapshot(&bytes).expect("decodes");
    snapshot.state.check_invariants();
    assert_eq!(snapshot.op, Op(6));
    let encoded = encode_snapshot(
        snapshot.created_at,
        snapshot.op,
        &snapshot.state,
        &snapshot.table,
    );
    assert_eq!(encoded, bytes);
    let group = &snapshot.state.streams().by_id()[&0].topics()[&0].groups()[&1];
    assert_eq!(group.generation, 2);
    let client = ClientId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
    assert_eq!(
        group
            .member_of(client)
            .map(|(_, member)| member.partitions.clone()),
        Some(vec![0])
    );
    assert_eq!(snapshot.table.slots[0].1.reply, example_reply());
}

#[test]
fn captured_snapshot_of_version_3_is_read_and_survives_a_round_trip() {
    let snapshot = decode_snapshot(captured()).expect("decodes");
    snapshot.state.check_invariants();
    assert_eq!(snapshot.op.0, 0x77f);
    assert!(snapshot.state.users().by_name("iggy").is_some());
    assert!(!snapshot.state.streams().by_id().is_empty());
    assert!(snapshot.table.fences.is_empty());
    let encoded = encode_snapshot(
        snapshot.created_at,
        snapshot.op,
        &snapshot.state,
        &snapshot.table,
    );
    assert_eq!(encoded[1], 5, "version 5 is written");
    assert_eq!(decode_snapshot(&encoded).expect("decodes"), snapshot);
}

#[test]
fn every_truncation_of_a_snapshot_is_refused() {
    let bytes = example();
    for length in 0..bytes.len() {
        assert!(
            decode_snapshot(&bytes[..length]).is_err(),
            "length {length}"
        );
    }
}

#[test]
fn damaged_snapshots_never_panic() {
    let bytes = example();
    for at in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            let _ = decode_snapshot(&damaged);
        }
    }
}

#[test]
fn other_versions_and_shapes_are_refused() {
    for version in [0, 2, 6, 127] {
        let mut bytes = example();
        bytes[1] = version;
        assert!(
            matches!(decode_snapshot(&bytes), Err(SnapshotError::Version(found))
            if found == u64::from(version))
        );
    }
    let empty = hex("9705002ac0c0c0cd2c00");
    assert!(matches!(
        decode_snapshot(&empty),
        Err(SnapshotError::Inconsistent(_))
    ));
    let mut newer = example();
    let at = newer.len() - 1;
    newer[at] = 1;
    assert!(matches!(
        decode_snapshot(&newer),
        Err(SnapshotError::NewerRelease(0x2C01))
    ));
}

#[test]
fn partition_of_an_older_writer_gets_view_0_and_a_longer_one_is_refused() {
    let bytes = example();
    let partition = hex("970001cf0006059098231de001000000");
    let at = bytes
        .windows(partition.len())
        .position(|w| w == partition)
        .expect("there");
    let mut older = bytes.clone();
    older[at] = 0x96;
    older.remove(at + partition.len() - 1);
    assert!(decode_snapshot(&older).is_ok());
    let mut longer = bytes;
    longer[at] = 0x98;
    longer.insert(at + partition.len(), 0);
    assert!(decode_snapshot(&longer).is_err());
}

#[test]
fn options_permissions_groups_and_fences_survive() {
    let mut state = fresh();
    apply(&mut state, Operation::CreateStream, &name("a"));
    apply(
        &mut state,
        Operation::CreateTopicWithAssignments,
        &plain_topic(0, "t", 4),
    );
    apply(
        &mut state,
        Operation::CreateConsumerGroup,
        &create_group(0, 0, "g"),
    );
    apply(
        &mut state,
        Operation::JoinConsumerGroup,
        &join(0, 0, 0, 5, &[]),
    );
    apply(
        &mut state,
        Operation::JoinConsumerGroup,
        &join(0, 0, 0, 6, &[3]),
    );
    let mut permissions = global_permissions(&[1, 9]);
    permissions.pop();
    permissions.extend(hex("01 00000000 000100000100 01 01000000 00010101 00 00"));
    let body = create_user("alice", "hash", 2, Some(&permissions));
    let body = [body, option("note", 1, b"x")].concat();
    apply(&mut state, Operation::CreateUser, &body);
    let session = |client| SessionImage {
        client,
        epoch: 3,
        user_id: 1,
        watermark: 9,
        watermark_checksum: 1 << 100,
        reply: example_reply(),
    };
    let fence = SessionImage {
        reply: Vec::new(),
        ..session(8)
    };
    let table = TableImage {
        slots: vec![(4, session(7))],
        fences: vec![fence],
    };
    let bytes = encode_snapshot(1, Op(40), &state, &table);
    let decoded = decode_snapshot(&bytes).expect("decodes");
    assert_eq!(decoded.state, state);
    assert_eq!(decoded.table, table);
    decoded.state.check_invariants();
    assert_eq!(decoded.state.pending_revocations().count(), 1);
}
