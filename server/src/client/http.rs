//! Requests that came over HTTP (chapter 08): they are served by the same dispatch as those of TCP
//! clients, on connections that have no socket.
//!
//! A read comes with the user who asks and lives on a connection of its own until it is answered.
//! A credential that writes gets a connection that stays, with a session in the replicated client
//! table; from there on its requests are ordinary [`ClientEvent`]s.
//!
//! [`ClientEvent`]: super::connection::ClientEvent

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use biplane_metadata_plane::options::Durability;
use biplane_metadata_plane::state::permissions::Action;
use biplane_metadata_plane::state::users::UserStatus;
use biplane_vsr::Status;
use biplane_wire::response::TransportKind;
use biplane_wire::{
    ClientId, Command, ErrorCode, Identifier, Name, Operation, RequestHeader, Typed,
};

use super::connection::{ConnectionId, Handle};
use super::session::{Bound, Wait, Waiting};
use crate::clock;
use crate::node::Node;
use crate::node::group_page::{GroupPage, GroupQuery};
use crate::node::report::NodeReport;
use crate::passwords::PasswordJob;
use crate::runtime::Sender;

/// Connections without a socket are numbered from here.
pub(crate) const FIRST_CONNECTION: ConnectionId = 1 << 62;

/// What somebody proves their identity with.
pub(crate) enum Credential {
    /// Name and password.
    Password {
        /// Name.
        username: String,
        /// Password.
        password: String,
    },
    /// The raw text of a personal access token.
    Token(String),
}

/// Who a credential belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identified {
    /// The user.
    pub(crate) user_id: u32,
    /// When the credential ends, microseconds since the epoch.
    pub(crate) expires: Option<u64>,
}

/// A stream or a topic by number or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnedIdentifier {
    /// Number.
    Numeric(u32),
    /// Name of 1 to 255 bytes.
    Named(String),
}

impl OwnedIdentifier {
    /// Borrowed; `None` when the name is no name.
    pub(crate) fn get(&self) -> Option<Identifier<'_>> {
        match self {
            Self::Numeric(id) => Some(Identifier::Numeric(*id)),
            Self::Named(name) => Name::new(name).ok().map(Identifier::Named),
        }
    }
}

/// What the HTTP listener asks of the node.
pub(crate) enum HttpEvent {
    /// Serve one read on behalf of a user.
    Read {
        /// Number of the connection that is made for it.
        id: ConnectionId,
        /// The caller's address.
        address: SocketAddr,
        /// The user.
        user_id: u32,
        /// The request.
        request: Typed<RequestHeader>,
        /// Where the answer goes.
        handle: Handle,
    },
    /// Open a connection that stays, and register a session on it.
    Register {
        /// Its number.
        id: ConnectionId,
        /// The caller's address.
        address: SocketAddr,
        /// The user.
        user_id: u32,
        /// The id in the client table.
        client: ClientId,
        /// Where answers go; the first is that of a login.
        handle: Handle,
    },
    /// Who is this?
    Identify {
        /// The credential.
        credential: Credential,
        /// Where the answer goes.
        answer: Sender<Result<Identified, ErrorCode>>,
    },
    /// May this user send there, and what does the topic promise?
    MaySend {
        /// The user.
        user_id: u32,
        /// The stream.
        stream: OwnedIdentifier,
        /// The topic.
        topic: OwnedIdentifier,
        /// Where the answer goes.
        answer: Sender<Result<Durability, ErrorCode>>,
    },
    /// What does the node look like? For those who may read servers.
    Report {
        /// The user; `None` asks for no permission.
        user_id: Option<u32>,
        /// Where the answer goes.
        answer: Sender<Result<Box<NodeReport>, ErrorCode>>,
    },
    /// Which partition groups are there, and who leads them? For those who may read servers.
    Groups {
        /// The user.
        user_id: u32,
        /// Which of them.
        query: GroupQuery,
        /// Where the answer goes.
        answer: Sender<Result<GroupPage, ErrorCode>>,
    },
}

/// What the HTTP listener may know of the node without asking.
#[derive(Debug, Default)]
pub(crate) struct Glance {
    view: AtomicU32,
    primary: AtomicU8,
    is_primary: AtomicBool,
    is_normal: AtomicBool,
    recovered: AtomicBool,
    ready: AtomicBool,
}

impl Glance {
    /// View of the metadata group.
    pub(crate) fn view(&self) -> u32 {
        self.view.load(Ordering::Relaxed)
    }

    /// Replica that leads the metadata group; `None` while that is being decided.
    pub(crate) fn primary(&self) -> Option<u8> {
        self.is_normal
            .load(Ordering::Relaxed)
            .then(|| self.primary.load(Ordering::Relaxed))
    }

    /// This node is that replica.
    pub(crate) fn is_primary(&self) -> bool {
        self.is_primary.load(Ordering::Relaxed)
    }

    /// What was found in the log at boot is applied.
    pub(crate) fn is_recovered(&self) -> bool {
        self.recovered.load(Ordering::Relaxed)
    }

    /// The node serves everything it holds.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

impl Node {
    /// Brings what others may see up to date.
    pub(crate) fn update_glance(&self, ready: bool) {
        let status = self.metadata.replica().status();
        let glance: &Arc<Glance> = &self.glance;
        glance.view.store(status.view.0, Ordering::Relaxed);
        glance.primary.store(status.primary.0, Ordering::Relaxed);
        glance.is_primary.store(
            status.is_primary && status.status == Status::Normal,
            Ordering::Relaxed,
        );
        let normal = status.status == Status::Normal;
        glance.is_normal.store(normal, Ordering::Relaxed);
        if normal && self.metadata.is_topology_settled() {
            // It cannot become untrue again: what was found is applied.
            glance.recovered.store(true, Ordering::Relaxed);
        }
        glance.ready.store(ready, Ordering::Relaxed);
    }

    /// Takes what the HTTP listener asks.
    pub(crate) fn on_http(&mut self, event: HttpEvent) {
        match event {
            HttpEvent::Read {
                id,
                address,
                user_id,
                request,
                handle,
            } => {
                self.clients
                    .open(id, address, TransportKind::Http, handle, self.tick);
                if let Some(session) = self.clients.get_mut(id) {
                    session.once = true;
                    // No session of consensus: reads need none.
                    session.bound = Some(Bound {
                        user_id,
                        client: super::session::Session::transport_id(id),
                        epoch: 0,
                    });
                }
                // The queue of a new connection has room.
                let _ = self.clients.enqueue(id, request);
            }
            HttpEvent::Register {
                id,
                address,
                user_id,
                client,
                handle,
            } => {
                self.clients
                    .open(id, address, TransportKind::Http, handle, self.tick);
                self.clients.set_busy(id, true);
                let mut header = RequestHeader::new(Command::Request);
                header.set_client(client);
                header.set_operation(Operation::Register);
                let waiting = Waiting {
                    connection: id,
                    header: Box::new(header),
                    size: 0,
                    ordered: true,
                    wait: Wait::Logout,
                };
                self.register(waiting, user_id);
            }
            HttpEvent::Identify { credential, answer } => self.identify(credential, answer),
            HttpEvent::MaySend {
                user_id,
                stream,
                topic,
                answer,
            } => {
                let _ = answer.try_send(self.may_send(user_id, &stream, &topic));
            }
            HttpEvent::Report { user_id, answer } => {
                let allowed = user_id.map_or(Ok(()), |user| self.may_read_servers(user));
                let _ = answer.try_send(allowed.map(|()| Box::new(self.report())));
            }
            HttpEvent::Groups {
                user_id,
                query,
                answer,
            } => {
                let allowed = self.may_read_servers(user_id);
                let _ = answer.try_send(allowed.map(|()| self.group_page(&query)));
            }
        }
    }

    fn may_send(
        &self,
        user_id: u32,
        stream: &OwnedIdentifier,
        topic: &OwnedIdentifier,
    ) -> Result<Durability, ErrorCode> {
        let unknown = ErrorCode::ResourceNotFound;
        let (stream, topic) = stream.get().zip(topic.get()).ok_or(unknown)?;
        let state = self.metadata.state();
        let found = state.streams().topic(&stream, &topic);
        let (stream, topic) = found.map_err(|_| unknown)?;
        state.authorize(user_id, Action::Send(stream.id, topic.id))?;
        Ok(topic.settings().durability)
    }

    fn identify(&mut self, credential: Credential, answer: Sender<Result<Identified, ErrorCode>>) {
        match credential {
            Credential::Token(token) => {
                let _ = answer.try_send(self.user_of_token(&token));
            }
            Credential::Password { username, password } => {
                let user = self.possible_user(&username, &password);
                let wait = Wait::Identify {
                    user_id: user.as_ref().map(|(id, _)| *id),
                    answer,
                };
                let header = RequestHeader::new(Command::Request);
                let token = self.clients.wait(FIRST_CONNECTION, header, 0, false, wait);
                let hash = user.map(|(_, hash)| hash);
                let job = PasswordJob::Verify {
                    token,
                    hash,
                    password,
                };
                if self.passwords.submit(job).is_err()
                    && let Some(waiting) = self.clients.take(token)
                    && let Wait::Identify { answer, .. } = waiting.wait
                {
                    let _ = answer.try_send(Err(ErrorCode::TransientNotAccepted));
                }
            }
        }
    }

    fn user_of_token(&self, token: &str) -> Result<Identified, ErrorCode> {
        let hash = blake3::hash(token.as_bytes()).to_hex();
        let users = self.metadata.state().users();
        let now = clock::wall_micros();
        let (owner, token) = users
            .token_by_hash(hash.as_str())
            .filter(|(_, token)| token.expiry.is_none_or(|expiry| expiry > now))
            .ok_or(ErrorCode::InvalidPersonalAccessToken)?;
        let user = users.by_id().get(&owner);
        match user.map(|user| user.status) {
            Some(UserStatus::Active) => Ok(Identified {
                user_id: owner,
                expires: token.expiry,
            }),
            Some(UserStatus::Inactive) => Err(ErrorCode::UserInactive),
            None => Err(ErrorCode::InvalidPersonalAccessToken),
        }
    }

    /// The password threads have answered a question of the HTTP listener.
    pub(crate) fn on_identified(
        user_id: Option<u32>,
        answer: &Sender<Result<Identified, ErrorCode>>,
        matches: bool,
    ) {
        let identified = user_id.filter(|_| matches).map(|user_id| Identified {
            user_id,
            expires: None,
        });
        let _ = answer.try_send(identified.ok_or(ErrorCode::InvalidCredentials));
    }
}
