//! Processor time and memory of the nodes under load, as the operating system counts them.

use std::io;

use serde::Serialize;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// What a process has used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    cpu_seconds: f64,
    resident_megabytes: f64,
}

/// What a process used during the measured time.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Usage {
    /// Process id.
    pub(super) pid: u32,
    /// Processor seconds, user and system.
    pub(super) cpu_seconds: f64,
    /// The same for each 10^9 bytes of payload, written and read together.
    pub(super) cpu_seconds_per_gigabyte: f64,
    /// Resident memory at even distances of time, first when the load began and last at its end,
    /// in 10^6 bytes.
    pub(super) resident: Vec<f64>,
}

impl Sample {
    /// Looks at a process.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let system = look(ProcessesToUpdate::Some(&[Pid::from_u32(pid)]));
        let process = system.process(Pid::from_u32(pid));
        let process = process.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self {
            cpu_seconds: process.accumulated_cpu_time() as f64 / 1e3,
            resident_megabytes: process.memory() as f64 / 1e6,
        })
    }

    /// Processor seconds so far.
    pub(super) const fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    /// Resident memory, in 10^6 bytes.
    pub(super) const fn resident_megabytes(&self) -> f64 {
        self.resident_megabytes
    }
}

impl Usage {
    /// What `samples` of a process say, taken while `bytes` of payload moved; `None` without any.
    pub(super) fn of(pid: u32, samples: &[Sample], bytes: u64) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let cpu_seconds = last.cpu_seconds - first.cpu_seconds;
        Some(Self {
            pid,
            cpu_seconds,
            cpu_seconds_per_gigabyte: cpu_seconds / (bytes.max(1) as f64 / 1e9),
            resident: samples.iter().map(Sample::resident_megabytes).collect(),
        })
    }

    /// Least and most of the resident memory in the second half of the time: what does not grow
    /// has them close together, and none far above the first half's.
    pub(super) fn second_half(&self) -> (f64, f64) {
        let half = &self.resident[self.resident.len() / 2..];
        let least = half.iter().copied().fold(f64::INFINITY, f64::min);
        (least, half.iter().copied().fold(0.0, f64::max))
    }
}

/// Child processes in the order they were started.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let system = look(ProcessesToUpdate::All);
    let children = system.processes().iter().filter(|(_, process)| {
        // Threads are listed beside the processes they belong to.
        process.thread_kind().is_none() && process.parent() == Some(Pid::from_u32(parent))
    });
    let mut children: Vec<u32> = children.map(|(pid, _)| pid.as_u32()).collect();
    children.sort_unstable();
    children
}

/// Kills a process with SIGKILL.
pub(super) fn kill(pid: u32) -> io::Result<()> {
    let system = look(ProcessesToUpdate::Some(&[Pid::from_u32(pid)]));
    let killed = system
        .process(Pid::from_u32(pid))
        .map(sysinfo::Process::kill);
    match killed {
        Some(true) => Ok(()),
        Some(false) => Err(io::Error::last_os_error()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fn look(processes: ProcessesToUpdate<'_>) -> System {
    let mut system = System::new();
    let what = ProcessRefreshKind::nothing().with_cpu().with_memory();
    system.refresh_processes_specifics(processes, true, what);
    system
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn this_process_can_be_looked_at_and_one_that_is_not_there_cannot() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.resident_megabytes > 1.0);
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Sample::of(child.id()).is_err());
    }

    #[test]
    fn time_is_counted_from_the_first_sample_to_the_last() {
        let samples = [(1.0, 50.0), (2.0, 70.0), (2.5, 65.0), (4.0, 60.0)];
        let samples = samples.map(|(cpu_seconds, resident_megabytes)| Sample {
            cpu_seconds,
            resident_megabytes,
        });
        let usage = Usage::of(7, &samples, 2_000_000_000).unwrap();
        assert!((usage.cpu_seconds - 3.0).abs() < 1e-9);
        assert!((usage.cpu_seconds_per_gigabyte - 1.5).abs() < 1e-9);
        assert_eq!(usage.second_half(), (60.0, 65.0));
        assert!(Usage::of(7, &[], 1).is_none());
    }

    #[test]
    fn a_child_is_found() {
        let mut child = Command::new("sleep").arg("5").spawn().unwrap();
        let found = children(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }
}
