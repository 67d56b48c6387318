//! Counts of bytes copied and hashed by this crate, for tests that hold the hot path to what it
//! may cost. Without the feature `meter` nothing is counted and nothing is compiled in.

/// Bytes moved on this thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Copied into or between frames.
    pub copied: u64,
    /// Hashed.
    pub hashed: u64,
}

#[cfg(feature = "meter")]
mod counting {
    use std::cell::Cell;

    use super::Moved;

    thread_local! {
        static MOVED: Cell<Moved> = const { Cell::new(Moved { copied: 0, hashed: 0 }) };
    }

    /// What was moved on this thread so far.
    #[must_use]
    pub fn moved() -> Moved {
        MOVED.get()
    }

    pub(crate) fn copied(bytes: usize) {
        let mut moved = MOVED.get();
        moved.copied += bytes as u64;
        MOVED.set(moved);
    }

    pub(crate) fn hashed(bytes: usize) {
        let mut moved = MOVED.get();
        moved.hashed += bytes as u64;
        MOVED.set(moved);
    }
}

#[cfg(feature = "meter")]
pub use counting::moved;
#[cfg(feature = "meter")]
pub(crate) use counting::{copied, hashed};

#[cfg(not(feature = "meter"))]
pub(crate) const fn copied(_: usize) {}

#[cfg(not(feature = "meter"))]
pub(crate) const fn hashed(_: usize) {}
