//! The HTTP interface (chapter 08): REST for clients and browsers, metrics, and the cluster page.
//!
//! ```text
//!   socket ─► listener ─► route ─► bearer ─► body ─► handler ─► wire request ─► node
//!                           │                  │                                 │
//!                           └ 404, 405, CORS   └ forwarded by a follower         │
//!   socket ◄──────────────── JSON ◄── wire reply ◄──────────────────────────────┘
//! ```
//!
//! A handler translates and nothing else: what it asks is a request of the client protocol, which
//! the node serves as it serves those of TCP connections, with the same checks, permissions and
//! sessions. What is decided here is decided by no other transport: which answer has which status,
//! and which node a request should have gone to.
//!
//! Memory is bounded by the number of connections, the number of requests in flight, and the
//! largest body, which is only read once its sender is known.

mod answer;
mod ask;
mod authenticate;
mod call;
mod cors;
mod forward;
mod handlers;
mod jwt;
mod listener;
mod metrics;
mod page;
mod peer;
mod permissions;
mod produce;
mod route;
mod sessions;
mod shapes;
mod sizes;
mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::client::connection::{ClientEvent, ConnectionId};
use crate::client::http::{FIRST_CONNECTION, Glance};
use crate::config::{Http, Identity};
use crate::mailbox::Post;

pub(crate) use jwt::Tokens;
pub(crate) use listener::{HttpListener, HttpTlsFiles};
pub(crate) use peer::{Handed, Handover, Peers};

/// What every request of the listener shares.
pub(crate) struct Web {
    config: Http,
    identity: Arc<Identity>,
    tokens: Tokens,
    cors: cors::Policy,
    glance: Arc<Glance>,
    events: Post<ClientEvent>,
    message_size_max: u32,
    sessions: sessions::Sessions,
    peers: peer::Peers,
    /// Number of the last connection without a socket.
    last_connection: AtomicU64,
    /// Requests seen.
    requests: AtomicU64,
    /// Partition writes in flight.
    partition_writes: AtomicUsize,
    /// Requests being handed to other nodes.
    forwards_in_flight: AtomicUsize,
}

impl Web {
    fn next_connection(&self) -> ConnectionId {
        1 + self
            .last_connection
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Followers may hand requests on: the nodes accept each other's tokens.
    fn forwards(&self) -> bool {
        self.identity.clustered && self.tokens.cluster_wide
    }
}

/// What a listener is started with.
pub(crate) struct WebSetup {
    /// The section of the configuration.
    pub(crate) config: Http,
    /// Who this node is.
    pub(crate) identity: Arc<Identity>,
    /// Tokens.
    pub(crate) tokens: Tokens,
    /// What may be known of the node.
    pub(crate) glance: Arc<Glance>,
    /// Towards the node.
    pub(crate) events: Post<ClientEvent>,
    /// Largest frame.
    pub(crate) message_size_max: u32,
    /// Sessions in the client table of the cluster.
    pub(crate) client_table_max: usize,
    /// TLS, when it is on.
    pub(crate) tls: Option<HttpTlsFiles>,
}

impl Web {
    fn new(setup: WebSetup, tls: Option<&HttpTlsFiles>) -> Self {
        let peers = peer::Peers::new(tls);
        Self {
            cors: cors::Policy::new(&setup.config.cors),
            sessions: sessions::Sessions::new(setup.client_table_max / 2),
            config: setup.config,
            identity: setup.identity,
            tokens: setup.tokens,
            glance: setup.glance,
            events: setup.events,
            message_size_max: setup.message_size_max,
            peers,
            last_connection: AtomicU64::new(FIRST_CONNECTION),
            requests: AtomicU64::new(0),
            partition_writes: AtomicUsize::new(0),
            forwards_in_flight: AtomicUsize::new(0),
        }
    }
}
