//! How many elections are under way at once.
//!
//! A node holds thousands of groups. When all of them lose their primary at once, or are opened
//! after a restart of all nodes, an election each at the same time is more than the nodes can
//! carry out before the timers of these elections expire: votes are sent again because of the
//! crowd alone, the next views begin before the last ones have, and nothing ever ends. So
//! elections stand in line. A window of them is under way, and the next begins when one has
//! ended, so that a node begins no more than the nodes together complete, whatever they can
//! carry. The window closes by half when elections last so long that their votes are sent again,
//! and opens by one with each that was over before.
//!
//! The line is in the order of the groups' ids, which is the same on all nodes, so that those of
//! one group ask at about the same time. An election that cannot end, because too many of its
//! replicas are away, must not keep others waiting: after a while it no longer counts. And where
//! a peer is away, restarted groups ask for so long that nobody answers; questions are cheap, so
//! then as many begin on each tick.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use biplane_vsr::Begins;
use biplane_wire::GroupId;

/// Elections under way: at first and at most, and at least.
const WINDOW_MAX: usize = 512;
const WINDOW_MIN: usize = 64;
/// Ticks after which votes are about to be sent again: an election that is not over by then
/// waits for others, not for its own messages.
const SLOW_TICKS: u64 = 40;
/// Ticks after which an election no longer counts.
const PATIENCE_TICKS: u64 = 100;
/// Groups that ask on one tick where an answer of all is not to be expected.
const QUESTIONS_PER_TICK: u32 = 48;

/// The line, and the window.
#[derive(Debug)]
pub(crate) struct Pace {
    window: usize,
    /// Groups with an election under way, by the tick on which it began here.
    under_way: BTreeMap<GroupId, u64>,
    /// The same in the order in which they began; what is filed under another tick is over.
    begun: VecDeque<(u64, GroupId)>,
    /// When the window was made smaller last.
    narrowed_at: u64,
    line: BTreeSet<GroupId>,
    /// Questions of this tick that are not counted in the window.
    tick: u64,
    questions: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: WINDOW_MAX,
            under_way: BTreeMap::new(),
            begun: VecDeque::new(),
            narrowed_at: 0,
            line: BTreeSet::new(),
            tick: 0,
            questions: 0,
        }
    }
}

impl Pace {
    /// Whether a group may begin now; it stands in line otherwise. `is_complete`: all peers are
    /// connected.
    pub(crate) fn admit(
        &mut self,
        group: GroupId,
        begins: Begins,
        is_complete: bool,
        now: u64,
    ) -> bool {
        let is_free = begins == Begins::Question && !is_complete;
        let may = if is_free {
            self.questions < QUESTIONS_PER_TICK
        } else {
            self.under_way.len() < self.window
        };
        if !may {
            self.line.insert(group);
            return false;
        }
        self.line.remove(&group);
        if is_free {
            self.questions += 1;
        } else {
            self.under_way.insert(group, now);
            self.begun.push_back((now, group));
        }
        true
    }

    /// The group has a primary, as far as this node can tell.
    pub(crate) fn ended(&mut self, group: GroupId, now: u64) {
        self.line.remove(&group);
        let began = self.under_way.remove(&group);
        if began.is_some_and(|began| now < began + SLOW_TICKS) {
            self.window = (self.window + 1).min(WINDOW_MAX);
        }
    }

    /// Whether a group stands in line.
    pub(crate) fn has_in_line(&self, group: GroupId) -> bool {
        self.line.contains(&group)
    }

    /// The group is gone, or has no reason to begin any more.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.line.remove(&group);
        self.under_way.remove(&group);
    }

    /// A tick: those at the head of the line for whom there may be room. They ask again to be
    /// admitted.
    pub(crate) fn next_in_line(&mut self, now: u64) -> Vec<GroupId> {
        (self.tick, self.questions) = (now, 0);
        self.look_at_slow_ones();
        if self.line.is_empty() {
            return Vec::new();
        }
        let room = self.window.saturating_sub(self.under_way.len());
        let many = room.max(QUESTIONS_PER_TICK as usize);
        let next: Vec<GroupId> = self.line.iter().copied().take(many).collect();
        for group in &next {
            self.line.remove(group);
        }
        next
    }

    /// Elections that last too long close the window, and at last leave it.
    fn look_at_slow_ones(&mut self) {
        while let Some((began, group)) = self.begun.front().copied() {
            let is_over = self.under_way.get(&group) != Some(&began);
            if !is_over && self.tick < began + SLOW_TICKS {
                return;
            }
            if !is_over && self.tick >= self.narrowed_at + SLOW_TICKS {
                self.narrowed_at = self.tick;
                self.window = (self.window / 2).max(WINDOW_MIN);
            }
            if !is_over && self.tick < began + PATIENCE_TICKS {
                return;
            }
            self.begun.pop_front();
            if !is_over {
                self.under_way.remove(&group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: usize) -> GroupId {
        GroupId::partition(1, 1, u32::try_from(id).expect("small")).expect("a small id")
    }

    /// One tick: those in line ask again.
    fn tick(pace: &mut Pace, begins: Begins, is_complete: bool, now: u64) -> Vec<GroupId> {
        let next = pace.next_in_line(now);
        let admitted = next.into_iter();
        admitted
            .filter(|group| pace.admit(*group, begins, is_complete, now))
            .collect()
    }

    #[test]
    fn the_next_begins_when_one_has_ended_and_in_the_order_of_ids() {
        let mut pace = Pace::default();
        let ids = (0..2000).rev();
        let begun = ids
            .filter(|id| pace.admit(group(*id), Begins::Election, true, 1))
            .count();
        assert_eq!(begun, WINDOW_MAX);
        assert!(tick(&mut pace, Begins::Election, true, 2).is_empty());
        for id in 1990..1995 {
            pace.ended(group(id), 2);
        }
        let next = tick(&mut pace, Begins::Election, true, 3);
        assert_eq!(next, (0..5).map(group).collect::<Vec<_>>());
    }

    #[test]
    fn slow_elections_close_the_window_and_quick_ones_open_it_again() {
        let mut pace = Pace::default();
        for id in 0..3000 {
            pace.admit(group(id), Begins::Election, true, 1);
        }
        for now in 2..=SLOW_TICKS {
            pace.next_in_line(now);
        }
        assert_eq!(pace.window, WINDOW_MAX);
        // All of them are slow, and that is one observation.
        assert!(tick(&mut pace, Begins::Election, true, 1 + SLOW_TICKS).is_empty());
        assert_eq!(pace.window, WINDOW_MAX / 2);
        (0..WINDOW_MAX).for_each(|id| pace.ended(group(id), 50));
        assert_eq!(pace.window, WINDOW_MAX / 2, "they were slow");
        let next = tick(&mut pace, Begins::Election, true, 51);
        assert_eq!(next.len(), WINDOW_MAX / 2);
        next.iter().for_each(|group| pace.ended(*group, 52));
        assert_eq!(pace.window, WINDOW_MAX);
    }

    #[test]
    fn what_cannot_end_does_not_keep_others_waiting() {
        let mut pace = Pace::default();
        for id in 0..1000 {
            pace.admit(group(id), Begins::Election, true, 1);
        }
        let mut begun = 0;
        for now in 2..=20 * PATIENCE_TICKS {
            begun += tick(&mut pace, Begins::Election, true, now).len();
        }
        assert_eq!(begun, 1000 - WINDOW_MAX, "all of them had their turn");
        assert_eq!(pace.window, WINDOW_MIN);
        assert!(pace.begun.is_empty() && pace.under_way.is_empty());
    }

    #[test]
    fn questions_that_nobody_may_answer_begin_at_a_fixed_rate() {
        let mut pace = Pace::default();
        pace.next_in_line(1);
        let begun = (0..1000)
            .filter(|id| pace.admit(group(*id), Begins::Question, false, 1))
            .count();
        assert_eq!(begun, QUESTIONS_PER_TICK as usize);
        let next = tick(&mut pace, Begins::Question, false, 2);
        assert_eq!(next.len(), QUESTIONS_PER_TICK as usize);
        assert!(pace.under_way.is_empty());
    }

    #[test]
    fn a_group_that_is_gone_or_has_a_primary_leaves_line_and_window() {
        let mut pace = Pace::default();
        for id in 0..WINDOW_MAX + 3 {
            pace.admit(group(id), Begins::Election, true, 1);
        }
        pace.forget(group(WINDOW_MAX));
        pace.ended(group(WINDOW_MAX + 1), 1);
        pace.forget(group(0));
        pace.forget(group(1));
        let next = tick(&mut pace, Begins::Election, true, 2);
        assert_eq!(next, [group(WINDOW_MAX + 2)]);
    }
}
