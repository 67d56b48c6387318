//! A model of both sides for the plays: a node that pulls, a node that serves, golden bytes.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use biplane_state_transfer::{
    ArtifactSource, ArtifactSpec, Ended, Flush, Gate, ManifestEntry, MemorySpool, MetadataGate,
    Offer, OfferSpec, PartitionGate, PlaneKind, ProvideLimits, ProvideOutput, Provider,
    ProviderConfig, ProviderView, PullBudget, PullIgnored, PullLimits, PullOutput, PullView,
    Puller, PullerConfig, ReadError, Stage, Ticket, artifact_kind,
};
use biplane_wire::{
    ClusterId, Command, GroupId, Message, Op, ReplicaFrame, ReplicaId, RequestStateChunkHeader,
    RequestStateTransferHeader, View, decode_replica,
};

pub(crate) const CLUSTER: ClusterId = ClusterId(0x1122_3344_5566_7788_9900_aabb_ccdd_eeff);
pub(crate) const SERVER: ReplicaId = ReplicaId(0);
pub(crate) const PULLER: ReplicaId = ReplicaId(2);
/// Its primary of three replicas is replica 0.
pub(crate) const VIEW: View = View(3);

/// Bytes of a dump in which `[00×n]` stands for n zero bytes.
pub(crate) fn golden(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in dump.split_whitespace() {
        if let Some(run) = word.strip_prefix("[00×") {
            let count: usize = run.trim_end_matches(']').parse().expect("a number");
            bytes.resize(bytes.len() + count, 0);
            continue;
        }
        for at in (0..word.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&word[at..at + 2], 16).expect("hex"));
        }
    }
    bytes
}

pub(crate) fn golden_message(dump: &str) -> Message {
    Message::from_bytes(&golden(dump)).expect("a frame")
}

pub(crate) fn partition_group() -> GroupId {
    GroupId::partition(0, 0, 1).expect("a legal key")
}

/// Replaces the trailing XXH3 of an artifact or manifest.
pub(crate) fn reseal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 8);
    let trailer = biplane_wire::xxh3(&bytes);
    bytes.extend_from_slice(&trailer.to_le_bytes());
    bytes
}

/// A node that pulls.
pub(crate) struct Node {
    pub(crate) puller: Puller,
    pub(crate) budget: PullBudget,
    pub(crate) view: PullView,
    pub(crate) spool: MemorySpool,
    pub(crate) sent: Vec<(ReplicaId, Message)>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) completed: Vec<(u32, bool)>,
    pub(crate) discarded: Vec<ManifestEntry>,
    pub(crate) fetched: Option<Offer>,
    pub(crate) ended: Vec<(Ended, Option<ReplicaId>)>,
    pub(crate) ignored: Vec<PullIgnored>,
}

impl Node {
    pub(crate) fn new(group: GroupId, seed: u64) -> Self {
        let plane = match group.is_metadata() {
            true => PlaneKind::Metadata,
            false => PlaneKind::Partition,
        };
        let puller = Puller::new(PullerConfig {
            cluster: CLUSTER,
            group,
            replica: PULLER,
            replica_count: 3,
            plane,
            limits: PullLimits::tiny(),
            seed,
        });
        Self {
            puller,
            budget: PullBudget::default(),
            view: PullView {
                view: VIEW,
                commit_min: Op(5),
                commit_max: Op(90),
            },
            spool: MemorySpool::default(),
            sent: Vec::new(),
            stages: Vec::new(),
            completed: Vec::new(),
            discarded: Vec::new(),
            fetched: None,
            ended: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Runs one call on the puller and takes its outputs in.
    pub(crate) fn with(&mut self, act: impl FnOnce(&mut Puller, &mut Vec<PullOutput>)) {
        let mut out = Vec::new();
        act(&mut self.puller, &mut out);
        self.absorb(out);
    }

    pub(crate) fn start(&mut self, peer: ReplicaId) {
        let mut out = Vec::new();
        self.puller.start(peer, &mut self.budget, &mut out);
        self.absorb(out);
    }

    pub(crate) fn tick(&mut self) {
        let mut out = Vec::new();
        self.budget.begin_tick();
        self.puller.tick(&self.view, &mut self.budget, &mut out);
        self.absorb(out);
    }

    pub(crate) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    pub(crate) fn receive(&mut self, from: ReplicaId, frame: &Message) {
        let mut out = Vec::new();
        let taken = match decode_replica(frame.clone()).expect("a sound frame") {
            ReplicaFrame::StateTransferTarget(target) => {
                self.puller.on_target(from, &target, &self.view, &mut out)
            }
            ReplicaFrame::StateChunk(chunk) => self.puller.on_chunk(from, &chunk, &mut out),
            other => panic!("not for a puller: {other:?}"),
        };
        self.ignored.extend(taken.err());
        self.absorb(out);
    }

    fn absorb(&mut self, out: Vec<PullOutput>) {
        self.puller.check_invariants();
        for output in out {
            self.spool.apply(&output);
            match output {
                PullOutput::Send { to, message } => self.sent.push((to, message)),
                PullOutput::Stage(stage) => self.stages.push(stage),
                PullOutput::Complete { index, reused, .. } => self.completed.push((index, reused)),
                PullOutput::Discard { entry } => self.discarded.push(entry),
                PullOutput::Fetched(offer) => self.fetched = Some(offer),
                PullOutput::Ended {
                    outcome,
                    repair_from,
                } => {
                    self.ended.push((outcome, repair_from));
                }
                PullOutput::Spool { .. } => {}
            }
        }
    }

    /// The frames sent since the last look.
    pub(crate) fn take_sent(&mut self) -> Vec<(ReplicaId, Message)> {
        std::mem::take(&mut self.sent)
    }

    /// The one frame that must have been sent since the last look.
    pub(crate) fn sent_one(&mut self) -> Message {
        let sent = self.take_sent();
        assert_eq!(sent.len(), 1, "one frame: {sent:?}");
        sent[0].1.clone()
    }

    /// The bytes of the fetched artifacts, in manifest order.
    pub(crate) fn artifacts(&self) -> Vec<Vec<u8>> {
        let offer = self.fetched.as_ref().expect("everything is fetched");
        let bytes = |entry| self.spool.get(entry).expect("the bytes are kept").to_vec();
        offer.entries.iter().map(bytes).collect()
    }

    /// Passes the checks and installs.
    pub(crate) fn install(&mut self) {
        self.with(|puller, out| {
            puller.begin_install(out);
            puller.installed(out);
        });
    }
}

/// Frames as short text, for comparing whole exchanges.
pub(crate) fn describe(frame: &Message) -> String {
    match decode_replica(frame.clone()).expect("a sound frame") {
        ReplicaFrame::RequestStateTransfer(_) => "ask".to_owned(),
        ReplicaFrame::StateTransferTarget(typed) => {
            let header = typed.header();
            match (header.available(), header.unavailable_transient()) {
                (true, _) => format!("offer {}", header.commit_op()),
                (false, true) => "later".to_owned(),
                (false, false) => "no".to_owned(),
            }
        }
        ReplicaFrame::RequestStateChunk(typed) => {
            let header = typed.header();
            format!(
                "want {}@{}+{}",
                header.artifact(),
                header.offset(),
                header.length()
            )
        }
        ReplicaFrame::StateChunk(typed) => {
            let header = typed.header();
            format!(
                "chunk {}@{}+{}",
                header.artifact(),
                header.offset(),
                typed.body().len()
            )
        }
        other => panic!("not a frame of state transfer: {other:?}"),
    }
}

/// A RequestStateTransfer.
pub(crate) fn ask(group: GroupId, nonce: u128) -> Message {
    let mut header = RequestStateTransferHeader::new(Command::RequestStateTransfer);
    header.set_nonce(nonce);
    header.set_group(group);
    Message::sealed(header, &[])
}

/// A RequestStateChunk.
pub(crate) fn want(
    group: GroupId,
    nonce: u128,
    artifact: u32,
    offset: u64,
    length: u32,
) -> Message {
    let mut header = RequestStateChunkHeader::new(Command::RequestStateChunk);
    header.set_nonce(nonce);
    header.set_group(group);
    header.set_artifact(artifact);
    header.set_offset(offset);
    header.set_length(length);
    Message::sealed(header, &[])
}

/// A node that serves: its artifacts, and the storage behind them.
pub(crate) struct Source {
    pub(crate) provider: Provider,
    pub(crate) gate: Gate,
    pub(crate) group: GroupId,
    pub(crate) commit_op: Op,
    /// Kind, frontier, bytes; a segment is read through storage, the rest is in memory.
    pub(crate) artifacts: Vec<(u8, u64, Vec<u8>)>,
    pub(crate) reads: Vec<(u64, u8, u64, u64, u32)>,
    pub(crate) bytes_read: u64,
    pub(crate) broken: Option<ReadError>,
    /// The ticket of an offer that is not built yet.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) load: Option<u64>,
}

impl Source {
    pub(crate) fn metadata(snapshot: &[u8], table: &[u8]) -> Self {
        let gate = Gate::Metadata(MetadataGate {
            view: VIEW,
            commit_max: Op(200),
            caught_up_primary: true,
            has_checkpoint: true,
        });
        let artifacts = vec![
            (artifact_kind::METADATA_SNAPSHOT, 192, snapshot.to_vec()),
            (artifact_kind::CLIENT_TABLE, 195, table.to_vec()),
        ];
        Self::new(GroupId::METADATA, gate, Op(195), artifacts)
    }

    /// Segments by base offset, and consumer offsets last.
    pub(crate) fn partition(segments: &[(u64, Vec<u8>)], offsets: &[u8]) -> Self {
        let gate = Gate::Partition(partition_gate());
        let mut artifacts: Vec<(u8, u64, Vec<u8>)> = segments
            .iter()
            .map(|(base, bytes)| (artifact_kind::SEGMENT_LOG, *base, bytes.clone()))
            .collect();
        artifacts.push((artifact_kind::CONSUMER_OFFSETS, 100, offsets.to_vec()));
        Self::new(partition_group(), gate, Op(100), artifacts)
    }

    /// The same with other limits than the tiny ones.
    pub(crate) fn limited(self, limits: ProvideLimits) -> Self {
        let provider = provider(limits);
        Self { provider, ..self }
    }

    fn new(group: GroupId, gate: Gate, commit_op: Op, artifacts: Vec<(u8, u64, Vec<u8>)>) -> Self {
        Self {
            provider: provider(ProvideLimits::tiny()),
            gate,
            group,
            commit_op,
            artifacts,
            reads: Vec::new(),
            bytes_read: 0,
            broken: None,
            ticket: None,
            load: None,
        }
    }

    fn commit_max(&self) -> Op {
        match self.gate {
            Gate::Metadata(gate) => gate.commit_max,
            Gate::Partition(gate) => gate.commit_max,
        }
    }

    pub(crate) fn spec(&self) -> OfferSpec {
        let source = |kind: u8, bytes: &Vec<u8>| match kind {
            artifact_kind::SEGMENT_LOG => ArtifactSource::Stored {
                len: bytes.len() as u64,
                checksum: None,
            },
            _ => ArtifactSource::Memory {
                bytes: Arc::from(bytes.as_slice()),
                checksum: None,
            },
        };
        let artifacts = self
            .artifacts
            .iter()
            .map(|(kind, frontier, bytes)| ArtifactSpec {
                kind: *kind,
                frontier: *frontier,
                source: source(*kind, bytes),
            });
        OfferSpec {
            view: VIEW,
            commit_op: self.commit_op,
            commit_max: self.commit_max(),
            artifacts: artifacts.collect(),
        }
    }

    /// Delivers a request and returns the answers, storage reads included.
    pub(crate) fn serve(&mut self, from: ReplicaId, frame: &Message) -> Vec<(ReplicaId, Message)> {
        let mut out = self.receive(from, frame);
        out.extend(self.read_all());
        out
    }

    /// Delivers a request and builds the offer, but performs no read yet.
    pub(crate) fn receive(
        &mut self,
        from: ReplicaId,
        frame: &Message,
    ) -> Vec<(ReplicaId, Message)> {
        let mut out = Vec::new();
        match decode_replica(frame.clone()).expect("a sound frame") {
            ReplicaFrame::RequestStateTransfer(typed) => {
                let (header, gate) = (typed.header(), self.gate);
                self.ticket = self.provider.on_request(from, header, &gate, &mut out);
                if let Some(ticket) = self.ticket.take() {
                    let spec = self.spec();
                    self.provider.offer(ticket, spec, &mut out);
                }
            }
            ReplicaFrame::RequestStateChunk(typed) => {
                let view = ProviderView {
                    view: VIEW,
                    commit_max: self.commit_max(),
                };
                self.provider
                    .on_chunk_request(from, typed.header(), view, &mut out);
            }
            other => panic!("not for a provider: {other:?}"),
        }
        self.absorb(out)
    }

    /// Performs the reads that are outstanding, and those they lead to.
    pub(crate) fn read_all(&mut self) -> Vec<(ReplicaId, Message)> {
        let mut sent = Vec::new();
        while !self.reads.is_empty() {
            sent.extend(self.read_one());
        }
        sent
    }

    pub(crate) fn read_one(&mut self) -> Vec<(ReplicaId, Message)> {
        let (token, kind, frontier, offset, len) = self.reads.remove(0);
        let stored = self
            .artifacts
            .iter()
            .find(|(of, at, _)| (*of, *at) == (kind, frontier));
        let from = usize::try_from(offset).expect("small");
        let bytes = stored.and_then(|(_, _, bytes)| {
            let end = (from + len as usize).min(bytes.len());
            bytes.get(from..end).map(<[u8]>::to_vec)
        });
        let mut out = Vec::new();
        match (self.broken, bytes) {
            (Some(error), _) => self.provider.on_read(token, Err(error), &mut out),
            (None, Some(bytes)) => {
                self.bytes_read += bytes.len() as u64;
                self.provider.on_read(token, Ok(&bytes), &mut out);
            }
            (None, None) => self
                .provider
                .on_read(token, Err(ReadError::Changed), &mut out),
        }
        self.absorb(out)
    }

    pub(crate) fn tick(&mut self) -> Vec<(ReplicaId, Message)> {
        let mut out = Vec::new();
        self.provider.tick(self.load, &mut out);
        self.absorb(out)
    }

    /// Takes in what the provider put out.
    pub(crate) fn absorb(&mut self, out: Vec<ProvideOutput>) -> Vec<(ReplicaId, Message)> {
        self.provider.check_invariants();
        let mut sent = Vec::new();
        for output in out {
            match output {
                ProvideOutput::Send { to, message } => sent.push((to, message)),
                ProvideOutput::Read {
                    token,
                    group,
                    kind,
                    frontier,
                    offset,
                    len,
                    ..
                } => {
                    assert_eq!(group, self.group);
                    self.reads.push((token, kind, frontier, offset, len));
                }
            }
        }
        sent
    }
}

fn provider(limits: ProvideLimits) -> Provider {
    Provider::new(ProviderConfig {
        cluster: CLUSTER,
        replica: SERVER,
        replica_count: 3,
        limits,
    })
}

pub(crate) fn partition_gate() -> PartitionGate {
    PartitionGate {
        view: VIEW,
        commit_max: Op(100),
        caught_up_primary: true,
        has_directory: true,
        repairing: false,
        purge_deferred: false,
        frontier_installed: false,
        segments: 2,
        next_offset: 50,
        purge_generation: 0,
        flush: Flush::Clean,
    }
}

/// Carries frames back and forth until nothing is sent any more; returns the conversation.
pub(crate) fn converse(node: &mut Node, source: &mut Source) -> Vec<String> {
    let mut talk = Vec::new();
    loop {
        let requests = node.take_sent();
        if requests.is_empty() {
            return talk;
        }
        for (to, request) in requests {
            talk.push(describe(&request));
            if to != SERVER {
                continue;
            }
            for (_, answer) in source.serve(PULLER, &request) {
                talk.push(describe(&answer));
                node.receive(SERVER, &answer);
            }
        }
        assert!(talk.len() < 10_000, "the transfer does not come to an end");
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(salt))
        .collect()
}

/// Starts the puller and lets the server answer its first request.
pub(crate) fn started(node: &mut Node, source: &mut Source) -> Message {
    node.start(SERVER);
    let ask = node.sent_one();
    let answers = source.serve(PULLER, &ask);
    assert_eq!(answers.len(), 1);
    answers[0].1.clone()
}

/// The nonce of a RequestStateTransfer.
pub(crate) fn nonce_of(ask: &Message) -> u128 {
    ask.header::<biplane_wire::RequestStateTransferHeader>()
        .nonce()
}
