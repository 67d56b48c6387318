//! Every deliberate bug is found by the oracle that should find it, within its budget of seeds.
//!
//! Those that need many seeds or long runs wait for `SIMULATOR_MUTATIONS=all`; in a release build
//! that takes some minutes. `simulate --mutations all --runs 5` measures them.

use biplane_simulator::Profile;
use biplane_simulator::mutations::measure::{objection, search};
use biplane_simulator::mutations::{Core, Expectation, MUTATIONS, Mutation, NEEDED, SURVIVORS};

/// A larger budget is for the long run.
const QUICK_SEEDS: u64 = 20;

fn is_all() -> bool {
    std::env::var("SIMULATOR_MUTATIONS").is_ok_and(|value| value == "all")
}

/// Whether a bug is looked for with every change: its runs are short and few.
fn is_quick(expected: &Expectation) -> bool {
    let short = matches!(expected.profile, Profile::Lite | Profile::Net);
    short && expected.seeds <= QUICK_SEEDS
}

fn known(name: &str) -> &'static Expectation {
    let found = MUTATIONS.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("{name} is in the table"))
}

#[test]
fn each_mutation_is_found_by_its_oracle() {
    let all = is_all();
    let due = MUTATIONS.iter().filter(|it| all || is_quick(it));
    let mut missed = Vec::new();
    for expected in due {
        let found = search(expected, 1, expected.seeds, &[]).expect("settings that fit");
        let Some(seeds) = found.seeds else {
            let name = expected.name;
            missed.push(format!("{name} survives; others: {:?}", found.others));
            continue;
        };
        println!("{} after {seeds} seeds by {}", expected.name, found.by);
        // The bug is what was found, not the seed.
        let settings: Vec<String> = expected
            .settings
            .iter()
            .map(|it| (*it).to_owned())
            .collect();
        let sound = biplane_simulator::run(seeds, expected.profile, &settings, false);
        let sound = sound.expect("settings that fit");
        if let Some(by) = objection(&sound) {
            missed.push(format!(
                "{by} objects to seed {seeds} without {}",
                expected.name
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// An oracle that no bug needs is redundant or untested: for each there is a bug that survives
/// when nobody listens to it, for as many seeds as it takes to find it otherwise.
#[test]
fn each_oracle_is_needed_by_a_mutation() {
    let all = is_all();
    let mut missed = Vec::new();
    for &(oracle, name) in NEEDED {
        let expected = known(name);
        if !all && !is_quick(expected) {
            continue;
        }
        let by_it = Expectation {
            found_by: &EVERYONE,
            ..*expected
        };
        let found = search(expected, 1, expected.seeds, &[]).expect("settings that fit");
        let Some(seeds) = found.seeds else {
            missed.push(format!("{name} survives with {oracle}"));
            continue;
        };
        let silent = [format!("silent={oracle}")];
        let deaf = search(&by_it, 1, seeds, &silent).expect("settings that fit");
        if let Some(seeds) = deaf.seeds {
            missed.push(format!(
                "{name} is found without {oracle} after {seeds} seeds by {}",
                deaf.by
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Whoever may object to a run.
const EVERYONE: [&str; 18] = [
    "O1", "O2", "O3", "O4", "O5", "O6", "O7", "O8", "O9", "O10", "O11", "O12", "O13", "O14", "O15",
    "O16", "O17", "panic",
];

#[test]
fn the_table_has_each_bug_once_and_enough_of_them() {
    let mut names: Vec<_> = MUTATIONS.iter().map(|it| it.name).collect();
    names.extend(SURVIVORS.iter().map(|it| it.1));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(MUTATIONS.len() >= 27, "{}", MUTATIONS.len());
    for expected in MUTATIONS {
        let found_by = expected.found_by;
        assert!(
            found_by.iter().all(|it| EVERYONE.contains(it)),
            "{}",
            expected.name
        );
        assert_eq!(Mutation::from_name(expected.name), Some(expected.mutation));
    }
    assert!(
        Mutation::from_name("view-before-record") == Some(Mutation::Core(Core::ViewBeforeRecord))
    );
}

#[test]
fn no_manifest_but_ours_turns_bugs_on() {
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
