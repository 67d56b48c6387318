//! Which replica is reachable through which connection.
//!
//! At most one live link per replica. A second connection for the same id is refused while the
//! first one is heard from; when the first has been silent it is taken for dead and replaced, since
//! a peer that dials again has lost its own end (chapter 02 section 2.4 allows both).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use biplane_wire::{Message, ReplicaId};
use parking_lot::Mutex;

use crate::runtime::{Receiver, Sender, TrySendError, bounded};

/// A link that was silent for this long loses against a new connection of the same peer. A live
/// peer broadcasts a Commit every 500 ms by default in one direction, so a second without a byte
/// alone does not prove death, but together with a new, completed handshake it does.
const SILENCE_BEFORE_REPLACEMENT: Duration = Duration::from_secs(2);

/// Outcome of a send.
pub(super) enum Sent {
    /// In the queue.
    Queued,
    /// No connection.
    NoLink,
    /// The queue is full.
    Full,
}

/// One registered connection, shared by its reader, its writer and the registry.
pub(super) struct Link {
    /// Tells a link from its successor.
    generation: u64,
    queue: Sender<Message>,
    started: Instant,
    /// Milliseconds after `started` at which bytes last arrived.
    heard: AtomicU64,
}

impl Link {
    /// Bytes arrived.
    pub(super) fn mark_heard(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(millis, Ordering::Relaxed);
    }

    /// Ends the link: the writer drains what is queued and closes the socket.
    pub(super) fn close(&self) {
        self.queue.close();
    }

    fn is_silent(&self) -> bool {
        let heard = self.started + Duration::from_millis(self.heard.load(Ordering::Relaxed));
        heard.elapsed() >= SILENCE_BEFORE_REPLACEMENT
    }
}

/// All links of a node.
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

struct Inner {
    links: Vec<Option<Arc<Link>>>,
    generation: u64,
    closing: bool,
}

impl Registry {
    pub(super) fn new(replica_count: u8) -> Self {
        let links = (0..replica_count).map(|_| None).collect();
        Self {
            inner: Mutex::new(Inner {
                links,
                generation: 0,
                closing: false,
            }),
        }
    }

    /// Registers a connection that finished its handshake. `None`: another one stays.
    pub(super) fn register(
        &self,
        peer: ReplicaId,
        capacity: usize,
    ) -> Option<(Arc<Link>, Receiver<Message>)> {
        let mut inner = self.inner.lock();
        if inner.closing {
            return None;
        }
        inner.generation += 1;
        let generation = inner.generation;
        let slot = inner.links.get_mut(usize::from(peer.0))?;
        if let Some(old) = slot {
            if !old.is_silent() {
                return None;
            }
            old.close();
        }
        let (queue, receiver) = bounded(capacity);
        let link = Arc::new(Link {
            generation,
            queue,
            started: Instant::now(),
            heard: AtomicU64::new(0),
        });
        *slot = Some(Arc::clone(&link));
        Some((link, receiver))
    }

    /// Removes `link` unless a successor took its place. True when the peer is unreachable now.
    pub(super) fn deregister(&self, peer: ReplicaId, link: &Link) -> bool {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.links.get_mut(usize::from(peer.0)) else {
            return false;
        };
        let current = slot
            .as_ref()
            .is_some_and(|slot| slot.generation == link.generation);
        if current {
            *slot = None;
        }
        current
    }

    /// True while a link to `peer` is registered.
    pub(super) fn is_linked(&self, peer: ReplicaId) -> bool {
        self.inner
            .lock()
            .links
            .get(usize::from(peer.0))
            .is_some_and(Option::is_some)
    }

    /// Queues a frame without waiting.
    pub(super) fn send(&self, to: ReplicaId, message: Message) -> Sent {
        let inner = self.inner.lock();
        let Some(Some(link)) = inner.links.get(usize::from(to.0)) else {
            return Sent::NoLink;
        };
        match link.queue.try_send(message) {
            Ok(()) => Sent::Queued,
            Err(TrySendError::Full(_)) => Sent::Full,
            Err(TrySendError::Closed(_)) => Sent::NoLink,
        }
    }

    /// Refuses new links and ends the present ones.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        for link in inner.links.iter().flatten() {
            link.close();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.inner.lock().closing
    }

    /// Links that have not ended yet.
    pub(super) fn live(&self) -> usize {
        self.inner.lock().links.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_link_stays_while_it_is_heard_from() {
        let registry = Registry::new(3);
        let (link, _queue) = registry.register(ReplicaId(1), 4).expect("no link yet");
        assert!(registry.register(ReplicaId(1), 4).is_none());
        assert!(registry.is_linked(ReplicaId(1)));
        assert!(registry.deregister(ReplicaId(1), &link));
        assert!(!registry.is_linked(ReplicaId(1)));
        assert!(registry.register(ReplicaId(1), 4).is_some());
    }

    #[test]
    fn a_late_end_of_an_old_link_does_not_touch_its_successor() {
        let registry = Registry::new(3);
        let (old, _queue) = registry.register(ReplicaId(2), 4).expect("no link yet");
        assert!(registry.deregister(ReplicaId(2), &old));
        let (_new, _queue) = registry.register(ReplicaId(2), 4).expect("free again");
        assert!(!registry.deregister(ReplicaId(2), &old));
        assert!(registry.is_linked(ReplicaId(2)));
    }

    #[test]
    fn ids_outside_the_roster_have_no_link() {
        let registry = Registry::new(3);
        assert!(registry.register(ReplicaId(3), 4).is_none());
        assert!(!registry.is_linked(ReplicaId(200)));
    }

    #[test]
    fn a_closing_registry_takes_no_new_link() {
        let registry = Registry::new(3);
        let (_link, queue) = registry.register(ReplicaId(1), 4).expect("no link yet");
        registry.close();
        assert!(queue.is_closed());
        assert!(registry.register(ReplicaId(2), 4).is_none());
    }
}
