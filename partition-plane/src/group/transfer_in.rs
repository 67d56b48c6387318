//! Pulling a state transfer: artifacts to staging files, checked as they come (chapter 04
//! sections 3.7 and 3.11). [`super::install`] makes them current.

use std::collections::{BTreeMap, BTreeSet};

use biplane_journal::{Chunk, DiskError, DiskOp, DiskPath, DiskReply};
use biplane_state_transfer::{
    ConsumerOffsets, MemorySpool, Offer, PartitionInstallFacts, PartitionRefusal, PullOutput,
    PullView, Puller, SegmentWalk, Stage, WalkedBatch, WalkedSegment, artifact_kind,
    check_partition,
};
use biplane_vsr as vsr;
use biplane_wire::{ManifestEntry, ReplicaId, StateChunkHeader, StateTransferTargetHeader, Typed};

use super::Group;
use super::install::Installing;
use super::transfer_out::ServedReads;
use crate::context::Context;
use crate::paths::STAGING;
use crate::segments::{BatchMeta, Segment};

/// Writes under way at which no further chunk is asked for.
const WRITES_MAX: usize = 16;

/// A segment on its way in.
#[derive(Debug)]
struct Staged {
    entry: ManifestEntry,
    /// It is a segment of this group already: there is nothing to move.
    held: bool,
    /// `None` once the walk ended or failed.
    walk: Option<SegmentWalk>,
    walked: Option<WalkedSegment>,
    segment: Segment,
}

/// The receiving side of a group's transfers, and reads for those it serves.
#[derive(Debug, Default)]
pub(crate) struct TransferIn {
    staged: BTreeMap<u64, Staged>,
    offsets: MemorySpool,
    writes: BTreeSet<u64>,
    paused: bool,
    /// All artifacts are there; their writes may not be.
    fetched: Option<Offer>,
    pub(super) installing: Option<Installing>,
    pub(super) served_reads: ServedReads,
}

impl TransferIn {
    /// Whether files are being replaced.
    pub(crate) fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Whether a transfer is wanted, scheduled or under way.
    pub(crate) fn is_busy(&self, puller: &Puller) -> bool {
        puller.stage() != Stage::Idle || puller.is_scheduled()
    }
}

impl Group {
    fn pull_view(&self) -> PullView {
        PullView {
            view: self.replica.view(),
            commit_min: self.replica.commit_min(),
            commit_max: self.replica.commit_max(),
        }
    }

    /// Repair found that the log alone cannot bring this replica up to date.
    pub(super) fn arm_transfer(&mut self, from: ReplicaId, context: &mut Context<'_>) {
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.start(from, context.pulls, &mut out);
        self.act_on_pull(out, context);
    }

    /// What is being pulled is not wanted any more. An install that runs goes on to its end.
    pub(super) fn cancel_transfer(&mut self, context: &mut Context<'_>) {
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.cancel(&mut out);
        self.act_on_pull(out, context);
    }

    pub(super) fn on_transfer_notice(
        &mut self,
        notice: vsr::TransferNotice,
        context: &mut Context<'_>,
    ) {
        match notice {
            vsr::TransferNotice::Begin { from } => self.arm_transfer(from, context),
            vsr::TransferNotice::Abandoned => self.cancel_transfer(context),
        }
    }

    pub(super) fn tick_transfer(&mut self, context: &mut Context<'_>) {
        self.tick_install(context);
        if !self.transfer.is_busy(&self.puller) {
            return;
        }
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.tick(&self.pull_view(), context.pulls, &mut out);
        self.act_on_pull(out, context);
    }

    pub(super) fn on_transfer_target(
        &mut self,
        from: ReplicaId,
        target: &Typed<StateTransferTargetHeader>,
        context: &mut Context<'_>,
    ) {
        let is_awaited = self.puller.awaits_target(from, target.header());
        if is_awaited && !self.is_worth_taking(target, context) {
            return self.cancel_transfer(context);
        }
        let mut out = std::mem::take(&mut context.scratch.pull);
        if let Err(reason) = self
            .puller
            .on_target(from, target, &self.pull_view(), &mut out)
        {
            tracing::debug!(group = %self.spec.group, %reason, "descriptor ignored");
        }
        self.act_on_pull(out, context);
    }

    pub(super) fn on_transfer_chunk(
        &mut self,
        from: ReplicaId,
        chunk: &Typed<StateChunkHeader>,
        context: &mut Context<'_>,
    ) {
        let mut out = std::mem::take(&mut context.scratch.pull);
        if let Err(reason) = self.puller.on_chunk(from, chunk, &mut out) {
            tracing::debug!(group = %self.spec.group, %reason, "chunk ignored");
        }
        self.act_on_pull(out, context);
    }

    pub(super) fn act_on_pull(&mut self, mut out: Vec<PullOutput>, context: &mut Context<'_>) {
        let mut at = 0;
        while at < out.len() {
            // Judging an output may make the puller say more: it is appended and comes up here.
            let output = out[at].clone();
            at += 1;
            self.act_on_pull_output(output, &mut out, context);
        }
        out.clear();
        context.scratch.pull = out;
        self.pace_transfer(context);
    }

    fn act_on_pull_output(
        &mut self,
        output: PullOutput,
        more: &mut Vec<PullOutput>,
        context: &mut Context<'_>,
    ) {
        match output {
            PullOutput::Send { to, message } => context.send(to, message),
            PullOutput::Stage(stage) => {
                if stage == Stage::AwaitingTarget {
                    self.hold_segments();
                }
                self.replica.set_transfer_stage(stage);
            }
            PullOutput::Spool {
                index,
                entry,
                offset,
                chunk,
            } => {
                if entry.kind != artifact_kind::SEGMENT_LOG {
                    self.transfer.offsets.store(&entry, offset, chunk.body());
                } else if !self.spool_segment(&entry, offset, &chunk, context) {
                    self.puller.reject(Some(index), more);
                }
            }
            PullOutput::Complete {
                index,
                entry,
                reused,
            } => {
                let is_segment = entry.kind == artifact_kind::SEGMENT_LOG;
                if is_segment && !reused && !self.complete_segment(&entry, context) {
                    self.puller.reject(Some(index), more);
                }
            }
            PullOutput::Discard { entry } => self.discard(&entry, context),
            PullOutput::Fetched(offer) => self.transfer.fetched = Some(offer),
            PullOutput::Ended {
                outcome,
                repair_from,
            } => {
                if self.cold.is_looking() {
                    tracing::debug!(group = %self.spec.group, ?outcome, "a look at a peer ended");
                } else {
                    tracing::info!(group = %self.spec.group, ?outcome, "state transfer ended");
                }
                self.note_transfer(outcome);
                self.transfer.fetched = None;
                self.requester.prompt(repair_from);
            }
        }
    }

    /// Segments that were read whole and not appended to since are not pulled again when the
    /// offer lists them.
    fn hold_segments(&mut self) {
        for segment in self.segments.iter() {
            let pulled = self
                .transfer
                .staged
                .get(&segment.start)
                .is_some_and(|s| !s.held);
            let usable = segment.digest.filter(|_| segment.size > 0 && !pulled);
            let Some(checksum) = usable else { continue };
            let entry = ManifestEntry {
                kind: artifact_kind::SEGMENT_LOG,
                frontier: segment.start,
                length: segment.size,
                checksum,
            };
            let walked = WalkedSegment {
                base_offset: segment.start,
                next_offset: segment.next,
                length: segment.size,
                batches: segment.messages,
                last_timestamp: segment.max_timestamp,
            };
            let (walk, walked, segment) = (None, Some(walked), segment.clone());
            let staged = Staged {
                entry,
                held: true,
                walk,
                walked,
                segment,
            };
            self.transfer.staged.insert(entry.frontier, staged);
            self.puller.hold([entry]);
        }
    }

    fn staging_path(&self, name: &str) -> DiskPath {
        self.paths.file(&format!("{name}{STAGING}"))
    }

    pub(super) fn staged_log(&self, base: u64) -> DiskPath {
        self.staging_path(&crate::segments::log_name(base))
    }

    pub(super) fn staged_index(&self, base: u64) -> DiskPath {
        self.staging_path(&crate::segments::index_name(base))
    }

    fn spool(&mut self, op: DiskOp, context: &mut Context<'_>) {
        let token = context.submit(self.queues.spool(), op);
        self.transfer.writes.insert(token);
    }

    /// Writes the next bytes of a segment and walks over them; `false` when they are not one.
    fn spool_segment(
        &mut self,
        entry: &ManifestEntry,
        offset: u64,
        chunk: &Typed<StateChunkHeader>,
        context: &mut Context<'_>,
    ) -> bool {
        let base = entry.frontier;
        if offset == 0 {
            let most = context.node.limits.message_bytes_max as u64;
            let walk = Some(SegmentWalk::new(base, most));
            let segment = Segment::empty(base);
            let staged = Staged {
                entry: *entry,
                held: false,
                walk,
                walked: None,
                segment,
            };
            self.transfer.staged.insert(base, staged);
            let path = self.staged_log(base);
            self.spool(DiskOp::Remove { path }, context);
        }
        let data = vec![Chunk::Body(chunk.message().clone())];
        let path = self.staged_log(base);
        self.spool(
            DiskOp::Write {
                path,
                offset,
                data,
                sync: false,
            },
            context,
        );
        let Some(staged) = self.transfer.staged.get_mut(&base) else {
            return false;
        };
        let Some(walk) = &mut staged.walk else {
            return false;
        };
        let segment = &mut staged.segment;
        walk.feed(chunk.body(), |batch| segment.append(&meta_of(&batch)))
            .is_ok()
    }

    /// All bytes of a segment are there: its index follows, then both are made durable.
    fn complete_segment(&mut self, entry: &ManifestEntry, context: &mut Context<'_>) -> bool {
        let base = entry.frontier;
        let Some(staged) = self.transfer.staged.get_mut(&base) else {
            return false;
        };
        let Some(Ok(walked)) = staged.walk.take().map(SegmentWalk::finish) else {
            return false;
        };
        staged.walked = Some(walked);
        let bytes: Vec<u8> = staged
            .segment
            .index
            .iter()
            .flat_map(|e| e.encode())
            .collect();
        staged.segment.index_size = bytes.len() as u64;
        let (log, index) = (self.staged_log(base), self.staged_index(base));
        self.spool(DiskOp::Sync { path: log }, context);
        self.spool(
            DiskOp::Replace {
                path: index,
                data: vec![Chunk::from(bytes)],
            },
            context,
        );
        true
    }

    fn discard(&mut self, entry: &ManifestEntry, context: &mut Context<'_>) {
        if entry.kind != artifact_kind::SEGMENT_LOG {
            return self.transfer.offsets.discard(entry);
        }
        let base = entry.frontier;
        if self
            .transfer
            .staged
            .get(&base)
            .is_some_and(|staged| staged.entry == *entry)
        {
            let was_held = self
                .transfer
                .staged
                .remove(&base)
                .is_some_and(|staged| staged.held);
            if was_held {
                return;
            }
            for path in [self.staged_log(base), self.staged_index(base)] {
                self.spool(DiskOp::Remove { path }, context);
            }
        }
    }

    /// A write of the spool completed.
    pub(super) fn on_spool(
        &mut self,
        token: u64,
        result: Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        if !self.transfer.writes.remove(&token) {
            return;
        }
        if let Err(error) = result {
            tracing::warn!(group = %self.spec.group, %error, "staging failed");
            let mut out = std::mem::take(&mut context.scratch.pull);
            let entries = self.transfer.staged.keys().copied().collect::<Vec<u64>>();
            self.transfer.fetched = None;
            self.puller.reject(None, &mut out);
            // What is on disk is unknown now: nothing staged may be used again.
            entries.into_iter().for_each(|base| {
                self.transfer.staged.remove(&base);
            });
            self.act_on_pull(out, context);
        }
        self.pace_transfer(context);
    }

    /// Holds back chunk requests while the disk is behind, and goes on to the install when
    /// everything is there.
    fn pace_transfer(&mut self, context: &mut Context<'_>) {
        let behind = self.transfer.writes.len() >= WRITES_MAX;
        if behind != self.transfer.paused {
            self.transfer.paused = behind;
            let mut out = std::mem::take(&mut context.scratch.pull);
            self.puller.set_paused(behind, &mut out);
            self.act_on_pull(out, context);
        }
        let settled = self.transfer.writes.is_empty()
            && !self.flusher.is_busy()
            && self.offset_writer.is_idle()
            && !self.files_are_busy();
        if settled
            && self.puller.is_fetched()
            && let Some(offer) = self.transfer.fetched.take()
        {
            self.judge_offer(&offer, context);
        }
    }

    /// Checks the pulled artifacts as a whole; the install begins or the attempt ends.
    fn judge_offer(&mut self, offer: &Offer, context: &mut Context<'_>) {
        let mut out = std::mem::take(&mut context.scratch.pull);
        match self.check_offer(offer, context) {
            Ok(installing) => {
                self.puller.begin_install(&mut out);
                self.transfer.installing = Some(installing);
            }
            Err(reason) => {
                tracing::warn!(group = %self.spec.group, %reason, "transferred state refused");
                self.puller.reject(None, &mut out);
            }
        }
        self.act_on_pull(out, context);
        self.advance_install(context);
    }

    fn check_offer(
        &mut self,
        offer: &Offer,
        context: &mut Context<'_>,
    ) -> Result<Installing, String> {
        let is_offsets = |entry: &&ManifestEntry| entry.kind == artifact_kind::CONSUMER_OFFSETS;
        let entry = offer
            .entries
            .iter()
            .find(is_offsets)
            .ok_or("no consumer offsets")?;
        let bytes = self
            .transfer
            .offsets
            .get(entry)
            .ok_or("consumer offsets are missing")?;
        let offsets = ConsumerOffsets::decode(bytes).map_err(|error| error.to_string())?;
        let listed: Vec<u64> = offer
            .entries
            .iter()
            .filter(|entry| entry.kind == artifact_kind::SEGMENT_LOG)
            .map(|entry| entry.frontier)
            .collect();
        let staged = |base: &u64| self.transfer.staged.get(base);
        let walked: Vec<WalkedSegment> = listed
            .iter()
            .filter_map(|base| staged(base)?.walked)
            .collect();
        let checked = check_partition(&PartitionInstallFacts {
            group: self.spec.group,
            commit_min: self.replica.commit_min(),
            next_offset: self.state.kept_offset(),
            purge_applied: self.purge.applied(),
            purge_committed: self.spec.purge_generation,
            persisted: self.state.persisted,
            offer,
            segments: &walked,
            offsets: &offsets,
        });
        if checked == Err(PartitionRefusal::Rewind) {
            self.notice_loss_in_transfer(offsets.next_offset, context);
        }
        let plan = checked.map_err(|error| error.to_string())?;
        let parts = listed.iter().filter_map(|base| {
            let part = staged(base)?;
            Some((part.segment.clone(), part.held))
        });
        let (segments, held): (Vec<Segment>, Vec<bool>) = parts.unzip();
        let own = |segment: &Segment| self.segments.iter().any(|known| known == segment);
        if segments
            .iter()
            .zip(&held)
            .any(|(segment, held)| *held && !own(segment))
        {
            return Err("a segment that was to be kept is gone".into());
        }
        let held = segments.iter().zip(held).filter(|(_, held)| *held);
        let kept = held.map(|(segment, _)| segment.start).collect();
        Ok(Installing::new(plan, offsets, segments, kept))
    }

    /// Forgets what was staged: it has become current.
    pub(super) fn forget_staged(&mut self) {
        self.transfer.staged.clear();
        self.transfer.offsets.clear();
    }
}

fn meta_of(batch: &WalkedBatch) -> BatchMeta {
    BatchMeta {
        base_offset: batch.base_offset,
        base_timestamp: batch.base_timestamp,
        count: batch.message_count,
        len: batch.length,
    }
}
