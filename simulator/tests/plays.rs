//! Scripted plays: situations that have gone wrong somewhere, one test each. Roles, not numbers,
//! say who is meant; oracles watch throughout, and every play ends with the healed cluster
//! having finished its work and converged.

use biplane_simulator::disk::CrashMode;
use biplane_simulator::options::MachineKind;
use biplane_simulator::play::Play;
use biplane_simulator::{Verdict, report};
use biplane_wire::GroupId;

const METADATA: GroupId = GroupId::METADATA;
/// Longer than any election with the tiny timers of plays.
const ELECTION: u64 = 2_000;

fn group(partition: u32) -> GroupId {
    GroupId::partition(1, 1, partition).expect("a small id")
}

/// Runs a play on three bare replicas, with several seeds.
fn play(mut script: impl FnMut(&mut Play)) {
    on(3, MachineKind::Bare, &mut script);
}

fn on(replicas: u8, machine: MachineKind, script: &mut impl FnMut(&mut Play)) {
    for seed in 1..=5 {
        let mut play = Play::new(seed, replicas, machine);
        play.run(500);
        script(&mut play);
        let outcome = play.finish();
        let line = report::verdict_line(&outcome);
        assert_eq!(outcome.verdict, Verdict::Passed, "{line}");
    }
}

/// Whether anything commits in the next seconds.
fn progresses(play: &mut Play) -> bool {
    let before = play.committed();
    play.run(ELECTION);
    play.committed() > before
}

#[test]
fn backup_that_hears_nobody_does_not_stop_the_others() {
    play(|play| {
        let (primary, backup) = (play.primary(METADATA), play.backup(METADATA));
        for peer in (0..3).filter(|&peer| peer != backup) {
            play.cut(peer, backup);
        }
        assert!(progresses(play));
        play.heal_network();
        play.run(ELECTION);
        let _ = primary;
        assert!(progresses(play));
    });
}

#[test]
fn backup_that_is_heard_by_nobody_does_not_stop_the_others() {
    play(|play| {
        let backup = play.backup(METADATA);
        for peer in (0..3).filter(|&peer| peer != backup) {
            play.cut(backup, peer);
        }
        assert!(progresses(play));
    });
}

#[test]
fn primary_that_is_cut_off_is_replaced_and_steps_down_when_it_returns() {
    play(|play| {
        let old = play.primary(METADATA);
        let view = play.view(METADATA);
        play.isolate(old);
        play.run(ELECTION);
        assert!(play.view(METADATA) > view);
        assert_ne!(play.primary(METADATA), old);
        assert!(progresses(play));
        play.heal_network();
        play.run(ELECTION);
        let stepped_down = play
            .replica(old, METADATA)
            .is_some_and(|it| !it.is_primary());
        assert!(stepped_down || play.primary(METADATA) == old);
    });
}

#[test]
fn primary_that_cannot_send_is_replaced() {
    play(|play| {
        let old = play.primary(METADATA);
        for peer in (0..3).filter(|&peer| peer != old) {
            play.cut(old, peer);
        }
        play.run(ELECTION);
        assert_ne!(play.primary(METADATA), old);
        assert!(progresses(play));
    });
}

#[test]
fn primary_that_cannot_hear_recovers_with_the_network() {
    play(|play| {
        let old = play.primary(METADATA);
        for peer in (0..3).filter(|&peer| peer != old) {
            play.cut(peer, old);
        }
        play.run(ELECTION);
        play.heal_network();
        assert!(progresses(play));
    });
}

#[test]
fn bridge_between_two_halves_keeps_one_log() {
    on(5, MachineKind::Bare, &mut |play: &mut Play| {
        for (left, right) in [(0, 3), (0, 4), (1, 3), (1, 4)] {
            play.cut(left, right);
            play.cut(right, left);
        }
        play.run(3 * ELECTION);
        play.heal_network();
        assert!(progresses(play));
    });
}

#[test]
fn two_that_take_turns_in_cutting_each_other_off_settle_in_the_end() {
    play(|play| {
        for _ in 0..6 {
            let primary = play.primary(METADATA);
            play.isolate(primary);
            play.run(700);
            play.heal_network();
            play.run(1_300);
        }
        assert!(progresses(play));
    });
}

#[test]
fn new_primary_with_a_dirty_log_gives_up_what_was_never_acknowledged() {
    play(|play| {
        // Alone, the primary prepares what nobody hears; then it is back and may lead again.
        let primary = play.primary(group(1));
        play.isolate(primary);
        play.run(150);
        play.crash(primary, CrashMode::KeepAll);
        play.heal_network();
        play.run(ELECTION);
        play.start(primary);
        let others: Vec<u8> = (0..3).filter(|&node| node != primary).collect();
        play.run(ELECTION);
        play.isolate(others[0]);
        play.run(ELECTION);
        play.heal_network();
        assert!(progresses(play));
    });
}

#[test]
fn replica_restarted_in_the_middle_of_a_view_change_catches_up() {
    play(|play| {
        let primary = play.primary(METADATA);
        let backup = play.backup(METADATA);
        play.pause(primary);
        // The heartbeat timers of the tiny set fire after 400 ms.
        play.run(420);
        play.crash(backup, CrashMode::LoseAll);
        play.start(backup);
        play.run(ELECTION);
        play.resume(primary);
        assert!(progresses(play));
    });
}

#[test]
fn all_nodes_restarted_at_once_elect_and_keep_what_is_durable() {
    // Memory-only groups lose what a quorum held: the play marks them, and demands the rest.
    play(|play| {
        for node in 0..3 {
            play.crash(node, CrashMode::LoseAll);
        }
        for node in 0..3 {
            play.start(node);
        }
        play.run(2 * ELECTION);
        assert!(progresses(play));
    });
}

#[test]
fn node_that_is_away_for_long_returns_and_another_may_leave() {
    on(3, MachineKind::Planes, &mut |play: &mut Play| {
        let backup = play.backup(METADATA);
        play.crash(backup, CrashMode::Torn);
        play.run(4 * ELECTION);
        assert!(progresses(play));
        play.start(backup);
        play.run(2 * ELECTION);
        assert!(progresses(play));
    });
}

#[test]
fn partition_created_while_a_node_lags_is_served_there_later() {
    on(3, MachineKind::Planes, &mut |play: &mut Play| {
        let backup = play.backup(METADATA);
        play.pause(backup);
        play.run(300);
        play.resume(backup);
        play.run(ELECTION);
        assert!(progresses(play));
    });
}

#[test]
fn requests_are_answered_across_view_changes_of_the_planes() {
    on(3, MachineKind::Planes, &mut |play: &mut Play| {
        for _ in 0..3 {
            let primary = play.primary(METADATA);
            play.isolate(primary);
            play.run(ELECTION);
            assert!(progresses(play));
            play.heal_network();
            play.run(ELECTION);
        }
    });
}

#[test]
fn memory_only_group_goes_on_when_a_holder_forgets_and_the_other_is_cut_off() {
    let mut played = 0;
    on(3, MachineKind::Planes, &mut |play: &mut Play| {
        play.run(ELECTION);
        let Some(group) = play.memory_only_group() else {
            return;
        };
        played += 1;
        let first = play.primary(group);
        let (second, third) = ((first + 1) % 3, (first + 2) % 3);
        // Two hold what is acknowledged now; the third is not there.
        play.isolate(third);
        play.run(300);
        play.crash(second, CrashMode::LoseAll);
        play.heal_network();
        play.isolate(first);
        play.start(second);
        play.run(3 * ELECTION);
        assert!(progresses(play), "the two go on without the one that knows");
        play.heal_network();
        play.run(ELECTION);
        assert!(progresses(play));
    });
    assert!(played > 2, "{played} runs had such a group");
}

#[test]
fn primary_whose_connections_are_half_open_is_replaced_or_finds_out() {
    for sees in [true, false] {
        play(|play| {
            let primary = play.primary(METADATA);
            for peer in (0..3).filter(|&peer| peer != primary) {
                let (blind, gone) = if sees {
                    (peer, primary)
                } else {
                    (primary, peer)
                };
                assert!(play.open_half(blind, gone, 3_000), "they are connected");
            }
            assert!(progresses(play), "the others, or all once they know");
            play.run(3_000);
            assert!(progresses(play));
        });
    }
}

#[test]
fn backup_that_is_slow_at_everything_holds_nobody_up_and_catches_up() {
    play(|play| {
        let backup = play.backup(METADATA);
        play.slow_down(backup, 20_000);
        assert!(progresses(play));
        assert!(play.counted("inputs that waited for a slow node") > 0);
        play.quicken(backup);
        assert!(play.run_while_not(5_000, |play| play.is_caught_up(backup)));
    });
}

#[test]
fn primary_that_is_hopelessly_slow_is_replaced() {
    play(|play| {
        let (old, view) = (play.primary(METADATA), play.view(METADATA));
        play.slow_down(old, 2_000_000);
        play.run(2 * ELECTION);
        assert!(play.view(METADATA) > view);
        // Clients that ask the slow node wait for seconds before they ask another one.
        assert!((0..5).any(|_| progresses(play)));
    });
}

#[test]
fn node_whose_disk_was_full_goes_on_when_there_is_room() {
    for machine in [MachineKind::Bare, MachineKind::Planes] {
        on(3, machine, &mut |play: &mut Play| {
            let backup = play.backup(METADATA);
            play.fill_disk(backup, true);
            assert!(progresses(play), "the others need no room there");
            play.fill_disk(backup, false);
            let comes_back = play.run_while_not(10_000, |play| {
                play.is_running(backup) && play.is_caught_up(backup)
            });
            assert!(comes_back);
        });
    }
}
