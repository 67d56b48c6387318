//! The operation byte of requests, prepares and replies, and the class each value belongs to
//! (chapter 01 section 8).

use std::fmt;

use crate::client_code::ClientCode;

/// What a request asks for or a prepare does. Every undefined byte fails the closed-set check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Not an operation; never legal on a frame.
    Reserved = 0,
    /// Log in and register a session.
    Register = 1,
    /// A read or another command without a log entry; the command code stands at 196..200.
    NonReplicated = 2,
    /// Close a session.
    Logout = 3,
    /// `CreateTopic` after the primary assigned partition groups.
    CreateTopicWithAssignments = 64,
    /// `CreatePartitions` after the primary assigned partition groups.
    CreatePartitionsWithAssignments = 65,
    /// Server-made: take a member out of its consumer group.
    RemoveConsumerGroupMember = 66,
    /// Server-made: finish taking a partition away from a member.
    CompleteConsumerGroupRevocation = 67,
    /// `DeleteSegments` after the owner resolved it to an offset.
    TruncatePartition = 68,
    /// Create a stream.
    CreateStream = 128,
    /// Rename a stream.
    UpdateStream = 129,
    /// Delete a stream.
    DeleteStream = 130,
    /// Drop all messages of a stream.
    PurgeStream = 131,
    /// Create a topic; replicated as [`Operation::CreateTopicWithAssignments`].
    CreateTopic = 132,
    /// Change a topic.
    UpdateTopic = 133,
    /// Delete a topic.
    DeleteTopic = 134,
    /// Drop all messages of a topic.
    PurgeTopic = 135,
    /// Add partitions; replicated as [`Operation::CreatePartitionsWithAssignments`].
    CreatePartitions = 136,
    /// Remove the partitions with the highest ids.
    DeletePartitions = 137,
    /// Remove the oldest segments; replicated as [`Operation::TruncatePartition`].
    DeleteSegments = 138,
    /// Create a consumer group.
    CreateConsumerGroup = 139,
    /// Delete a consumer group.
    DeleteConsumerGroup = 140,
    /// Create a user.
    CreateUser = 141,
    /// Change name or status of a user.
    UpdateUser = 142,
    /// Delete a user.
    DeleteUser = 143,
    /// Change a password.
    ChangePassword = 144,
    /// Replace the permissions of a user.
    UpdatePermissions = 145,
    /// Create a personal access token.
    CreatePersonalAccessToken = 146,
    /// Delete a personal access token.
    DeletePersonalAccessToken = 147,
    /// Join a consumer group.
    JoinConsumerGroup = 148,
    /// Leave a consumer group.
    LeaveConsumerGroup = 149,
    /// Append a batch to a partition.
    SendMessages = 160,
    /// Store a consumer position.
    StoreConsumerOffset = 161,
    /// Delete a consumer position.
    DeleteConsumerOffset = 162,
}

impl Operation {
    /// Every operation in numeric order.
    pub const ALL: [Self; 34] = [
        Self::Reserved,
        Self::Register,
        Self::NonReplicated,
        Self::Logout,
        Self::CreateTopicWithAssignments,
        Self::CreatePartitionsWithAssignments,
        Self::RemoveConsumerGroupMember,
        Self::CompleteConsumerGroupRevocation,
        Self::TruncatePartition,
        Self::CreateStream,
        Self::UpdateStream,
        Self::DeleteStream,
        Self::PurgeStream,
        Self::CreateTopic,
        Self::UpdateTopic,
        Self::DeleteTopic,
        Self::PurgeTopic,
        Self::CreatePartitions,
        Self::DeletePartitions,
        Self::DeleteSegments,
        Self::CreateConsumerGroup,
        Self::DeleteConsumerGroup,
        Self::CreateUser,
        Self::UpdateUser,
        Self::DeleteUser,
        Self::ChangePassword,
        Self::UpdatePermissions,
        Self::CreatePersonalAccessToken,
        Self::DeletePersonalAccessToken,
        Self::JoinConsumerGroup,
        Self::LeaveConsumerGroup,
        Self::SendMessages,
        Self::StoreConsumerOffset,
        Self::DeleteConsumerOffset,
    ];

    /// The operation of a byte; `None` when the byte is undefined.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        let index = match byte {
            0..=3 => byte,
            64..=68 => byte - 60,
            128..=149 => byte - 119,
            160..=162 => byte - 129,
            _ => return None,
        };
        Some(Self::ALL[index as usize])
    }

    /// The byte of an operation.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Made by servers only (64..=127); from a client it is refused with eviction 4.
    #[must_use]
    pub const fn is_internal(self) -> bool {
        matches!(self.as_u8(), 64..=127)
    }

    /// Changes metadata: internal plus 128..=137 and 139..=149.
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        self.is_internal() || matches!(self.as_u8(), 128..=137 | 139..=149)
    }

    /// Lives in the metadata log: metadata plus register and logout.
    #[must_use]
    pub const fn is_metadata_plane(self) -> bool {
        self.is_metadata() || matches!(self, Self::Register | Self::Logout)
    }

    /// Lives in the log of a partition group.
    #[must_use]
    pub const fn is_partition(self) -> bool {
        self.as_u8() >= 160
    }

    /// Claimed by one of the two planes. Not so: 0, 2 and 138.
    #[must_use]
    pub const fn is_plane_routable(self) -> bool {
        self.is_metadata_plane() || self.is_partition()
    }

    /// Whether a status-0 reply starts with a result section (chapter 01 section 14.2).
    ///
    /// A register reply is framed only when its body is not empty, hence the length.
    #[must_use]
    pub const fn is_result_framed(self, body_length: usize) -> bool {
        match self {
            Self::Register => body_length > 0,
            Self::StoreConsumerOffset | Self::DeleteConsumerOffset => true,
            _ => self.is_metadata(),
        }
    }

    /// Whether a client may put this operation on a request.
    #[must_use]
    pub const fn client_may_send(self) -> bool {
        !self.is_internal() && !matches!(self, Self::Reserved)
    }

    /// The operation that carries a command code. Codes without one of their own, unknown ones
    /// included, travel as [`Operation::NonReplicated`].
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        ClientCode::from_u32(code).map_or(Self::NonReplicated, ClientCode::operation)
    }

    /// What the primary replicates in place of a client operation; itself for most.
    #[must_use]
    pub const fn replicated_as(self) -> Self {
        match self {
            Self::CreateTopic => Self::CreateTopicWithAssignments,
            Self::CreatePartitions => Self::CreatePartitionsWithAssignments,
            Self::DeleteSegments => Self::TruncatePartition,
            other => other,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

const _: () = {
    let mut byte = 0_u8;
    let mut seen = 0;
    loop {
        if let Some(operation) = Operation::from_u8(byte) {
            assert!(operation.as_u8() == byte);
            seen += 1;
        }
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    assert!(seen == Operation::ALL.len());
};
