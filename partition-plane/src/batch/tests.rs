//! Vectors of chapter 06 section 23 and the refusals of chapter 01 section 12.4.

use biplane_wire::xxh3;

use super::*;
use crate::testing::{FRAMES, T, producer_batch, segment_of_two, stamped};

#[test]
fn producer_batch_is_the_vector() {
    let batch = producer_batch(&[0, 1], T);
    assert_eq!(batch.len(), 363);
    assert_eq!(xxh3(&batch), 0xddc7_a979_e2e6_f5ac);
    let header = verify(&batch).unwrap();
    assert_eq!((header.checksum, header.count), (0x1715_8347_72d4_3b26, 2));
}

#[test]
fn stamped_batch_is_the_vector() {
    let batch = stamped(&[0, 1], T, 3, 100, T + 123_456);
    assert_eq!(xxh3(&batch), 0xc50f_fe1a_844e_4bd8);
    let header = verify(&batch).unwrap();
    assert_eq!(header.checksum, 0xfffe_82ca_c96d_88eb);
    assert_eq!(header.meta().last_offset(), 101);
}

#[test]
fn frame_with_user_headers_is_the_vector() {
    let batch = producer_batch(&[3], 1);
    assert_eq!(batch.len(), 311);
    assert_eq!(verify(&batch).unwrap().checksum, 0x833e_d21e_3a18_d5a6);
}

#[test]
fn segment_file_is_the_vector() {
    let bytes = segment_of_two();
    assert_eq!(bytes.len(), 672);
    assert_eq!(xxh3(&bytes), 0xd310_2b6b_5d2b_daac);
    let first = verify_first(&bytes).unwrap();
    assert_eq!((first.length, first.checksum), (363, 0x8676_7c01_d0c7_8957));
    assert_eq!(
        verify(&bytes[363..]).unwrap().checksum,
        0xc6c1_d319_a13e_c1b7
    );
}

#[test]
fn slices_are_the_vectors() {
    let a = &segment_of_two()[..363];
    let first = slice(a, 0, 1).unwrap();
    let head = BatchHeader::read(&first.header).unwrap();
    assert_eq!(
        (head.length, head.count, head.checksum),
        (309, 1, 0x1bcc_76d4_8efb_a3bf)
    );
    let last = slice(a, 1, 10).unwrap();
    let head = BatchHeader::read(&last.header).unwrap();
    assert_eq!(
        (head.length, head.count, head.checksum),
        (310, 1, 0xca9d_f104_86fb_aab5)
    );
    assert_eq!(head.base_offset, 0);
    assert_eq!(&a[last.frames.clone()], FRAMES[1].as_slice());
    let whole = slice(a, 0, 2).unwrap();
    assert_eq!(whole.header, a[..256]);
    assert_eq!(slice(a, 2, 1), None);
    assert_eq!(slice(a, 0, 0), None);
}

#[test]
fn every_flip_and_truncation_is_refused() {
    let batch = stamped(&[0, 3, 1], T, 3, 100, T + 1);
    for at in 0..batch.len() {
        let mut bytes = batch.clone();
        bytes[at] ^= 0x04;
        assert!(verify(&bytes).is_err(), "byte {at}");
        assert!(verify(&batch[..at]).is_err(), "length {at}");
    }
    let mut longer = batch.clone();
    longer.push(0);
    assert_eq!(verify(&longer), Err(BatchError::Layout));
    assert_eq!(verify_first(&longer).unwrap().count, 3);
}

#[test]
fn each_kind_of_damage_has_its_status() {
    let batch = producer_batch(&[0, 1], T);
    let with = |at: usize, byte: u8| {
        let mut bytes = batch.clone();
        bytes[at] ^= byte;
        verify(&bytes).unwrap_err().status()
    };
    assert_eq!(with(batch.len() - 1, 1), 4027);
    assert_eq!(with(40, 1), 4039);
    assert_eq!(with(48, 1), 3);
    assert_eq!(with(52, 1), 3);
    assert_eq!(with(256 + 40, 1), 3);
    assert_eq!(with(32, 0x10), 3);
    assert_eq!(verify(&batch[..362]).unwrap_err().status(), 3);
}

#[test]
fn many_frames_hash_the_same_in_runs() {
    let ids: Vec<usize> = (0..300).map(|i| i % 4).collect();
    let batch = producer_batch(&ids, T);
    assert_eq!(verify(&batch).unwrap().count, 300);
    let cut = slice(&batch, 100, 170).unwrap();
    let mut bytes = cut.header.to_vec();
    bytes.extend_from_slice(&batch[cut.frames]);
    assert_eq!(verify(&bytes).unwrap().count, 170);
}

#[test]
fn stamping_the_captured_frames_again_gives_the_captured_file() {
    let file = include_bytes!("../../tests/golden/partition-alpha-beta-0-00000000000000000000.log");
    let mut rest = file.as_slice();
    let mut written = Vec::new();
    let mut next = 0;
    while !rest.is_empty() {
        let header = verify_first(rest).unwrap();
        let (batch, after) = rest.split_at(header.length as usize);
        // Back to what its producer sent, then through admission and stamping.
        let mut sent = batch.to_vec();
        sent[..24].fill(0);
        stamp(&mut sent, 0, 0);
        verify(&sent).unwrap();
        sent[..8].copy_from_slice(&header.partition_id.to_le_bytes());
        let meta = stamp(&mut sent, next, header.base_timestamp);
        next = meta.next_offset();
        written.extend(sent);
        rest = after;
    }
    assert_eq!(next, 4);
    assert_eq!(written, file);
}
