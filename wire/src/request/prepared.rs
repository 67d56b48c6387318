//! The body of a metadata prepare by its operation (chapter 05 sections 2 to 6).
//!
//! A body that does not decode halts every replica once it is in the log. Whoever proposes
//! runs the final body through [`MetadataBody::decode`] first.

use super::{
    ChangePassword, CompleteConsumerGroupRevocation, ConsumerGroupRequest, CreateConsumerGroup,
    CreatePartitionsWithAssignments, CreatePersonalAccessTokenPrepared, CreateStream,
    CreateTopicWithAssignments, CreateUser, DeletePersonalAccessTokenPrepared,
    JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared, PartitionsRequest,
    RemoveConsumerGroupMember, StreamRequest, TopicRequest, TruncatePartition, UpdatePermissions,
    UpdateStream, UpdateTopic, UpdateUser, UserRequest,
};
use crate::codec::Codec;
use crate::error::{BodyRule, DecodeError};
use crate::operation::Operation;

/// A decoded metadata prepare body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetadataBody<'a> {
    /// Operation 1; no body.
    Register,
    /// Operation 3; no body.
    Logout,
    /// Operation 64.
    CreateTopicWithAssignments(CreateTopicWithAssignments<'a>),
    /// Operation 65.
    CreatePartitionsWithAssignments(CreatePartitionsWithAssignments<'a>),
    /// Operation 66.
    RemoveConsumerGroupMember(RemoveConsumerGroupMember),
    /// Operation 67.
    CompleteConsumerGroupRevocation(CompleteConsumerGroupRevocation<'a>),
    /// Operation 68.
    TruncatePartition(TruncatePartition<'a>),
    /// Operation 128.
    CreateStream(CreateStream<'a>),
    /// Operation 129.
    UpdateStream(UpdateStream<'a>),
    /// Operation 130.
    DeleteStream(StreamRequest<'a>),
    /// Operation 131.
    PurgeStream(StreamRequest<'a>),
    /// Operation 133.
    UpdateTopic(UpdateTopic<'a>),
    /// Operation 134.
    DeleteTopic(TopicRequest<'a>),
    /// Operation 135.
    PurgeTopic(TopicRequest<'a>),
    /// Operation 137.
    DeletePartitions(PartitionsRequest<'a>),
    /// Operation 139.
    CreateConsumerGroup(CreateConsumerGroup<'a>),
    /// Operation 140.
    DeleteConsumerGroup(ConsumerGroupRequest<'a>),
    /// Operation 141.
    CreateUser(CreateUser<'a>),
    /// Operation 142.
    UpdateUser(UpdateUser<'a>),
    /// Operation 143.
    DeleteUser(UserRequest<'a>),
    /// Operation 144.
    ChangePassword(ChangePassword<'a>),
    /// Operation 145.
    UpdatePermissions(UpdatePermissions<'a>),
    /// Operation 146.
    CreatePersonalAccessToken(CreatePersonalAccessTokenPrepared<'a>),
    /// Operation 147.
    DeletePersonalAccessToken(DeletePersonalAccessTokenPrepared<'a>),
    /// Operation 148.
    JoinConsumerGroup(JoinConsumerGroupPrepared<'a>),
    /// Operation 149.
    LeaveConsumerGroup(LeaveConsumerGroupPrepared<'a>),
}

impl<'a> MetadataBody<'a> {
    /// Decodes the body of a prepare. Operations that are rewritten before replication (132,
    /// 136, 138) have no replicated form of their own.
    ///
    /// # Errors
    ///
    /// Why the body does not decode, or that the operation is not a metadata prepare.
    pub fn decode(operation: Operation, body: &'a [u8]) -> Result<Self, DecodeError> {
        use Operation as O;
        Ok(match operation {
            O::Register => Self::Register,
            O::Logout => Self::Logout,
            O::CreateTopicWithAssignments => Self::CreateTopicWithAssignments(Codec::decode(body)?),
            O::CreatePartitionsWithAssignments => {
                Self::CreatePartitionsWithAssignments(Codec::decode(body)?)
            }
            O::RemoveConsumerGroupMember => Self::RemoveConsumerGroupMember(Codec::decode(body)?),
            O::CompleteConsumerGroupRevocation => {
                Self::CompleteConsumerGroupRevocation(Codec::decode(body)?)
            }
            O::TruncatePartition => Self::TruncatePartition(Codec::decode(body)?),
            O::CreateStream => Self::CreateStream(Codec::decode(body)?),
            O::UpdateStream => Self::UpdateStream(Codec::decode(body)?),
            O::DeleteStream => Self::DeleteStream(Codec::decode(body)?),
            O::PurgeStream => Self::PurgeStream(Codec::decode(body)?),
            O::UpdateTopic => Self::UpdateTopic(Codec::decode(body)?),
            O::DeleteTopic => Self::DeleteTopic(Codec::decode(body)?),
            O::PurgeTopic => Self::PurgeTopic(Codec::decode(body)?),
            O::DeletePartitions => Self::DeletePartitions(Codec::decode(body)?),
            O::CreateConsumerGroup => Self::CreateConsumerGroup(Codec::decode(body)?),
            O::DeleteConsumerGroup => Self::DeleteConsumerGroup(Codec::decode(body)?),
            O::CreateUser => Self::CreateUser(Codec::decode(body)?),
            O::UpdateUser => Self::UpdateUser(Codec::decode(body)?),
            O::DeleteUser => Self::DeleteUser(Codec::decode(body)?),
            O::ChangePassword => Self::ChangePassword(Codec::decode(body)?),
            O::UpdatePermissions => Self::UpdatePermissions(Codec::decode(body)?),
            O::CreatePersonalAccessToken => Self::CreatePersonalAccessToken(Codec::decode(body)?),
            O::DeletePersonalAccessToken => Self::DeletePersonalAccessToken(Codec::decode(body)?),
            O::JoinConsumerGroup => Self::JoinConsumerGroup(Codec::decode(body)?),
            O::LeaveConsumerGroup => Self::LeaveConsumerGroup(Codec::decode(body)?),
            O::Reserved
            | O::NonReplicated
            | O::CreateTopic
            | O::CreatePartitions
            | O::DeleteSegments
            | O::SendMessages
            | O::StoreConsumerOffset
            | O::DeleteConsumerOffset => {
                return Err(BodyRule::NotAMetadataPrepare.into());
            }
        })
    }
}
