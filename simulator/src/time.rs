//! Virtual time, and what each node believes of it.
//!
//! World time is nanoseconds since the start of the run. A node has a monotonic clock, which
//! decides when its ticks are due and never goes back, and a wall clock, which may do anything:
//! both are made from world time by a `WallSkew`.

use crate::prng::Prng;

/// Nanoseconds of world time.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// The length of a protocol tick on an honest clock.
pub const TICK: Nanos = 10 * MILLISECOND;

/// What wall clocks say when a run starts: microseconds since the epoch.
pub const WALL_START: u64 = 1_700_000_000_000_000;

/// How a wall clock errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WallSkew {
    /// It does not.
    None,
    /// By a constant, in microseconds.
    Offset(i64),
    /// By a slow triangle wave.
    Oscillation {
        /// Microseconds at the peak.
        amplitude: u64,
        /// Length of one wave.
        period: Nanos,
    },
    /// Not at all until a moment, then by a constant number of microseconds.
    Step {
        /// The moment.
        at: Nanos,
        /// The step, forward or back.
        by: i64,
    },
    /// By a new draw at each reading.
    Jitter {
        /// Largest error in microseconds.
        amplitude: u64,
    },
}

/// The clocks of one node.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: WallSkew,
    drift_ppm: i64,
    prng: Prng,
}

impl Clock {
    /// A clock that is right.
    #[must_use]
    pub fn honest(prng: Prng) -> Self {
        Self {
            wall: WallSkew::None,
            drift_ppm: 0,
            prng,
        }
    }

    /// Clocks whose errors are drawn; `severity` is a small number, zero for honest ones.
    #[must_use]
    pub fn drawn(mut prng: Prng, severity: u32) -> Self {
        if severity == 0 {
            return Self::honest(prng);
        }
        let scale = u64::from(severity);
        let amplitude = prng.between(1_000, 1_000_000 * scale);
        let signed = |prng: &mut Prng, size: u64| {
            let size = size.cast_signed();
            if prng.chance(500_000) { size } else { -size }
        };
        let wall = match prng.below(5) {
            0 => WallSkew::None,
            1 => WallSkew::Offset(signed(&mut prng, amplitude)),
            2 => WallSkew::Oscillation {
                amplitude,
                period: prng.between(5 * SECOND, 60 * SECOND),
            },
            3 => {
                let by = signed(&mut prng, amplitude);
                WallSkew::Step {
                    at: prng.between(SECOND, 60 * SECOND),
                    by,
                }
            }
            _ => WallSkew::Jitter { amplitude },
        };
        let drift = prng.below(20_000 * scale + 1);
        let drift_ppm = signed(&mut prng, drift);
        Self {
            wall,
            drift_ppm,
            prng,
        }
    }

    /// World time between two ticks of this node.
    #[must_use]
    pub fn tick_interval(&self) -> Nanos {
        let drift = TICK.cast_signed() / 1_000_000 * self.drift_ppm;
        (TICK.cast_signed() + drift)
            .max(TICK.cast_signed() / 2)
            .cast_unsigned()
    }

    /// Microseconds since the epoch as this node reads them.
    pub fn wall_micros(&mut self, now: Nanos) -> u64 {
        let honest = WALL_START + now / MICROSECOND;
        let error = match self.wall {
            WallSkew::None => 0,
            WallSkew::Offset(by) => by,
            WallSkew::Step { at, by } => {
                if now < at {
                    0
                } else {
                    by
                }
            }
            WallSkew::Oscillation { amplitude, period } => {
                let phase = now % period;
                let half = (period / 2).max(1);
                let height = if phase < half { phase } else { period - phase };
                let value = u128::from(height) * u128::from(amplitude) / u128::from(half);
                (value as u64).cast_signed()
            }
            WallSkew::Jitter { amplitude } => {
                self.prng.below(2 * amplitude + 1).cast_signed() - amplitude.cast_signed()
            }
        };
        honest.saturating_add_signed(error)
    }
}

/// Renders world time as seconds with milliseconds.
#[must_use]
pub fn show(now: Nanos) -> String {
    format!("{}.{:03}s", now / SECOND, now % SECOND / MILLISECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stepped_clock_goes_back_once() {
        let wall = WallSkew::Step {
            at: SECOND,
            by: -5_000_000,
        };
        let mut clock = Clock {
            wall,
            drift_ppm: 0,
            prng: Prng::new(1),
        };
        assert_eq!(clock.wall_micros(0), WALL_START);
        assert_eq!(
            clock.wall_micros(SECOND),
            WALL_START + 1_000_000 - 5_000_000
        );
    }

    #[test]
    fn an_oscillating_clock_returns_to_the_truth() {
        let wall = WallSkew::Oscillation {
            amplitude: 1000,
            period: SECOND,
        };
        let mut clock = Clock {
            wall,
            drift_ppm: 0,
            prng: Prng::new(1),
        };
        assert_eq!(clock.wall_micros(0), WALL_START);
        assert_eq!(clock.wall_micros(SECOND / 2), WALL_START + 500_000 + 1000);
        assert_eq!(clock.wall_micros(SECOND), WALL_START + 1_000_000);
    }

    #[test]
    fn ticks_drift_but_never_stop() {
        let clock = Clock {
            wall: WallSkew::None,
            drift_ppm: -900_000,
            prng: Prng::new(1),
        };
        assert_eq!(clock.tick_interval(), TICK / 2);
        assert_eq!(Clock::honest(Prng::new(1)).tick_interval(), TICK);
        for seed in 0..100 {
            let clock = Clock::drawn(Prng::new(seed), 3);
            assert!(clock.tick_interval() >= TICK / 2 && clock.tick_interval() <= 2 * TICK);
        }
    }
}
