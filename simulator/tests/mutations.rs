//! Every deliberate bug is found by the oracle that should find it, within its budget of seeds.
//!
//! Those that need many seeds wait for `SIMULATOR_MUTATIONS=all`; in a release build that takes
//! some minutes.

use biplane_simulator::mutations::{Expectation, MUTATIONS};
use biplane_simulator::{Outcome, Verdict};

fn objection(outcome: &Outcome) -> Option<String> {
    match &outcome.verdict {
        Verdict::Passed | Verdict::Vacuous(_) => None,
        Verdict::Safety(violation) => Some(violation.oracle.to_owned()),
        Verdict::Liveness(_) => Some("liveness".to_owned()),
        Verdict::Panic(_) => Some("panic".to_owned()),
    }
}

fn find(expected: &Expectation) -> Result<u64, String> {
    let mut settings = vec![format!("mutation={}", expected.name)];
    settings.extend(expected.settings.iter().map(|it| (*it).to_owned()));
    let mut others = Vec::new();
    for seed in 1..=expected.seeds {
        let outcome = biplane_simulator::run(seed, expected.profile, &settings, false)
            .expect("settings that fit");
        match objection(&outcome) {
            Some(oracle) if expected.found_by.iter().any(|it| oracle.starts_with(it)) => {
                return Ok(seed);
            }
            Some(oracle) => others.push(oracle),
            None => {}
        }
    }
    Err(format!(
        "{} survives {} seeds; others: {others:?}",
        expected.name, expected.seeds
    ))
}

/// A larger budget is for the long run.
const QUICK_SEEDS: u64 = 60;

#[test]
fn each_mutation_is_found_by_its_oracle() {
    let all = std::env::var("SIMULATOR_MUTATIONS").is_ok_and(|value| value == "all");
    let due = MUTATIONS.iter().filter(|it| all || it.seeds <= QUICK_SEEDS);
    let mut missed = Vec::new();
    for expected in due {
        match find(expected) {
            Ok(seed) => println!("{} after {seed} seeds", expected.name),
            Err(text) => missed.push(text),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn names_are_unique_and_no_manifest_but_ours_turns_bugs_on() {
    let mut names: Vec<_> = MUTATIONS.iter().map(|it| it.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MUTATIONS.len());
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("a workspace");
    for entry in std::fs::read_dir(root).expect("the workspace") {
        let manifest = entry.expect("an entry").path().join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&manifest) else {
            continue;
        };
        let is_ours = manifest
            .parent()
            .is_some_and(|it| it.ends_with("simulator"));
        let turns_on = text.contains("features = [\"mutation\"]");
        assert_eq!(turns_on, is_ours, "{}", manifest.display());
    }
}
