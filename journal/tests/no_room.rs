//! A log on a disk without room: what was asked for is asked again, in order, until there is room.
//! Until then nothing is reported that a crash could take.

mod support;

use biplane_journal::{
    Chunk, Disk, DiskErrorKind, DiskOp, DiskRequest, DiskVerb, Fault, MemoryDisk, QueueId,
    WalConfig, WalOutput,
};
use biplane_wire::Message;
use support::*;

/// Times that room is asked for in vain.
const ATTEMPTS: usize = 3;

fn fill(rig: &mut Rig, verb: DiskVerb, times: usize) {
    for _ in 0..times {
        rig.disk.fail(Fault {
            verb,
            path: None,
            kind: DiskErrorKind::NoSpace,
            after: 0,
        });
    }
}

/// What was reported, by name and number.
fn reports(rig: &Rig) -> Vec<(&'static str, u64)> {
    let report = |event: &WalOutput| match event {
        WalOutput::Durable { op, .. } => ("durable", op.0),
        WalOutput::Truncated { from } => ("truncated", from.0),
        WalOutput::Drained { checkpoint } => ("drained", checkpoint.0),
        WalOutput::Disk(_) => unreachable!("requests are no events"),
    };
    rig.events.iter().map(report).collect()
}

/// The disk takes a part of the record behind the end of the file, and then no more.
fn leave_a_part(rig: &mut Rig, record: &[u8]) {
    let op = DiskOp::Write {
        path: rig.config.path.clone(),
        offset: rig.wal.file_len(),
        data: vec![Chunk::Bytes(record[..record.len() / 2].into())],
        sync: false,
    };
    let queue = QueueId(99);
    rig.disk.submit(DiskRequest {
        queue,
        token: 0,
        op,
    });
    assert!(rig.disk.poll().expect("an answer").result.is_ok());
}

/// Whatever the crash leaves of what was not synced, the log opens and has the first `reported`.
fn check_crashes(disk: &MemoryDisk, config: &WalConfig, reported: &[Message], what: &str) {
    every_crash(disk, fates_in_order, &mut |crashed, fates| {
        let found = biplane_journal::recover(config, &crashed, biplane_wire::Op(0));
        let found = found.unwrap_or_else(|error| panic!("{what}, {fates:?}: {error}"));
        let want: Vec<_> = reported.iter().map(|it| (op(it), checksum(it))).collect();
        let have = identities(&found);
        assert!(have.starts_with(&want), "{what}, {fates:?}: {have:?}");
    });
}

#[test]
fn appends_wait_for_room_and_are_reported_once_and_in_order() {
    for config in configs() {
        for verb in [DiskVerb::Write, DiskVerb::Sync] {
            let mut rig = Rig::new(&config);
            rig.settle();
            let prepares = chain(config.scope.group, 1, 6);
            rig.append(&prepares[0]);
            rig.settle();
            fill(&mut rig, verb, ATTEMPTS);
            for message in &prepares[1..4] {
                rig.append(message);
            }
            for attempt in 0..ATTEMPTS {
                rig.settle();
                assert_eq!(rig.disk.in_flight(), 0, "the next attempt takes its time");
                let error = rig.wal.no_room().expect("it waits for room");
                assert_eq!(error.kind, DiskErrorKind::NoSpace);
                assert!(!rig.wal.is_idle() && !rig.wal.is_halted());
                assert_eq!(reports(&rig), [("durable", 1)], "nothing overtakes it");
                if attempt == 1 {
                    rig.append(&prepares[4]);
                }
                if verb == DiskVerb::Write {
                    rig.disk.clear_faults();
                    leave_a_part(&mut rig, &record_of(&config, &prepares[1]));
                    fill(&mut rig, verb, ATTEMPTS - 1 - attempt);
                }
                let what = format!("{verb:?}, attempt {attempt}");
                check_crashes(&rig.disk, &config, &prepares[..1], &what);
                rig.pause();
            }
            rig.settle();
            assert!(rig.wal.no_room().is_none() && rig.wal.is_idle());
            let all = [1, 2, 3, 4, 5].map(|op| ("durable", op));
            assert_eq!(reports(&rig), all);
            check_crashes(&rig.disk, &config, &prepares[..5], "with room");
            assert_eq!(
                rig.disk.get(&config.path),
                Some(file_of(&config, &prepares[..5])),
                "each once, and nothing of the attempts"
            );
            rig.append(&prepares[5]);
            rig.settle();
            assert_eq!(reports(&rig).last(), Some(&("durable", 6)));
        }
    }
}

#[test]
fn a_restart_without_room_goes_on_where_the_log_was() {
    for config in configs() {
        let mut rig = Rig::new(&config);
        rig.settle();
        let prepares = chain(config.scope.group, 1, 3);
        rig.append(&prepares[0]);
        rig.settle();
        fill(&mut rig, DiskVerb::Write, 1);
        rig.append(&prepares[1]);
        rig.settle();
        leave_a_part(&mut rig, &record_of(&config, &prepares[1]));
        rig.disk.crash_keeping_all();
        // The torn tail must go before anything is appended, and even that finds no room.
        let mut rig = {
            let mut disk = rig.disk;
            disk.fail(Fault {
                verb: DiskVerb::Truncate,
                path: None,
                kind: DiskErrorKind::NoSpace,
                after: 0,
            });
            Rig::on(&config, disk, 0)
        };
        rig.append(&prepares[1]);
        rig.append(&prepares[2]);
        rig.settle();
        assert_eq!(reports(&rig), []);
        assert!(rig.wal.no_room().is_some());
        rig.pause();
        rig.settle();
        assert_eq!(reports(&rig), [("durable", 2), ("durable", 3)]);
        check_crashes(&rig.disk, &config, &prepares, "with room");
    }
}

#[test]
fn folder_and_file_wait_for_room() {
    for config in configs() {
        for verb in [DiskVerb::CreateDirs, DiskVerb::Write, DiskVerb::Rename] {
            let mut disk = MemoryDisk::new();
            for _ in 0..ATTEMPTS {
                disk.fail(Fault {
                    verb,
                    path: None,
                    kind: DiskErrorKind::NoSpace,
                    after: 0,
                });
            }
            let mut rig = Rig::on(&config, disk, 0);
            let prepares = chain(config.scope.group, 1, 2);
            rig.append(&prepares[0]);
            for _ in 0..ATTEMPTS {
                rig.settle();
                assert!(rig.wal.no_room().is_some(), "{verb:?}");
                assert_eq!(reports(&rig), []);
                rig.pause();
            }
            rig.settle();
            assert_eq!(reports(&rig), [("durable", 1)], "{verb:?}");
            check_crashes(&rig.disk, &config, &prepares[..1], "with room");
        }
    }
}

/// A cut whose sync failed may be undone by a crash for ever after: it is reported when a file
/// without what was cut off is durable, and not when a second sync has nothing to complain of.
#[test]
fn a_truncation_waits_for_room_and_nothing_comes_back() {
    for config in configs() {
        for verb in [DiskVerb::Truncate, DiskVerb::Sync] {
            let mut rig = Rig::new(&config);
            rig.settle();
            let prepares = chain(config.scope.group, 1, 5);
            for message in &prepares {
                rig.append(message);
            }
            rig.settle();
            rig.events.clear();
            fill(&mut rig, verb, ATTEMPTS);
            let others = chain_after(config.scope.group, checksum(&prepares[1]), 3, 4, 1);
            rig.truncate(3);
            for message in &others {
                rig.append(message);
            }
            for _ in 0..ATTEMPTS {
                rig.settle();
                if rig.wal.no_room().is_some() {
                    assert_eq!(reports(&rig), [], "{verb:?}");
                    check_crashes(&rig.disk, &config, &prepares[..2], "without room");
                }
                rig.pause();
            }
            rig.settle();
            let all = [("truncated", 3), ("durable", 3), ("durable", 4)];
            assert_eq!(reports(&rig), all, "{verb:?}");
            let kept = [&prepares[..2], &others[..]].concat();
            every_crash(&rig.disk, fates_with_holes, &mut |crashed, fates| {
                let found = biplane_journal::recover(&config, &crashed, biplane_wire::Op(0));
                let have = identities(&found.expect("opens"));
                let want: Vec<_> = kept.iter().map(|it| (op(it), checksum(it))).collect();
                assert_eq!(have, want, "{verb:?}, {fates:?}");
            });
        }
    }
}

#[test]
fn a_new_file_for_a_drained_log_waits_for_room() {
    let config = metadata_config();
    for verb in [
        DiskVerb::Write,
        DiskVerb::Sync,
        DiskVerb::Rename,
        DiskVerb::SyncDir,
    ] {
        let mut rig = Rig::new(&config);
        rig.settle();
        let prepares = chain(config.scope.group, 1, 7);
        for message in &prepares[..5] {
            rig.append(message);
        }
        rig.settle();
        rig.events.clear();
        fill(&mut rig, verb, ATTEMPTS);
        rig.drain(3);
        rig.append(&prepares[5]);
        for _ in 0..ATTEMPTS {
            rig.settle();
            assert_eq!(reports(&rig), [], "{verb:?}");
            // What is cut off or appended meanwhile concerns what is being written.
            rig.pause();
        }
        rig.truncate(6);
        rig.append(&prepares[5]);
        rig.append(&prepares[6]);
        rig.settle();
        let all = [
            ("drained", 3),
            ("truncated", 6),
            ("durable", 6),
            ("durable", 7),
        ];
        assert_eq!(reports(&rig), all, "{verb:?}");
        check_crashes(&rig.disk, &config, &prepares[2..], "with room");
        assert_eq!(
            rig.disk.get(&config.path),
            Some(file_of(&config, &prepares[2..]))
        );
    }
}
