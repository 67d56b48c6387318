//! Request and reply pairs between an official client and a running peer: every body decodes
//! and encodes back to the same bytes.

mod support;

use biplane_wire::request::*;
use biplane_wire::response::*;
use biplane_wire::*;
use support::{Exchange, captured_exchanges};

/// The bytes the decoded request encodes to.
fn encode_request(request: &ClientRequest<'_>) -> Vec<u8> {
    use ClientRequest as R;
    match request {
        R::DescribeOptions(body) => body.encode(),
        R::GetUser(body) | R::DeleteUser(body) => body.encode(),
        R::CreateUser(body) => body.encode(),
        R::UpdateUser(body) => body.encode(),
        R::UpdatePermissions(body) => body.encode(),
        R::ChangePassword(body) => body.encode(),
        R::Login(login) => {
            let rest = login.password().expect("captured with a password").encode();
            [login.version.encode(), rest].concat()
        }
        R::CreatePersonalAccessToken(body) => body.encode(),
        R::DeletePersonalAccessToken(body) => body.encode(),
        R::PollMessages(body) => body.encode(),
        R::SendMessages(send) => SendMessages::encode(&send.metadata, send.batch.bytes()),
        R::GetConsumerOffset(body) => body.encode(),
        R::StoreConsumerOffset(body) => body.encode(),
        R::GetStream(body) | R::DeleteStream(body) => body.encode(),
        R::PurgeStream(body) | R::GetTopics(body) => body.encode(),
        R::CreateStream(body) => body.encode(),
        R::UpdateStream(body) => body.encode(),
        R::GetTopic(body) | R::DeleteTopic(body) => body.encode(),
        R::PurgeTopic(body) | R::GetConsumerGroups(body) => body.encode(),
        R::CreateTopic(body) => body.encode(),
        R::UpdateTopic(body) => body.encode(),
        R::CreatePartitions(body) | R::DeletePartitions(body) => body.encode(),
        R::GetConsumerGroup(body) | R::DeleteConsumerGroup(body) => body.encode(),
        R::CreateConsumerGroup(body) => body.encode(),
        R::Ping | R::GetStats | R::GetClusterMetadata | R::GetMe | R::GetClients => Vec::new(),
        R::GetUsers | R::GetStreams | R::GetPersonalAccessTokens | R::Logout => Vec::new(),
        other => panic!("not captured: {other:?}"),
    }
}

fn again<'a, T: Codec<'a>>(payload: &'a [u8]) -> Vec<u8> {
    T::decode_exact(payload)
        .expect("a captured body decodes")
        .encode()
}

fn again_or_empty<'a, T: Codec<'a>>(payload: &'a [u8]) -> Vec<u8> {
    let decoded = optional::<T>(payload).expect("a captured body decodes");
    decoded.map(|value| value.encode()).unwrap_or_default()
}

/// The bytes the decoded success payload encodes to.
fn encode_payload(request: &ClientRequest<'_>, payload: &[u8]) -> Vec<u8> {
    use ClientRequest as R;
    match request {
        R::GetStats => again::<Stats<'_>>(payload),
        R::GetClusterMetadata => again::<ClusterMetadata<'_>>(payload),
        R::DescribeOptions(_) => again::<Counted<OptionSpec<'_>>>(payload),
        R::GetMe => again::<ClientDetails<'_>>(payload),
        R::GetClients => again::<Vec<ClientRecord<'_>>>(payload),
        R::GetUser(_) | R::CreateUser(_) => again_or_empty::<UserDetails<'_>>(payload),
        R::GetUsers => again::<Vec<UserRecord<'_>>>(payload),
        R::Login(_) => again::<LoginReply<'_>>(payload),
        R::GetPersonalAccessTokens => again::<Vec<PersonalAccessTokenRecord<'_>>>(payload),
        R::CreatePersonalAccessToken(_) => again::<RawPersonalAccessToken<'_>>(payload),
        R::PollMessages(_) => again::<PolledMessages<'_>>(payload),
        R::SendMessages(_) => again::<SendConfirmations>(payload),
        R::GetConsumerOffset(_) => again_or_empty::<ConsumerOffset>(payload),
        R::GetStream(_) | R::CreateStream(_) => again_or_empty::<StreamDetails<'_>>(payload),
        R::GetStreams => again::<Vec<StreamRecord<'_>>>(payload),
        R::GetTopic(_) | R::CreateTopic(_) => again_or_empty::<TopicDetails<'_>>(payload),
        R::GetTopics(_) => again::<Counted<TopicRecord<'_>>>(payload),
        R::GetConsumerGroup(_) | R::CreateConsumerGroup(_) => {
            again_or_empty::<ConsumerGroupDetails<'_>>(payload)
        }
        R::GetConsumerGroups(_) => again::<Vec<ConsumerGroupRecord<'_>>>(payload),
        _ => {
            assert!(payload.is_empty(), "{request:?} has no payload");
            Vec::new()
        }
    }
}

fn check_reply(exchange: &Exchange, request: &ClientRequest<'_>, header: &RequestHeader) {
    if exchange.reply.command() == Command::Eviction {
        let eviction = Typed::<EvictionHeader>::decode(exchange.reply.clone()).expect("valid");
        assert_eq!(
            eviction.header().reason(),
            EvictionReason::InvalidCredentials
        );
        return;
    }
    let reply = Typed::<ReplyHeader>::decode(exchange.reply.clone()).expect("valid");
    let answer = reply.header();
    assert_eq!(answer.request(), header.request(), "{}", exchange.name);
    assert_eq!(
        answer.request_checksum(),
        header.request_checksum(),
        "{}",
        exchange.name
    );
    assert_eq!(
        answer.operation(),
        header.operation().replicated_as(),
        "{}",
        exchange.name
    );
    assert_eq!(answer.status(), 0);
    let body = reply.body();
    if !answer.operation().is_result_framed(body.len()) {
        assert_eq!(encode_payload(request, body), body, "{}", exchange.name);
        return;
    }
    match ResultSection::decode(body).expect("a result section") {
        ResultSection::Success(payload) => {
            assert_eq!(
                encode_payload(request, payload),
                payload,
                "{}",
                exchange.name
            );
        }
        ResultSection::Rejection(code) => {
            assert_eq!(result::rejection(code), body, "{}", exchange.name);
            assert!(ErrorCode::from_u32(code).is_some(), "{code}");
        }
    }
}

#[test]
fn every_captured_exchange_is_rebuilt() {
    for exchange in captured_exchanges() {
        let typed = decode_client(exchange.request.clone()).expect("a valid request");
        let header = typed.header();
        let stamp = header.request_checksum();
        assert!(
            stamp.is_zero() || stamp == body_seal(typed.body()),
            "{}",
            exchange.name
        );
        let request = ClientRequest::of(header, typed.body()).unwrap_or_else(|error| {
            panic!("{}: {error}", exchange.name);
        });
        assert_eq!(encode_request(&request), typed.body(), "{}", exchange.name);
        check_reply(&exchange, &request, header);

        let mut built = RequestHeader::new(Command::Request);
        built.set_client(header.client());
        built.set_request_checksum(header.request_checksum());
        built.set_request(header.request());
        built.set_operation(header.operation());
        built.set_session(header.session());
        built.set_code(header.code());
        let built = Message::from_parts(built, typed.body());
        assert_eq!(built, exchange.request, "{}", exchange.name);
    }
}

#[test]
fn captured_polls_hold_what_was_sent() {
    let mut sent = Vec::new();
    let mut polled = Vec::new();
    for exchange in captured_exchanges() {
        let typed = decode_client(exchange.request.clone()).expect("a valid request");
        match ClientRequest::of(typed.header(), typed.body()).expect("decodes") {
            ClientRequest::SendMessages(send) => {
                sent.extend(send.batch.frames().map(|frame| frame.payload.to_vec()));
            }
            ClientRequest::PollMessages(_) => {
                let reply = PolledMessages::decode(exchange.reply.body()).expect("decodes");
                let mut count = 0;
                for batch in reply.batches(Verify::Checksums) {
                    let batch = batch.expect("checksums of polled records hold");
                    count += batch.message_count();
                    polled.extend(batch.frames().map(|frame| frame.payload.to_vec()));
                }
                assert_eq!(count, reply.messages_count);
            }
            _ => {}
        }
    }
    assert_eq!(sent, [b"aaa", b"bbb", b"ccc"]);
    assert_eq!(
        polled,
        [b"aaa", b"bbb", b"aaa"],
        "a whole batch, then a slice of it"
    );
}
