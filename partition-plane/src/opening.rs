//! From a folder as it was found to a running group: the disk work that comes first (chapter 06
//! sections 2.2 and 16).
//!
//! Nothing of a group leaves the node before its folder, its first segment and its superblock
//! are durable: a restart must be able to tell that it ran.

use biplane_journal::{
    Chunk, DiskCompletion, DiskError, DiskOp, DiskPath, DiskReply, LoadedSuperblock,
    SuperblockCopy, SuperblockFile, SuperblockRecord, encode_superblock,
};
use biplane_vsr as vsr;
use biplane_wire::{Op, Operation, PrepareHeader, View};

use crate::batch::BatchHeader;
use crate::context::{Context, Node, Queues};
use crate::group::home::first_superblock;
use crate::io::{GroupSpec, PollQuery};
use crate::paths::{CONSUMERS, GROUPS, Paths};
use crate::purge_record;
use crate::recovery::{Recovered, Verdict, incarnation_mark};
use crate::script::{Progress, Script};
use crate::segments::Segment;
use crate::shared_superblock::Line;

/// How the replica of an opened group starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The partition is created right now.
    Fresh,
    /// It ran here before, or may have run elsewhere.
    Used,
}

/// A group whose files are being brought in order.
pub(crate) struct Opening {
    pub(crate) spec: GroupSpec,
    pub(crate) recovered: Recovered,
    pub(crate) paths: Paths,
    pub(crate) queues: Queues,
    pub(crate) superblock: SuperblockFile,
    pub(crate) begin: Begin,
    /// The views in its line of the shared superblock, for a group that stays without files.
    pub(crate) line: Option<(View, View)>,
    /// Polls that came early: what was recovered is served, not denied.
    pub(crate) polls: Vec<(u64, PollQuery)>,
    script: Script,
}

impl Opening {
    /// Starts the disk work for `spec`; `None` when the folder must not be touched.
    pub(crate) fn start(
        spec: GroupSpec,
        mut recovered: Recovered,
        line: Option<Line>,
        queues: Queues,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let paths = Paths::new(spec.group.unpack()?);
        let mut begin = Begin::Used;
        let mut steps = std::mem::take(&mut recovered.repairs);
        let old = recovered.superblock;
        let parent = paths.parent();
        match &recovered.verdict {
            Verdict::Refused { .. } => return None,
            Verdict::Absent | Verdict::Stale => {
                if recovered.verdict == Verdict::Stale {
                    let path = paths.dir().clone();
                    steps.extend([
                        DiskOp::RemoveTree { path },
                        DiskOp::SyncDir { path: parent },
                    ]);
                }
                if spec.is_new {
                    begin = Begin::Fresh;
                }
            }
            Verdict::Usable => {}
            Verdict::SetAside { number, .. } => {
                let promises = old.record.map(without_data);
                steps.extend(set_aside_steps(&paths, *number, promises.as_ref()));
                recovered.superblock = LoadedSuperblock {
                    record: promises,
                    sequence: u64::from(promises.is_some()),
                };
            }
        }
        steps.extend(folder_steps(&paths));
        // A policy that needs files from the start was chosen for a group that had none: what
        // it promised so far goes where its promises will be.
        let line = line.filter(|_| recovered.superblock.record.is_none());
        if let Some(line) = line {
            let record = first_record(&spec, Begin::Used, Some(line), context.node);
            steps.push(first_superblock(&paths, &record));
            recovered.superblock = LoadedSuperblock {
                record: Some(record),
                sequence: 1,
            };
        }
        if recovered.verdict != Verdict::Usable {
            recovered.applied_generation = spec.purge_generation;
            let (generation, revision) = (spec.purge_generation, spec.created_revision);
            steps.extend(generation_step(&paths, generation, revision));
        }
        if recovered.segments.is_empty() {
            let start = first_offset(&recovered);
            steps.extend(segment_steps(&paths, start));
            recovered.segments.push(Segment::empty(start));
        }
        let superblock =
            SuperblockFile::open(paths.dir(), queues.superblock(), &recovered.superblock).ok()?;
        if recovered.superblock.record.is_none() {
            recovered.superblock = old;
        }
        let script = Script::start(queues.files(), steps, context);
        Some(Self {
            spec,
            recovered,
            paths,
            queues,
            superblock,
            begin,
            line: None,
            polls: Vec::new(),
            script,
        })
    }

    /// A group that nobody has written to: there is nothing to bring in order. `line` is what
    /// the shared superblock has of it.
    pub(crate) fn start_dormant(
        spec: GroupSpec,
        line: Option<Line>,
        queues: Queues,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let paths = Paths::new(spec.group.unpack()?);
        let begin = match line {
            None if spec.is_new => Begin::Fresh,
            _ => Begin::Used,
        };
        let first = first_record(&spec, begin, line, context.node);
        let mut recovered = Recovered::bare(Verdict::Absent);
        recovered.applied_generation = spec.purge_generation;
        recovered.segments.push(Segment::empty(0));
        let promised = LoadedSuperblock {
            record: Some(first),
            sequence: 0,
        };
        if line.is_some() {
            recovered.superblock = promised;
        }
        let superblock = SuperblockFile::open(paths.dir(), queues.superblock(), &promised).ok()?;
        Some(Self {
            script: Script::start(queues.files(), [], context),
            line: Some((first.view, first.log_view)),
            spec,
            recovered,
            paths,
            queues,
            superblock,
            begin,
            polls: Vec::new(),
        })
    }

    /// Retries what failed.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
        self.script.tick(context);
        self.superblock.tick(&mut context.scratch.disk);
        context.pass_disk();
    }

    /// A completion of one of the group's queues; `true` when the group may be opened.
    pub(crate) fn on_disk(&mut self, done: DiskCompletion, context: &mut Context<'_>) -> bool {
        if done.queue == self.queues.superblock() {
            let durable = self.superblock.complete(&done, &mut context.scratch.disk);
            context.pass_disk();
            return durable.is_some();
        }
        self.on_step(done.token, &done.result, context)
    }

    fn on_step(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> bool {
        match self.script.complete(token, result, context) {
            Progress::NotMine | Progress::Running => false,
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "opening failed, will retry");
                false
            }
            Progress::Done => self.write_superblock(context),
        }
    }

    /// Leaves the durable trace, unless it is there; `true` when it is.
    fn write_superblock(&mut self, context: &mut Context<'_>) -> bool {
        if self.superblock.durable().is_some() {
            return true;
        }
        let line = self.recovered.superblock.record.map(|record| Line {
            revision: self.spec.created_revision,
            view: record.view,
            log_view: record.log_view,
        });
        let record = first_record(&self.spec, self.begin, line, context.node);
        self.superblock.persist(record, &mut context.scratch.disk);
        context.pass_disk();
        false
    }
}

/// Where messages begin in a folder without segments. An install that was cut short took them away
/// and left the frontier behind, up to which they are; what the prepare log still has is applied
/// again, and would be taken for applied if the segments began behind it.
fn first_offset(recovered: &Recovered) -> u64 {
    let record = recovered.superblock.record;
    let frontier = record.map_or(0, |record| record.offset_frontier);
    let applied = recovered.applied();
    let entries = recovered.log.entries();
    let first = entries.iter().find_map(|entry| {
        let vsr::LogEntry::Intact(prepare) = entry else {
            return None;
        };
        let header: &PrepareHeader = prepare.header();
        let is_open = header.op() > applied;
        let is_batch = is_open && header.operation() == Operation::SendMessages;
        let batch = is_batch.then(|| BatchHeader::read(prepare.body()))?;
        batch.map(|batch| batch.base_offset)
    });
    first.map_or(frontier, |first| first.min(frontier))
}

/// The first record of a group without data, with the views that were promised, if any.
fn first_record(
    spec: &GroupSpec,
    begin: Begin,
    promised: Option<Line>,
    node: &Node,
) -> SuperblockRecord {
    let created = match begin {
        Begin::Fresh => spec.created_view,
        Begin::Used => View(0),
    };
    SuperblockRecord {
        view: promised.map_or(created, |line| line.view),
        log_view: promised.map_or(created, |line| line.log_view),
        checkpoint_checksum: incarnation_mark(spec.created_revision),
        ..SuperblockRecord::fresh(node.identity.journal())
    }
}

/// The promises of a folder whose log and messages are given up. Its views stay promised; the
/// log of the last one does not, or the next start would lead or vote with an empty one.
fn without_data(record: SuperblockRecord) -> SuperblockRecord {
    SuperblockRecord {
        log_view: View(0),
        commit_max: Op::ZERO,
        checkpoint_op: Op::ZERO,
        offset_frontier: 0,
        ..record
    }
}

/// The folder goes, and one with the same promises takes its place. A crash in between leaves
/// one of the two under a name that recovery looks at.
fn set_aside_steps(paths: &Paths, number: u64, promises: Option<&SuperblockRecord>) -> Vec<DiskOp> {
    let (dir, next, parent) = (paths.dir().clone(), paths.successor(), paths.parent());
    let sync = || DiskOp::SyncDir {
        path: parent.clone(),
    };
    let rename = |from: &DiskPath, to: DiskPath| DiskOp::Rename {
        from: from.clone(),
        to,
    };
    let mut steps = vec![
        DiskOp::RemoveTree { path: next.clone() },
        DiskOp::CreateDirs { path: next.clone() },
    ];
    let copy = next.join(SuperblockCopy::of(1).name()).ok();
    if let Some((path, record)) = copy.zip(promises) {
        let data = vec![Chunk::from(encode_superblock(record, 1).to_vec())];
        steps.push(DiskOp::Replace { path, data });
    }
    steps.extend([sync(), rename(&dir, paths.fenced(number)), sync()]);
    steps.extend([rename(&next, dir), sync()]);
    steps
}

pub(crate) fn folder_steps(paths: &Paths) -> [DiskOp; 2] {
    [CONSUMERS, GROUPS].map(|name| DiskOp::CreateDirs {
        path: paths.file(name),
    })
}

fn segment_steps(paths: &Paths, start: u64) -> Vec<DiskOp> {
    let create = |path| DiskOp::Write {
        path,
        offset: 0,
        data: Vec::new(),
        sync: true,
    };
    let path = paths.dir().clone();
    vec![
        create(paths.log(start)),
        create(paths.index(start)),
        DiskOp::SyncDir { path },
    ]
}

/// A partition that is created under a committed purge has nothing to purge: its record says so
/// from the start, or a restart would purge what came since.
pub(crate) fn generation_step(paths: &Paths, generation: u64, revision: u64) -> Option<DiskOp> {
    let bytes = purge_record::encode(generation, revision);
    let path = paths.file(purge_record::FILE_NAME);
    let step = DiskOp::Replace {
        path,
        data: vec![Chunk::from(bytes.to_vec())],
    };
    (generation > 0).then_some(step)
}

#[cfg(test)]
mod tests {
    use biplane_journal::Identity;
    use biplane_wire::{Checksum, ClusterId, ReplicaId};

    use super::*;

    #[test]
    fn promises_without_data_name_no_log() {
        let record = SuperblockRecord {
            identity: Identity {
                cluster: ClusterId(7),
                replica: ReplicaId(1),
                replica_count: 3,
            },
            view: View(15),
            log_view: View(14),
            commit_max: Op(70),
            checkpoint_op: Op(68),
            offset_frontier: 40,
            checkpoint_checksum: Checksum(9),
        };
        let expected = SuperblockRecord {
            log_view: View(0),
            commit_max: Op::ZERO,
            checkpoint_op: Op::ZERO,
            offset_frontier: 0,
            ..record
        };
        assert_eq!(without_data(record), expected);
    }
}
