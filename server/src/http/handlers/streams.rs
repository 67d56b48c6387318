//! Streams.

use std::sync::Arc;

use biplane_wire::request::{ClientRequest, CreateStream, StreamRequest, UpdateStream};
use biplane_wire::response::{StreamDetails, StreamRecord};
use biplane_wire::{ErrorCode, Options, TlvBuilder};
use serde::Deserialize;

use super::{OptionTexts, Served, decode, decode_present, name, options, put_options};
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::call::{Call, Caller, borrow};
use crate::http::shapes::StreamJson;

#[derive(Deserialize)]
struct NameBody {
    name: String,
    #[serde(default)]
    options: OptionTexts,
}

impl Web {
    pub(super) async fn streams(&self, call: &Call, caller: &Caller) -> Served {
        let payload = self.read(call, caller, &ClientRequest::GetStreams).await?;
        let mut streams: Vec<StreamRecord<'_>> = decode(&payload)?;
        streams.sort_by_key(|stream| stream.id);
        let streams: Vec<_> = streams.into_iter().map(StreamJson::from).collect();
        Ok(Answer::json(&streams))
    }

    pub(super) async fn stream(&self, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let stream = borrow(&stream)?;
        let request = ClientRequest::GetStream(StreamRequest { stream });
        let payload = self.read(call, caller, &request).await?;
        let mut stream: StreamDetails<'_> = decode_present(&payload)?;
        stream.topics.sort_by_key(|topic| topic.id);
        Ok(Answer::json(&StreamJson::from(stream)))
    }

    pub(super) async fn create_stream(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let body: NameBody = call.json()?;
        let request = ClientRequest::CreateStream(CreateStream {
            name: name(&body.name, ErrorCode::InvalidStreamName)?,
            options: Options::EMPTY,
        });
        let payload = self.write(call, caller, &request).await?;
        let stream: StreamDetails<'_> = decode(&payload)?;
        Ok(Answer::json(&StreamJson::from(stream)))
    }

    pub(super) async fn update_stream(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let body: NameBody = call.json()?;
        let mut block = TlvBuilder::new();
        put_options(&mut block, &body.options)?;
        let request = ClientRequest::UpdateStream(UpdateStream {
            stream: borrow(&stream)?,
            name: name(&body.name, ErrorCode::InvalidStreamName)?,
            options: options(&block)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn delete_stream(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let stream = borrow(&stream)?;
        let request = ClientRequest::DeleteStream(StreamRequest { stream });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn purge_stream(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let stream = call.identifier(0)?;
        let stream = borrow(&stream)?;
        let request = ClientRequest::PurgeStream(StreamRequest { stream });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }
}
