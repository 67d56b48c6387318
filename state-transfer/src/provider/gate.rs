//! Whether a replica may make an offer at all (chapter 04 sections 3.4 and 3.5).
//!
//! The owner states plain facts; the order in which they are looked at decides whether a refusal
//! is called transient, and is part of the protocol.

use biplane_wire::{Op, View};

/// Facts of the metadata plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataGate {
    /// View of the replica.
    pub view: View,
    /// Its known commit point.
    pub commit_max: Op,
    /// Primary of its view, Normal, not ceded, not transferring, everything known committed is
    /// applied, and what its log held at boot is committed again.
    pub caught_up_primary: bool,
    /// A snapshot was written and its bytes verify.
    pub has_checkpoint: bool,
}

/// Facts of a partition group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionGate {
    /// View of the replica.
    pub view: View,
    /// Its known commit point.
    pub commit_max: Op,
    /// As for metadata, for the group.
    pub caught_up_primary: bool,
    /// The partition has a directory on disk.
    pub has_directory: bool,
    /// A repair session of the group is open here.
    pub repairing: bool,
    /// A committed purge is not applied here yet.
    pub purge_deferred: bool,
    /// The group got its state by a transfer: its frontier is known even at commit point 0.
    pub frontier_installed: bool,
    /// Segments that are not empty.
    pub segments: u32,
    /// Offset of the next message.
    pub next_offset: u64,
    /// Purge generation applied here.
    pub purge_generation: u64,
    /// Whether all committed messages are in segments.
    pub flush: Flush,
}

/// State of the flush of committed messages that an offer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// All are in segments, or will be by the time the offer is built.
    Clean,
    /// Under way.
    Pending,
    /// It failed.
    Failed,
}

/// The facts of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The metadata group.
    Metadata(MetadataGate),
    /// A partition group.
    Partition(PartitionGate),
}

impl Gate {
    pub(super) fn view(&self) -> View {
        match self {
            Self::Metadata(gate) => gate.view,
            Self::Partition(gate) => gate.view,
        }
    }

    pub(super) fn commit_max(&self) -> Op {
        match self {
            Self::Metadata(gate) => gate.commit_max,
            Self::Partition(gate) => gate.commit_max,
        }
    }

    /// The refusal that comes before an existing offer is looked for; whether it is transient.
    pub(super) fn refusal(&self) -> Option<bool> {
        match self {
            Self::Metadata(gate) => {
                (!gate.caught_up_primary || !gate.has_checkpoint).then_some(false)
            }
            Self::Partition(gate) => gate.refusal(),
        }
    }

    /// The refusal that comes after it, before a new offer is built.
    pub(super) fn build_refusal(&self) -> Option<bool> {
        match self {
            Self::Metadata(_) => None,
            Self::Partition(gate) => match gate.flush {
                Flush::Clean => None,
                Flush::Pending => Some(true),
                Flush::Failed => Some(false),
            },
        }
    }
}

impl PartitionGate {
    fn refusal(&self) -> Option<bool> {
        let nothing_committed = self.commit_max == Op::ZERO && !self.frontier_installed;
        let nothing_stored =
            self.segments == 0 && self.next_offset == 0 && self.purge_generation == 0;
        if !self.caught_up_primary {
            Some(true)
        } else if !self.has_directory {
            Some(false)
        } else if self.repairing || self.purge_deferred {
            // What a committed purge is about to remove must not be handed out.
            Some(true)
        } else if nothing_committed || nothing_stored {
            Some(true)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> PartitionGate {
        PartitionGate {
            view: View(3),
            commit_max: Op(10),
            caught_up_primary: true,
            has_directory: true,
            repairing: false,
            purge_deferred: false,
            frontier_installed: false,
            segments: 1,
            next_offset: 5,
            purge_generation: 0,
            flush: Flush::Clean,
        }
    }

    #[test]
    fn each_condition_of_a_partition_has_its_answer() {
        let refusal = |change: fn(&mut PartitionGate)| {
            let mut gate = ready();
            change(&mut gate);
            let gate = Gate::Partition(gate);
            gate.refusal().or(gate.build_refusal())
        };
        assert_eq!(refusal(|_| {}), None);
        assert_eq!(refusal(|gate| gate.caught_up_primary = false), Some(true));
        assert_eq!(refusal(|gate| gate.has_directory = false), Some(false));
        assert_eq!(refusal(|gate| gate.repairing = true), Some(true));
        assert_eq!(refusal(|gate| gate.purge_deferred = true), Some(true));
        assert_eq!(refusal(|gate| gate.commit_max = Op(0)), Some(true));
        assert_eq!(
            refusal(|gate| (gate.segments, gate.next_offset) = (0, 0)),
            Some(true)
        );
        assert_eq!(
            refusal(|gate| gate.segments = 0),
            None,
            "emptied, but numbering goes on"
        );
        assert_eq!(refusal(|gate| gate.flush = Flush::Pending), Some(true));
        assert_eq!(refusal(|gate| gate.flush = Flush::Failed), Some(false));
    }

    #[test]
    fn being_no_primary_comes_before_having_no_directory() {
        let gate = PartitionGate {
            caught_up_primary: false,
            has_directory: false,
            ..ready()
        };
        assert_eq!(Gate::Partition(gate).refusal(), Some(true));
    }

    #[test]
    fn an_installed_frontier_stands_for_a_commit_point() {
        let gate = PartitionGate {
            commit_max: Op(0),
            frontier_installed: true,
            ..ready()
        };
        assert_eq!(Gate::Partition(gate).refusal(), None);
        let emptied = PartitionGate {
            segments: 0,
            next_offset: 0,
            purge_generation: 2,
            ..gate
        };
        assert_eq!(
            Gate::Partition(emptied).refusal(),
            None,
            "a purge is state, too"
        );
    }

    #[test]
    fn metadata_serves_as_caught_up_primary_with_a_checkpoint_only() {
        let gate = |caught_up_primary, has_checkpoint| {
            let (view, commit_max) = (View(0), Op(9));
            Gate::Metadata(MetadataGate {
                view,
                commit_max,
                caught_up_primary,
                has_checkpoint,
            })
        };
        assert_eq!(gate(true, true).refusal(), None);
        assert_eq!(gate(false, true).refusal(), Some(false));
        assert_eq!(gate(true, false).refusal(), Some(false));
    }
}
