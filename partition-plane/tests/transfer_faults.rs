//! State transfers that fail on the way, and what is kept of them for the next attempt.

mod support;

use biplane_journal::{DiskErrorKind, DiskVerb, Fault, MemoryDisk};
use biplane_partition_plane::{
    ConsumerKey, DurabilityPolicy, GroupSpec, Input, Limits, TopicOptions,
};
use biplane_wire::Command;
use support::world::World;
use support::*;

fn text(n: u64) -> Vec<u8> {
    format!("message {n}").into_bytes()
}

/// Three replicas of a partition with small segments.
fn world() -> World {
    let options = TopicOptions {
        segment_size: 1500,
        ..TopicOptions::default()
    };
    World::new(3, Limits::tiny(), spec(options), 1)
}

/// What a peer that is away will be offered is hashed meanwhile, once; then it is read once more,
/// to be sent.
#[test]
fn segments_are_hashed_while_a_peer_is_away() {
    for ahead in [false, true] {
        let limits = Limits {
            transfer_hash_ahead: ahead,
            ..Limits::tiny()
        };
        let mut world = World::new(3, limits, world().spec, 1);
        for n in 0..50 {
            world.send(&[text(n)]);
        }
        world.converge(50);
        let primary = world.primary().unwrap();
        let plane = world.nodes[primary].plane.as_ref().unwrap();
        let stored = plane.stats(group()).unwrap().size_bytes;
        let read = |world: &World| world.read.get(&primary).copied().unwrap_or(0);
        world.tick(50);
        assert_eq!(read(&world), 0, "all peers are there");
        let backup = (primary + 2) % 3;
        world.crash(backup, false);
        world.nodes[backup].disk = MemoryDisk::new();
        world.tick(50);
        assert_eq!(read(&world), if ahead { stored } else { 0 });
        world.tick(4_000);
        assert_eq!(read(&world), if ahead { stored } else { 0 }, "it is known");
        world.boot(backup);
        world.converge(3_000);
        assert_eq!(read(&world) / stored, 2, "for digests, and to be sent");
        assert_eq!(world.all_messages(backup).len(), 50);
    }
}

/// A write fails while a segment is staged. What was complete by then is not trusted any more,
/// and has to be pulled again.
#[test]
fn a_transfer_goes_on_after_a_write_that_failed() {
    for verb in [DiskVerb::Write, DiskVerb::Sync] {
        for after in (0..40).step_by(2) {
            let mut world = world();
            for n in 0..50 {
                world.send(&[text(n)]);
            }
            world.converge(50);
            let backup = (world.primary().unwrap() + 2) % 3;
            world.crash(backup, false);
            world.nodes[backup].disk = MemoryDisk::new();
            world.boot(backup);
            world.nodes[backup].disk.fail(Fault {
                verb,
                path: None,
                kind: DiskErrorKind::Io(None),
                after,
            });
            world.converge(3000);
            assert_eq!(world.all_messages(backup).len(), 50, "{verb:?} {after}");
        }
    }
}

/// A replica keeps its own segments where an offer lists them. One that goes meanwhile has to be
/// pulled by the next attempt.
#[test]
fn a_segment_that_was_to_be_kept_and_is_gone_is_pulled() {
    let mut world = world();
    for n in 0..30 {
        world.send(&[text(n)]);
    }
    world.converge(50);
    let backup = (world.primary().unwrap() + 2) % 3;
    world.crash(backup, false);
    for n in 30..90 {
        world.send(&[text(n)]);
    }
    // It opens its files while it hears nobody, and its disk stands still from then on.
    for other in (0..3).filter(|at| *at != backup) {
        world.cut.extend([(backup, other), (other, backup)]);
    }
    world.boot(backup);
    let opens = |world: &World| world.status(backup).is_some();
    assert!(world.run_until(50, opens), "{}", world.picture());
    world.stalled.push(backup);
    world.cut.clear();
    let transfers = |world: &World| world.status(backup).is_some_and(|it| it.transferring);
    assert!(world.run_until(2000, transfers), "{}", world.picture());
    world.step(
        backup,
        Input::UpdateGroup(GroupSpec {
            deleted_up_to: 20,
            ..world.spec.clone()
        }),
    );
    let is_gone = |world: &World| {
        let stats = world.nodes[backup].plane.as_ref().unwrap().stats(group());
        stats.is_some_and(|stats| stats.messages_count < 30)
    };
    assert!(world.run_until(600, is_gone), "{}", world.picture());
    world.stalled.clear();
    world.converge(4000);
    let last = world.all_messages(backup).last().map(|(offset, _)| *offset);
    assert_eq!(last, Some(89));
}

/// Power fails at any step of an install, at a replica of a topic that persists. Where the
/// messages have their names already and the stored positions do not, the next repair finds that
/// the messages connect to what a peer still has; the positions are not for lost.
#[test]
fn an_install_that_was_cut_short_is_done_again_with_its_positions() {
    let options = TopicOptions {
        segment_size: 1500,
        durability: DurabilityPolicy::Persisted,
        consumer_offset_durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    let mut cuts = 0;
    for steps in (10..400).step_by(2) {
        let mut world = World::new(3, Limits::tiny(), spec(options.clone()), 1);
        let mut number = 0;
        let mut send = |world: &mut World, count: u64| {
            for _ in 0..count {
                number += 1;
                world.send(&[text(number)]);
            }
        };
        send(&mut world, 30);
        for id in 1..=3 {
            let at = world.primary().unwrap();
            let key = ConsumerKey::Consumer(id);
            world.submit(
                at,
                store_request(0x77, u64::from(id), key, 10 + u64::from(id)),
            );
            world.settle();
        }
        // The positions are below what peers keep of their logs.
        send(&mut world, 20);
        world.converge(200);
        let primary = world.primary().unwrap();
        let backup = (primary + 2) % 3;
        let positions = |world: &World, at: usize| {
            let plane = world.nodes[at].plane.as_ref().unwrap();
            plane.stored_offsets(group())
        };
        assert_eq!(positions(&world, primary).len(), 3);
        world.crash(backup, false);
        world.nodes[backup].disk = MemoryDisk::new();
        world.nodes[backup].disk.halt_after(steps);
        world.boot(backup);
        world.tick(400);
        let is_cut = world.nodes[backup].disk.in_flight() > 0;
        world.crash(backup, true);
        world.boot(backup);
        world.converge(3000);
        assert_eq!(
            positions(&world, backup),
            positions(&world, primary),
            "step {steps}"
        );
        if !is_cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 20, "an install has many steps: {cuts}");
}

/// A primary without messages holds operations that continue them. Its backup has applied the
/// first and could give it the messages below; of the second it does not know that it is
/// committed, because heartbeats name what the primary has applied.
#[test]
fn a_primary_takes_a_state_that_its_own_log_continues() {
    let mut world = world();
    for n in 0..30 {
        world.send(&[text(n)]);
    }
    world.converge(50);
    let full = world.primary().unwrap();
    let bare = (full + 1) % 3;
    for at in 0..3 {
        world.crash(at, false);
    }
    // Two come back, one of them with an empty disk, and no state goes from one to the other.
    world.nodes[bare].disk = MemoryDisk::new();
    world.lost = vec![Command::StateTransferTarget];
    world.boot(full);
    world.boot(bare);
    let apart = [(full, bare), (bare, full)];
    let change_view = |world: &mut World, leader: usize| {
        for _ in 0..20 {
            if world.run_until(300, |world| world.primary() == Some(leader)) {
                return;
            }
            world.cut.extend(apart);
            world.tick(60);
            world.cut.clear();
        }
        panic!("node {leader} leads: {}", world.picture());
    };
    change_view(&mut world, full);
    // The other refuses the first message, which continues what it lacks, until a view starts
    // with it.
    let committed = |world: &World| world.status(full).unwrap().commit_min.0;
    let has_one = |world: &World| world.status(full).unwrap().head.0 == 1;
    for number in 1..100 {
        world.submit(full, send_request(0x66, number, &[text(30)]));
        if world.run_until(10, has_one) {
            break;
        }
    }
    for _ in 0..10 {
        if world.run_until(60, |world| committed(world) > 0) {
            break;
        }
        world.cut.extend(apart);
        world.tick(60);
        world.cut.clear();
        change_view(&mut world, full);
    }
    assert_eq!(committed(&world), 1);
    // The acknowledgement of the second is lost, and the other leads.
    world.cut.push((bare, full));
    world.submit(full, send_request(0x66, 1000, &[text(31)]));
    let has_both = |world: &World| world.status(bare).unwrap().head.0 == 2;
    assert!(world.run_until(40, has_both), "{}", world.picture());
    world.cut.extend(apart);
    world.tick(60);
    world.cut.clear();
    change_view(&mut world, bare);
    world.tick(100);
    assert_eq!(committed(&world), 1, "{}", world.picture());
    assert_eq!(world.status(bare).unwrap().commit_max.0, 2);
    world.lost.clear();
    world.converge(4000);
    assert_eq!(world.all_messages(bare).len(), 32);
}
