//! Polls and sends.

use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use biplane_metadata_plane::options::Durability;
use biplane_wire::request::{ClientRequest, PollMessages};
use biplane_wire::response::{PolledMessages, SendConfirmations};
use biplane_wire::{
    Batch, ClientCode, Consumer, ConsumerKind, ErrorCode, MessageFrame, OptionalPartition,
    PollingKind, PollingStrategy, SendMetadata, TlvBlock, TlvField, Verify,
};
use serde::Serialize;

use super::{Served, decode};
use crate::client::http::OwnedIdentifier;
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::ask::send_body;
use crate::http::call::{Call, Caller, borrow, identifier};
use crate::http::produce::{self, SendBody};
use crate::http::shapes::kind_name;
use crate::runtime;

#[derive(Serialize)]
struct PolledJson<'a> {
    partition_id: u32,
    current_offset: u64,
    count: u32,
    messages: Vec<MessageJson<'a>>,
}

#[derive(Serialize)]
struct MessageJson<'a> {
    header: HeaderJson,
    payload: String,
    user_headers: UserHeadersJson<'a>,
}

#[derive(Serialize)]
struct HeaderJson {
    checksum: u64,
    id: u128,
    offset: u64,
    timestamp: u64,
    origin_timestamp: u64,
    user_headers_length: u32,
    payload_length: u32,
    reserved: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserHeadersJson<'a> {
    Read(Vec<UserHeaderJson<'a>>),
    /// Bytes that are no headers, encrypted by the producer perhaps.
    Raw(String),
}

#[derive(Serialize)]
struct UserHeaderJson<'a> {
    key: FieldJson<'a>,
    value: FieldJson<'a>,
}

#[derive(Serialize)]
struct FieldJson<'a> {
    kind: &'a str,
    value: String,
}

#[derive(Serialize)]
struct ConfirmationsJson {
    confirmations: Vec<ConfirmationJson>,
}

#[derive(Serialize)]
struct ConfirmationJson {
    stream_id: u32,
    topic_id: u32,
    partition_id: u32,
    base_offset: u64,
}

fn field(field: TlvField<'_>) -> Option<FieldJson<'static>> {
    let sized = field
        .kind
        .value_size()
        .is_none_or(|size| size == field.data.len());
    let text = field.kind.0 != 2 || std::str::from_utf8(field.data).is_ok();
    Some(FieldJson {
        kind: kind_name(field.kind).filter(|_| sized && text)?,
        value: Base64::encode_string(field.data),
    })
}

fn user_headers(bytes: &[u8]) -> UserHeadersJson<'static> {
    let block = TlvBlock::parse(bytes).ok();
    let headers = block.and_then(|block| {
        let pairs = block.pairs().map(|(key, value)| {
            let (key, value) = (field(key)?, field(value)?);
            Some(UserHeaderJson { key, value })
        });
        pairs.collect::<Option<Vec<_>>>()
    });
    match headers {
        Some(headers) => UserHeadersJson::Read(headers),
        None => UserHeadersJson::Raw(Base64::encode_string(bytes)),
    }
}

fn message<'a>(batch: &Batch<'_>, frame: &MessageFrame<'_>) -> MessageJson<'a> {
    let (head, header) = (batch.header(), frame.header);
    let delta = u64::from(header.timestamp_delta());
    MessageJson {
        header: HeaderJson {
            checksum: header.checksum(),
            id: header.id(),
            offset: batch.offset_of(frame),
            timestamp: head.base_timestamp(),
            origin_timestamp: head.origin_timestamp().saturating_add(delta),
            user_headers_length: header.user_headers_length(),
            payload_length: header.payload_length(),
            reserved: 0,
        },
        payload: Base64::encode_string(frame.payload),
        user_headers: user_headers(frame.user_headers),
    }
}

/// The JSON of a poll's payload.
pub(super) fn polled_json(payload: &[u8]) -> Served {
    let polled: PolledMessages<'_> = decode(payload)?;
    let mut messages = Vec::new();
    for batch in polled.batches(Verify::Layout) {
        let batch = batch.map_err(|_| Answer::error(ErrorCode::Error))?;
        messages.extend(batch.frames().map(|frame| message(&batch, &frame)));
    }
    Ok(Answer::json(&PolledJson {
        partition_id: polled.partition,
        current_offset: polled.current_offset,
        count: polled.messages_count,
        messages,
    }))
}

fn polling_kind(text: &str) -> Option<PollingKind> {
    Some(match text {
        "offset" | "o" => PollingKind::Offset,
        "timestamp" | "t" => PollingKind::Timestamp,
        "first" | "f" => PollingKind::First,
        "last" | "l" => PollingKind::Last,
        "next" | "n" => PollingKind::Next,
        _ => return None,
    })
}

/// The consumer of a query, numeric 1 where none is named.
pub(super) fn consumer_of(call: &Call) -> Result<OwnedIdentifier, Answer> {
    match call.head.query_value("consumer_id") {
        Some(text) => identifier(&text),
        None => Ok(OwnedIdentifier::Numeric(1)),
    }
}

/// A consumer over HTTP is always a plain one.
pub(super) fn plain(consumer: &OwnedIdentifier) -> Result<Consumer<'_>, Answer> {
    Ok(Consumer {
        kind: ConsumerKind::Consumer,
        id: borrow(consumer)?,
    })
}

/// Reads of a partition answer an unknown stream or topic without saying which.
pub(super) fn unresolved(answer: Answer) -> Answer {
    let id = crate::http::answer::error_id(&answer.body);
    match (answer.status, id) {
        (404, Some(1009 | 2010)) => Answer::not_found(),
        _ => answer,
    }
}

/// Which confirmation a producer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ack {
    Replicated,
    None,
}

impl Web {
    pub(super) async fn poll(&self, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let consumer = consumer_of(call)?;
        let head = &call.head;
        let partition = head.query_parsed("partition_id")?.unwrap_or(0);
        let kind = head.query_with("kind", polling_kind)?;
        let request = ClientRequest::PollMessages(PollMessages {
            consumer: plain(&consumer)?,
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partition: OptionalPartition(Some(partition)),
            strategy: PollingStrategy {
                kind: kind.unwrap_or(PollingKind::Offset),
                value: head.query_parsed("value")?.unwrap_or(0),
            },
            count: head.query_parsed("count")?.unwrap_or(10),
            auto_commit: head.query_parsed("auto_commit")?.unwrap_or(false),
        });
        let payload = self.read(call, caller, &request).await;
        polled_json(&payload.map_err(unresolved)?)
    }

    pub(super) async fn send(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let ack = call.head.query_with("ack", |text| match text {
            "replicated" => Some(Ack::Replicated),
            "none" => Some(Ack::None),
            _ => None,
        })?;
        // Who may not send learns that first, whatever they would have sent.
        let durability = self.may_send(caller, &stream, &topic).await?;
        let body: SendBody = call.json()?;
        let partitioning = produce::partitioning(&body.partitioning)?;
        let batch = produce::batch(&body.messages)?;
        let metadata = SendMetadata {
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partitioning,
            messages_count: u32::try_from(body.messages.len())
                .map_err(|_| Answer::error(ErrorCode::TooManyMessages))?,
        };
        let frame = send_body(&metadata, &batch);
        self.check_size(frame.len())?;
        let late = "produce_timeout";
        let code = ClientCode::SendMessages;
        let write = self
            .submit_partition(call, caller, code, &frame, late)
            .await?;
        if ack == Some(Ack::None) {
            runtime::spawn(write.payload());
            return Ok(Answer::empty(202).with("iggy-durability", "none"));
        }
        let payload = write.payload().await?;
        let SendConfirmations(sent) = decode(&payload)?;
        let confirmations = sent.into_iter().map(|one| ConfirmationJson {
            stream_id: one.stream,
            topic_id: one.topic,
            partition_id: one.partition,
            base_offset: one.base_offset,
        });
        let answer = Answer::json(&ConfirmationsJson {
            confirmations: confirmations.collect(),
        });
        let promise = match durability {
            Durability::Replicated => "replicated",
            Durability::Persisted => "persisted",
        };
        Ok(Answer {
            status: 201,
            ..answer
        }
        .with("iggy-durability", promise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_none_are_shown_as_they_are() {
        let text = |bytes: &[u8]| serde_json::to_string(&user_headers(bytes)).unwrap();
        assert_eq!(text(&[]), "[]");
        assert_eq!(text(&[1, 2, 3]), "\"AQID\"");
        let mut block = biplane_wire::TlvBuilder::new();
        block.push(
            TlvField::string("n"),
            TlvField {
                kind: biplane_wire::TlvKind::U64,
                data: &5u64.to_le_bytes(),
            },
        );
        assert_eq!(
            text(block.bytes()),
            concat!(
                r#"[{"key":{"kind":"string","value":"bg=="},"#,
                r#""value":{"kind":"uint64","value":"BQAAAAAAAAA="}}]"#
            )
        );
    }
}
