//! Serving a state transfer: what a group offers and the bytes of its segments (chapter 04
//! sections 3.5, 3.6 and 4.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use biplane_journal::{DiskError, DiskErrorKind, DiskOp, DiskReply};
use biplane_state_transfer::{
    self as transfer, ArtifactSource, ArtifactSpec, Checkpoint, ConsumerOffsets, DedupEntry, Flush,
    Gate, OfferSpec, PartitionGate, ProvideOutput, ProviderView, ReadError, StoredOffset, Ticket,
    artifact_kind,
};
use biplane_vsr as vsr;
use biplane_wire::{
    Checksum, ClientId, Op, PrepareHeader, ReplicaId, RequestStateChunkHeader,
    RequestStateTransferHeader,
};

use super::Group;
use crate::context::Context;

/// Reads of segments for peers: our token to the provider's.
pub(crate) type ServedReads = BTreeMap<u64, u64>;

/// Failures in a row after which a flush that an offer needs counts as failed.
const FLUSH_FAILURES_MAX: u32 = 3;

impl Group {
    /// A peer asks for the whole state.
    pub(super) fn serve_transfer(
        &mut self,
        from: ReplicaId,
        request: &RequestStateTransferHeader,
        context: &mut Context<'_>,
    ) {
        let mut gate = self.gate();
        let is_pending = gate.flush == Flush::Pending;
        if is_pending {
            // An offer needs every committed message in a segment. While clients write that is
            // so for moments only, so the offer is made in the first of them.
            self.flusher.forced = true;
            gate.flush = Flush::Clean;
        }
        let mut out = Vec::new();
        let gate = Gate::Partition(gate);
        let ticket = context.provider.on_request(from, request, &gate, &mut out);
        self.act_on_provider(out, context);
        match ticket {
            Some(ticket) if is_pending => {
                let tickets = &mut self.transfer.tickets;
                tickets.retain(|other| other.replica != ticket.replica);
                tickets.push(ticket);
            }
            Some(ticket) => self.make_offer(ticket, context),
            None => {}
        }
    }

    fn make_offer(&mut self, ticket: Ticket, context: &mut Context<'_>) {
        let mut out = Vec::new();
        match self.offer_spec() {
            Some(spec) => context.provider.offer(ticket, spec, &mut out),
            None => context.provider.refuse(&ticket, false, &mut out),
        }
        self.act_on_provider(out, context);
    }

    /// Everything committed is in segments: peers that waited for that get their offers. One
    /// that waited too long was told to come back by the provider.
    pub(super) fn offer_flushed(&mut self, context: &mut Context<'_>) {
        let gate = self.gate();
        let may_offer = gate.caught_up_primary && !gate.repairing && !gate.purge_deferred;
        if self.transfer.tickets.is_empty() || gate.flush != Flush::Clean || !may_offer {
            return;
        }
        for ticket in std::mem::take(&mut self.transfer.tickets) {
            self.make_offer(ticket, context);
        }
    }

    /// A peer asks for a piece of an offered artifact.
    pub(super) fn serve_chunk(
        &mut self,
        from: ReplicaId,
        request: &RequestStateChunkHeader,
        context: &mut Context<'_>,
    ) {
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
        let filled = self
            .segments
            .iter()
            .filter(|segment| segment.size > 0)
            .count();
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
            caught_up_primary: self.replica.is_caught_up_primary()
                || self.is_cold_backup()
                || self.has_applied_all(),
            has_directory: true,
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

    fn offer_spec(&self) -> Option<OfferSpec> {
        let commit_op = self.replica.commit_min();
        let stored = self.segments.iter().filter(|segment| segment.size > 0);
        let mut artifacts: Vec<ArtifactSpec> = stored
            .map(|segment| ArtifactSpec {
                kind: artifact_kind::SEGMENT_LOG,
                frontier: segment.start,
                source: ArtifactSource::Stored {
                    len: segment.size,
                    checksum: segment.digest,
                },
            })
            .collect();
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
                    ..
                } => {
                    let path = self.paths.log(frontier);
                    let queue = self.queues.reads(token);
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
