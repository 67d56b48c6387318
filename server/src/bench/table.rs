//! `biplane bench table`: a cluster of three nodes on loopback, every load of the project's
//! targets several times, and a table of target against median.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use super::cluster::Cluster;
use super::options::{TableArgs, Workload};
use super::report::Report;
use super::{BenchError, measure, write};

/// Rest before each load, so that the disk has written what the last one left.
const REST: Duration = Duration::from_secs(2);

/// A figure that has a target.
struct Target {
    name: &'static str,
    target: &'static str,
    wanted: Wanted,
    load: fn() -> (Workload, &'static str),
    value: fn(&Report) -> Option<f64>,
}

/// Which side of a number is good; `Said` has no target and is only stated.
#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    Said,
}

impl Wanted {
    const fn verdict(self, value: f64) -> &'static str {
        match self {
            Self::AtLeast(limit) if value >= limit => "met",
            Self::AtMost(limit) if value <= limit => "met",
            Self::Said => "stated",
            _ => "missed",
        }
    }
}

fn one() -> (Workload, &'static str) {
    (Workload::Produce, "--producers 1")
}

fn four() -> (Workload, &'static str) {
    (Workload::Produce, "--producers 4")
}

fn small() -> (Workload, &'static str) {
    (Workload::Produce, "--producers 8 --batch 1 --size 100")
}

fn single() -> (Workload, &'static str) {
    (Workload::Produce, "--producers 1 --batch 10 --size 100")
}

fn consumers() -> (Workload, &'static str) {
    (Workload::Consume, "--consumers 4 --fill 100")
}

fn latency() -> (Workload, &'static str) {
    (Workload::Latency, "--batch 10 --size 100 --rate 1")
}

fn persisted() -> (Workload, &'static str) {
    (
        Workload::Produce,
        "--producers 16 --batch 10 --size 100 --durability persisted",
    )
}

/// A ratio of a report by the name of what is divided.
pub(super) fn ratio(report: &Report, figure: &str) -> Option<f64> {
    let found = report.ratios.iter().find(|ratio| ratio.figure == figure);
    found.map(|ratio| ratio.ratio)
}

fn cpu(report: &Report, node: usize) -> Option<f64> {
    Some(report.nodes.get(node)?.cpu_seconds_per_gigabyte)
}

const TARGETS: [Target; 14] = [
    Target {
        name: "1 producer, 1,000 x 1,000 B: bytes / raw stream",
        target: ">= 0.10",
        wanted: Wanted::AtLeast(0.10),
        load: one,
        value: |report| ratio(report, "produced bytes/s"),
    },
    Target {
        name: "4 producers, 1,000 x 1,000 B: bytes / raw stream",
        target: ">= 0.10",
        wanted: Wanted::AtLeast(0.10),
        load: four,
        value: |report| ratio(report, "produced bytes/s"),
    },
    Target {
        name: "8 producers, 1 x 100 B: requests / ping-pongs",
        target: ">= 1.5",
        wanted: Wanted::AtLeast(1.5),
        load: small,
        value: |report| ratio(report, "requests/s"),
    },
    Target {
        name: "1 producer, 10 x 100 B: p50 / ping-pong time",
        target: "<= 3.0",
        wanted: Wanted::AtMost(3.0),
        load: single,
        value: |report| ratio(report, "send p50"),
    },
    Target {
        name: "1 producer, 10 x 100 B: p99 / ping-pong time",
        target: "<= 6",
        wanted: Wanted::AtMost(6.0),
        load: single,
        value: |report| ratio(report, "send p99"),
    },
    Target {
        name: "4 consumers: bytes / raw stream",
        target: ">= 0.40",
        wanted: Wanted::AtLeast(0.40),
        load: consumers,
        value: |report| ratio(report, "consumed bytes/s"),
    },
    Target {
        name: "send to arrival, 10 x 100 B, p99, microseconds",
        target: "stated",
        wanted: Wanted::Said,
        load: latency,
        value: |report| Some(report.consume.as_ref()?.latency.p99),
    },
    Target {
        name: "16 persisted producers: commits / disk syncs",
        target: ">= 5",
        wanted: Wanted::AtLeast(5.0),
        load: persisted,
        value: |report| ratio(report, "commits/s"),
    },
    Target {
        name: "cpu s a GB, primary (1 producer)",
        target: "stated",
        wanted: Wanted::Said,
        load: one,
        value: |report| cpu(report, 0),
    },
    Target {
        name: "cpu s a GB, backups, larger (1 producer)",
        target: "stated",
        wanted: Wanted::Said,
        load: one,
        value: |report| Some(cpu(report, 1)?.max(cpu(report, 2)?)),
    },
    Target {
        name: "raw stream, MB/s",
        target: "stated",
        wanted: Wanted::Said,
        load: one,
        value: |report| Some(report.probes?.stream_megabytes_per_second),
    },
    Target {
        name: "ping-pong of 512 B, microseconds",
        target: "stated",
        wanted: Wanted::Said,
        load: single,
        value: |report| Some(report.probes?.ping_pong_micros),
    },
    Target {
        name: "memory copy, MB/s",
        target: "stated",
        wanted: Wanted::Said,
        load: one,
        value: |report| Some(report.probes?.copy_megabytes_per_second),
    },
    Target {
        name: "disk syncs a second",
        target: "stated",
        wanted: Wanted::Said,
        load: persisted,
        value: |report| Some(report.probes?.syncs_per_second),
    },
];

/// Largest resident size of an idle node, in 10^6 bytes.
const IDLE_MEGABYTES: f64 = 60.0;

/// Runs the table.
pub(super) fn run(args: &TableArgs) -> Result<(), BenchError> {
    let cluster = Cluster::start(&args.cluster, &[])?;
    // Idle is measured before anything has been asked of the cluster.
    thread::sleep(REST);
    let idle = cluster.resident_megabytes()?;
    let mut runs: Vec<((Workload, &str), Vec<Report>)> = Vec::new();
    for round in 1..=args.repetitions {
        for target in &TARGETS {
            let load = (target.load)();
            let at = match runs.iter().position(|(known, _)| *known == load) {
                Some(at) if runs[at].1.len() >= round as usize => continue,
                Some(at) => at,
                None => {
                    runs.push((load, Vec::new()));
                    runs.len() - 1
                }
            };
            eprintln!(
                "round {round} of {}: {:?} {}",
                args.repetitions, load.0, load.1
            );
            thread::sleep(REST);
            touch_memory(args.touch);
            runs[at].1.push(measure(cluster.load(load, args.seconds)?)?);
        }
    }
    drop(cluster);
    print!("{}", table(&runs, idle, args.repetitions));
    if let Some(path) = &args.json {
        let reports: Vec<&Report> = runs.iter().flat_map(|(_, reports)| reports).collect();
        let json = serde_json::to_string_pretty(&reports)
            .map_err(|error| BenchError::Options(error.to_string()))?;
        write(path, &json)?;
    }
    Ok(())
}

/// Has the machine back so much memory, which is free again afterwards.
fn touch_memory(gigabytes: u64) {
    let size = usize::try_from(gigabytes << 30).unwrap_or(0);
    std::hint::black_box(vec![1_u8; size]);
}

fn table(runs: &[((Workload, &str), Vec<Report>)], idle: f64, repetitions: u32) -> String {
    let mut out =
        String::from("| Figure | Target | Median | All | Verdict |\n|---|---|---|---|---|\n");
    for target in &TARGETS {
        let load = (target.load)();
        let reports = runs.iter().find(|(known, _)| *known == load);
        let mut values: Vec<f64> = reports
            .iter()
            .flat_map(|(_, reports)| reports.iter().filter_map(target.value))
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let Some(median) = values.get(values.len() / 2).copied() else {
            continue;
        };
        let all: Vec<String> = values.iter().map(|value| number(*value)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            target.name,
            target.target,
            number(median),
            all.join(", "),
            target.wanted.verdict(median)
        );
    }
    let verdict = Wanted::AtMost(IDLE_MEGABYTES).verdict(idle);
    let _ = writeln!(
        out,
        "| resident MB of an idle node, largest | <= 60 | {idle:.0} | | {verdict} |\n\n\
         {repetitions} repetitions; median of the sorted values."
    );
    out
}

/// A number with three digits that count.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::options::LoadArgs;

    #[test]
    fn a_verdict_depends_on_the_side_of_the_limit() {
        assert_eq!(Wanted::AtLeast(0.1).verdict(0.1), "met");
        assert_eq!(Wanted::AtLeast(0.1).verdict(0.09), "missed");
        assert_eq!(Wanted::AtMost(3.0).verdict(3.1), "missed");
        assert_eq!(Wanted::Said.verdict(7.0), "stated");
    }

    #[test]
    fn the_loads_of_the_targets_parse() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: LoadArgs,
        }
        for target in &TARGETS {
            let (_, words) = (target.load)();
            let line = Line::try_parse_from(["bench"].into_iter().chain(words.split_whitespace()));
            line.unwrap().args.check().unwrap();
        }
    }
}
