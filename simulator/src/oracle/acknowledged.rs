//! O5: what a client was told has committed stays committed.
//!
//! A success that a node answers names an op; the canonical log must hold that client's request
//! there when the answer leaves, and at the end every replica must have applied it.

use std::collections::BTreeMap;

use biplane_wire::{ClientId, Op, RequestNumber};

use super::committed::Committed;
use super::{GroupKey, Violation};

/// The request an answer was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Client.
    pub client: ClientId,
    /// Number of its request.
    pub request: RequestNumber,
}

/// Everything acknowledged so far.
#[derive(Debug, Default)]
pub struct Acknowledged {
    groups: BTreeMap<GroupKey, BTreeMap<Op, Acknowledgement>>,
    /// Answers and final ops checked.
    pub checked: u64,
}

impl Acknowledged {
    /// A node answers success for an op.
    ///
    /// # Errors
    ///
    /// The canonical log does not hold the request there.
    pub fn answer(
        &mut self,
        node: u8,
        key: GroupKey,
        op: Op,
        what: Acknowledgement,
        committed: &Committed,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let found = committed.canon(key).and_then(|canon| canon.header(op));
        let held = found.map(|header| Acknowledgement {
            client: header.client(),
            request: header.request(),
        });
        if held != Some(what) {
            let text = format!(
                "n{node} acknowledged {what:?} at op {op}, where the canonical log has {held:?}"
            );
            return Err(Violation::new("O5 acknowledged kept", key.group, text));
        }
        self.groups.entry(key).or_default().insert(op, what);
        Ok(())
    }

    /// Number of acknowledged ops.
    #[must_use]
    pub fn count(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    /// At the end: a replica that applied up to `commit_min` covers every acknowledged op.
    ///
    /// # Errors
    ///
    /// The first op it does not cover.
    pub fn covered(&mut self, node: u8, key: GroupKey, commit_min: Op) -> Result<(), Violation> {
        let Some(ops) = self.groups.get(&key) else {
            return Ok(());
        };
        self.checked += ops.len() as u64;
        match ops.last_key_value() {
            Some((&op, what)) if op > commit_min => {
                let text = format!("n{node} ends at op {commit_min}; op {op} of {what:?} is lost");
                Err(Violation::new("O5 acknowledged kept", key.group, text))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, GroupId, Operation, PrepareHeader, prepare};

    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };
    const WHAT: Acknowledgement = Acknowledgement {
        client: ClientId(7),
        request: RequestNumber(3),
    };

    fn committed() -> Committed {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(1));
        header.set_client(WHAT.client);
        header.set_request(WHAT.request);
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        let mut committed = Committed::default();
        let message = prepare::build_with_body(header, &[]);
        committed.commit(0, KEY, &message).expect("first");
        committed
    }

    #[test]
    fn an_acknowledged_request_in_the_log_passes_and_must_be_covered() {
        let mut acks = Acknowledged::default();
        acks.answer(0, KEY, Op(1), WHAT, &committed())
            .expect("held");
        acks.covered(0, KEY, Op(1)).expect("covered");
        assert_eq!(
            acks.covered(0, KEY, Op(0)).expect_err("lost").oracle,
            "O5 acknowledged kept"
        );
    }

    #[test]
    fn an_answer_for_another_request_or_an_uncommitted_op_is_found() {
        let mut acks = Acknowledged::default();
        let other = Acknowledgement {
            client: ClientId(8),
            ..WHAT
        };
        assert!(acks.answer(0, KEY, Op(1), other, &committed()).is_err());
        assert!(acks.answer(0, KEY, Op(2), WHAT, &committed()).is_err());
    }
}
