//! O1 and O2: one log per group.
//!
//! There is one canonical sequence per group, extended by one op at a time at the first commit
//! anywhere; each replica's committed op n is the canonical op n, by identity. Each canonical
//! op names its predecessor, and timestamps rise.

use std::collections::BTreeMap;

use biplane_wire::{Checksum, Message, Op, PrepareHeader, View};

use super::{GroupKey, Violation};

/// The canonical log of one group.
#[derive(Debug, Default)]
pub struct Canon {
    entries: Vec<Message>,
    /// The view in which an op was first seen to be committed; it may be later than the one in
    /// which it was prepared.
    views: BTreeMap<Op, View>,
}

impl Canon {
    /// The highest op that any replica committed.
    #[must_use]
    pub fn last(&self) -> Op {
        Op(self.entries.len() as u64)
    }

    /// The canonical prepare of `op`.
    #[must_use]
    pub fn get(&self, op: Op) -> Option<&Message> {
        self.entries
            .get(usize::try_from(op.0.checked_sub(1)?).ok()?)
    }

    /// Its header.
    #[must_use]
    pub fn header(&self, op: Op) -> Option<&PrepareHeader> {
        self.get(op).map(|message| message.header())
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self, op: Op) -> Option<Checksum> {
        self.header(op).map(|header| header.frame.checksum())
    }

    /// The view in which an op was committed: views before it knew nothing of that, and one that
    /// starts late need not have it.
    #[must_use]
    pub fn view(&self, op: Op) -> Option<View> {
        let prepared = self.header(op)?.frame.view();
        Some(self.views.get(&op).copied().unwrap_or(prepared))
    }

    /// The log, from op one.
    pub fn iter(&self) -> impl Iterator<Item = &Message> {
        self.entries.iter()
    }
}

/// What a commit did to the canonical log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is the first commit of this op.
    First,
    /// Others committed it before.
    Again,
}

/// The canonical logs.
#[derive(Debug, Default)]
pub struct Committed {
    groups: BTreeMap<GroupKey, Canon>,
    /// Ops compared with the canonical one.
    pub compared: u64,
    /// Links checked.
    pub chained: u64,
}

impl Committed {
    /// The canonical log of a group.
    #[must_use]
    pub fn canon(&self, key: GroupKey) -> Option<&Canon> {
        self.groups.get(&key)
    }

    /// The canonical prepare of an op.
    #[must_use]
    pub fn canonical(&self, key: GroupKey, op: Op) -> Option<&Message> {
        self.canon(key)?.get(op)
    }

    /// All canonical logs.
    pub fn groups(&self) -> impl Iterator<Item = (&GroupKey, &Canon)> {
        self.groups.iter()
    }

    /// The first replica to commit `op` is in `view`.
    pub fn first_in(&mut self, key: GroupKey, op: Op, view: View) {
        self.groups.entry(key).or_default().views.insert(op, view);
    }

    /// A replica applied `message`.
    ///
    /// # Errors
    ///
    /// The claim it breaks.
    pub fn commit(
        &mut self,
        node: u8,
        key: GroupKey,
        message: &Message,
    ) -> Result<Commit, Violation> {
        let header: &PrepareHeader = message.header();
        let op = header.op();
        let canon = self.groups.entry(key).or_default();
        if let Some(known) = canon.header(op) {
            self.compared += 1;
            if known.frame.checksum() != header.frame.checksum() {
                let text = format!(
                    "n{node} committed op {op} as {} and the canonical log has {}",
                    describe(header),
                    describe(known)
                );
                return Err(Violation::new("O1 committed prefix", key.group, text));
            }
            return Ok(Commit::Again);
        }
        if op != canon.last().next() {
            let text = format!(
                "n{node} committed op {op} first, but the canonical log ends at {}",
                canon.last()
            );
            return Err(Violation::new("O1 committed prefix", key.group, text));
        }
        if let Some(previous) = op.previous().and_then(|below| canon.header(below)) {
            self.chained += 1;
            if header.parent() != previous.frame.checksum() {
                let text = format!(
                    "{} names parent {:x} and follows {}",
                    describe(header),
                    header.parent().0,
                    describe(previous)
                );
                return Err(Violation::new("O2 hash chain", key.group, text));
            }
            if header.timestamp() <= previous.timestamp() {
                let text = format!(
                    "the timestamp {} of op {op} does not exceed {}",
                    header.timestamp(),
                    previous.timestamp()
                );
                return Err(Violation::new("O2 hash chain", key.group, text));
            }
        }
        canon.entries.push(message.clone());
        Ok(Commit::First)
    }
}

/// A prepare as people read it.
#[must_use]
pub fn describe(header: &PrepareHeader) -> String {
    format!(
        "op {} ({:016x}, view {}, {:?}, client {:x} request {})",
        header.op(),
        header.frame.checksum().0,
        header.frame.view(),
        header.operation(),
        header.client().0,
        header.request()
    )
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, GroupId, Operation, prepare};

    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };

    fn entry(op: u64, parent: Checksum, timestamp: u64) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_parent(parent);
        header.set_timestamp(timestamp);
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        prepare::build_with_body(header, &[])
    }

    fn identity(message: &Message) -> Checksum {
        message.header::<PrepareHeader>().frame.checksum()
    }

    #[test]
    fn replicas_that_follow_one_log_pass() {
        let mut committed = Committed::default();
        let first = entry(1, Checksum::ZERO, 1);
        let second = entry(2, identity(&first), 2);
        assert_eq!(committed.commit(0, KEY, &first), Ok(Commit::First));
        assert_eq!(committed.commit(1, KEY, &first), Ok(Commit::Again));
        assert_eq!(committed.commit(1, KEY, &second), Ok(Commit::First));
        assert_eq!(committed.commit(0, KEY, &second), Ok(Commit::Again));
        assert_eq!((committed.compared, committed.chained), (2, 1));
    }

    #[test]
    fn another_prepare_at_a_committed_op_is_found() {
        let mut committed = Committed::default();
        committed
            .commit(0, KEY, &entry(1, Checksum::ZERO, 1))
            .expect("first");
        let error = committed
            .commit(1, KEY, &entry(1, Checksum::ZERO, 2))
            .expect_err("differs");
        assert_eq!(error.oracle, "O1 committed prefix");
    }

    #[test]
    fn a_skipped_op_a_broken_chain_and_a_falling_timestamp_are_found() {
        let mut committed = Committed::default();
        let first = entry(1, Checksum::ZERO, 5);
        committed.commit(0, KEY, &first).expect("first");
        let skipped = committed.commit(0, KEY, &entry(3, identity(&first), 6));
        assert_eq!(skipped.expect_err("skips").oracle, "O1 committed prefix");
        let unchained = committed.commit(0, KEY, &entry(2, Checksum(9), 6));
        assert_eq!(unchained.expect_err("unchained").oracle, "O2 hash chain");
        let early = committed.commit(0, KEY, &entry(2, identity(&first), 5));
        assert_eq!(early.expect_err("early").oracle, "O2 hash chain");
    }
}
