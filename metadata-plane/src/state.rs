//! The replicated metadata: streams, topics, partitions, consumer groups, users and tokens, and
//! the one function that changes them.
//!
//! [`MetadataState::apply`] is a pure function of the state and of a prepare: it reads no clock
//! but the timestamp of the prepare, no configuration and no randomness, and so every replica
//! that applies the same log holds the same state (protocol specification, chapter 05).

pub(crate) mod assignment;
mod gate;
mod group_ops;
pub mod groups;
pub(crate) mod ids;
pub use group_ops::PendingRevocation;
pub mod permissions;
mod purge_ops;
pub mod reads;
pub(crate) mod replies;
mod restore;
mod stream_ops;
pub mod streams;
mod token_ops;
mod topic_ops;
pub mod topology;
mod user_ops;
pub mod users;

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::request::MetadataBody;
use biplane_wire::{ClientId, DecodeError, ErrorCode, Operation};

use streams::Streams;
use topology::TopologyChange;
use users::Users;

/// What apply needs of a prepare.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<'a> {
    /// Operation of the prepare.
    pub operation: Operation,
    /// Client of the prepare.
    pub client: ClientId,
    /// Acting user; 0 is root and made by servers.
    pub user_id: u32,
    /// Timestamp of the prepare, microseconds since the epoch.
    pub timestamp: u64,
    /// Body of the prepare.
    pub body: &'a [u8],
}

/// What applying a prepare came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Why nothing changed; None for success.
    pub rejection: Option<ErrorCode>,
    /// What follows the result section of the reply on success.
    pub payload: Vec<u8>,
    /// What the owners of partitions have to do about it, in order.
    pub topology: Vec<TopologyChange>,
}

impl Applied {
    fn rejected(code: ErrorCode) -> Self {
        Self {
            rejection: Some(code),
            ..Self::default()
        }
    }

    /// The result code: 0, or that of the rejection.
    pub fn code(&self) -> u32 {
        self.rejection.map_or(0, ErrorCode::as_u32)
    }

    fn with_payload(payload: Vec<u8>) -> Self {
        Self {
            payload,
            ..Self::default()
        }
    }

    fn with_topology(topology: Vec<TopologyChange>) -> Self {
        Self {
            topology,
            ..Self::default()
        }
    }
}

/// Decodes the body of a prepare, with the rules that its grammar leaves open.
///
/// # Errors
///
/// The reason; a prepare like that must not enter the log.
pub fn decode_prepared(operation: Operation, body: &[u8]) -> Result<MetadataBody<'_>, DecodeError> {
    let decoded = MetadataBody::decode(operation, body)?;
    if let MetadataBody::CreatePersonalAccessToken(token) = &decoded
        && std::str::from_utf8(token.token_hash).is_err()
    {
        return Err(DecodeError::Utf8 {
            field: "token hash",
        });
    }
    Ok(decoded)
}

/// Where a consumer group is: stream, topic and group id.
pub type GroupAddress = (u32, u32, u64);

/// The replicated metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataState {
    streams: Streams,
    users: Users,
    /// Consumer groups each client is a member of; follows from the groups.
    memberships: BTreeMap<ClientId, BTreeSet<GroupAddress>>,
}

impl MetadataState {
    /// A state with the root user alone, as every replica has it before the first prepare.
    ///
    /// The root user is not replicated: its name must be the same on all replicas, its password
    /// hash need not (chapter 05, section 5.5).
    pub fn with_root(username: &str, password_hash: &str) -> Self {
        let users = Users::with_root(username, password_hash);
        Self {
            users,
            ..Self::default()
        }
    }

    /// Streams, topics, partitions and consumer groups.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Users and their tokens.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Consumer groups a client is a member of, ascending.
    pub fn memberships_of(&self, client: ClientId) -> impl Iterator<Item = GroupAddress> + '_ {
        self.memberships.get(&client).into_iter().flatten().copied()
    }

    /// Applies one prepare: the permission gate first, then the operation.
    ///
    /// Where the result is a rejection nothing has changed. Register changes nothing here;
    /// sessions are kept elsewhere.
    ///
    /// # Errors
    ///
    /// The reason where the body does not decode or the operation has no place in the metadata
    /// log. Nothing has changed, and the replica must stop: other replicas cannot apply this
    /// prepare either.
    pub fn apply(&mut self, prepared: &Prepared<'_>) -> Result<Applied, DecodeError> {
        let body = decode_prepared(prepared.operation, prepared.body)?;
        if let Some(code) = self.gate(prepared.user_id, &body) {
            return Ok(Applied::rejected(code));
        }
        let result = self.dispatch(prepared, &body);
        Ok(result.unwrap_or_else(Applied::rejected))
    }

    fn dispatch(
        &mut self,
        prepared: &Prepared<'_>,
        body: &MetadataBody<'_>,
    ) -> Result<Applied, ErrorCode> {
        let now = prepared.timestamp;
        match body {
            MetadataBody::Register => Ok(Applied::default()),
            MetadataBody::Logout => Ok(self.remove_member(prepared.client)),
            MetadataBody::CreateTopicWithAssignments(body) => self.create_topic(body, now),
            MetadataBody::CreatePartitionsWithAssignments(body) => {
                self.create_partitions(body, now)
            }
            MetadataBody::RemoveConsumerGroupMember(body) => Ok(self.remove_member(body.client)),
            MetadataBody::CompleteConsumerGroupRevocation(body) => {
                Ok(self.complete_revocation(body))
            }
            MetadataBody::TruncatePartition(body) => self.truncate_partition(body),
            MetadataBody::CreateStream(body) => self.create_stream(body, now),
            MetadataBody::UpdateStream(body) => self.update_stream(body),
            MetadataBody::DeleteStream(body) => self.delete_stream(body),
            MetadataBody::PurgeStream(body) => self.purge_stream(body),
            MetadataBody::UpdateTopic(body) => self.update_topic(body),
            MetadataBody::DeleteTopic(body) => self.delete_topic(body),
            MetadataBody::PurgeTopic(body) => self.purge_topic(body),
            MetadataBody::DeletePartitions(body) => self.delete_partitions(body),
            MetadataBody::CreateConsumerGroup(body) => self.create_group(body),
            MetadataBody::DeleteConsumerGroup(body) => self.delete_group(body),
            MetadataBody::CreateUser(body) => self.create_user(body, now),
            MetadataBody::UpdateUser(body) => self.update_user(body),
            MetadataBody::DeleteUser(body) => self.delete_user(body),
            MetadataBody::ChangePassword(body) => self.change_password(body),
            MetadataBody::UpdatePermissions(body) => self.update_permissions(body),
            MetadataBody::CreatePersonalAccessToken(body) => self.create_token(body, now),
            MetadataBody::DeletePersonalAccessToken(body) => self.delete_token(body, now),
            MetadataBody::JoinConsumerGroup(body) => self.join_group(body, now),
            MetadataBody::LeaveConsumerGroup(body) => self.leave_group(body),
        }
    }
}
