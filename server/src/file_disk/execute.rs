//! One disk request on the file system. Each operation keeps the promise written at its
//! [`DiskOp`] variant before it returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use biplane_journal::{Chunk, DiskError, DiskOp, DiskPath, DiskReply, ReadBuffer};

use super::direct::Direct;
use super::disk_error;
use super::handles::Handles;
use super::sync_meter::{SyncMeter, Synced};

/// Slices of one vectored write.
const SLICES_MAX: usize = 1024;

/// The state of one disk thread.
pub(super) struct Worker {
    root: PathBuf,
    handles: Handles,
    direct: Direct,
    meter: Arc<SyncMeter>,
}

impl Worker {
    pub(super) fn new(
        root: PathBuf,
        generation: Arc<AtomicU64>,
        handles_max: usize,
        meter: Arc<SyncMeter>,
    ) -> Self {
        Self {
            root,
            handles: Handles::new(generation, handles_max),
            direct: Direct::default(),
            meter,
        }
    }

    /// `of` is whose files the operation is about; `is_behind` when more of them wait than the
    /// disk keeps up with.
    pub(super) fn execute(
        &mut self,
        op: DiskOp,
        of: Synced,
        is_behind: bool,
    ) -> Result<DiskReply, DiskError> {
        let (verb, path) = (op.verb(), op.path().clone());
        self.run(op, of, is_behind)
            .map_err(|error| disk_error(verb, &path, &error))
    }

    fn run(&mut self, op: DiskOp, of: Synced, is_behind: bool) -> io::Result<DiskReply> {
        match op {
            DiskOp::Write {
                path,
                offset,
                data,
                sync,
            } => {
                let file = self.handles.get(&self.root, &path, true)?;
                let len = data.iter().map(Chunk::len).sum();
                let is_direct = !is_behind && self.direct.is_worth(len);
                if !is_direct || !self.direct.write(file, offset, &data)? {
                    write_at(file, offset, &data)?;
                }
                if sync {
                    self.meter.time(of, || file.sync_data())?;
                }
            }
            DiskOp::Sync { path } => {
                let file = self.handles.get(&self.root, &path, false)?;
                self.meter.time(of, || file.sync_data())?;
            }
            DiskOp::Truncate { path, len } => {
                let file = self.handles.get(&self.root, &path, false)?;
                file.set_len(len)?;
                self.meter.time(of, || file.sync_all())?;
            }
            DiskOp::Read { path, offset, len } => {
                let file = self.handles.get(&self.root, &path, false)?;
                // The file's length bounds the buffer: a request beyond the end costs nothing.
                let left = file
                    .metadata()?
                    .len()
                    .saturating_sub(offset)
                    .min(u64::from(len));
                let left = usize::try_from(left).unwrap_or(0);
                if self.direct.is_worth_reading(file, offset, left) {
                    return Ok(DiskReply::Data(self.direct.read(file, offset, left)?));
                }
                let mut buffer = ReadBuffer::zeroed(left);
                let read = read_at(file, offset, buffer.as_mut_bytes())?;
                buffer.truncate(read);
                return Ok(DiskReply::Data(buffer.freeze()));
            }
            DiskOp::Replace { path, data } => self.replace(&path, &data, of)?,
            DiskOp::Rename { from, to } => {
                fs::rename(self.real(&from), self.real(&to))?;
                self.handles.names_changed();
            }
            DiskOp::Remove { path } => {
                absent_is_fine(fs::remove_file(self.real(&path)))?;
                self.handles.names_changed();
            }
            DiskOp::RemoveTree { path } => {
                absent_is_fine(fs::remove_dir_all(self.real(&path)))?;
                self.handles.names_changed();
            }
            DiskOp::CreateDirs { path } => self.create_dirs(&path, of)?,
            DiskOp::SyncDir { path } => self.sync_dir(&self.real(&path), of)?,
        }
        Ok(DiskReply::Done)
    }

    fn real(&self, path: &DiskPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    fn replace(&mut self, path: &DiskPath, data: &[Chunk], of: Synced) -> io::Result<()> {
        let target = self.real(path);
        let temporary = self.root.join(format!("{path}.tmp"));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)?;
        write_at(&file, 0, data)?;
        self.meter.time(of, || file.sync_all())?;
        drop(file);
        fs::rename(&temporary, &target)?;
        self.handles.names_changed();
        self.sync_dir(parent_of(&target)?, of)
    }

    fn create_dirs(&self, path: &DiskPath, of: Synced) -> io::Result<()> {
        create_dirs(&self.root, path, |parent| self.sync_dir(parent, of))
    }

    fn sync_dir(&self, path: &Path, of: Synced) -> io::Result<()> {
        let directory = File::open(path)?;
        self.meter.time(of, || directory.sync_all())
    }
}

/// Creates what is missing from the top down, then makes each new name durable in its parent by
/// `sync`. In this order the first sync has the names of all of them in it on file systems with a
/// journal, and the others find their work done.
///
/// When that fails, what was made goes again: a repetition would find it there, and report durable
/// what nobody has synced.
fn create_dirs(
    root: &Path,
    path: &DiskPath,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut current = Some(path.clone());
    while let Some(directory) = current {
        let real = root.join(directory.as_str());
        if real.is_dir() {
            break;
        }
        current = directory.parent();
        missing.push(real);
    }
    let make = || {
        for directory in missing.iter().rev() {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        missing
            .iter()
            .try_for_each(|directory| sync(parent_of(directory)?))
    };
    make().inspect_err(|_| {
        for directory in &missing {
            // One that somebody uses by now stays.
            let _ = fs::remove_dir(directory);
        }
    })
}

fn parent_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes the chunks back to back from `offset` with as few calls as possible.
fn write_at(mut file: &File, offset: u64, data: &[Chunk]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = data
        .iter()
        .flat_map(Chunk::slices)
        .filter(|slice| !slice.is_empty())
        .map(IoSlice::new)
        .collect();
    file.seek(SeekFrom::Start(offset))?;
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let most = rest.len().min(SLICES_MAX);
        match file.write_vectored(&rest[..most]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from `offset` until `buf` is full or the file ends.
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    use std::os::unix::fs::FileExt as _;
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn folders_whose_names_could_not_be_synced_are_made_and_synced_again() {
        let root = tempfile::tempdir().expect("a folder");
        let path = DiskPath::new("a/b/c").expect("a path");
        for failing in 1..=3 {
            let calls = Cell::new(0);
            let sync = |_: &Path| {
                calls.set(calls.get() + 1);
                match calls.get() {
                    call if call == failing => Err(io::ErrorKind::StorageFull.into()),
                    _ => Ok(()),
                }
            };
            create_dirs(root.path(), &path, sync).expect_err("a sync fails");
            assert!(!root.path().join("a").exists(), "call {failing}");
        }
        let synced = Cell::new(0);
        let sync = |_: &Path| {
            synced.set(synced.get() + 1);
            Ok(())
        };
        create_dirs(root.path(), &path, sync).expect("all is well");
        create_dirs(root.path(), &path, sync).expect("nothing to do");
        assert!(root.path().join("a/b/c").is_dir());
        assert_eq!(synced.get(), 3);
    }
}
