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

    /// Starts a node that is down.
    pub fn start(&mut self, node: u8) {
        self.world.start(node);
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
