//! Nodes that are slow at everything: each step costs time, and what arrives meanwhile waits.

use std::collections::VecDeque;

use super::{Event, World};
use crate::machine::Cause;
use crate::prng::Prng;
use crate::time::{MICROSECOND, MILLISECOND, Nanos, SECOND};

/// What may wait for a slow node: queues of sockets are bounded, and refuse the newest.
const INBOX_MAX: usize = 4096;

/// How slow a node is.
#[derive(Debug)]
pub(crate) struct Slow {
    prng: Prng,
    /// Mean time of a step.
    cost_mean: Nanos,
    busy_until: Nanos,
    /// Whether it will be woken.
    woken: bool,
    /// A tick that came while there was no time: the newest counts for all.
    tick: Option<u64>,
}

impl Slow {
    fn new(prng: Prng, cost_mean: Nanos) -> Self {
        Self {
            prng,
            cost_mean,
            busy_until: 0,
            woken: false,
            tick: None,
        }
    }

    /// The node lost its memory.
    pub(super) fn forget(&mut self) {
        self.busy_until = 0;
        self.woken = false;
        self.tick = None;
    }

    /// The next thing to do: a tick that is due before all else.
    fn next(&mut self, inbox: &mut VecDeque<Cause>) -> Option<Cause> {
        let tick = self
            .tick
            .take()
            .map(|wall_micros| Cause::Tick { wall_micros });
        tick.or_else(|| inbox.pop_front())
    }
}

impl World {
    /// A node is slow for a while.
    pub(super) fn fault_slow_node(&mut self) -> bool {
        let count = u64::from(self.options.replicas);
        let node = self.fault_prng.below(count) as u8;
        if self.nodes[usize::from(node)].slow.is_some() {
            return false;
        }
        // From barely felt to hopeless.
        let factor = 1 << self.fault_prng.below(8);
        let cost_mean = factor * 50 * MICROSECOND;
        let time = 100 * MILLISECOND + self.fault_prng.exponential(2 * SECOND);
        let label = format!("slow/{node}/{}", self.fault_numbers_of_slow());
        self.slow_down(node, cost_mean, &label);
        self.log(|| format!("n{node} is slow: {} us a step", cost_mean / MICROSECOND));
        let due = self.queue.now() + time;
        self.queue.schedule(due, Event::Quick { node });
        true
    }

    fn fault_numbers_of_slow(&self) -> u64 {
        let numbers = &self.fault_numbers;
        let number = numbers.get(&crate::faults::FaultClass::SlowNode);
        number.copied().unwrap_or_default()
    }

    /// From now on each step of a node costs time.
    pub(crate) fn slow_down(&mut self, node: u8, cost_mean: Nanos, label: &str) {
        let prng = self.streams.stream(label);
        self.nodes[usize::from(node)].slow = Some(Slow::new(prng, cost_mean));
    }

    /// A node that was slow is as quick as ever, and does what waits.
    pub(crate) fn quicken(&mut self, node: u8) {
        let this = &mut self.nodes[usize::from(node)];
        let Some(slow) = this.slow.take() else {
            return;
        };
        if this.paused {
            return;
        }
        let inbox = std::mem::take(&mut this.inbox);
        self.log(|| format!("n{node} is quick again, {} wait", inbox.len()));
        if let Some(wall_micros) = slow.tick {
            self.give(node, Cause::Tick { wall_micros });
        }
        for cause in inbox {
            self.give(node, cause);
        }
    }

    /// A tick of a node that does not stand still.
    pub(super) fn tick(&mut self, node: u8, wall_micros: u64) {
        let now = self.queue.now();
        let this = &mut self.nodes[usize::from(node)];
        match &mut this.slow {
            Some(slow) if slow.busy_until > now || slow.woken => {
                self.counters.add(
                    "ticks that a slow node missed",
                    u64::from(slow.tick.is_some()),
                );
                slow.tick = Some(wall_micros);
                self.wake_slow(node);
            }
            Some(_) => self.step_slowly(node, Cause::Tick { wall_micros }),
            None => {
                self.step(node, Cause::Tick { wall_micros });
                self.stop_if_flushed(node);
            }
        }
    }

    /// Something for a slow node: done now if there is time, later if not.
    pub(super) fn step_slowly(&mut self, node: u8, cause: Cause) {
        let now = self.queue.now();
        let this = &mut self.nodes[usize::from(node)];
        let Some(slow) = &mut this.slow else {
            return self.step(node, cause);
        };
        if slow.busy_until > now || slow.woken {
            let is_frame = matches!(cause, Cause::Frame { .. });
            if is_frame && this.inbox.len() >= INBOX_MAX {
                self.counters.add("frames a slow node had no room for", 1);
                return;
            }
            self.counters.add("inputs that waited for a slow node", 1);
            this.inbox.push_back(cause);
            return self.wake_slow(node);
        }
        slow.busy_until = now + slow.prng.exponential(slow.cost_mean);
        let is_tick = matches!(cause, Cause::Tick { .. });
        self.step(node, cause);
        if is_tick {
            self.stop_if_flushed(node);
        }
    }

    fn wake_slow(&mut self, node: u8) {
        let now = self.queue.now();
        let this = &mut self.nodes[usize::from(node)];
        let boot = this.boot;
        if let Some(slow) = &mut this.slow
            && !slow.woken
        {
            slow.woken = true;
            let due = slow.busy_until.max(now);
            self.queue.schedule(due, Event::Work { node, boot });
        }
    }

    /// A slow node has time for the next thing.
    pub(super) fn work(&mut self, node: u8, boot: u32) {
        let this = &mut self.nodes[usize::from(node)];
        let Some(slow) = this.slow.as_mut().filter(|_| this.boot == boot) else {
            return;
        };
        slow.woken = false;
        if this.paused || this.machine.is_none() {
            return;
        }
        if let Some(cause) = slow.next(&mut this.inbox) {
            self.step_slowly(node, cause);
        }
        let this = &self.nodes[usize::from(node)];
        let waits = this.slow.as_ref().is_some_and(|slow| slow.tick.is_some());
        if waits || !this.inbox.is_empty() {
            self.wake_slow(node);
        }
    }
}
