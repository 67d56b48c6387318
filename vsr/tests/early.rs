//! Prepares above a gap: they wait, within bounds, and count as arrived when the gap is filled.

mod support;

use biplane_vsr::{Boot, Ignored, Ingest, Input, Limits, Output, Start};
use biplane_wire::{Checksum, Message, Op, View};
use support::solo::Solo;
use support::{Kind, config, frames};

/// Replica 1 of three, normal in view 0, that lets `early_prepares` wait.
fn backup(early_prepares: u16) -> Solo {
    let mut settings = config(Kind::Metadata, 1, 3);
    settings.halt_on_fork = false;
    settings.limits = Limits {
        early_prepares,
        early_bytes: 1 << 20,
        ..Limits::tiny()
    };
    Solo::open(settings, Boot::empty(Start::Fresh { view: View(0) }))
}

/// Op `op` of a log in which each prepare knows that what is two below it is committed.
fn log(count: u64) -> Vec<Message> {
    let mut parent = Checksum::ZERO;
    let prepares = (1..=count).map(|op| {
        let parts = frames::PrepareParts {
            view: 0,
            replica: 0,
            op,
            commit: op.saturating_sub(2),
            parent,
            variant: 1,
        };
        let message = frames::prepare(parts);
        parent = frames::identity(&message);
        message
    });
    prepares.collect()
}

#[test]
fn what_waited_is_taken_when_repair_fills_the_gap() {
    let log = log(6);
    let mut backup = backup(6);
    backup.feed(log[0].clone());
    for message in &log[2..] {
        backup.feed(message.clone());
        assert_eq!(backup.replica.ignored().last(), Some(Ignored::Gap));
    }
    assert_eq!(backup.acknowledged(), [1], "nothing is promised above it");
    let need = backup.replica.repair_need().expect("a gap");
    assert_eq!((need.from, need.to), (Op(2), Op(4)));
    assert_eq!(backup.ingest(&log[1]), Ingest::Journaled);
    assert_eq!(backup.acknowledged(), [5, 6]);
    assert_eq!(backup.replica.op_head(), Op(6));
    assert_eq!(backup.replica.commit_min(), Op(4));
    assert_eq!(backup.replica.repair_need(), None);
}

#[test]
fn what_waited_is_taken_when_the_primary_sends_the_lost_one_again() {
    let log = log(4);
    let mut backup = backup(6);
    for message in [&log[3], &log[2], &log[1]] {
        backup.feed(message.clone());
    }
    assert!(backup.acknowledged().is_empty());
    backup.feed(log[0].clone());
    assert_eq!(backup.replica.op_head(), Op(4));
    assert_eq!(backup.acknowledged().last(), Some(&4));
}

#[test]
fn the_newest_wait_and_none_where_none_may() {
    let log = log(9);
    let mut backup = self::backup(3);
    for message in &log[1..] {
        backup.feed(message.clone());
    }
    backup.feed(log[0].clone());
    assert_eq!(backup.replica.op_head(), Op(1), "ops 2 to 6 had no room");
    for message in &log[1..6] {
        backup.feed(message.clone());
    }
    assert_eq!(backup.replica.op_head(), Op(9));
    let mut none = self::backup(0);
    none.feed(log[1].clone());
    none.feed(log[0].clone());
    assert_eq!(none.replica.op_head(), Op(1));
}

#[test]
fn what_does_not_chain_when_its_turn_comes_is_dropped() {
    let log = log(3);
    let mut backup = backup(6);
    let stray = frames::chain(0, 3, 3, Checksum(99), 7);
    backup.feed(stray[0].clone());
    backup.feed(log[0].clone());
    backup.feed(log[1].clone());
    assert_eq!(backup.replica.op_head(), Op(2));
    backup.feed(log[2].clone());
    assert_eq!(backup.replica.op_head(), Op(3), "the right one is taken");
}

#[test]
fn nothing_waits_across_views_or_far_above_the_applied_op() {
    let mut backup = backup(6);
    backup.feed(frames::chain(0, 3, 3, Checksum(9), 1)[0].clone());
    backup.feed(frames::start_view_change(2, 2));
    backup.feed(frames::start_view(2, (0, 0), 0, &[]));
    for message in &frames::chain(2, 1, 2, Checksum::ZERO, 2) {
        backup.feed(message.clone());
    }
    assert_eq!(backup.replica.view(), View(2));
    assert_eq!(backup.replica.op_head(), Op(2), "op 3 was of view 0");
    let far = frames::PrepareParts {
        view: 2,
        replica: 2,
        op: u64::MAX,
        commit: 0,
        parent: Checksum::ZERO,
        variant: 0,
    };
    backup.feed(frames::prepare(far));
    assert_eq!(backup.replica.ignored().last(), Some(Ignored::Gap));
}

/// The load never pauses: between a question and its answer more prepares come. One answer is
/// enough all the same.
#[test]
fn a_lost_prepare_costs_one_repair_under_load() {
    let log = log(40);
    let mut backup = backup(6);
    let mut live = log.iter();
    for (index, message) in live.by_ref().take(6).enumerate() {
        if index != 1 {
            backup.feed(message.clone());
        }
    }
    let mut rounds = 0;
    while let Some(need) = backup.replica.repair_need() {
        rounds += 1;
        assert!(rounds < 2, "it asks again from {}", need.from);
        for message in live.by_ref().take(2) {
            backup.feed(message.clone());
        }
        for op in need.from.0..=need.to.0 {
            backup.ingest(&log[op as usize - 1]);
        }
    }
    assert_eq!(rounds, 1);
    assert_eq!(backup.replica.op_head(), Op(8));
}

/// A replica that was away takes on the log of the view it was in, with holes that the others
/// fill. What it acknowledges above them stands in front of what repair brings, and if its record
/// goes bad, only the commit point in the superblock tells that it may have been there. Found by
/// the simulator.
#[test]
fn nothing_above_holes_is_promised_before_the_superblock_says_how_far_they_reach() {
    let log = frames::chain(0, 1, 8, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(1, 0, 0, &log[..2]);
    let named = [Some(&log[6]), Some(&log[5])];
    backup.feed(frames::start_view(0, (7, 6), 0, &named));
    assert!(backup.acknowledged().is_empty());
    let recorded = |backup: &Solo| {
        let commits = backup.out.iter().filter_map(|output| match output {
            Output::PersistView { commit_max, .. } => Some(commit_max.0),
            _ => None,
        });
        commits.collect::<Vec<_>>()
    };
    assert_eq!(recorded(&backup), [0; 0], "nothing to promise yet");
    assert_eq!(backup.ingest(&log[6]), Ingest::Journaled);
    assert_eq!(recorded(&backup), [6]);
    assert_eq!(backup.acknowledged(), [7]);
    backup.feed(log[7].clone());
    assert_eq!(recorded(&backup), [0; 0], "it is known");
    assert_eq!(backup.acknowledged(), [8]);

    // The same with a disk that takes its time.
    let mut backup = Solo::restarted(1, 0, 0, &log[..2]);
    backup.feed(frames::start_view(0, (7, 6), 0, &named));
    backup.disk_works = false;
    backup.ingest(&log[6]);
    let (checksum, op) = (frames::identity(&log[6]), Op(7));
    backup.out.clear();
    backup.step(Input::Appended { op, checksum });
    assert_eq!(recorded(&backup), [6]);
    assert!(backup.acknowledged().is_empty(), "not recorded yet");
    let recorded_with = |commit| Input::ViewPersisted {
        view: View(0),
        log_view: View(0),
        commit_max: Op(commit),
    };
    backup.step(recorded_with(5));
    assert!(backup.acknowledged().is_empty(), "that was another write");
    backup.step(recorded_with(6));
    assert_eq!(backup.acknowledged(), [7]);
}
