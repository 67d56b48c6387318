//! Every cause and every effect of a replica, as values.
//!
//! Inputs are what the owner saw happen; outputs are what it shall do, in order. An effect that
//! can fail comes back as an input. See the front page for the diagram.

use biplane_wire::{Checksum, FrameBuffer, Message, Op, ReplicaFrame, ReplicaId, View};

use crate::constants::{CODE_NOT_ACCEPTED, CODE_NOT_COMMITTED};

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// One tick passed.
    Tick {
        /// Wall clock, microseconds since the epoch. Only ever becomes a prepare timestamp.
        wall_micros: u64,
    },
    /// A peer sent a frame that passed typed decode.
    Frame(ReplicaFrame),
    /// An [`Output::Append`] is durable.
    Appended {
        /// The op.
        op: Op,
        /// Identity of the prepare that was written.
        checksum: Checksum,
    },
    /// An [`Output::Append`] failed and left nothing behind.
    AppendFailed {
        /// The op.
        op: Op,
        /// Identity of the prepare that was not written.
        checksum: Checksum,
    },
    /// An [`Output::Truncate`] is durable.
    Truncated {
        /// Its `from`.
        from: Op,
    },
    /// The superblock holds these values.
    ViewPersisted {
        /// View.
        view: View,
        /// Log view.
        log_view: View,
        /// Commit point, zero where none is kept.
        commit_max: Op,
    },
    /// An [`Output::PersistView`] failed; the core asks again by itself.
    PersistFailed,
    /// A connection came up or went down. Every peer counts as connected until told.
    Peer {
        /// The peer.
        replica: ReplicaId,
        /// Whether frames to it can leave now.
        connected: bool,
    },
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send a frame to a peer. Losing it is allowed.
    Send {
        /// Receiver, never this replica.
        to: ReplicaId,
        /// The frame.
        message: Message,
    },
    /// Write a prepare to the journal and answer [`Input::Appended`] once it is durable. An
    /// entry the journal already has under this op is replaced. Ops may come out of order.
    Append {
        /// The prepare.
        prepare: Message,
    },
    /// Drop every journaled entry from `from` on, before any append that follows this, and
    /// answer [`Input::Truncated`] once that is durable.
    Truncate {
        /// First op to go.
        from: Op,
    },
    /// Write view and log view to the superblock and answer. A later one replaces this.
    PersistView {
        /// View.
        view: View,
        /// Log view.
        log_view: View,
        /// Known commit point, to be recorded with them: a restart must not take the log to end
        /// below it.
        commit_max: Op,
    },
    /// A request that was queued has become a prepare.
    Promoted {
        /// What was given with the request.
        token: u64,
        /// Its op.
        op: Op,
    },
    /// A request that was queued will not be prepared.
    Denied {
        /// What was given with the request.
        token: u64,
        /// The request.
        request: Message,
        /// Status code of the answer.
        code: u32,
        /// Why.
        reason: DenyReason,
    },
    /// A request was prepared, and this replica left the view before the op committed here. It
    /// may still commit.
    Canceled {
        /// What was given with the request.
        token: u64,
        /// Its op.
        op: Op,
    },
    /// State transfer has to follow a change of the core.
    Transfer(TransferNotice),
    /// The role of this replica changed.
    Role(RoleChange),
    /// The replica stopped for good and ignores all further input.
    Halt(HaltReason),
}

impl Output {
    /// Whether this is a frame, which changes nothing here.
    #[must_use]
    pub fn is_send(&self) -> bool {
        matches!(self, Self::Send { .. })
    }
}

/// Why a queued request is not prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyReason {
    /// This replica left the view.
    ViewChanged,
    /// The plane refused it when its turn came.
    Plane,
}

/// What state transfer has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferNotice {
    /// A view was adopted while a transfer was awaited: ask this replica.
    Begin {
        /// The primary of the adopted view.
        from: ReplicaId,
    },
    /// The wait or the transfer is over without result; the stage is idle.
    Abandoned,
}

/// A change of role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// Leads this view.
    Primary {
        /// The view.
        view: View,
    },
    /// Follows the primary of this view.
    Backup {
        /// The view.
        view: View,
    },
    /// Takes part in a view change.
    ViewChange {
        /// The view that shall start.
        view: View,
    },
    /// Probes for the current view.
    Recovering {
        /// The last view it knows.
        view: View,
    },
}

/// Why a replica stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// The primary of this view prepared an op on another parent than its own earlier op.
    ForkedLog {
        /// The op.
        op: Op,
    },
    /// An append failed that could not be taken back.
    AppendFailed {
        /// The op.
        op: Op,
    },
}

/// What became of a request that was handed in.
#[derive(Debug)]
pub enum Admission {
    /// It is a prepare now.
    Prepared {
        /// Its op.
        op: Op,
    },
    /// It waits. [`Output::Promoted`], [`Output::Denied`] or nothing (dropped) follows.
    Queued,
    /// It was not taken and had no effect.
    Refused {
        /// The request as it was handed in.
        request: FrameBuffer,
        /// Why.
        reason: Refusal,
    },
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This replica is not the primary, or not a working one.
    NotPrimary,
    /// State is being transferred.
    Transferring,
    /// Another message of this client is in the pipeline or the queue.
    InFlight,
    /// Pipeline and queue are full.
    Full,
}

impl Refusal {
    /// Status code of the transient answer (chapter 03 section 6.1).
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::NotPrimary | Self::Transferring | Self::Full => CODE_NOT_ACCEPTED,
            Self::InFlight => CODE_NOT_COMMITTED,
        }
    }
}

/// What this replica misses, now (chapter 04 section 2.2). Nothing is remembered between two
/// questions; debouncing, sessions and the choice among equals belong to who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairNeed {
    /// Why.
    pub kind: NeedKind,
    /// First op that is missing.
    pub from: Op,
    /// Last op of the window.
    pub to: Op,
    /// For [`NeedKind::Elect`] the peers that can serve `from`, best first. Empty otherwise.
    pub sources: Vec<ReplicaId>,
    /// The view in which it is missing.
    pub view: View,
}

/// Why ops are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// Committed ops that cannot be applied.
    Gap,
    /// Ops of the adopted log, not known to be committed.
    Suffix,
    /// Ops a primary-elect needs before its view can start.
    Elect,
}

/// What became of a repaired prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingest {
    /// It is in the log.
    Journaled,
    /// The log has it already.
    Duplicate,
    /// It was dropped.
    Ignored(IngestRefusal),
}

/// Why a repaired prepare was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestRefusal {
    /// Identity or body seal is wrong, or it is of another group or cluster.
    Corrupt,
    /// Neither a working replica nor a primary-elect, or it stopped.
    Status,
    /// State is being transferred.
    Transferring,
    /// Applied already.
    Applied,
    /// Above everything this replica has heard of, or too far above the applied op.
    OutOfScope,
    /// The adopted or merged log names another prepare.
    NotNamed,
    /// It does not chain to its neighbours.
    Unchained,
    /// The plane refused it.
    Plane(&'static str),
}
