//! A frame borrowed from where its bytes already are: a receive buffer, a mapped file, a test
//! vector. Nothing is copied and nothing is allocated.

use crate::HEADER_SIZE;
use crate::buffer::check_generic;
use crate::command::Command;
use crate::decode::decode_header;
use crate::error::{DecodeError, Refusal};
use crate::header::{GenericHeader, Header};
use crate::message::Message;

/// A whole frame that passed the generic check: its size field is its length and its command
/// byte is defined. The borrowed counterpart of [`Message`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameRef<'a> {
    bytes: &'a [u8],
}

impl<'a> FrameRef<'a> {
    /// The frame that `bytes` must be, header included.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Frame`] when the generic check fails or bytes are missing,
    /// [`DecodeError::Trailing`] when there are too many.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        check_generic(bytes)?;
        Ok(Self { bytes })
    }

    /// For callers that made the generic check themselves.
    pub(crate) fn checked(bytes: &'a [u8]) -> Self {
        debug_assert!(check_generic(bytes).is_ok());
        Self { bytes }
    }

    /// Header and body.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Length of the frame in bytes, header included.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The 256 header bytes.
    #[must_use]
    pub fn header_bytes(&self) -> &'a [u8; HEADER_SIZE] {
        match self.bytes.first_chunk() {
            Some(header) => header,
            None => unreachable!("a frame has a header"),
        }
    }

    /// The body, `frame[256..size]`.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_SIZE..).unwrap_or_default()
    }

    /// The header without regard to its command.
    #[must_use]
    pub fn generic(&self) -> &'a GenericHeader {
        GenericHeader::over(self.header_bytes())
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> Command {
        self.generic().frame.command()
    }

    /// Typed decode of the header, in the order of chapter 01 section 5.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    pub fn decode<H: Header>(&self) -> Result<&'a H, Refusal> {
        decode_header(self.header_bytes())
    }

    /// A copy with a lifetime of its own.
    #[must_use]
    pub fn to_message(&self) -> Message {
        match Message::from_bytes(self.bytes) {
            Ok(message) => message,
            Err(_) => unreachable!("the generic check passed"),
        }
    }
}

impl std::fmt::Debug for FrameRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::summary::Summary::from(*self).fmt(f)
    }
}
