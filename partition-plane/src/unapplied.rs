//! Operations of the log above the applied one that move the offset the next message gets:
//! batches, and markers of a purge.
//!
//! Operations may be entered out of order (repair) and leave from above (truncation) or from
//! below (they are applied), so the next offset is never kept by adding and subtracting: it is
//! read from the last entry that is left.

use std::collections::VecDeque;

use biplane_wire::Op;

/// One such operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    op: Op,
    /// The offset of its first message.
    base: u64,
    /// The offset of the message after it.
    next: u64,
    is_marker: bool,
}

/// The operations, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unapplied {
    entries: VecDeque<Entry>,
    markers: usize,
}

impl Unapplied {
    /// Whether a purge is among them.
    pub(crate) fn has_marker(&self) -> bool {
        self.markers > 0
    }

    /// The last purge at or below `op`.
    pub(crate) fn last_marker(&self, op: Op) -> Option<Op> {
        if self.markers == 0 {
            return None;
        }
        let markers = self.entries.iter().rev().filter(|entry| entry.is_marker);
        markers.map(|entry| entry.op).find(|marker| *marker <= op)
    }

    /// The offset after the last of them.
    pub(crate) fn last_next(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.next)
    }

    /// Whether there is one from which on offsets start over.
    pub(crate) fn starts_over(&self) -> bool {
        self.has_marker() || self.entries.iter().any(|entry| entry.base == 0)
    }

    /// The lowest batch that starts over.
    pub(crate) fn first_start(&self) -> Option<Op> {
        let mut batches = self.entries.iter().filter(|entry| !entry.is_marker);
        batches.find(|entry| entry.base == 0).map(|entry| entry.op)
    }

    /// Takes a batch of messages in.
    pub(crate) fn batch(&mut self, op: Op, base: u64, next: u64) {
        self.insert(Entry {
            op,
            base,
            next,
            is_marker: false,
        });
    }

    /// Takes a marker of a purge in.
    pub(crate) fn marker(&mut self, op: Op) {
        self.insert(Entry {
            op,
            base: 0,
            next: 0,
            is_marker: true,
        });
    }

    /// In the place of the one that was known for its op.
    fn insert(&mut self, entry: Entry) {
        let op = entry.op;
        self.markers += usize::from(entry.is_marker);
        if self.entries.back().is_none_or(|last| last.op < op) {
            return self.entries.push_back(entry);
        }
        let at = self.entries.partition_point(|known| known.op < op);
        match self.entries.get_mut(at).filter(|known| known.op == op) {
            Some(known) => {
                self.markers -= usize::from(known.is_marker);
                *known = entry;
            }
            None => self.entries.insert(at, entry),
        }
    }

    /// Operations up to `op` are applied. Whether anything changed.
    pub(crate) fn forget_through(&mut self, op: Op) -> bool {
        let before = self.entries.len();
        while let Some(entry) = self.entries.front().filter(|entry| entry.op <= op) {
            self.markers -= usize::from(entry.is_marker);
            self.entries.pop_front();
        }
        self.entries.len() < before
    }

    /// Operations from `from` on left the log.
    pub(crate) fn truncate(&mut self, from: Op) {
        while let Some(entry) = self.entries.back().filter(|entry| entry.op >= from) {
            self.markers -= usize::from(entry.is_marker);
            self.entries.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operation_that_is_left_decides() {
        let mut unapplied = Unapplied::default();
        unapplied.batch(Op(5), 8, 10);
        unapplied.batch(Op(9), 0, 4);
        unapplied.marker(Op(8));
        unapplied.batch(Op(6), 10, 12);
        assert_eq!(unapplied.last_next(), Some(4));
        assert_eq!(unapplied.last_marker(Op(9)), Some(Op(8)));
        assert_eq!(unapplied.last_marker(Op(7)), None);
        assert_eq!(unapplied.first_start(), Some(Op(9)));
        unapplied.truncate(Op(8));
        assert!(!unapplied.has_marker() && !unapplied.starts_over());
        assert_eq!(unapplied.last_next(), Some(12));
        assert!(unapplied.forget_through(Op(5)));
        assert!(!unapplied.forget_through(Op(5)));
        assert_eq!(unapplied.last_next(), Some(12));
        unapplied.marker(Op(6));
        unapplied.batch(Op(6), 10, 11);
        assert!(!unapplied.has_marker());
        assert!(unapplied.forget_through(Op(6)));
        assert_eq!(unapplied.last_next(), None);
    }
}
