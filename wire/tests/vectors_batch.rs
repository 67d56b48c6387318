//! Vectors of chapter 01 section 16.5 and chapter 07 sections 15.6 and 15.7: batches built,
//! verified, stamped and sliced, and every invalid variant with its error code.

mod support;

use biplane_wire::response::PolledMessages;
use biplane_wire::*;
use support::{frame, hex};
use zerocopy::IntoBytes;

const METADATA: &str = "16000000 010405000000 010402000000 020407000000 02000000";
const PRODUCER: &str = "24:e803 32:7701 40:0a21e31269fedc7b02";
const STAMPED: &str = "0:07 8:64 16:7b401e18240a0600e803 32:7701 40:6a8ac6ae7d67cae102";
const SLICED: &str = "0:07 8:64 16:7b401e18240a0600e803 32:4201 40:cf4daab3540a667501";
const FIRST: &str = "49398ef8abaae9bb 01000000000000000000000000000000 00000000 00000000 00000000
    05000000 0000000000000000 6669727374";
const SECOND: &str = "01e18c461bfc0115 02000000000000000000000000000000 01000000 05000000 0c000000
    06000000 0000000000000000 7365636f6e64 02010000006b020100000076";
const BASE_TIMESTAMP: u64 = 1_700_000_000_000_123;

fn producer() -> Vec<u8> {
    frame(PRODUCER, &format!("{FIRST}{SECOND}"))
}

fn stamped() -> Vec<u8> {
    frame(STAMPED, &format!("{FIRST}{SECOND}"))
}

fn metadata() -> SendMetadata<'static> {
    SendMetadata {
        stream: Identifier::Numeric(5),
        topic: Identifier::Numeric(2),
        partitioning: Partitioning::PartitionId(7),
        messages_count: 2,
    }
}

fn send_body(batch: &[u8]) -> Vec<u8> {
    [&hex(METADATA), batch].concat()
}

#[test]
fn a_producer_builds_v38() {
    let mut headers = TlvBuilder::new();
    headers.push(TlvField::string("k"), TlvField::string("v"));
    let mut builder = BatchBuilder::new();
    builder.push(1, 1000, b"first", &[]).expect("fits");
    builder
        .push(2, 1005, b"second", headers.bytes())
        .expect("fits");
    assert_eq!(builder.len(), 2);
    let batch = builder.finish().expect("within the span");
    assert_eq!(hex::encode(&batch), hex::encode(producer()));
    assert_eq!(batch.len(), 375);
    let body = SendMessages::encode(&metadata(), &batch);
    assert_eq!(body, send_body(&producer()));
    assert_eq!(body.len(), 401);
}

#[test]
fn v38_is_admitted() {
    let body = send_body(&producer());
    let send = SendMessages::decode(&body).expect("valid");
    assert_eq!(send.metadata, metadata());
    assert_eq!(send.batch_start, 26);
    assert_eq!(SendMessages::decode_metadata(&body), Ok((metadata(), 26)));
    let header = send.batch.header();
    assert_eq!(header.batch_checksum(), 0x7bdc_fe69_12e3_210a);
    assert_eq!(header.origin_timestamp(), 1000);
    let frames: Vec<_> = send.batch.frames().collect();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0].header.checksum(), 0xbbe9_aaab_f88e_3949);
    assert_eq!(frames[1].header.checksum(), 0x1501_fc1b_468c_e101);
    assert_eq!(
        (frames[0].payload, frames[0].user_headers),
        (&b"first"[..], &b""[..])
    );
    assert_eq!(frames[1].payload, b"second");
    let headers = TlvBlock::parse(frames[1].user_headers).expect("a TLV block");
    let pairs: Vec<_> = headers.pairs().collect();
    assert_eq!(pairs, [(TlvField::string("k"), TlvField::string("v"))]);
    assert_eq!(frames[1].header.timestamp_delta(), 5);
    assert_eq!(send.batch.offset_last(), Some(1));
}

#[test]
fn the_primary_stamps_in_place() {
    let mut batch = producer();
    stamp_batch(&mut batch, 7, 100, BASE_TIMESTAMP).expect("a batch");
    assert_eq!(hex::encode(&batch), hex::encode(stamped()));
    let view = Batch::decode(&batch, Verify::Checksums).expect("valid");
    assert_eq!(view.header().batch_checksum(), 0xe1ca_677d_aec6_8a6a);
    assert_eq!(view.offset_last(), Some(101));

    let mut batch = producer();
    set_partition_id(&mut batch, 7).expect("a batch");
    let view = Batch::decode(&batch, Verify::Layout).expect("layout holds");
    assert_eq!(view.header().batch_checksum(), 0);
    assert_eq!(view.computed_checksum(), 0xd40f_a2de_681d_1f8a);
    let error = Batch::decode(&batch, Verify::Checksums).expect_err("not stamped yet");
    assert_eq!(error.code(), ErrorCode::InvalidBatchChecksum);

    assert!(stamp_batch(&mut [0; 255], 7, 0, 0).is_err());
    assert!(set_partition_id(&mut [0; 255], 7).is_err());
}

#[test]
fn a_poll_gets_the_second_message_only() {
    let batch = stamped();
    let view = Batch::decode(&batch, Verify::Checksums).expect("valid");
    let selection = view.select(BatchQuery::Offset(101), u64::MAX, 10);
    assert_eq!((selection.count(), selection.offset_last()), (1, Some(101)));
    let BatchSelection::Part {
        header, start, end, ..
    } = selection
    else {
        panic!("{selection:?}")
    };
    assert_eq!((start, end), (256 + 53, 256 + 119));
    let slice = [header.as_bytes(), &batch[start..end]].concat();
    assert_eq!(hex::encode(&slice), hex::encode(frame(SLICED, SECOND)));
    assert_eq!(slice.len(), 322);
    let sliced = Batch::decode(&slice, Verify::Checksums).expect("a slice is a valid batch");
    let frame = sliced.frames().next().expect("one message");
    assert_eq!(sliced.offset_of(&frame), 101);
    assert_eq!(sliced.header().batch_checksum(), 0x7566_0a54_b3aa_4dcf);
}

#[test]
fn selections_stop_at_ceiling_count_and_query() {
    use BatchQuery::{Offset, Timestamp};
    let batch = stamped();
    let view = Batch::decode(&batch, Verify::Layout).expect("valid");
    let count = |query, visible, max| view.select(query, visible, max).count();
    assert_eq!(count(Offset(100), u64::MAX, 10), 2);
    assert_eq!(count(Offset(0), 101, 2), 2);
    assert_eq!(count(Offset(0), 100, 10), 1);
    assert_eq!(count(Offset(0), 99, 10), 0);
    assert_eq!(count(Offset(102), u64::MAX, 10), 0);
    assert_eq!(count(Offset(0), u64::MAX, 1), 1);
    assert_eq!(count(Offset(0), u64::MAX, 0), 0);
    assert_eq!(count(Timestamp(BASE_TIMESTAMP), u64::MAX, 10), 2);
    assert_eq!(count(Timestamp(BASE_TIMESTAMP + 1), u64::MAX, 10), 0);
    assert_eq!(count(Timestamp(0), 100, 10), 1);
    let whole = view.select(Offset(100), u64::MAX, 2);
    assert_eq!(
        whole,
        BatchSelection::Whole {
            count: 2,
            offset_last: 101
        }
    );
    assert_eq!(view.select(Offset(102), u64::MAX, 2).offset_last(), None);
}

#[test]
fn a_batch_without_messages_decodes_and_is_not_admitted() {
    let batch = frame("24:e803 32:0001 40:308134d1658a9c88", "");
    let view = Batch::decode(&batch, Verify::Checksums).expect("valid");
    assert_eq!(view.message_count(), 0);
    assert_eq!(view.offset_last(), None);
    let error = SendMessages::decode(&send_body(&batch)).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::InvalidCommand);
    let empty = BatchBuilder::new().finish().expect("empty");
    assert_eq!(
        Batch::decode(&empty, Verify::Checksums).map(|batch| batch.message_count()),
        Ok(0)
    );
    let default = BatchBuilder::default().finish().expect("empty");
    assert_eq!(default, empty);
}

fn invalid(change: impl Fn(&mut Vec<u8>)) -> BatchError {
    let mut batch = producer();
    change(&mut batch);
    let error = SendMessages::decode(&send_body(&batch)).expect_err("refused");
    let view = Batch::decode(&batch, Verify::Checksums).expect_err("refused");
    assert_eq!(error.code(), view.code());
    error
}

#[test]
fn invalid_variants_of_the_producer_batch() {
    let (stored, computed) = (0x1501_fc1b_468c_e101, 0x6218_249f_f1ca_2646);
    let last = invalid(|batch| *batch.last_mut().expect("bytes") ^= 1);
    assert_eq!(
        last,
        BatchError::MessageChecksum {
            offset: 1,
            stored,
            computed
        }
    );
    assert_eq!(last.code().as_u32(), 4027);

    let (stored, computed) = (0x7bdc_fe69_12e3_210b, 0x7bdc_fe69_12e3_210a);
    let checksum = invalid(|batch| batch[40] ^= 1);
    assert_eq!(checksum, BatchError::BatchChecksum { stored, computed });
    assert_eq!(checksum.code().as_u32(), 4039);

    let malformed = |change: &dyn Fn(&mut Vec<u8>)| {
        let error = invalid(change);
        assert!(matches!(error, BatchError::Malformed(_)), "{error}");
        assert_eq!(error.code().as_u32(), 3);
    };
    malformed(&|batch| batch[48] = 3);
    malformed(&|batch| batch[52] = 1);
    malformed(&|batch| batch[256 + 40] = 1);
    malformed(&|batch| batch.truncate(374));
    malformed(&|batch| batch[32..40].copy_from_slice(&255_u64.to_le_bytes()));
    malformed(&|batch| batch[32..40].copy_from_slice(&u64::MAX.to_le_bytes()));
    malformed(&|batch| batch.push(0));
    malformed(&|batch| batch.truncate(255));
    malformed(&|batch| batch.clear());
}

#[test]
fn the_first_mismatch_is_reported_before_a_later_malformed_frame() {
    let error = invalid(|batch| {
        batch[256 + 48] ^= 1;
        batch[256 + 53 + 40] = 1;
    });
    assert!(
        matches!(error, BatchError::MessageChecksum { offset: 0, .. }),
        "{error}"
    );
}

#[test]
fn metadata_must_fill_its_length_and_count_the_messages() {
    let code = |body: &[u8]| {
        SendMessages::decode(body)
            .err()
            .map(|error| error.code().as_u32())
    };
    let good = send_body(&producer());
    let mut other_count = good.clone();
    other_count[22] = 3;
    assert_eq!(code(&other_count), Some(3));
    let mut longer = good.clone();
    longer[0] += 1;
    assert_eq!(code(&longer), Some(3));
    let mut shorter = good.clone();
    shorter[0] -= 1;
    assert_eq!(code(&shorter), Some(3));
    let mut huge = good.clone();
    huge[3] = 0xff;
    assert_eq!(code(&huge), Some(3));
    for length in 0..26 {
        assert_eq!(code(&good[..length]), Some(3), "{length}");
    }
}

#[test]
fn a_producer_cannot_span_more_than_its_deltas() {
    let mut builder = BatchBuilder::new();
    builder.push(1, 10, b"a", &[]).expect("fits");
    builder
        .push(2, 10 + u64::from(u32::MAX), b"b", &[])
        .expect("fits");
    assert!(builder.clone().finish().is_ok());
    builder.push(3, 9, b"c", &[]).expect("fits");
    assert_eq!(builder.finish(), Err(batch::BatchOverflow::TimestampSpan));
}

#[test]
fn records_are_walked_to_the_first_bad_one() {
    let batch = stamped();
    let mut bytes = [batch.clone(), batch.clone(), batch.clone()].concat();
    assert_eq!(
        Batches::new(&bytes, Verify::Checksums)
            .filter(Result::is_ok)
            .count(),
        3
    );
    bytes[375 + 256 + 48] ^= 1;
    let mut walk = Batches::new(&bytes, Verify::Checksums);
    assert!(walk.next().expect("first").is_ok());
    assert!(walk.next().expect("second").is_err());
    assert!(walk.next().is_none(), "nothing behind a bad record");
    assert_eq!(walk.rest().len(), 750);
    assert_eq!(
        Batches::new(&bytes, Verify::Layout).count(),
        3,
        "layout alone does not see it"
    );
}

/// Chapter 07 section 15.6: `hello` and `world`.
#[test]
fn send_and_poll_of_chapter_07() {
    let mut builder = BatchBuilder::new();
    builder
        .push(1, 1_700_000_002_000_000, b"hello", &[])
        .expect("fits");
    builder
        .push(2, 1_700_000_002_000_005, b"world", &[])
        .expect("fits");
    let mut batch = builder.finish().expect("within the span");
    let metadata = SendMetadata {
        stream: Identifier::named("orders").expect("a name"),
        topic: Identifier::named("events").expect("a name"),
        partitioning: Partitioning::PartitionId(0),
        messages_count: 2,
    };
    let request = support::runs07(
        "{00*48}8802{00*10}05{00*68}0102030405060708090a0b0c0d0e0f{00*24}0300000000000000a0
         0000000000000007{00*71}1a00000002066f726465727302066576656e747302040000000002{00*27}
         80c43c18240a06006a010000000000009d007e478f4d5e2702{00*207}8e5ca59edbbdbfb901{00*27}05
         {00*11}68656c6c6fc590c02ce7d1353c02{00*15}01000000050000000000000005{00*11}776f726c64",
    );
    let message = decode_client(Message::from_bytes(&request).expect("generic")).expect("valid");
    assert_eq!(
        hex::encode(SendMessages::encode(&metadata, &batch)),
        hex::encode(message.body())
    );
    assert_eq!(
        Batch::decode(&batch, Verify::Checksums)
            .expect("valid")
            .header()
            .batch_checksum(),
        0x275e_4d8f_477e_009d
    );

    stamp_batch(&mut batch, 0, 0, 1_700_000_002_500_000).expect("a batch");
    let reply = support::runs07(
        "{00*48}7a02{00*10}08{00*100}0102030405060708090a0b0c0d0e0f070000000000000009{00*15}
         040000000000000002{00*51}010000000000000002{00*19}a0654418240a060080c43c18240a0600
         6a01000000000000e2c6d9c84e8243c002{00*207}8e5ca59edbbdbfb901{00*27}05{00*11}
         68656c6c6fc590c02ce7d1353c02{00*15}01000000050000000000000005{00*11}776f726c64",
    );
    let message = Message::from_bytes(&reply).expect("generic");
    let typed = Typed::<ReplyHeader>::decode(message).expect("valid");
    let polled = PolledMessages::decode(typed.body()).expect("a poll reply");
    assert_eq!(
        (
            polled.partition,
            polled.current_offset,
            polled.messages_count
        ),
        (0, 1, 2)
    );
    assert_eq!(hex::encode(polled.records), hex::encode(&batch));
    assert_eq!(polled.encode(), typed.body());

    let view = Batch::decode(&batch, Verify::Layout).expect("valid");
    let BatchSelection::Part { header, .. } = view.select(BatchQuery::Offset(1), 1, 1) else {
        panic!("a part")
    };
    assert_eq!(header.batch_length(), 309);
    assert_eq!(header.batch_checksum(), 0x71bd_7b71_3045_f654);
}
