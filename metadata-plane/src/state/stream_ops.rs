//! Operations on streams (protocol specification, chapter 05, section 4.3).

use biplane_wire::request::{CreateStream, StreamRequest, UpdateStream};
use biplane_wire::{ErrorCode, GroupId, Identifier};

use super::ids::lowest_free;
use super::streams::Stream;
use super::topology::deletions;
use super::{Applied, MetadataState, replies};
use crate::options::{OptionsMap, check_readable};

impl MetadataState {
    pub(super) fn create_stream(
        &mut self,
        body: &CreateStream<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        if self.streams.names.contains_key(body.name.as_str()) {
            return Err(ErrorCode::StreamNameAlreadyExists);
        }
        check_readable(&body.options)?;
        let id = lowest_free(&self.streams.by_id);
        if id >= GroupId::STREAM_COUNT_MAX {
            return Err(ErrorCode::TooManyStreams);
        }
        let mut options = OptionsMap::default();
        options.overlay(&body.options, true);
        let stream = Stream {
            id,
            name: body.name.as_str().to_owned(),
            created_at: now,
            options,
            topics: Default::default(),
            topic_names: Default::default(),
        };
        let mut payload = Vec::new();
        replies::put_new_stream(&mut payload, &stream, body.options);
        self.streams.names.insert(stream.name.clone(), id);
        self.streams.by_id.insert(id, stream);
        Ok(Applied::with_payload(payload))
    }

    pub(super) fn update_stream(&mut self, body: &UpdateStream<'_>) -> Result<Applied, ErrorCode> {
        let id = self
            .streams
            .stream_id(&body.stream)
            .ok_or(ErrorCode::StreamIdNotFound)?;
        if self
            .streams
            .names
            .get(body.name.as_str())
            .is_some_and(|owner| *owner != id)
        {
            return Err(ErrorCode::StreamNameAlreadyExists);
        }
        check_readable(&body.options)?;
        let stream = self.streams.stream_mut(&Identifier::Numeric(id))?;
        let old = std::mem::replace(&mut stream.name, body.name.as_str().to_owned());
        stream.options.overlay(&body.options, true);
        self.streams.names.remove(&old);
        self.streams.names.insert(body.name.as_str().to_owned(), id);
        Ok(Applied::default())
    }

    pub(super) fn delete_stream(&mut self, body: &StreamRequest<'_>) -> Result<Applied, ErrorCode> {
        let id = self
            .streams
            .stream_id(&body.stream)
            .ok_or(ErrorCode::StreamIdNotFound)?;
        let stream = self
            .streams
            .by_id
            .remove(&id)
            .ok_or(ErrorCode::StreamIdNotFound)?;
        self.streams.names.remove(&stream.name);
        for topic in stream.topics.values() {
            self.forget_memberships(id, topic);
        }
        self.streams.raise_revision();
        let topology = stream
            .topics
            .values()
            .flat_map(|topic| deletions(id, topic))
            .collect();
        Ok(Applied::with_topology(topology))
    }
}
