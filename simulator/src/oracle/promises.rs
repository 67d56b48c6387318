//! O3, O4 and O10: what leaves a node is kept by its disk, and what commits is held by a quorum.
//!
//! View messages and acknowledgements leave only when the durable superblock has the view; an
//! acknowledgement only while the prepare is held as its policy asks; at the first commit of an
//! op a replication quorum holds it. After a restart a replica still has, or knows to be
//! damaged, what it acknowledged under a durable policy. All of it is judged from logs in
//! memory and from durable bytes, never from what a node says of itself.

mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use biplane_journal::DiskPath;
use biplane_vsr::{Durability, Replica};
use biplane_wire::{
    Checksum, Command, CommitHeader, DoViewChangeHeader, GroupId, Message, Op, PrepareHeader,
    PrepareOkHeader, StartViewChangeHeader, StartViewHeader, View,
};

use self::recorded::Announced;
pub use self::recorded::OpenRecord;
use super::committed::describe;
use super::durable::{DurableReader, DurableViews};
use super::files::Promise;
use super::{GroupKey, Look, Violation, replication_quorum};
use crate::disk::VirtualDisk;
use crate::machine::GroupFacts;

/// What nodes promised.
#[derive(Debug, Default)]
pub struct Promises {
    reader: DurableReader,
    /// Durable acknowledgements by node and group.
    given: BTreeMap<(u8, GroupKey), BTreeMap<Op, Checksum>>,
    /// Who acknowledged what is gone since, by group, op and identity: from memory, which a crash
    /// takes, or on a disk where it went bad.
    from_memory: BTreeMap<(GroupKey, Op, Checksum), BTreeSet<u8>>,
    /// What went bad on a disk, by node, group, op and identity.
    went_bad: BTreeSet<(u8, GroupKey, Op, Checksum)>,
    /// The identity a primary prepared, by group, view and op.
    prepared: BTreeMap<(GroupKey, View, Op), (u8, Checksum)>,
    /// The highest view a node spoke for, by node and group.
    said: BTreeMap<(u8, GroupKey), View>,
    /// Views seen by node and group: view, then log view.
    views: BTreeMap<(u8, GroupKey), (View, View)>,
    /// What the first announcement of a view named above its commit point, by group and view.
    announced: BTreeMap<(GroupKey, View), Vec<Announced>>,
    /// Views compared with disks.
    pub views_checked: u64,
    /// Recorded log views compared with what they stand for.
    pub log_views_checked: u64,
    /// Commits whose holders were counted.
    pub quorums_checked: u64,
    /// Acknowledgements compared with logs.
    pub acks_checked: u64,
    /// Acknowledgements looked for after a restart.
    pub restarts_checked: u64,
}

fn key(facts: &GroupFacts, group: GroupId) -> GroupKey {
    GroupKey {
        group,
        incarnation: facts.incarnation,
    }
}

impl Promises {
    /// A frame leaves a node.
    ///
    /// # Errors
    ///
    /// The promise in it that the node cannot keep.
    pub fn send(&mut self, look: Look<'_>, message: &Message) -> Result<(), Violation> {
        match message.command() {
            Command::PrepareOk => {
                let header: &PrepareOkHeader = message.header();
                let view = header.frame.view();
                self.view(look, header.group(), view, true, "PrepareOk")?;
                self.acknowledge(look, header)
            }
            Command::StartViewChange => {
                let header: &StartViewChangeHeader = message.header();
                self.view(
                    look,
                    header.group(),
                    header.frame.view(),
                    false,
                    "StartViewChange",
                )
            }
            Command::DoViewChange => {
                let header: &DoViewChangeHeader = message.header();
                self.view(
                    look,
                    header.group(),
                    header.frame.view(),
                    false,
                    "DoViewChange",
                )
            }
            Command::StartView => {
                let header: &StartViewHeader = message.header();
                self.view(look, header.group(), header.frame.view(), true, "StartView")?;
                self.announce(look, message);
                self.log_view(look, header.group())
            }
            Command::Commit => {
                let header: &CommitHeader = message.header();
                self.view(look, header.group(), header.frame.view(), true, "Commit")
            }
            Command::Prepare => self.prepare(look, message.header()),
            _ => Ok(()),
        }
    }

    /// The view a crash now would leave a node with, for the group of that superblock.
    pub fn view_on(&mut self, node: u8, disk: &VirtualDisk, superblock: &DiskPath) -> View {
        self.reader.views(node, disk, superblock).view
    }

    fn durable_views(&mut self, look: Look<'_>, group: GroupId) -> Option<DurableViews> {
        let facts = look.machine?.facts(group)?;
        Some(self.reader.views(look.node, look.disk, &facts.superblock))
    }

    fn view(
        &mut self,
        look: Look<'_>,
        group: GroupId,
        view: View,
        normal: bool,
        what: &str,
    ) -> Result<(), Violation> {
        let Some(durable) = self.durable_views(look, group) else {
            return Ok(());
        };
        self.views_checked += 1;
        if let Some(facts) = look.machine.and_then(|machine| machine.facts(group)) {
            let said = self
                .said
                .entry((look.node, key(&facts, group)))
                .or_default();
            *said = (*said).max(view);
        }
        if durable.view < view || normal && durable.log_view < view {
            let node = look.node;
            let text = format!("n{node} sends {what} of view {view}; its disk has {durable:?}");
            return Err(Violation::new("O3 durable view before vote", group, text));
        }
        Ok(())
    }

    /// A primary prepares one identity per view and op.
    fn prepare(&mut self, look: Look<'_>, header: &PrepareHeader) -> Result<(), Violation> {
        let Some(machine) = look.machine else {
            return Ok(());
        };
        let (Some(replica), Some(facts)) = (
            machine.replica(header.group()),
            machine.facts(header.group()),
        ) else {
            return Ok(());
        };
        if !replica.is_primary() || replica.view() != header.frame.view() {
            return Ok(());
        }
        let place = (
            key(&facts, header.group()),
            header.frame.view(),
            header.op(),
        );
        let identity = header.frame.checksum();
        let known = self
            .prepared
            .entry(place)
            .or_insert((look.node, identity))
            .1;
        if known != identity {
            let text = format!(
                "n{} prepares {} and there was {:016x} in this view before",
                look.node,
                describe(header),
                known.0
            );
            return Err(Violation::new(
                "O3 one primary per view",
                header.group(),
                text,
            ));
        }
        Ok(())
    }

    /// An acknowledgement leaves: the prepare is held as its policy asks.
    fn acknowledge(&mut self, look: Look<'_>, header: &PrepareOkHeader) -> Result<(), Violation> {
        let group = header.group();
        let Some(machine) = look.machine else {
            return Ok(());
        };
        let Some(facts) = machine.facts(group) else {
            return Ok(());
        };
        self.acks_checked += 1;
        let entry = (header.op(), header.prepare_checksum());
        let policy = machine.durability(group, header.operation());
        if !self.holds(look, group, entry, policy) {
            let text = format!(
                "n{} acknowledges op {} ({:016x}) without holding it ({policy:?})",
                look.node, entry.0, entry.1.0
            );
            return Err(Violation::new("O10 acknowledgement is held", group, text));
        }
        if policy == Durability::Disk {
            let given = self
                .given
                .entry((look.node, key(&facts, group)))
                .or_default();
            given.insert(entry.0, entry.1);
        } else {
            let place = (key(&facts, group), entry.0, entry.1);
            self.from_memory.entry(place).or_default().insert(look.node);
        }
        Ok(())
    }

    /// Whether a node holds a prepare: in memory or in durable pages, by looking.
    pub fn holds(
        &mut self,
        look: Look<'_>,
        group: GroupId,
        entry: (Op, Checksum),
        policy: Durability,
    ) -> bool {
        let Some(machine) = look.machine else {
            return false;
        };
        let Some(replica) = machine.replica(group) else {
            return false;
        };
        if replica.commit_min() >= entry.0 {
            return true;
        }
        let held = replica
            .log()
            .header(entry.0)
            .map(|header| header.frame.checksum());
        match policy {
            Durability::Memory => held == Some(entry.1),
            Durability::Disk => self.holds_durably(look, group, entry),
        }
    }

    fn holds_durably(&mut self, look: Look<'_>, group: GroupId, entry: (Op, Checksum)) -> bool {
        let facts = look.machine.and_then(|machine| machine.facts(group));
        let Some((log, overhead)) = facts.and_then(|facts| facts.prepare_log) else {
            return false;
        };
        self.reader
            .holds(look.node, look.disk, &log, overhead, entry)
    }

    /// The first commit of an op: count who holds it. `log` is where nodes that are down keep
    /// the group.
    ///
    /// # Errors
    ///
    /// Fewer than a replication quorum.
    pub fn first_commit(
        &mut self,
        looks: &[Look<'_>],
        facts: &GroupFacts,
        header: &PrepareHeader,
        policy: Durability,
    ) -> Result<(), Violation> {
        self.quorums_checked += 1;
        let group = header.group();
        let entry = (header.op(), header.frame.checksum());
        let place = (key(facts, group), entry.0, entry.1);
        let mut holders = self.from_memory.remove(&place).unwrap_or_default();
        for &look in looks {
            // A node that is down, or has not opened the group yet, has what its disk has.
            let runs = look.machine.and_then(|machine| machine.replica(group));
            let asleep = runs.is_none() && policy == Durability::Disk;
            let held = match (&facts.prepare_log, asleep) {
                (Some((log, overhead)), true) => self
                    .reader
                    .holds(look.node, look.disk, log, *overhead, entry),
                _ => self.holds(look, group, entry, policy),
            };
            if held {
                holders.insert(look.node);
            }
        }
        let needed = replication_quorum(looks.len() as u8);
        if holders.len() < needed {
            let text = format!(
                "{} committed while only {holders:?} hold it ({policy:?}), {needed} are needed",
                describe(header)
            );
            return Err(Violation::new("O4 quorum holds at commit", group, text));
        }
        Ok(())
    }

    /// After each step: views never fall.
    ///
    /// # Errors
    ///
    /// A view that fell, also over a restart.
    pub fn step(&mut self, look: Look<'_>, group: GroupId) -> Result<(), Violation> {
        let Some(machine) = look.machine else {
            return Ok(());
        };
        let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group)) else {
            return Ok(());
        };
        let status = replica.status();
        let now = (status.view, status.log_view);
        let place = (look.node, key(&facts, group));
        let known = self.views.entry(place).or_insert(now);
        if now.0 < known.0 || now.1 < known.1 {
            let text = format!("n{} goes from {known:?} back to {now:?}", look.node);
            return Err(Violation::new("O10 views rise", group, text));
        }
        let is_adopted = now.1 > known.1;
        *known = now;
        if is_adopted {
            // The log of the new view was proven by a quorum: what it dropped is no promise.
            self.keep_held(place, replica);
        }
        self.log_view(look, group)
    }

    /// Forgets durable acknowledgements of what a replica does not hold any more.
    fn keep_held(&mut self, place: (u8, GroupKey), replica: &Replica) {
        if let Some(given) = self.given.get_mut(&place) {
            given.retain(|&op, &mut identity| {
                let held = replica
                    .log()
                    .header(op)
                    .map(|header| header.frame.checksum());
                // What was applied is what the cluster committed, and that may be another
                // prepare than the one that was acknowledged in a view before.
                let is_applied = replica.commit_min() >= op;
                is_applied && held.is_none_or(|held| held == identity)
                    || held == Some(identity) && replica.log().is_durable(op)
            });
        }
    }

    /// What a node acknowledged durably for `op` and is held to.
    #[must_use]
    pub fn given(&self, node: u8, key: GroupKey, op: Op) -> Option<Checksum> {
        self.given.get(&(node, key))?.get(&op).copied()
    }

    /// Whether a primary prepared another op of that number in a later view than the one in which
    /// `identity` was prepared: that view started without it, so it was never committed and never
    /// will be, and a replica that learns of it from a vote may drop it before it follows.
    #[must_use]
    pub fn is_superseded(&self, key: GroupKey, op: Op, identity: Checksum) -> bool {
        let of_group = self
            .prepared
            .range((key, View(0), Op::ZERO)..=(key, View(u32::MAX), Op(u64::MAX)));
        let mut seen = false;
        for (_, (_, prepared)) in of_group.filter(|((_, _, number), _)| *number == op) {
            if seen && *prepared != identity {
                return true;
            }
            seen |= *prepared == identity;
        }
        false
    }

    /// What a node promised of each of its groups, above what it has applied.
    #[must_use]
    pub fn of_node(&self, look: Look<'_>) -> Vec<Promise> {
        let Some(machine) = look.machine else {
            return Vec::new();
        };
        let of_group = |group| {
            let (replica, facts) = (machine.replica(group)?, machine.facts(group)?);
            let place = (look.node, key(&facts, group));
            let above = replica.commit_min().next();
            let given = self.given.get(&place).into_iter();
            let given = given.flat_map(|given| given.range(above..));
            Some(Promise {
                key: place.1,
                superblock: facts.superblock,
                view: self.said.get(&place).copied().unwrap_or_default(),
                log: facts.prepare_log,
                given: given.map(|(op, identity)| (*op, *identity)).collect(),
            })
        };
        machine.groups().into_iter().filter_map(of_group).collect()
    }

    /// A node is about to lose its memory: what it had taken back by then is no promise.
    ///
    /// # Errors
    ///
    /// A log view on the disk that the next life could not stand for.
    pub fn crash(&mut self, look: Look<'_>) -> Result<(), Violation> {
        let mut judged = Ok(());
        let Some(machine) = look.machine else {
            return judged;
        };
        for group in machine.groups() {
            let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group))
            else {
                continue;
            };
            let place = (look.node, key(&facts, group));
            self.keep_held(place, replica);
            judged = judged.and_then(|()| self.log_view(look, group));
            // Only what is durable binds the next life.
            let durable = self.reader.views(look.node, look.disk, &facts.superblock);
            self.views.insert(place, (durable.view, durable.log_view));
        }
        judged
    }

    /// A node set the files of a group aside: the group starts over there as after a crash, and
    /// without a log of its own.
    pub fn set_aside(&mut self, look: Look<'_>, group: GroupId) {
        let Some(facts) = look.machine.and_then(|machine| machine.facts(group)) else {
            return;
        };
        let durable = self.reader.views(look.node, look.disk, &facts.superblock);
        let place = (look.node, key(&facts, group));
        self.views.insert(place, (durable.view, View(0)));
    }

    /// A node came back: it has, or knows that it may lack, each op it acknowledged.
    ///
    /// # Errors
    ///
    /// An op it forgot.
    pub fn restart(&mut self, look: Look<'_>, group: GroupId) -> Result<(), Violation> {
        let Some(machine) = look.machine else {
            return Ok(());
        };
        let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group)) else {
            return Ok(());
        };
        let Some(given) = self.given.get(&(look.node, key(&facts, group))) else {
            return Ok(());
        };
        // A hole at or below the known commit point is known to be one: it is never denied in a
        // vote, and repaired.
        let above = replica.commit_max().next();
        for (&op, &identity) in given.range(above..) {
            self.restarts_checked += 1;
            let held = replica
                .log()
                .header(op)
                .map(|header| header.frame.checksum());
            // What it cannot confirm yet it does not deny either.
            if held != Some(identity) && !replica.log().is_unsure(op) {
                let text = format!(
                    "n{} acknowledged op {op} as {:016x} and came back with {held:?}",
                    look.node, identity.0
                );
                return Err(Violation::new(
                    "O10 acknowledged kept at restart",
                    group,
                    text,
                ));
            }
        }
        Ok(())
    }

    /// A node applied the deletion of a group: its promises in it mean nothing any more, and an
    /// op that commits elsewhere by one of them was held when it was given.
    pub fn deleted(&mut self, node: u8, key: GroupKey) {
        for (op, identity) in self.given.remove(&(node, key)).unwrap_or_default() {
            let place = (key, op, identity);
            self.from_memory.entry(place).or_default().insert(node);
        }
        self.views.remove(&(node, key));
        self.said.remove(&(node, key));
        self.announced.retain(|(of, _), _| *of != key);
    }

    /// A node lost its disk on purpose.
    pub fn wipe(&mut self, node: u8) {
        self.reader.forget(node);
        self.given.retain(|(owner, _), _| *owner != node);
        self.prepared.retain(|_, (owner, _)| *owner != node);
        self.views.retain(|(owner, _), _| *owner != node);
        self.said.retain(|(owner, _), _| *owner != node);
        self.went_bad.retain(|(owner, ..)| *owner != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };

    #[test]
    fn a_later_view_supersedes_what_it_replaces_and_nothing_else() {
        let mut promises = Promises::default();
        let (old, new) = (Checksum(1), Checksum(2));
        let mut prepare = |view, op, identity| {
            promises
                .prepared
                .insert((KEY, View(view), Op(op)), (0, identity));
        };
        prepare(1, 40, old);
        prepare(1, 41, Checksum(3));
        prepare(2, 40, new);
        assert!(promises.is_superseded(KEY, Op(40), old));
        assert!(!promises.is_superseded(KEY, Op(40), new), "it is the later");
        assert!(!promises.is_superseded(KEY, Op(41), Checksum(3)));
        assert!(!promises.is_superseded(KEY, Op(40), Checksum(9)), "unknown");
        let other = GroupKey {
            incarnation: 1,
            ..KEY
        };
        assert!(!promises.is_superseded(other, Op(40), old));
    }
}
