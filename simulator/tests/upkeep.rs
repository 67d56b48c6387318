//! What keeps a partition in order happens under the faults of every profile: old messages go by
//! age, by size and by request, topics are purged, positions are stored and deleted, messages are
//! asked for by time. Segments are so small that they fill.

use biplane_simulator::coverage::Counters;
use biplane_simulator::options::MachineKind;
use biplane_simulator::{Options, Profile, Verdict, report};

/// Runs of each profile without and with purges. `BIPLANE_UPKEEP_SEEDS` names another number.
const SEEDS: u64 = 2;

/// What must have happened in the runs of a profile.
const NEEDED: [&str; 6] = [
    "segments removed",
    "committed: deletions of segments",
    "committed: stored positions",
    "committed: deleted positions",
    "polls by time with messages",
    "committed: purges",
];

fn seeds() -> u64 {
    std::env::var("BIPLANE_UPKEEP_SEEDS").map_or(SEEDS, |text| {
        text.parse().expect("BIPLANE_UPKEEP_SEEDS is a number")
    })
}

#[test]
fn upkeep_goes_on_under_every_profile() {
    report::quiet_panics();
    let mut failed = Vec::new();
    println!("profile     purges  runs vacuous  gone  requested  stored deleted  by time purges");
    for (profile, name) in Profile::NAMED {
        let mut all = Counters::default();
        for purge in [false, true] {
            let mut settings = vec!["tiny=true".to_owned(), "upkeep=true".to_owned()];
            settings.push(format!("purge={purge}"));
            // Bare groups keep nothing in order.
            if Options::drawn(1, profile).machine == MachineKind::Bare {
                settings.push("bare=false".to_owned());
            }
            let mut counters = Counters::default();
            let mut vacuous = 0;
            for seed in 1..=seeds() {
                let outcome = biplane_simulator::run(seed, profile, &settings, false);
                let outcome = outcome.expect("settings that fit");
                counters.merge(&outcome.counters);
                match outcome.verdict {
                    Verdict::Passed => {}
                    Verdict::Vacuous(_) => vacuous += 1,
                    _ => failed.push(format!(
                        "{}\n  {}",
                        report::verdict_line(&outcome),
                        report::reproduce(&outcome)
                    )),
                }
            }
            let [gone, requested, stored, deleted, by_time, purges] =
                NEEDED.map(|what| counters.get(what));
            println!(
                "{name:<11} {purge:>6} {:>5} {vacuous:>7} {gone:>5} {requested:>10} {stored:>7} \
                 {deleted:>7} {by_time:>8} {purges:>6}",
                seeds()
            );
            all.merge(&counters);
        }
        let missing = NEEDED.into_iter().filter(|what| all.get(what) == 0);
        failed.extend(missing.map(|what| format!("{name}: no {what}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
