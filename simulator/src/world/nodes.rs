//! Nodes: their lives, their inputs, and what becomes of their outputs.

use std::collections::VecDeque;
use std::fmt::Write as _;

use biplane_journal::Disk;
use biplane_wire::{GroupId, Message, Op, decode_replica};

use super::digests::{command_name, digest_cause, digest_effect};
use super::{Event, Verdict, World};
use crate::bare::{BareConfig, BareNode, bare_groups};
use crate::disk::{CrashMode, VirtualDisk};
use crate::machine::{Bound, Cause, Effect, Machine, commit_min};
use crate::mutations::Mutation;
use crate::network::{Packet, Payload};
use crate::options::{MachineKind, Options};
use crate::oracle::{Look, show_group};
use crate::planes::{PlanesConfig, PlanesNode};
use crate::prng::{Prng, Streams};
use crate::report::catch_core;
use crate::time::{Clock, Nanos};

/// Steps between two looks at the bounds of a node.
const BOUNDS_EVERY: u64 = 16;

/// One replica process and its machine room.
pub(crate) struct Node {
    pub(crate) id: u8,
    /// Rises with each start.
    pub(crate) boot: u32,
    pub(crate) machine: Option<Box<dyn Machine>>,
    pub(crate) disk: VirtualDisk,
    clock: Clock,
    phase: Nanos,
    /// Standing still.
    pub(crate) paused: bool,
    /// What arrived while it stood still or had no time.
    pub(super) inbox: VecDeque<Cause>,
    /// How slow it is, while it is.
    pub(super) slow: Option<super::slow::Slow>,
    /// When the world looks at the disk next.
    disk_wake: Option<Nanos>,
    /// A start is scheduled.
    pub(crate) starting: bool,
    /// Stopping in good order: to be taken down once flushed.
    pub(crate) stopping: bool,
}

impl Node {
    pub(crate) fn new(id: u8, options: &Options, streams: &Streams) -> Self {
        let number = u64::from(id);
        let mut phase = streams.numbered("phase", number);
        let mut disk = VirtualDisk::new(options.disk, streams.numbered("disk", number));
        if options.mutation == Some(Mutation::DirectoryIsNotSynced) {
            disk.forget_names();
        }
        if options
            .faults
            .lost_write
            .or(options.faults.misdirect)
            .is_some()
        {
            disk.remember();
        }
        Self {
            id,
            boot: 0,
            machine: None,
            disk,
            clock: Clock::drawn(streams.numbered("clock", number), options.clock_severity),
            phase: phase.below(crate::time::TICK),
            paused: false,
            inbox: VecDeque::new(),
            slow: None,
            disk_wake: None,
            starting: true,
            stopping: false,
        }
    }

    /// The node as oracles see it.
    pub(crate) fn look(&self) -> Look<'_> {
        Look {
            node: self.id,
            boot: self.boot,
            machine: self.machine.as_deref(),
            disk: &self.disk,
        }
    }

    /// Its state, for people.
    pub(crate) fn describe(&mut self) -> String {
        let mut text = format!("n{} boot {}", self.id, self.boot);
        let Some(machine) = &self.machine else {
            text.push_str(" down");
            return text;
        };
        if self.paused {
            text.push_str(" paused");
        }
        for group in machine.groups() {
            if let Some(replica) = machine.replica(group) {
                let status = replica.status();
                let log = replica.log();
                let _ = write!(
                    text,
                    "\n  {} {status:?} log {:?}..{:?}",
                    show_group(group),
                    log.first(),
                    log.last()
                );
                let _ = write!(text, "\n    {}", machine.describe(group));
            }
        }
        for (path, len, damaged) in self.disk.inventory() {
            let _ = write!(text, "\n  {path} {len} bytes, {damaged} damaged sectors");
        }
        text
    }
}

impl World {
    /// Starts a node that is down: recovery is the shipped code.
    pub(crate) fn start(&mut self, node: u8) {
        let now = self.queue.now();
        let index = usize::from(node);
        if self.nodes[index].machine.is_some() {
            return;
        }
        self.nodes[index].starting = false;
        self.nodes[index].boot += 1;
        self.nodes[index].stopping = false;
        let boot = self.nodes[index].boot;
        let seed = self.streams.number(&format!("replica/{node}/{boot}"));
        let mut effects = Vec::new();
        self.nodes[index].disk.run_until(now);
        let wall_micros = self.nodes[index].clock.wall_micros(now);
        let opened = {
            let options = &self.options;
            let disk = &self.nodes[index].disk;
            catch_core(|| open(options, node, seed, wall_micros, disk, &mut effects))
        };
        match opened {
            Err(panic) => self.panicked(node, &panic),
            Ok(Err(reason)) => self.refused(node, &reason),
            Ok(Ok(machine)) => {
                self.nodes[index].machine = Some(machine);
                self.counters.add("node starts", 1);
                self.log(|| format!("n{node} starts, boot {boot}"));
                self.restarted(node);
                let mut events = Vec::new();
                self.network.start(now, node, &mut events);
                self.schedule_net(events);
                let first = now + self.nodes[index].phase;
                self.queue.schedule(first, Event::Tick { node, boot });
                self.carry_out(node, None, effects);
            }
        }
    }

    /// A node would not start. Damage to both of a pair may be the reason: tried again.
    fn refused(&mut self, node: u8, reason: &str) {
        self.log(|| format!("n{node} refuses to start: {reason}"));
        let text = format!("n{node} refuses to start: {reason}");
        self.failure.get_or_insert(Verdict::Panic(text));
    }

    fn panicked(&mut self, node: u8, panic: &str) {
        let text = format!("n{node} panics at {panic}");
        self.log(|| text.clone());
        self.failure.get_or_insert(Verdict::Panic(text));
    }

    /// Takes a node down. With a mode, power fails; without, the process ends and the disk
    /// keeps what was written.
    pub(crate) fn crash(&mut self, node: u8, mode: CrashMode) {
        let now = self.queue.now();
        let index = usize::from(node);
        if self.nodes[index].machine.is_none() {
            return;
        }
        self.log(|| format!("n{node} goes down, {mode:?}"));
        self.expose(node);
        let look = self.nodes[index].look();
        let judged = self.oracles.promises.crash(look);
        let mut promises = self.oracles.promises.of_node(look);
        self.judge(judged);
        let this = &mut self.nodes[index];
        this.machine = None;
        this.paused = false;
        this.inbox.clear();
        if let Some(slow) = &mut this.slow {
            slow.forget();
        }
        this.disk.run_until(now);
        while this.disk.poll().is_some() {}
        this.disk.crash(mode);
        // What rots is not the doing of the crash.
        let rotten = this.disk.inventory().into_iter().filter(|file| file.2 > 0);
        let rotten: Vec<String> = rotten.map(|(path, ..)| path).collect();
        for promise in &mut promises {
            let log = promise.log.as_ref().map(|(path, _)| path.as_str());
            if log.is_some_and(|log| rotten.iter().any(|path| path == log)) {
                promise.log = None;
            }
        }
        let disk = &self.nodes[index].disk;
        let judged = self.oracles.files.crashed(node, disk, &promises);
        self.judge(judged);
        if self.options.mutation == Some(Mutation::RestartForgetsTheDisk) {
            self.nodes[index].disk.wipe();
        }
        self.watch_crashed(node);
        self.mark_down();
        if self.nodes.len() == 1 {
            self.oracles.messages.lone_restart();
        }
        let mut events = Vec::new();
        self.network.stop(now, node, &mut events);
        self.schedule_net(events);
        self.connections_lost(node);
    }

    pub(crate) fn on_tick(&mut self, node: u8, boot: u32) {
        let now = self.queue.now();
        let this = &mut self.nodes[usize::from(node)];
        if this.boot != boot || this.machine.is_none() {
            return;
        }
        let next = now + this.clock.tick_interval();
        let paused = this.paused;
        let wall_micros = this.clock.wall_micros(now);
        self.queue.schedule(next, Event::Tick { node, boot });
        if !paused {
            self.tick(node, wall_micros);
        }
    }

    pub(crate) fn on_disk(&mut self, node: u8) {
        let now = self.queue.now();
        let index = usize::from(node);
        if self.nodes[index].disk_wake == Some(now) {
            self.nodes[index].disk_wake = None;
        }
        // A failed write may stop the process, and that is a crash like any other.
        let is_faulty = self.options.disk.has_errors() || self.nodes[index].disk.is_full();
        let spared = is_faulty && !self.may_forget(node);
        self.nodes[index].disk.spare(spared);
        self.nodes[index].disk.run_until(now);
        if self.is_sprung(node, false) {
            return self.spring(node);
        }
        while let Some(completion) = self.nodes[index].disk.poll() {
            self.give(node, Cause::Disk(completion));
        }
        if self.is_sprung(node, true) {
            return self.spring(node);
        }
        self.wake_disk(node);
    }

    fn wake_disk(&mut self, node: u8) {
        let this = &mut self.nodes[usize::from(node)];
        if let Some(due) = this.disk.next_due()
            && this.disk_wake.is_none_or(|wake| wake > due)
        {
            this.disk_wake = Some(due);
            self.queue.schedule(due, Event::Disk { node });
        }
    }

    pub(crate) fn deliver(&mut self, packet: Packet) {
        let Packet {
            from, to, bytes, ..
        } = packet;
        let message = match bytes {
            Payload::Frame(message) => Ok(message),
            Payload::Damaged(bytes) => Message::from_bytes(&bytes),
        };
        let Ok(message) = message else {
            self.counters.add("frames refused by the wire", 1);
            return;
        };
        match decode_replica(message) {
            Ok(frame) => self.give(
                to,
                Cause::Frame {
                    from,
                    frame: Box::new(frame),
                },
            ),
            Err(_) => self.counters.add("frames refused by the wire", 1),
        }
    }

    pub(crate) fn notice(&mut self, node: u8, peer: u8, connected: bool) {
        self.give(node, Cause::Peer { peer, connected });
    }

    /// Gives a node an input now, or when it goes on.
    pub(crate) fn give(&mut self, node: u8, cause: Cause) {
        let this = &mut self.nodes[usize::from(node)];
        if this.machine.is_none() {
            return;
        }
        if this.paused {
            this.inbox.push_back(cause);
        } else if this.slow.is_some() {
            self.step_slowly(node, cause);
        } else {
            self.step(node, cause);
        }
    }

    /// A node stands still: no ticks, no completions, nothing that arrives.
    pub(crate) fn pause(&mut self, node: u8) {
        self.nodes[usize::from(node)].paused = true;
    }

    /// A node that stood still goes on with everything that came meanwhile.
    pub(crate) fn resume(&mut self, node: u8) {
        let this = &mut self.nodes[usize::from(node)];
        if !this.paused {
            return;
        }
        this.paused = false;
        self.log(|| format!("n{node} goes on"));
        let inbox = std::mem::take(&mut self.nodes[usize::from(node)].inbox);
        for cause in inbox {
            self.give(node, cause);
        }
    }

    pub(super) fn step(&mut self, node: u8, cause: Cause) {
        if self.failure.is_some() {
            return;
        }
        self.steps += 1;
        let index = usize::from(node);
        self.trace(digest_cause(node, &cause));
        self.log_cause(node, &cause);
        let of = match &cause {
            Cause::Frame { frame, .. } => frame.route(),
            _ => None,
        };
        let before = of.and_then(|of| self.digests_beside(node, of));
        let strayed = self.strayed(node, &cause);
        let mut effects = Vec::new();
        let this = &mut self.nodes[index];
        let Some(machine) = &mut this.machine else {
            return;
        };
        let disk = &this.disk;
        let stepped = catch_core(|| {
            machine.step(cause, disk, &mut effects);
            if let Some(strayed) = strayed {
                machine.step(strayed, disk, &mut effects);
            }
            machine.check_invariants();
        });
        if let Err(panic) = stepped {
            self.panicked(node, &panic);
            return;
        }
        if let (Some(of), Some(before)) = (of, before) {
            self.compare_digests(node, of, &before);
        }
        if self.steps.is_multiple_of(BOUNDS_EVERY) {
            self.check_bounds(node);
        }
        self.carry_out(node, of, effects);
    }

    /// What a deliberate bug makes of a frame besides.
    fn strayed(&self, node: u8, cause: &Cause) -> Option<Cause> {
        let mutation = self.options.mutation?;
        let Cause::Frame { from, frame } = cause else {
            return None;
        };
        let groups = self.nodes[usize::from(node)].machine.as_ref()?.groups();
        let message = mutation.strayed(frame.message(), &groups)?;
        let frame = Box::new(decode_replica(message).ok()?);
        Some(Cause::Frame { from: *from, frame })
    }

    /// The applied op of metadata and digests of the groups beside one, now and then.
    fn digests_beside(&mut self, node: u8, of: GroupId) -> Option<(Op, Vec<(GroupId, u64)>)> {
        if !self.oracles.isolation.wants_digests() {
            return None;
        }
        let machine = self.nodes[usize::from(node)].machine.as_ref()?;
        let beside = machine.groups().into_iter().filter(|group| *group != of);
        let digests = beside.map(|group| (group, machine.digest(group)));
        let applied = commit_min(machine.as_ref(), GroupId::METADATA);
        Some((applied, digests.collect()))
    }

    fn compare_digests(&mut self, node: u8, of: GroupId, before: &(Op, Vec<(GroupId, u64)>)) {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return;
        };
        if commit_min(machine.as_ref(), GroupId::METADATA) != before.0 {
            return;
        }
        let differs = |(group, digest): &&(GroupId, u64)| machine.digest(*group) != *digest;
        let changed: Vec<GroupId> = before.1.iter().filter(differs).map(|it| it.0).collect();
        let groups = before.1.len() + 1;
        let judged = self
            .oracles
            .isolation
            .frame(node, of, groups, changed.into_iter());
        self.judge(judged);
    }

    /// Looks at the queues and tables of a node.
    pub(crate) fn check_bounds(&mut self, node: u8) {
        let bounds = self.bounds_of(node);
        let judged = self.oracles.bounds.check(node, &bounds);
        self.judge(judged);
    }

    pub(crate) fn bounds_of(&self, node: u8) -> Vec<Bound> {
        let mut bounds = Vec::new();
        if let Some(machine) = &self.nodes[usize::from(node)].machine {
            machine.bounds(&mut bounds);
        }
        bounds
    }

    fn carry_out(&mut self, node: u8, of: Option<GroupId>, effects: Vec<Effect>) {
        self.watch_step(node, of, &effects);
        let now = self.queue.now();
        let index = usize::from(node);
        let mut halted = None;
        // The disk looks at the clock of the world before it takes requests.
        self.nodes[index].disk.run_until(now);
        for effect in effects {
            self.trace(digest_effect(node, &effect));
            if let Effect::Disk(request) = &effect {
                self.log(|| format!("n{node} disk {}", crate::report::describe_disk(request)));
            }
            match effect {
                Effect::Send { to, message } => {
                    self.counters.add(command_name(message.command()), 1);
                    let message = self.worn(message);
                    let replicas = self.options.replicas;
                    let mutation = self.options.mutation;
                    let before = mutation.and_then(|it| it.forged_before(&message));
                    let after = mutation.and_then(|it| it.forged(to, replicas, &message));
                    for message in before.into_iter().chain([message]).chain(after) {
                        self.frames.sent(message.command(), node, to);
                        let events = self.network.send(now, node, to, message);
                        self.schedule_net(events);
                    }
                }
                Effect::Disk(request) => {
                    let request = match self.options.mutation {
                        Some(mutation) => mutation.disk(request),
                        None => request,
                    };
                    self.nodes[index].disk.submit(request);
                }
                Effect::Answer { token, answer } => self.answer(node, token, answer),
                Effect::Forget { token } => self.forget(token),
                Effect::Fenced { group, reason } => {
                    self.counters.add("partitions fenced", 1);
                    let look = self.nodes[usize::from(node)].look();
                    self.oracles.promises.set_aside(look, group);
                    self.log(|| format!("n{node} fences {}: {reason}", show_group(group)));
                }
                Effect::Halt(reason) => halted = Some(reason),
            }
        }
        self.wake_disk(node);
        if let Some(reason) = halted {
            self.halted(node, &reason);
        }
    }

    /// The shipped code asked for its process to end.
    fn halted(&mut self, node: u8, reason: &str) {
        self.log(|| format!("n{node} halts: {reason}"));
        self.counters.add("halts", 1);
        let mode = self.draw_crash_mode();
        self.crash(node, mode);
        self.start_later(node);
    }

    pub(super) fn stop_if_flushed(&mut self, node: u8) {
        let this = &self.nodes[usize::from(node)];
        let flushed = this
            .machine
            .as_ref()
            .is_some_and(|machine| machine.is_flushed());
        if this.stopping && flushed && self.may_forget(node) {
            self.crash(node, CrashMode::KeepAll);
            self.start_later(node);
        }
    }

    fn log_cause(&mut self, node: u8, cause: &Cause) {
        // A tick is told by what comes of it.
        if matches!(cause, Cause::Tick { .. }) {
            return;
        }
        self.log(|| match cause {
            Cause::Tick { .. } => String::new(),
            Cause::Frame { from, frame } => {
                format!(
                    "n{node} < n{from} {}",
                    crate::report::describe_frame(frame.message())
                )
            }
            Cause::Disk(done) => {
                let failed = if done.result.is_ok() {
                    "done"
                } else {
                    "failed"
                };
                format!("n{node} disk {:?} {} {failed}", done.queue, done.token)
            }
            Cause::Peer { peer, connected } => format!("n{node} peer n{peer} {connected}"),
            Cause::Call { token, call } => {
                format!(
                    "n{node} call {token} {}",
                    crate::report::describe_call(call)
                )
            }
            Cause::Flush => format!("n{node} flush"),
        });
    }
}

fn open(
    options: &Options,
    node: u8,
    seed: u64,
    wall_micros: u64,
    disk: &VirtualDisk,
    out: &mut Vec<Effect>,
) -> Result<Box<dyn Machine>, String> {
    match options.machine {
        MachineKind::Planes => {
            let config = PlanesConfig {
                replica: node,
                replica_count: options.replicas,
                timers: options.knobs.time(options.timers),
                tiny_limits: options.tiny_limits,
                knobs: options.knobs,
                seed,
                wall_micros,
            };
            Ok(Box::new(PlanesNode::open(&config, disk, out)?))
        }
        MachineKind::Bare => {
            let config = BareConfig {
                replica: node,
                replica_count: options.replicas,
                groups: bare_groups(options.partitions),
                timers: options.knobs.time(options.timers),
                limits: if options.tiny_limits {
                    biplane_vsr::Limits::tiny()
                } else {
                    biplane_vsr::Limits::default()
                },
                seed,
            };
            Ok(Box::new(BareNode::open(&config, disk, out)?))
        }
    }
}

/// Draws how a crash treats unsynced bytes.
pub(crate) fn crash_mode(prng: &mut Prng) -> CrashMode {
    let modes = [
        CrashMode::KeepAll,
        CrashMode::LoseAll,
        CrashMode::Prefix,
        CrashMode::Subset,
        CrashMode::Torn,
    ];
    modes[prng.index(modes.len())]
}
