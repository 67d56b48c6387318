//! Taking requests in: the gate, the client table, the rewrite, and the consensus core
//! (protocol specification, chapter 03, sections 6.1, 7.2, 7.3 and 7.6).

use biplane_vsr::sessions::Check;
use biplane_vsr::{Admission, Refusal, Status};
use biplane_wire::{
    ClientId, Command, ErrorCode, EvictionReason, FrameBuffer, GroupId, Operation, RequestNumber,
    RoutedRequestHeader,
};

use super::MetadataPlane;
use super::outcomes::Failure;
use super::waiters::{Origin, Waiter};
use crate::io::{Outcome, Output};
use crate::preflight::prepare_body;
use crate::reply;

/// A routed request of the metadata group that this server makes by itself.
pub(super) fn own_request(
    operation: Operation,
    client: ClientId,
    session: u64,
    request: RequestNumber,
    user_id: u32,
    body: &[u8],
) -> FrameBuffer {
    let mut header = RoutedRequestHeader::new(Command::Request);
    header.set_client(client);
    header.set_session(session);
    header.set_request(request);
    header.set_operation(operation);
    header.set_user_id(user_id);
    header.set_group(GroupId::METADATA);
    framed(header, body)
}

/// Header and body as one buffer, with the size field right.
fn framed(mut header: RoutedRequestHeader, body: &[u8]) -> FrameBuffer {
    let size = u32::try_from(biplane_wire::HEADER_SIZE + body.len());
    header
        .frame
        .set_size(size.expect("bodies of requests fit a frame"));
    FrameBuffer::from_parts(&header, body)
}

impl MetadataPlane {
    /// A client request.
    pub(super) fn on_submit(&mut self, token: u64, request: FrameBuffer, out: &mut Vec<Output>) {
        let header = *request.header::<RoutedRequestHeader>();
        if !self.replica.is_primary() {
            return self.refuse(token, &header, ErrorCode::TransientNotAccepted, out);
        }
        if !self.replica.is_caught_up_primary() {
            return self.refuse(token, &header, ErrorCode::TransientNotCommitted, out);
        }
        if !self.answer_from_table(token, &header, out) {
            self.prepare(token, header, &request, out);
        }
    }

    /// Answers a request that the client table does not call new; whether it did.
    pub(super) fn answer_from_table(
        &self,
        token: u64,
        header: &RoutedRequestHeader,
        out: &mut Vec<Output>,
    ) -> bool {
        match self.machine.check(header) {
            Check::New => return false,
            Check::NoSession => {
                out.push(Output::Evicted {
                    token,
                    reason: EvictionReason::NoSession,
                });
            }
            Check::SessionTooLow => {
                out.push(Output::Evicted {
                    token,
                    reason: EvictionReason::SessionTooLow,
                });
            }
            Check::Drop(_) => out.push(Output::Dropped { token }),
            Check::AlreadyApplied => {
                self.refuse(token, header, ErrorCode::RequestAlreadyApplied, out);
            }
            Check::Replay(cached) => {
                let committed = cached.header::<biplane_wire::ReplyHeader>();
                let (op, operation) = (committed.op(), committed.operation());
                let code = reply::code_of(cached);
                // The token went out with the first reply and exists nowhere else.
                let is_secret = operation == Operation::CreatePersonalAccessToken && code == 0;
                if is_secret {
                    let code = ErrorCode::PersonalAccessTokenAlreadyExists;
                    self.refuse(token, header, code, out);
                } else {
                    let outcome = Outcome::Committed {
                        op,
                        operation,
                        code,
                    };
                    out.push(Output::Reply {
                        token,
                        message: cached.clone(),
                        outcome,
                    });
                }
            }
        }
        true
    }

    fn prepare(
        &mut self,
        token: u64,
        header: RoutedRequestHeader,
        request: &FrameBuffer,
        out: &mut Vec<Output>,
    ) {
        let view = self.replica.view();
        let numbers = &mut self.machine.numbers;
        let prepared = prepare_body(header.operation(), request.body(), view, numbers);
        let (operation, body) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return out.push(Output::Evicted { token, reason }),
        };
        if !self.fits_frame(body.len()) {
            let reason = EvictionReason::InvalidRequestBody;
            return out.push(Output::Evicted { token, reason });
        }
        if !self.machine.has_room {
            return self.refuse(token, &header, ErrorCode::TransientNotAccepted, out);
        }
        let mut routed = header;
        let session = self.machine.table.get(header.client());
        routed.set_user_id(session.map_or(u32::MAX, |session| session.user_id));
        routed.set_operation(operation);
        routed.set_group(GroupId::METADATA);
        let request = framed(routed, &body);
        let number = self.waiters.add(Waiter::Request {
            token,
            echo: Box::new(header),
        });
        if let Some(refusal) = self.admit(request, number) {
            self.waiters.take(number);
            let code = code_of_refusal(refusal);
            self.refuse(token, &header, code, out);
        }
    }

    /// Whether a prepare with a body of this length fits a frame.
    fn fits_frame(&self, body_len: usize) -> bool {
        let frame = biplane_wire::HEADER_SIZE.saturating_add(body_len);
        u32::try_from(frame).is_ok_and(|size| size <= self.config.limits.frame_bytes_max)
    }

    /// Hands a request to the core; the reason where it was not taken.
    pub(super) fn admit(&mut self, request: FrameBuffer, number: u64) -> Option<Refusal> {
        let (wall, machine, said) = (self.wall_micros, &mut self.machine, &mut self.core_outputs);
        match self.replica.admit(request, number, wall, machine, said) {
            Admission::Prepared { .. } | Admission::Queued => None,
            Admission::Refused { reason, .. } => Some(reason),
        }
    }

    pub(super) fn refuse(
        &self,
        token: u64,
        header: &RoutedRequestHeader,
        code: ErrorCode,
        out: &mut Vec<Output>,
    ) {
        let message = reply::refusal(header, code, self.replica.commit_min());
        out.push(Output::Reply {
            token,
            message,
            outcome: Outcome::Refused(code),
        });
    }

    /// A login of a client connected here.
    pub(super) fn on_register(
        &mut self,
        token: u64,
        client: ClientId,
        user_id: u32,
        out: &mut Vec<Output>,
    ) {
        if self.follows() {
            self.forward_register(token, client, user_id, out);
        } else {
            self.submit_register(Origin::Here(token), client, user_id, out);
        }
    }

    /// Whether another replica leads a view that this one works in.
    fn follows(&self) -> bool {
        let status = self.replica.status();
        status.status == Status::Normal && status.primary != self.config.replica
    }

    /// A login, wherever it came from. It waits where this primary is not caught up: until then
    /// nobody knows whose the client id is.
    pub(super) fn submit_register(
        &mut self,
        origin: Origin,
        client: ClientId,
        user_id: u32,
        out: &mut Vec<Output>,
    ) {
        if !self.replica.is_primary() {
            return self.fail_register(origin, client, Failure::NotPrimary, out);
        }
        let caught_up = self.replica.is_caught_up_primary();
        if caught_up && self.machine.table.check_register(client, user_id).is_err() {
            return self.fail_register(origin, client, Failure::OwnedByAnother, out);
        }
        let request = own_request(
            Operation::Register,
            client,
            0,
            RequestNumber(0),
            user_id,
            &[],
        );
        let number = self.waiters.add(Waiter::Register { origin, client });
        let refusal = if !caught_up {
            match self.replica.park(request, number) {
                Admission::Prepared { .. } | Admission::Queued => None,
                Admission::Refused { reason, .. } => Some(reason),
            }
        } else if self.machine.has_room {
            self.admit(request, number)
        } else {
            Some(Refusal::Full)
        };
        if let Some(refusal) = refusal {
            self.waiters.take(number);
            self.fail_register(origin, client, refusal.into(), out);
        }
    }

    /// A logout of a client connected here, or of one whose connection ended.
    pub(super) fn on_logout(
        &mut self,
        token: u64,
        client: ClientId,
        session: u64,
        request: u64,
        out: &mut Vec<Output>,
    ) {
        let request = RequestNumber(request);
        if request == biplane_vsr::sessions::REQUEST_DISCONNECT {
            self.cleanups.add(client, session);
        }
        if self.follows() {
            self.forward_logout(token, client, session, request, out);
        } else {
            self.submit_logout(Origin::Here(token), client, session, request, out);
        }
    }

    /// A logout, wherever it came from. Whether this replica leads is asked first: what a backup
    /// knows about sessions may be old.
    pub(super) fn submit_logout(
        &mut self,
        origin: Origin,
        client: ClientId,
        session: u64,
        request: RequestNumber,
        out: &mut Vec<Output>,
    ) {
        if !self.replica.is_caught_up_primary() {
            return self.fail_logout(origin, client, Failure::NotPrimary, out);
        }
        if !self.machine.has_session(client, session) {
            let commit = self.replica.commit_min();
            return self.finish_logout(origin, client, commit, out);
        }
        if !self.machine.has_room {
            return self.fail_logout(origin, client, Failure::Full, out);
        }
        let user_id = self.machine.table.owner(client, session);
        let frame = own_request(Operation::Logout, client, session, request, user_id, &[]);
        let number = self.waiters.add(Waiter::Logout { origin, client });
        if let Some(refusal) = self.admit(frame, number) {
            self.waiters.take(number);
            self.fail_logout(origin, client, refusal.into(), out);
        }
    }
}

pub(super) fn code_of_refusal(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::InFlight => ErrorCode::TransientNotCommitted,
        Refusal::NotPrimary | Refusal::Transferring | Refusal::Full => {
            ErrorCode::TransientNotAccepted
        }
    }
}
