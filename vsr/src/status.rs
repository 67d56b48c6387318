//! The picture of a replica from outside: statuses, stages, and a copy of its numbers.
//!
//! Owners, logs and oracles read these; nothing here can change a replica. Transfer stages have
//! a table of legal transitions of their own, because two crates move them.

use biplane_wire::{Op, ReplicaId, View};

use crate::io::HaltReason;

/// What a replica does with the messages it gets (chapter 03 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Works in its view.
    Normal,
    /// Takes part in choosing the log of its view.
    ViewChange,
    /// Probes, promises nothing, and answers nobody.
    Recovering,
}

/// What a tick may begin that occupies all replicas of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Asking for the first time who leads. Whoever leads answers; where nobody does and
    /// everybody asks, all of them elect.
    Question,
    /// An election.
    Election,
}

/// Where a state transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferStage {
    /// None.
    Idle,
    /// Wanted; no target yet.
    AwaitingTarget,
    /// Pulling chunks.
    Fetching,
    /// Switching to the pulled state.
    Installing,
}

impl TransferStage {
    /// Whether the stage may become `next`. Staying is always allowed.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use TransferStage::{AwaitingTarget, Fetching, Idle, Installing};
        matches!(
            (self, next),
            (Idle, Idle | AwaitingTarget)
                | (AwaitingTarget, AwaitingTarget | Fetching | Idle)
                | (Fetching, Fetching | Installing | AwaitingTarget | Idle)
                | (Installing, Installing | Idle)
        )
    }
}

/// The numbers of a replica at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusView {
    /// Status.
    pub status: Status,
    /// View.
    pub view: View,
    /// Last view in which it was normal.
    pub log_view: View,
    /// View in the superblock.
    pub view_durable: View,
    /// Log view in the superblock.
    pub log_view_durable: View,
    /// Highest op of the logical log.
    pub op_head: Op,
    /// Highest applied op.
    pub commit_min: Op,
    /// Highest op known to be committed.
    pub commit_max: Op,
    /// Primary of the view.
    pub primary: ReplicaId,
    /// Whether this replica acts as that primary.
    pub is_primary: bool,
    /// Whether it may not act as primary even if the view names it.
    pub ceded: bool,
    /// Op that must commit before recovered state may answer clients; zero when there is none.
    pub recovery_barrier: Op,
    /// State transfer.
    pub transfer_stage: TransferStage,
    /// Prepares in flight.
    pub prepares_in_flight: usize,
    /// Requests waiting.
    pub requests_queued: usize,
    /// Why it stopped, if it did.
    pub halted: Option<HaltReason>,
}

/// Why an input had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// Not a frame of this machine.
    NotForConsensus,
    /// Another cluster, another group, or no such replica.
    Foreign,
    /// The sender is this replica.
    FromSelf,
    /// Checksums do not hold.
    Corrupt,
    /// State is being transferred.
    Transferring,
    /// The status does not allow it.
    Status,
    /// Of a view this replica left.
    ViewOlder,
    /// Of a view this replica has not reached.
    ViewNewer,
    /// Of a view no replica ever reaches.
    ViewReserved,
    /// The sender does not hold the role.
    NotFromPrimary,
    /// This replica does not hold the role.
    NotPrimary,
    /// A prepare reached the primary that made it.
    OwnPrepare,
    /// The op is applied.
    Applied,
    /// The op leaves a gap.
    Gap,
    /// The op is held with other content.
    Differs,
    /// It does not chain to its neighbours.
    Unchained,
    /// Its timestamp does not exceed that of its predecessor.
    Timestamp,
    /// The plane refused it.
    Plane,
    /// No prepare in flight has this op and identity.
    UnknownPrepare,
    /// The sender has been counted.
    Counted,
    /// Nothing in it is new.
    NothingNew,
    /// An answer to an earlier life.
    OtherIncarnation,
    /// It would take back committed ops.
    BelowCommit,
    /// The suffix does not decode.
    BadSuffix,
    /// A completion of something that was taken back meanwhile.
    StaleCompletion,
    /// The replica stopped.
    Halted,
}

impl Ignored {
    const COUNT: usize = Self::Halted as usize + 1;
}

/// How often each kind of input had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgnoredCounts {
    counts: [u64; Ignored::COUNT],
    last: Option<Ignored>,
}

impl IgnoredCounts {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [0; Ignored::COUNT],
            last: None,
        }
    }

    pub(crate) fn count(&mut self, reason: Ignored) {
        self.counts[reason as usize] += 1;
        self.last = Some(reason);
    }

    /// How often for this reason.
    #[must_use]
    pub fn get(&self, reason: Ignored) -> u64 {
        self.counts[reason as usize]
    }

    /// How often for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latest reason.
    #[must_use]
    pub const fn last(&self) -> Option<Ignored> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::TransferStage::{self, AwaitingTarget, Fetching, Idle, Installing};

    #[test]
    fn transfer_stages_move_along_the_table_only() {
        let legal = [
            (Idle, AwaitingTarget),
            (AwaitingTarget, Fetching),
            (AwaitingTarget, Idle),
            (Fetching, Installing),
            (Fetching, AwaitingTarget),
            (Fetching, Idle),
            (Installing, Idle),
        ];
        let all: [TransferStage; 4] = [Idle, AwaitingTarget, Fetching, Installing];
        for from in all {
            for to in all {
                let expected = from == to || legal.contains(&(from, to));
                assert_eq!(from.may_become(to), expected, "{from:?} to {to:?}");
            }
        }
    }
}
