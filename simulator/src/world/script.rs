//! What scripts look at and do: see [`crate::play`].

use biplane_vsr::{Durability, Status, TransferStage};
use biplane_wire::{GroupId, Op, Operation};

use super::World;
use crate::disk::CrashMode;
use crate::machine::{Machine, commit_min};
use crate::options::Options;
use crate::partitions::Cuts;

/// A crash that waits for an exact request of a node's disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    node: u8,
    mode: CrashMode,
    /// Whether the node still hears that the request was executed, and acts on it.
    heard: bool,
}

impl World {
    /// See [`crate::play::Play::memory_only_group`].
    pub(crate) fn memory_only_group(&self) -> Option<GroupId> {
        let machine = self.nodes.first()?.machine.as_ref()?;
        let is_one = |group: &GroupId| {
            let policy = machine.durability(*group, Operation::SendMessages);
            let replica = machine.replica(*group);
            !group.is_metadata()
                && policy == Durability::Memory
                && replica.is_some_and(|replica| replica.commit_min().0 > 0)
        };
        machine.groups().into_iter().find(is_one)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.counters.get(name)
    }

    /// Replaces the cuts of the network.
    pub(crate) fn cut(&mut self, cuts: Cuts) {
        let events = self.network.set_cuts(self.queue.now(), cuts);
        self.schedule_net(events);
    }

    /// The disk of a node has no room, or has it again.
    pub(crate) fn fill_disk(&mut self, node: u8, full: bool) {
        self.nodes[usize::from(node)].disk.fill(full);
    }

    /// Requests that the disk of a node has executed.
    pub(crate) fn disk_steps(&self, node: u8) -> u64 {
        self.nodes[usize::from(node)].disk.counts().executed
    }

    /// Power fails at `node` once its disk has executed its request number `step`.
    pub(crate) fn crash_at_step(&mut self, node: u8, step: u64, mode: CrashMode, heard: bool) {
        self.nodes[usize::from(node)].disk.power_off_at(step);
        self.trap = Some(Trap { node, mode, heard });
    }

    pub(super) fn is_sprung(&self, node: u8, heard: bool) -> bool {
        let disk = &self.nodes[usize::from(node)].disk;
        let trap = self.trap.as_ref();
        trap.is_some_and(|trap| (trap.node, trap.heard) == (node, heard)) && disk.is_powered_off()
    }

    pub(super) fn spring(&mut self, node: u8) {
        if let Some(trap) = self.trap.take() {
            self.crash(node, trap.mode);
        }
    }

    pub(crate) fn is_running(&self, node: u8) -> bool {
        self.nodes[usize::from(node)].machine.is_some()
    }

    /// Whether a node has applied what any other running node has, in every group they have.
    pub(crate) fn is_caught_up(&self, node: u8) -> bool {
        let Some(own) = self.nodes[usize::from(node)].machine.as_deref() else {
            return false;
        };
        let others = self.nodes.iter().filter(|other| other.id != node);
        let mut others = others.filter_map(|other| other.machine.as_deref());
        others.all(|theirs| {
            let mut groups = theirs.groups().into_iter();
            groups.all(|group| is_level(own, group, commit_min(theirs, group)))
        })
    }
}

fn is_level(machine: &dyn Machine, group: GroupId, applied: Op) -> bool {
    let status = machine.replica(group).map(biplane_vsr::Replica::status);
    status.is_some_and(|status| {
        status.status == Status::Normal
            && status.transfer_stage == TransferStage::Idle
            && status.commit_min >= applied
    })
}
