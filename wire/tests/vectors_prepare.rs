//! Vectors of chapter 01 section 16.1: prepares, identities, and what is refused about them.

mod support;

use biplane_wire::prepare::{IngestError, build_with_body, verify_ingest};
use biplane_wire::*;
use support::{frame, hex, message, reidentify, widened, xxh3_hex};

const V1_BODY: &str = "066f7264657273";
const V1_HEADER: &str = "
    e975ff6665651d040000000000000000d7824d64195d7d320000000000000000
    21bb05c88727bab88d0ec27be8a72d4607010000030000000000000006000000
    0000000000000000000000000000000000000000000000000000000000000000
    0000000000000000000000000000000000000000000000000000000000000000
    feca000000000000000000000000000088776655443322110000000000000000
    d7824d64195d7d32000000000000000009000000000000000800000000000000
    00401e18240a0600010000000000000080000000000000000000000000000080
    0100000000000000000000000000000000000000000000000000000000000000";
const V5_RUNS: &str = "0:3e8b99a4846166e0 16:914e389d191b6f4e 32:CL0601000003 60:06 128:feca
    144:e975ff6665651d04 160:914e389d191b6f4e 176:0a 184:09 192:01401e18240a060002 208:82
    223:8001";
const V5_BODY: &str = "010400000000";
const V6_RUNS: &str = "0:cf9a034fd46c56f0 32:CL7702000003 60:06 128:feca 176:01
    192:7b401e18240a060003 208:a0 216:0700200005 224:01";

const V1_IDENTITY: u64 = 0x041d_6565_66ff_75e9;

fn v1() -> Vec<u8> {
    [hex(V1_HEADER), hex(V1_BODY)].concat()
}

fn cluster() -> ClusterId {
    ClusterId::from_digest(hex(support::CLUSTER).try_into().expect("16 bytes"))
}

/// V1 from the fields the chapter lists, without checksums.
fn v1_fields() -> PrepareHeader {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(cluster());
    header.frame.set_view(View(3));
    header.frame.set_replica(ReplicaId(0));
    header.set_client(ClientId(0xCAFE));
    header.set_parent(Checksum(0x1122_3344_5566_7788));
    header.set_request_checksum(widened(xxh3_hex(V1_BODY)));
    header.set_op(Op(9));
    header.set_commit(Op(8));
    header.set_timestamp(1_700_000_000_000_000);
    header.set_request(RequestNumber(1));
    header.set_operation(Operation::CreateStream);
    header.set_group(GroupId::METADATA);
    header.set_user_id(1);
    header
}

fn ingest(bytes: &[u8]) -> Result<Result<(), IngestError>, Refusal> {
    let message = Message::from_bytes(bytes).expect("generic");
    let typed = Typed::<PrepareHeader>::decode(message)?;
    Ok(verify_ingest(typed.header(), typed.body()))
}

#[test]
fn v1_is_built_from_its_fields() {
    assert_eq!(xxh3_hex(V1_BODY), 0x327d_5d19_644d_82d7);
    let built = build_with_body(v1_fields(), &hex(V1_BODY));
    assert_eq!(built.to_vec(), v1());
    assert_eq!(
        built.header::<PrepareHeader>().frame.checksum(),
        widened(V1_IDENTITY)
    );
    assert_eq!(ingest(&v1()), Ok(Ok(())));
}

#[test]
fn v1_is_built_in_place_from_a_request() {
    let metadata = [0xAA; 26];
    let mut request = FrameBuffer::zeroed(HEADER_SIZE + metadata.len() + 7);
    request.body_mut()[..26].copy_from_slice(&metadata);
    request.body_mut()[26..].copy_from_slice(&hex(V1_BODY));
    request.reframe(metadata.len());
    let built = prepare::build(request, v1_fields());
    assert_eq!(built.to_vec(), v1());
    assert_eq!(built.contiguous(), Some(v1().as_slice()));
}

#[test]
fn v2_a_retransmission_changes_the_view_and_not_the_identity() {
    let prepare = Message::from_bytes(&v1()).expect("generic");
    let again = prepare.prepare_in_view(View(4));
    let header = again.header::<PrepareHeader>();
    assert_eq!(header.frame.view(), View(4));
    assert_eq!(header.identity(), widened(V1_IDENTITY));
    assert!(header.identity_is_valid());
    assert_eq!(again.body(), prepare.body());
    assert_eq!(again.contiguous(), None);
    let mut expected = v1();
    expected[52] = 4;
    assert_eq!(again.to_vec(), expected);
    assert_eq!(again, Message::from_bytes(&expected).expect("generic"));
    assert_eq!(again.into_unique().bytes(), expected);
}

#[test]
fn v3_another_commit_is_another_identity() {
    let mut header = v1_fields();
    header.set_commit(Op(9));
    let built = build_with_body(header, &hex(V1_BODY));
    let identity = built.header::<PrepareHeader>().frame.checksum();
    assert_eq!(identity, widened(0xff5b_7931_2d1e_36d0));
}

#[test]
fn v4_a_repair_frame_keeps_the_identity_of_command_six() {
    let prepare = Message::from_bytes(&v1()).expect("generic");
    let repair = prepare.prepare_to_repair();
    let mut expected = v1();
    expected[60] = 0x13;
    assert_eq!(repair.to_vec(), expected);
    assert_eq!(
        xxh3(&zeroed(&expected)),
        0xe065_3a2f_b3b7_a8fe,
        "command 19 hashed as it is"
    );
    let header = repair.header::<PrepareHeader>();
    assert_eq!(header.identity(), widened(V1_IDENTITY));
    match decode_replica(repair.clone()) {
        Ok(ReplicaFrame::RepairPrepare(typed)) => {
            assert_eq!(verify_ingest(typed.header(), typed.body()), Ok(()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(repair.repair_to_prepare(), prepare);
    let alone = Message::from_bytes(&expected)
        .expect("generic")
        .repair_to_prepare();
    assert_eq!(
        alone.contiguous(),
        Some(v1().as_slice()),
        "an only owner is changed in place"
    );
}

/// The header with checksum and view zeroed and the command left alone: the wrong input.
fn zeroed(frame: &[u8]) -> Vec<u8> {
    let mut header = frame[..HEADER_SIZE].to_vec();
    header[0..16].fill(0);
    header[52..56].fill(0);
    header
}

#[test]
fn v5_chains_to_v1() {
    let mut header = v1_fields();
    header.set_parent(widened(V1_IDENTITY));
    header.set_op(Op(10));
    header.set_commit(Op(9));
    header.set_request(RequestNumber(2));
    header.set_operation(Operation::DeleteStream);
    header.set_timestamp(1_700_000_000_000_001);
    header.set_request_checksum(widened(0x4e6f_1b19_9d38_4e91));
    let built = build_with_body(header, &hex(V5_BODY));
    assert_eq!(built.to_vec(), frame(V5_RUNS, V5_BODY));
    let identity = built.header::<PrepareHeader>().frame.checksum();
    assert_eq!(identity, widened(0xe066_6184_a499_8b3e));
}

#[test]
fn v6_a_partition_prepare_has_an_identity_and_no_body_seal() {
    let body = vec![0; 375];
    let mut header = v1_fields();
    header.set_parent(Checksum::ZERO);
    header.set_request_checksum(Checksum::ZERO);
    header.set_op(Op(1));
    header.set_commit(Op(0));
    header.set_request(RequestNumber(3));
    header.set_timestamp(1_700_000_000_000_123);
    header.set_operation(Operation::SendMessages);
    header.set_group(GroupId::partition(5, 2, 7).expect("legal"));
    let built = build_with_body(header, &body);
    assert_eq!(built.header_bytes(), &support::header(V6_RUNS));
    assert_eq!(built.size(), 631);
    let identity = built.header::<PrepareHeader>().frame.checksum();
    assert_eq!(identity, widened(0xf056_6cd4_4f03_9acf));
}

#[test]
fn v7_reserved_bytes_are_a_field_error() {
    let mut bytes = v1();
    bytes[228] = 1;
    reidentify(&mut bytes);
    let rule = FieldError::ReservedNotZero { offset: 228 };
    assert_eq!(
        ingest(&bytes),
        Err(Refusal::Field {
            command: Command::Prepare,
            rule
        })
    );
    let mut bytes = v1();
    bytes[62] = 1;
    reidentify(&mut bytes);
    let rule = FieldError::ReservedNotZero { offset: 62 };
    assert_eq!(
        ingest(&bytes),
        Err(Refusal::Field {
            command: Command::Prepare,
            rule
        })
    );
}

#[test]
fn padding_behind_the_operation_is_hashed_and_not_validated() {
    let mut bytes = v1();
    bytes[209] = 1;
    assert_eq!(ingest(&bytes), Ok(Err(IngestError::Identity)));
    reidentify(&mut bytes);
    assert_eq!(ingest(&bytes), Ok(Ok(())));
}

#[test]
fn v8_an_undefined_operation_is_version_skew_when_authentic() {
    let command = Command::Prepare;
    let mut bytes = v1();
    bytes[208] = 0xee;
    let bad = Refusal::BadEnum {
        command,
        offset: 208,
        value: 0xee,
    };
    assert_eq!(ingest(&bytes), Err(bad));
    reidentify(&mut bytes);
    assert_eq!(&bytes[..8], &0x8a31_2ec6_e5fb_e05d_u64.to_le_bytes());
    assert_eq!(
        ingest(&bytes),
        Err(Refusal::UnknownOperation {
            command,
            operation: 0xee
        })
    );
    assert_eq!(ingest(&bytes).expect_err("refused").label(), "UNKNOWN_OP");

    bytes[60] = 0x13;
    let command = Command::RepairPrepare;
    assert_eq!(
        ingest(&bytes),
        Err(Refusal::UnknownOperation {
            command,
            operation: 0xee
        })
    );
}

#[test]
fn v9_a_flipped_body_byte_is_caught_at_ingest() {
    let mut bytes = v1();
    bytes[256] ^= 1;
    assert_eq!(ingest(&bytes), Ok(Err(IngestError::BodySeal)));
}

#[test]
fn a_zero_identity_is_not_compared() {
    let mut bytes = v1();
    bytes[0..16].fill(0);
    assert_eq!(ingest(&bytes), Ok(Ok(())));
    bytes[16..32].fill(0);
    bytes[256] ^= 1;
    assert_eq!(ingest(&bytes), Ok(Ok(())), "nor is a zero body seal");
}

#[test]
fn a_metadata_prepare_without_body_seals_the_empty_body() {
    let mut header = v1_fields();
    header.set_operation(Operation::Register);
    let built = build_with_body(header, &[]);
    let seal = built.header::<PrepareHeader>().frame.checksum_body();
    assert_eq!(seal, widened(checksum::XXH3_EMPTY));
}

#[test]
fn a_prepare_takes_over_what_a_request_says() {
    let request = message(
        "49:01 56:07 60:05 128:feca 144:d7824d64195d7d32 168:03 176:a0 184:2a 192:01
         248:0700200005",
        "",
    );
    let request = Typed::<RoutedRequestHeader>::decode(request).expect("V37a");
    let header = PrepareHeader::for_request(request.header());
    assert_eq!(
        header.frame.release(),
        7,
        "a release is carried, and no backup rejects it"
    );
    assert_eq!(header.client(), ClientId(0xCAFE));
    assert_eq!(header.request(), RequestNumber(3));
    assert_eq!(header.request_checksum(), widened(0x327d_5d19_644d_82d7));
    assert_eq!(header.operation(), Operation::SendMessages);
    assert_eq!(header.user_id(), 1);
    assert_eq!(header.group().to_string(), "5/2/7");
    assert!(header.validate().is_ok());
}

#[test]
fn self_check_values_of_the_hashes() {
    assert_eq!(xxh3(b""), checksum::XXH3_EMPTY);
    assert_eq!(xxh3(b"a"), 0xe6c6_32b6_1e96_4e1f);
    assert_eq!(xxh3(&[0; 240]), 0x053f_0744_4f70_da08);
    assert_eq!(xxh3(&[0; 256]), 0xa68d_fbb1_d75c_6e8d);
    assert_eq!(xxh32(b"order-42"), 0xbbc3_3ad1);
    assert_eq!(xxh32(b"my-consumer"), 2_115_191_887);
    assert_eq!(xxh32(b"user-42"), 0x6181_9a7e);
    assert_eq!(xxh32(b"order-1"), 0xc209_e3e8);
}
