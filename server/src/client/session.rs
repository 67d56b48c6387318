//! What the node knows of each client connection, and which requests wait for an answer.
//!
//! A connection is served in order: one request to its answer, then the next. Partition writes are
//! the exception of chapter 07 section 3.3; they wait beside the queue.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use biplane_wire::response::TransportKind;
use biplane_wire::{ClientId, ErrorCode, GroupId, Message, Op, RequestHeader, Typed};

use super::connection::{ConnectionId, Handle};
use super::http::{FIRST_CONNECTION, Identified};
use super::reply::ClientFrame;
use crate::runtime::Sender;

/// Requests queued behind the one being served; beyond it the answer is 58.
const QUEUE_MAX: usize = 1024;

/// The identity a login gave a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Authenticated user.
    pub(crate) user_id: u32,
    /// Consensus client id.
    pub(crate) client: ClientId,
    /// Session epoch: the op of the Register.
    pub(crate) epoch: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// The other end.
    pub(crate) address: SocketAddr,
    /// How it came.
    pub(crate) transport: TransportKind,
    handle: Handle,
    /// Set by a login.
    pub(crate) bound: Option<Bound>,
    /// Reads wait until the node has applied this metadata op.
    pub(crate) watermark: Op,
    /// Consumer session a data connection acts for (code 14).
    pub(crate) attached: Option<Bound>,
    /// Tick of the last accepted frame.
    pub(crate) last_active: u64,
    /// Ends with its first answer.
    pub(crate) once: bool,
    queue: VecDeque<Typed<RequestHeader>>,
    busy: bool,
}

impl Session {
    /// Transport id (chapter 07 section 2.1); shard 0, so the connection number itself.
    pub(crate) fn transport_id(id: ConnectionId) -> ClientId {
        ClientId(u128::from(id))
    }

    /// The 32 bits shown to users.
    pub(crate) fn shown_id(id: ConnectionId) -> u32 {
        (id & u64::from(u32::MAX)) as u32
    }

    /// Whose group membership polls and offset writes are judged by.
    pub(crate) fn member(&self) -> Option<ClientId> {
        self.attached.or(self.bound).map(|bound| bound.client)
    }

    /// Raises the watermark.
    pub(crate) fn saw_commit(&mut self, op: Op) {
        self.watermark = self.watermark.max(op);
    }
}

/// Why a request waits.
#[derive(Debug)]
pub(crate) enum Wait {
    /// A login whose password is being verified.
    Credentials(super::login::Login),
    /// A login whose Register is on its way.
    Register {
        /// Bound on success.
        user_id: u32,
    },
    /// A question of the HTTP listener whose password is being verified.
    Identify {
        /// Who it would be.
        user_id: Option<u32>,
        /// Where the answer goes.
        answer: Sender<Result<Identified, ErrorCode>>,
    },
    /// A logout.
    Logout,
    /// A new password is being hashed; the metadata request follows.
    Hashing(super::writes::HashJob),
    /// A metadata operation.
    Metadata {
        /// A raw access token to put into the reply.
        token: Option<String>,
    },
    /// A partition write.
    Partition,
    /// A poll.
    Poll {
        /// Where.
        group: GroupId,
    },
    /// A read of a stored offset.
    Offset,
    /// A look at the host.
    Diagnosis,
}

/// A request that waits for an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its connection.
    pub(crate) connection: ConnectionId,
    /// Its header, to be echoed.
    pub(crate) header: Box<RequestHeader>,
    /// Its size, to be released.
    pub(crate) size: usize,
    /// Its connection serves nothing else meanwhile.
    pub(crate) ordered: bool,
    /// Why.
    pub(crate) wait: Wait,
}

/// A request that will be looked at again, until a deadline.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its connection.
    pub(crate) connection: ConnectionId,
    /// The request.
    pub(crate) request: Typed<RequestHeader>,
    /// Tick after which it is refused with 58.
    pub(crate) deadline: u64,
}

/// All connections of a node.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    sessions: BTreeMap<ConnectionId, Session>,
    by_client: HashMap<ClientId, ConnectionId>,
    waiting: HashMap<u64, Waiting>,
    held: Vec<Held>,
    ready: VecDeque<ConnectionId>,
    next_token: u64,
}

impl Clients {
    pub(crate) fn open(
        &mut self,
        id: ConnectionId,
        address: SocketAddr,
        transport: TransportKind,
        handle: Handle,
        tick: u64,
    ) {
        let session = Session {
            address,
            transport,
            handle,
            bound: None,
            watermark: Op::ZERO,
            attached: None,
            last_active: tick,
            once: false,
            queue: VecDeque::new(),
            busy: false,
        };
        self.sessions.insert(id, session);
    }

    /// Forgets a connection; returns what it was bound to.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Bound> {
        self.held.retain(|held| held.connection != id);
        let bound = self.sessions.remove(&id)?.bound;
        if let Some(bound) = bound
            && self.by_client.get(&bound.client) == Some(&id)
        {
            self.by_client.remove(&bound.client);
        }
        bound
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Connections that have a socket, in order of their age.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Session)> {
        let sockets = self.sessions.range(..FIRST_CONNECTION);
        sockets.map(|(id, session)| (*id, session))
    }

    /// How many of those there are.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Binds a connection after a login. A client bound elsewhere is unbound there.
    pub(crate) fn bind(&mut self, id: ConnectionId, bound: Bound) {
        if let Some(older) = self.by_client.insert(bound.client, id)
            && older != id
            && let Some(session) = self.sessions.get_mut(&older)
        {
            session.bound = None;
            session.attached = None;
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.bound = Some(bound);
            session.attached = None;
            session.saw_commit(Op(bound.epoch));
        }
    }

    /// Undoes [`Clients::bind`].
    pub(crate) fn unbind(&mut self, id: ConnectionId) -> Option<Bound> {
        let session = self.sessions.get_mut(&id)?;
        session.attached = None;
        let bound = session.bound.take()?;
        if self.by_client.get(&bound.client) == Some(&id) {
            self.by_client.remove(&bound.client);
        }
        Some(bound)
    }

    /// The connection `client` is bound on.
    pub(crate) fn bound_on(&self, client: ClientId) -> Option<ConnectionId> {
        self.by_client.get(&client).copied()
    }

    /// Queues a request behind what its connection is doing; gives it back when too many wait.
    pub(crate) fn enqueue(
        &mut self,
        id: ConnectionId,
        request: Typed<RequestHeader>,
    ) -> Result<(), Typed<RequestHeader>> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Ok(());
        };
        if session.queue.len() >= QUEUE_MAX {
            return Err(request);
        }
        session.queue.push_back(request);
        self.ready.push_back(id);
        Ok(())
    }

    /// The next request to serve: of a connection that is not busy.
    pub(crate) fn next_ready(&mut self) -> Option<(ConnectionId, Typed<RequestHeader>)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            if session.busy || session.queue.is_empty() || session.handle.is_clogged() {
                continue;
            }
            if let Some(request) = session.queue.pop_front() {
                if !session.queue.is_empty() {
                    self.ready.push_back(id);
                }
                return Some((id, request));
            }
        }
        None
    }

    /// A connection that had too much to write may go on.
    pub(crate) fn resume(&mut self, id: ConnectionId) {
        if self.sessions.contains_key(&id) {
            self.ready.push_back(id);
        }
    }

    /// Remembers a request until its answer comes; the token finds it again.
    pub(crate) fn wait(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        size: usize,
        ordered: bool,
        wait: Wait,
    ) -> u64 {
        self.next_token += 1;
        let waiting = Waiting {
            connection: id,
            header: Box::new(header),
            size,
            ordered,
            wait,
        };
        self.waiting.insert(self.next_token, waiting);
        if ordered {
            self.set_busy(id, true);
        }
        self.next_token
    }

    /// Puts a request back under a new reason; its connection stays as it was.
    pub(crate) fn wait_again(&mut self, waiting: Waiting) -> u64 {
        self.next_token += 1;
        self.waiting.insert(self.next_token, waiting);
        self.next_token
    }

    /// The request `token` stands for; it waits no longer.
    pub(crate) fn take(&mut self, token: u64) -> Option<Waiting> {
        self.waiting.remove(&token)
    }

    /// Looks at `request` again later; its connection serves nothing meanwhile.
    pub(crate) fn hold(&mut self, held: Held) {
        self.set_busy(held.connection, true);
        self.held.push(held);
    }

    /// Every held request, to be looked at again.
    pub(crate) fn take_held(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn set_busy(&mut self, id: ConnectionId, busy: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.busy = busy;
            if !busy && !session.queue.is_empty() {
                self.ready.push_back(id);
            }
        }
    }

    /// Sends the answer to a request of `size` bytes. `ordered` lets the connection go on.
    pub(crate) fn answer(
        &mut self,
        id: ConnectionId,
        size: usize,
        ordered: bool,
        frame: ClientFrame,
    ) {
        if let Some(session) = self.sessions.get(&id) {
            session.handle.send(frame);
            session.handle.release(size);
            if session.once {
                self.sessions.remove(&id);
                return;
            }
        }
        if ordered {
            self.set_busy(id, false);
        }
    }

    /// A request that gets no answer.
    pub(crate) fn drop_request(&mut self, id: ConnectionId, size: usize, ordered: bool) {
        if let Some(session) = self.sessions.get(&id) {
            session.handle.release(size);
            if session.once {
                self.sessions.remove(&id);
                return;
            }
        }
        if ordered {
            self.set_busy(id, false);
        }
    }

    /// Sends a frame that answers no request (an eviction).
    pub(crate) fn push(&self, id: ConnectionId, frame: ClientFrame) {
        if let Some(session) = self.sessions.get(&id) {
            session.handle.send(frame);
        }
    }

    /// Ends every connection after what is queued for it.
    pub(crate) fn close_all(&self) {
        for session in self.sessions.values() {
            session.handle.close();
        }
    }
}

/// Size of a request's frame.
pub(crate) fn size_of(request: &Typed<RequestHeader>) -> usize {
    let message: &Message = request.message();
    message.size()
}
