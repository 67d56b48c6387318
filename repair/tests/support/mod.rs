//! A model of both sides for the plays: a log that serves, a log that lacks, and golden bytes.
//!
//! The models keep prepares in a map and walk commits the simplest way there is; what they test
//! is the crate's behaviour between them.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;

use biplane_repair::{
    Budget, Expectation, GroupStatus, GroupView, HeldOp, History, Ingested, NeedKind, PlaneKind,
    PrepareSource, RepairLimits, RepairNeed, RepairOutput, Requester, RequesterConfig, ServeFacts,
    TransferState, Verdict, WindowFacts, serve, verify,
};
use biplane_wire::{
    Checksum, ClusterId, Command, GroupId, Message, Op, Operation, PrepareHeader, ReplicaFrame,
    ReplicaId, RequestPreparesHeader, View, decode_replica, prepare,
};

pub(crate) const CLUSTER: ClusterId = ClusterId(0x1122_3344_5566_7788_9900_aabb_ccdd_eeff);
pub(crate) const NONCE: u128 = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000;
pub(crate) const SERVER: ReplicaId = ReplicaId(0);
pub(crate) const BACKUP: ReplicaId = ReplicaId(2);

/// Bytes of a dump in which `[00×n]` stands for n zero bytes.
pub(crate) fn golden(dump: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = dump.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            let (run, after) = rest.split_once(']').expect("a run is closed");
            let (_, count) = run.split_once('×').expect("a run has a count");
            bytes.resize(bytes.len() + count.parse::<usize>().expect("a number"), 0);
            rest = after.trim_start();
        } else {
            let (byte, after) = rest.split_at(2);
            bytes.push(u8::from_str_radix(byte, 16).expect("hex"));
            rest = after.trim_start();
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

/// A chain of prepares from op 1 on, as one primary would build it.
pub(crate) fn chain(group: GroupId, to: u64) -> BTreeMap<u64, Message> {
    let mut log = BTreeMap::new();
    let mut parent = Checksum::ZERO;
    for op in 1..=to {
        let prepare = build(group, op, parent, b"body");
        parent = prepare.header::<PrepareHeader>().frame.checksum();
        log.insert(op, prepare);
    }
    log
}

pub(crate) fn build(group: GroupId, op: u64, parent: Checksum, body: &[u8]) -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_view(View(3));
    header.frame.set_replica(SERVER);
    header.set_parent(parent);
    header.set_op(Op(op));
    header.set_commit(Op(op - 1));
    header.set_timestamp(1_000 + op);
    header.set_operation(match group.is_metadata() {
        true => Operation::CreateStream,
        false => Operation::SendMessages,
    });
    header.set_group(group);
    prepare::build_with_body(header, body)
}

/// A log that serves.
pub(crate) struct Server {
    pub(crate) log: BTreeMap<u64, Message>,
    pub(crate) unreadable: Option<u64>,
    pub(crate) facts: ServeFacts,
}

impl PrepareSource for Server {
    fn prepare(&self, op: Op) -> Option<Message> {
        self.log
            .get(&op.0)
            .filter(|_| self.unreadable != Some(op.0))
            .cloned()
    }

    fn next_held(&self, from: Op, to: Op) -> Option<Op> {
        if from > to {
            return None;
        }
        self.log.range(from.0..=to.0).next().map(|(op, _)| Op(*op))
    }
}

impl Server {
    /// A Normal primary of view 3 of three replicas that retains `from..=head`.
    pub(crate) fn new(group: GroupId, from: u64, commit_max: u64, head: u64) -> Self {
        let mut log = chain(group, head);
        log.retain(|op, _| *op >= from);
        let plane = match group.is_metadata() {
            true => PlaneKind::Metadata,
            false => PlaneKind::Partition,
        };
        let facts = ServeFacts {
            cluster: CLUSTER,
            replica: SERVER,
            group,
            plane,
            status: GroupStatus::Normal,
            transferring: false,
            purge_deferred: false,
            primary: SERVER,
            retained_from: Op(from),
            commit_max: Op(commit_max),
            head: Op(head),
            chunk_max: 128,
        };
        Self {
            log,
            unreadable: None,
            facts,
        }
    }

    pub(crate) fn answer(&self, request: &RequestPreparesHeader) -> Vec<Message> {
        let mut frames = Vec::new();
        serve(request, &self.facts, self, |frame| {
            frames.push(frame);
            true
        });
        frames
    }
}

pub(crate) fn request(group: GroupId, from: u64, to: u64) -> RequestPreparesHeader {
    let mut header = RequestPreparesHeader::new(Command::RequestPrepares);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_replica(BACKUP);
    header.set_nonce(NONCE);
    header.set_from_op(Op(from));
    header.set_to_op(Op(to));
    header.set_group(group);
    header
}

/// Frames as short text: `P65 P66 D66` or `E65`.
pub(crate) fn summary(frames: &[Message]) -> String {
    let words: Vec<String> = frames.iter().map(describe).collect();
    words.join(" ")
}

fn describe(frame: &Message) -> String {
    match decode_replica(frame.clone()) {
        Ok(ReplicaFrame::RepairPrepare(typed)) => format!("P{}", typed.header().op()),
        Ok(ReplicaFrame::RepairDone(typed)) => format!("D{}", typed.header().op()),
        Ok(ReplicaFrame::RangeEvicted(typed)) => format!("E{}", typed.header().op()),
        Ok(ReplicaFrame::RequestPrepares(typed)) => {
            format!("R{}..{}", typed.header().from_op(), typed.header().to_op())
        }
        other => panic!("not a frame of repair: {other:?}"),
    }
}

/// A replica that lacks.
pub(crate) struct Backup {
    pub(crate) group: GroupId,
    pub(crate) view: GroupView,
    pub(crate) log: BTreeMap<u64, Message>,
    /// How far above the applied point the log reaches.
    pub(crate) reach: u64,
    pub(crate) need: Option<RepairNeed>,
    pub(crate) elect: bool,
    pub(crate) sources: Vec<ReplicaId>,
    /// Offset after the durable messages; message offsets are `op - 1`.
    pub(crate) stand_in: u64,
    /// Ops up to this one hold no messages.
    pub(crate) silent: u64,
    pub(crate) requester: Requester,
    pub(crate) budget: Budget,
    pub(crate) out: Vec<RepairOutput>,
    pub(crate) transfers: Vec<ReplicaId>,
    pub(crate) rejected: Vec<String>,
}

impl Backup {
    /// A backup of view 3 (primary 0 of three) that applied `commit_min` of `commit_max`.
    pub(crate) fn new(group: GroupId, commit_min: u64, commit_max: u64, seed: u64) -> Self {
        let plane = match group.is_metadata() {
            true => PlaneKind::Metadata,
            false => PlaneKind::Partition,
        };
        let requester = Requester::new(RequesterConfig {
            cluster: CLUSTER,
            group,
            replica: BACKUP,
            replica_count: 3,
            plane,
            limits: RepairLimits::tiny(),
            seed,
        });
        let view = GroupView {
            status: GroupStatus::Normal,
            view: View(3),
            commit_min: Op(commit_min),
            commit_max: Op(commit_max),
            head: Op(commit_min),
            transfer: TransferState::Idle,
            purge_deferred: false,
        };
        let mut backup = Self {
            group,
            view,
            log: BTreeMap::new(),
            reach: u64::MAX,
            need: None,
            elect: false,
            sources: Vec::new(),
            stand_in: 0,
            silent: 0,
            requester,
            budget: Budget::unlimited(),
            out: Vec::new(),
            transfers: Vec::new(),
            rejected: Vec::new(),
        };
        backup.walk();
        backup
    }

    /// Applies what is contiguous, and states what is missing.
    pub(crate) fn walk(&mut self) {
        let held = |log: &BTreeMap<u64, Message>, op: Op| log.contains_key(&op.0);
        while self.view.status == GroupStatus::Normal
            && self.view.commit_min < self.view.commit_max
            && held(&self.log, self.view.commit_min.next())
        {
            self.view.commit_min = self.view.commit_min.next();
        }
        while held(&self.log, self.view.head.next()) {
            self.view.head = self.view.head.next();
        }
        self.view.head = self.view.head.max(self.view.commit_min);
        let (from, to) = (self.view.commit_min.next(), self.view.commit_max);
        let first = (from.0..=to.0).find(|op| !held(&self.log, Op(*op)));
        let kind = if self.elect {
            NeedKind::Elect
        } else {
            NeedKind::Gap
        };
        let (sources, view) = (self.sources.clone(), self.view.view);
        self.need = first.map(|first| RepairNeed {
            kind,
            from: Op(first),
            to,
            sources,
            view,
        });
        if self.view.transfer == TransferState::Active {
            self.need = None;
        }
    }

    pub(crate) fn tick(&mut self) {
        self.walk();
        self.budget.begin_tick();
        let Self {
            requester,
            view,
            need,
            budget,
            out,
            ..
        } = self;
        requester.tick(view, need.as_ref(), budget, out);
        self.settle();
    }

    pub(crate) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    pub(crate) fn advance(&mut self) {
        self.walk();
        let Self {
            requester,
            view,
            need,
            budget,
            out,
            ..
        } = self;
        requester.advance(view, need.as_ref(), budget, out);
        self.settle();
    }

    pub(crate) fn receive(&mut self, frame: &Message) {
        match decode_replica(frame.clone()) {
            Ok(ReplicaFrame::RepairPrepare(typed)) => self.ingest(typed.into_message()),
            Ok(ReplicaFrame::RepairDone(typed)) => {
                self.walk();
                let history = Held {
                    log: &self.log,
                    stand_in: self.stand_in,
                    silent: self.silent,
                };
                let Self {
                    requester,
                    view,
                    need,
                    budget,
                    out,
                    ..
                } = self;
                requester.on_done(view, need.as_ref(), typed.header(), &history, budget, out);
                self.settle();
            }
            Ok(ReplicaFrame::RangeEvicted(typed)) => {
                self.walk();
                let Self {
                    requester,
                    view,
                    need,
                    budget,
                    out,
                    ..
                } = self;
                requester.on_range_evicted(view, need.as_ref(), typed.header(), budget, out);
                self.settle();
            }
            Ok(other) => panic!("not for a requester: {other:?}"),
            Err(refusal) => self.rejected.push(refusal.to_string()),
        }
    }

    pub(crate) fn receive_all(&mut self, frames: &[Message]) {
        frames.iter().for_each(|frame| self.receive(frame));
    }

    fn ingest(&mut self, frame: Message) {
        let prepare = frame.repair_to_prepare();
        let header = *prepare.header::<PrepareHeader>();
        let op = header.op();
        if let Err(reason) = self.requester.admits(&self.view, &header) {
            return self.rejected.push(reason.to_string());
        }
        let entry = |op: Option<Op>| op.and_then(|op| self.log.get(&op.0));
        let below = entry(op.previous());
        let above = entry(Some(op.next()));
        let expected = Expectation {
            below: below.map(|entry| entry.header::<PrepareHeader>().frame.checksum()),
            above_parent: above.map(|entry| entry.header::<PrepareHeader>().parent()),
            above_committed: op.next() <= self.view.commit_max,
            ..Expectation::of_group(self.group)
        };
        match verify(&prepare, &expected) {
            Verdict::Accept => {}
            Verdict::Reject(defect) => return self.rejected.push(defect.to_string()),
            Verdict::Displaces { .. } => return self.rejected.push("displaces".to_owned()),
        }
        let content = content_of(op, self.silent);
        if self.log.contains_key(&op.0) {
            self.requester.on_ingested(op, Ingested::Duplicate, content);
        } else if op.0 > self.view.commit_min.0.saturating_add(self.reach) {
            self.requester
                .on_ingested(op, Ingested::OutOfReach, content);
        } else {
            self.log.insert(op.0, prepare);
            self.requester.on_ingested(op, Ingested::Stored, content);
        }
        self.advance();
    }

    /// Acts on outputs that are not frames.
    fn settle(&mut self) {
        self.requester.check_invariants();
        let mut raised = false;
        for output in &self.out {
            match output {
                RepairOutput::RaiseFloor { to } => {
                    assert!(*to > self.view.commit_min, "a floor only rises");
                    self.view.commit_min = *to;
                    raised = true;
                }
                RepairOutput::ArmTransfer { from } => self.transfers.push(*from),
                _ => {}
            }
        }
        let done = |output: &RepairOutput| {
            matches!(
                output,
                RepairOutput::RaiseFloor { .. } | RepairOutput::ArmTransfer { .. }
            )
        };
        self.out.retain(|output| !done(output));
        if raised {
            self.advance();
        }
    }

    /// Requests sent since the last look, and to whom.
    pub(crate) fn sent(&mut self) -> Vec<(ReplicaId, RequestPreparesHeader)> {
        let mut sent = Vec::new();
        for output in std::mem::take(&mut self.out) {
            if let RepairOutput::Send { to, message } = output {
                let frame = decode_replica(message).expect("a request decodes");
                let ReplicaFrame::RequestPrepares(typed) = frame else {
                    panic!("a requester sends requests");
                };
                sent.push((to, *typed.header()));
            }
        }
        sent
    }

    /// The one request that must have been sent since the last look.
    pub(crate) fn sent_one(&mut self) -> (ReplicaId, RequestPreparesHeader) {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "one request: {sent:?}");
        sent[0]
    }
}

/// In a partition of the model every op above `silent` is a batch of one message, and op n has
/// offset n - 1.
pub(crate) fn content_of(op: Op, silent: u64) -> HeldOp {
    if op.0 <= silent {
        return HeldOp::Other;
    }
    HeldOp::Batch {
        base_offset: op.0 - 1,
    }
}

struct Held<'a> {
    log: &'a BTreeMap<u64, Message>,
    stand_in: u64,
    silent: u64,
}

impl History for Held<'_> {
    fn stand_in(&self) -> u64 {
        self.stand_in
    }

    fn window(&self, floor: Op, to: Op) -> WindowFacts {
        let last = self
            .log
            .last_key_value()
            .map_or(Op::ZERO, |(op, _)| Op(*op));
        WindowFacts::scan(floor, to, last, |op| match self.log.contains_key(&op.0) {
            true => content_of(op, self.silent),
            false => HeldOp::Missing,
        })
    }
}
