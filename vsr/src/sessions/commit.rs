//! How committed ops change the table (chapter 03 sections 7.2, 7.4 to 7.6).
//!
//! Everything here runs on every replica with the same arguments, so nothing may look at what
//! only one of them knows. Cache first, deliver after.

use biplane_wire::{ClientId, Message, PrepareHeader, RequestNumber};

use super::fences::Fence;
use super::{ClientTable, REQUEST_DISCONNECT, Session, reply_header};

/// What a committed register did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The session number of the client from now on.
    pub epoch: u64,
    /// Highest request it ever committed under this client id.
    pub watermark: RequestNumber,
    /// The client that lost its slot for it.
    pub evicted: Option<ClientId>,
}

/// What became of the reply of a committed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// In the session's ring.
    InSession,
    /// In the fence of a session that ended meanwhile.
    InFence,
    /// Nowhere: there is nobody to keep it for, or something newer is kept.
    Nowhere,
}

impl ClientTable {
    /// A register committed. `reply` is the reply frame to it, request number 0.
    ///
    /// # Panics
    ///
    /// When `reply` is not a reply frame: replies are built by our own code.
    pub fn commit_register(&mut self, prepare: &PrepareHeader, reply: Message) -> Registered {
        assert!(
            reply_header(&reply).request() == RequestNumber(0),
            "a register has number 0"
        );
        let (client, epoch) = (prepare.client(), prepare.op().0);
        if let Some(session) = self.get_mut(client) {
            session.epoch = epoch;
            session.user_id = prepare.user_id();
            session
                .ring
                .retain(|old| reply_header(old).request() != RequestNumber(0));
            session.push_reply(reply);
            return Registered {
                epoch,
                watermark: session.watermark,
                evicted: None,
            };
        }
        let fence = self.fences.take(client, prepare.user_id());
        let evicted = if self.len() == self.capacity() {
            self.evict()
        } else {
            None
        };
        let (watermark, watermark_checksum, remembered) = match fence {
            Some(fence) => (fence.watermark, fence.watermark_checksum, fence.reply),
            None => Default::default(),
        };
        let mut ring: Vec<Message> = Vec::with_capacity(super::RING_MAX);
        ring.extend(remembered);
        ring.push(reply);
        let mut session = Session {
            client,
            epoch,
            user_id: prepare.user_id(),
            watermark,
            watermark_checksum,
            ring,
            latest_commit: 0,
        };
        session.refresh_latest_commit();
        self.occupy(session);
        Registered {
            epoch,
            watermark,
            evicted,
        }
    }

    /// A request committed with this reply.
    pub fn commit_request(&mut self, prepare: &PrepareHeader, reply: &Message) -> Cached {
        let (client, request) = (prepare.client(), prepare.request());
        let Some(session) = self.get_mut(client) else {
            return self.commit_in_fence(prepare, reply);
        };
        let is_late = prepare.op().0 < session.latest_commit || request < session.watermark;
        if is_late {
            return Cached::Nowhere;
        }
        let is_again = |old: &Message| reply_header(old).request() == request;
        if request == session.watermark {
            match session.ring.iter_mut().find(|old| is_again(old)) {
                Some(old) => *old = reply.clone(),
                None => session.push_reply(reply.clone()),
            }
        } else {
            session.push_reply(reply.clone());
            session.watermark = request;
        }
        session.watermark_checksum = prepare.request_checksum();
        session.refresh_latest_commit();
        Cached::InSession
    }

    fn commit_in_fence(&mut self, prepare: &PrepareHeader, reply: &Message) -> Cached {
        let Some(fence) = self.fences.get_mut(prepare.client(), prepare.user_id()) else {
            return Cached::Nowhere;
        };
        if prepare.request() < fence.watermark {
            return Cached::Nowhere;
        }
        fence.watermark = prepare.request();
        fence.watermark_checksum = prepare.request_checksum();
        fence.reply = Some(reply.clone());
        Cached::InFence
    }

    /// A logout committed; the session that ended. The caller takes the client out of its
    /// consumer groups in the same commit.
    pub fn commit_logout(&mut self, prepare: &PrepareHeader) -> Option<Session> {
        let client = prepare.client();
        let session = self.vacate(client);
        if prepare.request() == REQUEST_DISCONNECT {
            // The client did not say goodbye and may come back.
            if let Some(fence) = session.as_ref().and_then(Fence::of) {
                self.fences.push(fence);
            }
            return session;
        }
        let owner = session
            .as_ref()
            .map_or(prepare.user_id(), |session| session.user_id);
        if owner != 0 {
            self.fences.take(client, owner);
        }
        session
    }

    /// Frees the slot of the session whose newest reply is the oldest; ties go to the lowest
    /// slot. Its client learns it from its next request.
    fn evict(&mut self) -> Option<ClientId> {
        let victim = self
            .sessions()
            .min_by_key(|(slot, session)| (session.latest_commit, *slot));
        let client = victim?.1.client;
        let session = self.vacate(client)?;
        if let Some(fence) = Fence::of(&session) {
            self.fences.push(fence);
        }
        Some(client)
    }

    fn vacate(&mut self, client: ClientId) -> Option<Session> {
        let slot = self.index.remove(&client)?;
        self.free_from = self.free_from.min(slot);
        self.slots.get_mut(slot)?.take()
    }

    /// Puts a session into the lowest free slot.
    fn occupy(&mut self, session: Session) {
        while self.slots.get(self.free_from).is_some_and(Option::is_some) {
            self.free_from += 1;
        }
        let slot = self.free_from;
        assert!(slot < self.slots.len(), "a full table evicts first");
        self.place(slot, session);
        self.free_from += 1;
    }

    pub(super) fn place(&mut self, slot: usize, session: Session) {
        assert!(self.slots[slot].is_none(), "the slot is free");
        let previous = self.index.insert(session.client, slot);
        assert!(previous.is_none(), "a client has one session");
        self.slots[slot] = Some(session);
    }
}
