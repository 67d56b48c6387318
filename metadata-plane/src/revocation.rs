//! Names of pending revocations of consumer groups.

use biplane_wire::request::CompleteConsumerGroupRevocation;
use biplane_wire::{ClientId, Codec, Identifier};

/// Names a pending revocation: which member must give up which partition of which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevocationKey {
    /// Stream id.
    pub stream: u32,
    /// Topic id.
    pub topic: u32,
    /// Group id.
    pub group: u64,
    /// Client id of the member that owns the partition.
    pub client: ClientId,
    /// Partition it must give up.
    pub partition: u32,
}

impl RevocationKey {
    /// Body of the operation that completes it.
    pub fn body(&self) -> Vec<u8> {
        CompleteConsumerGroupRevocation {
            stream: Identifier::Numeric(self.stream),
            topic: Identifier::Numeric(self.topic),
            group_id: self.group,
            source_client: self.client,
            partition: self.partition,
        }
        .encode()
    }

    /// Client id under which servers propose it: one of its own for each group and partition
    /// (protocol specification, chapter 05, section 6.6).
    pub fn proposer(&self) -> ClientId {
        let group = u128::from(self.group & 0xFFFF_FFFF) << 32;
        ClientId(u128::from(u64::MAX) << 64 | group | u128::from(self.partition))
    }
}
