//! What a failed run leaves behind, in a folder of its own.
//!
//! | File | Content |
//! |---|---|
//! | `verdict.txt` | verdict, the command that repeats it, options, counters, state of every node |
//! | `plan.txt` | the plan of the run |
//! | `shrunk.txt` | the plan of the smallest run found with the same failure |
//! | `recorded.txt` | the same with every draw, as few and small as was found |
//! | `timeline.txt` | what happened, event by event, in the smallest run |
//! | `history.jsonl` | what clients asked and were told |

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::plan::Plan;
use crate::world::Outcome;
use crate::{World, report, shrink};

/// Further runs a failure is made smaller with, unless asked otherwise.
pub const SHRINK_RUNS: u64 = 120;

/// Time for making draws fewer and smaller.
const DRAWS_TIME: Duration = Duration::from_secs(60);

/// The files of a bundle, by name.
#[must_use]
pub fn files(outcome: &Outcome, shrink_runs: u64) -> Vec<(&'static str, String)> {
    let smallest = shrink::shrink(outcome.clone(), shrink_runs, &mut |_| {});
    let smallest = smallest.unwrap_or_else(|| outcome.clone());
    let replay = World::new(smallest.options.clone(), true).run();
    let mut verdict = format!(
        "{}\n{}\n",
        report::verdict_line(outcome),
        report::reproduce(outcome)
    );
    if smallest.options != outcome.options {
        verdict.push_str(&format!(
            "\nsmaller:\n{}\n{}\n",
            report::verdict_line(&smallest),
            report::reproduce(&smallest)
        ));
    }
    verdict.push('\n');
    verdict.push_str(&report::state(&replay));
    vec![
        ("verdict.txt", verdict),
        ("plan.txt", Plan::of(outcome).write()),
        ("shrunk.txt", Plan::of(&smallest).write()),
        ("recorded.txt", recorded(&smallest, shrink_runs)),
        ("timeline.txt", lines(&replay.log)),
        ("history.jsonl", lines(&replay.history)),
    ]
}

fn recorded(outcome: &Outcome, runs: u64) -> String {
    let budget = shrink::Budget {
        runs,
        time: DRAWS_TIME,
    };
    let fewer = shrink::shrink_draws(outcome, budget, &mut |_| {});
    match fewer {
        Ok(Some(fewer)) => Plan::of(&fewer).write(),
        Ok(None) => Plan::recorded(outcome).map_or_else(remark, |plan| plan.write()),
        Err(text) => remark(text),
    }
}

fn remark(text: String) -> String {
    format!("# {text}\n")
}

fn lines(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// Writes a bundle below `folder`; where it is.
///
/// # Errors
///
/// What the file system objects to.
pub fn write(outcome: &Outcome, folder: &Path, shrink_runs: u64) -> std::io::Result<PathBuf> {
    let options = &outcome.options;
    let name = format!("{}-{}", options.profile.name(), options.seed);
    let place = folder.join(name);
    std::fs::create_dir_all(&place)?;
    for (name, text) in files(outcome, shrink_runs) {
        std::fs::write(place.join(name), text)?;
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Profile;

    #[test]
    fn a_bundle_holds_both_plans_the_timeline_and_the_command() {
        let settings = ["mutation=poll-drops-a-message".to_owned()];
        let outcome = crate::run(1, Profile::Calm, &settings, false).expect("valid");
        assert_eq!(outcome.verdict.exit_code(), 1);
        let files = files(&outcome, 10);
        let text = |name: &str| {
            let found = files.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| text.as_str()).expect("the file")
        };
        assert!(text("verdict.txt").contains("--seed 1 --profile calm"));
        assert!(text("timeline.txt").contains("VIOLATION"));
        let plan = Plan::parse(text("plan.txt")).expect("a plan");
        let smaller = Plan::parse(text("shrunk.txt")).expect("a plan");
        assert_eq!(plan.expected.oracle, smaller.expected.oracle);
        let recorded = Plan::parse(text("recorded.txt")).expect("a plan");
        let (_, fit) = recorded.replay(false).expect("it runs");
        assert_eq!(fit, crate::plan::Fit::Same);
        assert!(smaller.settings.len() >= plan.settings.len());
        let history = crate::history::History::parse(text("history.jsonl"));
        assert!(history.is_ok());
    }
}
