//! # biplane-server
//!
//! The edges of a Biplane node: sockets, files, clocks, threads, configuration and the command
//! line,
//! around protocol crates that have none of these.
//!
//! ```text
//!            ┌────────────────────────── node ──────────────────────────┐
//!  clients ─►│ connection ─► dispatch ─►┐                               │
//!            │                          ├─► planes ─► outputs ─► mesh ──┼─► replicas
//! replicas ─►│ mesh ─► typed frames ───►┘      │                        │
//!            │                                 └─► disk threads ─► files│
//!            └──────────────────────────────────────────────────────────┘
//! ```
//!
//! What it does not do: decide anything of the protocol. When a frame may be sent, what must be
//! durable before it, who leads: all of that is in the planes, which the simulator drives through
//! the same doors.
//!
//! Invariants: one loop steps the planes, nothing else does; a completion of the disk is never
//! dropped; a frame for a peer never waits; memory taken on behalf of a connection is bounded
//! before
//! it is taken.

mod advice;
pub mod bench;
pub mod cli;
mod client;
mod clock;
pub mod config;
pub mod config_command;
pub mod dev;
mod diagnostics;
mod file_disk;
mod http;
pub mod inspect;
mod mailbox;
pub mod node;
mod notify;
pub mod observe;
mod passwords;
mod peer;
mod recycler;
mod refusals;
pub mod runtime;
pub mod serve;
pub mod signals;
pub mod status;
mod stream;
pub mod supervised;
pub mod tls;
mod vectored;
