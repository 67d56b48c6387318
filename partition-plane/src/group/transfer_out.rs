//! Serving a state transfer: what a group offers and the bytes of its segments (chapter 04
//! sections 3.5, 3.6 and 4.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use biplane_journal::{DiskError, DiskErrorKind, DiskOp, DiskReply};
use biplane_state_transfer::{
    self as transfer, ArtifactSource, ArtifactSpec, Checkpoint, ConsumerOffsets, DedupEntry, Flush,
    Gate, Lane, OfferSpec, PartitionGate, ProvideOutput, ProviderView, ReadError, StoredOffset,
    artifact_kind,
};
use biplane_vsr as vsr;
use biplane_wire::{
    Checksum, ClientId, Op, PrepareHeader, ReplicaId, RequestStateChunkHeader,
    RequestStateTransferHeader,
};

use super::Group;
use crate::context::Context;
use crate::segments::Segment;

/// Reads of segments for peers: our token to the provider's.
pub(crate) type ServedReads = BTreeMap<u64, u64>;

/// Failures in a row after which a flush that an offer needs counts as failed.
const FLUSH_FAILURES_MAX: u32 = 3;

/// Peers whose offer waits for the flush of what is committed, and what follows from peers that
/// are behind.
///
/// Where messages come without a pause there is always one more that is not in a segment yet, and
/// an offer would never be made. New requests therefore wait, for a moment and not for long, until
/// the segments hold all there is.
#[derive(Debug, Default)]
pub(crate) struct OffersWanted {
    asked: BTreeMap<ReplicaId, RequestStateTransferHeader>,
    /// Tick at which requests wait no longer.
    until: u64,
    /// Tick before which they are not made to wait again.
    rest: u64,
    /// Tick until which a peer that is behind may need what is evicted otherwise.
    behind_until: u64,
}

impl OffersWanted {
    /// Whether new requests wait.
    pub(super) fn hold_requests(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether a peer asked for what it lacks lately.
    pub(super) fn is_peer_behind(&self, now: u64) -> bool {
        now < self.behind_until
    }
}

impl Group {
    /// A peer asks for the whole state.
    pub(super) fn serve_transfer(
        &mut self,
        from: ReplicaId,
        request: &RequestStateTransferHeader,
        context: &mut Context<'_>,
    ) {
        self.note_peer_behind(context);
        self.look_now(context);
        self.follow_look_of(from, context);
        let gate = self.gate();
        let wanted = &mut self.transfer.offers_wanted;
        if gate.flush == Flush::Pending && wanted.rest <= context.now {
            if wanted.asked.is_empty() {
                wanted.until = context.now + context.node.limits.offer_wait_ticks;
            }
            wanted.asked.insert(from, *request);
            return self.serve_wanted_offers(context);
        }
        self.answer_transfer(from, request, gate, context);
    }

    fn answer_transfer(
        &mut self,
        from: ReplicaId,
        request: &RequestStateTransferHeader,
        gate: PartitionGate,
        context: &mut Context<'_>,
    ) {
        let mut out = Vec::new();
        let gate = Gate::Partition(gate);
        let ticket = context.provider.on_request(from, request, &gate, &mut out);
        if let Some(ticket) = ticket {
            match self.offer_spec() {
                Some(spec) => context.provider.offer(ticket, spec, &mut out),
                None => context.provider.refuse(&ticket, false, &mut out),
            }
        }
        self.act_on_provider(out, context);
    }

    /// Makes the offers that waited for a flush once everything is in segments, or refuses them
    /// when that takes too long; then the requests that waited meanwhile are served.
    pub(super) fn serve_wanted_offers(&mut self, context: &mut Context<'_>) {
        let wanted = &mut self.transfer.offers_wanted;
        if !wanted.hold_requests() {
            return;
        }
        let is_late = context.now >= wanted.until;
        let is_flushed = self.segments.next_offset() >= self.state.committed_next
            && self.replica.op_head() == self.replica.commit_min();
        if !is_late && !is_flushed && self.replica.is_primary() {
            self.flusher.forced = true;
            return;
        }
        if is_late {
            wanted.rest = context.now + context.node.limits.offer_rest_ticks;
        }
        for (from, request) in std::mem::take(&mut wanted.asked) {
            let gate = self.gate();
            self.answer_transfer(from, &request, gate, context);
        }
        self.submit_held(context);
    }

    /// A peer lacks something: what it will ask for next is kept a while longer.
    pub(super) fn note_peer_behind(&mut self, context: &Context<'_>) {
        self.transfer.offers_wanted.behind_until =
            context.now + context.node.limits.peer_behind_ticks;
    }

    /// A peer asks for a piece of an offered artifact.
    pub(super) fn serve_chunk(
        &mut self,
        from: ReplicaId,
        request: &RequestStateChunkHeader,
        context: &mut Context<'_>,
    ) {
        self.note_peer_behind(context);
        let view = ProviderView {
            view: self.replica.view(),
            commit_max: self.replica.commit_max(),
        };
        let mut out = Vec::new();
        context
            .provider
            .on_chunk_request(from, request, view, &mut out);
        self.act_on_provider(out, context);
    }

    /// Whether this replica has applied all it knows. That is enough for whoever knows no more:
    /// a primary that lost its memory has no caught-up primary to ask.
    fn has_applied_all(&self) -> bool {
        let status = self.replica.status();
        status.status == vsr::Status::Normal
            && status.commit_min == status.commit_max
            && status.transfer_stage == vsr::TransferStage::Idle
    }

    fn gate(&self) -> PartitionGate {
        let filled = self.stored_segments().count();
        let flush = if self.segments.next_offset() >= self.state.committed_next {
            Flush::Clean
        } else if self.flusher.failures() >= FLUSH_FAILURES_MAX {
            Flush::Failed
        } else {
            Flush::Pending
        };
        PartitionGate {
            view: self.replica.view(),
            commit_max: self.replica.commit_max(),
            caught_up_primary: !self.may_find_more()
                && (self.replica.is_caught_up_primary()
                    || self.is_cold_backup()
                    || self.has_applied_all()),
            // Nothing that a peer could wait for.
            has_directory: !self.has_nothing(),
            repairing: self.requester.has_session(),
            purge_deferred: self.purge.is_wanted() || self.files_are_busy(),
            // After a restart of all replicas nothing is committed yet in the new log, but what
            // the segments hold is state that a replica without it must get.
            frontier_installed: self.frontier > 0 || self.state.rewind_floor > 0,
            segments: u32::try_from(filled).unwrap_or(u32::MAX),
            next_offset: self.state.committed_next.max(self.frontier),
            purge_generation: self.purge.applied(),
            flush,
        }
    }

    /// Segments with messages.
    pub(crate) fn stored_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.size > 0)
    }

    /// The same as they are offered.
    pub(crate) fn segment_artifacts(&self) -> Vec<ArtifactSpec> {
        let artifacts = self.stored_segments().map(|segment| ArtifactSpec {
            kind: artifact_kind::SEGMENT_LOG,
            frontier: segment.start,
            source: ArtifactSource::Stored {
                len: segment.size,
                checksum: segment.digest,
            },
        });
        artifacts.collect()
    }

    fn offer_spec(&self) -> Option<OfferSpec> {
        let commit_op = self.replica.commit_min();
        let mut artifacts = self.segment_artifacts();
        let offsets = self.offsets_artifact(commit_op).encode().ok()?;
        artifacts.push(ArtifactSpec {
            kind: artifact_kind::CONSUMER_OFFSETS,
            frontier: commit_op.0,
            source: ArtifactSource::Memory {
                bytes: Arc::from(offsets),
                checksum: None,
            },
        });
        Some(OfferSpec {
            view: self.replica.view(),
            commit_op,
            commit_max: self.replica.commit_max(),
            artifacts,
        })
    }

    fn offsets_artifact(&self, commit_op: Op) -> ConsumerOffsets {
        let stored = |rows: Vec<(u32, u64)>| {
            rows.into_iter()
                .map(|(id, offset)| StoredOffset { id, offset })
                .collect()
        };
        let dedup = self
            .state
            .dedup
            .entries()
            .map(|(client, entry)| DedupEntry {
                client: ClientId(client),
                watermark: entry.watermark,
                latest_commit: Op(entry.latest_commit),
                user_id: entry.user_id,
                committed_window: entry.window,
            });
        let checkpoint = match self.replica.log().get(commit_op) {
            Some(prepare) => Checkpoint::Known {
                checksum: prepare.header::<PrepareHeader>().frame.checksum(),
                prepare: Some(prepare.clone()),
            },
            None if commit_op == Op::ZERO => Checkpoint::Known {
                checksum: Checksum::ZERO,
                prepare: None,
            },
            None => Checkpoint::Unknown,
        };
        ConsumerOffsets {
            purge_generation: self.purge.applied(),
            next_offset: self.state.committed_next.max(self.segments.next_offset()),
            consumers: stored(self.state.offsets.consumers()),
            groups: stored(self.state.offsets.groups()),
            dedup: dedup.collect(),
            checkpoint,
        }
    }

    /// Effects of the provider that concern this group.
    pub(crate) fn act_on_provider(
        &mut self,
        outputs: Vec<ProvideOutput>,
        context: &mut Context<'_>,
    ) {
        for output in outputs {
            match output {
                ProvideOutput::Send { to, message } => context.send(to, message),
                ProvideOutput::Read {
                    token,
                    frontier,
                    offset,
                    len,
                    lane,
                    ..
                } => {
                    let path = self.paths.log(frontier);
                    let queue = match lane {
                        Lane::Digests => self.queues.reads(0),
                        Lane::Chunks => self.queues.reads(token),
                    };
                    let ours = context.submit(queue, DiskOp::Read { path, offset, len });
                    self.transfer.served_reads.insert(ours, token);
                }
            }
        }
    }

    pub(super) fn on_provider_read(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        let Some(theirs) = self.transfer.served_reads.remove(&token) else {
            return;
        };
        let bytes = match result {
            Ok(DiskReply::Data(bytes)) => Ok(bytes.as_bytes()),
            Ok(DiskReply::Done) => Err(ReadError::Failed),
            Err(error) if error.kind == DiskErrorKind::NotFound => Err(ReadError::Changed),
            Err(_) => Err(ReadError::Failed),
        };
        let mut out = Vec::new();
        let provider: &mut transfer::Provider = context.provider;
        provider.on_read(theirs, bytes, &mut out);
        self.act_on_provider(out, context);
    }
}
