//! A node's process as the operating system sees it.

use std::fs;
use std::path::Path;

/// Kernel ticks per second in `/proc/<pid>/stat`: fixed by the Linux ABI.
const CLOCK_TICKS: f64 = 100.0;

/// Processor seconds a process has used, user and system.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The name stands in parentheses and may hold anything; fields are counted behind it.
    let behind = stat.rfind(')').map_or("", |at| &stat[at + 1..]);
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / CLOCK_TICKS
}

/// Open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the process runs")
        .count()
}

/// Files and folders below a folder.
pub(crate) fn entries(folder: &Path) -> usize {
    let Ok(read) = fs::read_dir(folder) else {
        return 0;
    };
    read.flatten()
        .map(|entry| {
            1 + entry.file_type().map_or(0, |kind| {
                if kind.is_dir() {
                    entries(&entry.path())
                } else {
                    0
                }
            })
        })
        .sum()
}
