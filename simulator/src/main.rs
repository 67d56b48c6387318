//! The `simulate` program: seeds in, verdicts out.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use biplane_simulator::cli::{self, Arguments, EXIT_OWN_FAULT, Tally};
use biplane_simulator::{report, shrink};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}\n\n{}", cli::USAGE);
            return ExitCode::from(EXIT_OWN_FAULT);
        }
    };
    ExitCode::from(sweep(&arguments))
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
        for run in 0..arguments.runs {
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                break;
            }
            let seed = arguments.seed.wrapping_add(run);
            match cli::run_seed(arguments, seed, profile) {
                Ok(outcome) => {
                    tally.add(&outcome);
                    report_run(arguments, &outcome);
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
    if let Some(folder) = &arguments.bundles {
        let options = &outcome.options;
        let name = format!("{folder}/{}-{}.txt", options.profile.name(), options.seed);
        let text = cli::failure_bundle(outcome);
        match std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&name, text)) {
            Ok(()) => say(&format!("  bundle: {name}")),
            Err(error) => say(&format!("  no bundle: {error}")),
        }
    }
}
