//! One node: it owns the planes, and its loop is the only place they are stepped.
//!
//! ```text
//!   replicas ─┐                                        ┌─ mesh
//!   clients  ─┤           ┌ metadata plane ─ topology ┐├─ clients
//!   disk     ─┼─► loop ──►┤                           ││
//!   passwords─┤           └ partition plane ◄─────────┘├─ disk threads
//!   ticks    ─┘                                        └─ password threads
//! ```
//!
//! The loop takes what has arrived, steps a plane, and carries the outputs to where they belong. It
//! decides nothing: which frame may be sent when, and what must be durable before it, is the
//! planes'
//! business.

mod boot;
mod boot_error;
pub(crate) mod catch_up;
mod disk;
mod event_loop;
pub(crate) mod group_page;
mod outputs;
pub(crate) mod report;
mod root;
mod seals;
pub(crate) mod spans;
mod topology;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use biplane_journal::{DiskCompletion, DiskRequest, GroupCommit};
use biplane_metadata_plane::MetadataPlane;
use biplane_partition_plane::PartitionPlane;
use biplane_wire::{ReplicaId, View};
use futures::future::{BoxFuture, Fuse};

use crate::client::connection::{ClientEvent, ListenerState};
use crate::client::http::Glance;
use crate::client::session::Clients;
use crate::clock::TickCounter;
use crate::config::{Config, Identity};
use crate::diagnostics::{Diagnostics, DiagnosticsDone};
use crate::file_disk::{FileDisk, FileView};
use crate::http::HttpListener;
use crate::mailbox::Bell;
use crate::passwords::{PasswordDone, Passwords};
use crate::peer::{Mesh, PeerEvent};
use crate::recycler::FramePool;
use crate::runtime::Receiver;

pub use crate::file_disk::{DataFolder, FolderError};
pub use boot::{Settings, StopHandle};
pub use boot_error::BootError;

/// The server version told to clients.
pub const SERVER_VERSION: &str = "0.9.0";

/// Everything that arrives at the loop.
struct Inbox {
    bell: Arc<Bell>,
    /// Frames of the metadata group.
    peers_first: Receiver<PeerEvent>,
    peers: Receiver<PeerEvent>,
    clients: Receiver<ClientEvent>,
    disk: Receiver<DiskCompletion>,
    passwords: Receiver<PasswordDone>,
    diagnostics: Receiver<DiagnosticsDone>,
    stop: Receiver<()>,
}

/// What was last said of the metadata group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reported {
    is_primary: bool,
    status: biplane_vsr::Status,
    view: View,
    ready: bool,
}

/// How a node's loop ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeEnd {
    /// It was asked to.
    #[error("stopped")]
    Stopped,
    /// A plane cannot go on without breaking a promise.
    #[error("{reason}")]
    Halted {
        /// Why.
        reason: String,
        /// What an operator does about it.
        advice: &'static str,
        /// Exit status of the process (chapter 09 section 3).
        status: u8,
    },
}

/// A running node.
pub struct Node {
    pub(crate) identity: Arc<Identity>,
    pub(crate) config: Arc<Config>,
    pub(crate) metadata: MetadataPlane,
    pub(crate) partitions: PartitionPlane,
    pub(crate) clients: Clients,
    pub(crate) passwords: Passwords,
    pub(crate) diagnostics: Diagnostics,
    /// What the HTTP listener sees without asking.
    pub(crate) glance: Arc<Glance>,
    /// Nodes to which a link is up.
    pub(crate) links: BTreeSet<ReplicaId>,
    /// Ticks served since the start.
    pub(crate) tick: u64,
    /// Round robin of balanced sends, by stream and topic.
    pub(crate) balance: HashMap<(u32, u32), u32>,
    pub(crate) started_micros: u64,
    metadata_out: Vec<biplane_metadata_plane::io::Output>,
    partition_out: Vec<biplane_partition_plane::Output>,
    mesh: Option<Mesh>,
    http: Option<HttpListener>,
    listener: Arc<ListenerState>,
    folder: DataFolder,
    view: FileView,
    disk: Option<FileDisk>,
    /// Gathers the synced writes of all partitions.
    commit: GroupCommit,
    disk_out: Vec<DiskRequest>,
    /// Tick at which the last line about a full disk was written.
    full_said: Option<u64>,
    frames: Arc<FramePool>,
    inbox: Inbox,
    ticks: TickCounter,
    /// Rings at the next tick. It outlives turns of the loop: every new timer wakes the reactor.
    alarm: Fuse<BoxFuture<'static, ()>>,
    /// Every partition has been seen in status Normal since the start.
    partitions_ready: bool,
    /// Metadata op up to which held requests were looked at.
    held_looked_at: u64,
    /// How the node must end, when it must.
    halted: Option<NodeEnd>,
    /// Checksums that did not hold.
    pub(crate) seals: seals::SealFailures,
    /// Partitions whose files could not be used.
    fenced: u64,
    supervised: bool,
    reported: Option<Reported>,
    catch_ups: catch_up::CatchUps,
}

impl Node {
    /// View of the metadata group.
    pub(crate) fn metadata_view(&self) -> View {
        self.metadata.view()
    }

    /// The metadata primary as this node knows it; `None` while it is being decided.
    pub(crate) fn metadata_leader(&self) -> Option<ReplicaId> {
        let status = self.metadata.replica().status();
        (status.status == biplane_vsr::Status::Normal).then_some(status.primary)
    }
}
