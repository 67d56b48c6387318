//! The `simulate` program: seeds in, verdicts out.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use biplane_simulator::bundle::{self, SHRINK_RUNS};
use biplane_simulator::cli::{self, Arguments, EXIT_OWN_FAULT, Tally};
use biplane_simulator::history::History;
use biplane_simulator::mutations::{Expectation, measure};
use biplane_simulator::plan::{Fit, Plan};
use biplane_simulator::{World, report, shrink};

/// Exit code of a check that looked at nothing.
const EXIT_VACUOUS: u8 = 4;
/// Events of each node that a failed run prints.
const LAST_EVENTS: usize = 12;
/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}\n\n{}", cli::USAGE);
            return ExitCode::from(EXIT_OWN_FAULT);
        }
    };
    let code = if let Some(file) = &arguments.plan {
        replay(file, arguments.log)
    } else if let Some(file) = &arguments.history {
        check_history(file)
    } else if let Some(known) = &arguments.mutations {
        find_mutations(known, &arguments)
    } else {
        sweep(&arguments)
    };
    ExitCode::from(code)
}

fn read<T>(file: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    match text.and_then(|text| parse(&text)) {
        Ok(read) => Some(read),
        Err(text) => {
            say(&format!("{file}: {text}"));
            None
        }
    }
}

/// Runs a plan again; the exit code is that of the run, or of a misfit.
fn replay(file: &str, log: bool) -> u8 {
    let Some(plan) = read(file, Plan::parse) else {
        return EXIT_OWN_FAULT;
    };
    match plan.replay(log) {
        Ok((outcome, fit)) => {
            say(&report::verdict_line(&outcome));
            if log {
                say(&report::bundle(&outcome));
            }
            match fit {
                Fit::Same => say("  as the plan says"),
                Fit::SameVerdict => say("  the verdict of the plan, on another way"),
                Fit::Differs(text) => {
                    say(&format!("  {text}"));
                    return EXIT_OWN_FAULT;
                }
            }
            outcome.verdict.exit_code()
        }
        Err(text) => {
            say(&text);
            EXIT_OWN_FAULT
        }
    }
}

/// Looks for an order in a recorded history.
fn check_history(file: &str) -> u8 {
    let Some(mut history) = read(file, History::parse) else {
        return EXIT_OWN_FAULT;
    };
    match history.check() {
        Ok(()) => {
            let checked = history.checked();
            say(&format!("an order explains {checked} operations"));
            u8::from(checked == 0) * EXIT_VACUOUS
        }
        Err(violation) => {
            say(&violation.to_string());
            1
        }
    }
}

/// Runs everything asked for; the exit code.
fn sweep(arguments: &Arguments) -> u8 {
    let mut sweep = Sweep {
        arguments,
        start: Instant::now(),
        told: Instant::now(),
        tallies: arguments
            .profiles
            .iter()
            .map(|_| Tally::default())
            .collect(),
    };
    let ended = sweep.run();
    sweep.report();
    let codes = sweep.tallies.iter().map(Tally::exit_code);
    let worst = codes
        .filter(|&code| code > 0)
        .min_by_key(|&code| match code {
            EXIT_VACUOUS => u8::MAX,
            code => code,
        });
    ended.or(worst).unwrap_or(0)
}

/// Runs of several profiles.
struct Sweep<'a> {
    arguments: &'a Arguments,
    start: Instant,
    told: Instant,
    tallies: Vec<Tally>,
}

impl Sweep<'_> {
    /// All runs; the exit code of one that ends the sweep.
    fn run(&mut self) -> Option<u8> {
        let profiles = self.arguments.profiles.len();
        let runs = self.arguments.runs;
        // With a limit of time the profiles take turns, or the last ones would get none.
        let in_turn = self.arguments.minutes.is_some();
        let (outer, inner) = match in_turn {
            true => (runs, profiles as u64),
            false => (profiles as u64, runs),
        };
        for first in 0..outer {
            for second in 0..inner {
                if self.is_over() {
                    return None;
                }
                let (profile, run) = match in_turn {
                    true => (second, first),
                    false => (first, second),
                };
                let ended = self.one(profile as usize, run);
                if ended.is_some() {
                    return ended;
                }
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        let minutes = self.arguments.minutes;
        let limit = minutes.map(|minutes| Duration::from_secs(60 * minutes));
        limit.is_some_and(|limit| self.start.elapsed() >= limit)
    }

    fn one(&mut self, index: usize, run: u64) -> Option<u8> {
        let arguments = self.arguments;
        let profile = arguments.profiles[index];
        let seed = arguments.seed.wrapping_add(run);
        let began = Instant::now();
        let outcome = match cli::run_seed(arguments, seed, profile) {
            Ok(outcome) => outcome,
            Err(text) => {
                say(&text);
                return Some(EXIT_OWN_FAULT);
            }
        };
        let tally = &mut self.tallies[index];
        tally.add(&outcome);
        tally.seconds += began.elapsed().as_secs_f64();
        report_run(arguments, &outcome);
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            eprintln!("{}", cli::progress(tally, profile, arguments.runs));
        }
        let code = outcome.verdict.exit_code();
        let ends = code != 0 && code != EXIT_VACUOUS && !arguments.keep_going;
        ends.then_some(code)
    }

    fn report(&self) {
        let profiles = self.arguments.profiles.iter();
        let done = profiles.zip(&self.tallies).filter(|it| it.1.runs > 0);
        for (profile, tally) in done.clone() {
            say(tally.table(profile.name()).trim_end());
        }
        say(&Tally::head());
        for (profile, tally) in done {
            say(&tally.row(profile.name()));
        }
    }
}

/// Looks for deliberate bugs; fails when one survives its budget.
fn find_mutations(known: &[Expectation], arguments: &Arguments) -> u8 {
    say(measure::HEAD);
    let mut code = 0;
    for expected in known {
        match measure::line(expected, arguments.runs, &arguments.settings) {
            Ok((line, survives)) => {
                say(&line);
                code = code.max(u8::from(survives));
            }
            Err(text) => {
                say(&text);
                return EXIT_OWN_FAULT;
            }
        }
    }
    code
}

/// Prints a line. A reader that went away is no reason to stop.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn report_run(arguments: &Arguments, outcome: &biplane_simulator::Outcome) {
    say(&report::verdict_line(outcome));
    if arguments.log {
        say(&report::bundle(outcome));
        return;
    }
    if outcome.verdict.exit_code() == 0 {
        return;
    }
    say(&format!("  {}", report::reproduce(outcome)));
    if let Some(runs) = arguments.shrink {
        let mut count = 0;
        let smaller = shrink::shrink(outcome.clone(), runs, &mut |_| count += 1);
        if let Some(smaller) = smaller {
            say(&format!(
                "  smaller after {count} steps: {}",
                report::verdict_line(&smaller)
            ));
            say(&format!("  {}", report::reproduce(&smaller)));
        }
    }
    if outcome.verdict.exit_code() == EXIT_VACUOUS {
        return;
    }
    let told = World::new(outcome.options.clone(), true).run();
    say(report::last_events(&told, LAST_EVENTS).trim_end());
    if let Some(folder) = &arguments.bundles {
        let runs = arguments.shrink.unwrap_or(SHRINK_RUNS);
        match bundle::write(outcome, Path::new(folder), runs) {
            Ok(place) => say(&format!("  bundle: {}", place.display())),
            Err(error) => say(&format!("  no bundle: {error}")),
        }
    }
}
