//! The recovery table of chapter 06 section 16.1, on a disk in memory.

use biplane_journal::{Disk, DiskRequest, MemoryDisk, QueueId};
use biplane_wire::{GroupId, View};

use super::*;
use crate::consumer_offsets::encode_file;
use crate::limits::TopicOptions;
use crate::testing::{T, segment_of_two, stamped};

const DIR: &str = "streams/1/topics/2/partitions/3";

fn node(replica_count: u8) -> NodeIdentity {
    NodeIdentity {
        cluster: ClusterId(1),
        replica: ReplicaId(0),
        replica_count,
    }
}

fn spec() -> GroupSpec {
    GroupSpec {
        group: GroupId::partition(1, 2, 3).unwrap(),
        created_revision: 7,
        created_view: View(0),
        is_new: false,
        options: TopicOptions::default(),
        purge_generation: 0,
        deleted_up_to: 0,
    }
}

fn put(disk: &mut MemoryDisk, name: &str, bytes: &[u8]) {
    disk.put(&DiskPath::new(&format!("{DIR}/{name}")).unwrap(), bytes);
}

fn with_log(log: &[u8]) -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    put(&mut disk, "00000000000000000000.log", log);
    disk
}

fn recover_as(replica_count: u8, disk: &MemoryDisk) -> Recovered {
    recover(node(replica_count), &Limits::tiny(), &spec(), disk)
}

/// Executes the repairs and recovers again: nothing may be left to do.
fn repaired(disk: &mut MemoryDisk) -> Recovered {
    let found = recover_as(3, disk);
    for (token, op) in (0..).zip(found.repairs) {
        disk.submit(DiskRequest {
            queue: QueueId(1),
            token,
            op,
        });
    }
    while let Some(done) = disk.poll() {
        assert!(done.result.is_ok(), "{done:?}");
    }
    let again = recover_as(3, disk);
    assert_eq!(again.verdict, Verdict::Usable);
    assert!(again.repairs.is_empty(), "{:?}", again.repairs);
    again
}

fn index(entries: &[(u64, u64, u64)]) -> Vec<u8> {
    let encode = |(offset, timestamp, position): &(u64, u64, u64)| {
        IndexEntry {
            offset: *offset,
            timestamp: *timestamp,
            position: *position,
        }
        .encode()
    };
    entries.iter().flat_map(encode).collect()
}

/// Under a persisted policy damage is refused; under the replicated one what stands before it
/// is kept.
fn assert_damaged_to(disk: &MemoryDisk, kept: u64) {
    assert_damaged(disk);
    let found = repaired(&mut disk.clone());
    assert_eq!(
        found.segments.last().map(|segment| segment.next),
        Some(kept)
    );
    assert!(recover_as(3, disk).refusal().is_some());
}

fn assert_damaged(disk: &MemoryDisk) {
    let mut spec = spec();
    spec.options.consumer_offset_durability = DurabilityPolicy::Persisted;
    let recover_as = |count, disk| recover(node(count), &Limits::tiny(), &spec, disk);
    let found = recover_as(3, disk);
    assert!(
        matches!(found.verdict, Verdict::SetAside { number: 1, .. }),
        "{:?}",
        found.verdict
    );
    let alone = recover_as(1, disk);
    assert!(
        matches!(alone.verdict, Verdict::Refused { .. }),
        "{:?}",
        alone.verdict
    );
}

#[test]
fn absent_folder_is_new() {
    assert_eq!(recover_as(3, &MemoryDisk::new()).verdict, Verdict::Absent);
}

#[test]
fn whole_segment_and_its_index_need_no_repair() {
    let mut disk = with_log(&segment_of_two());
    put(
        &mut disk,
        "00000000000000000000.index",
        &index(&[(0, T + 100, 0), (2, T + 200, 363)]),
    );
    let found = recover_as(3, &disk);
    assert_eq!(found.verdict, Verdict::Usable);
    assert!(found.repairs.is_empty(), "{:?}", found.repairs);
    let segment = &found.segments[0];
    assert_eq!((segment.size, segment.next, segment.messages), (672, 3, 3));
    assert_eq!((segment.max_timestamp, segment.index_size), (T + 200, 48));
    assert_eq!(segment.digest, Some(biplane_wire::xxh3(&segment_of_two())));
    assert!(!segment.sealed);
}

#[test]
fn every_cut_of_the_last_batch_is_a_torn_tail() {
    let log = segment_of_two();
    for len in 364..672 {
        let mut disk = with_log(&log[..len]);
        let found = repaired(&mut disk);
        assert_eq!(
            (found.segments[0].size, found.segments[0].next),
            (363, 2),
            "length {len}"
        );
        let path = DiskPath::new(&format!("{DIR}/00000000000000000000.log")).unwrap();
        assert_eq!(disk.get(&path).unwrap(), log[..363]);
    }
}

#[test]
fn unwritten_tail_of_zeros_is_cut() {
    let mut log = segment_of_two();
    log.extend([0; 5000]);
    let found = repaired(&mut with_log(&log));
    assert_eq!(found.segments[0].size, 672);
}

#[test]
fn damage_in_the_middle_is_refused_at_every_byte() {
    let log = segment_of_two();
    for at in (0..363).step_by(7) {
        let mut bytes = log.clone();
        bytes[at] ^= 0x20;
        match at {
            // Another partition id, or another offset, is no damage a crash can do.
            0..16 => assert_damaged(&with_log(&bytes)),
            _ => assert_damaged_to(&with_log(&bytes), 0),
        }
    }
}

#[test]
fn residue_that_is_no_torn_tail_is_refused() {
    let mut log = segment_of_two();
    log[500] ^= 1;
    assert_damaged(&with_log(&log));
    let mut log = segment_of_two();
    log.extend([0xAB; 300]);
    assert_damaged(&with_log(&log));
}

#[test]
fn torn_batch_followed_by_a_valid_one_is_damage() {
    let mut log = segment_of_two()[..363 + 290].to_vec();
    log.extend(stamped(&[0], T, 3, 3, T + 300));
    assert_damaged(&with_log(&log));
}

#[test]
fn batches_out_of_place_are_refused() {
    let foreign = stamped(&[0, 1], T, 4, 0, T + 1);
    assert_damaged(&with_log(&foreign));
    let mut hole = stamped(&[0, 1], T, 3, 0, T + 1);
    hole.extend(stamped(&[0], T, 3, 3, T + 2));
    assert_damaged(&with_log(&hole));
    assert_damaged(&with_log(&stamped(&[0], T, 3, 5, T + 1)));
}

#[test]
fn holes_and_empty_segments_in_the_chain_are_refused() {
    let batch = stamped(&[0, 1], T, 3, 0, T + 1);
    let mut disk = with_log(&batch);
    put(
        &mut disk,
        "00000000000000000003.log",
        &stamped(&[0], T, 3, 3, T + 2),
    );
    assert_damaged(&disk);
    let mut disk = with_log(&[]);
    put(
        &mut disk,
        "00000000000000000002.log",
        &stamped(&[0], T, 3, 2, T + 2),
    );
    assert_damaged(&disk);
    let mut disk = with_log(&batch[..300]);
    put(
        &mut disk,
        "00000000000000000002.log",
        &stamped(&[0], T, 3, 2, T + 2),
    );
    assert_damaged(&disk);
    let mut chain = with_log(&batch);
    put(&mut chain, "00000000000000000002.log", &[]);
    let found = repaired(&mut chain);
    assert_eq!(found.segments.len(), 2);
    assert!(found.segments[0].sealed && !found.segments[1].sealed);
    assert_eq!(found.segments[1].start, 2);
}

#[test]
fn index_is_a_hint_and_is_rebuilt_when_it_disagrees() {
    let good = index(&[(0, T + 100, 0), (2, T + 200, 363)]);
    let mut torn = good.clone();
    torn.extend([9; 11]);
    let stale = index(&[(0, T + 100, 0)]);
    let wrong = index(&[(0, T + 100, 0), (2, T + 200, 360)]);
    let beyond = index(&[(0, T + 100, 0), (3, T + 300, 672)]);
    let garbage = vec![7; 50];
    for (name, bytes, size) in [
        ("torn", torn, 48),
        ("stale", stale, 24),
        ("wrong", wrong, 24),
        ("beyond", beyond, 24),
        ("garbage", garbage, 24),
        ("empty", vec![], 24),
    ] {
        let mut disk = with_log(&segment_of_two());
        put(&mut disk, "00000000000000000000.index", &bytes);
        let found = repaired(&mut disk);
        assert_eq!(found.segments[0].index_size, size, "{name}");
    }
    let found = repaired(&mut with_log(&segment_of_two()));
    assert_eq!(found.segments[0].index_size, 24, "missing");
}

#[test]
fn persisted_topic_refuses_lost_synced_data_and_trusts_its_index() {
    let mut spec = spec();
    spec.options.durability = DurabilityPolicy::Persisted;
    let recover = |disk: &MemoryDisk| recover(node(1), &Limits::tiny(), &spec, disk);
    let mut disk = with_log(&segment_of_two()[..363]);
    let entries = [(0, T + 100, 0), (2, T + 200, 363), (3, T + 300, 672)];
    put(&mut disk, "00000000000000000000.index", &index(&entries));
    assert!(matches!(recover(&disk).verdict, Verdict::Refused { .. }));
    put(
        &mut disk,
        "00000000000000000000.index",
        &index(&entries[..2]),
    );
    assert_eq!(recover(&disk).verdict, Verdict::Usable);
    let mut log = segment_of_two();
    log[300] ^= 1;
    let mut disk = with_log(&log);
    put(
        &mut disk,
        "00000000000000000000.index",
        &index(&entries[..2]),
    );
    let found = recover(&disk);
    assert_eq!(found.verdict, Verdict::Usable);
    assert_eq!(
        (found.segments[0].size, found.segments[0].messages),
        (672, 3)
    );
}

#[test]
fn offsets_are_clamped_and_damaged_ones_removed() {
    let mut disk = with_log(&segment_of_two());
    put(&mut disk, "offsets/consumers/1", &encode_file(1));
    put(&mut disk, "offsets/consumers/2", &encode_file(99));
    put(&mut disk, "offsets/groups/1", &encode_file(2)[..8]);
    put(&mut disk, "offsets/consumers/4", &[1; 16]);
    put(&mut disk, "offsets/consumers/5", &[1; 3]);
    put(&mut disk, "offsets/consumers/name", &encode_file(1));
    let found = repaired(&mut disk);
    let want = [
        (ConsumerKey::Consumer(1), 1),
        (ConsumerKey::Consumer(2), 2),
        (ConsumerKey::Group(1), 2),
    ];
    assert_eq!(found.offsets, want);
}

#[test]
fn leftovers_of_a_transfer_are_swept() {
    let mut disk = with_log(&segment_of_two());
    put(&mut disk, "00000000000000000009.log.staging", &[1, 2]);
    put(&mut disk, "purge.gen.tmp", &[1, 2]);
    repaired(&mut disk);
    let path = |name: &str| DiskPath::new(&format!("{DIR}/{name}")).unwrap();
    assert_eq!(disk.get(&path("00000000000000000009.log.staging")), None);
    assert_eq!(disk.get(&path("purge.gen.tmp")), None);
}

#[test]
fn files_of_another_incarnation_are_stale() {
    let mut disk = with_log(&segment_of_two());
    let record = biplane_journal::SuperblockRecord {
        checkpoint_checksum: incarnation_mark(6),
        ..biplane_journal::SuperblockRecord::fresh(node(3).journal())
    };
    put(
        &mut disk,
        "superblock.a",
        &biplane_journal::encode_superblock(&record, 1),
    );
    assert_eq!(recover_as(3, &disk).verdict, Verdict::Stale);
    let other = recover_as(1, &disk);
    assert!(
        matches!(other.verdict, Verdict::Refused { .. }),
        "another replica count"
    );
}

#[test]
fn fence_numbers_go_up() {
    let mut spec = spec();
    spec.options.durability = DurabilityPolicy::Persisted;
    let mut log = segment_of_two();
    log[10] ^= 1;
    let mut disk = with_log(&log);
    for n in [1, 4] {
        let name = format!("{DIR}.fenced.{n}/x");
        disk.put(&DiskPath::new(&name).unwrap(), &[1]);
    }
    assert!(matches!(
        recover(node(3), &Limits::tiny(), &spec, &disk).verdict,
        Verdict::SetAside { number: 5, .. }
    ));
}

#[test]
fn files_of_the_captured_peer_are_read() {
    let mut disk = MemoryDisk::new();
    let dir = "streams/0/topics/0/partitions/0";
    let mut put = |name: &str, bytes: &[u8]| {
        disk.put(&DiskPath::new(&format!("{dir}/{name}")).unwrap(), bytes);
    };
    put(
        "00000000000000000000.log",
        include_bytes!("../../tests/golden/partition-alpha-beta-0-00000000000000000000.log"),
    );
    put(
        "00000000000000000000.index",
        include_bytes!("../../tests/golden/partition-alpha-beta-0-00000000000000000000.index"),
    );
    put(
        "offsets/consumers/1",
        include_bytes!("../../tests/golden/partition-alpha-beta-0-offset-consumer-1"),
    );
    let spec = GroupSpec {
        group: GroupId::partition(0, 0, 0).unwrap(),
        ..spec()
    };
    let found = recover(node(3), &Limits::tiny(), &spec, &disk);
    assert_eq!(found.verdict, Verdict::Usable);
    assert!(found.repairs.is_empty(), "{:?}", found.repairs);
    assert_eq!(
        (found.segments[0].size, found.segments[0].messages),
        (727, 4)
    );
    assert_eq!(found.offsets.len(), 1);
}
