//! A hostile disk: unsynced bytes and names, latency, errors, damage.
//!
//! Implements the seam of the journal crate. Requests of one queue are executed in order, each
//! at a time that is drawn; requests of different queues overtake each other. Until it is
//! executed a request has no effect, unless the power fails while it runs: then a drawn part of
//! it had been done. Whoever drives the disk moves its time with [`VirtualDisk::run_until`].

mod content;
mod stray;
#[cfg(test)]
mod tests;
mod tree;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use biplane_journal::{
    Chunk, DirEntry, Disk, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskPath, DiskReply,
    DiskRequest, DiskVerb, DiskView, QueueId, ReadBuffer,
};

use self::content::Fates;
pub use self::content::{CrashMode, Damage, FileContent, SECTOR, Stray};
use self::tree::Tree;
use crate::prng::Prng;
use crate::time::Nanos;

/// How slow and how faulty a disk is. Probabilities in parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Shortest time of any operation.
    pub latency_min: Nanos,
    /// Mean of the time above it.
    pub latency_mean: Nanos,
    /// Mean of the extra time of operations that wait for stable storage.
    pub sync_mean: Nanos,
    /// Operations that take a hundred times as long.
    pub slow_parts: u32,
    /// Writes that fail without effect.
    pub write_error_parts: u32,
    /// Syncs that fail, with unknown effect.
    pub sync_error_parts: u32,
    /// Reads that fail once.
    pub read_error_parts: u32,
}

impl DiskOptions {
    /// Quick and without errors.
    #[must_use]
    pub const fn calm() -> Self {
        Self {
            latency_min: 20_000,
            latency_mean: 80_000,
            sync_mean: 400_000,
            slow_parts: 0,
            write_error_parts: 0,
            sync_error_parts: 0,
            read_error_parts: 0,
        }
    }
}

impl DiskOptions {
    /// Whether operations may fail by draw.
    #[must_use]
    pub const fn has_errors(&self) -> bool {
        self.write_error_parts > 0 || self.sync_error_parts > 0 || self.read_error_parts > 0
    }
}

/// What happened on a disk, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Requests executed.
    pub executed: u64,
    /// Requests that failed by draw.
    pub errors: u64,
    /// Unsynced changes a crash found.
    pub unsynced_at_crash: u64,
    /// Requests a crash interrupted.
    pub interrupted: u64,
    /// Sectors damaged.
    pub damaged: u64,
    /// Unsynced changes of which a crash kept a part, or garbage.
    pub torn: u64,
    /// Reads that met a damaged sector.
    pub damage_met: u64,
    /// Requests refused because the disk was full.
    pub refused: u64,
    /// Reads that met a write that went to another place, there or where it should be.
    pub misplaced_met: u64,
    /// Reads that brought the bytes of another place.
    pub misread: u64,
    /// Reads that met a write that never happened.
    pub unwritten_met: u64,
}

/// Changes whenever the durable bytes under a name do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    generation: u64,
}

#[derive(Debug)]
struct Waiting {
    request: DiskRequest,
    start: Nanos,
    due: Nanos,
}

/// The disk of one node. See the file's head.
#[derive(Debug)]
pub struct VirtualDisk {
    tree: Tree,
    options: DiskOptions,
    prng: Prng,
    now: Nanos,
    queues: BTreeMap<QueueId, VecDeque<Waiting>>,
    finished: VecDeque<DiskCompletion>,
    counts: DiskCounts,
    /// Whether names are never synced: a disk that lies.
    forgets_names: bool,
    /// See [`DiskCounts::damage_met`].
    damage_met: Cell<u64>,
    /// Reads that met a stray: misplaced, misread, unwritten.
    strays_met: [Cell<u64>; 3],
    /// Whether there is no room for more.
    full: bool,
    /// Whether logs keep what stood under their last writes.
    remembers: bool,
    /// Whether writes and syncs do not fail for now.
    spared: bool,
    /// Executed requests after which nothing more is executed until the crash.
    power_off_at: Option<u64>,
}

impl VirtualDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(options: DiskOptions, prng: Prng) -> Self {
        Self {
            tree: Tree::new(),
            options,
            prng,
            now: 0,
            queues: BTreeMap::new(),
            finished: VecDeque::new(),
            counts: DiskCounts::default(),
            forgets_names: false,
            damage_met: Cell::new(0),
            strays_met: Default::default(),
            full: false,
            remembers: false,
            spared: false,
            power_off_at: None,
        }
    }

    /// From now on names are as unsynced after a sync as before it.
    pub fn forget_names(&mut self) {
        self.forgets_names = true;
    }

    /// Executes nothing after its request number `executed` until it crashes: for crashes at an
    /// exact request.
    pub fn power_off_at(&mut self, executed: u64) {
        self.power_off_at = Some(executed);
    }

    /// Whether the request has been executed after which nothing more is.
    #[must_use]
    pub fn is_powered_off(&self) -> bool {
        self.power_off_at
            .is_some_and(|last| self.counts.executed >= last)
    }

    /// Other latencies and error rates from now on.
    pub fn set_options(&mut self, options: DiskOptions) {
        self.options = options;
    }

    /// Whether writes and syncs do not fail by draw for now.
    pub fn spare(&mut self, spared: bool) {
        self.spared = spared;
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        DiskCounts {
            damage_met: self.damage_met.get(),
            misplaced_met: self.strays_met[0].get(),
            misread: self.strays_met[1].get(),
            unwritten_met: self.strays_met[2].get(),
            ..self.counts
        }
    }

    /// When the next request is to be executed.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.queues
            .values()
            .filter_map(|queue| queue.front())
            .map(|head| head.due)
            .min()
    }

    /// Executes everything due by `now`, in the order it is due.
    pub fn run_until(&mut self, now: Nanos) {
        self.now = now;
        while !self.is_powered_off() {
            let heads = self
                .queues
                .iter()
                .filter_map(|(queue, waiting)| waiting.front().map(|head| (head.due, *queue)));
            let Some((due, queue)) = heads.min() else {
                return;
            };
            if due > now {
                return;
            }
            if let Some(waiting) = self.queues.get_mut(&queue) {
                let head = waiting.pop_front();
                if waiting.is_empty() {
                    self.queues.remove(&queue);
                }
                if let Some(head) = head {
                    self.finish(head.request);
                }
            }
        }
    }

    fn finish(&mut self, request: DiskRequest) {
        let DiskRequest { queue, token, op } = request;
        self.counts.executed += 1;
        let result = match self.strike(&op) {
            Some(kind) => Err(kind),
            None => self.execute(&op),
        };
        let result = result.map_err(|kind| DiskError {
            verb: op.verb(),
            path: op.path().clone(),
            kind,
        });
        self.finished.push_back(DiskCompletion {
            queue,
            token,
            result,
        });
    }

    /// An error by draw, with the effect it has.
    fn strike(&mut self, op: &DiskOp) -> Option<DiskErrorKind> {
        let options = self.options;
        let failed = DiskErrorKind::Io(Some(5));
        if self.spared && !matches!(op, DiskOp::Read { .. }) {
            return None;
        }
        if self.full && self.needs_room(op) {
            return Some(self.run_out_of_room(op));
        }
        match op {
            DiskOp::Read { .. } if self.prng.chance(options.read_error_parts) => {}
            DiskOp::Write {
                path,
                offset,
                data,
                sync: true,
            } if self.prng.chance(options.sync_error_parts) => {
                let file = self.tree.open_or_create(path).ok()?;
                file.write(*offset, gather(data));
                file.fail_sync();
            }
            DiskOp::Sync { path } if self.prng.chance(options.sync_error_parts) => {
                self.tree.file_mut(path).ok()?.fail_sync();
            }
            DiskOp::Write { .. } | DiskOp::Replace { .. }
                if self.prng.chance(options.write_error_parts) => {}
            _ => return None,
        }
        self.counts.errors += 1;
        Some(failed)
    }

    fn execute(&mut self, op: &DiskOp) -> Result<DiskReply, DiskErrorKind> {
        match op {
            DiskOp::Write {
                path,
                offset,
                data,
                sync,
            } => {
                let remembers = self.remembers && crate::fault_atlas::may_rot(path.as_str());
                let file = self.tree.open_or_create(path)?;
                file.remember(remembers);
                file.write(*offset, gather(data));
                if *sync {
                    file.sync();
                }
            }
            DiskOp::Sync { path } => self.tree.file_mut(path)?.sync(),
            DiskOp::Truncate { path, len } => {
                let file = self.tree.file_mut(path)?;
                file.set_len(*len);
                file.sync();
            }
            DiskOp::Read { path, offset, len } => {
                let file = self.tree.file(path)?;
                self.note_read(file, *offset, *len as usize);
                let mut buffer = ReadBuffer::zeroed(*len as usize);
                let read = file.read(*offset, buffer.as_mut_bytes());
                buffer.truncate(read.ok_or(DiskErrorKind::Io(Some(5)))?);
                return Ok(DiskReply::Data(buffer.freeze()));
            }
            DiskOp::Replace { path, data } if self.forgets_names => {
                self.tree.begin_replace(path, gather(data), true)?;
            }
            DiskOp::SyncDir { .. } if self.forgets_names => {}
            DiskOp::Replace { path, data } => self.tree.replace(path, gather(data))?,
            DiskOp::Rename { from, to } => self.tree.rename(from, to)?,
            DiskOp::Remove { path } => self.tree.remove(path, false)?,
            DiskOp::RemoveTree { path } => self.tree.remove(path, true)?,
            DiskOp::CreateDirs { path } => self.tree.create_dirs(path)?,
            DiskOp::SyncDir { path } => self.tree.sync_dir(path)?,
        }
        Ok(DiskReply::Done)
    }

    /// The part of a running operation that had been done when the power failed.
    fn interrupt(&mut self, op: &DiskOp) {
        // An error changes nothing here: the operation would have failed anyway.
        let _ = match op {
            DiskOp::Write {
                path, offset, data, ..
            } => {
                let written = self.tree.open_or_create(path);
                written.map(|file| file.write(*offset, gather(data)))
            }
            DiskOp::Truncate { path, len } => {
                self.tree.file_mut(path).map(|file| file.set_len(*len))
            }
            DiskOp::Replace { path, data } => {
                let renamed = self.prng.chance(500_000);
                self.tree.begin_replace(path, gather(data), renamed)
            }
            DiskOp::CreateDirs { .. } => self.execute(op).map(|_| ()),
            DiskOp::Rename { .. } | DiskOp::Remove { .. } | DiskOp::RemoveTree { .. } => {
                self.execute(op).map(|_| ())
            }
            DiskOp::Sync { .. } | DiskOp::SyncDir { .. } | DiskOp::Read { .. } => Ok(()),
        };
    }

    /// Power off and on. Requests vanish; of the running ones a drawn part had been done.
    pub fn crash(&mut self, mode: CrashMode) {
        let queues = std::mem::take(&mut self.queues);
        self.finished.clear();
        self.power_off_at = None;
        for mut waiting in queues.into_values() {
            let head = waiting.pop_front();
            let running = head.filter(|head| head.start <= self.now);
            if let Some(head) = running
                && self.prng.chance(500_000)
            {
                self.counts.interrupted += 1;
                self.interrupt(&head.request.op);
            }
        }
        let unsynced = self.tree.unsynced();
        self.counts.unsynced_at_crash += unsynced;
        let mut fates = Fates::new(mode, unsynced, &mut self.prng);
        self.tree.crash(&mut fates);
        self.counts.torn += fates.torn;
    }

    /// An empty disk in place of this one.
    pub fn wipe(&mut self) {
        self.queues.clear();
        self.finished.clear();
        self.tree = Tree::new();
    }

    /// The bytes of a file that a crash cannot take, with a version that changes with them.
    #[must_use]
    pub fn durable(&self, path: &DiskPath) -> Option<(&[u8], Version)> {
        let (inode, file) = self.tree.durable_file(path)?;
        Some((
            file.durable(),
            Version {
                inode,
                generation: file.generation(),
            },
        ))
    }

    /// Damages the sector of a file at `position`; false when there is none.
    pub fn damage(&mut self, path: &DiskPath, position: u64, damage: Damage) -> bool {
        let hit = self
            .tree
            .file_mut(path)
            .is_ok_and(|file| file.damage(position, damage));
        self.counts.damaged += u64::from(hit);
        hit
    }

    /// Takes all damage back, makes room and clears error rates.
    pub fn heal(&mut self) {
        self.full = false;
        self.tree.for_each_file(|_, file| file.heal());
        self.options.write_error_parts = 0;
        self.options.sync_error_parts = 0;
        self.options.read_error_parts = 0;
    }

    /// Files with their lengths and damaged sectors.
    pub fn inventory(&mut self) -> Vec<(String, u64, usize)> {
        let mut files = Vec::new();
        self.tree.for_each_file(|path, file| {
            files.push((path.to_owned(), file.size(), file.damaged()));
        });
        files
    }

    /// Whether a crash now would find requests running or changes unsynced.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.queues.is_empty() || self.tree.unsynced() > 0
    }

    fn note_read(&self, file: &FileContent, offset: u64, len: usize) {
        let met = u64::from(file.is_damaged(offset, len));
        self.damage_met.set(self.damage_met.get() + met);
        let strays = [Stray::Misplaced, Stray::Misread, Stray::Unwritten];
        for (count, why) in self.strays_met.iter().zip(strays) {
            count.set(count.get() + u64::from(file.meets(offset, len, why)));
        }
    }

    fn latency(&mut self, op: &DiskOp) -> Nanos {
        let waits = !matches!(
            op,
            DiskOp::Write { sync: false, .. }
                | DiskOp::Read { .. }
                | DiskOp::Rename { .. }
                | DiskOp::Remove { .. }
                | DiskOp::RemoveTree { .. }
        );
        let mut time = self.options.latency_min + self.prng.exponential(self.options.latency_mean);
        if waits {
            time += self.prng.exponential(self.options.sync_mean);
        }
        if self.prng.chance(self.options.slow_parts) {
            time *= 100;
        }
        time.max(1)
    }
}

impl Disk for VirtualDisk {
    fn submit(&mut self, request: DiskRequest) {
        let time = self.latency(&request.op);
        let waiting = self.queues.entry(request.queue).or_default();
        let start = waiting
            .back()
            .map_or(self.now, |last| last.due.max(self.now));
        waiting.push_back(Waiting {
            request,
            start,
            due: start + time,
        });
    }

    fn poll(&mut self) -> Option<DiskCompletion> {
        self.finished.pop_front()
    }
}

impl DiskView for VirtualDisk {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        match self.tree.file(path) {
            Ok(file) => Ok(Some(file.size())),
            Err(DiskErrorKind::NotFound) => Ok(None),
            Err(kind) => Err(DiskError {
                verb: DiskVerb::Read,
                path: path.clone(),
                kind,
            }),
        }
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        let fail = |kind| DiskError {
            verb: DiskVerb::Read,
            path: path.clone(),
            kind,
        };
        let file = self.tree.file(path).map_err(fail)?;
        self.note_read(file, offset, buf.len());
        file.read(offset, buf)
            .ok_or_else(|| fail(DiskErrorKind::Io(Some(5))))
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        let fail = |kind| DiskError {
            verb: DiskVerb::List,
            path: path.clone(),
            kind,
        };
        self.tree.list(path).map_err(fail)
    }
}

/// The durable side of a disk as an opening node would read it after losing all the rest.
#[derive(Clone, Copy, Debug)]
pub struct DurableView<'a>(pub &'a VirtualDisk);

impl DiskView for DurableView<'_> {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        Ok(self.0.durable(path).map(|(bytes, _)| bytes.len() as u64))
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        let fail = |kind| DiskError {
            verb: DiskVerb::Read,
            path: path.clone(),
            kind,
        };
        let (bytes, _) = self
            .0
            .durable(path)
            .ok_or_else(|| fail(DiskErrorKind::NotFound))?;
        let rest = bytes.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        self.0.list(path)
    }
}

fn gather(data: &[Chunk]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(Chunk::total(data) as usize);
    for slice in data.iter().flat_map(Chunk::slices) {
        bytes.extend_from_slice(slice);
    }
    bytes
}
