//! Every deliberate bug is found by the oracle that should find it, within its budget of seeds.

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

#[test]
fn each_mutation_is_found_by_its_oracle() {
    let missed: Vec<String> = MUTATIONS.iter().filter_map(|it| find(it).err()).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
