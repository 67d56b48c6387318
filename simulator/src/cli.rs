//! The command line: which seeds of which profile, for how long, and what to say about them.

use std::fmt::Write as _;

use crate::coverage::Counters;
use crate::frames::Frames;
use crate::mutations::{Expectation, MUTATIONS};
use crate::options::Profile;
use crate::world::{Outcome, Verdict};

/// Exit code of a misuse or of a fault of the simulator itself.
pub const EXIT_OWN_FAULT: u8 = 5;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// First seed.
    pub seed: u64,
    /// Profiles, run in turn.
    pub profiles: Vec<Profile>,
    /// Number of seeds per profile.
    pub runs: u64,
    /// Stop after this many minutes, whatever the number of runs. The profiles take turns.
    pub minutes: Option<u64>,
    /// Run every seed twice and compare.
    pub twice: bool,
    /// Print the log of each run.
    pub log: bool,
    /// Go on after a failure.
    pub keep_going: bool,
    /// Folder for bundles of failed runs.
    pub bundles: Option<String>,
    /// Make failing runs smaller, with this many more runs.
    pub shrink: Option<u64>,
    /// Run this plan instead of drawn seeds.
    pub plan: Option<String>,
    /// Check this recorded history instead of running anything.
    pub history: Option<String>,
    /// Look for these deliberate bugs, each from `runs` places, instead of running anything.
    pub mutations: Option<Vec<Expectation>>,
    /// Options set by hand, `key=value`.
    pub settings: Vec<String>,
}

/// How to call the program.
pub const USAGE: &str = "\
simulate [--seed N] [--profile NAME] [--runs K] [--minutes M] [--twice] [--log]
         [--set KEY=VALUE] [--shrink RUNS] [--keep-going] [--bundles DIR] [--no-bundles]
         [--smoke]
simulate --plan FILE [--log]
simulate --check-history FILE
simulate --mutations all|NAME,NAME [--runs K] [--set KEY=VALUE]

  --seed N       first seed: a number, or a commit hash of forty hex digits (default 1)
  --profile P    calm net clock crash disk transfer churn purge upkeep
                 correlated lite decay all phantom (default all);
                 several separated by commas, or all-profiles
  --runs K       seeds per profile, counting up from the first (default 1, with --minutes
                 as many as fit)
  --minutes M    stop after M minutes; several profiles take turns, seed by seed
  --twice        run each seed twice and compare the trace hashes
  --log          print what happened, event by event
  --keep-going   do not stop at the first failure
  --bundles DIR  where a failed run leaves its bundle (default target/simulator): verdict, plan,
                 shrunk plan, timeline, history of the clients, the command that repeats it
  --no-bundles   leave none
  --set K=V      override one option, e.g. replicas=3; may be repeated
  --shrink RUNS  make each failing run smaller, with at most so many more runs (default 120)
  --plan FILE    run a plan and say whether it still ends as it says
  --check-history FILE
                 look for an order that explains a recorded history, one line of JSON per call
                 and return
  --mutations N  look for deliberate bugs, each from K places (default 1): the seeds it took, as a
                 table; fails when one is not found within its budget
  --smoke        the fixed set of every change: a few seeds of each profile

Exit codes: 0 passed, 1 safety, 2 liveness, 3 panic, 4 vacuous, 5 misuse or own fault.
";

impl Arguments {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            seed: 1,
            profiles: vec![Profile::All],
            runs: 1,
            minutes: None,
            twice: false,
            log: false,
            keep_going: false,
            bundles: Some(BUNDLES.to_owned()),
            shrink: None,
            plan: None,
            history: None,
            mutations: None,
            settings: Vec::new(),
        };
        let mut words = words;
        let mut runs = None;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--seed" => arguments.seed = parse_seed(&value()?)?,
                "--profile" => arguments.profiles = parse_profiles(&value()?)?,
                "--runs" => runs = Some(parse_number(&value()?)?),
                "--minutes" => arguments.minutes = Some(parse_number(&value()?)?),
                "--bundles" => arguments.bundles = Some(value()?),
                "--no-bundles" => arguments.bundles = None,
                "--plan" => arguments.plan = Some(value()?),
                "--check-history" => arguments.history = Some(value()?),
                "--mutations" => arguments.mutations = Some(parse_mutations(&value()?)?),
                "--shrink" => arguments.shrink = Some(parse_number(&value()?)?),
                "--set" => arguments.settings.push(value()?),
                "--twice" => arguments.twice = true,
                "--log" => arguments.log = true,
                "--keep-going" => arguments.keep_going = true,
                "--smoke" => {
                    arguments.profiles = SMOKE.to_vec();
                    runs = Some(SMOKE_RUNS);
                }
                other => return Err(format!("unknown argument {other}")),
            }
        }
        // A minute has room for more than one.
        let unless_said = arguments.minutes.map_or(1, |_| u64::MAX);
        arguments.runs = runs.unwrap_or(unless_said);
        Ok(arguments)
    }
}

/// Where bundles go.
const BUNDLES: &str = "target/simulator";

/// Profiles of the smoke run.
const SMOKE: [Profile; 2] = [Profile::Calm, Profile::Lite];
/// Seeds per profile of the smoke run.
const SMOKE_RUNS: u64 = 20;

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    if text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(biplane_wire::xxh3(text.to_ascii_lowercase().as_bytes()));
    }
    parse_number(text)
}

fn parse_mutations(text: &str) -> Result<Vec<Expectation>, String> {
    if text == "all" {
        return Ok(MUTATIONS.to_vec());
    }
    let find = |name: &str| MUTATIONS.iter().find(|it| it.name == name).copied();
    let names = text.split(',');
    names
        .map(|name| find(name).ok_or(format!("unknown mutation {name}")))
        .collect()
}

fn parse_profiles(text: &str) -> Result<Vec<Profile>, String> {
    if text == "all-profiles" {
        return Ok(Profile::NAMED.map(|(profile, _)| profile).to_vec());
    }
    let parse = |name: &str| Profile::from_name(name).ok_or(format!("unknown profile {name}"));
    text.split(',').map(parse).collect()
}

/// Sums of a sweep.
#[derive(Debug, Default)]
pub struct Tally {
    /// Runs done.
    pub runs: u64,
    /// Runs by verdict.
    verdicts: std::collections::BTreeMap<&'static str, u64>,
    counters: Counters,
    frames: Frames,
    steps: u64,
    vacuous: u64,
    worst: u8,
    /// Seconds the runs took.
    pub seconds: f64,
}

impl Tally {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        *self.verdicts.entry(outcome.verdict.word()).or_default() += 1;
        self.counters.merge(&outcome.counters);
        self.frames.merge(&outcome.frames);
        match outcome.verdict {
            Verdict::Passed => {}
            Verdict::Vacuous(_) => self.vacuous += 1,
            _ if self.worst == 0 => self.worst = outcome.verdict.exit_code(),
            _ => {}
        }
    }

    /// The exit code of the sweep: one vacuous run in ten is allowed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.worst {
            0 if self.vacuous > 0 && (self.runs == 1 || self.vacuous * 10 > self.runs) => 4,
            worst => worst,
        }
    }

    /// Head of the lines of [`Tally::row`].
    #[must_use]
    pub fn head() -> String {
        format!(
            "{:<11} {:>7} {:>8} {:>8} {:>8} {:>8} {:>13} {:>9} {:>16} {:>11}",
            "profile",
            "runs",
            "passed",
            "vacuous",
            "failed",
            "excused",
            "virtual s",
            "seconds",
            "virtual s per s",
            "ops per s"
        )
    }

    /// A profile of a sweep on one line.
    #[must_use]
    pub fn row(&self, name: &str) -> String {
        let count = |word| self.verdicts.get(word).copied().unwrap_or(0);
        let (passed, vacuous) = (count("passed"), count("vacuous"));
        let excuses = self.counters.iter().filter(|it| it.0.starts_with("excuse"));
        let excused: u64 = excuses.map(|(_, count)| count).sum();
        let per_second = |count: u64| count as f64 / self.seconds.max(0.001);
        let virtual_seconds = self.counters.get("virtual seconds");
        format!(
            "{name:<11} {:>7} {passed:>8} {vacuous:>8} {:>8} {excused:>8} {virtual_seconds:>13} \
             {:>9.1} {:>16.0} {:>11.0}",
            self.runs,
            self.runs - passed - vacuous,
            self.seconds,
            per_second(virtual_seconds),
            per_second(self.counters.get("ops committed")),
        )
    }

    /// What happened in the runs of a profile.
    #[must_use]
    pub fn table(&self, name: &str) -> String {
        let mut text = format!(
            "{name}: {} runs in {:.1} s, {} steps, {:.0} steps per second\n",
            self.runs,
            self.seconds,
            self.steps,
            self.steps as f64 / self.seconds.max(0.001)
        );
        for (word, count) in &self.verdicts {
            let _ = writeln!(text, "{count:>10} {word}");
        }
        for (name, count) in self.counters.iter() {
            let _ = writeln!(text, "{count:>10} {name}");
        }
        text.push_str(&self.frames.table());
        text
    }
}

/// Runs one seed, twice if asked, and says what came of it.
///
/// # Errors
///
/// A setting that does not fit, or two runs of the seed that differ: a fault of the simulator or
/// of a core's determinism.
pub fn run_seed(arguments: &Arguments, seed: u64, profile: Profile) -> Result<Outcome, String> {
    let settings = &arguments.settings;
    let outcome = crate::run(seed, profile, settings, arguments.log)?;
    if arguments.twice {
        let again = crate::run(seed, profile, settings, false)?;
        if again.trace != outcome.trace || again.verdict != outcome.verdict {
            return Err(format!(
                "seed {seed} {} is not deterministic: {:016x} and {:016x}",
                profile.name(),
                outcome.trace,
                again.trace
            ));
        }
    }
    Ok(outcome)
}

/// Where a sweep stands, on one line: seeds done, virtual time, how fast, which marks were reached.
#[must_use]
pub fn progress(tally: &Tally, profile: Profile, runs: u64) -> String {
    let virtual_seconds = tally.counters.get("virtual seconds");
    let rate = virtual_seconds as f64 / tally.seconds.max(0.001);
    let of = match runs {
        u64::MAX => String::new(),
        runs => format!("/{runs}"),
    };
    let marks = MARKS.iter().filter(|name| tally.counters.get(name) > 0);
    let missing = MARKS.iter().filter(|name| tally.counters.get(name) == 0);
    let missing: Vec<&str> = missing.copied().collect();
    format!(
        "{} {}{of} seeds, {virtual_seconds} virtual s, {rate:.0} virtual s per s, {} of {} \
         marks; not yet: {}",
        profile.name(),
        tally.runs,
        marks.count(),
        MARKS.len(),
        missing.join(", ")
    )
}

/// What a sweep should have met before it means much.
const MARKS: [&str; 17] = [
    "view changes begun",
    "views started with uncommitted ops",
    "primaries deposed with work in flight",
    "suffixes truncated",
    "suffixes cut by a nack quorum",
    "sent: RepairPrepare",
    "sent: RangeEvicted",
    "transfers installed: metadata",
    "transfers installed: partition",
    "replicas readmitted",
    "all nodes down at once",
    "disk changes torn",
    "disk reads of damaged sectors",
    "sessions fenced",
    "revocations completed",
    "cores smaller than the cluster",
    "partitions fenced",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_and_nonsense_is_refused() {
        let parsed = parse("--seed 7 --profile lite,net --runs 3 --twice").expect("valid");
        assert_eq!((parsed.seed, parsed.runs, parsed.twice), (7, 3, true));
        assert_eq!(parsed.profiles, [Profile::Lite, Profile::Net]);
        assert_eq!(parse("--profile lite").expect("valid").runs, 1);
        let long = parse("--profile all-profiles --minutes 60").expect("valid");
        assert_eq!((long.runs, long.minutes), (u64::MAX, Some(60)));
        assert_eq!(long.profiles.len(), Profile::NAMED.len());
        let bugs = parse("--mutations no-election --runs 5").expect("valid");
        assert_eq!(bugs.mutations.map_or(0, |it| it.len()), 1);
        for wrong in [
            "--mutations nope",
            "--seed",
            "--seed x",
            "--profile nope",
            "--frobnicate",
            "--runs -1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_commit_hash_is_a_seed() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let seed = parse(&format!("--seed {hash}")).expect("valid").seed;
        assert_eq!(
            seed,
            parse(&format!("--seed {}", hash.to_uppercase()))
                .expect("valid")
                .seed
        );
    }
}
