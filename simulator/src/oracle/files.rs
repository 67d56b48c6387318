//! O16: the files say so. After each crash an independent reader finds every record that was
//! promised, in what the crash left on the disk.

use biplane_journal::DiskPath;
use biplane_wire::{Checksum, Op, View};

use super::durable::DurableReader;
use super::{GroupKey, Violation};
use crate::disk::VirtualDisk;

/// What a node promised of one group, at the moment of a crash.
#[derive(Debug)]
pub struct Promise {
    /// The group.
    pub key: GroupKey,
    /// Folder of its superblock.
    pub superblock: DiskPath,
    /// The highest view it spoke for.
    pub view: View,
    /// Its prepare log, and the bytes a record has beyond its frame.
    pub log: Option<(DiskPath, usize)>,
    /// What it acknowledged durably above its applied op: nothing may have dropped it yet.
    pub given: Vec<(Op, Checksum)>,
}

/// Counts what was checked.
#[derive(Debug, Default)]
pub struct Files {
    reader: DurableReader,
    /// Records looked for.
    pub checked: u64,
}

impl Files {
    /// A crash left this on a node's disk.
    ///
    /// # Errors
    ///
    /// A promised view or record that is not there.
    pub fn crashed(
        &mut self,
        node: u8,
        disk: &VirtualDisk,
        promises: &[Promise],
    ) -> Result<(), Violation> {
        for promise in promises {
            self.checked += 1;
            let found = self.reader.views(node, disk, &promise.superblock);
            if found.view < promise.view {
                let text = format!(
                    "n{node} spoke for view {}; the crash leaves {found:?}",
                    promise.view
                );
                return Err(Violation::new("O16 files", promise.key.group, text));
            }
            let Some((log, overhead)) = &promise.log else {
                continue;
            };
            for entry in &promise.given {
                self.checked += 1;
                if !self.reader.holds(node, disk, log, *overhead, *entry) {
                    let text = format!(
                        "n{node} acknowledged op {} ({:016x}); the crash leaves no record of it",
                        entry.0, entry.1.0
                    );
                    return Err(Violation::new("O16 files", promise.key.group, text));
                }
            }
        }
        Ok(())
    }

    /// A node's disk was replaced.
    pub fn forget(&mut self, node: u8) {
        self.reader.forget(node);
    }
}

#[cfg(test)]
mod tests {
    use biplane_journal::{Chunk, Disk, DiskOp, DiskRequest, QueueId};
    use biplane_wire::{Command, GroupId, Operation, PrepareHeader, prepare};

    use super::*;
    use crate::disk::{CrashMode, DiskOptions};
    use crate::prng::Prng;

    fn disk_with(sync: bool) -> (VirtualDisk, DiskPath, (Op, Checksum)) {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(3));
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        let message = prepare::build_with_body(header, b"body");
        let identity = message.header::<PrepareHeader>().frame.checksum();
        let path = DiskPath::new("journal.wal").expect("valid");
        let mut disk = VirtualDisk::new(DiskOptions::calm(), Prng::new(1));
        let mut steps = vec![DiskOp::Write {
            path: path.clone(),
            offset: 0,
            data: vec![Chunk::Frame(message)],
            sync,
        }];
        if sync {
            steps.push(DiskOp::SyncDir {
                path: DiskPath::root(),
            });
        }
        for op in steps {
            disk.submit(DiskRequest {
                queue: QueueId(0),
                token: 0,
                op,
            });
            while let Some(due) = disk.next_due() {
                disk.run_until(due);
            }
        }
        disk.crash(CrashMode::LoseAll);
        (disk, path, (Op(3), identity))
    }

    fn promise(log: DiskPath, view: u32, entry: (Op, Checksum)) -> Promise {
        Promise {
            key: GroupKey {
                group: GroupId::METADATA,
                incarnation: 0,
            },
            superblock: DiskPath::new("metadata").expect("valid"),
            view: View(view),
            log: Some((log, 0)),
            given: vec![entry],
        }
    }

    #[test]
    fn a_promised_record_is_found_if_it_was_synced_and_missed_if_not() {
        let (disk, path, entry) = disk_with(true);
        let mut files = Files::default();
        files
            .crashed(0, &disk, &[promise(path, 0, entry)])
            .expect("synced");
        let (disk, path, entry) = disk_with(false);
        let lost = files.crashed(1, &disk, &[promise(path, 0, entry)]);
        assert_eq!(lost.expect_err("lost").oracle, "O16 files");
    }

    #[test]
    fn a_view_that_was_spoken_for_must_be_there() {
        let (disk, path, entry) = disk_with(true);
        let mut files = Files::default();
        let promised = promise(path, 2, entry);
        assert!(files.crashed(0, &disk, &[promised]).is_err());
    }
}
