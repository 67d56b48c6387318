//! The body of a SendMessages request (chapter 01 section 12.5).
//!
//! ```text
//! metadata_length u32 | stream | topic | partitioning | messages_count u32 | batch
//! ```

use super::view::{Batch, BatchError, BatchFault, Verify};
use crate::codec::{Codec, Cursor, body, write_length};
use crate::primitive::{Identifier, Partitioning};

body! {
    /// Where a batch goes and how many messages it says it has.
    #[derive(Copy)]
    pub struct SendMetadata<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// How the partition is found.
        partitioning: Partitioning<'a>,
        /// Must equal the message count of the batch.
        messages_count: u32,
    }
}

/// A SendMessages body that passed admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendMessages<'a> {
    /// The destination.
    pub metadata: SendMetadata<'a>,
    /// The batch, verified.
    pub batch: Batch<'a>,
    /// Bytes in front of the batch: what [`FrameBuffer::reframe`] skips to turn the request
    /// into a prepare.
    ///
    /// [`FrameBuffer::reframe`]: crate::FrameBuffer::reframe
    pub batch_start: usize,
}

impl<'a> SendMessages<'a> {
    /// Reads where the batch goes without looking at the batch; the second value is where the
    /// batch starts in the body.
    ///
    /// # Errors
    ///
    /// [`BatchError::Malformed`].
    pub fn decode_metadata(body: &'a [u8]) -> Result<(SendMetadata<'a>, usize), BatchError> {
        let mut cursor = Cursor::new(body);
        let Ok(metadata) = cursor.sub("metadata") else {
            return Err(BatchError::Malformed(BatchFault::ShorterThanMetadata));
        };
        match SendMetadata::decode_exact(metadata.rest()) {
            Ok(decoded) => Ok((decoded, body.len() - cursor.remaining())),
            Err(_) => Err(BatchError::Malformed(BatchFault::Metadata)),
        }
    }

    /// All checks of section 12.5, in their order.
    ///
    /// # Errors
    ///
    /// The first that fails; [`BatchError::code`] is the status to answer.
    pub fn decode(body: &'a [u8]) -> Result<Self, BatchError> {
        let (metadata, batch_start) = Self::decode_metadata(body)?;
        let rest = body.get(batch_start..).unwrap_or_default();
        let (batch, surplus) = Batch::decode_prefix(rest, Verify::Checksums)?;
        if batch.message_count() == 0 {
            return Err(BatchError::Malformed(BatchFault::NoMessages));
        }
        if batch.message_count() != metadata.messages_count {
            return Err(BatchError::Malformed(BatchFault::MetadataCount));
        }
        if !surplus.is_empty() {
            return Err(BatchError::Malformed(BatchFault::Surplus));
        }
        Ok(Self {
            metadata,
            batch,
            batch_start,
        })
    }

    /// The body of a request that sends `batch`.
    #[must_use]
    pub fn encode(metadata: &SendMetadata<'_>, batch: &[u8]) -> Vec<u8> {
        let encoded = metadata.encode();
        let mut body = Vec::with_capacity(4 + encoded.len() + batch.len());
        write_length(encoded.len(), &mut body);
        body.extend_from_slice(&encoded);
        body.extend_from_slice(batch);
        body
    }
}
