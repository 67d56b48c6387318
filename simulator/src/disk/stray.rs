//! A disk without room, and bytes that are not where they should be.

use std::ops::Range;

use biplane_journal::{Chunk, DiskErrorKind, DiskOp, DiskPath};

use super::content::{FileContent, Stray};
use super::{VirtualDisk, gather};

impl VirtualDisk {
    /// Whether an operation takes up more of the disk than there is in use.
    pub(super) fn needs_room(&self, op: &DiskOp) -> bool {
        match op {
            DiskOp::Write {
                path, offset, data, ..
            } => {
                let size = self.tree.file(path).map_or(0, FileContent::size);
                offset + Chunk::total(data) > size
            }
            DiskOp::Replace { .. } => true,
            DiskOp::CreateDirs { path } => self.tree.list(path).is_ok_and(|it| it.is_empty()),
            _ => false,
        }
    }

    /// A write ends where the room ends, which may be before its first byte.
    pub(super) fn run_out_of_room(&mut self, op: &DiskOp) -> DiskErrorKind {
        self.counts.refused += 1;
        if let DiskOp::Write {
            path, offset, data, ..
        } = op
            && let Ok(file) = self.tree.file_mut(path)
            && self.prng.chance(500_000)
        {
            let mut bytes = gather(data);
            let room = file.size().saturating_sub(*offset);
            let fits = room
                + self
                    .prng
                    .below(bytes.len() as u64 - room.min(bytes.len() as u64) + 1);
            bytes.truncate(fits as usize);
            if !bytes.is_empty() {
                file.write(*offset, bytes);
            }
        }
        DiskErrorKind::NoSpace
    }

    /// There is no more room, or there is again.
    pub fn fill(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether there is no more room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Logs keep what stood under their last writes from now on, for [`VirtualDisk::unwrite`].
    pub fn remember(&mut self) {
        self.remembers = true;
    }

    fn settled(&mut self, path: &DiskPath, place: &Range<u64>) -> Option<&mut FileContent> {
        let file = self.tree.file_mut(path).ok()?;
        file.is_settled(place).then_some(file)
    }

    /// The bytes at a place of a file, if a crash cannot take them.
    #[must_use]
    pub fn bytes_at(&self, path: &DiskPath, place: &Range<u64>) -> Option<Vec<u8>> {
        let file = self.tree.file(path).ok()?;
        let bytes = file
            .durable()
            .get(place.start as usize..place.end as usize)?;
        file.is_settled(place).then(|| bytes.to_vec())
    }

    /// What was written last at a place never was: reads bring what stood there before. False
    /// when a crash could take it anyway.
    pub fn unwrite(&mut self, path: &DiskPath, place: &Range<u64>, why: Stray) -> bool {
        let Some(file) = self.settled(path, place) else {
            return false;
        };
        let before = file.before(place);
        file.stray(place.start, &before, why);
        true
    }

    /// Reads of a place bring other bytes, from its beginning on. False when a crash could take
    /// what is there.
    pub fn misplace(
        &mut self,
        path: &DiskPath,
        place: &Range<u64>,
        bytes: &[u8],
        why: Stray,
    ) -> bool {
        let len = bytes.len().min((place.end - place.start) as usize);
        let Some(file) = self.settled(path, place) else {
            return false;
        };
        file.stray(place.start, &bytes[..len], why);
        true
    }
}
