//! What memory-only groups promise, and when a crash takes more than that.
//!
//! Such a group promises the memory of a quorum: everything a node holds of it must have a
//! holder among the others in every set of nodes large enough for a view change, also what the
//! node may just have acknowledged. A crash that breaks this is drawn in correlated runs only,
//! and then the group is *exposed*: from there on a loss in it is permitted.

use biplane_vsr::{Durability, Replica};
use biplane_wire::{Checksum, GroupId, Op, Operation};

use super::World;
use crate::machine::Machine;
use crate::oracle::{GroupKey, view_change_quorum};

impl World {
    /// Whether a node may lose its memory now.
    pub(crate) fn may_forget(&self, node: u8) -> bool {
        self.options.correlated || self.exposed_by(node).is_empty()
    }

    /// A node is about to lose its memory: groups whose promise does not cover that are exposed.
    pub(crate) fn expose(&mut self, node: u8) {
        for group in self.exposed_by(node) {
            let machine = self.nodes[usize::from(node)].machine.as_ref();
            let Some(facts) = machine.and_then(|machine| machine.facts(group)) else {
                continue;
            };
            let key = GroupKey {
                group,
                incarnation: facts.incarnation,
            };
            if self.oracles.exposed.insert(key) {
                self.counters.add("excuse: memory of a group lost", 1);
                let name = crate::oracle::show_group(group);
                self.log(|| format!("n{node} exposes {name}"));
            }
        }
    }

    /// The memory-only groups whose promise does not cover the loss of this node's memory now.
    fn exposed_by(&self, node: u8) -> Vec<GroupId> {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return Vec::new();
        };
        let groups = machine.groups().into_iter();
        let exposed = |&group: &GroupId| self.would_be_exposed(&**machine, node, group);
        groups.filter(exposed).collect()
    }

    fn would_be_exposed(&self, machine: &dyn Machine, node: u8, group: GroupId) -> bool {
        let in_memory = !group.is_metadata()
            && machine.durability(group, Operation::SendMessages) == Durability::Memory;
        let Some(replica) = machine.replica(group).filter(|_| in_memory) else {
            return false;
        };
        let count = self.nodes.len();
        let needed = count - view_change_quorum(count as u8) + 1;
        let head = replica.log().last().unwrap_or_default();
        let head = head.max(replica.commit_min());
        let mine = identity(replica, head);
        let holds = |theirs: &Replica| {
            // Of two replicas one nack is enough to discard an op that the other does not know
            // to be committed (chapter 03 section 4).
            theirs.commit_min() >= head
                || count > 2
                    && mine.is_some()
                    && identity(theirs, head) == mine
                    && holds_all(theirs, head)
        };
        let others = self.nodes.iter().filter(|other| other.id != node);
        let holders = others.filter(|other| {
            let theirs = other.machine.as_ref().and_then(|it| it.replica(group));
            theirs.is_some_and(holds)
        });
        head > Op::ZERO && holders.count() < needed
    }
}

fn identity(replica: &Replica, op: Op) -> Option<Checksum> {
    replica
        .log()
        .header(op)
        .map(|header| header.frame.checksum())
}

fn holds_all(replica: &Replica, head: Op) -> bool {
    let first = replica.commit_min().next();
    (first.0..=head.0).all(|op| replica.log().contains(Op(op)))
}
