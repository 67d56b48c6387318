//! Request and reply pairs between an official client and a running peer: every body decodes
//! and encodes back to the same bytes.

mod support;

use biplane_wire::request::ClientRequest;
use biplane_wire::response::*;
use biplane_wire::*;
use support::{Exchange, captured_exchanges};

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
    let framed = answer.operation().is_result_framed(body.len());
    match ClientReply::decode(request.code(), answer, body).expect("a captured reply decodes") {
        ClientReply::Success(response) => {
            let payload = if framed { &body[4..] } else { body };
            assert_eq!(response.encode(), payload, "{}", exchange.name);
        }
        ClientReply::Rejected(code) => {
            assert_eq!(result::rejection(code), body, "{}", exchange.name);
            assert!(ErrorCode::from_u32(code).is_some(), "{code}");
        }
        ClientReply::Refused(status) => panic!("{}: {status}", exchange.name),
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
        assert_eq!(request.encode(), typed.body(), "{}", exchange.name);
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
