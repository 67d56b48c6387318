//! Reads of the applied state: who may see what, and what is reported as absent.

mod support;

use biplane_metadata_plane::state::MetadataState;
use biplane_metadata_plane::state::permissions::Action;
use biplane_metadata_plane::state::reads::{Counters, NoStatistics, Statistics};
use biplane_wire::request::{ConsumerGroupRequest, TopicRequest};
use biplane_wire::response::{OptionSpec, StreamDetails, StreamRecord, TopicDetails, UserDetails};
use biplane_wire::{Codec, Counted, ErrorCode, GroupId, Identifier, Operation, TopicFlags};
use support::bodies::{
    create_group, create_token, create_user, global_permissions, id, name, plain_topic,
    update_permissions,
};
use support::{code, fresh};

use Operation as Op;

const ROOT: u32 = 0;
const ALICE: u32 = 1;
const NOBODY: u32 = 77;

fn furnished() -> MetadataState {
    let mut state = fresh();
    for (operation, body) in [
        (Op::CreateStream, name("a")),
        (Op::CreateTopicWithAssignments, plain_topic(0, "t", 2)),
        (Op::CreateTopicWithAssignments, plain_topic(0, "u", 1)),
        (Op::CreateConsumerGroup, create_group(0, 0, "g")),
        (Op::CreateUser, create_user("alice", "hash", 1, None)),
        (
            Op::CreatePersonalAccessToken,
            create_token(ALICE, "b", 0, 'b'),
        ),
        (
            Op::CreatePersonalAccessToken,
            create_token(ALICE, "a", 5, 'a'),
        ),
    ] {
        assert_eq!(code(&mut state, operation, &body), 0, "{operation}");
    }
    state
}

fn grant(state: &mut MetadataState, block: &[u8]) {
    let body = update_permissions(&id(ALICE), Some(block));
    assert_eq!(code(state, Op::UpdatePermissions, &body), 0);
}

const STREAM: Identifier<'static> = Identifier::Numeric(0);
const TOPIC: TopicRequest<'static> = TopicRequest {
    stream: STREAM,
    topic: Identifier::Numeric(0),
};
const GROUP: ConsumerGroupRequest<'static> = ConsumerGroupRequest {
    stream: STREAM,
    topic: Identifier::Numeric(0),
    group: Identifier::Numeric(0),
};

#[test]
fn user_without_permissions_sees_only_itself() {
    let state = furnished();
    let denied = ErrorCode::Unauthorized;
    for user in [ALICE, NOBODY] {
        assert_eq!(state.read_streams(user, &NoStatistics), Err(denied));
        assert_eq!(state.read_stream(user, &STREAM, &NoStatistics), Err(denied));
        assert_eq!(state.read_topics(user, &STREAM, &NoStatistics), Err(denied));
        assert_eq!(
            state.read_topic_details(user, &TOPIC, &NoStatistics),
            Err(denied)
        );
        assert_eq!(state.read_groups(user, &TOPIC), Err(denied));
        assert_eq!(state.read_group(user, &GROUP), Err(denied));
        assert_eq!(state.read_users(user), Err(denied));
        assert_eq!(
            state.read_user(user, &Identifier::Numeric(ROOT)),
            Err(denied)
        );
    }
    let own = state
        .read_user(ALICE, &Identifier::Numeric(ALICE))
        .expect("oneself");
    assert_eq!(
        UserDetails::decode_exact(&own)
            .expect("decodes")
            .user
            .username
            .as_str(),
        "alice"
    );
}

#[test]
fn what_is_missing_is_absent_for_everybody() {
    let state = furnished();
    let gone = Identifier::Numeric(9);
    for user in [ROOT, ALICE] {
        assert_eq!(state.read_stream(user, &gone, &NoStatistics), Ok(vec![]));
        assert_eq!(
            state.read_topics(user, &gone, &NoStatistics),
            Ok(vec![0; 4])
        );
        let topic = TopicRequest {
            topic: gone,
            ..TOPIC
        };
        assert_eq!(
            state.read_topic_details(user, &topic, &NoStatistics),
            Ok(vec![])
        );
        assert_eq!(
            state.read_groups(user, &topic),
            Err(ErrorCode::TopicIdNotFound)
        );
        let stream = TopicRequest {
            stream: gone,
            ..TOPIC
        };
        assert_eq!(
            state.read_groups(user, &stream),
            Err(ErrorCode::StreamIdNotFound)
        );
        let group = ConsumerGroupRequest {
            topic: gone,
            ..GROUP
        };
        assert_eq!(
            state.read_group(user, &group),
            Err(ErrorCode::TopicIdNotFound)
        );
        assert_eq!(state.read_user(user, &gone), Ok(vec![]));
    }
    let group = ConsumerGroupRequest {
        group: gone,
        ..GROUP
    };
    assert_eq!(state.read_group(ROOT, &group), Ok(vec![]));
    assert_eq!(
        state.read_group(ALICE, &group),
        Err(ErrorCode::Unauthorized)
    );
}

#[test]
fn permission_on_one_topic_opens_that_topic() {
    let mut state = furnished();
    let mut block = global_permissions(&[]);
    block.pop();
    // Stream 0 without flags; topic 1 may be read.
    block.extend([
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0,
    ]);
    grant(&mut state, &block);
    let other = TopicRequest {
        topic: Identifier::Numeric(1),
        ..TOPIC
    };
    assert!(
        state
            .read_topic_details(ALICE, &other, &NoStatistics)
            .is_ok()
    );
    assert!(
        state
            .read_topic_details(ALICE, &TOPIC, &NoStatistics)
            .is_err()
    );
    assert!(
        state.read_topics(ALICE, &STREAM, &NoStatistics).is_err(),
        "the list is the stream's"
    );
    assert!(state.is_allowed(ALICE, Action::Poll(0, 1)));
    assert!(!state.is_allowed(ALICE, Action::Send(0, 1)));
    let flags = TopicFlags {
        manage_topic: true,
        ..Default::default()
    };
    assert!(flags.manage_topic);
    let granted = state.users().permissions(ALICE).expect("granted");
    assert!(granted.streams[&0].topics[&1].read_topic);
}

/// Ten bytes and one message for each partition.
struct Flat;

impl Statistics for Flat {
    fn partition(&self, _group: GroupId) -> Counters {
        Counters {
            size_bytes: 10,
            messages: 1,
            segments: 1,
            current_offset: 0,
        }
    }
}

#[test]
fn counters_add_up() {
    let state = furnished();
    let stream = state.read_stream(ROOT, &STREAM, &Flat).expect("allowed");
    let details = StreamDetails::decode_exact(&stream).expect("decodes");
    assert_eq!(
        (details.stream.size, details.stream.messages_count),
        (30, 3)
    );
    let sizes: Vec<u64> = details.topics.iter().map(|topic| topic.size).collect();
    assert_eq!(sizes, [20, 10]);
    let streams = state.read_streams(ROOT, &Flat).expect("allowed");
    let list: Vec<StreamRecord<'_>> = Codec::decode_exact(&streams).expect("decodes");
    assert_eq!(list, [details.stream]);
    let topic = state
        .read_topic_details(ROOT, &TOPIC, &Flat)
        .expect("allowed");
    let topic = TopicDetails::decode_exact(&topic).expect("decodes");
    assert_eq!(topic.topic, details.topics[0]);
    assert_eq!(topic.partitions[1].segments_count, 1);
}

#[test]
fn tokens_are_listed_by_name_with_zero_for_never() {
    let state = furnished();
    let expected = [
        name("a"),
        (support::TS + 5).to_le_bytes().to_vec(),
        name("b"),
        vec![0; 8],
    ];
    assert_eq!(state.read_tokens(ALICE), expected.concat());
    assert!(state.read_tokens(ROOT).is_empty());
}

#[test]
fn catalogue_of_topic_options_is_described() {
    let state = fresh();
    let body = state.describe_options(&[1]).expect("decodes");
    let specs: Counted<OptionSpec<'_>> = Codec::decode_exact(&body).expect("decodes");
    let keys: Vec<&str> = specs.0.iter().map(|spec| spec.key.as_str()).collect();
    let expected = [
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
        "segment_size",
        "durability",
        "consumer_offset_durability",
        "messages_required_to_save",
        "size_of_messages_required_to_save",
        "preallocate_segments",
    ];
    assert_eq!(keys, expected);
    assert_eq!(
        (specs.0[6].kind, specs.0[6].default.0),
        (11, &1_024_u32.to_le_bytes()[..])
    );
    for scope in [2, 3] {
        assert_eq!(state.describe_options(&[scope]), Ok(vec![0; 4]));
    }
    for body in [&[][..], &[0], &[4]] {
        assert_eq!(state.describe_options(body), Err(ErrorCode::InvalidCommand));
    }
}
