//! A purge is one point in the log: replicas that learn of it late, that were away, or that are
//! interrupted in it end with the same messages, and none that was confirmed after it is lost.

mod support;

use biplane_partition_plane::{DurabilityPolicy, GroupSpec, Input, Limits, TopicOptions};
use support::world::World;
use support::*;

fn text(n: u64) -> Vec<u8> {
    format!("message {n}").into_bytes()
}

fn policies() -> [TopicOptions; 2] {
    let persisted = TopicOptions {
        durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    [TopicOptions::default(), persisted]
}

fn purged(world: &World, generation: u64) -> GroupSpec {
    GroupSpec {
        purge_generation: generation,
        ..world.spec.clone()
    }
}

fn is_purged(world: &World, at: usize, generation: u64) -> bool {
    world
        .status(at)
        .is_some_and(|status| status.purge_generation == generation)
}

/// A cluster with `before` messages of which all but node 2 learn that a purge is committed;
/// three messages follow.
fn with_late_backup(options: TopicOptions, before: u64) -> World {
    let mut world = World::new(3, Limits::tiny(), spec(options), 1);
    (0..before).for_each(|n| {
        world.send(&[text(n)]);
    });
    world.converge(200);
    assert_eq!(world.primary(), Some(0));
    let spec = purged(&world, 1);
    for at in [0, 1] {
        world.step(at, Input::UpdateGroup(spec.clone()));
    }
    assert!(
        world.run_until(300, |world| [0, 1]
            .iter()
            .all(|at| is_purged(world, *at, 1))),
        "{}",
        world.picture()
    );
    for n in 0..3 {
        assert_eq!(world.send(&[text(100 + n)]), n);
    }
    world
}

fn assert_all_have_three(world: &mut World) {
    world.converge(3000);
    let expected: Vec<_> = (0..3).map(|n| (n, text(100 + n))).collect();
    for at in 0..3 {
        assert_eq!(world.all_messages(at), expected, "node {at}");
    }
}

#[test]
fn backup_that_learns_of_a_purge_late_keeps_what_came_after_it() {
    for options in policies() {
        for before in [0, 1, 5] {
            let mut world = with_late_backup(options.clone(), before);
            world.converge(300);
            let spec = purged(&world, 1);
            world.spec = spec.clone();
            world.step(2, Input::UpdateGroup(spec));
            world.tick(50);
            assert!(is_purged(&world, 2, 1));
            assert_all_have_three(&mut world);
        }
    }
}

#[test]
fn late_backup_that_leads_serves_what_was_confirmed() {
    for before in [0, 5] {
        let mut world = with_late_backup(TopicOptions::default(), before);
        world.converge(300);
        let spec = purged(&world, 1);
        world.spec = spec.clone();
        world.cut = vec![(0, 1), (1, 0), (0, 2), (2, 0)];
        let led = world.run_until(2000, |world| {
            [1, 2]
                .iter()
                .any(|at| world.status(*at).is_some_and(|status| status.is_primary))
        });
        assert!(led, "{}", world.picture());
        world.step(2, Input::UpdateGroup(spec));
        world.tick(100);
        world.cut.clear();
        assert_all_have_three(&mut world);
    }
}

#[test]
fn backup_that_was_cut_off_during_a_purge_catches_up() {
    for options in policies() {
        let mut world = World::new(3, Limits::tiny(), spec(options), 1);
        (0..5).for_each(|n| {
            world.send(&[text(n)]);
        });
        world.converge(200);
        world.cut = vec![(0, 2), (2, 0), (1, 2), (2, 1)];
        let spec = purged(&world, 1);
        world.spec = spec.clone();
        for at in [0, 1] {
            world.step(at, Input::UpdateGroup(spec.clone()));
        }
        world.tick(50);
        for n in 0..3 {
            world.send(&[text(100 + n)]);
        }
        world.cut.clear();
        world.tick(20);
        world.step(2, Input::UpdateGroup(spec));
        assert_all_have_three(&mut world);
    }
}

#[test]
fn two_purges_in_a_row_leave_what_came_after_the_second() {
    for options in policies() {
        let mut world = World::new(3, Limits::tiny(), spec(options), 1);
        (0..5).for_each(|n| {
            world.send(&[text(n)]);
        });
        for (generation, nodes) in [(1, vec![0]), (2, vec![0, 1]), (2, vec![2])] {
            let spec = purged(&world, generation);
            for at in nodes {
                world.step(at, Input::UpdateGroup(spec.clone()));
            }
            world.tick(3);
            world.spec = spec;
        }
        assert!(world.run_until(600, |world| is_purged(world, 0, 2)));
        for n in 0..3 {
            world.send(&[text(100 + n)]);
        }
        assert_all_have_three(&mut world);
    }
}

/// A replica without a log finds what is left of the others' logs. Whether that is from after a
/// purge only its metadata tells, so it waits for news of it; and a purge it hears of meanwhile
/// comes first.
#[test]
fn what_stands_in_for_lost_operations_waits_for_news_of_purges() {
    let mut world = World::new(3, Limits::tiny(), spec(TopicOptions::default()), 1);
    // More than is kept for repair.
    (0..12).for_each(|n| {
        world.send(&[text(n)]);
    });
    world.converge(300);
    world.crash(2, false);
    world.send(&[text(12)]);
    world.confirms = false;
    world.boot(2);
    world.tick(300);
    let applied = |world: &World| world.status(2).map(|status| status.commit_min.0);
    assert_eq!(applied(&world), Some(0), "{}", world.picture());
    world.confirms = true;
    world.converge(100);
    let all: Vec<_> = (0..13).map(|n| (n, text(n))).collect();
    assert_eq!(world.all_messages(2), all);

    world.crash(2, false);
    let purge = purged(&world, 1);
    for at in [0, 1] {
        world.step(at, Input::UpdateGroup(purge.clone()));
    }
    assert!(world.run_until(300, |world| is_purged(world, 0, 1)));
    for n in 0..3 {
        world.send(&[text(100 + n)]);
    }
    world.confirms = false;
    world.boot(2);
    world.tick(200);
    world.spec = purge.clone();
    world.step(2, Input::UpdateGroup(purge));
    world.confirms = true;
    assert_all_have_three(&mut world);
    assert!(is_purged(&world, 2, 1), "{}", world.picture());
}

/// The power fails at every replica somewhere in the purge, and again and again: afterwards all
/// have the same messages, and what is confirmed after the last start is among them.
#[test]
fn power_that_fails_in_the_middle_of_a_purge_leaves_replicas_equal() {
    for options in policies() {
        for ticks in 0..8 {
            let mut world = World::new(3, Limits::tiny(), spec(options.clone()), 1);
            (0..5).for_each(|n| {
                world.send(&[text(n)]);
            });
            world.converge(200);
            let spec = purged(&world, 1);
            for at in 0..3 {
                world.step(at, Input::UpdateGroup(spec.clone()));
            }
            world.spec = spec;
            world.tick(ticks);
            for at in 0..3 {
                world.crash(at, (ticks + at as u64).is_multiple_of(2));
            }
            for at in 0..3 {
                world.boot(at);
            }
            assert!(
                world.run_until(4000, |world| (0..3).all(|at| is_purged(world, at, 1))),
                "{}",
                world.picture()
            );
            let first = world.send(&[text(100)]);
            assert_eq!(first, 0, "after {ticks} ticks");
            for n in 1..3 {
                world.send(&[text(100 + n)]);
            }
            assert_all_have_three(&mut world);
        }
    }
}
