//! What must hold before a partition's files are replaced (chapter 04 section 3.11).
//!
//! The result is a value that only this check can make, and the steps of the install are asked
//! of it: nothing is deleted on the strength of artifacts nobody looked at.

use biplane_wire::{
    Batch, Checksum, Command, GroupId, Message, Op, Operation, PrepareHeader, Verify,
};

use super::partition_steps::FrontierWrite;
use crate::offsets::{Checkpoint, ConsumerOffsets, DedupEntry};
use crate::puller::Offer;
use crate::segment_walk::WalkedSegment;

/// What the check depends on.
#[derive(Clone, Copy, Debug)]
pub struct PartitionInstallFacts<'a> {
    /// The group.
    pub group: GroupId,
    /// Highest op applied here.
    pub commit_min: Op,
    /// Offset the next message would get here.
    pub next_offset: u64,
    /// Purge generation applied here.
    pub purge_applied: u64,
    /// Purge generation committed in local metadata. The applied one may be lost by a kill,
    /// which must not make every rejoin look like a purge.
    pub purge_committed: u64,
    /// Whether messages or consumer offsets of the topic are persisted before acknowledgement.
    pub persisted: bool,
    /// The accepted offer.
    pub offer: &'a Offer,
    /// The staged segments, in manifest order.
    pub segments: &'a [WalkedSegment],
    /// The decoded consumer offsets.
    pub offsets: &'a ConsumerOffsets,
}

/// Why the artifacts can not be installed. The attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionRefusal {
    /// The checkpoint prepare does not hold.
    #[error("the checkpoint does not hold: {0}")]
    Checkpoint(CheckpointDefect),
    /// The offer is behind what is applied here.
    #[error("the offer is behind the applied point")]
    CommitBelowApplied,
    /// The offer is behind what was known committed here when it was accepted.
    #[error("the offer is behind the known commit point")]
    CommitBelowKnown,
    /// The server has not applied a purge that is committed.
    #[error("the offer is older than a committed purge")]
    PurgeBehind,
    /// The offer would let offsets be issued twice.
    #[error("the offer would rewind the offsets")]
    Rewind,
    /// The segments end after the offset the next message would get.
    #[error("the segments go beyond the next offset")]
    SegmentsBeyondNext,
    /// There is a hole or an overlap between two segments.
    #[error("the segments are not contiguous")]
    SegmentsNotContiguous,
    /// The staged segments are not those of the manifest.
    #[error("the staged segments are not those of the manifest")]
    SegmentsUnlisted,
}

/// What is wrong with a checkpoint (section 4.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointDefect {
    /// The body does not match its seal, or is no sound batch.
    #[error("the body of the checkpoint prepare does not hold")]
    Body,
    /// The prepare belongs to another group or plane.
    #[error("the checkpoint prepare belongs elsewhere")]
    Group,
    /// The prepare does not match its identity, or not the one given beside it.
    #[error("the checkpoint prepare does not match its identity")]
    Identity,
    /// It is required and absent.
    #[error("the checkpoint is missing")]
    Missing,
    /// The frame is not a prepare.
    #[error("the checkpoint is not a prepare")]
    NotPrepare,
    /// It is the prepare of another op.
    #[error("the checkpoint is the prepare of another op")]
    Op,
}

/// A checked install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInstall {
    pub(super) commit_op: Op,
    pub(super) commit_max: Op,
    pub(super) prepare_checksum: Option<Checksum>,
    pub(super) next_offset: u64,
    pub(super) frontier: FrontierWrite,
    pub(super) purge_generation: Option<u64>,
    pub(super) bases: Vec<u64>,
    pub(super) persisted: bool,
}

/// Checks a complete download.
///
/// # Errors
///
/// The first rule that does not hold; nothing was touched.
pub fn check_partition(
    facts: &PartitionInstallFacts<'_>,
) -> Result<PartitionInstall, PartitionRefusal> {
    let PartitionInstallFacts { offer, offsets, .. } = *facts;
    if offer.commit_op < facts.commit_min {
        return Err(PartitionRefusal::CommitBelowApplied);
    }
    if offer.commit_op < offer.commit_max_local {
        return Err(PartitionRefusal::CommitBelowKnown);
    }
    if offsets.purge_generation < facts.purge_committed {
        return Err(PartitionRefusal::PurgeBehind);
    }
    let end = check_segments(facts)?;
    let next_offset = offsets.next_offset.max(end.unwrap_or(0));
    let purge_advances = offsets.purge_generation > facts.purge_committed
        || (facts.purge_applied < facts.purge_committed && offsets.next_offset == 0);
    if offsets.next_offset < facts.next_offset && !purge_advances {
        return Err(PartitionRefusal::Rewind);
    }
    check_checkpoint(
        &offsets.checkpoint,
        facts.group,
        offer.commit_op,
        facts.persisted,
    )
    .map_err(PartitionRefusal::Checkpoint)?;
    let prepare_checksum = match &offsets.checkpoint {
        Checkpoint::Unknown => None,
        Checkpoint::Known { checksum, .. } => Some(*checksum),
    };
    let generation = offsets.purge_generation;
    let frontier = match purge_advances {
        true => FrontierWrite::Reset(next_offset),
        false => FrontierWrite::AtLeast(next_offset),
    };
    Ok(PartitionInstall {
        commit_op: offer.commit_op,
        commit_max: offer.commit_op.max(offer.commit_max_local),
        prepare_checksum,
        next_offset,
        frontier,
        purge_generation: (generation > facts.purge_applied).then_some(generation),
        bases: facts
            .segments
            .iter()
            .map(|segment| segment.base_offset)
            .collect(),
        persisted: facts.persisted,
    })
}

/// The offset after the last segment, if there is one.
fn check_segments(facts: &PartitionInstallFacts<'_>) -> Result<Option<u64>, PartitionRefusal> {
    let listed = facts
        .offer
        .entries
        .iter()
        .filter(|entry| entry.kind == crate::manifest::artifact_kind::SEGMENT_LOG);
    let staged = facts
        .segments
        .iter()
        .map(|segment| (segment.base_offset, segment.length));
    if !listed
        .map(|entry| (entry.frontier, entry.length))
        .eq(staged)
    {
        return Err(PartitionRefusal::SegmentsUnlisted);
    }
    let mut end = None;
    for segment in facts.segments {
        if end.is_some_and(|end| end != segment.base_offset) {
            return Err(PartitionRefusal::SegmentsNotContiguous);
        }
        end = Some(segment.next_offset);
    }
    if end.is_some_and(|end| end > facts.offsets.next_offset) {
        return Err(PartitionRefusal::SegmentsBeyondNext);
    }
    Ok(end)
}

/// Checks what an artifact says about the prepare at its op.
///
/// A group whose data is persisted must get it, because its log goes on from that prepare; for
/// others it may be absent, and then the parent of the next prepare is not compared.
///
/// # Errors
///
/// What does not hold.
pub fn check_checkpoint(
    checkpoint: &Checkpoint,
    group: GroupId,
    commit_op: Op,
    persisted: bool,
) -> Result<(), CheckpointDefect> {
    let Checkpoint::Known { checksum, prepare } = checkpoint else {
        return if persisted {
            Err(CheckpointDefect::Missing)
        } else {
            Ok(())
        };
    };
    if commit_op == Op::ZERO {
        let empty_chain = checksum.is_zero() && prepare.is_none();
        return if empty_chain {
            Ok(())
        } else {
            Err(CheckpointDefect::Op)
        };
    }
    match prepare {
        Some(prepare) => check_prepare(prepare, *checksum, group, commit_op),
        None if persisted => Err(CheckpointDefect::Missing),
        None => Ok(()),
    }
}

fn check_prepare(
    prepare: &Message,
    checksum: Checksum,
    group: GroupId,
    commit_op: Op,
) -> Result<(), CheckpointDefect> {
    if prepare.command() != Command::Prepare {
        return Err(CheckpointDefect::NotPrepare);
    }
    let header = prepare.header::<PrepareHeader>();
    if header.op() != commit_op {
        return Err(CheckpointDefect::Op);
    }
    if header.group() != group || !header.operation().is_partition() {
        return Err(CheckpointDefect::Group);
    }
    if header.frame.checksum() != checksum || !header.identity_is_valid() {
        return Err(CheckpointDefect::Identity);
    }
    let sends = header.operation() == Operation::SendMessages;
    let batch_holds = !sends || Batch::decode(prepare.body(), Verify::Checksums).is_ok();
    if header.body_seal_is_valid(prepare.body()) && batch_holds {
        Ok(())
    } else {
        Err(CheckpointDefect::Body)
    }
}

/// The entries a window of `capacity` keeps: those with the newest commit. Ascending by client,
/// as they came.
#[must_use]
pub fn newest_dedup(entries: &[DedupEntry], capacity: usize) -> Vec<DedupEntry> {
    if entries.len() <= capacity {
        return entries.to_vec();
    }
    let mut newest = entries.to_vec();
    newest.sort_by(|left, right| {
        (right.latest_commit, right.client).cmp(&(left.latest_commit, left.client))
    });
    newest.truncate(capacity);
    newest.sort_by_key(|entry| entry.client);
    newest
}
