//! Responses about messages and stored positions.

use crate::batch::{Batches, Verify};
use crate::codec::{Codec, Counted, Cursor, body};
use crate::error::DecodeError;

/// PollMessages (100, 104): `partition u32 | current_offset u64 | count u32`, then batch
/// records to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledMessages<'a> {
    /// The partition, or [`PolledMessages::RESYNC`].
    pub partition: u32,
    /// Last committed offset at the answering node.
    pub current_offset: u64,
    /// Sum of the message counts of the records.
    pub messages_count: u32,
    /// The records.
    pub records: &'a [u8],
}

impl<'a> PolledMessages<'a> {
    /// Length of what precedes the records.
    pub const HEAD_SIZE: usize = 16;
    /// Tells a group member that its assignment is stale, with no messages.
    pub const RESYNC: u32 = u32::MAX;

    /// A walk over the records. Clients check layout, not checksums.
    #[must_use]
    pub const fn batches(&self, verify: Verify) -> Batches<'a> {
        Batches::new(self.records, verify)
    }

    /// The head alone, for a server that sends the records from where they are stored.
    #[must_use]
    pub fn head(partition: u32, current_offset: u64, messages_count: u32) -> [u8; 16] {
        let mut head = [0; Self::HEAD_SIZE];
        head[0..4].copy_from_slice(&partition.to_le_bytes());
        head[4..12].copy_from_slice(&current_offset.to_le_bytes());
        head[12..16].copy_from_slice(&messages_count.to_le_bytes());
        head
    }
}

impl<'a> Codec<'a> for PolledMessages<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let partition = u32::read(cursor, "partition")?;
        let current_offset = u64::read(cursor, "current offset")?;
        let messages_count = u32::read(cursor, "messages count")?;
        let records = cursor.take_rest();
        Ok(Self {
            partition,
            current_offset,
            messages_count,
            records,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let head = Self::head(self.partition, self.current_offset, self.messages_count);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.records);
    }
}

body! {
    /// Where one written batch went.
    #[derive(Copy, Eq)]
    pub struct SendConfirmation {
        /// The stream.
        stream: u32,
        /// The topic.
        topic: u32,
        /// The partition.
        partition: u32,
        /// Offset of the first message.
        base_offset: u64,
    }
}

/// SendMessages (101): `count u32 | count x confirmation`. An empty body, or a count of zero,
/// says that the batch is committed without telling where; trailing bytes are an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendConfirmations(pub Vec<SendConfirmation>);

impl<'a> Codec<'a> for SendConfirmations {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        if cursor.remaining() == 0 {
            return Ok(Self::default());
        }
        let Counted(confirmations) = Counted::read(cursor, field)?;
        cursor.finish("confirmations")?;
        Ok(Self(confirmations))
    }

    fn write(&self, out: &mut Vec<u8>) {
        Counted(self.0.clone()).write(out);
    }
}

body! {
    /// GetConsumerOffset (120). An empty body means that nothing is stored.
    #[derive(Copy, Eq)]
    pub struct ConsumerOffset {
        /// The partition.
        partition: u32,
        /// Last committed offset at the answering node.
        current_offset: u64,
        /// The stored position: last processed offset.
        stored_offset: u64,
    }
}
