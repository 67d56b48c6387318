//! One bare group: replica, repair, and the translation between them and the disk.

use std::collections::BTreeMap;

use biplane_journal::{DiskCompletion, DiskView, Persist, QueueId, WalOutput};
use biplane_repair::{
    Budget, GroupStatus, GroupView, HeldOp, Ingested, NoHistory, PlaneKind, PrepareSource,
    RepairLimits, RepairOutput, Requester, RequesterConfig, ServeFacts, TransferState, serve,
};
use biplane_vsr::{
    Admission, Config, Durability, Forward, Ingest, Input, Log, Output, Plane, Promotion, Replica,
    Source, Status, TransferStage,
};
use biplane_wire::{
    Checksum, ClientId, Command, FrameBuffer, GroupId, Message, Op, Operation, PrepareHeader,
    ReplicaFrame, ReplicaId, ReplyHeader, RequestNumber, RoutedRequestHeader, View, xxh3,
};

use super::store::{Completed, Store, folder};
use super::{BareConfig, cluster};
use crate::machine::{Answer, Effect, GroupFacts};

/// The smallest plane: a policy, and nothing else.
#[derive(Debug)]
struct BarePlane {
    durability: Durability,
}

impl Plane for BarePlane {
    fn durability(&self, _prepare: &PrepareHeader) -> Durability {
        self.durability
    }

    fn stamp(&mut self, _header: &PrepareHeader, _body: &mut [u8]) {}

    fn accept(&mut self, _prepare: &Message, _source: Source) -> Result<(), &'static str> {
        Ok(())
    }

    fn truncated(&mut self, _from: Op, _removed: &[Message]) {}

    fn promote(&mut self, _request: &FrameBuffer) -> Promotion {
        Promotion::Prepare
    }
}

struct LogSource<'a>(&'a Log);

impl PrepareSource for LogSource<'_> {
    fn prepare(&self, op: Op) -> Option<Message> {
        self.0
            .is_durable(op)
            .then(|| self.0.get(op).cloned())
            .flatten()
    }

    fn next_held(&self, from: Op, to: Op) -> Option<Op> {
        let mut op = self.0.next_held(from, to)?;
        while !self.0.is_durable(op) {
            op = self.0.next_held(op.next(), to)?;
        }
        Some(op)
    }
}

/// A group of a bare node.
#[derive(Debug)]
pub(super) struct BareGroup {
    group: GroupId,
    replica: Replica,
    plane: BarePlane,
    requester: Requester,
    store: Store,
    digest: u64,
    /// Whether the disk knows of the group. Until then a crash would bring it back as one that
    /// never ran, and it would give the numbers of the first view again.
    has_trace: bool,
    /// Requests in the log or the queue here, by token.
    waiting: BTreeMap<u64, ()>,
    /// Where the group is on the disk; never changes.
    facts: GroupFacts,
}

impl BareGroup {
    pub(super) fn open(
        config: &BareConfig,
        index: u64,
        group: GroupId,
        durability: Durability,
        disk: &dyn DiskView,
        out: &mut Vec<Effect>,
    ) -> Result<Self, String> {
        let mut requests = Vec::new();
        let (store, boot) = Store::open(config, index, group, durability, disk, &mut requests)?;
        out.extend(requests.into_iter().map(Effect::Disk));
        let seed = config.seed ^ xxh3(&group.0.to_le_bytes());
        let metadata = group.is_metadata();
        let core = Config {
            cluster: cluster(),
            replica: ReplicaId(config.replica),
            replica_count: config.replica_count,
            group,
            forward: if metadata {
                Forward::AfterDurable
            } else {
                Forward::Immediately
            },
            halt_on_fork: metadata,
            single_in_flight: metadata,
            limits: config.limits,
            timers: config.timers,
            incarnation: if metadata {
                u128::from(seed) << 1 | 1
            } else {
                0
            },
            seed,
        };
        let replica = Replica::open(core, boot).map_err(|error| error.to_string())?;
        let requester = Requester::new(RequesterConfig {
            cluster: cluster(),
            group,
            replica: ReplicaId(config.replica),
            replica_count: config.replica_count,
            plane: PlaneKind::Metadata,
            limits: RepairLimits::tiny(),
            seed,
        });
        let plane = BarePlane { durability };
        let waiting = BTreeMap::new();
        let has_trace = store.has_trace();
        let mut this = Self {
            has_trace,
            facts: facts(group, durability),
            group,
            replica,
            plane,
            requester,
            store,
            digest: 0,
            waiting,
        };
        this.settle(Vec::new(), out);
        Ok(this)
    }

    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    pub(super) fn durability(&self) -> Durability {
        self.plane.durability
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn owns(&self, queue: QueueId) -> bool {
        self.store.owns(queue)
    }

    pub(super) fn facts(&self) -> GroupFacts {
        self.facts.clone()
    }

    pub(super) fn check_invariants(&self, with_files: bool) {
        self.replica.check_invariants();
        self.requester.check_invariants();
        if with_files {
            self.store.check_invariants();
        }
    }

    pub(super) fn tick(&mut self, wall_micros: u64, out: &mut Vec<Effect>) {
        let mut requests = Vec::new();
        self.store.tick(&mut requests);
        out.extend(requests.into_iter().map(Effect::Disk));
        if !self.has_trace {
            return;
        }
        self.input(Input::Tick { wall_micros }, out);
        let mut repairs = Vec::new();
        let (view, need) = (self.view(), self.replica.repair_need());
        self.requester
            .tick(&view, need.as_ref(), &mut Budget::unlimited(), &mut repairs);
        self.repair_outputs(repairs, out);
    }

    pub(super) fn peer(&mut self, peer: u8, connected: bool, out: &mut Vec<Effect>) {
        self.input(
            Input::Peer {
                replica: ReplicaId(peer),
                connected,
            },
            out,
        );
    }

    pub(super) fn submit(
        &mut self,
        token: u64,
        request: FrameBuffer,
        wall_micros: u64,
        out: &mut Vec<Effect>,
    ) {
        if !self.has_trace {
            let answer = Answer::Transient {
                maybe: false,
                code: 58,
            };
            out.push(Effect::Answer { token, answer });
            return;
        }
        let mut outputs = Vec::new();
        let admission =
            self.replica
                .admit(request, token, wall_micros, &mut self.plane, &mut outputs);
        match admission {
            Admission::Prepared { .. } | Admission::Queued => {
                self.waiting.insert(token, ());
            }
            Admission::Refused { reason, .. } => {
                let code = reason.code();
                let answer = Answer::Transient {
                    maybe: code == 57,
                    code,
                };
                out.push(Effect::Answer { token, answer });
            }
        }
        self.settle(outputs, out);
    }

    pub(super) fn disk(&mut self, completion: DiskCompletion, out: &mut Vec<Effect>) {
        let mut requests = Vec::new();
        match self.store.complete(completion, &mut requests) {
            Ok(Completed { durable, events }) => {
                out.extend(requests.into_iter().map(Effect::Disk));
                if let Some(persisted) = durable {
                    self.has_trace = true;
                    self.input(persisted, out);
                }
                let mut outputs = Vec::new();
                self.events(events, &mut outputs);
                self.settle(outputs, out);
            }
            Err(reason) => out.push(Effect::Halt(reason)),
        }
    }

    pub(super) fn frame(&mut self, frame: ReplicaFrame, out: &mut Vec<Effect>) {
        if !self.has_trace {
            return;
        }
        let mut repairs = Vec::new();
        let budget = &mut Budget::unlimited();
        match frame {
            ReplicaFrame::RequestPrepares(frame) => {
                self.serve(frame.header(), out);
            }
            ReplicaFrame::RepairPrepare(frame) => {
                if self
                    .requester
                    .admits(&self.view(), &prepare_header(frame.message()))
                    .is_err()
                {
                    return;
                }
                let op = prepare_header(frame.message()).op();
                let prepare = frame.into_message().repair_to_prepare();
                let mut outputs = Vec::new();
                let ingest = self
                    .replica
                    .ingest_repaired(prepare, &mut self.plane, &mut outputs);
                match ingest {
                    Ingest::Journaled => {
                        self.requester
                            .on_ingested(op, Ingested::Stored, HeldOp::Missing)
                    }
                    Ingest::Duplicate => {
                        self.requester
                            .on_ingested(op, Ingested::Duplicate, HeldOp::Missing)
                    }
                    Ingest::Ignored(_) => {}
                }
                self.settle(outputs, out);
            }
            ReplicaFrame::RepairDone(frame) => {
                self.settle(Vec::new(), out);
                let (view, need) = (self.view(), self.replica.repair_need());
                let reply = frame.header();
                self.requester.on_done(
                    &view,
                    need.as_ref(),
                    reply,
                    &NoHistory,
                    budget,
                    &mut repairs,
                );
            }
            ReplicaFrame::RangeEvicted(frame) => {
                let (view, need) = (self.view(), self.replica.repair_need());
                let reply = frame.header();
                self.requester
                    .on_range_evicted(&view, need.as_ref(), reply, budget, &mut repairs);
            }
            other => self.input(Input::Frame(other), out),
        }
        self.repair_outputs(repairs, out);
    }

    /// Tells the replica what the log has made durable.
    fn events(&mut self, events: Vec<WalOutput>, more: &mut Vec<Output>) {
        for event in events {
            let input = match event {
                WalOutput::Durable { op, checksum } => Input::Appended { op, checksum },
                WalOutput::Truncated { from } => Input::Truncated { from },
                WalOutput::Disk(_) | WalOutput::Drained { .. } => continue,
            };
            self.replica.step(input, &mut self.plane, more);
        }
    }

    fn input(&mut self, input: Input, out: &mut Vec<Effect>) {
        let mut outputs = Vec::new();
        self.replica.step(input, &mut self.plane, &mut outputs);
        self.settle(outputs, out);
    }

    /// Walks the commits, lets queued requests in, and carries outputs out, until all is quiet.
    fn settle(&mut self, mut outputs: Vec<Output>, out: &mut Vec<Effect>) {
        loop {
            self.walk(out);
            self.replica.promote(&mut self.plane, &mut outputs);
            if outputs.is_empty() {
                break;
            }
            for output in std::mem::take(&mut outputs) {
                self.output(output, &mut outputs, out);
            }
        }
        let mut repairs = Vec::new();
        let (view, need) = (self.view(), self.replica.repair_need());
        self.requester
            .advance(&view, need.as_ref(), &mut Budget::unlimited(), &mut repairs);
        self.repair_outputs(repairs, out);
    }

    fn walk(&mut self, out: &mut Vec<Effect>) {
        while let Some(prepare) = self.replica.next_committed() {
            let header = prepare_header(prepare);
            let mut bytes = self.digest.to_le_bytes().to_vec();
            bytes.extend_from_slice(&header.frame.checksum().0.to_le_bytes());
            self.digest = xxh3(&bytes);
            let message = reply(&header);
            if let Some(token) = self.replica.applied(header.op()) {
                self.waiting.remove(&token);
                let answer = Answer::Replied { code: 0, message };
                out.push(Effect::Answer { token, answer });
            }
        }
    }

    fn output(&mut self, output: Output, more: &mut Vec<Output>, out: &mut Vec<Effect>) {
        let mut requests = Vec::new();
        match output {
            Output::Send { to, message } => out.push(Effect::Send { to: to.0, message }),
            Output::Append { prepare } => {
                let header = prepare_header(&prepare);
                let (op, checksum) = (header.op(), header.frame.checksum());
                match self.store.append(prepare, &mut requests) {
                    Ok(events) => self.events(events, more),
                    Err(_) => {
                        let failed = Input::AppendFailed { op, checksum };
                        self.replica.step(failed, &mut self.plane, more);
                    }
                }
            }
            Output::Truncate { from } => {
                let events = self.store.truncate(from, &mut requests);
                self.events(events, more);
            }
            Output::PersistView {
                view,
                log_view,
                commit_max,
            } => {
                let store = &mut self.store;
                let persist = store.persist(view, log_view, commit_max, &mut requests);
                if persist == Persist::AlreadyDurable {
                    let persisted = Input::ViewPersisted {
                        view,
                        log_view,
                        commit_max,
                    };
                    self.replica.step(persisted, &mut self.plane, more);
                }
            }
            Output::Promoted { .. } | Output::Transfer(_) | Output::Role(_) => {}
            Output::Denied { token, code, .. } => self.deny(token, code, out),
            Output::Canceled { token, .. } => self.deny(token, 57, out),
            Output::Halt(reason) => out.push(Effect::Halt(format!("{reason:?}"))),
        }
        out.extend(requests.into_iter().map(Effect::Disk));
    }

    fn deny(&mut self, token: u64, code: u32, out: &mut Vec<Effect>) {
        self.waiting.remove(&token);
        let answer = Answer::Transient {
            maybe: code == 57,
            code,
        };
        out.push(Effect::Answer { token, answer });
    }

    fn repair_outputs(&mut self, repairs: Vec<RepairOutput>, out: &mut Vec<Effect>) {
        for repair in repairs {
            if let RepairOutput::Send { to, message } = repair {
                out.push(Effect::Send { to: to.0, message });
            }
        }
    }

    fn serve(&self, request: &biplane_wire::RequestPreparesHeader, out: &mut Vec<Effect>) {
        let view = self.view();
        let config = self.replica.config();
        let facts = ServeFacts {
            cluster: cluster(),
            replica: config.replica,
            group: self.group,
            plane: PlaneKind::Metadata,
            status: view.status,
            transferring: view.transfer != TransferState::Idle,
            purge_deferred: false,
            primary: self.replica.primary(),
            retained_from: Op(1),
            commit_max: view.commit_max,
            head: view.head,
            chunk_max: 16,
        };
        let to = request.frame.replica().0;
        let source = LogSource(self.replica.log());
        serve(request, &facts, &source, |message| {
            out.push(Effect::Send { to, message });
            true
        });
    }

    fn view(&self) -> GroupView {
        let status = self.replica.status();
        GroupView {
            status: match status.status {
                Status::Normal => GroupStatus::Normal,
                Status::ViewChange => GroupStatus::ViewChange,
                Status::Recovering => GroupStatus::Recovering,
            },
            view: status.view,
            commit_min: status.commit_min,
            commit_max: status.commit_max,
            head: status.op_head,
            transfer: match status.transfer_stage {
                TransferStage::Idle => TransferState::Idle,
                _ => TransferState::Active,
            },
            purge_deferred: false,
        }
    }
}

fn facts(group: GroupId, durability: Durability) -> GroupFacts {
    let superblock = folder(group);
    let log = superblock.join("journal.wal").ok().map(|path| {
        let seal = if group.is_metadata() { 0 } else { 8 };
        (path, seal)
    });
    let prepare_log = log.filter(|_| durability == Durability::Disk);
    GroupFacts {
        incarnation: 0,
        purges: 0,
        deleted_up_to: 0,
        expires: false,
        first_view: View(0),
        superblock,
        prepare_log,
    }
}

fn prepare_header(message: &Message) -> PrepareHeader {
    *message.header::<PrepareHeader>()
}

fn reply(prepare: &PrepareHeader) -> Message {
    let mut header = ReplyHeader::new(Command::Reply);
    header.set_client(prepare.client());
    header.set_request(prepare.request());
    header.set_op(prepare.op());
    header.set_commit(prepare.op());
    Message::from_parts(header, &[])
}

/// A request as a primary gets it.
pub(super) fn routed(
    group: GroupId,
    client: ClientId,
    session: u64,
    request: u64,
    operation: Operation,
    body: &[u8],
) -> FrameBuffer {
    let mut header = RoutedRequestHeader::new(Command::Request);
    header.frame.set_cluster(cluster());
    header
        .frame
        .set_size((biplane_wire::HEADER_SIZE + body.len()) as u32);
    header.set_client(client);
    header.set_session(session);
    header.set_request(RequestNumber(request));
    header.set_request_checksum(Checksum::of(body));
    header.set_operation(operation);
    header.set_group(group);
    FrameBuffer::from_parts(&header, body)
}
