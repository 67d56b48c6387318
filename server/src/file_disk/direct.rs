//! Large writes and reads around the page cache.
//!
//! What a plane flushes is rarely read from the file: consumers that keep up are served from
//! memory. Copied into the page cache, each of its pages must be found, backed by the host when it
//! was never used, tracked, written back and thrown out again, which costs more than the bytes. So
//! the whole blocks of a large write go from an aligned buffer straight to the disk.
//!
//! A block that the write shares with what is before it is written again with it, so that after a
//! loss of power no block is missing in front of one that is there; the operating system writes
//! what it has of that block first. The bytes behind the last whole block take the usual way.
//!
//! The page cache takes a burst faster than most disks, so whoever has requests waiting uses it.
//!
//! So what a peer catches up with is rarely in the page cache, and is read once. A large read of
//! which the page cache has all comes from there; any other comes around it as well.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use biplane_journal::{Chunk, ReadBuffer, ReadBytes};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::execute::read_at;
use super::page_cache;

/// Position, length and memory of such a write are multiples of this: no disk in use has larger
/// blocks, and it is the size of a page.
const BLOCK: usize = 4096;
/// Smaller writes and reads gain nothing.
const WORTH: usize = 256 << 10;
/// Bytes of one system call.
const PIECE: usize = 1 << 20;

/// The buffer of one disk thread for writes.
#[derive(Debug, Default)]
pub(super) struct Direct {
    memory: Vec<u8>,
    is_refused: bool,
}

impl Direct {
    /// Whether a write of `len` bytes should go this way.
    pub(super) fn is_worth(&self, len: usize) -> bool {
        len >= WORTH && !self.is_refused
    }

    /// Whether a read of `len` bytes from `offset` should go this way.
    pub(super) fn is_worth_reading(&self, file: &File, offset: u64, len: usize) -> bool {
        self.is_worth(len)
            && offset.is_multiple_of(BLOCK as u64)
            && page_cache::has_all(file, offset, len as u64) == Some(false)
    }

    /// Reads `len` bytes, or as many as there are until the file ends, from `offset`, which is the
    /// beginning of a block.
    ///
    /// Nobody else may use the open file meanwhile: how it reads is changed and changed back.
    pub(super) fn read(&mut self, file: &File, offset: u64, len: usize) -> io::Result<ReadBytes> {
        // Whole blocks are read, to the beginning of one in memory.
        let mut buffer = ReadBuffer::zeroed(len.next_multiple_of(BLOCK) + BLOCK);
        let start = buffer.as_bytes().as_ptr().align_offset(BLOCK);
        let blocks = &mut buffer.as_mut_bytes()[start..][..len.next_multiple_of(BLOCK)];
        let read = match read_around(file, blocks, offset) {
            Ok(read) => read,
            Err(error) => {
                self.refuse(error)?;
                read_at(file, offset, blocks)?
            }
        };
        let range = start..start + read.min(len);
        buffer
            .freeze()
            .slice(range)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Writes the chunks back to back from `offset`. `false` when the file system refuses, now and
    /// for ever; what was written until then is a part of what is to be written.
    ///
    /// Nobody else may use the open file meanwhile: how it writes is changed and changed back.
    pub(super) fn write(&mut self, file: &File, offset: u64, data: &[Chunk]) -> io::Result<bool> {
        if self.memory.is_empty() {
            self.memory = vec![0; PIECE + BLOCK];
        }
        let start = self.memory.as_ptr().align_offset(BLOCK);
        let piece = &mut self.memory[start..start + PIECE];
        // What the first block has before `offset`; zeros where the file ends before.
        let mut filled = (offset % BLOCK as u64) as usize;
        let mut at = offset - filled as u64;
        let known = read_at(file, at, &mut piece[..filled])?;
        piece[known..filled].fill(0);
        let mut slices = data.iter().flat_map(Chunk::slices);
        let mut rest: &[u8] = &[];
        loop {
            while filled < PIECE {
                if rest.is_empty() {
                    match slices.next() {
                        Some(slice) => rest = slice,
                        None => break,
                    }
                }
                let taken = rest.len().min(PIECE - filled);
                piece[filled..filled + taken].copy_from_slice(&rest[..taken]);
                (filled, rest) = (filled + taken, &rest[taken..]);
            }
            let whole = filled / BLOCK * BLOCK;
            if whole > 0
                && let Err(error) = write_around(file, &piece[..whole], at)
            {
                return self.refuse(error).map(|()| false);
            }
            if filled < PIECE {
                file.write_all_at(&piece[whole..filled], at + whole as u64)?;
                return Ok(true);
            }
            at += PIECE as u64;
            filled = 0;
        }
    }

    /// An error that says that this cannot be done at all is none of the write.
    fn refuse(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
                self.is_refused = true;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

fn write_around(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let written = file.write_all_at(bytes, at);
    fcntl_setfl(file, flags)?;
    written
}

fn read_around(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let mut done = 0;
    let read = loop {
        match file.read_at(&mut buf[done..], at + done as u64) {
            Ok(read) => {
                done += read;
                // What ends within a block is the end of the file.
                if read == 0 || done == buf.len() || !done.is_multiple_of(BLOCK) {
                    break Ok(done);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    fcntl_setfl(file, flags)?;
    read
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn chunks(lens: &[usize]) -> (Vec<Chunk>, Vec<u8>) {
        let bytes = |(index, len): (usize, &usize)| -> Vec<u8> {
            (0..*len).map(|at| (at * 31 + index * 7) as u8).collect()
        };
        let parts: Vec<Vec<u8>> = lens.iter().enumerate().map(bytes).collect();
        let all = parts.concat();
        (parts.into_iter().map(Chunk::from).collect(), all)
    }

    fn file(folder: &tempfile::TempDir) -> (File, std::path::PathBuf) {
        let path = folder.path().join("file");
        let mut options = File::options();
        let options = options.create(true).truncate(false).read(true).write(true);
        (options.open(&path).expect("a file"), path)
    }

    #[test]
    fn every_position_and_length_reads_back_as_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, path) = file(&folder);
        let mut direct = Direct::default();
        let mut expected = Vec::new();
        let edges = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1];
        let larger = [PIECE - 1, PIECE, PIECE + BLOCK + 1, 2 * PIECE + 77];
        for (round, len) in edges.iter().chain(&larger).chain(&edges).enumerate() {
            let (data, bytes) = chunks(&[*len, round, 3]);
            let at = expected.len() as u64;
            assert!(direct.write(&file, at, &data).expect("written"));
            expected.extend(bytes);
            assert_eq!(fs::read(&path).expect("read"), expected, "round {round}");
        }
        // What a failed flush left is written over in place.
        let (data, bytes) = chunks(&[PIECE + 5]);
        assert!(direct.write(&file, 4_000, &data).expect("written"));
        expected[4_000..4_000 + bytes.len()].copy_from_slice(&bytes);
        assert!(fs::read(&path).expect("read") == expected);
        // A gap reads as zeros.
        let (data, bytes) = chunks(&[PIECE]);
        let at = expected.len() + BLOCK + 9;
        assert!(direct.write(&file, at as u64, &data).expect("written"));
        expected.resize(at, 0);
        expected.extend(bytes);
        assert!(fs::read(&path).expect("read") == expected);
        let flags = fcntl_getfl(&file).expect("flags");
        assert!(!flags.contains(OFlags::DIRECT), "{flags:?}");
    }

    #[test]
    fn every_block_and_length_is_read_whether_the_page_cache_has_it_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, _) = file(&folder);
        let mut direct = Direct::default();
        let (data, bytes) = chunks(&[2 * PIECE, BLOCK + 77]);
        assert!(direct.write(&file, 0, &data).expect("written"));
        for round in 0..2 {
            for offset in [0, BLOCK, PIECE + 3 * BLOCK, 2 * PIECE + BLOCK, 4 * PIECE] {
                for len in [0, 1, BLOCK, PIECE - 1, PIECE + 1, 4 * PIECE] {
                    let read = direct.read(&file, offset as u64, len).expect("read");
                    let end = (offset + len).min(bytes.len());
                    let expected = bytes.get(offset..end).unwrap_or_default();
                    assert!(
                        read.as_bytes() == expected,
                        "{round}: {len} bytes from {offset}"
                    );
                }
            }
            // In the second round the page cache has a part of it.
            read_at(&file, PIECE as u64, &mut vec![0; PIECE / 2]).expect("read");
        }
        if page_cache::has_all(&file, 0, 1).is_some() {
            let beyond = 4 * PIECE as u64;
            assert!(direct.is_worth_reading(&file, beyond, WORTH));
            assert!(!direct.is_worth_reading(&file, beyond + 1, WORTH));
            assert!(!direct.is_worth_reading(&file, beyond, WORTH - 1));
            read_at(&file, 0, &mut vec![0; PIECE]).expect("read");
            let len = WORTH;
            assert!(!direct.is_worth_reading(&file, 0, len), "all is cached");
        }
        let flags = fcntl_getfl(&file).expect("flags");
        assert!(!flags.contains(OFlags::DIRECT), "{flags:?}");
    }

    #[test]
    fn a_file_system_that_refuses_is_not_asked_again() {
        let mut direct = Direct::default();
        assert!(direct.is_worth(WORTH) && !direct.is_worth(WORTH - 1));
        direct
            .refuse(io::ErrorKind::InvalidInput.into())
            .expect("no error of the write");
        assert!(!direct.is_worth(usize::MAX));
        let full = Direct::default().refuse(io::ErrorKind::StorageFull.into());
        let kind = full.expect_err("an error").kind();
        assert_eq!(kind, io::ErrorKind::StorageFull);
    }
}
