//! Processor time and memory of the nodes under load, from `/proc`.

use std::fs;
use std::io;

use serde::Serialize;

/// Kernel ticks per second in `/proc/<pid>/stat`: fixed by the Linux ABI.
const CLOCK_TICKS: f64 = 100.0;

/// What a process has used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    cpu_seconds: f64,
    resident_megabytes: f64,
}

/// What a process used during the measured time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Usage {
    /// Process id.
    pub(super) pid: u32,
    /// Processor seconds, user and system.
    pub(super) cpu_seconds: f64,
    /// The same for each 10^9 bytes of payload, written and read together.
    pub(super) cpu_seconds_per_gigabyte: f64,
    /// Resident memory before the load, in 10^6 bytes.
    pub(super) resident_before: f64,
    /// And after it.
    pub(super) resident_after: f64,
}

impl Sample {
    /// Looks at a process.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Self::parse(&stat, &status)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable process table"))
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything; fields are counted behind it.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: f64 = resident.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            cpu_seconds: (ticks(11)? + ticks(12)?) / CLOCK_TICKS,
            resident_megabytes: kilobytes * 1024.0 / 1e6,
        })
    }

    /// Resident memory, in 10^6 bytes.
    pub(super) const fn resident_megabytes(&self) -> f64 {
        self.resident_megabytes
    }

    /// From this sample to `after`, while `bytes` of payload moved.
    pub(super) fn until(&self, after: &Self, pid: u32, bytes: u64) -> Usage {
        let cpu_seconds = after.cpu_seconds - self.cpu_seconds;
        Usage {
            pid,
            cpu_seconds,
            cpu_seconds_per_gigabyte: cpu_seconds / (bytes.max(1) as f64 / 1e9),
            resident_before: self.resident_megabytes,
            resident_after: after.resident_megabytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 10 0 0 0 250 150 0 0 20 0 3 0 100 1 2";
        let status = "Name:\ta\nVmRSS:\t    1000 kB\n";
        let sample = Sample::parse(stat, status).unwrap();
        assert!((sample.cpu_seconds - 4.0).abs() < 1e-9);
        assert!((sample.resident_megabytes - 1.024).abs() < 1e-9);
        assert!(Sample::parse("7 (a", status).is_none());
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.resident_megabytes > 1.0);
    }
}
