//! What a requester says: effects for its owner, reasons, and how far it is.

use biplane_wire::{Message, Op, ReplicaId};

use super::Requester;
use crate::view::NeedKind;

/// An effect for the owner of a requester, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutput {
    /// Send a request.
    Send {
        /// To this replica.
        to: ReplicaId,
        /// A sealed RequestPrepares.
        message: Message,
    },
    /// The log cannot be completed by repair: start a state transfer.
    ArmTransfer {
        /// From this replica: the primary, or who refused when this replica is the primary.
        from: ReplicaId,
    },
    /// The partition's own segments cover the ops up to here: raise the applied point, walk the
    /// commits, then call [`Requester::advance`].
    RaiseFloor {
        /// The new applied point; above the present one.
        to: Op,
    },
    /// A session was opened. For logs.
    Opened {
        /// With this replica.
        peer: ReplicaId,
        /// First op asked for.
        from: Op,
        /// Last op asked for.
        to: Op,
        /// Why.
        kind: NeedKind,
    },
    /// The session was closed. For logs.
    Closed {
        /// With this replica.
        peer: ReplicaId,
        /// Why.
        outcome: SessionOutcome,
    },
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOutcome {
    /// Nothing is missing any more.
    Complete,
    /// The range is gone at the peer; a state transfer was armed.
    Evicted,
    /// The partition's segments do not reach the served range; a state transfer was armed
    /// unless one is scheduled.
    FloorRefused,
    /// The connection to the peer is gone.
    PeerLost,
    /// The peer retains nothing this replica could use.
    Refused,
    /// Too many rounds without progress.
    Stalled,
    /// The replica left the status the session belongs to.
    StatusChanged,
    /// A state transfer took over.
    TransferStarted,
    /// The view changed.
    ViewChanged,
}

/// What to tell an operator of a session that ended like this; `None` where it did what it was
/// for, or something else took its place.
#[must_use]
pub fn trouble(peer: ReplicaId, outcome: SessionOutcome) -> Option<String> {
    let what = match outcome {
        SessionOutcome::Complete
        | SessionOutcome::TransferStarted
        | SessionOutcome::StatusChanged
        | SessionOutcome::ViewChanged => return None,
        SessionOutcome::Evicted => "no longer has what is missing here",
        SessionOutcome::FloorRefused => "has only what does not connect to the files here",
        SessionOutcome::PeerLost => "was lost during the repair",
        SessionOutcome::Refused => "has nothing of what is missing here",
        SessionOutcome::Stalled => "stopped answering",
    };
    Some(format!("replica {peer} {what}"))
}

/// Why a repair frame is dropped before its content is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairIgnored {
    /// No session is open.
    #[error("no repair session is open")]
    NoSession,
    /// The session belongs to another view or status.
    #[error("the repair session does not belong to this view and status")]
    NotInView,
    /// The op is outside what was asked for, or applied already.
    #[error("the op is outside the window of the session")]
    OutsideWindow,
    /// A state transfer is under way.
    #[error("a state transfer is under way")]
    Transferring,
}

/// What became of a repaired prepare that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingested {
    /// It is in the log now.
    Stored,
    /// It was there before.
    Duplicate,
    /// It lies further above the applied point than the log reaches. It was seen, which may
    /// decide whether the applied point can be raised; then it is asked for again.
    OutOfReach,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The replica asked.
    pub peer: ReplicaId,
    /// What kind of need it serves.
    pub kind: NeedKind,
    /// First op missing when it was opened.
    pub from: Op,
    /// First op of the latest request: what lies below is held.
    pub at: Op,
    /// Last op of the window.
    pub to: Op,
    /// Ops stored so far.
    pub stored: u64,
    /// Age of the session in ticks.
    pub ticks: u64,
}

impl Progress {
    /// Mean rate since the session was opened.
    #[must_use]
    pub fn ops_per_second(&self) -> u64 {
        let ticks_per_second = 1_000 / crate::limits::TICK_MILLIS;
        self.stored.saturating_mul(ticks_per_second) / self.ticks.max(1)
    }
}

impl Requester {
    /// How far the open session is.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let session = self.session.as_ref()?;
        Some(Progress {
            peer: session.peer,
            kind: session.kind,
            from: session.opened_at,
            at: session.from,
            to: session.to,
            stored: session.stored,
            ticks: session.ticks,
        })
    }

    /// Asserts what holds between any two calls.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_invariants(&self) {
        let limits = self.config.limits;
        let Some(session) = &self.session else { return };
        assert!(session.nonce != 0, "a session has a nonce");
        assert!(
            session.peer != self.config.replica,
            "a session has another replica"
        );
        assert!(
            session.peer.0 < self.config.replica_count,
            "the peer is in the roster"
        );
        assert!(
            Op::ZERO < session.from && session.from <= session.to,
            "a window is not empty"
        );
        assert!(
            session.idle <= limits.retry_ticks,
            "a retry is never overdue"
        );
        assert!(
            session.stalled_rounds <= limits.stalled_rounds_max,
            "nor is a rotation"
        );
        assert!(
            self.gap_ticks == 0,
            "the gap is not counted while it is being closed"
        );
    }
}
