//! The ids and numbers that headers carry, each with its own type.
//!
//! An op, a view and a request number are all integers on the wire, and mixing them up compiles
//! if they stay integers. The inner field is public because arithmetic on these numbers is
//! frequent and local; the type only has to stop one kind from being passed as another.

use std::fmt;

use zerocopy::little_endian::{U32, U64, U128};

macro_rules! number {
    ($(#[$meta:meta])* $name:ident, $inner:ty, $raw:ty) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl From<$raw> for $name {
            fn from(raw: $raw) -> Self {
                Self(raw.into())
            }
        }

        impl From<$name> for $raw {
            fn from(value: $name) -> Self {
                value.0.into()
            }
        }
    };
}

macro_rules! display {
    ($name:ident, $format:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number! {
    /// Position of a prepare in the log of one group. The first op is 1; 0 means "before any".
    Op, u64, U64
}
number! {
    /// View number of one group. Its primary is the replica `view mod replica count`.
    View, u32, U32
}
number! {
    /// Index of a replica in the configured roster, below the replica count (at most 32).
    ReplicaId, u8, u8
}
number! {
    /// The random 128-bit id a client chose. Zero is not a client.
    ClientId, u128, U128
}
number! {
    /// Number of a request within a session. Zero is the register request.
    RequestNumber, u64, U64
}
number! {
    /// A 16-byte checksum field: an XXH3 value zero-extended, or zero (chapter 01 section 7).
    Checksum, u128, U128
}
number! {
    /// The first 16 bytes of BLAKE3 over the cluster name, read as a little-endian integer.
    ClusterId, u128, U128
}
number! {
    /// Key of a consensus group: the metadata group, or a packed stream, topic and partition.
    GroupId, u64, U64
}

display!(Op, "{}");
display!(View, "{}");
display!(ReplicaId, "{}");
display!(ClientId, "{:032x}");
display!(RequestNumber, "{}");
display!(Checksum, "{:032x}");
display!(ClusterId, "{:032x}");

impl Op {
    /// The op before the first one.
    pub const ZERO: Self = Self(0);

    /// The op that follows, saturating at the largest number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The op before this one; `None` for op 0.
    #[must_use]
    pub const fn previous(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(op) => Some(Self(op)),
            None => None,
        }
    }
}

impl View {
    /// The view that follows, saturating at the largest number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The replica that is primary in this view of a cluster of `replica_count` members.
    ///
    /// # Panics
    ///
    /// When `replica_count` is zero: a cluster has at least one member.
    #[must_use]
    pub fn primary(self, replica_count: u8) -> ReplicaId {
        assert!(replica_count > 0, "a cluster has at least one replica");
        let index = self.0 % u32::from(replica_count);
        ReplicaId(u8::try_from(index).unwrap_or(0))
    }
}

impl Checksum {
    /// "Not stamped".
    pub const ZERO: Self = Self(0);

    /// Whether the field is unstamped.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl ClusterId {
    /// From the 16 leading digest bytes, in digest order as they stand on the wire.
    #[must_use]
    pub const fn from_digest(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The 16 bytes as they stand on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

/// Stream, topic and partition of a partition group: zero-based resource ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// Stream id, below [`GroupId::STREAM_COUNT_MAX`].
    pub stream: u32,
    /// Topic id within the stream, below [`GroupId::TOPIC_COUNT_MAX`].
    pub topic: u32,
    /// Partition id within the topic, below [`GroupId::PARTITION_COUNT_MAX`].
    pub partition: u32,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stream, self.topic, self.partition)
    }
}

impl GroupId {
    /// The metadata group: the top bit alone (chapter 01 section 10.1).
    pub const METADATA: Self = Self(1 << 63);
    /// Stream ids are below this.
    pub const STREAM_COUNT_MAX: u32 = 1 << 20;
    /// Topic ids are below this.
    pub const TOPIC_COUNT_MAX: u32 = 1 << 12;
    /// Partition ids are below this; it is less than the 20 bits of the field could hold.
    pub const PARTITION_COUNT_MAX: u32 = 1_000_000;

    /// Packs a partition key; `None` when a component is at or above its limit.
    ///
    /// Masking instead would make two partitions share one group (chapter 01 section 10.2).
    #[must_use]
    pub const fn partition(stream: u32, topic: u32, partition: u32) -> Option<Self> {
        if stream >= Self::STREAM_COUNT_MAX
            || topic >= Self::TOPIC_COUNT_MAX
            || partition >= Self::PARTITION_COUNT_MAX
        {
            return None;
        }
        Some(Self(
            (stream as u64) << 32 | (topic as u64) << 20 | partition as u64,
        ))
    }

    /// The partition key of a legal partition group; `None` for metadata and illegal values.
    #[must_use]
    pub const fn unpack(self) -> Option<PartitionKey> {
        if self.0 >> 52 != 0 {
            return None;
        }
        let partition = (self.0 & 0xF_FFFF) as u32;
        if partition >= Self::PARTITION_COUNT_MAX {
            return None;
        }
        let stream = (self.0 >> 32) as u32;
        let topic = (self.0 >> 20 & 0xFFF) as u32;
        Some(PartitionKey {
            stream,
            topic,
            partition,
        })
    }

    /// Whether this is the metadata group.
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        self.0 == Self::METADATA.0
    }

    /// Whether this names a group that can exist: metadata or a legal partition key.
    ///
    /// Zero is legal: it is stream 0, topic 0, partition 0.
    #[must_use]
    pub const fn is_legal(self) -> bool {
        self.is_metadata() || self.unpack().is_some()
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_metadata() {
            return f.write_str("metadata");
        }
        match self.unpack() {
            Some(key) => key.fmt(f),
            None => write!(f, "illegal({:#018x})", self.0),
        }
    }
}
