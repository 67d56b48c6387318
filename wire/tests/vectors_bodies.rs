//! Vectors of chapter 05 section 15 and chapter 07 section 15: request, prepared and response
//! bodies, encoded and decoded.

mod support;

use biplane_wire::request::*;
use biplane_wire::response::*;
use biplane_wire::*;
use support::{hex, xxh3_hex};

const TIMESTAMP: u64 = 1_700_000_000_000_000;
const CLIENT: ClientId = ClientId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const EXPLICIT: &str = "
    02 1a000000 636f6e73756d65725f6f66667365745f6475726162696c697479
    02 0a000000 7265706c696361746564
    02 0a000000 6475726162696c697479 02 09000000 706572736973746564
    02 0c000000 7365676d656e745f73697a65 0c 08000000 0000000800000000";
const DERIVED: &str = "
    02 15000000 636f6d7072657373696f6e5f616c676f726974686d 02 04000000 6e6f6e65
    02 0e000000 6d61785f746f7069635f73697a65 0c 08000000 ffffffffffffffff
    02 0e000000 6d6573736167655f657870697279 0c 08000000 ffffffffffffffff
    02 19000000 6d657373616765735f72657175697265645f746f5f73617665 0b 04000000 00040000
    02 14000000 707265616c6c6f636174655f7365676d656e7473 03 01000000 00
    02 21000000 73697a655f6f665f6d657373616765735f72657175697265645f746f5f73617665
    0c 08000000 0000100000000000";

/// The value encodes to the bytes and the bytes decode to the value.
fn both_ways<'a, T>(value: &T, bytes: &'a [u8])
where
    T: Codec<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(hex::encode(value.encode()), hex::encode(bytes));
    assert_eq!(T::decode_exact(bytes).as_ref(), Ok(value));
}

fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("a name")
}

fn named(text: &str) -> Identifier<'_> {
    Identifier::named(text).expect("a name")
}

const ZERO: Identifier<'static> = Identifier::Numeric(0);

#[test]
fn consumer_group_bodies() {
    let request = ConsumerGroupRequest {
        stream: ZERO,
        topic: ZERO,
        group: named("g1"),
    };
    both_ways(&request, &hex("01040000000001040000000002026731"));
    let join = hex(
        "01040000000001040000000002026731 100f0e0d0c0b0a090807060504030201 02000000
        00000000 03000000",
    );
    let decoded = JoinConsumerGroupPrepared::decode_exact(&join).expect("valid");
    assert_eq!((decoded.client, decoded.group), (CLIENT, named("g1")));
    assert_eq!(decoded.in_flight.iter().collect::<Vec<_>>(), [0, 3]);
    assert_eq!(decoded.encode(), join);
    let body = MetadataBody::decode(Operation::JoinConsumerGroup, &join);
    assert_eq!(body, Ok(MetadataBody::JoinConsumerGroup(decoded)));

    let leave = LeaveConsumerGroupPrepared {
        stream: ZERO,
        topic: ZERO,
        group: named("g1"),
        client: CLIENT,
    };
    both_ways(
        &leave,
        &hex("01040000000001040000000002026731 100f0e0d0c0b0a090807060504030201"),
    );
    let completion = CompleteConsumerGroupRevocation {
        stream: ZERO,
        topic: ZERO,
        group_id: 5,
        source_client: CLIENT,
        partition: 1,
    };
    let bytes = hex("010400000000 010400000000 0500000000000000
        100f0e0d0c0b0a090807060504030201 01000000");
    both_ways(&completion, &bytes);
    let mut huge = join;
    huge[32..36].fill(0xff);
    assert!(
        JoinConsumerGroupPrepared::decode(&huge).is_err(),
        "the count is not believed"
    );
}

#[test]
fn stream_and_truncate_bodies() {
    let create = CreateStream {
        name: name("orders"),
        options: Options::EMPTY,
    };
    both_ways(&create, &hex("066f7264657273"));
    let record = StreamRecord {
        id: 0,
        created_at: TIMESTAMP,
        topics_count: 0,
        size: 0,
        messages_count: 0,
        name: name("orders"),
        options: Options32::default(),
    };
    let details = StreamDetails {
        stream: record,
        topics: Vec::new(),
    };
    let reply = hex(
        "00000000 00000000 00401e18240a0600 00000000 0000000000000000
        0000000000000000 066f7264657273 00000000",
    );
    assert_eq!(result::success(&details.encode()), reply);
    both_ways(&details, &reply[4..]);
    assert_eq!(
        result::rejection(1009),
        hex("0100000000000000f1030000").as_slice()
    );
    let truncate = TruncatePartition {
        stream: ZERO,
        topic: ZERO,
        partition: 1,
        up_to_offset: 999,
    };
    both_ways(
        &truncate,
        &hex("010400000000 010400000000 01000000 e703000000000000"),
    );
}

#[test]
fn create_topic_bodies() {
    let sent = hex("010400000000 02000000 027431
        02 1a000000 636f6e73756d65725f6f66667365745f6475726162696c697479
        02 0a000000 7265706c696361746564
        02 0a000000 6475726162696c697479 02 09000000 706572736973746564
        02 0c000000 7365676d656e745f73697a65 02 06000000 3132384d6942");
    assert_eq!((sent.len(), xxh3(&sent)), (116, 0x07bb_b7aa_8f60_cdd2));
    let request = CreateTopic::decode(&sent).expect("valid");
    assert_eq!((request.stream, request.partitions), (ZERO, 2));
    let size = request
        .options
        .get("segment_size")
        .and_then(|value| value.as_str());
    assert_eq!(size, Some("128MiB"));
    assert_eq!(request.encode(), sent);

    let (explicit, derived) = (hex(EXPLICIT), hex(DERIVED));
    assert_eq!(
        (explicit.len(), xxh3(&explicit)),
        (105, 0x3912_0828_defc_5829)
    );
    assert_eq!(
        (derived.len(), xxh3(&derived)),
        (220, 0xf8ba_69e3_9a4d_8974)
    );
    let entries = [Assignment::new(0, 1), Assignment::new(1, 2)];
    let prepared = CreateTopicWithAssignments {
        request: CreateTopic {
            options: Options::parse(&explicit).expect("valid"),
            ..request
        },
        derived: Options::parse(&derived).expect("valid"),
        assignments: Assignments {
            entries: &entries,
            created_view: View(3),
        },
    };
    let body = prepared.encode();
    assert_eq!((body.len(), xxh3(&body)), (378, 0xb3e7_306e_71d7_69a8));
    let decoded = MetadataBody::decode(Operation::CreateTopicWithAssignments, &body);
    assert_eq!(
        decoded,
        Ok(MetadataBody::CreateTopicWithAssignments(prepared))
    );

    let reply = result::success(&topic_details(&explicit, &derived).encode());
    assert_eq!((reply.len(), xxh3(&reply)), (469, 0xa913_2ba3_c8b2_62ea));
    let details = TopicDetails::decode_exact(&reply[4..]).expect("valid");
    assert_eq!(details, topic_details(&explicit, &derived));
}

fn topic_details<'a>(explicit: &'a [u8], derived: &'a [u8]) -> TopicDetails<'a> {
    let partition = |id| PartitionRecord {
        id,
        created_at: TIMESTAMP,
        segments_count: 0,
        current_offset: 0,
        size: 0,
        messages_count: 0,
    };
    TopicDetails {
        topic: TopicRecord {
            id: 0,
            created_at: TIMESTAMP,
            partitions_count: 2,
            message_expiry: u64::MAX,
            compression: 1,
            max_topic_size: u64::MAX,
            size: 0,
            messages_count: 0,
            name: name("t1"),
            explicit_options: Options32(Options::parse(explicit).expect("valid")),
            derived_options: Options32(Options::parse(derived).expect("valid")),
        },
        partitions: vec![partition(0), partition(1)],
    }
}

#[test]
fn create_partitions_bodies() {
    let entries = [Assignment::new(0, 3), Assignment::new(1, 4)];
    let request = PartitionsRequest {
        stream: ZERO,
        topic: named("t1"),
        count: 2,
    };
    let assignments = Assignments {
        entries: &entries,
        created_view: View(3),
    };
    let prepared = CreatePartitionsWithAssignments {
        request,
        assignments,
    };
    let body = prepared.encode();
    assert_eq!((body.len(), xxh3(&body)), (50, 0x4bbf_bd4d_7f51_1e00));
    both_ways(&prepared, &body);
}

#[test]
fn user_and_token_bodies() {
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$AAECAwQFBgcICQoLDA0ODw$wf2/c/vlFte6hIN2Uyogmn1x/V\
        /pPV40SfMbuFX/DGA";
    let mut create = CreateUser {
        username: name("alice"),
        password: Text8::new("secret").expect("short"),
        status: 1,
        permissions: OptionalPermissions(None),
        options: Options::EMPTY,
    };
    both_ways(&create, &hex("05616c696365 06736563726574 01 00"));
    create.password = Text8::new(hash).expect("short");
    let prepared = create.encode();
    assert_eq!(
        (prepared.len(), xxh3(&prepared)),
        (106, 0x96b2_1533_68d2_14ba)
    );
    let user = UserRecord {
        id: 1,
        created_at: TIMESTAMP,
        status: 1,
        username: name("alice"),
        options: Options32::default(),
    };
    let details = UserDetails {
        user,
        permissions: None,
    };
    let reply = hex("01000000 00401e18240a0600 01 05616c696365 00000000 00000000");
    both_ways(&details, &reply);

    let empty = Text8::new("").expect("short");
    let change = ChangePassword {
        user: Identifier::Numeric(1),
        current: empty,
        new: empty,
    };
    both_ways(&change, &hex("010401000000 00 00"));

    let token = b"b02ed059791ba84366c01ee57853984cc8489d23cc383af82b8786e1150bef84";
    let create = CreatePersonalAccessTokenPrepared {
        user_id: 1,
        name: name("ci"),
        expiry: 3_600_000_000,
        token_hash: token,
    };
    let body = create.encode();
    assert_eq!((body.len(), xxh3(&body)), (79, 0x685e_65f7_99b5_41fe));
    both_ways(&create, &body);
    let delete = DeletePersonalAccessTokenPrepared {
        user_id: 1,
        name: name("ci"),
        only_if_expired: false,
    };
    both_ways(&delete, &hex("01000000 026369 00"));
    let raw = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDE=";
    let reply = RawPersonalAccessToken {
        token: Text8::new(raw).expect("short"),
    };
    let body = result::success(&reply.encode());
    assert_eq!((body.len(), body[4]), (73, 0x44));
}

#[test]
fn permissions_of_chapter_05_and_07() {
    let bytes = hex("00 01 00 00 00 01 00 00 00 00 01
        00000000 00 01 00 00 01 00 01 01000000 00 01 01 01 01 02000000 01 00 00 00 00 01
        07000000 01 00 00 00 00 00 00 00");
    assert_eq!(bytes.len(), 53);
    let permissions = Permissions::decode_exact(&bytes).expect("valid");
    assert_eq!(
        permissions.streams.keys().copied().collect::<Vec<_>>(),
        [0, 7]
    );
    assert!(permissions.streams[&0].topics[&2].manage_topic);
    assert_eq!(permissions.encode(), bytes);
    let seven = support::runs07("0001{00*8}01050000000001000001000103000000000101010000");
    let permissions = Permissions::decode_exact(&seven).expect("valid");
    assert!(permissions.streams[&5].topics[&3].read_topic);
    assert_eq!(permissions.encode(), seven);
}

#[test]
fn update_user_flags_are_exact() {
    let full = UpdateUser {
        user: Identifier::Numeric(3),
        username: Some(name("bob")),
        status: Some(2),
        options: Options::EMPTY,
    };
    both_ways(&full, &hex("010403000000 01 03626f62 01 02"));
    let none = UpdateUser {
        username: None,
        status: None,
        ..full
    };
    both_ways(&none, &hex("010403000000 00 00"));
    assert_eq!(
        UpdateUser::decode(&hex("010403000000 02 03")),
        Ok(none),
        "only 1 is set"
    );
}

#[test]
fn cluster_metadata_of_chapter_07() {
    let single = support::runs07(
        "0b00000073696e676c652d6e6f64650100000009000000696767792d6e6f6465090000003132372e302e302e
         319a1f901fb80b9c1f0000",
    );
    assert_eq!(single.len(), 55);
    let node = NodeRecord {
        name: Text32("iggy-node"),
        ip: Text32("127.0.0.1"),
        tcp: 8090,
        quic: 8080,
        http: 3000,
        websocket: 8092,
        role: NodeRole::Primary,
        status: NodeStatus::Healthy,
    };
    let metadata = ClusterMetadata {
        name: Text32("single-node"),
        nodes: Counted(vec![node]),
    };
    both_ways(&metadata, &single);
    let attach = AttachConsumerSession {
        client: CLIENT,
        session: 7,
        metadata_watermark: 9,
    };
    let routing = Routing { attach, node };
    let bytes = routing.encode();
    assert_eq!(bytes.len(), 32 + 4 + 9 + 4 + 9 + 10);
    both_ways(&routing, &bytes);
    let mut unknown = single.clone();
    *unknown.last_mut().expect("bytes") = 5;
    assert!(
        ClusterMetadata::decode(&unknown).is_err(),
        "status 5 is not decodable"
    );
}

#[test]
fn store_offset_of_chapter_07() {
    let store = StoreConsumerOffset {
        consumer: Consumer {
            kind: ConsumerKind::Consumer,
            id: Identifier::Numeric(1),
        },
        stream: named("orders"),
        topic: named("events"),
        partition: OptionalPartition(Some(0)),
        offset: 1,
        ack: AckLevel::Quorum,
    };
    both_ways(
        &store,
        &hex("0101040100000002066f726465727302066576656e74730100000000010000000000000001"),
    );
    let poll = PollMessages {
        consumer: store.consumer,
        stream: store.stream,
        topic: store.topic,
        partition: store.partition,
        strategy: PollingStrategy {
            kind: PollingKind::Offset,
            value: 0,
        },
        count: 2,
        auto_commit: false,
    };
    both_ways(
        &poll,
        &hex(
            "0101040100000002066f726465727302066576656e7473010000000001000000000000000002000000
            00",
        ),
    );
    assert_eq!(xxh3_hex(""), checksum::XXH3_EMPTY);
}

#[test]
fn replies_that_may_be_empty() {
    assert_eq!(optional::<SyncReply>(&[]), Ok(None));
    let sync = SyncReply {
        generation: 2,
        partitions: vec![0, 1],
    };
    let bytes = hex("0200000000000000 02000000 00000000 01000000");
    assert_eq!(optional(&bytes), Ok(Some(sync.clone())));
    both_ways(&sync, &bytes);
    assert_eq!(
        SendConfirmations::decode(&[]),
        Ok(SendConfirmations::default())
    );
    let none = SendConfirmations::decode(&hex("00000000"));
    assert_eq!(none, Ok(SendConfirmations::default()));
    let one = SendConfirmation {
        stream: 5,
        topic: 2,
        partition: 7,
        base_offset: 100,
    };
    let bytes = hex("01000000 05000000 02000000 07000000 6400000000000000");
    both_ways(&SendConfirmations(vec![one]), &bytes);
    let trailing = [bytes.as_slice(), &[0]].concat();
    assert!(
        SendConfirmations::decode(&trailing).is_err(),
        "trailing bytes are an error"
    );
    assert!(SendConfirmations::decode(&hex("ffffffff")).is_err());
    assert_eq!(
        PolledMessages::head(PolledMessages::RESYNC, 0, 0)[..4],
        [0xff; 4]
    );
}

#[test]
fn snapshot_requests() {
    use SnapshotType::{All, ServerLogs, Test};
    let types = [Test as u8, ServerLogs as u8];
    let request = GetSnapshot::new(SnapshotCompression::Zstd, &types).expect("valid");
    both_ways(&request, &hex("04020405"));
    assert_eq!(request.types().collect::<Vec<_>>(), [Test, ServerLogs]);
    let with_all = [All as u8, Test as u8];
    assert!(GetSnapshot::new(SnapshotCompression::Stored, &with_all).is_err());
    assert!(GetSnapshot::decode(&hex("010107")).is_err());
    assert!(GetSnapshot::decode(&hex("070101")).is_err());
    assert!(GetSnapshot::decode(&hex("010201")).is_err());
    for (byte, valid) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
        assert_eq!(DescribeOptions::decode(&[byte]).is_ok(), valid);
    }
}
