//! Writing the server's fields into a batch in place (chapter 01 sections 12.5 and 12.6).

use zerocopy::FromBytes;

use super::header::BatchHeader;
use super::view::{Batch, BatchError, BatchFault, Verify};

/// Writes the partition id, as admission does. The stored batch checksum is set to 0 until
/// stamping makes the final one.
///
/// # Errors
///
/// When `batch` is shorter than a batch header.
pub fn set_partition_id(batch: &mut [u8], partition_id: u32) -> Result<(), BatchError> {
    let header = header_mut(batch)?;
    header.set_partition_id(u64::from(partition_id));
    header.set_batch_checksum(0);
    Ok(())
}

/// Stamps a batch as the primary does at journal append and recomputes its checksum. The
/// stamped bytes are final: they are forwarded, stored and repaired as they are.
///
/// # Errors
///
/// When `batch` is not a batch by its layout; nothing is written then.
pub fn stamp_batch(
    batch: &mut [u8],
    partition_id: u32,
    base_offset: u64,
    base_timestamp: u64,
) -> Result<(), BatchError> {
    let view = Batch::decode(batch, Verify::Layout)?;
    let mut header = *view.header();
    header.set_partition_id(u64::from(partition_id));
    header.set_base_offset(base_offset);
    header.set_base_timestamp(base_timestamp);
    let checksum = header.checksum_over(view.frames().map(|frame| frame.header.checksum()));
    header.set_batch_checksum(checksum);
    *header_mut(batch)? = header;
    Ok(())
}

fn header_mut(batch: &mut [u8]) -> Result<&mut BatchHeader, BatchError> {
    match BatchHeader::mut_from_prefix(batch) {
        Ok((header, _)) => Ok(header),
        Err(_) => Err(BatchError::Malformed(BatchFault::ShorterThanHeader)),
    }
}
