//! How far a group is with catching up, and what went wrong last, for logs and status.

use biplane_journal::DiskError;
use biplane_repair::{self as repair, SessionOutcome};
use biplane_state_transfer::{self as transfer, Ended};
use biplane_wire::ReplicaId;

use super::Group;

impl Group {
    /// Whether something committed is not applied here, or is being fetched.
    pub(crate) fn is_lagging(&self) -> bool {
        !self.replica.is_normal()
            || self.replica.commit_min() < self.replica.commit_max()
            || self.requester.has_session()
            || self.transfer.is_busy(&self.puller)
            || self.log.no_room().is_some()
    }

    /// What the disk has no room for, while the prepare log waits for some.
    pub(crate) fn no_room(&self) -> Option<&DiskError> {
        self.log.no_room()
    }

    pub(crate) fn repair_progress(&self) -> Option<repair::Progress> {
        self.requester.progress()
    }

    pub(crate) fn transfer_progress(&self) -> Option<transfer::Progress> {
        self.puller.progress()
    }

    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(super) fn note_repair(&mut self, peer: ReplicaId, outcome: SessionOutcome) {
        self.trouble = repair::trouble(peer, outcome);
    }

    pub(super) fn note_transfer(&mut self, outcome: Ended) {
        self.trouble = transfer::trouble(outcome).map(str::to_owned);
    }
}
