//! Responses about consumer groups.

use crate::codec::{Codec, Cursor, U32List, body, read_many, write_length};
use crate::error::DecodeError;
use crate::primitive::Name;

body! {
    /// A group in GetConsumerGroups (601) and at the start of [`ConsumerGroupDetails`].
    #[derive(Copy, Eq)]
    pub struct ConsumerGroupRecord<'a> {
        /// The group.
        id: u32,
        /// Partitions of the topic.
        partitions_count: u32,
        /// Number of members.
        members_count: u32,
        /// Name.
        name: Name<'a>,
    }
}

/// A member with the partitions it owns: `id u32 | count u32 | partition u32 x count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupMember {
    /// Slot of the member in its group; no client id.
    pub id: u32,
    /// Owned partitions, those pending revocation included.
    pub partitions: Vec<u32>,
}

impl<'a> Codec<'a> for ConsumerGroupMember {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let id = u32::read(cursor, "member id")?;
        let partitions = U32List::read(cursor, "member partitions")?.iter().collect();
        Ok(Self { id, partitions })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.id.write(out);
        write_length(self.partitions.len(), out);
        self.partitions.write(out);
    }
}

/// GetConsumerGroup (600) and CreateConsumerGroup (602): a group and `members_count` members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupDetails<'a> {
    /// The group.
    pub group: ConsumerGroupRecord<'a>,
    /// Its members; as many as the record says.
    pub members: Vec<ConsumerGroupMember>,
}

impl<'a> Codec<'a> for ConsumerGroupDetails<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let group = ConsumerGroupRecord::read(cursor, "group")?;
        let members = read_many(cursor, group.members_count, "members")?;
        Ok(Self { group, members })
    }

    fn write(&self, out: &mut Vec<u8>) {
        assert!(
            self.members.len() == self.group.members_count as usize,
            "the record counts"
        );
        self.group.write(out);
        self.members.write(out);
    }
}

/// SyncConsumerGroup (606): `generation u64 | count u32 | partition u32 x count`. An empty body
/// means that the caller is not a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// Generation of the group.
    pub generation: u64,
    /// Partitions the caller may poll.
    pub partitions: Vec<u32>,
}

impl<'a> Codec<'a> for SyncReply {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let generation = u64::read(cursor, "generation")?;
        let partitions = U32List::read(cursor, "partitions")?.iter().collect();
        Ok(Self {
            generation,
            partitions,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.generation.write(out);
        write_length(self.partitions.len(), out);
        self.partitions.write(out);
    }
}
