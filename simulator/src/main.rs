//! The `simulate` program: seeds in, verdicts out.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use biplane_simulator::bundle::{self, SHRINK_RUNS};
use biplane_simulator::cli::{self, Arguments, EXIT_OWN_FAULT, Tally};
use biplane_simulator::history::History;
use biplane_simulator::plan::{Fit, Plan};
use biplane_simulator::{report, shrink};

/// Exit code of a check that looked at nothing.
const EXIT_VACUOUS: u8 = 4;
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
    let code = match (&arguments.plan, &arguments.history) {
        (Some(file), _) => replay(file, arguments.log),
        (None, Some(file)) => check_history(file),
        (None, None) => sweep(&arguments),
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
    let start = Instant::now();
    let limit = arguments
        .minutes
        .map(|minutes| Duration::from_secs(60 * minutes));
    let mut worst = 0;
    for &profile in &arguments.profiles {
        let began = Instant::now();
        let mut tally = Tally::default();
        let mut told = Instant::now();
        for run in 0..arguments.runs {
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                break;
            }
            let seed = arguments.seed.wrapping_add(run);
            match cli::run_seed(arguments, seed, profile) {
                Ok(outcome) => {
                    tally.add(&outcome);
                    report_run(arguments, &outcome);
                    if told.elapsed() >= PROGRESS_EVERY {
                        told = Instant::now();
                        let seconds = began.elapsed().as_secs_f64();
                        eprintln!(
                            "{}",
                            cli::progress(&tally, profile, arguments.runs, seconds)
                        );
                    }
                    if outcome.verdict.exit_code() != 0
                        && outcome.verdict.exit_code() != 4
                        && !arguments.keep_going
                    {
                        return outcome.verdict.exit_code();
                    }
                }
                Err(text) => {
                    say(&text);
                    return EXIT_OWN_FAULT;
                }
            }
        }
        say(tally
            .table(profile.name(), began.elapsed().as_secs_f64())
            .trim_end());
        if worst == 0 {
            worst = tally.exit_code();
        }
    }
    worst
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
    if let Some(folder) = &arguments.bundles {
        let runs = arguments.shrink.unwrap_or(SHRINK_RUNS);
        match bundle::write(outcome, Path::new(folder), runs) {
            Ok(place) => say(&format!("  bundle: {}", place.display())),
            Err(error) => say(&format!("  no bundle: {error}")),
        }
    }
}
