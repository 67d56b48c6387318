//! Is there an order? A checker of linearizability for recorded histories.
//!
//! A history is a set of operations, each with the time it was called, the time it returned, if
//! it did, and what it returned. It is linearizable when the operations can be put in an order
//! that a sequential [`Model`] accepts and in which nothing comes before what had returned when
//! it was called. An operation without a return may have taken effect at any time after its
//! call, or never.
//!
//! The search is that of Wing and Gong with the memory of Lowe: depth first over the operations
//! that may come next, and never twice from the same set of done operations and the same state.

use std::collections::HashSet;
use std::hash::Hash;

/// A sequential specification.
pub trait Model {
    /// State of the object.
    type State: Clone + Eq + Hash;
    /// What is asked.
    type Asked;
    /// What is told.
    type Told;

    /// The state in the beginning.
    fn initial(&self) -> Self::State;

    /// The state after the operation, if it may return this in that state; `None` for `told`
    /// means that nobody heard the answer.
    fn step(
        &self,
        state: &Self::State,
        asked: &Self::Asked,
        told: Option<&Self::Told>,
    ) -> Option<Self::State>;
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<A, T> {
    /// When it was called.
    pub called: u64,
    /// When it returned, and what; `None` while nobody knows.
    pub returned: Option<(u64, T)>,
    /// What was asked.
    pub asked: A,
}

/// What the checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An order exists.
    Linearizable,
    /// None exists. The index of an operation that can come at no place after the longest
    /// prefix that was found.
    Stuck {
        /// Operations in the longest order found.
        longest: usize,
        /// The first returned operation that was not in it.
        stuck: usize,
    },
    /// The budget ran out.
    Undecided,
}

/// A set of operations, by bits.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn toggle(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

/// Looks for an order, with at most `budget` attempts to place an operation.
pub fn check<M: Model>(
    model: &M,
    history: &[Operation<M::Asked, M::Told>],
    budget: u64,
) -> Finding {
    // By call: what may come next is then among the first that are not done.
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|&index| history[index].called);
    let returned = |index: usize| history[index].returned.as_ref().map(|(at, _)| *at);
    let owed = order.iter().filter(|&&index| returned(index).is_some());
    let owed = owed.count();
    let mut search = Search {
        model,
        history,
        order: &order,
        done: Done::new(history.len()),
        seen: HashSet::new(),
        budget,
        longest: (0, Done::new(history.len())),
    };
    // Depth is bounded by the history, and a stack of its own spares the thread's.
    let found = search.run(owed);
    match found {
        Some(true) => Finding::Linearizable,
        None => Finding::Undecided,
        Some(false) => {
            let (longest, done) = &search.longest;
            let stuck = order
                .iter()
                .copied()
                .find(|&index| returned(index).is_some() && !done.has(index));
            Finding::Stuck {
                longest: *longest,
                stuck: stuck.unwrap_or_default(),
            }
        }
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Operation<M::Asked, M::Told>],
    order: &'a [usize],
    done: Done,
    seen: HashSet<(Done, M::State)>,
    budget: u64,
    longest: (usize, Done),
}

/// One level of the search: the state, the candidates, which is tried next, which was taken to
/// get here.
struct Level<S> {
    state: S,
    candidates: Vec<usize>,
    next: usize,
    taken: Option<usize>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self, owed: usize) -> Option<bool> {
        let mut paid = 0;
        let state = self.model.initial();
        let candidates = self.candidates();
        let mut stack = vec![Level {
            state,
            candidates,
            next: 0,
            taken: None,
        }];
        loop {
            if paid == owed {
                return Some(true);
            }
            let Some(level) = stack.last_mut() else {
                return Some(false);
            };
            let Some(&index) = level.candidates.get(level.next) else {
                let taken = stack.pop().and_then(|level| level.taken);
                if let Some(index) = taken {
                    self.done.toggle(index);
                    paid -= usize::from(self.history[index].returned.is_some());
                }
                continue;
            };
            level.next += 1;
            if self.budget == 0 {
                return None;
            }
            self.budget -= 1;
            let operation = &self.history[index];
            let told = operation.returned.as_ref().map(|(_, told)| told);
            let Some(state) = self.model.step(&level.state, &operation.asked, told) else {
                continue;
            };
            self.done.toggle(index);
            if !self.seen.insert((self.done.clone(), state.clone())) {
                self.done.toggle(index);
                continue;
            }
            paid += usize::from(operation.returned.is_some());
            if paid > self.longest.0 {
                self.longest = (paid, self.done.clone());
            }
            let candidates = self.candidates();
            stack.push(Level {
                state,
                candidates,
                next: 0,
                taken: Some(index),
            });
        }
    }

    /// What may come next: called before the first return among what is not done.
    fn candidates(&self) -> Vec<usize> {
        let mut first_return = u64::MAX;
        let mut found = Vec::new();
        for &index in self.order {
            if self.done.has(index) {
                continue;
            }
            let operation = &self.history[index];
            if operation.called > first_return {
                break;
            }
            found.push(index);
            if let Some((at, _)) = operation.returned {
                first_return = first_return.min(at);
            }
        }
        found.retain(|&index| self.history[index].called <= first_return);
        // What returned is tried first: most orders need no help from the unknown.
        found.sort_by_key(|&index| {
            self.history[index]
                .returned
                .as_ref()
                .map_or(u64::MAX, |it| it.0)
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: write, or read what was written last.
    struct Register;

    #[derive(Clone, Debug)]
    enum Asked {
        Write(u32),
        Read,
    }

    impl Model for Register {
        type State = u32;
        type Asked = Asked;
        type Told = u32;

        fn initial(&self) -> u32 {
            0
        }

        fn step(&self, state: &u32, asked: &Asked, told: Option<&u32>) -> Option<u32> {
            match asked {
                Asked::Write(value) => Some(*value),
                Asked::Read => told.is_none_or(|told| told == state).then_some(*state),
            }
        }
    }

    fn op(called: u64, returned: Option<u64>, asked: Asked, told: u32) -> Operation<Asked, u32> {
        Operation {
            called,
            returned: returned.map(|at| (at, told)),
            asked,
        }
    }

    fn finding(history: &[Operation<Asked, u32>]) -> Finding {
        check(&Register, history, 10_000)
    }

    #[test]
    fn overlapping_operations_may_come_in_either_order() {
        for seen in [0, 1] {
            let history = [
                op(0, Some(10), Asked::Write(1), 0),
                op(5, Some(6), Asked::Read, seen),
            ];
            assert_eq!(finding(&history), Finding::Linearizable, "{seen}");
        }
    }

    #[test]
    fn a_read_of_the_past_is_found() {
        let history = [
            op(0, Some(1), Asked::Write(1), 0),
            op(2, Some(3), Asked::Read, 0),
        ];
        let stuck = Finding::Stuck {
            longest: 1,
            stuck: 1,
        };
        assert_eq!(finding(&history), stuck);
    }

    #[test]
    fn reads_that_contradict_each_other_are_found() {
        let history = [
            op(0, Some(100), Asked::Write(1), 0),
            op(1, Some(2), Asked::Read, 1),
            op(3, Some(4), Asked::Read, 0),
        ];
        assert!(matches!(finding(&history), Finding::Stuck { .. }));
    }

    #[test]
    fn an_unanswered_write_may_have_happened_late_or_never() {
        let late = [
            op(0, None, Asked::Write(1), 0),
            op(1, Some(2), Asked::Read, 0),
            op(3, Some(4), Asked::Read, 1),
        ];
        assert_eq!(finding(&late), Finding::Linearizable);
        let never = [
            op(0, None, Asked::Write(1), 0),
            op(1, Some(2), Asked::Read, 0),
        ];
        assert_eq!(finding(&never), Finding::Linearizable);
        let twice = [
            op(0, None, Asked::Write(1), 0),
            op(1, Some(2), Asked::Read, 1),
            op(3, Some(4), Asked::Read, 0),
        ];
        assert!(matches!(finding(&twice), Finding::Stuck { .. }));
    }

    #[test]
    fn a_budget_ends_a_long_search() {
        let history: Vec<_> = (0..12)
            .map(|value| op(0, Some(100), Asked::Write(value), 0))
            .chain([op(101, Some(102), Asked::Read, 99)])
            .collect();
        assert_eq!(check(&Register, &history, 1000), Finding::Undecided);
    }
}
