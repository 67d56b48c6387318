//! One test per known way to lose a log, second half (chapter 03 section 15, H18 to H34).
//! H16, H19 and H21 are about the merge alone and stand in `merge_table.rs`.

mod support;

use biplane_vsr::{Ignored, Ingest, Input, LogEntry, Output, Replica, Start, Status};
use biplane_wire::{
    Checksum, Command, DoViewChangeHeader, Message, Op, PrepareHeader, Suffix, Typed, View,
};
use support::solo::Solo;
use support::{Cluster, Kind, frames};

/// The last vote a replica sent, decoded.
fn vote(solo: &mut Solo) -> Typed<DoViewChangeHeader> {
    let sent = solo.sent(Command::DoViewChange);
    Typed::decode(sent.last().expect("it votes").1.clone()).expect("a vote")
}

/// H18: a repeated vote does not replace the first one.
#[test]
fn h18_first_vote_of_a_replica_counts() {
    let log = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let mut elect = Solo::restarted(1, 0, 0, &log[..3]);
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let mut config = support::config(Kind::Metadata, 1, 5);
    config.replica_count = 5;
    let boot = biplane_vsr::Boot {
        log: log[..3].iter().cloned().map(LogEntry::Intact).collect(),
        ..biplane_vsr::Boot::empty(start)
    };
    let mut of_five = Solo::open(config, boot);
    elect.tick(30);
    of_five.tick(30);
    let full = [(Some(&log[3]), false, true), (Some(&log[2]), false, true)];
    of_five.feed(frames::do_view_change(2, 1, 0, (4, 3), &full));
    // Its log changed meanwhile and it abstains; the elect has heard it already.
    of_five.feed(frames::do_view_change(2, 1, 0, (4, 3), &[]));
    assert_eq!(of_five.replica.ignored().last(), Some(Ignored::Counted));
    of_five.feed(frames::do_view_change(3, 1, 0, (4, 3), &[]));
    let need = of_five
        .replica
        .repair_need()
        .expect("the first vote offers op 4");
    assert_eq!(need.sources, [biplane_wire::ReplicaId(2)]);
}

/// H20: the header at the commit point survives any eviction, so an idle group can elect.
#[test]
fn h20_idle_group_elects_after_everything_applied_was_evicted() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(5);
    cluster.assert_converges();
    for node in &mut cluster.nodes {
        let replica = node.replica.as_mut().expect("it is up");
        replica.log_mut().evict_through(Op(u64::MAX));
        assert_eq!(replica.log().first(), Some(Op(5)));
    }
    cluster.crash(0);
    cluster.commit(1);
    assert_eq!(cluster.status(1).view, View(1));
}

/// H20, where state was transferred and the prepare at the commit point never came along.
#[test]
fn h20_idle_group_elects_after_transfers() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(5);
    cluster.assert_converges();
    for node in 0..3_u8 {
        let target = &mut cluster.nodes[usize::from(node)];
        target
            .replica
            .as_mut()
            .expect("it is up")
            .log_mut()
            .evict_through(Op(9));
    }
    for node in 1..3 {
        cluster.crash(node);
        let target = &mut cluster.nodes[usize::from(node)];
        target.journal.clear();
        target.applied.clear();
        let await_transfer = true;
        cluster.restart_as(
            node,
            Start::Used {
                await_transfer,
                view_floor: View(0),
            },
        );
    }
    cluster.assert_converges();
    assert!(!cluster.replica(1).log().contains(Op(5)));
    cluster.crash(0);
    cluster.commit(1);
    assert_eq!(cluster.status(2).view, View(1));
}

/// H22: a replica that hears and is not heard costs one view change when it is, and no loop.
#[test]
fn h22_replica_that_could_not_be_heard_costs_one_view_change() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(2);
    cluster.cut_one_way(2, 0);
    cluster.cut_one_way(2, 1);
    cluster.cut_one_way(0, 2);
    cluster.cut_one_way(1, 2);
    cluster.run(300);
    let ahead = cluster.status(2).view;
    assert!(ahead > View(2));
    // It hears again, and heartbeats of the old view do not impress it.
    cluster.heal();
    cluster.cut_one_way(2, 0);
    cluster.cut_one_way(2, 1);
    cluster.run(20);
    assert!(cluster.status(2).view >= ahead);
    assert_eq!(cluster.status(0).view, View(0));
    cluster.heal();
    cluster.assert_converges();
    let settled = cluster.status(0).view;
    cluster.run(500);
    assert_eq!(cluster.status(0).view, settled, "and then it is quiet");
}

/// H23: who enters a later view starts all its timers anew.
#[test]
fn h23_later_view_gets_its_full_time() {
    let mut replica = Solo::normal(2, 0);
    replica.tick(40);
    assert_eq!(replica.replica.view(), View(1));
    replica.tick(49);
    replica.feed(frames::start_view_change(0, 2));
    assert_eq!(replica.replica.view(), View(2));
    replica.tick(49);
    assert_eq!(replica.replica.view(), View(2));
    replica.tick(1);
    assert_eq!(replica.replica.view(), View(3));
}

/// H24: adopted headers are part of the vote while the process lives.
#[test]
fn h24_vote_names_what_the_adopted_log_named() {
    let log = frames::chain(1, 1, 4, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..2]);
    let names = [Some(&log[3]), Some(&log[2]), Some(&log[1])];
    backup.feed(frames::start_view(1, (4, 2), 0, &names));
    backup.feed(frames::start_view_change(0, 3));
    let vote = vote(&mut backup);
    assert_eq!(vote.header().log_view(), View(1));
    let suffix = Suffix::of_do_view_change(&vote).expect("decodes");
    for (op, message) in [(4, &log[3]), (3, &log[2])] {
        let entry = suffix.at(Op(op)).expect("in the window");
        assert_eq!(entry.header, Some(message.header::<PrepareHeader>()));
        assert!(!entry.present && !entry.nack, "H25: named, not held");
    }
    assert!(suffix.at(Op(2)).is_some_and(|entry| entry.present));
}

/// H24 after a restart: what is not there above the commit point was never acknowledged.
#[test]
fn h24_absence_after_a_restart_is_a_denial() {
    let log = frames::chain(0, 1, 5, Checksum::ZERO, 1);
    let holey = [&log[..3], &log[4..]].concat();
    let mut replica = Solo::restarted(2, 0, 0, &holey);
    replica.tick(30);
    replica.feed(frames::start_view_change(0, 1));
    let vote = vote(&mut replica);
    let suffix = Suffix::of_do_view_change(&vote).expect("decodes");
    assert!(
        suffix
            .at(Op(4))
            .is_some_and(|entry| entry.nack && entry.header.is_none())
    );
}

/// A leader that lost its disk wrote an op of its own before it heard of the log the others have,
/// and got ops of that log above it. Times that do not rise show that they are not of one log,
/// also where the op between them is gone: a vote with both would not decode.
#[test]
fn own_op_that_is_younger_than_the_log_above_it_is_not_shown() {
    let log = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let mut header = *log[0].header::<PrepareHeader>();
    header.set_timestamp(log[3].header::<PrepareHeader>().timestamp() + 1);
    let own = biplane_wire::prepare::build_with_body(header, log[0].body());
    let held = [own, log[2].clone(), log[3].clone()];
    let mut replica = Solo::restarted(2, 0, 0, &held);
    replica.tick(30);
    replica.feed(frames::start_view_change(0, 1));
    let vote = vote(&mut replica);
    let suffix = Suffix::of_do_view_change(&vote).expect("decodes");
    let shown = |op| suffix.at(Op(op)).expect("in the window");
    assert!(shown(4).present && shown(3).present);
    assert!(shown(1).header.is_none() && !shown(1).nack && !shown(1).present);
}

/// A journal entry that cannot be read may have been acknowledged: no denial, no cut.
#[test]
fn damaged_entry_is_neither_denied_nor_offered() {
    let log = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let entries = vec![
        LogEntry::Intact(log[0].clone()),
        LogEntry::Intact(log[1].clone()),
        LogEntry::Damaged(Op(3)),
        LogEntry::Damaged(Op(4)),
    ];
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = biplane_vsr::Boot {
        log: entries,
        ..biplane_vsr::Boot::empty(start)
    };
    let mut replica = Solo::open(support::config(Kind::Metadata, 2, 3), boot);
    assert_eq!(
        replica.replica.op_head(),
        Op(4),
        "the log does not end below it"
    );
    replica.tick(30);
    replica.feed(frames::start_view_change(0, 1));
    let vote = vote(&mut replica);
    let suffix = Suffix::of_do_view_change(&vote).expect("decodes");
    for op in [3, 4] {
        let entry = suffix.at(Op(op)).expect("in the window");
        assert!(
            entry.header.is_none() && !entry.nack && !entry.present,
            "op {op}"
        );
    }
    // Adopted and repaired, it is as good as new.
    let names = [Some(&log[3]), Some(&log[2]), Some(&log[1])];
    replica.feed(frames::start_view(1, (4, 2), 0, &names));
    assert!(replica.replica.log().is_damaged(Op(3)));
    assert_eq!(replica.ingest(&log[2]), Ingest::Journaled);
    assert_eq!(replica.ingest(&log[3]), Ingest::Journaled);
    assert!(!replica.replica.log().is_damaged(Op(3)));
    assert_eq!(replica.acknowledged(), [3, 4]);
}

/// H25 at the writer's side: an append that is not durable yet is not offered as held.
#[test]
fn h25_entry_on_its_way_to_the_disk_is_not_present() {
    let log = frames::chain(0, 1, 2, Checksum::ZERO, 1);
    let mut backup = Solo::normal(2, 0);
    backup.feed(log[0].clone());
    backup.disk_works = false;
    backup.feed(log[1].clone());
    backup.feed(frames::start_view_change(0, 1));
    // Only the superblock write is confirmed.
    backup.step(Input::ViewPersisted {
        view: View(1),
        log_view: View(0),
        commit_max: Op::ZERO,
    });
    let vote = vote(&mut backup);
    let suffix = Suffix::of_do_view_change(&vote).expect("decodes");
    let entry = suffix.at(Op(2)).expect("in the window");
    assert!(entry.header.is_some() && !entry.present && !entry.nack);
    assert!(suffix.at(Op(1)).is_some_and(|entry| entry.present));
}

/// H26: the canonical log wins over the elect's own.
#[test]
fn h26_own_entries_that_do_not_fit_are_cut() {
    let own = frames::chain(0, 1, 5, Checksum::ZERO, 1);
    let canonical = frames::chain(2, 3, 6, frames::identity(&own[1]), 2);
    let mut elect = Solo::restarted(1, 3, 0, &own);
    elect.tick(30);
    assert_eq!(elect.replica.view(), View(4));
    let entries: Vec<_> = canonical
        .iter()
        .rev()
        .map(|m| (Some(m), false, true))
        .collect();
    let entries = [&entries[..], &[(Some(&own[1]), false, true)]].concat();
    elect.feed(frames::do_view_change(2, 4, 2, (6, 2), &entries));
    assert_eq!(elect.plane.truncated, [Op(3)]);
    for message in &canonical {
        elect.ingest(message);
    }
    let status = elect.replica.status();
    assert_eq!((status.status, status.op_head), (Status::Normal, Op(6)));
}

/// H27: a delayed announcement of the present view does not take back what came since.
#[test]
fn h27_delayed_announcement_does_not_rewind() {
    let log = frames::chain(1, 1, 6, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..4]);
    let announcement =
        frames::start_view(1, (4, 2), 0, &[Some(&log[3]), Some(&log[2]), Some(&log[1])]);
    backup.feed(announcement.clone());
    backup.feed(log[4].clone());
    backup.feed(log[5].clone());
    backup.feed(announcement);
    assert_eq!(backup.replica.op_head(), Op(6));
    assert!(backup.has(6));
    // One of another view that ends below what is committed is ignored whatever its view.
    backup.feed(frames::commit(1, 1, 6, 9));
    backup.feed(frames::start_view(4, (5, 5), 0, &[Some(&log[4])]));
    assert_eq!(backup.replica.ignored().last(), Some(Ignored::BelowCommit));
    assert_eq!(backup.replica.view(), View(1));
}

/// H28: cutting goes by op.
#[test]
fn h28_adoption_cuts_by_op_and_keeps_the_rest() {
    let log = frames::chain(0, 1, 6, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log);
    backup.feed(frames::start_view(1, (4, 4), 0, &[Some(&log[3])]));
    let truncate = |output: &Output| matches!(output, Output::Truncate { from: Op(5) });
    assert!(backup.out.iter().any(truncate));
    assert!(backup.has(4) && !backup.has(5) && !backup.has(6));
}

/// H29: an idle backup still says what it lacks.
#[test]
fn h29_missing_bodies_are_reported_without_traffic() {
    let log = frames::chain(1, 1, 3, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..2]);
    backup.feed(frames::start_view(
        1,
        (3, 2),
        0,
        &[Some(&log[2]), Some(&log[1])],
    ));
    for _ in 0..100 {
        backup.tick(1);
        backup.feed(frames::commit(1, 1, 2, backup.wall_micros));
        assert_eq!(
            backup.replica.repair_need().map(|need| need.from),
            Some(Op(3))
        );
    }
}

/// H30: a probe of an earlier time at which the same replica led starts nothing.
#[test]
fn h30_stale_probe_of_the_primary_is_ignored() {
    let mut backup = Solo::normal(1, 3);
    backup.feed(frames::request_start_view(0, 0, 5));
    assert_eq!(backup.replica.view(), View(3));
    backup.feed(frames::request_start_view(0, 3, 5));
    assert_eq!(backup.replica.view(), View(4), "a fresh one does");
}

/// H31: a primary that restarted and does not know its standing answers nobody.
#[test]
fn h31_ceded_primary_does_not_answer_probes() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let mut primary = Solo::restarted(0, 0, 0, &log);
    primary.feed(frames::request_start_view(2, 0, 5));
    primary.tick(5);
    assert!(primary.sent(Command::StartView).is_empty());
    assert!(matches!(
        primary.admit(9),
        biplane_vsr::Admission::Refused { .. }
    ));
}

/// H32: no frame of a peer can stop a replica by its numbers.
#[test]
fn h32_absurd_numbers_are_dropped() {
    let log = frames::chain(0, 1, 2, Checksum::ZERO, 1);
    let max = u64::MAX;
    for replica in 0..3 {
        let mut target = Solo::normal(replica, 0);
        target.feed(log[0].clone());
        for from in [0_u8, 1, 2, 31, 200] {
            target.feed(frames::prepare_ok(from, 0, &log[0]));
            target.feed(frames::commit(from, 0, max, max));
            target.feed(frames::start_view_change(from, 1));
            target.feed(frames::do_view_change(from, 1, 0, (max, max), &[]));
            target.feed(frames::request_start_view(from, 1, 0));
        }
        target.feed(frames::start_view(1, (max, max), 0, &[]));
        target.feed(frames::start_view(u32::MAX, (max, 0), 0, &[]));
        let parts = frames::PrepareParts {
            view: u32::MAX,
            replica: 0,
            op: max,
            commit: max,
            parent: Checksum::ZERO,
            variant: 0,
        };
        target.feed(frames::prepare(parts));
        target.feed(frames::in_group(
            &frames::commit(0, 0, 1, 1),
            biplane_wire::GroupId(0),
        ));
        target.tick(300);
        target.replica.check_invariants();
    }
}

/// H33: what a peer makes this replica look for is bounded by what it may hold.
#[test]
fn h33_far_prepare_is_not_held() {
    let mut backup = Solo::normal(1, 0);
    backup.feed(frames::start_view(3, (u64::MAX - 1, 0), 0, &[]));
    let parts = frames::PrepareParts {
        view: 3,
        replica: 0,
        op: u64::MAX,
        commit: 0,
        parent: Checksum::ZERO,
        variant: 0,
    };
    backup.feed(frames::prepare(parts));
    assert_eq!(backup.replica.log().span(), 0);
    assert_eq!(backup.replica.ignored().last(), Some(Ignored::Gap));
}

/// H34: a primary whose state is behind its commit point is not caught up.
#[test]
fn h34_primary_behind_its_commit_point_is_not_caught_up() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let mut elect = Solo::restarted(1, 0, 0, &log);
    elect.tick(30);
    let entries = [(Some(&log[2]), false, true), (Some(&log[1]), false, true)];
    elect.feed(frames::do_view_change(2, 1, 0, (3, 2), &entries));
    assert!(elect.replica.is_primary());
    assert!(
        !elect.replica.is_caught_up_primary(),
        "op 3 is recovered and not committed"
    );
    elect.feed(frames::prepare_ok(2, 1, &log[2]));
    assert!(elect.replica.is_caught_up_primary());
}

/// What a peer offered as committed is held, but not known to be of this view's log: a vote
/// would be silent about it, so nothing is promised of it either. Found by the simulator.
#[test]
fn what_was_only_offered_is_not_acknowledged() {
    let log = frames::chain(0, 1, 10, Checksum::ZERO, 1);
    let wrong = frames::chain(0, 3, 3, Checksum(9), 2);
    let mut backup = Solo::normal(2, 0);
    let named = [Some(&log[9]), Some(&log[8])];
    backup.feed(frames::start_view(1, (10, 9), 0, &named));
    assert_eq!(backup.ingest(&wrong[0]), Ingest::Journaled);
    // What the primary of this view sends again is certain, and takes the place of the other:
    // acknowledging begins anew below it.
    let certain = log[2].prepare_in_view(View(1));
    assert_eq!(backup.ingest(&certain), Ingest::Journaled);
    assert_eq!(backup.ingest(&log[4]), Ingest::Journaled);
    assert!(backup.has(3) && !backup.has(5), "op 5 is offered only");
    backup.sent(Command::PrepareOk);
    backup.feed(frames::commit(1, 1, 10, 1));
    let promised = backup.acknowledged();
    assert!(promised.contains(&3), "{promised:?}");
    assert!(!promised.contains(&5), "{promised:?}");
    for op in (5..10).rev() {
        assert_eq!(backup.ingest(&log[op]), Ingest::Journaled);
    }
    assert!(backup.has(5), "the chain from the named ops leads to it");
}

/// What the disk says must hold together, or the replica does not start.
#[test]
fn boot_refuses_what_contradicts_itself() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let config = || support::config(Kind::Metadata, 0, 3);
    let open = |boot| Replica::open(config(), boot).map(|_| ());
    let base = || biplane_vsr::Boot::empty(start);
    let bad = biplane_vsr::Boot {
        view: View(1),
        log_view: View(2),
        ..base()
    };
    assert!(matches!(
        open(bad),
        Err(biplane_vsr::OpenError::LogViewAboveView { .. })
    ));
    let order = vec![LogEntry::Intact(log[1].clone()), LogEntry::Damaged(Op(1))];
    let bad = biplane_vsr::Boot {
        log: order,
        ..base()
    };
    assert_eq!(
        open(bad),
        Err(biplane_vsr::OpenError::LogOrder { op: Op(1) })
    );
    let single = biplane_vsr::Boot::empty(Start::Single);
    assert_eq!(
        open(single),
        Err(biplane_vsr::OpenError::NotSingle { count: 3 })
    );
    let alone = support::config(Kind::Metadata, 0, 1);
    let holey = vec![
        LogEntry::Intact(log[0].clone()),
        LogEntry::Intact(log[2].clone()),
    ];
    let bad = biplane_vsr::Boot {
        log: holey,
        ..biplane_vsr::Boot::empty(Start::Single)
    };
    let refused = Replica::open(alone, bad).map(|_| ());
    assert_eq!(
        refused,
        Err(biplane_vsr::OpenError::SingleDamaged { op: Op(2) })
    );
}

/// A replica that was away has a leftover right above what it applied, and more operations to fetch
/// than it has room for. When the room is full the leftover comes next, and not what is far
/// above for ever. Found by the simulator.
#[test]
fn a_leftover_is_settled_when_there_is_no_room_above_it() {
    let shared = frames::chain(0, 1, 2, Checksum::ZERO, 1);
    let parent = frames::identity(&shared[1]);
    let own = frames::chain(0, 3, 3, parent, 1);
    let log = frames::chain(1, 3, 400, parent, 2);
    let kept = [&shared[..], &own[..]].concat();
    let mut backup = Solo::restarted(2, 0, 0, &kept);
    let named = [log.last(), log.get(396)];
    backup.feed(frames::start_view(1, (400, 400), 1, &named));
    let mut asked = Vec::new();
    for _ in 0..1_000 {
        let Some(need) = backup.replica.repair_need() else {
            break;
        };
        asked.push(need.from.0);
        let from = usize::try_from(need.from.0 - 3).expect("small");
        for prepare in log.iter().skip(from).take(16) {
            backup.ingest(prepare);
        }
    }
    let last = asked.last();
    assert_eq!(backup.replica.commit_min(), Op(400), "asked for {last:?}");
}

/// What is left on disk after a crash may reach further above the applied point than anything may
/// be fetched, and then so does what proves it.
#[test]
fn leftovers_that_fill_all_room_are_settled_from_below() {
    let log = frames::committing_chain(400);
    // As they were written while they were not proven.
    let unsure = |prepare: &Message| prepare.prepare_in_view(View(u32::MAX));
    let kept: Vec<Message> = log[..350]
        .iter()
        .chain(&log[352..398])
        .map(unsure)
        .collect();
    let mut backup = Solo::restarted(2, 0, 0, &kept);
    backup.feed(frames::start_view(1, (400, 400), 1, &[log.last()]));
    let mut asked = Vec::new();
    for _ in 0..1_000 {
        let Some(need) = backup.replica.repair_need() else {
            break;
        };
        asked.push(need.from.0);
        let from = usize::try_from(need.from.0 - 1).expect("small");
        for prepare in log.iter().skip(from).take(16) {
            backup.ingest(prepare);
        }
    }
    let last = asked.last();
    assert_eq!(backup.replica.commit_min(), Op(400), "asked for {last:?}");
}

/// An announcement that was on the way when a backup acknowledged the next prepare of the view
/// comes again after its restart: the prepare stays.
#[test]
fn an_announcement_is_overtaken_by_a_prepare_of_its_view_also_after_a_restart() {
    let log = frames::chain(1, 1, 15, Checksum::ZERO, 1);
    for incarnation in [0, 1] {
        let mut backup = Solo::restarted(0, 1, 1, &log);
        backup.feed(frames::start_view(
            1,
            (14, 13),
            incarnation,
            &[log.get(13), log.get(12)],
        ));
        let status = backup.replica.status();
        assert_eq!(
            (status.status, status.op_head),
            (Status::Recovering, Op(15))
        );
        backup.feed(frames::start_view(
            1,
            (15, 13),
            incarnation,
            &[log.get(14), log.get(13)],
        ));
        let status = backup.replica.status();
        assert_eq!((status.status, status.op_head), (Status::Normal, Op(15)));
    }
}
