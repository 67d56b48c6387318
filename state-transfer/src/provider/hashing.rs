//! Digests of stored artifacts, computed block by block and remembered.
//!
//! A manifest needs the digest of every segment before the first byte is served, and a
//! partition may hold gigabytes. Hashing proceeds over reads the owner performs, within a budget
//! per request; what is done stays done, so the request that was told to come back finds less
//! to do. The state is kept even when an artifact is complete: an active segment that has grown
//! continues where it was, because the bytes before are stable.

use std::collections::BTreeMap;

use biplane_wire::GroupId;
use xxhash_rust::xxh3::Xxh3;

/// Identifies a stored artifact: group, kind, frontier.
pub(super) type ArtifactKey = (GroupId, u8, u64);

/// What is known about the digest of one artifact.
#[derive(Clone)]
struct Memo {
    /// Distinguishes it from an earlier one of the same key, whose reads may still be under way.
    id: u64,
    hashed: u64,
    hasher: Xxh3,
    /// When it was last used, in sweeps.
    sweep: u64,
}

/// The next step towards the digest of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hashing {
    /// It is known.
    Done(u64),
    /// These bytes come next.
    Wants { memo: u64, offset: u64, len: u32 },
}

/// Digest states of stored artifacts.
#[derive(Clone, Default)]
pub(super) struct Hashes {
    memos: BTreeMap<ArtifactKey, Memo>,
    next_id: u64,
    sweep: u64,
}

impl Hashes {
    /// How far the digest of the first `len` bytes of an artifact is.
    pub(super) fn step(&mut self, key: ArtifactKey, len: u64, read_bytes: u32) -> Hashing {
        // A shorter artifact than was hashed is another one: start over.
        if self.memos.get(&key).is_some_and(|memo| memo.hashed > len) {
            self.memos.remove(&key);
        }
        let (next_id, sweep) = (&mut self.next_id, self.sweep);
        let memo = self.memos.entry(key).or_insert_with(|| {
            *next_id += 1;
            Memo {
                id: *next_id,
                hashed: 0,
                hasher: Xxh3::new(),
                sweep,
            }
        });
        memo.sweep = sweep;
        let left = len - memo.hashed;
        if left == 0 {
            return Hashing::Done(memo.hasher.digest());
        }
        let len = u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(read_bytes.max(1));
        Hashing::Wants {
            memo: memo.id,
            offset: memo.hashed,
            len,
        }
    }

    /// Takes the bytes a read brought, unless they belong to a forgotten artifact or were taken
    /// on behalf of another request.
    pub(super) fn take(&mut self, key: ArtifactKey, memo: u64, offset: u64, bytes: &[u8]) {
        let known = self.memos.get_mut(&key);
        if let Some(known) = known.filter(|known| known.id == memo && known.hashed == offset) {
            known.hasher.update(bytes);
            known.hashed = known.hashed.saturating_add(bytes.len() as u64);
        }
    }

    /// Forgets one artifact.
    pub(super) fn forget(&mut self, key: ArtifactKey) {
        self.memos.remove(&key);
    }

    /// Forgets the artifacts of a group.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        self.memos.retain(|(of, _, _), _| *of != group);
    }

    /// Forgets what was not used for `sweeps_max` sweeps: segments that retention removed, and
    /// groups that nobody asks for any more.
    pub(super) fn sweep(&mut self, sweeps_max: u64) {
        self.sweep += 1;
        let oldest = self.sweep.saturating_sub(sweeps_max);
        self.memos.retain(|_, memo| memo.sweep >= oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ArtifactKey = (GroupId(7), 2, 1_000);

    fn run(hashes: &mut Hashes, bytes: &[u8]) -> (u64, u32) {
        let mut reads = 0;
        loop {
            match hashes.step(KEY, bytes.len() as u64, 4) {
                Hashing::Done(digest) => return (digest, reads),
                Hashing::Wants { memo, offset, len } => {
                    let from = usize::try_from(offset).expect("small");
                    hashes.take(KEY, memo, offset, &bytes[from..from + len as usize]);
                    reads += 1;
                }
            }
        }
    }

    #[test]
    fn digest_is_that_of_the_whole_and_is_not_computed_twice() {
        let mut hashes = Hashes::default();
        let bytes = b"snapshot-bytes";
        assert_eq!(run(&mut hashes, bytes), (0x298e_ac84_0308_9f0b, 4));
        assert_eq!(run(&mut hashes, bytes), (0x298e_ac84_0308_9f0b, 0));
    }

    #[test]
    fn a_grown_artifact_continues_and_a_shrunk_one_starts_over() {
        let mut hashes = Hashes::default();
        run(&mut hashes, b"snapshot");
        let (digest, reads) = run(&mut hashes, b"snapshot-bytes");
        assert_eq!((digest, reads), (0x298e_ac84_0308_9f0b, 2));
        let (digest, reads) = run(&mut hashes, b"snap");
        assert_eq!((digest, reads), (biplane_wire::xxh3(b"snap"), 1));
    }

    #[test]
    fn bytes_read_before_a_purge_do_not_reach_the_digest_after_it() {
        let mut hashes = Hashes::default();
        let Hashing::Wants { memo, offset, .. } = hashes.step(KEY, 4, 4) else {
            panic!()
        };
        hashes.forget_group(GroupId(7));
        assert!(matches!(
            hashes.step(KEY, 4, 4),
            Hashing::Wants { offset: 0, .. }
        ));
        hashes.take(KEY, memo, offset, b"old!");
        assert_eq!(run(&mut hashes, b"new!").0, biplane_wire::xxh3(b"new!"));
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let mut hashes = Hashes::default();
        run(&mut hashes, b"snap");
        hashes.sweep(2);
        hashes.sweep(2);
        assert_eq!(run(&mut hashes, b"snap").1, 0, "used again");
        for _ in 0..3 {
            hashes.sweep(2);
        }
        assert_eq!(run(&mut hashes, b"snap").1, 1);
    }
}
