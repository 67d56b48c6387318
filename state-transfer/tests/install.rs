//! What must hold before a partition's files are replaced, and the order of the replacing
//! (chapter 04 section 3.11).

mod support;

use biplane_state_transfer::{
    AfterFailure, Checkpoint, CheckpointDefect, ConsumerOffsets, DedupEntry, FrontierWrite,
    InstallStep, ManifestEntry, Offer, PartitionInstall, PartitionInstallFacts, PartitionRefusal,
    WalkedSegment, artifact_kind, check_partition, newest_dedup,
};
use biplane_wire::{Checksum, ClientId, Op};
use support::{SERVER, VIEW, partition_group};

/// A download of two segments, offsets 10..40, at op 77, and a replica that lags behind.
struct Case {
    commit_min: u64,
    next_offset: u64,
    purge_applied: u64,
    purge_committed: u64,
    persisted: bool,
    offer: Offer,
    segments: Vec<WalkedSegment>,
    offsets: ConsumerOffsets,
}

fn segment(base_offset: u64, next_offset: u64) -> WalkedSegment {
    let length = 100 * (next_offset - base_offset);
    WalkedSegment {
        base_offset,
        next_offset,
        length,
        batches: 1,
        last_timestamp: 5,
    }
}

fn entries(segments: &[WalkedSegment]) -> Vec<ManifestEntry> {
    let mut entries: Vec<ManifestEntry> = segments
        .iter()
        .map(|segment| ManifestEntry {
            kind: artifact_kind::SEGMENT_LOG,
            frontier: segment.base_offset,
            length: segment.length,
            checksum: 1,
        })
        .collect();
    let kind = artifact_kind::CONSUMER_OFFSETS;
    entries.push(ManifestEntry {
        kind,
        frontier: 77,
        length: 62,
        checksum: 2,
    });
    entries
}

impl Case {
    fn new() -> Self {
        let segments = vec![segment(10, 30), segment(30, 40)];
        let offer = Offer {
            peer: SERVER,
            view: VIEW,
            commit_op: Op(77),
            commit_max: Op(80),
            commit_max_local: Op(70),
            entries: entries(&segments),
        };
        let checkpoint = Checkpoint::Known {
            checksum: Checksum(9),
            prepare: None,
        };
        let offsets = ConsumerOffsets {
            next_offset: 40,
            checkpoint,
            ..Default::default()
        };
        Self {
            commit_min: 5,
            next_offset: 20,
            purge_applied: 0,
            purge_committed: 0,
            persisted: false,
            offer,
            segments,
            offsets,
        }
    }

    fn relist(&mut self, segments: Vec<WalkedSegment>) {
        self.offer.entries = entries(&segments);
        self.segments = segments;
    }

    fn check(&self) -> Result<PartitionInstall, PartitionRefusal> {
        check_partition(&PartitionInstallFacts {
            group: partition_group(),
            commit_min: Op(self.commit_min),
            next_offset: self.next_offset,
            purge_applied: self.purge_applied,
            purge_committed: self.purge_committed,
            persisted: self.persisted,
            offer: &self.offer,
            segments: &self.segments,
            offsets: &self.offsets,
        })
    }
}

fn refusal(change: impl FnOnce(&mut Case)) -> PartitionRefusal {
    let mut case = Case::new();
    change(&mut case);
    case.check().expect_err("it must not be installed")
}

#[test]
fn sound_download_is_installed_in_durable_order() {
    let install = Case::new().check().expect("it holds");
    assert_eq!(
        install.steps(),
        [
            InstallStep::StageOffsets,
            InstallStep::WriteFrontier(FrontierWrite::AtLeast(40)),
            InstallStep::RemoveSegments,
            InstallStep::SweepStaging,
            InstallStep::RenameIndexes,
            InstallStep::RenameLog { base_offset: 10 },
            InstallStep::RenameLog { base_offset: 30 },
            InstallStep::OpenSegments { next_offset: 40 },
            InstallStep::ClearMemory,
            InstallStep::ReplaceOffsets,
            InstallStep::PublishCounters { next_offset: 40 },
            InstallStep::InstallDedup,
            InstallStep::SetPoints {
                commit_op: Op(77),
                commit_max: Op(77),
                prepare_checksum: Some(Checksum(9)),
            },
            InstallStep::WriteSuperblock,
        ]
    );
}

#[test]
fn what_is_acknowledged_or_applied_is_not_erased() {
    assert_eq!(
        refusal(|case| case.commit_min = 78),
        PartitionRefusal::CommitBelowApplied
    );
    let behind = refusal(|case| case.offer.commit_max_local = Op(78));
    assert_eq!(behind, PartitionRefusal::CommitBelowKnown);
}

#[test]
fn segments_are_those_of_the_manifest_and_contiguous() {
    let missing = refusal(|case| case.segments.truncate(1));
    assert_eq!(missing, PartitionRefusal::SegmentsUnlisted);
    let shorter = refusal(|case| case.segments[0].length -= 1);
    assert_eq!(shorter, PartitionRefusal::SegmentsUnlisted);
    let hole = refusal(|case| case.relist(vec![segment(10, 29), segment(30, 40)]));
    assert_eq!(hole, PartitionRefusal::SegmentsNotContiguous);
    let overlap = refusal(|case| case.relist(vec![segment(10, 31), segment(30, 40)]));
    assert_eq!(overlap, PartitionRefusal::SegmentsNotContiguous);
    let beyond = refusal(|case| case.offsets.next_offset = 39);
    assert_eq!(beyond, PartitionRefusal::SegmentsBeyondNext);
}

#[test]
fn offsets_are_not_rewound_unless_a_purge_advances() {
    assert_eq!(
        refusal(|case| case.next_offset = 41),
        PartitionRefusal::Rewind
    );
    let behind = refusal(|case| case.purge_committed = 1);
    assert_eq!(behind, PartitionRefusal::PurgeBehind);
    let mut purged = Case::new();
    (purged.next_offset, purged.offsets.purge_generation) = (1_000, 1);
    let steps = purged
        .check()
        .expect("a purge the replica has not heard of")
        .steps();
    assert!(steps.contains(&InstallStep::WriteFrontier(FrontierWrite::Reset(40))));
    assert!(steps.contains(&InstallStep::WritePurgeGeneration(1)));
}

#[test]
fn committed_purge_that_was_not_applied_here_may_empty_the_partition() {
    let mut emptied = Case::new();
    emptied.relist(Vec::new());
    (emptied.offsets.purge_generation, emptied.purge_committed) = (1, 1);
    (emptied.offsets.next_offset, emptied.next_offset) = (0, 1_000);
    let install = emptied.check().expect("the purge is committed");
    assert!(
        install
            .steps()
            .contains(&InstallStep::OpenSegments { next_offset: 0 })
    );
    assert_eq!(install.clamp(5), None, "no message, no position");
    // The same purge, but the applied generation was only lost by a kill: data written since is
    // not thrown away on the strength of that.
    emptied.relist(vec![segment(0, 3)]);
    emptied.offsets.next_offset = 3;
    assert_eq!(emptied.check(), Err(PartitionRefusal::Rewind));
}

#[test]
fn empty_partition_goes_on_numbering() {
    let mut empty = Case::new();
    empty.relist(Vec::new());
    let install = empty.check().expect("everything was deleted by retention");
    let steps = install.steps();
    assert!(steps.contains(&InstallStep::OpenSegments { next_offset: 40 }));
    assert!(
        !steps
            .iter()
            .any(|step| matches!(step, InstallStep::RenameLog { .. }))
    );
    assert_eq!((install.clamp(100), install.clamp(7)), (Some(39), Some(7)));
}

#[test]
fn persisted_partition_needs_its_checkpoint_and_moves_its_log_aside() {
    let missing = refusal(|case| case.persisted = true);
    assert_eq!(
        missing,
        PartitionRefusal::Checkpoint(CheckpointDefect::Missing)
    );
    let mut case = Case::new();
    (
        case.persisted,
        case.offer.commit_op,
        case.offer.commit_max_local,
    ) = (true, Op(0), Op(0));
    case.commit_min = 0;
    case.offsets.checkpoint = Checkpoint::Known {
        checksum: Checksum::ZERO,
        prepare: None,
    };
    let steps = case.check().expect("an empty chain").steps();
    let at = |wanted: &InstallStep| steps.iter().position(|step| step == wanted);
    assert_eq!(at(&InstallStep::BackUpPrepareLog), Some(1));
    let frontier = InstallStep::WriteFrontier(FrontierWrite::AtLeast(40));
    assert!(at(&frontier) < at(&InstallStep::RemoveSegments));
    assert!(at(&InstallStep::ResetPrepareLog) < at(&InstallStep::WriteSuperblock));
    assert_eq!(at(&InstallStep::RemoveBackup), Some(steps.len() - 1));
}

#[test]
fn unknown_checkpoint_lifts_the_parent_check() {
    let mut case = Case::new();
    case.offsets.checkpoint = Checkpoint::Unknown;
    let steps = case.check().expect("a replicated topic").steps();
    let unknown = |step: &InstallStep| {
        matches!(
            step,
            InstallStep::SetPoints {
                prepare_checksum: None,
                ..
            }
        )
    };
    assert!(steps.iter().any(unknown));
}

#[test]
fn failure_loses_nothing_before_the_old_segments_go() {
    let replicated = Case::new().check().expect("it holds");
    let after = |step| replicated.after_failure(&step);
    assert_eq!(after(InstallStep::StageOffsets), AfterFailure::GiveUp);
    let frontier = InstallStep::WriteFrontier(FrontierWrite::AtLeast(40));
    assert_eq!(after(frontier), AfterFailure::GiveUp);
    assert_eq!(
        after(InstallStep::RemoveSegments),
        AfterFailure::ConvergeEmpty
    );
    let renaming = InstallStep::RenameLog { base_offset: 30 };
    assert_eq!(after(renaming), AfterFailure::ConvergeEmpty);
    let mut case = Case::new();
    (
        case.persisted,
        case.offer.commit_op,
        case.offer.commit_max_local,
    ) = (true, Op(0), Op(0));
    case.commit_min = 0;
    case.offsets.checkpoint = Checkpoint::Known {
        checksum: Checksum::ZERO,
        prepare: None,
    };
    let persisted = case.check().expect("it holds");
    assert_eq!(
        persisted.after_failure(&InstallStep::RemoveSegments),
        AfterFailure::Fence
    );
}

#[test]
fn deduplication_keeps_the_newest() {
    let entry = |client: u128, latest_commit: u64| DedupEntry {
        client: ClientId(client),
        watermark: 1,
        latest_commit: Op(latest_commit),
        user_id: 0,
        committed_window: 1,
    };
    let entries = [entry(1, 50), entry(2, 10), entry(3, 70), entry(4, 60)];
    assert_eq!(newest_dedup(&entries, 4), entries);
    assert_eq!(newest_dedup(&entries, 2), [entry(3, 70), entry(4, 60)]);
    assert!(newest_dedup(&entries, 0).is_empty());
}

#[test]
fn group_of_the_checkpoint_is_that_of_the_download() {
    let prepare = support::golden_message(include_str!("golden/partition_prepare_77.txt"));
    let header = prepare.header::<biplane_wire::PrepareHeader>();
    let checksum = header.frame.checksum();
    let mut case = Case::new();
    case.offsets.checkpoint = Checkpoint::Known {
        checksum,
        prepare: Some(prepare.clone()),
    };
    assert_ne!(header.group(), partition_group());
    let refused = PartitionRefusal::Checkpoint(CheckpointDefect::Group);
    assert_eq!(case.check(), Err(refused));
}
