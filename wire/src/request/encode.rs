//! Any client request back to bytes: what a client puts into header and body.

use super::ClientRequest;
use crate::batch::SendMessages;
use crate::client_code::ClientCode;
use crate::codec::Codec;

impl ClientRequest<'_> {
    /// The code of this request. The two legacy logins read as one, and so do the two logins:
    /// nothing on the wire tells those apart.
    #[must_use]
    pub const fn code(&self) -> ClientCode {
        use ClientCode as C;
        match self {
            Self::Ping => C::Ping,
            Self::GetStats => C::GetStats,
            Self::GetSnapshot(_) => C::GetSnapshot,
            Self::GetClusterMetadata => C::GetClusterMetadata,
            Self::DescribeOptions(_) => C::DescribeOptions,
            Self::AttachConsumerSession(_) => C::AttachConsumerSession,
            Self::GetMe => C::GetMe,
            Self::GetClient(_) => C::GetClient,
            Self::GetClients => C::GetClients,
            Self::GetUser(_) => C::GetUser,
            Self::GetUsers => C::GetUsers,
            Self::CreateUser(_) => C::CreateUser,
            Self::DeleteUser(_) => C::DeleteUser,
            Self::UpdateUser(_) => C::UpdateUser,
            Self::UpdatePermissions(_) => C::UpdatePermissions,
            Self::ChangePassword(_) => C::ChangePassword,
            Self::LegacyLogin => C::LoginUser,
            Self::Logout => C::LogoutUser,
            Self::Login(_) => C::LoginRegister,
            Self::GetPersonalAccessTokens => C::GetPersonalAccessTokens,
            Self::CreatePersonalAccessToken(_) => C::CreatePersonalAccessToken,
            Self::DeletePersonalAccessToken(_) => C::DeletePersonalAccessToken,
            Self::PollMessages(_) => C::PollMessages,
            Self::SendMessages(_) => C::SendMessages,
            Self::FlushUnsavedBuffer(_) => C::FlushUnsavedBuffer,
            Self::GetPollRouting(_) => C::GetPollRouting,
            Self::PollMessagesOnPrimary(_) => C::PollMessagesOnPrimary,
            Self::GetConsumerOffset(_) => C::GetConsumerOffset,
            Self::StoreConsumerOffset(_) => C::StoreConsumerOffset,
            Self::DeleteConsumerOffset(_) => C::DeleteConsumerOffset,
            Self::GetConsumerOffsetRouting(_) => C::GetConsumerOffsetRouting,
            Self::GetStream(_) => C::GetStream,
            Self::GetStreams => C::GetStreams,
            Self::CreateStream(_) => C::CreateStream,
            Self::DeleteStream(_) => C::DeleteStream,
            Self::UpdateStream(_) => C::UpdateStream,
            Self::PurgeStream(_) => C::PurgeStream,
            Self::GetTopic(_) => C::GetTopic,
            Self::GetTopics(_) => C::GetTopics,
            Self::CreateTopic(_) => C::CreateTopic,
            Self::DeleteTopic(_) => C::DeleteTopic,
            Self::UpdateTopic(_) => C::UpdateTopic,
            Self::PurgeTopic(_) => C::PurgeTopic,
            Self::CreatePartitions(_) => C::CreatePartitions,
            Self::DeletePartitions(_) => C::DeletePartitions,
            Self::DeleteSegments(_) => C::DeleteSegments,
            Self::GetConsumerGroup(_) => C::GetConsumerGroup,
            Self::GetConsumerGroups(_) => C::GetConsumerGroups,
            Self::CreateConsumerGroup(_) => C::CreateConsumerGroup,
            Self::DeleteConsumerGroup(_) => C::DeleteConsumerGroup,
            Self::JoinConsumerGroup(_) => C::JoinConsumerGroup,
            Self::LeaveConsumerGroup(_) => C::LeaveConsumerGroup,
            Self::SyncConsumerGroup(_) => C::SyncConsumerGroup,
        }
    }

    /// The body of this request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ping
            | Self::GetStats
            | Self::GetClusterMetadata
            | Self::GetMe
            | Self::GetClients
            | Self::GetUsers
            | Self::LegacyLogin
            | Self::Logout
            | Self::GetPersonalAccessTokens
            | Self::GetStreams => Vec::new(),
            Self::GetSnapshot(body) => body.encode(),
            Self::DescribeOptions(body) => body.encode(),
            Self::AttachConsumerSession(body) => body.encode(),
            Self::GetClient(body) => body.encode(),
            Self::GetUser(body) | Self::DeleteUser(body) => body.encode(),
            Self::CreateUser(body) => body.encode(),
            Self::UpdateUser(body) => body.encode(),
            Self::UpdatePermissions(body) => body.encode(),
            Self::ChangePassword(body) => body.encode(),
            Self::Login(body) => body.encode(),
            Self::CreatePersonalAccessToken(body) => body.encode(),
            Self::DeletePersonalAccessToken(body) => body.encode(),
            Self::PollMessages(body)
            | Self::GetPollRouting(body)
            | Self::PollMessagesOnPrimary(body) => body.encode(),
            Self::SendMessages(send) => SendMessages::encode(&send.metadata, send.batch.bytes()),
            Self::FlushUnsavedBuffer(body) => body.encode(),
            Self::GetConsumerOffset(body) | Self::GetConsumerOffsetRouting(body) => body.encode(),
            Self::StoreConsumerOffset(body) => body.encode(),
            Self::DeleteConsumerOffset(body) => body.encode(),
            Self::GetStream(body)
            | Self::DeleteStream(body)
            | Self::PurgeStream(body)
            | Self::GetTopics(body) => body.encode(),
            Self::CreateStream(body) => body.encode(),
            Self::UpdateStream(body) => body.encode(),
            Self::GetTopic(body)
            | Self::DeleteTopic(body)
            | Self::PurgeTopic(body)
            | Self::GetConsumerGroups(body) => body.encode(),
            Self::CreateTopic(body) => body.encode(),
            Self::UpdateTopic(body) => body.encode(),
            Self::CreatePartitions(body) | Self::DeletePartitions(body) => body.encode(),
            Self::DeleteSegments(body) => body.encode(),
            Self::CreateConsumerGroup(body) => body.encode(),
            Self::GetConsumerGroup(body)
            | Self::DeleteConsumerGroup(body)
            | Self::JoinConsumerGroup(body)
            | Self::LeaveConsumerGroup(body)
            | Self::SyncConsumerGroup(body) => body.encode(),
        }
    }
}
