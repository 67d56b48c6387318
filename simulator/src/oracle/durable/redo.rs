//! An independent reader of the redo files: the bytes of a log with every write in place that a
//! restart would put there. Written from the layout in `docs/protocol/storage.md`.

use std::collections::BTreeMap;

use biplane_journal::DiskPath;
use xxhash_rust::xxh3::Xxh3;

use super::{u32_at, u64_at};
use crate::disk::VirtualDisk;

/// Last part of the name of every file whose writes are gathered.
pub(super) const GATHERED_NAME: &str = "/prepares.wal";

const BLOCK: usize = 4096;
const HEAD: usize = 48;

fn file(disk: &VirtualDisk, index: u8) -> Option<&[u8]> {
    let path = DiskPath::new(&format!("commits/redo.{index}")).ok()?;
    disk.durable(&path).map(|(bytes, _)| bytes)
}

/// Whether there is anything to replay.
pub(super) fn exists(disk: &VirtualDisk) -> bool {
    file(disk, 0).is_some() || file(disk, 1).is_some()
}

/// `bytes` of the file `name` with the writes of every epoch that was not retired.
pub(super) fn replayed(disk: &VirtualDisk, name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut epochs: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    let mut retired = 0;
    for bytes in [file(disk, 0), file(disk, 1)].into_iter().flatten() {
        let salt = u64_at(bytes, 8);
        let mut at = BLOCK;
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEAD) {
            let length = u32_at(rest, 32) as usize;
            let whole = rest.starts_with(b"biplbat1") && HEAD + length <= rest.len() && {
                let mut hasher = Xxh3::with_seed(salt);
                hasher.update(&rest[..40]);
                hasher.update(&rest[HEAD..HEAD + length]);
                hasher.digest() == u64_at(rest, 40)
            };
            if whole {
                retired = retired.max(u64_at(rest, 24));
                let entries = &rest[HEAD..HEAD + length];
                epochs.entry(u64_at(rest, 8)).or_default().push(entries);
                at += (HEAD + length).next_multiple_of(BLOCK);
            } else {
                at += BLOCK;
            }
        }
    }
    let mut content = bytes.to_vec();
    for mut entries in epochs.split_off(&(retired + 1)).into_values().flatten() {
        while entries.len() >= 16 {
            let path_len = usize::from(entries[0]) | usize::from(entries[1]) << 8;
            let data_len = u32_at(entries, 4) as usize;
            let offset = u64_at(entries, 8) as usize;
            let (entry, rest) = entries.split_at(16 + path_len + data_len);
            let (path, data) = entry[16..].split_at(path_len);
            if path == name.as_bytes() {
                content.resize(content.len().max(offset + data_len), 0);
                content[offset..offset + data_len].copy_from_slice(data);
            }
            entries = rest;
        }
    }
    content
}
