//! Making a transferred state current, step by step, each durable before the next (chapter 04
//! section 3.11).
//!
//! The order of the steps is data of the transfer crate; here each one becomes disk work, a
//! superblock write or a change in memory. A step that fails is tried again: from the removal
//! of the old segments on there is no way back.

use std::collections::{BTreeSet, VecDeque};

use biplane_journal::{Chunk, DiskError, DiskOp, DiskReply};
use biplane_state_transfer::{
    Checkpoint, ConsumerOffsets, DedupEntry, FrontierWrite, InstallStep, PartitionInstall,
    TICK_MILLIS, newest_dedup,
};
use biplane_vsr as vsr;
use biplane_wire::{Checksum, Op, PrepareHeader};

use super::Group;
use crate::consumer_offsets::{ConsumerKey, encode_file};
use crate::context::Context;
use crate::dedup::Entry;
use crate::scan::BatchMark;
use crate::script::{Progress, Script};
use crate::segments::{Segment, Segments};
use crate::stats::PartitionStats;

/// An install under way.
#[derive(Debug)]
pub(crate) struct Installing {
    plan: PartitionInstall,
    steps: VecDeque<InstallStep>,
    offsets: ConsumerOffsets,
    segments: Vec<Segment>,
    /// Segments that stay where they are, by their start.
    kept: BTreeSet<u64>,
    /// Their last batches.
    marks: Vec<BatchMark>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// The next step may begin.
    None,
    Files(Script),
    /// The superblock is being written with this frontier.
    Superblock(u64),
}

impl Installing {
    pub(super) fn new(
        plan: PartitionInstall,
        offsets: ConsumerOffsets,
        segments: Vec<Segment>,
        kept: BTreeSet<u64>,
        marks: Vec<BatchMark>,
    ) -> Self {
        let steps = plan.steps().into();
        Self {
            plan,
            steps,
            offsets,
            segments,
            kept,
            marks,
            work: Work::None,
        }
    }

    /// Stored positions as they are installed.
    fn positions(&self) -> Vec<(ConsumerKey, u64)> {
        let consumers = self.offsets.consumers.iter();
        let groups = self.offsets.groups.iter();
        let consumers = consumers.map(|row| (ConsumerKey::Consumer(row.id), row.offset));
        let groups = groups.map(|row| (ConsumerKey::Group(row.id), row.offset));
        let clamped = |(key, offset)| self.plan.clamp(offset).map(|offset| (key, offset));
        consumers.chain(groups).filter_map(clamped).collect()
    }
}

impl Group {
    pub(super) fn tick_install(&mut self, context: &mut Context<'_>) {
        if let Some(Installing {
            work: Work::Files(script),
            ..
        }) = &mut self.transfer.installing
        {
            script.tick(context);
        }
    }

    /// A completion of the files queue that may belong to the install.
    pub(super) fn on_install_step(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        let Some(installing) = &mut self.transfer.installing else {
            return;
        };
        let Work::Files(script) = &mut installing.work else {
            return;
        };
        match script.complete(token, result, context) {
            Progress::NotMine | Progress::Running => {}
            Progress::Retrying(error) => {
                tracing::warn!(group = %self.spec.group, %error, "install failed, will retry");
            }
            Progress::Done => {
                installing.work = Work::None;
                self.advance_install(context);
            }
        }
    }

    /// The superblock carries `frontier` now.
    pub(super) fn on_install_frontier(&mut self, frontier: u64, context: &mut Context<'_>) {
        let Some(installing) = &mut self.transfer.installing else {
            return;
        };
        if matches!(installing.work, Work::Superblock(wanted) if wanted == frontier) {
            installing.work = Work::None;
            self.advance_install(context);
        }
    }

    /// Takes steps until one has to wait.
    pub(super) fn advance_install(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(installing) = &mut self.transfer.installing else {
                return;
            };
            if !matches!(installing.work, Work::None) {
                return;
            }
            let Some(step) = installing.steps.pop_front() else {
                return self.finish_install(context);
            };
            if let Some(files) = self.take_step(step, context) {
                let script = Script::start(self.queues.files(), files, context);
                if let Some(installing) = &mut self.transfer.installing {
                    installing.work = Work::Files(script);
                }
            }
        }
    }

    /// One step; the disk work it consists of, if any.
    fn take_step(&mut self, step: InstallStep, context: &mut Context<'_>) -> Option<Vec<DiskOp>> {
        let sync_dir = DiskOp::SyncDir {
            path: self.paths.dir().clone(),
        };
        match step {
            // Positions are written from memory at their own step, which is retried until it
            // succeeds; staging them would not make that safer. The prepare log is not moved:
            // what it holds stays true of a replica that is behind.
            InstallStep::StageOffsets
            | InstallStep::BackUpPrepareLog
            | InstallStep::SweepStaging
            | InstallStep::RemoveBackup => None,
            InstallStep::WriteFrontier(FrontierWrite::AtLeast(next)) => {
                self.write_frontier(self.frontier.max(next), context)
            }
            InstallStep::WriteFrontier(FrontierWrite::Reset(next)) => {
                self.write_frontier(next, context)
            }
            InstallStep::RemoveSegments => {
                let mut steps = self.removal_of_segments();
                steps.extend(self.syncs_of_kept());
                self.forget_log(context);
                steps.push(sync_dir);
                Some(steps)
            }
            InstallStep::RenameIndexes => {
                let bases = self.installed_bases();
                let rename = |base| DiskOp::Rename {
                    from: self.staged_index(base),
                    to: self.paths.index(base),
                };
                Some(bases.into_iter().map(rename).chain([sync_dir]).collect())
            }
            InstallStep::RenameLog { base_offset } if self.keeps(base_offset) => None,
            InstallStep::RenameLog { base_offset } => {
                let (from, to) = (self.staged_log(base_offset), self.paths.log(base_offset));
                Some(vec![DiskOp::Rename { from, to }, sync_dir])
            }
            InstallStep::OpenSegments { next_offset } => self.open_segments(next_offset),
            InstallStep::ClearMemory => None,
            InstallStep::ReplaceOffsets => Some(self.replace_offsets()),
            InstallStep::PublishCounters { next_offset } => self.publish_counters(next_offset),
            InstallStep::InstallDedup => self.install_dedup(),
            InstallStep::WritePurgeGeneration(generation) => {
                self.purge.advance_to(generation);
                Some(vec![self.purge_record_step(generation)])
            }
            InstallStep::ResetPrepareLog => self.restart_log(context),
            InstallStep::SetPoints {
                commit_op,
                commit_max,
                prepare_checksum,
            } => self.set_points(commit_op, commit_max, prepare_checksum, context),
            InstallStep::WriteSuperblock => self.write_frontier(self.frontier, context),
        }
    }

    fn write_frontier(&mut self, frontier: u64, context: &mut Context<'_>) -> Option<Vec<DiskOp>> {
        self.frontier = frontier;
        if let Some(installing) = &mut self.transfer.installing {
            installing.work = Work::Superblock(frontier);
        }
        self.persist_frontier(context);
        let durable = self
            .superblock
            .durable()
            .map(|record| record.offset_frontier);
        if self.superblock.is_idle()
            && durable == Some(frontier)
            && let Some(installing) = &mut self.transfer.installing
        {
            installing.work = Work::None;
        }
        None
    }

    fn keeps(&self, base_offset: u64) -> bool {
        let installing = self.transfer.installing.as_ref();
        installing.is_some_and(|installing| installing.kept.contains(&base_offset))
    }

    fn removal_of_segments(&self) -> Vec<DiskOp> {
        let removed = self
            .segments
            .iter()
            .filter(|segment| !self.keeps(segment.start));
        let paths = removed.flat_map(|segment| {
            [
                self.paths.log(segment.start),
                self.paths.index(segment.start),
            ]
        });
        paths.map(|path| DiskOp::Remove { path }).collect()
    }

    /// The log will go on from what is installed: segments that stay have to be synced like those
    /// that come.
    fn syncs_of_kept(&self) -> Vec<DiskOp> {
        let installing = self.transfer.installing.iter();
        let kept = installing
            .flat_map(|installing| &installing.kept)
            .filter(|_| self.log.has_found_segments());
        let paths = kept.flat_map(|start| [self.paths.log(*start), self.paths.index(*start)]);
        paths.map(|path| DiskOp::Sync { path }).collect()
    }

    fn forget_log(&mut self, context: &mut Context<'_>) {
        context.provider.forget(self.spec.group);
        self.abandon_polls(context);
        self.flusher.abandon();
        self.state.resident.clear();
        *context.resident_total -= self.resident_bytes;
        self.resident_bytes = 0;
        self.unflushed_bytes = 0;
        self.unflushed_since = None;
    }

    fn installed_bases(&self) -> Vec<u64> {
        let installing = self.transfer.installing.iter();
        installing
            .flat_map(|i| i.segments.iter().map(|segment| segment.start))
            .filter(|start| !self.keeps(*start))
            .collect()
    }

    fn open_segments(&mut self, next_offset: u64) -> Option<Vec<DiskOp>> {
        let installing = self.transfer.installing.as_mut()?;
        let mut list = std::mem::take(&mut installing.segments);
        let none = list.is_empty();
        if none {
            list.push(Segment::empty(next_offset));
        }
        let last = list.len() - 1;
        list[..last]
            .iter_mut()
            .for_each(|segment| segment.sealed = true);
        self.segments = Segments::recovered(list, self.spec.options.segment_size);
        none.then(|| self.empty_segment(next_offset).into())
    }

    fn replace_offsets(&mut self) -> Vec<DiskOp> {
        let positions = self.transfer.installing.as_ref().map(Installing::positions);
        let positions = positions.unwrap_or_default();
        let listed = |key: &ConsumerKey| positions.iter().any(|(other, _)| other == key);
        let gone = self
            .offset_file_keys()
            .into_iter()
            .filter(|key| !listed(key));
        let mut steps: Vec<DiskOp> = gone
            .map(|key| DiskOp::Remove {
                path: self.paths.offset(key),
            })
            .collect();
        steps.extend(positions.iter().map(|(key, offset)| {
            let data = vec![Chunk::Bytes(encode_file(*offset).as_slice().into())];
            let path = self.paths.offset(*key);
            match self.state.persisted {
                true => DiskOp::Replace { path, data },
                false => DiskOp::Write {
                    path,
                    offset: 0,
                    data,
                    sync: false,
                },
            }
        }));
        steps.extend(self.sync_offset_folders());
        self.state.offsets.clear();
        for (key, offset) in positions {
            self.state.offsets.restore(key, offset);
        }
        steps
    }

    fn publish_counters(&mut self, next_offset: u64) -> Option<Vec<DiskOp>> {
        self.state.committed_next = next_offset;
        self.state.rewind_floor = next_offset;
        self.state.is_ahead = false;
        self.state.is_unmarked = false;
        let installing = self.transfer.installing.as_mut();
        self.state.marks = installing.map_or(Vec::new(), |it| std::mem::take(&mut it.marks));
        // A server that was restarted has messages in its segments of ops that it knows to be
        // in its log, and not yet to be committed again: they will be committed here as well.
        self.state.is_replaying = self.segments.bytes() > 0;
        let commit_op = self
            .transfer
            .installing
            .as_ref()
            .map(|i| i.plan.commit_op())
            .unwrap_or_default();
        if commit_op > Op::ZERO {
            self.cold.decide();
        }
        self.state.unapplied.forget_through(commit_op);
        self.state.follow_log();
        self.state.unbacked = 0;
        self.state.retained_from = 0;
        self.state.refused_stamp = None;
        self.stats = PartitionStats::of(&self.segments);
        None
    }

    fn install_dedup(&mut self) -> Option<Vec<DiskOp>> {
        let installing = self.transfer.installing.as_ref()?;
        let rows: Vec<DedupEntry> =
            newest_dedup(&installing.offsets.dedup, self.state.dedup.capacity());
        self.state.dedup.install(rows.into_iter().map(|row| {
            let entry = Entry {
                user_id: row.user_id,
                watermark: row.watermark,
                window: row.committed_window,
                latest_commit: row.latest_commit.0,
            };
            (row.client.0, entry)
        }));
        None
    }

    pub(super) fn checkpoint_prepare(&self) -> Option<biplane_wire::Message> {
        match &self.transfer.installing.as_ref()?.offsets.checkpoint {
            Checkpoint::Known { prepare, .. } => prepare.clone(),
            Checkpoint::Unknown => None,
        }
    }

    /// The replica stands at `commit_op` now. When the prepare there came along it enters the
    /// log, so that this replica can name it in a view change.
    fn set_points(
        &mut self,
        commit_op: Op,
        commit_max: Op,
        checksum: Option<Checksum>,
        context: &mut Context<'_>,
    ) -> Option<Vec<DiskOp>> {
        self.state.installed = self.state.installed.max(commit_op);
        let prepare = self.checkpoint_prepare();
        let out = &mut context.scratch.vsr;
        let state = &mut self.state;
        match (&prepare, commit_op.previous()) {
            (Some(prepare), Some(below)) if below >= self.replica.commit_min() => {
                let parent = prepare.header::<PrepareHeader>().parent();
                self.replica
                    .install_floor(below, Some(parent), commit_max, state, out);
            }
            _ => self
                .replica
                .install_floor(commit_op, checksum, commit_max, state, out),
        }
        self.translate(context);
        None
    }

    fn finish_install(&mut self, context: &mut Context<'_>) {
        let prepare = self.checkpoint_prepare();
        let checkpoint = self.transfer.installing.take().map(|installing| {
            let commit_op = installing.plan.commit_op();
            (commit_op, installing.offsets.checkpoint)
        });
        self.forget_staged();
        let pulled = self.puller.progress();
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.installed(&mut out);
        self.act_on_pull(out, context);
        let Some((commit_op, checkpoint)) = checkpoint else {
            return;
        };
        if self.replica.commit_min() < commit_op {
            if let Some(prepare) = prepare {
                let out = &mut context.scratch.vsr;
                self.replica.ingest_repaired(prepare, &mut self.state, out);
            }
            self.translate(context);
            self.walk_commits(context);
        }
        if self.replica.commit_min() < commit_op {
            let checksum = match checkpoint {
                Checkpoint::Known { checksum, .. } => Some(checksum),
                Checkpoint::Unknown => None,
            };
            let commit_max = self.replica.commit_max();
            let out: &mut Vec<vsr::Output> = &mut context.scratch.vsr;
            self.replica
                .install_floor(commit_op, checksum, commit_max, &mut self.state, out);
        }
        let bytes = pulled.map_or(0, |pulled| pulled.bytes_received);
        let millis = pulled.map_or(0, |pulled| pulled.ticks * TICK_MILLIS);
        let group = self.spec.group;
        tracing::info!(%group, %commit_op, bytes, millis, "state transfer installed");
    }
}
