//! Clients of a group: requests on the way to a prepare and the answers they wait for.
//!
//! On a replicated group an operation is answered when it is applied. A group without peers has
//! only its own files to keep an acknowledged operation, so its answers wait until the operation
//! is written; for a persisted policy that write is synced (chapter 06 section 7.3).

use std::collections::{BTreeMap, VecDeque};

use biplane_vsr as vsr;
use biplane_wire::{
    ClientId, Command, FrameBuffer, Message, Operation, PrepareHeader, RequestNumber,
    RoutedRequestHeader,
};

use super::Group;
use crate::admission::{self, AUTO_COMMIT_CLIENT, Check};
use crate::consumer_offsets::ConsumerKey;
use crate::context::Context;
use crate::io::Output;
use crate::offset_request::{self, OffsetRequest};
use crate::reply;
use crate::status;

/// Token of operations this server submits itself; drivers do not use it.
pub(crate) const OWN_TOKEN: u64 = u64::MAX;

/// An answer that waits for a file.
#[derive(Debug)]
struct Deferred {
    wait: Wait,
    token: u64,
    message: Message,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Until the segments end at or after this offset.
    Flushed(u64),
    /// Until the file of this key is written; the token of the write once it is submitted.
    Stored(ConsumerKey, Option<u64>),
}

/// Auto-commit of one key: one store under way, the newest position next.
#[derive(Debug, Clone, Copy)]
struct AutoCommit {
    next: Option<u64>,
}

/// Requests and answers under way.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Headers of admitted requests, for the answers that are not built from a prepare.
    asked: VecDeque<(u64, RoutedRequestHeader)>,
    deferred: VecDeque<Deferred>,
    auto_commits: BTreeMap<ConsumerKey, AutoCommit>,
    /// Requests that wait until an offer of the state is made.
    held: VecDeque<(u64, FrameBuffer)>,
}

impl Clients {
    fn take_asked(&mut self, token: u64) -> Option<RoutedRequestHeader> {
        let at = self.asked.iter().position(|(asked, _)| *asked == token)?;
        self.asked.remove(at).map(|(_, header)| header)
    }

    pub(super) fn has_flush_waiting(&self) -> bool {
        self.deferred
            .iter()
            .any(|deferred| matches!(deferred.wait, Wait::Flushed(_)))
    }

    pub(super) fn has_stored_waiting(&self) -> bool {
        self.deferred
            .iter()
            .any(|deferred| matches!(deferred.wait, Wait::Stored(_, None)))
    }

    pub(super) fn stored_submitted(&mut self, key: ConsumerKey, token: u64) {
        for deferred in &mut self.deferred {
            if deferred.wait == Wait::Stored(key, None) {
                deferred.wait = Wait::Stored(key, Some(token));
            }
        }
    }

    /// The write `token` failed: its answers wait for the next one.
    pub(super) fn rearm_stored(&mut self, token: u64) {
        for deferred in &mut self.deferred {
            if let Wait::Stored(key, Some(waiting)) = deferred.wait
                && waiting == token
            {
                deferred.wait = Wait::Stored(key, None);
            }
        }
    }

    pub(super) fn forget_auto_commits(&mut self) {
        self.auto_commits.clear();
    }

    fn release(&mut self, context: &mut Context<'_>, ready: impl Fn(Wait) -> bool) {
        let mut kept = VecDeque::with_capacity(self.deferred.len());
        for deferred in self.deferred.drain(..) {
            if ready(deferred.wait) {
                let Deferred { token, message, .. } = deferred;
                context.out.push(Output::Reply {
                    token,
                    status: 0,
                    message,
                });
            } else {
                kept.push_back(deferred);
            }
        }
        self.deferred = kept;
    }
}

impl Group {
    /// A client operation.
    pub(crate) fn submit(
        &mut self,
        token: u64,
        mut request: FrameBuffer,
        context: &mut Context<'_>,
    ) {
        // As it came: what is converted cannot be converted again.
        if self.transfer.offers_wanted.hold_requests() {
            return self.clients.held.push_back((token, request));
        }
        let header = *request.header::<RoutedRequestHeader>();
        if let Err(status) = admission::convert(&mut request, self.key) {
            return self.refuse(token, &header, status, context);
        }
        // Converting moved the start of the frame and set its size.
        let header = *request.header::<RoutedRequestHeader>();
        if !self.accepts_requests(context) {
            return self.refuse(token, &header, status::NOT_ACCEPTED, context);
        }
        let room = self.log.room(context.node);
        match admission::check(&self.state, &header, request.body(), room) {
            Check::Admit => {}
            Check::Refuse(status) => return self.refuse(token, &header, status, context),
            Check::Duplicate => {
                let message = reply::duplicate(&header, &self.origin(context));
                context.out.push(Output::Reply {
                    token,
                    status: 0,
                    message,
                });
                return;
            }
        }
        if let Err(refusal) = self.admit(token, request, context) {
            self.refuse(token, &header, refusal.code(), context);
        }
        self.settle(context);
    }

    /// The requests that waited are served in the order in which they came.
    pub(super) fn submit_held(&mut self, context: &mut Context<'_>) {
        for (token, request) in std::mem::take(&mut self.clients.held) {
            self.submit(token, request, context);
        }
    }

    /// Whether this node leads the group and may mint.
    fn accepts_requests(&self, context: &Context<'_>) -> bool {
        self.replica.is_primary()
            && self.may_mint()
            && !self.cold.is_looking()
            && !self.is_overfull(context)
    }

    fn admit(
        &mut self,
        token: u64,
        request: FrameBuffer,
        context: &mut Context<'_>,
    ) -> Result<(), vsr::Refusal> {
        let header = *request.header::<RoutedRequestHeader>();
        let stored = admission::decode_if_offset(header.operation(), request.body());
        let wall_micros = context.wall_micros;
        let out = &mut context.scratch.vsr;
        match self
            .replica
            .admit(request, token, wall_micros, &mut self.state, out)
        {
            vsr::Admission::Refused { reason, .. } => return Err(reason),
            vsr::Admission::Prepared { .. } | vsr::Admission::Queued => {}
        }
        if let Ok(Some(OffsetRequest {
            key,
            offset: Some(_),
        })) = stored
        {
            self.state.offsets.promise(key);
        }
        self.state
            .dedup
            .began(header.client().0, header.request().0);
        if token != OWN_TOKEN {
            self.clients.asked.push_back((token, header));
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        token: u64,
        header: &RoutedRequestHeader,
        status: u32,
        context: &mut Context<'_>,
    ) {
        let message = reply::refused(header, &self.origin(context), status);
        context.out.push(Output::Reply {
            token,
            status,
            message,
        });
    }

    /// A queued request will not be executed.
    pub(super) fn denied(
        &mut self,
        token: u64,
        request: &Message,
        status: u32,
        context: &mut Context<'_>,
    ) {
        let header = *request.header::<RoutedRequestHeader>();
        self.state
            .dedup
            .ended(header.client().0, header.request().0);
        let offset = admission::decode_if_offset(header.operation(), request.body());
        if let Ok(Some(OffsetRequest {
            key,
            offset: Some(_),
        })) = offset
        {
            self.state.offsets.release_promise(key);
            if token == OWN_TOKEN {
                self.clients.auto_commits.remove(&key);
            }
        }
        if token == OWN_TOKEN {
            return;
        }
        self.clients.take_asked(token);
        self.refuse(token, &header, status, context);
    }

    /// A prepared operation may or may not commit in another view.
    pub(super) fn canceled(&mut self, token: u64, context: &mut Context<'_>) {
        if let Some(header) = self.clients.take_asked(token) {
            self.refuse(token, &header, status::NOT_COMMITTED, context);
        }
    }

    /// An operation this node admitted is applied.
    pub(super) fn answer_committed(
        &mut self,
        token: u64,
        prepare: &PrepareHeader,
        message: Message,
        context: &mut Context<'_>,
    ) {
        if token == OWN_TOKEN {
            return;
        }
        self.clients.take_asked(token);
        let wait = match prepare.operation() {
            _ if context.node.is_replicated() => None,
            Operation::SendMessages => {
                let next = self.state.committed_next;
                (self.segments.next_offset() < next).then_some(Wait::Flushed(next))
            }
            operation => {
                let body = self.state.resident.back().map(|entry| entry.message.body());
                let request = body.map(|body| OffsetRequest::decode(operation, body));
                let key = request
                    .and_then(|request| request.ok())
                    .map(|request| request.key);
                key.filter(|key| self.state.offsets.is_behind(*key))
                    .map(|key| Wait::Stored(key, None))
            }
        };
        match wait {
            None => context.out.push(Output::Reply {
                token,
                status: 0,
                message,
            }),
            Some(wait) => self.clients.deferred.push_back(Deferred {
                wait,
                token,
                message,
            }),
        }
    }

    pub(super) fn answer_flushed(&mut self, on_disk: u64, context: &mut Context<'_>) {
        let ready = |wait| matches!(wait, Wait::Flushed(next) if next <= on_disk);
        self.clients.release(context, ready);
    }

    pub(super) fn answer_stored(&mut self, token: u64, context: &mut Context<'_>) {
        let ready = |wait| matches!(wait, Wait::Stored(_, Some(waiting)) if waiting == token);
        self.clients.release(context, ready);
    }

    /// Every answer that waits for a file leaves: a purge made the file irrelevant.
    pub(super) fn answer_deferred(&mut self, context: &mut Context<'_>) {
        self.clients.release(context, |_| true);
    }

    /// The group ends here: its memory is given back, whoever still waits is told.
    pub(crate) fn refuse_all(&mut self, context: &mut Context<'_>) {
        *context.resident_total -= self.resident_bytes;
        self.resident_bytes = 0;
        self.answer_deferred(context);
        for (token, request) in std::mem::take(&mut self.clients.held) {
            let header = *request.header::<RoutedRequestHeader>();
            self.refuse(token, &header, status::NOT_ACCEPTED, context);
        }
        while let Some((token, header)) = self.clients.asked.pop_front() {
            self.refuse(token, &header, status::NOT_COMMITTED, context);
        }
        self.abandon_polls(context);
    }

    /// Stores the position an auto-commit poll reached, through the log.
    ///
    /// # Errors
    ///
    /// The status the poll is refused with.
    pub(super) fn auto_commit(
        &mut self,
        key: ConsumerKey,
        offset: u64,
        context: &mut Context<'_>,
    ) -> Result<(), u32> {
        if self
            .state
            .offsets
            .committed(key)
            .is_some_and(|stored| stored >= offset)
        {
            return Ok(());
        }
        if !self.state.offsets.has_room(key) {
            return Err(status::TOO_MANY_OFFSETS);
        }
        self.state.offsets.raise_eager(key, offset);
        if !self.replica.is_primary() {
            return Ok(());
        }
        if !self.may_mint() {
            return Err(status::NOT_ACCEPTED);
        }
        match self.clients.auto_commits.get_mut(&key) {
            Some(under_way) => under_way.next = Some(offset),
            None => {
                let request = self.own_request(Operation::StoreConsumerOffset, key, Some(offset));
                self.admit(OWN_TOKEN, request, context)
                    .map_err(|refusal| refusal.code())?;
                self.clients
                    .auto_commits
                    .insert(key, AutoCommit { next: None });
            }
        }
        Ok(())
    }

    /// A store that a poll caused is applied; the next one of its key may go.
    pub(super) fn auto_commit_done(&mut self, prepare: &PrepareHeader, context: &mut Context<'_>) {
        let body = self.state.resident.back().map(|entry| entry.message.body());
        let request = body.and_then(|body| OffsetRequest::decode(prepare.operation(), body).ok());
        let Some(key) = request.map(|request| request.key) else {
            return;
        };
        let next = self
            .clients
            .auto_commits
            .remove(&key)
            .and_then(|auto| auto.next);
        if let Some(offset) = next {
            // Refused only when this node no longer leads: the position is then lost, as any
            // that did not commit.
            let _ = self.auto_commit(key, offset, context);
        }
    }

    /// The consumer or group behind `key` is gone: the primary deletes its position.
    pub(crate) fn forget_offset(&mut self, key: ConsumerKey, context: &mut Context<'_>) {
        let is_stored = self.state.offsets.committed(key).is_some();
        if self.replica.is_primary() && is_stored && self.may_mint() {
            let request = self.own_request(Operation::DeleteConsumerOffset, key, None);
            let _ = self.admit(OWN_TOKEN, request, context);
            self.settle(context);
        }
    }

    fn own_request(
        &self,
        operation: Operation,
        key: ConsumerKey,
        offset: Option<u64>,
    ) -> FrameBuffer {
        let body = offset_request::encode(key, self.key, offset);
        self.own_frame(operation, RequestNumber(1), &body)
    }

    /// A request of this server itself.
    pub(super) fn own_frame(
        &self,
        operation: Operation,
        number: RequestNumber,
        body: &[u8],
    ) -> FrameBuffer {
        let mut header = RoutedRequestHeader::new(Command::Request);
        let size = u32::try_from(biplane_wire::HEADER_SIZE + body.len());
        header
            .frame
            .set_size(size.expect("an offset body is small"));
        header.set_client(ClientId(AUTO_COMMIT_CLIENT));
        header.set_request(number);
        header.set_session(1);
        header.set_operation(operation);
        header.set_group(self.spec.group);
        FrameBuffer::from_parts(&header, body)
    }
}
