//! Which groups a tick is for.
//!
//! Each group names the next tick on which it must be called; all others pass it by. Thousands
//! of idle groups then cost what their heartbeats cost, not a visit each every 10 ms.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::GroupId;

/// Groups by the tick they wait for.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    due: BTreeSet<(u64, GroupId)>,
    at: BTreeMap<GroupId, u64>,
}

impl Schedule {
    /// Calls `group` on tick `at`, and on no earlier one.
    pub(crate) fn set(&mut self, group: GroupId, at: u64) {
        match self.at.insert(group, at) {
            Some(before) if before == at => return,
            Some(before) => self.due.remove(&(before, group)),
            None => false,
        };
        self.due.insert((at, group));
    }

    /// Calls `group` no more.
    pub(crate) fn remove(&mut self, group: GroupId) {
        if let Some(at) = self.at.remove(&group) {
            self.due.remove(&(at, group));
        }
    }

    /// Takes the groups that are due at `now`, ascending by id.
    pub(crate) fn take(&mut self, now: u64) -> Vec<GroupId> {
        let mut groups = Vec::new();
        while let Some((at, group)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, group));
            self.at.remove(&group);
            groups.push(group);
        }
        groups.sort_unstable();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_up_once_at_their_tick_and_in_order() {
        let group = |n| GroupId::partition(0, 0, n).unwrap();
        let mut schedule = Schedule::default();
        schedule.set(group(2), 5);
        schedule.set(group(1), 5);
        schedule.set(group(3), 9);
        schedule.set(group(3), 4);
        schedule.set(group(4), 5);
        schedule.remove(group(4));
        assert!(schedule.take(3).is_empty());
        assert_eq!(schedule.take(5), [group(1), group(2), group(3)]);
        assert!(schedule.take(100).is_empty());
    }
}
