//! The metadata plane of Biplane: streams, topics, partitions, consumer groups, users and access
//! tokens as one replicated state machine, and the machinery that keeps it replicated.
//!
//! ```text
//!   Submit, Register, Logout ──► preflight ─► admission ─┐        ┌─► Reply, Registered, ...
//!   Frame from a replica ─────────────────► consensus core ─► apply ─► Topology, Session
//!   Disk completion ──────────► prepare log, superblock, snapshot ──► Disk request
//!   Tick, Peer ───────────────► repair, state transfer, forwarding ─► Send
//! ```
//!
//! [`MetadataPlane::open`] reads what the disk holds; [`MetadataPlane::step`] takes one
//! [`io::Input`] and appends [`io::Output`]s. Nothing else changes the plane, and the same
//! inputs give the same outputs.
//!
//! The parts can be used alone: [`state::MetadataState`] applies prepares and answers reads,
//! [`preflight`] turns client requests into what is replicated, [`snapshot`] carries the state
//! between replicas.
//!
//! # What it does not do
//!
//! It has no sockets, files, clocks, threads or randomness. It hashes no passwords and mints no
//! tokens: their hashes are handed in. It holds no messages and no consumer offsets: it says
//! which partitions exist and what is to be dropped. It knows connections only as tokens.
//!
//! # Invariants
//!
//! - A body that apply cannot decode is never proposed, and never acknowledged by a backup.
//! - Apply depends on the state and the prepare alone; a rejected operation changes nothing.
//! - The reply is in the client table before it is delivered; a retry gets the same bytes.
//! - The snapshot file is durable before the superblock names it, and the superblock before the
//!   log gives up what the snapshot covers.
//! - Every token is answered exactly once.
//!
//! The rules are those of the protocol specification: chapter 05 for the state machine, chapter
//! 03 sections 7, 9 and 12 for sessions, boot and forwarding, chapter 04 for repair, transfer
//! and checkpoints.

#![forbid(unsafe_code)]

mod forwarding;
pub mod io;
pub mod options;
mod plane;
pub mod preflight;
pub mod reply;
pub mod revocation;
mod sessions;
pub mod snapshot;
pub mod state;

pub use plane::{Config, Limits, MetadataPlane, OpenError, RootUser, Status, Timers};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
