//! Scripted plays: the same cluster, with misfortunes that a person wrote down.
//!
//! A play runs the world without drawn faults, under the load of its clients, and does things
//! to nodes and links in between. It ends like any run: all is healed, the cluster must finish
//! and converge, and every oracle watches from the beginning.

use biplane_vsr::Replica;
use biplane_wire::{GroupId, View};

use crate::disk::CrashMode;
use crate::options::{FaultOptions, MachineKind, Options, Profile};
use crate::partitions::Cuts;
use crate::time::{MILLISECOND, Nanos};
use crate::world::{Outcome, World};

/// A play under way.
pub struct Play {
    world: World,
    now: Nanos,
    cuts: Cuts,
}

impl Play {
    /// A calm cluster of `replicas` under load; what runs on a node is `machine`.
    #[must_use]
    pub fn new(seed: u64, replicas: u8, machine: MachineKind) -> Self {
        Self::with(seed, replicas, machine, |_| ())
    }

    /// The same, with options changed further.
    #[must_use]
    pub fn with(
        seed: u64,
        replicas: u8,
        machine: MachineKind,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let mut options = Options::drawn(seed, Profile::Calm);
        options.replicas = replicas;
        options.machine = machine;
        options.clients = 3;
        options.partitions = 2;
        options.requests = u64::MAX;
        options.safety_max = Nanos::MAX;
        options.think_mean = 20 * MILLISECOND;
        options.timers = biplane_vsr::Timers::tiny();
        options.faults = FaultOptions::default();
        change(&mut options);
        crate::report::quiet_panics();
        let mut world = World::new(options, false);
        world.begin();
        Self {
            world,
            now: 0,
            cuts: Cuts::none(replicas),
        }
    }

    /// Lets the cluster run for so many milliseconds.
    pub fn run(&mut self, milliseconds: u64) {
        self.now += milliseconds * MILLISECOND;
        self.world.run_until(self.now);
    }

    /// Lets the cluster run until `done` says so, looked at every millisecond, for so many
    /// milliseconds at most; whether it said so.
    pub fn run_while_not(&mut self, milliseconds: u64, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..milliseconds {
            if done(self) {
                return true;
            }
            self.run(1);
        }
        done(self)
    }

    /// Whether a node runs.
    #[must_use]
    pub fn is_running(&self, node: u8) -> bool {
        self.world.is_running(node)
    }

    /// Whether a node has applied what any other running node has, in every group they have.
    #[must_use]
    pub fn is_caught_up(&self, node: u8) -> bool {
        self.world.is_caught_up(node)
    }

    /// What happened so far, by name.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        self.world.counted(name)
    }

    /// The core of a group on a node that runs.
    #[must_use]
    pub fn replica(&self, node: u8, group: GroupId) -> Option<&Replica> {
        self.world.replica(node, group)
    }

    /// The node that leads a group, in the highest view there is.
    ///
    /// # Panics
    ///
    /// When none does.
    #[must_use]
    pub fn primary(&self, group: GroupId) -> u8 {
        let leads = |&node: &u8| self.replica(node, group).is_some_and(Replica::is_primary);
        let nodes = 0..self.world.options().replicas;
        let leading = nodes.filter(leads);
        let view = |&node: &u8| self.replica(node, group).map_or(View(0), Replica::view);
        leading.max_by_key(view).expect("a primary")
    }

    /// A node that does not lead a group.
    #[must_use]
    pub fn backup(&self, group: GroupId) -> u8 {
        (self.primary(group) + 1) % self.world.options().replicas
    }

    /// A partition group that acknowledges from memory and has committed something.
    #[must_use]
    pub fn memory_only_group(&self) -> Option<GroupId> {
        self.world.memory_only_group()
    }

    /// The highest view of a group on any node.
    #[must_use]
    pub fn view(&self, group: GroupId) -> View {
        let nodes = 0..self.world.options().replicas;
        let views = nodes.filter_map(|node| self.replica(node, group).map(Replica::view));
        views.max().unwrap_or(View(0))
    }

    /// Ops committed so far, in all groups.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.world.counted("ops committed")
    }

    /// Nothing passes from one node to the other.
    pub fn cut(&mut self, from: u8, to: u8) {
        self.cuts.cut(from, to);
        self.world.cut(self.cuts.clone());
    }

    /// Nothing passes between a node and all others.
    pub fn isolate(&mut self, node: u8) {
        for peer in (0..self.world.options().replicas).filter(|&peer| peer != node) {
            self.cuts.cut(node, peer);
            self.cuts.cut(peer, node);
        }
        self.world.cut(self.cuts.clone());
    }

    /// Everything passes again.
    pub fn heal_network(&mut self) {
        self.cuts = Cuts::none(self.world.options().replicas);
        self.world.cut(self.cuts.clone());
    }

    /// Power fails at a node; what was not synced meets its fate by `mode`.
    pub fn crash(&mut self, node: u8, mode: CrashMode) {
        self.world.crash(node, mode);
    }

    /// Power fails at a node once its disk has executed its request number `step`, counted as
    /// by [`Play::disk_steps`]. With `heard` the node still acts on its completion.
    pub fn crash_at_step(&mut self, node: u8, step: u64, mode: CrashMode, heard: bool) {
        self.world.crash_at_step(node, step, mode, heard);
    }

    /// Requests that the disk of a node has executed since the beginning.
    #[must_use]
    pub fn disk_steps(&self, node: u8) -> u64 {
        self.world.disk_steps(node)
    }

    /// Takes a node down and its disk away, if the others hold everything it has; says whether.
    pub fn wipe(&mut self, node: u8) -> bool {
        let may = self.world.may_wipe(node);
        if may {
            self.world.wipe(node);
        }
        may
    }

    /// Starts a node that is down.
    pub fn start(&mut self, node: u8) {
        self.world.start(node);
    }

    /// The connection of `peer` to `blind` is gone, and `blind` does not know of it for so many
    /// milliseconds; says whether there was one.
    pub fn open_half(&mut self, blind: u8, peer: u8, milliseconds: u64) -> bool {
        let until = self.now + milliseconds * MILLISECOND;
        self.world.open_half((blind, peer), until, false)
    }

    /// From now on each step of a node takes so many microseconds, more or less.
    pub fn slow_down(&mut self, node: u8, microseconds: u64) {
        let cost = microseconds * crate::time::MICROSECOND;
        self.world.slow_down(node, cost, "play/slow");
    }

    /// A node is as quick as ever.
    pub fn quicken(&mut self, node: u8) {
        self.world.quicken(node);
    }

    /// The disk of a node has no room, or has it again.
    pub fn fill_disk(&mut self, node: u8, full: bool) {
        self.world.fill_disk(node, full);
    }

    /// A node stands still.
    pub fn pause(&mut self, node: u8) {
        self.world.pause(node);
    }

    /// It goes on.
    pub fn resume(&mut self, node: u8) {
        self.world.resume(node);
    }

    /// Heals everything and runs to the verdict.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        self.world.end_safety();
        self.world.finish()
    }
}
