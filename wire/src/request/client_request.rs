//! Any client request by its command code, bodies decoded.

use super::{
    AttachConsumerSession, ChangePassword, ConsumerGroupRequest, CreateConsumerGroup,
    CreatePersonalAccessToken, CreateStream, CreateTopic, CreateUser, DeleteConsumerOffset,
    DeletePersonalAccessToken, DeleteSegments, DescribeOptions, FlushUnsavedBuffer, GetClient,
    GetConsumerOffset, GetSnapshot, Login, PartitionsRequest, PollMessages, StoreConsumerOffset,
    StreamRequest, TopicRequest, UpdatePermissions, UpdateStream, UpdateTopic, UpdateUser,
    UserRequest,
};
use crate::batch::SendMessages;
use crate::client_code::ClientCode;
use crate::codec::Codec;
use crate::error::DecodeError;
use crate::header::RequestHeader;
use crate::operation::Operation;

/// A client request with its body. Commands without a body carry nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // One variant a command, each named as in the registry.
pub enum ClientRequest<'a> {
    Ping,
    GetStats,
    GetSnapshot(GetSnapshot<'a>),
    GetClusterMetadata,
    DescribeOptions(DescribeOptions),
    AttachConsumerSession(AttachConsumerSession),
    GetMe,
    GetClient(GetClient),
    GetClients,
    GetUser(UserRequest<'a>),
    GetUsers,
    CreateUser(CreateUser<'a>),
    DeleteUser(UserRequest<'a>),
    UpdateUser(UpdateUser<'a>),
    UpdatePermissions(UpdatePermissions<'a>),
    ChangePassword(ChangePassword<'a>),
    LegacyLogin,
    Logout,
    Login(Login<'a>),
    GetPersonalAccessTokens,
    CreatePersonalAccessToken(CreatePersonalAccessToken<'a>),
    DeletePersonalAccessToken(DeletePersonalAccessToken<'a>),
    PollMessages(PollMessages<'a>),
    SendMessages(SendMessages<'a>),
    FlushUnsavedBuffer(FlushUnsavedBuffer<'a>),
    GetPollRouting(PollMessages<'a>),
    PollMessagesOnPrimary(PollMessages<'a>),
    GetConsumerOffset(GetConsumerOffset<'a>),
    StoreConsumerOffset(StoreConsumerOffset<'a>),
    DeleteConsumerOffset(DeleteConsumerOffset<'a>),
    GetConsumerOffsetRouting(GetConsumerOffset<'a>),
    GetStream(StreamRequest<'a>),
    GetStreams,
    CreateStream(CreateStream<'a>),
    DeleteStream(StreamRequest<'a>),
    UpdateStream(UpdateStream<'a>),
    PurgeStream(StreamRequest<'a>),
    GetTopic(TopicRequest<'a>),
    GetTopics(StreamRequest<'a>),
    CreateTopic(CreateTopic<'a>),
    DeleteTopic(TopicRequest<'a>),
    UpdateTopic(UpdateTopic<'a>),
    PurgeTopic(TopicRequest<'a>),
    CreatePartitions(PartitionsRequest<'a>),
    DeletePartitions(PartitionsRequest<'a>),
    DeleteSegments(DeleteSegments<'a>),
    GetConsumerGroup(ConsumerGroupRequest<'a>),
    GetConsumerGroups(TopicRequest<'a>),
    CreateConsumerGroup(CreateConsumerGroup<'a>),
    DeleteConsumerGroup(ConsumerGroupRequest<'a>),
    JoinConsumerGroup(ConsumerGroupRequest<'a>),
    LeaveConsumerGroup(ConsumerGroupRequest<'a>),
    SyncConsumerGroup(ConsumerGroupRequest<'a>),
}

/// The command of a request header: from the operation, or from the code of operation 2. A
/// register reads as the password login, because nothing on the wire tells the two apart.
/// `None` for internal operations, for codes outside the registry, and for codes that have an
/// operation of their own and may not travel as operation 2.
#[must_use]
pub fn command_of(header: &RequestHeader) -> Option<ClientCode> {
    match header.operation() {
        Operation::NonReplicated => ClientCode::from_u32(header.code())
            .filter(|code| code.operation() == Operation::NonReplicated),
        operation => ClientCode::ALL
            .iter()
            .copied()
            .find(|code| code.operation() == operation),
    }
}

impl<'a> ClientRequest<'a> {
    /// The request of a header and its body.
    ///
    /// # Errors
    ///
    /// As [`ClientRequest::decode`]; an unknown command is [`DecodeError::Undefined`].
    pub fn of(header: &RequestHeader, body: &'a [u8]) -> Result<Self, DecodeError> {
        match command_of(header) {
            Some(code) => Self::decode(code, body),
            None => {
                let value = u64::from(header.code());
                Err(DecodeError::Undefined {
                    field: "command",
                    value,
                })
            }
        }
    }

    /// Decodes the body of a command. The batch of SendMessages is verified; a server that
    /// wants the precise status of a bad one calls [`SendMessages::decode`] itself.
    ///
    /// # Errors
    ///
    /// Why the body does not decode.
    pub fn decode(code: ClientCode, body: &'a [u8]) -> Result<Self, DecodeError> {
        use ClientCode as C;
        Ok(match code {
            C::Ping => Self::Ping,
            C::GetStats => Self::GetStats,
            C::GetSnapshot => Self::GetSnapshot(Codec::decode(body)?),
            C::GetClusterMetadata => Self::GetClusterMetadata,
            C::DescribeOptions => Self::DescribeOptions(Codec::decode(body)?),
            C::AttachConsumerSession => Self::AttachConsumerSession(Codec::decode(body)?),
            C::GetMe => Self::GetMe,
            C::GetClient => Self::GetClient(Codec::decode(body)?),
            C::GetClients => Self::GetClients,
            C::LoginUser | C::LoginWithPersonalAccessToken => Self::LegacyLogin,
            C::LogoutUser => Self::Logout,
            C::LoginRegister | C::LoginRegisterWithPersonalAccessToken => {
                Self::Login(Login::decode(body)?)
            }
            _ => return Self::decode_resource(code, body),
        })
    }

    fn decode_resource(code: ClientCode, body: &'a [u8]) -> Result<Self, DecodeError> {
        use ClientCode as C;
        Ok(match code {
            C::GetUser => Self::GetUser(Codec::decode(body)?),
            C::GetUsers => Self::GetUsers,
            C::CreateUser => Self::CreateUser(Codec::decode(body)?),
            C::DeleteUser => Self::DeleteUser(Codec::decode(body)?),
            C::UpdateUser => Self::UpdateUser(Codec::decode(body)?),
            C::UpdatePermissions => Self::UpdatePermissions(Codec::decode(body)?),
            C::ChangePassword => Self::ChangePassword(Codec::decode(body)?),
            C::GetPersonalAccessTokens => Self::GetPersonalAccessTokens,
            C::CreatePersonalAccessToken => Self::CreatePersonalAccessToken(Codec::decode(body)?),
            C::DeletePersonalAccessToken => Self::DeletePersonalAccessToken(Codec::decode(body)?),
            C::GetStream => Self::GetStream(Codec::decode(body)?),
            C::GetStreams => Self::GetStreams,
            C::CreateStream => Self::CreateStream(Codec::decode(body)?),
            C::DeleteStream => Self::DeleteStream(Codec::decode(body)?),
            C::UpdateStream => Self::UpdateStream(Codec::decode(body)?),
            C::PurgeStream => Self::PurgeStream(Codec::decode(body)?),
            C::GetTopic => Self::GetTopic(Codec::decode(body)?),
            C::GetTopics => Self::GetTopics(Codec::decode(body)?),
            C::CreateTopic => Self::CreateTopic(Codec::decode(body)?),
            C::DeleteTopic => Self::DeleteTopic(Codec::decode(body)?),
            C::UpdateTopic => Self::UpdateTopic(Codec::decode(body)?),
            C::PurgeTopic => Self::PurgeTopic(Codec::decode(body)?),
            C::CreatePartitions => Self::CreatePartitions(Codec::decode(body)?),
            C::DeletePartitions => Self::DeletePartitions(Codec::decode(body)?),
            C::DeleteSegments => Self::DeleteSegments(Codec::decode(body)?),
            _ => return Self::decode_consuming(code, body),
        })
    }

    fn decode_consuming(code: ClientCode, body: &'a [u8]) -> Result<Self, DecodeError> {
        use ClientCode as C;
        Ok(match code {
            C::PollMessages => Self::PollMessages(Codec::decode(body)?),
            C::SendMessages => Self::SendMessages(SendMessages::decode(body)?),
            C::FlushUnsavedBuffer => Self::FlushUnsavedBuffer(Codec::decode(body)?),
            C::GetPollRouting => Self::GetPollRouting(Codec::decode(body)?),
            C::PollMessagesOnPrimary => Self::PollMessagesOnPrimary(Codec::decode(body)?),
            C::GetConsumerOffset => Self::GetConsumerOffset(Codec::decode(body)?),
            C::StoreConsumerOffset => Self::StoreConsumerOffset(Codec::decode(body)?),
            C::DeleteConsumerOffset => Self::DeleteConsumerOffset(Codec::decode(body)?),
            C::GetConsumerOffsetRouting => Self::GetConsumerOffsetRouting(Codec::decode(body)?),
            C::GetConsumerGroup => Self::GetConsumerGroup(Codec::decode(body)?),
            C::GetConsumerGroups => Self::GetConsumerGroups(Codec::decode(body)?),
            C::CreateConsumerGroup => Self::CreateConsumerGroup(Codec::decode(body)?),
            C::DeleteConsumerGroup => Self::DeleteConsumerGroup(Codec::decode(body)?),
            C::JoinConsumerGroup => Self::JoinConsumerGroup(Codec::decode(body)?),
            C::LeaveConsumerGroup => Self::LeaveConsumerGroup(Codec::decode(body)?),
            C::SyncConsumerGroup => Self::SyncConsumerGroup(Codec::decode(body)?),
            _ => unreachable!("the two functions before this one took the other commands"),
        })
    }
}
