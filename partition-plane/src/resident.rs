//! One applied operation that is still in memory: what flushes, the tail of polls and repair
//! share.

use std::ops::Range;

use biplane_wire::{Message, Op};

use crate::io::BodyPart;
use crate::poll::BatchSource;
use crate::segments::BatchMeta;

/// An applied prepare. For operations without messages both offsets are the partition's next
/// one, so that the offsets of a run of entries never decrease.
#[derive(Debug, Clone)]
pub(crate) struct Resident {
    /// Its op.
    pub(crate) op: Op,
    /// Offset of its first message.
    pub(crate) base_offset: u64,
    /// Offset after its last message.
    pub(crate) next_offset: u64,
    /// Timestamp of the prepare, in microseconds.
    pub(crate) timestamp: u64,
    /// The prepare.
    pub(crate) message: Message,
}

impl Resident {
    /// Messages in it.
    pub(crate) fn count(&self) -> u64 {
        self.next_offset - self.base_offset
    }

    /// The batch it holds.
    pub(crate) fn meta(&self) -> BatchMeta {
        BatchMeta {
            base_offset: self.base_offset,
            base_timestamp: self.timestamp,
            count: u32::try_from(self.count()).unwrap_or(u32::MAX),
            len: self.message.body().len() as u64,
        }
    }
}

/// The body of a prepare as the source of a poll.
pub(crate) struct MessageSource<'a>(pub(crate) &'a Message);

impl BatchSource for MessageSource<'_> {
    fn bytes(&self) -> &[u8] {
        self.0.body()
    }

    fn whole(&self) -> BodyPart {
        BodyPart::Body(self.0.clone())
    }

    fn range(&self, range: Range<usize>) -> Option<BodyPart> {
        self.0.body().get(range.clone())?;
        Some(BodyPart::BodyRange(self.0.clone(), range))
    }
}
