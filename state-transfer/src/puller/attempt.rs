//! One attempt: a nonce, a peer, and from its descriptor on the artifacts it consists of.

use biplane_wire::{
    ClusterId, Command, GroupId, ManifestEntry, Message, ReplicaId, RequestStateChunkHeader,
    RequestStateTransferHeader,
};
use xxhash_rust::xxh3::Xxh3;

use super::report::Offer;
use crate::chunk_cursor::{ChunkCursor, ChunkMisfit};

/// Who asks, for which group: what every request is stamped with.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) cluster: ClusterId,
    pub(super) group: GroupId,
    pub(super) replica: ReplicaId,
}

/// An attempt. The nonce ties everything that arrives to it, so it is never reused.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) nonce: u128,
    pub(super) peer: ReplicaId,
    /// It asks for a descriptor only, and has no place among those that pull.
    pub(super) looks: bool,
    /// Ticks since the last progress or request.
    pub(super) idle: u32,
    /// Requests repeated since the last progress.
    pub(super) stalls: u32,
    pub(super) ticks: u64,
    /// Set by the descriptor.
    pub(super) fetch: Option<Fetch>,
}

/// The download of the artifacts of an offer, in manifest order.
#[derive(Clone)]
pub(super) struct Fetch {
    pub(super) offer: Offer,
    /// First incomplete artifact.
    index: usize,
    cursor: ChunkCursor,
    hasher: Xxh3,
    /// Bytes of complete artifacts.
    bytes_complete: u64,
    /// Bytes that crossed the wire in this attempt.
    pub(super) bytes_received: u64,
    /// The request for the next chunk is out.
    pub(super) requested: bool,
}

impl Attempt {
    pub(super) fn new(nonce: u128, peer: ReplicaId) -> Self {
        assert!(nonce != 0, "a nonce names an attempt");
        Self {
            nonce,
            peer,
            looks: false,
            idle: 0,
            stalls: 0,
            ticks: 0,
            fetch: None,
        }
    }

    /// Something came: the attempt is alive.
    pub(super) fn mark_progress(&mut self) {
        self.idle = 0;
        self.stalls = 0;
    }

    /// Whether something is expected from the peer.
    pub(super) fn is_waiting(&self) -> bool {
        self.fetch.as_ref().is_none_or(|fetch| fetch.requested)
    }

    /// The request that is or should be out; `None` when nothing is wanted from the peer.
    pub(super) fn request(&self, sender: Sender, chunk_bytes: u32) -> Option<Message> {
        let Some(fetch) = &self.fetch else {
            let mut header = RequestStateTransferHeader::new(Command::RequestStateTransfer);
            header.frame.set_cluster(sender.cluster);
            header.frame.set_replica(sender.replica);
            header.set_nonce(self.nonce);
            header.set_group(sender.group);
            return Some(Message::sealed(header, &[]));
        };
        let (offset, length) = fetch.cursor.next(chunk_bytes)?;
        let mut header = RequestStateChunkHeader::new(Command::RequestStateChunk);
        header.frame.set_cluster(sender.cluster);
        header.frame.set_replica(sender.replica);
        header.set_nonce(self.nonce);
        header.set_group(sender.group);
        header.set_artifact(fetch.artifact());
        header.set_offset(offset);
        header.set_length(length);
        Some(Message::sealed(header, &[]))
    }
}

impl Fetch {
    pub(super) fn new(offer: Offer) -> Self {
        let len = offer.entries.first().map_or(0, |entry| entry.length);
        Self {
            offer,
            index: 0,
            cursor: ChunkCursor::new(len),
            hasher: Xxh3::new(),
            bytes_complete: 0,
            bytes_received: 0,
            requested: false,
        }
    }

    /// The first incomplete artifact; `None` when all are complete.
    pub(super) fn current(&self) -> Option<ManifestEntry> {
        self.offer.entries.get(self.index).copied()
    }

    /// Index of the first incomplete artifact in the manifest.
    pub(super) fn artifact(&self) -> u32 {
        u32::try_from(self.index).unwrap_or(u32::MAX)
    }

    /// Bytes of the first incomplete artifact that are there.
    pub(super) fn received(&self) -> u64 {
        self.cursor.received()
    }

    /// Whether all bytes of the current artifact are there.
    pub(super) fn has_all_bytes(&self) -> bool {
        self.cursor.is_complete()
    }

    pub(super) fn bytes_done(&self) -> u64 {
        self.bytes_complete.saturating_add(self.cursor.received())
    }

    pub(super) fn bytes_total(&self) -> u64 {
        self.offer
            .entries
            .iter()
            .fold(0, |total, entry| total.saturating_add(entry.length))
    }

    /// Takes the next bytes of the current artifact; returns where they belong.
    pub(super) fn accept(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ChunkMisfit> {
        self.cursor.accept(offset, bytes.len() as u64)?;
        self.hasher.update(bytes);
        self.bytes_received = self.bytes_received.saturating_add(bytes.len() as u64);
        self.requested = false;
        Ok(())
    }

    /// XXH3 of what has been received of the current artifact.
    pub(super) fn digest(&self) -> u64 {
        self.hasher.digest()
    }

    /// Goes on to the next artifact.
    pub(super) fn complete_current(&mut self) {
        let len = self.current().map_or(0, |entry| entry.length);
        self.bytes_complete = self.bytes_complete.saturating_add(len);
        self.index += 1;
        let len = self.current().map_or(0, |entry| entry.length);
        self.cursor = ChunkCursor::new(len);
        self.hasher = Xxh3::new();
        self.requested = false;
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Manifest, Op, View};

    use super::*;

    const NONCE: u128 = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000;

    /// Bytes of a dump in which `[00×n]` stands for n zero bytes.
    fn golden(dump: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in dump.split_whitespace() {
            if let Some(run) = word.strip_prefix("[00×") {
                let count: usize = run.trim_end_matches(']').parse().expect("a number");
                bytes.resize(bytes.len() + count, 0);
                continue;
            }
            for at in (0..word.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&word[at..at + 2], 16).expect("hex"));
            }
        }
        bytes
    }

    #[test]
    fn requests_are_the_frames_of_the_specification() {
        let sender = Sender {
            cluster: ClusterId(0x1122_3344_5566_7788_9900_aabb_ccdd_eeff),
            group: GroupId::METADATA,
            replica: ReplicaId(2),
        };
        let mut attempt = Attempt::new(NONCE, ReplicaId(0));
        let request = attempt.request(sender, 262_144).expect("a request is due");
        let expected = golden(include_str!(
            "../../tests/golden/request_state_transfer.txt"
        ));
        assert_eq!(request.to_vec(), expected);
        let manifest = golden(include_str!("../../tests/golden/manifest_m2.txt"));
        let manifest = Manifest::decode(&manifest).expect("a manifest");
        attempt.fetch = Some(Fetch::new(Offer {
            peer: ReplicaId(0),
            view: View(3),
            commit_op: Op(195),
            commit_max: Op(200),
            commit_max_local: Op(0),
            entries: manifest.iter().collect(),
        }));
        let request = attempt.request(sender, 262_144).expect("a chunk is due");
        let expected = golden(include_str!("../../tests/golden/request_state_chunk.txt"));
        assert_eq!(request.to_vec(), expected);
    }
}
