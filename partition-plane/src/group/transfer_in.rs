//! Pulling a state transfer: artifacts to staging files, checked as they come (chapter 04
//! sections 3.7 and 3.11). [`super::install`] makes them current.

use biplane_state_transfer::{
    Checkpoint, ConsumerOffsets, Offer, PartitionInstallFacts, PartitionRefusal, PullOutput,
    PullView, Puller, Stage, WalkedSegment, artifact_kind, check_partition,
};
use biplane_vsr as vsr;
use biplane_wire::{
    ManifestEntry, Op, ReplicaId, StateChunkHeader, StateTransferTargetHeader, Typed,
};

use super::Group;
use super::install::Installing;
use super::spool::{Spool, Staged};
use super::transfer_out::{OffersWanted, ServedReads};
use crate::context::Context;
use crate::segments::Segment;

/// The receiving side of a group's transfers, and reads for those it serves.
#[derive(Debug, Default)]
pub(crate) struct TransferIn {
    pub(super) spool: Spool,
    paused: bool,
    /// All artifacts are there; their writes may not be.
    pub(super) fetched: Option<Offer>,
    pub(super) installing: Option<Installing>,
    /// What was known to be committed, and held, when the offer came.
    known_at_offer: Op,
    pub(super) served_reads: ServedReads,
    pub(super) offers_wanted: OffersWanted,
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

    /// Asks for what a peer would offer, to compare it with what is here.
    pub(super) fn look_at(&mut self, peer: ReplicaId, context: &mut Context<'_>) {
        let mut out = std::mem::take(&mut context.scratch.pull);
        self.puller.look(peer, &mut out);
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
        if is_awaited {
            self.transfer.known_at_offer = self.known_and_named();
        }
        let mut out = std::mem::take(&mut context.scratch.pull);
        let view = PullView {
            commit_max: self.offer_reaches(),
            ..self.pull_view()
        };
        if let Err(reason) = self.puller.on_target(from, target, &view, &mut out) {
            tracing::debug!(group = %self.spec.group, %reason, "descriptor ignored");
        }
        self.act_on_pull(out, context);
    }

    /// What this replica knows to be committed, as far as its log reaches.
    fn known_and_named(&self) -> Op {
        self.replica.commit_max().min(self.replica.op_head())
    }

    /// The lowest op at which an offer may end.
    ///
    /// Where messages come fast, heartbeats tell of more than any offer holds. What this replica
    /// may have acknowledged ends with its log, which does not grow meanwhile: an offer that
    /// reaches that far, or all that is committed, takes no promise back. Nor does one from
    /// which the own log goes on without a hole, because an install keeps what stands on it: a
    /// primary without the messages that its log continues has no peer that could apply more.
    fn offer_reaches(&self) -> Op {
        let (log, applied) = (self.replica.log(), self.replica.commit_min());
        let mut lowest = self.known_and_named();
        let mut above = log.header(lowest.next());
        while lowest > applied && !log.is_unsure(lowest) {
            let Some(held) = log.header(lowest) else {
                break;
            };
            if above.is_some_and(|above| above.parent() != held.frame.checksum()) {
                break;
            }
            above = Some(held);
            lowest = lowest.previous().unwrap_or_default();
        }
        lowest
    }

    /// Whether an install that ends at `commit_op` takes back nothing that was known when the
    /// offer came: it reaches that far, or the own log stands on it and stays.
    fn goes_on_from(&self, commit_op: Op, checkpoint: &Checkpoint) -> bool {
        let above = self.replica.log().header(commit_op.next());
        match checkpoint {
            _ if commit_op >= self.transfer.known_at_offer => true,
            Checkpoint::Known { checksum, .. } => {
                self.offer_reaches() <= commit_op
                    && above.is_some_and(|above| above.parent() == *checksum)
            }
            Checkpoint::Unknown => false,
        }
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
                    self.release_segments();
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
                    self.transfer
                        .spool
                        .offsets
                        .store(&entry, offset, chunk.body());
                } else if !self.spool_segment(&entry, offset, chunk, context) {
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
                let leads = self.replica.leads();
                self.cold.on_transfer_ended(outcome, leads, context.now);
                self.transfer.fetched = None;
                self.requester.prompt(repair_from);
            }
        }
    }

    /// Own segments that were held for an attempt before and are not what they were: retention
    /// took them, or they have grown. An offer that lists them brings them like any other.
    fn release_segments(&mut self) {
        let staged = self.transfer.spool.segments.values();
        let is_own = |segment: &Segment| self.segments.iter().any(|known| known == segment);
        let gone = staged.filter(|staged| staged.held && !is_own(&staged.segment));
        let gone: Vec<ManifestEntry> = gone.map(|staged| staged.entry).collect();
        for entry in gone {
            self.transfer.spool.segments.remove(&entry.frontier);
            // Nothing is left to do of what it says: there is no offer yet that lists the entry,
            // and no file was staged.
            self.puller.disprove(&entry, &mut Vec::new());
        }
    }

    /// Segments that were read whole and not appended to since are not pulled again when the
    /// offer lists them.
    fn hold_segments(&mut self) {
        for segment in self.segments.iter() {
            let pulled = self
                .transfer
                .spool
                .segments
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
            let staged = Staged::held(entry, segment);
            self.transfer.spool.segments.insert(entry.frontier, staged);
            self.puller.hold([entry]);
        }
    }

    /// Holds back chunk requests while the disk is behind, and goes on to the install when
    /// everything is there.
    pub(super) fn pace_transfer(&mut self, context: &mut Context<'_>) {
        let behind = self.transfer.spool.is_behind();
        if behind != self.transfer.paused {
            self.transfer.paused = behind;
            let mut out = std::mem::take(&mut context.scratch.pull);
            self.puller.set_paused(behind, &mut out);
            self.act_on_pull(out, context);
        }
        let settled = self.transfer.spool.is_settled()
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
            .spool
            .offsets
            .get(entry)
            .ok_or("consumer offsets are missing")?;
        let offsets = ConsumerOffsets::decode(bytes).map_err(|error| error.to_string())?;
        if !self.goes_on_from(offer.commit_op, &offsets.checkpoint) {
            return Err("the log here does not go on from it".into());
        }
        let listed: Vec<u64> = offer
            .entries
            .iter()
            .filter(|entry| entry.kind == artifact_kind::SEGMENT_LOG)
            .map(|entry| entry.frontier)
            .collect();
        let staged = |base: &u64| self.transfer.spool.segments.get(base);
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
        let marks = self.transfer.spool.marks_of(&listed);
        Ok(Installing::new(plan, offsets, segments, kept, marks))
    }
}
