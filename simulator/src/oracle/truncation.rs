//! O11: nothing is dropped without proof.
//!
//! What a view drops was denied by a quorum, so denials must be true: a vote denies an op only
//! if its sender never acknowledged it, or acknowledged it under a policy that a restart may
//! forget. And what is known to be committed never goes: the log a primary announces names the
//! canonical prepares up to the last op that was committed anywhere.

use std::collections::BTreeSet;

use biplane_wire::{Checksum, DoViewChangeHeader, Op, StartViewHeader, Suffix, Typed, View};

use super::committed::Canon;
use super::{GroupKey, Violation};

/// Counts what was checked.
#[derive(Debug, Default)]
pub struct Truncation {
    /// Nodes that lost their disk.
    wiped: BTreeSet<u8>,
    /// Denials and announced ops checked.
    pub checked: u64,
}

impl Truncation {
    /// A vote leaves a node; `given` says what the node acknowledged durably and holds itself
    /// to.
    ///
    /// # Errors
    ///
    /// The op it denies although it acknowledged it.
    pub fn vote(
        &mut self,
        node: u8,
        key: GroupKey,
        frame: &Typed<DoViewChangeHeader>,
        given: impl Fn(Op) -> Option<Checksum>,
    ) -> Result<(), Violation> {
        let suffix = Suffix::of_do_view_change(frame).map_err(|error| {
            let text = format!("n{node} sends a vote that does not decode: {error}");
            Violation::new("O11 truncation", key.group, text)
        })?;
        for entry in suffix.iter().filter(|entry| entry.nack) {
            self.checked += 1;
            if let Some(identity) = given(entry.op) {
                let text = format!(
                    "n{node} denies op {} in view {}, which it acknowledged as {:016x}",
                    entry.op,
                    frame.header().frame.view(),
                    identity.0
                );
                return Err(Violation::new("O11 truncation", key.group, text));
            }
        }
        Ok(())
    }

    /// A node lost its disk on purpose: it begins in the first view as if it had never run.
    pub fn wipe(&mut self, node: u8) {
        self.wiped.insert(node);
    }

    /// A primary announces its log; `may_be_followed` says whether enough others to elect with
    /// it have no higher view on their disks.
    ///
    /// # Errors
    ///
    /// It ends below a committed op, or names another prepare for one.
    pub fn announcement(
        &mut self,
        node: u8,
        key: GroupKey,
        frame: &Typed<StartViewHeader>,
        canon: Option<&Canon>,
        may_be_followed: bool,
    ) -> Result<(), Violation> {
        let (Ok(suffix), Some(canon)) = (Suffix::of_start_view(frame), canon) else {
            return Ok(());
        };
        let header = frame.header();
        let view = header.frame.view();
        let begins_anew = header.op() == Op::ZERO || view == View(0) && !may_be_followed;
        if begins_anew && self.wiped.contains(&node) {
            // Nobody who has been in a later view listens, also when it has taken requests in its
            // first one meanwhile; see F11 in docs/simulation.md.
            return Ok(());
        }
        // A primary that was deposed and does not know it yet speaks of what was before.
        let is_owed = |op: Op| canon.view(op).is_some_and(|committed| committed <= view);
        let mut last = canon.last();
        while last > header.op() && !is_owed(last) {
            last = Op(last.0 - 1);
        }
        self.checked += 1;
        if header.op() < last {
            let text = format!(
                "n{node} announces view {view} with a log that ends at op {}; op {last} is \
                 committed",
                header.op(),
            );
            return Err(Violation::new("O11 truncation", key.group, text));
        }
        for named in suffix.iter().filter_map(|entry| entry.header) {
            self.checked += 1;
            let (op, identity) = (named.op(), named.frame.checksum());
            let canonical = canon.identity(op).filter(|known| *known != identity);
            if let Some(canonical) = canonical.filter(|_| is_owed(op)) {
                let text = format!(
                    "n{node} announces view {view} with {:016x} at op {op}; {:016x} is committed",
                    identity.0, canonical.0
                );
                return Err(Violation::new("O11 truncation", key.group, text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{
        Command, GroupId, Message, Operation, PrepareHeader, SuffixBuilder, prepare,
    };

    use super::super::committed::Committed;
    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };

    fn entry(op: u64, parent: Checksum, variant: u64) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_parent(parent);
        header.set_timestamp(10 * op + variant);
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        prepare::build_with_body(header, &[])
    }

    fn identity(message: &Message) -> Checksum {
        message.header::<PrepareHeader>().frame.checksum()
    }

    fn vote(op: u64, held: Option<&Message>) -> Typed<DoViewChangeHeader> {
        let mut suffix = SuffixBuilder::new(Op(op));
        let header = held.map(|message| message.header::<PrepareHeader>());
        suffix.push(header, held.is_none(), held.is_some());
        let header = DoViewChangeHeader::new(Command::DoViewChange);
        Typed::decode(suffix.do_view_change(header)).expect("a vote")
    }

    fn announcement(op: u64, named: &Message) -> Typed<StartViewHeader> {
        let mut suffix = SuffixBuilder::new(Op(op));
        suffix.push(Some(named.header::<PrepareHeader>()), false, false);
        let header = StartViewHeader::new(Command::StartView);
        Typed::decode(suffix.start_view(header)).expect("an announcement")
    }

    #[test]
    fn true_denials_pass_and_a_denial_of_what_was_acknowledged_is_found() {
        let mut oracle = Truncation::default();
        let first = entry(1, Checksum::ZERO, 0);
        oracle
            .vote(0, KEY, &vote(1, None), |_| None)
            .expect("never acknowledged");
        let given = |op: Op| (op == Op(1)).then(|| identity(&first));
        oracle
            .vote(0, KEY, &vote(1, Some(&first)), given)
            .expect("it has it");
        let denied = oracle.vote(0, KEY, &vote(1, None), given);
        assert_eq!(denied.expect_err("denied").oracle, "O11 truncation");
    }

    #[test]
    fn a_log_that_lacks_or_replaces_what_is_committed_is_found() {
        let mut committed = Committed::default();
        let first = entry(1, Checksum::ZERO, 0);
        let second = entry(2, identity(&first), 0);
        for message in [&first, &second] {
            committed.commit(0, KEY, message).expect("in order");
        }
        let canon = committed.canon(KEY);
        let mut oracle = Truncation::default();
        oracle
            .announcement(1, KEY, &announcement(2, &second), canon, true)
            .expect("all of it");
        let short = oracle.announcement(1, KEY, &announcement(1, &first), canon, true);
        assert!(short.is_err());
        // A view that was formed before the commit and starts late need not have it.
        committed.first_in(KEY, Op(2), View(1));
        let canon = committed.canon(KEY);
        let late = oracle.announcement(1, KEY, &announcement(1, &first), canon, true);
        late.expect("nobody follows it");
        committed.first_in(KEY, Op(2), View(0));
        let canon = committed.canon(KEY);
        let other = entry(2, identity(&first), 1);
        let mut replaced = |may_be_followed| {
            let frame = announcement(2, &other);
            oracle.announcement(1, KEY, &frame, canon, may_be_followed)
        };
        for may_be_followed in [true, false] {
            let found = replaced(may_be_followed).expect_err("replaced");
            assert_eq!(found.oracle, "O11 truncation");
        }
    }

    #[test]
    fn a_wiped_node_that_begins_anew_is_excused_where_nobody_can_follow() {
        let mut committed = Committed::default();
        let first = entry(1, Checksum::ZERO, 0);
        committed.commit(0, KEY, &first).expect("in order");
        committed.first_in(KEY, Op(1), View(0));
        let canon = committed.canon(KEY);
        let other = announcement(1, &entry(1, Checksum::ZERO, 1));
        let mut oracle = Truncation::default();
        oracle.wipe(1);
        let heard = oracle.announcement(1, KEY, &other, canon, true);
        assert_eq!(heard.expect_err("replaced").oracle, "O11 truncation");
        let unheard = oracle.announcement(1, KEY, &other, canon, false);
        unheard.expect("all others are in later views");
        let never_wiped = oracle.announcement(0, KEY, &other, canon, false);
        never_wiped.expect_err("replaced");
    }
}
