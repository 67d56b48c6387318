//! Responses about streams, topics and partitions.

use crate::codec::{Codec, Cursor, body, read_many};
use crate::error::DecodeError;
use crate::primitive::Name;
use crate::tlv::Options32;

body! {
    /// A stream in GetStreams (201) and at the start of [`StreamDetails`].
    #[derive(Copy, Eq)]
    pub struct StreamRecord<'a> {
        /// The stream.
        id: u32,
        /// Microseconds since the epoch.
        created_at: u64,
        /// Number of topics.
        topics_count: u32,
        /// Bytes of messages.
        size: u64,
        /// Number of messages.
        messages_count: u64,
        /// Name.
        name: Name<'a>,
        /// Options.
        options: Options32<'a>,
    }
}

body! {
    /// A topic in GetTopics (301), where a count stands in front, and in the details types.
    #[derive(Copy, Eq)]
    pub struct TopicRecord<'a> {
        /// The topic.
        id: u32,
        /// Microseconds since the epoch.
        created_at: u64,
        /// Number of partitions.
        partitions_count: u32,
        /// Microseconds; `u64::MAX` never.
        message_expiry: u64,
        /// 1 none, 2 gzip.
        compression: u8,
        /// Bytes; `u64::MAX` unlimited.
        max_topic_size: u64,
        /// Bytes of messages.
        size: u64,
        /// Number of messages.
        messages_count: u64,
        /// Name.
        name: Name<'a>,
        /// Options a client set.
        explicit_options: Options32<'a>,
        /// Options at their defaults.
        derived_options: Options32<'a>,
    }
}

body! {
    /// A partition in [`TopicDetails`].
    #[derive(Copy, Eq)]
    pub struct PartitionRecord {
        /// The partition; the first is 0.
        id: u32,
        /// Microseconds since the epoch.
        created_at: u64,
        /// Number of segments.
        segments_count: u32,
        /// Last committed offset at the answering node.
        current_offset: u64,
        /// Bytes of messages.
        size: u64,
        /// Number of messages.
        messages_count: u64,
    }
}

/// GetStream (200) and CreateStream (202): a stream and `topics_count` topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDetails<'a> {
    /// The stream.
    pub stream: StreamRecord<'a>,
    /// Its topics; as many as the record says.
    pub topics: Vec<TopicRecord<'a>>,
}

impl<'a> Codec<'a> for StreamDetails<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let stream = StreamRecord::read(cursor, "stream")?;
        let topics = read_many(cursor, stream.topics_count, "topics")?;
        Ok(Self { stream, topics })
    }

    fn write(&self, out: &mut Vec<u8>) {
        assert!(
            self.topics.len() == self.stream.topics_count as usize,
            "the record counts"
        );
        self.stream.write(out);
        self.topics.write(out);
    }
}

/// GetTopic (300) and CreateTopic (302): a topic and `partitions_count` partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDetails<'a> {
    /// The topic.
    pub topic: TopicRecord<'a>,
    /// Its partitions; as many as the record says.
    pub partitions: Vec<PartitionRecord>,
}

impl<'a> Codec<'a> for TopicDetails<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let topic = TopicRecord::read(cursor, "topic")?;
        let partitions = read_many(cursor, topic.partitions_count, "partitions")?;
        Ok(Self { topic, partitions })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let count = self.topic.partitions_count as usize;
        assert!(self.partitions.len() == count, "the record counts");
        self.topic.write(out);
        self.partitions.write(out);
    }
}
