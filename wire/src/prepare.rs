//! Building prepares: which checksums a new one carries (chapter 01 sections 7.2 and 7.3).

use crate::HEADER_SIZE;
use crate::buffer::FrameBuffer;
use crate::checksum::body_seal;
use crate::header::PrepareHeader;
use crate::ids::Checksum;
use crate::message::Message;

/// Finishes a new prepare whose body already stands in `buffer`: size, body seal (metadata
/// group only) and identity are stamped into `header`, which then becomes the frame's header.
///
/// # Panics
///
/// When the frame is larger than its size field can say.
#[must_use]
pub fn build(mut buffer: FrameBuffer, mut header: PrepareHeader) -> Message {
    finish_header(&mut header, buffer.body());
    buffer.set_header(&header);
    buffer.freeze()
}

/// As [`build`], with a copy of `body`.
///
/// # Panics
///
/// When the frame is larger than its size field can say.
#[must_use]
pub fn build_with_body(mut header: PrepareHeader, body: &[u8]) -> Message {
    finish_header(&mut header, body);
    FrameBuffer::from_parts(&header, body).freeze()
}

fn finish_header(header: &mut PrepareHeader, body: &[u8]) {
    let size = u32::try_from(HEADER_SIZE + body.len());
    header
        .frame
        .set_size(size.expect("a prepare fits its size field"));
    let seal = if header.group().is_metadata() {
        body_seal(body)
    } else {
        Checksum::ZERO
    };
    header.frame.set_checksum_body(seal);
    header.stamp_identity();
}

/// Why a prepare must not enter a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The identity does not match the header.
    #[error("the prepare identity does not match its header")]
    Identity,
    /// The body seal does not match the body.
    #[error("the prepare body does not match its seal")]
    BodySeal,
}

/// The checks before a prepare is journaled, acknowledged or forwarded (section 7.2). Works on
/// prepares and on repair frames.
///
/// # Errors
///
/// Which of the two checksums is wrong.
pub fn verify_ingest(header: &PrepareHeader, body: &[u8]) -> Result<(), IngestError> {
    if !header.identity_is_valid() {
        return Err(IngestError::Identity);
    }
    if !header.body_seal_is_valid(body) {
        return Err(IngestError::BodySeal);
    }
    Ok(())
}
