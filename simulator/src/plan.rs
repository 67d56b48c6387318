//! Plans: a run as a file that a person can read, run again, and make smaller.
//!
//! A plan names the seed, the profile and the settings, which together decide everything, and
//! says what came of it: the verdict, the trace hash, and each fault that struck as a concrete
//! event. A fault is taken out of the run by a `set skip=` line with its class and number. A
//! replay that no longer fits says so instead of passing.
//!
//! A *recorded* plan holds besides what was drawn in the run, stream by stream (see
//! [`crate::tape`]): the shape of the cluster, each delay and loss of each link, each tear of each
//! crash, each request of each client. Its replay has no generator; a later commit that asks for
//! the same in the same order gets the same run, whatever has become of the generator, the labels
//! of other streams, or the ranges options are drawn from.

use std::fmt::Write as _;

use crate::options::Profile;
use crate::prng::Streams;
use crate::tape::{self, Recording};
use crate::world::{Outcome, Verdict};

/// Version of the format without draws.
const VERSION: &str = "1";
/// Version of the format with draws.
const VERSION_RECORDED: &str = "2";

/// What a plan expects of its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Word of the verdict.
    pub word: String,
    /// The oracle that objects, for a verdict about safety.
    pub oracle: String,
    /// Trace hash; a plan kept as a regression has none, since any change moves it.
    pub trace: Option<u64>,
}

/// A plan. See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed.
    pub seed: u64,
    /// Profile.
    pub profile: Profile,
    /// Settings, `key=value`.
    pub settings: Vec<String>,
    /// What should come of it.
    pub expected: Expected,
    /// Faults that struck, `class.number at time`, for people.
    pub faults: Vec<String>,
    /// What was drawn, in a recorded plan.
    pub draws: Option<Recording>,
}

/// What a replay showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The verdict and, if the plan has one, the trace are those of the plan.
    Same,
    /// The verdict is the same, and what happened on the way is not.
    SameVerdict,
    /// The verdict is another one.
    Differs(String),
}

fn oracle_of(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Safety(violation) => violation.oracle.to_owned(),
        _ => String::new(),
    }
}

impl Plan {
    /// The plan of a run.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let options = &outcome.options;
        let faults = outcome.struck.iter().map(|strike| {
            let at = crate::time::show(strike.at);
            format!("{}.{} at {}", strike.class.name(), strike.number, at.trim())
        });
        Self {
            seed: options.seed,
            profile: options.profile,
            settings: options.overrides.clone(),
            expected: Expected {
                word: outcome.verdict.word().to_owned(),
                oracle: oracle_of(&outcome.verdict),
                trace: Some(outcome.trace),
            },
            faults: faults.collect(),
            draws: outcome.recording.clone(),
        }
    }

    /// The recorded plan of a run that was not recorded: it is run again.
    ///
    /// # Errors
    ///
    /// That the run was another one the second time, a fault of the simulator.
    pub fn recorded(outcome: &Outcome) -> Result<Self, String> {
        let options = &outcome.options;
        let again = crate::record(options.seed, options.profile, &options.overrides, false)?;
        if again.trace != outcome.trace {
            return Err(format!(
                "seed {} is not deterministic: {:016x} and {:016x}",
                options.seed, outcome.trace, again.trace
            ));
        }
        Ok(Self::of(&again))
    }

    /// The plan as text.
    #[must_use]
    pub fn write(&self) -> String {
        let version = match self.draws {
            Some(_) => VERSION_RECORDED,
            None => VERSION,
        };
        let mut text = format!(
            "plan {version}\nseed {}\nprofile {}\n",
            self.seed,
            self.profile.name()
        );
        for setting in &self.settings {
            let _ = writeln!(text, "set {setting}");
        }
        let _ = writeln!(
            text,
            "verdict {} {}",
            self.expected.word, self.expected.oracle
        );
        if let Some(trace) = self.expected.trace {
            let _ = writeln!(text, "trace {trace:016x}");
        }
        for fault in &self.faults {
            let _ = writeln!(text, "fault {fault}");
        }
        for (label, values) in self.draws.iter().flat_map(|draws| &draws.streams) {
            let _ = writeln!(text, "draws {label} {}", tape::encode(values));
        }
        text
    }

    /// Reads a plan. Lines that begin with `#` are remarks.
    ///
    /// # Errors
    ///
    /// The line that does not fit.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut seed, mut profile, mut expected) = (None, None, None);
        let (mut settings, mut faults, mut trace) = (Vec::new(), Vec::new(), None);
        let (mut version, mut draws) = (None, Recording::default());
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = || format!("not a line of a plan: {line}");
            match word {
                "plan" if [VERSION, VERSION_RECORDED].contains(&rest) => version = Some(rest),
                "plan" => return Err(format!("a plan of version {rest}")),
                "seed" => seed = Some(rest.parse().map_err(|_| wrong())?),
                "profile" => profile = Some(Profile::from_name(rest).ok_or_else(wrong)?),
                "set" => settings.push(rest.to_owned()),
                "verdict" => {
                    let (word, oracle) = rest.split_once(' ').unwrap_or((rest, ""));
                    expected = Some((word.to_owned(), oracle.to_owned()));
                }
                "trace" => {
                    let hash = u64::from_str_radix(rest, 16);
                    trace = Some(hash.map_err(|_| wrong())?);
                }
                "fault" => faults.push(rest.to_owned()),
                "draws" if version == Some(VERSION_RECORDED) => {
                    let (label, values) = rest.split_once(' ').ok_or_else(wrong)?;
                    let values = tape::decode(values)?;
                    draws.streams.insert(label.to_owned(), values);
                }
                _ => return Err(wrong()),
            }
        }
        let version = version.ok_or("no version")?;
        let (word, oracle) = expected.ok_or("no verdict")?;
        Ok(Self {
            seed: seed.ok_or("no seed")?,
            profile: profile.ok_or("no profile")?,
            settings,
            expected: Expected {
                word,
                oracle,
                trace,
            },
            faults,
            draws: (version == VERSION_RECORDED).then_some(draws),
        })
    }

    /// Runs it: a recorded plan from its draws alone, another one from its seed.
    ///
    /// # Errors
    ///
    /// A setting that does not fit any more.
    pub fn replay(&self, keep_log: bool) -> Result<(Outcome, Fit), String> {
        let streams = match &self.draws {
            Some(draws) => Streams::replayed(draws),
            None => Streams::new(self.seed),
        };
        let (seed, profile) = (self.seed, self.profile);
        let outcome = crate::run_from(streams, seed, profile, &self.settings, keep_log)?;
        let fit = self.fit(&outcome);
        Ok((outcome, fit))
    }

    fn fit(&self, outcome: &Outcome) -> Fit {
        if outcome.is_misfit {
            let at = crate::time::show(outcome.ended);
            let text = "the run asks for other draws than were recorded, from";
            return Fit::Differs(format!("{text} {} on", at.trim()));
        }
        let word = outcome.verdict.word();
        let oracle = oracle_of(&outcome.verdict);
        if word != self.expected.word || oracle != self.expected.oracle {
            return Fit::Differs(format!(
                "the plan ends in {} {}; this run ends in {word} {oracle}",
                self.expected.word, self.expected.oracle
            ));
        }
        match self.expected.trace {
            Some(trace) if trace != outcome.trace => Fit::SameVerdict,
            _ => Fit::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::tests::FORBIDDEN;

    fn failing() -> Outcome {
        let settings = ["mutation=answer-before-commit".to_owned()];
        let found = (1..20).find_map(|seed| {
            let outcome = crate::run(seed, Profile::Lite, &settings, false).expect("valid");
            (outcome.verdict.exit_code() == 1).then_some(outcome)
        });
        found.expect("the mutation is found")
    }

    #[test]
    fn a_plan_is_read_back_and_replays_to_the_same_end() {
        let plan = Plan::of(&failing());
        assert_eq!(Plan::parse(&plan.write()), Ok(plan.clone()));
        let (_, fit) = plan.replay(false).expect("it runs");
        assert_eq!(fit, Fit::Same);
        let mut moved = plan.clone();
        moved.expected.trace = Some(1);
        let (_, fit) = moved.replay(false).expect("it runs");
        assert_eq!(fit, Fit::SameVerdict);
        moved.settings.clear();
        let (_, fit) = moved.replay(false).expect("it runs");
        assert!(matches!(fit, Fit::Differs(_)));
    }

    #[test]
    fn recorded_plan_needs_no_generator() {
        for (seed, profile) in [
            (3, Profile::Lite),
            (4, Profile::All),
            (5, Profile::Transfer),
        ] {
            let settings = ["requests=60".to_owned()];
            let drawn = crate::run(seed, profile, &settings, false).expect("valid");
            let plan = Plan::recorded(&drawn).expect("the same run");
            assert_eq!(
                plan.expected.trace,
                Some(drawn.trace),
                "keeping changes nothing"
            );
            let text = plan.write();
            let plan = Plan::parse(&text).expect("a plan");
            FORBIDDEN.set(true);
            let replayed = plan.replay(false);
            FORBIDDEN.set(false);
            let (outcome, fit) = replayed.expect("it runs");
            assert_eq!(fit, Fit::Same, "{}", profile.name());
            assert_eq!(outcome.trace, drawn.trace);
            assert_eq!(outcome.counters, drawn.counters);
        }
    }

    #[test]
    fn recorded_plan_that_does_not_fit_says_so() {
        let settings = ["requests=40".to_owned()];
        let recorded = crate::record(3, Profile::Lite, &settings, false).expect("valid");
        let mut plan = Plan::of(&recorded);
        let draws = plan.draws.as_mut().expect("recorded");
        let link = draws.streams.get_mut("link/1").expect("a link");
        link.truncate(link.len() / 2);
        let (_, fit) = plan.replay(false).expect("it runs");
        assert!(matches!(fit, Fit::Differs(text) if text.contains("other draws")));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = "plan 1\n# a remark\nseed 7\nprofile net\nverdict passed\n";
        assert!(Plan::parse(good).is_ok());
        for wrong in [
            "seed 7\nprofile net\nverdict passed\n",
            "plan 3\nseed 7\nprofile net\nverdict passed\n",
            "plan 1\nseed 7\nprofile net\nverdict passed\ndraws a 1\n",
            "plan 2\nseed 7\nprofile net\nverdict passed\ndraws a x\n",
            "plan 1\nprofile net\nverdict passed\n",
            "plan 1\nseed x\nprofile net\nverdict passed\n",
            "plan 1\nseed 7\nprofile nope\nverdict passed\n",
            "plan 1\nseed 7\nprofile net\n",
            "plan 1\nseed 7\nprofile net\nverdict passed\nnonsense\n",
        ] {
            assert!(Plan::parse(wrong).is_err(), "{wrong}");
        }
    }
}
