//! What a primary checks before a request becomes a prepare (chapter 06 sections 4.2 and 4.3).
//!
//! The order of the checks is the order of the chapter. Where the chapter leaves a request
//! without a reply, this server answers with the status that says what is wrong.

use biplane_wire::{FrameBuffer, HEADER_SIZE, Operation, PartitionKey, RoutedRequestHeader};

use crate::batch::{self, BatchHeader};
use crate::dedup::Verdict;
use crate::log_state::LogState;
use crate::offset_request::OffsetRequest;
use crate::purge_marker;
use crate::status;

/// The client id of stores that a poll with auto-commit submits.
pub const AUTO_COMMIT_CLIENT: u128 = u128::MAX;

/// What admission makes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Prepare it.
    Admit,
    /// It committed before: answer success without doing it again.
    Duplicate,
    /// Refuse it with this status.
    Refuse(u32),
}

/// Turns the body of a client's SendMessages into the body of its prepare, in place: metadata
/// is cut off the front, the partition id is written, nothing is copied. Bodies of other
/// operations stay as they are.
///
/// # Errors
///
/// The status of the first check that fails.
pub fn convert(request: &mut FrameBuffer, partition: PartitionKey) -> Result<(), u32> {
    let header = *request.header::<RoutedRequestHeader>();
    if header.operation() != Operation::SendMessages {
        return Ok(());
    }
    let id = u64::from(partition.partition);
    if is_bare_batch(request.body(), id) {
        return Ok(());
    }
    let (metadata, announced) = split_metadata(request.body()).ok_or(status::INVALID_COMMAND)?;
    let batch = request
        .body()
        .get(metadata..)
        .ok_or(status::INVALID_COMMAND)?;
    let found = batch::verify(batch).map_err(batch::BatchError::status)?;
    if found.count != announced {
        return Err(status::INVALID_COMMAND);
    }
    request.reframe(metadata);
    let mut moved = header;
    let size = u32::try_from(request.size()).map_err(|_| status::INVALID_COMMAND)?;
    moved.frame.set_size(size);
    request.set_header(&moved);
    request.body_mut()[..8].copy_from_slice(&id.to_le_bytes());
    Ok(())
}

/// A body without metadata that is a batch of this very partition: it went through here before.
fn is_bare_batch(body: &[u8], partition: u64) -> bool {
    let header = BatchHeader::read(body);
    let fits = |header: BatchHeader| {
        header.partition_id == partition && header.length == body.len() as u64
    };
    // A metadata length that happens to look like a partition id does not also tile the body.
    header.is_some_and(fits) && split_metadata(body).is_none() && batch::verify(body).is_ok()
}

/// Bytes in front of the batch and the message count they announce.
fn split_metadata(body: &[u8]) -> Option<(usize, u32)> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let metadata = rest.get(..length)?;
    let rest = skip_identifier(metadata)?;
    let rest = skip_identifier(rest)?;
    let rest = skip_partitioning(rest)?;
    let count: &[u8; 4] = rest.try_into().ok()?;
    Some((4 + length, u32::from_le_bytes(*count)))
}

fn skip_identifier(bytes: &[u8]) -> Option<&[u8]> {
    let ([kind, len], rest) = bytes.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_at_checked(usize::from(*len))?;
    match (*kind, value.len()) {
        (1, 4) => Some(rest),
        (2, 1..) => std::str::from_utf8(value).ok().map(|_| rest),
        _ => None,
    }
}

fn skip_partitioning(bytes: &[u8]) -> Option<&[u8]> {
    let ([kind, len], rest) = bytes.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_at_checked(usize::from(*len))?;
    match (*kind, value.len()) {
        (1, 0) | (2, 4) | (3, 1..) => Some(rest),
        _ => None,
    }
}

/// Room in the prepare log, as far as admission must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogRoom {
    /// Largest prepare it takes.
    pub(crate) frame_bytes_max: usize,
    /// Bytes it can still take.
    pub(crate) free_bytes: u64,
}

/// Checks c to h and l of section 4.3 on a converted request, for a primary that is in charge.
pub(crate) fn check(
    state: &LogState,
    header: &RoutedRequestHeader,
    body: &[u8],
    room: Option<LogRoom>,
) -> Check {
    let size = HEADER_SIZE + body.len();
    if room.is_some_and(|room| size > room.frame_bytes_max) {
        return Check::Refuse(status::INVALID_MESSAGES_SIZE);
    }
    if decode_if_offset(header.operation(), body).is_err() {
        return Check::Refuse(status::INVALID_COMMAND);
    }
    let (client, request) = (header.client().0, header.request().0);
    match state.dedup.check(client, header.user_id(), request) {
        Verdict::New => {}
        Verdict::InFlight => return Check::Refuse(status::NOT_COMMITTED),
        Verdict::Duplicate => return Check::Duplicate,
    }
    if room.is_some_and(|room| size as u64 > room.free_bytes) {
        return Check::Refuse(status::NOT_ACCEPTED);
    }
    match recheck(state, header, body) {
        Ok(()) => Check::Admit,
        Err(status) => Check::Refuse(status),
    }
}

/// The checks that are made again when a request leaves the queue: a purge or a commit may have
/// come between.
pub(crate) fn recheck(
    state: &LogState,
    header: &RoutedRequestHeader,
    body: &[u8],
) -> Result<(), u32> {
    let Some(request) = decode_if_offset(header.operation(), body)? else {
        return Ok(());
    };
    let Some(offset) = request.offset else {
        if header.client().0 == AUTO_COMMIT_CLIENT && request.key == purge_marker::KEY {
            return Ok(());
        }
        let known = state.offsets.committed(request.key).is_some();
        return if known {
            Ok(())
        } else {
            Err(status::OFFSET_NOT_FOUND)
        };
    };
    if state.committed().is_none_or(|committed| offset > committed) {
        return Err(status::INVALID_OFFSET);
    }
    if !state.offsets.has_room(request.key) {
        return Err(status::TOO_MANY_OFFSETS);
    }
    Ok(())
}

/// The offset request a body holds, or `None` for SendMessages.
pub(crate) fn decode_if_offset(
    operation: Operation,
    body: &[u8],
) -> Result<Option<OffsetRequest>, u32> {
    match operation {
        Operation::SendMessages => Ok(None),
        Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset => {
            let decoded = OffsetRequest::decode(operation, body);
            decoded.map(Some).map_err(|_| status::INVALID_COMMAND)
        }
        _ => Err(status::INVALID_COMMAND),
    }
}

#[cfg(test)]
mod tests;
