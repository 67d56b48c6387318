//! Quorum sizes and sets of replicas (chapter 03 section 4).
//!
//! Three sizes matter. Enough acknowledgements commit an op; enough votes start a view; enough
//! negative acknowledgements prove that an op was never committed. They overlap: a view-change
//! quorum meets every replication quorum, and a nack quorum leaves too few for one.

use biplane_wire::ReplicaId;

use crate::constants::REPLICA_COUNT_MAX;

/// The quorum sizes of a cluster of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorums {
    /// Acknowledgements that commit an op, the primary's own included.
    pub replication: u8,
    /// Votes that let the primary of a new view decide, its own included.
    pub view_change: u8,
    /// Replicas that must deny an op before it may be discarded.
    pub nack: u8,
    /// Start-view-change messages of others that release a vote.
    pub others_before_vote: u8,
}

impl Quorums {
    /// Sizes for `replica_count` replicas.
    ///
    /// # Panics
    ///
    /// When the count is not in 1..=32.
    #[must_use]
    pub const fn new(replica_count: u8) -> Self {
        assert!(replica_count >= 1, "a cluster has at least one replica");
        assert!(
            replica_count <= REPLICA_COUNT_MAX,
            "a cluster has at most 32 replicas"
        );
        let half = replica_count.div_ceil(2);
        let replication = match replica_count {
            2 => 2,
            _ if half < 3 => half,
            _ => 3,
        };
        let nack = replica_count - replication + 1;
        let view_change = if replica_count == 2 { 2 } else { nack };
        let quorums = Self {
            replication,
            view_change,
            nack,
            others_before_vote: (replica_count - 1) / 2,
        };
        assert!(quorums.replication + quorums.view_change > replica_count);
        assert!(quorums.nack > replica_count - quorums.replication);
        quorums
    }
}

/// A set of replicas of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSet(u32);

impl ReplicaSet {
    /// The set without members.
    pub const EMPTY: Self = Self(0);

    /// The set of the first `replica_count` replicas.
    #[must_use]
    pub const fn all(replica_count: u8) -> Self {
        assert!(
            replica_count <= REPLICA_COUNT_MAX,
            "a cluster has at most 32 replicas"
        );
        match 1_u32.checked_shl(replica_count as u32) {
            Some(bit) => Self(bit - 1),
            None => Self(u32::MAX),
        }
    }

    /// Adds a member; `false` when it was one already. Ids that no cluster has are not added.
    pub const fn insert(&mut self, replica: ReplicaId) -> bool {
        let Some(bit) = Self::bit(replica) else {
            return false;
        };
        let added = self.0 & bit == 0;
        self.0 |= bit;
        added
    }

    /// Takes a member out.
    pub const fn remove(&mut self, replica: ReplicaId) {
        if let Some(bit) = Self::bit(replica) {
            self.0 &= !bit;
        }
    }

    /// Whether `replica` is a member.
    #[must_use]
    pub const fn contains(self, replica: ReplicaId) -> bool {
        match Self::bit(replica) {
            Some(bit) => self.0 & bit != 0,
            None => false,
        }
    }

    /// Number of members.
    #[must_use]
    pub const fn len(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Whether there is no member.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The same set without `replica`.
    #[must_use]
    pub const fn without(mut self, replica: ReplicaId) -> Self {
        self.remove(replica);
        self
    }

    /// Members of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        (0..REPLICA_COUNT_MAX)
            .map(ReplicaId)
            .filter(move |replica| self.contains(*replica))
    }

    const fn bit(replica: ReplicaId) -> Option<u32> {
        1_u32.checked_shl(replica.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_table() {
        let table = [
            (1, 1, 1, 1, 0),
            (2, 2, 2, 1, 0),
            (3, 2, 2, 2, 1),
            (4, 2, 3, 3, 1),
            (5, 3, 3, 3, 2),
            (6, 3, 4, 4, 2),
            (7, 3, 5, 5, 3),
        ];
        for (count, replication, view_change, nack, others_before_vote) in table {
            let expected = Quorums {
                replication,
                view_change,
                nack,
                others_before_vote,
            };
            assert_eq!(Quorums::new(count), expected, "{count} replicas");
        }
        for count in 8..=32 {
            let quorums = Quorums::new(count);
            assert_eq!(quorums.replication, 3);
            assert_eq!(quorums.view_change, count - 2);
            assert_eq!(quorums.nack, count - 2);
            assert_eq!(quorums.others_before_vote, (count - 1) / 2);
        }
    }

    #[test]
    fn quorums_meet_for_every_size() {
        for count in 1..=32 {
            let quorums = Quorums::new(count);
            assert!(
                quorums.replication + quorums.view_change > count,
                "{count} replicas"
            );
            // A committed op leaves fewer replicas than a nack quorum.
            assert!(
                quorums.nack > count - quorums.replication,
                "{count} replicas"
            );
        }
    }

    #[test]
    fn set_counts_each_member_once() {
        let mut set = ReplicaSet::EMPTY;
        assert!(set.insert(ReplicaId(3)));
        assert!(!set.insert(ReplicaId(3)));
        assert!(set.insert(ReplicaId(31)));
        assert!(!set.insert(ReplicaId(32)), "no such replica");
        assert_eq!(set.len(), 2);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [ReplicaId(3), ReplicaId(31)]
        );
        set.remove(ReplicaId(3));
        assert!(!set.contains(ReplicaId(3)));
        assert!(!set.contains(ReplicaId(255)));
    }

    #[test]
    fn full_set_has_every_replica() {
        for count in 0..=32 {
            assert_eq!(ReplicaSet::all(count).len(), count);
        }
        assert_eq!(ReplicaSet::all(3).minus(ReplicaSet::all(2)).len(), 1);
    }
}
