//! What a scan concludes from stretches without a believable header: which ops they may have
//! held, and what the commit point of the superblock adds to that.

mod support;

use biplane_journal::{Disk, MemoryDisk, Wal, WalConfig, WalOutput, recover};
use biplane_wire::{
    Checksum, ClusterId, Command, GroupId, HEADER_SIZE, Message, Op, PrepareHeader, prepare,
};
use support::*;

#[test]
fn a_hole_without_damage_is_missing_and_with_damage_unknown() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    let without = [0, 1, 4, 5].map(|index: usize| prepares[index].clone());
    let mut file = file_of(&config, &without);
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, 5, 6]);
    assert_eq!(recovered.contiguous_head(), Op(2));
    // Damage the header of op 6, the last: it could have been any op that is not there.
    let start = file.len() - record_of(&config, &prepares[5]).len();
    file[start + 3] ^= 1;
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, -3, -4, 5, -6]);
}

#[test]
fn garbage_behind_an_op_that_came_early_may_have_been_any() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    // Op 6 came before 3, which never came, and its header is gone.
    let order = [0, 1, 5, 3, 4].map(|index: usize| prepares[index].clone());
    let mut file = file_of(&config, &order);
    let start = file_of(&config, &prepares[..2]).len();
    file[start] ^= 1;
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, -3, 4, 5, -6]);
}

/// A replica adopts a log far above its own and acknowledges its head before holes are filled.
#[test]
fn garbage_above_a_hole_may_stand_right_above_the_recorded_commit_point() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 9);
    // Op 9 came first of what was missing; 3 and 4 were repaired behind it.
    let order = [0, 1, 8, 2, 3].map(|index: usize| prepares[index].clone());
    let mut file = file_of(&config, &order);
    let start = file_of(&config, &prepares[..2]).len();
    file[start] ^= 1;
    let mut recovered = recover_bytes(&config, &file, 0).unwrap();
    assert_eq!(summary(&recovered), [1, 2, 3, 4, -5]);
    recovered.heed_commit(Op(8));
    assert_eq!(summary(&recovered), [1, 2, 3, 4, -5, -9]);
    // Where every stretch is readable the commit point adds nothing.
    let whole = file_of(&config, &order);
    let mut recovered = recover_bytes(&config, &whole, 0).unwrap();
    recovered.heed_commit(Op(20));
    assert_eq!(summary(&recovered), [1, 2, 3, 4, 9]);
}

/// What the commit point told is in the file afterwards: the next scan needs it no more.
#[test]
fn what_the_commit_point_told_of_garbage_is_kept() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 9);
    let order = [0, 8, 1].map(|index: usize| prepares[index].clone());
    let mut file = file_of(&config, &order);
    let start = file_of(&config, &prepares[..1]).len();
    file[start] ^= 1;
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &file);
    let mut recovered = recover(&config, &disk, Op(0)).unwrap();
    recovered.heed_commit(Op(8));
    let mut out = Vec::new();
    let mut wal = Wal::open(config.clone(), &recovered, &mut out);
    while let Some(output) = out.pop() {
        if let WalOutput::Disk(request) = output {
            disk.submit(request);
        }
        while let Some(done) = disk.poll() {
            wal.complete(done, &mut out).unwrap();
        }
    }
    disk.crash_losing_all();
    let recovered = recover(&config, &disk, Op(0)).unwrap();
    assert_eq!(summary(&recovered), [1, 2, -3, -9]);
}

/// Records whose headers went bad one after the other leave one stretch without a header.
#[test]
fn neighbours_that_went_bad_may_all_have_been_newer_than_what_is_left() {
    for config in configs() {
        let prepares = chain(config.scope.group, 1, 6);
        // Op 2 was repaired last.
        let order = [0, 2, 3, 4, 5, 1].map(|index: usize| prepares[index].clone());
        let file = file_of(&config, &order);
        let ends: Vec<usize> = (0..6)
            .map(|count| file_of(&config, &order[..count]).len())
            .collect();
        for first in 1..=4 {
            // The sizes in the headers tell how many they were, where they are left.
            let mut bad = file.clone();
            for record in first..=4 {
                bad[ends[record] + 3] ^= 1;
            }
            let mut wanted: Vec<i64> = (1..=6).collect();
            for op in &mut wanted[first + 1..] {
                *op = -*op;
            }
            let recovered = recover_bytes(&config, &bad, 0).unwrap();
            assert_eq!(summary(&recovered), wanted, "from record {first}");
            // Where they are not, it may have been as many as fit.
            bad[ends[first]..ends[5]].fill(0);
            let recovered = recover_bytes(&config, &bad, 0).unwrap();
            let entries = summary(&recovered);
            assert_eq!(entries[..6], wanted, "from record {first}");
            assert!(entries[6..].iter().all(|op| *op < 0));
        }
    }
}

/// One bad sector can take several headers, also the last ones.
#[test]
fn an_unreadable_sector_at_the_end_may_have_held_several_ops() {
    let config = metadata_config();
    let mut prepares = chain(config.scope.group, 1, 2);
    let mut parent = checksum(&prepares[1]);
    for op in 3..=4 {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.frame.set_cluster(config.scope.cluster);
        header.set_group(config.scope.group);
        header.set_op(Op(op));
        header.set_parent(parent);
        prepares.push(prepare::build_with_body(header, &[]));
        parent = checksum(prepares.last().unwrap());
    }
    let file = file_of(&config, &prepares);
    let sector = (file.len() as u64 - 300) / 512;
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, &file);
    let view = Unreadable {
        disk,
        sectors: sector..file.len().div_ceil(512) as u64,
    };
    let recovered = recover(&config, &view, Op(0)).unwrap();
    let unknown = |op: i64| summary(&recovered).contains(&-op);
    assert!(unknown(3) && unknown(4), "{:?}", summary(&recovered));
}

/// Their record covers one of ours, in a log that begins with ours.
fn overwritten(config: &WalConfig, ours: &[Message], index: usize, theirs: &Message) -> Vec<u8> {
    let mut file = file_of(config, ours);
    let start = file_of(config, &ours[..index]).len();
    let record = record_of(config, theirs);
    let end = (start + record.len()).max(file.len());
    file.resize(end, 0);
    file[start..start + record.len()].copy_from_slice(&record);
    file
}

fn group_of_nobody() -> GroupId {
    GroupId(0x0000_0009_0020_0001)
}

#[test]
fn a_record_of_another_log_is_damage_where_records_of_this_one_stand_before_it() {
    for config in configs() {
        let ours = chain(config.scope.group, 1, 6);
        for index in 1..6 {
            // As long as the one that it covers, and shorter.
            for len in [body_of(index as u64 + 1, 0).len(), 5] {
                let theirs = prepare_with_body(group_of_nobody(), 77, Checksum(9), &vec![3; len]);
                let file = overwritten(&config, &ours, index, &theirs);
                let recovered = recover_bytes(&config, &file, 0).unwrap();
                let mut wanted: Vec<i64> = vec![1, 2, 3, 4, 5, 6];
                wanted[index] = -wanted[index];
                let (entries, case) = (summary(&recovered), format!("{index} {len}"));
                assert_eq!(entries[..6], wanted, "{case}");
                // It may have been one that is newer than all that are left.
                let above = entries.get(6).copied();
                assert!(index == 5 || above == Some(-7), "{case}: {entries:?}");
                assert!(recovered.torn.is_none(), "{case}");
                assert!(!recovered.damage.is_empty(), "{case}");
            }
        }
    }
}

/// A long record covers many short ones, which may all have been newer than what is left.
#[test]
fn a_record_of_another_log_may_cover_many() {
    let config = metadata_config();
    let mut ours = chain(config.scope.group, 1, 3);
    for op in 4..=8 {
        let parent = checksum(&ours[op as usize - 2]);
        ours.push(prepare_with_body(config.scope.group, op, parent, &[]));
    }
    let covered = file_of(&config, &ours[3..]).len();
    let body = vec![1; covered - HEADER_SIZE];
    let theirs = prepare_with_body(group_of_nobody(), 1, Checksum::ZERO, &body);
    let file = overwritten(&config, &ours, 3, &theirs);
    let recovered = recover_bytes(&config, &file, 0).unwrap();
    let entries = summary(&recovered);
    assert_eq!(entries[..8], [1, 2, 3, -4, -5, -6, -7, -8]);
}

/// Zeros at the end are what an interrupted write leaves, but not in a record that is whole.
#[test]
fn a_record_of_another_log_is_never_cut() {
    for config in configs() {
        let ours = chain(config.scope.group, 1, 3);
        let mut body = vec![1; 3000];
        body[100..].fill(0);
        let theirs = prepare_with_body(group_of_nobody(), 3, Checksum::ZERO, &body);
        let mut elsewhere = *theirs.header::<PrepareHeader>();
        elsewhere.frame.set_cluster(ClusterId(0x77));
        let of_another_cluster = prepare::build_with_body(elsewhere, &body);
        for theirs in [theirs, of_another_cluster] {
            let file = overwritten(&config, &ours, 2, &theirs);
            let recovered = recover_bytes(&config, &file, 0).unwrap();
            assert!(recovered.torn.is_none());
            assert_eq!(summary(&recovered)[..3], [1, 2, -3]);
        }
    }
}

/// What it stood for is in the file after the next start, and the record itself is gone.
#[test]
fn a_record_of_another_log_is_replaced_by_what_it_may_have_covered() {
    for config in configs() {
        let ours = chain(config.scope.group, 1, 4);
        let theirs = prepare_with_body(group_of_nobody(), 2, Checksum::ZERO, &[1; 40]);
        let mut disk = MemoryDisk::new();
        disk.put(&config.path, &overwritten(&config, &ours, 2, &theirs));
        let mut rig = Rig::on(&config, disk, 0);
        rig.settle();
        rig.disk.crash_losing_all();
        let recovered = rig.recover();
        assert_eq!(summary(&recovered), [1, 2, -3, 4, -5, -6]);
        assert!(recovered.damage.iter().all(|each| each.op.is_some()));
    }
}

/// Reads of a place bring what stands at another, as far as the record there reaches: a long one
/// seems to cover the records behind.
#[test]
fn a_long_record_that_is_read_where_a_short_one_stands_hides_no_op() {
    let config = metadata_config();
    let mut parent = Checksum::ZERO;
    let mut records = Vec::new();
    for op in 1..=7u64 {
        let len = if op == 1 || op == 7 { 700 } else { 30 };
        let message = prepare_with_body(config.scope.group, op, parent, &vec![op as u8; len]);
        parent = checksum(&message);
        records.push(record_of(&config, &message));
    }
    let read_at = |strayed: usize, place: usize| {
        let mut read = records.clone();
        let len = read[place].len();
        read[place].copy_from_slice(&records[strayed][..len]);
        summary(&recover_bytes(&config, &read.concat(), 0).unwrap())
    };
    // The record of op 1 has been read already: a later one was the highest, perhaps.
    assert_eq!(read_at(0, 2), [1, 2, -3, -4, -5, -6, 7, -8]);
    assert_eq!(read_at(0, 5), [1, 2, 3, 4, 5, -6, -7]);
    // The one of op 7 comes again, so nothing can have stood above it.
    assert_eq!(read_at(6, 2), [1, 2, -3, -4, -5, -6, 7]);
}
