//! Request and response bodies against the reference implementation of the protocol crate:
//! both accept the same bytes, consume the same length, and encode the same value back.

#[path = "support/generator.rs"]
mod generator;

use biplane_wire::codec::{Codec, Counted, Cursor};
use biplane_wire::{BodyRule, DecodeError, SendMetadata, request as ours, response as our};
use generator::{Generator, rounds};
use iggy_binary_protocol::codec::{WireDecode, WireEncode};
use iggy_binary_protocol::{requests as theirs, responses as their};

/// Length consumed and the value encoded again.
type Outcome<E> = Result<(usize, Vec<u8>), E>;
type Mine = fn(&[u8]) -> Outcome<DecodeError>;
type Reference = fn(&[u8]) -> Outcome<()>;

fn decode_ours<'a, T: Codec<'a>>(bytes: &'a [u8]) -> Outcome<DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let value = T::read(&mut cursor, "body")?;
    Ok((bytes.len() - cursor.remaining(), value.encode()))
}

fn decode_theirs<T: WireDecode + WireEncode>(bytes: &[u8]) -> Outcome<()> {
    let (value, consumed) = T::decode(bytes).map_err(|_| ())?;
    Ok((consumed, value.to_bytes().to_vec()))
}

/// Where our side is stricter on purpose; docs/decisions.md has the reasons. Any other
/// difference fails.
fn is_stricter_on_purpose(error: &DecodeError) -> bool {
    match error {
        DecodeError::Undefined { field, .. } => matches!(
            *field,
            "role" | "status" | "transport" | "scope" | "compression" | "snapshot type"
        ),
        DecodeError::Rule(rule) => *rule == BodyRule::AllTypesAndOthers,
        DecodeError::Utf8 { field } => *field == "description",
        DecodeError::Trailing { field, .. } => *field == "permissions",
        _ => false,
    }
}

/// Compares on bodies of a template, intact and damaged.
fn compare(kind: &str, template: &str, mine: Mine, reference: Reference) {
    let mut random = Generator::new();
    let mut accepted = 0;
    let mut stricter = 0;
    for _ in 0..rounds() {
        let mut bytes = random.body(template);
        let shown = hex::encode(&bytes);
        let expected = reference(&bytes).expect("the template is a valid body");
        assert_eq!(mine(&bytes), Ok(expected), "{kind}: {shown}");

        random.damage(&mut bytes);
        if bytes.is_empty() {
            continue; // What an empty body means is decided before it is decoded.
        }
        let shown = hex::encode(&bytes);
        match (mine(&bytes), reference(&bytes)) {
            (Ok(mine), Ok(reference)) => {
                assert_eq!(mine.0, reference.0, "{kind}: {shown}");
                // We keep a permissions block as it was sent; the reference writes flags anew.
                let kept_as_sent = template.contains(['p', 'u']);
                assert!(kept_as_sent || mine.1 == reference.1, "{kind}: {shown}");
                accepted += 1;
            }
            (Err(_), Err(())) => {}
            (Err(error), Ok(_)) => {
                assert!(is_stricter_on_purpose(&error), "{kind}: {error}: {shown}");
                stricter += 1;
            }
            (Ok(_), Err(())) => panic!("{kind}: only we accept {shown}"),
        }
    }
    assert!(accepted < rounds(), "{kind}: damage is never refused");
    println!(
        "{kind}: {} cases, {stricter} refused by us alone",
        2 * rounds()
    );
}

macro_rules! agree {
    ($($test:ident { $($template:literal $mine:ty = $reference:ty;)* })*) => {$(
        #[test]
        fn $test() {
            $(
                let kind = stringify!($reference);
                let mine = |bytes: &[u8]| decode_ours::<$mine>(bytes);
                compare(kind, $template, mine, decode_theirs::<$reference>);
            )*
        }
    )*};
}

agree! {
    stream_requests {
        "I" ours::StreamRequest<'_> = theirs::streams::GetStreamRequest;
        "I" ours::StreamRequest<'_> = theirs::streams::DeleteStreamRequest;
        "I" ours::StreamRequest<'_> = theirs::streams::PurgeStreamRequest;
        "N O" ours::CreateStream<'_> = theirs::streams::CreateStreamRequest;
        "I N O" ours::UpdateStream<'_> = theirs::streams::UpdateStreamRequest;
    }
    topic_requests {
        "I I" ours::TopicRequest<'_> = theirs::topics::GetTopicRequest;
        "I" ours::StreamRequest<'_> = theirs::topics::GetTopicsRequest;
        "I I" ours::TopicRequest<'_> = theirs::topics::DeleteTopicRequest;
        "I I" ours::TopicRequest<'_> = theirs::topics::PurgeTopicRequest;
        "I 4 N O" ours::CreateTopic<'_> = theirs::topics::CreateTopicRequest;
        "I I N O" ours::UpdateTopic<'_> = theirs::topics::UpdateTopicRequest;
    }
    partition_requests {
        "I I 4" ours::PartitionsRequest<'_> = theirs::partitions::CreatePartitionsRequest;
        "I I 4" ours::PartitionsRequest<'_> = theirs::partitions::DeletePartitionsRequest;
        "I I 4 4" ours::DeleteSegments<'_> = theirs::segments::DeleteSegmentsRequest;
    }
    user_requests {
        "I" ours::UserRequest<'_> = theirs::users::GetUserRequest;
        "I" ours::UserRequest<'_> = theirs::users::DeleteUserRequest;
        "N t 1 p O" ours::CreateUser<'_> = theirs::users::CreateUserRequest;
        "I .1 N .1 1 O" ours::UpdateUser<'_> = theirs::users::UpdateUserRequest;
        "I .0 .1 1 O" ours::UpdateUser<'_> = theirs::users::UpdateUserRequest;
        "I .1 N .0 O" ours::UpdateUser<'_> = theirs::users::UpdateUserRequest;
        "I p" ours::UpdatePermissions<'_> = theirs::users::UpdatePermissionsRequest;
        "I t t" ours::ChangePassword<'_> = theirs::users::ChangePasswordRequest;
    }
    token_requests {
        "N 8" ours::CreatePersonalAccessToken<'_> =
            theirs::personal_access_tokens::CreatePersonalAccessTokenRequest;
        "N" ours::DeletePersonalAccessToken<'_> =
            theirs::personal_access_tokens::DeletePersonalAccessTokenRequest;
    }
    consumer_group_requests {
        "I I N" ours::CreateConsumerGroup<'_> =
            theirs::consumer_groups::CreateConsumerGroupRequest;
        "I I I" ours::ConsumerGroupRequest<'_> =
            theirs::consumer_groups::DeleteConsumerGroupRequest;
        "I I I" ours::ConsumerGroupRequest<'_> = theirs::consumer_groups::GetConsumerGroupRequest;
        "I I" ours::TopicRequest<'_> = theirs::consumer_groups::GetConsumerGroupsRequest;
        "I I I" ours::ConsumerGroupRequest<'_> = theirs::consumer_groups::JoinConsumerGroupRequest;
        "I I I" ours::ConsumerGroupRequest<'_> =
            theirs::consumer_groups::LeaveConsumerGroupRequest;
        "I I I" ours::ConsumerGroupRequest<'_> = theirs::consumer_groups::SyncConsumerGroupRequest;
    }
    message_requests {
        "C I I P S 4 b" ours::PollMessages<'_> = theirs::messages::PollMessagesRequest;
        "C I I P" ours::GetConsumerOffset<'_> =
            theirs::consumer_offsets::GetConsumerOffsetRequest;
        "C I I P 8 A" ours::StoreConsumerOffset<'_> =
            theirs::consumer_offsets::StoreConsumerOffsetRequest;
        "C I I P A" ours::DeleteConsumerOffset<'_> =
            theirs::consumer_offsets::DeleteConsumerOffsetRequest;
        "I I 4 b" ours::FlushUnsavedBuffer<'_> = theirs::messages::FlushUnsavedBufferRequest;
        "I I R 4" SendMetadata<'_> = theirs::messages::SendMessagesHeader;
    }
    system_requests {
        ".3 .2 .1 .5" ours::GetSnapshot<'_> = theirs::system::GetSnapshotRequest;
        ".2" ours::DescribeOptions = theirs::system::DescribeOptionsRequest;
        "16 8 8" ours::AttachConsumerSession = theirs::system::AttachConsumerSessionRequest;
        "4" ours::GetClient = theirs::system::GetClientRequest;
    }
    user_responses {
        "4 8 1 N o" our::UserRecord<'_> = their::users::user_response::UserResponse;
        "4 8 1 N o u" our::UserDetails<'_> = their::users::UserDetailsResponse;
        "4 8 1 N o 4 8 1 N o" Vec<our::UserRecord<'_>> = their::users::GetUsersResponse;
        "4 8 4 N" our::LoginReply<'_> = their::users::LoginRegisterResponse;
        "N" our::RawPersonalAccessToken<'_> =
            their::personal_access_tokens::RawPersonalAccessTokenResponse;
        "N 8 N 8" Vec<our::PersonalAccessTokenRecord<'_>> =
            their::personal_access_tokens::GetPersonalAccessTokensResponse;
    }
    stream_and_topic_responses {
        "4 8 4 8 8 N o" our::StreamRecord<'_> = their::streams::StreamResponse;
        "4 8 4 8 8 N o 4 8 4 8 8 N o" Vec<our::StreamRecord<'_>> =
            their::streams::GetStreamsResponse;
        "4 8 =2 8 8 N o 4 8 4 8 .1 8 8 8 N o o 4 8 4 8 .2 8 8 8 N o o" our::StreamDetails<'_> =
            their::streams::GetStreamResponse;
        "4 8 =2 8 .1 8 8 8 N o o 4 8 4 8 8 8 4 8 4 8 8 8" our::TopicDetails<'_> =
            their::topics::GetTopicResponse;
        "=2 4 8 4 8 .1 8 8 8 N o o 4 8 4 8 .2 8 8 8 N o o" Counted<our::TopicRecord<'_>> =
            their::topics::GetTopicsResponse;
    }
    consumer_group_responses {
        "4 4 4 N" our::ConsumerGroupRecord<'_> =
            their::consumer_groups::ConsumerGroupResponse;
        "4 4 4 N 4 4 4 N" Vec<our::ConsumerGroupRecord<'_>> =
            their::consumer_groups::GetConsumerGroupsResponse;
        "4 4 =2 N 4 =1 4 4 =3 4 4 4" our::ConsumerGroupDetails<'_> =
            their::consumer_groups::ConsumerGroupDetailsResponse;
        "8 =2 4 4" our::SyncReply = their::consumer_groups::SyncConsumerGroupResponse;
    }
    message_responses {
        "=2 4 4 4 8 4 4 4 8" our::SendConfirmations = their::messages::SendMessagesResponse;
        "4 8 8" our::ConsumerOffset = their::consumer_offsets::ConsumerOffsetResponse;
        "16 8 8 T T 2 2 2 2 .1 .0" our::Routing<'_> = their::messages::PollRoutingResponse;
    }
    system_responses {
        "T =2 T T 2 2 2 2 .0 .0 T T 2 2 2 2 .1 .3" our::ClusterMetadata<'_> =
            their::system::ClusterMetadataResponse;
        "4 4 .1 T 4" our::ClientRecord<'_> = their::clients::ClientResponse;
        "4 4 .4 T =2 4 4 4 4 4 4" our::ClientDetails<'_> =
            their::clients::ClientDetailsResponse;
        "4 4 .2 T 4 4 4 .3 T 4" Vec<our::ClientRecord<'_>> =
            their::clients::GetClientsResponse;
        "=2 N .2 B T N .12 B T" Counted<our::OptionSpec<'_>> =
            their::system::DescribeOptionsResponse;
        "4 f f 8 8 8 8 8 8 8 8 4 4 4 4 8 4 4 T T T T T 4 =1 4 4 4 8 8 f 4 8 8" our::Stats<'_> =
            their::system::StatsResponse;
    }
}

/// The prepared forms with assignments: nested lengths and the optional view at the end.
#[test]
fn assignment_bodies() {
    let mut random = Generator::new();
    let prefixed = |bytes: Vec<u8>| [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat();
    for round in 0..rounds() {
        let tail = random.body("=2 4 8 4 8 4");
        let topic = prefixed(random.body("I 4 N O"));
        let mut topic = [topic, random.body("o"), tail.clone()].concat();
        let partitions = prefixed(random.body("I I 4"));
        let mut partitions = [partitions, tail].concat();
        if round % 2 == 1 {
            random.damage(&mut topic);
            // The reference allocates for whatever count it reads, so the count stays.
            partitions.truncate(random.below(partitions.len() + 1));
        }
        let mine = decode_ours::<ours::CreateTopicWithAssignments<'_>>(&topic);
        type TheirTopic = theirs::topics::CreateTopicWithAssignmentsRequest;
        let reference = decode_theirs::<TheirTopic>(&topic);
        assert_eq!(
            mine.map(|o| o.0).ok(),
            reference.map(|o| o.0).ok(),
            "{}",
            hex::encode(&topic)
        );
        let mine = decode_ours::<ours::CreatePartitionsWithAssignments<'_>>(&partitions);
        type TheirPartitions = theirs::partitions::CreatePartitionsWithAssignmentsRequest;
        let reference = decode_theirs::<TheirPartitions>(&partitions);
        assert_eq!(
            mine.map(|o| o.0).ok(),
            reference.map(|o| o.0).ok(),
            "{}",
            hex::encode(&partitions)
        );
    }
}

/// Both login shapes behind the version prefix.
#[test]
fn logins() {
    let mut random = Generator::new();
    for round in 0..rounds() {
        for template in ["4 N N N t T", "4 N N t T"] {
            let mut bytes = random.body(template);
            if round % 2 == 1 {
                random.damage(&mut bytes);
            }
            let login = ours::Login::decode(&bytes).ok();
            let password = login.is_some_and(|login| login.password().is_ok());
            let reference = theirs::users::LoginRegisterRequest::decode(&bytes).is_ok();
            assert_eq!(password, reference, "{}", hex::encode(&bytes));
            let token = login.is_some_and(|login| login.token().is_ok());
            let reference = theirs::users::LoginRegisterWithPatRequest::decode(&bytes).is_ok();
            assert_eq!(token, reference, "{}", hex::encode(&bytes));
        }
    }
}
