//! Looks at all groups of a node at once: which are settled, which lag behind, and how far those
//! that catch up have come. Nothing here changes anything.

use biplane_journal::DiskError;
use biplane_state_transfer as transfer;
use biplane_wire::GroupId;

use crate::group::Group;
use crate::plane::PartitionPlane;
use crate::reconcile::Slot;

impl PartitionPlane {
    /// Whether every group that runs here knows who leads.
    pub fn is_settled(&self) -> bool {
        let mut restless = self
            .restless
            .iter()
            .filter_map(|group| self.running(*group));
        restless.all(|running| running.replica().is_normal())
    }

    /// The groups that run here and have not applied everything they know to be committed, or
    /// are busy with a repair or a transfer. Costs what is under way, not a look at thousands of
    /// groups at rest.
    pub fn lagging(&self) -> impl Iterator<Item = GroupId> + '_ {
        let lags = |group: &GroupId| self.running(*group).is_some_and(Group::is_lagging);
        self.restless.iter().copied().filter(lags)
    }

    /// How far the journal repair of a group is; `None` when there is none.
    pub fn repair_progress(&self, group: GroupId) -> Option<biplane_repair::Progress> {
        self.running(group).and_then(Group::repair_progress)
    }

    /// How far the state transfer to a group here is; `None` when there is none.
    pub fn transfer_progress(&self, group: GroupId) -> Option<transfer::Progress> {
        self.running(group).and_then(Group::transfer_progress)
    }

    /// What the disk has no room for, while the prepare log of a group waits for some: this node
    /// acknowledges nothing of the group meanwhile.
    pub fn no_room(&self, group: GroupId) -> Option<&DiskError> {
        self.running(group).and_then(Group::no_room)
    }

    /// How the last attempt of a group to catch up ended, where it did not succeed.
    pub fn trouble(&self, group: GroupId) -> Option<&str> {
        self.running(group).and_then(Group::trouble)
    }

    /// Whether every committed message and position has reached its file.
    pub fn is_flushed(&self) -> bool {
        self.slots.values().all(|slot| match slot {
            Slot::Running(group) => group.is_flushed(),
            _ => true,
        })
    }

    /// What holds between any two steps.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_invariants(&self) {
        for (id, slot) in &self.slots {
            if let Slot::Running(group) = slot {
                assert!(group.spec.group == *id, "a group is filed under its id");
                group.check_invariants();
                assert!(
                    self.restless.contains(id) || !group.is_lagging(),
                    "a group that lags is known to"
                );
                assert!(
                    group.waits_in_line() == self.pace.has_in_line(*id),
                    "whoever waits for a turn is in line"
                );
                assert!(
                    group.waits_in_line() || group.filed_at() > self.now(),
                    "everybody else is called again"
                );
            }
        }
    }
}
