//! The liveness phase: a core is healed and must finish; then everyone is.
//!
//! In the first round a drawn core, large enough for a view change, is healed and connected.
//! Nodes outside stay as they are, for ever: down, standing still, or cut off so that nobody
//! hears them. The core must elect, repair, answer, and converge without them. In the second
//! round all nodes are healed and the same is demanded of everyone, and all messages are read.

use biplane_partition_plane::batch::BatchHeader;
use biplane_vsr::Replica;
use biplane_wire::{GroupId, Op};

use super::nodes::Node;
use super::{Phase, Verdict, World};
use crate::client::Client;
use crate::faults::FaultClass;
use crate::network::NetworkOptions;
use crate::oracle::{
    Look, Oracles, convergence, replication_quorum, show_group, view_change_quorum,
};
use crate::partitions::Cuts;
use crate::time::{Nanos, SECOND};

/// Requests every client has to finish in each round.
const FRESH_REQUESTS: u64 = 3;
/// Time for which a cluster that is done must not grow.
const REST: Nanos = SECOND;

impl World {
    pub(crate) fn is_in_core(&self, node: u8) -> bool {
        self.core.get(usize::from(node)).copied().unwrap_or(false)
    }

    pub(super) fn begin_liveness(&mut self) {
        self.phase = Phase::Liveness;
        self.fault_prng = self.streams.stream("liveness");
        self.draw_core();
        let core = self.core.clone();
        self.log(|| format!("---- the core {core:?} is healed ----"));
        let datagram = self.options.network.datagram;
        self.network.set_options(NetworkOptions {
            datagram,
            ..NetworkOptions::calm()
        });
        self.heal_core();
    }

    /// Half of the time everyone, otherwise any set that is large enough.
    fn draw_core(&mut self) {
        let count = self.nodes.len();
        let least = view_change_quorum(count as u8);
        let smaller = self.fault_prng.chance(500_000);
        // Where a copy went bad the one that is left must be among those that go on.
        let gone = [
            FaultClass::Decay,
            FaultClass::Misdirect,
            FaultClass::LostWrite,
        ];
        let is_decayed = gone
            .iter()
            .any(|class| self.counters.get(class.counter()) > 0);
        if !smaller || least == count || is_decayed {
            return;
        }
        let size = self.fault_prng.between(least as u64, count as u64 - 1) as usize;
        let mut order: Vec<usize> = (0..count).collect();
        self.fault_prng.shuffle(&mut order);
        for &outside in &order[size..] {
            self.core[outside] = false;
        }
        self.counters.add("cores smaller than the cluster", 1);
    }

    /// Heals everything in the core, and cuts off what runs outside of it.
    fn heal_core(&mut self) {
        let now = self.queue.now();
        self.phase_ends = now + self.options.liveness_max;
        self.network.unclog();
        self.end_flapping();
        self.client_cuts = super::links::ClientCuts::default();
        self.rejoin();
        let mut events = Vec::new();
        self.network.end_half_open(now, &mut events);
        self.schedule_net(events);
        let count = self.options.replicas;
        let mut cuts = Cuts::none(count);
        let core = self.core.clone();
        for outside in (0..count).filter(|&node| !core[usize::from(node)]) {
            // Who can send and not hear would pull the others into ever higher views.
            let hears = self.fault_prng.chance(300_000);
            for peer in (0..count).filter(|&peer| peer != outside) {
                cuts.cut(outside, peer);
                if !hears {
                    cuts.cut(peer, outside);
                }
            }
        }
        let events = self.network.set_cuts(now, cuts);
        self.schedule_net(events);
        let core: Vec<u8> = (0..count).filter(|&node| self.is_in_core(node)).collect();
        for &node in &core {
            self.heal(node);
        }
        for client in &mut self.clients {
            client.finish_after(FRESH_REQUESTS, &core);
        }
        for client in 0..self.clients.len() {
            self.wake_client(client, now);
        }
    }

    pub(super) fn check_liveness(&mut self, now: Nanos) -> Option<Verdict> {
        let waiting = self.waiting_for();
        match waiting {
            None if self.core.contains(&false) => {
                self.heal_all();
                None
            }
            Some(text) if now >= self.phase_ends && self.needs_others(&text) => {
                self.log(|| format!("the core alone cannot: {text}"));
                self.counters
                    .add("excuse: what is left is outside of the core", 1);
                self.heal_all();
                None
            }
            None if !self.audited() && now < self.phase_ends => None,
            None if self.rests(now) => None,
            None => Some(self.final_check()),
            Some(text) if now >= self.phase_ends => match self.excuse(&text) {
                Some(excuse) => {
                    self.log(|| format!("{excuse}; meanwhile: {text}"));
                    self.counters.add(excuse, 1);
                    Some(Verdict::Passed)
                }
                None => Some(self.unfinished(text)),
            },
            Some(_) => None,
        }
    }

    fn heal_all(&mut self) {
        self.log(|| "---- everyone is healed ----".to_owned());
        self.core.fill(true);
        self.heal_core();
    }

    /// The cluster did not finish. Replicas that have nothing to do and differ will not become
    /// equal by waiting: they diverged.
    fn unfinished(&mut self, text: String) -> Verdict {
        let diverged = self.with_core(|looks, oracles| convergence::diverged(looks, oracles));
        match diverged {
            Some(violation) if !self.is_silent(violation.oracle) => Verdict::Safety(violation),
            None if !self.is_silent("O17 liveness") => Verdict::Liveness(text),
            Some(_) | None => Verdict::Passed,
        }
    }

    /// Why the cluster need not have finished, proved by looking at the memory-only groups that
    /// lost more memory than their promise covers. `text` says what is waited for.
    fn excuse(&self, text: &str) -> Option<&'static str> {
        let is_meant = |group: &GroupId| is_named(text, *group);
        let is_open = |group| {
            let replicas: Vec<&Replica> = self.replicas_of(group).collect();
            replicas.len() == self.nodes.len() && self.is_undecidable(&replicas)
        };
        let mut known = self.oracles.committed.groups().map(|(key, _)| key.group);
        if known.any(|group| stands_on(text, group) && is_open(group)) {
            return Some("excuse: more replicas cannot read an op than may lack it");
        }
        if !self.options.correlated {
            // A write that power cut short in its middle looks like damage (F34).
            let crashed = self.counters.get(FaultClass::Crash.counter()) > 0;
            let mut known = self.oracles.committed.groups().map(|(key, _)| key.group);
            let is_refused = |group| is_meant(&group) && self.is_refused(group);
            return (crashed && known.any(is_refused))
                .then_some("excuse: a lone replica refuses a write that was cut short");
        }
        let exposed = || self.oracles.exposed.iter().map(|key| key.group);
        if exposed().any(|group| self.is_lost(group)) {
            return Some("excuse: committed ops of a memory-only group are lost");
        }
        exposed().filter(is_meant).find_map(|group| {
            if self.is_denied(group) {
                Some("excuse: committed ops of a memory-only group are denied")
            } else if self.is_refused(group) {
                Some("excuse: a lone replica refuses segments with a hole")
            } else if self.is_without_log(group) && text.contains("differs between nodes") {
                Some("excuse: replicas of a memory-only group without a log differ")
            } else {
                None
            }
        })
    }

    /// Whether the core need not have finished without the rest, proved by looking at it: a
    /// memory-only group lost more memory than its promise covers, or nodes were wiped one after
    /// the other, and nobody in the core has what committed ops are, or what they stand on. Or
    /// records went bad, and too few in the core can deny an op. Someone outside may help.
    fn needs_others(&self, text: &str) -> bool {
        if !self.core.contains(&false) {
            return false;
        }
        let members = self.core.iter().filter(|&&is_in| is_in).count();
        let within = |group| self.replicas_in_core(group).collect::<Vec<&Replica>>();
        let is_open = |group| within(group).len() == members && self.is_undecidable(&within(group));
        let known = || self.oracles.committed.groups().map(|(key, _)| key.group);
        if known().any(|group| stands_on(text, group) && is_open(group)) {
            return true;
        }
        let wiped = self.options.faults.wipe.is_some();
        let exposed = self.oracles.exposed.iter().map(|key| key.group);
        let exposed = exposed.filter(|_| self.options.correlated || wiped);
        let mut lossy = exposed.chain(known().filter(|_| wiped));
        lossy.any(|group| {
            is_named(text, group) && (self.lacks_messages(group) || lacks_ops(&within(group)))
        })
    }

    fn replicas_in_core(&self, group: GroupId) -> impl Iterator<Item = &Replica> {
        let core = self.nodes.iter().filter(|node| self.is_in_core(node.id));
        let machines = core.filter_map(|node| node.machine.as_ref());
        machines.filter_map(move |machine| machine.replica(group))
    }

    /// No replica in the core can apply the next committed message: it continues messages that
    /// none of them has.
    fn lacks_messages(&self, group: GroupId) -> bool {
        let core = self.nodes.iter().filter(|node| self.is_in_core(node.id));
        let mut machines = core.filter_map(|node| node.machine.as_ref());
        machines.all(|machine| {
            let replica = machine.replica(group);
            let next = replica.and_then(Replica::next_committed);
            let batch = next.and_then(|prepare| BatchHeader::read(prepare.body()));
            let here = machine.next_offset(group);
            matches!((batch, here), (Some(batch), Some(here)) if batch.base_offset > here)
        })
    }

    fn replicas_of(&self, group: GroupId) -> impl Iterator<Item = &Replica> {
        let machines = self.nodes.iter().filter_map(|node| node.machine.as_ref());
        machines.filter_map(move |machine| machine.replica(group))
    }

    /// Committed ops are known of that no log holds any more. No vote can reach them, and none
    /// may pass over them.
    fn is_lost(&self, group: GroupId) -> bool {
        let replicas: Vec<&Replica> = self.replicas_of(group).collect();
        lacks_ops(&replicas)
    }

    /// Nobody leads, and so many logs end below what is known committed that their votes deny
    /// it together: what is left of it is a copy that no view may start with or without.
    fn is_denied(&self, group: GroupId) -> bool {
        let replicas: Vec<&Replica> = self.replicas_of(group).collect();
        let known = replicas.iter().map(|it| it.commit_max()).max();
        let denials = replicas.iter().filter(|it| Some(it.op_head()) < known);
        let count = self.options.replicas;
        let needed = usize::from(count) - replication_quorum(count) + 1;
        let leads = replicas.iter().any(|it| it.is_primary());
        count > 1 && !leads && denials.count() >= needed
    }

    /// None of `replicas` leads, and there is an op of which too few of them can say that they
    /// never had it: each of the others has a record it cannot read, which may have been that op
    /// (F30). A copy of it would settle it, and none of them has one.
    fn is_undecidable(&self, replicas: &[&Replica]) -> bool {
        let count = self.options.replicas;
        let needed = usize::from(count) - replication_quorum(count) + 1;
        let leads = replicas.iter().any(|it| it.is_primary());
        let ends = replicas.iter().map(|it| it.op_head().0);
        let commits = replicas.iter().map(|it| it.commit_min().0);
        let (Some(from), Some(to)) = (commits.min(), ends.max()) else {
            return false;
        };
        let is_open = |op| {
            let unread = replicas.iter().filter(|it| it.log().is_damaged(op)).count();
            let is_held = replicas.iter().any(|it| it.log().checksum(op).is_some());
            unread > 0 && !is_held && replicas.len() - unread < needed
        };
        count > 1 && !leads && (from + 1..=to).map(Op).any(is_open)
    }

    /// The only replica found a hole between segments, which an unsynced write may leave: it has
    /// nobody to fill it from, and refuses service (chapter 06 section 16.2).
    fn is_refused(&self, group: GroupId) -> bool {
        let is_alone = self.options.replicas == 1 && !self.options.churn;
        let runs = self.nodes.iter().any(|node| node.machine.is_some());
        is_alone && runs && self.replicas_of(group).next().is_none()
    }

    /// No replica has anything of a log. They have what was in their segments, and one whose
    /// folder went with the power asks for it when the next message comes.
    fn is_without_log(&self, group: GroupId) -> bool {
        let mut replicas = self.replicas_of(group);
        replicas.all(|it| it.op_head() == Op::ZERO && it.commit_max() == Op::ZERO)
    }

    /// Whether the cluster, which is done, still has to stand idle for a while.
    fn rests(&mut self, now: Nanos) -> bool {
        let nodes = 0..self.options.replicas;
        let Some(until) = self.rests_until else {
            self.rests_until = Some(now + REST);
            for node in nodes {
                let bounds = self.bounds_of(node);
                self.oracles.bounds.rest(node, &bounds);
            }
            return true;
        };
        if now < until {
            return true;
        }
        for node in nodes {
            let bounds = self.bounds_of(node);
            let judged = self.oracles.bounds.rested(node, &bounds);
            self.judge(judged);
        }
        false
    }

    fn waiting_for(&mut self) -> Option<String> {
        let busy = self.clients.iter().find_map(Client::waiting_for);
        busy.or_else(|| self.with_core(|looks, oracles| convergence::waiting_for(looks, oracles)))
    }

    fn final_check(&mut self) -> Verdict {
        let judged = self.with_looks(convergence::check);
        for key in &self.oracles.exposed {
            self.history.exempt(key.group);
        }
        // Groups that start over, and requests that two clients number alike, have no one order.
        let options = &self.options;
        if options.churn || options.purge || options.twins || options.replicas == 1 {
            for group in self.oracles.committed.groups().map(|(key, _)| key.group) {
                self.history.exempt(group);
            }
        }
        match judged.and_then(|()| self.history.check()) {
            Err(violation) if !self.is_silent(violation.oracle) => Verdict::Safety(violation),
            Ok(()) | Err(_) => Verdict::Passed,
        }
    }

    /// Hands the nodes of the core to `look`.
    fn with_core<T>(&mut self, look: impl FnOnce(&[Look<'_>], &mut Oracles) -> T) -> T {
        let core = &self.core;
        let nodes = self.nodes.iter().filter(|node| core[usize::from(node.id)]);
        let looks: Vec<Look<'_>> = nodes.map(Node::look).collect();
        look(&looks, &mut self.oracles)
    }
}

/// Whether it is this group that `text` says is waited for.
fn is_named(text: &str, group: GroupId) -> bool {
    text.contains(&format!("{} ", show_group(group)))
}

/// Whether what is waited for may wait for this group: what clients ask of partitions waits for
/// metadata, too.
fn stands_on(text: &str, group: GroupId) -> bool {
    group.is_metadata() || is_named(text, group)
}

/// Whether committed ops are known of that none of these replicas has. What is above all they
/// hold is out of reach in any case. What is below leaves a group without a leader, because an
/// elect must have every op from what it applied up to what is known to be committed.
fn lacks_ops(replicas: &[&Replica]) -> bool {
    let known = replicas.iter().map(|it| it.commit_max()).max();
    let applied = replicas.iter().map(|it| it.commit_min()).max();
    let last = replicas.iter().filter_map(|it| it.log().last()).max();
    let (known, applied) = (known.unwrap_or_default(), applied.unwrap_or_default());
    if known > applied.max(last.unwrap_or_default()) {
        return true;
    }
    let leads = replicas.iter().any(|it| it.is_primary());
    let is_held = |op: Op| replicas.iter().any(|it| it.log().contains(op));
    let mut open = (applied.0 + 1..=known.0).map(Op);
    !leads && open.any(|op| !is_held(op))
}
