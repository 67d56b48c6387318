//! The replica mesh: one connection to every other replica, kept up for as long as both live.
//!
//! ```text
//!   listener ─┐                        ┌─ reader: bytes ► frames ► checked ► node
//!             ├─ handshake ► registry ─┤
//!   dialers ──┘                        └─ writer: bounded queues ► one vectored write
//! ```
//!
//! The mesh moves frames and decides nothing about them. Sending never waits: a full queue or an
//! absent peer drops the frame and counts it, and the protocol's own timers send it again
//! (chapter 02 section 9.4).

pub(crate) mod counters;
mod dialer;
mod greeting;
mod link;
mod listener;
mod log_budget;
mod outgoing;
mod registry;
mod socket;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use biplane_handshake::{Identity, Keys};
use biplane_wire::{Message, ReplicaFrame, ReplicaId};

use futures::future::{Either, select};

use crate::mailbox::Post;
use crate::recycler::FramePool;
use crate::runtime::{self, Receiver, Sender};
use crate::tls::ReplicaTls;
pub(crate) use counters::MeshCounters;
use counters::{LinkCounters, count};
use log_budget::LogBudget;
use registry::Registry;
pub(crate) use socket::{ListenError, bind};

/// Frames waiting between all readers and the node's loop.
pub(crate) const INBOUND_CAPACITY: usize = 1024;

/// And frames of the metadata group, which wait apart from all others and are served first.
pub(crate) const INBOUND_FIRST_CAPACITY: usize = 256;

/// Where the mesh leaves what it has to tell.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    /// Frames of the metadata group.
    pub(crate) first: Post<PeerEvent>,
    /// Everything else.
    pub(crate) rest: Post<PeerEvent>,
}

impl Inbound {
    fn of(&self, frame: &ReplicaFrame) -> &Post<PeerEvent> {
        let is_first = frame.route().is_some_and(|group| group.is_metadata());
        if is_first { &self.first } else { &self.rest }
    }
}

/// What the mesh tells the node.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    /// A connection to `replica` is registered; frames may be sent.
    Up {
        /// The peer.
        replica: ReplicaId,
    },
    /// The connection to `replica` is gone; queued frames are lost.
    Down {
        /// The peer.
        replica: ReplicaId,
    },
    /// A frame that passed typed decode.
    Frame {
        /// The connection it came by. Not the frame's author: prepares are relayed.
        from: ReplicaId,
        /// The frame.
        frame: ReplicaFrame,
    },
}

/// Everything the mesh needs to know.
#[derive(Clone)]
pub(crate) struct MeshConfig {
    /// This node.
    pub(crate) identity: Identity,
    /// Own replica address.
    pub(crate) listen: SocketAddr,
    /// Replica addresses of all nodes, by replica id.
    pub(crate) peers: Vec<(ReplicaId, SocketAddr)>,
    /// Keys when authentication is on.
    pub(crate) keys: Option<Keys>,
    /// Both TLS roles when TLS is on.
    pub(crate) tls: Option<ReplicaTls>,
    /// Largest accepted frame.
    pub(crate) message_size_max: u32,
    /// Frames queued per peer.
    pub(crate) queue_capacity: usize,
    /// Frames per vectored write.
    pub(crate) batch_max: usize,
    /// Budget of a handshake.
    pub(crate) handshake_grace: Duration,
    /// Longest pause between two dials.
    pub(crate) reconnect_period: Duration,
    /// Drain time of a closing link.
    pub(crate) close_timeout: Duration,
    /// Time to say goodbye on a link that has nothing more to write.
    pub(crate) close_grace: Duration,
    /// Memory of received frames.
    pub(crate) frames: Arc<FramePool>,
}

/// What every task of the mesh shares.
struct Shared {
    config: MeshConfig,
    registry: Registry,
    counters: MeshCounters,
    /// Of each peer, by replica id.
    links: Vec<LinkCounters>,
    /// For lines that strangers cause.
    log_budget: LogBudget,
    /// For lines about links, which a stranger can cause only where nobody authenticates.
    link_log_budget: LogBudget,
    events: Inbound,
    /// Never holds anything; its end is the end of the mesh.
    closing: Receiver<Infallible>,
    /// The listener is open.
    listening: AtomicBool,
}

impl Shared {
    /// The counters of a peer of the roster.
    fn link(&self, peer: ReplicaId) -> Option<&LinkCounters> {
        self.links.get(usize::from(peer.0))
    }

    /// The result of `future`, or `None` when the mesh closes first.
    async fn unless_closing<F: Future>(&self, future: F) -> Option<F::Output> {
        match select(pin!(self.closing.recv()), pin!(future)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }
}

/// The mesh of a running node.
#[derive(Clone)]
pub(crate) struct Mesh {
    shared: Arc<Shared>,
    /// Keeps the tasks going.
    _closing: Sender<Infallible>,
}

impl Mesh {
    /// Opens the listener and starts the dialers. Events arrive on `events`.
    ///
    /// # Errors
    /// [`ListenError`] when the replica address cannot be bound.
    pub(crate) fn start(config: MeshConfig, events: Inbound) -> Result<Self, ListenError> {
        let listener = bind(config.listen)?;
        let (closing_sender, closing) = runtime::bounded(1);
        let replica_count = config.identity.replica_count;
        let registry = Registry::new(replica_count);
        let shared = Arc::new(Shared {
            config,
            registry,
            counters: MeshCounters::default(),
            links: (0..replica_count)
                .map(|_| LinkCounters::default())
                .collect(),
            log_budget: LogBudget::new(),
            link_log_budget: LogBudget::new(),
            events,
            closing,
            listening: AtomicBool::new(true),
        });
        runtime::spawn(listener::accept(listener, Arc::clone(&shared)));
        // The pair rule of chapter 02 section 2.2: the lower id dials.
        for &(peer, address) in &shared.config.peers {
            if peer > shared.config.identity.replica {
                runtime::spawn(dialer::keep_dialed(peer, address, Arc::clone(&shared)));
            }
        }
        Ok(Self {
            shared,
            _closing: closing_sender,
        })
    }

    /// Queues `message` for `to`. Never waits; returns false when the frame was dropped.
    pub(crate) fn send(&self, to: ReplicaId, message: Message) -> bool {
        self.queue(to, message, false)
    }

    /// The same for a frame of the metadata group: it goes before all that are not.
    pub(crate) fn send_first(&self, to: ReplicaId, message: Message) -> bool {
        self.queue(to, message, true)
    }

    fn queue(&self, to: ReplicaId, message: Message, first: bool) -> bool {
        let link = self.shared.link(to);
        match self.shared.registry.send(to, message, first) {
            registry::Sent::Queued => return true,
            registry::Sent::NoLink => {
                link.inspect(|link| count(&link.dropped_no_link));
            }
            registry::Sent::Full => {
                link.inspect(|link| count(&link.dropped_queue_full));
            }
        }
        false
    }

    /// Counters of one peer since the start.
    pub(crate) fn link_counters(&self, peer: ReplicaId) -> Option<&LinkCounters> {
        self.shared.link(peer)
    }

    /// Frames that wait to be written to a peer.
    pub(crate) fn queued(&self, peer: ReplicaId) -> usize {
        self.shared.registry.queued(peer)
    }

    /// Counts since the start by name, of all peers together.
    pub(crate) fn totals(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters.totals(&self.shared.links)
    }

    /// What is not counted of a single peer.
    #[cfg(test)]
    fn counters(&self) -> &MeshCounters {
        &self.shared.counters
    }

    /// Closes the listener, gives up handshakes and dials, and ends every link after what is
    /// queued has been written, within the close budget.
    pub(crate) async fn shut_down(&self) {
        self.shared.closing.close();
        self.shared.registry.close();
        let budget = self.shared.config.close_timeout;
        let step = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        let open =
            || self.shared.registry.running() > 0 || self.shared.listening.load(Ordering::Relaxed);
        while open() && waited < budget {
            runtime::sleep(step).await;
            waited += step;
        }
    }
}
