//! Seeds that run with every change: three replicas under loss, reordering across reconnects,
//! partitions, crashes and restarts, first with bare groups, then with the planes.
//!
//! A failing seed prints the line that runs it again.

use std::collections::BTreeSet;

use biplane_simulator::options::MachineKind;
use biplane_simulator::{Options, Outcome, Profile, Verdict, World, report};

/// The options of a seed with three replicas.
fn three_replicas(seed: u64, profile: Profile) -> Options {
    let mut options = Options::drawn(seed, profile);
    options.replicas = 3;
    options
}

fn run(options: Options) -> Outcome {
    report::quiet_panics();
    World::new(options, false).run()
}

/// Runs seeds and panics with the verdicts of those that failed; vacuous runs may be one in ten.
fn sweep(profile: Profile, seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut vacuous = 0;
    let mut failed = Vec::new();
    for seed in seeds {
        let outcome = run(three_replicas(seed, profile));
        match outcome.verdict {
            Verdict::Passed => {}
            Verdict::Vacuous(_) => vacuous += 1,
            _ => failed.push(format!(
                "{}\n  {} --set replicas=3",
                report::verdict_line(&outcome),
                report::reproduce(&outcome)
            )),
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {count} seeds failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert!(
        vacuous * 10 <= count,
        "{vacuous} of {count} runs are vacuous"
    );
}

#[test]
fn bare_groups_survive_loss_reordering_and_crashes() {
    sweep(Profile::Lite, 1..81);
}

#[test]
fn planes_survive_a_bad_network() {
    sweep(Profile::Net, 1..41);
}

#[test]
fn planes_survive_crashes_and_restarts() {
    sweep(Profile::Crash, 1..61);
}

#[test]
fn planes_without_faults_pass_quickly() {
    sweep(Profile::Calm, 1..21);
}

/// Seeds that once failed, with what was set by hand.
fn passes(seed: u64, profile: Profile, purge: bool) {
    let mut options = Options::drawn(seed, profile);
    options.purge |= purge;
    let outcome = run(options);
    let line = report::verdict_line(&outcome);
    assert_eq!(outcome.verdict, Verdict::Passed, "{line}");
}

#[test]
fn replicas_that_learn_of_a_purge_at_different_times_stay_equal() {
    for seed in [1, 4, 5, 6, 13, 15, 16, 18] {
        passes(seed, Profile::Calm, true);
    }
    for seed in [112, 137, 157, 266, 311, 392] {
        passes(seed, Profile::Purge, false);
    }
}

#[test]
fn segments_longer_than_what_is_left_of_the_log_are_read_and_extended() {
    for seed in [3119, 3159] {
        passes(seed, Profile::Correlated, false);
    }
}

/// Groups that lost their memory all look around at once, and each peer serves few of them.
#[test]
fn who_is_put_off_after_a_loss_of_power_asks_again() {
    for seed in [70_027, 70_036] {
        passes(seed, Profile::Correlated, false);
    }
}

/// Prepares that a restarted replica sends in repair are of views that exist.
#[test]
fn a_replica_is_repaired_from_one_that_was_not_sure_of_its_log() {
    passes(70_007, Profile::All, false);
}

/// A request that is sent again is carried out again where its replica has forgotten it.
#[test]
fn an_append_that_is_repeated_after_a_restart_has_its_place() {
    passes(70_055, Profile::Upkeep, false);
}

/// What may be right stays on the disk when something below it is known to be wrong.
#[test]
fn acknowledged_ops_behind_a_hole_survive_a_cut() {
    for seed in [12_035_747, 12_023_326] {
        passes(seed, Profile::Lite, false);
    }
    passes(13_000_777, Profile::Decay, false);
}

/// A restart that asks in a view far above is of another incarnation, perhaps.
#[test]
fn question_of_a_later_incarnation_moves_no_group() {
    passes(19_000_134, Profile::Churn, false);
}

/// Segments that an install has taken away are filled from the log, where that has their messages.
#[test]
fn install_that_was_cut_short_begins_where_the_log_does() {
    passes(21_000_012, Profile::Correlated, false);
}

/// A backup that is asked by its primary, whose log lost its end, compares in turn.
#[test]
fn replicas_agree_on_messages_that_no_log_names_any_more() {
    passes(26_000_100, Profile::Correlated, false);
}

/// The end waits for installs: who installs answers no poll.
#[test]
fn node_that_is_about_to_finish_an_install_is_not_audited() {
    passes(26_000_110, Profile::Purge, false);
}

/// What a primary said before its next prepare does not move a restarted backup back.
#[test]
fn announcement_that_comes_again_takes_nothing_that_was_acknowledged() {
    passes(32_000_070, Profile::Correlated, false);
}

/// What would prove the leftovers is further away than anything may be fetched.
#[test]
fn leftovers_that_fill_the_repair_window_are_settled() {
    for seed in [25_001_886, 31_000_277] {
        passes(seed, Profile::Decay, false);
    }
}

/// One prepare in a chunk, of which the log has some that are proven and some that are not.
#[test]
fn floor_is_judged_although_chunks_bring_what_is_here() {
    passes(40_000_071, Profile::Upkeep, false);
    passes(40_000_232, Profile::Transfer, false);
}

/// A long record of the log is read where a short one stands.
#[test]
fn record_that_strayed_hides_none_behind_it() {
    passes(19_000_130, Profile::Disk, false);
}

/// Two of five are silent, and the one that has everything hashes a little with each request.
#[test]
fn peer_that_gets_ready_is_asked_often_enough() {
    passes(50_000_130, Profile::Correlated, false);
}

/// It knew of the log it had taken over that its head is committed, and not what that is.
#[test]
fn replica_that_restarts_before_it_has_the_head_keeps_no_group_from_electing() {
    passes(50_036_204, Profile::Lite, false);
}

/// It heard of a commit point of the next view and lost power before that log was its own.
#[test]
fn commit_point_of_a_later_view_commits_nothing_of_an_older_log() {
    passes(50_077_108, Profile::Lite, false);
}

/// The files of a group were set aside, with the log that their log view stood for.
#[test]
fn folder_that_takes_the_place_of_another_promises_no_log() {
    passes(50_000_349, Profile::Correlated, false);
}

/// A core whose logs cannot settle an op is not asked to go on without the rest.
#[test]
fn core_that_cannot_decide_waits_for_the_rest() {
    passes(40_000_190, Profile::Disk, false);
}

#[test]
fn replica_that_applied_what_its_group_lost_starts_over() {
    for seed in [3221, 3226] {
        passes(seed, Profile::Correlated, false);
    }
}

#[test]
fn two_runs_of_a_seed_are_the_same_run() {
    for (seed, profile) in [(1, Profile::Lite), (2, Profile::Crash), (3, Profile::All)] {
        let first = run(Options::drawn(seed, profile));
        let second = run(Options::drawn(seed, profile));
        assert_eq!(first.trace, second.trace, "seed {seed} {}", profile.name());
        assert_eq!(first.steps, second.steps);
        assert_eq!(first.counters, second.counters);
    }
}

#[test]
fn keeping_a_log_changes_nothing() {
    let options = Options::drawn(5, Profile::Crash);
    let without = World::new(options.clone(), false).run();
    let with = World::new(options, true).run();
    assert_eq!(without.trace, with.trace);
    assert!(without.log.is_empty() && !with.log.is_empty());
}

#[test]
fn every_oracle_compares_something_in_runs_of_the_planes() {
    let mut silent: Option<BTreeSet<&str>> = None;
    let crashes = (1..=6).map(|seed| (seed, Profile::Crash));
    let transfers = (1..=20).map(|seed| (seed, Profile::Transfer));
    for (seed, profile) in crashes.chain(transfers) {
        let options = three_replicas(seed, profile);
        assert_eq!(options.machine, MachineKind::Planes);
        let outcome = run(options);
        let zero = outcome.comparisons.iter().filter(|(_, count)| **count == 0);
        let zero: BTreeSet<&str> = zero.map(|(oracle, _)| *oracle).collect();
        let still = match silent {
            Some(before) => before.intersection(&zero).copied().collect(),
            None => zero,
        };
        if still.is_empty() {
            return;
        }
        silent = Some(still);
    }
    panic!("never compared anything: {silent:?}");
}
