//! The view in which the consensus group of a new partition starts.
//!
//! Ids of streams, topics and partitions are used again, and no frame of a partition group says
//! which incarnation of its id it is of: only the view can tell. So once something was deleted,
//! new groups start in a view that no earlier group has reached. What is still on its way from a
//! deleted group is then of an older view, and every core drops it.
//!
//! The value travels in the prepare (chapter 05 sections 4.2 and 4.3), and all replicas start a
//! group in the view they find there, whoever chose it. It stays small: a peer that chooses the
//! present metadata view again would have to climb from there.

use biplane_wire::View;

/// Views that are left free above the highest one known. A replica that is cut off climbs on its
/// own, a view with every timeout, and nobody hears of it before it is back.
const GAP: u32 = 64;

/// Chooses the first view of new groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedViews {
    replica_count: u8,
    /// Highest view that a partition group is known to have been in.
    reached: View,
    /// Something was deleted since the last choice: its id may come back.
    deleted: bool,
    /// New groups start here or above.
    floor: View,
}

impl Default for CreatedViews {
    fn default() -> Self {
        Self::new(1)
    }
}

impl CreatedViews {
    /// Of a cluster in which nothing was deleted yet.
    #[must_use]
    pub const fn new(replica_count: u8) -> Self {
        Self {
            replica_count,
            reached: View(0),
            deleted: false,
            floor: View(0),
        }
    }

    /// A partition group is or was in this view.
    pub fn note_reached(&mut self, view: View) {
        self.reached = self.reached.max(view);
    }

    /// Partitions were deleted, or may have been before this process started.
    pub fn note_deletion(&mut self) {
        self.deleted = true;
    }

    /// The view of groups that are created in this metadata view. It has the same primary, so
    /// that the node that creates a partition leads it (chapter 05 section 10.3).
    ///
    /// Stays at `metadata_view` in a cluster of one, which has no peers to be confused by, and
    /// when there is no number left above the highest one.
    pub fn choose(&mut self, metadata_view: View) -> View {
        if self.replica_count < 2 {
            return metadata_view;
        }
        if std::mem::take(&mut self.deleted) {
            self.floor = View(self.reached.0.saturating_add(GAP));
        }
        let count = u32::from(self.replica_count);
        let steps = self.floor.0.saturating_sub(metadata_view.0).div_ceil(count);
        let climbed = steps
            .checked_mul(count)
            .and_then(|climb| metadata_view.0.checked_add(climb));
        let chosen = View(climbed.unwrap_or(metadata_view.0));
        self.note_reached(chosen);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_deletions_it_is_the_metadata_view() {
        let mut views = CreatedViews::new(3);
        views.note_reached(View(9));
        assert_eq!(views.choose(View(4)), View(4));
        assert_eq!(views.choose(View(5)), View(5));
    }

    #[test]
    fn after_a_deletion_it_is_above_everything_reached_and_keeps_the_primary() {
        let mut views = CreatedViews::new(3);
        let mut last = View(0);
        for (metadata, reached) in [(0, 0), (1, 80), (1, 3), (7, 900), (8, 901)] {
            views.note_reached(View(reached));
            views.note_deletion();
            let chosen = views.choose(View(metadata));
            assert!(chosen.0 >= last.max(View(reached)).0 + GAP, "{chosen}");
            assert_eq!(chosen.primary(3), View(metadata).primary(3));
            last = chosen;
        }
    }

    #[test]
    fn creations_in_a_row_share_a_view() {
        let mut views = CreatedViews::new(3);
        views.note_deletion();
        let chosen = views.choose(View(2));
        assert_eq!(views.choose(View(2)), chosen);
        views.note_reached(View(chosen.0 + 5));
        assert_eq!(views.choose(View(2)), chosen, "nothing was deleted");
    }

    #[test]
    fn a_cluster_of_one_and_the_end_of_the_numbers_fall_back() {
        let mut single = CreatedViews::new(1);
        single.note_reached(View(7));
        single.note_deletion();
        assert_eq!(single.choose(View(0)), View(0));
        let mut views = CreatedViews::new(3);
        views.note_reached(View(u32::MAX - 1));
        views.note_deletion();
        assert_eq!(views.choose(View(1)), View(1));
    }
}
