//! Each body rule of a view-change suffix (chapter 01 section 6.11), broken one at a time.

mod support;

use biplane_wire::*;
use support::{hex, reidentify};

/// A chain of prepares from op 1 to `op_head`, newest first.
fn chain(op_head: u64) -> Vec<PrepareHeader> {
    let mut headers = Vec::new();
    let mut parent = Checksum::ZERO;
    for op in 1..=op_head {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_parent(parent);
        header.set_timestamp(1_000 + op);
        header.set_operation(Operation::CreateStream);
        header.set_group(GroupId::METADATA);
        header.stamp_identity();
        parent = header.frame.checksum();
        headers.push(header);
    }
    headers.reverse();
    headers
}

fn body(headers: &[PrepareHeader]) -> Vec<u8> {
    headers.iter().flat_map(|header| *header.bytes()).collect()
}

fn parse(op_head: u64, headers: &[PrepareHeader]) -> Result<usize, SuffixError> {
    Suffix::parse(Op(op_head), &body(headers), (0, 0)).map(|suffix| suffix.len())
}

#[test]
fn a_chain_with_blanks_passes() {
    let mut headers = chain(6);
    assert_eq!(parse(6, &headers), Ok(6));
    headers[2] = PrepareHeader::blank(Op(4));
    assert_eq!(parse(6, &headers), Ok(6));
    headers[0] = PrepareHeader::blank(Op(6));
    assert_eq!(parse(6, &headers), Ok(6));
    assert_eq!(parse(6, &[]), Ok(0));
}

#[test]
fn a_body_of_broken_headers_is_refused() {
    let bytes = body(&chain(2));
    let parse = |bytes: &[u8]| Suffix::parse(Op(2), bytes, (0, 0)).map(|suffix| suffix.len());
    assert_eq!(parse(&bytes[..511]), Err(SuffixError::BodyLength));
    assert_eq!(parse(&bytes[..256]), Ok(1));
}

#[test]
fn more_entries_than_bits_are_refused() {
    let headers = chain(129);
    assert_eq!(
        parse(129, &headers),
        Err(SuffixError::TooManyEntries { count: 129 })
    );
    assert_eq!(parse(129, &headers[..128]), Ok(128));
}

#[test]
fn an_entry_must_be_a_defined_prepare_with_zero_reserved_bytes() {
    let break_byte = |offset: usize, value: u8| {
        let mut bytes = body(&chain(3));
        bytes[256 + offset] = value;
        reidentify(&mut bytes[256..512]);
        Suffix::parse(Op(3), &bytes, (0, 0)).map(|suffix| suffix.len())
    };
    assert_eq!(
        break_byte(208, 0xee),
        Err(SuffixError::EntryOperation { entry: 1 })
    );
    assert_eq!(
        break_byte(60, 19),
        Err(SuffixError::EntryCommand { entry: 1 })
    );
    assert_eq!(
        break_byte(62, 1),
        Err(SuffixError::EntryReserved { entry: 1 })
    );
    assert_eq!(
        break_byte(255, 1),
        Err(SuffixError::EntryReserved { entry: 1 })
    );
    assert_eq!(
        break_byte(176, 9),
        Err(SuffixError::EntryOp {
            entry: 1,
            op: Op(9)
        })
    );
}

#[test]
fn an_entry_below_op_zero_is_refused() {
    let headers = [PrepareHeader::blank(Op(1)), PrepareHeader::blank(Op(0))];
    assert_eq!(parse(1, &headers), Ok(2));
    let headers = [headers[1], PrepareHeader::blank(Op(0))];
    assert_eq!(
        parse(0, &headers),
        Err(SuffixError::EntryBelowZero { entry: 1 })
    );
}

#[test]
fn a_stray_byte_makes_a_blank_a_real_entry() {
    let mut headers = chain(3);
    headers[1] = PrepareHeader::blank(Op(2));
    headers[1].set_user_id(1);
    headers[1].frame.set_checksum(Checksum(7));
    assert_eq!(
        parse(3, &headers),
        Err(SuffixError::EntryIdentity { entry: 1 })
    );
    headers[1].frame.set_checksum(Checksum::ZERO);
    assert_eq!(
        parse(3, &headers),
        Err(SuffixError::TimestampOrder { entry: 2 })
    );
}

#[test]
fn a_wrong_identity_is_refused_and_a_zero_one_is_not_compared() {
    let mut headers = chain(3);
    headers[1].set_user_id(9);
    assert_eq!(
        parse(3, &headers),
        Err(SuffixError::EntryIdentity { entry: 1 })
    );
    headers[1].frame.set_checksum(Checksum::ZERO);
    assert_eq!(
        parse(3, &headers),
        Ok(3),
        "no identity, so no chain from above either"
    );
}

#[test]
fn timestamps_descend_across_blanks() {
    let mut headers = chain(4);
    headers[1] = PrepareHeader::blank(Op(3));
    headers[2].set_timestamp(1_004);
    headers[2].stamp_identity();
    assert_eq!(
        parse(4, &headers),
        Err(SuffixError::TimestampOrder { entry: 2 })
    );
    headers[2].set_timestamp(1_003);
    headers[2].stamp_identity();
    assert_eq!(
        parse(4, &headers),
        Ok(4),
        "the parent of op 4 is blank, so nothing links them"
    );
}

#[test]
fn adjacent_entries_are_linked() {
    let mut headers = chain(3);
    headers[1].set_parent(Checksum(1));
    headers[1].stamp_identity();
    assert_eq!(
        parse(3, &headers),
        Err(SuffixError::ParentMismatch { entry: 1 })
    );
}

#[test]
fn views_of_entries_are_not_checked() {
    let mut headers = chain(3);
    headers[2].frame.set_view(View(90));
    assert_eq!(parse(3, &headers), Ok(3));
}

#[test]
fn the_builder_fills_blanks_bits_and_seals() {
    let headers = chain(130);
    let mut builder = SuffixBuilder::new(Op(130));
    assert!(builder.is_empty());
    for (index, header) in headers.iter().enumerate().take(SUFFIX_ENTRIES_MAX) {
        assert!(builder.has_room());
        assert_eq!(builder.op_next(), Some(header.op()));
        let repair = header.with_command(Command::RepairPrepare);
        builder.push(
            (index % 3 != 0).then_some(&repair),
            index % 3 == 0,
            index % 3 == 1,
        );
    }
    assert!(!builder.has_room());
    let mut header = DoViewChangeHeader::new(Command::DoViewChange);
    header.set_group(GroupId::METADATA);
    let vote = Typed::decode(builder.do_view_change(header)).expect("valid");
    let suffix = Suffix::of_do_view_change(&vote).expect("valid");
    assert_eq!((suffix.len(), suffix.op_head()), (128, Op(130)));
    for (index, entry) in suffix.iter().enumerate() {
        assert_eq!(entry.op, Op(130 - index as u64));
        assert_eq!(entry.header.is_none(), index % 3 == 0);
        assert_eq!(entry.nack, index % 3 == 0);
        assert_eq!(entry.present, index % 3 == 1);
    }
    assert_eq!(SuffixBuilder::new(Op(0)).op_next(), Some(Op(0)));
}

#[test]
fn the_blank_entry_of_the_specification() {
    let blank = PrepareHeader::blank(Op(11));
    let mut expected = hex(&"00".repeat(256));
    expected[60] = 6;
    expected[176] = 0x0b;
    assert_eq!(blank.bytes().as_slice(), expected);
    assert!(blank.is_blank());
}
