//! The table of client sessions: part of the replicated state of the metadata group
//! (chapter 03 section 7).
//!
//! It is a function of the committed log alone, so every replica holds the same one: what a
//! client was told, up to which request it got, and under which epoch it may go on. What is in
//! flight is known to the primary only and never enters. Which slot a session has matters,
//! because ties in the choice of whom to evict are broken by it.
//!
//! ```text
//!   register, request, logout     ──► commit_*   ──► slots and fences ──► encode / snapshot
//!   request before it is prepared ──► check      ──► new, replay, refuse, drop
//! ```

mod codec;
mod commit;
mod fences;

use std::collections::BTreeMap;

use biplane_wire::{Checksum, ClientId, Message, ReplyHeader, RequestNumber};
use thiserror::Error;

pub use codec::{SlotSnapshot, TableDecodeError};
pub use commit::{Cached, Registered};
pub use fences::Fence;

use fences::Fences;

use crate::mutation::mutated;

/// Most slots a table can have.
pub const SLOTS_MAX: usize = 65_536;
/// Fewest slots a table can have.
pub const SLOTS_MIN: usize = 2;
/// Replies kept per session.
pub const RING_MAX: usize = 5;
/// Request number of a logout the server issues when a connection is gone.
pub const REQUEST_DISCONNECT: RequestNumber = RequestNumber(u64::MAX);

/// The session of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The client.
    pub client: ClientId,
    /// Op of its latest committed register; what its requests must carry as session.
    pub epoch: u64,
    /// Who logged in.
    pub user_id: u32,
    /// Highest committed request number; zero when there was none.
    pub watermark: RequestNumber,
    /// Request checksum of that request; zero when unstamped.
    pub watermark_checksum: Checksum,
    /// Cached replies, oldest first, request numbers unique; the register reply has number 0.
    ring: Vec<Message>,
    /// Commit of the newest reply: who has the lowest is evicted first.
    latest_commit: u64,
}

impl Session {
    /// Cached replies, oldest first.
    #[must_use]
    pub fn replies(&self) -> &[Message] {
        &self.ring
    }

    /// The newest cached reply.
    ///
    /// # Panics
    ///
    /// Never: a session has at least the reply that registered it.
    #[must_use]
    pub fn latest_reply(&self) -> &Message {
        self.ring
            .last()
            .expect("a session holds at least one reply")
    }

    /// Commit of the newest reply.
    #[must_use]
    pub fn latest_commit(&self) -> u64 {
        self.latest_commit
    }

    fn reply(&self, request: RequestNumber) -> Option<&Message> {
        self.ring
            .iter()
            .find(|reply| reply_header(reply).request() == request)
    }

    fn push_reply(&mut self, reply: Message) {
        if self.ring.len() == RING_MAX {
            self.ring.remove(0);
        }
        self.ring.push(reply);
        self.refresh_latest_commit();
    }

    fn refresh_latest_commit(&mut self) {
        self.latest_commit = reply_header(self.latest_reply()).commit().0;
    }
}

pub(crate) fn reply_header(reply: &Message) -> &ReplyHeader {
    reply.header()
}

/// What to do with a request before it is prepared (chapter 03 section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check<'a> {
    /// Not seen before: prepare it.
    New,
    /// The client has no session: evict it (reason 1).
    NoSession,
    /// The client logged in again since: evict it (reason 7).
    SessionTooLow,
    /// Say nothing.
    Drop(DropReason),
    /// Answered before with exactly these bytes.
    Replay(&'a Message),
    /// Answered before, and the answer is gone (code 59).
    AlreadyApplied,
}

/// Why a request is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its epoch is ahead of this table, which may be behind.
    EpochAhead,
    /// Its number was used for other content.
    NumberReused,
}

/// The client id belongs to another user; terminal for the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the client id is registered by user {owner}")]
pub struct OwnedByAnother {
    /// The other user.
    pub owner: u32,
}

/// The client table.
#[derive(Clone, Debug)]
pub struct ClientTable {
    slots: Vec<Option<Session>>,
    index: BTreeMap<ClientId, usize>,
    /// No slot below this one is free.
    free_from: usize,
    fences: Fences,
}

impl ClientTable {
    /// An empty table of `capacity` slots, a value all replicas must share because it decides
    /// who is evicted.
    ///
    /// # Panics
    ///
    /// When the capacity is not in 2..=65536.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(
            (SLOTS_MIN..=SLOTS_MAX).contains(&capacity),
            "a table has 2 to 65536 slots"
        );
        Self {
            slots: vec![None; capacity],
            index: BTreeMap::new(),
            free_from: 0,
            fences: Fences::new(capacity),
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The session of a client.
    #[must_use]
    pub fn get(&self, client: ClientId) -> Option<&Session> {
        self.slots.get(*self.index.get(&client)?)?.as_ref()
    }

    fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.slots.get_mut(*self.index.get(&client)?)?.as_mut()
    }

    /// Slot numbers and sessions, ascending by slot.
    pub fn sessions(&self) -> impl Iterator<Item = (usize, &Session)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, held)| Some((slot, held.as_ref()?)))
    }

    /// Fences, oldest first.
    pub fn fences(&self) -> impl Iterator<Item = &Fence> {
        self.fences.iter()
    }

    /// Whether a client may register as this user. Ask only when the applied state is current
    /// (the caught-up primary).
    ///
    /// # Errors
    ///
    /// [`OwnedByAnother`] when another user holds the session.
    pub fn check_register(&self, client: ClientId, user_id: u32) -> Result<(), OwnedByAnother> {
        match self.get(client) {
            Some(session) if session.user_id != user_id => Err(OwnedByAnother {
                owner: session.user_id,
            }),
            _ => Ok(()),
        }
    }

    /// What a request is to this table. The epoch is looked at before the number: a client whose
    /// session is over must learn it even if the number looks like a repetition.
    #[must_use]
    pub fn check(
        &self,
        client: ClientId,
        epoch: u64,
        request: RequestNumber,
        request_checksum: Checksum,
    ) -> Check<'_> {
        let Some(session) = self.get(client) else {
            return Check::NoSession;
        };
        if epoch < session.epoch && !mutated!(EpochIgnored) {
            return Check::SessionTooLow;
        }
        if epoch > session.epoch {
            return Check::Drop(DropReason::EpochAhead);
        }
        if request > session.watermark || mutated!(DuplicateExecuted) {
            return Check::New;
        }
        let is_watermark = request == session.watermark;
        if is_watermark && conflicts(request_checksum, session.watermark_checksum) {
            return Check::Drop(DropReason::NumberReused);
        }
        match session.reply(request) {
            Some(reply) => {
                if conflicts(request_checksum, reply_header(reply).request_checksum()) {
                    return Check::Drop(DropReason::NumberReused);
                }
                Check::Replay(reply)
            }
            None => Check::AlreadyApplied,
        }
    }

    /// The user a logout of this client and epoch acts for: the session's, else that of a fence
    /// with this epoch, else nobody (0).
    #[must_use]
    pub fn owner(&self, client: ClientId, epoch: u64) -> u32 {
        match self.get(client) {
            Some(session) => session.user_id,
            None => self
                .fences
                .with_epoch(client, epoch)
                .map_or(0, |fence| fence.user_id),
        }
    }

    /// Panics when the table contradicts itself.
    ///
    /// # Panics
    ///
    /// On the first invariant that does not hold.
    pub fn check_invariants(&self) {
        assert!(
            self.index.len() == self.sessions().count(),
            "one slot per client"
        );
        for (slot, session) in self.sessions() {
            assert!(
                self.index.get(&session.client) == Some(&slot),
                "the index is right"
            );
            assert!(
                (1..=RING_MAX).contains(&session.ring.len()),
                "1 to 5 replies"
            );
            let latest = reply_header(session.latest_reply()).commit().0;
            assert!(
                session.latest_commit == latest,
                "eviction looks at the newest reply"
            );
        }
        let occupied = self.slots.iter().take(self.free_from);
        assert!(
            occupied.into_iter().all(Option::is_some),
            "the first free slot is not passed"
        );
        self.fences.check_invariants();
    }
}

/// Two stamped checksums that differ; an unstamped one conflicts with nothing.
fn conflicts(one: Checksum, other: Checksum) -> bool {
    !one.is_zero() && !other.is_zero() && one != other
}

#[cfg(test)]
mod tests;
