//! O12: what is repaired or transferred is the same, byte for byte.
//!
//! The identity of a prepare of a partition does not cover its body, so bodies are compared as
//! well wherever a replica commits an op again. State that came by transfer has the digest of
//! another replica's, as soon as both stand at the same op.

use std::collections::BTreeSet;

use biplane_wire::{Message, Op, PrepareHeader};

use super::committed::describe;
use super::{GroupKey, Violation};

/// Bodies and installed states.
#[derive(Debug, Default)]
pub struct Faithful {
    /// Nodes that installed metadata and were not compared since.
    installed: BTreeSet<u8>,
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

    /// A node installed transferred metadata.
    pub fn installed(&mut self, node: u8) {
        self.installed.insert(node);
    }

    /// Nodes whose installed state is to be compared with another's at the same op.
    #[must_use]
    pub fn pending(&self) -> Vec<u8> {
        self.installed.iter().copied().collect()
    }

    /// A node that installed state stands at the same op as another.
    ///
    /// # Errors
    ///
    /// Their states differ.
    pub fn state(
        &mut self,
        key: GroupKey,
        op: Op,
        installed: (u8, u64),
        other: (u8, u64),
    ) -> Result<(), Violation> {
        self.installed.remove(&installed.0);
        self.states += 1;
        if installed.1 == other.1 {
            return Ok(());
        }
        let text = format!(
            "n{} installed state and has {:016x} at op {op}, where n{} has {:016x}",
            installed.0, installed.1, other.0, other.1
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
        assert!(faithful.pending().is_empty());
        faithful.installed(1);
        assert_eq!(faithful.pending(), [1]);
        faithful.state(KEY, Op(9), (1, 77), (0, 77)).expect("equal");
        assert!(faithful.pending().is_empty());
        faithful.installed(1);
        let other = faithful.state(KEY, Op(12), (1, 77), (2, 78));
        assert_eq!(other.expect_err("differs").oracle, "O12 faithful transfer");
        assert_eq!(faithful.states, 2);
    }
}
