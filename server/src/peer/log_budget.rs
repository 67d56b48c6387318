//! Log lines that strangers can cause are rationed: whoever reaches the replica port must not be
//! able to fill the disk of a node with its own log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines in one window; the counters know the rest.
const LINES_MAX: u32 = 20;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);

/// What is left of the current window.
#[derive(Debug)]
pub(super) struct LogBudget {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    window: Instant,
    lines: u32,
    withheld: u64,
}

impl LogBudget {
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                window: Instant::now(),
                lines: 0,
                withheld: 0,
            }),
        }
    }

    /// `Some` when a line may be written, with the number of lines withheld since the last one.
    pub(super) fn line(&self) -> Option<u64> {
        let mut inner = self.inner.lock();
        if inner.window.elapsed() >= WINDOW {
            inner.window = Instant::now();
            inner.lines = 0;
        }
        if inner.lines == LINES_MAX {
            inner.withheld += 1;
            return None;
        }
        inner.lines += 1;
        Some(std::mem::take(&mut inner.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_lines_and_a_number() {
        let budget = LogBudget::new();
        let written = (0..1000).filter(|_| budget.line().is_some()).count();
        assert_eq!(written, LINES_MAX as usize);
        budget.inner.lock().window -= WINDOW;
        assert_eq!(budget.line(), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(budget.line(), Some(0));
    }
}
