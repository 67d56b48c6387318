//! Reply frames: the committed one, the refusal, and the splice of a new access token.
//!
//! A committed reply is a pure function of the prepare and of what applying it came to, so that
//! all replicas cache the same bytes. A refusal echoes the request (protocol specification,
//! chapter 01, section 14 and chapter 05, section 3.4).

use biplane_wire::response::RawPersonalAccessToken;
use biplane_wire::{
    Codec, Command, ErrorCode, Message, Op, Operation, PrepareHeader, ReplyHeader,
    RoutedRequestHeader, Text8, result,
};

use crate::state::Applied;

/// The reply to a committed prepare.
pub fn committed(prepare: &PrepareHeader, applied: &Applied) -> Message {
    let mut header = ReplyHeader::new(Command::Reply);
    header.frame.set_cluster(prepare.frame.cluster());
    header.frame.set_view(prepare.frame.view());
    header.frame.set_release(prepare.frame.release());
    header.frame.set_replica(prepare.frame.replica());
    header.set_request_checksum(prepare.request_checksum());
    header.set_client(prepare.client());
    header.set_op(prepare.op());
    header.set_commit(prepare.op());
    header.set_timestamp(prepare.timestamp());
    header.set_request(prepare.request());
    header.set_operation(prepare.operation());
    match (prepare.operation(), applied.rejection) {
        (Operation::Register | Operation::Logout, _) => Message::from_parts(header, &[]),
        (_, Some(code)) => Message::from_parts(header, &result::rejection(code.as_u32())),
        (_, None) => Message::from_parts(header, &result::success(&applied.payload)),
    }
}

/// The answer to a request on whose behalf nothing was committed: a rejection in a result
/// section. `commit` is the applied op of this replica.
pub fn refusal(request: &RoutedRequestHeader, code: ErrorCode, commit: Op) -> Message {
    let mut header = ReplyHeader::new(Command::Reply);
    header.frame.set_cluster(request.frame.cluster());
    header.frame.set_view(request.frame.view());
    header.frame.set_release(request.frame.release());
    header.frame.set_replica(request.frame.replica());
    header.set_request_checksum(request.request_checksum());
    header.set_client(request.client());
    header.set_op(commit);
    header.set_commit(commit);
    header.set_timestamp(request.timestamp());
    header.set_request(request.request());
    header.set_operation(request.operation());
    Message::from_parts(header, &result::rejection(code.as_u32()))
}

/// The result code of a committed reply; 0 where the reply has no result section.
pub fn code_of(reply: &Message) -> u32 {
    let header = reply.header::<ReplyHeader>();
    if !header.operation().is_result_framed(reply.body().len()) {
        return 0;
    }
    match result::ResultSection::decode(reply.body()) {
        Ok(result::ResultSection::Rejection(code)) => code,
        Ok(result::ResultSection::Success(_)) | Err(_) => 0,
    }
}

/// The reply to a successful creation of an access token, with the token in it.
///
/// The token is known to the node that minted it alone; what was committed and cached is its
/// hash. Other fields of the reply stay.
///
/// # Panics
///
/// Where the token is longer than 255 bytes: servers mint tokens of 68.
pub fn splice_token(reply: &Message, token: &str) -> Message {
    let token = Text8::new(token).expect("a minted token is a short text");
    let payload = RawPersonalAccessToken { token }.encode();
    Message::from_parts(*reply.header::<ReplyHeader>(), &result::success(&payload))
}
