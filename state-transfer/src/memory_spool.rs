//! Pulled artifacts kept in memory, for the small ones: the metadata plane's, and a partition's
//! consumer offsets.

use std::collections::BTreeMap;

use biplane_wire::ManifestEntry;

use crate::entry_set::{EntryKey, entry_key};
use crate::puller::PullOutput;

/// Artifacts by their manifest entry.
#[derive(Clone, Debug, Default)]
pub struct MemorySpool {
    artifacts: BTreeMap<EntryKey, Vec<u8>>,
}

impl MemorySpool {
    /// Does what an output says about kept bytes: spool or discard. Other outputs are not its
    /// matter. Returns whether it was.
    pub fn apply(&mut self, output: &PullOutput) -> bool {
        match output {
            PullOutput::Spool {
                entry,
                offset,
                chunk,
                ..
            } => {
                self.store(entry, *offset, chunk.body());
                true
            }
            PullOutput::Discard { entry } => {
                self.discard(entry);
                true
            }
            _ => false,
        }
    }

    /// Appends bytes. Offset 0 starts the artifact anew; another offset must be its end.
    ///
    /// # Panics
    ///
    /// When the bytes do not continue the artifact: a puller hands them out in order.
    pub fn store(&mut self, entry: &ManifestEntry, offset: u64, bytes: &[u8]) {
        let artifact = self.artifacts.entry(entry_key(entry)).or_default();
        if offset == 0 {
            artifact.clear();
        }
        assert!(
            artifact.len() as u64 == offset,
            "the bytes continue the artifact"
        );
        artifact.extend_from_slice(bytes);
    }

    /// The bytes of an artifact.
    #[must_use]
    pub fn get(&self, entry: &ManifestEntry) -> Option<&[u8]> {
        match self.artifacts.get(&entry_key(entry)) {
            Some(bytes) => Some(bytes),
            // No chunk is ever sent of an artifact without bytes.
            None if entry.length == 0 => Some(&[]),
            None => None,
        }
    }

    /// Takes the bytes of an artifact out.
    pub fn take(&mut self, entry: &ManifestEntry) -> Option<Vec<u8>> {
        let taken = self.artifacts.remove(&entry_key(entry));
        taken.or_else(|| (entry.length == 0).then(Vec::new))
    }

    /// Drops an artifact.
    pub fn discard(&mut self, entry: &ManifestEntry) {
        self.artifacts.remove(&entry_key(entry));
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.artifacts.clear();
    }

    /// Bytes kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.artifacts
            .values()
            .map(|artifact| artifact.len() as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(length: u64) -> ManifestEntry {
        ManifestEntry {
            kind: 0,
            frontier: 7,
            length,
            checksum: 9,
        }
    }

    #[test]
    fn bytes_accumulate_and_offset_zero_starts_over() {
        let mut spool = MemorySpool::default();
        spool.store(&entry(4), 0, b"xx");
        spool.store(&entry(4), 0, b"ab");
        spool.store(&entry(4), 2, b"cd");
        assert_eq!(spool.get(&entry(4)), Some(b"abcd".as_slice()));
        assert_eq!(spool.bytes(), 4);
        assert_eq!(spool.take(&entry(4)), Some(b"abcd".to_vec()));
        assert_eq!(spool.get(&entry(4)), None);
    }

    #[test]
    fn an_artifact_without_bytes_is_there_without_a_chunk() {
        let mut spool = MemorySpool::default();
        assert_eq!(spool.get(&entry(0)), Some([].as_slice()));
        assert_eq!(spool.take(&entry(0)), Some(Vec::new()));
        assert_eq!(spool.take(&entry(1)), None);
    }
}
