//! Which replica is reachable through which connection.
//!
//! At most one live link per replica: the one that was first stays, a second one is refused
//! (chapter 02 section 2.4). But a peer that dials again has lost its own end, so a refused
//! connection makes the old one prove itself: the kernel asks the other end with a probe that no
//! program there sees, and a host that knows nothing of the connection answers with a reset. Where
//! the new connection proved membership and the old one has been silent for a while, that is proof
//! enough, and it is replaced at once.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use biplane_wire::{Message, ReplicaId};
use parking_lot::Mutex;

use super::outgoing::{self, Outgoing, Waiting};
use super::socket;
use crate::runtime::TcpStream;

/// A link that was silent for this long loses against a new, authenticated connection of the same
/// peer. A live peer broadcasts a Commit every 500 ms by default in one direction, so a second
/// without a byte alone does not prove death, but together with such a handshake it does.
const SILENCE_BEFORE_REPLACEMENT: Duration = Duration::from_secs(2);

/// Outcome of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// In the queue.
    Queued,
    /// No connection.
    NoLink,
    /// The queue is full.
    Full,
}

/// Outcome of a registration.
pub(super) enum Registration {
    /// The connection is the peer's link now.
    New {
        /// The link.
        link: Arc<Link>,
        /// What is to be written.
        queue: Waiting,
        /// An older link had to go.
        replaced: bool,
    },
    /// Another connection stays; it is being probed.
    Kept,
    /// The mesh is closing, or the id is outside the roster.
    Refused,
}

/// One registered connection, shared by its reader, its writer and the registry.
pub(super) struct Link {
    /// Tells a link from its successor.
    generation: u64,
    queue: Outgoing,
    socket: TcpStream,
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
    /// Connections whose tasks have not ended, registered or not any more.
    running: AtomicUsize,
}

struct Inner {
    slots: Vec<Slot>,
    generation: u64,
    closing: bool,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    /// The link has ended but the node does not know yet: nothing is sent, and nobody may take its
    /// place, or the node would hear of the end after it heard of the successor.
    ending: bool,
}

impl Registry {
    pub(super) fn new(replica_count: u8) -> Self {
        Self {
            inner: Mutex::new(Inner {
                slots: (0..replica_count).map(|_| Slot::default()).collect(),
                generation: 0,
                closing: false,
            }),
            running: AtomicUsize::new(0),
        }
    }

    /// Registers a connection that finished its handshake. `proven`: the peer is a member of the
    /// cluster, not just somebody who says so.
    pub(super) fn register(
        &self,
        peer: ReplicaId,
        capacity: usize,
        socket: TcpStream,
        proven: bool,
    ) -> Registration {
        let mut inner = self.inner.lock();
        if inner.closing {
            return Registration::Refused;
        }
        inner.generation += 1;
        let generation = inner.generation;
        let Some(slot) = inner.slots.get_mut(usize::from(peer.0)) else {
            return Registration::Refused;
        };
        let mut replaced = false;
        if let Some(old) = &slot.link {
            if slot.ending || !(proven && old.is_silent()) {
                socket::probe(&old.socket);
                return Registration::Kept;
            }
            old.close();
            // Nobody is there to read what is queued, and its tasks shall not wait for that.
            let _ = old.socket.shutdown(Shutdown::Both);
            replaced = true;
        }
        let (outgoing, queue) = outgoing::queues(capacity);
        let link = Arc::new(Link {
            generation,
            queue: outgoing,
            socket,
            started: Instant::now(),
            heard: AtomicU64::new(0),
        });
        slot.link = Some(Arc::clone(&link));
        self.running.fetch_add(1, Ordering::Relaxed);
        Registration::New {
            link,
            queue,
            replaced,
        }
    }

    /// The link has ended. True when it was the peer's: then the node is to be told, and after
    /// that [`Registry::free`] is to be called.
    pub(super) fn retire(&self, peer: ReplicaId, link: &Link) -> bool {
        link.close();
        let mut inner = self.inner.lock();
        match Self::own_slot(&mut inner, peer, link) {
            Some(slot) => {
                slot.ending = true;
                true
            }
            None => false,
        }
    }

    /// Makes room for the next link of the peer.
    pub(super) fn free(&self, peer: ReplicaId, link: &Link) {
        let mut inner = self.inner.lock();
        if let Some(slot) = Self::own_slot(&mut inner, peer, link) {
            *slot = Slot::default();
        }
    }

    /// The tasks of a link are done.
    pub(super) fn ended(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    fn own_slot<'a>(inner: &'a mut Inner, peer: ReplicaId, link: &Link) -> Option<&'a mut Slot> {
        let slot = inner.slots.get_mut(usize::from(peer.0))?;
        let current = slot.link.as_ref()?.generation == link.generation;
        current.then_some(slot)
    }

    /// True while a link to `peer` is registered.
    pub(super) fn is_linked(&self, peer: ReplicaId) -> bool {
        self.inner
            .lock()
            .slots
            .get(usize::from(peer.0))
            .is_some_and(|slot| slot.link.is_some())
    }

    /// Frames that wait for the writer of the link to `peer`.
    pub(super) fn queued(&self, peer: ReplicaId) -> usize {
        let inner = self.inner.lock();
        let link = inner.slots.get(usize::from(peer.0));
        let link = link.and_then(|slot| slot.link.as_ref());
        link.map_or(0, |link| link.queue.len())
    }

    /// Queues a frame without waiting; `first` before those that are not.
    pub(super) fn send(&self, to: ReplicaId, message: Message, first: bool) -> Sent {
        let inner = self.inner.lock();
        let slot = inner.slots.get(usize::from(to.0));
        let Some(link) = slot.and_then(|slot| slot.link.as_ref()) else {
            return Sent::NoLink;
        };
        if first {
            link.queue.send_first(message)
        } else {
            link.queue.send(message)
        }
    }

    /// Refuses new links and ends the present ones.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        for link in inner.slots.iter().filter_map(|slot| slot.link.as_ref()) {
            link.close();
        }
    }

    /// Links whose tasks have not ended yet.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{self, TcpListener};

    const PEER: ReplicaId = ReplicaId(1);

    /// A connection of this process with itself; the other end is returned, too.
    fn socket() -> (TcpStream, TcpStream) {
        runtime::block_on(async {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
            let listener = TcpListener::new(listener).expect("a listener");
            let address = listener.local_addr().expect("an address");
            let near = TcpStream::connect(address).await.expect("connects");
            let (far, _) = listener.accept().await.expect("accepts");
            (near, far)
        })
    }

    fn register(registry: &Registry, proven: bool) -> Option<(Arc<Link>, bool)> {
        match registry.register(PEER, 4, socket().0, proven) {
            // The queue stays open without its receiver being held here.
            Registration::New {
                link,
                queue,
                replaced,
            } => {
                std::mem::forget(queue);
                Some((link, replaced))
            }
            Registration::Kept | Registration::Refused => None,
        }
    }

    #[test]
    fn the_first_link_stays_while_it_is_heard_from() {
        let registry = Registry::new(3);
        let (link, _) = register(&registry, true).expect("no link yet");
        assert!(register(&registry, true).is_none());
        assert!(registry.is_linked(PEER));
        assert!(registry.retire(PEER, &link));
        assert!(
            register(&registry, true).is_none(),
            "the node is to hear of the end first"
        );
        registry.free(PEER, &link);
        assert!(!registry.is_linked(PEER));
        assert!(register(&registry, true).is_some());
    }

    #[test]
    fn a_silent_link_is_replaced_by_a_member_and_by_nobody_else() {
        let registry = Registry::new(3);
        let (mut old, _) = register(&registry, true).expect("no link yet");
        {
            // Silence without waiting for it.
            let mut inner = registry.inner.lock();
            let slot = inner.slots.get_mut(1).expect("a slot");
            let link = slot.link.take().expect("a link");
            drop(old);
            let mut link = Arc::into_inner(link).expect("nobody else holds it");
            link.started -= SILENCE_BEFORE_REPLACEMENT;
            old = Arc::new(link);
            slot.link = Some(Arc::clone(&old));
        }
        assert!(
            register(&registry, false).is_none(),
            "anybody can say that he is replica 1"
        );
        let (new, replaced) = register(&registry, true).expect("a member");
        assert!(replaced);
        assert!(!registry.retire(PEER, &old), "its end is no news");
        registry.free(PEER, &old);
        assert!(registry.is_linked(PEER));
        assert!(registry.retire(PEER, &new));
    }

    #[test]
    fn a_refused_duplicate_has_the_old_link_probed() {
        let registry = Registry::new(3);
        let (link, _) = register(&registry, false).expect("no link yet");
        socket::tune(&link.socket);
        let probed_after = || {
            let socket = socket2::SockRef::from(&link.socket);
            assert!(socket.keepalive().expect("an option"));
            socket.tcp_keepalive_time().expect("an option")
        };
        assert_eq!(probed_after(), Duration::from_secs(5));
        assert!(register(&registry, false).is_none());
        assert_eq!(probed_after(), Duration::from_secs(1));
    }

    #[test]
    fn ids_outside_the_roster_have_no_link() {
        let registry = Registry::new(3);
        let outside = registry.register(ReplicaId(3), 4, socket().0, true);
        assert!(matches!(outside, Registration::Refused));
        assert!(!registry.is_linked(ReplicaId(200)));
    }

    #[test]
    fn a_closing_registry_takes_no_new_link() {
        let registry = Registry::new(3);
        let Registration::New { queue, .. } = registry.register(PEER, 4, socket().0, true) else {
            panic!("no link yet");
        };
        registry.close();
        assert!(queue.is_closed());
        let late = registry.register(ReplicaId(2), 4, socket().0, true);
        assert!(matches!(late, Registration::Refused));
        assert_eq!(
            registry.running(),
            1,
            "its tasks have not said that they are done"
        );
    }

    #[test]
    fn the_newest_frame_is_dropped_when_the_queue_is_full() {
        let registry = Registry::new(3);
        let Registration::New { queue, .. } = registry.register(PEER, 2, socket().0, true) else {
            panic!("no link yet");
        };
        let frame = |counter| {
            let mut header = biplane_wire::CommitHeader::new(biplane_wire::Command::Commit);
            header.frame.set_view(biplane_wire::View(counter));
            Message::sealed(header, &[7])
        };
        assert_eq!(registry.send(PEER, frame(1), false), Sent::Queued);
        assert_eq!(registry.send(PEER, frame(2), false), Sent::Queued);
        assert_eq!(registry.send(PEER, frame(3), false), Sent::Full);
        assert_eq!(registry.send(PEER, frame(4), true), Sent::Queued);
        assert_eq!(registry.send(ReplicaId(2), frame(5), false), Sent::NoLink);
        let mut batch = Vec::new();
        assert!(runtime::block_on(queue.take(&mut batch, 9)));
        let number = |message: &Message| message.generic().frame.view().0;
        let left: Vec<u32> = batch.iter().map(number).collect();
        assert_eq!(left, [4, 1, 2], "older frames stay, in order");
    }
}
