//! Journal repair: a replica pulls prepares it lacks from a peer that holds them.
//!
//! ```text
//!        what the replica lacks             RequestPrepares
//!   need ───────────────────► Requester ─────────────────────► serve ◄── PrepareSource
//!   tick                        │   ▲    [RangeEvicted]          │       (the peer's log)
//!                               │   └────  RepairPrepare*  ◄─────┘
//!                               │          RepairDone
//!                               │             │
//!                  ArmTransfer ◄┤             └─► admits ─► verify ─► the log of the replica
//!                  RaiseFloor  ◄┘
//! ```
//!
//! The replica says what it lacks ([`RepairNeed`]) for as long as it lacks it. The [`Requester`]
//! turns that into sessions: one window, one peer, one nonce, asked for chunk by chunk until
//! nothing is missing. [`serve()`] is the other side, a function of one request and a log.
//! [`verify()`] says what must hold before a received prepare enters a log, [`connect()`] whether
//! a partition's own segments reach down to what the peer retains, [`Budget`] how many groups may
//! repair at once.
//!
//! **What this crate does not do.** It finds no gaps, keeps no log, applies nothing, knows no
//! batch and no file. It does not transfer state; it says when that is needed. It has no clock,
//! no socket and no disk: time is ticks of 10 ms, frames and effects are values.
//!
//! **Invariants.** At most one session a group; a session never outlives its view, its status
//! or the start of a state transfer. Nonces are not zero and not reused. A request asks for a
//! window that is not empty, and a retry is never overdue. Nothing a peer sends can panic.
//!
//! The rules are those of chapter 04 sections 1 and 2 of the protocol specification.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod budget;
mod connect;
mod limits;
mod peers;
mod requester;
mod responder;
mod verify;
mod view;

pub use budget::Budget;
pub use connect::{Connect, ConnectFacts, HeldOp, History, NoHistory, WindowFacts, connect};
pub use limits::{
    CHUNK_MAX_DEFAULT, CHUNK_MAX_LIMIT, GAP_DEBOUNCE_MILLIS_MIN, INTERVAL_MILLIS_DEFAULT,
    RepairLimits, SESSIONS_ARMED_PER_TICK_MAX_DEFAULT, SESSIONS_LIVE_MAX_DEFAULT,
    STALLED_ROUNDS_MAX_DEFAULT, TICK_MILLIS, chunk_max_is_valid,
};
pub use requester::{
    Ingested, Progress, RepairIgnored, RepairOutput, Requester, RequesterConfig, SessionOutcome,
    trouble,
};
pub use responder::{PrepareSource, ServeFacts, ServeIgnored, Served, serve};
pub use verify::{Defect, Expectation, Verdict, verify};
pub use view::{GroupStatus, GroupView, NeedKind, PlaneKind, RepairNeed, TransferState};
