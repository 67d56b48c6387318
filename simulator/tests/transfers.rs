//! Transfers and repairs happen under the faults of every profile: long absences and lost disks
//! are added to what a profile draws, with logs so short that they are left behind. In the first
//! table the load is messages, in the second the topology comes and goes, until the log of
//! metadata is left behind, too.

use biplane_simulator::coverage::Counters;
use biplane_simulator::options::MachineKind;
use biplane_simulator::{Options, Profile, Verdict, report};

/// Runs of each profile in the two tables. `BIPLANE_TRANSFER_SEEDS` names another number.
const MESSAGE_SEEDS: u64 = 2;
const METADATA_SEEDS: u64 = 4;

fn seeds_or(usual: u64) -> u64 {
    std::env::var("BIPLANE_TRANSFER_SEEDS").map_or(usual, |text| {
        text.parse().expect("BIPLANE_TRANSFER_SEEDS is a number")
    })
}

/// Runs every profile with these settings. All must pass, and in all of them together each of the
/// counted things must have happened.
fn table(seeds: u64, settings: &[&str], counted: [&str; 3]) {
    report::quiet_panics();
    let settings: Vec<String> = settings.iter().map(|&it| it.to_owned()).collect();
    let mut failed = Vec::new();
    println!("{}", settings.join(" "));
    println!("profile      runs  {}", counted.join("  "));
    for (profile, name) in Profile::NAMED {
        // Bare groups transfer nothing.
        if Options::drawn(1, profile).machine == MachineKind::Bare {
            continue;
        }
        let mut counters = Counters::default();
        for seed in 1..=seeds {
            let outcome = biplane_simulator::run(seed, profile, &settings, false);
            let outcome = outcome.expect("settings that fit");
            counters.merge(&outcome.counters);
            if !matches!(outcome.verdict, Verdict::Passed | Verdict::Vacuous(_)) {
                let (line, again) = (report::verdict_line(&outcome), report::reproduce(&outcome));
                failed.push(format!("{line}\n  {again}"));
            }
        }
        let counts = counted.map(|name| counters.get(name));
        let columns = counted.iter().zip(counts);
        let columns: Vec<String> = columns
            .map(|(name, count)| format!("{count:>width$}", width = name.len()))
            .collect();
        println!("{name:<11} {seeds:>5}  {}", columns.join("  "));
        if counts.contains(&0) {
            failed.push(format!("{name}: nothing of a kind happened"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn transfers_are_finished_and_followed_by_repair_under_every_profile() {
    table(
        seeds_or(MESSAGE_SEEDS),
        &[
            "replicas=3",
            "tiny=true",
            "wipe=4000",
            "absence=6000",
            "requests=600",
        ],
        [
            "transfers begun",
            "transfers installed: partition",
            "sent: RepairPrepare",
        ],
    );
}

#[test]
fn metadata_is_transferred_under_every_profile() {
    table(
        seeds_or(METADATA_SEEDS),
        &[
            "replicas=3",
            "tiny=true",
            "churn=true",
            "groups=true",
            "users=true",
            "clients=8",
            "think=5",
            "wipe=4000",
            "absence=3000",
            "requests=2500",
            // What may go bad is dealt out by places in the log, and logs that were shortened at
            // different ops have other records there.
            "rot=0",
            // A node whose metadata log lost what it confirmed takes partitions for older ones.
            "lostwrite=0",
        ],
        [
            "transfers installed: metadata",
            "transfers begun",
            "sent: RepairPrepare",
        ],
    );
}
