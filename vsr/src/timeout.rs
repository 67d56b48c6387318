//! Tick counters of one group (chapter 03 section 5).
//!
//! Deadlines are absolute ticks, so a tick on which nothing is due costs one comparison however
//! many timers run: thousands of idle groups share one processor. A timer that has expired and
//! was neither started again nor stopped stays expired on every later tick.

use crate::constants::BACKOFF_EXPONENT_MAX;
use crate::prng::Prng;

/// The timers of a replica, in the order in which a tick serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerName {
    /// No word from the primary.
    Heartbeat,
    /// Send StartViewChange again.
    StartViewChange,
    /// Send the vote again.
    DoViewChange,
    /// Send unacknowledged prepares again.
    Prepare,
    /// Broadcast the commit point.
    Commit,
    /// Probe for the current view.
    Probe,
    /// The view change takes too long.
    ViewChangeStatus,
}

impl TimerName {
    pub(crate) const ALL: [Self; 7] = [
        Self::Heartbeat,
        Self::StartViewChange,
        Self::DoViewChange,
        Self::Prepare,
        Self::Commit,
        Self::Probe,
        Self::ViewChangeStatus,
    ];
}

/// Not running.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Timer {
    interval: u32,
    deadline: u64,
    attempts: u32,
}

/// All timers of a replica, its tick counter, and the wall clock as of the last tick. What an
/// idle tick touches stands together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct TimerSet {
    now: u64,
    wall_micros: u64,
    /// No timer is due before this tick. May be early, never late.
    wake: u64,
    timers: [Timer; TimerName::ALL.len()],
}

impl TimerSet {
    /// Stopped timers with these intervals in ticks, in the order of [`TimerName::ALL`].
    pub(crate) fn new(intervals: [u32; TimerName::ALL.len()]) -> Self {
        let timers = intervals.map(|interval| {
            assert!(interval > 0, "an interval is at least one tick");
            Timer {
                interval,
                deadline: NEVER,
                attempts: 0,
            }
        });
        Self {
            now: 0,
            wall_micros: 0,
            wake: NEVER,
            timers,
        }
    }

    /// Lets one tick pass; whether anything may be due.
    #[inline]
    pub(crate) fn tick(&mut self, wall_micros: u64) -> bool {
        self.now += 1;
        self.wall_micros = wall_micros;
        self.now >= self.wake
    }

    /// The wall clock as last read.
    pub(crate) fn wall_micros(&self) -> u64 {
        self.wall_micros
    }

    pub(crate) fn set_wall_micros(&mut self, wall_micros: u64) {
        self.wall_micros = wall_micros;
    }

    /// Ticks until one may have an effect; at least one.
    pub(crate) fn ticks_to_wake(&self) -> u64 {
        self.wake.saturating_sub(self.now).max(1)
    }

    /// Lets ticks pass of which none has an effect.
    pub(crate) fn skip(&mut self, count: u64) {
        assert!(count < self.ticks_to_wake(), "a skipped tick has no effect");
        self.now += count;
    }

    /// The number of ticks so far.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Asks for a visit at tick `at` or earlier.
    pub(crate) fn wake_at(&mut self, at: u64) {
        self.wake = self.wake.min(at);
    }

    /// After the due timers were served: the next visit is for the earliest running one.
    pub(crate) fn settle(&mut self) {
        self.wake = self
            .timers
            .iter()
            .map(|timer| timer.deadline)
            .min()
            .unwrap_or(NEVER);
    }

    /// Full interval from now; forgets backoff.
    pub(crate) fn start(&mut self, name: TimerName) {
        let deadline = self.now + u64::from(self.timer(name).interval);
        let timer = self.timer_mut(name);
        timer.deadline = deadline;
        timer.attempts = 0;
        self.wake_at(deadline);
    }

    /// As [`TimerSet::start`], with an interval of its own this time.
    pub(crate) fn start_for(&mut self, name: TimerName, interval: u32) {
        self.start(name);
        self.timer_mut(name).deadline = self.now + u64::from(interval);
    }

    /// Due at some tick of the interval that begins now, on a running timer only.
    pub(crate) fn stagger(&mut self, name: TimerName, seed: u64) {
        if self.is_running(name) {
            let deadline = self.now + 1 + seed % u64::from(self.timer(name).interval);
            self.timer_mut(name).deadline = deadline;
            self.wake_at(deadline);
        }
    }

    /// Whether the timer has expired when the next tick has passed.
    pub(crate) fn is_due_next(&self, name: TimerName) -> bool {
        self.timer(name).deadline <= self.now + 1
    }

    /// Due after the full interval at the latest, on a running timer only.
    pub(crate) fn hasten(&mut self, name: TimerName) {
        let latest = self.now + u64::from(self.timer(name).interval);
        if self.is_running(name) && self.timer(name).deadline > latest {
            self.start(name);
        }
    }

    /// As [`TimerSet::start`], on a running timer only.
    pub(crate) fn reset(&mut self, name: TimerName) {
        if self.is_running(name) {
            self.start(name);
        }
    }

    pub(crate) fn stop(&mut self, name: TimerName) {
        self.timer_mut(name).deadline = NEVER;
    }

    /// Later and later, with jitter: doubling up to sixteen intervals, plus as much again at
    /// random, so that replicas that fell into step fall out of it.
    pub(crate) fn back_off(&mut self, name: TimerName, prng: &mut Prng) {
        let now = self.now;
        let timer = self.timer_mut(name);
        timer.attempts = timer.attempts.saturating_add(1);
        let base = u64::from(timer.interval) << timer.attempts.min(BACKOFF_EXPONENT_MAX);
        let deadline = now + base + prng.up_to(base);
        timer.deadline = deadline;
        self.wake_at(deadline);
    }

    pub(crate) fn is_running(&self, name: TimerName) -> bool {
        self.timer(name).deadline != NEVER
    }

    pub(crate) fn is_expired(&self, name: TimerName) -> bool {
        self.timer(name).deadline <= self.now
    }

    fn timer(&self, name: TimerName) -> &Timer {
        &self.timers[name as usize]
    }

    fn timer_mut(&mut self, name: TimerName) -> &mut Timer {
        &mut self.timers[name as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_until_due(set: &mut TimerSet, name: TimerName) -> u64 {
        let before = set.now();
        while !set.is_expired(name) {
            set.tick(0);
        }
        set.now() - before
    }

    #[test]
    fn timer_expires_after_its_interval_and_stays_expired() {
        let mut set = TimerSet::new([3; 7]);
        set.start(TimerName::Commit);
        assert!(!set.tick(0) && !set.tick(0));
        assert!(!set.is_expired(TimerName::Commit));
        assert!(set.tick(0));
        for _ in 0..5 {
            assert!(set.is_expired(TimerName::Commit));
            assert!(set.tick(0));
        }
        set.stop(TimerName::Commit);
        set.settle();
        assert!(!set.is_expired(TimerName::Commit));
        assert!(!set.tick(0));
    }

    #[test]
    fn reset_does_not_start_a_stopped_timer() {
        let mut set = TimerSet::new([2; 7]);
        set.reset(TimerName::Heartbeat);
        assert!(!set.is_running(TimerName::Heartbeat));
        set.start(TimerName::Heartbeat);
        set.tick(0);
        set.reset(TimerName::Heartbeat);
        assert_eq!(ticks_until_due(&mut set, TimerName::Heartbeat), 2);
    }

    /// Vector 17.15: at 25 ticks, firing k waits between b and 2b with b = 50, 100, 200, 400.
    #[test]
    fn backoff_doubles_four_times_with_jitter() {
        let mut prng = Prng::new(3);
        for _ in 0..50 {
            let mut set = TimerSet::new([25; 7]);
            set.start(TimerName::Prepare);
            assert_eq!(ticks_until_due(&mut set, TimerName::Prepare), 25);
            for base in [50, 100, 200, 400, 400, 400] {
                set.back_off(TimerName::Prepare, &mut prng);
                let waited = ticks_until_due(&mut set, TimerName::Prepare);
                assert!(
                    (base..=2 * base).contains(&waited),
                    "{waited} for base {base}"
                );
            }
            set.start(TimerName::Prepare);
            assert_eq!(ticks_until_due(&mut set, TimerName::Prepare), 25);
        }
    }

    #[test]
    fn a_timer_that_is_staggered_comes_within_its_interval_at_any_tick() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut set = TimerSet::new([25; 7]);
            set.start(TimerName::Probe);
            set.wake_at(1);
            set.stagger(TimerName::Probe, seed);
            set.stagger(TimerName::Commit, seed);
            assert!(!set.is_running(TimerName::Commit));
            seen.insert(ticks_until_due(&mut set, TimerName::Probe));
        }
        assert_eq!(seen, (1..=25).collect());
    }

    #[test]
    fn wake_is_never_later_than_a_deadline() {
        let mut set = TimerSet::new([5, 9, 4, 7, 3, 8, 6]);
        for name in TimerName::ALL {
            set.start(name);
        }
        assert_eq!((1..=3).find(|_| set.tick(0)), Some(3));
        set.start(TimerName::Commit);
        set.settle();
        assert!(set.tick(0), "the vote timer is due at tick 4");
        assert!(set.is_expired(TimerName::DoViewChange));
    }
}
