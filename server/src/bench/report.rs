//! The figures of a run together, and the same as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::options::{DurabilityOption, Load, Workload};
use super::probe::Probes;
use super::record::{Figures, Percentiles};
use super::usage::Usage;

/// Everything a run found out; the JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Version of this program.
    pub(super) version: &'static str,
    /// Start of the run, seconds since 1970.
    pub(super) started: u64,
    /// What was run.
    pub(super) load: Load,
    /// Producers together.
    pub(super) produce: Option<Figures>,
    /// Consumers together. In a `latency` run its latency is from send to arrival.
    pub(super) consume: Option<Figures>,
    /// Raw probes: the better of before and after.
    pub(super) probes: Option<Probes>,
    /// Figures over probes.
    pub(super) ratios: Vec<Ratio>,
    /// The nodes' processes.
    pub(super) nodes: Vec<Usage>,
}

/// A figure over a raw probe of the same run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Ratio {
    /// What is divided.
    pub(super) figure: &'static str,
    /// By what.
    pub(super) probe: &'static str,
    /// The ratio.
    pub(super) ratio: f64,
}

/// The ratios that make sense for what was measured.
pub(super) fn ratios(
    load: &Load,
    produce: Option<&Figures>,
    consume: Option<&Figures>,
    probes: &Probes,
) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let mut add = |figure, value: f64, probe, by: f64| {
        ratios.push(Ratio {
            figure,
            probe,
            ratio: value / by,
        });
    };
    if let Some(figures) = produce {
        add(
            "produced bytes/s",
            figures.megabytes_per_second,
            "raw stream",
            probes.stream_megabytes_per_second,
        );
        add(
            "requests/s",
            figures.requests_per_second,
            "ping-pongs/s",
            probes.ping_pongs_per_second,
        );
        let latency = figures.latency;
        add(
            "send p50",
            latency.p50,
            "ping-pong time",
            probes.ping_pong_micros,
        );
        add(
            "send p99",
            latency.p99,
            "ping-pong time",
            probes.ping_pong_micros,
        );
        if load.args.durability == DurabilityOption::Persisted {
            add(
                "commits/s",
                figures.requests_per_second,
                "disk syncs/s",
                probes.syncs_per_second,
            );
        }
    }
    if let Some(figures) = consume {
        add(
            "consumed bytes/s",
            figures.megabytes_per_second,
            "raw stream",
            probes.stream_megabytes_per_second,
        );
        let (p50, p99) = match load.workload {
            Workload::Latency => ("send to arrival p50", "send to arrival p99"),
            _ => ("poll p50", "poll p99"),
        };
        add(
            p50,
            figures.latency.p50,
            "ping-pong time",
            probes.ping_pong_micros,
        );
        add(
            p99,
            figures.latency.p99,
            "ping-pong time",
            probes.ping_pong_micros,
        );
    }
    ratios
}

impl Report {
    /// The report for a terminal.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let load = &self.load;
        let options = &load.args;
        writeln!(
            out,
            "{:?}: {} producer(s), {} consumer(s), {} stream(s) x {} partition(s), {} x {} B a \
             request, {:?}, {} s",
            load.workload,
            load.producers(),
            load.consumers(),
            options.streams,
            load.partitions(),
            options.batch,
            options.size,
            options.durability,
            options.seconds
        )?;
        if let Some(figures) = &self.produce {
            role(out, "produce", "acknowledged after", figures)?;
        }
        if let Some(figures) = &self.consume {
            let what = match load.workload {
                Workload::Latency => "send to arrival",
                _ => "polled in",
            };
            role(out, "consume", what, figures)?;
        }
        for node in &self.nodes {
            let (least, most) = node.second_half();
            writeln!(
                out,
                "  node process {:<8} {:>8.2} s cpu, {:.2} s a GB; resident {:.0} MB at first, \
                 {least:.0} to {most:.0} MB in the second half",
                node.pid, node.cpu_seconds, node.cpu_seconds_per_gigabyte, node.resident[0],
            )?;
        }
        if let Some(probes) = &self.probes {
            writeln!(
                out,
                "  raw probes: stream {:.0} MB/s, ping-pong {:.0}/s (p50 {:.0} us), copy {:.0} \
                 MB/s, {:.0} disk syncs/s",
                probes.stream_megabytes_per_second,
                probes.ping_pongs_per_second,
                probes.ping_pong_micros,
                probes.copy_megabytes_per_second,
                probes.syncs_per_second
            )?;
        }
        for ratio in &self.ratios {
            writeln!(
                out,
                "  {:<22} / {:<16} = {:.3}",
                ratio.figure, ratio.probe, ratio.ratio
            )?;
        }
        Ok(())
    }
}

fn role(out: &mut String, name: &str, what: &str, figures: &Figures) -> std::fmt::Result {
    writeln!(
        out,
        "  {name}: {:.1} MB/s, {:.0} messages/s, {:.0} requests/s ({} requests, {} repeated, {} \
         empty polls)",
        figures.megabytes_per_second,
        figures.messages_per_second,
        figures.requests_per_second,
        figures.requests,
        figures.retries,
        figures.empty_polls
    )?;
    let Percentiles {
        min,
        p50,
        p95,
        p99,
        p999,
        max,
        mean,
    } = figures.latency;
    writeln!(
        out,
        "    {what}: p50 {p50:.0} us, p95 {p95:.0}, p99 {p99:.0}, p99.9 {p999:.0}, max {max:.0}, \
         min {min:.0}, mean {mean:.0}"
    )
}
