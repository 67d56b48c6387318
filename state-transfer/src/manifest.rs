//! What a plane accepts as the manifest of an offer, before it allocates anything (chapter 04
//! section 3.9). The bytes of a manifest are the wire crate's matter.

use biplane_wire::{ManifestEntry, Op};

use crate::limits::{
    METADATA_ARTIFACT_BYTES_MAX, METADATA_TOTAL_BYTES_MAX, OFFSETS_BYTES_MAX,
    PARTITION_TOTAL_BYTES_MAX,
};
use crate::stage::PlaneKind;

/// Kinds of artifacts.
pub mod artifact_kind {
    /// MessagePack payload of the metadata snapshot, without its file trailer.
    pub const METADATA_SNAPSHOT: u8 = 0;
    /// The client table.
    pub const CLIENT_TABLE: u8 = 1;
    /// The committed batches of one segment.
    pub const SEGMENT_LOG: u8 = 2;
    /// Consumer offsets, deduplication window and checkpoint prepare of a partition.
    pub const CONSUMER_OFFSETS: u8 = 3;
}

/// Why a well-formed manifest is not an offer a plane takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferDefect {
    /// An artifact is longer than its kind may be.
    #[error("an artifact is larger than its kind allows")]
    ArtifactTooLarge,
    /// A kind that may occur once occurs twice.
    #[error("an artifact kind occurs twice")]
    Duplicate,
    /// The frontier of the consumer offsets is not the op of the offer.
    #[error("the consumer offsets are not those of the offered op")]
    Frontier,
    /// A kind without which the offer is of no use.
    #[error("a required artifact is missing")]
    Missing,
    /// All artifacts together are too long.
    #[error("the artifacts are too large together")]
    TotalTooLarge,
    /// A kind the plane does not know.
    #[error("an artifact kind is not known to this plane")]
    UnknownKind,
}

impl OfferDefect {
    /// Whether the offer stands and fails, which costs an attempt, instead of being ignored.
    /// On the metadata plane kinds are judged at install time (section 3.9); finding that out
    /// before the download changes nothing but the time it takes.
    pub(crate) fn fails_attempt(self, plane: PlaneKind) -> bool {
        plane == PlaneKind::Metadata && matches!(self, Self::Duplicate | Self::UnknownKind)
    }
}

/// The plane's caps, checked before anything is allocated.
///
/// # Errors
///
/// The first cap that is broken.
pub fn check_offer(
    plane: PlaneKind,
    entries: &[ManifestEntry],
    commit_op: Op,
    segment_bytes_max: u64,
) -> Result<(), OfferDefect> {
    match plane {
        PlaneKind::Metadata => check_metadata(entries),
        PlaneKind::Partition => check_partition(entries, commit_op, segment_bytes_max),
    }
}

fn check_metadata(entries: &[ManifestEntry]) -> Result<(), OfferDefect> {
    let count = |kind| entries.iter().filter(|entry| entry.kind == kind).count();
    if entries
        .iter()
        .any(|entry| entry.length > METADATA_ARTIFACT_BYTES_MAX)
    {
        return Err(OfferDefect::ArtifactTooLarge);
    }
    check_total(entries, METADATA_TOTAL_BYTES_MAX)?;
    if count(artifact_kind::METADATA_SNAPSHOT) == 0 {
        return Err(OfferDefect::Missing);
    }
    if entries
        .iter()
        .any(|entry| entry.kind > artifact_kind::CLIENT_TABLE)
    {
        return Err(OfferDefect::UnknownKind);
    }
    if count(artifact_kind::METADATA_SNAPSHOT) > 1 || count(artifact_kind::CLIENT_TABLE) > 1 {
        return Err(OfferDefect::Duplicate);
    }
    Ok(())
}

fn check_partition(
    entries: &[ManifestEntry],
    commit_op: Op,
    segment_bytes_max: u64,
) -> Result<(), OfferDefect> {
    for entry in entries {
        let len_max = match entry.kind {
            artifact_kind::SEGMENT_LOG => segment_bytes_max,
            artifact_kind::CONSUMER_OFFSETS => OFFSETS_BYTES_MAX,
            _ => return Err(OfferDefect::UnknownKind),
        };
        if entry.length > len_max {
            return Err(OfferDefect::ArtifactTooLarge);
        }
    }
    check_total(entries, PARTITION_TOTAL_BYTES_MAX)?;
    let mut offsets = entries
        .iter()
        .filter(|entry| entry.kind == artifact_kind::CONSUMER_OFFSETS);
    let first = offsets.next().ok_or(OfferDefect::Missing)?;
    if offsets.next().is_some() {
        return Err(OfferDefect::Duplicate);
    }
    if first.frontier == commit_op.0 {
        Ok(())
    } else {
        Err(OfferDefect::Frontier)
    }
}

fn check_total(entries: &[ManifestEntry], total_max: u64) -> Result<(), OfferDefect> {
    let total = entries
        .iter()
        .try_fold(0_u64, |total, entry| total.checked_add(entry.length));
    match total {
        Some(total) if total <= total_max => Ok(()),
        _ => Err(OfferDefect::TotalTooLarge),
    }
}
