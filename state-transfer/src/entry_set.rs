//! Manifest entries as a set: two artifacts are the same when kind, frontier, length and digest
//! are.
//!
//! A manifest may have 65 536 entries and every one of them is looked up, so the look-up is by
//! key and not a walk over a list.

use std::collections::BTreeMap;

use biplane_wire::ManifestEntry;

/// Kind, frontier, length, digest.
pub(crate) type EntryKey = (u8, u64, u64, u64);

/// The key of an entry.
pub(crate) fn entry_key(entry: &ManifestEntry) -> EntryKey {
    (entry.kind, entry.frontier, entry.length, entry.checksum)
}

/// A set of entries, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntrySet {
    entries: BTreeMap<EntryKey, ManifestEntry>,
}

impl EntrySet {
    pub(crate) fn contains(&self, entry: &ManifestEntry) -> bool {
        self.entries.contains_key(&entry_key(entry))
    }

    pub(crate) fn insert(&mut self, entry: ManifestEntry) {
        self.entries.insert(entry_key(&entry), entry);
    }

    pub(crate) fn remove(&mut self, entry: &ManifestEntry) {
        self.entries.remove(&entry_key(entry));
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = ManifestEntry> + use<> {
        std::mem::take(&mut self.entries).into_values()
    }

    /// Takes out what `listed` does not have.
    pub(crate) fn drain_unlisted(&mut self, listed: &[ManifestEntry]) -> Vec<ManifestEntry> {
        let listed: Self = listed.iter().copied().collect();
        let all = std::mem::take(&mut self.entries).into_values();
        let (kept, drained): (Vec<_>, Vec<_>) = all.partition(|entry| listed.contains(entry));
        *self = kept.into_iter().collect();
        drained
    }
}

impl FromIterator<ManifestEntry> for EntrySet {
    fn from_iter<I: IntoIterator<Item = ManifestEntry>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|entry| (entry_key(&entry), entry));
        Self {
            entries: entries.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(frontier: u64, checksum: u64) -> ManifestEntry {
        ManifestEntry {
            kind: 2,
            frontier,
            length: 9,
            checksum,
        }
    }

    #[test]
    fn same_frontier_with_another_digest_is_another_artifact() {
        let mut set: EntrySet = [entry(1, 5)].into_iter().collect();
        assert!(set.contains(&entry(1, 5)) && !set.contains(&entry(1, 6)));
        set.remove(&entry(1, 6));
        assert!(set.contains(&entry(1, 5)));
        set.remove(&entry(1, 5));
        assert_eq!(set.drain().count(), 0);
    }

    #[test]
    fn what_is_not_listed_comes_out() {
        let mut set: EntrySet = (0..5).map(|frontier| entry(frontier, 1)).collect();
        let drained = set.drain_unlisted(&[entry(3, 1), entry(4, 2), entry(9, 1)]);
        let frontiers: Vec<u64> = drained.iter().map(|entry| entry.frontier).collect();
        assert_eq!(frontiers, [0, 1, 2, 4]);
        assert!(set.contains(&entry(3, 1)));
    }
}
