//! The bytes of a redo file: a head block, then batches, each at the start of a block.
//!
//! ```text
//!   block 0            block 1..                          next free block
//!   ┌────────────────┬──────────────────────────────────┬──────────────────────
//!   │ magic 8        │ magic 8 │ epoch 8 │ batch 8       │ head │ entries ...
//!   │ salt 8         │ retired 8 │ length 4 │ entries 4  │
//!   │ XXH3 of both 8 │ XXH3 8, seeded │ entries, zeros   │
//!   └────────────────┴──────────────────────────────────┴──────────────────────
//!   entry: path length 2 │ zero 2 │ data length 4 │ offset 8 │ path │ data
//! ```
//!
//! All integers little-endian. The checksum of a batch covers its head before the checksum and
//! its entries, and is seeded with the salt. Blocks of earlier epochs stay until they are
//! overwritten; their epoch tells them apart.

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::disk::{Chunk, DiskOp, DiskRequest};
use crate::path::{DiskPath, PATH_BYTES_MAX};

/// Alignment of batches: what a page cache writes at once.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a batch's head.
pub(super) const HEAD_BYTES: u64 = 48;
/// Bytes of an entry before its path.
const ENTRY_BYTES: u64 = 16;

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"biplred1");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"biplbat1");

const _: () = assert!(PATH_BYTES_MAX <= u16::MAX as usize);

/// The path of a redo file; `None` never, for the two names are legal.
pub(super) fn redo_path(epoch: u64) -> DiskPath {
    let name = ["commits/redo.0", "commits/redo.1"][usize::from(epoch % 2 == 1)];
    DiskPath::new(name).expect("a legal path")
}

/// The directory of both.
pub(super) fn redo_dir() -> DiskPath {
    DiskPath::new("commits").expect("a legal path")
}

/// The first block of a file.
pub(super) fn file_head(salt: u64) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend(FILE_MAGIC.to_le_bytes());
    head.extend(salt.to_le_bytes());
    head.extend(xxh3_64_with_seed(&head, 0).to_le_bytes());
    head.resize(usize::try_from(BLOCK_BYTES).unwrap_or(0), 0);
    head
}

/// The salt a first block names; `None` when it is none.
pub(super) fn salt_of(head: &[u8]) -> Option<u64> {
    let is_ours = u64_at(head, 0)? == FILE_MAGIC
        && u64_at(head, 16)? == xxh3_64_with_seed(head.get(..16)?, 0);
    if is_ours { u64_at(head, 8) } else { None }
}

/// What stands in front of the entries of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) epoch: u64,
    pub(super) batch: u64,
    /// Everything up to this epoch is in its files.
    pub(super) retired: u64,
}

/// Bytes an entry takes.
pub(super) fn entry_len(op: &DiskOp) -> u64 {
    match op {
        DiskOp::Write { path, data, .. } => {
            ENTRY_BYTES + path.as_str().len() as u64 + Chunk::total(data)
        }
        _ => 0,
    }
}

/// Bytes a batch takes on disk.
pub(super) fn batch_len(entries: u64) -> u64 {
    (HEAD_BYTES + entries).next_multiple_of(BLOCK_BYTES)
}

/// A batch as chunks that share the frames it holds.
pub(super) fn encode(head: Head, writes: &[DiskRequest], salt: u64) -> Vec<Chunk> {
    let mut chunks = Vec::with_capacity(2 + 4 * writes.len());
    let mut length: u64 = 0;
    let mut count: u32 = 0;
    for request in writes {
        let DiskOp::Write {
            path, offset, data, ..
        } = &request.op
        else {
            continue;
        };
        let name = path.as_str().as_bytes();
        let mut entry = Vec::with_capacity(16 + name.len());
        entry.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        entry.extend([0; 2]);
        let data_len = u32::try_from(Chunk::total(data)).unwrap_or(u32::MAX);
        entry.extend(data_len.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        entry.extend(name);
        chunks.push(Chunk::from(entry));
        chunks.extend(data.iter().cloned());
        length += entry_len(&request.op);
        count += 1;
    }
    let mut front = Vec::with_capacity(48);
    for field in [BATCH_MAGIC, head.epoch, head.batch, head.retired] {
        front.extend(field.to_le_bytes());
    }
    front.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    front.extend(count.to_le_bytes());
    let mut hasher = Xxh3::with_seed(salt);
    hasher.update(&front);
    for slice in chunks.iter().flat_map(Chunk::slices) {
        hasher.update(slice);
    }
    front.extend(hasher.digest().to_le_bytes());
    let padding = batch_len(length) - HEAD_BYTES - length;
    chunks.insert(0, Chunk::from(front));
    chunks.push(zeros(padding));
    chunks
}

/// A chunk of zeros.
pub(super) fn zeros(count: u64) -> Chunk {
    Chunk::Bytes(Arc::from(vec![0; usize::try_from(count).unwrap_or(0)]))
}

/// A batch read back.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) head: Head,
    /// Blocks it takes.
    pub(super) blocks: u64,
    /// Path, offset and bytes of each write, in order.
    pub(super) writes: Vec<(DiskPath, u64, Vec<u8>)>,
}

/// The batch at the start of `bytes`; `None` when no whole one is there.
pub(super) fn decode(bytes: &[u8], salt: u64) -> Option<Batch> {
    if u64_at(bytes, 0)? != BATCH_MAGIC {
        return None;
    }
    let length = u32_at(bytes, 32)? as usize;
    let front = bytes.get(..40)?;
    let entries = bytes.get(48..48_usize.checked_add(length)?)?;
    let mut hasher = Xxh3::with_seed(salt);
    hasher.update(front);
    hasher.update(entries);
    if u64_at(bytes, 40)? != hasher.digest() {
        return None;
    }
    let mut writes = Vec::new();
    let mut rest = entries;
    for _ in 0..u32_at(bytes, 36)? {
        let name_len = usize::from(u16::from_le_bytes(rest.first_chunk().copied()?));
        let data_len = u32_at(rest, 4)? as usize;
        let offset = u64_at(rest, 8)?;
        let (name, behind) = rest.get(16..)?.split_at_checked(name_len)?;
        let (data, behind) = behind.split_at_checked(data_len)?;
        let path = DiskPath::new(std::str::from_utf8(name).ok()?).ok()?;
        writes.push((path, offset, data.to_vec()));
        rest = behind;
    }
    let head = Head {
        epoch: u64_at(bytes, 8)?,
        batch: u64_at(bytes, 16)?,
        retired: u64_at(bytes, 24)?,
    };
    Some(Batch {
        head,
        blocks: batch_len(length as u64) / BLOCK_BYTES,
        writes,
    })
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}
