//! The event queue: what is due next, and in which order what is due at once.
//!
//! Events at the same nanosecond are ordered by a draw, so that no order is privileged; where
//! one must come before another (frames of one connection), whoever schedules them gives them
//! different times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::prng::Prng;
use crate::time::Nanos;

struct Entry<E> {
    key: Reverse<(Nanos, u32, u64)>,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Events by due time.
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    prng: Prng,
    sequence: u64,
    now: Nanos,
}

impl<E> EventQueue<E> {
    /// An empty queue at time zero.
    #[must_use]
    pub fn new(prng: Prng) -> Self {
        Self {
            heap: BinaryHeap::new(),
            prng,
            sequence: 0,
            now: 0,
        }
    }

    /// The time of the event taken last.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Lets `event` happen at `due`, at the earliest now.
    pub fn schedule(&mut self, due: Nanos, event: E) {
        let tie = self.prng.below(1 << 32) as u32;
        let key = Reverse((due.max(self.now), tie, self.sequence));
        self.sequence += 1;
        self.heap.push(Entry { key, event });
    }

    /// Takes the next event and moves time to it.
    pub fn pop(&mut self) -> Option<E> {
        let entry = self.heap.pop()?;
        self.now = entry.key.0.0;
        Some(entry.event)
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.heap.peek().map(|entry| entry.key.0.0)
    }

    /// Number of events waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_time_jumps() {
        let mut queue = EventQueue::new(Prng::new(1));
        queue.schedule(30, 'c');
        queue.schedule(10, 'a');
        queue.schedule(20, 'b');
        assert_eq!(queue.pop(), Some('a'));
        assert_eq!(queue.now(), 10);
        queue.schedule(5, 'd');
        assert_eq!(queue.pop(), Some('d'));
        assert_eq!(queue.now(), 10);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some('b'), Some('c'), None]
        );
    }

    #[test]
    fn order_of_simultaneous_events_depends_on_the_seed() {
        let order = |seed| {
            let mut queue = EventQueue::new(Prng::new(seed));
            (0..8).for_each(|event| queue.schedule(1, event));
            std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)));
    }
}
