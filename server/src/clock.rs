//! Real time for the node: wall-clock microseconds, and ticks that are counted, not scheduled.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Length of a tick (chapter 03 section 5).
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Ticks served at once after a pause. A node that was frozen must read what arrived meanwhile
/// before its timers may conclude that nobody spoke.
const CATCH_UP_MAX: u64 = 5;

/// Counts ticks that have become due.
#[derive(Debug)]
pub(crate) struct TickCounter {
    started: Instant,
    served: u64,
}

impl TickCounter {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            served: 0,
        }
    }

    /// Ticks due since the last call, at most a few; the rest of a long pause is forgotten.
    pub(crate) fn due(&mut self) -> u64 {
        let elapsed = self.started.elapsed().as_millis() / TICK.as_millis();
        let now = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let due = now.saturating_sub(self.served);
        self.served = now;
        due.min(CATCH_UP_MAX)
    }

    /// Time until the next tick is due.
    pub(crate) fn until_next(&self) -> Duration {
        let next = u32::try_from(self.served + 1).map_or(Duration::MAX, |ticks| TICK * ticks);
        next.saturating_sub(self.started.elapsed())
    }
}

/// Microseconds since the Unix epoch; 0 before it.
pub(crate) fn wall_micros() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_is_not_served_tick_by_tick() {
        let mut counter = TickCounter::new();
        counter.started -= Duration::from_secs(60);
        assert_eq!(counter.due(), CATCH_UP_MAX);
        assert!(counter.due() <= 1);
    }
}
