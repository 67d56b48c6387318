//! Prepares that came before the one below them.
//!
//! A log grows at its head, so a backup that lost one frame cannot take those that follow it
//! (chapter 03 section 6.4 row 10b). If it dropped them, the repair of the lost one would find
//! it behind once more, by what came meanwhile, and so on until there is a pause. Here the
//! newest of them wait for what is below. When that is here they are looked at as if they had
//! just come: to the protocol they were late, and any frame may be that. Nothing is promised of
//! them before.

use std::collections::VecDeque;

use biplane_wire::{Message, Op, PrepareHeader, View};

use crate::config::Limits;

/// The waiting prepares of one view, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    view: View,
    waiting: VecDeque<Message>,
    bytes: usize,
}

fn op_of(message: &Message) -> Op {
    message.header::<PrepareHeader>().op()
}

impl Early {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Lets a prepare of `view` wait. The first one of an op stays. Where there are too many the
    /// lowest go: repair, which works from below, brings them anyway.
    pub(crate) fn keep(&mut self, message: Message, view: View, limits: &Limits) {
        if view != self.view {
            self.clear();
            self.view = view;
        }
        let op = op_of(&message);
        let at = self.waiting.partition_point(|held| op_of(held) < op);
        if self.waiting.get(at).is_some_and(|held| op_of(held) == op) {
            return;
        }
        self.bytes += message.size();
        self.waiting.insert(at, message);
        while self.waiting.len() > usize::from(limits.early_prepares)
            || self.bytes > limits.early_bytes
        {
            self.drop_lowest();
        }
    }

    /// Takes the prepare of `op` out, and what lies below it away.
    pub(crate) fn take(&mut self, op: Op, view: View) -> Option<Message> {
        if view != self.view {
            self.clear();
        }
        while self.waiting.front().is_some_and(|held| op_of(held) < op) {
            self.drop_lowest();
        }
        let is_next = self.waiting.front().is_some_and(|held| op_of(held) == op);
        if is_next { self.drop_lowest() } else { None }
    }

    fn drop_lowest(&mut self) -> Option<Message> {
        let lowest = self.waiting.pop_front()?;
        self.bytes -= lowest.size();
        Some(lowest)
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, prepare};

    use super::*;

    const VIEW: View = View(3);

    fn message(op: u64, variant: u8) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        prepare::build_with_body(header, &[variant])
    }

    fn limits(early_prepares: u16, early_bytes: usize) -> Limits {
        Limits {
            early_prepares,
            early_bytes,
            ..Limits::tiny()
        }
    }

    fn early(ops: &[u64], limits: &Limits) -> Early {
        let mut early = Early::default();
        for op in ops {
            early.keep(message(*op, 0), VIEW, limits);
        }
        early
    }

    fn ops(early: &Early) -> Vec<u64> {
        early.waiting.iter().map(|held| op_of(held).0).collect()
    }

    #[test]
    fn they_wait_in_order_and_the_first_of_an_op_stays() {
        let limits = limits(9, 1 << 20);
        let mut early = early(&[7, 5, 9], &limits);
        early.keep(message(5, 1), VIEW, &limits);
        assert_eq!(ops(&early), [5, 7, 9]);
        assert_eq!(early.take(Op(5), VIEW), Some(message(5, 0)));
        assert_eq!(early.take(Op(6), VIEW), None);
        assert_eq!(ops(&early), [7, 9], "it still waits");
        assert_eq!(early.take(Op(8), VIEW), None);
        assert_eq!(ops(&early), [9], "nobody needs it any more");
    }

    #[test]
    fn the_newest_stay_within_the_bounds() {
        let count = limits(3, 1 << 20);
        let mut early = early(&[1, 2, 3, 4, 5], &count);
        assert_eq!(ops(&early), [3, 4, 5]);
        early.keep(message(2, 0), VIEW, &count);
        assert_eq!(ops(&early), [3, 4, 5]);
        let size = message(1, 0).size();
        let bytes = limits(9, 2 * size);
        let early = self::early(&[1, 2, 3], &bytes);
        assert_eq!((ops(&early), early.bytes()), (vec![2, 3], 2 * size));
        let nothing = self::early(&[1], &limits(9, size - 1));
        assert!(nothing.is_empty() && nothing.bytes() == 0);
        assert!(self::early(&[1], &limits(0, 1 << 20)).is_empty());
    }

    #[test]
    fn another_view_takes_nothing_over() {
        let limits = limits(9, 1 << 20);
        let mut early = early(&[5, 6], &limits);
        early.keep(message(6, 1), View(4), &limits);
        assert_eq!((ops(&early), early.len()), (vec![6], 1));
        assert_eq!(early.take(Op(6), VIEW), None);
        assert!(early.is_empty());
    }
}
