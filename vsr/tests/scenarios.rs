//! Plays with three and more nodes: the happy path and what a cluster is built to survive.

mod support;

use biplane_vsr::{Output, RoleChange, Status};
use biplane_wire::{Checksum, Command, DoViewChangeHeader, Op, PrepareHeader, Suffix, Typed, View};
use support::solo::Solo;
use support::{Cluster, Kind, frames};

#[test]
fn request_commits_everywhere() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = Cluster::new(kind, 3);
        assert_eq!(cluster.submit(0), Some(Op(1)));
        cluster.settle();
        assert_eq!(cluster.nodes[0].answered, [(1, Op(1))], "{kind:?}");
        // Backups learn it from the next heartbeat.
        cluster.run(10);
        for node in 0..3 {
            assert_eq!(
                cluster.status(node).commit_min,
                Op(1),
                "{kind:?}, node {node}"
            );
        }
    }
}

#[test]
fn pipeline_commits_in_order_under_load() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = Cluster::new(kind, 3);
        for round in 0..100 {
            for _ in 0..4 {
                cluster.submit(0);
            }
            if round % 3 == 0 {
                cluster.tick();
            }
        }
        cluster.run(20);
        cluster.assert_converges();
        let ops: Vec<u64> = cluster.nodes[0]
            .answered
            .iter()
            .map(|(_, op)| op.0)
            .collect();
        assert!(
            ops.len() > 100 && ops.is_sorted(),
            "{kind:?}: {}",
            ops.len()
        );
    }
}

#[test]
fn single_node_commits_alone() {
    for kind in [Kind::Metadata, Kind::Partition] {
        let mut cluster = Cluster::new(kind, 1);
        cluster.commit(5);
        assert_eq!(cluster.nodes[0].answered.len(), 5, "{kind:?}");
        assert!(cluster.sent.is_empty(), "there is nobody to talk to");
        cluster.run(2000);
        assert_eq!(cluster.status(0).view, View(0));
    }
}

#[test]
fn single_node_restarts_with_everything_committed() {
    let mut cluster = Cluster::metadata(1);
    cluster.commit(5);
    cluster.crash(0);
    cluster.restart(0);
    assert_eq!(cluster.status(0).commit_max, Op(5));
    cluster.commit(1);
    assert_eq!(cluster.status(0).commit_min, Op(6));
}

#[test]
fn two_nodes_need_each_other() {
    let mut cluster = Cluster::metadata(2);
    cluster.commit(3);
    cluster.crash(1);
    assert_eq!(cluster.submit(0), Some(Op(4)));
    cluster.run(200);
    assert_eq!(cluster.status(0).commit_max, Op(3));
    cluster.restart(1);
    cluster.assert_converges();
    assert_eq!(cluster.status(0).commit_min, Op(4));
    cluster.commit(1);
}

#[test]
fn two_nodes_survive_the_restart_of_the_primary() {
    let mut cluster = Cluster::metadata(2);
    cluster.commit(3);
    cluster.crash(0);
    cluster.run(20);
    cluster.restart(0);
    cluster.assert_converges();
    cluster.commit(2);
    cluster.assert_converges();
    assert_eq!(cluster.status(0).commit_min, Op(5));
}

#[test]
fn backups_elect_when_the_primary_crashes() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = Cluster::new(kind, 3);
        cluster.commit(3);
        // The fourth reaches replica 1 only, and nobody commits it.
        cluster.lose(|packet| packet.to == 2 && packet.message.command() == Command::Prepare);
        cluster.lose(|packet| packet.message.command() == Command::PrepareOk);
        cluster.submit(0);
        cluster.settle();
        cluster.crash(0);
        cluster.heal();
        let elected = cluster.run_until(200, |cluster| cluster.primary() == Some(1));
        assert!(elected, "{kind:?}");
        assert_eq!(cluster.status(1).view, View(1));
        cluster.assert_converges();
        // One copy and one denial: kept.
        assert_eq!(cluster.status(2).commit_min, Op(4), "{kind:?}");
        cluster.commit(1);
    }
}

#[test]
fn op_that_only_the_lost_primary_had_is_dropped_and_its_number_used_again() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(3);
    cluster.isolate(0);
    cluster.submit(0);
    cluster.settle();
    let stray = cluster.replica(0).log().get(Op(4)).cloned();
    cluster.run_until(200, |cluster| cluster.primary() == Some(1));
    cluster.commit(1);
    assert!(cluster.committed.contains_key(&Op(4)));
    cluster.heal();
    cluster.assert_converges();
    assert_ne!(cluster.replica(0).log().get(Op(4)).cloned(), stray);
    assert_eq!(cluster.status(0).commit_min, Op(4));
}

#[test]
fn old_primary_steps_down_when_it_returns() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(2);
    cluster.isolate(0);
    cluster.submit(0);
    cluster.settle();
    let elected = cluster.run_until(300, |cluster| {
        cluster
            .up()
            .any(|node| node != 0 && cluster.replica(node).is_primary())
    });
    assert!(elected);
    assert!(cluster.replica(0).is_primary(), "it does not know yet");
    cluster.heal();
    cluster.assert_converges();
    assert_eq!(cluster.primary(), Some(1));
    let canceled = cluster.nodes[0].noted(|output| matches!(output, Output::Canceled { .. }));
    assert!(canceled, "who waited for its op is told");
    let backup = |output: &Output| matches!(output, Output::Role(RoleChange::Backup { .. }));
    assert!(cluster.nodes[0].noted(backup));
}

#[test]
fn backup_with_a_gap_is_repaired() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(2);
    cluster.isolate(2);
    cluster.commit(1);
    cluster.heal();
    cluster.commit(2);
    cluster.assert_converges();
    assert_eq!(cluster.status(2).commit_min, Op(5));
    assert_eq!(cluster.status(2).view, View(0), "no view change was needed");
}

#[test]
fn restarted_backup_finds_the_view() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = Cluster::new(kind, 3);
        cluster.commit(4);
        cluster.crash(2);
        cluster.commit(2);
        cluster.restart(2);
        assert_eq!(cluster.status(2).status, Status::Recovering);
        cluster.assert_converges();
        assert_eq!(cluster.status(2).view, View(0), "{kind:?}");
        assert_eq!(cluster.status(2).commit_min, Op(6));
    }
}

#[test]
fn restarted_backup_awaits_a_transfer_first() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(4);
    cluster.crash(2);
    cluster.commit(2);
    let start = biplane_vsr::Start::Used {
        await_transfer: true,
        view_floor: View(0),
    };
    cluster.restart_as(2, start);
    cluster.assert_converges();
    assert_eq!(cluster.nodes[2].floor, Op(6));
    cluster.commit(2);
    cluster.assert_converges();
    assert_eq!(cluster.status(2).commit_min, Op(8));
}

#[test]
fn restarted_primary_is_replaced_at_once() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(4);
    cluster.crash(0);
    cluster.restart(0);
    let elected = cluster.run_until(30, |cluster| cluster.primary() == Some(1));
    assert!(
        elected,
        "its probe tells the others, no heartbeat has to run out"
    );
    cluster.assert_converges();
}

#[test]
fn all_restart_together_and_go_on() {
    for count in [2, 3, 5] {
        let mut cluster = Cluster::metadata(count);
        cluster.commit(6);
        for node in 0..count {
            cluster.crash(node);
        }
        for node in 0..count {
            cluster.restart(node);
        }
        cluster.assert_converges();
        assert!(cluster.status(0).view > View(0));
        cluster.commit(2);
        cluster.assert_converges();
        assert_eq!(cluster.status(1).commit_min, Op(8), "{count} nodes");
    }
}

#[test]
fn all_restart_with_an_uncommitted_op_and_the_barrier_falls() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(3);
    cluster.lose(|packet| packet.message.command() == Command::PrepareOk);
    cluster.submit(0);
    cluster.settle();
    cluster.heal();
    for node in 0..3 {
        cluster.crash(node);
    }
    for node in 0..3 {
        cluster.restart(node);
        assert_eq!(cluster.status(node).recovery_barrier, Op(4));
    }
    cluster.assert_converges();
    let primary = cluster.primary().expect("somebody leads");
    assert!(cluster.replica(primary).is_caught_up_primary());
    assert_eq!(cluster.status(primary).commit_min, Op(4));
}

#[test]
fn lost_announcement_is_asked_for() {
    let mut cluster = Cluster::metadata(3);
    cluster.commit(2);
    cluster.crash(0);
    cluster.lose_first(Command::StartView, 2, 1);
    cluster.run_until(200, |cluster| cluster.primary() == Some(1));
    cluster.assert_converges();
    assert_eq!(
        cluster.status(2).view,
        View(1),
        "no further view was needed"
    );
}

#[test]
fn five_nodes_survive_two_crashes() {
    let mut cluster = Cluster::metadata(5);
    cluster.commit(3);
    cluster.crash(0);
    cluster.crash(1);
    let elected = cluster.run_until(500, |cluster| cluster.primary() == Some(2));
    assert!(elected);
    cluster.commit(3);
    cluster.restart(0);
    cluster.restart(1);
    cluster.assert_converges();
    assert_eq!(cluster.status(0).commit_min, Op(6));
}

#[test]
fn chain_skips_a_peer_that_is_not_connected() {
    let mut cluster = Cluster::metadata(5);
    cluster.crash(1);
    cluster.step(
        0,
        biplane_vsr::Input::Peer {
            replica: biplane_wire::ReplicaId(1),
            connected: false,
        },
    );
    cluster.submit(0);
    cluster.settle();
    assert_eq!(
        cluster.nodes[0].answered.len(),
        1,
        "without a retransmission"
    );
}

#[test]
fn idle_cluster_elects_too() {
    for kind in [Kind::Metadata, Kind::Partition] {
        let mut cluster = Cluster::new(kind, 3);
        cluster.run(100);
        cluster.crash(0);
        let elected = cluster.run_until(200, |cluster| cluster.primary() == Some(1));
        assert!(elected, "{kind:?}: an empty log is a log");
        cluster.assert_converges();
        assert_eq!(cluster.status(1).op_head, Op(0));
    }
}

#[test]
fn partitions_that_lost_their_memory_start_over_together() {
    let mut cluster = Cluster::partition(3);
    cluster.commit(4);
    for node in 0..3 {
        cluster.crash(node);
    }
    cluster.committed.clear();
    for node in 0..3 {
        cluster.restart(node);
    }
    cluster.assert_converges();
    assert_eq!(
        cluster.status(0).op_head,
        Op(0),
        "nothing survived, and all agree on it"
    );
    cluster.commit(2);
}

/// The mark under which an entry stands on disk that is not sure leaves in no frame: peers take
/// the view of a prepare at its word.
#[test]
fn the_mark_of_an_unsure_entry_stays_on_the_disk() {
    let log = frames::chain(0, 1, 4, Checksum::ZERO, 1);
    let unsure = View(u32::MAX);
    let journal: Vec<_> = log.iter().map(|it| it.prepare_in_view(unsure)).collect();
    let mut backup = Solo::restarted(2, 3, 0, &journal);
    let named = [Some(&log[3]), Some(&log[2])];
    backup.feed(frames::start_view(4, (4, 3), 0, &named));
    assert_eq!(backup.replica.commit_min(), Op(3), "all are confirmed");
    for op in 1..=4 {
        let served = backup.replica.log().get(Op(op)).expect("confirmed");
        let header = served.header::<PrepareHeader>();
        assert!(header.frame.view() <= View(4), "op {op}");
    }
    backup.feed(frames::start_view_change(0, 5));
    let sent = backup.sent(Command::DoViewChange);
    let vote = Typed::<DoViewChangeHeader>::decode(sent[0].1.clone()).expect("a sound vote");
    let suffix = Suffix::of_do_view_change(&vote).expect("a sound suffix");
    for entry in suffix.iter() {
        let header = entry.header.expect("it holds them");
        assert!(header.frame.view() <= View(4), "op {}", header.op());
    }
}
