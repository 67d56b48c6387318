//! The consensus core: one replica of one group, without IO.
//!
//! ```text
//!        Input                          Replica                           Output
//!   Tick ──────────────►  views, log, pipeline, promises  ──► Send ──────────► peers
//!   Frame ─────────────►                                  ──► Append, Truncate ► journal
//!   Appended, Truncated ►     asks the Plane: durability,  ──► PersistView ───► superblock
//!   ViewPersisted ──────►     stamp, accept, promote       ──► Promoted, Denied,
//!   Peer ───────────────►                                       Canceled ─────► clients
//!                                                          ──► Role, Transfer, Halt
//!   admit(request) ─────►  next_committed() / applied(op)  ──► state machine
//!   ingest_repaired() ──►  repair_need()                   ──► repair
//! ```
//!
//! Both planes run this code: the metadata plane once, the partition plane once per partition.
//! It implements chapter 03 of the protocol specification: normal operation, view change,
//! recovery, and the table of client sessions in [`sessions`].
//!
//! **How to drive it.** Call [`Replica::step`] for everything that happens, carry out the
//! outputs in order, and report the completions. After every call run the commit loop: take
//! [`Replica::next_committed`], apply it, call [`Replica::applied`]; then
//! [`Replica::promote`]. A prepare whose [`Durability`] is memory needs no completion.
//!
//! **What this crate does not do.** No files, sockets, clocks or threads; no meaning of
//! operations; no repair sessions (it says what is missing, another crate asks for it); no state
//! transfer (it follows the stage it is told).
//!
//! **Invariants**, checked by [`Replica::check_invariants`]:
//!
//! ```text
//! view_durable ≤ view     log_view ≤ view     log_view_durable ≤ log_view
//! commit_min ≤ commit_max     commit_min ≤ op_head
//! on a normal primary: commit_max ≤ op_head, op_head − commit_max ≤ the pipeline limit,
//!                      and every op between commit_min and op_head is held and chained
//! a frame of view v leaves only if v is durable; an acknowledgement of op n leaves only if n
//! is held as durably as the plane asks, and so is everything between the commit point and n
//! ```
#![forbid(unsafe_code)]

mod config;
pub mod constants;
mod early;
mod invariants;
mod io;
mod log;
pub mod mutation;
mod nonce;
mod outbound;
mod pending;
mod pipeline;
mod plane;
mod prng;
mod quorum;
mod replica;
pub mod sessions;
mod status;
pub mod suffix_merge;
mod timeout;
mod wake;

pub use config::{Boot, Config, Forward, Limits, LogEntry, OpenError, Start, Timers};
pub use io::{
    Admission, DenyReason, HaltReason, Ingest, IngestRefusal, Input, NeedKind, Output, Refusal,
    RepairNeed, RoleChange, TransferNotice,
};
pub use log::{Log, LogMut};
pub use nonce::Nonces;
pub use plane::{Durability, Plane, Promotion, Source};
pub use prng::Prng;
pub use quorum::{Quorums, ReplicaSet};
pub use replica::Replica;
pub use status::{Begins, Ignored, IgnoredCounts, Status, StatusView, TransferStage};
pub use wake::WakeWheel;
