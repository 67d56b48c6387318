//! The prepare log call by call: grouping, order, limits, replacement, failure.

mod support;

use biplane_journal::{
    AppendRefusal, Chunk, Disk, DiskErrorKind, DiskOp, DiskPath, DiskVerb, Fault, MemoryDisk,
    QueueId, Wal, WalConfig, WalOutput, recover,
};
use biplane_wire::{Checksum, ClusterId, Op, View};
use support::*;

fn durable_ops(events: &[WalOutput]) -> Vec<u64> {
    let op = |event: &WalOutput| match event {
        WalOutput::Durable { op, .. } => Some(op.0),
        _ => None,
    };
    events.iter().filter_map(op).collect()
}

/// A log over an existing empty file, and the requests of each call.
fn bare_wal(config: &WalConfig) -> Wal {
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, b"");
    let mut out = Vec::new();
    let wal = Wal::open(
        config.clone(),
        &recover(config, &disk, Op(0)).unwrap(),
        &mut out,
    );
    assert!(out.is_empty());
    wal
}

fn only_request(out: Vec<WalOutput>) -> biplane_journal::DiskRequest {
    let mut requests = out.into_iter().filter_map(|output| match output {
        WalOutput::Disk(request) => Some(request),
        _ => None,
    });
    let request = requests.next().expect("a request");
    assert!(requests.next().is_none(), "one request at a time");
    request
}

fn done(request: &biplane_journal::DiskRequest) -> biplane_journal::DiskCompletion {
    let result = Ok(biplane_journal::DiskReply::Done);
    biplane_journal::DiskCompletion {
        queue: request.queue,
        token: request.token,
        result,
    }
}

#[test]
fn a_new_log_creates_its_directory_and_file_durably() {
    for config in configs() {
        let mut rig = Rig::new(&config);
        rig.settle();
        rig.disk.crash_losing_all();
        assert!(rig.recover().existed);
        assert_eq!(rig.disk.get(&config.path), Some(Vec::new()));
    }
}

#[test]
fn appends_during_a_write_leave_together_and_share_the_frames() {
    let config = metadata_config();
    let mut wal = bare_wal(&config);
    let prepares = chain(config.scope.group, 1, 5);
    let mut out = Vec::new();
    wal.append(prepares[0].clone(), &mut out).unwrap();
    let first = only_request(std::mem::take(&mut out));
    for message in &prepares[1..] {
        wal.append(message.clone(), &mut out).unwrap();
    }
    assert!(out.is_empty(), "the first write is in flight");
    wal.complete(done(&first), &mut out).unwrap();
    assert_eq!(durable_ops(&out), [1]);
    let second = only_request(std::mem::take(&mut out));
    let DiskOp::Write {
        offset, data, sync, ..
    } = &second.op
    else {
        panic!("{second:?} is not a write");
    };
    assert!(*sync);
    assert_eq!(*offset, prepares[0].size() as u64);
    assert_eq!(data.len(), 4);
    for (chunk, message) in data.iter().zip(&prepares[1..]) {
        let Chunk::Frame(frame) = chunk else {
            panic!("{chunk:?} is not a frame")
        };
        let (ours, theirs) = (frame.contiguous().unwrap(), message.contiguous().unwrap());
        assert!(std::ptr::eq(ours, theirs), "the frame is shared");
    }
    wal.complete(done(&second), &mut out).unwrap();
    assert_eq!(durable_ops(&out), [2, 3, 4, 5]);
    assert!(wal.is_idle());
}

#[test]
fn a_write_takes_no_more_than_its_limit_along() {
    let mut config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    config.batch_bytes_max = (prepares[1].size() + prepares[2].size()) as u64;
    let mut rig = Rig::new(&config);
    rig.settle();
    for message in &prepares {
        rig.append(message);
    }
    let mut groups = Vec::new();
    while rig.turn().unwrap() {
        groups.push(durable_ops(&rig.events).len());
    }
    assert_eq!(groups.first(), Some(&1), "the first goes alone");
    assert_eq!(groups.get(1), Some(&3), "then two fit");
    assert_eq!(groups.last(), Some(&6));
}

#[test]
fn a_replaced_header_is_journaled_as_it_stands() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    let message = prepare_of(config.scope.group, 1, Checksum::ZERO, 0).prepare_in_view(View(8));
    rig.append(&message);
    rig.settle();
    let recovered = rig.recover();
    assert_eq!(recovered.entries[0].message(), Some(&message));
    assert_eq!(recovered.last_view(), View(8));
}

#[test]
fn the_same_prepare_twice_is_written_once_and_reported_each_time_it_is_durable() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    let message = prepare_of(config.scope.group, 1, Checksum::ZERO, 0);
    rig.append(&message);
    rig.append(&message);
    rig.settle();
    assert_eq!(durable_ops(&rig.events), [1]);
    rig.append(&message);
    assert_eq!(durable_ops(&rig.events), [1, 1]);
    assert_eq!(rig.wal.file_len(), message.size() as u64);
}

#[test]
fn another_prepare_for_an_op_replaces_the_first_also_in_flight() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    rig.settle();
    let old = prepare_of(config.scope.group, 1, Checksum::ZERO, 0);
    let new = prepare_of(config.scope.group, 1, Checksum::ZERO, 1);
    rig.append(&old);
    rig.append(&new);
    rig.settle();
    assert!(!rig.wal.is_durable(Op(1), checksum(&old)));
    assert!(rig.wal.is_durable(Op(1), checksum(&new)));
    assert_eq!(rig.events.len(), 1, "only the one that counts is reported");
    assert_eq!(identities(&rig.recover()), [(1, checksum(&new))]);
}

#[test]
fn a_rewrite_carries_over_what_a_waiting_append_will_replace() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    let prepares = chain(config.scope.group, 1, 3);
    for message in &prepares {
        rig.append(message);
    }
    rig.settle();
    let new = prepare_of(config.scope.group, 3, checksum(&prepares[1]), 1);
    rig.drain(2);
    rig.append(&new);
    assert!(rig.turn().unwrap(), "the rewrite");
    rig.disk.crash_losing_all();
    assert_eq!(identities(&rig.recover())[1], (3, checksum(&prepares[2])));
}

#[test]
fn truncated_ops_are_not_reported_and_their_slots_are_free() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    rig.settle();
    let prepares = chain(config.scope.group, 1, 4);
    for message in &prepares {
        rig.append(message);
    }
    rig.truncate(2);
    assert_eq!(rig.wal.last_op(), Some(Op(1)));
    rig.settle();
    assert_eq!(durable_ops(&rig.events), [1]);
    assert!(matches!(
        rig.events.last(),
        Some(WalOutput::Truncated { from: Op(2) })
    ));
    assert_eq!(summary(&rig.recover()), [1]);
    assert_eq!(rig.wal.free_slots(), config.slots_max - 1);
}

#[test]
fn a_truncation_of_nothing_is_answered_without_the_disk() {
    let config = metadata_config();
    let mut rig = Rig::new(&config);
    rig.append(&prepare_of(config.scope.group, 1, Checksum::ZERO, 0));
    rig.settle();
    let steps = rig.disk.steps_done();
    rig.truncate(2);
    assert!(matches!(
        rig.events.last(),
        Some(WalOutput::Truncated { from: Op(2) })
    ));
    rig.settle();
    assert_eq!(rig.disk.steps_done(), steps);
}

#[test]
fn slots_run_out_and_come_back_with_a_checkpoint() {
    let config = WalConfig {
        slots_max: 8,
        ..metadata_config()
    };
    let mut rig = Rig::new(&config);
    let prepares = chain(config.scope.group, 1, 12);
    for message in &prepares[..8] {
        rig.append(message);
    }
    assert_eq!(rig.wal.free_slots(), 0);
    let refused = rig.wal.append(prepares[8].clone(), &mut Vec::new());
    assert_eq!(refused, Err(AppendRefusal::Full));
    rig.settle();
    rig.drain(5);
    assert_eq!(rig.wal.free_slots(), 4);
    assert_eq!(
        rig.wal.first_op(),
        Some(Op(5)),
        "the entry at the checkpoint is kept"
    );
    for message in &prepares[8..] {
        rig.append(message);
    }
    assert_eq!(rig.wal.free_slots(), 0);
    rig.settle();
    assert_eq!(summary(&rig.recover()), [5, 6, 7, 8, 9, 10, 11, 12]);
    let again = rig.wal.append(prepares[3].clone(), &mut Vec::new());
    assert_eq!(again, Err(AppendRefusal::Drained));
}

#[test]
fn bytes_run_out_and_come_back_when_enough_of_them_is_dead() {
    let mut config = partition_config();
    let prepares = chain(config.scope.group, 1, 30);
    let len = |message: &biplane_wire::Message| message.size() as u64 + 8;
    config.bytes_max = prepares[..20].iter().map(len).sum();
    config.rewrite_bytes_min = prepares[..10].iter().map(len).sum();
    let mut rig = Rig::new(&config);
    for message in &prepares[..20] {
        rig.append(message);
    }
    assert_eq!(rig.wal.free_bytes(), 0);
    let refused = rig.wal.append(prepares[20].clone(), &mut Vec::new());
    assert_eq!(refused, Err(AppendRefusal::Full));
    rig.settle();
    rig.drain(5);
    rig.settle();
    assert_eq!(
        rig.wal.free_bytes(),
        0,
        "four dead records are not worth a rewrite"
    );
    rig.drain(11);
    rig.settle();
    assert_eq!(rig.wal.free_bytes(), config.rewrite_bytes_min);
    let reported = rig
        .events
        .iter()
        .filter(|event| matches!(event, WalOutput::Drained { .. }));
    assert_eq!(reported.count(), 2);
    assert_eq!(rig.recover().entries.len(), 10);
}

#[test]
fn prepares_a_scan_could_not_read_back_are_refused() {
    let config = metadata_config();
    let mut wal = bare_wal(&config);
    let good = prepare_of(config.scope.group, 1, Checksum::ZERO, 0);
    let header = *good.header::<biplane_wire::PrepareHeader>();
    let mut unsealed = header;
    unsealed.frame.set_checksum(Checksum::ZERO);
    let mut stranger = header;
    stranger.frame.set_cluster(ClusterId(1));
    let long = prepare_with_body(config.scope.group, 1, Checksum::ZERO, &vec![1; 1 << 20]);
    let elsewhere = prepare_of(PARTITION, 1, Checksum::ZERO, 0);
    for (message, wanted) in [
        (good.with_header(&unsealed), AppendRefusal::Unsealed),
        (good.with_header(&stranger), AppendRefusal::Foreign),
        (elsewhere, AppendRefusal::Foreign),
        (long, AppendRefusal::TooLong),
    ] {
        assert_eq!(wal.append(message, &mut Vec::new()), Err(wanted));
    }
    assert_eq!(wal.last_op(), None);
}

#[test]
fn the_first_failed_request_ends_the_log() {
    let config = metadata_config();
    for (verb, path) in [
        (DiskVerb::Write, Some(config.path.clone())),
        (DiskVerb::Sync, Some(config.path.clone())),
        (DiskVerb::Truncate, None),
        (DiskVerb::Rename, None),
        (DiskVerb::SyncDir, None),
    ] {
        let mut rig = Rig::new(&config);
        rig.settle();
        let prepares = chain(config.scope.group, 1, 5);
        for message in &prepares[..4] {
            rig.append(message);
        }
        rig.settle();
        rig.disk.fail(Fault {
            verb,
            path,
            kind: DiskErrorKind::Io(Some(5)),
            after: 0,
        });
        rig.truncate(4);
        rig.drain(2);
        rig.append(&prepares[3]);
        let mut failed = None;
        while failed.is_none() {
            failed = rig.turn().err();
        }
        assert!(rig.wal.is_halted());
        assert_eq!(failed.unwrap().0.kind, DiskErrorKind::Io(Some(5)));
        let events = rig.events.len();
        let refused = rig.wal.append(prepares[4].clone(), &mut Vec::new());
        assert_eq!(refused, Err(AppendRefusal::Halted));
        rig.truncate(1);
        assert_eq!(rig.disk.in_flight(), 0, "nothing more is written");
        assert_eq!(rig.events.len(), events, "and nothing is reported");
        // What had been reported is still there.
        rig.disk.crash_losing_all();
        assert!(summary(&rig.recover()).starts_with(&[2, 3]) || rig.recover().entries.len() >= 3);
    }
}

#[test]
fn damage_is_repaired_by_an_append_and_not_cut_off_by_a_truncation() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 4);
    let mut file = file_of(&config, &prepares);
    let second = file_of(&config, &prepares[..1]).len();
    file[second + 300] ^= 1;
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &file);
    let mut repaired = Rig::on(&config, disk.clone(), 0);
    assert!(repaired.wal.is_damaged(Op(2)));
    assert!(!repaired.wal.is_durable(Op(2), checksum(&prepares[1])));
    repaired.append(&prepares[1]);
    repaired.settle();
    assert!(!repaired.wal.is_damaged(Op(2)));
    assert_eq!(summary(&repaired.recover()), [1, 2, 3, 4]);
    repaired.truncate(2);
    repaired.settle();
    assert_eq!(
        summary(&repaired.recover()),
        [1],
        "damage does not come back either"
    );
    let mut cut = Rig::on(&config, disk, 0);
    cut.truncate(2);
    cut.settle();
    assert_eq!(summary(&cut.recover()), [1, -2]);
    cut.append(&prepares[1]);
    cut.truncate(2);
    cut.settle();
    assert_eq!(
        summary(&cut.recover()),
        [1, -2],
        "a repair that was cut off has repaired nothing"
    );
    cut.drain(3);
    cut.settle();
    assert!(summary(&cut.recover()).is_empty());
}

#[test]
fn damage_survives_a_repair_that_is_truncated_while_it_is_written() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 3);
    // Two damaged records of op 2: a repair of it rewrites the file.
    let mut damaged = record_of(&config, &prepares[1]);
    damaged[256] ^= 1;
    let mut file = record_of(&config, &prepares[0]);
    file.extend([&damaged[..], &damaged[..]].concat());
    file.extend(record_of(&config, &prepares[2]));
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &file);
    for append_again in [false, true] {
        let mut rig = Rig::on(&config, disk.clone(), 0);
        rig.append(&prepares[1]);
        rig.truncate(2);
        if append_again {
            rig.append(&prepare_of(config.scope.group, 4, Checksum(1), 0));
        }
        rig.settle();
        rig.disk.crash_losing_all();
        let wanted: &[i64] = if append_again { &[1, -2, 4] } else { &[1, -2] };
        assert_eq!(summary(&rig.recover()), wanted);
    }
}

#[test]
fn a_torn_tail_is_cut_before_anything_is_appended() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 3);
    let mut file = file_of(&config, &prepares);
    file.truncate(file.len() - 5);
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &file);
    let mut rig = Rig::on(&config, disk, 0);
    rig.append(&prepares[2]);
    rig.settle();
    assert_eq!(
        rig.disk.get(&config.path).unwrap(),
        file_of(&config, &prepares)
    );
}

#[test]
fn two_logs_share_a_disk_without_sharing_an_order() {
    let mut disk = MemoryDisk::new();
    disk.shuffle(0x5eed);
    let mut logs: Vec<Wal> = Vec::new();
    let mut out = Vec::new();
    for config in configs() {
        let recovered = recover(&config, &disk, Op(0)).unwrap();
        let mut wal = Wal::open(config.clone(), &recovered, &mut out);
        for message in chain(config.scope.group, 1, 20) {
            wal.append(message, &mut out).unwrap();
        }
        logs.push(wal);
    }
    let mut reported = [0; 2];
    loop {
        for output in std::mem::take(&mut out) {
            if let WalOutput::Disk(request) = output {
                disk.submit(request);
            }
        }
        let Some(completion) = disk.poll() else { break };
        let index = usize::from(completion.queue == QueueId(2));
        logs[index].complete(completion, &mut out).unwrap();
        reported[index] += durable_ops(&out).len();
    }
    assert_eq!(reported, [20, 20]);
    disk.crash_losing_all();
    for config in configs() {
        assert_eq!(recover(&config, &disk, Op(0)).unwrap().entries.len(), 20);
    }
    assert_eq!(
        partition_config().path.parent(),
        DiskPath::new("streams/5/topics/2/partitions/7/prepares-11").ok()
    );
}
