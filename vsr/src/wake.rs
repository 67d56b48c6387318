//! Which of many replicas a tick is for.
//!
//! A host of thousands of groups must not visit each of them every 10 ms to learn that nothing is
//! due. Each group therefore names the next tick on which it must be called
//! ([`Replica::ticks_to_wake`](crate::Replica::ticks_to_wake)), and the host calls nobody else.
//! The ticks between are made up for with [`Replica::skip_ticks`](crate::Replica::skip_ticks)
//! before the next call.
//!
//! A wheel of slots, one per tick of the near future, and an ordered map for what lies further
//! ahead. A tick on which nothing is due looks at one slot, however many groups wait. The wheel
//! keeps nothing else, no place to look a key up: with tens of thousands of groups each look-up
//! would wait for memory. What it filed it brings up once, and the owner of a key remembers the
//! tick that counts:
//!
//! - A deadline that is put off, as every heartbeat does to a backup, need not be filed again. The
//!   key comes up at the old tick, early, and is filed again then.
//! - A deadline that is moved forward is filed again, and what comes up at the old tick is to be
//!   passed over.

use std::collections::BTreeMap;

/// Ticks the wheel covers: more than any interval of the default timers, so that what is far is
/// rare.
const SLOTS: u64 = 1024;

/// Keys by the tick under which they were filed.
#[derive(Clone, Debug)]
pub struct WakeWheel<K> {
    /// Everything up to here was taken.
    now: u64,
    near: Vec<Vec<K>>,
    far: BTreeMap<u64, Vec<K>>,
}

impl<K: Copy + Ord> Default for WakeWheel<K> {
    fn default() -> Self {
        Self {
            now: 0,
            near: (0..SLOTS).map(|_| Vec::new()).collect(),
            far: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> WakeWheel<K> {
    /// Brings `key` up on tick `at`. A tick that is over means the next.
    pub fn set(&mut self, key: K, at: u64) {
        let at = at.max(self.now.saturating_add(1));
        if at - self.now < SLOTS {
            self.near[(at % SLOTS) as usize].push(key);
        } else {
            self.far.entry(at).or_default().push(key);
        }
    }

    /// Takes what was filed under the ticks up to `now`: each key once, ascending.
    pub fn take(&mut self, now: u64) -> Vec<K> {
        let mut due = Vec::new();
        let from = self.now.saturating_add(1);
        if from > now {
            return due;
        }
        self.now = now;
        let last = now.min(from.saturating_add(SLOTS - 1));
        for tick in from..=last {
            due.append(&mut self.near[(tick % SLOTS) as usize]);
        }
        while let Some(first) = self.far.first_entry().filter(|first| *first.key() <= now) {
            due.extend(first.remove());
        }
        due.sort_unstable();
        due.dedup();
        due
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Prng;

    #[test]
    fn keys_come_up_at_their_tick_once_and_in_order() {
        let mut wheel = WakeWheel::default();
        wheel.set(2, 5);
        wheel.set(1, 5);
        wheel.set(3, 9);
        wheel.set(3, 4);
        wheel.set(2, 5);
        assert!(wheel.take(3).is_empty());
        assert_eq!(wheel.take(5), [1, 2, 3]);
        assert_eq!(wheel.take(9), [3]);
        wheel.set(4, 2);
        assert_eq!(wheel.take(10), [4], "a tick that is over means the next");
        assert!(wheel.take(100_000).is_empty());
    }

    /// Against the plainest schedule there is.
    #[test]
    fn wheel_is_an_ordered_set_of_deadlines() {
        for seed in 1..=50 {
            let mut prng = Prng::new(seed);
            let mut wheel = WakeWheel::default();
            let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
            let mut now = 0;
            for _ in 0..3000 {
                let key = prng.up_to(20);
                if prng.up_to(9) < 7 {
                    let reach = [3, 60, 1030, 5000][prng.up_to(3) as usize];
                    let at = (now + prng.up_to(reach)).max(now + 1);
                    model.insert((at, key));
                    wheel.set(key, at);
                } else {
                    now += [1, 1, 1, 40, 3000][prng.up_to(4) as usize];
                    let due: BTreeSet<u64> = model
                        .iter()
                        .filter(|(at, _)| *at <= now)
                        .map(|(_, key)| *key)
                        .collect();
                    model.retain(|(at, _)| *at > now);
                    let due: Vec<u64> = due.into_iter().collect();
                    assert_eq!(wheel.take(now), due, "seed {seed} tick {now}");
                }
            }
        }
    }
}
