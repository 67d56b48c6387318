//! What the in-memory disk promises: nothing synced is lost, nothing unsynced is safe, faults
//! strike where they were aimed.

use super::*;
use crate::disk::DiskReply;

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).unwrap()
}

fn write(path_text: &str, offset: u64, bytes: &[u8], sync: bool) -> DiskOp {
    let data = vec![Chunk::from(bytes.to_vec())];
    DiskOp::Write {
        path: path(path_text),
        offset,
        data,
        sync,
    }
}

fn run(disk: &mut MemoryDisk, op: DiskOp) -> Result<DiskReply, DiskErrorKind> {
    disk.submit(DiskRequest {
        queue: QueueId(0),
        token: 7,
        op,
    });
    let completion = disk.poll().expect("a request is answered");
    assert_eq!((completion.queue, completion.token), (QueueId(0), 7));
    completion.result.map_err(|error| error.kind)
}

fn ok(disk: &mut MemoryDisk, op: DiskOp) {
    assert_eq!(run(disk, op), Ok(DiskReply::Done));
}

#[test]
fn synced_bytes_survive_and_others_do_not() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("a/file"), b"0123456789");
    ok(&mut disk, write("a/file", 2, b"ab", true));
    ok(&mut disk, write("a/file", 4, b"cd", false));
    assert_eq!(disk.get(&path("a/file")).unwrap(), b"01abcd6789");
    assert_eq!(disk.unsynced().len(), 1);
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("a/file")).unwrap(), b"01ab456789");
    ok(&mut disk, write("a/file", 4, b"cd", false));
    ok(
        &mut disk,
        DiskOp::Sync {
            path: path("a/file"),
        },
    );
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("a/file")).unwrap(), b"01abcd6789");
}

#[test]
fn a_new_name_needs_a_sync_of_its_directory() {
    let mut disk = MemoryDisk::new();
    ok(&mut disk, DiskOp::CreateDirs { path: path("a/b") });
    ok(&mut disk, write("a/b/file", 0, b"x", true));
    let mut without = disk.clone();
    without.crash_losing_all();
    assert_eq!(without.get(&path("a/b/file")), None);
    assert_eq!(
        without.list(&path("a")).unwrap().len(),
        1,
        "directories are created durably"
    );
    ok(&mut disk, DiskOp::SyncDir { path: path("a/b") });
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("a/b/file")).unwrap(), b"x");
}

#[test]
fn torn_writes_keep_whole_sectors_and_leave_zeros_for_lost_ones() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("f"), &[1; 700]);
    ok(&mut disk, write("f", 700, &[2; 1500], false));
    assert_eq!(disk.unsynced()[0].sectors, 4, "from byte 700 to 2200");
    let mut prefix = disk.clone();
    prefix.crash(&mut |_| Fate::Torn { keep: 0..2 });
    let bytes = prefix.get(&path("f")).unwrap();
    assert_eq!(bytes.len(), 1536);
    assert!(bytes[700..].iter().all(|byte| *byte == 2));
    disk.crash(&mut |_| Fate::Torn { keep: 2..4 });
    let bytes = disk.get(&path("f")).unwrap();
    assert_eq!(bytes.len(), 2200);
    assert!(bytes[700..1536].iter().all(|byte| *byte == 0));
    assert!(bytes[1536..].iter().all(|byte| *byte == 2));
}

#[test]
fn a_replacement_is_the_old_content_or_the_new_at_every_step() {
    let mut start = MemoryDisk::new();
    start.put(&path("d/f"), b"old");
    let data = vec![Chunk::from(b"new content".to_vec())];
    let op = DiskOp::Replace {
        path: path("d/f"),
        data,
    };
    start.submit(DiskRequest {
        queue: QueueId(0),
        token: 1,
        op,
    });
    for steps in 0..=4 {
        for keep in [false, true] {
            let mut disk = start.clone();
            disk.halt_after(steps);
            let finished = disk.poll().is_some();
            assert_eq!(finished, steps == 4);
            disk.crash(&mut |_| if keep { Fate::Keep } else { Fate::Lose });
            let content = disk.get(&path("d/f")).unwrap();
            let wanted: &[u8] = match (steps, keep) {
                (4, _) | (3, true) => b"new content",
                _ => b"old",
            };
            assert_eq!(content, wanted, "{steps} steps, kept: {keep}");
        }
    }
}

#[test]
fn requests_of_a_queue_stay_in_order_and_queues_have_none_between_them() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 1..40 {
        let mut disk = MemoryDisk::new();
        disk.shuffle(seed);
        for token in 0..3 {
            for queue in [1, 2] {
                let op = write(&format!("f{queue}"), token, b"x", true);
                disk.submit(DiskRequest {
                    queue: QueueId(queue),
                    token,
                    op,
                });
            }
        }
        let mut order = Vec::new();
        while let Some(completion) = disk.poll() {
            order.push((completion.queue.0, completion.token));
        }
        for queue in [1, 2] {
            let tokens: Vec<u64> = order
                .iter()
                .filter(|(q, _)| *q == queue)
                .map(|(_, token)| *token)
                .collect();
            assert_eq!(tokens, [0, 1, 2]);
        }
        orders.insert(order);
    }
    assert!(orders.len() > 3, "only {} orders", orders.len());
}

#[test]
fn a_failed_sync_gives_its_data_up_for_good() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("f"), b"....");
    ok(&mut disk, write("f", 0, b"ab", false));
    let kind = DiskErrorKind::Io(Some(5));
    disk.fail(Fault {
        verb: DiskVerb::Sync,
        path: None,
        kind,
        after: 0,
    });
    assert_eq!(run(&mut disk, DiskOp::Sync { path: path("f") }), Err(kind));
    // The next sync succeeds and means nothing for what the failed one dropped.
    ok(&mut disk, DiskOp::Sync { path: path("f") });
    ok(&mut disk, write("f", 2, b"cd", true));
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("f")).unwrap(), b"..cd");
}

#[test]
fn faults_wait_for_their_verb_their_path_and_their_turn() {
    let mut disk = MemoryDisk::new();
    let kind = DiskErrorKind::NoSpace;
    disk.fail(Fault {
        verb: DiskVerb::Write,
        path: Some(path("b")),
        kind,
        after: 1,
    });
    ok(&mut disk, write("a", 0, b"1", false));
    ok(&mut disk, write("b", 0, b"1", false));
    ok(&mut disk, DiskOp::Sync { path: path("b") });
    assert_eq!(run(&mut disk, write("b", 1, b"2", false)), Err(kind));
    ok(&mut disk, write("b", 1, b"2", false));
    assert_eq!(disk.get(&path("b")).unwrap(), b"12");
}

#[test]
fn reads_end_with_the_file() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("f"), b"0123456789");
    let read = |disk: &mut MemoryDisk, offset, len| match run(
        disk,
        DiskOp::Read {
            path: path("f"),
            offset,
            len,
        },
    ) {
        Ok(DiskReply::Data(bytes)) => bytes.as_bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&mut disk, 2, 3), b"234");
    assert_eq!(read(&mut disk, 8, 30), b"89");
    assert_eq!(read(&mut disk, 10, 1), b"");
    assert_eq!(read(&mut disk, u64::MAX, 1), b"");
    let mut buf = [0; 4];
    assert_eq!(disk.read(&path("f"), 8, &mut buf), Ok(2));
    assert_eq!(disk.len(&path("f")), Ok(Some(10)));
    assert_eq!(disk.len(&path("g")), Ok(None));
}

#[test]
fn names_of_the_wrong_kind_and_absent_ones_are_errors() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("dir/file"), b"x");
    let missing = path("gone");
    for (op, wanted) in [
        (write("dir", 0, b"x", true), DiskErrorKind::WrongKind),
        (
            write("nowhere/file", 0, b"x", true),
            DiskErrorKind::NotFound,
        ),
        (
            DiskOp::Sync {
                path: missing.clone(),
            },
            DiskErrorKind::NotFound,
        ),
        (
            DiskOp::Truncate {
                path: missing.clone(),
                len: 0,
            },
            DiskErrorKind::NotFound,
        ),
        (
            DiskOp::Read {
                path: path("dir"),
                offset: 0,
                len: 1,
            },
            DiskErrorKind::WrongKind,
        ),
        (
            DiskOp::Remove { path: path("dir") },
            DiskErrorKind::WrongKind,
        ),
        (
            DiskOp::CreateDirs {
                path: path("dir/file/x"),
            },
            DiskErrorKind::WrongKind,
        ),
        (
            DiskOp::SyncDir {
                path: missing.clone(),
            },
            DiskErrorKind::NotFound,
        ),
        (
            DiskOp::Rename {
                from: missing.clone(),
                to: path("x"),
            },
            DiskErrorKind::NotFound,
        ),
    ] {
        assert_eq!(run(&mut disk, op.clone()), Err(wanted), "{op:?}");
    }
    ok(
        &mut disk,
        DiskOp::Remove {
            path: missing.clone(),
        },
    );
    ok(&mut disk, DiskOp::RemoveTree { path: missing });
    assert!(disk.list(&path("dir/file")).is_err());
}

#[test]
fn trees_move_and_vanish_with_what_is_in_them() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("p/3/a"), b"a");
    disk.put(&path("p/3/offsets/b"), b"b");
    ok(
        &mut disk,
        DiskOp::Rename {
            from: path("p/3"),
            to: path("p/3.fenced.1"),
        },
    );
    let mut lost = disk.clone();
    lost.crash_losing_all();
    assert_eq!(lost.get(&path("p/3/offsets/b")).unwrap(), b"b");
    ok(&mut disk, DiskOp::SyncDir { path: path("p") });
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("p/3.fenced.1/offsets/b")).unwrap(), b"b");
    assert_eq!(disk.get(&path("p/3/a")), None);
    ok(
        &mut disk,
        DiskOp::RemoveTree {
            path: path("p/3.fenced.1"),
        },
    );
    assert!(disk.list(&path("p")).unwrap().is_empty());
    // A crash may catch a removal halfway.
    let mut half = 0;
    disk.crash(&mut |change| {
        half += 1;
        if change.path.name() == "b" {
            Fate::Keep
        } else {
            Fate::Lose
        }
    });
    assert_eq!(half, 4, "two files and two directories");
    assert_eq!(disk.get(&path("p/3.fenced.1/a")).unwrap(), b"a");
    assert_eq!(disk.get(&path("p/3.fenced.1/offsets/b")), None);
}

#[test]
fn a_rename_across_directories_needs_both_synced() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("a/f"), b"x");
    disk.put(&path("b/g"), b"y");
    ok(
        &mut disk,
        DiskOp::Rename {
            from: path("a/f"),
            to: path("b/f"),
        },
    );
    ok(&mut disk, DiskOp::SyncDir { path: path("a") });
    let mut one = disk.clone();
    one.crash_losing_all();
    assert_eq!(one.get(&path("a/f")).unwrap(), b"x");
    ok(&mut disk, DiskOp::SyncDir { path: path("b") });
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("a/f")), None);
    assert_eq!(disk.get(&path("b/f")).unwrap(), b"x");
}

#[test]
fn a_truncation_is_durable_when_it_completes() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("f"), b"0123456789");
    ok(
        &mut disk,
        DiskOp::Truncate {
            path: path("f"),
            len: 4,
        },
    );
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("f")).unwrap(), b"0123");
    disk.submit(DiskRequest {
        queue: QueueId(0),
        token: 0,
        op: DiskOp::Truncate {
            path: path("f"),
            len: 2,
        },
    });
    assert!(disk.step());
    disk.crash_losing_all();
    assert_eq!(
        disk.get(&path("f")).unwrap(),
        b"0123",
        "the sync had not come yet"
    );
    assert_eq!(disk.in_flight(), 0, "requests do not survive a crash");
}

#[test]
fn a_damaged_byte_stays_damaged() {
    let mut disk = MemoryDisk::new();
    disk.put(&path("f"), b"0123");
    assert!(disk.flip(&path("f"), 1, 0x01));
    assert!(!disk.flip(&path("f"), 4, 0x01));
    assert!(!disk.flip(&path("g"), 0, 0x01));
    disk.crash_losing_all();
    assert_eq!(disk.get(&path("f")).unwrap(), b"0023");
}
