//! The log in memory: the only index from op to prepare.
//!
//! A ring of slots, one per op, from the lowest op kept to the highest one held. Slots may be
//! empty: a hole below a prepare that arrived early, or below one that a restart found. Beside
//! the prepare a slot knows how far it is on its way to the disk and how much the content can
//! be trusted in the present view. The log never decides anything; it is told.
//!
//! Trust exists because an entry that survived from an older view may have been replaced in
//! the meantime, while the commit point of the new view passes over its op. Such an entry is a
//! suspect until the new view names it, or until its neighbours prove it by the hash chain;
//! only verified entries are applied.

use std::collections::VecDeque;

use biplane_wire::{Checksum, Message, Op, PrepareHeader};

/// How much an entry can be trusted in the present view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Journaled in a view that was never recorded as log view here: never acknowledged, and
    /// not part of the log a vote speaks of.
    Stray,
    /// Left over from an older view; the present one may have another prepare here.
    Suspect,
    /// A peer sent it as committed, or agrees with the suspect that stood here; the link to
    /// verified neighbours is missing.
    Offered,
    /// Part of the log of the present view.
    Verified,
}

/// How far an entry is on its way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// The plane asks for no more than memory.
    Memory,
    /// An append is out.
    Writing,
    /// On stable storage.
    Durable,
}

/// A held entry.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) message: Message,
    /// How many appends had been asked for with it.
    pub(crate) number: u64,
    pub(crate) storage: Storage,
    pub(crate) trust: Trust,
    /// To be passed along the ring once durability allows it.
    pub(crate) forward_due: bool,
    /// The primary asked for this acknowledgement out of order; give it when durable.
    pub(crate) acknowledge_due: bool,
}

impl Held {
    pub(crate) fn header(&self) -> &PrepareHeader {
        self.message.header()
    }

    pub(crate) fn checksum(&self) -> Checksum {
        self.header().frame.checksum()
    }

    pub(crate) fn is_durable(&self) -> bool {
        matches!(self.storage, Storage::Memory | Storage::Durable)
    }
}

#[derive(Clone, Debug, Default)]
enum Slot {
    #[default]
    Empty,
    /// The disk had an entry here that cannot be read.
    Damaged,
    Held(Held),
}

impl Slot {
    fn message(&self) -> Option<&Message> {
        match self {
            Self::Held(held) => Some(&held.message),
            Self::Empty | Self::Damaged => None,
        }
    }

    fn is_shown(&self) -> bool {
        matches!(self, Self::Held(held) if held.trust == Trust::Verified)
    }
}

/// The log of one group.
#[derive(Clone, Debug)]
pub struct Log {
    /// Op of the first slot.
    base: Op,
    slots: VecDeque<Slot>,
}

impl Log {
    /// An empty log whose lowest op will be `base` or above.
    pub(crate) fn new(base: Op) -> Self {
        Self {
            base,
            slots: VecDeque::new(),
        }
    }

    /// The prepare of `op`, when it is held and part of the log as far as is known. What is
    /// only suspected of being so is not shown: nobody may be served from it.
    #[must_use]
    pub fn get(&self, op: Op) -> Option<&Message> {
        let held = self.held(op)?;
        (held.trust == Trust::Verified).then_some(&held.message)
    }

    /// The header of what [`Self::get`] gives.
    #[must_use]
    pub fn header(&self, op: Op) -> Option<&PrepareHeader> {
        self.get(op).map(|message| message.header())
    }

    /// Whether [`Self::get`] gives a prepare.
    #[must_use]
    pub fn contains(&self, op: Op) -> bool {
        self.get(op).is_some()
    }

    /// Whether the disk held an entry for `op` that cannot be read.
    #[must_use]
    pub fn is_damaged(&self, op: Op) -> bool {
        matches!(self.slot(op), Some(Slot::Damaged))
    }

    /// Whether something is there for `op` of which this replica can neither say that it is part
    /// of the log nor that it is not: unreadable, or left over and not confirmed. A vote says
    /// nothing about such an op.
    #[must_use]
    pub fn is_unsure(&self, op: Op) -> bool {
        match self.slot(op) {
            Some(Slot::Damaged) => true,
            Some(Slot::Held(held)) => matches!(held.trust, Trust::Suspect | Trust::Offered),
            Some(Slot::Empty) | None => false,
        }
    }

    /// Whether the prepare of `op` is held and as durable as the plane asks.
    #[must_use]
    pub fn is_durable(&self, op: Op) -> bool {
        self.held(op).is_some_and(Held::is_durable)
    }

    /// The lowest op [`Self::get`] has.
    #[must_use]
    pub fn first(&self) -> Option<Op> {
        self.next_held(self.base, Op(u64::MAX))
    }

    /// The highest op [`Self::get`] has.
    #[must_use]
    pub fn last(&self) -> Option<Op> {
        let index = self.slots.iter().rposition(Slot::is_shown)?;
        Some(self.op_at(index))
    }

    /// The highest op with an entry, trusted or not, readable or not.
    pub(crate) fn top(&self) -> Option<Op> {
        let index = self
            .slots
            .iter()
            .rposition(|slot| !matches!(slot, Slot::Empty))?;
        Some(self.op_at(index))
    }

    /// The last op of the run without entries that follows `op`, at most `to`.
    pub(crate) fn last_empty(&self, op: Op, to: Op) -> Op {
        let skip = usize::try_from(op.next().0.saturating_sub(self.base.0));
        let mut slots = self
            .slots
            .iter()
            .enumerate()
            .skip(skip.unwrap_or(usize::MAX));
        match slots.find(|(_, slot)| slot.message().is_some()) {
            Some((index, _)) => Op(self.op_at(index).0 - 1).min(to).max(op),
            None => to,
        }
    }

    /// The first op in `from..=to` that [`Self::get`] has.
    #[must_use]
    pub fn next_held(&self, from: Op, to: Op) -> Option<Op> {
        let skip = usize::try_from(from.0.saturating_sub(self.base.0)).ok()?;
        let mut slots = self.slots.iter().enumerate().skip(skip);
        let (index, _) = slots.find(|(_, slot)| slot.is_shown())?;
        let op = self.op_at(index);
        (op <= to).then_some(op)
    }

    /// The prepares [`Self::get`] has, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.slots
            .iter()
            .filter(|slot| slot.is_shown())
            .filter_map(Slot::message)
    }

    /// Every prepare held, trusted or not, ascending.
    pub(crate) fn iter_held(&self) -> impl Iterator<Item = &Message> {
        self.slots.iter().filter_map(Slot::message)
    }

    /// Every entry held, trusted or not, ascending.
    pub(crate) fn iter_held_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Held(held) => Some(held),
            Slot::Empty | Slot::Damaged => None,
        })
    }

    /// Number of ops between the lowest and the highest slot, holes included.
    #[must_use]
    pub fn span(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn held(&self, op: Op) -> Option<&Held> {
        match self.slot(op) {
            Some(Slot::Held(held)) => Some(held),
            _ => None,
        }
    }

    pub(crate) fn held_mut(&mut self, op: Op) -> Option<&mut Held> {
        let index = self.index(op)?;
        match self.slots.get_mut(index) {
            Some(Slot::Held(held)) => Some(held),
            _ => None,
        }
    }

    /// Identity of what is held for `op`, whether it is trusted or not.
    #[must_use]
    pub fn checksum(&self, op: Op) -> Option<Checksum> {
        self.held(op).map(Held::checksum)
    }

    pub(crate) fn is_verified(&self, op: Op) -> bool {
        self.held(op)
            .is_some_and(|held| held.trust == Trust::Verified)
    }

    /// Puts an entry in, over whatever stood there.
    ///
    /// # Panics
    ///
    /// When the op was evicted: callers never go below the applied op.
    pub(crate) fn insert(&mut self, held: Held) {
        let op = held.header().op();
        self.put(op, Slot::Held(held));
    }

    /// Records that the disk has something unreadable for `op`.
    pub(crate) fn insert_damaged(&mut self, op: Op) {
        self.put(op, Slot::Damaged);
    }

    fn put(&mut self, op: Op, slot: Slot) {
        if self.slots.is_empty() && op > self.base {
            self.base = op;
        }
        if op < self.base {
            // Only while empty slots were skipped above an applied op; bounded by the caller.
            for _ in op.0..self.base.0 {
                self.slots.push_front(Slot::Empty);
            }
            self.base = op;
        }
        let index = usize::try_from(op.0 - self.base.0).expect("the caller bounds the span");
        if index >= self.slots.len() {
            self.slots.resize_with(index, Slot::default);
            self.slots.push_back(slot);
        } else {
            self.slots[index] = slot;
        }
    }

    /// Takes out everything from `from` on; the held entries among it, ascending.
    pub(crate) fn remove_from(&mut self, from: Op) -> Vec<Held> {
        let keep = usize::try_from(from.0.saturating_sub(self.base.0)).unwrap_or(usize::MAX);
        if keep >= self.slots.len() {
            return Vec::new();
        }
        let removed = self.slots.drain(keep..).filter_map(|slot| match slot {
            Slot::Held(held) => Some(held),
            Slot::Empty | Slot::Damaged => None,
        });
        removed.collect()
    }

    /// Whether there is anything, readable or not, at `from` or above.
    pub(crate) fn reaches(&self, from: Op) -> bool {
        let skip = usize::try_from(from.0.saturating_sub(self.base.0)).unwrap_or(usize::MAX);
        self.slots
            .iter()
            .skip(skip)
            .any(|slot| !matches!(slot, Slot::Empty))
    }

    /// Whether the disk has, or is being given, an entry at `from` or above.
    pub(crate) fn reaches_disk(&self, from: Op) -> bool {
        let skip = usize::try_from(from.0.saturating_sub(self.base.0)).unwrap_or(usize::MAX);
        self.slots.iter().skip(skip).any(|slot| match slot {
            Slot::Empty => false,
            Slot::Damaged => true,
            Slot::Held(held) => held.storage != Storage::Memory,
        })
    }

    /// Forgets everything up to `op`.
    pub(crate) fn evict_through(&mut self, op: Op) {
        while self.base <= op && self.slots.pop_front().is_some() {
            self.base = self.base.next();
        }
        if self.slots.is_empty() && self.base <= op {
            self.base = op.next();
        }
    }

    fn index(&self, op: Op) -> Option<usize> {
        usize::try_from(op.0.checked_sub(self.base.0)?).ok()
    }

    fn slot(&self, op: Op) -> Option<&Slot> {
        self.slots.get(self.index(op)?)
    }

    fn op_at(&self, index: usize) -> Op {
        Op(self.base.0 + index as u64)
    }
}

/// Whether `child` may stand directly above a prepare of this identity. A zero identity was
/// never sealed and says nothing (chapter 01 section 7.2).
pub(crate) fn chains(child: &PrepareHeader, below: Checksum) -> bool {
    below.is_zero() || child.parent() == below
}

/// Write access to the log for its owner, who decides how long applied entries stay.
#[derive(Debug)]
pub struct LogMut<'a> {
    pub(crate) log: &'a mut Log,
    pub(crate) commit_min: Op,
}

impl LogMut<'_> {
    /// Forgets entries up to `op`, but never the one at the applied op or above it: a vote
    /// describes the log from the commit point on and must be able to name the prepare there,
    /// or an idle group could not elect (chapter 03 section 8.4).
    pub fn evict_through(&mut self, op: Op) {
        if let Some(below) = self.commit_min.previous() {
            self.log.evict_through(op.min(below));
        }
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, prepare};

    use super::*;

    fn entry(op: u64) -> Held {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        Held {
            message: prepare::build_with_body(header, &[]),
            number: 0,
            storage: Storage::Memory,
            trust: Trust::Verified,
            forward_due: false,
            acknowledge_due: false,
        }
    }

    fn log(ops: &[u64]) -> Log {
        let mut log = Log::new(Op(1));
        for op in ops {
            log.insert(entry(*op));
        }
        log
    }

    #[test]
    fn holes_are_neither_held_nor_damaged() {
        let mut log = log(&[3, 6]);
        log.insert_damaged(Op(4));
        assert_eq!((log.first(), log.last()), (Some(Op(3)), Some(Op(6))));
        assert!(!log.contains(Op(5)) && !log.is_damaged(Op(5)));
        assert!(!log.contains(Op(4)) && log.is_damaged(Op(4)) && log.is_unsure(Op(4)));
        for (op, trust, is_unsure) in [
            (7, Trust::Suspect, true),
            (8, Trust::Offered, true),
            (9, Trust::Stray, false),
        ] {
            let mut unconfirmed = self::log(&[6]);
            unconfirmed.insert(Held { trust, ..entry(op) });
            assert!(!unconfirmed.contains(Op(op)));
            assert_eq!(unconfirmed.is_unsure(Op(op)), is_unsure, "{trust:?}");
        }
        assert!(!log.is_unsure(Op(3)) && !log.is_unsure(Op(5)) && !log.is_unsure(Op(90)));
        assert_eq!(log.next_held(Op(4), Op(6)), Some(Op(6)));
        assert_eq!(log.next_held(Op(4), Op(5)), None);
        assert_eq!(log.next_held(Op(0), Op(9)), Some(Op(3)));
        assert!(!log.contains(Op(0)) && !log.contains(Op(u64::MAX)));
    }

    #[test]
    fn an_entry_below_the_lowest_one_fills_in() {
        let mut log = log(&[6]);
        log.insert(entry(4));
        assert_eq!(
            (log.first(), log.last(), log.span()),
            (Some(Op(4)), Some(Op(6)), 3)
        );
        log.insert(entry(5));
        assert_eq!(log.iter().count(), 3);
    }

    #[test]
    fn removal_goes_by_op_and_returns_what_was_held() {
        let mut log = log(&[1, 2, 4, 5]);
        assert!(log.remove_from(Op(6)).is_empty());
        let removed = log.remove_from(Op(2));
        let ops: Vec<_> = removed.iter().map(|held| held.header().op().0).collect();
        assert_eq!(ops, [2, 4, 5]);
        assert_eq!(log.last(), Some(Op(1)));
        assert_eq!(log.remove_from(Op(0)).len(), 1);
        assert_eq!(log.first(), None);
    }

    #[test]
    fn eviction_keeps_the_applied_op() {
        let mut log = log(&[1, 2, 3, 4]);
        LogMut {
            log: &mut log,
            commit_min: Op(3),
        }
        .evict_through(Op(9));
        assert_eq!((log.first(), log.last()), (Some(Op(3)), Some(Op(4))));
        LogMut {
            log: &mut log,
            commit_min: Op(0),
        }
        .evict_through(Op(9));
        assert_eq!(log.first(), Some(Op(3)));
        log.evict_through(Op(9));
        log.insert(entry(10));
        assert_eq!((log.first(), log.span()), (Some(Op(10)), 1));
    }
}
