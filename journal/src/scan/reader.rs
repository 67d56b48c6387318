//! Reads a file in bounded pieces and goes on where a sector of it cannot be read.
//!
//! An unreadable sector is damage like a flipped bit: its bytes are unknown, not absent. It is
//! read twice, then stands for itself as a filler that no checksum accepts.

use std::collections::BTreeSet;

use biplane_wire::HEADER_SIZE;

use crate::disk::{DiskError, DiskErrorKind, DiskVerb, DiskView};
use crate::memory_disk::SECTOR_BYTES;
use crate::path::DiskPath;

/// Most bytes read at once.
pub(super) const READ_BYTES: usize = 1 << 20;

/// What stands for bytes that cannot be read. Not zero, which would mean "never written".
const FILLER: u8 = 0xa5;

/// The error code for a medium that does not give its data back.
const MEDIUM_ERROR: DiskErrorKind = DiskErrorKind::Io(Some(5));

/// One file, with a window on it for reading headers.
pub(super) struct Reader<'a> {
    view: &'a dyn DiskView,
    path: &'a DiskPath,
    file_len: u64,
    window_start: u64,
    window: Vec<u8>,
    unreadable: BTreeSet<u64>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(view: &'a dyn DiskView, path: &'a DiskPath, file_len: u64) -> Self {
        let (window, unreadable) = (Vec::new(), BTreeSet::new());
        Self {
            view,
            path,
            file_len,
            window_start: 0,
            window,
            unreadable,
        }
    }

    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Whether some sector of `[start, end)` could not be read.
    pub(super) fn is_unreadable(&self, start: u64, end: u64) -> bool {
        self.unreadable_sectors(start, end) > 0
    }

    /// Number of sectors of `[start, end)` that could not be read.
    pub(super) fn unreadable_sectors(&self, start: u64, end: u64) -> u64 {
        let sectors = start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        self.unreadable.range(sectors).count() as u64
    }

    /// The error that reading gave, if any sector at all could not be read.
    pub(super) fn medium_error(&self) -> Option<DiskError> {
        self.unreadable.first().map(|_| self.error(MEDIUM_ERROR))
    }

    /// The 256 bytes at `offset`; `None` when the file ends before.
    pub(super) fn header(&mut self, offset: u64) -> Result<Option<[u8; HEADER_SIZE]>, DiskError> {
        Ok(self
            .headers_from(offset)?
            .first_chunk::<HEADER_SIZE>()
            .copied())
    }

    /// The bytes from `offset` as far as they are at hand: at least a header, unless the file
    /// ends before, which gives none.
    pub(super) fn headers_from(&mut self, offset: u64) -> Result<&[u8], DiskError> {
        if self.file_len.saturating_sub(offset) < HEADER_SIZE as u64 {
            return Ok(&[]);
        }
        if offset < self.window_start || offset + HEADER_SIZE as u64 > self.window_end() {
            let wanted = (self.file_len - offset).min(READ_BYTES as u64) as usize;
            let mut window = std::mem::take(&mut self.window);
            window.resize(wanted, 0);
            self.read_piece(offset, &mut window)?;
            self.window = window;
            self.window_start = offset;
        }
        Ok(self.window.get(self.index(offset)..).unwrap_or_default())
    }

    fn window_end(&self) -> u64 {
        self.window_start + self.window.len() as u64
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.window_start).unwrap_or(usize::MAX)
    }

    /// Fills `buf` from `offset`, out of the window where it reaches, in pieces otherwise.
    pub(super) fn read_exact(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        if offset >= self.window_start && offset + buf.len() as u64 <= self.window_end() {
            let start = self.index(offset);
            buf.copy_from_slice(&self.window[start..start + buf.len()]);
            return Ok(());
        }
        let mut position = offset;
        for piece in buf.chunks_mut(READ_BYTES) {
            self.read_piece(position, piece)?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    fn read_piece(&mut self, position: u64, piece: &mut [u8]) -> Result<(), DiskError> {
        match self.view.read(self.path, position, piece) {
            Ok(read) if read == piece.len() => Ok(()),
            // A file that was longer a moment ago is changed by somebody else.
            Ok(_) => Err(self.error(DiskErrorKind::Io(None))),
            Err(error) if error.kind == MEDIUM_ERROR => self.read_sectors(position, piece),
            Err(error) => Err(error),
        }
    }

    fn read_sectors(&mut self, position: u64, piece: &mut [u8]) -> Result<(), DiskError> {
        let mut position = position;
        let mut rest = piece;
        while !rest.is_empty() {
            let in_sector = (SECTOR_BYTES - position % SECTOR_BYTES) as usize;
            let (part, after) = rest.split_at_mut(in_sector.min(rest.len()));
            let first = self.view.read(self.path, position, part);
            let again = first.or_else(|_| self.view.read(self.path, position, part));
            match again {
                Ok(read) if read == part.len() => {}
                Ok(_) => return Err(self.error(DiskErrorKind::Io(None))),
                Err(error) if error.kind == MEDIUM_ERROR => {
                    part.fill(FILLER);
                    self.unreadable.insert(position / SECTOR_BYTES);
                }
                Err(error) => return Err(error),
            }
            position += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn error(&self, kind: DiskErrorKind) -> DiskError {
        DiskError {
            verb: DiskVerb::Read,
            path: self.path.clone(),
            kind,
        }
    }
}
