//! Deliberate bugs for whoever has to prove that it would find them.
//!
//! The feature `mutation` compiles points into the core, and into the crates that stand on it, at
//! which one named rule can be switched off for the running thread; the simulator is the only
//! user. Without the feature the question at each point is the constant `false` and nothing of
//! this is in what ships. The bugs of all these crates are in one list, so that there is one
//! switch.

/// Whether the named bug is switched on here.
#[cfg(feature = "mutation")]
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:ident) => {
        $crate::mutation::is_active($crate::mutation::Mutation::$name)
    };
}

/// Whether the named bug is switched on here: never, in what ships.
#[cfg(not(feature = "mutation"))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutated;

#[cfg(feature = "mutation")]
pub use self::switch::{Mutation, activate, is_active};

#[cfg(feature = "mutation")]
mod switch {
    use std::cell::Cell;

    /// A rule that does not hold.
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
        /// Repair: a peer that has nothing to give is asked again, and nobody else.
        PeerNeverChanges,
        /// Repair: a peer that says it no longer has a range is not believed.
        RefusalIgnored,
        /// State transfer: what was fetched is complete whatever its digest.
        DigestUnchecked,
        /// State transfer: state older than what is here is taken on.
        OlderOfferTaken,
        /// Partitions: the next offset stays where a suffix that was dropped had left it.
        OffsetNotRewound,
        /// Partitions: the window of a producer ends one request too early, and its newest one is
        /// new again.
        DedupForgetsNewest,
        /// Partitions: a backup purges when metadata says so, not where the log says so.
        PurgeAtOnce,
        /// Partitions: readers are told of messages that are not committed.
        OffsetPublishedEarly,
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Switches one bug on for every core of this thread, or all of them off.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    /// Whether a bug is switched on for this thread.
    #[must_use]
    pub fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}
