//! The limits of repair, in ticks of 10 ms, and the relations between them.
//!
//! The settings they come from are public configuration names (chapter 04 section 2.1); how a
//! duration becomes ticks is part of their meaning, so it is decided here and nowhere else.

/// Length of a tick in milliseconds.
pub const TICK_MILLIS: u64 = 10;

/// Default of `cluster.repair_chunk_max`: prepares served per request.
pub const CHUNK_MAX_DEFAULT: u32 = 128;

/// Largest legal `cluster.repair_chunk_max`.
pub const CHUNK_MAX_LIMIT: u32 = 1024;

/// Default of `cluster.repair_retry_interval` and of `cluster.repair_gap_debounce_interval`.
pub const INTERVAL_MILLIS_DEFAULT: u64 = 1_000;

/// Smallest debounce of a gap: a heartbeat may overtake a prepare that travels along the ring,
/// and asking for what is already under way wastes a chunk.
pub const GAP_DEBOUNCE_MILLIS_MIN: u64 = 500;

/// Rounds without progress before another peer is asked.
pub const STALLED_ROUNDS_MAX_DEFAULT: u32 = 5;

/// Live sessions over all groups of a partition plane.
pub const SESSIONS_LIVE_MAX_DEFAULT: u32 = 64;

/// Sessions opened within one tick over all groups of a partition plane.
pub const SESSIONS_ARMED_PER_TICK_MAX_DEFAULT: u32 = 16;

const _: () = assert!(CHUNK_MAX_DEFAULT <= CHUNK_MAX_LIMIT);
const _: () = assert!(GAP_DEBOUNCE_MILLIS_MIN <= INTERVAL_MILLIS_DEFAULT);
const _: () = assert!(SESSIONS_ARMED_PER_TICK_MAX_DEFAULT <= SESSIONS_LIVE_MAX_DEFAULT);

/// Pacing of one requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairLimits {
    /// Ticks without a usable frame before the request is sent again.
    pub retry_ticks: u32,
    /// Ticks a gap must persist before a session starts on its account alone.
    pub gap_debounce_ticks: u32,
    /// Consecutive retries after which the session is given up for another peer.
    pub stalled_rounds_max: u32,
}

impl RepairLimits {
    /// From the configured intervals: whole ticks, rounded down, at least one; the debounce is
    /// raised to its floor.
    #[must_use]
    pub fn from_millis(retry: u64, gap_debounce: u64) -> Self {
        Self {
            retry_ticks: ticks(retry),
            gap_debounce_ticks: ticks(gap_debounce.max(GAP_DEBOUNCE_MILLIS_MIN)),
            stalled_rounds_max: STALLED_ROUNDS_MAX_DEFAULT,
        }
    }

    /// Small values, so that tests meet every limit soon.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            retry_ticks: 10,
            gap_debounce_ticks: 5,
            stalled_rounds_max: 2,
        }
    }
}

impl Default for RepairLimits {
    fn default() -> Self {
        Self::from_millis(INTERVAL_MILLIS_DEFAULT, INTERVAL_MILLIS_DEFAULT)
    }
}

/// Whether a chunk limit is legal beside a queue of `queue_capacity` frames per peer: a chunk
/// and its two control frames go into one queue back to back, and a chunk that never fits would
/// be cut every time.
#[must_use]
pub fn chunk_max_is_valid(chunk_max: u32, queue_capacity: u32) -> bool {
    (1..=CHUNK_MAX_LIMIT).contains(&chunk_max) && chunk_max < queue_capacity
}

fn ticks(millis: u64) -> u32 {
    u32::try_from(millis / TICK_MILLIS)
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_down_to_whole_ticks() {
        let limits = RepairLimits::from_millis(1_009, 1_234);
        assert_eq!((limits.retry_ticks, limits.gap_debounce_ticks), (100, 123));
    }

    #[test]
    fn a_duration_below_a_tick_is_one_tick_and_the_debounce_has_a_floor() {
        let limits = RepairLimits::from_millis(3, 0);
        assert_eq!((limits.retry_ticks, limits.gap_debounce_ticks), (1, 50));
    }

    #[test]
    fn a_chunk_must_leave_room_in_the_queue() {
        assert!(chunk_max_is_valid(128, 256));
        assert!(!chunk_max_is_valid(256, 256));
        assert!(!chunk_max_is_valid(0, 256));
        assert!(!chunk_max_is_valid(1025, 4096));
    }
}
