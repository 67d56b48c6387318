//! An independent reader of durable bytes: which prepares, and which view, a crash leaves.
//!
//! Written for the oracles from the layout in chapter 04 sections 5.5.1 and 5.5.2; it shares no
//! code with the recovery that ships. Results are remembered until the durable side of the file
//! changes. What the redo files hold for a log is read in `durable/redo.rs`, just as independently.

mod dormant;
mod redo;

use std::collections::BTreeMap;
use std::ops::Range;

use biplane_journal::DiskPath;
use biplane_wire::{Checksum, Op, View, xxh3};

use crate::disk::{Version, VirtualDisk};

const HEADER: usize = 256;

/// What is remembered of one file of one node.
#[derive(Debug)]
struct Known<T> {
    version: Version,
    value: T,
}

/// Views in a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableViews {
    /// View.
    pub view: View,
    /// Last view in which the replica was normal.
    pub log_view: View,
}

/// Sequence number and views of one copy of a superblock, if it verifies.
type SuperblockCopy = Option<(u64, DurableViews)>;

/// The newest record of each op: its identity and where it stands.
type LogEntries = BTreeMap<Op, (Checksum, Range<usize>)>;

/// The reader, with what it remembers.
#[derive(Debug, Default)]
pub struct DurableReader {
    logs: BTreeMap<(u8, DiskPath), Known<LogEntries>>,
    /// By node and folder; both copies.
    superblocks: BTreeMap<(u8, DiskPath), [SuperblockFile; 2]>,
    /// By node.
    lines: BTreeMap<u8, dormant::Lines>,
}

/// One copy of a superblock.
#[derive(Debug)]
struct SuperblockFile {
    path: Option<DiskPath>,
    known: Option<Known<SuperblockCopy>>,
}

impl DurableReader {
    /// Whether a crash now would leave this prepare in the log file.
    pub fn holds(
        &mut self,
        node: u8,
        disk: &VirtualDisk,
        log: &DiskPath,
        overhead: usize,
        entry: (Op, Checksum),
    ) -> bool {
        if log.as_str().ends_with(redo::GATHERED_NAME) && redo::exists(disk) {
            let Some((bytes, _)) = disk.durable(log) else {
                return false;
            };
            // The file has what the redo files hold only later.
            let bytes = redo::replayed(disk, log.as_str(), bytes);
            let found = scan(&bytes, overhead);
            return found
                .get(&entry.0)
                .is_some_and(|(identity, _)| *identity == entry.1);
        }
        let entries = self.entries(node, disk, log, overhead);
        let found = entries.and_then(|entries| entries.get(&entry.0));
        found.is_some_and(|(identity, _)| *identity == entry.1)
    }

    /// Where the record of a prepare stands in the log file, when a crash now would leave it
    /// there with another record behind it.
    pub fn place(
        &mut self,
        node: u8,
        disk: &VirtualDisk,
        log: &DiskPath,
        overhead: usize,
        entry: (Op, Checksum),
    ) -> Option<Range<usize>> {
        let entries = self.entries(node, disk, log, overhead)?;
        let end = entries.values().map(|(_, place)| place.end).max()?;
        let (identity, place) = entries.get(&entry.0)?;
        (*identity == entry.1 && place.end < end).then(|| place.clone())
    }

    /// All records that a crash now would leave in the log file, by op.
    pub fn records(
        &mut self,
        node: u8,
        disk: &VirtualDisk,
        log: &DiskPath,
        overhead: usize,
    ) -> Vec<(Op, Checksum, Range<usize>)> {
        let entries = self
            .entries(node, disk, log, overhead)
            .into_iter()
            .flatten();
        let records = entries.map(|(op, (identity, place))| (*op, *identity, place.clone()));
        records.collect()
    }

    fn entries(
        &mut self,
        node: u8,
        disk: &VirtualDisk,
        log: &DiskPath,
        overhead: usize,
    ) -> Option<&LogEntries> {
        let (bytes, version) = disk.durable(log)?;
        let known = self.logs.entry((node, log.clone()));
        let known = known.or_insert_with(|| Known {
            version,
            value: scan(bytes, overhead),
        });
        if known.version != version {
            *known = Known {
                version,
                value: scan(bytes, overhead),
            };
        }
        Some(&known.value)
    }

    /// The newest views a crash now would leave in the superblock.
    pub fn views(&mut self, node: u8, disk: &VirtualDisk, dir: &DiskPath) -> DurableViews {
        let copies = self
            .superblocks
            .entry((node, dir.clone()))
            .or_insert_with(|| {
                ["superblock.a", "superblock.b"].map(|name| SuperblockFile {
                    path: dir.join(name).ok(),
                    known: None,
                })
            });
        let newest = copies.iter_mut().filter_map(|copy| {
            let (bytes, version) = disk.durable(copy.path.as_ref()?)?;
            let known = match copy.known.take() {
                Some(known) if known.version == version => known,
                _ => Known {
                    version,
                    value: superblock(bytes),
                },
            };
            copy.known.insert(known).value
        });
        let newest = newest.max_by_key(|(sequence, _)| *sequence);
        let own = newest.map(|(_, views)| views);
        let lines = self.lines.entry(node).or_default();
        own.or_else(|| lines.views(disk, dir)).unwrap_or_default()
    }

    /// A node's disk was replaced.
    pub fn forget(&mut self, node: u8) {
        self.logs.retain(|(owner, _), _| *owner != node);
        self.superblocks.retain(|(owner, _), _| *owner != node);
        self.lines.remove(&node);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |field| {
        u64::from_le_bytes(field.try_into().unwrap_or([0; 8]))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u64_at(bytes, at) as u32
}

/// Prepares back to back: their ops and identities. A later record of an op stands.
fn scan(bytes: &[u8], overhead: usize) -> LogEntries {
    let mut newest = BTreeMap::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER) {
        let size = u32_at(header, 48) as usize;
        if size < HEADER || header[60] != 6 || at + size + overhead > bytes.len() {
            break;
        }
        let low = u64_at(header, 0);
        let high = u64_at(header, 8);
        let identity = Checksum(u128::from(high) << 64 | u128::from(low));
        let end = at + size + overhead;
        newest.insert(Op(u64_at(header, 176)), (identity, at..end));
        at = end;
    }
    newest
}

fn superblock(bytes: &[u8]) -> SuperblockCopy {
    let body = bytes.get(..94)?;
    if bytes.len() != 102 || xxh3(body) != u64_at(bytes, 94) {
        return None;
    }
    let views = DurableViews {
        view: View(u32_at(bytes, 46)),
        log_view: View(u32_at(bytes, 50)),
    };
    Some((u64_at(bytes, 8), views))
}

#[cfg(test)]
mod tests {
    use biplane_journal::{Chunk, Disk, DiskOp, DiskRequest, QueueId};
    use biplane_wire::{Command, GroupId, Operation, PrepareHeader, prepare};

    use super::*;
    use crate::disk::DiskOptions;
    use crate::prng::Prng;

    #[test]
    fn only_synced_records_under_a_synced_name_count() {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(1));
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        let message = prepare::build_with_body(header, b"body");
        let identity = message.header::<PrepareHeader>().frame.checksum();
        let path = DiskPath::new("journal.wal").expect("valid");
        let mut disk = VirtualDisk::new(DiskOptions::calm(), Prng::new(1));
        let mut reader = DurableReader::default();
        let mut run = |disk: &mut VirtualDisk, op| {
            disk.submit(DiskRequest {
                queue: QueueId(0),
                token: 0,
                op,
            });
            while let Some(due) = disk.next_due() {
                disk.run_until(due);
            }
            reader.holds(0, disk, &path, 0, (Op(1), identity))
        };
        let data = vec![Chunk::Frame(message)];
        let write = DiskOp::Write {
            path: path.clone(),
            offset: 0,
            data,
            sync: false,
        };
        assert!(!run(&mut disk, write));
        assert!(!run(&mut disk, DiskOp::Sync { path: path.clone() }));
        assert!(run(
            &mut disk,
            DiskOp::SyncDir {
                path: DiskPath::root()
            }
        ));
        assert!(!reader.holds(0, &disk, &path, 0, (Op(2), identity)));
    }
}
