//! Every pair of superblock copies, and every crash while one is written.

mod support;

use biplane_journal::{
    Disk, DiskErrorKind, DiskPath, DiskRequest, DiskVerb, Fault, Identity, MemoryDisk, Persist,
    QueueId, RETRY_TICKS_MAX, SUPERBLOCK_BYTES, SuperblockCopy, SuperblockDecodeError,
    SuperblockError, SuperblockFile, SuperblockRecord, encode_superblock, load_superblock,
};
use biplane_wire::{Checksum, Op, ReplicaId, View};
use support::*;

const IDENTITY: Identity = Identity {
    cluster: CLUSTER,
    replica: ReplicaId(1),
    replica_count: 3,
};

fn dir() -> DiskPath {
    DiskPath::new("metadata").unwrap()
}

fn path(copy: SuperblockCopy) -> DiskPath {
    dir().join(copy.name()).unwrap()
}

fn record(view: u32) -> SuperblockRecord {
    SuperblockRecord {
        view: View(view),
        log_view: View(view / 2),
        commit_max: Op(u64::from(view) * 10),
        checkpoint_op: Op(u64::from(view)),
        checkpoint_checksum: Checksum(u128::from(view) + 99),
        offset_frontier: 7,
        ..SuperblockRecord::fresh(IDENTITY)
    }
}

/// One copy as it can be found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Absent,
    Sequence(u64),
    /// One bit of it is wrong.
    Flipped(u64),
    Empty,
    Short,
    Long,
    /// Whole and sealed, of another replica.
    Stranger(u64),
}

fn bytes(found: Found) -> Option<Vec<u8>> {
    let whole = |sequence: u64| encode_superblock(&record(sequence as u32), sequence).to_vec();
    Some(match found {
        Found::Absent => return None,
        Found::Sequence(sequence) => whole(sequence),
        Found::Flipped(sequence) => {
            let mut bytes = whole(sequence);
            bytes[50] ^= 8;
            bytes
        }
        Found::Empty => Vec::new(),
        Found::Short => whole(2)[..SUPERBLOCK_BYTES - 1].to_vec(),
        Found::Long => [whole(2), vec![0]].concat(),
        Found::Stranger(sequence) => {
            let identity = Identity {
                replica: ReplicaId(2),
                ..IDENTITY
            };
            encode_superblock(
                &SuperblockRecord {
                    identity,
                    ..record(9)
                },
                sequence,
            )
            .to_vec()
        }
    })
}

fn disk_with(a: Found, b: Found) -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    for (copy, found) in [(SuperblockCopy::A, a), (SuperblockCopy::B, b)] {
        if let Some(bytes) = bytes(found) {
            disk.put(&path(copy), &bytes);
        }
    }
    disk
}

#[test]
fn a_pair_is_accepted_only_as_a_crash_can_have_left_it() {
    let mut kinds = vec![Found::Absent, Found::Empty, Found::Short, Found::Long];
    kinds.extend((1..=6).map(Found::Sequence));
    kinds.extend((1..=4).map(Found::Flipped));
    kinds.extend((1..=3).map(Found::Stranger));
    let mut accepted = Vec::new();
    for &a in &kinds {
        for &b in &kinds {
            let loaded = load_superblock(&disk_with(a, b), &dir(), &IDENTITY);
            if let Ok(loaded) = &loaded {
                let newest = loaded.sequence;
                assert_eq!(loaded.record, (newest > 0).then(|| record(newest as u32)));
                accepted.push((a, b, newest));
            }
            check_reason(a, b, loaded.err());
        }
    }
    let whole = Found::Sequence;
    assert_eq!(
        accepted,
        [
            (Found::Absent, Found::Absent, 0),
            (whole(1), Found::Absent, 1),
            (whole(1), whole(2), 2),
            (whole(3), whole(2), 3),
            (whole(3), whole(4), 4),
            (whole(5), whole(4), 5),
            (whole(5), whole(6), 6),
        ]
    );
}

fn check_reason(a: Found, b: Found, error: Option<SuperblockError>) {
    let unreadable = |found: Found| {
        matches!(
            found,
            Found::Flipped(_) | Found::Empty | Found::Short | Found::Long
        )
    };
    let sequence = |found: Found| match found {
        Found::Sequence(sequence) | Found::Stranger(sequence) => Some(sequence),
        _ => None,
    };
    let misplaced = |found: Found, odd: bool| sequence(found).is_some_and(|s| (s % 2 == 1) != odd);
    let case = format!("{a:?} {b:?} {error:?}");
    match &error {
        None => {}
        Some(SuperblockError::Unverifiable { copy, .. }) => {
            assert!(
                unreadable(if *copy == SuperblockCopy::A { a } else { b }),
                "{case}"
            );
        }
        Some(SuperblockError::WrongCopy { .. }) => {
            assert!(misplaced(a, true) || misplaced(b, false), "{case}");
        }
        Some(SuperblockError::CopyMissing { .. }) => {
            assert!(a == Found::Absent || b == Found::Absent, "{case}");
        }
        Some(SuperblockError::NotAPair { a: one, b: two }) => {
            assert!(one.abs_diff(*two) != 1, "{case}");
        }
        Some(SuperblockError::WentBack { .. }) => {
            // The stranger's record is of view 9 and another may be newer by sequence.
            assert!(
                matches!(a, Found::Stranger(_)) || matches!(b, Found::Stranger(_)),
                "{case}"
            );
        }
        Some(SuperblockError::IdentityMismatch { found, .. }) => {
            assert_eq!(found.replica, ReplicaId(2), "{case}");
        }
        Some(SuperblockError::Disk(error)) => panic!("{error}"),
    }
    if unreadable(a) {
        let wanted = matches!(
            error,
            Some(SuperblockError::Unverifiable {
                copy: SuperblockCopy::A,
                ..
            })
        );
        assert!(wanted, "{case}");
    }
}

#[test]
fn every_field_of_the_identity_must_match() {
    let disk = disk_with(Found::Sequence(3), Found::Sequence(2));
    assert!(load_superblock(&disk, &dir(), &IDENTITY).is_ok());
    let mut other_cluster = IDENTITY;
    other_cluster.cluster.0 ^= 1;
    for identity in [
        other_cluster,
        Identity {
            replica: ReplicaId(0),
            ..IDENTITY
        },
        Identity {
            replica_count: 5,
            ..IDENTITY
        },
    ] {
        let refused = load_superblock(&disk, &dir(), &identity).unwrap_err();
        let wanted = SuperblockError::IdentityMismatch {
            expected: identity,
            found: IDENTITY,
        };
        assert_eq!(refused, wanted);
        assert!(refused.to_string().contains("belongs to"));
    }
}

#[test]
fn a_newer_copy_that_promises_less_refuses() {
    let mut disk = MemoryDisk::new();
    disk.put(&path(SuperblockCopy::A), &encode_superblock(&record(5), 1));
    disk.put(&path(SuperblockCopy::B), &encode_superblock(&record(4), 2));
    let refused = load_superblock(&disk, &dir(), &IDENTITY).unwrap_err();
    assert_eq!(
        refused,
        SuperblockError::WentBack {
            older: View(5),
            newer: View(4)
        }
    );
}

#[test]
fn every_flip_and_every_length_of_a_copy_refuses() {
    let whole = encode_superblock(&record(1), 1);
    for byte in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole;
            flipped[byte] ^= 1 << bit;
            assert!(
                biplane_journal::decode_superblock(&flipped).is_err(),
                "byte {byte}"
            );
        }
    }
    for len in 0..whole.len() {
        let error = biplane_journal::decode_superblock(&whole[..len]).unwrap_err();
        assert_eq!(error, SuperblockDecodeError::Length(len));
    }
}

/// Makes the directory and opens the file over it.
fn open(disk: &mut MemoryDisk) -> SuperblockFile {
    let loaded = load_superblock(disk, &dir(), &IDENTITY).unwrap();
    SuperblockFile::open(&dir(), QueueId(3), &loaded).unwrap()
}

fn fresh_disk() -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    disk.put(&dir().join("other").unwrap(), b"");
    disk
}

fn submit(disk: &mut MemoryDisk, requests: Vec<DiskRequest>) {
    for request in requests {
        disk.submit(request);
    }
}

#[test]
fn a_crash_at_any_point_leaves_the_old_record_or_the_new_one() {
    let run = |steps: u64| {
        let mut disk = fresh_disk();
        disk.halt_after(steps);
        let mut file = open(&mut disk);
        let mut durable = 0;
        for view in 1..=4 {
            let mut out = Vec::new();
            file.persist(record(view), &mut out);
            submit(&mut disk, out);
            while let Some(completion) = disk.poll() {
                let done = file.complete(&completion, &mut Vec::new()).unwrap();
                durable = done.view.0;
            }
            if durable < view {
                break;
            }
        }
        (disk, durable)
    };
    let total = run(u64::MAX).0.steps_done();
    assert_eq!(total, 16, "four steps for each of four writes");
    let mut crashes = 0;
    for steps in 0..=total {
        let (disk, durable) = run(steps);
        every_crash(&disk, fates_with_holes, &mut |mut disk, fates| {
            crashes += 1;
            let loaded = load_superblock(&disk, &dir(), &IDENTITY).unwrap();
            let view = loaded.record.map_or(0, |found| found.view.0);
            assert!(view == durable || view == durable + 1, "{steps} {fates:?}");
            assert_eq!(loaded.record, (view > 0).then(|| record(view)));
            // And it can go on from there.
            let mut file = open(&mut disk);
            let mut out = Vec::new();
            file.persist(record(view + 1), &mut out);
            submit(&mut disk, out);
            let completion = disk.poll().unwrap();
            assert!(file.complete(&completion, &mut Vec::new()).is_some());
            disk.crash_losing_all();
            let again = load_superblock(&disk, &dir(), &IDENTITY).unwrap();
            assert_eq!(again.record, Some(record(view + 1)));
        });
    }
    assert!(crashes > 40, "only {crashes} crashes");
}

#[test]
fn only_the_newest_record_is_kept_while_a_write_is_in_flight() {
    let mut disk = fresh_disk();
    let mut file = open(&mut disk);
    let mut out = Vec::new();
    assert_eq!(file.persist(record(1), &mut out), Persist::Queued);
    assert_eq!(file.persist(record(2), &mut out), Persist::Queued);
    assert_eq!(file.persist(record(3), &mut out), Persist::Queued);
    assert_eq!(out.len(), 1, "one write in flight");
    assert_eq!(file.newest(), Some(&record(3)));
    assert_eq!(file.durable(), None);
    submit(&mut disk, std::mem::take(&mut out));
    let completion = disk.poll().unwrap();
    assert_eq!(file.complete(&completion, &mut out), Some(record(1)));
    submit(&mut disk, std::mem::take(&mut out));
    let completion = disk.poll().unwrap();
    assert_eq!(file.complete(&completion, &mut out), Some(record(3)));
    assert!(out.is_empty() && file.is_idle());
    assert_eq!(file.persist(record(3), &mut out), Persist::AlreadyDurable);
    assert!(out.is_empty());
    assert_eq!(
        load_superblock(&disk, &dir(), &IDENTITY).unwrap().sequence,
        2
    );
}

#[test]
fn a_failing_write_is_retried_on_the_same_copy_with_growing_pauses() {
    for verb in [
        DiskVerb::Write,
        DiskVerb::Sync,
        DiskVerb::Rename,
        DiskVerb::SyncDir,
    ] {
        let mut disk = disk_with(Found::Sequence(1), Found::Sequence(2));
        let mut file = open(&mut disk);
        let mut out = Vec::new();
        file.persist(record(3), &mut out);
        let mut pauses = Vec::new();
        for attempt in 1..=9 {
            let kind = DiskErrorKind::NoSpace;
            disk.fail(Fault {
                verb,
                path: None,
                kind,
                after: 0,
            });
            submit(&mut disk, std::mem::take(&mut out));
            let completion = disk.poll().unwrap();
            assert_eq!(file.complete(&completion, &mut out), None);
            assert_eq!(file.failures(), attempt);
            // Newer records may come in meanwhile; they do not shorten the pause.
            file.persist(record(2 + attempt), &mut out);
            assert!(out.is_empty());
            let mut ticks = 0;
            while out.is_empty() {
                file.tick(&mut out);
                ticks += 1;
            }
            pauses.push(ticks);
            let untouched = disk.get(&path(SuperblockCopy::B)).unwrap();
            assert_eq!(untouched, encode_superblock(&record(2), 2));
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 100, 100, 100]);
        assert_eq!(pauses.last(), Some(&RETRY_TICKS_MAX));
        submit(&mut disk, std::mem::take(&mut out));
        let completion = disk.poll().unwrap();
        assert_eq!(file.complete(&completion, &mut out), Some(record(11)));
        assert_eq!(file.failures(), 0);
        disk.crash_losing_all();
        let loaded = load_superblock(&disk, &dir(), &IDENTITY).unwrap();
        assert_eq!((loaded.sequence, loaded.record), (3, Some(record(11))));
    }
}

#[test]
fn after_a_failure_the_newest_record_is_written_not_the_failed_one() {
    let mut disk = disk_with(Found::Sequence(1), Found::Sequence(2));
    let mut file = open(&mut disk);
    let mut out = Vec::new();
    file.persist(record(3), &mut out);
    file.persist(record(5), &mut out);
    let kind = DiskErrorKind::Io(Some(5));
    disk.fail(Fault {
        verb: DiskVerb::Sync,
        path: None,
        kind,
        after: 0,
    });
    submit(&mut disk, std::mem::take(&mut out));
    let completion = disk.poll().unwrap();
    assert_eq!(file.complete(&completion, &mut out), None);
    assert_eq!(file.newest(), Some(&record(5)));
    while out.is_empty() {
        file.tick(&mut out);
    }
    submit(&mut disk, std::mem::take(&mut out));
    let completion = disk.poll().unwrap();
    assert_eq!(file.complete(&completion, &mut out), Some(record(5)));
    assert!(file.is_idle());
}

#[test]
#[should_panic(expected = "the view does not go back")]
fn a_view_is_never_taken_back() {
    let mut disk = disk_with(Found::Sequence(1), Found::Sequence(2));
    open(&mut disk).persist(record(1), &mut Vec::new());
}
