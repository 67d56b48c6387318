//! What the world looks at after each step: commits, promises, and rare events worth counting.

use std::collections::BTreeMap;

use biplane_vsr::{Status, StatusView, TransferStage};
use biplane_wire::{GroupId, Message, Op, PrepareHeader};

use super::World;
use crate::machine::{Effect, GroupFacts};
use crate::options::MachineKind;
use crate::oracle::committed::Commit;
use crate::oracle::{GroupKey, Violation};

/// What was seen of a group on a node at its last step.
#[derive(Clone, Debug)]
struct Seen {
    incarnation: u64,
    purges: u64,
    status: StatusView,
}

/// What was seen of all groups of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: BTreeMap<(u8, GroupId), Seen>,
}

/// Commits of one group found in one step.
struct Found {
    key: GroupKey,
    facts: GroupFacts,
    messages: Vec<Message>,
}

impl World {
    /// Looks at a node after a step, before its effects reach anyone.
    pub(crate) fn watch_step(&mut self, node: u8, effects: &[Effect]) {
        self.watch_groups(node);
        let look = self.nodes[usize::from(node)].look();
        let mut judged = Ok(());
        for effect in effects {
            if let (Effect::Send { message, .. }, Ok(())) = (effect, &judged) {
                judged = self.oracles.promises.send(look, message);
            }
        }
        self.judge(judged);
    }

    fn watch_groups(&mut self, node: u8) {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return;
        };
        let mut found = Vec::new();
        let mut changed = Vec::new();
        for group in machine.groups() {
            let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group))
            else {
                continue;
            };
            let status = replica.status();
            let known = self.watch.seen.get(&(node, group));
            let known = known.filter(|known| known.incarnation == facts.incarnation);
            if known.is_some_and(|it| it.status == status && it.purges == facts.purges) {
                continue;
            }
            let before = known.map_or(Op::ZERO, |known| known.status.commit_min);
            let mut messages = Vec::new();
            let mut next = replica.log().next_held(before.next(), status.commit_min);
            while let Some(op) = next {
                messages.extend(replica.log().get(op).cloned());
                next = replica.log().next_held(op.next(), status.commit_min);
            }
            let key = self.log_key(node, group, &facts);
            changed.push((group, known.map(|known| known.status), status));
            let seen = Seen {
                incarnation: facts.incarnation,
                purges: facts.purges,
                status,
            };
            self.watch.seen.insert((node, group), seen);
            found.push(Found {
                key,
                facts,
                messages,
            });
        }
        let machine = self.nodes[usize::from(node)].machine.as_ref();
        let gone: Vec<(GroupId, u64)> = self
            .watch
            .seen
            .iter()
            .filter(|((owner, group), _)| {
                *owner == node && machine.is_some_and(|it| it.facts(*group).is_none())
            })
            .map(|((_, group), seen)| (*group, seen.incarnation))
            .collect();
        for (group, incarnation) in gone {
            self.watch.seen.remove(&(node, group));
            self.oracles
                .promises
                .deleted(node, GroupKey { group, incarnation });
        }
        for (group, before, after) in changed {
            self.count_change(node, group, before, &after);
            let look = self.nodes[usize::from(node)].look();
            let judged = self.oracles.promises.step(look, group);
            self.judge(judged);
        }
        for found in found {
            let judged = self.commits(node, &found);
            self.judge(judged);
        }
    }

    /// See [`GroupKey::of_log`].
    pub(crate) fn log_key(&self, node: u8, group: GroupId, facts: &GroupFacts) -> GroupKey {
        let boot = self.nodes[usize::from(node)].boot;
        GroupKey::of_log(group, facts.incarnation, self.nodes.len(), boot)
    }

    fn commits(&mut self, node: u8, found: &Found) -> Result<(), Violation> {
        if self
            .oracles
            .is_exposed(found.key.group, found.facts.incarnation)
        {
            return Ok(());
        }
        if found.facts.purges > 0 {
            let key = GroupKey {
                incarnation: found.facts.incarnation,
                ..found.key
            };
            self.oracles.messages.purged(key, found.facts.purges);
        }
        for message in &found.messages {
            let first = self.oracles.committed.commit(node, found.key, message)?;
            if first == Commit::First {
                self.counters.add("ops committed", 1);
                if self.options.machine == MachineKind::Planes {
                    self.oracles
                        .exactly_once
                        .committed(found.key, message.header())?;
                }
                let key = GroupKey {
                    incarnation: found.facts.incarnation,
                    ..found.key
                };
                let fresh = self.counters.get("node starts") <= u64::from(self.options.replicas);
                self.oracles.messages.committed(key, message, fresh)?;
                let header: &PrepareHeader = message.header();
                let policy = self.nodes[usize::from(node)]
                    .machine
                    .as_ref()
                    .map(|machine| machine.durability(found.key.group, header.operation()));
                if let Some(policy) = policy {
                    self.with_looks(|looks, oracles| {
                        oracles
                            .promises
                            .first_commit(looks, &found.facts, header, policy)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn count_change(
        &mut self,
        node: u8,
        group: GroupId,
        before: Option<StatusView>,
        after: &StatusView,
    ) {
        let Some(before) = before else {
            return;
        };
        let counters = &mut self.counters;
        if after.status == Status::ViewChange && before.view != after.view {
            counters.add("view changes begun", 1);
        }
        if after.is_primary && (!before.is_primary || before.view != after.view) {
            counters.add("views started", 1);
            if after.op_head > after.commit_max {
                counters.add("views started with uncommitted ops", 1);
            }
        }
        if before.is_primary && !after.is_primary && before.prepares_in_flight > 0 {
            counters.add("primaries deposed with work in flight", 1);
        }
        if after.op_head < before.op_head {
            counters.add("suffixes truncated", 1);
        }
        if after.commit_min > before.commit_min.next()
            && after.transfer_stage != before.transfer_stage
        {
            counters.add("transfers installed", 1);
        }
        if after.transfer_stage == TransferStage::Fetching
            && before.transfer_stage != TransferStage::Fetching
        {
            counters.add("transfers begun", 1);
        }
        if before.status == Status::Recovering && after.status == Status::Normal {
            counters.add("replicas readmitted", 1);
        }
        self.log(|| {
            let role = match (after.status, after.is_primary) {
                (Status::Normal, true) => "primary",
                (Status::Normal, false) => "backup",
                (Status::ViewChange, _) => "change",
                (Status::Recovering, _) => "probing",
            };
            format!(
                "n{node} {:<9} {role:<7} {:?}v log {:?}v {}/{} h{} pipe{} wait{} {:?}",
                crate::oracle::show_group(group),
                after.view.0,
                after.log_view.0,
                after.commit_min,
                after.commit_max,
                after.op_head,
                after.prepares_in_flight,
                after.requests_queued,
                after.transfer_stage,
            )
        });
    }

    /// A node lost its memory.
    pub(crate) fn watch_crashed(&mut self, node: u8) {
        self.watch.seen.retain(|(owner, _), _| *owner != node);
    }

    /// A node came back: it must still have what it acknowledged.
    pub(crate) fn restarted(&mut self, node: u8) {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return;
        };
        for group in machine.groups() {
            let look = self.nodes[usize::from(node)].look();
            let judged = self
                .oracles
                .promises
                .restart(look, group)
                .and_then(|()| self.oracles.promises.step(look, group));
            self.judge(judged);
        }
    }
}
