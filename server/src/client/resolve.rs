//! From the names in a request to the partition they mean, with permissions and group ownership
//! judged on the way (chapter 06 section 4.1, chapter 07 sections 6.2 and 8.11).

use biplane_metadata_plane::state::permissions::Action;
use biplane_metadata_plane::state::streams::Topic;
use biplane_partition_plane::ConsumerKey;
use biplane_wire::request::GetConsumerOffset;
use biplane_wire::{ClientId, Consumer, ConsumerKind, ErrorCode, GroupId, Identifier};

use crate::node::Node;

/// A partition and on whose behalf it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The partition's group.
    pub(crate) group: GroupId,
    /// Whose stored position.
    pub(crate) key: ConsumerKey,
    /// For a group: the caller owns the partition, and may poll it.
    pub(crate) ownership: Ownership,
}

/// What a caller may do with a partition on behalf of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// A plain consumer, or a member that may poll.
    Full,
    /// A member that must give the partition up: it may commit offsets, not poll.
    Revoking,
    /// Not this caller's partition.
    None,
}

impl Node {
    /// Resolves a consumer's request. `default_partition` answers an absent partition where that
    /// is legal.
    ///
    /// # Errors
    /// The status to answer with.
    pub(crate) fn resolve(
        &self,
        named: &GetConsumerOffset<'_>,
        user_id: u32,
        member: Option<ClientId>,
        default_partition: Option<u32>,
    ) -> Result<Target, ErrorCode> {
        let state = self.metadata.state();
        let (stream, topic) = state.streams().topic(&named.stream, &named.topic)?;
        state.authorize(user_id, Action::Poll(stream.id, topic.id))?;
        let partition = named
            .partition
            .0
            .or(default_partition)
            .ok_or(ErrorCode::InvalidIdentifier)?;
        if topic.partition(partition).is_none() {
            return Err(ErrorCode::PartitionNotFound);
        }
        let group = GroupId::partition(stream.id, topic.id, partition)
            .ok_or(ErrorCode::PartitionNotFound)?;
        let (key, ownership) = consumer_key(topic, &named.consumer, partition, member)?;
        Ok(Target {
            group,
            key,
            ownership,
        })
    }
}

fn consumer_key(
    topic: &Topic,
    consumer: &Consumer<'_>,
    partition: u32,
    member: Option<ClientId>,
) -> Result<(ConsumerKey, Ownership), ErrorCode> {
    if consumer.kind == ConsumerKind::Consumer {
        // Numeric ids as they are, names by their hash: always known.
        let id = consumer.numeric_id().ok_or(ErrorCode::InvalidIdentifier)?;
        return Ok((ConsumerKey::Consumer(id), Ownership::Full));
    }
    let group = topic.group(&consumer.id).ok_or(match consumer.id {
        Identifier::Numeric(_) => ErrorCode::ConsumerGroupIdNotFound,
        Identifier::Named(_) => ErrorCode::ConsumerGroupNameNotFound,
    })?;
    let id = u32::try_from(group.id).map_err(|_| ErrorCode::ConsumerGroupIdNotFound)?;
    let found = member.and_then(|client| group.member_of(client));
    let ownership = match found {
        Some((_, member)) if member.may_poll(partition) => Ownership::Full,
        Some((_, member)) if member.owns(partition) => Ownership::Revoking,
        _ => Ownership::None,
    };
    Ok((ConsumerKey::Group(id), ownership))
}
