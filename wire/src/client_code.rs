//! The registry of client command codes (chapter 01 section 9).
//!
//! A replicated command is identified by its operation byte and the code never travels; every
//! other command travels as operation 2 with its code at bytes 196..200 of the request header.

use crate::operation::Operation;

/// A command a client can issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum ClientCode {
    /// Liveness; the only command answered before login.
    Ping = 1,
    /// Server statistics.
    GetStats = 10,
    /// Diagnostic archive.
    GetSnapshot = 11,
    /// Roster and primary.
    GetClusterMetadata = 12,
    /// Option catalog of a scope.
    DescribeOptions = 13,
    /// Act for the session of another connection.
    AttachConsumerSession = 14,
    /// Details of this connection.
    GetMe = 20,
    /// Details of one connection.
    GetClient = 21,
    /// All connections.
    GetClients = 22,
    /// One user.
    GetUser = 31,
    /// All users.
    GetUsers = 32,
    /// Create a user.
    CreateUser = 33,
    /// Delete a user.
    DeleteUser = 34,
    /// Change a user.
    UpdateUser = 35,
    /// Replace permissions.
    UpdatePermissions = 36,
    /// Change a password.
    ChangePassword = 37,
    /// Legacy login; answered with eviction 15.
    LoginUser = 38,
    /// Close the session.
    LogoutUser = 39,
    /// Log in with a password.
    LoginRegister = 40,
    /// Tokens of the caller.
    GetPersonalAccessTokens = 41,
    /// Create a token.
    CreatePersonalAccessToken = 42,
    /// Delete a token.
    DeletePersonalAccessToken = 43,
    /// Legacy login; answered with eviction 15.
    LoginWithPersonalAccessToken = 44,
    /// Log in with a token.
    LoginRegisterWithPersonalAccessToken = 45,
    /// Read messages.
    PollMessages = 100,
    /// Append messages.
    SendMessages = 101,
    /// Always refused.
    FlushUnsavedBuffer = 102,
    /// Where to poll with auto-commit.
    GetPollRouting = 103,
    /// Poll on an attached connection.
    PollMessagesOnPrimary = 104,
    /// Read a stored position.
    GetConsumerOffset = 120,
    /// Store a position.
    StoreConsumerOffset = 121,
    /// Delete a position.
    DeleteConsumerOffset = 122,
    /// Where to store positions.
    GetConsumerOffsetRouting = 123,
    /// One stream.
    GetStream = 200,
    /// All streams.
    GetStreams = 201,
    /// Create a stream.
    CreateStream = 202,
    /// Delete a stream.
    DeleteStream = 203,
    /// Rename a stream.
    UpdateStream = 204,
    /// Empty a stream.
    PurgeStream = 205,
    /// One topic.
    GetTopic = 300,
    /// All topics of a stream.
    GetTopics = 301,
    /// Create a topic.
    CreateTopic = 302,
    /// Delete a topic.
    DeleteTopic = 303,
    /// Change a topic.
    UpdateTopic = 304,
    /// Empty a topic.
    PurgeTopic = 305,
    /// Add partitions.
    CreatePartitions = 402,
    /// Remove partitions.
    DeletePartitions = 403,
    /// Remove segments.
    DeleteSegments = 503,
    /// One consumer group.
    GetConsumerGroup = 600,
    /// All consumer groups of a topic.
    GetConsumerGroups = 601,
    /// Create a consumer group.
    CreateConsumerGroup = 602,
    /// Delete a consumer group.
    DeleteConsumerGroup = 603,
    /// Join a consumer group.
    JoinConsumerGroup = 604,
    /// Leave a consumer group.
    LeaveConsumerGroup = 605,
    /// Current assignment of a member.
    SyncConsumerGroup = 606,
}

impl ClientCode {
    /// Every code in numeric order.
    pub const ALL: [Self; 55] = [
        Self::Ping,
        Self::GetStats,
        Self::GetSnapshot,
        Self::GetClusterMetadata,
        Self::DescribeOptions,
        Self::AttachConsumerSession,
        Self::GetMe,
        Self::GetClient,
        Self::GetClients,
        Self::GetUser,
        Self::GetUsers,
        Self::CreateUser,
        Self::DeleteUser,
        Self::UpdateUser,
        Self::UpdatePermissions,
        Self::ChangePassword,
        Self::LoginUser,
        Self::LogoutUser,
        Self::LoginRegister,
        Self::GetPersonalAccessTokens,
        Self::CreatePersonalAccessToken,
        Self::DeletePersonalAccessToken,
        Self::LoginWithPersonalAccessToken,
        Self::LoginRegisterWithPersonalAccessToken,
        Self::PollMessages,
        Self::SendMessages,
        Self::FlushUnsavedBuffer,
        Self::GetPollRouting,
        Self::PollMessagesOnPrimary,
        Self::GetConsumerOffset,
        Self::StoreConsumerOffset,
        Self::DeleteConsumerOffset,
        Self::GetConsumerOffsetRouting,
        Self::GetStream,
        Self::GetStreams,
        Self::CreateStream,
        Self::DeleteStream,
        Self::UpdateStream,
        Self::PurgeStream,
        Self::GetTopic,
        Self::GetTopics,
        Self::CreateTopic,
        Self::DeleteTopic,
        Self::UpdateTopic,
        Self::PurgeTopic,
        Self::CreatePartitions,
        Self::DeletePartitions,
        Self::DeleteSegments,
        Self::GetConsumerGroup,
        Self::GetConsumerGroups,
        Self::CreateConsumerGroup,
        Self::DeleteConsumerGroup,
        Self::JoinConsumerGroup,
        Self::LeaveConsumerGroup,
        Self::SyncConsumerGroup,
    ];

    /// The command of a code; `None` when the code is not in the registry.
    #[must_use]
    pub fn from_u32(code: u32) -> Option<Self> {
        let found = Self::ALL.binary_search_by_key(&code, |known| known.as_u32());
        found.ok().and_then(|index| Self::ALL.get(index).copied())
    }

    /// The number of a command.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// The operation that carries this command.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::CreateUser => Operation::CreateUser,
            Self::DeleteUser => Operation::DeleteUser,
            Self::UpdateUser => Operation::UpdateUser,
            Self::UpdatePermissions => Operation::UpdatePermissions,
            Self::ChangePassword => Operation::ChangePassword,
            Self::LogoutUser => Operation::Logout,
            Self::LoginRegister => Operation::Register,
            Self::CreatePersonalAccessToken => Operation::CreatePersonalAccessToken,
            Self::DeletePersonalAccessToken => Operation::DeletePersonalAccessToken,
            Self::LoginRegisterWithPersonalAccessToken => Operation::Register,
            Self::SendMessages => Operation::SendMessages,
            Self::StoreConsumerOffset => Operation::StoreConsumerOffset,
            Self::DeleteConsumerOffset => Operation::DeleteConsumerOffset,
            Self::CreateStream => Operation::CreateStream,
            Self::DeleteStream => Operation::DeleteStream,
            Self::UpdateStream => Operation::UpdateStream,
            Self::PurgeStream => Operation::PurgeStream,
            Self::CreateTopic => Operation::CreateTopic,
            Self::DeleteTopic => Operation::DeleteTopic,
            Self::UpdateTopic => Operation::UpdateTopic,
            Self::PurgeTopic => Operation::PurgeTopic,
            Self::CreatePartitions => Operation::CreatePartitions,
            Self::DeletePartitions => Operation::DeletePartitions,
            Self::DeleteSegments => Operation::DeleteSegments,
            Self::CreateConsumerGroup => Operation::CreateConsumerGroup,
            Self::DeleteConsumerGroup => Operation::DeleteConsumerGroup,
            Self::JoinConsumerGroup => Operation::JoinConsumerGroup,
            Self::LeaveConsumerGroup => Operation::LeaveConsumerGroup,
            _ => Operation::NonReplicated,
        }
    }

    /// The legacy logins, which are answered with eviction 15.
    #[must_use]
    pub const fn is_legacy_login(self) -> bool {
        matches!(self, Self::LoginUser | Self::LoginWithPersonalAccessToken)
    }
}
