//! Cores joined by queues: a cluster in memory with roles and verbs.
//!
//! Every node has a disk of its own (a journal and a superblock that survive a crash as far as
//! they were written), a plane that does nothing but remember, and a simple repair that copies
//! what [`biplane_vsr::Replica::repair_need`] asks for. Whatever two nodes apply for the same op
//! must be the same prepare; that is checked at every apply, and the invariants of every
//! replica after every call.
#![allow(dead_code, unreachable_pub)]

pub mod frames;
pub mod node;
pub mod orders;
pub mod play;
pub mod solo;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use biplane_vsr::{
    Admission, Config, Forward, Limits, NeedKind, Output, RepairNeed, Start, Status, Timers,
    TransferNotice, TransferStage,
};
use biplane_wire::{
    Checksum, ClusterId, Command, GroupId, Message, Op, PrepareHeader, ReplicaId, View,
};

pub use node::Node;
use node::positions;

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: u8,
    pub to: u8,
    pub message: Message,
}

/// What kind of plane the cores of a cluster serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything is synced before it is passed on.
    Metadata,
    /// Prepares live in memory.
    Partition,
    /// Prepares are passed on at once and synced before they are acknowledged.
    Persisted,
}

/// Decides whether a packet is lost.
type Filter = Box<dyn FnMut(&Packet) -> bool>;

pub struct Cluster {
    pub kind: Kind,
    pub nodes: Vec<Node>,
    pub packets: VecDeque<Packet>,
    pub ticks: u64,
    /// Directed links that lose everything.
    cut: BTreeSet<(u8, u8)>,
    filters: Vec<Filter>,
    /// What was applied anywhere, by op.
    pub committed: BTreeMap<Op, Checksum>,
    /// Where the positions of each applied op end.
    pub ends: BTreeMap<Op, u64>,
    /// Whether missing prepares are fetched.
    pub repairs: bool,
    pub sent: BTreeMap<Command, u64>,
    next_request: u64,
    /// Print what happens, for following a failing seed.
    pub trace: bool,
}

pub const GROUP: GroupId = GroupId::METADATA;

pub fn config(kind: Kind, replica: u8, count: u8) -> Config {
    let metadata = kind == Kind::Metadata;
    Config {
        cluster: ClusterId(7),
        replica: ReplicaId(replica),
        replica_count: count,
        group: if metadata { GROUP } else { GroupId(5) },
        forward: if metadata {
            Forward::AfterDurable
        } else {
            Forward::Immediately
        },
        halt_on_fork: metadata,
        single_in_flight: metadata,
        limits: Limits {
            early_prepares: if metadata { 0 } else { 6 },
            ..Limits::tiny()
        },
        timers: Timers::tiny(),
        incarnation: if metadata { 1 } else { 0 },
        seed: u64::from(replica),
    }
}

impl Cluster {
    pub fn new(kind: Kind, count: u8) -> Self {
        let nodes = (0..count).map(|replica| Node::fresh(kind, config(kind, replica, count)));
        Self {
            kind,
            nodes: nodes.collect(),
            packets: VecDeque::new(),
            ticks: 0,
            cut: BTreeSet::new(),
            filters: Vec::new(),
            committed: BTreeMap::new(),
            ends: BTreeMap::new(),
            repairs: true,
            sent: BTreeMap::new(),
            next_request: 1,
            trace: std::env::var_os("CHAOS_TRACE").is_some(),
        }
    }

    pub fn metadata(count: u8) -> Self {
        Self::new(Kind::Metadata, count)
    }

    pub fn partition(count: u8) -> Self {
        Self::new(Kind::Partition, count)
    }

    pub fn count(&self) -> u8 {
        self.nodes.len() as u8
    }

    pub fn wall_micros(&self) -> u64 {
        1_700_000_000_000_000 + self.ticks * 10_000
    }

    /// Cuts both directions between two nodes.
    pub fn cut(&mut self, one: u8, other: u8) {
        self.cut.insert((one, other));
        self.cut.insert((other, one));
    }

    /// Cuts one direction.
    pub fn cut_one_way(&mut self, from: u8, to: u8) {
        self.cut.insert((from, to));
    }

    pub fn isolate(&mut self, node: u8) {
        for other in 0..self.count() {
            if other != node {
                self.cut(node, other);
            }
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
        self.filters.clear();
    }

    /// Loses every packet for which `filter` says so.
    pub fn lose(&mut self, filter: impl FnMut(&Packet) -> bool + 'static) {
        self.filters.push(Box::new(filter));
    }

    /// Loses the first `times` frames of a kind to a node.
    pub fn lose_first(&mut self, command: Command, to: u8, times: u32) {
        let mut left = times;
        self.lose(move |packet| {
            let hit = left > 0 && packet.message.command() == command && packet.to == to;
            left -= u32::from(hit);
            hit
        });
    }

    /// A request from its own client, with a body of its own.
    pub fn submit(&mut self, node: u8) -> Option<Op> {
        let request = self.next_request;
        self.next_request += 1;
        let client = u128::from(request) + 1000;
        let frame = frames::request(client, 1, &(u128::from(request) << 64).to_le_bytes());
        let admission = self.admit(node, frame, request);
        match admission {
            Admission::Prepared { op } => Some(op),
            Admission::Queued | Admission::Refused { .. } => None,
        }
    }

    pub fn admit(&mut self, node: u8, frame: biplane_wire::FrameBuffer, token: u64) -> Admission {
        let wall = self.wall_micros();
        let target = &mut self.nodes[usize::from(node)];
        let Some(replica) = target.replica.as_mut() else {
            return Admission::Refused {
                request: frame,
                reason: biplane_vsr::Refusal::NotPrimary,
            };
        };
        let mut out = Vec::new();
        let admission = replica.admit(frame, token, wall, &mut target.plane, &mut out);
        self.after(node, out);
        admission
    }

    /// One tick everywhere, then everything that follows from it at once.
    pub fn tick(&mut self) {
        self.ticks += 1;
        for node in 0..self.count() {
            let wall_micros = self.wall_micros();
            self.step(node, biplane_vsr::Input::Tick { wall_micros });
        }
        if self.repairs {
            self.repair();
        }
        self.settle();
    }

    pub fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    /// Ticks until `done`, at most `limit`.
    pub fn run_until(&mut self, limit: u32, mut done: impl FnMut(&Self) -> bool) -> bool {
        for _ in 0..limit {
            if done(self) {
                return true;
            }
            self.tick();
        }
        done(self)
    }

    /// Delivers packets and completes disk writes until nothing moves.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some(packet) = self.packets.pop_front() {
                moved = true;
                self.deliver(packet);
            }
            for node in 0..self.count() {
                moved |= self.complete_writes(node);
            }
            if !moved {
                return;
            }
        }
    }

    pub fn complete_writes(&mut self, node: u8) -> bool {
        let inputs = self.nodes[usize::from(node)].completed_writes();
        let moved = !inputs.is_empty();
        for input in inputs {
            self.step(node, input);
        }
        moved
    }

    pub fn step(&mut self, node: u8, input: biplane_vsr::Input) {
        let target = &mut self.nodes[usize::from(node)];
        let Some(replica) = target.replica.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        replica.step(input, &mut target.plane, &mut out);
        self.after(node, out);
    }

    pub fn is_lost(&mut self, packet: &Packet) -> bool {
        let is_cut = self.cut.contains(&(packet.from, packet.to));
        // Every filter sees every packet, so that counting filters count.
        let mut lost = is_cut;
        for filter in &mut self.filters {
            lost |= filter(packet);
        }
        lost
    }

    pub fn deliver(&mut self, packet: Packet) {
        if self.is_lost(&packet) {
            return;
        }
        let Packet { to, message, .. } = packet;
        if message.command() == Command::RepairPrepare {
            self.ingest(to, message.repair_to_prepare());
            return;
        }
        let frame = biplane_wire::decode_replica(message).expect("cores send decodable frames");
        self.step(to, biplane_vsr::Input::Frame(frame));
    }

    pub fn ingest(&mut self, node: u8, prepare: Message) -> Option<biplane_vsr::Ingest> {
        let target = &mut self.nodes[usize::from(node)];
        let replica = target.replica.as_mut()?;
        let mut out = Vec::new();
        let named = format!("{prepare:?} {:04x}", frames::identity(&prepare).0 & 0xffff);
        let outcome = replica.ingest_repaired(prepare, &mut target.plane, &mut out);
        if self.trace {
            println!("{} node {node} repairs {named}: {outcome:?}", self.ticks);
        }
        self.after(node, out);
        Some(outcome)
    }

    /// The commit loop, promotion, outputs, invariants: what an owner does after every call.
    pub fn after(&mut self, node: u8, mut out: Vec<Output>) {
        loop {
            let target = &mut self.nodes[usize::from(node)];
            let Some(replica) = target.replica.as_mut() else {
                return;
            };
            while let Some(prepare) = replica.next_committed() {
                let header = prepare.header::<PrepareHeader>();
                let (op, identity) = (header.op(), header.frame.checksum());
                if self.trace {
                    println!(
                        "{} node {node} applies {op} {:04x}",
                        self.ticks,
                        identity.0 & 0xffff
                    );
                }
                let known = *self.committed.entry(op).or_insert(identity);
                assert_eq!(known, identity, "node {node} applies another op {op}");
                target.applied.insert(op, identity);
                if self.kind != Kind::Metadata {
                    let below = op.previous().and_then(|below| self.ends.get(&below));
                    let (base, count) = positions(prepare);
                    let start = below.copied().unwrap_or(0);
                    assert_eq!(base, start, "node {node} leaves no gap at op {op}");
                    self.ends.insert(op, base + count);
                }
                if let Some(token) = replica.applied(op) {
                    target.answered.push((token, op));
                }
            }
            if !replica.promote(&mut target.plane, &mut out) {
                break;
            }
        }
        for output in out {
            self.carry_out(node, output);
        }
        if let Some(replica) = &self.nodes[usize::from(node)].replica {
            replica.check_invariants();
        }
    }

    fn carry_out(&mut self, node: u8, output: Output) {
        if self.trace {
            self.print(node, &output);
        }
        match output {
            Output::Send { to, message } => {
                *self.sent.entry(message.command()).or_default() += 1;
                self.packets.push_back(Packet {
                    from: node,
                    to: to.0,
                    message,
                });
            }
            Output::Transfer(TransferNotice::Begin { from }) => self.transfer(node, from.0),
            other => self.nodes[usize::from(node)].note(other),
        }
    }

    fn print(&self, node: u8, output: &Output) {
        let ticks = self.ticks;
        match output {
            Output::Send { to, message } => {
                let name = message.command();
                let is_vote = matches!(name, Command::DoViewChange | Command::StartView);
                if is_vote {
                    println!("{ticks} node {node} to {to}: {message:?}");
                }
            }
            Output::Append { prepare } => {
                let header = prepare.header::<PrepareHeader>();
                let identity = header.frame.checksum().0 & 0xffff;
                println!("{ticks} node {node} appends {} {identity:04x}", header.op());
            }
            other => println!("{ticks} node {node}: {other:?}"),
        }
    }

    /// State transfer in one piece.
    fn transfer(&mut self, node: u8, from: u8) {
        let Some(source) = &self.nodes[usize::from(from)].replica else {
            return;
        };
        let (floor, commit_max) = (source.commit_min(), source.commit_max());
        let applied = self.nodes[usize::from(from)].applied.clone();
        let checksum = applied.get(&floor).copied();
        let target = &mut self.nodes[usize::from(node)];
        let Some(replica) = target.replica.as_mut() else {
            return;
        };
        for stage in [
            TransferStage::Fetching,
            TransferStage::Installing,
            TransferStage::Idle,
        ] {
            replica.set_transfer_stage(stage);
        }
        if floor > replica.commit_min() {
            target.applied = applied;
            target.floor = floor;
            target.plane.floor_end = self.ends.get(&floor).copied().unwrap_or(0);
            target.plane.positions.retain(|op, _| *op > floor);
        }
        let mut out = Vec::new();
        replica.install_floor(floor, checksum, commit_max, &mut target.plane, &mut out);
        self.after(node, out);
    }

    /// Copies what is missing from a node that has it; what no primary keeps any more comes
    /// with its state.
    pub fn repair(&mut self) {
        for node in 0..self.count() {
            let Some(replica) = &self.nodes[usize::from(node)].replica else {
                continue;
            };
            let Some(need) = replica.repair_need() else {
                continue;
            };
            let primary = replica.primary().0;
            let sources: Vec<u8> = if need.sources.is_empty() {
                let others = (0..self.count()).filter(|other| *other != primary);
                std::iter::once(primary).chain(others).collect()
            } else {
                need.sources.iter().map(|source| source.0).collect()
            };
            let others = sources.into_iter().filter(|source| *source != node);
            let served = others.map(|source| (source, self.served(source, &need)));
            let first = served.into_iter().find(|(_, found)| !found.is_empty());
            let can_transfer = need.kind == NeedKind::Gap && !self.is_cut(primary, node);
            if can_transfer && self.has_evicted(primary, need.from) {
                let target = &mut self.nodes[usize::from(node)];
                if let Some(replica) = target.replica.as_mut() {
                    replica.set_transfer_stage(TransferStage::AwaitingTarget);
                }
                self.transfer(node, primary);
            } else if let Some((source, found)) = first {
                for message in found {
                    self.packets.push_back(Packet {
                        from: source,
                        to: node,
                        message,
                    });
                }
            }
        }
    }

    fn served(&self, source: u8, need: &RepairNeed) -> Vec<Message> {
        let Some(peer) = &self.nodes[usize::from(source)].replica else {
            return Vec::new();
        };
        // Nothing, where the range is gone; what there is, where it has holes.
        if peer.log().first().is_none_or(|first| first > need.from) {
            return Vec::new();
        }
        let to = need.to.0.min(need.from.0 + 64);
        let held = (need.from.0..=to).filter_map(|op| peer.log().get(Op(op)));
        held.map(Message::prepare_to_repair).collect()
    }

    fn is_cut(&self, one: u8, other: u8) -> bool {
        self.cut.contains(&(one, other)) || self.cut.contains(&(other, one))
    }

    /// Whether a node has applied an op and does not have its prepare any more.
    fn has_evicted(&self, node: u8, op: Op) -> bool {
        let replica = self.nodes[usize::from(node)].replica.as_ref();
        replica.is_some_and(|replica| {
            replica.is_primary() && replica.commit_min() >= op && !replica.log().contains(op)
        })
    }

    /// Loses memory and every write that has not completed.
    pub fn crash(&mut self, node: u8) {
        if self.trace {
            println!("{} node {node} crashes", self.ticks);
        }
        self.nodes[usize::from(node)].crash();
        self.packets
            .retain(|packet| packet.from != node && packet.to != node);
    }

    pub fn restart(&mut self, node: u8) {
        self.restart_as(
            node,
            Start::Used {
                await_transfer: false,
                view_floor: View(0),
            },
        );
    }

    pub fn restart_as(&mut self, node: u8, start: Start) {
        self.nodes[usize::from(node)].restart(start);
        if self.trace {
            println!("{} node {node} restarts\n{}", self.ticks, self.describe());
        }
        self.after(node, Vec::new());
    }

    pub fn replica(&self, node: u8) -> &biplane_vsr::Replica {
        self.nodes[usize::from(node)]
            .replica
            .as_ref()
            .expect("the node is up")
    }

    pub fn status(&self, node: u8) -> biplane_vsr::StatusView {
        self.replica(node).status()
    }

    pub fn up(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.count()).filter(|node| self.nodes[usize::from(*node)].replica.is_some())
    }

    /// The node that leads, if exactly one does in the highest view.
    pub fn primary(&self) -> Option<u8> {
        let leaders = self.up().filter(|node| self.replica(*node).is_primary());
        leaders.max_by_key(|node| self.replica(*node).view())
    }

    /// All running nodes are normal in one view and have applied the same ops.
    pub fn is_converged(&self) -> bool {
        let mut views = self.up().map(|node| self.status(node));
        let Some(first) = views.next() else {
            return true;
        };
        first.status == Status::Normal
            && first.commit_min == first.op_head
            && views.all(|view| {
                view.status == Status::Normal
                    && view.view == first.view
                    && view.commit_min == first.commit_min
                    && view.op_head == first.op_head
            })
    }

    /// Submits `count` requests to the primary one after the other and sees them committed.
    pub fn commit(&mut self, count: u32) {
        for _ in 0..count {
            let found = self.run_until(3000, |cluster| cluster.primary().is_some());
            assert!(found, "somebody leads");
            let primary = self.primary().expect("somebody leads");
            let op = self.submit(primary).expect("the primary takes a request");
            self.settle();
            let done = self.run_until(3000, |cluster| {
                cluster.committed.contains_key(&op)
                    && cluster
                        .primary()
                        .is_some_and(|node| cluster.status(node).commit_min >= op)
            });
            assert!(done, "op {op} commits:\n{}", self.describe());
        }
    }

    /// Numbers and logs of all running nodes, for a failed assertion.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for node in self.up() {
            let view = self.status(node);
            text += &format!(
                "node {node}: {:?} view {} log_view {} durable {}/{} commit {}..{} head {}\n   ",
                view.status,
                view.view,
                view.log_view,
                view.view_durable,
                view.log_view_durable,
                view.commit_min,
                view.commit_max,
                view.op_head
            );
            let log = self.replica(node).log();
            for op in (1..=view.op_head.0.max(log.last().unwrap_or_default().0)).map(Op) {
                let Some(header) = log.header(op) else {
                    text += &format!(" {op}:{}", if log.is_damaged(op) { "damaged" } else { "-" });
                    continue;
                };
                let identity = header.frame.checksum().0 & 0xffff;
                let durable = if log.is_durable(op) { "" } else { "~" };
                text += &format!(" {op}:{identity:04x}{durable}/v{}", header.frame.view());
            }
            let plane = &self.nodes[usize::from(node)].plane;
            let ignored = self.replica(node).ignored().last();
            text += &format!(
                "\n    ignored {ignored:?} floor end {} {:?}",
                plane.floor_end, plane.positions
            );
            text += &format!("\n    need {:?}\n", self.replica(node).repair_need());
        }
        text
    }

    pub fn assert_converges(&mut self) {
        let done = self.run_until(5000, Self::is_converged);
        assert!(done, "the cluster converges:\n{}", self.describe());
    }
}
