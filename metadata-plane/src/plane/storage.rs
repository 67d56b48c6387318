//! The disk side of the plane: prepare log, superblock, snapshot file, and the order among them.
//!
//! A checkpoint is a sequence in which every step is durable before the next: the snapshot file
//! replaces the old one, the superblock names it, and only then the log gives up what the
//! snapshot covers. A crash between two steps leaves something that can be opened (protocol
//! specification, chapter 04, sections 5.2 and 5.6).

use std::sync::Arc;

use biplane_journal::{
    DiskCompletion, DiskError, DiskOp, DiskPath, DiskRequest, Identity, LoadedSuperblock, Persist,
    QueueId, Recovered, SuperblockFile, SuperblockRecord, Wal, WalConfig, WalError, WalOutput,
    snapshot_chunks,
};
use biplane_wire::{Checksum, Message, Op, PrepareHeader, View};

use super::config::OpenError;

/// Folder of the metadata plane.
const FOLDER: &str = "metadata";
/// Snapshot file within it.
const SNAPSHOT: &str = "metadata/snapshot.bin";
/// All queues of this plane have this bit and differ in the lowest.
const QUEUES: u64 = 1 << 61;
/// Ticks between two attempts to write a snapshot.
const SNAPSHOT_RETRY_TICKS: u32 = 100;
/// Token of the creation of the folder.
const TOKEN_FOLDER: u64 = 0;

const fn queue(number: u64) -> QueueId {
    QueueId(QUEUES | number)
}

/// Queue of the prepare log.
pub(super) const QUEUE_LOG: QueueId = queue(0);
/// Queue of the superblock.
const QUEUE_SUPERBLOCK: QueueId = queue(1);
/// Queue of the snapshot file.
const QUEUE_SNAPSHOT: QueueId = queue(2);

pub(super) fn folder() -> Result<DiskPath, OpenError> {
    Ok(DiskPath::new(FOLDER)?)
}

pub(super) fn snapshot_path() -> Result<DiskPath, OpenError> {
    Ok(DiskPath::new(SNAPSHOT)?)
}

/// A snapshot that is on disk, or is being put there.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    pub(crate) op: Op,
    pub(crate) payload: Arc<[u8]>,
    pub(crate) checksum: Checksum,
}

impl Saved {
    pub(crate) fn new(op: Op, payload: Arc<[u8]>) -> Self {
        let checksum = Checksum::of(&payload);
        Self {
            op,
            payload,
            checksum,
        }
    }
}

/// Where a checkpoint stands.
#[derive(Clone, Debug)]
enum Checkpoint {
    /// The snapshot file is being replaced.
    Writing(Saved),
    /// Replacing it failed; again when the ticks have passed.
    Waiting { saved: Saved, ticks: u32 },
    /// The superblock is to name the snapshot.
    Naming(Op),
}

/// The folder of the plane on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folder {
    /// Asked for.
    Creating,
    /// Could not be created; asked for again at the next tick.
    Missing,
    /// There.
    There,
}

/// What has become true on disk.
#[derive(Clone, Debug)]
pub(crate) enum StorageEvent {
    /// A prepare is durable.
    Appended { op: Op, checksum: Checksum },
    /// A prepare was not taken and left nothing behind.
    Refused { op: Op, checksum: Checksum },
    /// No op from here on can come back.
    Truncated { from: Op },
    /// The superblock holds these.
    ViewPersisted {
        view: View,
        log_view: View,
        commit_max: Op,
    },
    /// The snapshot file is replaced; the superblock does not name it yet.
    SnapshotWritten { op: Op },
    /// The superblock names the snapshot; the log may forget what it covers.
    Checkpointed { op: Op },
    /// The prepare log is done for.
    Failed(WalError),
}

/// The files of the plane.
pub(crate) struct Storage {
    wal: Wal,
    superblock: SuperblockFile,
    /// What the superblock is to hold.
    record: SuperblockRecord,
    /// The superblock is not persisted before its folder is there.
    folder: Folder,
    checkpoint: Option<Checkpoint>,
    saved: Option<Saved>,
    token: u64,
    /// Ticks since the superblock was last as it should be.
    stuck_ticks: u32,
    /// Ticks since the log last had room.
    full_ticks: u32,
    /// Ops up to here are drained from the log.
    log_floor: Op,
    log_slots: u64,
    log_outputs: Vec<WalOutput>,
    events: Vec<StorageEvent>,
}

/// What was found at boot.
pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) superblock: LoadedSuperblock,
    pub(super) log: Recovered,
    pub(super) log_config: WalConfig,
    pub(super) saved: Option<Saved>,
}

impl Storage {
    pub(super) fn open(found: &Found, disk: &mut Vec<DiskRequest>) -> Result<Self, OpenError> {
        let mut log_outputs = Vec::new();
        let wal = Wal::open(found.log_config.clone(), &found.log, &mut log_outputs);
        let superblock = SuperblockFile::open(&folder()?, QUEUE_SUPERBLOCK, &found.superblock)?;
        let fresh = || SuperblockRecord::fresh(found.identity);
        let mut record = found.superblock.record.unwrap_or_else(fresh);
        if let Some(saved) = &found.saved {
            record.checkpoint_op = saved.op;
            record.checkpoint_checksum = saved.checksum;
            record.commit_max = record.commit_max.max(saved.op);
        }
        let mut storage = Self {
            wal,
            superblock,
            record,
            folder: Folder::Missing,
            checkpoint: None,
            saved: found.saved.clone(),
            token: TOKEN_FOLDER,
            stuck_ticks: 0,
            full_ticks: 0,
            log_floor: found.log.floor.previous().unwrap_or(Op::ZERO),
            log_slots: found.log_config.slots_max,
            log_outputs,
            events: Vec::new(),
        };
        storage.create_folder(disk);
        storage.collect(disk);
        Ok(storage)
    }

    pub(super) fn owns(queue: QueueId) -> bool {
        [QUEUE_LOG, QUEUE_SUPERBLOCK, QUEUE_SNAPSHOT].contains(&queue)
    }

    /// The newest snapshot that is on disk.
    pub(crate) fn saved(&self) -> Option<&Saved> {
        self.saved.as_ref()
    }

    /// Events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<StorageEvent> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Ops that the log can take above the newest it holds.
    pub(crate) fn free_slots(&self) -> u64 {
        self.wal.free_slots()
    }

    /// Highest op that the log can take before it is drained again.
    pub(crate) fn op_limit(&self) -> Op {
        Op(self.log_floor.0.saturating_add(self.log_slots))
    }

    /// Whether a checkpoint is under way.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    pub(crate) fn append(&mut self, prepare: Message, disk: &mut Vec<DiskRequest>) {
        let header = *prepare.header::<PrepareHeader>();
        let (op, checksum) = (header.op(), header.frame.checksum());
        if self.wal.append(prepare, &mut self.log_outputs).is_err() {
            self.events.push(StorageEvent::Refused { op, checksum });
        }
        self.collect(disk);
    }

    pub(crate) fn truncate(&mut self, from: Op, disk: &mut Vec<DiskRequest>) {
        self.wal.truncate(from, &mut self.log_outputs);
        self.collect(disk);
    }

    pub(crate) fn persist_view(
        &mut self,
        view: View,
        log_view: View,
        commit_max: Op,
        disk: &mut Vec<DiskRequest>,
    ) {
        self.record.view = view;
        self.record.log_view = log_view;
        self.record.commit_max = self.record.commit_max.max(commit_max);
        self.persist(disk);
    }

    fn persist(&mut self, disk: &mut Vec<DiskRequest>) {
        if self.folder != Folder::There {
            return;
        }
        let record = self.record;
        if self.superblock.persist(record, disk) == Persist::AlreadyDurable {
            self.on_superblock(&record);
        }
    }

    /// Begins a checkpoint; the caller has made sure that none is under way.
    pub(crate) fn begin_checkpoint(&mut self, saved: Saved, disk: &mut Vec<DiskRequest>) {
        assert!(self.checkpoint.is_none(), "one checkpoint at a time");
        self.write_snapshot(saved, disk);
    }

    fn write_snapshot(&mut self, saved: Saved, disk: &mut Vec<DiskRequest>) {
        self.token += 1;
        let path = DiskPath::new(SNAPSHOT).expect("the path is legal");
        let data = snapshot_chunks(saved.payload.clone());
        let op = DiskOp::Replace { path, data };
        disk.push(DiskRequest {
            queue: QUEUE_SNAPSHOT,
            token: self.token,
            op,
        });
        self.checkpoint = Some(Checkpoint::Writing(saved));
    }

    pub(crate) fn complete(&mut self, completion: DiskCompletion, disk: &mut Vec<DiskRequest>) {
        if completion.queue == QUEUE_LOG {
            if let Err(error) = self.wal.complete(completion, &mut self.log_outputs) {
                self.events.push(StorageEvent::Failed(error));
            }
        } else if completion.queue == QUEUE_SUPERBLOCK {
            if let Some(durable) = self.superblock.complete(&completion, disk) {
                self.on_superblock(&durable);
            }
        } else if completion.token == TOKEN_FOLDER {
            self.on_folder(&completion, disk);
        } else if completion.token == self.token {
            self.on_snapshot(&completion, disk);
        }
        self.collect(disk);
    }

    fn on_folder(&mut self, completion: &DiskCompletion, disk: &mut Vec<DiskRequest>) {
        self.folder = if completion.result.is_ok() {
            Folder::There
        } else {
            Folder::Missing
        };
        self.persist(disk);
    }

    fn create_folder(&mut self, disk: &mut Vec<DiskRequest>) {
        self.folder = Folder::Creating;
        let path = DiskPath::new(FOLDER).expect("the path is legal");
        let op = DiskOp::CreateDirs { path };
        disk.push(DiskRequest {
            queue: QUEUE_SNAPSHOT,
            token: TOKEN_FOLDER,
            op,
        });
    }

    fn on_snapshot(&mut self, completion: &DiskCompletion, disk: &mut Vec<DiskRequest>) {
        let Some(Checkpoint::Writing(saved)) = self.checkpoint.take() else {
            return;
        };
        if completion.result.is_err() {
            self.checkpoint = Some(Checkpoint::Waiting {
                saved,
                ticks: SNAPSHOT_RETRY_TICKS,
            });
            return;
        }
        let op = saved.op;
        self.record.checkpoint_op = op;
        self.record.checkpoint_checksum = saved.checksum;
        self.record.commit_max = self.record.commit_max.max(op);
        self.saved = Some(saved);
        self.checkpoint = Some(Checkpoint::Naming(op));
        self.events.push(StorageEvent::SnapshotWritten { op });
        self.persist(disk);
    }

    fn on_superblock(&mut self, durable: &SuperblockRecord) {
        self.events.push(StorageEvent::ViewPersisted {
            view: durable.view,
            log_view: durable.log_view,
            commit_max: durable.commit_max,
        });
        if let Some(Checkpoint::Naming(op)) = self.checkpoint
            && durable.checkpoint_op == op
        {
            self.checkpoint = None;
            self.events.push(StorageEvent::Checkpointed { op });
        }
    }

    /// Lets the log forget the ops below `keep`.
    pub(crate) fn drain(&mut self, keep: Op, disk: &mut Vec<DiskRequest>) {
        self.wal.drain(keep, &mut self.log_outputs);
        self.log_floor = self.log_floor.max(keep.previous().unwrap_or(Op::ZERO));
        self.collect(disk);
    }

    pub(crate) fn tick(&mut self, disk: &mut Vec<DiskRequest>) {
        if self.folder == Folder::Missing {
            self.create_folder(disk);
        }
        self.superblock.tick(disk);
        self.wal.tick(&mut self.log_outputs);
        self.collect(disk);
        self.full_ticks = match self.wal.no_room() {
            Some(_) => self.full_ticks.saturating_add(1),
            None => 0,
        };
        let is_as_asked = self.superblock.durable() == Some(&self.record);
        self.stuck_ticks = if is_as_asked {
            0
        } else {
            self.stuck_ticks.saturating_add(1)
        };
        if let Some(Checkpoint::Waiting { ticks, .. }) = &mut self.checkpoint {
            *ticks = ticks.saturating_sub(1);
            if *ticks == 0
                && let Some(Checkpoint::Waiting { saved, .. }) = self.checkpoint.take()
            {
                self.write_snapshot(saved, disk);
            }
        }
    }

    /// Ticks for which the superblock has not been what it should be.
    pub(crate) fn stuck_ticks(&self) -> u32 {
        self.stuck_ticks
    }

    /// What the disk has no room for, while the log waits for some.
    pub(crate) fn no_room(&self) -> Option<&DiskError> {
        self.wal.no_room()
    }

    /// Ticks for which the log has found no room.
    pub(crate) fn full_ticks(&self) -> u32 {
        self.full_ticks
    }

    /// Sorts what the log said into requests and events.
    fn collect(&mut self, disk: &mut Vec<DiskRequest>) {
        for output in self.log_outputs.drain(..) {
            match output {
                WalOutput::Disk(request) => disk.push(request),
                WalOutput::Durable { op, checksum } => {
                    self.events.push(StorageEvent::Appended { op, checksum });
                }
                WalOutput::Truncated { from } => {
                    self.events.push(StorageEvent::Truncated { from });
                }
                WalOutput::Drained { .. } => {}
            }
        }
    }

    pub(crate) fn check_invariants(&self) {
        self.wal.check_invariants();
        assert!(
            self.record.log_view <= self.record.view,
            "a log view is a view that was"
        );
        if let Some(saved) = &self.saved {
            assert!(
                saved.op <= self.record.commit_max,
                "a snapshot holds committed ops"
            );
        }
    }
}
