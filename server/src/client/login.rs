//! Login and logout (chapter 07 section 4): who is it, may this version talk to us, and which
//! session is theirs.
//!
//! Both logins are one operation; the body's shape tells them apart, the password shape first.
//! Passwords are verified on threads of their own, tokens are looked up by their hash.

use std::sync::Arc;

use biplane_metadata_plane::io::{DISCONNECT_REQUEST, Input, LogoutOutcome, RegisterOutcome};
use biplane_metadata_plane::state::users::UserStatus;
use biplane_wire::request::Login as LoginBody;
use biplane_wire::response::LoginReply;
use biplane_wire::{
    ClientId, Codec as _, ErrorCode, EvictionReason, Name, Op, Operation, ProtocolVersion, result,
};
use tracing::debug;

use super::connection::ConnectionId;
use super::dispatch::Request;
use super::reply::{self, ClientFrame, Position};
use super::session::{Bound, Wait, Waiting};
use crate::clock;
use crate::node::{Node, SERVER_VERSION};
use crate::passwords::PasswordJob;

const USERNAME_BYTES: std::ops::RangeInclusive<usize> = 3..=50;
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;

/// A login that waits for its password to be verified.
#[derive(Debug)]
pub(crate) struct Login {
    /// Who it would be.
    user_id: Option<u32>,
    /// The token the same body would be, if it can be read as one.
    token: Option<String>,
}

impl Node {
    /// Operation 1.
    pub(crate) fn log_in(&mut self, request: Request) {
        let client = request.header().client();
        let Ok(body) = LoginBody::decode(request.frame.body()) else {
            return self.evict_login(&request, client, EvictionReason::MalformedLogin);
        };
        if !body.version.protocol.is_accepted() {
            let reason = EvictionReason::IncompatibleProtocol;
            return self.evict_login(&request, client, reason);
        }
        let token = body
            .token()
            .ok()
            .map(|shape| shape.token.as_str().to_owned());
        match body.password() {
            Ok(shape) => {
                let (username, password) = (shape.username.as_str(), shape.password.as_str());
                let user = self.possible_user(username, password);
                let login = Login {
                    user_id: user.as_ref().map(|(id, _)| *id),
                    token,
                };
                let hash = user.map(|(_, hash)| hash);
                let password = password.to_owned();
                self.verify(&request, login, hash, password);
            }
            Err(_) => match token {
                Some(token) => {
                    let waiting = self.waiting(&request, Wait::Logout);
                    self.log_in_by_token(waiting, &token, EvictionReason::InvalidToken);
                }
                None => self.evict_login(&request, client, EvictionReason::MalformedLogin),
            },
        }
    }

    /// An active user of this name with the hash of the password; `None` also when no user could
    /// have such a name or password.
    pub(super) fn possible_user(&self, username: &str, password: &str) -> Option<(u32, Arc<str>)> {
        let possible =
            USERNAME_BYTES.contains(&username.len()) && PASSWORD_BYTES.contains(&password.len());
        let users = self.metadata.state().users();
        users
            .by_name(username)
            .filter(|user| possible && user.status == UserStatus::Active)
            .map(|user| (user.id, Arc::from(user.password_hash.as_str())))
    }

    fn verify(
        &mut self,
        request: &Request,
        login: Login,
        hash: Option<Arc<str>>,
        password: String,
    ) {
        let header = request.header();
        let wait = Wait::Credentials(login);
        let token = self
            .clients
            .wait(request.connection, header, request.size(), true, wait);
        if self
            .passwords
            .submit(PasswordJob::Verify {
                token,
                hash,
                password,
            })
            .is_err()
            && let Some(waiting) = self.clients.take(token)
        {
            self.login_transient(&waiting, ErrorCode::TransientNotAccepted);
        }
    }

    /// A request as it is remembered, with its connection marked busy.
    fn waiting(&mut self, request: &Request, wait: Wait) -> Waiting {
        self.clients.set_busy(request.connection, true);
        Waiting {
            connection: request.connection,
            header: Box::new(request.header()),
            size: request.size(),
            ordered: true,
            wait,
        }
    }

    /// The password threads have answered.
    pub(crate) fn on_verified(&mut self, waiting: Waiting, login: Login, matches: bool) {
        match (matches, login.user_id, login.token) {
            (true, Some(user_id), _) => self.register(waiting, user_id),
            (_, _, Some(token)) => {
                // A body that reads as both shapes: what the password refused, a token may grant.
                self.log_in_by_token(waiting, &token, EvictionReason::InvalidCredentials);
            }
            _ => self.evict_waiting(&waiting, EvictionReason::InvalidCredentials),
        }
    }

    /// Looks the token up; `unknown` is the reason when there is none.
    fn log_in_by_token(&mut self, waiting: Waiting, token: &str, unknown: EvictionReason) {
        let hash = blake3::hash(token.as_bytes()).to_hex();
        let users = self.metadata.state().users();
        let now = clock::wall_micros();
        let found = users
            .token_by_hash(hash.as_str())
            .filter(|(_, token)| token.expiry.is_none_or(|expiry| expiry > now))
            .and_then(|(owner, _)| users.by_id().get(&owner));
        match found.map(|user| (user.id, user.status == UserStatus::Active)) {
            Some((user_id, true)) => self.register(waiting, user_id),
            Some((_, false)) => self.evict_waiting(&waiting, EvictionReason::UserInactive),
            None => self.evict_waiting(&waiting, unknown),
        }
    }

    /// The credentials are good. A bound connection keeps its session, whoever logged in.
    pub(super) fn register(&mut self, mut waiting: Waiting, user_id: u32) {
        let session = self.clients.get(waiting.connection);
        if let Some(bound) = session.and_then(|session| session.bound) {
            return self.login_succeeded(&waiting, bound);
        }
        let client = waiting.header.client();
        waiting.wait = Wait::Register { user_id };
        let token = self.clients.wait_again(waiting);
        self.step_metadata(Input::Register {
            token,
            client,
            user_id,
        });
    }

    /// The metadata plane has answered a Register.
    pub(crate) fn on_registered(&mut self, waiting: Waiting, outcome: RegisterOutcome) {
        let Wait::Register { user_id } = waiting.wait else {
            return;
        };
        match outcome {
            RegisterOutcome::Registered { session, .. } => {
                let client = waiting.header.client();
                let bound = Bound {
                    user_id,
                    client,
                    epoch: session,
                };
                if self.clients.get(waiting.connection).is_some() {
                    self.clients.bind(waiting.connection, bound);
                    self.login_succeeded(&waiting, bound);
                } else {
                    // The connection went away while its Register was on its way.
                    self.log_out_lost(bound);
                }
            }
            RegisterOutcome::Transient(code) => self.login_transient(&waiting, code),
            RegisterOutcome::OwnedByAnotherUser => {
                self.evict_waiting(&waiting, EvictionReason::SessionError);
            }
        }
    }

    fn login_succeeded(&mut self, waiting: &Waiting, bound: Bound) {
        debug!(
            connection = waiting.connection,
            user = bound.user_id,
            "logged in"
        );
        let body = LoginReply {
            user_id: bound.user_id,
            session: bound.epoch,
            protocol_version: ProtocolVersion::CURRENT.0,
            server_version: Name::new(SERVER_VERSION).expect("the version is a name"),
        };
        let body = result::success(&body.encode());
        let commit = self.metadata.commit_min().max(Op(bound.epoch));
        let position = Position {
            op: bound.epoch,
            commit,
        };
        let frame = reply::success(&waiting.header, bound.client, position, &body);
        self.finish(waiting, frame);
    }

    fn login_transient(&mut self, waiting: &Waiting, code: ErrorCode) {
        let commit = self.metadata.commit_min();
        let position = Position {
            op: commit.0,
            commit,
        };
        let client = waiting.header.client();
        let frame = reply::rejection(&waiting.header, Operation::Register, client, position, code);
        self.finish(waiting, frame);
    }

    fn evict_login(&mut self, request: &Request, client: ClientId, reason: EvictionReason) {
        let frame = reply::eviction(&self.identity, self.metadata_view(), client, reason);
        self.answer(request, frame);
    }

    /// Answers a waiting login with an eviction that names its client.
    pub(crate) fn evict_waiting(&mut self, waiting: &Waiting, reason: EvictionReason) {
        let client = waiting.header.client();
        let frame = reply::eviction(&self.identity, self.metadata_view(), client, reason);
        self.finish(waiting, frame);
    }

    /// Sends the answer of a request that waited.
    pub(crate) fn finish(&mut self, waiting: &Waiting, frame: ClientFrame) {
        self.clients
            .answer(waiting.connection, waiting.size, waiting.ordered, frame);
    }

    /// Operation 3 on a bound connection.
    pub(crate) fn log_out(&mut self, request: Request, bound: Bound) {
        let header = request.header();
        let token = self.clients.wait(
            request.connection,
            header,
            request.size(),
            true,
            Wait::Logout,
        );
        self.step_metadata(Input::Logout {
            token,
            client: bound.client,
            session: bound.epoch,
            request: header.request().0,
        });
    }

    /// A connection with a session ended: its session ends too, as well as that can be done.
    pub(crate) fn log_out_lost(&mut self, bound: Bound) {
        self.step_metadata(Input::Logout {
            token: 0,
            client: bound.client,
            session: bound.epoch,
            request: DISCONNECT_REQUEST,
        });
    }

    /// The metadata plane has answered a logout.
    pub(crate) fn on_logged_out(&mut self, waiting: &Waiting, outcome: LogoutOutcome) {
        let session = self
            .clients
            .get(waiting.connection)
            .and_then(|session| session.bound);
        let op = session.map_or(0, |bound| bound.epoch);
        let client = waiting.header.client();
        let frame = match outcome {
            LogoutOutcome::LoggedOut { commit } => {
                self.clients.unbind(waiting.connection);
                let commit = commit.max(self.metadata.commit_min());
                reply::success(&waiting.header, client, Position { op, commit }, &[])
            }
            LogoutOutcome::Transient(code) => {
                let position = Position {
                    op: 0,
                    commit: self.metadata.commit_min(),
                };
                reply::status(&waiting.header, client, position, code)
            }
        };
        self.finish(waiting, frame);
    }

    /// A session began or ended in the committed log: connections of an earlier one are unbound.
    pub(crate) fn unbind_older(&mut self, client: ClientId, epoch: Option<u64>) {
        let Some(connection): Option<ConnectionId> = self.clients.bound_on(client) else {
            return;
        };
        let bound = self
            .clients
            .get(connection)
            .and_then(|session| session.bound);
        let older = match (bound, epoch) {
            (Some(bound), Some(epoch)) => bound.epoch < epoch,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if older {
            self.clients.unbind(connection);
        }
    }
}
