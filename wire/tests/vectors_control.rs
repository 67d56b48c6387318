//! Vectors of chapter 01 section 16.2: control frames built from their fields, and the list of
//! invalid ones with the exact reason each is refused for.

mod support;

use biplane_wire::*;
use support::{frame, hex, reseal};

const V1: &str = "0:e975ff6665651d04 16:d7824d64195d7d32 32:CL0701000003 60:06 128:feca
    144:8877665544332211 160:d7824d64195d7d32 176:09 184:08 192:00401e18240a060001 208:80
    223:8001";
const V5: &str = "0:3e8b99a4846166e0 16:914e389d191b6f4e 32:CL0601000003 60:06 128:feca
    144:e975ff6665651d04 160:914e389d191b6f4e 176:0a 184:09 192:01401e18240a060002 208:82
    223:8001";
const MANIFEST: &str = "49534d3101000000190200000000000000000500000000000000180540951ccf1c753027\
    b73eabd332af";

const V10: &str = "0:80c3968e5422edc5 32:CL0001000003 60:0701 128:8877665544332211
    144:e975ff6665651d04 160:09 168:08 177:401e18240a060001 192:80 207:80";
const V11: &str = "0:7e995b7b89d45506 32:CL0001000003 60:09 144:15cd5b07 152:09 175:80";
const V12: &str = "0:219fc2c30d70699f 32:CL0001000004 60:0a01 135:80";
const V13: &str = "0:3e8fd4df8c0a611f 16:aaecc77f6c695999 32:CL0004000004 60:0b01 128:0b 136:08
    151:8003 224:01 240:06";
const V14: &str = "0:5ec0d3e05d64518c 32:CL0001000004 60:0b02 128:08 136:08 151:8003";
const V15: &str = "0:38c4d732ba2d37b2 16:b00754681e49b2d4 32:CL0003000004 60:0c01 128:0a 136:09
    151:80";
const V16: &str = "0:25f324f4bb0a4671 32:CL0001000004 60:0c01 128:09 136:09 151:80 240:efcdab";
const V17: &str = "0:565a77e7ec28aa77 32:CL0001000003 60:1102 135:80 240:efcdab";
const V18: &str = "0:3c78944dfd5f8af1 32:CL0001 60:1202 128:77 144:05 152:09 167:80";
const V19: &str = "0:6baf9317520c298f 32:CL0001 60:14 128:77 144:09 159:80";
const V20: &str = "0:bfd8fa21c69c6141 32:CL0001 60:15 128:77 144:07 159:80";
const V21: &str = "0:f4bd0a77dd41cd69 32:CL0001 60:1602 128:88 151:80";
const V22: &str = "0:c38fca202e37d785 32:CL0001000004 60:1701 128:88 152:0700200005 161:01 168:0c";
const V23: &str = "0:4ea8d498f559b7e7 32:CL2a01000004 60:1701 128:88 144:0b 152:0700200005 160:01
    168:0c";
const V24: &str = "0:223bc320697b707d 32:CL0001 60:1802 128:88 152:0700200005 162:04";
const V25: &str = "0:ac88009bea2c9a02 32:CL0501 60:1901 128:88 152:0700200005";
const V26: &str = "0:460bafaefbf92a70 32:CL0001000003 60:1a02 128:feca 144:0df0 160:29";
const V27: &str = "0:a12f11c185b59d27 32:CL0001000003 60:1b 128:0df0 144:feca 160:5b 168:0c";
const V28: &str = "0:6213d9de2b013112 32:CL0001000003 60:1c02 128:feca 144:0ef0 160:5b 168:0c";
const V29: &str = "0:8eefeed2548b10ba 32:CL0001000003 60:1d 128:0ef0 144:feca 160:5c";

const PARTITION: GroupId = GroupId(0x0000_0005_0020_0007);

fn suffix_body(with_blank: bool) -> String {
    let encode = |runs: &str| hex::encode(support::header(runs));
    let blank = if with_blank {
        encode("60:06 176:0b")
    } else {
        String::new()
    };
    format!("{blank}{}{}", encode(V5), encode(V1))
}

fn prepare_header(runs: &str) -> PrepareHeader {
    *PrepareHeader::over(&support::header(runs))
}

fn new<H: Header>(make: impl Fn(Command) -> H, command: Command, view: u32, replica: u8) -> H {
    let mut header = make(command);
    let cluster = hex(support::CLUSTER).try_into().expect("16 bytes");
    header
        .frame_mut()
        .set_cluster(ClusterId::from_digest(cluster));
    header.frame_mut().set_view(View(view));
    header.frame_mut().set_replica(ReplicaId(replica));
    header
}

fn assert_frame(built: &Message, runs: &str, body: &str) {
    assert_eq!(hex::encode(built.to_vec()), hex::encode(frame(runs, body)));
    let decoded = decode_replica(built.clone()).expect("a valid vector");
    assert_eq!(decoded.message(), built);
}

#[test]
fn v10_to_v12_normal_operation() {
    let mut ok = PrepareOkHeader::acknowledging(&prepare_header(V1));
    let stamped = new(PrepareOkHeader::new, Command::PrepareOk, 3, 1);
    ok.frame = stamped.frame;
    ok.set_commit(Op(8));
    assert_frame(&Message::sealed(ok, &[]), V10, "");

    let mut commit = new(CommitHeader::new, Command::Commit, 3, 0);
    commit.set_timestamp_monotonic(123_456_789);
    commit.set_commit(Op(9));
    commit.set_group(GroupId::METADATA);
    assert_frame(&Message::sealed(commit, &[]), V11, "");

    let mut start = new(StartViewChangeHeader::new, Command::StartViewChange, 4, 1);
    start.set_group(GroupId::METADATA);
    assert_frame(&Message::sealed(start, &[]), V12, "");
}

#[test]
fn v13_and_v14_do_view_change() {
    let mut vote = new(DoViewChangeHeader::new, Command::DoViewChange, 4, 1);
    vote.set_commit(Op(8));
    vote.set_group(GroupId::METADATA);
    vote.set_log_view(View(3));
    let mut suffix = SuffixBuilder::new(Op(11));
    suffix.push(None, true, false);
    suffix.push(Some(&prepare_header(V5)), false, true);
    suffix.push(Some(&prepare_header(V1)), false, true);
    let built = suffix.do_view_change(vote);
    assert_frame(&built, V13, &suffix_body(true));

    let typed = Typed::decode(built).expect("V13");
    let suffix = Suffix::of_do_view_change(&typed).expect("a valid suffix");
    assert_eq!(suffix.len(), 3);
    let blank = suffix.get(0).expect("entry 0");
    assert_eq!(
        (blank.op, blank.header, blank.nack, blank.present),
        (Op(11), None, true, false)
    );
    let entry = suffix.at(Op(10)).expect("entry 1");
    assert_eq!((entry.nack, entry.present), (false, true));
    assert_eq!(entry.header.map(PrepareHeader::op), Some(Op(10)));
    assert_eq!(suffix.at(Op(12)), None);
    assert_eq!(suffix.at(Op(8)), None);

    let mut vote = new(DoViewChangeHeader::new, Command::DoViewChange, 4, 2);
    vote.set_commit(Op(8));
    vote.set_group(GroupId::METADATA);
    vote.set_log_view(View(3));
    assert_frame(&SuffixBuilder::new(Op(8)).do_view_change(vote), V14, "");
}

#[test]
fn v15_to_v17_start_view() {
    let mut start = new(StartViewHeader::new, Command::StartView, 4, 1);
    start.set_commit(Op(9));
    start.set_group(GroupId::METADATA);
    let mut suffix = SuffixBuilder::new(Op(10));
    suffix.push(Some(&prepare_header(V5)), false, false);
    suffix.push(Some(&prepare_header(V1)), false, false);
    assert_frame(&suffix.start_view(start), V15, &suffix_body(false));

    start.set_incarnation(0xABCDEF);
    assert_frame(&SuffixBuilder::new(Op(9)).start_view(start), V16, "");

    let mut probe = new(RequestStartViewHeader::new, Command::RequestStartView, 3, 2);
    probe.set_group(GroupId::METADATA);
    probe.set_incarnation(0xABCDEF);
    assert_frame(&Message::sealed(probe, &[]), V17, "");
}

#[test]
fn v18_to_v20_repair() {
    let mut request = new(RequestPreparesHeader::new, Command::RequestPrepares, 0, 2);
    request.set_nonce(0x77);
    request.set_from_op(Op(5));
    request.set_to_op(Op(9));
    request.set_group(GroupId::METADATA);
    assert_frame(&Message::sealed(request, &[]), V18, "");

    for (command, op, runs) in [
        (Command::RepairDone, 9, V19),
        (Command::RangeEvicted, 7, V20),
    ] {
        let mut reply = new(RepairRangeReplyHeader::new, command, 0, 0);
        reply.set_nonce(0x77);
        reply.set_op(Op(op));
        reply.set_group(GroupId::METADATA);
        assert_frame(&Message::sealed(reply, &[]), runs, "");
    }
}

#[test]
fn v21_to_v25_state_transfer() {
    let request = Command::RequestStateTransfer;
    let mut request = new(RequestStateTransferHeader::new, request, 0, 2);
    request.set_nonce(0x88);
    request.set_group(GroupId::METADATA);
    assert_frame(&Message::sealed(request, &[]), V21, "");

    let mut target = new(
        StateTransferTargetHeader::new,
        Command::StateTransferTarget,
        4,
        1,
    );
    target.set_nonce(0x88);
    target.set_group(PARTITION);
    target.set_commit_max(Op(12));
    target.set_refusal(true);
    assert_frame(&Message::sealed(target, &[]), V22, "");

    let checksum = xxh3(b"chunk");
    let manifest = Manifest::encode(&[ManifestEntry {
        kind: 2,
        frontier: 0,
        length: 5,
        checksum,
    }]);
    target.set_offer();
    target.set_commit_op(Op(11));
    assert_frame(&Message::sealed(target, &manifest), V23, MANIFEST);

    let mut request = new(
        RequestStateChunkHeader::new,
        Command::RequestStateChunk,
        0,
        2,
    );
    request.set_nonce(0x88);
    request.set_group(PARTITION);
    request.set_length(262_144);
    assert_frame(&Message::sealed(request, &[]), V24, "");

    let mut chunk = new(StateChunkHeader::new, Command::StateChunk, 0, 1);
    chunk.set_nonce(0x88);
    chunk.set_group(PARTITION);
    assert_frame(&Message::sealed(chunk, b"chunk"), V25, "6368756e6b");
}

#[test]
fn v26_to_v29_forwarding() {
    let mut register = new(ForwardRegisterHeader::new, Command::ForwardRegister, 3, 2);
    register.set_client(ClientId(0xCAFE));
    register.set_nonce(0xF00D);
    register.set_user_id(41);
    assert_frame(&Message::sealed(register, &[]), V26, "");

    let command = Command::ForwardRegisterResult;
    let mut result = new(ForwardRegisterResultHeader::new, command, 3, 0);
    result.set_client(ClientId(0xCAFE));
    result.set_nonce(0xF00D);
    result.set_epoch(91);
    result.set_watermark(RequestNumber(12));
    result.set_outcome(ForwardRegisterOutcome::Ok);
    assert_frame(&Message::sealed(result, &[]), V27, "");

    let mut logout = new(ForwardLogoutHeader::new, Command::ForwardLogout, 3, 2);
    logout.set_client(ClientId(0xCAFE));
    logout.set_nonce(0xF00E);
    logout.set_session(91);
    logout.set_request(RequestNumber(12));
    assert_frame(&Message::sealed(logout, &[]), V28, "");

    let mut result = new(
        ForwardLogoutResultHeader::new,
        Command::ForwardLogoutResult,
        3,
        0,
    );
    result.set_client(ClientId(0xCAFE));
    result.set_nonce(0xF00E);
    result.set_commit(Op(92));
    result.set_outcome(ForwardLogoutOutcome::Ok);
    assert_frame(&Message::sealed(result, &[]), V29, "");
}

/// Writes `byte` at `offset`, reseals, and decodes. A changed size gets a fitting body.
fn refused(runs: &str, body: &str, changes: &[(usize, &str)]) -> FieldError {
    match changed(runs, body, changes).map(|frame| frame.message().clone()) {
        Err(refusal @ Refusal::Field { rule, .. }) => {
            assert_eq!(refusal.label(), "FIELD");
            assert_eq!(refusal.disposition(), Disposition::Drop);
            rule
        }
        other => panic!("{other:?}"),
    }
}

fn changed(runs: &str, body: &str, changes: &[(usize, &str)]) -> Result<ReplicaFrame, Refusal> {
    let mut bytes = frame(runs, body);
    for (offset, value) in changes {
        let value = hex(value);
        bytes[*offset..offset + value.len()].copy_from_slice(&value);
    }
    let size = u32::from_le_bytes(bytes[48..52].try_into().expect("four bytes"));
    bytes.resize(size as usize, 0);
    reseal(&mut bytes);
    decode_replica(Message::from_bytes(&bytes).expect("generic"))
}

#[test]
fn i1_to_i5_seals_and_sizes() {
    let mut bytes = frame(V11, "");
    bytes[152] ^= 1;
    let refusal = decode_replica(Message::from_bytes(&bytes).expect("generic"));
    let stored = Checksum(0x0655_d489_7b5b_997e);
    let computed = Checksum(0xb238_2f60_bdf2_9ed8);
    let command = Command::Commit;
    assert_eq!(
        refusal,
        Err(Refusal::Seal {
            command,
            stored,
            computed
        }),
        "I1"
    );

    assert_eq!(
        refused(V11, "", &[(48, "2c01")]),
        FieldError::SizeNotHeaderOnly,
        "I2"
    );
    let mut resealed = frame(V11, &"00".repeat(44));
    resealed[48..50].copy_from_slice(&[0x2c, 0x01]);
    reseal(&mut resealed);
    assert_eq!(resealed[..8], 0x8e24_e4fd_bc66_1bac_u64.to_le_bytes(), "I2");

    let mut bytes = frame(V11, "");
    bytes[60] = 30;
    let error = Message::from_bytes(&bytes).expect_err("I3");
    assert_eq!(
        error,
        DecodeError::Frame(CloseReason::BadCommand { byte: 30 }),
        "I3"
    );
    let refusal = Refusal::from(CloseReason::BadCommand { byte: 30 });
    assert_eq!(
        (refusal.label(), refusal.disposition()),
        ("BAD_ENUM", Disposition::Close)
    );

    let mut bytes = frame(V12, "");
    bytes[..16].fill(0);
    let refusal = decode_replica(Message::from_bytes(&bytes).expect("generic"));
    assert_eq!(
        refusal.expect_err("I4").label(),
        "SEAL",
        "I4: zero is not unsealed"
    );

    assert_eq!(
        refused(V12, "", &[(56, "01")]),
        FieldError::ReleaseNotZero,
        "I5"
    );
}

#[test]
fn i6_to_i11_do_view_change() {
    let body = suffix_body(true);
    assert_eq!(
        refused(V13, &body, &[(224, "09")]),
        FieldError::BitBeyondEntries,
        "I6"
    );
    assert_eq!(
        refused(V13, &body, &[(240, "0e")]),
        FieldError::BitBeyondEntries
    );
    assert_eq!(
        refused(V13, &body, &[(152, "05")]),
        FieldError::LogViewAfterView,
        "I7"
    );
    assert_eq!(
        refused(V13, &body, &[(136, "0c")]),
        FieldError::CommitAfterOp,
        "I8"
    );
    assert_eq!(
        refused(V13, &body, &[(48, "2c01")]),
        FieldError::BodyNotWholeHeaders,
        "I9"
    );
    assert_eq!(
        refused(V13, &body, &[(48, "0082")]),
        FieldError::TooManyEntries,
        "I10"
    );

    let frame = changed(V13, &body, &[(16, "0000000000000000")]).expect("I11 decodes");
    let ReplicaFrame::DoViewChange(vote) = frame else {
        panic!("{frame:?}")
    };
    assert_eq!(
        Suffix::of_do_view_change(&vote),
        Err(SuffixError::BodySeal),
        "I11"
    );
    assert_eq!(
        check_suffix_body_seal(Checksum(1), &[]),
        Ok(()),
        "an empty body passes"
    );
}

#[test]
fn a_full_suffix_has_no_bit_out_of_range() {
    let all = "ff".repeat(16);
    let full = [(48, "0081"), (224, all.as_str()), (240, all.as_str())];
    assert!(changed(V13, &suffix_body(true), &full).is_ok());
}

#[test]
fn i12_to_i16_repair_and_transfer() {
    assert_eq!(
        refused(V18, "", &[(144, "00")]),
        FieldError::RangeStartZero,
        "I12"
    );
    assert_eq!(refused(V18, "", &[(144, "0a")]), FieldError::RangeReversed);
    assert_eq!(
        refused(V23, MANIFEST, &[(161, "01")]),
        FieldError::AvailableAndTransient,
        "I13"
    );
    assert_eq!(
        refused(V22, "", &[(160, "02")]),
        FieldError::AvailableNotBoolean,
        "I14"
    );
    assert_eq!(
        refused(V22, "", &[(161, "02")]),
        FieldError::TransientNotBoolean
    );
    assert_eq!(
        refused(V22, "", &[(48, "2c01")]),
        FieldError::RefusalWithBody,
        "I15"
    );
    assert_eq!(
        refused(V24, "", &[(162, "00")]),
        FieldError::LengthZero,
        "I16"
    );
    assert_eq!(
        refused(V24, "", &[(48, "2c01")]),
        FieldError::SizeNotHeaderOnly
    );
    assert_eq!(
        refused(V21, "", &[(48, "2c01")]),
        FieldError::SizeNotHeaderOnly
    );
}

#[test]
fn i17_to_i21_forwarding() {
    assert_eq!(
        refused(V27, "", &[(255, "01")]),
        FieldError::FailureWithNumbers,
        "I17"
    );
    let refusal = changed(V27, "", &[(255, "07")]).expect_err("I18");
    let command = Command::ForwardRegisterResult;
    assert_eq!(
        refusal,
        Refusal::BadEnum {
            command,
            offset: 255,
            value: 7
        },
        "I18"
    );
    assert_eq!(
        refused(V29, "", &[(255, "01")]),
        FieldError::FailureWithNumbers,
        "I19"
    );
    assert!(changed(V29, "", &[(255, "04"), (160, "00")]).is_ok());
    assert_eq!(
        changed(V29, "", &[(255, "05")])
            .expect_err("4 is last")
            .label(),
        "BAD_ENUM"
    );
    let rule = FieldError::ReservedNotZero { offset: 164 };
    assert_eq!(refused(V26, "", &[(164, "01")]), rule, "I20");
    assert!(
        changed(V26, "", &[(62, "01")]).is_ok(),
        "I21: prefix reserved bytes pass here"
    );

    assert_eq!(refused(V26, "", &[(128, "0000")]), FieldError::ClientZero);
    assert_eq!(refused(V26, "", &[(144, "0000")]), FieldError::NonceZero);
    assert_eq!(refused(V28, "", &[(160, "00")]), FieldError::SessionZero);
    assert_eq!(refused(V28, "", &[(168, "00")]), FieldError::RequestZero);
    assert_eq!(
        refused(V28, "", &[(48, "0101")]),
        FieldError::SizeNotHeaderOnly
    );
}

#[test]
fn an_authentic_prepare_ok_of_an_unknown_operation_is_version_skew() {
    let refusal = changed(V10, "", &[(192, "ee")]).expect_err("undefined");
    let command = Command::PrepareOk;
    assert_eq!(
        refusal,
        Refusal::UnknownOperation {
            command,
            operation: 0xee
        }
    );
    let mut bytes = frame(V10, "");
    bytes[192] = 0xee;
    let refusal = decode_replica(Message::from_bytes(&bytes).expect("generic"));
    let bad = Refusal::BadEnum {
        command,
        offset: 192,
        value: 0xee,
    };
    assert_eq!(refusal, Err(bad));
}

#[test]
fn frames_without_a_size_rule_may_carry_a_body() {
    for runs in [V10, V12, V17, V18, V19, V20] {
        assert!(changed(runs, "", &[(48, "2c01")]).is_ok(), "{runs}");
    }
}

#[test]
fn reserved_bytes_of_most_frames_are_not_checked() {
    let offsets = [
        (V10, 208),
        (V11, 176),
        (V12, 136),
        (V17, 136),
        (V18, 168),
        (V19, 160),
    ];
    for (runs, offset) in offsets {
        assert!(
            changed(runs, "", &[(offset, "01"), (62, "01")]).is_ok(),
            "{runs}"
        );
    }
}

#[test]
fn frames_that_do_not_belong_on_the_replica_plane() {
    let bare = |command: u8| {
        let bytes = frame(&format!("49:01 60:{command:02x}"), "");
        decode_replica(Message::from_bytes(&bytes).expect("generic")).expect_err("refused")
    };
    for command in [0, 1, 2, 3, 4, 14, 15, 16] {
        assert_eq!(bare(command).label(), "WRONG_COMMAND");
    }
    for command in [8, 13] {
        assert_eq!(bare(command).label(), "CLIENT_BOUND");
    }
}
