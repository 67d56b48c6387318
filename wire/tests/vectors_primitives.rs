//! Vectors of chapter 01 section 16.6: primitives, TLV blocks, permissions, keys.

mod support;

use biplane_wire::request::{
    Assignment, Assignments, AttachConsumerSession, CreateTopic, CreateTopicWithAssignments,
};
use biplane_wire::*;
use support::hex;

/// The value encodes to the bytes, the bytes decode to the value, and no shorter prefix does.
fn both_ways<'a, T>(value: &T, bytes: &'a [u8])
where
    T: Codec<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(hex::encode(value.encode()), hex::encode(bytes));
    assert_eq!(T::decode_exact(bytes).as_ref(), Ok(value));
    for length in 0..bytes.len() {
        assert!(
            T::decode_exact(&bytes[..length]).is_err(),
            "{length} of {}",
            bytes.len()
        );
    }
}

fn refused<'a, T: Codec<'a> + std::fmt::Debug>(bytes: &'a [u8]) -> DecodeError {
    T::decode_exact(bytes).expect_err("refused")
}

#[test]
fn identifiers() {
    both_ways(&Identifier::Numeric(258), &hex("010402010000"));
    both_ways(
        &Identifier::named("orders").expect("a name"),
        &hex("02066f7264657273"),
    );
    let undefined = DecodeError::Undefined {
        field: "body",
        value: 3,
    };
    assert_eq!(refused::<Identifier<'_>>(&hex("030401000000")), undefined);
    let truncated = refused::<Identifier<'_>>(&hex("0304010000"));
    assert!(
        matches!(
            truncated,
            DecodeError::Truncated {
                need: 4,
                have: 3,
                ..
            }
        ),
        "{truncated}"
    );
    let length = |length| DecodeError::Length {
        field: "body",
        length,
    };
    assert_eq!(refused::<Identifier<'_>>(&hex("0103010000")), length(3));
    assert_eq!(refused::<Identifier<'_>>(&hex("0200")), length(0));
    assert_eq!(
        refused::<Identifier<'_>>(&hex("0201ff")),
        DecodeError::Utf8 { field: "body" }
    );
    assert!(Identifier::named("").is_err());
    assert!(Identifier::named(&"x".repeat(256)).is_err());
}

#[test]
fn names_and_texts() {
    both_ways(
        &Name::new("orders").expect("a name"),
        &hex("066f7264657273"),
    );
    assert!(
        refused::<Name<'_>>(&hex("00"))
            == DecodeError::Length {
                field: "body",
                length: 0
            }
    );
    assert_eq!(
        refused::<Name<'_>>(&hex("01c3")),
        DecodeError::Utf8 { field: "body" }
    );
    assert_eq!(Text8::new("").expect("a text").encode(), hex("00"));
    both_ways(&Text32("ab"), &hex("020000006162"));
    assert_eq!(
        refused::<Text32<'_>>(&hex("01000000ff")),
        DecodeError::Utf8 { field: "body" }
    );
    assert!(Text8::new(&"x".repeat(256)).is_err());
}

#[test]
fn consumers() {
    let group = Consumer {
        kind: ConsumerKind::Group,
        id: Identifier::Numeric(1),
    };
    both_ways(&group, &hex("02010401000000"));
    assert_eq!(group.numeric_id(), Some(1));
    let name = Identifier::named("my-consumer").expect("a name");
    let named = Consumer {
        kind: ConsumerKind::Consumer,
        id: name,
    };
    assert_eq!(named.numeric_id(), Some(2_115_191_887));
    assert_eq!(
        Consumer {
            kind: ConsumerKind::Group,
            id: name
        }
        .numeric_id(),
        None
    );
    assert!(Consumer::decode(&hex("00010401000000")).is_err());
    assert!(Consumer::decode(&hex("03010401000000")).is_err());
}

#[test]
fn partitioning() {
    both_ways(&Partitioning::Balanced, &hex("0100"));
    both_ways(&Partitioning::PartitionId(7), &hex("020407000000"));
    both_ways(
        &Partitioning::MessagesKey(b"order-42"),
        &hex("03086f726465722d3432"),
    );
    for invalid in ["010100", "020307000000", "0300", "0400", "0000"] {
        assert!(Partitioning::decode(&hex(invalid)).is_err(), "{invalid}");
    }
    assert_eq!(Partitioning::key_index(b"order-42", 3), Some(1));
    assert_eq!(Partitioning::key_index(b"user-42", 10), Some(6));
    assert_eq!(Partitioning::key_index(b"order-42", 0), None);
}

#[test]
fn strategies_acks_partitions_and_booleans() {
    let offset = PollingStrategy {
        kind: PollingKind::Offset,
        value: 100,
    };
    both_ways(&offset, &hex("016400000000000000"));
    let next = PollingStrategy {
        kind: PollingKind::Next,
        value: 0,
    };
    both_ways(&next, &hex("050000000000000000"));
    for kind in [0_u8, 6, 255] {
        assert!(PollingStrategy::decode(&[[kind].as_slice(), &[0; 8]].concat()).is_err());
    }
    both_ways(&AckLevel::NoAck, &[0]);
    both_ways(&AckLevel::Quorum, &[1]);
    assert!(AckLevel::decode(&[2]).is_err());
    both_ways(&OptionalPartition(Some(7)), &hex("0107000000"));
    both_ways(&OptionalPartition(None), &hex("0000000000"));
    assert_eq!(
        OptionalPartition::decode(&hex("0207000000")),
        Ok(OptionalPartition(None))
    );
    assert_eq!(bool::decode(&[7]), Ok(true));
    assert_eq!(true.encode(), [1]);
}

#[test]
fn options() {
    let bytes = hex(
        "0214000000707265616c6c6f636174655f7365676d656e74730301000000 01
        020c0000007365676d656e745f73697a65 0c080000000000004000000000
        020a0000006475726162696c697479 0209000000706572736973746564",
    );
    let mut builder = TlvBuilder::new();
    builder.option("preallocate_segments", TlvKind::BOOL, &[1]);
    builder.option("segment_size", TlvKind::U64, &(1_u64 << 30).to_le_bytes());
    builder.option("durability", TlvKind::STRING, b"persisted");
    assert_eq!(builder.bytes(), bytes);
    let options = Options::parse(&bytes).expect("valid, though unsorted");
    assert_eq!(
        options
            .get("preallocate_segments")
            .and_then(|value| value.as_bool()),
        Some(true)
    );
    assert_eq!(
        options.get("segment_size").and_then(|value| value.as_u64()),
        Some(1 << 30)
    );
    assert_eq!(
        options.get("durability").and_then(|value| value.as_str()),
        Some("persisted")
    );
    assert_eq!(options.get("absent"), None);
    assert_eq!(options.iter().count(), 3);
    assert_eq!(
        options.get("segment_size").and_then(|value| value.as_u32()),
        None
    );
    let prefixed = Options32(options).encode();
    assert_eq!(Options32::decode_exact(&prefixed), Ok(Options32(options)));
}

#[test]
fn option_rules() {
    let pair = |key: TlvField<'_>, value: TlvField<'_>| {
        let mut builder = TlvBuilder::new();
        builder.push(key, value);
        builder.into_bytes()
    };
    let one = TlvField {
        kind: TlvKind(200),
        data: &[1],
    };
    let known = pair(TlvField::string("a"), one);
    assert!(
        Options::parse(&known).is_ok(),
        "unknown value kinds are legal"
    );
    let duplicate = [
        known.clone(),
        pair(TlvField::string("b"), one),
        known.clone(),
    ]
    .concat();
    assert!(Options::parse(&duplicate).is_err());
    assert!(TlvBlock::parse(&duplicate).is_ok());
    let raw_key = pair(
        TlvField {
            kind: TlvKind::RAW,
            data: b"a",
        },
        one,
    );
    assert!(Options::parse(&raw_key).is_err());
    let bad_text = pair(
        TlvField {
            kind: TlvKind::STRING,
            data: &[0xff],
        },
        one,
    );
    assert_eq!(
        Options::parse(&bad_text),
        Err(DecodeError::Utf8 {
            field: "option key"
        })
    );
    let many = |count: usize| {
        let mut builder = TlvBuilder::new();
        for index in 0..count {
            builder.push(TlvField::string(&format!("{index:05}")), one);
        }
        builder.into_bytes()
    };
    assert!(Options::parse(&many(OPTIONS_COUNT_MAX)).is_ok());
    assert!(Options::parse(&many(OPTIONS_COUNT_MAX + 1)).is_err());
    let wide = [7; 255];
    let mut builder = TlvBuilder::new();
    for index in 0..400 {
        let value = TlvField {
            kind: TlvKind::RAW,
            data: &wide,
        };
        builder.push(TlvField::string(&format!("{index:05}")), value);
    }
    assert!(builder.bytes().len() > OPTIONS_SIZE_MAX);
    assert!(Options::parse(builder.bytes()).is_err());
}

#[test]
fn invalid_tlv_blocks() {
    let long = format!("0200010000{}020100000061", "61".repeat(256));
    for invalid in [
        "0000000000",
        "0100000000",
        "020100000061",
        &long,
        "0201000000610201000000",
    ] {
        assert!(TlvBlock::parse(&hex(invalid)).is_err(), "{invalid}");
    }
    let valid = hex("02010000006b020100000076");
    assert!(TlvBlock::parse(&valid).is_ok());
    assert!(
        TlvBlock::parse(&[valid.as_slice(), &[1]].concat()).is_err(),
        "a trailing byte"
    );
    assert!(TlvBlock::parse(&[]).is_ok());
    for length in 1..valid.len() {
        assert!(TlvBlock::parse(&valid[..length]).is_err(), "{length}");
    }
    let chapter_07 = hex("02010000006b02010000007602010000006e0c080000000500000000000000");
    let values: Vec<_> = TlvBlock::parse(&chapter_07)
        .expect("valid")
        .pairs()
        .collect();
    assert_eq!(values[1].1.as_u64(), Some(5));
    assert_eq!(TlvKind(16).value_size(), None);
    assert!(!TlvKind(16).is_known() && TlvKind(15).is_known());
}

#[test]
fn permissions() {
    let bytes = hex(
        "01000001000000000101 01 01000000 000100010100 01 02000000 00010101 00 01
        03000000 010101010101 00 00",
    );
    let mut permissions = Permissions::default();
    permissions.global.manage_servers = true;
    permissions.global.read_users = true;
    permissions.global.poll_messages = true;
    permissions.global.send_messages = true;
    let mut first = StreamPermissions::default();
    first.flags.read_stream = true;
    first.flags.read_topics = true;
    first.flags.poll_messages = true;
    let topic = TopicFlags {
        manage_topic: false,
        read_topic: true,
        poll_messages: true,
        send_messages: true,
    };
    first.topics.insert(2, topic);
    let third = StreamPermissions {
        flags: StreamFlags {
            manage_stream: true,
            read_stream: true,
            manage_topics: true,
            read_topics: true,
            poll_messages: true,
            send_messages: true,
        },
        topics: Default::default(),
    };
    permissions.streams.insert(1, first);
    permissions.streams.insert(3, third);
    both_ways(&permissions, &bytes);
    let block = PermissionsBlock::parse(&bytes).expect("valid");
    assert_eq!(block.to_permissions(), permissions);
    for length in 0..bytes.len() {
        assert!(
            PermissionsBlock::parse(&bytes[..length]).is_err(),
            "{length}"
        );
    }
    assert!(PermissionsBlock::parse(&[bytes.as_slice(), &[0]].concat()).is_err());
}

#[test]
fn permission_corner_cases() {
    let twice = hex(
        "00000000000000000000 05 01000000 000000000000 00 01 01000000 ff0000000000 00
        00",
    );
    let block = PermissionsBlock::parse(&twice).expect("duplicates are legal");
    let permissions = block.to_permissions();
    assert_eq!(permissions.streams.len(), 1, "the last one wins");
    assert!(
        permissions.streams[&1].flags.manage_stream,
        "nonzero is true"
    );
    assert_eq!(block.bytes(), twice, "and the block is kept as sent");
    assert!(Permissions::all().global.manage_servers);
    assert_eq!(Permissions::all().encode(), hex("0101010101010101010100"));
    let none = OptionalPermissions::decode_exact(&[0]).expect("none");
    assert_eq!(none.0, None);
    assert_eq!(
        OptionalPermissions::decode_exact(&[2]),
        Ok(none),
        "only 1 says there are some"
    );
    let mut longer = vec![1, 12, 0, 0, 0];
    longer.extend([0; 12]);
    assert!(
        OptionalPermissions::decode(&longer).is_err(),
        "the block must fill its length"
    );
}

#[test]
fn assignments_and_created_view() {
    let one = Assignment::new(7, 42);
    let entries = [one];
    let list = Assignments {
        entries: &entries,
        created_view: View(0),
    };
    assert_eq!(
        hex::encode(&list.encode()[4..16]),
        "070000002a00000000000000"
    );

    let bytes = hex(
        "11000000 010401000000 01000000 066576656e7473 00000000 01000000 00000000
        0100000000000000 07000000",
    );
    let entries = [Assignment::new(0, 1)];
    let create = CreateTopicWithAssignments {
        request: CreateTopic {
            stream: Identifier::Numeric(1),
            partitions: 1,
            name: Name::new("events").expect("a name"),
            options: Options::EMPTY,
        },
        derived: Options::EMPTY,
        assignments: Assignments {
            entries: &entries,
            created_view: View(7),
        },
    };
    assert_eq!(hex::encode(create.encode()), hex::encode(&bytes));
    assert_eq!(CreateTopicWithAssignments::decode(&bytes), Ok(create));
    let old = CreateTopicWithAssignments::decode(&bytes[..bytes.len() - 4]).expect("optional");
    assert_eq!(old.assignments.created_view, View(0));
    for left in 1..4 {
        let corrupt = &bytes[..bytes.len() - left];
        assert!(
            CreateTopicWithAssignments::decode(corrupt).is_err(),
            "{left}"
        );
    }
    let longer = [bytes.as_slice(), &[9, 9]].concat();
    assert_eq!(
        CreateTopicWithAssignments::decode(&longer),
        Ok(create),
        "more is ignored"
    );
    let mut huge = bytes.clone();
    huge[25..29].fill(0xff);
    assert!(
        CreateTopicWithAssignments::decode(&huge).is_err(),
        "no allocation for the count"
    );
}

#[test]
fn attach_record() {
    let record = AttachConsumerSession {
        client: ClientId(0xCAFE),
        session: 42,
        metadata_watermark: 9,
    };
    let bytes = hex("feca0000000000000000000000000000 2a00000000000000 0900000000000000");
    both_ways(&record, &bytes);
}

#[test]
fn group_keys() {
    let key = |stream, topic, partition| GroupId::partition(stream, topic, partition);
    let vectors = [
        ((0, 0, 0), 0x0),
        ((5, 2, 7), 0x5_0020_0007),
        ((1, 0, 0), 0x1_0000_0000),
        ((4095, 4095, 999_999), 0xfff_ffff_423f),
        ((4096, 0, 0), 0x1000_0000_0000),
        ((1_048_575, 4095, 999_999), 0xf_ffff_ffff_423f),
    ];
    for ((stream, topic, partition), packed) in vectors {
        let group = key(stream, topic, partition).expect("legal");
        assert_eq!(group, GroupId(packed));
        assert_eq!(
            group.unpack(),
            Some(PartitionKey {
                stream,
                topic,
                partition
            })
        );
        assert!(group.is_legal() && !group.is_metadata());
        assert_eq!(group.to_string(), format!("{stream}/{topic}/{partition}"));
    }
    assert_eq!(key(1_048_576, 0, 0), None);
    assert_eq!(key(0, 4096, 0), None);
    assert_eq!(key(0, 0, 1_000_000), None);
    assert_eq!(
        GroupId(1_000_000).unpack(),
        None,
        "fits the mask and is illegal"
    );
    assert!(!GroupId(1_048_575).is_legal());
    assert!(!GroupId(1 << 52).is_legal() && !GroupId((1 << 63) + 1).is_legal());
    assert!(GroupId::METADATA.is_legal() && GroupId::METADATA.unpack().is_none());
    assert_eq!(GroupId::METADATA.to_string(), "metadata");
    assert_eq!(GroupId(1 << 52).to_string(), "illegal(0x0010000000000000)");
}
