//! Permission to apply an operation, decided on every replica inside apply.
//!
//! What an operation names is resolved first, and a miss is let through: apply answers "not
//! found", so existence is told before permission (protocol specification, chapter 05,
//! section 8.1).

use super::MetadataState;
use super::permissions::{Action, Rules};
use super::users::ROOT_USER_ID;
use biplane_wire::request::MetadataBody;
use biplane_wire::{ErrorCode, Identifier};

impl MetadataState {
    /// True where the user's permissions satisfy the rule of `action`.
    ///
    /// A user that is gone or has no permissions satisfies none; nobody is exempt here, root
    /// has every global permission.
    pub fn is_allowed(&self, user_id: u32, action: Action) -> bool {
        self.users
            .permissions(user_id)
            .is_some_and(|granted| Rules(granted).allow(action))
    }

    /// As [`MetadataState::is_allowed`], as the code a read is refused with.
    ///
    /// # Errors
    ///
    /// 41.
    pub fn authorize(&self, user_id: u32, action: Action) -> Result<(), ErrorCode> {
        if self.is_allowed(user_id, action) {
            Ok(())
        } else {
            Err(ErrorCode::Unauthorized)
        }
    }

    /// The code that keeps an operation from being applied; None lets it through.
    pub(super) fn gate(&self, user_id: u32, body: &MetadataBody<'_>) -> Option<ErrorCode> {
        if user_id == ROOT_USER_ID {
            return None;
        }
        let action = self.action_of(user_id, body)?;
        self.authorize(user_id, action).err()
    }

    /// What an operation amounts to; None where it needs no permission or names nothing.
    fn action_of(&self, user_id: u32, body: &MetadataBody<'_>) -> Option<Action> {
        match body {
            MetadataBody::CreateStream(_) => Some(Action::CreateStream),
            MetadataBody::UpdateStream(body) => self.manage_stream(&body.stream),
            MetadataBody::DeleteStream(body) | MetadataBody::PurgeStream(body) => {
                self.manage_stream(&body.stream)
            }
            MetadataBody::CreateTopicWithAssignments(body) => self
                .streams
                .stream_id(&body.request.stream)
                .map(Action::CreateTopic),
            MetadataBody::UpdateTopic(body) => self.manage_topic(&body.stream, &body.topic),
            MetadataBody::DeleteTopic(body) | MetadataBody::PurgeTopic(body) => {
                self.manage_topic(&body.stream, &body.topic)
            }
            MetadataBody::CreatePartitionsWithAssignments(body) => {
                self.manage_topic(&body.request.stream, &body.request.topic)
            }
            MetadataBody::DeletePartitions(body) => self.manage_topic(&body.stream, &body.topic),
            MetadataBody::TruncatePartition(body) => self.manage_topic(&body.stream, &body.topic),
            MetadataBody::CreateConsumerGroup(body) => self.read_topic(&body.stream, &body.topic),
            MetadataBody::DeleteConsumerGroup(body) => self.read_topic(&body.stream, &body.topic),
            MetadataBody::JoinConsumerGroup(body) => self.read_topic(&body.stream, &body.topic),
            MetadataBody::LeaveConsumerGroup(body) => self.read_topic(&body.stream, &body.topic),
            MetadataBody::CreateUser(_)
            | MetadataBody::UpdateUser(_)
            | MetadataBody::DeleteUser(_)
            | MetadataBody::UpdatePermissions(_) => Some(Action::ManageUsers),
            MetadataBody::ChangePassword(body) => {
                let target = self.users.user_id(&body.user)?;
                (target != user_id).then_some(Action::ManageUsers)
            }
            MetadataBody::Register
            | MetadataBody::Logout
            | MetadataBody::RemoveConsumerGroupMember(_)
            | MetadataBody::CompleteConsumerGroupRevocation(_)
            | MetadataBody::CreatePersonalAccessToken(_)
            | MetadataBody::DeletePersonalAccessToken(_) => None,
        }
    }

    fn manage_stream(&self, stream: &Identifier<'_>) -> Option<Action> {
        self.streams.stream_id(stream).map(Action::ManageStream)
    }

    fn manage_topic(&self, stream: &Identifier<'_>, topic: &Identifier<'_>) -> Option<Action> {
        let (stream, topic) = self.streams.topic(stream, topic).ok()?;
        Some(Action::ManageTopic(stream.id, topic.id))
    }

    fn read_topic(&self, stream: &Identifier<'_>, topic: &Identifier<'_>) -> Option<Action> {
        let (stream, topic) = self.streams.topic(stream, topic).ok()?;
        Some(Action::ReadTopic(stream.id, topic.id))
    }
}
