//! The files of one bare group: a superblock, and a prepare log where the policy needs one.

use biplane_journal::{
    AppendRefusal, DiskCompletion, DiskOp, DiskPath, DiskRequest, DiskView, Entry, Identity,
    Persist, QueueId, RecordForm, SuperblockFile, SuperblockRecord, Wal, WalConfig, WalOutput,
    load_superblock, recover,
};
use biplane_vsr::{Boot, Durability, Input, LogEntry, Start};
use biplane_wire::{GroupId, Message, Op, ReplicaId, View};

use super::{BareConfig, cluster};

/// Where the files of a group are.
pub(super) fn folder(group: GroupId) -> DiskPath {
    let name = if group.is_metadata() {
        "metadata".into()
    } else {
        format!("p{}", group.0)
    };
    DiskPath::new(&name).expect("letters and digits")
}

fn superblock_queue(index: u64) -> QueueId {
    QueueId(3 * index)
}

fn log_queue(index: u64) -> QueueId {
    QueueId(3 * index + 1)
}

fn folder_queue(index: u64) -> QueueId {
    QueueId(3 * index + 2)
}

/// What a completion means.
pub(super) struct Completed {
    /// What the superblock holds now.
    pub(super) durable: Option<Input>,
    /// What the log has to say.
    pub(super) events: Vec<WalOutput>,
}

/// The files of one group.
#[derive(Debug)]
pub(super) struct Store {
    index: u64,
    identity: Identity,
    superblock: SuperblockFile,
    /// The folder is created before anything is written into it.
    folder_ready: bool,
    waiting: Vec<DiskRequest>,
    wal: Option<Wal>,
    /// Whether anything of the group was found on the disk.
    found: bool,
}

impl Store {
    /// Reads what the disk holds of a group.
    pub(super) fn open(
        config: &BareConfig,
        index: u64,
        group: GroupId,
        durability: Durability,
        disk: &dyn DiskView,
        out: &mut Vec<DiskRequest>,
    ) -> Result<(Self, Boot), String> {
        let dir = folder(group);
        let replica = ReplicaId(config.replica);
        let identity = Identity {
            cluster: cluster(),
            replica,
            replica_count: config.replica_count,
        };
        let show = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.as_str());
        let loaded = load_superblock(disk, &dir, &identity).map_err(|error| show(&error))?;
        let superblock = SuperblockFile::open(&dir, superblock_queue(index), &loaded)
            .map_err(|error| show(&error))?;
        let mut outputs = Vec::new();
        let mut boot = Boot::fresh();
        let mut wal = None;
        if durability == Durability::Disk {
            let mut wal_config = WalConfig::metadata(log_queue(index), cluster(), 1 << 20, 1 << 20);
            wal_config.scope.group = group;
            if !group.is_metadata() {
                wal_config.form = RecordForm::Sealed;
            }
            wal_config.path = dir.join("journal.wal").map_err(|error| show(&error))?;
            let mut found = recover(&wal_config, disk, Op::ZERO).map_err(|error| show(&error))?;
            let recorded = loaded.record.as_ref();
            found.heed_commit(recorded.map_or(Op::ZERO, |record| record.commit_max));
            boot.log = found.entries.iter().map(log_entry).collect();
            boot.view = found.last_view();
            wal = Some(Wal::open(wal_config, &found, &mut outputs));
        }
        let used = loaded.record.is_some() || !boot.log.is_empty();
        if let Some(record) = &loaded.record {
            boot.view = record.view;
            boot.log_view = record.log_view;
            boot.commit_max = boot.commit_max.max(record.commit_max);
        }
        boot.start = match (config.replica_count, used) {
            (1, _) => Start::Single,
            (_, true) => Start::Used {
                await_transfer: false,
                view_floor: View(0),
            },
            (_, false) => Start::Fresh { view: View(0) },
        };
        if durability == Durability::Memory {
            boot.commit_max = Op::ZERO;
            boot.log_lost = used;
        }
        let create = DiskRequest {
            queue: folder_queue(index),
            token: 0,
            op: DiskOp::CreateDirs { path: dir },
        };
        out.push(create);
        let mut store = Self {
            index,
            identity,
            superblock,
            folder_ready: false,
            waiting: outputs.into_iter().filter_map(disk_request).collect(),
            wal,
            found: used,
        };
        if !used {
            store.persist(View(0), View(0), Op::ZERO, out);
        }
        Ok((store, boot))
    }

    pub(super) fn has_trace(&self) -> bool {
        self.found
    }

    pub(super) fn owns(&self, queue: QueueId) -> bool {
        queue.0 / 3 == self.index
    }

    fn pass(&mut self, mut requests: Vec<DiskRequest>, out: &mut Vec<DiskRequest>) {
        if self.folder_ready {
            out.append(&mut requests);
        } else {
            self.waiting.append(&mut requests);
        }
    }

    pub(super) fn persist(
        &mut self,
        view: View,
        log_view: View,
        commit_max: Op,
        out: &mut Vec<DiskRequest>,
    ) -> Persist {
        let mut record = SuperblockRecord::fresh(self.identity);
        record.view = view;
        record.log_view = log_view;
        record.commit_max = commit_max;
        let mut requests = Vec::new();
        let persist = self.superblock.persist(record, &mut requests);
        self.pass(requests, out);
        persist
    }

    /// Appends; what became durable by it at once is among the events. Refused with an error.
    pub(super) fn append(
        &mut self,
        prepare: Message,
        out: &mut Vec<DiskRequest>,
    ) -> Result<Vec<WalOutput>, AppendRefusal> {
        let mut outputs = Vec::new();
        let wal = self.wal.as_mut().expect("only groups with a log append");
        wal.append(prepare, &mut outputs)?;
        Ok(self.split(outputs, out))
    }

    pub(super) fn truncate(&mut self, from: Op, out: &mut Vec<DiskRequest>) -> Vec<WalOutput> {
        let mut outputs = Vec::new();
        let wal = self.wal.as_mut().expect("only groups with a log truncate");
        wal.truncate(from, &mut outputs);
        self.split(outputs, out)
    }

    /// Passes disk requests on and keeps the events.
    fn split(&mut self, outputs: Vec<WalOutput>, out: &mut Vec<DiskRequest>) -> Vec<WalOutput> {
        let (disk, events): (Vec<_>, Vec<_>) = outputs
            .into_iter()
            .partition(|output| matches!(output, WalOutput::Disk(_)));
        self.pass(disk.into_iter().filter_map(disk_request).collect(), out);
        events
    }

    pub(super) fn tick(&mut self, out: &mut Vec<DiskRequest>) {
        let mut requests = Vec::new();
        self.superblock.tick(&mut requests);
        self.pass(requests, out);
        let mut outputs = Vec::new();
        if let Some(wal) = &mut self.wal {
            wal.tick(&mut outputs);
        }
        let events = self.split(outputs, out);
        assert!(
            events.is_empty(),
            "a log that tries again has nothing to report yet"
        );
    }

    /// What a completion says: a durable view, events of the log, or the reason to stop.
    pub(super) fn complete(
        &mut self,
        completion: DiskCompletion,
        out: &mut Vec<DiskRequest>,
    ) -> Result<Completed, String> {
        let mut outputs = Vec::new();
        let mut requests = Vec::new();
        let mut durable = None;
        if completion.queue == folder_queue(self.index) {
            completion.result.map_err(|error| error.to_string())?;
            self.folder_ready = true;
            out.append(&mut self.waiting);
        } else if completion.queue == superblock_queue(self.index) {
            let written = self.superblock.complete(&completion, &mut requests);
            durable = written.map(|done| Input::ViewPersisted {
                view: done.view,
                log_view: done.log_view,
                commit_max: done.commit_max,
            });
        } else if let Some(wal) = &mut self.wal {
            wal.complete(completion, &mut outputs)
                .map_err(|error| error.to_string())?;
        }
        self.pass(requests, out);
        let events = self.split(outputs, out);
        Ok(Completed { durable, events })
    }

    pub(super) fn check_invariants(&self) {
        if let Some(wal) = &self.wal {
            wal.check_invariants();
        }
    }
}

fn disk_request(output: WalOutput) -> Option<DiskRequest> {
    match output {
        WalOutput::Disk(request) => Some(request),
        _ => None,
    }
}

fn log_entry(entry: &Entry) -> LogEntry {
    match entry {
        Entry::Intact(message) => LogEntry::Intact(message.clone()),
        Entry::Damaged(op) => LogEntry::Damaged(*op),
    }
}
