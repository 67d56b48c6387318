//! The oracles: claims about the whole cluster, checked while it runs.
//!
//! Oracles look, they never ask: at the logs in memory, at the durable bytes of the disks, at
//! the frames that leave. They draw nothing and change nothing. Each says how many comparisons
//! it made, so that a silent oracle can be told from a satisfied one.

pub mod acknowledged;
pub mod bounds;
pub mod committed;
pub mod convergence;
pub mod durable;
pub mod exactly_once;
pub mod faithful;
pub mod fencing;
pub mod files;
pub mod isolation;
pub mod messages;
pub mod promises;
pub mod truncation;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use biplane_wire::GroupId;

use self::acknowledged::Acknowledged;
use self::bounds::Bounds;
use self::committed::Committed;
use self::exactly_once::ExactlyOnce;
use self::faithful::Faithful;
use self::fencing::Fencing;
use self::files::Files;
use self::isolation::Isolation;
use self::messages::Messages;
use self::promises::Promises;
use self::truncation::Truncation;
use crate::disk::VirtualDisk;
use crate::machine::Machine;

/// A claim that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which claim.
    pub oracle: &'static str,
    /// In which group.
    pub group: Option<GroupId>,
    /// What was seen.
    pub text: String,
}

impl Violation {
    /// A violation in a group.
    #[must_use]
    pub fn new(oracle: &'static str, group: GroupId, text: String) -> Self {
        Self {
            oracle,
            group: Some(group),
            text,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.oracle)?;
        if let Some(group) = self.group {
            write!(f, "group {}: ", show_group(group))?;
        }
        f.write_str(&self.text)
    }
}

/// A group as people read it.
#[must_use]
pub fn show_group(group: GroupId) -> String {
    match group.unpack() {
        Some(key) => format!("{}/{}/{}", key.stream, key.topic, key.partition),
        None if group.is_metadata() => "metadata".into(),
        None => format!("{:#x}", group.0),
    }
}

/// A group and which incarnation of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// The id.
    pub group: GroupId,
    /// The incarnation.
    pub incarnation: u64,
}

impl GroupKey {
    /// The log of a group on a node. A lone replica numbers the ops of a partition anew at each
    /// start: its segments carry none.
    #[must_use]
    pub fn of_log(group: GroupId, incarnation: u64, replicas: usize, boot: u32) -> Self {
        let anew = replicas == 1 && !group.is_metadata();
        let incarnation = if anew {
            incarnation << 20 | u64::from(boot)
        } else {
            incarnation
        };
        Self { group, incarnation }
    }
}

/// A node as oracles see it: what runs, if it runs, and what is on its disk.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// Its number.
    pub node: u8,
    /// How often it was started.
    pub boot: u32,
    /// What runs.
    pub machine: Option<&'a dyn Machine>,
    /// Its disk.
    pub disk: &'a VirtualDisk,
}

/// All oracles of a run.
#[derive(Debug, Default)]
pub struct Oracles {
    /// One log for all.
    pub committed: Committed,
    /// Nothing acknowledged is lost.
    pub acknowledged: Acknowledged,
    /// Nothing is promised that the disk does not keep.
    pub promises: Promises,
    /// No request twice, and none before its time.
    pub exactly_once: ExactlyOnce,
    /// Offsets and what readers saw of them.
    pub messages: Messages,
    /// Sessions fence each other.
    pub fencing: Fencing,
    /// Nothing is dropped without proof.
    pub truncation: Truncation,
    /// What is repaired or transferred is the same.
    pub faithful: Faithful,
    /// Groups do not touch each other.
    pub isolation: Isolation,
    /// Nothing exceeds its limit.
    pub bounds: Bounds,
    /// A crash leaves what was promised.
    pub files: Files,
    /// Memory-only groups that lost more memory than their promise covers: a loss in them is no
    /// violation any more.
    pub exposed: BTreeSet<GroupKey>,
    /// Comparisons made at the end.
    pub converged: u64,
}

impl Oracles {
    /// Whether losses in a group are permitted.
    #[must_use]
    pub fn is_exposed(&self, group: GroupId, incarnation: u64) -> bool {
        self.exposed.contains(&GroupKey { group, incarnation })
    }

    /// How many comparisons each oracle made.
    #[must_use]
    pub fn comparisons(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("O1 committed prefix", self.committed.compared),
            ("O2 hash chain", self.committed.chained),
            ("O3 durable view before vote", self.promises.views_checked),
            ("O3 log view is held", self.promises.log_views_checked),
            ("O4 quorum holds at commit", self.promises.quorums_checked),
            ("O5 acknowledged kept", self.acknowledged.checked),
            ("O6 offsets", self.messages.assigned),
            ("O7 polls", self.messages.polled),
            ("O8 exactly once", self.exactly_once.checked),
            ("O9 session fencing", self.fencing.checked),
            ("O11 truncation", self.truncation.checked),
            ("O12 faithful repair", self.faithful.bodies),
            ("O12 faithful transfer", self.faithful.states),
            ("O13 isolation", self.isolation.checked),
            ("O15 bounds", self.bounds.checked),
            ("O16 files", self.files.checked),
            (
                "O10 acknowledged kept at restart",
                self.promises.restarts_checked,
            ),
            ("O10 acknowledgement is held", self.promises.acks_checked),
            ("O14 convergence", self.converged),
        ])
    }
}

/// Acknowledgements a group of `count` replicas needs (chapter 03 section 4); the oracle's own
/// copy, so that a core that counts wrongly does not judge itself.
#[must_use]
pub fn replication_quorum(count: u8) -> usize {
    match count {
        2 => 2,
        _ => usize::from(count.div_ceil(2).min(3)),
    }
}

/// Votes a view change needs, likewise.
#[must_use]
pub fn view_change_quorum(count: u8) -> usize {
    match count {
        2 => 2,
        _ => usize::from(count) - replication_quorum(count) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_are_those_of_the_table_and_intersect() {
        let table = [
            (1, 1, 1),
            (2, 2, 2),
            (3, 2, 2),
            (4, 2, 3),
            (5, 3, 3),
            (6, 3, 4),
            (9, 3, 7),
        ];
        for (count, replication, view_change) in table {
            assert_eq!(replication_quorum(count), replication, "{count}");
            assert_eq!(view_change_quorum(count), view_change, "{count}");
            assert!(replication + view_change > usize::from(count));
        }
    }
}
