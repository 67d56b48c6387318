//! Sessions of credentials that write (chapter 08 section 2.4): each has one connection without a
//! socket, and on it one session in the replicated client table.
//!
//! Requests of a session are numbered from 1, and no number is used for two requests. Numbers and
//! the order of submission go together: a partition takes a number below the last one it saw for a
//! repetition, so both happen under one lock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use biplane_wire::response::LoginReply;
use biplane_wire::{ClientCode, ClientId, Codec as _, ErrorCode, EvictionReason};
use futures::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;

use super::Web;
use super::answer::Answer;
use super::ask::{self, Outcome};
use super::authenticate::now_seconds;
use super::call::Caller;
use crate::client::connection::{ClientEvent, ConnectionId, Handle};
use crate::client::http::HttpEvent;
use crate::client::reply::ClientFrame;
use crate::mailbox::Post;
use crate::runtime::{self, Receiver, Sender, bounded};

/// Answers that may lie in a session's box: more than it can have in flight.
const OUTBOX_CAPACITY: usize = 64;
/// How long a registration may take.
const REGISTER_LIMIT: Duration = Duration::from_secs(30);
/// Client ids that are tried when one belongs to somebody else.
const ID_ATTEMPTS: usize = 3;

/// All sessions of the listener.
pub(crate) struct Sessions {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    entries_max: usize,
}

/// The session of one credential, registered or not yet.
pub(crate) struct Entry {
    user_id: u32,
    expires: Option<u64>,
    /// Held by the one metadata write in progress.
    pub(crate) turn: AsyncMutex<()>,
    open: AsyncMutex<Option<Arc<Open>>>,
    /// Partition writes in flight.
    pub(crate) writes: AtomicUsize,
}

/// A registered session.
pub(crate) struct Open {
    connection: ConnectionId,
    client: ClientId,
    epoch: u64,
    numbers: AsyncMutex<u64>,
    waiting: Arc<Waiting>,
    events: Post<ClientEvent>,
}

#[derive(Default)]
struct Waiting {
    requests: Mutex<HashMap<u64, Sender<Outcome>>>,
    ended: AtomicBool,
}

impl Drop for Open {
    fn drop(&mut self) {
        let (events, id) = (self.events.clone(), self.connection);
        // The box may be full, and a connection that is never closed would never be freed.
        runtime::spawn(async move {
            events.send(ClientEvent::Closed { id }).await;
        });
    }
}

impl Sessions {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            entries: Mutex::new(HashMap::new()),
            entries_max,
        }
    }

    /// The entry of a credential.
    ///
    /// # Errors
    /// 503 when there are as many as there may be.
    pub(crate) fn entry(&self, caller: &Caller) -> Result<Arc<Entry>, Answer> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&caller.key) {
            return Ok(Arc::clone(entry));
        }
        if entries.len() >= self.entries_max {
            let now = now_seconds();
            entries.retain(|_, entry| entry.expires.is_none_or(|end| end >= now));
        }
        if entries.len() >= self.entries_max {
            return Err(Answer::no_answer());
        }
        let entry = Arc::new(Entry {
            user_id: caller.user_id,
            expires: caller.expires,
            turn: AsyncMutex::new(()),
            open: AsyncMutex::new(None),
            writes: AtomicUsize::new(0),
        });
        entries.insert(caller.key.clone(), Arc::clone(&entry));
        Ok(entry)
    }

    /// The entry of a credential, if there is one; it is forgotten.
    pub(crate) fn remove(&self, caller: &Caller) -> Option<Arc<Entry>> {
        self.entries.lock().remove(&caller.key)
    }

    /// Forgets an entry, unless another has taken its place.
    pub(crate) fn forget(&self, caller: &Caller, entry: &Arc<Entry>) {
        let mut entries = self.entries.lock();
        if entries
            .get(&caller.key)
            .is_some_and(|known| Arc::ptr_eq(known, entry))
        {
            entries.remove(&caller.key);
        }
    }
}

/// A request that was submitted.
pub(crate) struct Submitted {
    /// Its number.
    pub(crate) number: u64,
    answer: Receiver<Outcome>,
}

impl Submitted {
    /// Waits for the answer.
    pub(crate) async fn outcome(self, limit: Duration) -> Outcome {
        match runtime::timeout(limit, self.answer.recv()).await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None => Outcome::Nothing,
        }
    }
}

impl Open {
    /// Gives the request the next number and submits it.
    pub(crate) async fn submit(&self, code: ClientCode, body: &[u8]) -> Option<Submitted> {
        let mut last = self.numbers.lock().await;
        *last += 1;
        self.submit_as(code, body, *last).await
    }

    /// Submits the same request again.
    pub(crate) async fn submit_again(
        &self,
        code: ClientCode,
        body: &[u8],
        number: u64,
    ) -> Option<Submitted> {
        self.submit_as(code, body, number).await
    }

    async fn submit_as(&self, code: ClientCode, body: &[u8], number: u64) -> Option<Submitted> {
        let request = ask::frame(code, body, self.client, self.epoch, number)?;
        let (sender, answer) = bounded(1);
        {
            let mut requests = self.waiting.requests.lock();
            // Nobody waits any more for those that were given up.
            requests.retain(|_, sender| !sender.is_closed());
            requests.insert(number, sender);
        }
        if self.waiting.ended.load(Ordering::Acquire) {
            self.waiting.requests.lock().clear();
            return None;
        }
        let event = ClientEvent::Request {
            id: self.connection,
            request,
        };
        self.events.send(event).await.then_some(())?;
        Some(Submitted { number, answer })
    }

    /// True when its connection or its session has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.waiting.ended.load(Ordering::Acquire)
    }
}

/// Hands answers to those who wait for them, until the connection ends.
async fn distribute(replies: Receiver<ClientFrame>, waiting: Arc<Waiting>) {
    while let Ok(frame) = replies.recv().await {
        match ask::read_reply(frame) {
            (Some(number), outcome) => {
                if let Some(sender) = waiting.requests.lock().remove(&number) {
                    let _ = sender.try_send(outcome);
                }
            }
            (None, Outcome::Evicted(reason)) => {
                waiting.ended.store(true, Ordering::Release);
                for (_, sender) in waiting.requests.lock().drain() {
                    let _ = sender.try_send(Outcome::Evicted(reason));
                }
            }
            (None, _) => {}
        }
    }
    waiting.ended.store(true, Ordering::Release);
    waiting.requests.lock().clear();
}

impl Web {
    /// The registered session of an entry; registers it first if need be.
    ///
    /// # Errors
    /// The table of section 2.4.
    pub(crate) async fn open(
        &self,
        entry: &Entry,
        address: SocketAddr,
    ) -> Result<Arc<Open>, Answer> {
        let mut slot = entry.open.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.is_ended()) {
            return Ok(Arc::clone(open));
        }
        for _ in 0..ID_ATTEMPTS {
            match self.register(entry.user_id, address).await? {
                Some(open) => {
                    let open = Arc::new(open);
                    *slot = Some(Arc::clone(&open));
                    return Ok(open);
                }
                None => continue,
            }
        }
        Err(Answer::error(ErrorCode::InvalidClientId))
    }

    /// One attempt; `None` when the id belongs to somebody else.
    async fn register(&self, user_id: u32, address: SocketAddr) -> Result<Option<Open>, Answer> {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_err() {
            return Err(Answer::no_answer());
        }
        let client = ClientId(u128::from_le_bytes(random) | 1);
        let connection = self.next_connection();
        let (outbox, replies) = bounded(OUTBOX_CAPACITY);
        let event = HttpEvent::Register {
            id: connection,
            address,
            user_id,
            client,
            handle: Handle::without_socket(outbox),
        };
        if !self.events.send(ClientEvent::Http(event)).await {
            return Err(Answer::no_answer());
        }
        let mut open = Open {
            connection,
            client,
            epoch: 0,
            numbers: AsyncMutex::new(0),
            waiting: Arc::default(),
            events: self.events.clone(),
        };
        let outcome = match runtime::timeout(REGISTER_LIMIT, replies.recv()).await {
            Some(Ok(frame)) => ask::read_reply(frame).1,
            Some(Err(_)) | None => Outcome::Nothing,
        };
        match outcome {
            Outcome::Payload(body) => {
                let Ok(login) = LoginReply::decode(&body) else {
                    return Err(Answer::no_answer());
                };
                open.epoch = login.session;
                let waiting = Arc::clone(&open.waiting);
                runtime::spawn(distribute(replies, waiting));
                Ok(Some(open))
            }
            Outcome::Code(58) => Err(Answer::error(ErrorCode::TransientNotAccepted)),
            Outcome::Evicted(EvictionReason::SessionError) => Ok(None),
            Outcome::Code(_) | Outcome::Evicted(_) | Outcome::Nothing => Err(Answer::no_answer()),
        }
    }
}
