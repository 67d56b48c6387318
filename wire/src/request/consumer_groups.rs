//! Requests about consumer groups and their replicated forms.

use crate::codec::{U32List, body};
use crate::ids::ClientId;
use crate::primitive::{Identifier, Name};

body! {
    /// CreateConsumerGroup (602).
    #[derive(Copy, Eq)]
    pub struct CreateConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// Name of the new group.
        name: Name<'a>,
    }
}

body! {
    /// GetConsumerGroup (600), DeleteConsumerGroup (603), JoinConsumerGroup (604),
    /// LeaveConsumerGroup (605), SyncConsumerGroup (606).
    #[derive(Copy, Eq)]
    pub struct ConsumerGroupRequest<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
}

body! {
    /// JoinConsumerGroup as replicated.
    #[derive(Copy, Eq)]
    pub struct JoinConsumerGroupPrepared<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
        /// Client bound to the connection.
        client: ClientId,
        /// Partitions whose owner has polled beyond its stored position.
        in_flight: U32List<'a>,
    }
}

body! {
    /// LeaveConsumerGroup as replicated.
    #[derive(Copy, Eq)]
    pub struct LeaveConsumerGroupPrepared<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
        /// Client bound to the connection.
        client: ClientId,
    }
}

body! {
    /// RemoveConsumerGroupMember (operation 66).
    #[derive(Copy, Eq)]
    pub struct RemoveConsumerGroupMember {
        /// The member that goes, from every group.
        client: ClientId,
    }
}

body! {
    /// CompleteConsumerGroupRevocation (operation 67).
    #[derive(Copy, Eq)]
    pub struct CompleteConsumerGroupRevocation<'a> {
        /// The stream, numeric.
        stream: Identifier<'a>,
        /// The topic, numeric.
        topic: Identifier<'a>,
        /// The group.
        group_id: u64,
        /// The member that gives the partition up.
        source_client: ClientId,
        /// The partition.
        partition: u32,
    }
}
