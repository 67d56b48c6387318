//! A smaller run with the same failure.
//!
//! A failing run is a seed, a profile and settings; shrinking adds settings that take things
//! away (clients, whole classes of faults, single faults) and keeps each as long as the failure
//! stays of the same kind. What is left is a reproduce line, and a plan to keep.

mod draws;

pub use self::draws::{Budget, shrink_draws, weight};

use crate::faults::FaultClass;
use crate::options::Profile;
use crate::world::{Outcome, Verdict};

/// What must stay the same: the kind of the verdict, and the oracle that objected.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    word: &'static str,
    oracle: &'static str,
}

impl Failure {
    fn of(verdict: &Verdict) -> Option<Self> {
        let oracle = match verdict {
            Verdict::Passed | Verdict::Vacuous(_) => return None,
            Verdict::Safety(violation) => violation.oracle,
            Verdict::Liveness(_) | Verdict::Panic(_) => "",
        };
        Some(Self {
            word: verdict.word(),
            oracle,
        })
    }
}

/// The search for a smaller run.
struct Shrinker<'a> {
    seed: u64,
    profile: Profile,
    failure: Failure,
    best: Outcome,
    runs: u64,
    runs_max: u64,
    report: &'a mut dyn FnMut(&Outcome),
}

/// Makes a failing run smaller, with at most `runs_max` further runs; each better one is
/// reported. `None` when the run did not fail.
pub fn shrink(
    outcome: Outcome,
    runs_max: u64,
    report: &mut dyn FnMut(&Outcome),
) -> Option<Outcome> {
    let failure = Failure::of(&outcome.verdict)?;
    let mut shrinker = Shrinker {
        seed: outcome.options.seed,
        profile: outcome.options.profile,
        failure,
        best: outcome,
        runs: 0,
        runs_max,
        report,
    };
    shrinker.shapes();
    shrinker.classes();
    shrinker.faults();
    shrinker.shapes();
    Some(shrinker.best)
}

impl Shrinker<'_> {
    /// Tries the best run with more settings; whether it still fails in the same way.
    fn attempt(&mut self, more: &[String]) -> bool {
        if self.runs >= self.runs_max {
            return false;
        }
        self.runs += 1;
        let mut settings = self.best.options.overrides.clone();
        for setting in more {
            let key = setting.split('=').next().unwrap_or_default();
            if key != "skip" {
                settings.retain(|known| known.split('=').next() != Some(key));
            }
            settings.push(setting.clone());
        }
        let Ok(outcome) = crate::run(self.seed, self.profile, &settings, false) else {
            return false;
        };
        let same = Failure::of(&outcome.verdict).as_ref() == Some(&self.failure);
        if same {
            self.best = outcome;
            (self.report)(&self.best);
        }
        same
    }

    /// Fewer clients, partitions, requests; a shorter run.
    fn shapes(&mut self) {
        for clients in [1, 2, 3] {
            if self.best.options.clients > clients && self.attempt(&[format!("clients={clients}")])
            {
                break;
            }
        }
        for partitions in [1, 2] {
            let fewer = self.best.options.partitions > partitions;
            if fewer && self.attempt(&[format!("partitions={partitions}")]) {
                break;
            }
        }
        let mut requests = self.best.options.requests / 2;
        while requests > 0 && self.attempt(&[format!("requests={requests}")]) {
            requests /= 2;
        }
    }

    /// Whole classes of faults off.
    fn classes(&mut self) {
        let classes = FaultClass::ALL.map(FaultClass::name);
        for class in classes {
            self.attempt(&[format!("{class}=0")]);
        }
        let network = ["loss", "slow", "replay", "resets", "corrupt", "clock"];
        for key in network.into_iter().chain(["diskslow", "diskerrors"]) {
            self.attempt(&[format!("{key}=0")]);
        }
        self.attempt(&["datagram=false".to_owned()]);
        self.attempt(&["churn=false".to_owned()]);
    }

    /// Single faults off: halves of the list, then quarters, and so on.
    fn faults(&mut self) {
        let mut size = self.best.struck.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < self.best.struck.len() {
                let until = (from + size).min(self.best.struck.len());
                let skips: Vec<String> = self.best.struck[from..until]
                    .iter()
                    .map(|strike| format!("skip={}.{}", strike.class.name(), strike.number))
                    .collect();
                // What was skipped is no longer in the list of the better run.
                if !self.attempt(&skips) {
                    from = until;
                }
                if self.runs >= self.runs_max {
                    return;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_kept_while_the_run_gets_smaller() {
        let settings = [
            "mutation=superblock-is-not-written".to_owned(),
            "replicas=3".to_owned(),
        ];
        let failing = (1..20).find_map(|seed| {
            let outcome = crate::run(seed, Profile::Lite, &settings, false).expect("valid");
            Failure::of(&outcome.verdict).map(|_| outcome)
        });
        let failing = failing.expect("the mutation is found");
        let (clients, strikes) = (failing.options.clients, failing.struck.len());
        let oracle = Failure::of(&failing.verdict);
        let smaller = shrink(failing, 60, &mut |_| {}).expect("it fails");
        assert_eq!(Failure::of(&smaller.verdict), oracle);
        assert!(smaller.options.clients <= clients && smaller.struck.len() <= strikes);
        assert!(
            smaller.options.overrides.len() > 2,
            "{:?}",
            smaller.options.overrides
        );
    }

    #[test]
    fn a_run_that_passes_cannot_be_shrunk() {
        let outcome = crate::run(1, Profile::Calm, &[], false).expect("no settings");
        assert!(shrink(outcome, 5, &mut |_| {}).is_none());
    }
}
