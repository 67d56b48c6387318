//! State transfers that fail on the way, and what is kept of them for the next attempt.

mod support;

use biplane_journal::{DiskErrorKind, DiskVerb, Fault, MemoryDisk};
use biplane_partition_plane::{GroupSpec, Input, Limits, TopicOptions};
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
