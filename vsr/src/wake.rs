//! Which of many replicas a tick is for.
//!
//! A host of thousands of groups must not visit each of them every 10 ms to learn that nothing is
//! due. Each group therefore names the next tick on which it must be called
//! ([`Replica::ticks_to_wake`](crate::Replica::ticks_to_wake)), and the host calls nobody else.
//! The ticks between are made up for with [`Replica::skip_ticks`](crate::Replica::skip_ticks)
//! before the next call.
//!
//! A wheel of slots, one per tick of the near future, and an ordered map for what lies further
//! ahead. A tick on which nothing is due looks at one slot, however many groups wait. A deadline
//! that is put off, as every heartbeat does to a backup, costs one look-up: the entry stays
//! where it is and moves on when its old slot comes up.

use std::collections::BTreeMap;

/// Ticks the wheel covers: more than any interval of the default timers, so that what is far is
/// rare.
const SLOTS: u64 = 1024;

/// When a key is to be called, and where it is filed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    /// The tick under which the key is filed, at most `at`. What is filed for it elsewhere is
    /// left over.
    filed: u64,
}

/// Keys by the tick they wait for.
#[derive(Clone, Debug)]
pub struct WakeWheel<K> {
    /// Everything up to here was taken.
    now: u64,
    near: Vec<Vec<K>>,
    far: BTreeMap<u64, Vec<K>>,
    entries: BTreeMap<K, Entry>,
    /// Keys whose place came up and that wait for a later tick. Empty between calls.
    postponed: Vec<(K, u64)>,
}

impl<K: Copy + Ord> Default for WakeWheel<K> {
    fn default() -> Self {
        Self {
            now: 0,
            near: (0..SLOTS).map(|_| Vec::new()).collect(),
            far: BTreeMap::new(),
            entries: BTreeMap::new(),
            postponed: Vec::new(),
        }
    }
}

impl<K: Copy + Ord> WakeWheel<K> {
    /// Calls `key` on tick `at`, and on no earlier one. A tick that is over means the next.
    pub fn set(&mut self, key: K, at: u64) {
        let at = at.max(self.now.saturating_add(1));
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.at = at;
            if entry.filed <= at {
                return;
            }
            entry.filed = at;
        } else {
            self.entries.insert(key, Entry { at, filed: at });
        }
        self.file(key, at);
    }

    /// Calls `key` no more.
    pub fn remove(&mut self, key: K) {
        self.entries.remove(&key);
    }

    /// Number of keys that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the keys that are due at `now`, ascending. They wait for nothing until they are
    /// set again.
    pub fn take(&mut self, now: u64) -> Vec<K> {
        let mut due = Vec::new();
        let from = self.now.saturating_add(1);
        if from > now {
            return due;
        }
        self.now = now;
        let last = now.min(from.saturating_add(SLOTS - 1));
        for tick in from..=last {
            let slot = (tick % SLOTS) as usize;
            if !self.near[slot].is_empty() {
                let mut keys = std::mem::take(&mut self.near[slot]);
                keys.drain(..).for_each(|key| self.visit(key, &mut due));
                self.near[slot] = keys;
            }
        }
        while let Some(first) = self.far.first_entry().filter(|first| *first.key() <= now) {
            let keys = first.remove();
            keys.into_iter().for_each(|key| self.visit(key, &mut due));
        }
        // Only now: a slot filled on the way could be one that is still to be looked at.
        let mut postponed = std::mem::take(&mut self.postponed);
        postponed.drain(..).for_each(|(key, at)| self.file(key, at));
        self.postponed = postponed;
        due.sort_unstable();
        due
    }

    /// A key's place came up: it is due, waits for a later tick, or was left over.
    fn visit(&mut self, key: K, due: &mut Vec<K>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.filed > self.now {
            return;
        }
        if entry.at <= self.now {
            self.entries.remove(&key);
            due.push(key);
            return;
        }
        entry.filed = entry.at;
        self.postponed.push((key, entry.at));
    }

    fn file(&mut self, key: K, at: u64) {
        if at - self.now < SLOTS {
            self.near[(at % SLOTS) as usize].push(key);
        } else {
            self.far.entry(at).or_default().push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Prng;

    #[test]
    fn keys_come_up_once_at_their_tick_and_in_order() {
        let mut wheel = WakeWheel::default();
        wheel.set(2, 5);
        wheel.set(1, 5);
        wheel.set(3, 9);
        wheel.set(3, 4);
        wheel.set(4, 5);
        wheel.remove(4);
        assert_eq!(wheel.len(), 3);
        assert!(wheel.take(3).is_empty());
        assert_eq!(wheel.take(5), [1, 2, 3]);
        assert!(wheel.take(100_000).is_empty() && wheel.is_empty());
    }

    #[test]
    fn a_deadline_put_off_again_and_again_comes_up_once_at_the_last() {
        let mut wheel = WakeWheel::default();
        for now in 0..10_000 {
            wheel.set(7, now + 500);
            assert!(wheel.take(now + 1).is_empty());
        }
        assert_eq!(
            (10_001..20_000).find(|now| !wheel.take(*now).is_empty()),
            Some(10_499)
        );
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
                match prng.up_to(9) {
                    0..=5 => {
                        let reach = [3, 60, 1030, 5000][prng.up_to(3) as usize];
                        let at = (now + prng.up_to(reach)).max(now + 1);
                        model.retain(|(_, known)| *known != key);
                        model.insert((at, key));
                        wheel.set(key, at);
                    }
                    6 => {
                        model.retain(|(_, known)| *known != key);
                        wheel.remove(key);
                    }
                    _ => {
                        now += [1, 1, 1, 40, 3000][prng.up_to(4) as usize];
                        let mut due: Vec<u64> = model
                            .iter()
                            .filter(|(at, _)| *at <= now)
                            .map(|(_, key)| *key)
                            .collect();
                        due.sort_unstable();
                        model.retain(|(at, _)| *at > now);
                        assert_eq!(wheel.take(now), due, "seed {seed} tick {now}");
                    }
                }
                assert_eq!(wheel.len(), model.len(), "seed {seed}");
            }
        }
    }
}
