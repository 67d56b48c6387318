//! Several planes, one network, one client that finds the primary.

use std::collections::{BTreeMap, VecDeque};

use biplane_journal::{Disk, DiskOp, MemoryDisk};
use biplane_partition_plane::{
    GroupSpec, GroupStatus, Input, Limits, Output, PartitionPlane, PollQuery, PollReply, Strategy,
};
use biplane_wire::{Command, FrameBuffer, GroupId, Message, ReplicaId, decode_replica};

use super::{Answer, Random, WALL, config, group, messages, poll_query, send_request};

/// One process and its disk.
pub struct Node {
    pub plane: Option<PartitionPlane>,
    pub disk: MemoryDisk,
    boots: u64,
}

pub struct World {
    pub nodes: Vec<Node>,
    pub spec: GroupSpec,
    /// Further partitions of every node.
    pub siblings: Vec<GroupSpec>,
    pub limits: Limits,
    pub random: Random,
    pub answers: BTreeMap<u64, Answer>,
    pub fenced: Vec<(usize, String)>,
    /// Percent of frames lost.
    pub loss: u64,
    /// Metadata of every node is up to date, and known to be.
    pub confirms: bool,
    /// Nodes whose disk does not answer.
    pub stalled: Vec<usize>,
    /// Links that carry nothing.
    pub cut: Vec<(usize, usize)>,
    /// Frames that never arrive.
    pub lost: Vec<Command>,
    /// Bytes of segments that were read, by node.
    pub read: BTreeMap<usize, u64>,
    net: VecDeque<(usize, usize, Message)>,
    ticks: u64,
    token: u64,
    request: u64,
}

impl World {
    pub fn new(count: usize, limits: Limits, spec: GroupSpec, seed: u64) -> Self {
        let nodes = (0..count).map(|_| Node {
            plane: None,
            disk: MemoryDisk::new(),
            boots: 0,
        });
        let mut world = Self {
            nodes: nodes.collect(),
            spec,
            siblings: Vec::new(),
            limits,
            random: Random::new(seed),
            answers: BTreeMap::new(),
            fenced: Vec::new(),
            loss: 0,
            confirms: true,
            stalled: Vec::new(),
            cut: Vec::new(),
            lost: Vec::new(),
            read: BTreeMap::new(),
            net: VecDeque::new(),
            ticks: 0,
            token: 0,
            request: 0,
        };
        for node in 0..count {
            world.boot(node);
        }
        world.spec.is_new = false;
        world.settle();
        world
    }

    pub fn boot(&mut self, at: usize) {
        let count = u8::try_from(self.nodes.len()).unwrap();
        let node = &mut self.nodes[at];
        node.boots += 1;
        let seed = 1000 * at as u64 + node.boots;
        let replica = u8::try_from(at).unwrap();
        node.plane = Some(PartitionPlane::new(config(
            replica,
            count,
            self.limits.clone(),
            seed,
        )));
        let mut out = Vec::new();
        let plane = node.plane.as_mut().unwrap();
        for spec in std::iter::once(&self.spec).chain(&self.siblings) {
            plane.open_group(spec.clone(), &node.disk, &mut out);
        }
        self.take(at, out);
        for other in 0..self.nodes.len() {
            if other != at {
                let up = self.nodes[other].plane.is_some();
                let replica = ReplicaId(u8::try_from(other).unwrap());
                self.step(
                    at,
                    Input::Peer {
                        replica,
                        connected: up,
                    },
                );
                let replica = ReplicaId(u8::try_from(at).unwrap());
                self.step(
                    other,
                    Input::Peer {
                        replica,
                        connected: true,
                    },
                );
            }
        }
    }

    /// Kills the process. What it wrote stays, unless `lose` drops what was not synced.
    pub fn crash(&mut self, at: usize, lose: bool) {
        let node = &mut self.nodes[at];
        node.plane = None;
        match lose {
            true => node.disk.crash_losing_all(),
            false => node.disk.crash_keeping_all(),
        }
        self.net.retain(|(from, to, _)| *from != at && *to != at);
        let replica = ReplicaId(u8::try_from(at).unwrap());
        for other in 0..self.nodes.len() {
            self.step(
                other,
                Input::Peer {
                    replica,
                    connected: false,
                },
            );
        }
    }

    pub fn step(&mut self, at: usize, input: Input) {
        let Some(plane) = self.nodes[at].plane.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        plane.step(input, &mut out);
        plane.check_invariants();
        self.take(at, out);
    }

    fn take(&mut self, at: usize, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Disk(request) => {
                    if let DiskOp::Read { path, len, .. } = &request.op
                        && path.as_str().ends_with(".log")
                    {
                        *self.read.entry(at).or_default() += u64::from(*len);
                    }
                    self.nodes[at].disk.submit(request);
                }
                Output::Send { to, message } => {
                    self.net.push_back((at, usize::from(to.0), message))
                }
                Output::Reply {
                    token,
                    status,
                    message,
                } => {
                    self.answer(token, Answer::Reply { status, message });
                }
                Output::PollReply { token, reply } => self.answer(token, Answer::Poll(reply)),
                Output::OffsetReply { token, reply } => self.answer(token, Answer::Offset(reply)),
                Output::Fenced { reason, .. } => self.fenced.push((at, reason)),
                Output::Halt { reason, .. } => panic!("node {at} halted: {reason}"),
                Output::Role(_) => {}
            }
        }
    }

    fn answer(&mut self, token: u64, answer: Answer) {
        let before = self.answers.insert(token, answer);
        assert!(before.is_none(), "token {token} was answered twice");
    }

    fn deliver(&mut self) -> bool {
        let Some((from, to, message)) = self.net.pop_front() else {
            return false;
        };
        let lost = self.random.chance(self.loss)
            || self.cut.contains(&(from, to))
            || self.lost.contains(&message.command());
        if !lost && self.nodes[from].plane.is_some() {
            let frame = decode_replica(message).expect("our own frames decode");
            let from = ReplicaId(u8::try_from(from).unwrap());
            self.step(to, Input::Frame { from, frame });
        }
        true
    }

    /// Delivers and executes everything that is under way.
    /// Delivers frames and answers of the disk until none is left.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(
                round < 100_000,
                "something goes on without time passing: {}",
                self.picture()
            );
            let mut moved = self.deliver();
            for at in 0..self.nodes.len() {
                if self.stalled.contains(&at) {
                    continue;
                }
                if let Some(done) = self.nodes[at].disk.poll() {
                    moved = true;
                    self.step(at, Input::Disk(done));
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub fn tick(&mut self, count: u64) {
        for _ in 0..count {
            self.ticks += 1;
            let wall_micros = WALL + self.ticks * 10_000;
            let confirms = self.confirms && self.ticks.is_multiple_of(10);
            for at in 0..self.nodes.len() {
                self.step(at, Input::Tick { wall_micros });
                if confirms {
                    self.step(at, Input::TopologyConfirmed);
                }
            }
            self.settle();
        }
    }

    /// Creates further partitions, of which nobody has anything yet.
    pub fn add_siblings(&mut self, specs: Vec<GroupSpec>) {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let (Some(plane), mut out) = (node.plane.as_mut(), Vec::new()) else {
                continue;
            };
            for spec in &specs {
                plane.open_group(spec.clone(), &node.disk, &mut out);
            }
            self.take(at, out);
        }
        let known = specs.into_iter().map(|spec| GroupSpec {
            is_new: false,
            ..spec
        });
        self.siblings.extend(known);
        self.settle();
    }

    pub fn status(&self, at: usize) -> Option<GroupStatus> {
        self.nodes[at].plane.as_ref()?.status(group())
    }

    pub fn primary(&self) -> Option<usize> {
        (0..self.nodes.len())
            .filter(|at| self.status(*at).is_some_and(|status| status.is_primary))
            .max_by_key(|at| self.status(*at).map(|status| status.view))
    }

    /// Whether a node leads a partition.
    pub fn leads(&self, at: usize, group: GroupId) -> bool {
        let plane = self.nodes[at].plane.as_ref();
        let status = plane.and_then(|plane| plane.status(group));
        status.is_some_and(|status| status.is_primary)
    }

    pub fn submit(&mut self, at: usize, request: FrameBuffer) -> u64 {
        self.submit_to(at, group(), request)
    }

    pub fn submit_to(&mut self, at: usize, group: GroupId, request: FrameBuffer) -> u64 {
        self.token += 1;
        let token = self.token;
        let input = Input::Submit {
            token,
            group,
            request,
        };
        self.step(at, input);
        token
    }

    /// Runs until `done` or for at most `ticks`.
    pub fn run_until(&mut self, ticks: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        for _ in 0..ticks {
            if done(self) {
                return true;
            }
            self.tick(1);
        }
        done(self)
    }

    /// Sends one batch, retrying at whoever leads, until it is confirmed.
    pub fn send(&mut self, payloads: &[Vec<u8>]) -> u64 {
        for _ in 0..100 {
            let found = self.run_until(400, |world| world.primary().is_some());
            assert!(found, "a primary is elected: {:?}", self.picture());
            let at = self.primary().unwrap();
            self.request += 1;
            let token = self.submit(at, send_request(0x66, self.request, payloads));
            self.run_until(100, |world| world.answers.contains_key(&token));
            match self.answers.remove(&token) {
                Some(answer) if answer.status() == 0 => return answer.base_offset().unwrap(),
                _ => self.tick(5),
            }
        }
        panic!("the batch is confirmed: {:?}", self.picture());
    }

    pub fn poll(&mut self, at: usize, query: PollQuery) -> PollReply {
        self.token += 1;
        let token = self.token;
        self.step(
            at,
            Input::Poll {
                token,
                group: group(),
                query,
            },
        );
        self.settle();
        match self.answers.remove(&token) {
            Some(Answer::Poll(reply)) => reply,
            other => panic!("poll at {at}: {other:?}"),
        }
    }

    /// Everything a node shows, in offset order.
    pub fn all_messages(&mut self, at: usize) -> Vec<(u64, Vec<u8>)> {
        let mut all = messages(&self.poll(at, poll_query(Strategy::First, u32::MAX)));
        while let Some((last, _)) = all.last() {
            let next = poll_query(Strategy::Offset(last + 1), u32::MAX);
            let more = messages(&self.poll(at, next));
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        all
    }

    /// Runs until every live node applied everything and shows the same offsets.
    pub fn converge(&mut self, ticks: u64) {
        let equal = |world: &Self| {
            let live = (0..world.nodes.len()).filter(|at| world.nodes[*at].plane.is_some());
            let states: Option<Vec<GroupStatus>> = live.map(|at| world.status(at)).collect();
            let Some(states) = states else { return false };
            let first = states[0];
            world.primary().is_some()
                && states.iter().all(|state| {
                    state.commit_min == first.commit_min
                        && state.commit_max == state.commit_min
                        && state.head == state.commit_min
                        && state.committed_next == first.committed_next
                        && state.flushed_next == state.committed_next
                        && !state.transferring
                })
        };
        assert!(
            self.run_until(ticks, equal),
            "nodes converge: {}",
            self.picture()
        );
    }

    pub fn picture(&self) -> String {
        let mut out = format!("{:?}", self.fenced);
        for at in 0..self.nodes.len() {
            out.push_str(&format!("\n  {at}: {:?}", self.status(at)));
            let plane = self.nodes[at].plane.as_ref();
            if let Some(replica) = plane.and_then(|plane| plane.replica(group())) {
                let log = replica.log();
                let held = (log.first(), log.last(), replica.next_committed());
                let need = replica.repair_need();
                out.push_str(&format!("\n     {:?} {held:?} {need:?}", replica.status()));
                out.push_str(&format!("\n     {:?}", replica.ignored()));
            }
        }
        out
    }
}
