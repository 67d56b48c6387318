//! An independent reader of the promises of groups that have no files. Written from the layout in
//! `docs/protocol/storage.md`.

use std::collections::BTreeMap;

use biplane_journal::DiskPath;
use biplane_wire::{View, xxh3};

use super::{DurableViews, u32_at, u64_at};
use crate::disk::{Version, VirtualDisk};

const FILE: &str = "streams/dormant.superblocks";
const HEAD: usize = 40;
const ENTRY: usize = 32;

/// What is remembered of one node's file.
#[derive(Debug, Default)]
pub(super) struct Lines {
    version: Option<Version>,
    by_group: BTreeMap<u64, DurableViews>,
}

impl Lines {
    /// The views a crash now would leave in the line of the group whose folder this is.
    pub(super) fn views(&mut self, disk: &VirtualDisk, dir: &DiskPath) -> Option<DurableViews> {
        let mut parts = dir.as_str().split('/').skip(1).step_by(2);
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (stream, topic, partition) = (number()?, number()?, number()?);
        let (bytes, version) = disk.durable(&DiskPath::new(FILE).ok()?)?;
        if self.version != Some(version) {
            self.by_group = read(bytes);
            self.version = Some(version);
        }
        let group = stream << 32 | topic << 20 | partition;
        self.by_group.get(&group).copied()
    }
}

fn read(bytes: &[u8]) -> BTreeMap<u64, DurableViews> {
    let mut found = BTreeMap::new();
    let mut rest = bytes;
    while rest.starts_with(b"bipldorm") && rest.len() >= HEAD {
        let end = HEAD + u32_at(rest, 36) as usize * ENTRY;
        if rest.len() < end + 8 || xxh3(&rest[..end]) != u64_at(rest, end) {
            break;
        }
        for entry in rest[HEAD..end].chunks_exact(ENTRY) {
            let views = DurableViews {
                view: View(u32_at(entry, 16)),
                log_view: View(u32_at(entry, 20)),
            };
            match entry[24] {
                1 => found.insert(u64_at(entry, 0), views),
                _ => found.remove(&u64_at(entry, 0)),
            };
        }
        rest = &rest[end + 8..];
    }
    found
}
