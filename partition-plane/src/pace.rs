//! How many groups begin an election on one tick.
//!
//! A node holds thousands of groups. When all of them lose their primary at once, or are opened
//! after a restart of all nodes, an election each at the same time is more than the nodes can
//! carry out before the timers of these elections expire, and the next views begin before the
//! last ones have: nothing ever ends. So elections begin in turns. All nodes open their groups in
//! the same order, so that those of one group ask at about the same time.

/// Groups that begin on one tick of 10 ms.
const GROUPS_PER_TICK: u32 = 48;

/// The turns.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The last tick that was given out to a restarted group, and how often.
    turn: u64,
    taken: u32,
    /// Backups that gave up their primaries on this tick.
    tick: u64,
    elections: u32,
}

impl Pace {
    /// How many ticks from `now` the turn of a group comes that was restarted.
    pub(crate) fn turn(&mut self, now: u64) -> u64 {
        if self.turn < now {
            (self.turn, self.taken) = (now, 0);
        } else if self.taken == GROUPS_PER_TICK {
            (self.turn, self.taken) = (self.turn + 1, 0);
        }
        self.taken += 1;
        self.turn - now
    }

    /// Whether one more backup may give up its primary on this tick.
    pub(crate) fn may_elect(&mut self, now: u64) -> bool {
        if self.tick != now {
            (self.tick, self.elections) = (now, 0);
        }
        self.elections += 1;
        self.elections <= GROUPS_PER_TICK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_given_out_in_order_and_begin_anew_when_all_are_over() {
        let mut pace = Pace::default();
        let turns: Vec<u64> = (0..200).map(|_| pace.turn(7)).collect();
        assert_eq!((turns[0], turns[47], turns[48], turns[199]), (0, 0, 1, 4));
        assert_eq!(pace.turn(8), 3, "the place in line is kept");
        assert_eq!(pace.turn(100), 0);
    }

    #[test]
    fn so_many_elections_begin_on_a_tick_and_the_others_on_later_ones() {
        let mut pace = Pace::default();
        for now in [3, 4] {
            let begun = (0..1000).filter(|_| pace.may_elect(now)).count();
            assert_eq!(begun, GROUPS_PER_TICK as usize);
        }
    }
}
