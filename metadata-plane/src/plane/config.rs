//! What the plane is opened with, and why it may refuse.

use biplane_journal::{OpenError as JournalError, PairingError, ReadFileError};
use biplane_journal::{PathError, SnapshotFileError, SuperblockError};
use biplane_vsr::OpenError as ReplicaError;
use biplane_vsr::sessions::{SLOTS_MAX, SLOTS_MIN};
use biplane_wire::{ClusterId, FRAME_SIZE_MAX_DEFAULT, ReplicaId};
use thiserror::Error;

use crate::snapshot::SnapshotError;

/// Free slots that a checkpoint must leave for the pipeline, unless that is deeper.
const CHECKPOINT_MARGIN_MIN: u64 = 64;

/// The user that every replica creates for itself where it has no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootUser {
    /// Name; must be the same on all replicas.
    pub username: String,
    /// Hash of the password as a PHC string; differs between replicas by its salt.
    pub password_hash: String,
}

/// Sizes. Those that decide about replicated state must be equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ops the prepare log holds (`metadata.journal_slots`); at least four times the larger of
    /// 64 and the pipeline depth.
    pub journal_slots: u64,
    /// Prepares in flight, 1 to 127 (`metadata.prepare_queue_depth`).
    pub prepare_queue_depth: u16,
    /// Sessions (`metadata.clients_table_max`), 2 to 65536; equal on all replicas.
    pub clients_table_max: u32,
    /// Largest frame in bytes.
    pub frame_bytes_max: u32,
    /// Prepares served to a peer at once (`cluster.repair_chunk_max`).
    pub repair_chunk_max: u32,
    /// Probes without an answer until an election is started instead.
    pub view_probe_attempts_max: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            journal_slots: biplane_journal::JOURNAL_SLOTS_DEFAULT,
            prepare_queue_depth: 32,
            clients_table_max: 8_192,
            frame_bytes_max: FRAME_SIZE_MAX_DEFAULT,
            repair_chunk_max: biplane_repair::CHUNK_MAX_DEFAULT,
            view_probe_attempts_max: 5,
        }
    }
}

impl Limits {
    /// Everything small, so that tests run into every limit.
    pub const fn tiny() -> Self {
        Self {
            journal_slots: 4 * CHECKPOINT_MARGIN_MIN,
            prepare_queue_depth: 4,
            clients_table_max: 8,
            frame_bytes_max: 1 << 20,
            repair_chunk_max: 8,
            view_probe_attempts_max: 3,
        }
    }

    fn checkpoint_margin_min(&self) -> u64 {
        CHECKPOINT_MARGIN_MIN.max(self.prepare_queue_depth.into())
    }

    /// Free slots of the prepare log at which a checkpoint is due. A quarter of the log, because
    /// writes are refused while it is full: a slow disk needs that time for the snapshot.
    pub(crate) fn checkpoint_margin(&self) -> u64 {
        self.checkpoint_margin_min().max(self.journal_slots / 4)
    }

    pub(super) fn validate(&self) -> Result<(), OpenError> {
        if self.journal_slots < 4 * self.checkpoint_margin_min() {
            return Err(OpenError::Limit(
                "journal_slots is below four times its margin",
            ));
        }
        let clients = usize::try_from(self.clients_table_max).unwrap_or(usize::MAX);
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&clients) {
            return Err(OpenError::Limit("clients_table_max is not in 2..=65536"));
        }
        if !(1..=biplane_repair::CHUNK_MAX_LIMIT).contains(&self.repair_chunk_max) {
            return Err(OpenError::Limit("repair_chunk_max is not in 1..=1024"));
        }
        Ok(())
    }
}

/// Intervals in ticks of 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Those of the consensus core.
    pub replica: biplane_vsr::Timers,
    /// Without progress until a repair or transfer request is sent again.
    pub repair_retry_ticks: u32,
    /// A gap must last until a repair is started on its account.
    pub repair_gap_debounce_ticks: u32,
    /// Until a forwarded login or logout counts as unanswered.
    pub forward_ticks: u32,
    /// Between two searches for expired access tokens; 0 for never.
    pub token_cleaner_ticks: u32,
    /// How long the superblock may be unwritable until the plane stops; 0 for ever.
    pub superblock_stuck_ticks: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            replica: biplane_vsr::Timers::default(),
            repair_retry_ticks: 100,
            repair_gap_debounce_ticks: 100,
            forward_ticks: 500,
            token_cleaner_ticks: 6_000,
            superblock_stuck_ticks: 12_000,
        }
    }
}

impl Timers {
    /// Short ones in the proportions of the defaults, for tests.
    pub const fn tiny() -> Self {
        Self {
            replica: biplane_vsr::Timers::tiny(),
            repair_retry_ticks: 10,
            repair_gap_debounce_ticks: 10,
            forward_ticks: 50,
            token_cleaner_ticks: 60,
            superblock_stuck_ticks: 1_000,
        }
    }
}

/// What the plane is opened with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Cluster; stamped on every frame.
    pub cluster: ClusterId,
    /// This replica.
    pub replica: ReplicaId,
    /// Members of the cluster, 1 to 32.
    pub replica_count: u8,
    /// The root user to begin with; not used where there is a snapshot.
    pub root: RootUser,
    /// Sizes.
    pub limits: Limits,
    /// Intervals.
    pub timers: Timers,
    /// Random and new at every boot; the lowest bit is forced to 1.
    pub incarnation: u128,
    /// Seed of all jitter and nonces; new at every boot.
    pub seed: u64,
}

/// Why the plane cannot be opened; the node must not start.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A limit is out of bounds.
    #[error("{0}")]
    Limit(&'static str),
    /// The superblock cannot be trusted.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The snapshot file cannot be read.
    #[error("the snapshot file cannot be read: {0}")]
    SnapshotRead(#[from] ReadFileError),
    /// The snapshot file is damaged.
    #[error(transparent)]
    SnapshotFile(#[from] SnapshotFileError),
    /// The snapshot does not decode.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Superblock and snapshot contradict each other: a durable file was lost.
    #[error(transparent)]
    Pairing(#[from] PairingError),
    /// The prepare log cannot be trusted.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The consensus core refuses configuration or log.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// A path is illegal.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A committed prepare in the log does not decode.
    #[error("the committed op {op} does not decode: {reason}")]
    Undecodable {
        /// Op.
        op: u64,
        /// Why.
        reason: biplane_wire::DecodeError,
    },
}
