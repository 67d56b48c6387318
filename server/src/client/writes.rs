//! Metadata writes (chapter 07 section 6.1): checked and rewritten on this node, then submitted to
//! this node's metadata group. A node that is not the primary answers 58; it never forwards.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use biplane_metadata_plane::io::{Input, Outcome};
use biplane_metadata_plane::preflight::{self, Caller, Needs, Refusal, Supplied};
use biplane_metadata_plane::reply::splice_token;
use biplane_partition_plane::SealedEnd;
use biplane_wire::request::{DeleteSegments, TruncatePartition};
use biplane_wire::{
    Codec as _, ErrorCode, GroupId, Message, Operation, RequestHeader, RoutedRequestHeader, Typed,
};

use super::dispatch::Request;
use super::reply::{self, ClientFrame, Position};
use super::session::{Bound, Wait, Waiting};
use crate::node::Node;
use crate::passwords::PasswordJob;

/// A request whose password is being verified or hashed.
#[derive(Debug)]
pub(crate) struct HashJob {
    request: Typed<RequestHeader>,
    operation: Operation,
    bound: Bound,
    /// The password to hash once the current one has been verified.
    after_verification: Option<String>,
}

/// Random bytes of an access token (chapter 07 section 6.1).
const TOKEN_BYTES: usize = 50;

impl Node {
    /// Operations 128 to 149.
    pub(crate) fn write_metadata(&mut self, request: Request, operation: Operation, bound: Bound) {
        if let Some(code) = self.metadata_refusal() {
            // Hashing a password or minting a token for a request that cannot be accepted is waste.
            return self.reject(&request, operation, code);
        }
        let caller = self.caller(bound);
        let needs = preflight::needs(
            self.metadata.state(),
            &caller,
            operation,
            request.frame.body(),
        );
        match needs {
            Err(refusal) => self.refuse_preflight(&request, refusal),
            Ok(Needs::Nothing) => {
                self.submit_metadata(request, operation, bound, Supplied::Nothing, None);
            }
            Ok(Needs::InFlight { target }) => {
                let progress = self.progress_of(&target);
                self.forget_served(&progress);
                let supplied = Supplied::InFlight(&progress.in_flight);
                self.submit_metadata(request, operation, bound, supplied, None);
            }
            Ok(Needs::TokenHash) => self.mint_token(request, operation, bound),
            Ok(Needs::PasswordHash { password }) => {
                let password = password.to_owned();
                self.hash_password(request, operation, bound, password);
            }
            Ok(Needs::PasswordChange {
                stored_hash,
                current,
                new,
            }) => {
                let (current, new) = (current.to_owned(), new.to_owned());
                let stored: Option<Arc<str>> = stored_hash.map(Arc::from);
                match stored {
                    Some(hash) => {
                        self.verify_current(request, operation, bound, hash, current, new);
                    }
                    None => self.hash_password(request, operation, bound, new),
                }
            }
        }
    }

    fn caller(&self, bound: Bound) -> Caller {
        Caller {
            user_id: Some(bound.user_id),
            client: bound.client,
            tokens_max: self.config.personal_access_token.max_tokens_per_user as usize,
        }
    }

    /// Why no metadata write can be accepted now, if that is certain without asking the plane.
    fn metadata_refusal(&self) -> Option<ErrorCode> {
        (!self.metadata.replica().is_primary()).then_some(ErrorCode::TransientNotAccepted)
    }

    /// A refusal in the result section, which the reply of this operation has.
    fn reject(&mut self, request: &Request, operation: Operation, code: ErrorCode) {
        let commit = self.metadata.commit_min();
        let position = Position {
            op: commit.0,
            commit,
        };
        let header = request.header();
        let frame = reply::rejection(&header, operation, header.client(), position, code);
        self.answer(request, frame);
    }

    fn refuse_preflight(&mut self, request: &Request, refusal: Refusal) {
        match refusal {
            Refusal::Status(code) => self.refuse(request, code),
            Refusal::Evict(reason) => self.evict(request, reason),
        }
    }

    /// Rewrites the body and hands the request to the plane.
    fn submit_metadata(
        &mut self,
        request: Request,
        operation: Operation,
        bound: Bound,
        supplied: Supplied<'_>,
        token_text: Option<String>,
    ) {
        let caller = self.caller(bound);
        let body = request.frame.body();
        let state = self.metadata.state();
        let rewritten = match preflight::rewrite(state, &caller, operation, body, supplied) {
            Ok(rewritten) => rewritten,
            Err(refusal) => return self.refuse_preflight(&request, refusal),
        };
        let header = request.header();
        let mut routed = RoutedRequestHeader::promote(&header, GroupId::METADATA);
        stamp(&mut routed, bound);
        let frame = Message::from_parts(routed, &rewritten).into_unique();
        let wait = Wait::Metadata { token: token_text };
        let size = request.size();
        let token = self
            .clients
            .wait(request.connection, header, size, true, wait);
        self.step_metadata(Input::Submit {
            token,
            request: frame,
        });
    }

    fn mint_token(&mut self, request: Request, operation: Operation, bound: Bound) {
        let mut random = [0; TOKEN_BYTES];
        if getrandom::fill(&mut random).is_err() {
            return self.reject(&request, operation, ErrorCode::TransientNotAccepted);
        }
        let text = Base64::encode_string(&random);
        let hash = blake3::hash(text.as_bytes()).to_hex();
        let supplied = Supplied::TokenHash(hash.as_str());
        self.submit_metadata(request, operation, bound, supplied, Some(text));
    }

    fn hash_password(
        &mut self,
        request: Request,
        operation: Operation,
        bound: Bound,
        password: String,
    ) {
        let token = self.wait_for_hash(request, operation, bound, None);
        if self
            .passwords
            .submit(PasswordJob::Hash { token, password })
            .is_err()
        {
            self.hashing_overflowed(token);
        }
    }

    fn verify_current(
        &mut self,
        request: Request,
        operation: Operation,
        bound: Bound,
        hash: Arc<str>,
        current: String,
        new: String,
    ) {
        let token = self.wait_for_hash(request, operation, bound, Some(new));
        let job = PasswordJob::Verify {
            token,
            hash: Some(hash),
            password: current,
        };
        if self.passwords.submit(job).is_err() {
            self.hashing_overflowed(token);
        }
    }

    fn wait_for_hash(
        &mut self,
        request: Request,
        operation: Operation,
        bound: Bound,
        after_verification: Option<String>,
    ) -> u64 {
        let (connection, header, size) = (request.connection, request.header(), request.size());
        let job = HashJob {
            request: request.frame,
            operation,
            bound,
            after_verification,
        };
        self.clients
            .wait(connection, header, size, true, Wait::Hashing(job))
    }

    fn hashing_overflowed(&mut self, token: u64) {
        let Some(waiting) = self.clients.take(token) else {
            return;
        };
        if let Some((request, job)) = resume(waiting) {
            self.clients.set_busy(request.connection, false);
            self.reject(&request, job.operation, ErrorCode::TransientNotAccepted);
        }
    }

    /// A current password was checked.
    pub(crate) fn on_current_verified(&mut self, waiting: Waiting, matches: bool) {
        let Some((request, mut job)) = resume(waiting) else {
            return;
        };
        self.clients.set_busy(request.connection, false);
        let (operation, bound) = (job.operation, job.bound);
        match (matches, job.after_verification.take()) {
            (true, Some(new)) => self.hash_password(request, operation, bound, new),
            _ => {
                let supplied = Supplied::PasswordChange(None);
                self.submit_metadata(request, operation, bound, supplied, None);
            }
        }
    }

    /// A new password was hashed.
    pub(crate) fn on_hashed(&mut self, waiting: Waiting, hash: Option<String>) {
        let Some((request, job)) = resume(waiting) else {
            return;
        };
        self.clients.set_busy(request.connection, false);
        let Some(hash) = hash else {
            return self.reject(&request, job.operation, ErrorCode::TransientNotAccepted);
        };
        let supplied = if job.operation == Operation::ChangePassword {
            Supplied::PasswordChange(Some(&hash))
        } else {
            Supplied::PasswordHash(&hash)
        };
        self.submit_metadata(request, job.operation, job.bound, supplied, None);
    }

    /// DeleteSegments (138): the count becomes an offset here, where the partition is.
    pub(crate) fn delete_segments(&mut self, request: Request, bound: Bound) {
        let body = request.frame.body();
        let Ok(wanted) = DeleteSegments::decode(body) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let found = self
            .metadata
            .state()
            .streams()
            .topic(&wanted.stream, &wanted.topic);
        // What cannot be resolved is committed as a typed rejection: offset 0 does no harm.
        let group = found
            .ok()
            .and_then(|(stream, topic)| GroupId::partition(stream.id, topic.id, wanted.partition));
        let end = group.map(|group| self.partitions.sealed_end(group, wanted.count));
        let up_to_offset = match end {
            Some(SealedEnd::Lagging | SealedEnd::Unknown) if self.partition_exists(group) => {
                let operation = Operation::TruncatePartition;
                return self.reject(&request, operation, ErrorCode::TransientNotAccepted);
            }
            Some(SealedEnd::UpTo(offset)) => offset,
            _ => 0,
        };
        let truncate = TruncatePartition {
            stream: wanted.stream,
            topic: wanted.topic,
            partition: wanted.partition,
            up_to_offset,
        };
        let rewritten = truncate.encode();
        let header = request.header();
        let mut routed = RoutedRequestHeader::promote(&header, GroupId::METADATA);
        stamp(&mut routed, bound);
        routed.set_operation(Operation::TruncatePartition);
        let frame = Message::from_parts(routed, &rewritten).into_unique();
        let (connection, size) = (request.connection, request.size());
        let wait = Wait::Metadata { token: None };
        let token = self.clients.wait(connection, header, size, true, wait);
        self.step_metadata(Input::Submit {
            token,
            request: frame,
        });
    }

    fn partition_exists(&self, group: Option<GroupId>) -> bool {
        group.is_some_and(|group| self.metadata.state().streams().partition(group).is_some())
    }

    /// The metadata plane has answered a write with a frame.
    pub(crate) fn on_metadata_reply(
        &mut self,
        waiting: Waiting,
        message: Message,
        outcome: Outcome,
    ) {
        let mut message = message;
        if let Outcome::Committed { op, code, .. } = outcome {
            if let Some(session) = self.clients.get_mut(waiting.connection) {
                session.saw_commit(op);
            }
            if let Wait::Metadata { token: Some(text) } = &waiting.wait
                && code == 0
            {
                message = splice_token(&message, text);
            }
        }
        self.finish(&waiting, ClientFrame::Message(message));
    }
}

/// Puts the identity of the connection in place of what the client wrote.
pub(crate) fn stamp(routed: &mut RoutedRequestHeader, bound: Bound) {
    routed.set_client(bound.client);
    routed.set_session(bound.epoch);
    routed.set_user_id(bound.user_id);
}

/// The request of a hashing job, as if it had just come in.
fn resume(waiting: Waiting) -> Option<(Request, HashJob)> {
    let Wait::Hashing(job) = waiting.wait else {
        return None;
    };
    let request = Request {
        connection: waiting.connection,
        frame: job.request.clone(),
        deadline: None,
    };
    Some((request, job))
}
