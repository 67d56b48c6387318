//! A node's process as the operating system sees it.

use std::fs;
use std::path::Path;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

fn look<T>(pid: u32, of: impl FnOnce(&sysinfo::Process) -> T) -> T {
    let (mut system, pid) = (System::new(), Pid::from_u32(pid));
    let what = ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    of(system.process(pid).expect("the process runs"))
}

/// Processor seconds a process has used, user and system.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    look(pid, |process| process.accumulated_cpu_time() as f64 / 1e3)
}

/// Open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    look(pid, |process| {
        process.open_files().expect("they can be counted")
    })
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
