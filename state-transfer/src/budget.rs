//! How many groups of a plane may pull at once.
//!
//! A group that only looks at what a peer would offer takes no place. It needs one when it goes
//! on to take it.
//!
//! Pulls are counted anew in every tick from what the pullers report, so a group that is closed
//! in the middle of a transfer can not leak its place.

/// The ceiling shared by the pullers of a plane.
#[derive(Clone, Debug)]
pub struct PullBudget {
    pulls_max: u32,
    live: u32,
    noted: u32,
    started: u32,
}

impl PullBudget {
    /// At most `pulls_max` transfers at once, at least one.
    #[must_use]
    pub fn new(pulls_max: u32) -> Self {
        Self {
            pulls_max: pulls_max.max(1),
            live: 0,
            noted: 0,
            started: 0,
        }
    }

    /// No ceiling, for a plane of one group.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u32::MAX)
    }

    /// Opens a tick. Called once, before the pullers of the plane are ticked.
    pub fn begin_tick(&mut self) {
        self.live = self.noted;
        self.noted = 0;
        self.started = 0;
    }

    /// Transfers under way, as far as known.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.saturating_add(self.started)
    }

    /// Whether a transfer may start; counts it if so.
    pub(crate) fn try_start(&mut self) -> bool {
        let may = self.live() < self.pulls_max;
        if may {
            self.started += 1;
        }
        may
    }

    /// A transfer that was under way at the end of its tick.
    pub(crate) fn note_live(&mut self) {
        self.noted = self.noted.saturating_add(1);
    }
}

impl Default for PullBudget {
    fn default() -> Self {
        Self::new(crate::limits::PULLS_MAX_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_counts_live_and_started_pulls() {
        let mut budget = PullBudget::new(2);
        budget.begin_tick();
        assert!(budget.try_start() && budget.try_start() && !budget.try_start());
        budget.note_live();
        budget.note_live();
        budget.begin_tick();
        assert!(!budget.try_start());
        budget.note_live();
        budget.begin_tick();
        assert!(budget.try_start(), "one ended");
    }
}
