//! Misfortunes: which fault strikes when, and which the promises of the cluster do not cover.

use std::collections::BTreeSet;
use std::ops::Range;

use biplane_wire::{GroupId, View};

use super::nodes::crash_mode;
use super::{Event, Phase, World};
use crate::disk::{CrashMode, Damage};
use crate::faults::{FaultClass, Strike};
use crate::machine::Cause;
use crate::partitions::{Cuts, Shape};
use crate::time::{MILLISECOND, Nanos, SECOND};

/// The view in the header of a prepare. Its identity does not cover it, and a metadata log has no
/// seal that would: gone bad, it may say that the record is not of the log it stands in.
const VIEW_STAMP: Range<u64> = 52..56;

impl World {
    fn mean(&self, class: FaultClass) -> Option<Nanos> {
        let faults = &self.options.faults;
        match class {
            FaultClass::Crash => faults.crash,
            FaultClass::Pause => faults.pause,
            FaultClass::Partition => faults.partition,
            FaultClass::Clog => faults.clog,
            FaultClass::Reset => faults.reset,
            // Dealt out by places, which are other records on other nodes; what strays and what is
            // lost is dealt out by records. Together they might take two copies of one.
            FaultClass::Rot if faults.misdirect.or(faults.lost_write).is_some() => None,
            FaultClass::Rot => faults.rot,
            FaultClass::Wipe => faults.wipe,
            FaultClass::Stop => faults.stop,
            FaultClass::Decay => faults.decay,
            // A datagram needs no connection.
            FaultClass::HalfOpen if self.options.network.datagram => None,
            FaultClass::HalfOpen => faults.half_open,
            FaultClass::Swizzle => faults.swizzle,
            FaultClass::Flap => faults.flap,
            FaultClass::Cutoff => faults.cutoff,
            FaultClass::SlowNode => faults.slow_node,
            FaultClass::Full => faults.full,
            // Of fewer replicas none may lose a record.
            FaultClass::Misdirect | FaultClass::LostWrite if self.options.replicas < 3 => None,
            FaultClass::Misdirect => faults.misdirect,
            FaultClass::LostWrite => faults.lost_write,
        }
    }

    pub(crate) fn schedule_faults(&mut self) {
        for class in FaultClass::ALL {
            self.schedule_fault(class);
        }
    }

    fn schedule_fault(&mut self, class: FaultClass) {
        if let Some(mean) = self.mean(class) {
            let wait = mean / 4 + self.fault_prng.exponential(mean);
            self.queue
                .schedule(self.queue.now() + wait, Event::Fault(class));
        }
    }

    fn fault_again_soon(&mut self, class: FaultClass) {
        let wait = 10 * MILLISECOND + self.fault_prng.exponential(50 * MILLISECOND);
        self.queue
            .schedule(self.queue.now() + wait, Event::Fault(class));
    }

    pub(crate) fn on_fault(&mut self, class: FaultClass) {
        if self.phase == Phase::Liveness {
            return;
        }
        let number = self.fault_numbers.entry(class).or_default();
        *number += 1;
        let number = *number;
        // Each fault draws from a stream of its own: leaving one out changes no other.
        self.fault_prng = self
            .streams
            .stream(&format!("fault/{}/{number}", class.name()));
        if self.options.skip.contains(&(class, number)) {
            self.schedule_fault(class);
            return;
        }
        let struck = match class {
            FaultClass::Crash => self.fault_crash(),
            FaultClass::Pause => self.fault_pause(),
            FaultClass::Partition => self.fault_partition(),
            FaultClass::Clog => self.fault_clog(),
            FaultClass::Reset => self.fault_reset(),
            FaultClass::Rot => self.fault_rot(),
            FaultClass::Wipe => self.fault_wipe(),
            FaultClass::Stop => self.fault_stop(),
            FaultClass::Decay => self.fault_decay(),
            FaultClass::HalfOpen => self.fault_half_open(),
            FaultClass::Swizzle => self.fault_swizzle(),
            FaultClass::Flap => self.fault_flap(),
            FaultClass::Cutoff => self.fault_cutoff(),
            FaultClass::SlowNode => self.fault_slow_node(),
            FaultClass::Full => self.fault_full(),
            FaultClass::Misdirect => self.fault_misdirect(),
            FaultClass::LostWrite => self.fault_lost_write(),
        };
        if struck {
            self.counters.add(class.counter(), 1);
            self.struck.push(Strike {
                class,
                number,
                at: self.queue.now(),
            });
            self.schedule_fault(class);
        } else {
            self.fault_again_soon(class);
        }
    }

    pub(super) fn draw_running(&mut self) -> Option<u8> {
        let running: Vec<u8> = self
            .nodes
            .iter()
            .filter(|node| node.machine.is_some() && !node.stopping)
            .map(|node| node.id)
            .collect();
        // Crashes are likelier while writes are pending.
        let busy: Vec<u8> = running
            .iter()
            .copied()
            .filter(|&node| self.nodes[usize::from(node)].disk.is_busy())
            .collect();
        let prefer_busy = self.fault_prng.chance(700_000);
        let from = if prefer_busy && !busy.is_empty() {
            &busy
        } else {
            &running
        };
        self.fault_prng.pick(from).copied()
    }

    pub(crate) fn draw_crash_mode(&mut self) -> CrashMode {
        crash_mode(&mut self.fault_prng)
    }

    pub(crate) fn start_later(&mut self, node: u8) {
        let this = &mut self.nodes[usize::from(node)];
        if this.starting {
            return;
        }
        this.starting = true;
        let mean = match self.phase {
            Phase::Safety => self.options.absence_mean,
            Phase::Liveness => 100 * MILLISECOND,
        };
        let wait = 10 * MILLISECOND + self.fault_prng.exponential(mean);
        self.queue
            .schedule(self.queue.now() + wait, Event::Start { node });
    }

    fn fault_crash(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        if !self.may_forget(node) {
            return false;
        }
        let mode = self.draw_crash_mode();
        self.crash(node, mode);
        self.start_later(node);
        // Sometimes all of them lose power at once.
        if self.fault_prng.chance(100_000) {
            for other in 0..self.options.replicas {
                if self.nodes[usize::from(other)].machine.is_some() && self.may_forget(other) {
                    let mode = self.draw_crash_mode();
                    self.crash(other, mode);
                    self.start_later(other);
                }
            }
        }
        true
    }

    fn fault_pause(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        let this = &mut self.nodes[usize::from(node)];
        if this.paused {
            return false;
        }
        this.paused = true;
        let tick = crate::time::TICK;
        let long = self.fault_prng.chance(300_000);
        let most = if long {
            3 * u64::from(self.options.timers.heartbeat)
        } else {
            30
        };
        let time = tick + self.fault_prng.below(most * tick);
        self.log(|| format!("n{node} stands still for {} ms", time / MILLISECOND));
        self.queue
            .schedule(self.queue.now() + time, Event::Resume { node });
        true
    }

    /// What is cut when the network falls apart, unless it has, or cannot.
    pub(super) fn drawn_cuts(&mut self) -> Option<(Cuts, Shape, bool)> {
        if self.partitioned || self.options.replicas < 2 {
            return None;
        }
        let shape = Shape::ALL[self.fault_prng.index(Shape::ALL.len())];
        let one_way = self.fault_prng.chance(300_000);
        let primary = self.some_primary();
        let count = self.options.replicas;
        let cuts = Cuts::drawn(count, shape, one_way, primary, &mut self.fault_prng);
        cuts.any().then_some((cuts, shape, one_way))
    }

    fn fault_partition(&mut self) -> bool {
        let Some((cuts, shape, one_way)) = self.drawn_cuts() else {
            return false;
        };
        let now = self.queue.now();
        self.log(|| format!("partition {shape:?} one way {one_way}"));
        let events = self.network.set_cuts(now, cuts);
        self.schedule_net(events);
        self.partitioned = true;
        let heartbeat = u64::from(self.options.timers.heartbeat) * crate::time::TICK;
        let time = heartbeat / 2 + self.fault_prng.exponential(2 * heartbeat);
        self.queue.schedule(now + time, Event::Rejoin);
        true
    }

    /// Ends the present partition. Connections that stood still for long may break.
    pub(crate) fn rejoin(&mut self) {
        let now = self.queue.now();
        self.log(|| "partition ends".to_owned());
        self.partitioned = false;
        let mut events = Vec::new();
        for a in 0..self.options.replicas {
            for b in a + 1..self.options.replicas {
                let stood = !self.network.passes(a, b) || !self.network.passes(b, a);
                if stood && self.fault_prng.chance(500_000) {
                    self.network.reset(now, a, b, &mut events);
                }
            }
        }
        events.extend(
            self.network
                .set_cuts(now, Cuts::none(self.options.replicas)),
        );
        self.schedule_net(events);
    }

    pub(super) fn some_primary(&mut self) -> u8 {
        let primaries: Vec<u8> = self
            .nodes
            .iter()
            .filter(|node| {
                node.machine.as_ref().is_some_and(|machine| {
                    let lead = |group| machine.replica(group).is_some_and(|it| it.is_primary());
                    machine.groups().into_iter().any(lead)
                })
            })
            .map(|node| node.id)
            .collect();
        self.fault_prng.pick(&primaries).copied().unwrap_or(0)
    }

    pub(super) fn draw_pair(&mut self) -> Option<(u8, u8)> {
        let count = u64::from(self.options.replicas);
        if count < 2 {
            return None;
        }
        let from = self.fault_prng.below(count);
        let to = (from + 1 + self.fault_prng.below(count - 1)) % count;
        Some((from as u8, to as u8))
    }

    fn fault_clog(&mut self) -> bool {
        let Some((from, to)) = self.draw_pair() else {
            return true;
        };
        let until = self.queue.now() + self.fault_prng.exponential(SECOND);
        self.network.clog(from, to, until);
        true
    }

    fn fault_reset(&mut self) -> bool {
        let Some((a, b)) = self.draw_pair() else {
            return true;
        };
        let mut events = Vec::new();
        self.network.reset(self.queue.now(), a, b, &mut events);
        self.schedule_net(events);
        true
    }

    fn fault_rot(&mut self) -> bool {
        let node = self.fault_prng.below(u64::from(self.options.replicas)) as u8;
        let hit = crate::fault_atlas::pick(self, node);
        let Some((path, position)) = hit else {
            return true;
        };
        let damage = if self.fault_prng.chance(200_000) {
            Damage::Unreadable
        } else {
            Damage::Rot {
                at: self.fault_prng.below(512) as u16,
                mask: 1 << self.fault_prng.below(8),
            }
        };
        self.log(|| format!("n{node} {} goes bad at {position}", path.as_str()));
        self.nodes[usize::from(node)]
            .disk
            .damage(&path, position, damage);
        true
    }

    /// A record that a node acknowledged, and that nothing on its disk says to be committed,
    /// goes bad while the power fails: there, and sometimes at the primary or everywhere too, so
    /// that the next view depends on what is said of it.
    fn fault_decay(&mut self) -> bool {
        let (seed, count) = (self.options.seed, self.options.replicas);
        let mut exposed = Vec::new();
        for node in 0..count {
            let look = self.nodes[usize::from(node)].look();
            let owns = |group, op| crate::fault_atlas::owns_op(seed, count, node, group, op);
            let places = self.oracles.promises.open_records(look, owns);
            exposed.extend(places.into_iter().map(|place| (node, place)));
        }
        let Some((node, place)) = self.fault_prng.pick(&exposed).cloned() else {
            return false;
        };
        if !self.may_forget(node) {
            return false;
        }
        let len = place.bytes.len() as u64;
        let mut within = self.fault_prng.below(len);
        if place.key.group.is_metadata() && VIEW_STAMP.contains(&within) {
            within = VIEW_STAMP.end;
        }
        let position = place.bytes.start as u64 + within;
        let damage = Damage::Rot {
            at: (position % crate::disk::SECTOR) as u16,
            mask: 1 << self.fault_prng.below(8),
        };
        let path = place.path.as_str();
        self.log(|| format!("n{node} {path} op {} goes bad at {position}", place.op));
        let primary = self.replica(node, place.key.group).map(|it| it.primary().0);
        let others: Vec<u8> = match self.fault_prng.below(4) {
            0 => Vec::new(),
            1 | 2 => primary.into_iter().collect(),
            _ => (0..count).collect(),
        };
        let disk = &mut self.nodes[usize::from(node)].disk;
        disk.damage(&place.path, position, damage);
        self.oracles.promises.damaged(node, &place);
        for node in std::iter::once(node).chain(others) {
            if self.nodes[usize::from(node)].machine.is_some() && self.may_forget(node) {
                let mode = self.draw_crash_mode();
                self.crash(node, mode);
                self.start_later(node);
            }
        }
        true
    }

    fn fault_wipe(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        if self.options.replicas < 3 || !self.may_wipe(node) {
            return false;
        }
        self.wipe(node);
        self.start_later(node);
        true
    }

    /// A node goes down and loses its disk.
    pub(crate) fn wipe(&mut self, node: u8) {
        self.crash(node, CrashMode::LoseAll);
        self.log(|| format!("n{node} loses its disk"));
        self.nodes[usize::from(node)].disk.wipe();
        self.oracles.promises.wipe(node);
        self.oracles.files.forget(node);
        self.oracles.truncation.wipe(node);
    }

    fn fault_stop(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        if self.nodes[usize::from(node)].paused || !self.may_forget(node) {
            return false;
        }
        self.log(|| format!("n{node} is asked to stop"));
        self.nodes[usize::from(node)].stopping = true;
        self.give(node, Cause::Flush);
        true
    }

    /// A wiped node forgets its votes too: every group must be able to do without it, and all
    /// others must hold everything.
    pub(crate) fn may_wipe(&self, node: u8) -> bool {
        let Some(machine) = &self.nodes[usize::from(node)].machine else {
            return false;
        };
        // A group that is still being opened here is missing from the node's own list, and what
        // its folder holds may be the copy that counts.
        let running = self.nodes.iter().filter_map(|node| node.machine.as_ref());
        let groups: BTreeSet<GroupId> = running.flat_map(|machine| machine.groups()).collect();
        self.nodes
            .iter()
            .filter(|other| other.id != node)
            .all(|other| {
                let Some(theirs) = &other.machine else {
                    return false;
                };
                groups.iter().all(|&group| {
                    let (Some(mine), Some(theirs)) =
                        (machine.replica(group), theirs.replica(group))
                    else {
                        return false;
                    };
                    // An empty replica that leads the first view by number would lead it again.
                    let first = machine
                        .facts(group)
                        .map_or(View(0), |facts| facts.first_view);
                    let leads = mine.primary().0 == node && mine.view() <= first;
                    !leads
                        && theirs.commit_min() >= mine.op_head()
                        && theirs.view() >= mine.view()
                        && theirs.status().log_view_durable >= mine.view()
                })
            })
    }

    /// Everything that is broken is repaired, for the liveness phase.
    pub(crate) fn heal(&mut self, node: u8) {
        let this = &mut self.nodes[usize::from(node)];
        this.disk.heal();
        this.stopping = false;
        this.disk.set_options(crate::disk::DiskOptions::calm());
        self.quicken(node);
        self.resume(node);
        if self.nodes[usize::from(node)].machine.is_none() {
            self.queue.schedule(self.queue.now(), Event::Start { node });
        }
    }
}
