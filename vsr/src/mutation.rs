//! Deliberate bugs for whoever has to prove that it would find them.
//!
//! The feature `mutation` compiles points into the core at which one named rule can be switched
//! off for the running thread; the simulator is the only user. Without the feature the question
//! at each point is the constant `false` and nothing of this is in what ships.

/// Whether the named bug is switched on here.
#[cfg(feature = "mutation")]
macro_rules! mutated {
    ($name:ident) => {
        $crate::mutation::is_active($crate::mutation::Mutation::$name)
    };
}

/// Whether the named bug is switched on here: never, in what ships.
#[cfg(not(feature = "mutation"))]
macro_rules! mutated {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutated;

#[cfg(feature = "mutation")]
pub use self::switch::{Mutation, activate};

#[cfg(feature = "mutation")]
pub(crate) use self::switch::is_active;

#[cfg(feature = "mutation")]
mod switch {
    use std::cell::Cell;

    /// A rule of the core that does not hold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mutation {
        /// One acknowledgement too few commits an op.
        ReplicationQuorumLow,
        /// One vote too few starts a view.
        ViewChangeQuorumLow,
        /// One denial too few discards an op.
        NackQuorumLow,
        /// A prepare counts as held before it is on disk.
        HeldBeforeSync,
        /// An entry that cannot be read is denied in a vote.
        DamagedIsDenied,
        /// An entry that cannot be read is taken for one that never was.
        DamagedIsForgotten,
        /// An elect takes on the log view when the votes are merged, not when it has the log.
        LogViewAtMerge,
        /// A backup records the log view of an adopted log before it has the bodies.
        LogViewBeforeBodies,
        /// View messages leave before the view is on disk.
        ViewBeforeRecord,
        /// The longest log wins a merge, not the one of the highest log view.
        LongestLogWins,
        /// A restarted replica takes part in view changes at once.
        RecoveringVotes,
        /// The parent of a live prepare is not looked at.
        ParentUnchecked,
        /// A repaired prepare is believed whatever it is.
        RepairUnchecked,
        /// What is committed is applied without proof that the entry held is the committed one.
        SuspectApplied,
        /// What an elect has named counts as what it holds.
        ElectWithoutBodies,
        /// A delayed announcement of the present view is adopted again.
        ViewAdoptedAgain,
        /// An announcement that ends below what is committed is adopted.
        AdoptsBelowCommit,
        /// A new primary does not take over what is uncommitted.
        SuffixForgotten,
        /// Timestamps follow the wall clock alone.
        TimestampUnordered,
        /// Unacknowledged prepares are not sent again.
        NoRetransmission,
        /// A primary has no heartbeat.
        NoHeartbeat,
        /// A backup does not ask for what it lacks.
        GapUnreported,
        /// Leftovers above an adopted head stay.
        LeftoversStay,
        /// A write on its way counts as held in a vote.
        WritingIsPresent,
        /// Replacing an entry takes what stands above it off the disk.
        CutTakesWhatItKeeps,
        /// What was fetched for a view that did not start is passed off as the own log.
        FetchedIsOwn,
        /// An entry of the recorded view is certain at boot even if a later log refutes it.
        RefutedIsCertain,
        /// A failed superblock write is not tried again.
        NoPersistRetry,
        /// Acknowledgements of an older view count.
        StaleAcknowledgement,
        /// A header without its body is no denial.
        NameIsNoDenial,
        /// A replica in a view change does not ask for the announcement it missed.
        NoViewProbe,
        /// A request that was executed before is executed again.
        DuplicateExecuted,
        /// Requests of a session that was replaced are executed.
        EpochIgnored,
        /// A transferred client table comes without its sessions.
        TableNotInstalled,
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Switches one bug on for every core of this thread, or all of them off.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}
