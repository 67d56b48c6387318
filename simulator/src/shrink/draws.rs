//! A recorded run with fewer and smaller draws, and the same failure.
//!
//! What shrinking of settings cannot reach is in the draws: this frame was lost, that write took
//! so long, this crash tore those sectors. Here draws are made zero, which for a chance is "not
//! taken" and for a delay "the shortest", first whole streams, then halves of them, then quarters
//! and so on; what stays is made smaller; at last the safety phase is made shorter. A run with
//! changed draws may ask for others than were recorded: it takes what fits (see
//! [`Streams::bent`]) and writes down what it took, and that is the recording that counts.

use std::time::{Duration, Instant};

use super::Failure;
use crate::options::{Options, Profile};
use crate::overrides;
use crate::prng::Streams;
use crate::tape::Recording;
use crate::world::{Outcome, World};

/// Steps a run may have beyond twice those of the best.
const STEPS_MORE: u64 = 1_000;

/// How long a search may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Runs at most.
    pub runs: u64,
    /// Time at most.
    pub time: Duration,
}

/// Streams that are no misfortunes: options have settings for them, and numbers are seeds.
fn is_fixed(label: &str) -> bool {
    ["options/", "number/", "phase/", "schedule"]
        .iter()
        .any(|fixed| label.starts_with(fixed))
}

/// How much is left in a recording: draws that are not zero, then their sizes in bits.
#[must_use]
pub fn weight(recording: &Recording) -> (u64, u64) {
    let open = recording.streams.iter().filter(|it| !is_fixed(it.0));
    let draws = open.flat_map(|(_, values)| values).filter(|&&it| it > 0);
    draws.fold((0, 0), |(count, bits), value| {
        (count + 1, bits + u64::from(64 - value.leading_zeros()))
    })
}

/// A search for smaller draws.
struct Search<'a> {
    seed: u64,
    profile: Profile,
    settings: Vec<String>,
    failure: Failure,
    best: Outcome,
    runs: u64,
    until: Instant,
    budget: Budget,
    report: &'a mut dyn FnMut(&Outcome),
}

/// Makes the draws of a failing run fewer and smaller within a budget; each better run is
/// reported. `None` when the run did not fail.
///
/// # Errors
///
/// A setting that does not fit, or a run that is another one when it is recorded.
pub fn shrink_draws(
    outcome: &Outcome,
    budget: Budget,
    report: &mut dyn FnMut(&Outcome),
) -> Result<Option<Outcome>, String> {
    let Some(failure) = Failure::of(&outcome.verdict) else {
        return Ok(None);
    };
    let (seed, profile) = (outcome.options.seed, outcome.options.profile);
    let settings = outcome.options.overrides.clone();
    let best = match &outcome.recording {
        Some(_) => outcome.clone(),
        None => crate::record(seed, profile, &settings, false)?,
    };
    if Failure::of(&best.verdict).as_ref() != Some(&failure) {
        return Err(format!("seed {seed} ends otherwise when it is recorded"));
    }
    let mut search = Search {
        seed,
        profile,
        settings,
        failure,
        best,
        runs: 0,
        until: Instant::now() + budget.time,
        budget,
        report,
    };
    search.times();
    search.zeros();
    search.smaller();
    search.times();
    Ok(Some(search.best))
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.runs >= self.budget.runs || Instant::now() >= self.until
    }

    fn recording(&self) -> Recording {
        self.best.recording.clone().unwrap_or_default()
    }

    /// Runs with other draws and settings; whether it is better and fails in the same way.
    fn attempt(&mut self, recording: &Recording, settings: &[String]) -> bool {
        if self.is_over() {
            return false;
        }
        self.runs += 1;
        let streams = Streams::bent(recording);
        let mut options = Options::drawn_from(&streams, self.seed, self.profile);
        for setting in settings {
            if overrides::apply(&mut options, setting).is_err() {
                return false;
            }
        }
        // Clients that never pause ask without end.
        let steps_max = 2 * self.best.steps + STEPS_MORE;
        let world = World::drawing_from(streams, options, false).giving_up_after(steps_max);
        let outcome = world.run();
        let Some(taken) = &outcome.recording else {
            return false;
        };
        let same = Failure::of(&outcome.verdict).as_ref() == Some(&self.failure);
        let size = |run: &Outcome, recording| (weight(recording), run.ended);
        let better = size(&outcome, taken) < size(&self.best, &self.recording())
            || outcome.ended < self.best.ended && settings != self.settings;
        if same && better {
            self.settings = settings.to_vec();
            self.best = outcome;
            (self.report)(&self.best);
        }
        same && better
    }

    /// Draws of the best run by stream, largest first.
    fn labels(&self) -> Vec<String> {
        let recording = self.recording();
        let open = recording.streams.iter().filter(|it| !is_fixed(it.0));
        let mut labels: Vec<(usize, String)> = open
            .map(|(label, values)| (values.iter().filter(|&&it| it > 0).count(), label.clone()))
            .filter(|it| it.0 > 0)
            .collect();
        labels.sort_by(|a, b| b.cmp(a));
        labels.into_iter().map(|it| it.1).collect()
    }

    /// A part of a stream of the best run changed by `change`.
    fn with(
        &self,
        label: &str,
        part: std::ops::Range<usize>,
        change: impl Fn(u64) -> u64,
    ) -> Option<Recording> {
        let mut recording = self.recording();
        let values = recording.streams.get_mut(label)?;
        let end = part.end.min(values.len());
        let part = values.get_mut(part.start..end)?;
        let before = part.to_vec();
        part.iter_mut().for_each(|value| *value = change(*value));
        (before != part).then_some(recording)
    }

    /// Fewer draws that are not zero: streams, then halves of streams, and so on.
    fn zeros(&mut self) {
        self.change(|_| 0);
    }

    /// Smaller draws.
    fn smaller(&mut self) {
        self.change(|value| value / 2);
    }

    fn change(&mut self, change: impl Fn(u64) -> u64 + Copy) {
        let settings = self.settings.clone();
        for parts in [1, 2, 4, 8, 16, 32] {
            for label in self.labels() {
                let values = self.recording();
                let len = values.streams.get(&label).map_or(0, Vec::len);
                if len < parts {
                    continue;
                }
                let size = len.div_ceil(parts);
                // The end first: what comes after the failure's cause is the most of it.
                for part in (0..parts).rev() {
                    if self.is_over() {
                        return;
                    }
                    let place = part * size..(part + 1) * size;
                    if let Some(recording) = self.with(&label, place, change) {
                        self.attempt(&recording, &settings);
                    }
                }
            }
        }
    }

    /// A shorter safety phase, down to seconds.
    fn times(&mut self) {
        let mut seconds = self.best.options.safety_max / crate::time::SECOND / 2;
        while seconds > 0 && !self.is_over() {
            let mut settings = self.settings.clone();
            settings.retain(|known| !known.starts_with("safety="));
            settings.push(format!("safety={seconds}"));
            let recording = self.recording();
            if !self.attempt(&recording, &settings) {
                return;
            }
            seconds /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Fit, Plan};

    fn failing() -> Outcome {
        let settings = ["mutation=superblock-is-not-written", "replicas=3"];
        let settings = settings.map(str::to_owned);
        let found = (1..20).find_map(|seed| {
            let outcome = crate::record(seed, Profile::Lite, &settings, false).expect("valid");
            Failure::of(&outcome.verdict).map(|_| outcome)
        });
        found.expect("the mutation is found")
    }

    #[test]
    fn draws_get_fewer_and_the_failure_stays_and_replays_exactly() {
        let failing = failing();
        let before = weight(failing.recording.as_ref().expect("recorded"));
        let budget = Budget {
            runs: 60,
            time: Duration::from_secs(60),
        };
        let mut last = before;
        let smaller = shrink_draws(&failing, budget, &mut |better| {
            let now = weight(better.recording.as_ref().expect("recorded"));
            last = now;
        });
        let smaller = smaller.expect("it runs").expect("it fails");
        let after = weight(smaller.recording.as_ref().expect("recorded"));
        assert_eq!(Failure::of(&smaller.verdict), Failure::of(&failing.verdict));
        assert!(after.0 * 4 < before.0 * 3, "{before:?} {after:?}");
        assert_eq!(last, after, "the best is kept");
        let plan = Plan::parse(&Plan::of(&smaller).write()).expect("a plan");
        let (outcome, fit) = plan.replay(false).expect("it runs");
        assert_eq!(fit, Fit::Same);
        assert_eq!(outcome.trace, smaller.trace);
    }

    #[test]
    fn a_search_without_time_keeps_what_it_was_given() {
        let failing = failing();
        let budget = Budget {
            runs: 60,
            time: Duration::ZERO,
        };
        let kept = shrink_draws(&failing, budget, &mut |_| panic!("nothing was run"));
        let kept = kept.expect("it runs").expect("it fails");
        assert_eq!(kept.recording, failing.recording);
        let passed = crate::run(1, Profile::Calm, &[], false).expect("valid");
        assert!(matches!(
            shrink_draws(&passed, budget, &mut |_| ()),
            Ok(None)
        ));
    }
}
