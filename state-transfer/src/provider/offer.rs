//! Offers: what the owner hands in, and what is kept while a peer pulls.

use std::sync::Arc;

use biplane_wire::{GroupId, ManifestEntry, Message, Op, ReplicaId, View, xxh3};

use crate::chunk_cursor::served_length;

/// A request that passed the gate and waits for its offer. Handed to the owner, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The group to offer.
    pub group: GroupId,
    /// Who asks.
    pub replica: ReplicaId,
    pub(super) nonce: u128,
}

/// What the owner offers: bytes that do not change any more.
#[derive(Clone, Debug)]
pub struct OfferSpec {
    /// View of the replica.
    pub view: View,
    /// The op the artifacts bring a receiver to: the applied point.
    pub commit_op: Op,
    /// The known commit point.
    pub commit_max: Op,
    /// The artifacts in manifest order.
    pub artifacts: Vec<ArtifactSpec>,
}

/// One artifact of an offer.
#[derive(Clone, Debug)]
pub struct ArtifactSpec {
    /// A value of [`crate::artifact_kind`].
    pub kind: u8,
    /// Op it reflects, or offset of its first message.
    pub frontier: u64,
    /// Where its bytes are.
    pub source: ArtifactSource,
}

/// Where the bytes of an artifact are.
#[derive(Clone, Debug)]
pub enum ArtifactSource {
    /// In memory.
    Memory {
        /// All of them.
        bytes: Arc<[u8]>,
        /// Their XXH3, if known.
        checksum: Option<u64>,
    },
    /// In storage, read through [`crate::ProvideOutput::Read`].
    Stored {
        /// How many belong to the artifact; the file may grow beyond.
        len: u64,
        /// Their XXH3, if known.
        checksum: Option<u64>,
    },
}

impl ArtifactSource {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Memory { bytes, .. } => bytes.len() as u64,
            Self::Stored { len, .. } => *len,
        }
    }

    /// How many bytes in storage have to be hashed, if any.
    pub(super) fn unhashed(&self) -> Option<u64> {
        match self {
            Self::Stored {
                len,
                checksum: None,
            } => Some(*len),
            _ => None,
        }
    }

    /// The digest, if it can be had without reading storage.
    pub(super) fn checksum(&self) -> Option<u64> {
        match self {
            Self::Memory { bytes, checksum } => Some(checksum.unwrap_or_else(|| xxh3(bytes))),
            Self::Stored { checksum, .. } => *checksum,
        }
    }
}

/// A request whose offer is being built.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) nonce: u128,
    pub(super) view: View,
    pub(super) commit_max: Op,
    pub(super) spec: Option<OfferSpec>,
    /// Entries whose digest is known, in manifest order.
    pub(super) entries: Vec<ManifestEntry>,
    pub(super) hashed: u64,
    /// Digests are being computed for it.
    pub(super) reads: bool,
    pub(super) ticks: u32,
}

/// An offer a peer may pull from.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) nonce: u128,
    pub(super) view: View,
    pub(super) commit_max: Op,
    /// The descriptor, sent again as it is when it is asked for again.
    pub(super) descriptor: Message,
    pub(super) artifacts: Vec<ArtifactSpec>,
    pub(super) idle: u32,
    /// A chunk was asked for.
    pub(super) pulled: bool,
    /// The last byte of the last artifact was served.
    pub(super) finished: bool,
    /// Chunks being read from storage, and those read before they were asked for.
    pub(super) pieces: Vec<Piece>,
    /// A request that waits for the next tick, with the length it asked for.
    pub(super) delayed: Option<(Place, u32)>,
}

/// Where a chunk of a stored artifact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index in the manifest.
    pub(super) artifact: u32,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// A chunk that is being read, or that was read ahead.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) place: Place,
    /// It was asked for and goes out as soon as it is read.
    pub(super) wanted: bool,
    /// The frame, once it was read.
    pub(super) chunk: Option<Message>,
}

/// What a chunk request comes to.
pub(super) enum ChunkPlan<'a> {
    /// The bytes are at hand.
    Bytes(&'a [u8]),
    /// They must be read.
    Read { kind: u8, frontier: u64, len: u32 },
    /// The request starts outside of what was offered.
    Outside,
}

impl Offer {
    /// Whether its bytes are being sent. An offer that was only looked at, or is over, keeps
    /// nobody waiting.
    pub(super) fn is_served(&self) -> bool {
        self.pulled && !self.finished
    }

    /// Cuts a request to the artifact and to a frame.
    pub(super) fn plan(&self, artifact: u32, offset: u64, want: u32, most: u32) -> ChunkPlan<'_> {
        let index = usize::try_from(artifact).ok();
        let Some(spec) = index.and_then(|index| self.artifacts.get(index)) else {
            return ChunkPlan::Outside;
        };
        let Some(len) = served_length(spec.source.len(), offset, want, most) else {
            return ChunkPlan::Outside;
        };
        match &spec.source {
            ArtifactSource::Stored { .. } => ChunkPlan::Read {
                kind: spec.kind,
                frontier: spec.frontier,
                len,
            },
            ArtifactSource::Memory { bytes, .. } => {
                let from = usize::try_from(offset).ok();
                let range = from.and_then(|from| Some(from..from.checked_add(len as usize)?));
                match range.and_then(|range| bytes.get(range)) {
                    Some(bytes) => ChunkPlan::Bytes(bytes),
                    None => ChunkPlan::Outside,
                }
            }
        }
    }

    /// The chunks that a receiver asks for from `first` on, if it goes on with chunks of `want`
    /// bytes: `count` of them, or fewer where something follows that is not stored.
    pub(super) fn chain(&self, first: Place, want: u32, most: u32, count: usize) -> Vec<Place> {
        let next = |place: &Place| {
            let end = place.offset.saturating_add(u64::from(place.len));
            let next = [(place.artifact, end), (place.artifact + 1, 0)].into_iter();
            next.into_iter().find_map(|(artifact, offset)| {
                match self.plan(artifact, offset, want, most) {
                    ChunkPlan::Read { len, .. } => Some(Place {
                        artifact,
                        offset,
                        len,
                    }),
                    ChunkPlan::Bytes(_) | ChunkPlan::Outside => None,
                }
            })
        };
        std::iter::successors(Some(first), next)
            .take(count)
            .collect()
    }

    /// Notes that a chunk went out.
    pub(super) fn mark_served(&mut self, artifact: u32, offset: u64, len: u64) {
        self.idle = 0;
        let last = self.artifacts.len().saturating_sub(1);
        if usize::try_from(artifact) != Ok(last) {
            return;
        }
        let total = self.artifacts.last().map_or(0, |spec| spec.source.len());
        self.finished |= offset.saturating_add(len) >= total;
    }
}
