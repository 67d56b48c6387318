//! The operation that says where in a partition's log a purge takes place.
//!
//! A purge is committed in the metadata group, and each replica learns of it when it learns of
//! it; the offsets of a partition, though, must start over at the same operation everywhere, or
//! a batch stamped after the purge is taken for one before it. So the primary puts a marker into
//! the log: a delete of the stored position of a consumer group that cannot exist, submitted by
//! the server itself, with the generation as its request number. What stands at or below it has
//! no effect, what stands above it starts at offset 0. A replica that knows nothing of markers
//! sees the delete of a position it does not have, which changes nothing (chapter 06 section
//! 10.3), and purges by its own rule.

use biplane_wire::{Operation, PrepareHeader};

use crate::admission::AUTO_COMMIT_CLIENT;
use crate::consumer_offsets::ConsumerKey;
use crate::offset_request::OffsetRequest;

/// The group whose position a marker deletes. Group ids count up from 1 and are never used
/// again, so no group has it.
pub(crate) const KEY: ConsumerKey = ConsumerKey::Group(u32::MAX);

/// Whether a prepare with this header and body is a marker.
pub(crate) fn is_marker(header: &PrepareHeader, body: &[u8]) -> bool {
    header.operation() == Operation::DeleteConsumerOffset
        && header.client().0 == AUTO_COMMIT_CLIENT
        && OffsetRequest::decode(header.operation(), body).is_ok_and(|found| found.key == KEY)
}
