//! From a handler to the node and back: requests of the client protocol go in, payloads or the
//! answers of errors come out.

use std::net::SocketAddr;
use std::time::Duration;

use biplane_metadata_plane::options::Durability;
use biplane_wire::request::ClientRequest;
use biplane_wire::{
    ClientCode, ClientId, Command, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE,
    Header as _, Message, Operation, ReplyHeader, RequestHeader, RequestNumber, ResultSection,
    SendMessages, Typed, decode_client,
};

use super::Web;
use super::answer::Answer;
use super::call::{Call, Caller};
use crate::client::connection::{ClientEvent, Handle};
use crate::client::http::{Credential, HttpEvent, Identified, OwnedIdentifier};
use crate::client::reply::ClientFrame;
use crate::node::group_page::{GroupPage, GroupQuery};
use crate::node::report::NodeReport;
use crate::runtime::{self, Sender, bounded};

/// How long a read may take.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// How long verifying a password may take, with others in front of it.
const IDENTIFY_LIMIT: Duration = Duration::from_secs(20);

/// What came back for one request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Success, with what stands behind the result section.
    Payload(Vec<u8>),
    /// A status or a result code.
    Code(u32),
    /// The session is no more.
    Evicted(EvictionReason),
    /// Nothing, within the time there was.
    Nothing,
}

/// A frame of a client: `session` and `request` are 0 for reads.
pub(crate) fn frame(
    code: ClientCode,
    body: &[u8],
    client: ClientId,
    session: u64,
    request: u64,
) -> Option<Typed<RequestHeader>> {
    let mut header = RequestHeader::new(Command::Request);
    header.set_client(client);
    header.set_session(session);
    header.set_request(RequestNumber(request));
    header.set_operation(code.operation());
    if code.operation() == Operation::NonReplicated {
        header.set_code(code.as_u32());
    }
    decode_client(Message::from_parts(header, body)).ok()
}

/// Reads a reply: its request number, which an eviction has none of, and what it says.
pub(crate) fn read_reply(frame: ClientFrame) -> (Option<u64>, Outcome) {
    let (header, body): ([u8; HEADER_SIZE], Vec<u8>) = match frame {
        ClientFrame::Message(message) => (*message.header_bytes(), message.body().to_vec()),
        ClientFrame::Parts { header, body } => {
            let mut whole = Vec::new();
            for part in &body {
                whole.extend_from_slice(part.as_bytes());
            }
            (*header, whole)
        }
    };
    let reply = ReplyHeader::over(&header);
    if reply.frame.command_byte() == Command::Eviction as u8 {
        let reason = EvictionHeader::over(&header).reason();
        return (None, Outcome::Evicted(reason));
    }
    let number = Some(reply.request().0);
    if reply.status() != 0 {
        return (number, Outcome::Code(reply.status()));
    }
    if !reply.operation().is_result_framed(body.len()) {
        return (number, Outcome::Payload(body));
    }
    let outcome = match ResultSection::decode(&body) {
        Ok(ResultSection::Success(payload)) => Outcome::Payload(payload.to_vec()),
        Ok(ResultSection::Rejection(code)) => Outcome::Code(code),
        Err(_) => Outcome::Code(ErrorCode::Error.as_u32()),
    };
    (number, outcome)
}

impl Web {
    /// The code and the body of a request, if a frame can hold it.
    ///
    /// # Errors
    /// 400: it is too large for the cluster.
    pub(crate) fn encode(
        &self,
        request: &ClientRequest<'_>,
    ) -> Result<(ClientCode, Vec<u8>), Answer> {
        let body = request.encode();
        self.check_size(body.len())?;
        Ok((request.code(), body))
    }

    /// # Errors
    /// As [`Web::encode`].
    pub(crate) fn check_size(&self, body: usize) -> Result<(), Answer> {
        if HEADER_SIZE + body > self.message_size_max as usize {
            return Err(Answer::error(ErrorCode::InvalidMessagesSize));
        }
        Ok(())
    }

    /// Asks the node a read on behalf of `caller`.
    ///
    /// # Errors
    /// The answer of the error the node gave, or that it gave none.
    pub(crate) async fn read(
        &self,
        call: &Call,
        caller: &Caller,
        request: &ClientRequest<'_>,
    ) -> Result<Vec<u8>, Answer> {
        self.read_for(call.head.peer, caller, request).await
    }

    async fn read_for(
        &self,
        address: SocketAddr,
        caller: &Caller,
        request: &ClientRequest<'_>,
    ) -> Result<Vec<u8>, Answer> {
        if !self.glance.is_recovered() {
            return Err(Answer::no_answer());
        }
        let (code, body) = self.encode(request)?;
        let id = self.next_connection();
        let client = ClientId(u128::from(id));
        let Some(request) = frame(code, &body, client, 0, 0) else {
            return Err(Answer::error(ErrorCode::InvalidCommand));
        };
        let (outbox, replies) = bounded(1);
        let event = HttpEvent::Read {
            id,
            address,
            user_id: caller.user_id,
            request,
            handle: Handle::without_socket(outbox),
        };
        if !self.events.send(ClientEvent::Http(event)).await {
            return Err(Answer::no_answer());
        }
        let partition = matches!(
            code,
            ClientCode::PollMessages | ClientCode::GetConsumerOffset
        );
        match runtime::timeout(READ_LIMIT, replies.recv()).await {
            Some(Ok(frame)) => match read_reply(frame).1 {
                Outcome::Payload(payload) => Ok(payload),
                Outcome::Code(code) => Err(Answer::error_number(code)),
                Outcome::Evicted(_) | Outcome::Nothing => Err(Answer::no_answer()),
            },
            None if partition => {
                let reason = "The partition did not answer in time";
                Err(Answer::transport(504, "partition_read_timeout", reason))
            }
            Some(Err(_)) | None => Err(Answer::no_answer()),
        }
    }

    /// Whose credential is this? `Err` holds the error code of the refusal.
    ///
    /// # Errors
    /// The code, or 58 when there is no answer.
    pub(crate) async fn identify(&self, credential: Credential) -> Result<Identified, ErrorCode> {
        let event = |answer| HttpEvent::Identify { credential, answer };
        let answer = self.question(IDENTIFY_LIMIT, event).await;
        answer.unwrap_or(Err(ErrorCode::TransientNotAccepted))
    }

    /// May the caller send there, and what does the topic promise?
    ///
    /// # Errors
    /// 403, 404, or that there is no answer.
    pub(crate) async fn may_send(
        &self,
        caller: &Caller,
        stream: &OwnedIdentifier,
        topic: &OwnedIdentifier,
    ) -> Result<Durability, Answer> {
        let event = |answer| HttpEvent::MaySend {
            user_id: caller.user_id,
            stream: stream.clone(),
            topic: topic.clone(),
            answer,
        };
        match self.question(READ_LIMIT, event).await {
            Some(answer) => answer.map_err(Answer::error),
            None => Err(Answer::no_answer()),
        }
    }

    /// What the node looks like.
    ///
    /// # Errors
    /// 403, or that there is no answer.
    pub(crate) async fn report(&self, caller: &Caller) -> Result<Box<NodeReport>, Answer> {
        let event = |answer| HttpEvent::Report {
            user_id: Some(caller.user_id),
            answer,
        };
        match self.question(READ_LIMIT, event).await {
            Some(answer) => answer.map_err(Answer::error),
            None => Err(Answer::no_answer()),
        }
    }

    /// A page of the partition groups.
    ///
    /// # Errors
    /// 403, or that there is no answer.
    pub(crate) async fn group_page(
        &self,
        caller: &Caller,
        query: GroupQuery,
    ) -> Result<GroupPage, Answer> {
        let event = |answer| HttpEvent::Groups {
            user_id: caller.user_id,
            query,
            answer,
        };
        match self.question(READ_LIMIT, event).await {
            Some(answer) => answer.map_err(Answer::error),
            None => Err(Answer::no_answer()),
        }
    }

    /// What the node looks like, for a scrape, which needs a token and no permission.
    ///
    /// # Errors
    /// That there is no answer.
    pub(crate) async fn report_for_metrics(&self) -> Result<Box<NodeReport>, Answer> {
        let event = |answer| HttpEvent::Report {
            user_id: None,
            answer,
        };
        match self.question(READ_LIMIT, event).await {
            Some(Ok(report)) => Ok(report),
            Some(Err(_)) | None => Err(Answer::no_answer()),
        }
    }

    async fn question<T>(
        &self,
        limit: Duration,
        event: impl FnOnce(Sender<T>) -> HttpEvent,
    ) -> Option<T> {
        let (answer, answers) = bounded(1);
        if !self.events.send(ClientEvent::Http(event(answer))).await {
            return None;
        }
        runtime::timeout(limit, answers.recv()).await?.ok()
    }
}

/// The body of a request that sends messages: the batch is large, so it is not decoded again.
pub(crate) fn send_body(metadata: &biplane_wire::SendMetadata<'_>, batch: &[u8]) -> Vec<u8> {
    SendMessages::encode(metadata, batch)
}
