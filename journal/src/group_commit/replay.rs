//! What a crash left in the redo files, and files as they are with it.

use std::collections::BTreeMap;

use thiserror::Error;

use super::Writes;
use super::format::{BLOCK_BYTES, Batch, decode, redo_path, salt_of};
use crate::disk::{Chunk, DirEntry, DiskError, DiskView, ReadFileError, read_file};
use crate::path::DiskPath;

/// Longest redo file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The redo files cannot be believed: writes that were reported durable may be lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadFileError),
    /// A file does not begin as it was made.
    #[error("{path} is damaged: its first block is not what was written")]
    Head {
        /// The file.
        path: DiskPath,
    },
    /// A batch in front of a whole one is missing.
    #[error("{path} is damaged: batch {batch} of epoch {epoch} is missing and later ones are not")]
    Hole {
        /// The file.
        path: DiskPath,
        /// The epoch.
        epoch: u64,
        /// The first batch that is missing.
        batch: u64,
    },
}

/// Writes of the epochs that were not retired.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    writes: BTreeMap<DiskPath, Writes>,
    /// Files that are there, the older epoch first.
    files: Vec<DiskPath>,
}

impl Replay {
    /// Reads what the process before left.
    ///
    /// # Errors
    ///
    /// Damage: the reason for which a node must not go on from these files.
    pub fn read(view: &dyn DiskView) -> Result<Self, ReplayError> {
        let mut epochs: BTreeMap<u64, (DiskPath, Vec<Batch>)> = BTreeMap::new();
        let mut files: Vec<(Option<u64>, DiskPath)> = Vec::new();
        for path in [redo_path(0), redo_path(1)] {
            let Some(bytes) = read_file(view, &path, FILE_BYTES_MAX)? else {
                continue;
            };
            let mut newest = None;
            for batch in batches(bytes.as_bytes(), &path)? {
                newest = newest.max(Some(batch.head.epoch));
                let (_, found) = epochs
                    .entry(batch.head.epoch)
                    .or_insert_with(|| (path.clone(), Vec::new()));
                found.push(batch);
            }
            files.push((newest, path));
        }
        files.sort();
        let files: Vec<DiskPath> = files.into_iter().map(|(_, path)| path).collect();
        let heads = epochs.values().flat_map(|(_, found)| found);
        let retired = heads.map(|batch| batch.head.retired).max().unwrap_or(0);
        let newest = epochs.last_key_value().map_or(retired, |(epoch, _)| *epoch);
        let mut writes: BTreeMap<DiskPath, Writes> = BTreeMap::new();
        for epoch in retired + 1..=newest {
            let Some((path, found)) = epochs.remove(&epoch) else {
                let path = redo_path(epoch);
                if !files.contains(&path) {
                    // A file goes when every write of both is in place, the older one first: a
                    // crash came before the other went.
                    continue;
                }
                let batch = 0;
                return Err(ReplayError::Hole { path, epoch, batch });
            };
            for (batch, found) in (0..).zip(found) {
                if found.head.batch != batch {
                    return Err(ReplayError::Hole { path, epoch, batch });
                }
                for (path, offset, data) in found.writes {
                    writes
                        .entry(path)
                        .or_default()
                        .push((offset, vec![Chunk::from(data)]));
                }
            }
        }
        // Only what had a durable name is promised; a file without one has no place any more.
        let mut gone = Vec::new();
        for path in writes.keys() {
            if view.len(path).map_err(ReadFileError::from)?.is_none() {
                gone.push(path.clone());
            }
        }
        writes.retain(|path, _| !gone.contains(path));
        Ok(Self { writes, files })
    }

    /// `inner` with every write of this replay in place.
    #[must_use]
    pub fn view<'a>(&'a self, inner: &'a dyn DiskView) -> ReplayedView<'a> {
        static NONE: BTreeMap<DiskPath, Writes> = BTreeMap::new();
        ReplayedView::new(inner, [&self.writes, &NONE])
    }

    /// Files that have writes to be put in place.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn into_parts(self) -> (BTreeMap<DiskPath, Writes>, Vec<DiskPath>) {
        (self.writes, self.files)
    }
}

/// Every whole batch of a file, in the order they stand.
fn batches(bytes: &[u8], path: &DiskPath) -> Result<Vec<Batch>, ReplayError> {
    let block = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
    let salt = bytes.get(..block).and_then(salt_of);
    let salt = salt.ok_or_else(|| ReplayError::Head { path: path.clone() })?;
    let mut found = Vec::new();
    let mut at = block;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let batch = decode(rest, salt);
        let blocks = batch.as_ref().map_or(1, |batch| batch.blocks);
        found.extend(batch);
        at += block * usize::try_from(blocks).unwrap_or(1);
    }
    Ok(found)
}

/// Files with writes in place that they do not have yet.
pub struct ReplayedView<'a> {
    inner: &'a dyn DiskView,
    layers: [&'a BTreeMap<DiskPath, Writes>; 2],
}

impl<'a> ReplayedView<'a> {
    pub(super) fn new(
        inner: &'a dyn DiskView,
        layers: [&'a BTreeMap<DiskPath, Writes>; 2],
    ) -> Self {
        Self { inner, layers }
    }

    fn writes(&self, path: &DiskPath) -> impl Iterator<Item = &'a (u64, Vec<Chunk>)> {
        let found = self.layers.map(|layer| layer.get(path));
        found.into_iter().flatten().flatten()
    }

    fn len_with(&self, path: &DiskPath, len: u64) -> u64 {
        let ends = self.writes(path).map(|(at, data)| at + Chunk::total(data));
        ends.fold(len, u64::max)
    }
}

impl DiskView for ReplayedView<'_> {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        let len = self.inner.len(path)?;
        Ok(len.map(|len| self.len_with(path, len)))
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        let mut read = self.inner.read(path, offset, buf)?;
        for (start, data) in self.writes(path) {
            let mut at = *start;
            for slice in data.iter().flat_map(Chunk::slices) {
                read = read.max(place(slice, at, buf, offset, read));
                at += slice.len() as u64;
            }
        }
        Ok(read)
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        self.inner.list(path)
    }
}

/// Puts the part of `slice`, which stands at `at` in the file, that `buf`, which shows the file
/// from `offset`, has room for. Says how much of `buf` is filled then; a gap reads as zeros.
fn place(slice: &[u8], at: u64, buf: &mut [u8], offset: u64, filled: usize) -> usize {
    let from = at.max(offset);
    let to = (at + slice.len() as u64).min(offset + buf.len() as u64);
    if from >= to {
        return 0;
    }
    let index = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(usize::MAX);
    let target = index(from, offset)..index(to, offset);
    if filled < target.start {
        buf[filled..target.start].fill(0);
    }
    let end = target.end;
    buf[target].copy_from_slice(&slice[index(from, at)..index(to, at)]);
    end
}
