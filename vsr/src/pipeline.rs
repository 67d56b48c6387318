//! What the primary has in flight: prepares that are not applied yet, and requests that wait
//! for a place among them.
//!
//! The prepares are consecutive, so an entry is found by subtraction. Nothing here is
//! replicated; a view change empties both queues.

use std::collections::VecDeque;

use biplane_wire::{Checksum, ClientId, FrameBuffer, Op, ReplicaId, RoutedRequestHeader};

use crate::quorum::ReplicaSet;

/// A prepare in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) op: Op,
    pub(crate) checksum: Checksum,
    pub(crate) client: ClientId,
    /// Given with the request; `None` for an entry taken over from an older view.
    pub(crate) token: Option<u64>,
    pub(crate) acknowledged: ReplicaSet,
    /// Latched when the acknowledgements first reached the replication quorum.
    pub(crate) quorum: bool,
}

/// The prepare queue.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    entries: VecDeque<InFlight>,
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// No entry of that op and identity.
    Unknown,
    /// This replica was counted before.
    Again,
    /// Counted.
    Added,
    /// Counted, and it is the one that makes the quorum.
    Quorum,
}

impl Pipeline {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            entries: VecDeque::with_capacity(capacity),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the next prepare.
    ///
    /// # Panics
    ///
    /// When it does not follow the last one: then this replica numbered its ops wrongly.
    pub(crate) fn push(&mut self, entry: InFlight) {
        if let Some(last) = self.entries.back() {
            assert!(
                entry.op == last.op.next(),
                "prepares in flight are consecutive"
            );
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn acknowledge(
        &mut self,
        op: Op,
        checksum: Checksum,
        from: ReplicaId,
        quorum: u8,
    ) -> Counted {
        let Some(entry) = self.get_mut(op) else {
            return Counted::Unknown;
        };
        if entry.checksum != checksum {
            return Counted::Unknown;
        }
        if !entry.acknowledged.insert(from) {
            return Counted::Again;
        }
        if entry.quorum || entry.acknowledged.len() < quorum {
            return Counted::Added;
        }
        entry.quorum = true;
        Counted::Quorum
    }

    pub(crate) fn get(&self, op: Op) -> Option<&InFlight> {
        self.entries.get(self.index(op)?)
    }

    fn get_mut(&mut self, op: Op) -> Option<&mut InFlight> {
        let index = self.index(op)?;
        self.entries.get_mut(index)
    }

    fn index(&self, op: Op) -> Option<usize> {
        let front = self.entries.front()?;
        usize::try_from(op.0.checked_sub(front.op.0)?).ok()
    }

    /// Takes the entry of `op` out when it is the first.
    pub(crate) fn pop(&mut self, op: Op) -> Option<InFlight> {
        match self.entries.front() {
            Some(front) if front.op == op => self.entries.pop_front(),
            _ => None,
        }
    }

    /// Takes the entry of `op` out when it is the last and has this identity.
    pub(crate) fn pop_back(&mut self, op: Op, checksum: Checksum) -> Option<InFlight> {
        match self.entries.back() {
            Some(back) if back.op == op && back.checksum == checksum => self.entries.pop_back(),
            _ => None,
        }
    }

    /// Takes out everything up to `op`; the tokens of what is taken out.
    pub(crate) fn drop_through(&mut self, op: Op) -> Vec<(u64, Op)> {
        let count = self
            .entries
            .iter()
            .take_while(|entry| entry.op <= op)
            .count();
        let dropped = self.entries.drain(..count);
        dropped
            .filter_map(|entry| Some((entry.token?, entry.op)))
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.entries.iter()
    }

    /// Takes every token out: their requests are nobody's any more.
    pub(crate) fn take_tokens(&mut self) -> impl Iterator<Item = (u64, Op)> + '_ {
        self.entries
            .iter_mut()
            .filter_map(|entry| Some((entry.token.take()?, entry.op)))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn has_client(&self, client: ClientId) -> bool {
        self.entries.iter().any(|entry| entry.client == client)
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: FrameBuffer,
    pub(crate) token: u64,
}

impl Waiting {
    pub(crate) fn client(&self) -> ClientId {
        self.request.header::<RoutedRequestHeader>().client()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: u64) -> InFlight {
        InFlight {
            op: Op(op),
            checksum: Checksum(u128::from(op) + 100),
            client: ClientId(1),
            token: Some(op),
            acknowledged: ReplicaSet::EMPTY,
            quorum: false,
        }
    }

    fn pipeline() -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(4);
        for op in 5..=7 {
            pipeline.push(entry(op));
        }
        pipeline
    }

    #[test]
    fn quorum_is_reported_once_and_each_replica_counts_once() {
        let mut pipeline = pipeline();
        let (op, checksum) = (Op(6), Checksum(106));
        assert_eq!(
            pipeline.acknowledge(op, checksum, ReplicaId(0), 2),
            Counted::Added
        );
        assert_eq!(
            pipeline.acknowledge(op, checksum, ReplicaId(0), 2),
            Counted::Again
        );
        assert_eq!(
            pipeline.acknowledge(op, checksum, ReplicaId(2), 2),
            Counted::Quorum
        );
        assert_eq!(
            pipeline.acknowledge(op, checksum, ReplicaId(1), 2),
            Counted::Added
        );
        assert!(pipeline.get(op).is_some_and(|entry| entry.quorum));
        assert!(pipeline.get(Op(5)).is_some_and(|entry| !entry.quorum));
    }

    #[test]
    fn acknowledgement_of_something_else_is_unknown() {
        let mut pipeline = pipeline();
        for (op, checksum) in [(4, 104), (8, 108), (6, 105), (u64::MAX, 0), (0, 100)] {
            let counted = pipeline.acknowledge(Op(op), Checksum(checksum), ReplicaId(1), 2);
            assert_eq!(counted, Counted::Unknown, "op {op}");
        }
    }

    #[test]
    fn entries_leave_in_order() {
        let mut pipeline = pipeline();
        assert!(pipeline.pop(Op(6)).is_none());
        assert!(pipeline.pop(Op(5)).is_some());
        assert!(pipeline.pop_back(Op(7), Checksum(0)).is_none());
        assert!(pipeline.pop_back(Op(7), Checksum(107)).is_some());
        assert_eq!(pipeline.take_tokens().collect::<Vec<_>>(), [(6, Op(6))]);
        assert_eq!(pipeline.take_tokens().count(), 0);
        assert_eq!(pipeline.len(), 1);
    }

    #[test]
    #[should_panic(expected = "consecutive")]
    fn a_gap_among_own_prepares_is_a_bug() {
        pipeline().push(entry(9));
    }
}
