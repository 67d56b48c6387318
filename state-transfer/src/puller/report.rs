//! What a puller says: effects for its owner, reasons, and how far it is.

use biplane_wire::{
    ManifestEntry, ManifestError, Message, Op, ReplicaId, StateChunkHeader, Typed, View,
};

use crate::manifest::OfferDefect;
use crate::stage::Stage;

/// An effect for the owner of a puller, in order.
#[derive(Clone, Debug)]
pub enum PullOutput {
    /// Send a request.
    Send {
        /// To this replica.
        to: ReplicaId,
        /// A sealed RequestStateTransfer or RequestStateChunk.
        message: Message,
    },
    /// The stage changed; the replica of the group must know.
    Stage(Stage),
    /// Keep these bytes of an artifact. Offset 0 starts it anew.
    Spool {
        /// Index in the manifest.
        index: u32,
        /// The artifact.
        entry: ManifestEntry,
        /// Where the bytes belong.
        offset: u64,
        /// Its body is the bytes.
        chunk: Typed<StateChunkHeader>,
    },
    /// All bytes of an artifact are there and match its digest. A plane that checks the content
    /// does so now and calls [`crate::Puller::reject`] if it does not hold.
    Complete {
        /// Index in the manifest.
        index: u32,
        /// The artifact.
        entry: ManifestEntry,
        /// It was kept from an earlier attempt and not pulled again.
        reused: bool,
    },
    /// Drop what was kept of this artifact, if anything.
    Discard {
        /// The artifact.
        entry: ManifestEntry,
    },
    /// Every artifact is complete. The owner checks them as a whole, then calls
    /// [`crate::Puller::begin_install`] or [`crate::Puller::reject`].
    Fetched(Offer),
    /// The attempt is over and the stage is Idle. The owner walks the commits and repairs.
    Ended {
        /// How.
        outcome: Ended,
        /// Whom to repair from; the current primary if `None`.
        repair_from: Option<ReplicaId>,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Stalled too often, or failed too often.
    Abandoned,
    /// The owner gave it up.
    Cancelled,
    /// The artifacts did not hold, or the install failed.
    Failed,
    /// The state is current.
    Installed,
    /// The peer has nothing to offer, or its offer was turned down.
    Refused,
}

/// What to tell an operator of an attempt that ended like this; `None` where it succeeded or was
/// not wanted any more.
#[must_use]
pub fn trouble(outcome: Ended) -> Option<&'static str> {
    match outcome {
        Ended::Installed | Ended::Cancelled => None,
        Ended::Abandoned => Some("the state transfer stalled too often"),
        Ended::Failed => Some("the transferred state did not hold, or could not be installed"),
        Ended::Refused => Some("no peer offers a state that is newer than what is here"),
    }
}

/// An accepted descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Who serves it.
    pub peer: ReplicaId,
    /// View of the server.
    pub view: View,
    /// The op the artifacts bring the replica to.
    pub commit_op: Op,
    /// The server's commit point.
    pub commit_max: Op,
    /// This replica's own highest known commit when it accepted the offer. From then on it
    /// acknowledges nothing, so nothing above `commit_op` it vouched for can be lost later.
    pub commit_max_local: Op,
    /// The artifacts in manifest order.
    pub entries: Vec<ManifestEntry>,
}

/// Why a frame has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullIgnored {
    /// The chunk is empty.
    #[error("the chunk is empty")]
    EmptyChunk,
    /// The manifest does not decode.
    #[error("the manifest does not decode: {0}")]
    Manifest(ManifestError),
    /// No attempt is open, or it is at another point.
    #[error("no attempt is open at this point")]
    NotExpected,
    /// The offer breaks a cap.
    #[error("the offer is out of bounds: {0}")]
    Offer(OfferDefect),
    /// The chunk goes beyond the end of the artifact.
    #[error("the chunk overruns the artifact")]
    Overrun,
    /// Another nonce or group: an attempt of the past.
    #[error("the frame belongs to another attempt")]
    WrongAttempt,
    /// A chunk of another artifact or offset: a duplicate.
    #[error("the chunk is not the next one")]
    WrongPlace,
    /// Sent by a replica that was not asked.
    #[error("the sender was not asked")]
    WrongSender,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Who serves.
    pub peer: ReplicaId,
    /// First incomplete artifact.
    pub artifact: u32,
    /// How many there are; 0 before the descriptor.
    pub artifacts: u32,
    /// Bytes there, reused artifacts included.
    pub bytes_done: u64,
    /// Bytes of all artifacts.
    pub bytes_total: u64,
    /// Bytes that crossed the wire in this attempt.
    pub bytes_received: u64,
    /// Age of the attempt in ticks.
    pub ticks: u64,
}

impl Progress {
    /// Mean rate of the attempt.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let ticks_per_second = 1_000 / crate::limits::TICK_MILLIS;
        self.bytes_received.saturating_mul(ticks_per_second) / self.ticks.max(1)
    }
}
