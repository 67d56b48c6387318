//! What the world looks at after each step: commits, promises, and rare events worth counting.

use std::collections::BTreeMap;

use biplane_journal::DiskOp;
use biplane_vsr::{Replica, Status, StatusView, TransferStage};
use biplane_wire::{
    Command, DoViewChangeHeader, GroupId, Message, Op, PrepareHeader, StartViewHeader, Typed,
};

use super::World;
use crate::machine::{Effect, GroupFacts, Machine, commit_min};
use crate::options::MachineKind;
use crate::oracle::committed::Commit;
use crate::oracle::{GroupKey, Oracles, Violation, replication_quorum};

/// What was seen of a group on a node at its last step.
#[derive(Clone, Debug)]
struct Seen {
    incarnation: u64,
    purges: u64,
    status: StatusView,
    /// What was held above the applied op: it may be applied and evicted in one step.
    ahead: Vec<Message>,
}

/// What was seen of all groups of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: BTreeMap<(u8, GroupId), Seen>,
}

impl Watch {
    /// Groups that a node had and has no more. It has `count` now.
    fn gone(&self, node: u8, count: usize, machine: &dyn Machine) -> Vec<(GroupId, u64)> {
        let all = (node, GroupId(0))..=(node, GroupId(u64::MAX));
        let seen = self.seen.range(all);
        if seen.clone().count() <= count && count > 0 {
            // All of them were looked at in this step.
            return Vec::new();
        }
        let gone = seen.filter(|((_, group), _)| machine.facts(*group).is_none());
        gone.map(|((_, group), seen)| (*group, seen.incarnation))
            .collect()
    }
}

/// Whether messages leave a disk with the file they are in.
fn is_segment_removal(effect: &Effect) -> bool {
    match effect {
        Effect::Disk(request) => {
            matches!(&request.op, DiskOp::Remove { path } if path.as_str().ends_with(".log"))
        }
        _ => false,
    }
}

/// Commits of one group found in one step.
struct Found {
    key: GroupKey,
    facts: GroupFacts,
    messages: Vec<Message>,
}

impl World {
    /// Looks at a node after a step, before its effects reach anyone. `of` is the group of the
    /// frame that caused it.
    pub(crate) fn watch_step(&mut self, node: u8, of: Option<GroupId>, effects: &[Effect]) {
        self.watch_groups(node, of);
        let removals = effects.iter().filter(|effect| is_segment_removal(effect));
        self.counters
            .add("segments removed", removals.count() as u64);
        let mut judged = Ok(());
        for effect in effects {
            if let (Effect::Send { message, .. }, Ok(())) = (effect, &judged) {
                self.mark_log(message);
                let look = self.nodes[usize::from(node)].look();
                judged = self.oracles.promises.send(look, message);
                judged = judged.and_then(|()| self.judge_log(node, message));
            }
        }
        self.judge(judged);
    }

    /// Votes and announcements: nothing is dropped without proof.
    fn judge_log(&mut self, node: u8, message: &Message) -> Result<(), Violation> {
        let group = match message.command() {
            Command::DoViewChange => message.header::<DoViewChangeHeader>().group(),
            Command::StartView => message.header::<StartViewHeader>().group(),
            _ => return Ok(()),
        };
        let machine = self.nodes[usize::from(node)].machine.as_ref();
        let Some(facts) = machine.and_then(|machine| machine.facts(group)) else {
            return Ok(());
        };
        if self.oracles.is_exposed(group, facts.incarnation) {
            return Ok(());
        }
        let key = self.log_key(node, group, &facts);
        let Oracles {
            truncation,
            promises,
            committed,
            ..
        } = &mut self.oracles;
        if message.command() == Command::DoViewChange {
            let Ok(vote) = Typed::decode(message.clone()) else {
                return Ok(());
            };
            let given = |op| {
                let identity = promises.given(node, key, op)?;
                (!promises.is_superseded(key, op, identity)).then_some(identity)
            };
            truncation.vote(node, key, &vote, given)
        } else {
            let Ok(announcement) = Typed::decode(message.clone()) else {
                return Ok(());
            };
            let view = message.header::<StartViewHeader>().frame.view();
            let others = self.nodes.iter().filter(|other| other.id != node);
            let listening = others
                .filter(|other| promises.view_on(other.id, &other.disk, &facts.superblock) <= view);
            let may_be_followed =
                listening.count() + 1 >= replication_quorum(self.options.replicas);
            let canon = committed.canon(key);
            truncation.announcement(node, key, &announcement, canon, may_be_followed)
        }
    }

    /// Metadata that came by transfer is what others have at the same op.
    fn judge_installed(&mut self) -> Result<(), Violation> {
        let group = GroupId::METADATA;
        for installed in self.oracles.faithful.pending() {
            let machine = |node: u8| self.nodes[usize::from(node)].machine.as_deref();
            let Some(own) = machine(installed) else {
                continue;
            };
            let op = commit_min(own, group);
            let others = (0..self.options.replicas).filter(|&node| node != installed);
            let mut running = others.filter_map(|node| Some((node, machine(node)?)));
            let Some((other, theirs)) = running.find(|(_, it)| commit_min(*it, group) == op) else {
                continue;
            };
            let digests = (own.digest(group), theirs.digest(group));
            let key = GroupKey {
                group,
                incarnation: 0,
            };
            let faithful = &mut self.oracles.faithful;
            faithful.state(key, op, (installed, digests.0), (other, digests.1))?;
        }
        Ok(())
    }

    /// A frame for one group changes no other, unless metadata was applied.
    fn judge_isolation(
        &mut self,
        node: u8,
        of: GroupId,
        changed: &[(GroupId, Option<StatusView>, StatusView)],
        groups: usize,
    ) {
        let applies = |(group, before, after): &(GroupId, Option<StatusView>, StatusView)| {
            group.is_metadata() && before.is_none_or(|it| it.commit_min != after.commit_min)
        };
        if changed.iter().any(applies) {
            return;
        }
        let known = changed.iter().filter(|(_, before, _)| before.is_some());
        let ids = known.map(|(group, ..)| *group);
        let judged = self.oracles.isolation.frame(node, of, groups, ids);
        self.judge(judged);
    }

    fn watch_groups(&mut self, node: u8, of: Option<GroupId>) {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return;
        };
        let mut found = Vec::new();
        let mut changed = Vec::new();
        let mut looked = Vec::new();
        let (mut metadata_moved, mut metadata_installed) = (false, false);
        let groups = machine.groups();
        let count = groups.len();
        for group in groups {
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
            let ahead = known.map_or(&[][..], |known| &known.ahead);
            let mut gone = ahead.iter();
            let mut messages = Vec::new();
            let mut next = replica.log().next_held(before.next(), status.commit_min);
            let mut done = before;
            while let Some(op) = next {
                let missed = |message: &&Message| {
                    let at = message.header::<PrepareHeader>().op();
                    at > done && at < op
                };
                messages.extend(gone.by_ref().filter(missed).cloned());
                messages.extend(replica.log().get(op).cloned());
                done = op;
                next = replica.log().next_held(op.next(), status.commit_min);
            }
            let above = replica.log().iter().rev();
            let above = above
                .take_while(|message| message.header::<PrepareHeader>().op() > status.commit_min);
            let mut ahead: Vec<Message> = above.cloned().collect();
            ahead.reverse();
            let key = self.log_key(node, group, &facts);
            changed.push((group, known.map(|known| known.status), status));
            let installed = known.is_some_and(|known| {
                known.status.transfer_stage == TransferStage::Installing
                    && status.transfer_stage == TransferStage::Idle
            });
            metadata_moved |= group.is_metadata();
            metadata_installed |= group.is_metadata() && installed;
            let seen = Seen {
                incarnation: facts.incarnation,
                purges: facts.purges,
                status,
                ahead,
            };
            looked.push((node, group, seen));
            found.push(Found {
                key,
                facts,
                messages,
            });
        }
        for (node, group, seen) in looked {
            self.watch.seen.insert((node, group), seen);
        }
        let gone = self.watch.gone(node, count, machine.as_ref());
        if metadata_installed {
            self.oracles.faithful.installed(node);
        }
        if metadata_moved {
            let judged = self.judge_installed();
            self.judge(judged);
        }
        if let Some(of) = of {
            self.judge_isolation(node, of, &changed, count);
        }
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
            if first == Commit::Again {
                let op = message.header::<PrepareHeader>().op();
                let Oracles {
                    committed,
                    faithful,
                    ..
                } = &mut self.oracles;
                if let Some(canonical) = committed.canonical(found.key, op) {
                    faithful.again(node, found.key, canonical, message)?;
                }
            }
            if first == Commit::First {
                self.counters.add("ops committed", 1);
                self.mark_committed(message.header::<PrepareHeader>().operation());
                let op = message.header::<PrepareHeader>().op();
                if let Some(view) = self.replica(node, found.key.group).map(Replica::view) {
                    self.oracles.committed.first_in(found.key, op, view);
                }
                if found.key.group.is_metadata() {
                    self.oracles.fencing.committed(message.header())?;
                }
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
                let repeats = self.oracles.messages.committed(key, message, fresh)?;
                let header: &PrepareHeader = message.header();
                if repeats {
                    self.counters.add("appends repeated", 1);
                    let (client, request) = (header.client(), header.request());
                    self.history.repeated(found.key.group, client, request);
                }
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
        if (before.transfer_stage, after.transfer_stage)
            == (TransferStage::Installing, TransferStage::Idle)
        {
            let plane = match group.is_metadata() {
                true => "transfers installed: metadata",
                false => "transfers installed: partition",
            };
            counters.add(plane, 1);
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
