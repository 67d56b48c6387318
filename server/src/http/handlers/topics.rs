//! Topics, their partitions and segments, and consumer groups.

use std::sync::Arc;

use biplane_wire::request::{
    ClientRequest, ConsumerGroupRequest, CreateConsumerGroup, CreateTopic, DeleteSegments,
    PartitionsRequest, StreamRequest, TopicRequest, UpdateTopic,
};
use biplane_wire::response::{
    ConsumerGroupDetails, ConsumerGroupRecord, TopicDetails, TopicRecord,
};
use biplane_wire::{Counted, ErrorCode, TlvBuilder, TlvKind};
use serde::Deserialize;

use super::{OptionTexts, Served, decode, decode_present, name, options, put_options};
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::call::{Call, Caller, borrow};
use crate::http::shapes::{GroupJson, TopicJson};

/// Partitions that one request may create or delete.
const PARTITIONS_MAX: u32 = 1000;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CompressionBody {
    None,
    Gzip,
}

#[derive(Deserialize)]
struct CreateTopicBody {
    name: String,
    partitions_count: u32,
    compression_algorithm: CompressionBody,
    message_expiry: u64,
    max_topic_size: u64,
    #[serde(default)]
    options: OptionTexts,
}

#[derive(Deserialize)]
struct UpdateTopicBody {
    name: String,
    #[serde(default)]
    compression_algorithm: Option<CompressionBody>,
    #[serde(default)]
    message_expiry: Option<u64>,
    #[serde(default)]
    max_topic_size: Option<u64>,
    #[serde(default)]
    options: OptionTexts,
}

#[derive(Deserialize)]
struct PartitionsBody {
    partitions_count: u32,
}

#[derive(Deserialize)]
struct GroupBody {
    name: String,
}

fn partitions_count(count: u32) -> Result<u32, Answer> {
    let possible = (1..=PARTITIONS_MAX).contains(&count);
    let too_many = || Answer::error(ErrorCode::TooManyPartitions);
    possible.then_some(count).ok_or_else(too_many)
}

fn required<T: std::str::FromStr>(call: &Call, key: &str) -> Result<T, Answer> {
    let value = call.head.query_parsed(key)?;
    value.ok_or_else(|| {
        let text = format!("Failed to deserialize query string: {key} is missing");
        Answer::text(400, &text)
    })
}

fn number(block: &mut TlvBuilder, key: &str, value: u64) {
    block.option(key, TlvKind::U64, &value.to_le_bytes());
}

/// A dedicated field wins over an option of the same key, unless it says nothing.
fn topic_options(body: &mut CreateTopicBody) -> Result<TlvBuilder, Answer> {
    let mut block = TlvBuilder::new();
    if matches!(body.compression_algorithm, CompressionBody::Gzip) {
        body.options.remove("compression_algorithm");
        block.option("compression_algorithm", TlvKind::STRING, b"gzip");
    }
    for (key, value) in [
        ("message_expiry", body.message_expiry),
        ("max_topic_size", body.max_topic_size),
    ] {
        if value != 0 {
            body.options.remove(key);
            number(&mut block, key, value);
        }
    }
    put_options(&mut block, &body.options)?;
    Ok(block)
}

impl Web {
    pub(super) async fn topics(&self, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let stream = borrow(&stream)?;
        let request = ClientRequest::GetTopics(StreamRequest { stream });
        let payload = self.read(call, caller, &request).await?;
        let Counted(mut topics): Counted<TopicRecord<'_>> = decode(&payload)?;
        topics.sort_by_key(|topic| topic.id);
        let topics: Vec<_> = topics.into_iter().map(TopicJson::from).collect();
        Ok(Answer::json(&topics))
    }

    pub(super) async fn topic(&self, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let request = ClientRequest::GetTopic(TopicRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
        });
        let payload = self.read(call, caller, &request).await?;
        let topic: TopicDetails<'_> = decode_present(&payload)?;
        Ok(Answer::json(&TopicJson::from(topic)))
    }

    pub(super) async fn create_topic(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let mut body: CreateTopicBody = call.json()?;
        if body.partitions_count > PARTITIONS_MAX {
            return Err(Answer::error(ErrorCode::TooManyPartitions));
        }
        let block = topic_options(&mut body)?;
        let request = ClientRequest::CreateTopic(CreateTopic {
            stream: borrow(&stream)?,
            partitions: body.partitions_count,
            name: name(&body.name, ErrorCode::InvalidTopicName)?,
            options: options(&block)?,
        });
        let payload = self.write(call, caller, &request).await?;
        let topic: TopicDetails<'_> = decode(&payload)?;
        Ok(Answer::json(&TopicJson::from(topic)))
    }

    pub(super) async fn update_topic(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let mut body: UpdateTopicBody = call.json()?;
        let mut block = TlvBuilder::new();
        if let Some(compression) = body.compression_algorithm {
            body.options.remove("compression_algorithm");
            let text: &[u8] = match compression {
                CompressionBody::None => b"none",
                CompressionBody::Gzip => b"gzip",
            };
            block.option("compression_algorithm", TlvKind::STRING, text);
        }
        for (key, value) in [
            ("message_expiry", body.message_expiry),
            ("max_topic_size", body.max_topic_size),
        ] {
            if let Some(value) = value {
                body.options.remove(key);
                number(&mut block, key, value);
            }
        }
        put_options(&mut block, &body.options)?;
        let request = ClientRequest::UpdateTopic(UpdateTopic {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            name: name(&body.name, ErrorCode::InvalidTopicName)?,
            options: options(&block)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn delete_topic(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let request = ClientRequest::DeleteTopic(TopicRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn purge_topic(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let request = ClientRequest::PurgeTopic(TopicRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn create_partitions(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
    ) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let body: PartitionsBody = call.json()?;
        let request = ClientRequest::CreatePartitions(PartitionsRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            count: partitions_count(body.partitions_count)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(200))
    }

    pub(super) async fn delete_partitions(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
    ) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let count = partitions_count(required(call, "partitions_count")?)?;
        let request = ClientRequest::DeletePartitions(PartitionsRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            count,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn delete_segments(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let partition = call.number(2)?;
        let count = required(call, "segments_count")?;
        let request = ClientRequest::DeleteSegments(DeleteSegments {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partition,
            count,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn groups(&self, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let request = ClientRequest::GetConsumerGroups(TopicRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
        });
        let payload = self.read(call, caller, &request).await?;
        let mut groups: Vec<ConsumerGroupRecord<'_>> = decode(&payload)?;
        groups.sort_by_key(|group| group.id);
        let groups: Vec<_> = groups.into_iter().map(GroupJson::from).collect();
        Ok(Answer::json(&groups))
    }

    pub(super) async fn group(&self, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let group = call.identifier(2)?;
        let request = ClientRequest::GetConsumerGroup(ConsumerGroupRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            group: borrow(&group)?,
        });
        let payload = self.read(call, caller, &request).await?;
        let group: ConsumerGroupDetails<'_> = decode_present(&payload)?;
        Ok(Answer::json(&GroupJson::from(group)))
    }

    pub(super) async fn create_group(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let body: GroupBody = call.json()?;
        let request = ClientRequest::CreateConsumerGroup(CreateConsumerGroup {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            name: name(&body.name, ErrorCode::InvalidConsumerGroupName)?,
        });
        let payload = self.write(call, caller, &request).await?;
        let group: ConsumerGroupDetails<'_> = decode(&payload)?;
        Ok(Answer::json(&GroupJson::from(group)))
    }

    pub(super) async fn delete_group(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let group = call.identifier(2)?;
        let request = ClientRequest::DeleteConsumerGroup(ConsumerGroupRequest {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            group: borrow(&group)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }
}
