//! One test per known way to lose a log, first half (chapter 03 section 15, H1 to H17).
//!
//! Every one of these has gone wrong somewhere. Names say what must happen instead.

mod support;

use biplane_vsr::{
    Boot, Ignored, Ingest, IngestRefusal, Input, LogEntry, NeedKind, Output, Start, Status,
};
use biplane_wire::{
    Checksum, Command, CommitHeader, DoViewChangeHeader, Op, PrepareHeader, PrepareOkHeader,
    StartViewHeader, Typed, View,
};
use support::solo::Solo;
use support::{Cluster, Kind, frames};

fn voted(solo: &mut Solo) -> biplane_wire::Message {
    let sent = solo.sent(Command::DoViewChange);
    sent.last().expect("it votes").1.clone()
}

/// H1: survivors that know a prepare by name only deny it together, and the view starts.
#[test]
fn h01_header_without_body_counts_as_denial() {
    let log = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let mut elect = Solo::restarted(2, 1, 1, &log[..3]);
    elect.feed(frames::start_view(
        1,
        (4, 3),
        0,
        &[Some(&log[3]), Some(&log[2])],
    ));
    elect.feed(frames::start_view_change(0, 2));
    let entries = [(Some(&log[3]), false, false), (Some(&log[2]), false, true)];
    elect.feed(frames::do_view_change(0, 2, 1, (4, 3), &entries));
    let status = elect.replica.status();
    assert_eq!(
        (status.status, status.view, status.op_head),
        (Status::Normal, View(2), Op(3))
    );
}

/// H2: what a replica kept from an older view is not applied because a newer commit point
/// passes over it.
#[test]
fn h02_stale_entry_below_the_announced_commit_is_not_applied() {
    let old = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let new = frames::chain(1, 4, 9, frames::identity(&old[2]), 2);
    let mut backup = Solo::restarted(2, 0, 0, &old);
    // Op 4 was replaced; the announcement names 9 and 8 only.
    let entries = [Some(&new[5]), Some(&new[4])];
    backup.feed(frames::start_view(4, (9, 8), 0, &entries));
    assert_eq!(backup.replica.commit_min(), Op(0), "nothing is certain yet");
    let need = backup.replica.repair_need().expect("it asks");
    // What it kept may be right; the chain from above will tell.
    assert_eq!(
        (need.kind, need.from, need.to),
        (NeedKind::Gap, Op(5), Op(9))
    );
    for message in old[..3].iter().chain(&new) {
        backup.ingest(message);
    }
    // The stale entry was in the way of op 4 until the chain told which one is right.
    assert_eq!(
        backup.replica.repair_need().map(|need| need.from),
        Some(Op(4))
    );
    backup.ingest(&new[0]);
    assert_eq!(backup.replica.commit_min(), Op(8));
    assert_eq!(backup.replica.log().get(Op(4)), Some(&new[0]));
}

/// H3: an answer to a probe never has commit above op, or nobody could parse it.
#[test]
fn h03_announced_commit_is_not_above_the_announced_head() {
    let mut cluster = Cluster::metadata(3);
    cluster.lose(|packet| {
        if packet.message.command() == Command::StartView {
            let header = packet.message.header::<StartViewHeader>();
            assert!(header.commit() <= header.op());
        }
        false
    });
    cluster.commit(3);
    cluster.crash(2);
    cluster.commit(2);
    cluster.restart(2);
    cluster.assert_converges();
}

/// H4: the counter of a heartbeat counts within its view only.
#[test]
fn h04_former_primary_accepts_heartbeats_of_its_successor() {
    let mut former = Solo::normal(0, 0);
    former.tick(500);
    assert!(
        former.sent(Command::Commit).len() > 100,
        "its own counter is far ahead"
    );
    former.feed(frames::start_view(1, (0, 0), 0, &[]));
    for counter in 1..50 {
        former.tick(5);
        former.feed(frames::commit(1, 1, 0, counter));
    }
    assert_eq!(former.replica.view(), View(1), "it never elected");
    former.tick(40);
    assert_eq!(former.replica.view(), View(2), "silence is still noticed");
}

/// H5: a retransmitted prepare fills the hole an adopted head left.
#[test]
fn h05_prepare_named_by_the_adopted_log_is_taken_below_the_head() {
    let log = frames::chain(1, 1, 8, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..7]);
    backup.feed(frames::start_view(
        1,
        (8, 7),
        0,
        &[Some(&log[7]), Some(&log[6])],
    ));
    assert_eq!(backup.replica.op_head(), Op(8));
    let need = backup.replica.repair_need().expect("repair covers it too");
    assert_eq!(
        (need.kind, need.from, need.to),
        (NeedKind::Suffix, Op(8), Op(8))
    );
    backup.feed(log[7].clone());
    assert_eq!(backup.acknowledged(), [8]);
    assert_eq!(backup.replica.repair_need(), None);
}

/// H5, without names: an older primary announces numbers only.
#[test]
fn h05_prepare_that_links_to_its_neighbour_is_taken_below_the_head() {
    let log = frames::chain(1, 1, 8, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..6]);
    backup.feed(frames::start_view(1, (8, 6), 0, &[]));
    backup.feed(log[7].clone());
    assert!(!backup.has(8), "nothing links it yet");
    for message in &log[5..] {
        backup.feed(message.clone());
    }
    assert_eq!(backup.acknowledged(), [7, 8]);
}

/// H6: the elect does not drop a committed op whose body others have.
#[test]
fn h06_elect_fetches_bodies_before_it_leads() {
    let log = frames::chain(0, 1, 5, Checksum::ZERO, 1);
    let mut elect = Solo::restarted(1, 0, 0, &log[..3]);
    elect.tick(30);
    let entries = [
        (Some(&log[4]), false, true),
        (Some(&log[3]), false, true),
        (Some(&log[2]), false, true),
    ];
    elect.feed(frames::do_view_change(2, 1, 0, (5, 3), &entries));
    assert_eq!(elect.replica.status().status, Status::ViewChange);
    let need = elect
        .replica
        .repair_need()
        .expect("it asks the voter that has them");
    assert_eq!(
        (need.kind, need.from, need.to),
        (NeedKind::Elect, Op(4), Op(5))
    );
    assert_eq!(need.sources, [biplane_wire::ReplicaId(2)]);
    assert_eq!(elect.ingest(&log[3]), Ingest::Journaled);
    assert_eq!(elect.replica.status().status, Status::ViewChange);
    assert_eq!(elect.ingest(&log[4]), Ingest::Journaled);
    let status = elect.replica.status();
    assert_eq!((status.status, status.op_head), (Status::Normal, Op(5)));
}

/// H7: the gap is seen whoever raised the commit point, and as long as it is there.
#[test]
fn h07_gap_is_reported_even_if_a_prepare_raised_the_commit_point() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let mut backup = Solo::normal(1, 0);
    backup.feed(log[0].clone());
    let parent = frames::identity(&log[1]);
    let parts = frames::PrepareParts {
        view: 0,
        replica: 0,
        op: 3,
        commit: 2,
        parent,
        variant: 1,
    };
    backup.feed(frames::prepare(parts));
    assert_eq!(backup.replica.ignored().last(), Some(Ignored::Gap));
    assert_eq!(backup.replica.commit_max(), Op(2));
    backup.feed(frames::commit(0, 0, 2, 1));
    for _ in 0..3 {
        let need = backup
            .replica
            .repair_need()
            .expect("as long as it is there");
        assert_eq!(
            (need.kind, need.from, need.to),
            (NeedKind::Gap, Op(2), Op(2))
        );
    }
}

/// H8: a hole in the committed prefix keeps an elect from leading.
#[test]
fn h08_elect_needs_the_committed_prefix_too() {
    let log = frames::chain(0, 1, 6, Checksum::ZERO, 1);
    let holey = [&log[..1], &log[2..]].concat();
    let mut elect = Solo::restarted(1, 0, 0, &holey);
    elect.tick(30);
    let entries = [(Some(&log[5]), false, true), (Some(&log[4]), false, true)];
    elect.feed(frames::do_view_change(2, 1, 0, (6, 5), &entries));
    assert_eq!(elect.replica.status().status, Status::ViewChange);
    let need = elect.replica.repair_need().expect("op 2 is missing");
    // Below the hole nothing is certain either, until the hole is filled.
    assert_eq!((need.kind, need.from), (NeedKind::Elect, Op(2)));
    elect.ingest(&log[1]);
    assert_eq!(elect.replica.status().status, Status::Normal);
    assert_eq!(elect.replica.commit_min(), Op(5));
}

/// H8: a barrier above the head that a view kept falls to that head.
#[test]
fn h08_barrier_is_decided_again_when_a_view_starts() {
    let log = frames::chain(0, 1, 5, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log);
    assert_eq!(backup.replica.status().recovery_barrier, Op(5));
    backup.feed(frames::start_view(1, (3, 3), 0, &[Some(&log[2])]));
    assert_eq!(backup.replica.status().recovery_barrier, Op(3));
}

/// H9: what is repaired late does not become the parent of the next prepare.
#[test]
fn h09_parent_of_the_next_prepare_is_the_head() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(4);
    // Node 1 misses op 5 but gets 6 and later; then it leads.
    cluster.lose(|packet| {
        let is_five = packet.message.command() == Command::Prepare
            && packet.message.header::<PrepareHeader>().op() == Op(5);
        is_five && packet.to == 1
    });
    cluster.commit(1);
    cluster.heal();
    cluster.commit(3);
    cluster.assert_converges();
    cluster.crash(0);
    cluster.commit(2);
    let log = cluster.replica(1).log();
    for op in 2..=10 {
        let below = log.header(Op(op - 1)).expect("held").frame.checksum();
        assert_eq!(log.header(Op(op)).expect("held").parent(), below, "op {op}");
    }
}

/// H10: a backup that missed the announcement asks for it and does not go on to further views.
#[test]
fn h10_backup_in_view_change_probes() {
    let mut backup = Solo::normal(2, 0);
    backup.tick(40);
    assert_eq!(backup.replica.status().status, Status::ViewChange);
    backup.tick(9);
    assert!(
        backup.sent(Command::RequestStartView).is_empty(),
        "the first one after a while"
    );
    backup.tick(1);
    assert_eq!(backup.sent(Command::RequestStartView).len(), 2);
    backup.tick(10);
    assert_eq!(backup.sent(Command::RequestStartView).len(), 2);
    assert_eq!(backup.replica.view(), View(1));
}

/// H11: a failing superblock holds back words, not deeds.
#[test]
fn h11_new_primary_builds_its_pipeline_while_the_superblock_fails() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(2);
    cluster.lose(|packet| packet.message.command() == Command::PrepareOk);
    cluster.submit(0);
    cluster.settle();
    cluster.heal();
    cluster.crash(0);
    cluster.lose(|packet| packet.message.command() == Command::DoViewChange);
    let reached = cluster.run_until(300, |cluster| cluster.status(1).view_durable == View(1));
    assert!(reached);
    cluster.heal();
    cluster.nodes[1].superblock_fails = true;
    let leads = cluster.run_until(300, |cluster| cluster.replica(1).is_primary());
    assert!(leads);
    assert_eq!(cluster.status(1).prepares_in_flight, 1);
    assert!(cluster.status(1).log_view_durable < View(1));
    cluster.run(20);
    assert_eq!(
        cluster.status(2).status,
        Status::ViewChange,
        "nothing was announced"
    );
    cluster.nodes[1].superblock_fails = false;
    cluster.assert_converges();
    assert_eq!(cluster.status(1).commit_min, Op(3));
}

/// H12: the elect lists everybody who can serve, so that a dead peer can be passed over.
#[test]
fn h12_sources_of_an_elect_are_ranked() {
    let log = frames::chain(0, 1, 5, Checksum::ZERO, 1);
    let mut config = support::config(Kind::Metadata, 1, 5);
    config.replica_count = 5;
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = biplane_vsr::Boot::empty(start);
    let mut elect = Solo::open(config, boot);
    elect.tick(30);
    let full = [(Some(&log[4]), false, true), (Some(&log[3]), false, true)];
    let short = [(Some(&log[3]), false, true)];
    elect.feed(frames::do_view_change(2, 1, 0, (4, 4), &short));
    elect.feed(frames::do_view_change(3, 1, 0, (5, 4), &full));
    elect.feed(frames::do_view_change(4, 1, 0, (5, 4), &full));
    let need = elect.replica.repair_need().expect("it lacks everything");
    let sources: Vec<u8> = need.sources.iter().map(|source| source.0).collect();
    assert_eq!((need.from, sources), (Op(1), vec![2, 3, 4]));
    for message in &log[..4] {
        elect.ingest(message);
    }
    let need = elect.replica.repair_need().expect("the head is missing");
    let sources: Vec<u8> = need.sources.iter().map(|source| source.0).collect();
    assert_eq!(
        (need.from, sources),
        (Op(5), vec![3, 4]),
        "who has it, and nobody else"
    );
}

/// H13: entries above an installed floor stay only if they chain to it.
#[test]
fn h13_leftover_above_an_installed_floor_is_cut() {
    let old = frames::chain(0, 1, 7, Checksum::ZERO, 1);
    let new = frames::chain(1, 6, 9, frames::identity(&old[4]), 2);
    let mut backup = Solo::restarted(2, 0, 0, &old);
    backup.feed(frames::start_view(1, (9, 9), 0, &[Some(&new[3])]));
    let floor = Some(frames::identity(&new[0]));
    let mut out = Vec::new();
    backup
        .replica
        .install_floor(Op(6), floor, Op(9), &mut backup.plane, &mut out);
    assert!(
        out.iter()
            .any(|output| matches!(output, Output::Truncate { from: Op(7) }))
    );
    assert_eq!(backup.replica.commit_min(), Op(6));
    assert!(!backup.has(7));
    backup.replica.check_invariants();
}

/// H14: a repaired prepare of an older session is judged by what the view names.
#[test]
fn h14_superseded_repair_frame_is_refused() {
    let old = frames::chain(0, 1, 6, Checksum::ZERO, 1);
    let new = frames::chain(1, 5, 6, frames::identity(&old[3]), 2);
    let mut backup = Solo::restarted(2, 0, 0, &old[..4]);
    backup.feed(frames::start_view(
        1,
        (6, 4),
        0,
        &[Some(&new[1]), Some(&new[0]), Some(&old[3])],
    ));
    assert_eq!(
        backup.ingest(&old[4]),
        Ingest::Ignored(IngestRefusal::NotNamed)
    );
    assert_eq!(backup.ingest(&new[0]), Ingest::Journaled);
    assert_eq!(backup.ingest(&new[0]), Ingest::Duplicate);
    let far = frames::chain(1, 7, 7, frames::identity(&new[1]), 2);
    assert_eq!(
        backup.ingest(&far[0]),
        Ingest::Ignored(IngestRefusal::OutOfScope)
    );
    assert_eq!(
        backup.ingest(&old[0]),
        Ingest::Ignored(IngestRefusal::Applied)
    );
}

/// H14: a committed op is believed to be what a peer says only with proof.
#[test]
fn h14_superseded_repair_frame_below_the_window_is_not_applied() {
    let old = frames::chain(0, 1, 6, Checksum::ZERO, 1);
    let new = frames::chain(1, 5, 9, frames::identity(&old[3]), 2);
    let mut backup = Solo::restarted(2, 0, 0, &old[..4]);
    backup.feed(frames::start_view(4, (9, 9), 0, &[Some(&new[4])]));
    backup.ingest(&old[4]);
    assert!(
        backup.replica.commit_min() < Op(5),
        "it stands on op 4, but that proves nothing"
    );
    for message in old[..4].iter().chain(&new) {
        backup.ingest(message);
    }
    backup.ingest(&new[0]);
    assert_eq!(backup.replica.commit_min(), Op(9));
    assert_eq!(backup.replica.log().get(Op(5)), Some(&new[0]));
}

/// H15: an elect keeps its old log view until it leads.
#[test]
fn h15_log_view_moves_only_when_the_view_starts() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let mut elect = Solo::restarted(1, 0, 0, &log[..1]);
    elect.tick(30);
    let entries = [
        (Some(&log[2]), false, true),
        (Some(&log[1]), false, true),
        (Some(&log[0]), false, true),
    ];
    elect.feed(frames::do_view_change(2, 1, 0, (3, 1), &entries));
    assert!(
        elect.replica.repair_need().is_some(),
        "it has decided and lacks bodies"
    );
    let status = elect.replica.status();
    assert_eq!(
        (status.view, status.log_view, status.op_head),
        (View(1), View(0), Op(1))
    );
    elect.out.clear();
    // It fails, and its next vote is that of its own log.
    elect.tick(50);
    elect.feed(frames::start_view_change(2, 2));
    let vote = voted(&mut elect);
    let header = vote.header::<biplane_wire::DoViewChangeHeader>();
    assert_eq!((header.log_view(), header.op()), (View(0), Op(1)));
}

/// H15 on the backup's side: the log view is recorded once the adopted log is complete here.
/// A restart before that must not make this replica an authority on a log it does not have.
#[test]
fn h15_adopted_log_view_is_recorded_when_the_bodies_are_here() {
    let log = frames::chain(1, 1, 4, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..2]);
    let names = [Some(&log[3]), Some(&log[2]), Some(&log[1])];
    backup.feed(frames::start_view(1, (4, 2), 0, &names));
    let status = backup.replica.status();
    assert_eq!(
        (status.log_view, status.log_view_durable),
        (View(1), View(0))
    );
    backup.feed(log[2].clone());
    assert!(
        backup.acknowledged().is_empty(),
        "no promise before the record"
    );
    backup.feed(log[3].clone());
    assert_eq!(backup.replica.status().log_view_durable, View(1));
    assert_eq!(backup.acknowledged(), [3, 4]);
}

/// H16 is about evidence of commit in a merge; see `merge_table.rs`. Here: an op is not
/// acknowledged on the strength of an announced commit point.
#[test]
fn h16_acknowledgements_name_what_is_held() {
    let log = frames::chain(1, 1, 4, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log[..3]);
    backup.feed(frames::start_view(
        1,
        (3, 1),
        0,
        &[Some(&log[2]), Some(&log[1]), Some(&log[0])],
    ));
    let sent = backup.sent(Command::PrepareOk);
    let acknowledged: Vec<_> = sent
        .iter()
        .map(|(_, message)| {
            let header = message.header::<PrepareOkHeader>();
            (header.op().0, header.prepare_checksum())
        })
        .collect();
    assert_eq!(
        acknowledged,
        [
            (2, frames::identity(&log[1])),
            (3, frames::identity(&log[2]))
        ],
    );
}

/// H17: after the log was cut and refilled the vote describes what is there now.
#[test]
fn h17_vote_describes_the_log_as_it_is() {
    let old = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let new = frames::chain(1, 3, 4, frames::identity(&old[1]), 2);
    let mut backup = Solo::restarted(2, 0, 0, &old);
    let names = [Some(&new[1]), Some(&new[0]), Some(&old[1])];
    backup.feed(frames::start_view(1, (4, 2), 0, &names));
    assert_eq!(backup.plane.truncated, [Op(3)]);
    for message in &new {
        backup.feed(message.clone());
    }
    backup.out.clear();
    // Same head and commit point as before the cut.
    backup.feed(frames::start_view_change(0, 3));
    let vote = biplane_wire::Typed::decode(voted(&mut backup)).expect("a vote");
    let suffix = biplane_wire::Suffix::of_do_view_change(&vote).expect("decodes");
    for (op, expected) in [(4, &new[1]), (3, &new[0]), (2, &old[1])] {
        let entry = suffix.at(Op(op)).expect("in the window");
        assert_eq!(
            entry.header,
            Some(expected.header::<PrepareHeader>()),
            "op {op}"
        );
        assert!(entry.present && !entry.nack);
    }
}

/// Replica 2 of three after a restart, whose superblock knows op 6 to be committed.
fn restarted_knowing_six(view: u32, log_view: u32, log: Vec<LogEntry>) -> Solo {
    let start = Start::Used {
        await_transfer: false,
        view_floor: View(0),
    };
    let boot = Boot {
        view: View(view),
        log_view: View(log_view),
        commit_max: Op(6),
        log,
        ..Boot::empty(start)
    };
    Solo::open(support::config(Kind::Metadata, 2, 3), boot)
}

/// A backup took a log over, restarted before it had fetched the head, and knows it only as a
/// number. Its vote is no word on that log, and one that has the head leads with it.
#[test]
fn head_that_is_a_number_alone_is_of_no_log_view() {
    let log = frames::chain(1, 1, 6, Checksum::ZERO, 1);
    let vote_of = |entries: Vec<LogEntry>| {
        let mut backup = restarted_knowing_six(3, 3, entries);
        backup.tick(30);
        let view = backup.replica.view().0;
        backup.feed(frames::start_view_change(0, view));
        let vote: Typed<DoViewChangeHeader> = Typed::decode(voted(&mut backup)).expect("a vote");
        let header = vote.header();
        (header.log_view(), header.op(), header.commit())
    };
    let intact = |ops: usize| log[..ops].iter().cloned().map(LogEntry::Intact);
    assert_eq!(vote_of(intact(4).collect()), (View(0), Op(6), Op(6)));
    assert_eq!(vote_of(intact(6).collect()), (View(3), Op(6), Op(6)));
    // It may have been acknowledged.
    let damaged = [LogEntry::Damaged(Op(6))];
    let damaged: Vec<LogEntry> = intact(5).chain(damaged).collect();
    assert_eq!(vote_of(damaged), (View(3), Op(6), Op(6)));
}

/// The commit point was told by a later view, whose log the replica had begun to take over when it
/// lost power. What its own log has at the end may be something else.
#[test]
fn commit_point_of_a_later_view_commits_nothing_of_an_older_log() {
    let log = frames::chain(1, 1, 4, Checksum::ZERO, 1);
    let committed = |view: u32| {
        let entries = log.iter().cloned().map(LogEntry::Intact).collect();
        let mut backup = restarted_knowing_six(view, 1, entries);
        backup.tick(1);
        backup.replica.commit_min()
    };
    assert_eq!(committed(1), Op(4));
    assert_eq!(committed(3), Op(0));
}

/// H4, the other way round: a heartbeat of an older view is no sign of life.
#[test]
fn heartbeats_of_other_views_do_not_calm_a_backup() {
    let mut backup = Solo::normal(2, 3);
    for counter in 1..20 {
        backup.tick(5);
        backup.feed(frames::commit(1, 1, 0, counter));
        if backup.replica.view() > View(3) {
            break;
        }
    }
    assert_eq!(backup.replica.view(), View(4));
    let message = frames::commit(0, 3, 0, 1);
    assert_eq!(message.header::<CommitHeader>().frame.view(), View(3));
    backup.step(Input::Frame(frames::frame(message)));
    assert_eq!(backup.replica.ignored().last(), Some(Ignored::Status));
}
