//! Stored positions of consumers.

use std::sync::Arc;

use biplane_wire::request::{
    ClientRequest, DeleteConsumerOffset, GetConsumerOffset, StoreConsumerOffset,
};
use biplane_wire::response::ConsumerOffset;
use biplane_wire::{AckLevel, ErrorCode, OptionalPartition};
use serde::{Deserialize, Serialize};

use super::messages::{consumer_of, plain, unresolved};
use super::{Served, decode_present};
use crate::client::http::OwnedIdentifier;
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::call::{Call, Caller, borrow, identifier};

#[derive(Deserialize)]
struct StoreBody {
    #[serde(default)]
    consumer_id: Option<ConsumerBody>,
    #[serde(default)]
    partition_id: Option<u32>,
    offset: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ConsumerBody {
    Number(u32),
    Text(String),
}

#[derive(Serialize)]
struct OffsetJson {
    partition_id: u32,
    current_offset: u64,
    stored_offset: u64,
}

/// A write must name its partition.
fn named(partition: Option<u32>) -> Result<OptionalPartition, Answer> {
    let missing = || Answer::error(ErrorCode::InvalidIdentifier);
    let partition = partition.ok_or_else(missing)?;
    Ok(OptionalPartition(Some(partition)))
}

impl Web {
    pub(super) async fn get_offset(&self, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let consumer = consumer_of(call)?;
        let partition = call.head.query_parsed("partition_id")?.unwrap_or(0);
        let request = ClientRequest::GetConsumerOffset(GetConsumerOffset {
            consumer: plain(&consumer)?,
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partition: OptionalPartition(Some(partition)),
        });
        let payload = self.read(call, caller, &request).await;
        let payload = payload.map_err(unresolved)?;
        let offset: ConsumerOffset = decode_present(&payload)?;
        Ok(Answer::json(&OffsetJson {
            partition_id: offset.partition,
            current_offset: offset.current_offset,
            stored_offset: offset.stored_offset,
        }))
    }

    pub(super) async fn store_offset(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let body: StoreBody = call.json()?;
        let consumer = match body.consumer_id {
            None => OwnedIdentifier::Numeric(1),
            Some(ConsumerBody::Number(id)) => OwnedIdentifier::Numeric(id),
            Some(ConsumerBody::Text(text)) => identifier(&text)?,
        };
        let request = ClientRequest::StoreConsumerOffset(StoreConsumerOffset {
            consumer: plain(&consumer)?,
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partition: named(body.partition_id)?,
            offset: body.offset,
            ack: AckLevel::Quorum,
        });
        self.write_offset(call, caller, &request).await
    }

    pub(super) async fn delete_offset(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let (stream, topic) = (call.identifier(0)?, call.identifier(1)?);
        let consumer = call.identifier(2)?;
        let partition = call.head.query_parsed("partition_id")?;
        let request = ClientRequest::DeleteConsumerOffset(DeleteConsumerOffset {
            consumer: plain(&consumer)?,
            stream: borrow(&stream)?,
            topic: borrow(&topic)?,
            partition: named(partition)?,
            ack: AckLevel::Quorum,
        });
        self.write_offset(call, caller, &request).await
    }

    async fn write_offset(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
        request: &ClientRequest<'_>,
    ) -> Served {
        let (code, body) = self.encode(request)?;
        let late = "offset_write_timeout";
        let write = self
            .submit_partition(call, caller, code, &body, late)
            .await?;
        write.payload().await?;
        Ok(Answer::empty(204))
    }
}
