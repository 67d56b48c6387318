//! Exchanges between an official client and a running peer, replayed into our state machine.
//!
//! The capture is of a build before the release, whose catalogue of topic options differs in
//! one key; where a reply contains options, everything else is compared. Counters of messages
//! belong to the answering node and are taken from the reply.

mod support;

use biplane_metadata_plane::preflight::{self, Caller, GroupNumbers, Needs, Supplied};
use biplane_metadata_plane::state::reads::{Counters, NoStatistics, Statistics};
use biplane_metadata_plane::state::{MetadataState, Prepared};
use biplane_wire::request::{ConsumerGroupRequest, StreamRequest, TopicRequest, UserRequest};
use biplane_wire::response::{TopicDetails, TopicRecord};
use biplane_wire::{
    ClientCode, Codec, Counted, GroupId, Operation, ReplyHeader, RequestHeader, View, result,
};
use support::{fresh, hex};

/// One exchange: request and reply as headers and bodies.
struct Exchange {
    request: RequestHeader,
    request_body: Vec<u8>,
    reply: ReplyHeader,
    reply_body: Vec<u8>,
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let start = line
        .find(&format!("\"{name}\": \""))
        .expect("the field is there");
    let value = &line[start + name.len() + 5..];
    &value[..value.find('"').expect("the value ends")]
}

fn exchanges() -> Vec<Exchange> {
    use biplane_wire::Header;
    include_str!("golden/client-exchanges.jsonl")
        .lines()
        .filter(|line| field(line, "reply") == "Reply")
        .map(|line| {
            let (request, reply) = (
                hex(field(line, "request_hex")),
                hex(field(line, "reply_hex")),
            );
            Exchange {
                request: *RequestHeader::over(request[..256].try_into().expect("a header")),
                request_body: request[256..].to_vec(),
                reply: *ReplyHeader::over(reply[..256].try_into().expect("a header")),
                reply_body: reply[256..].to_vec(),
            }
        })
        .collect()
}

/// Runs an operation through preflight, preparation and apply; gives operation and reply body.
fn run(
    state: &mut MetadataState,
    numbers: &mut GroupNumbers,
    exchange: &Exchange,
) -> (Operation, Vec<u8>) {
    let operation = exchange.request.operation();
    let body = &exchange.request_body;
    let client = exchange.request.client();
    let caller = Caller {
        user_id: Some(0),
        client,
        tokens_max: 100,
    };
    let hash = "a".repeat(64);
    let supplied = match preflight::needs(state, &caller, operation, body).expect("accepted") {
        Needs::Nothing => Supplied::Nothing,
        Needs::PasswordHash { .. } => Supplied::PasswordHash("hash"),
        Needs::PasswordChange { .. } => Supplied::PasswordChange(Some("hash")),
        Needs::TokenHash => Supplied::TokenHash(&hash),
        Needs::InFlight { .. } => Supplied::InFlight(&[]),
    };
    let submitted = preflight::rewrite(state, &caller, operation, body, supplied)
        .unwrap_or_else(|refusal| panic!("{operation}: {refusal:?}"));
    let (operation, prepared) =
        preflight::prepare_body(operation, &submitted, View(0), numbers).expect("prepared");
    let timestamp = exchange.reply.timestamp();
    let applied = state
        .apply(&Prepared {
            operation,
            client,
            user_id: 0,
            timestamp,
            body: &prepared,
        })
        .expect("decodes");
    state.check_invariants();
    let reply = match applied.rejection {
        Some(code) => result::rejection(code.as_u32()).to_vec(),
        None => result::success(&applied.payload),
    };
    (operation, reply)
}

fn without_options<'a>(topic: &TopicRecord<'a>) -> TopicRecord<'a> {
    TopicRecord {
        explicit_options: Default::default(),
        derived_options: Default::default(),
        ..*topic
    }
}

fn same_topic(ours: &TopicRecord<'_>, theirs: &TopicRecord<'_>) {
    assert_eq!(without_options(ours), without_options(theirs));
}

/// Counters as the reply to a topic read has them.
struct Captured<'a>(&'a TopicDetails<'a>);

impl Statistics for Captured<'_> {
    fn partition(&self, group: GroupId) -> Counters {
        let id = group.unpack().expect("a partition").partition;
        let found = self
            .0
            .partitions
            .iter()
            .find(|partition| partition.id == id);
        let partition = found.expect("the peer has it too");
        Counters {
            size_bytes: partition.size,
            messages: partition.messages_count,
            segments: partition.segments_count,
            current_offset: partition.current_offset,
        }
    }
}

fn check_read(state: &MetadataState, exchange: &Exchange) -> bool {
    let (body, theirs) = (&exchange.request_body[..], &exchange.reply_body);
    let stats = &NoStatistics;
    let ours = match ClientCode::from_u32(exchange.request.code()) {
        Some(ClientCode::GetStreams) => state.read_streams(0, stats),
        Some(ClientCode::GetStream) => {
            let request = StreamRequest::decode(body).expect("decodes");
            state.read_stream(0, &request.stream, stats)
        }
        Some(ClientCode::GetConsumerGroup) => {
            state.read_group(0, &ConsumerGroupRequest::decode(body).expect("decodes"))
        }
        Some(ClientCode::GetConsumerGroups) => {
            state.read_groups(0, &TopicRequest::decode(body).expect("decodes"))
        }
        Some(ClientCode::GetUser) => {
            state.read_user(0, &UserRequest::decode(body).expect("decodes").user)
        }
        Some(ClientCode::GetUsers) => {
            let mut ours = state.read_users(0).expect("allowed");
            // Root came to be at different times.
            let theirs = exchange.reply_body[4..12].to_vec();
            ours[4..12].copy_from_slice(&theirs);
            Ok(ours)
        }
        Some(ClientCode::GetPersonalAccessTokens) => Ok(state.read_tokens(0)),
        Some(ClientCode::GetTopic) => {
            let theirs = TopicDetails::decode(theirs).expect("decodes");
            let request = TopicRequest::decode(body).expect("decodes");
            let ours = state
                .read_topic_details(0, &request, &Captured(&theirs))
                .expect("allowed");
            let ours = TopicDetails::decode_exact(&ours).expect("decodes");
            same_topic(&ours.topic, &theirs.topic);
            assert_eq!(ours.partitions, theirs.partitions);
            return true;
        }
        Some(ClientCode::GetTopics) => {
            let request = StreamRequest::decode(body).expect("decodes");
            let ours = state
                .read_topics(0, &request.stream, stats)
                .expect("allowed");
            let ours: Counted<TopicRecord<'_>> = Codec::decode_exact(&ours).expect("decodes");
            let theirs: Counted<TopicRecord<'_>> = Codec::decode_exact(theirs).expect("decodes");
            assert_eq!(ours.0.len(), theirs.0.len());
            for (ours, theirs) in ours.0.iter().zip(&theirs.0) {
                same_topic(ours, theirs);
            }
            return true;
        }
        _ => return false,
    };
    assert_eq!(
        &ours.expect("allowed"),
        theirs,
        "read {}",
        exchange.request.code()
    );
    true
}

#[test]
fn replies_of_the_peer_are_reproduced() {
    let mut state = fresh();
    let mut numbers = GroupNumbers::default();
    let (mut operations, mut reads) = (0, 0);
    for exchange in exchanges() {
        let operation = exchange.request.operation();
        if operation == Operation::NonReplicated {
            reads += u32::from(check_read(&state, &exchange));
            continue;
        }
        if !operation.is_metadata() {
            continue;
        }
        let (ours, body) = run(&mut state, &mut numbers, &exchange);
        operations += 1;
        if operation == Operation::CreatePersonalAccessToken {
            assert_eq!((body.len(), exchange.reply_body.len()), (4, 4 + 1 + 68));
            continue;
        }
        assert_eq!(ours, exchange.reply.operation());
        if ours == Operation::CreateTopicWithAssignments && body.len() > 12 {
            let decode = |body| TopicDetails::decode_exact(body).expect("decodes");
            let (ours, theirs) = (decode(&body[4..]), decode(&exchange.reply_body[4..]));
            same_topic(&ours.topic, &theirs.topic);
            assert_eq!(ours.partitions, theirs.partitions);
        } else {
            assert_eq!(body, exchange.reply_body, "{operation}");
        }
    }
    assert_eq!((operations, reads), (20, 12), "the capture was understood");
}
