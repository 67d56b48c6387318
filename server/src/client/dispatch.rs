//! First look at a request: what it is, whether its connection may ask it, and who answers
//! (chapter 07 section 3.2). The table is this file; each line calls a function named after its
//! subject.

use biplane_wire::{
    ClientCode, ClientId, ErrorCode, EvictionReason, Op, Operation, RequestHeader, Typed, body_seal,
};

use super::connection::{ClientEvent, ConnectionId};
use super::reply::{self, ClientFrame, Position};
use super::session::{Bound, Held, Session, size_of};
use crate::node::{Node, spans};

/// A request being served.
pub(crate) struct Request {
    /// Its connection.
    pub(crate) connection: ConnectionId,
    /// The frame.
    pub(crate) frame: Typed<RequestHeader>,
    /// Set when it was held before: no longer than this tick.
    pub(crate) deadline: Option<u64>,
}

impl Request {
    /// The header, by value: the frame may be given away.
    pub(crate) fn header(&self) -> RequestHeader {
        *self.frame.header()
    }

    pub(crate) fn size(&self) -> usize {
        size_of(&self.frame)
    }
}

impl Node {
    /// Takes what a connection has to tell.
    pub(crate) fn on_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Opened {
                id,
                address,
                transport,
                handle,
            } => {
                self.clients.open(id, address, transport, handle, self.tick);
            }
            ClientEvent::Request { id, request } => {
                if let Some(session) = self.clients.get_mut(id) {
                    session.last_active = self.tick;
                }
                if let Err(request) = self.clients.enqueue(id, request) {
                    let request = Request {
                        connection: id,
                        frame: request,
                        deadline: None,
                    };
                    self.refuse(&request, ErrorCode::TransientNotAccepted);
                }
            }
            ClientEvent::Drained { id } => self.clients.resume(id),
            ClientEvent::Http(event) => self.on_http(event),
            ClientEvent::Closed { id } => {
                if let Some(bound) = self.clients.close(id) {
                    self.log_out_lost(bound);
                }
            }
        }
    }

    /// Serves every request that can be served now.
    pub(crate) fn serve_ready(&mut self) {
        while let Some((connection, frame)) = self.clients.next_ready() {
            self.serve(Request {
                connection,
                frame,
                deadline: None,
            });
            self.flush();
        }
    }

    /// Looks at held requests again: something they wait for may have come about.
    pub(crate) fn serve_held(&mut self) {
        for Held {
            connection,
            request,
            deadline,
        } in self.clients.take_held()
        {
            self.clients.set_busy(connection, false);
            self.serve(Request {
                connection,
                frame: request,
                deadline: Some(deadline),
            });
            self.flush();
        }
    }

    fn serve(&mut self, request: Request) {
        let header = request.header();
        let _span = spans::request(request.connection, &header).entered();
        let checksum = header.request_checksum();
        if !checksum.is_zero() && checksum != body_seal(request.frame.body()) {
            self.seals.requests += 1;
            return self.refuse(&request, ErrorCode::InvalidFormat);
        }
        let bound = self
            .clients
            .get(request.connection)
            .and_then(|session| session.bound);
        match (header.operation(), bound) {
            (Operation::NonReplicated, bound) => self.serve_command(request, bound),
            (Operation::Register, _) => self.log_in(request),
            (Operation::Logout, None) => self.succeed(&request, &[]),
            (Operation::Logout, Some(bound)) => self.log_out(request, bound),
            (_, None) => self.evict(&request, EvictionReason::NoSession),
            (Operation::SendMessages, Some(bound)) => self.send_messages(request, bound),
            (Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset, Some(bound)) => {
                self.write_offset(request, bound)
            }
            (Operation::DeleteSegments, Some(bound)) => self.delete_segments(request, bound),
            (operation, Some(_)) if operation.is_internal() => {
                self.evict(&request, EvictionReason::InvalidRequestOperation);
            }
            (operation, Some(bound)) => self.write_metadata(request, operation, bound),
        }
    }

    fn serve_command(&mut self, request: Request, bound: Option<Bound>) {
        let code = ClientCode::from_u32(request.header().code());
        if code.is_some_and(ClientCode::is_legacy_login) {
            return self.evict(&request, EvictionReason::MalformedLogin);
        }
        if code == Some(ClientCode::Ping) {
            return self.succeed(&request, &[]);
        }
        let Some(bound) = bound else {
            let client = Session::transport_id(request.connection);
            let position = Position {
                op: 0,
                commit: Op::ZERO,
            };
            let header = request.header();
            let frame = reply::status(&header, client, position, ErrorCode::Unauthenticated);
            return self.answer(&request, frame);
        };
        let Some(code) = code else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        match code {
            ClientCode::PollMessages => self.poll(request, bound, false),
            ClientCode::PollMessagesOnPrimary => self.poll(request, bound, true),
            ClientCode::GetPollRouting => self.route_poll(request, bound),
            ClientCode::GetConsumerOffset => self.get_offset(request, bound),
            ClientCode::GetConsumerOffsetRouting => self.route(request, bound),
            ClientCode::AttachConsumerSession => self.attach(request, bound),
            ClientCode::FlushUnsavedBuffer => self.refuse(&request, ErrorCode::FeatureUnavailable),
            ClientCode::LogoutUser => self.refuse(&request, ErrorCode::InvalidCommand),
            _ if code.operation() != Operation::NonReplicated => {
                self.refuse(&request, ErrorCode::FeatureUnavailable);
            }
            _ => self.read(request, code, bound),
        }
    }

    /// What replies to this connection say about positions: `op` is the session for reads.
    pub(crate) fn position(&self, request: &Request) -> Position {
        let header = request.frame.header();
        let read = header.operation() == Operation::NonReplicated;
        let op = if read { header.session() } else { 0 };
        Position {
            op,
            commit: self.metadata.commit_min(),
        }
    }

    /// Whom a refusal names: the request's client for reads, else the connection.
    fn named(&self, request: &Request) -> ClientId {
        let header = request.frame.header();
        if header.operation() == Operation::NonReplicated {
            header.client()
        } else {
            Session::transport_id(request.connection)
        }
    }

    /// Answers with a status and an empty body.
    pub(crate) fn refuse(&mut self, request: &Request, code: ErrorCode) {
        let (client, position) = (self.named(request), self.position(request));
        let frame = reply::status(&request.header(), client, position, code);
        self.answer(request, frame);
    }

    /// Answers with success and `body`.
    pub(crate) fn succeed(&mut self, request: &Request, body: &[u8]) {
        let header = request.header();
        let frame = reply::success(&header, header.client(), self.position(request), body);
        self.answer(request, frame);
    }

    /// Answers with an eviction that names the connection.
    pub(crate) fn evict(&mut self, request: &Request, reason: EvictionReason) {
        let client = Session::transport_id(request.connection);
        let frame = reply::eviction(&self.identity, self.metadata_view(), client, reason);
        self.answer(request, frame);
    }

    /// Sends the one answer of a request that was served at once.
    pub(crate) fn answer(&mut self, request: &Request, frame: ClientFrame) {
        self.clients
            .answer(request.connection, request.size(), false, frame);
    }

    /// Waits for something that is about to be true; refuses with 58 when it does not become so.
    pub(crate) fn hold_or_refuse(&mut self, request: Request, budget_ticks: u64) {
        let deadline = request.deadline.unwrap_or(self.tick + budget_ticks);
        if self.tick >= deadline {
            return self.refuse(&request, ErrorCode::TransientNotAccepted);
        }
        let Request {
            connection, frame, ..
        } = request;
        self.clients.hold(Held {
            connection,
            request: frame,
            deadline,
        });
    }
}
