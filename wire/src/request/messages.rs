//! Requests about messages and stored positions. SendMessages has its own file in `batch`.

use crate::codec::body;
use crate::primitive::{AckLevel, Consumer, Identifier, OptionalPartition, PollingStrategy};

body! {
    /// PollMessages (100), PollMessagesOnPrimary (104), GetPollRouting (103).
    #[derive(Copy, Eq)]
    pub struct PollMessages<'a> {
        /// Who polls.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means 0 for a plain consumer.
        partition: OptionalPartition,
        /// Where to start.
        strategy: PollingStrategy,
        /// How many messages at most.
        count: u32,
        /// Whether the position is stored as messages are handed out.
        auto_commit: bool,
    }
}

body! {
    /// FlushUnsavedBuffer (102), which is always refused.
    #[derive(Copy, Eq)]
    pub struct FlushUnsavedBuffer<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition: u32,
        /// Whether to sync the file.
        fsync: bool,
    }
}

body! {
    /// GetConsumerOffset (120), GetConsumerOffsetRouting (123).
    #[derive(Copy, Eq)]
    pub struct GetConsumerOffset<'a> {
        /// Whose position.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means 0.
        partition: OptionalPartition,
    }
}

body! {
    /// StoreConsumerOffset (121).
    #[derive(Copy, Eq)]
    pub struct StoreConsumerOffset<'a> {
        /// Whose position.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; must be present.
        partition: OptionalPartition,
        /// Last processed offset.
        offset: u64,
        /// When to answer.
        ack: AckLevel,
    }
}

body! {
    /// DeleteConsumerOffset (122).
    #[derive(Copy, Eq)]
    pub struct DeleteConsumerOffset<'a> {
        /// Whose position.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; must be present.
        partition: OptionalPartition,
        /// When to answer.
        ack: AckLevel,
    }
}
