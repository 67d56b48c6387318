//! The steps of a partition install in the order in which they must be durable (chapter 04
//! section 3.11).
//!
//! The order is the safety argument. Offsets that were handed out are recorded before the
//! messages that had them go; old segments go before new ones come, so two chains never mix;
//! indexes come before logs, because a log is what makes a segment exist; and logs come in
//! ascending order, so that a crash leaves a prefix, which is a valid chain.

use biplane_wire::{Checksum, Op};

use super::partition::PartitionInstall;

/// How the offset frontier of a partition's superblock is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontierWrite {
    /// The larger of the old one and this.
    AtLeast(u64),
    /// Exactly this: a purge let numbering start over.
    Reset(u64),
}

/// One step. Each is durable before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStep {
    /// Write the replacing offset files under staging names.
    StageOffsets,
    /// Drain the partition's prepare log and move it to a backup.
    BackUpPrepareLog,
    /// Write the superblock with the new offset frontier.
    WriteFrontier(FrontierWrite),
    /// Delete the old segments, oldest first; sync the directory.
    RemoveSegments,
    /// Delete staging files that do not belong to this install.
    SweepStaging,
    /// Rename all staged indexes; sync the directory.
    RenameIndexes,
    /// Rename one staged log; sync the directory.
    RenameLog {
        /// Offset of its first message.
        base_offset: u64,
    },
    /// Open the segments; where there is none, create an empty one at this offset.
    OpenSegments {
        /// Offset of the next message.
        next_offset: u64,
    },
    /// Drop the log in memory, its evicted ring and the offset maps.
    ClearMemory,
    /// Delete offset files that are not listed and write those that are, each clamped by
    /// [`PartitionInstall::clamp`]; sync the directory.
    ReplaceOffsets,
    /// Publish the next offset and the statistics.
    PublishCounters {
        /// Offset of the next message.
        next_offset: u64,
    },
    /// Install the deduplication window.
    InstallDedup,
    /// Record the purge generation.
    WritePurgeGeneration(u64),
    /// Let the prepare log start with the checkpoint prepare.
    ResetPrepareLog,
    /// Set the points of the replica. The head is set, not raised: ops above are of a log that
    /// is gone.
    SetPoints {
        /// The applied point becomes at least this, and the head exactly this.
        commit_op: Op,
        /// The known commit point becomes at least this.
        commit_max: Op,
        /// Identity of the prepare at `commit_op`; `None` when it is not known, and the parent
        /// of the next prepare is not compared.
        prepare_checksum: Option<Checksum>,
    },
    /// Write the superblock once more.
    WriteSuperblock,
    /// Remove the backup of the prepare log.
    RemoveBackup,
}

/// What follows when a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Nothing was lost: give the attempt up.
    GiveUp,
    /// The old segments are gone or going: make the partition empty at the offered frontier and
    /// transfer again.
    ConvergeEmpty,
    /// Data that was acknowledged as persisted is gone or going: take the partition out of
    /// service.
    Fence,
}

impl PartitionInstall {
    /// The op the partition is at afterwards.
    #[must_use]
    pub fn commit_op(&self) -> Op {
        self.commit_op
    }

    /// Offset of the next message afterwards.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// A stored position as it is installed: not beyond the last message, and gone when there
    /// never was one.
    #[must_use]
    pub fn clamp(&self, offset: u64) -> Option<u64> {
        self.next_offset.checked_sub(1).map(|last| offset.min(last))
    }

    /// The steps, in order. After them the stage becomes Idle, the commits are walked, and the
    /// tail is repaired from the serving peer.
    #[must_use]
    pub fn steps(&self) -> Vec<InstallStep> {
        let next_offset = self.next_offset;
        let mut steps = vec![InstallStep::StageOffsets];
        if self.persisted {
            steps.push(InstallStep::BackUpPrepareLog);
        }
        steps.push(InstallStep::WriteFrontier(self.frontier));
        steps.push(InstallStep::RemoveSegments);
        steps.push(InstallStep::SweepStaging);
        steps.push(InstallStep::RenameIndexes);
        let logs = self.bases.iter();
        steps.extend(logs.map(|base| InstallStep::RenameLog { base_offset: *base }));
        steps.push(InstallStep::OpenSegments { next_offset });
        steps.push(InstallStep::ClearMemory);
        steps.push(InstallStep::ReplaceOffsets);
        steps.push(InstallStep::PublishCounters { next_offset });
        steps.push(InstallStep::InstallDedup);
        steps.extend(self.purge_generation.map(InstallStep::WritePurgeGeneration));
        if self.persisted {
            steps.push(InstallStep::ResetPrepareLog);
        }
        steps.push(InstallStep::SetPoints {
            commit_op: self.commit_op,
            commit_max: self.commit_max,
            prepare_checksum: self.prepare_checksum,
        });
        steps.push(InstallStep::WriteSuperblock);
        if self.persisted {
            steps.push(InstallStep::RemoveBackup);
        }
        steps
    }

    /// What to do when `step` fails.
    #[must_use]
    pub fn after_failure(&self, step: &InstallStep) -> AfterFailure {
        match step {
            InstallStep::StageOffsets
            | InstallStep::BackUpPrepareLog
            | InstallStep::WriteFrontier(_) => AfterFailure::GiveUp,
            _ if self.persisted => AfterFailure::Fence,
            _ => AfterFailure::ConvergeEmpty,
        }
    }
}
