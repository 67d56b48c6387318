//! How many seeds it takes until a deliberate bug is found, and by whom.

use super::Expectation;
use crate::world::{Outcome, Verdict};

/// Distance between the seeds that searches start from.
const STRIDE: u64 = 10_000;

/// Who objected to a run: the number of an oracle, or `panic`.
#[must_use]
pub fn objection(outcome: &Outcome) -> Option<&'static str> {
    match &outcome.verdict {
        Verdict::Passed | Verdict::Vacuous(_) => None,
        Verdict::Safety(violation) => Some(number(violation.oracle)),
        Verdict::Liveness(_) => Some("O17"),
        Verdict::Panic(_) => Some("panic"),
    }
}

/// The number of an oracle, of its name.
#[must_use]
pub fn number(oracle: &'static str) -> &'static str {
    oracle.split(' ').next().unwrap_or(oracle)
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Seeds until one of the expected oracles objected; `None` if none did within the budget.
    pub seeds: Option<u64>,
    /// Who it was.
    pub by: &'static str,
    /// Others who objected before.
    pub others: Vec<&'static str>,
}

/// Runs seeds from `first` on until an expected oracle objects, `most` of them at most.
///
/// # Errors
///
/// A setting that does not fit.
pub fn search(
    expected: &Expectation,
    first: u64,
    most: u64,
    more: &[String],
) -> Result<Search, String> {
    let mut settings = vec![format!("mutation={}", expected.name)];
    settings.extend(expected.settings.iter().map(|it| (*it).to_owned()));
    settings.extend_from_slice(more);
    let mut search = Search {
        seeds: None,
        by: "",
        others: Vec::new(),
    };
    for count in 1..=most {
        let seed = first + count - 1;
        let outcome = crate::run(seed, expected.profile, &settings, false)?;
        match objection(&outcome) {
            Some(by) if expected.found_by.contains(&by) => {
                search.seeds = Some(count);
                search.by = by;
                return Ok(search);
            }
            Some(by) => search.others.push(by),
            None => {}
        }
    }
    Ok(search)
}

/// Searches from `starts` places, and says how they ended: a line of a table.
///
/// # Errors
///
/// A setting that does not fit.
pub fn line(
    expected: &Expectation,
    starts: u64,
    more: &[String],
) -> Result<(String, bool), String> {
    let mut counts = Vec::new();
    let mut by = std::collections::BTreeSet::new();
    let mut others = std::collections::BTreeSet::new();
    for start in 0..starts.max(1) {
        let search = search(expected, 1 + start * STRIDE, expected.seeds, more)?;
        // One that survives counts as found just after its budget.
        counts.push(search.seeds.unwrap_or(expected.seeds + 1));
        by.extend(search.seeds.map(|_| search.by));
        others.extend(search.others);
    }
    let list = |names: std::collections::BTreeSet<&str>| {
        let names: Vec<&str> = names.into_iter().collect();
        names.join(", ")
    };
    let shown: Vec<String> = counts
        .iter()
        .map(|&count| match count > expected.seeds {
            true => "-".to_owned(),
            false => count.to_string(),
        })
        .collect();
    let survives = counts.iter().any(|&count| count > expected.seeds);
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    let settings = match expected.settings.is_empty() {
        true => String::new(),
        false => format!(" `{}`", expected.settings.join(" ")),
    };
    let text = format!(
        "| `{}` | {} | {}{settings} | {} | {median} | {} | {} | {} |",
        expected.name,
        expected.found_by.join(", "),
        expected.profile.name(),
        expected.seeds,
        shown.join(" "),
        list(by),
        list(others),
    );
    Ok((text, survives))
}

/// Head of the table of [`line()`].
pub const HEAD: &str = "\
| Bug | Oracle | Profile, settings | Budget | Median | Seeds from each start | By | Others |
|---|---|---|---|---|---|---|---|";
