//! Where a group keeps what it promised: in files of its own, or, as long as nobody has written
//! to the partition, in its line of the shared superblock (see [`crate::shared_superblock`]).
//!
//! A dormant group takes part in everything that needs no log: heartbeats, probes, elections of
//! an empty log. What would put an operation into its log, or anything into its files, waits
//! until folder, first segment and superblock are there and the line is taken back. From the
//! moment they are being made views are not promised through the line any more, so that the
//! superblock is never behind it.

use biplane_journal::{
    Chunk, DiskError, DiskOp, DiskReply, LoadedSuperblock, SuperblockCopy, SuperblockFile,
    SuperblockRecord, encode_superblock,
};
use biplane_vsr as vsr;
use biplane_wire::{Op, ReplicaFrame, View};

use super::Group;
use crate::context::Context;
use crate::opening::{folder_steps, generation_step};
use crate::paths::Paths;
use crate::script::{Progress, Script};
use crate::shared_superblock::{Change, Line};

/// Home of a group.
#[derive(Debug)]
pub(crate) enum Home {
    /// Files of its own.
    Files,
    /// A line, with the views that were asked for last.
    Line { view: View, log_view: View },
    /// The files are being made, with this record in the superblock.
    Making(Box<Making>),
    /// The line is being taken back; a record that waits for it.
    Leaving { held: Option<SuperblockRecord> },
}

/// Files on their way.
#[derive(Debug)]
pub(crate) struct Making {
    script: Script,
    record: SuperblockRecord,
    /// Asked for meanwhile.
    held: Option<SuperblockRecord>,
}

impl Home {
    /// Whether the group has files and nothing else.
    pub(crate) fn has_files(&self) -> bool {
        matches!(self, Self::Files)
    }

    /// Whether nothing of the group was ever written to its folder in this life.
    pub(crate) fn is_line(&self) -> bool {
        matches!(self, Self::Line { .. })
    }

    /// Whether a step failed and is tried again by a tick.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self, Self::Making(making) if making.script.is_failing())
    }
}

/// Superblock copy `a` as the first write of it.
pub(crate) fn first_superblock(paths: &Paths, record: &SuperblockRecord) -> DiskOp {
    DiskOp::Replace {
        path: paths.file(SuperblockCopy::of(1).name()),
        data: vec![Chunk::from(encode_superblock(record, 1).to_vec())],
    }
}

impl Group {
    /// Whether a frame may take effect on a group without files.
    pub(crate) fn is_for_files(&self, frame: &ReplicaFrame) -> bool {
        match frame {
            ReplicaFrame::Commit(typed) => typed.header().commit() > Op::ZERO,
            ReplicaFrame::DoViewChange(typed) => typed.header().op() > Op::ZERO,
            ReplicaFrame::StartView(typed) => typed.header().op() > Op::ZERO,
            ReplicaFrame::StateTransferTarget(typed) => self.offers_messages(typed),
            ReplicaFrame::StartViewChange(_)
            | ReplicaFrame::RequestStartView(_)
            | ReplicaFrame::PrepareOk(_)
            | ReplicaFrame::RequestPrepares(_)
            | ReplicaFrame::RequestStateTransfer(_)
            | ReplicaFrame::RequestStateChunk(_) => false,
            _ => true,
        }
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Starts to make the group's files, unless that is under way.
    pub(crate) fn make_files(&mut self, context: &mut Context<'_>) {
        let Home::Line { view, log_view } = self.home else {
            return;
        };
        let record = self.superblock_record(view, log_view, Op::ZERO, context.node);
        let mut steps = Vec::from(folder_steps(&self.paths));
        steps.extend(generation_step(
            &self.paths,
            self.purge.applied(),
            self.spec.created_revision,
        ));
        // Their names are durable with the superblock's, in whose folder they are.
        steps.extend(
            [self.paths.log(0), self.paths.index(0)].map(|path| DiskOp::Write {
                path,
                offset: 0,
                data: Vec::new(),
                sync: false,
            }),
        );
        steps.push(first_superblock(&self.paths, &record));
        let script = Script::start(self.queues.files(), steps, context);
        self.home = Home::Making(Box::new(Making {
            script,
            record,
            held: None,
        }));
    }

    /// A tick for a step that failed.
    pub(super) fn tick_home(&mut self, context: &mut Context<'_>) {
        if let Home::Making(making) = &mut self.home {
            making.script.tick(context);
        }
    }

    /// A completion of the files' queue; `false` when it answers something else.
    pub(super) fn on_home_step(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> bool {
        let Home::Making(making) = &mut self.home else {
            return false;
        };
        match making.script.complete(token, result, context) {
            Progress::NotMine => return false,
            Progress::Running => {}
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "files wait for the disk");
            }
            Progress::Done => {
                let loaded = LoadedSuperblock {
                    record: Some(making.record),
                    sequence: 1,
                };
                let held = making.held.take();
                let queue = self.queues.superblock();
                self.superblock = SuperblockFile::open(self.paths.dir(), queue, &loaded)
                    .expect("it fitted when the group was opened");
                self.home = Home::Leaving { held };
                context.lines.push(self.line_change(None));
            }
        }
        true
    }

    fn line_change(&self, line: Option<Line>) -> Change {
        Change {
            group: self.spec.group,
            revision: self.spec.created_revision,
            line,
        }
    }

    /// Promises a record where this group keeps it. `None` when that is for its own superblock.
    pub(super) fn promise_without_files(
        &mut self,
        record: SuperblockRecord,
        context: &mut Context<'_>,
    ) -> Option<()> {
        match &mut self.home {
            Home::Files => return None,
            Home::Making(making) => making.held = Some(record),
            Home::Leaving { held } => *held = Some(record),
            Home::Line { view, log_view } => {
                (*view, *log_view) = (record.view, record.log_view);
                let line = Line {
                    revision: self.spec.created_revision,
                    view: record.view,
                    log_view: record.log_view,
                };
                context.lines.push(self.line_change(Some(line)));
            }
        }
        Some(())
    }

    /// A change of the line is durable; whether the group has files from here on.
    pub(crate) fn on_line(&mut self, line: Option<Line>, context: &mut Context<'_>) -> bool {
        if let Some(Line { view, log_view, .. }) = line {
            // A line has no commit point, and its group no log in a file.
            let persisted = vsr::Input::ViewPersisted {
                view,
                log_view,
                commit_max: Op::ZERO,
            };
            self.step_replica(persisted, context);
            self.settle(context);
            return false;
        }
        let Home::Leaving { held } = &mut self.home else {
            return false;
        };
        let held = held.take();
        self.home = Home::Files;
        if let Some(record) = held {
            self.persist(record, context);
        }
        self.settle(context);
        true
    }

    /// What was promised last, wherever it is kept.
    pub(super) fn promised(&self) -> Option<SuperblockRecord> {
        match &self.home {
            Home::Making(making) => making.held.or(Some(making.record)),
            Home::Leaving { held: Some(held) } => Some(*held),
            _ => self.superblock.newest().copied(),
        }
    }
}
