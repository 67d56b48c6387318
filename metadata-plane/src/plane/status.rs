//! Looking at the plane from outside.

use biplane_journal::DiskError;
use biplane_vsr::sessions::Session;
use biplane_vsr::{Replica, StatusView};
use biplane_wire::{ClientId, Op, ReplicaId, View};

use super::MetadataPlane;
use crate::sessions;
use crate::snapshot::encode_snapshot;
use crate::state::MetadataState;

/// The plane at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The consensus core.
    pub replica: StatusView,
    /// Whether this replica leads, everything known committed is applied, and what its log held
    /// at boot is committed again.
    pub is_caught_up_primary: bool,
    /// Op of the newest snapshot on disk; 0 where there is none.
    pub checkpoint_op: Op,
    /// Sessions.
    pub sessions: usize,
    /// Requests of clients, logins and logouts that are in hand.
    pub waiting: usize,
    /// The plane has stopped.
    pub halted: bool,
}

impl MetadataPlane {
    /// The metadata as applied here, which may lag behind the cluster.
    pub fn state(&self) -> &MetadataState {
        &self.machine.state
    }

    /// Highest op applied here.
    pub fn commit_min(&self) -> Op {
        self.replica.commit_min()
    }

    /// Highest op known committed here.
    pub fn commit_max(&self) -> Op {
        self.replica.commit_max()
    }

    /// The current view.
    pub fn view(&self) -> View {
        self.replica.view()
    }

    /// The primary of the current view.
    pub fn primary(&self) -> ReplicaId {
        self.replica.primary()
    }

    /// The session of a client in the table as applied here.
    pub fn session(&self, client: ClientId) -> Option<&Session> {
        self.machine.table.get(client)
    }

    /// The consensus core, for oracles and metrics.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The plane at this moment.
    pub fn status(&self) -> Status {
        Status {
            replica: self.replica.status(),
            is_caught_up_primary: self.replica.is_caught_up_primary(),
            checkpoint_op: self.storage.saved().map_or(Op::ZERO, |saved| saved.op),
            sessions: self.machine.table.len(),
            waiting: self.waiters.len() + self.forwarding.len(),
            halted: self.halted,
        }
    }

    /// Whether something committed is not applied here, or is being fetched.
    pub fn is_lagging(&self) -> bool {
        let status = self.replica.status();
        status.status != biplane_vsr::Status::Normal
            || status.commit_min < status.commit_max
            || self.requester.has_session()
            || self.puller.progress().is_some()
            || self.storage.no_room().is_some()
    }

    /// How far the journal repair is; `None` when there is none.
    pub fn repair_progress(&self) -> Option<biplane_repair::Progress> {
        self.requester.progress()
    }

    /// How far the state transfer to this node is; `None` when there is none.
    pub fn transfer_progress(&self) -> Option<biplane_state_transfer::Progress> {
        self.puller.progress()
    }

    /// What the disk has no room for, while the log waits for some: nothing is acknowledged and
    /// requests are refused meanwhile.
    pub fn no_room(&self) -> Option<&DiskError> {
        self.storage.no_room()
    }

    /// How the last attempt to catch up ended, where it did not succeed.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Applied state and client table as a snapshot payload stamped with time 0. Replicas that
    /// applied the same ops give the same bytes, but for the hash of a root password that was
    /// never changed, and for slots and older replies of a table that came by transfer.
    pub fn encode_state(&self) -> Vec<u8> {
        let table = sessions::image(&self.machine.table);
        encode_snapshot(0, self.commit_min(), &self.machine.state, &table)
    }

    /// Checks what must hold between and within the parts.
    ///
    /// # Panics
    ///
    /// On the first invariant that does not hold: a bug.
    pub fn check_invariants(&self) {
        self.replica.check_invariants();
        self.machine.state.check_invariants();
        self.machine.table.check_invariants();
        self.storage.check_invariants();
        self.requester.check_invariants();
        self.puller.check_invariants();
        self.provider.check_invariants();
        assert!(
            self.halted || self.core_outputs.is_empty(),
            "a step carries everything out"
        );
        let stage = self.replica.transfer_stage();
        assert!(
            self.puller.stage() == stage,
            "core and puller agree about the transfer"
        );
    }
}
