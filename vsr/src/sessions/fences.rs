//! Fences: what remains of a session that lost its slot, so that its user can come back without
//! having requests executed twice (chapter 03 section 7.1).

use std::collections::{BTreeSet, VecDeque};

use biplane_wire::{Checksum, ClientId, Message, RequestNumber};

use super::Session;

/// The memory of a session without a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The client.
    pub client: ClientId,
    /// Epoch of the session that ended.
    pub epoch: u64,
    /// Its user. A fence is never handed to another one.
    pub user_id: u32,
    /// Highest committed request number.
    pub watermark: RequestNumber,
    /// Request checksum of that request.
    pub watermark_checksum: Checksum,
    /// The reply to that request, if it was still cached.
    pub reply: Option<Message>,
}

impl Fence {
    /// What to remember of a session; nothing when it never committed a request.
    pub(super) fn of(session: &Session) -> Option<Self> {
        if session.watermark == RequestNumber(0) {
            return None;
        }
        Some(Self {
            client: session.client,
            epoch: session.epoch,
            user_id: session.user_id,
            watermark: session.watermark,
            watermark_checksum: session.watermark_checksum,
            reply: session.reply(session.watermark).cloned(),
        })
    }
}

/// All fences, oldest first: at most one per client and user, at most one per slot.
#[derive(Clone, Debug)]
pub(super) struct Fences {
    capacity: usize,
    queue: VecDeque<Fence>,
}

impl Fences {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Fence> {
        self.queue.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds the youngest fence, in place of an older one of the same client and user.
    pub(super) fn push(&mut self, fence: Fence) {
        self.queue
            .retain(|old| (old.client, old.user_id) != (fence.client, fence.user_id));
        self.queue.push_back(fence);
        self.trim();
    }

    /// Fences that were stored, oldest first. The youngest of a client and user counts.
    pub(super) fn load(&mut self, stored: Vec<Fence>) {
        let mut seen = BTreeSet::new();
        for fence in stored.into_iter().rev() {
            if seen.insert((fence.client, fence.user_id)) {
                self.queue.push_front(fence);
            }
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.queue.len() > self.capacity {
            if let Some(oldest) = self.queue.pop_front() {
                tracing::warn!(client = %oldest.client, "oldest session fence dropped");
            }
        }
    }

    pub(super) fn take(&mut self, client: ClientId, user_id: u32) -> Option<Fence> {
        let position = self.position(client, user_id)?;
        self.queue.remove(position)
    }

    pub(super) fn get_mut(&mut self, client: ClientId, user_id: u32) -> Option<&mut Fence> {
        let position = self.position(client, user_id)?;
        self.queue.get_mut(position)
    }

    fn position(&self, client: ClientId, user_id: u32) -> Option<usize> {
        self.queue
            .iter()
            .position(|fence| (fence.client, fence.user_id) == (client, user_id))
    }

    pub(super) fn with_epoch(&self, client: ClientId, epoch: u64) -> Option<&Fence> {
        self.queue
            .iter()
            .find(|fence| (fence.client, fence.epoch) == (client, epoch))
    }

    pub(super) fn check_invariants(&self) {
        assert!(
            self.queue.len() <= self.capacity,
            "at most one fence per slot"
        );
        let keys: BTreeSet<_> = self
            .queue
            .iter()
            .map(|fence| (fence.client, fence.user_id))
            .collect();
        assert!(
            keys.len() == self.queue.len(),
            "one fence per client and user"
        );
    }
}
