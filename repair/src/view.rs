//! The facts a requester is told about its group before each call.
//!
//! The owner copies them from its replica, so repair reads no protocol state of its own and
//! cannot disagree with it.

pub use biplane_vsr::Status as GroupStatus;
pub use biplane_vsr::{NeedKind, RepairNeed};
use biplane_vsr::{StatusView, TransferStage};
use biplane_wire::{Op, ReplicaId, View};

/// Which of the two planes a group belongs to; some rules of repair differ between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// The one metadata group: durable log, eviction leads to a state transfer at once.
    Metadata,
    /// A partition group: history below the log lives in segments without op numbers.
    Partition,
}

/// How far the group is with a state transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferState {
    /// None is wanted.
    #[default]
    Idle,
    /// One will be tried again after a pause; the log may be repaired meanwhile, and no second
    /// one is armed.
    Scheduled,
    /// One is wanted or under way; the log is left alone.
    Active,
}

/// What a requester is told about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Status of the replica.
    pub status: GroupStatus,
    /// Its view.
    pub view: View,
    /// Highest op applied here.
    pub commit_min: Op,
    /// Highest op known committed anywhere.
    pub commit_max: Op,
    /// Highest op the log claims.
    pub head: Op,
    /// State transfer of the group.
    pub transfer: TransferState,
    /// A purge is committed in metadata and not yet applied to this partition.
    pub purge_deferred: bool,
}

impl GroupView {
    /// From a replica's own picture of itself, and what only the owner knows: whether a transfer
    /// is scheduled, and whether a purge is deferred.
    #[must_use]
    pub fn of(status: &StatusView, scheduled: bool, purge_deferred: bool) -> Self {
        let transfer = match status.transfer_stage {
            TransferStage::Idle if scheduled => TransferState::Scheduled,
            TransferStage::Idle => TransferState::Idle,
            _ => TransferState::Active,
        };
        Self {
            status: status.status,
            view: status.view,
            commit_min: status.commit_min,
            commit_max: status.commit_max,
            head: status.op_head,
            transfer,
            purge_deferred,
        }
    }

    /// The primary of the replica's view.
    pub(crate) fn primary(&self, replica_count: u8) -> ReplicaId {
        self.view.primary(replica_count)
    }
}
