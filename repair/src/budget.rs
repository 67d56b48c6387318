//! How much repair may run at once over the many groups of a plane.
//!
//! After an outage every partition of a node is behind at the same time. Without a ceiling each
//! would ask for a chunk in the same tick, the queues to the peers would overflow, and most of
//! what was served would be dropped on the way.
//!
//! Live sessions are counted anew in every tick from what the requesters report, so a group
//! that is closed or dropped in the middle of a session can not leak its place.

/// The ceiling shared by the requesters of a plane.
#[derive(Clone, Debug)]
pub struct Budget {
    live_max: u32,
    arm_per_tick_max: u32,
    live: u32,
    noted: u32,
    armed: u32,
    denied: bool,
    denied_before: bool,
}

impl Budget {
    /// At most `live_max` sessions at once, of which at most `arm_per_tick_max` start in the
    /// same tick. Both at least one.
    #[must_use]
    pub fn new(live_max: u32, arm_per_tick_max: u32) -> Self {
        Self {
            live_max: live_max.max(1),
            arm_per_tick_max: arm_per_tick_max.max(1),
            live: 0,
            noted: 0,
            armed: 0,
            denied: false,
            denied_before: false,
        }
    }

    /// No ceiling, for a plane of one group.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u32::MAX, u32::MAX)
    }

    /// Opens a tick. Called once, before the requesters of the plane are ticked.
    pub fn begin_tick(&mut self) {
        self.live = self.noted;
        self.noted = 0;
        self.armed = 0;
        self.denied_before = self.denied;
        self.denied = false;
    }

    /// Sessions that live now, as far as known.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.saturating_add(self.armed)
    }

    /// Whether a session may start; counts it if so.
    pub(crate) fn try_arm(&mut self) -> bool {
        if self.armed >= self.arm_per_tick_max || self.live() >= self.live_max {
            self.denied = true;
            return false;
        }
        self.armed += 1;
        true
    }

    /// A primary-elect may always start: a whole group waits for it.
    pub(crate) fn arm_urgent(&mut self) {
        self.armed = self.armed.saturating_add(1);
    }

    /// A session that was live at the end of its tick.
    pub(crate) fn note_live(&mut self) {
        self.noted = self.noted.saturating_add(1);
    }

    /// Whether some group was turned away lately, so that one without luck should step back.
    pub(crate) fn is_contended(&self) -> bool {
        self.denied || self.denied_before
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(
            crate::limits::SESSIONS_LIVE_MAX_DEFAULT,
            crate::limits::SESSIONS_ARMED_PER_TICK_MAX_DEFAULT,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_arms_no_more_than_its_share() {
        let mut budget = Budget::new(10, 2);
        budget.begin_tick();
        assert!(budget.try_arm() && budget.try_arm() && !budget.try_arm());
        assert!(budget.is_contended());
    }

    #[test]
    fn the_ceiling_counts_what_is_reported_live() {
        let mut budget = Budget::new(3, 2);
        budget.begin_tick();
        assert!(budget.try_arm() && budget.try_arm());
        budget.note_live();
        budget.note_live();
        budget.begin_tick();
        assert!(budget.try_arm());
        assert!(!budget.try_arm(), "three are live");
        budget.note_live();
        budget.begin_tick();
        assert_eq!(budget.live(), 1, "two sessions ended without a word");
        assert!(budget.try_arm());
    }

    #[test]
    fn contention_is_remembered_for_one_tick() {
        let mut budget = Budget::new(1, 1);
        budget.begin_tick();
        assert!(budget.try_arm() && !budget.try_arm());
        budget.begin_tick();
        assert!(budget.is_contended());
        budget.begin_tick();
        assert!(!budget.is_contended());
    }
}
