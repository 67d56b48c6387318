//! Does a partition's own history reach up to what a peer still has (chapter 04 section 2.11)?
//!
//! A peer that flushed ops to segments can no longer serve them as prepares and says so. The
//! replica that asked may hold the same messages in its own segments, where they have offsets
//! and no op numbers. If the offsets of the served batches start at or below the end of its
//! segments, nothing is missing in between, and the applied point may be raised over the ops
//! nobody can serve. If there is a hole, only a state transfer closes it.

use biplane_wire::Op;

/// What a partition knows about its own history.
pub trait History {
    /// The offset after the last durable message, or an installed frontier if that is higher;
    /// 0 when there is neither.
    fn stand_in(&self) -> u64;

    /// What the log holds in `(floor, to]`. Asked only with `floor < to`.
    fn window(&self, floor: Op, to: Op) -> WindowFacts;
}

/// A group without such a history: the metadata plane, whose snapshots have op numbers.
#[derive(Clone, Copy, Debug)]
pub struct NoHistory;

impl History for NoHistory {
    fn stand_in(&self) -> u64 {
        0
    }

    fn window(&self, floor: Op, _to: Op) -> WindowFacts {
        WindowFacts {
            first_missing: Some(floor.next()),
            ..WindowFacts::default()
        }
    }
}

/// What the log of a partition holds of a window of ops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowFacts {
    /// The lowest op of the window that is not journaled; `None` when all are.
    pub first_missing: Option<Op>,
    /// Lowest base offset of the journaled SendMessages batches of the window, not counting
    /// ops at or below the purge floor.
    pub base_min: Option<u64>,
    /// Whether any SendMessages op of the window is journaled, purged or not.
    pub messages: bool,
    /// Every op below the batch that `base_min` comes from is journaled: no batch that is still
    /// missing can have a lower base offset.
    pub base_settled: bool,
}

impl WindowFacts {
    /// From one pass over the window in ascending op order.
    ///
    /// `held` says for an op of the window whether it is journaled and, if it is a SendMessages
    /// batch, which base offset it has and whether the purge floor covers it. Nothing above
    /// `held_last` is journaled; the pass ends there, because `to` is a number a peer chose.
    #[must_use]
    pub fn scan(floor: Op, to: Op, held_last: Op, mut held: impl FnMut(Op) -> HeldOp) -> Self {
        let mut facts = Self::default();
        let mut op = floor;
        while op < to.min(held_last) {
            op = op.next();
            match held(op) {
                HeldOp::Missing => facts.first_missing = facts.first_missing.or(Some(op)),
                HeldOp::Other => {}
                HeldOp::PurgedBatch => facts.messages = true,
                HeldOp::Batch { base_offset } => {
                    facts.messages = true;
                    if facts.base_min.is_none() {
                        facts.base_settled = facts.first_missing.is_none();
                    }
                    let lowest = facts
                        .base_min
                        .map_or(base_offset, |base| base.min(base_offset));
                    facts.base_min = Some(lowest);
                }
            }
        }
        if op < to {
            facts.first_missing = facts.first_missing.or(Some(op.next()));
        }
        facts
    }
}

/// One op as a window scan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldOp {
    /// Not journaled.
    Missing,
    /// Journaled, not a SendMessages batch.
    Other,
    /// Journaled SendMessages batch at or below the purge floor.
    PurgedBatch,
    /// Journaled SendMessages batch.
    Batch {
        /// Offset of its first message.
        base_offset: u64,
    },
}

/// What a session has seen of the range a peer serves, whether or not the log could take it.
///
/// A replica that restarted far behind cannot hold ops that are further above its applied point
/// than its log reaches, and the applied point cannot be raised before the connect test passed.
/// The test therefore also counts batches that were received, verified and not kept; once the
/// floor is raised they are asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// First op above the floor that was not seen in unbroken order.
    next: Op,
    base_min: Option<u64>,
    base_settled: bool,
    messages: bool,
}

impl Evidence {
    pub(crate) fn above(floor: Op) -> Self {
        Self {
            next: floor.next(),
            base_min: None,
            base_settled: false,
            messages: false,
        }
    }

    /// Takes a verified prepare in. Returns whether the unbroken run became longer.
    pub(crate) fn see(&mut self, op: Op, content: HeldOp) -> bool {
        let advances = op == self.next;
        match content {
            HeldOp::Missing | HeldOp::Other => {}
            HeldOp::PurgedBatch => self.messages = true,
            HeldOp::Batch { base_offset } => {
                self.messages = true;
                if self.base_min.is_none_or(|base| base_offset < base) {
                    self.base_min = Some(base_offset);
                    self.base_settled = advances;
                }
            }
        }
        if advances {
            self.next = op.next();
        }
        advances
    }

    /// Below `op` nothing is missing: what was not seen, the log has. The run goes on from there.
    pub(crate) fn follow(&mut self, op: Op) {
        self.next = self.next.max(op);
    }

    /// What the log and the session know together about `(floor, to]`.
    pub(crate) fn merge(&self, window: WindowFacts, to: Op) -> WindowFacts {
        let settled = (self.base_settled, window.base_settled);
        let (base_min, base_settled) = match (self.base_min, window.base_min) {
            (Some(seen), Some(held)) if seen == held => (Some(seen), settled.0 || settled.1),
            (Some(seen), held) if held.is_none_or(|held| seen < held) => (Some(seen), settled.0),
            (_, held) => (held, settled.1),
        };
        let first_missing = window.first_missing.map(|missing| missing.max(self.next));
        WindowFacts {
            first_missing: first_missing.filter(|missing| *missing <= to),
            base_min,
            messages: self.messages || window.messages,
            base_settled,
        }
    }
}

/// The input of the connect test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFacts {
    /// One below the first op the peer retains, clamped to `commit_max`.
    pub floor: Op,
    /// End of the session's window.
    pub to: Op,
    /// See [`History::stand_in`].
    pub stand_in: u64,
    /// See [`History::window`]; not looked at when the window is empty.
    pub window: WindowFacts,
}

/// The verdict of the connect test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// The segments reach the served range: the applied point may be raised to this op.
    Raise(Op),
    /// They do not: the group needs a state transfer.
    Refused,
    /// Not decided: more of the window is needed.
    Wait,
}

/// Whether the applied point may be raised to the floor.
///
/// A window that is not complete is refused early when its lowest batch is settled and does not
/// connect: the missing ops lie above it and can not change the answer. Without that, a window
/// of many chunks would be pulled whole only to be thrown away by the transfer that follows.
#[must_use]
pub fn connect(facts: &ConnectFacts) -> Connect {
    if facts.floor >= facts.to {
        return Connect::Refused;
    }
    let window = &facts.window;
    let complete = window.first_missing.is_none();
    match window.base_min {
        Some(base) if base <= facts.stand_in => Connect::Raise(facts.floor),
        None if complete && !window.messages => Connect::Raise(facts.floor),
        Some(_) if window.base_settled => Connect::Refused,
        _ if complete => Connect::Refused,
        _ => Connect::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Op = Op(198);

    /// A row of the table in chapter 04 section 8.4: end of the own segments, floor as
    /// announced, base offset of the lowest batch, a missing op.
    fn row(end: u64, floor: u64, base: Option<u64>, missing: Option<u64>) -> Connect {
        let window = WindowFacts {
            first_missing: missing.map(Op),
            base_min: base,
            messages: base.is_some(),
            base_settled: false,
        };
        let floor = Op(floor).min(TO);
        connect(&ConnectFacts {
            floor,
            to: TO,
            stand_in: end,
            window,
        })
    }

    #[test]
    fn the_table_of_the_specification() {
        assert_eq!(row(1000, 150, Some(1000), None), Connect::Raise(Op(150)));
        assert_eq!(row(1000, 150, Some(940), None), Connect::Raise(Op(150)));
        assert_eq!(row(1000, 150, Some(1010), None), Connect::Refused);
        assert_eq!(row(1000, 150, Some(1010), Some(160)), Connect::Wait);
        assert_eq!(row(0, 150, Some(0), None), Connect::Raise(Op(150)));
        assert_eq!(row(0, 150, Some(5), None), Connect::Refused);
        assert_eq!(row(1000, 150, None, None), Connect::Raise(Op(150)));
        assert_eq!(row(1000, 198, None, None), Connect::Refused);
        assert_eq!(row(1000, 400, None, None), Connect::Refused);
    }

    #[test]
    fn a_first_chunk_that_connects_is_enough() {
        assert_eq!(
            row(1000, 150, Some(1000), Some(179)),
            Connect::Raise(Op(150))
        );
    }

    #[test]
    fn nothing_received_of_an_incomplete_window_decides_nothing() {
        assert_eq!(row(1000, 150, None, Some(151)), Connect::Wait);
    }

    #[test]
    fn a_settled_batch_beyond_the_segments_is_refused_before_the_window_is_complete() {
        let window = WindowFacts::scan(Op(150), TO, TO, |op| match op.0 {
            151 => HeldOp::Other,
            152 => HeldOp::Batch { base_offset: 1010 },
            _ => HeldOp::Missing,
        });
        assert!(window.base_settled);
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 1000,
            window,
        };
        assert_eq!(connect(&facts), Connect::Refused);
    }

    #[test]
    fn a_missing_op_below_the_lowest_batch_leaves_it_unsettled() {
        let window = WindowFacts::scan(Op(150), TO, TO, |op| match op.0 {
            151 => HeldOp::Missing,
            _ => HeldOp::Batch {
                base_offset: 900 + op.0,
            },
        });
        assert_eq!(window.first_missing, Some(Op(151)));
        assert_eq!(window.base_min, Some(1052));
        assert!(!window.base_settled);
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 1000,
            window,
        };
        assert_eq!(connect(&facts), Connect::Wait);
    }

    #[test]
    fn a_scan_ends_where_the_log_ends() {
        let window = WindowFacts::scan(Op(150), Op(u64::MAX), Op(160), |_| HeldOp::Other);
        assert_eq!(window.first_missing, Some(Op(161)));
        let window = WindowFacts::scan(Op(150), Op(u64::MAX), Op(9), |_| HeldOp::Other);
        assert_eq!(window.first_missing, Some(Op(151)));
    }

    #[test]
    fn what_the_log_could_not_take_counts_as_evidence() {
        let mut evidence = Evidence::above(Op(150));
        assert!(evidence.see(Op(151), HeldOp::Other));
        assert!(evidence.see(Op(152), HeldOp::Batch { base_offset: 990 }));
        assert!(
            !evidence.see(Op(152), HeldOp::Batch { base_offset: 990 }),
            "a duplicate"
        );
        let nothing_held = WindowFacts::scan(Op(150), TO, Op(100), |_| HeldOp::Missing);
        let window = evidence.merge(nothing_held, TO);
        assert_eq!(window.first_missing, Some(Op(153)));
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 1000,
            window,
        };
        assert_eq!(connect(&facts), Connect::Raise(Op(150)));
        let facts = ConnectFacts {
            stand_in: 980,
            ..facts
        };
        assert_eq!(connect(&facts), Connect::Refused, "settled");
    }

    #[test]
    fn evidence_with_a_hole_is_not_settled() {
        let mut evidence = Evidence::above(Op(150));
        assert!(!evidence.see(Op(152), HeldOp::Batch { base_offset: 1010 }));
        let nothing_held = WindowFacts::scan(Op(150), TO, Op(100), |_| HeldOp::Missing);
        let window = evidence.merge(nothing_held, TO);
        assert_eq!(window.first_missing, Some(Op(151)));
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 1000,
            window,
        };
        assert_eq!(connect(&facts), Connect::Wait);
    }

    #[test]
    fn evidence_and_log_complete_a_window_together() {
        let mut evidence = Evidence::above(Op(150));
        (151..=198).for_each(|op| assert!(evidence.see(Op(op), HeldOp::Other)));
        let nothing_held = WindowFacts::scan(Op(150), TO, Op(100), |_| HeldOp::Missing);
        let window = evidence.merge(nothing_held, TO);
        assert_eq!(window.first_missing, None);
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 0,
            window,
        };
        assert_eq!(
            connect(&facts),
            Connect::Raise(Op(150)),
            "no messages were skipped"
        );
    }

    #[test]
    fn purged_batches_are_messages_without_a_base() {
        let window = WindowFacts::scan(Op(150), TO, TO, |_| HeldOp::PurgedBatch);
        assert!(window.messages && window.base_min.is_none());
        let facts = ConnectFacts {
            floor: Op(150),
            to: TO,
            stand_in: 0,
            window,
        };
        assert_eq!(connect(&facts), Connect::Refused);
    }
}
