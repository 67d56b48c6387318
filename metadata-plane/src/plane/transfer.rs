//! State transfer: pulling snapshot and client table from the primary, installing them, and
//! serving them to others (protocol specification, chapter 04, section 3).
//!
//! An install switches at one point, when the new snapshot file is durable: until then the old
//! state is served from memory and found on disk, from then on the new one.

use biplane_state_transfer::{
    ArtifactSource, ArtifactSpec, Gate, MetadataGate, MetadataInstall, MetadataInstallFacts, Offer,
    OfferSpec, ProvideOutput, ProviderView, PullOutput, PullView, artifact_kind, decide_metadata,
};
use biplane_vsr::sessions::ClientTable;
use biplane_vsr::{TransferNotice, TransferStage};
use biplane_wire::{
    Op, ReplicaId, RequestStateChunkHeader, RequestStateTransferHeader, StateChunkHeader,
    StateTransferTargetHeader, Typed,
};

use super::MetadataPlane;
use super::storage::Saved;
use crate::io::Output;
use crate::sessions;
use crate::snapshot::{Snapshot, decode_snapshot};
use crate::state::topology::TopologyChange;

/// A downloaded state on its way to become ours.
pub(crate) struct Install {
    saved: Saved,
    snapshot: Snapshot,
    table: ClientTable,
    table_frontier: Op,
    commit_op: Op,
    progress: Progress,
}

/// How far an install is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Waits for a checkpoint of our own to end.
    Waiting,
    /// The snapshot file is being replaced.
    Writing,
    /// The state in memory is the new one; the superblock is to name the snapshot.
    Switched,
}

/// The downloaded artifacts, decoded.
struct Download {
    saved: Saved,
    snapshot: Snapshot,
    /// The table that came as an artifact of its own, with its frontier.
    table: Option<(Op, ClientTable)>,
}

impl MetadataPlane {
    /// A used replica waits for state after its boot; the core is told already.
    pub(super) fn begin_transfer_wait(&mut self, out: &mut Vec<Output>) {
        if self.replica.transfer_stage() == TransferStage::AwaitingTarget {
            let mut said = Vec::new();
            self.puller.await_start(&mut said);
            self.carry_pull(said, out);
        }
    }

    pub(super) fn on_transfer_notice(&mut self, notice: TransferNotice, out: &mut Vec<Output>) {
        match notice {
            TransferNotice::Begin { from } => self.start_transfer(from, out),
            TransferNotice::Abandoned => {
                let mut said = Vec::new();
                self.puller.cancel(&mut said);
                self.carry_pull(said, out);
            }
        }
    }

    pub(super) fn start_transfer(&mut self, from: ReplicaId, out: &mut Vec<Output>) {
        let mut said = Vec::new();
        self.puller.start(from, &mut self.pull_budget, &mut said);
        self.carry_pull(said, out);
    }

    pub(super) fn tick_transfer(&mut self, out: &mut Vec<Output>) {
        let view = PullView::of(&self.replica.status());
        let mut said = Vec::new();
        self.pull_budget.begin_tick();
        self.puller.tick(&view, &mut self.pull_budget, &mut said);
        self.carry_pull(said, out);
        let mut said = Vec::new();
        self.provider.tick(None, &mut said);
        carry_provide(said, out);
    }

    pub(super) fn on_transfer_target(
        &mut self,
        frame: &Typed<StateTransferTargetHeader>,
        out: &mut Vec<Output>,
    ) {
        let from = frame.header().frame.replica();
        if frame.header().frame.cluster() != self.config.cluster || !self.is_peer(from) {
            return;
        }
        let view = PullView::of(&self.replica.status());
        let mut said = Vec::new();
        // A frame that does not fit has no effect; the puller's timers ask again.
        let _ = self.puller.on_target(from, frame, &view, &mut said);
        self.carry_pull(said, out);
    }

    pub(super) fn on_state_chunk(
        &mut self,
        frame: &Typed<StateChunkHeader>,
        out: &mut Vec<Output>,
    ) {
        let from = frame.header().frame.replica();
        if frame.header().frame.cluster() != self.config.cluster || !self.is_peer(from) {
            return;
        }
        let mut said = Vec::new();
        let _ = self.puller.on_chunk(from, frame, &mut said);
        self.carry_pull(said, out);
    }

    fn carry_pull(&mut self, said: Vec<PullOutput>, out: &mut Vec<Output>) {
        for output in said {
            if self.spool.apply(&output) {
                continue;
            }
            match output {
                PullOutput::Send { to, message } => out.push(Output::Send { to, message }),
                PullOutput::Stage(stage) => self.replica.set_transfer_stage(stage),
                PullOutput::Fetched(offer) => self.on_fetched(&offer, out),
                PullOutput::Ended {
                    repair_from,
                    outcome,
                } => {
                    self.trouble = biplane_state_transfer::trouble(outcome).map(str::to_owned);
                    self.spool.clear();
                    self.requester.prompt(repair_from);
                }
                PullOutput::Complete { .. }
                | PullOutput::Spool { .. }
                | PullOutput::Discard { .. } => {}
            }
        }
    }

    /// Everything is downloaded: decode it, decide what it replaces.
    fn on_fetched(&mut self, offer: &Offer, out: &mut Vec<Output>) {
        let download = match self.decode_download(offer) {
            Ok(download) => download,
            Err(artifact) => return self.reject_download(Some(artifact), out),
        };
        let facts = MetadataInstallFacts {
            commit_min: self.replica.commit_min(),
            commit_op: offer.commit_op,
            snapshot_op: download.saved.op,
            snapshot_checksum: biplane_wire::xxh3(&download.saved.payload),
            table_frontier: download.table.as_ref().map(|(frontier, _)| *frontier),
        };
        match decide_metadata(&facts) {
            Ok(MetadataInstall::KeepLocal) => self.end_install(out),
            Ok(MetadataInstall::TableOnly { .. }) => {
                if let Some((frontier, table)) = download.table {
                    self.machine.table = table;
                    self.machine.table_frontier = frontier;
                }
                self.end_install(out);
            }
            Ok(MetadataInstall::Replace { commit_op, .. }) => {
                self.begin_install(download, commit_op, out);
            }
            Err(_) => self.reject_download(None, out),
        }
    }

    fn reject_download(&mut self, artifact: Option<u32>, out: &mut Vec<Output>) {
        let mut said = Vec::new();
        self.puller.reject(artifact, &mut said);
        self.carry_pull(said, out);
    }

    /// The artifacts as values; the index of the one that is wrong otherwise.
    fn decode_download(&mut self, offer: &Offer) -> Result<Download, u32> {
        let capacity = usize::try_from(self.config.limits.clients_table_max).unwrap_or(usize::MAX);
        let (mut snapshot, mut table) = (None, None);
        for (index, entry) in (0_u32..).zip(&offer.entries) {
            let bytes = self.spool.take(entry).ok_or(index)?;
            match entry.kind {
                artifact_kind::METADATA_SNAPSHOT if snapshot.is_none() => {
                    let decoded = decode_snapshot(&bytes).map_err(|_| index)?;
                    if decoded.op.0 != entry.frontier {
                        return Err(index);
                    }
                    snapshot = Some((Saved::new(decoded.op, bytes.into()), decoded));
                }
                artifact_kind::CLIENT_TABLE if table.is_none() => {
                    let decoded = ClientTable::decode(&bytes, capacity).map_err(|_| index)?;
                    table = Some((Op(entry.frontier), decoded));
                }
                _ => return Err(index),
            }
        }
        let (saved, snapshot) = snapshot.ok_or(0_u32)?;
        Ok(Download {
            saved,
            snapshot,
            table,
        })
    }

    fn begin_install(&mut self, download: Download, commit_op: Op, out: &mut Vec<Output>) {
        let Download {
            saved,
            snapshot,
            table,
        } = download;
        let capacity = usize::try_from(self.config.limits.clients_table_max).unwrap_or(usize::MAX);
        let (table_frontier, table) = match table {
            Some(table) => table,
            None => match sessions::restore(&snapshot.table, capacity) {
                Ok(table) => (saved.op, table),
                Err(_) => return self.reject_download(None, out),
            },
        };
        let mut said = Vec::new();
        self.puller.begin_install(&mut said);
        self.carry_pull(said, out);
        let progress = Progress::Waiting;
        self.install = Some(Install {
            saved,
            snapshot,
            table,
            table_frontier,
            commit_op,
            progress,
        });
    }

    /// Starts the install once no checkpoint of our own is under way.
    pub(super) fn advance_install(&mut self, out: &mut Vec<Output>) {
        let Some(install) = &mut self.install else {
            return;
        };
        if install.progress == Progress::Waiting && !self.storage.is_checkpointing() {
            install.progress = Progress::Writing;
            let saved = install.saved.clone();
            self.with_disk(out, |storage, disk| storage.begin_checkpoint(saved, disk));
        }
    }

    /// The snapshot file is durable: from here on the transferred state is ours.
    pub(super) fn on_snapshot_written(&mut self, op: Op, out: &mut Vec<Output>) {
        let Some(install) = &mut self.install else {
            return;
        };
        if install.progress != Progress::Writing || install.saved.op != op {
            return;
        }
        install.progress = Progress::Switched;
        self.machine.state = std::mem::take(&mut install.snapshot.state);
        self.machine.table = std::mem::replace(&mut install.table, ClientTable::new(2));
        self.machine.table_frontier = install.table_frontier;
        let streams = self.machine.state.streams();
        self.machine.numbers.note_state(streams);
        let commit_op = install.commit_op;
        let (machine, said) = (&mut self.machine, &mut self.core_outputs);
        self.replica
            .install_floor(op, None, commit_op, machine, said);
        self.watermark = self.watermark.max(op);
        out.push(Output::Topology(TopologyChange::Replaced));
    }

    /// The superblock names the installed snapshot.
    pub(super) fn finish_install(&mut self, op: Op, out: &mut Vec<Output>) {
        let is_done = self.install.as_ref().is_some_and(|install| {
            install.progress == Progress::Switched && install.saved.op == op
        });
        if is_done {
            tracing::info!(%op, "metadata state installed");
            self.install = None;
            let mut said = Vec::new();
            self.puller.installed(&mut said);
            self.carry_pull(said, out);
        }
    }

    /// Ends a transfer that needs nothing from the disk.
    fn end_install(&mut self, out: &mut Vec<Output>) {
        let mut said = Vec::new();
        self.puller.begin_install(&mut said);
        self.puller.installed(&mut said);
        self.carry_pull(said, out);
    }

    /// Somebody asks for our state. Every request is answered: a peer that gets no answer
    /// acknowledges nothing for a long time.
    pub(super) fn on_transfer_request(
        &mut self,
        frame: &Typed<RequestStateTransferHeader>,
        out: &mut Vec<Output>,
    ) {
        let from = frame.header().frame.replica();
        if frame.header().frame.cluster() != self.config.cluster || !self.is_peer(from) {
            return;
        }
        let status = self.replica.status();
        let gate = Gate::Metadata(MetadataGate {
            view: status.view,
            commit_max: status.commit_max,
            // Not held up by the barrier that answers to clients wait for: who needs the state may
            // be the only one to acknowledge what is below it, and what is offered is committed.
            caught_up_primary: self.replica.is_primary() && status.commit_min == status.commit_max,
            has_checkpoint: self.storage.saved().is_some(),
        });
        let mut said = Vec::new();
        if let Some(ticket) = self
            .provider
            .on_request(from, frame.header(), &gate, &mut said)
        {
            match self.offer_spec() {
                Some(spec) => self.provider.offer(ticket, spec, &mut said),
                None => self.provider.refuse(&ticket, false, &mut said),
            }
        }
        carry_provide(said, out);
    }

    /// Snapshot and table; the table as of now, which is never older than the snapshot.
    fn offer_spec(&self) -> Option<OfferSpec> {
        let saved = self.storage.saved()?;
        let status = self.replica.status();
        let checksum = u64::try_from(saved.checksum.0).ok();
        let snapshot = ArtifactSpec {
            kind: artifact_kind::METADATA_SNAPSHOT,
            frontier: saved.op.0,
            source: ArtifactSource::Memory {
                bytes: saved.payload.clone(),
                checksum,
            },
        };
        let table = ArtifactSpec {
            kind: artifact_kind::CLIENT_TABLE,
            frontier: status.commit_min.0,
            source: ArtifactSource::Memory {
                bytes: self.machine.table.encode().into(),
                checksum: None,
            },
        };
        Some(OfferSpec {
            view: status.view,
            commit_op: status.commit_min,
            commit_max: status.commit_max,
            artifacts: vec![snapshot, table],
        })
    }

    pub(super) fn on_chunk_request(
        &mut self,
        frame: &Typed<RequestStateChunkHeader>,
        out: &mut Vec<Output>,
    ) {
        let from = frame.header().frame.replica();
        if frame.header().frame.cluster() != self.config.cluster || !self.is_peer(from) {
            return;
        }
        let status = self.replica.status();
        let view = ProviderView {
            view: status.view,
            commit_max: status.commit_max,
        };
        let mut said = Vec::new();
        self.provider
            .on_chunk_request(from, frame.header(), view, &mut said);
        carry_provide(said, out);
    }
}

fn carry_provide(said: Vec<ProvideOutput>, out: &mut Vec<Output>) {
    for output in said {
        match output {
            ProvideOutput::Send { to, message } => out.push(Output::Send { to, message }),
            // Metadata artifacts are in memory.
            ProvideOutput::Read { .. } => {}
        }
    }
}
