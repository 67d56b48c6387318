//! What a scan concludes from stretches without a believable header: which ops they may have
//! held, and what the commit point of the superblock adds to that.

mod support;

use biplane_journal::{Disk, MemoryDisk, Wal, WalOutput, recover};
use biplane_wire::{Command, Op, PrepareHeader, prepare};
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
