//! The disk of a real node: requests of the planes executed on files by a few threads.
//!
//! Each queue belongs to one thread, so requests of a queue run in order; different queues run side
//! by side. Completions go to one channel that never refuses: a lost completion would be a lost
//! promise.

mod direct;
mod execute;
mod handles;
mod page_cache;
pub(crate) mod sync_meter;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use biplane_journal::{
    DirEntry, DiskCompletion, DiskError, DiskErrorKind, DiskPath, DiskRequest, DiskVerb, DiskView,
    GroupCommit, QueueId,
};
use crossbeam::channel;

use crate::mailbox::Post;
use execute::Worker;
use sync_meter::{SyncMeter, SyncTimes, Synced};

/// Open files one thread keeps at most, and at least.
const HANDLES_MAX: usize = 128;
const HANDLES_MIN: usize = 4;
/// Requests that may wait for a thread whose disk keeps up.
const WAITING_MAX: usize = 8;
/// Held while a process runs on the folder.
const LOCK: &str = "biplane.lock";

/// The data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be created or written.
    #[error("the data folder {} cannot be used: {source}", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("the data folder {} is in use by another process", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
}

/// The data folder, held exclusively for as long as this value lives.
#[derive(Debug)]
pub struct DataFolder {
    root: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder when it is missing and takes it for this process alone.
    ///
    /// # Errors
    /// [`FolderError`] with a sentence for the operator.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let unusable = |source| FolderError::Unusable {
            path: root.to_owned(),
            source,
        };
        fs::create_dir_all(root).map_err(unusable)?;
        let root = fs::canonicalize(root).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(LOCK))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(FolderError::InUse { path: root }),
            Err(fs::TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Deletes everything in the folder. The lock stays, so nobody else runs on it meanwhile.
    ///
    /// # Errors
    /// [`FolderError::Unusable`] for what cannot be deleted.
    pub fn empty(&self) -> Result<(), FolderError> {
        let unusable = |path: PathBuf| |source| FolderError::Unusable { path, source };
        let entries = fs::read_dir(&self.root).map_err(unusable(self.root.clone()))?;
        for entry in entries {
            let entry = entry.map_err(unusable(self.root.clone()))?;
            if entry.file_name() != LOCK {
                remove(&entry.path()).map_err(unusable(entry.path()))?;
            }
        }
        Ok(())
    }

    /// Deletes a folder below this one, if it is there, and makes it anew.
    ///
    /// # Errors
    /// [`FolderError::Unusable`].
    pub(crate) fn renew(&self, name: &str) -> Result<PathBuf, FolderError> {
        let path = self.root.join(name);
        let unusable = |source| FolderError::Unusable {
            path: path.clone(),
            source,
        };
        if path.symlink_metadata().is_ok() {
            remove(&path).map_err(unusable)?;
        }
        fs::create_dir_all(&path).map_err(unusable)?;
        Ok(path)
    }

    /// Absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Blocking reads, for opening.
    pub(crate) fn view(&self) -> FileView {
        FileView {
            root: self.root.clone(),
        }
    }
}

/// Deletes a file, a link, or a folder with what is in it.
fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// The threads.
#[derive(Debug)]
pub(crate) struct FileDisk {
    workers: Vec<channel::Sender<DiskRequest>>,
    threads: Vec<thread::JoinHandle<()>>,
    meter: Arc<SyncMeter>,
}

impl FileDisk {
    /// Starts `threads` threads on `folder`, and one more for the requests that everybody waits
    /// for; every request's completion goes to `completions`.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn start(
        folder: &DataFolder,
        threads: usize,
        completions: &Post<DiskCompletion>,
    ) -> io::Result<Self> {
        let generation = Arc::new(AtomicU64::new(0));
        let handles_max = handles_max(threads.max(1) + 1);
        let mut disk = Self {
            workers: Vec::new(),
            threads: Vec::new(),
            meter: Arc::default(),
        };
        for index in 0..=threads.max(1) {
            let (sender, requests) = channel::unbounded::<DiskRequest>();
            let mut worker = Worker::new(
                folder.path().to_owned(),
                Arc::clone(&generation),
                handles_max,
                Arc::clone(&disk.meter),
            );
            let completions = completions.clone();
            let thread = thread::Builder::new()
                .name(format!("disk-{index}"))
                .spawn(move || {
                    while let Ok(request) = requests.recv() {
                        let DiskRequest { queue, token, op } = request;
                        let is_behind = requests.len() > WAITING_MAX;
                        let result = worker.execute(op, Synced::of(queue), is_behind);
                        // The node is gone when nobody takes completions; there is nothing to
                        // promise.
                        completions.post(DiskCompletion {
                            queue,
                            token,
                            result,
                        });
                    }
                })?;
            disk.workers.push(sender);
            disk.threads.push(thread);
        }
        Ok(disk)
    }

    /// Hands a request to its queue's thread.
    pub(crate) fn submit(&self, request: DiskRequest) {
        let last = self.workers.len() - 1;
        let index = if GroupCommit::is_urgent(request.queue) {
            last
        } else {
            thread_of(request.queue, last)
        };
        // The threads end only after the senders are dropped, so this cannot fail.
        let _ = self.workers[index].send(request);
    }

    /// How long syncs took since the start.
    pub(crate) fn sync_times(&self) -> Vec<SyncTimes> {
        self.meter.times()
    }

    /// Executes what is queued and ends the threads.
    pub(crate) fn shut_down(self) {
        drop(self.workers);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// The thread of a queue, of `threads`. Groups have several queues with numbers in a row, and the
/// busiest of each would share a thread if the number itself decided.
fn thread_of(queue: QueueId, threads: usize) -> usize {
    let spread = queue.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    spread as usize % threads
}

/// Open files each of `threads` threads may keep: a quarter of what the process may have open is
/// for files, the rest for connections and for what is open only for a moment.
fn handles_max(threads: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    (limit / 4 / threads).clamp(HANDLES_MIN, HANDLES_MAX)
}

/// Blocking reads of a data folder.
#[derive(Debug, Clone)]
pub(crate) struct FileView {
    root: PathBuf,
}

impl FileView {
    fn real(&self, path: &DiskPath) -> PathBuf {
        self.root.join(path.as_str())
    }
}

impl DiskView for FileView {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        match fs::metadata(self.real(path)) {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
            Ok(_) => Err(DiskError {
                verb: DiskVerb::Read,
                path: path.clone(),
                kind: DiskErrorKind::WrongKind,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk_error(DiskVerb::Read, path, &error)),
        }
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        File::open(self.real(path))
            .and_then(|file| execute::read_at(&file, offset, buf))
            .map_err(|error| disk_error(DiskVerb::Read, path, &error))
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        let failed = |error: &io::Error| disk_error(DiskVerb::List, path, error);
        let entries = match fs::read_dir(self.real(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut list = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&error))?;
            let is_dir = entry.file_type().map_err(|error| failed(&error))?.is_dir();
            // A name no plane ever writes cannot be a plane's file.
            if let Ok(name) = entry.file_name().into_string() {
                list.push(DirEntry { name, is_dir });
            }
        }
        list.sort();
        Ok(list)
    }
}

/// An operating system error in the words of the journal crate.
fn disk_error(verb: DiskVerb, path: &DiskPath, error: &io::Error) -> DiskError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => DiskErrorKind::NotFound,
        // A limit on the size of files is a quota, too.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            DiskErrorKind::NoSpace
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            DiskErrorKind::Permission
        }
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => DiskErrorKind::WrongKind,
        _ => DiskErrorKind::Io(error.raw_os_error()),
    };
    DiskError {
        verb,
        path: path.clone(),
        kind,
    }
}

#[cfg(test)]
mod tests;
