//! An honest disk in memory: keeps what it was told to sync and, at a crash, loses what it was
//! not.
//!
//! Requests are executed in micro steps, so that a test can stop between the write and the sync
//! of one request: a `Replace` has four. [`MemoryDisk::crash`] asks for the fate of every write
//! and every change of a name that no sync has covered; whatever the answers, the result is a
//! state a real disk could have left behind. Faults are asked for by verb and path and are
//! otherwise absent: nothing here is random.

mod content;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use self::content::{Content, Node};
use crate::buffer::ReadBuffer;
use crate::disk::{
    Chunk, DirEntry, Disk, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskReply,
    DiskRequest, DiskVerb, DiskView, QueueId,
};
use crate::path::DiskPath;

/// The unit in which a write survives or not.
pub const SECTOR_BYTES: u64 = 512;

/// What an unsynced change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsyncedKind {
    /// Bytes of a file.
    Data,
    /// The length of a file.
    Length,
    /// A name: created, removed or renamed.
    Name,
}

/// A change that no sync has covered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// Ascending in the order the changes were made.
    pub id: u64,
    /// The path it was made under.
    pub path: DiskPath,
    /// What it changes.
    pub kind: UnsyncedKind,
    /// Sectors a data write touches; 1 for the other kinds.
    pub sectors: u64,
}

/// What a crash does to one unsynced change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It had reached the disk.
    Keep,
    /// It had not.
    Lose,
    /// Of a data write only these of its sectors had; a hole reads as zeros. Other changes are
    /// kept when the range has any sector.
    Torn {
        /// Sector numbers from the start of the write.
        keep: Range<u64>,
    },
}

/// A failure to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The micro step that fails. A `Replace` consists of `Write`, `Sync`, `Rename`, `SyncDir`.
    pub verb: DiskVerb,
    /// Only for requests about this path; `None` for all.
    pub path: Option<DiskPath>,
    /// The failure.
    pub kind: DiskErrorKind,
    /// How many matching steps succeed before.
    pub after: u32,
}

#[derive(Clone, Debug)]
struct Running {
    request: DiskRequest,
    step: usize,
    arrival: u64,
}

/// The in-memory disk. See the file's head.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    content: Content,
    queues: BTreeMap<QueueId, VecDeque<Running>>,
    faults: Vec<Fault>,
    arrivals: u64,
    steps_done: u64,
    steps_max: Option<u64>,
    shuffle: Option<u64>,
    finished: VecDeque<DiskCompletion>,
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, takes the next micro step from any queue, drawn from `seed`, instead of
    /// from the request that arrived first.
    pub fn shuffle(&mut self, seed: u64) {
        self.shuffle = Some(seed | 1);
    }

    /// Puts a file and its directories there, durably and at once.
    pub fn put(&mut self, path: &DiskPath, bytes: &[u8]) {
        self.content.put(path, bytes);
    }

    /// The content of a file as a reader sees it.
    #[must_use]
    pub fn get(&self, path: &DiskPath) -> Option<Vec<u8>> {
        let inode = self.content.inode(path).ok()?;
        Some(self.content.bytes(inode).to_vec())
    }

    /// Damages a byte of a file; false when there is none at `offset`.
    pub fn flip(&mut self, path: &DiskPath, offset: u64, mask: u8) -> bool {
        self.content.flip(path, offset, mask)
    }

    /// Lets a later micro step fail.
    pub fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Forgets the faults that have not struck.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Micro steps executed so far.
    #[must_use]
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Executes nothing beyond this number of micro steps, counted from the beginning.
    pub fn halt_after(&mut self, steps: u64) {
        self.steps_max = Some(steps);
    }

    /// The changes a crash would ask about, in the order they were made.
    #[must_use]
    pub fn unsynced(&self) -> Vec<Unsynced> {
        self.content.unsynced()
    }

    /// Requests submitted and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Power off and on: requests and completions vanish, faults and the step limit are
    /// forgotten, and each unsynced change meets the fate `choose` names.
    pub fn crash(&mut self, choose: &mut dyn FnMut(&Unsynced) -> Fate) {
        self.queues.clear();
        self.finished.clear();
        self.faults.clear();
        self.steps_max = None;
        self.content.crash(choose);
    }

    /// A crash that loses every unsynced change.
    pub fn crash_losing_all(&mut self) {
        self.crash(&mut |_| Fate::Lose);
    }

    /// A crash that loses none.
    pub fn crash_keeping_all(&mut self) {
        self.crash(&mut |_| Fate::Keep);
    }

    /// Executes one micro step; false when there is nothing to do or the step limit is reached.
    pub fn step(&mut self) -> bool {
        if self.steps_max.is_some_and(|max| self.steps_done >= max) {
            return false;
        }
        let Some(queue) = self.pick() else {
            return false;
        };
        let Some(mut running) = self.queues.get_mut(&queue).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.steps_done += 1;
        let plan = plan(&running.request.op);
        let result = match plan.get(running.step) {
            Some(step) => self.execute(*step, &running.request.op),
            None => Ok(DiskReply::Done),
        };
        running.step += 1;
        if result.is_ok() && running.step < plan.len() {
            self.queues.entry(queue).or_default().push_front(running);
            return true;
        }
        let op = &running.request.op;
        let result = result.map_err(|kind| fail(op.verb(), op.path(), kind));
        let token = running.request.token;
        self.finished.push_back(DiskCompletion {
            queue,
            token,
            result,
        });
        true
    }

    fn pick(&mut self) -> Option<QueueId> {
        self.queues.retain(|_, waiting| !waiting.is_empty());
        if let Some(state) = &mut self.shuffle {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            let count = self.queues.len() as u64;
            let index = usize::try_from(state.checked_rem(count)?).ok()?;
            return self.queues.keys().nth(index).copied();
        }
        let heads = self.queues.iter().filter_map(|(queue, waiting)| {
            waiting.front().map(|running| (running.arrival, *queue))
        });
        heads.min().map(|(_, queue)| queue)
    }

    fn strike(&mut self, verb: DiskVerb, path: &DiskPath) -> Option<DiskErrorKind> {
        let matching = |fault: &Fault| {
            fault.verb == verb && fault.path.as_ref().is_none_or(|wanted| wanted == path)
        };
        let index = self.faults.iter().position(matching)?;
        let fault = self.faults.get_mut(index)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        Some(self.faults.remove(index).kind)
    }

    fn execute(&mut self, step: Step, op: &DiskOp) -> Result<DiskReply, DiskErrorKind> {
        if let Some(kind) = self.strike(step.verb(), op.path()) {
            if let (Step::Sync, Ok(inode)) = (step, self.content.inode(&target(op)?)) {
                self.content.abandon(inode);
            }
            return Err(kind);
        }
        let content = &mut self.content;
        match (step, op) {
            (
                Step::Write,
                DiskOp::Write {
                    path, offset, data, ..
                },
            ) => {
                let inode = content.open_or_create(path)?;
                content.write(path, inode, *offset, gather(data));
            }
            (Step::Write, DiskOp::Replace { data, .. }) => {
                let temporary = target(op)?;
                let inode = content.create(&temporary)?;
                content.write(&temporary, inode, 0, gather(data));
            }
            (Step::Sync, _) => {
                let inode = content.inode(&target(op)?)?;
                content.sync(inode);
            }
            (Step::Truncate, DiskOp::Truncate { path, len }) => {
                let inode = content.inode(path)?;
                content.set_len(path, inode, *len);
            }
            (Step::Read, DiskOp::Read { path, offset, len }) => {
                let inode = content.inode(path)?;
                let mut buffer = ReadBuffer::zeroed(*len as usize);
                let read = read_at(content.bytes(inode), *offset, buffer.as_mut_bytes());
                buffer.truncate(read);
                return Ok(DiskReply::Data(buffer.freeze()));
            }
            (Step::Rename, DiskOp::Replace { path, .. }) => content.rename(&target(op)?, path)?,
            (Step::Rename, DiskOp::Rename { from, to }) => content.rename(from, to)?,
            (Step::Remove, DiskOp::Remove { path }) => match content.node(path) {
                Some(Node::Dir) => return Err(DiskErrorKind::WrongKind),
                Some(Node::File(_)) | None => content.unlink(path)?,
            },
            (Step::Remove, DiskOp::RemoveTree { path }) => content.unlink_tree(path)?,
            (Step::CreateDirs, DiskOp::CreateDirs { path }) => create_dirs(content, path)?,
            (Step::SyncDir, DiskOp::SyncDir { path }) => content.sync_dir(path)?,
            (Step::SyncDir, DiskOp::CreateDirs { path }) => {
                for dir in ancestors(path) {
                    content.sync_dir(&dir.parent().unwrap_or_else(DiskPath::root))?;
                }
            }
            (Step::SyncDir, _) => {
                content.sync_dir(&op.path().parent().unwrap_or_else(DiskPath::root))?;
            }
            _ => unreachable!("the plan of an operation has only its own steps"),
        }
        Ok(DiskReply::Done)
    }
}

impl Disk for MemoryDisk {
    fn submit(&mut self, request: DiskRequest) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let running = Running {
            request,
            step: 0,
            arrival,
        };
        self.queues
            .entry(running.request.queue)
            .or_default()
            .push_back(running);
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        while self.finished.is_empty() && self.step() {}
        self.finished.pop_front()
    }
}

impl DiskView for MemoryDisk {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        match self.content.inode(path) {
            Ok(inode) => Ok(Some(self.content.bytes(inode).len() as u64)),
            Err(DiskErrorKind::NotFound) => Ok(None),
            Err(kind) => Err(fail(DiskVerb::Read, path, kind)),
        }
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        let inode = self
            .content
            .inode(path)
            .map_err(|kind| fail(DiskVerb::Read, path, kind))?;
        Ok(read_at(self.content.bytes(inode), offset, buf))
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        self.content
            .list(path)
            .map_err(|kind| fail(DiskVerb::List, path, kind))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    CreateDirs,
    Read,
    Remove,
    Rename,
    Sync,
    SyncDir,
    Truncate,
    Write,
}

impl Step {
    fn verb(self) -> DiskVerb {
        match self {
            Self::CreateDirs => DiskVerb::CreateDirs,
            Self::Read => DiskVerb::Read,
            Self::Remove => DiskVerb::Remove,
            Self::Rename => DiskVerb::Rename,
            Self::Sync => DiskVerb::Sync,
            Self::SyncDir => DiskVerb::SyncDir,
            Self::Truncate => DiskVerb::Truncate,
            Self::Write => DiskVerb::Write,
        }
    }
}

/// The micro steps of an operation.
fn plan(op: &DiskOp) -> &'static [Step] {
    match op {
        DiskOp::Write { sync: false, .. } => &[Step::Write],
        DiskOp::Write { sync: true, .. } => &[Step::Write, Step::Sync],
        DiskOp::Sync { .. } => &[Step::Sync],
        DiskOp::Truncate { .. } => &[Step::Truncate, Step::Sync],
        DiskOp::Read { .. } => &[Step::Read],
        DiskOp::Replace { .. } => &[Step::Write, Step::Sync, Step::Rename, Step::SyncDir],
        DiskOp::Rename { .. } => &[Step::Rename],
        DiskOp::Remove { .. } | DiskOp::RemoveTree { .. } => &[Step::Remove],
        DiskOp::CreateDirs { .. } => &[Step::CreateDirs, Step::SyncDir],
        DiskOp::SyncDir { .. } => &[Step::SyncDir],
    }
}

/// The file whose content an operation writes: of a replacement, the temporary one.
fn target(op: &DiskOp) -> Result<DiskPath, DiskErrorKind> {
    match op {
        DiskOp::Replace { path, .. } => path
            .with_suffix(".tmp")
            .map_err(|_| DiskErrorKind::WrongKind),
        _ => Ok(op.path().clone()),
    }
}

fn gather(data: &[Chunk]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in data.iter().flat_map(Chunk::slices) {
        bytes.extend_from_slice(slice);
    }
    bytes
}

fn read_at(bytes: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = bytes.get(start..).unwrap_or(&[]);
    let count = rest.len().min(buf.len());
    buf[..count].copy_from_slice(&rest[..count]);
    count
}

/// `path` and the directories above it, outermost first, without the data folder.
fn ancestors(path: &DiskPath) -> Vec<DiskPath> {
    let mut dirs = Vec::new();
    let mut dir = Some(path.clone());
    while let Some(each) = dir.filter(|each| *each != DiskPath::root()) {
        dir = each.parent();
        dirs.push(each);
    }
    dirs.reverse();
    dirs
}

fn create_dirs(content: &mut Content, path: &DiskPath) -> Result<(), DiskErrorKind> {
    for dir in ancestors(path) {
        match content.node(&dir) {
            Some(Node::Dir) => {}
            Some(Node::File(_)) => return Err(DiskErrorKind::WrongKind),
            None => content.create_dir(&dir)?,
        }
    }
    Ok(())
}

fn fail(verb: DiskVerb, path: &DiskPath, kind: DiskErrorKind) -> DiskError {
    DiskError {
        verb,
        path: path.clone(),
        kind,
    }
}
