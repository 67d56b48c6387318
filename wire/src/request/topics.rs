//! Requests about topics, partitions and segments, and the replicated forms that carry the
//! assignments of new partitions (chapter 01 section 11.3).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Codec, Cursor, body, write_length};
use crate::error::DecodeError;
use crate::ids::View;
use crate::primitive::{Bytes32, Identifier, Name};
use crate::tlv::{Options, Options32};

body! {
    /// GetTopic (300), DeleteTopic (303), PurgeTopic (305), GetConsumerGroups (601).
    #[derive(Copy, Eq)]
    pub struct TopicRequest<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    }
}

body! {
    /// CreateTopic (302).
    #[derive(Copy, Eq)]
    pub struct CreateTopic<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// Number of partitions.
        partitions: u32,
        /// Name of the new topic.
        name: Name<'a>,
        /// Options to the end of the body.
        options: Options<'a>,
    }
}

body! {
    /// UpdateTopic (304).
    #[derive(Copy, Eq)]
    pub struct UpdateTopic<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// Its name from now on.
        name: Name<'a>,
        /// Options to the end of the body.
        options: Options<'a>,
    }
}

body! {
    /// CreatePartitions (402), DeletePartitions (403).
    #[derive(Copy, Eq)]
    pub struct PartitionsRequest<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// How many to add or remove.
        count: u32,
    }
}

body! {
    /// DeleteSegments (503).
    #[derive(Copy, Eq)]
    pub struct DeleteSegments<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition: u32,
        /// How many of the oldest segments.
        count: u32,
    }
}

body! {
    /// TruncatePartition (operation 68): what DeleteSegments becomes.
    #[derive(Copy, Eq)]
    pub struct TruncatePartition<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition: u32,
        /// Segments entirely below this offset go; 0 removes nothing.
        up_to_offset: u64,
    }
}

/// `partition_id u32 | consensus_group_id u64`.
///
/// The second number is minted by the metadata primary and never appears in a header; it is
/// not the packed key of a group.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Assignment {
    partition_id: U32,
    consensus_group_id: U64,
}

const _: () = assert!(size_of::<Assignment>() == 12);

impl Assignment {
    /// An assignment.
    #[must_use]
    pub fn new(partition_id: u32, consensus_group_id: u64) -> Self {
        let (partition_id, consensus_group_id) = (partition_id.into(), consensus_group_id.into());
        Self {
            partition_id,
            consensus_group_id,
        }
    }

    /// Operation 64: the partition id. Operation 65: its distance from the first new id.
    #[must_use]
    pub fn partition_id(&self) -> u32 {
        self.partition_id.get()
    }

    /// The minted id.
    #[must_use]
    pub fn consensus_group_id(&self) -> u64 {
        self.consensus_group_id.get()
    }
}

impl std::fmt::Debug for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Assignment({}, {})",
            self.partition_id(),
            self.consensus_group_id()
        )
    }
}

/// `count u32 | count x assignment | created_view u32`, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignments<'a> {
    /// The assignments.
    pub entries: &'a [Assignment],
    /// Metadata view in which the primary built the prepare: the first view of the groups.
    pub created_view: View,
}

impl<'a> Codec<'a> for Assignments<'a> {
    /// A body that ends behind the entries has view 0; one to three bytes more are corrupt.
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let count = u32::read(cursor, "assignment count")?;
        let entries = cursor.records(count, "assignments")?;
        let created_view = match cursor.remaining() {
            0 => View(0),
            _ => View(u32::read(cursor, "created view")?),
        };
        Ok(Self {
            entries,
            created_view,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_length(self.entries.len(), out);
        out.extend_from_slice(self.entries.as_bytes());
        self.created_view.0.write(out);
    }
}

/// A body behind its length in bytes.
fn read_nested<'a, T: Codec<'a>>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<T, DecodeError> {
    T::decode(cursor.sub(field)?.rest())
}

/// CreateTopicWithAssignments (operation 64): what CreateTopic becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateTopicWithAssignments<'a> {
    /// The request with its explicit options in canonical form.
    pub request: CreateTopic<'a>,
    /// Every option the request leaves out, at its default.
    pub derived: Options<'a>,
    /// One assignment for each partition, with absolute ids.
    pub assignments: Assignments<'a>,
}

impl<'a> Codec<'a> for CreateTopicWithAssignments<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let request = read_nested(cursor, "request")?;
        let Options32(derived) = Options32::read(cursor, "derived options")?;
        let assignments = Assignments::read(cursor, "assignments")?;
        Ok(Self {
            request,
            derived,
            assignments,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        Bytes32(&self.request.encode()).write(out);
        Options32(self.derived).write(out);
        self.assignments.write(out);
    }
}

/// CreatePartitionsWithAssignments (operation 65): what CreatePartitions becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatePartitionsWithAssignments<'a> {
    /// The request as sent.
    pub request: PartitionsRequest<'a>,
    /// One assignment for each new partition, with ids counted from the first new one.
    pub assignments: Assignments<'a>,
}

impl<'a> Codec<'a> for CreatePartitionsWithAssignments<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let request = read_nested(cursor, "request")?;
        let assignments = Assignments::read(cursor, "assignments")?;
        Ok(Self {
            request,
            assignments,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        Bytes32(&self.request.encode()).write(out);
        self.assignments.write(out);
    }
}
