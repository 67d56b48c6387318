//! Every way to refuse a frame, a suffix, a batch, a manifest or a body, each brought about once.
//!
//! Each table is matched without a wildcard, so a new variant does not compile before it is named
//! here, and a variant that nothing brings about fails the count.

mod support;

use biplane_wire::codec::{Codec, Cursor};
use biplane_wire::request::{ClientRequest, MetadataBody};
use biplane_wire::*;
use support::{hex, reidentify, reseal};

fn checked<H: Header>(command: Command, change: impl Fn(&mut Vec<u8>)) -> Refusal {
    let mut bytes = vec![0; HEADER_SIZE];
    bytes[48..52].copy_from_slice(&256_u32.to_le_bytes());
    bytes[60] = command.as_u8();
    change(&mut bytes);
    if H::SEALED {
        reseal(&mut bytes);
    }
    match decode_header::<H>(bytes.first_chunk().expect("a header")) {
        Ok(_) => panic!("accepted"),
        Err(refusal) => refusal,
    }
}

fn rule<H: Header>(command: Command, change: impl Fn(&mut Vec<u8>)) -> FieldError {
    match checked::<H>(command, change) {
        Refusal::Field { rule, .. } => rule,
        other => panic!("refused for {other}"),
    }
}

/// Sets bytes of a header: pairs of offset and value.
fn at<const N: usize>(changes: [(usize, u8); N]) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        for (offset, value) in changes {
            bytes[offset] = value;
        }
    }
}

fn field_errors() -> Vec<FieldError> {
    use Command as C;
    let nonzero = [(128, 1), (144, 1)];
    let mut wrong = CommitHeader::new(C::Commit);
    wrong.frame.set_command(C::Prepare);
    let mut short = StateChunkHeader::new(C::StateChunk);
    short.frame.set_size(255);
    vec![
        wrong.validate().expect_err("another command"),
        short.validate().expect_err("below a header"),
        rule::<RequestHeader>(C::Request, at([(176, 128)])),
        rule::<RequestHeader>(C::Request, at([(128, 1)])),
        rule::<RequestHeader>(C::Request, at([(128, 1), (176, 1), (184, 1)])),
        rule::<RequestHeader>(C::Request, at([(128, 1), (176, 1), (168, 1)])),
        rule::<RequestHeader>(C::Request, at([(128, 1), (176, 128)])),
        rule::<RequestHeader>(C::Request, at([(128, 1), (176, 128), (184, 1)])),
        rule::<PrepareHeader>(C::Prepare, at([(228, 1)])),
        rule::<CommitHeader>(C::Commit, at([(49, 2)])),
        rule::<StartViewChangeHeader>(C::StartViewChange, at([(56, 1)])),
        rule::<DoViewChangeHeader>(C::DoViewChange, at([(152, 1)])),
        rule::<DoViewChangeHeader>(C::DoViewChange, at([(136, 1)])),
        rule::<StartViewHeader>(C::StartView, at([(48, 44)])),
        rule::<StartViewHeader>(C::StartView, at([(49, 130)])),
        rule::<DoViewChangeHeader>(C::DoViewChange, at([(224, 1)])),
        rule::<RequestPreparesHeader>(C::RequestPrepares, at([])),
        rule::<RequestPreparesHeader>(C::RequestPrepares, at([(144, 2), (152, 1)])),
        rule::<StateTransferTargetHeader>(C::StateTransferTarget, at([(160, 2)])),
        rule::<StateTransferTargetHeader>(C::StateTransferTarget, at([(161, 2)])),
        rule::<StateTransferTargetHeader>(C::StateTransferTarget, at([(160, 1), (161, 1)])),
        rule::<StateTransferTargetHeader>(C::StateTransferTarget, at([(48, 1)])),
        rule::<RequestStateChunkHeader>(C::RequestStateChunk, at([])),
        rule::<ForwardRegisterHeader>(C::ForwardRegister, at([(128, 1)])),
        rule::<ForwardRegisterResultHeader>(C::ForwardRegisterResult, |bytes| {
            at(nonzero)(bytes);
            at([(160, 1), (255, 1)])(bytes);
        }),
        rule::<EvictionHeader>(C::Eviction, at([(128, 1)])),
        rule::<EvictionHeader>(C::Eviction, at([(128, 1), (255, 14)])),
        rule::<EvictionHeader>(C::Eviction, at([(128, 1), (255, 1), (144, 1)])),
    ]
}

#[test]
fn every_field_rule() {
    let name = |error: &FieldError| match error {
        FieldError::Command => "Command",
        FieldError::ClientZero => "ClientZero",
        FieldError::OperationZero => "OperationZero",
        FieldError::SessionNotZero => "SessionNotZero",
        FieldError::RequestNotZero => "RequestNotZero",
        FieldError::SessionZero => "SessionZero",
        FieldError::RequestZero => "RequestZero",
        FieldError::ReservedNotZero { .. } => "ReservedNotZero",
        FieldError::SizeNotHeaderOnly => "SizeNotHeaderOnly",
        FieldError::SizeBelowHeader => "SizeBelowHeader",
        FieldError::ReleaseNotZero => "ReleaseNotZero",
        FieldError::LogViewAfterView => "LogViewAfterView",
        FieldError::CommitAfterOp => "CommitAfterOp",
        FieldError::BodyNotWholeHeaders => "BodyNotWholeHeaders",
        FieldError::TooManyEntries => "TooManyEntries",
        FieldError::BitBeyondEntries => "BitBeyondEntries",
        FieldError::RangeStartZero => "RangeStartZero",
        FieldError::RangeReversed => "RangeReversed",
        FieldError::AvailableNotBoolean => "AvailableNotBoolean",
        FieldError::TransientNotBoolean => "TransientNotBoolean",
        FieldError::AvailableAndTransient => "AvailableAndTransient",
        FieldError::RefusalWithBody => "RefusalWithBody",
        FieldError::LengthZero => "LengthZero",
        FieldError::NonceZero => "NonceZero",
        FieldError::FailureWithNumbers => "FailureWithNumbers",
        FieldError::ReasonZero => "ReasonZero",
        FieldError::VersionWindowDegenerate => "VersionWindowDegenerate",
        FieldError::VersionWindowUnexpected => "VersionWindowUnexpected",
    };
    expect_all(field_errors().iter().map(name), 28);
}

/// Each name once, and as many as there are variants.
fn expect_all<'a>(names: impl Iterator<Item = &'a str>, variants: usize) {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let listed = names.len();
    names.dedup();
    assert_eq!(names.len(), listed, "a case stands twice: {names:?}");
    assert_eq!(names.len(), variants, "{names:?}");
}

#[test]
fn every_refusal() {
    use Command as C;
    let mut unsealed = vec![0; HEADER_SIZE];
    unsealed[48..52].copy_from_slice(&256_u32.to_le_bytes());
    unsealed[60] = C::Commit.as_u8();
    let unsealed = unsealed.first_chunk().expect("a header");
    let wrong = Message::from_parts(HandshakeHeader::new(C::ReplicaHello), &[]);
    let bound = Message::from_parts(ReplyHeader::new(C::Reply), &[]);
    let cases = [
        checked::<GenericHeader>(C::Reserved, at([(60, 30)])),
        decode_replica(wrong).expect_err("of the handshake"),
        decode_replica(bound).expect_err("for a client"),
        checked::<ForwardLogoutResultHeader>(C::ForwardLogoutResult, at([(255, 9)])),
        checked::<PrepareOkHeader>(C::PrepareOk, at([(192, 99)])),
        decode_header::<CommitHeader>(unsealed).expect_err("no seal"),
        checked::<CommitHeader>(C::Commit, at([(49, 2)])),
    ];
    let name = |refusal: &Refusal| match refusal {
        Refusal::Generic(_) => "BAD_ENUM (generic)",
        Refusal::WrongCommand { .. } => "WRONG_COMMAND",
        Refusal::ClientBound { .. } => "CLIENT_BOUND",
        Refusal::BadEnum { .. } => "BAD_ENUM",
        Refusal::UnknownOperation { .. } => "UNKNOWN_OP",
        Refusal::Seal { .. } => "SEAL",
        Refusal::Field { .. } => "FIELD",
    };
    for case in &cases {
        assert!(name(case).starts_with(case.label()));
        let closes = case.disposition() == Disposition::Close;
        assert_eq!(closes, matches!(case, Refusal::Generic(_)));
    }
    expect_all(cases.iter().map(name), 7);
}

#[test]
fn every_reason_to_close() {
    let run = |bytes: &[u8]| {
        let mut deframer = Deframer::new(1024);
        deframer.push(bytes);
        deframer.next().and_then(|_| deframer.finish())
    };
    let mut frame = vec![0; 300];
    frame[48..52].copy_from_slice(&300_u32.to_le_bytes());
    assert_eq!(run(&frame), Ok(()));
    let mut cases = vec![run(&frame[..299]).expect_err("cut")];
    frame[60] = 30;
    cases.push(run(&frame).expect_err("undefined"));
    frame[49] = 9;
    cases.push(run(&frame).expect_err("too large"));
    let name = |reason: &CloseReason| match reason {
        CloseReason::BadSize { .. } => "BadSize",
        CloseReason::BadCommand { .. } => "BadCommand",
        CloseReason::EndInsideFrame { .. } => "EndInsideFrame",
    };
    expect_all(cases.iter().map(name), 3);
}

/// A sound entry for `op` whose parent and time are given.
fn entry(op: u64, parent: Checksum, timestamp: u64) -> PrepareHeader {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_op(Op(op));
    header.set_parent(parent);
    header.set_timestamp(timestamp);
    header.set_operation(Operation::CreateStream);
    header.stamp_identity();
    header
}

#[test]
fn every_suffix_error() {
    let older = entry(1, Checksum::ZERO, 1);
    let newer = entry(2, older.frame.checksum(), 2);
    let sound = [*newer.bytes(), *older.bytes()].concat();
    let parse = |head: u64, bytes: &[u8]| Suffix::parse(Op(head), bytes, (0, 0)).map(|_| ());
    assert_eq!(parse(2, &sound), Ok(()));
    let broken = |head: u64, change: fn(&mut [u8])| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        parse(head, &bytes).expect_err("broken")
    };
    let pair = |newer: PrepareHeader, older: PrepareHeader| {
        parse(2, &[*newer.bytes(), *older.bytes()].concat()).expect_err("broken")
    };
    let cases = [
        check_suffix_body_seal(Checksum::ZERO, &sound).expect_err("no seal"),
        parse(2, &sound[1..]).expect_err("cut"),
        parse(129, &vec![0; 129 * HEADER_SIZE]).expect_err("too many"),
        broken(2, |bytes| bytes[208] = 99),
        broken(2, |bytes| bytes[60] = 7),
        broken(2, |bytes| bytes[230] = 1),
        parse(
            0,
            &[*entry(0, Checksum::ZERO, 2).bytes(), *older.bytes()].concat(),
        )
        .expect_err("below zero"),
        broken(3, |_| {}),
        broken(2, |bytes| bytes[1] ^= 1),
        pair(entry(2, older.frame.checksum(), 1), older),
        pair(entry(2, Checksum(9), 2), older),
    ];
    let name = |error: &SuffixError| match error {
        SuffixError::BodySeal => "BodySeal",
        SuffixError::BodyLength => "BodyLength",
        SuffixError::TooManyEntries { .. } => "TooManyEntries",
        SuffixError::EntryOperation { .. } => "EntryOperation",
        SuffixError::EntryCommand { .. } => "EntryCommand",
        SuffixError::EntryReserved { .. } => "EntryReserved",
        SuffixError::EntryBelowZero { .. } => "EntryBelowZero",
        SuffixError::EntryOp { .. } => "EntryOp",
        SuffixError::EntryIdentity { .. } => "EntryIdentity",
        SuffixError::TimestampOrder { .. } => "TimestampOrder",
        SuffixError::ParentMismatch { .. } => "ParentMismatch",
    };
    expect_all(cases.iter().map(name), 11);
}

/// A producer batch of one message, behind metadata that counts `count`.
fn send(count: u8, batch: &[u8]) -> Vec<u8> {
    [
        hex("12000000 010400000000 010400000000 0100"),
        vec![count, 0, 0, 0],
        batch.to_vec(),
    ]
    .concat()
}

#[test]
fn every_batch_fault() {
    let mut builder = BatchBuilder::new();
    builder.push(1, 5, b"one", &[]).expect("fits");
    let batch = builder.finish().expect("fits");
    let empty = BatchBuilder::new().finish().expect("fits");
    assert!(SendMessages::decode(&send(1, &batch)).is_ok());
    let decode = |bytes: &[u8]| Batch::decode(bytes, Verify::Checksums).map(|_| ());
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut bytes = batch.clone();
        change(&mut bytes);
        decode(&bytes).expect_err("broken")
    };
    let sent = |body: &[u8]| SendMessages::decode(body).expect_err("broken");
    let mut short_metadata = send(1, &batch);
    short_metadata[0] += 1;
    let cases = [
        decode(&batch[..255]).expect_err("cut"),
        broken(|bytes| bytes[33] = 0),
        broken(|bytes| bytes[52] = 1),
        decode(&batch[..batch.len() - 1]).expect_err("cut"),
        broken(|bytes| bytes[256 + 40] = 1),
        broken(|bytes| bytes[48] = 2),
        broken(|bytes| bytes.push(0)),
        sent(&[9, 0, 0, 0, 1]),
        sent(&short_metadata),
        sent(&send(0, &empty)),
        sent(&send(2, &batch)),
        broken(|bytes| bytes[256 + 48] ^= 1),
        broken(|bytes| bytes[40] ^= 1),
    ];
    let name = |error: &BatchError| match error {
        BatchError::Malformed(BatchFault::ShorterThanHeader) => "ShorterThanHeader",
        BatchError::Malformed(BatchFault::LengthBelowHeader) => "LengthBelowHeader",
        BatchError::Malformed(BatchFault::ReservedNotZero) => "ReservedNotZero",
        BatchError::Malformed(BatchFault::ShorterThanLength) => "ShorterThanLength",
        BatchError::Malformed(BatchFault::Frame) => "Frame",
        BatchError::Malformed(BatchFault::MessageCount) => "MessageCount",
        BatchError::Malformed(BatchFault::Surplus) => "Surplus",
        BatchError::Malformed(BatchFault::ShorterThanMetadata) => "ShorterThanMetadata",
        BatchError::Malformed(BatchFault::Metadata) => "Metadata",
        BatchError::Malformed(BatchFault::NoMessages) => "NoMessages",
        BatchError::Malformed(BatchFault::MetadataCount) => "MetadataCount",
        BatchError::MessageChecksum { .. } => "MessageChecksum",
        BatchError::BatchChecksum { .. } => "BatchChecksum",
    };
    for case in &cases {
        let code = match case {
            BatchError::Malformed(_) => 3,
            BatchError::MessageChecksum { .. } => 4027,
            BatchError::BatchChecksum { .. } => 4039,
        };
        assert_eq!(case.code().as_u32(), code);
    }
    expect_all(cases.iter().map(name), 13);
}

#[test]
fn every_manifest_error() {
    let sealed = |text: &str| {
        let mut bytes = hex(text);
        bytes.extend(xxh3(&bytes).to_le_bytes());
        Manifest::decode(&bytes).map(|_| ()).expect_err("broken")
    };
    let cases = [
        Manifest::decode(&[1, 2, 3]).expect_err("short"),
        Manifest::decode(&[0; 40]).expect_err("no hash"),
        sealed("49534d32 00000000 19"),
        sealed("49534d31 01000100 19"),
        sealed("49534d31 00000000 18"),
    ];
    let name = |error: &ManifestError| match error {
        ManifestError::Truncated => "Truncated",
        ManifestError::Checksum => "Checksum",
        ManifestError::Magic => "Magic",
        ManifestError::TooManyEntries(_) => "TooManyEntries",
        ManifestError::EntryTooShort(_) => "EntryTooShort",
    };
    expect_all(cases.iter().map(name), 5);
}

#[test]
fn every_ingest_error() {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_group(GroupId::METADATA);
    let message = prepare::build_with_body(header, b"abc");
    let header = message.header::<PrepareHeader>();
    assert_eq!(prepare::verify_ingest(header, b"abc"), Ok(()));
    let body = prepare::verify_ingest(header, b"abd");
    let mut bytes = message.to_vec();
    bytes[200] ^= 1;
    let broken = PrepareHeader::over(bytes.first_chunk().expect("a header"));
    let identity = prepare::verify_ingest(broken, b"abc");
    reidentify(&mut bytes);
    let mended = PrepareHeader::over(bytes.first_chunk().expect("a header"));
    assert_eq!(prepare::verify_ingest(mended, b"abc"), Ok(()));
    assert_eq!(identity, Err(prepare::IngestError::Identity));
    assert_eq!(body, Err(prepare::IngestError::BodySeal));
}

/// A record without length, which no type of the protocol is.
#[derive(Debug, PartialEq)]
struct Nothing;

impl<'a> Codec<'a> for Nothing {
    fn read(_: &mut Cursor<'a>, _: &'static str) -> Result<Self, DecodeError> {
        Ok(Self)
    }

    fn write(&self, _: &mut Vec<u8>) {}
}

#[test]
fn every_body_error() {
    let request = |code, text: &str| ClientRequest::decode(code, &hex(text)).expect_err("broken");
    let options = |text: &str| Options::parse(&hex(text)).expect_err("broken");
    let mut cut = Cursor::new(&[1, 2]);
    cut.bytes(1, "first").expect("there");
    let cases = [
        Message::from_bytes(&[0; 255]).expect_err("short"),
        request(ClientCode::GetClient, "010203"),
        cut.finish("first").expect_err("one left"),
        request(ClientCode::GetStream, "0200"),
        request(ClientCode::GetStream, "030100"),
        request(ClientCode::GetStream, "0201ff"),
        request(ClientCode::SendMessages, "00000000"),
        options("020100000061"),
        options("020100000061 020100000061 020100000061 020100000062"),
        Vec::<Nothing>::decode(&[1]).expect_err("without end"),
        request(ClientCode::GetSnapshot, "01026401"),
        MetadataBody::decode(Operation::CreateTopic, &[]).expect_err("rewritten"),
    ];
    let name = |error: &DecodeError| match error {
        DecodeError::Frame(_) => "Frame",
        DecodeError::Truncated { .. } => "Truncated",
        DecodeError::Trailing { .. } => "Trailing",
        DecodeError::Length { .. } => "Length",
        DecodeError::Undefined { .. } => "Undefined",
        DecodeError::Utf8 { .. } => "Utf8",
        DecodeError::Batch(_) => "Batch",
        DecodeError::Rule(BodyRule::KeyWithoutValue) => "KeyWithoutValue",
        DecodeError::Rule(BodyRule::OptionTwice) => "OptionTwice",
        DecodeError::Rule(BodyRule::EmptyRecord) => "EmptyRecord",
        DecodeError::Rule(BodyRule::AllTypesAndOthers) => "AllTypesAndOthers",
        DecodeError::Rule(BodyRule::NotAMetadataPrepare) => "NotAMetadataPrepare",
    };
    for case in &cases {
        assert!(!case.to_string().is_empty());
    }
    expect_all(cases.iter().map(name), 12);
}
