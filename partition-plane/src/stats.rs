//! Figures of one partition (chapter 06 section 17) and the picture of its group.

use biplane_wire::{Op, ReplicaId, View};

use crate::segments::Segments;

/// Statistics of one partition as this node knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Committed messages that are retained.
    pub messages_count: u64,
    /// Bytes of their batches, batch headers included.
    pub size_bytes: u64,
    /// Segments, the active one included.
    pub segments_count: u32,
    /// Offset of the last committed message; 0 also when there is none.
    pub current_offset: u64,
}

impl PartitionStats {
    /// What the segments alone say.
    pub(crate) fn of(segments: &Segments) -> Self {
        Self {
            messages_count: segments.messages(),
            size_bytes: segments.bytes(),
            ..Self::default()
        }
    }
}

/// The state of a group on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its view.
    pub view: View,
    /// The primary of that view.
    pub primary: ReplicaId,
    /// Whether this node leads it, in status Normal.
    pub is_primary: bool,
    /// Whether it also applied everything committed.
    pub caught_up: bool,
    /// Highest op applied here.
    pub commit_min: Op,
    /// Highest op known committed.
    pub commit_max: Op,
    /// Highest op of the log.
    pub head: Op,
    /// Whether a state transfer is wanted or under way.
    pub transferring: bool,
    /// Offset the next message gets.
    pub next_offset: u64,
    /// Offset after the last committed message.
    pub committed_next: u64,
    /// Offset after the last message on disk.
    pub flushed_next: u64,
    /// Purge generation applied to the files.
    pub purge_generation: u64,
}

/// What the end of the oldest sealed segments is, for a request to delete them (chapter 06
/// section 15.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedEnd {
    /// Everything up to this offset goes.
    UpTo(u64),
    /// Nothing is sealed: the request is a no-op.
    Nothing,
    /// Nothing is sealed here, but this replica lags: answer 58.
    Lagging,
    /// The partition is not served here.
    Unknown,
}
