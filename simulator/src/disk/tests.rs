//! What a crash leaves behind, by mode, and what it may never take.

use biplane_journal::{
    Chunk, Disk, DiskErrorKind, DiskOp, DiskPath, DiskRequest, DiskView, QueueId,
};

use super::{CrashMode, Damage, DiskOptions, SECTOR, Stray, VirtualDisk};
use crate::prng::Prng;

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).expect("a valid path")
}

fn disk(seed: u64) -> VirtualDisk {
    let mut disk = VirtualDisk::new(DiskOptions::calm(), Prng::new(seed));
    run(&mut disk, DiskOp::CreateDirs { path: path("dir") });
    disk
}

fn drain(disk: &mut VirtualDisk) {
    while let Some(due) = disk.next_due() {
        disk.run_until(due);
    }
}

fn run(disk: &mut VirtualDisk, op: DiskOp) {
    disk.submit(DiskRequest {
        queue: QueueId(1),
        token: 1,
        op,
    });
    drain(disk);
    let done = disk.poll().expect("a completion");
    done.result.expect("success");
}

fn write(disk: &mut VirtualDisk, name: &str, offset: u64, bytes: &[u8], sync: bool) {
    let data = vec![Chunk::from(bytes.to_vec())];
    run(
        disk,
        DiskOp::Write {
            path: path(name),
            offset,
            data,
            sync,
        },
    );
}

fn content(disk: &VirtualDisk, name: &str) -> Option<Vec<u8>> {
    let len = disk.len(&path(name)).expect("readable")?;
    let mut bytes = vec![0; len as usize];
    disk.read(&path(name), 0, &mut bytes).expect("readable");
    Some(bytes)
}

#[test]
fn a_file_whose_name_was_never_synced_may_vanish_with_synced_bytes() {
    let mut disk = disk(1);
    write(&mut disk, "dir/a", 0, b"bytes", true);
    disk.crash(CrashMode::LoseAll);
    assert_eq!(content(&disk, "dir/a"), None);
}

#[test]
fn synced_bytes_under_a_synced_name_survive_every_mode() {
    let modes = [
        CrashMode::LoseAll,
        CrashMode::Prefix,
        CrashMode::Subset,
        CrashMode::Torn,
    ];
    for mode in modes {
        for seed in 0..50 {
            let mut disk = disk(seed);
            write(&mut disk, "dir/a", 0, &[7; 1000], true);
            run(&mut disk, DiskOp::SyncDir { path: path("dir") });
            write(&mut disk, "dir/a", 1000, &[8; 1000], false);
            disk.crash(mode);
            let bytes = content(&disk, "dir/a").expect("the name is durable");
            assert!(
                bytes.len() >= 1000 && bytes[..1000] == [7; 1000],
                "{mode:?} {seed}"
            );
        }
    }
}

#[test]
fn a_torn_write_keeps_whole_sectors() {
    let mut torn = 0;
    for seed in 0..200 {
        let mut disk = disk(seed);
        write(&mut disk, "dir/a", 0, &[1; 4 * SECTOR as usize], true);
        run(&mut disk, DiskOp::SyncDir { path: path("dir") });
        write(&mut disk, "dir/a", 0, &[2; 4 * SECTOR as usize], false);
        disk.crash(CrashMode::Torn);
        let bytes = content(&disk, "dir/a").expect("durable");
        let sectors: Vec<u8> = bytes
            .chunks(SECTOR as usize)
            .map(|sector| sector[0])
            .collect();
        torn += u32::from(sectors.contains(&1) && sectors.contains(&2));
    }
    assert!(torn > 10, "{torn} torn writes");
}

#[test]
fn replace_is_atomic_at_every_crash() {
    for seed in 0..100 {
        let mut disk = disk(seed);
        let replace = |bytes: &[u8]| DiskOp::Replace {
            path: path("dir/a"),
            data: vec![Chunk::from(bytes.to_vec())],
        };
        run(&mut disk, replace(b"old"));
        disk.submit(DiskRequest {
            queue: QueueId(1),
            token: 2,
            op: replace(b"new"),
        });
        disk.crash(CrashMode::Torn);
        let found = content(&disk, "dir/a").expect("one of the two");
        assert!(found == b"old" || found == b"new", "{seed}: {found:?}");
    }
}

#[test]
fn a_renamed_directory_keeps_what_is_below_it() {
    let mut disk = disk(3);
    write(&mut disk, "dir/a", 0, b"bytes", true);
    run(&mut disk, DiskOp::SyncDir { path: path("dir") });
    run(
        &mut disk,
        DiskOp::Rename {
            from: path("dir"),
            to: path("other"),
        },
    );
    assert_eq!(content(&disk, "other/a").as_deref(), Some(&b"bytes"[..]));
    run(
        &mut disk,
        DiskOp::SyncDir {
            path: DiskPath::root(),
        },
    );
    disk.crash(CrashMode::LoseAll);
    assert_eq!(content(&disk, "other/a").as_deref(), Some(&b"bytes"[..]));
    assert_eq!(content(&disk, "dir/a"), None);
}

#[test]
fn damage_is_sticky_heals_exactly_and_ends_with_a_new_write() {
    let mut disk = disk(4);
    write(&mut disk, "dir/a", 0, &[5; 1024], true);
    assert!(disk.damage(&path("dir/a"), 10, Damage::Rot { at: 10, mask: 1 }));
    assert!(!disk.damage(&path("dir/a"), 5000, Damage::Unreadable));
    assert_eq!(content(&disk, "dir/a").expect("there")[10], 4);
    assert_eq!(content(&disk, "dir/a").expect("there")[10], 4);
    write(&mut disk, "dir/a", 512, &[6; 512], true);
    assert_eq!(content(&disk, "dir/a").expect("there")[10], 4);
    disk.heal();
    assert_eq!(content(&disk, "dir/a").expect("there")[10], 5);
    disk.damage(&path("dir/a"), 10, Damage::Unreadable);
    let mut one = [0];
    assert!(disk.read(&path("dir/a"), 10, &mut one).is_err());
    write(&mut disk, "dir/a", 0, &[6; 512], true);
    assert!(disk.read(&path("dir/a"), 10, &mut one).is_ok());
}

#[test]
fn a_failed_sync_is_not_repaired_by_a_later_one() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut disk = disk(seed);
        run(
            &mut disk,
            DiskOp::Replace {
                path: path("dir/a"),
                data: Vec::new(),
            },
        );
        let mut faulty = DiskOptions::calm();
        faulty.sync_error_parts = 1_000_000;
        disk.set_options(faulty);
        let data = vec![Chunk::from(vec![9; 10])];
        let op = DiskOp::Write {
            path: path("dir/a"),
            offset: 0,
            data,
            sync: true,
        };
        disk.submit(DiskRequest {
            queue: QueueId(1),
            token: 1,
            op,
        });
        drain(&mut disk);
        assert!(disk.poll().expect("a completion").result.is_err());
        disk.set_options(DiskOptions::calm());
        run(
            &mut disk,
            DiskOp::Sync {
                path: path("dir/a"),
            },
        );
        disk.crash(CrashMode::Subset);
        lost += u32::from(content(&disk, "dir/a").expect("durable").is_empty());
    }
    assert!(lost > 0);
}

/// A log of `count` records of 300 bytes, each of its number, synced one by one.
fn log(count: u8) -> VirtualDisk {
    let mut disk = VirtualDisk::new(DiskOptions::calm(), Prng::new(1));
    disk.remember();
    for number in 0..count {
        write(
            &mut disk,
            "journal.wal",
            u64::from(number) * 300,
            &[number + 1; 300],
            true,
        );
    }
    let root = DiskPath::root();
    run(&mut disk, DiskOp::SyncDir { path: root });
    disk
}

fn record(number: u64) -> std::ops::Range<u64> {
    number * 300..(number + 1) * 300
}

/// The record of a number as it is read.
fn read_record(disk: &VirtualDisk, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 300];
    disk.read(&path("journal.wal"), number * 300, &mut bytes)
        .expect("readable");
    bytes
}

#[test]
fn write_that_never_happened_leaves_what_was_there_and_its_neighbours() {
    let mut disk = log(4);
    write(&mut disk, "journal.wal", 600, &[9; 300], true);
    let log = path("journal.wal");
    assert!(disk.unwrite(&log, &record(1), Stray::Unwritten));
    assert!(disk.unwrite(&log, &record(2), Stray::Unwritten));
    assert_eq!(disk.counts().unwritten_met, 0);
    let found: Vec<Vec<u8>> = (0..4).map(|number| read_record(&disk, number)).collect();
    assert_eq!(found, [[1; 300], [0; 300], [3; 300], [4; 300]]);
    assert!(disk.counts().unwritten_met > 0);
    let (durable, _) = disk.durable(&log).expect("it is there");
    assert_eq!(durable[600..900], [9; 300], "pristine bytes are kept");
    disk.heal();
    assert_eq!(read_record(&disk, 1), [2; 300]);
}

#[test]
fn what_a_crash_could_take_anyway_is_not_taken_twice() {
    let mut disk = log(2);
    write(&mut disk, "journal.wal", 300, &[8; 300], false);
    let log = path("journal.wal");
    assert!(!disk.unwrite(&log, &record(1), Stray::Unwritten));
    assert_eq!(disk.bytes_at(&log, &record(1)), None);
    assert!(disk.unwrite(&log, &record(0), Stray::Unwritten));
}

#[test]
fn misdirected_write_is_read_at_the_wrong_place_until_that_is_written_again() {
    let mut disk = log(4);
    let log = path("journal.wal");
    let bytes = disk.bytes_at(&log, &record(0)).expect("settled");
    assert!(disk.misplace(&log, &record(3), &bytes, Stray::Misplaced));
    assert_eq!(read_record(&disk, 3), [1; 300]);
    assert_eq!(read_record(&disk, 2), [3; 300]);
    assert!(disk.counts().misplaced_met > 0);
    disk.crash(CrashMode::LoseAll);
    assert_eq!(read_record(&disk, 3), [1; 300], "it stays");
    write(&mut disk, "journal.wal", 900, &[7; 300], true);
    assert_eq!(read_record(&disk, 3), [7; 300]);
}

#[test]
fn misdirected_read_is_over_when_the_power_was_off() {
    let mut disk = log(3);
    let log = path("journal.wal");
    let other = disk.bytes_at(&log, &record(2)).expect("settled");
    assert!(disk.misplace(&log, &record(1), &other, Stray::Misread));
    disk.crash(CrashMode::LoseAll);
    assert_eq!(read_record(&disk, 1), [3; 300], "nobody had read it yet");
    disk.crash(CrashMode::LoseAll);
    assert_eq!(read_record(&disk, 1), [2; 300]);
    assert!(disk.counts().misread > 0);
}

#[test]
fn full_disk_refuses_what_needs_room_and_nothing_else() {
    for seed in 0..20 {
        let mut disk = disk(seed);
        write(&mut disk, "dir/a", 0, &[1; 600], true);
        disk.fill(true);
        write(&mut disk, "dir/a", 100, &[2; 100], true);
        let refused = |disk: &mut VirtualDisk, op| {
            disk.submit(DiskRequest {
                queue: QueueId(1),
                token: 1,
                op,
            });
            drain(disk);
            let done = disk.poll().expect("a completion");
            done.result.err().map(|error| error.kind)
        };
        let full = Some(DiskErrorKind::NoSpace);
        let longer = DiskOp::Write {
            path: path("dir/a"),
            offset: 500,
            data: vec![Chunk::from(vec![3; 400])],
            sync: true,
        };
        assert_eq!(refused(&mut disk, longer.clone()), full);
        let whole = DiskOp::Replace {
            path: path("dir/b"),
            data: vec![Chunk::from(vec![3; 4])],
        };
        assert_eq!(refused(&mut disk, whole.clone()), full);
        assert_eq!(disk.counts().refused, 2);
        let found = content(&disk, "dir/a").expect("it is there");
        assert!(found.len() <= 900, "a part of it may be there");
        assert!(found[..100] == [1; 100] && found[100..200] == [2; 100]);
        disk.fill(false);
        assert_eq!(refused(&mut disk, longer), None);
        assert_eq!(refused(&mut disk, whole), None);
    }
}
