//! The CONSUMER_OFFSETS artifact: the vectors of chapter 04 section 8.6, every rejection, every
//! truncation and every flip.

mod support;

use biplane_state_transfer::{
    Checkpoint, CheckpointDefect, ConsumerOffsets, DedupEntry, OffsetsError, StoredOffset,
    check_checkpoint,
};
use biplane_wire::{Checksum, ClientId, Command, GroupId, Op, Operation, PrepareHeader, prepare};
use support::{golden, golden_message, reseal};

const O0: &str = include_str!("golden/offsets_o0.txt");
const O0B: &str = include_str!("golden/offsets_o0b.txt");
const O1: &str = include_str!("golden/offsets_o1.txt");
const O1E: &str = include_str!("golden/offsets_o1e.txt");
const O2: &str = include_str!("golden/offsets_o2.txt");

fn stored(entries: &[(u32, u64)]) -> Vec<StoredOffset> {
    entries
        .iter()
        .map(|(id, offset)| StoredOffset {
            id: *id,
            offset: *offset,
        })
        .collect()
}

fn dedup(client: u128, watermark: u64, latest_commit: u64) -> DedupEntry {
    DedupEntry {
        client: ClientId(client),
        watermark,
        latest_commit: Op(latest_commit),
        user_id: 1,
        committed_window: 0xb,
    }
}

fn o1() -> ConsumerOffsets {
    ConsumerOffsets {
        purge_generation: 3,
        next_offset: 43,
        consumers: stored(&[(1, 10), (7, 42)]),
        groups: stored(&[(2, 5)]),
        dedup: vec![dedup(0xb, 4, 90), dedup(0x1_0000_0000_0000_0004, 9, 91)],
        checkpoint: Checkpoint::Known {
            checksum: Checksum(0x0123_4567_89ab_cdef),
            prepare: None,
        },
    }
}

fn o2() -> ConsumerOffsets {
    let prepare = golden_message(include_str!("golden/partition_prepare_77.txt"));
    let checksum = Checksum(0xc3bc_43e6_d02c_4bf5);
    ConsumerOffsets {
        next_offset: 1,
        checkpoint: Checkpoint::Known {
            checksum,
            prepare: Some(prepare),
        },
        ..ConsumerOffsets::default()
    }
}

#[test]
fn vectors_decode_and_encode() {
    let known_empty = ConsumerOffsets {
        checkpoint: Checkpoint::Known {
            checksum: Checksum::ZERO,
            prepare: None,
        },
        ..ConsumerOffsets::default()
    };
    let vectors = [
        (O0, ConsumerOffsets::default()),
        (O0B, known_empty),
        (O1, o1()),
        (O2, o2()),
    ];
    for (dump, values) in vectors {
        let bytes = golden(dump);
        assert_eq!(ConsumerOffsets::decode(&bytes).as_ref(), Ok(&values));
        assert_eq!(values.encode(), Ok(bytes));
    }
    assert_eq!(ConsumerOffsets::purge_generation_of(&golden(O1)), Some(3));
    assert_eq!(
        ConsumerOffsets::purge_generation_of(&golden(O1)[..12]),
        None
    );
}

#[test]
fn earlier_layout_is_read() {
    let decoded = ConsumerOffsets::decode(&golden(O1E)).expect("the earlier layout");
    let expected = ConsumerOffsets {
        purge_generation: 3,
        next_offset: 43,
        consumers: stored(&[(1, 10), (7, 42)]),
        groups: stored(&[(2, 5)]),
        dedup: Vec::new(),
        checkpoint: Checkpoint::Unknown,
    };
    assert_eq!(decoded, expected);
    let mut longer = golden(O1E);
    longer.insert(longer.len() - 8, 0);
    assert!(
        ConsumerOffsets::decode(&reseal(longer)).is_err(),
        "only when the length fits"
    );
}

#[test]
fn rejections_of_the_specification() {
    let rejected = |change: &dyn Fn(&mut Vec<u8>), dump: &str| {
        let mut bytes = golden(dump);
        change(&mut bytes);
        ConsumerOffsets::decode(&reseal(bytes)).expect_err("it does not hold")
    };
    assert_eq!(
        rejected(&|bytes| bytes[4] = 2, O1),
        OffsetsError::BadVersion(2)
    );
    assert_eq!(
        rejected(&|bytes| bytes[3] = b'2', O1),
        OffsetsError::BadMagic
    );
    let swap = |bytes: &mut Vec<u8>| (bytes[33], bytes[45]) = (7, 1);
    assert_eq!(rejected(&swap, O1), OffsetsError::NotAscending);
    let twice = |bytes: &mut Vec<u8>| bytes[45] = 1;
    assert_eq!(rejected(&twice, O1), OffsetsError::NotAscending);
    let no_client = |bytes: &mut Vec<u8>| bytes[69] = 0;
    assert_eq!(rejected(&no_client, O1), OffsetsError::ZeroClient);
    let flag = |bytes: &mut Vec<u8>| bytes[33] = 2;
    assert_eq!(rejected(&flag, O0), OffsetsError::BadFlag(2));
    let absent_with_value = |bytes: &mut Vec<u8>| bytes[34] = 1;
    assert_eq!(
        rejected(&absent_with_value, O0),
        OffsetsError::UnexpectedCheckpoint
    );
    let too_many = |bytes: &mut Vec<u8>| {
        bytes[21..25].copy_from_slice(&((1_u32 << 20) + 1).to_le_bytes());
    };
    assert_eq!(rejected(&too_many, O0), OffsetsError::TooManyEntries);
    let thousand = |bytes: &mut Vec<u8>| bytes[21..25].copy_from_slice(&1_000_u32.to_le_bytes());
    assert_eq!(rejected(&thousand, O0), OffsetsError::Truncated);
    let trailing = |bytes: &mut Vec<u8>| bytes.insert(bytes.len() - 8, 0);
    assert_eq!(rejected(&trailing, O0), OffsetsError::TrailingBytes);
    let no_frame = |bytes: &mut Vec<u8>| bytes[54 + 60] = 0xff;
    assert_eq!(rejected(&no_frame, O2), OffsetsError::BadPrepare);
    let huge = |bytes: &mut Vec<u8>| bytes[50..54].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(rejected(&huge, O2), OffsetsError::PrepareTooLarge);
}

#[test]
fn every_truncation_and_every_flip_is_refused() {
    for dump in [O0, O1, O1E, O2] {
        let bytes = golden(dump);
        for end in 0..bytes.len() {
            assert!(
                ConsumerOffsets::decode(&bytes[..end]).is_err(),
                "cut at {end}"
            );
            // An empty artifact cut behind its group count is one of the earlier layout.
            let earlier = bytes[21..29] == [0; 8] && end == 37;
            if end >= 8 && !earlier {
                let resealed = ConsumerOffsets::decode(&reseal(bytes[..end].to_vec()));
                assert!(resealed.is_err(), "cut at {end}, resealed");
            }
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!(
                ConsumerOffsets::decode(&flipped),
                Err(OffsetsError::Checksum)
            );
        }
    }
}

#[test]
fn resealed_flips_never_panic_and_what_decodes_encodes_again() {
    for dump in [O1, O2] {
        let bytes = golden(dump);
        for at in 0..bytes.len() - 8 {
            for mask in [0x01, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                let flipped = reseal(flipped);
                if let Ok(values) = ConsumerOffsets::decode(&flipped) {
                    assert_eq!(values.encode(), Ok(flipped), "byte {at}");
                }
            }
        }
    }
}

#[test]
fn inconsistent_values_do_not_encode() {
    let unordered = ConsumerOffsets {
        groups: stored(&[(2, 1), (2, 1)]),
        ..o1()
    };
    assert_eq!(unordered.encode(), Err(OffsetsError::NotAscending));
    let anonymous = ConsumerOffsets {
        dedup: vec![dedup(0, 1, 1)],
        ..o1()
    };
    assert_eq!(anonymous.encode(), Err(OffsetsError::ZeroClient));
    let many = (0..=1 << 20)
        .map(|id| StoredOffset { id, offset: 0 })
        .collect();
    let crowded = ConsumerOffsets {
        consumers: many,
        ..o1()
    };
    assert_eq!(crowded.encode(), Err(OffsetsError::TooManyEntries));
}

#[test]
fn checkpoint_is_the_prepare_of_its_op() {
    let checkpoint = o2().checkpoint;
    let Checkpoint::Known {
        checksum,
        prepare: Some(prepare),
    } = &checkpoint
    else {
        panic!()
    };
    let group = prepare.header::<PrepareHeader>().group();
    assert_eq!(check_checkpoint(&checkpoint, group, Op(77), true), Ok(()));
    let refused = check_checkpoint(&checkpoint, group, Op(78), true);
    assert_eq!(refused, Err(CheckpointDefect::Op), "offered for another op");
    let other = GroupId::partition(5, 5, 5).expect("a legal key");
    let refused = check_checkpoint(&checkpoint, other, Op(77), true);
    assert_eq!(refused, Err(CheckpointDefect::Group));
    let renamed = Checkpoint::Known {
        checksum: Checksum(1),
        prepare: Some(prepare.clone()),
    };
    let refused = check_checkpoint(&renamed, group, Op(77), true);
    assert_eq!(refused, Err(CheckpointDefect::Identity));
    let repair = prepare.prepare_to_repair();
    let as_repair = Checkpoint::Known {
        checksum: *checksum,
        prepare: Some(repair),
    };
    let refused = check_checkpoint(&as_repair, group, Op(77), true);
    assert_eq!(refused, Err(CheckpointDefect::NotPrepare));
}

#[test]
fn checkpoint_that_sends_messages_carries_a_sound_batch() {
    let group = GroupId::partition(0, 0, 1).expect("a legal key");
    let checkpoint = |body: &[u8]| {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(9));
        header.set_group(group);
        header.set_operation(Operation::SendMessages);
        let prepare = prepare::build_with_body(header, body);
        let checksum = prepare.header::<PrepareHeader>().frame.checksum();
        Checkpoint::Known {
            checksum,
            prepare: Some(prepare),
        }
    };
    let batch = golden(include_str!("golden/segment.txt"));
    assert_eq!(
        check_checkpoint(&checkpoint(&batch), group, Op(9), true),
        Ok(())
    );
    let refused = check_checkpoint(&checkpoint(&batch[..300]), group, Op(9), true);
    assert_eq!(refused, Err(CheckpointDefect::Body));
}

#[test]
fn persisted_groups_need_a_checkpoint_and_others_do_not() {
    let group = GroupId::partition(0, 0, 1).expect("a legal key");
    let check = |checkpoint: &Checkpoint, op, persisted| {
        check_checkpoint(checkpoint, group, Op(op), persisted)
    };
    let empty = Checkpoint::Known {
        checksum: Checksum::ZERO,
        prepare: None,
    };
    let named = Checkpoint::Known {
        checksum: Checksum(5),
        prepare: None,
    };
    assert_eq!(check(&Checkpoint::Unknown, 5, false), Ok(()));
    assert_eq!(
        check(&Checkpoint::Unknown, 0, true),
        Err(CheckpointDefect::Missing)
    );
    assert_eq!(check(&named, 5, false), Ok(()));
    assert_eq!(check(&named, 5, true), Err(CheckpointDefect::Missing));
    assert_eq!(check(&empty, 0, true), Ok(()), "a chain known to be empty");
    assert_eq!(check(&named, 0, false), Err(CheckpointDefect::Op));
}
