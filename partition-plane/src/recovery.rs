//! What a partition's folder holds after a restart, and what to do about it (chapter 06
//! section 16, chapter 04 section 5.3).
//!
//! [`recover`] only reads. It returns facts and a list of disk operations that bring the files
//! in line with them; the plane submits those before the group takes part in anything. Torn
//! tails are cut, damage in the middle of data is never cut: such a folder is set aside and the
//! partition is fetched from its peers, or, without peers, left alone and refused.

use biplane_journal::{
    Chunk, DiskOp, DiskPath, DiskView, Identity, LoadedSuperblock, load_superblock, read_file,
};
use biplane_wire::{Checksum, ClusterId, Op, PartitionKey, ReplicaId};

use crate::consumer_offsets::{self, ConsumerKey, FileValue};
use crate::io::GroupSpec;
use crate::limits::{DurabilityPolicy, Limits};
use crate::paths::{CONSUMERS, GROUPS, Paths, STAGING};
use crate::prepare_log::{self, RecoveredLog};
use crate::purge_record::{self, Floor};
use crate::scan::{BatchMark, Expect, MARKS_MAX, ScanError, Scanned, scan};
use crate::segments::{INDEX_ENTRY_BYTES, IndexEntry, Segment};

/// Largest index file read whole.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Who this node is, as its superblocks must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// This replica.
    pub replica: ReplicaId,
    /// Replicas in the roster.
    pub replica_count: u8,
}

impl NodeIdentity {
    pub(crate) fn journal(self) -> Identity {
        let Self {
            cluster,
            replica,
            replica_count,
        } = self;
        Identity {
            cluster,
            replica,
            replica_count,
        }
    }
}

/// What may be done with a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing is there: the partition is new here.
    Absent,
    /// The files are good, or were brought in order by the repairs.
    Usable,
    /// It belongs to an earlier partition of the same ids: remove it, then as absent.
    Stale,
    /// Its data is damaged: set it aside under this number and join without any.
    SetAside { number: u64, reason: String },
    /// It cannot be used and must not be touched: requests are refused.
    Refused { reason: String },
}

/// The result of [`recover`].
#[derive(Debug)]
pub struct Recovered {
    pub(crate) verdict: Verdict,
    pub(crate) superblock: LoadedSuperblock,
    pub(crate) segments: Vec<Segment>,
    /// The last batches on disk, ascending.
    pub(crate) marks: Vec<BatchMark>,
    pub(crate) offsets: Vec<(ConsumerKey, u64)>,
    pub(crate) applied_generation: u64,
    /// Where the last purge was.
    pub(crate) purged: Option<Floor>,
    pub(crate) log: RecoveredLog,
    pub(crate) repairs: Vec<DiskOp>,
    /// Why data behind a damaged place was given up.
    pub(crate) cut: Option<String>,
}

impl Recovered {
    pub(crate) fn bare(verdict: Verdict) -> Self {
        Self {
            verdict,
            superblock: LoadedSuperblock {
                record: None,
                sequence: 0,
            },
            segments: Vec::new(),
            marks: Vec::new(),
            offsets: Vec::new(),
            applied_generation: 0,
            purged: None,
            log: RecoveredLog::default(),
            repairs: Vec::new(),
            cut: None,
        }
    }

    /// The op through which nothing of the prepare log has to be applied again: its effects are in
    /// files, or a purge took them back.
    pub(crate) fn applied(&self) -> Op {
        let recorded = self.superblock.record.map(|record| record.checkpoint_op);
        let purged = self.purged.map(|floor| floor.op);
        recorded.max(purged).unwrap_or_default()
    }

    /// Why the folder cannot be used, if it cannot.
    pub fn refusal(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::SetAside { reason, .. } | Verdict::Refused { reason } => Some(reason),
            Verdict::Absent | Verdict::Usable | Verdict::Stale => self.cut.as_deref(),
        }
    }
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
enum Damage {
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(transparent)]
    Disk(#[from] biplane_journal::DiskError),
    #[error(transparent)]
    File(#[from] biplane_journal::ReadFileError),
    #[error("{0}")]
    Segments(String),
    #[error("prepare log: {0}")]
    Log(String),
}

/// Reads the folder of the partition `spec` names. Blocks on the disk; may run anywhere.
pub fn recover(
    node: NodeIdentity,
    limits: &Limits,
    spec: &GroupSpec,
    view: &dyn DiskView,
) -> Recovered {
    let Some(key) = spec.group.unpack() else {
        let reason = format!("{} is not a partition", spec.group);
        return Recovered::bare(Verdict::Refused { reason });
    };
    let folder = Folder {
        node,
        limits,
        spec,
        view,
        paths: Paths::new(key),
        key,
    };
    folder.recover()
}

struct Folder<'a> {
    node: NodeIdentity,
    limits: &'a Limits,
    spec: &'a GroupSpec,
    view: &'a dyn DiskView,
    paths: Paths,
    key: PartitionKey,
}

impl Folder<'_> {
    fn recover(&self) -> Recovered {
        let entries = match self.view.list(self.paths.dir()) {
            Ok(entries) => entries,
            Err(error) => return self.refused(error.to_string()),
        };
        let successor = self.paths.successor();
        let has_successor = match self.view.list(&successor) {
            Ok(entries) => !entries.is_empty(),
            Err(error) => return self.refused(error.to_string()),
        };
        if entries.is_empty() && has_successor {
            return self.finish_setting_aside(successor);
        }
        if entries.is_empty() {
            return Recovered::bare(Verdict::Absent);
        }
        let identity = self.node.journal();
        let superblock = match load_superblock(self.view, self.paths.dir(), &identity) {
            Ok(superblock) => superblock,
            Err(error) => return self.refused(error.to_string()),
        };
        if self.is_stale(&superblock) {
            return Recovered::bare(Verdict::Stale);
        }
        let mut found = Recovered::bare(Verdict::Usable);
        found.superblock = superblock;
        match self.read_all(&mut found) {
            Ok(()) => found,
            Err(damage) => self.damaged(damage, found.superblock),
        }
    }

    /// The old folder was set aside and the new one did not get its name: it has the promises.
    fn finish_setting_aside(&self, successor: DiskPath) -> Recovered {
        let identity = self.node.journal();
        let superblock = match load_superblock(self.view, &successor, &identity) {
            Ok(superblock) => superblock,
            Err(error) => return self.refused(error.to_string()),
        };
        let mut found = Recovered::bare(Verdict::Usable);
        found.repairs.push(DiskOp::Rename {
            from: successor,
            to: self.paths.dir().clone(),
        });
        found.repairs.push(DiskOp::SyncDir {
            path: self.paths.parent(),
        });
        if self.is_stale(&superblock) {
            found.verdict = Verdict::Stale;
        } else {
            found.superblock = superblock;
        }
        found
    }

    /// The superblock remembers the incarnation in a field that only the metadata group uses.
    fn is_stale(&self, superblock: &LoadedSuperblock) -> bool {
        let Some(record) = &superblock.record else {
            return false;
        };
        let known = record.checkpoint_checksum;
        !known.is_zero() && known != incarnation_mark(self.spec.created_revision)
    }

    fn read_all(&self, found: &mut Recovered) -> Result<(), Damage> {
        self.sweep_staging(found)?;
        let record = read_file(self.view, &self.paths.file(purge_record::FILE_NAME), 4096)?;
        found.applied_generation = record.map_or(0, |bytes| {
            purge_record::decode(bytes.as_bytes(), self.spec.created_revision)
        });
        let floor = read_file(self.view, &self.paths.file(purge_record::FLOOR_NAME), 4096)?;
        found.purged =
            floor.and_then(|bytes| Floor::decode(bytes.as_bytes(), self.spec.created_revision));
        match found.purged {
            Some(floor) if floor.generation > found.applied_generation => {
                self.finish_purge(&floor, found)?;
            }
            _ => {
                self.read_segments(found)?;
                self.read_offsets(found)?;
            }
        }
        if self.node.replica_count > 1 && self.spec.options.needs_prepare_log() {
            let floor = found.applied();
            let (limits, spec) = (self.limits, self.spec);
            found.log = prepare_log::recover(self.node, limits, spec, self.view, floor)
                .map_err(Damage::Log)?;
            let recorded = found.superblock.record;
            let committed = recorded.map_or(Op::ZERO, |record| record.commit_max);
            found.log.heed_commit(committed);
        }
        Ok(())
    }

    /// A purge was cut short: what is left of it is done now.
    fn finish_purge(&self, floor: &Floor, found: &mut Recovered) -> Result<(), Damage> {
        let is_data = |name: &str| name.ends_with(".log") || name.ends_with(".index");
        let mut gone = Vec::new();
        let folder = self.view.list(self.paths.dir())?;
        gone.extend(
            folder
                .iter()
                .filter(|entry| is_data(&entry.name))
                .map(|entry| self.paths.file(&entry.name)),
        );
        let mut synced = vec![self.paths.dir().clone()];
        for folder in [CONSUMERS, GROUPS].map(|name| self.paths.file(name)) {
            let entries = self.view.list(&folder)?;
            gone.extend(
                entries
                    .iter()
                    .filter_map(|entry| folder.join(&entry.name).ok()),
            );
            synced.extend((!entries.is_empty()).then_some(folder));
        }
        let removals = gone.into_iter().map(|path| DiskOp::Remove { path });
        found.repairs.extend(removals);
        let syncs = synced.into_iter().map(|path| DiskOp::SyncDir { path });
        found.repairs.extend(syncs);
        let bytes = purge_record::encode(floor.generation, self.spec.created_revision);
        found.repairs.push(DiskOp::Replace {
            path: self.paths.file(purge_record::FILE_NAME),
            data: vec![Chunk::from(bytes.to_vec())],
        });
        found.applied_generation = floor.generation;
        if let Some(record) = &mut found.superblock.record {
            record.offset_frontier = 0;
        }
        Ok(())
    }

    fn sweep_staging(&self, found: &mut Recovered) -> Result<(), Damage> {
        for entry in self.view.list(self.paths.dir())? {
            if entry.name.ends_with(STAGING) || entry.name.ends_with(".tmp") {
                let path = self.paths.file(&entry.name);
                found.repairs.push(match entry.is_dir {
                    true => DiskOp::RemoveTree { path },
                    false => DiskOp::Remove { path },
                });
            }
        }
        Ok(())
    }

    fn read_segments(&self, found: &mut Recovered) -> Result<(), Damage> {
        let mut starts: Vec<u64> = Vec::new();
        for entry in self.view.list(self.paths.dir())? {
            let start = entry
                .name
                .strip_suffix(".log")
                .filter(|name| name.len() == 20);
            starts.extend(start.and_then(|name| name.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        let last = starts.last().copied();
        let mut expected = starts.first().copied();
        for (at, start) in starts.iter().copied().enumerate() {
            let is_last = Some(start) == last;
            let mut broken = None;
            if expected == Some(start) {
                let scanned = self.read_segment(start, is_last, &mut found.repairs)?;
                if scanned.segment.size == 0 && !is_last && !scanned.is_cut {
                    broken = Some(format!("segment {start} is empty, not the last"));
                }
                if scanned.is_cut {
                    let end = scanned.segment.size;
                    found.cut = Some(format!("segment {start} is damaged at byte {end}"));
                }
                expected = Some(scanned.segment.next);
                if scanned.segment.digest.is_none() {
                    // Read from its last index entry on: what was marked before it has a gap.
                    found.marks.clear();
                }
                found.marks.extend(scanned.marks);
                let surplus = found.marks.len().saturating_sub(MARKS_MAX);
                found.marks.drain(..surplus);
                found.segments.push(scanned.segment);
            } else {
                broken = Some(format!("no segment continues before {start}"));
            }
            match broken {
                Some(reason) if self.is_tolerant() && self.node.replica_count > 1 => {
                    found.cut.get_or_insert(reason);
                    return self.move_aside(&starts[at..], found);
                }
                Some(reason) => return Err(Damage::Segments(reason)),
                None if found.cut.is_some() => return self.move_aside(&starts[at + 1..], found),
                None => {}
            }
        }
        self.seal_all_but_last(found);
        Ok(())
    }

    /// With the replicated policy nothing on this disk was promised: what stands before the
    /// damage is kept, the peers have the rest. Damage under a persisted policy is another
    /// matter.
    fn is_tolerant(&self) -> bool {
        !self.spec.options.needs_prepare_log()
    }

    fn seal_all_but_last(&self, found: &mut Recovered) {
        let before_last = found.segments.len().saturating_sub(1);
        found.segments[..before_last]
            .iter_mut()
            .for_each(|segment| segment.sealed = true);
    }

    /// Segments behind a damaged place cannot be reached any more.
    fn move_aside(&self, starts: &[u64], found: &mut Recovered) -> Result<(), Damage> {
        self.seal_all_but_last(found);
        found
            .segments
            .retain(|segment| !starts.contains(&segment.start));
        if starts.is_empty() {
            return Ok(());
        }
        let aside = self.paths.fenced(self.fence_number());
        found.repairs.push(DiskOp::CreateDirs {
            path: aside.clone(),
        });
        for from in starts
            .iter()
            .flat_map(|start| [self.paths.log(*start), self.paths.index(*start)])
        {
            if self.view.len(&from)?.is_some()
                && let Ok(to) = aside.join(from.name())
            {
                found.repairs.push(DiskOp::Rename { from, to });
            }
        }
        let path = self.paths.dir().clone();
        found.repairs.push(DiskOp::SyncDir { path });
        Ok(())
    }

    fn read_segment(
        &self,
        start: u64,
        is_last: bool,
        repairs: &mut Vec<DiskOp>,
    ) -> Result<Scanned, Damage> {
        let path = self.paths.log(start);
        let log_len = self.view.len(&path)?.unwrap_or(0);
        let (index, beyond, index_len) = self.read_index(start, log_len)?;
        let persisted = self.spec.options.durability == DurabilityPolicy::Persisted;
        if persisted && beyond > 1 {
            return Err(Damage::Segments(format!(
                "segment {start} lost synced data"
            )));
        }
        let partition = u64::from(self.key.partition);
        let expect = Expect {
            partition,
            start,
            is_last,
            is_tolerant: self.is_tolerant() && (is_last || self.node.replica_count > 1),
        };
        // Synced data is trusted up to the last entry of its index.
        let from = if persisted {
            index.last().copied()
        } else {
            None
        };
        let mut scanned = scan(self.view, &path, expect, &index, from)?;
        if scanned.file_len > scanned.segment.size {
            repairs.push(DiskOp::Truncate {
                path,
                len: scanned.segment.size,
            });
        }
        let index_path = self.paths.index(start);
        if !scanned.index_agrees {
            let bytes: Vec<u8> = scanned
                .segment
                .index
                .iter()
                .flat_map(|entry| entry.encode())
                .collect();
            scanned.segment.index_size = bytes.len() as u64;
            repairs.push(DiskOp::Replace {
                path: index_path,
                data: vec![Chunk::from(bytes)],
            });
        } else if index_len != Some(scanned.segment.index_size) {
            let (path, len) = (index_path, scanned.segment.index_size);
            let make = DiskOp::Write {
                path: path.clone(),
                offset: 0,
                data: vec![],
                sync: false,
            };
            repairs.extend(index_len.is_none().then_some(make));
            repairs.push(DiskOp::Truncate { path, len });
        }
        Ok(scanned)
    }

    /// The usable entries of an index, the number of entries that point beyond the log, and the
    /// length of the file.
    fn read_index(
        &self,
        start: u64,
        log_len: u64,
    ) -> Result<(Vec<IndexEntry>, usize, Option<u64>), Damage> {
        let bytes = read_file(self.view, &self.paths.index(start), INDEX_BYTES_MAX)?;
        let len = bytes.as_ref().map(|bytes| bytes.len() as u64);
        let all = bytes.map_or(Vec::new(), |bytes| IndexEntry::decode_all(bytes.as_bytes()));
        let beyond = all.iter().filter(|entry| entry.position >= log_len).count();
        let mut usable: Vec<IndexEntry> = Vec::with_capacity(all.len());
        for entry in all {
            let ascends = usable
                .last()
                .is_none_or(|last| last.position < entry.position && last.offset < entry.offset);
            if !ascends || entry.position >= log_len || entry.offset < start {
                break;
            }
            usable.push(entry);
        }
        debug_assert!(usable.len() * INDEX_ENTRY_BYTES <= usize::MAX / 2);
        Ok((usable, beyond, len))
    }

    fn read_offsets(&self, found: &mut Recovered) -> Result<(), Damage> {
        let end = found.segments.last().map_or(0, |segment| segment.next);
        let consumers = (CONSUMERS, ConsumerKey::Consumer as fn(u32) -> ConsumerKey);
        for (folder, key_of) in [consumers, (GROUPS, ConsumerKey::Group)] {
            let folder = self.paths.file(folder);
            for entry in self.view.list(&folder)? {
                let Ok(id) = entry.name.parse::<u32>() else {
                    continue;
                };
                let path = folder
                    .join(&entry.name)
                    .unwrap_or_else(|_| DiskPath::root());
                let Some(bytes) = read_file(self.view, &path, 4096)? else {
                    continue;
                };
                match consumer_offsets::decode_file(bytes.as_bytes()) {
                    FileValue::Offset(offset) => {
                        // With the replicated policy a file may be ahead of the messages.
                        let known = offset.min(end.saturating_sub(1));
                        found.offsets.push((key_of(id), known));
                    }
                    FileValue::Damaged => found.repairs.push(DiskOp::Remove { path }),
                    FileValue::Absent => {}
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, damage: Damage, superblock: LoadedSuperblock) -> Recovered {
        let reason = damage.to_string();
        if self.node.replica_count == 1 {
            return self.refused(reason);
        }
        let verdict = Verdict::SetAside {
            number: self.fence_number(),
            reason,
        };
        Recovered {
            superblock,
            ..Recovered::bare(verdict)
        }
    }

    fn refused(&self, reason: String) -> Recovered {
        Recovered::bare(Verdict::Refused { reason })
    }

    fn fence_number(&self) -> u64 {
        let prefix = format!("{}.fenced.", self.paths.dir().name());
        let used = self.view.list(&self.paths.parent()).unwrap_or_default();
        let numbers = used.iter().filter_map(|entry| {
            entry
                .name
                .strip_prefix(&prefix)
                .and_then(|number| number.parse::<u64>().ok())
        });
        numbers.max().map_or(1, |number| number.saturating_add(1))
    }
}

/// How a superblock names the incarnation it belongs to; never zero.
pub(crate) fn incarnation_mark(created_revision: u64) -> Checksum {
    Checksum(u128::from(created_revision) | 1 << 127)
}

#[cfg(test)]
mod tests;
