//! Checksums that did not hold, by what they protect (chapter 01 section 7): bytes that changed on
//! the way or in memory, of whom nothing was believed.

use std::sync::atomic::{AtomicU64, Ordering};

use biplane_vsr::Ignored;
use biplane_wire::ErrorCode;

use super::Node;

/// What the loop itself notices.
#[derive(Debug, Default)]
pub(crate) struct SealFailures {
    /// Requests whose stamp is not that of their body.
    pub(crate) requests: u64,
    /// Sends with a message whose checksum is not that of its bytes.
    messages: u64,
    /// Sends whose batch checksum is not that of the batch.
    batches: u64,
    /// Highest number of prepares seen whose identity or body seal does not hold. A group that is
    /// deleted takes its count with it, and a counter must not fall.
    prepares: AtomicU64,
}

impl SealFailures {
    /// The status of a partition's reply.
    pub(crate) fn note_status(&mut self, status: u32) {
        if status == ErrorCode::InvalidMessageChecksum.as_u32() {
            self.messages += 1;
        } else if status == ErrorCode::InvalidBatchChecksum.as_u32() {
            self.batches += 1;
        }
    }

    /// All kinds; `frames` are those of other nodes, counted at the links, `prepares` those that
    /// the groups count now.
    fn counts(&self, frames: u64, prepares: u64) -> Vec<(&'static str, u64)> {
        let before = self.prepares.fetch_max(prepares, Ordering::Relaxed);
        vec![
            ("frame", frames),
            ("prepare", before.max(prepares)),
            ("request", self.requests),
            ("message", self.messages),
            ("batch", self.batches),
        ]
    }
}

impl Node {
    /// Checksums that did not hold since the start, by kind. `of_partitions` is what the partition
    /// groups have counted.
    pub(super) fn seal_failures(&self, of_partitions: u64) -> Vec<(&'static str, u64)> {
        let links = self.mesh.iter().flat_map(|mesh| {
            let peers = self.identity.roster.iter();
            peers.filter_map(|member| mesh.link_counters(member.replica))
        });
        let of_link = |refused: Vec<(&'static str, u64)>| {
            let seals = refused.into_iter().filter(|(reason, _)| *reason == "seal");
            seals.map(|(_, count)| count).sum::<u64>()
        };
        let frames = links.map(|link| of_link(link.refused())).sum();
        let of_metadata = self.metadata.replica().ignored().get(Ignored::Corrupt);
        self.seals.counts(frames, of_metadata + of_partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_by_itself_and_never_falls() {
        let mut seals = SealFailures::default();
        for status in [0, 4027, 4039, 4039, 57] {
            seals.note_status(status);
        }
        seals.requests += 3;
        let expected = |prepares| {
            vec![
                ("frame", 7),
                ("prepare", prepares),
                ("request", 3),
                ("message", 1),
                ("batch", 2),
            ]
        };
        assert_eq!(seals.counts(7, 5), expected(5));
        assert_eq!(seals.counts(7, 2), expected(5), "a group was deleted");
        assert_eq!(seals.counts(7, 6), expected(6));
    }
}
