//! O12: what is repaired or transferred is the same, byte for byte.
//!
//! The identity of a prepare of a partition does not cover its body, so bodies are compared as
//! well wherever a replica commits an op again. State that came by transfer has the digest that
//! another replica had, or comes to have, at the same op.

use std::collections::BTreeMap;

use biplane_wire::{Message, Op, PrepareHeader};

use super::committed::describe;
use super::{GroupKey, Violation};

/// A digest of a replica's state right after an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Installed {
    node: u8,
    digest: u64,
}

/// Bodies and installed states.
#[derive(Debug, Default)]
pub struct Faithful {
    installed: BTreeMap<(GroupKey, Op), Installed>,
    /// Bodies compared.
    pub bodies: u64,
    /// Installed states compared.
    pub states: u64,
}

impl Faithful {
    /// A replica commits an op whose canonical prepare is known.
    ///
    /// # Errors
    ///
    /// The bodies differ.
    pub fn again(
        &mut self,
        node: u8,
        key: GroupKey,
        canonical: &Message,
        held: &Message,
    ) -> Result<(), Violation> {
        self.bodies += 1;
        if canonical.body() == held.body() {
            return Ok(());
        }
        let header: &PrepareHeader = held.header();
        let text = format!("n{node} holds {} with another body", describe(header));
        Err(Violation::new("O12 faithful repair", key.group, text))
    }

    /// A transfer was installed.
    pub fn installed(&mut self, node: u8, key: GroupKey, op: Op, digest: u64) {
        self.installed
            .entry((key, op))
            .or_insert(Installed { node, digest });
    }

    /// Whether somebody installed state at this op, so that another's digest there is of use.
    #[must_use]
    pub fn wants(&self, node: u8, key: GroupKey, op: Op) -> bool {
        let known = self.installed.get(&(key, op));
        known.is_some_and(|known| known.node != node)
    }

    /// Another replica stands at an op at which a transfer was installed.
    ///
    /// # Errors
    ///
    /// Their states differ.
    pub fn state(&mut self, node: u8, key: GroupKey, op: Op, digest: u64) -> Result<(), Violation> {
        let Some(known) = self.installed.remove(&(key, op)) else {
            return Ok(());
        };
        self.states += 1;
        if known.digest == digest {
            return Ok(());
        }
        let text = format!(
            "n{} installed state {:016x} at op {op}, where n{node} has {digest:016x}",
            known.node, known.digest
        );
        Err(Violation::new("O12 faithful transfer", key.group, text))
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, GroupId, Operation, prepare};

    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };

    fn entry(body: &[u8]) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(1));
        header.set_group(GroupId::METADATA);
        header.set_operation(Operation::CreateStream);
        prepare::build_with_body(header, body)
    }

    #[test]
    fn equal_bodies_pass_and_others_are_found() {
        let mut faithful = Faithful::default();
        let canonical = entry(b"one");
        faithful
            .again(1, KEY, &canonical, &entry(b"one"))
            .expect("equal");
        let other = faithful.again(1, KEY, &canonical, &entry(b"two"));
        assert_eq!(other.expect_err("differs").oracle, "O12 faithful repair");
    }

    #[test]
    fn an_installed_state_is_compared_once_with_another_replica() {
        let mut faithful = Faithful::default();
        faithful.installed(1, KEY, Op(9), 77);
        assert!(!faithful.wants(1, KEY, Op(9)), "with itself");
        assert!(!faithful.wants(0, KEY, Op(8)), "elsewhere");
        assert!(faithful.wants(0, KEY, Op(9)));
        faithful.state(0, KEY, Op(9), 77).expect("equal");
        assert!(!faithful.wants(0, KEY, Op(9)));
        faithful.installed(1, KEY, Op(12), 77);
        assert!(faithful.state(2, KEY, Op(12), 78).is_err());
        assert_eq!(faithful.states, 2);
    }
}
