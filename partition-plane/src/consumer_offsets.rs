//! Stored positions of consumers and consumer groups (chapter 06 section 10).
//!
//! Two layers: what was committed, equal on every replica, and what a primary has promised to a
//! polling consumer with auto-commit but that has not committed yet. Files follow the committed
//! layer; keys whose file is behind are dirty until a write of the newest value completes.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::checksum::xxh3;

/// Size of an offset file: the offset and its checksum.
pub const FILE_BYTES: usize = 16;

/// Whose position. Consumers and groups are separate key spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerKey {
    /// A plain consumer: its numeric id, or the hash of its name.
    Consumer(u32),
    /// A consumer group: its numeric id.
    Group(u32),
}

impl ConsumerKey {
    /// Path of the offset file below the partition folder.
    pub fn file(self) -> String {
        match self {
            Self::Consumer(id) => format!("offsets/consumers/{id}"),
            Self::Group(id) => format!("offsets/groups/{id}"),
        }
    }
}

/// The bytes of an offset file.
pub fn encode_file(offset: u64) -> [u8; FILE_BYTES] {
    let mut out = [0; FILE_BYTES];
    let value = offset.to_le_bytes();
    out[..8].copy_from_slice(&value);
    out[8..].copy_from_slice(&xxh3(&value).to_le_bytes());
    out
}

/// What an offset file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileValue {
    /// A usable offset.
    Offset(u64),
    /// Whole but with a wrong checksum: the file is removed, the consumer starts over.
    Damaged,
    /// Too short to hold an offset.
    Absent,
}

/// Reads an offset file (chapter 06 section 10.5). Eight to fifteen bytes are a bare offset.
pub fn decode_file(bytes: &[u8]) -> FileValue {
    let Some((value, rest)) = bytes.split_first_chunk::<8>() else {
        return FileValue::Absent;
    };
    match rest.first_chunk::<8>() {
        Some(sum) if *sum != xxh3(value).to_le_bytes() => FileValue::Damaged,
        _ => FileValue::Offset(u64::from_le_bytes(*value)),
    }
}

/// A change of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileChange {
    /// The file's key.
    pub key: ConsumerKey,
    /// New content, or `None` to remove the file.
    pub value: Option<u64>,
}

/// Stored positions of one partition.
#[derive(Debug, Clone, Default)]
pub struct ConsumerOffsets {
    committed: BTreeMap<ConsumerKey, u64>,
    eager: BTreeMap<ConsumerKey, u64>,
    dirty: BTreeSet<ConsumerKey>,
    /// Keys created by operations that are prepared or queued, to hold the limit at admission.
    promised: BTreeMap<ConsumerKey, u32>,
    /// Keys per kind.
    limit: usize,
}

impl ConsumerOffsets {
    /// Nothing stored; at most `limit` keys of each kind.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Position a poll or a read sees: committed, or further promised by auto-commit.
    pub fn visible(&self, key: ConsumerKey) -> Option<u64> {
        self.committed
            .get(&key)
            .copied()
            .max(self.eager.get(&key).copied())
    }

    /// The committed position.
    pub fn committed(&self, key: ConsumerKey) -> Option<u64> {
        self.committed.get(&key).copied()
    }

    /// Whether a store of `key` stays within the limit of its kind.
    pub fn has_room(&self, key: ConsumerKey) -> bool {
        if self.committed.contains_key(&key) || self.promised.contains_key(&key) {
            return true;
        }
        let same = |other: &ConsumerKey| {
            matches!(other, ConsumerKey::Group(_)) == matches!(key, ConsumerKey::Group(_))
        };
        let held = self.committed.keys().filter(|other| same(other)).count();
        let new = |other: &&ConsumerKey| same(other) && !self.committed.contains_key(other);
        held + self.promised.keys().filter(new).count() < self.limit
    }

    /// A store of `key` was admitted and has not committed yet.
    pub fn promise(&mut self, key: ConsumerKey) {
        *self.promised.entry(key).or_default() += 1;
    }

    /// The view changed: nothing admitted here is certain to commit, no promise is ours to keep.
    pub fn forget_promises(&mut self) {
        self.promised.clear();
        self.eager.clear();
    }

    /// Raises the position a consumer sees before its auto-commit commits.
    pub fn raise_eager(&mut self, key: ConsumerKey, offset: u64) {
        let known = self.visible(key);
        if known.is_none_or(|known| known < offset) {
            self.eager.insert(key, offset);
        }
    }

    /// Applies a committed explicit store: it overwrites, backwards too.
    pub fn store(&mut self, key: ConsumerKey, offset: u64) {
        self.release_promise(key);
        self.eager.remove(&key);
        self.committed.insert(key, offset);
        self.dirty.insert(key);
    }

    /// Applies a committed auto-commit store: it never moves backwards.
    pub fn fold(&mut self, key: ConsumerKey, offset: u64) {
        self.release_promise(key);
        let stored = self.committed.get(&key).copied();
        if stored.is_none_or(|stored| stored < offset) {
            self.committed.insert(key, offset);
            self.dirty.insert(key);
        }
        if self.eager.get(&key) <= self.committed.get(&key) {
            self.eager.remove(&key);
        }
    }

    /// Applies a committed delete; deleting what is not there is no error.
    pub fn delete(&mut self, key: ConsumerKey) {
        self.eager.remove(&key);
        if self.committed.remove(&key).is_some() {
            self.dirty.insert(key);
        }
    }

    /// An admitted store of `key` committed, or will not.
    pub fn release_promise(&mut self, key: ConsumerKey) {
        if let Some(count) = self.promised.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(&key);
            }
        }
    }

    /// The lowest committed position: retention never removes a segment that ends above it.
    pub fn barrier(&self) -> Option<u64> {
        self.committed.values().copied().min()
    }

    /// Whether the file of `key` is behind the committed layer.
    pub fn is_behind(&self, key: ConsumerKey) -> bool {
        self.dirty.contains(&key)
    }

    /// Whether any file is behind.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes the next file that is behind, if any.
    pub fn take_dirty(&mut self) -> Option<FileChange> {
        let key = self.dirty.pop_first()?;
        Some(FileChange {
            key,
            value: self.committed.get(&key).copied(),
        })
    }

    /// A write failed: its file is behind again.
    pub fn mark_dirty(&mut self, key: ConsumerKey) {
        self.dirty.insert(key);
    }

    /// Drops everything (purge), in memory; the caller removes the files.
    pub fn clear(&mut self) {
        self.committed.clear();
        self.eager.clear();
        self.dirty.clear();
        self.promised.clear();
    }

    /// Puts a position read from its file or from a transfer; no file write follows.
    pub fn restore(&mut self, key: ConsumerKey, offset: u64) {
        self.committed.insert(key, offset);
    }

    /// Committed positions of plain consumers, ascending.
    pub fn consumers(&self) -> Vec<(u32, u64)> {
        let pick = |(key, offset): (&ConsumerKey, &u64)| match key {
            ConsumerKey::Consumer(id) => Some((*id, *offset)),
            ConsumerKey::Group(_) => None,
        };
        self.committed.iter().filter_map(pick).collect()
    }

    /// Committed positions of groups, ascending.
    pub fn groups(&self) -> Vec<(u32, u64)> {
        let pick = |(key, offset): (&ConsumerKey, &u64)| match key {
            ConsumerKey::Group(id) => Some((*id, *offset)),
            ConsumerKey::Consumer(_) => None,
        };
        self.committed.iter().filter_map(pick).collect()
    }

    /// Every committed position, ascending by key.
    pub fn committed_all(&self) -> Vec<(ConsumerKey, u64)> {
        self.committed
            .iter()
            .map(|(key, offset)| (*key, *offset))
            .collect()
    }

    /// Every key with a committed position.
    pub fn keys(&self) -> Vec<ConsumerKey> {
        self.committed.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ConsumerKey = ConsumerKey::Consumer(7);

    #[test]
    fn files_are_the_vectors() {
        let hex = |offset| -> String {
            encode_file(offset)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        assert_eq!(hex(0), "0000000000000000d9ac876fbb3a7bc7");
        assert_eq!(hex(41), "2900000000000000584d9d3cb7de96e0");
        assert_eq!(hex(101), "6500000000000000ad7f63edfe6feb77");
        assert_eq!(hex(1_234_567_890_123), "cb04fb711f010000a6dd3ea651c684f1");
    }

    #[test]
    fn reading_tolerates_old_and_torn_files() {
        let mut bytes = encode_file(41).to_vec();
        assert_eq!(decode_file(&bytes), FileValue::Offset(41));
        assert_eq!(decode_file(&bytes[..12]), FileValue::Offset(41));
        assert_eq!(decode_file(&bytes[..8]), FileValue::Offset(41));
        assert_eq!(decode_file(&bytes[..7]), FileValue::Absent);
        bytes.push(0);
        assert_eq!(decode_file(&bytes), FileValue::Offset(41));
        bytes[0] ^= 1;
        assert_eq!(decode_file(&bytes), FileValue::Damaged);
    }

    #[test]
    fn store_overwrites_and_auto_commit_folds() {
        let mut offsets = ConsumerOffsets::new(2);
        offsets.store(KEY, 10);
        offsets.fold(KEY, 5);
        assert_eq!(offsets.visible(KEY), Some(10));
        offsets.store(KEY, 3);
        assert_eq!(offsets.visible(KEY), Some(3));
        offsets.fold(KEY, 8);
        assert_eq!(offsets.committed(KEY), Some(8));
        assert_eq!(
            offsets.take_dirty(),
            Some(FileChange {
                key: KEY,
                value: Some(8)
            })
        );
        offsets.delete(KEY);
        assert_eq!(
            offsets.take_dirty(),
            Some(FileChange {
                key: KEY,
                value: None
            })
        );
        offsets.delete(KEY);
        assert_eq!(offsets.take_dirty(), None);
    }

    #[test]
    fn eager_progress_is_seen_until_an_explicit_store_rewinds() {
        let mut offsets = ConsumerOffsets::new(2);
        offsets.raise_eager(KEY, 9);
        assert_eq!(
            (offsets.visible(KEY), offsets.committed(KEY)),
            (Some(9), None)
        );
        offsets.fold(KEY, 4);
        assert_eq!(offsets.visible(KEY), Some(9));
        offsets.store(KEY, 2);
        assert_eq!(offsets.visible(KEY), Some(2));
    }

    #[test]
    fn limit_counts_kinds_apart_and_promises() {
        let mut offsets = ConsumerOffsets::new(1);
        assert!(offsets.has_room(KEY));
        offsets.promise(KEY);
        assert!(offsets.has_room(KEY));
        assert!(!offsets.has_room(ConsumerKey::Consumer(8)));
        assert!(offsets.has_room(ConsumerKey::Group(8)));
        offsets.store(KEY, 1);
        assert!(!offsets.has_room(ConsumerKey::Consumer(8)));
        offsets.delete(KEY);
        assert!(offsets.has_room(ConsumerKey::Consumer(8)));
    }
}
