//! Digests of stored artifacts, computed block by block and remembered.
//!
//! A manifest needs the digest of every segment before the first byte is served, and a
//! partition may hold gigabytes. Hashing proceeds over reads the owner performs, several of which
//! may be under way; what is done stays done. The state is kept even when an artifact is
//! complete: an active segment that has grown continues where it was, because the bytes before
//! are stable, and its digest at the length that somebody waits for is not lost by that.

use std::collections::BTreeMap;

use biplane_wire::GroupId;
use xxhash_rust::xxh3::Xxh3;

/// Identifies a stored artifact: group, kind, frontier.
pub(super) type ArtifactKey = (GroupId, u8, u64);

/// Digests of one growing artifact that are kept: no more peers than that ask at once.
const LENGTHS_KEPT: usize = 8;

/// What is known about the digest of one artifact.
#[derive(Clone)]
struct Memo {
    /// Distinguishes it from an earlier one of the same key, whose reads may still be under way.
    id: u64,
    hashed: u64,
    /// Where the next read begins: what is before is hashed, or being read.
    asked: u64,
    hasher: Xxh3,
    /// Lengths that were asked for, with the digests of those that were reached.
    lengths: Vec<(u64, Option<u64>)>,
    /// When it was last used, in sweeps.
    sweep: u64,
}

/// The next step towards the digest of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hashing {
    /// It is known.
    Done,
    /// The rest of its bytes is being read.
    Asked,
    /// These bytes are to be read next.
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
    /// The digest of the first `len` bytes of an artifact, once they were hashed.
    pub(super) fn digest(&mut self, key: ArtifactKey, len: u64) -> Option<u64> {
        let memo = self.memos.get_mut(&key)?;
        memo.sweep = self.sweep;
        let known = memo.lengths.iter().find(|(at, _)| *at == len);
        known.and_then(|(_, digest)| *digest)
    }

    /// How far the digest of the first `len` bytes of an artifact is. Bytes that it wants are
    /// taken to be read from now on.
    pub(super) fn step(&mut self, key: ArtifactKey, len: u64, read_bytes: u32) -> Hashing {
        if self.digest(key, len).is_some() {
            return Hashing::Done;
        }
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
                asked: 0,
                hasher: Xxh3::new(),
                lengths: Vec::new(),
                sweep,
            }
        });
        memo.expect(len);
        if memo.hashed == len {
            return Hashing::Done;
        }
        let (offset, left) = (memo.asked, len.saturating_sub(memo.asked));
        if left == 0 {
            return Hashing::Asked;
        }
        let len = u32::try_from(left).unwrap_or(u32::MAX);
        let len = len.min(read_bytes.max(1));
        memo.asked += u64::from(len);
        Hashing::Wants {
            memo: memo.id,
            offset,
            len,
        }
    }

    /// Takes the bytes a read brought, unless they belong to a forgotten artifact. Those that do
    /// not continue what is hashed are read again.
    pub(super) fn take(&mut self, key: ArtifactKey, memo: u64, offset: u64, bytes: &[u8]) {
        let known = self.memos.get_mut(&key);
        let Some(known) = known.filter(|known| known.id == memo) else {
            return;
        };
        if known.hashed == offset {
            known.hasher.update(bytes);
            known.hashed = known.hashed.saturating_add(bytes.len() as u64);
            known.asked = known.asked.max(known.hashed);
            known.note();
        } else {
            known.asked = known.hashed;
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

impl Memo {
    /// Somebody waits for the digest at this length.
    fn expect(&mut self, len: u64) {
        if self.lengths.iter().any(|(at, _)| *at == len) {
            return;
        }
        if self.lengths.len() >= LENGTHS_KEPT {
            self.lengths.remove(0);
        }
        self.lengths.push((len, None));
        self.note();
    }

    /// Notes the digest of what is hashed, if somebody waits for it.
    fn note(&mut self) {
        let expected = self.lengths.iter_mut().find(|(at, _)| *at == self.hashed);
        if let Some((_, digest)) = expected {
            *digest = Some(self.hasher.digest());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ArtifactKey = (GroupId(7), 2, 1_000);

    fn run(hashes: &mut Hashes, bytes: &[u8]) -> (u64, u32) {
        let (len, mut reads) = (bytes.len() as u64, 0);
        loop {
            match hashes.step(KEY, len, 4) {
                Hashing::Done => return (hashes.digest(KEY, len).expect("known"), reads),
                Hashing::Asked => panic!("nothing is under way"),
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
        let Hashing::Wants { memo: other, .. } = hashes.step(KEY, 4, 4) else {
            panic!()
        };
        hashes.take(KEY, memo, offset, b"old!");
        assert_eq!(hashes.step(KEY, 4, 4), Hashing::Asked);
        hashes.take(KEY, other, 0, b"new!");
        assert_eq!(hashes.digest(KEY, 4), Some(biplane_wire::xxh3(b"new!")));
    }

    #[test]
    fn reads_that_come_out_of_order_are_done_again() {
        let (mut hashes, bytes) = (Hashes::default(), b"snapshot");
        let mut wants = || match hashes.step(KEY, 8, 4) {
            Hashing::Wants { memo, offset, .. } => (memo, offset),
            other => panic!("{other:?}"),
        };
        let ((memo, first), (_, second)) = (wants(), wants());
        assert_eq!((first, second), (0, 4));
        assert_eq!(hashes.step(KEY, 8, 4), Hashing::Asked);
        hashes.take(KEY, memo, second, &bytes[4..]);
        hashes.take(KEY, memo, first, &bytes[..4]);
        assert_eq!(run(&mut hashes, bytes), (biplane_wire::xxh3(bytes), 1));
    }

    #[test]
    fn a_digest_is_not_lost_when_the_artifact_grows() {
        let mut hashes = Hashes::default();
        let (digest, _) = run(&mut hashes, b"snapshot");
        run(&mut hashes, b"snapshot-bytes");
        assert_eq!(run(&mut hashes, b"snapshot"), (digest, 0));
        // Two that ask at once, and reads under way for both.
        let (key, bytes) = ((GroupId(7), 2, 0), b"snapshot-bytes");
        let mut wants = Vec::new();
        for len in [8, 14] {
            while let Hashing::Wants { memo, offset, len } = hashes.step(key, len, 4) {
                wants.push((memo, offset as usize, len as usize));
            }
        }
        for (memo, from, len) in wants {
            assert_eq!(hashes.step(key, 14, 4), Hashing::Asked);
            hashes.take(key, memo, from as u64, &bytes[from..from + len]);
        }
        assert_eq!(hashes.digest(key, 8), Some(digest));
        assert_eq!(hashes.digest(key, 14), Some(0x298e_ac84_0308_9f0b));
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
