//! The prepare log of a persisted topic is bounded: what is in synced files leaves it, whatever
//! the load is made of, and a replica whose log is full goes on when there is room again.

mod support;

use biplane_journal::{DiskErrorKind, DiskPath, DiskVerb, Fault, MemoryDisk};
use biplane_partition_plane::{ConsumerKey, DurabilityPolicy, Limits, TopicOptions};
use support::world::World;
use support::*;

const KEY: ConsumerKey = ConsumerKey::Consumer(1);

/// Three replicas of a topic that persists messages and positions.
fn world(limits: Limits) -> World {
    let options = TopicOptions {
        durability: DurabilityPolicy::Persisted,
        consumer_offset_durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    World::new(3, limits, spec(options), 1)
}

/// Stores a position and waits until that is confirmed.
fn store(world: &mut World, number: u64) {
    for _ in 0..40 {
        let led = world.run_until(400, |world| world.primary().is_some());
        assert!(led, "a primary is elected: {}", world.picture());
        let at = world.primary().unwrap();
        let token = world.submit(at, store_request(0x77, number, KEY, 0));
        world.run_until(100, |world| world.answers.contains_key(&token));
        match world.answers.remove(&token) {
            Some(answer) if answer.status() == 0 => return,
            _ => world.tick(5),
        }
    }
    panic!("position {number} is stored: {}", world.picture());
}

/// Operations that take a small log well beyond its limit.
fn more_than_fits() -> u64 {
    2 * Limits::tiny().wal_bytes_max / 297
}

#[test]
fn positions_alone_do_not_fill_the_log() {
    let mut world = world(Limits::tiny());
    world.send(&[vec![1; 20]]);
    for number in 1..=more_than_fits() {
        store(&mut world, number);
    }
    world.converge(200);
}

/// A replica stops at any point of filling and draining its log, and finds room again.
#[test]
fn a_log_that_was_found_full_is_drained() {
    let half = Limits::tiny().wal_bytes_max / 2 / 297;
    for before in (half - 4..half + 8).step_by(3) {
        let mut world = world(Limits::tiny());
        world.send(&[vec![1; 20]]);
        for number in 1..=before {
            store(&mut world, number);
        }
        for at in 0..3 {
            world.crash(at, true);
        }
        for at in 0..3 {
            world.boot(at);
        }
        for number in before + 1..=before + more_than_fits() {
            store(&mut world, number);
        }
        world.converge(200);
    }
}

/// A backup that cannot write fast enough misses messages. It does not stop for that.
#[test]
fn a_backup_with_a_slow_disk_and_a_full_log_catches_up_later() {
    // The log is full before the memory is.
    let mut world = world(Limits {
        unflushed_bytes_max: 1 << 20,
        resident_bytes_max: 1 << 20,
        ..Limits::tiny()
    });
    let payload = |n: u64| vec![u8::try_from(n % 251).unwrap(); 2000];
    world.send(&[payload(0)]);
    let backup = (world.primary().unwrap() + 2) % 3;
    world.stalled.push(backup);
    let count = 2 * Limits::tiny().wal_bytes_max / 2000;
    for n in 1..count {
        world.send(&[payload(n)]);
    }
    world.stalled.clear();
    world.converge(3000);
    let offsets: Vec<u64> = world.all_messages(backup).iter().map(|m| m.0).collect();
    assert_eq!(offsets, (0..count).collect::<Vec<_>>());
}

/// Where a log holds little more than what is under way, repair may bring what is missing below
/// what came meanwhile, when there is no room left for it.
#[test]
fn a_log_too_small_for_a_repair_beside_the_load_stops_nobody() {
    for seed in 1..=40 {
        let limits = Limits {
            wal_bytes_max: 36 << 10,
            ring_entries: 2,
            ring_bytes: 4 << 10,
            ring_stretch: 1,
            ..Limits::tiny()
        };
        let mut world = world(limits);
        world.random = Random::new(seed);
        let mut number = 0;
        for round in 0..6 {
            world.loss = 30;
            let led = world.run_until(2000, |world| world.primary().is_some());
            assert!(led, "seed {seed}: {}", world.picture());
            for _ in 0..12 {
                let Some(at) = world.primary() else { break };
                for _ in 0..3 {
                    number += 1;
                    let payload = vec![u8::try_from(number % 251).unwrap(); 7000];
                    world.submit(at, send_request(0x66, number, &[payload]));
                }
                world.tick(1);
            }
            let away = usize::try_from((seed + round) % 3).unwrap();
            world.crash(away, false);
            world.tick(100);
            world.boot(away);
        }
        world.loss = 0;
        world.converge(5000);
    }
}

/// The folder of a log, and then the log, find no room on one node: it acknowledges nothing, the
/// others go on, and it catches up when there is room.
#[test]
fn a_log_without_room_waits_and_stops_nobody() {
    let folder = "streams/1/topics/2/partitions/3/prepares-7";
    for (verb, path, away) in [
        (DiskVerb::CreateDirs, folder.to_owned(), 1),
        (DiskVerb::Write, format!("{folder}/prepares.wal"), 2),
        (DiskVerb::Write, format!("{folder}/prepares.wal"), 0),
    ] {
        let mut world = world(Limits::tiny());
        world.crash(away, false);
        world.nodes[away].disk = MemoryDisk::new();
        for _ in 0..10_000 {
            world.nodes[away].disk.fail(Fault {
                verb,
                path: Some(DiskPath::new(&path).unwrap()),
                kind: DiskErrorKind::NoSpace,
                after: 0,
            });
        }
        world.boot(away);
        for n in 0..6 {
            world.send(&[vec![n; 20]]);
        }
        world.tick(100);
        let plane = world.nodes[away].plane.as_ref().unwrap();
        let error = plane.no_room(group());
        let error = error.unwrap_or_else(|| panic!("{path} of {away}: {}", world.picture()));
        assert_eq!(error.path.as_str(), path);
        assert!(plane.lagging().any(|lags| lags == group()), "and says so");
        let before: Vec<_> = (0..3)
            .map(|at| world.status(at).unwrap().commit_min)
            .collect();
        world.send(&[vec![9; 20]]);
        world.tick(20);
        let others = (0..3).filter(|at| *at != away);
        for at in others {
            assert!(world.status(at).unwrap().commit_min > before[at]);
        }
        world.nodes[away].disk.clear_faults();
        world.tick(20);
        world.converge(2000);
        let plane = world.nodes[away].plane.as_ref().unwrap();
        assert!(plane.no_room(group()).is_none());
        let offsets: Vec<u64> = world.all_messages(away).iter().map(|m| m.0).collect();
        assert_eq!(offsets, (0..7).collect::<Vec<_>>());
    }
}
