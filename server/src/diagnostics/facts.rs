//! Figures of the machine and of this process.

use std::path::PathBuf;

use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// What GetStats tells of the host. What the system does not tell is zero or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HostFacts {
    /// Processor use of this process, in percent of one core.
    pub(crate) cpu_percent: f32,
    /// Processor use of the machine, in percent of all cores.
    pub(crate) total_cpu_percent: f32,
    /// Resident memory of this process, in bytes.
    pub(crate) memory_bytes: u64,
    /// Memory of the machine, in bytes.
    pub(crate) total_memory_bytes: u64,
    /// Memory that is free or can be freed, in bytes.
    pub(crate) available_memory_bytes: u64,
    /// Bytes this process has read from disks.
    pub(crate) read_bytes: u64,
    /// Bytes this process has written to disks.
    pub(crate) written_bytes: u64,
    /// Free bytes on the disk of the data folder.
    pub(crate) free_disk_bytes: u64,
    /// Size of that disk, in bytes.
    pub(crate) total_disk_bytes: u64,
    /// Name of the host.
    pub(crate) hostname: String,
    /// Name of the operating system.
    pub(crate) os_name: String,
    /// Its version.
    pub(crate) os_version: String,
    /// Version of the kernel.
    pub(crate) kernel_version: String,
}

/// Keeps what figures over time are counted from.
#[derive(Debug)]
pub(super) struct Host {
    system: System,
    pub(super) folder: PathBuf,
}

impl Host {
    pub(super) fn new(folder: PathBuf) -> Self {
        let mut host = Self {
            system: System::new(),
            folder,
        };
        // Use is counted from one look to the next; this is the first.
        host.refresh();
        host
    }

    fn refresh(&mut self) -> Option<Pid> {
        self.system.refresh_cpu_usage();
        self.system
            .refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let own = sysinfo::get_current_pid().ok()?;
        let kind = ProcessRefreshKind::nothing()
            .with_cpu()
            .with_memory()
            .with_disk_usage()
            .without_tasks();
        self.system
            .refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, kind);
        Some(own)
    }

    pub(super) fn look(&mut self) -> HostFacts {
        let own = self.refresh();
        let mut facts = HostFacts {
            total_cpu_percent: self.system.global_cpu_usage(),
            total_memory_bytes: self.system.total_memory(),
            available_memory_bytes: self.system.available_memory(),
            hostname: System::host_name().unwrap_or_default(),
            os_name: System::name().unwrap_or_else(|| std::env::consts::OS.to_owned()),
            os_version: System::os_version().unwrap_or_default(),
            kernel_version: System::kernel_version().unwrap_or_default(),
            ..HostFacts::default()
        };
        if let Some(process) = own.and_then(|own| self.system.process(own)) {
            let disk = process.disk_usage();
            facts.cpu_percent = process.cpu_usage();
            facts.memory_bytes = process.memory();
            facts.read_bytes = disk.total_read_bytes;
            facts.written_bytes = disk.total_written_bytes;
        }
        if let Ok(disk) = rustix::fs::statvfs(&self.folder) {
            facts.free_disk_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            facts.total_disk_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        }
        facts
    }

    /// A line for each process of the machine, those with most memory first.
    pub(super) fn processes(&mut self) -> String {
        let kind = ProcessRefreshKind::nothing()
            .with_cpu()
            .with_memory()
            .without_tasks();
        self.system
            .refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        let mut processes: Vec<_> = self.system.processes().values().collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.memory()));
        let mut text = String::from("pid cpu% memory name\n");
        for process in processes {
            text.push_str(&format!(
                "{} {:.1} {} {}\n",
                process.pid(),
                process.cpu_usage(),
                process.memory(),
                process.name().to_string_lossy()
            ));
        }
        text
    }
}
