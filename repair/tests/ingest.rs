//! What may enter a log: the repair frame of chapter 04 section 8.3, every flip of it, and the
//! entries around it.

mod support;

use biplane_repair::{Defect, Expectation, Verdict, verify};
use biplane_wire::{
    Checksum, Command, GroupId, Message, Op, Operation, PrepareHeader, ReplicaFrame, View,
    decode_replica, prepare,
};
use support::{build, chain, golden, golden_message, partition_group};

const FRAME: &str = include_str!("golden/repair_prepare_6.txt");

fn judge(frame: Message, expected: &Expectation) -> Verdict {
    verify(&frame.repair_to_prepare(), expected)
}

fn metadata() -> Expectation {
    Expectation::of_group(GroupId::METADATA)
}

fn identity(message: &Message) -> Checksum {
    message.header::<PrepareHeader>().frame.checksum()
}

#[test]
fn the_frame_of_the_specification_is_accepted() {
    let frame = golden_message(FRAME);
    assert!(matches!(
        decode_replica(frame.clone()),
        Ok(ReplicaFrame::RepairPrepare(_))
    ));
    assert_eq!(identity(&frame), Checksum(0x7613_fa75_cc0b_a0f6));
    assert_eq!(judge(frame, &metadata()), Verdict::Accept);
}

#[test]
fn another_view_is_accepted_and_every_other_flip_is_not() {
    let bytes = golden(FRAME);
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            let accepted = accepts(&flipped);
            let is_view = (52..56).contains(&at);
            assert_eq!(accepted, is_view, "byte {at} bit {bit:#x}");
        }
    }
}

fn accepts(bytes: &[u8]) -> bool {
    let Ok(message) = Message::from_bytes(bytes) else {
        return false;
    };
    let Ok(ReplicaFrame::RepairPrepare(typed)) = decode_replica(message) else {
        return false;
    };
    judge(typed.into_message(), &metadata()) == Verdict::Accept
}

#[test]
fn the_view_may_change_from_2_to_9() {
    let mut bytes = golden(FRAME);
    assert_eq!(bytes[52], 2);
    bytes[52] = 9;
    let message = Message::from_bytes(&bytes).expect("a frame");
    assert_eq!(message.header::<PrepareHeader>().frame.view(), View(9));
    assert_eq!(judge(message, &metadata()), Verdict::Accept);
}

#[test]
fn the_command_must_be_restored_first() {
    let verdict = verify(&golden_message(FRAME), &metadata());
    assert_eq!(verdict, Verdict::Reject(Defect::Command));
}

#[test]
fn a_body_under_another_seal_is_refused() {
    let mut bytes = golden(FRAME);
    *bytes.last_mut().expect("a body") ^= 1;
    let message = Message::from_bytes(&bytes).expect("a frame");
    assert_eq!(
        judge(message, &metadata()),
        Verdict::Reject(Defect::BodySeal)
    );
}

#[test]
fn groups_and_planes_do_not_mix() {
    let partition = partition_group();
    let prepare = build(partition, 4, Checksum(7), b"body");
    assert_eq!(
        verify(&prepare, &Expectation::of_group(partition)),
        Verdict::Accept
    );
    let other = GroupId::partition(0, 0, 2).expect("a legal key");
    let verdict = verify(&prepare, &Expectation::of_group(other));
    assert_eq!(verdict, Verdict::Reject(Defect::Group));
    assert_eq!(
        verify(&prepare, &metadata()),
        Verdict::Reject(Defect::Operation)
    );
    let frame = golden_message(FRAME);
    let verdict = judge(frame, &Expectation::of_group(partition));
    assert_eq!(verdict, Verdict::Reject(Defect::Operation));
}

#[test]
fn a_metadata_prepare_of_an_old_log_has_no_group() {
    let unstamped = |operation| {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(3));
        header.set_operation(operation);
        prepare::build_with_body(header, b"body")
    };
    assert_eq!(
        verify(&unstamped(Operation::Register), &metadata()),
        Verdict::Accept
    );
    let verdict = verify(&unstamped(Operation::SendMessages), &metadata());
    assert_eq!(verdict, Verdict::Reject(Defect::Operation));
}

#[test]
fn an_unsealed_prepare_of_an_old_log_passes() {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_op(Op(3));
    header.set_operation(Operation::CreateStream);
    header.set_group(GroupId::METADATA);
    let unsealed = Message::from_parts(header, b"body");
    assert_eq!(verify(&unsealed, &metadata()), Verdict::Accept);
    let named = Expectation {
        identity: Some(Checksum(5)),
        ..metadata()
    };
    assert_eq!(
        verify(&unsealed, &named),
        Verdict::Accept,
        "zero says nothing"
    );
}

#[test]
fn op_zero_is_no_position() {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_operation(Operation::CreateStream);
    header.set_group(GroupId::METADATA);
    let prepare = prepare::build_with_body(header, b"");
    assert_eq!(
        verify(&prepare, &metadata()),
        Verdict::Reject(Defect::OpZero)
    );
}

#[test]
fn what_the_view_change_named_comes_first() {
    let log = chain(GroupId::METADATA, 3);
    let named = Expectation {
        identity: Some(Checksum(99)),
        ..metadata()
    };
    assert_eq!(
        verify(&log[&2], &named),
        Verdict::Reject(Defect::Superseded)
    );
    let named = Expectation {
        identity: Some(identity(&log[&2])),
        ..metadata()
    };
    assert_eq!(verify(&log[&2], &named), Verdict::Accept);
}

#[test]
fn neighbours_must_chain() {
    let log = chain(GroupId::METADATA, 4);
    let around = |below: Checksum, above_parent: Checksum| Expectation {
        below: Some(below),
        above_parent: Some(above_parent),
        above_committed: true,
        ..metadata()
    };
    let (one, two) = (identity(&log[&1]), identity(&log[&2]));
    assert_eq!(verify(&log[&2], &around(one, two)), Verdict::Accept);
    let verdict = verify(&log[&2], &around(Checksum(5), two));
    assert_eq!(verdict, Verdict::Reject(Defect::ParentBelow));
    let verdict = verify(&log[&2], &around(one, Checksum(5)));
    assert_eq!(verdict, Verdict::Reject(Defect::ParentAbove));
}

#[test]
fn only_a_named_prepare_displaces_and_only_what_is_uncommitted() {
    let log = chain(GroupId::METADATA, 4);
    let named = Expectation {
        identity: Some(identity(&log[&2])),
        above_parent: Some(Checksum(5)),
        ..metadata()
    };
    assert_eq!(verify(&log[&2], &named), Verdict::Displaces { from: Op(3) });
    let committed = Expectation {
        above_committed: true,
        ..named
    };
    assert_eq!(
        verify(&log[&2], &committed),
        Verdict::Reject(Defect::ParentAbove)
    );
    let unnamed = Expectation {
        identity: None,
        ..named
    };
    assert_eq!(
        verify(&log[&2], &unnamed),
        Verdict::Reject(Defect::ParentAbove)
    );
}

#[test]
fn a_partition_prepare_of_the_specification_carries_its_identity() {
    let prepare = golden_message(include_str!("golden/partition_prepare_77.txt"));
    let group = prepare.header::<PrepareHeader>().group();
    assert_eq!(identity(&prepare), Checksum(0xc3bc_43e6_d02c_4bf5));
    assert_eq!(
        verify(&prepare, &Expectation::of_group(group)),
        Verdict::Accept
    );
}
