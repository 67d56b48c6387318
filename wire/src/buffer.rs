//! The memory a frame lives in from socket to disk, while it still has one owner.
//!
//! It stands behind a reference count from the start, so that sharing the frame costs nothing
//! and a message nobody else holds becomes a buffer again.
//!
//! Storage is a vector of 16-byte blocks, so a frame that starts at the front of it is aligned
//! for every field of every header. [`FrameBuffer::reframe`] moves the start forward instead of
//! moving bytes: a request `[header][metadata][batch]` becomes a prepare `[header][batch]` in
//! the same memory, and the batch is never copied. A reframed header may stand unaligned, which
//! the header types allow.

use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::HEADER_SIZE;
use crate::error::{CloseReason, DecodeError};
use crate::header::{GenericHeader, Header};
use crate::message::Message;

/// One 16-byte block of storage. Integers allocate zeroed without a pass over the memory.
pub(crate) type Block = u128;

pub(crate) const BLOCK_SIZE: usize = size_of::<Block>();

/// A frame with a single owner, writable. At least a header long.
pub struct FrameBuffer {
    /// Never shared; see [`FrameBuffer::bytes_mut`].
    blocks: Arc<Vec<Block>>,
    start: usize,
    size: usize,
}

impl FrameBuffer {
    /// A zeroed frame of `size` bytes, header included.
    ///
    /// # Panics
    ///
    /// When `size` is below a header.
    #[must_use]
    pub fn zeroed(size: usize) -> Self {
        assert!(size >= HEADER_SIZE, "a frame has a header");
        Self {
            blocks: Arc::new(vec![0; size.div_ceil(BLOCK_SIZE)]),
            start: 0,
            size,
        }
    }

    /// A frame made of a header and a body.
    ///
    /// # Panics
    ///
    /// When the size field of `header` is not the length of both together.
    #[must_use]
    pub fn from_parts<H: Header>(header: &H, body: &[u8]) -> Self {
        let mut buffer = Self::zeroed(HEADER_SIZE + body.len());
        buffer.set_header(header);
        buffer.body_mut().copy_from_slice(body);
        buffer.assert_size_field();
        buffer
    }

    /// A copy of exactly one frame.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Frame`] when the generic check fails or the length is not the size field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        check_generic(bytes)?;
        Ok(Self::from_frame(bytes))
    }

    /// A copy of bytes that passed the generic check, in one pass: the storage is not zeroed
    /// first.
    pub(crate) fn from_frame(bytes: &[u8]) -> Self {
        assert!(bytes.len() >= HEADER_SIZE, "a frame has a header");
        let (whole, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        let mut blocks = Vec::with_capacity(bytes.len().div_ceil(BLOCK_SIZE));
        blocks.extend(whole.iter().map(|block| Block::from_ne_bytes(*block)));
        if !rest.is_empty() {
            let mut last = [0; BLOCK_SIZE];
            last[..rest.len()].copy_from_slice(rest);
            blocks.push(Block::from_ne_bytes(last));
        }
        Self {
            blocks: Arc::new(blocks),
            start: 0,
            size: bytes.len(),
        }
    }

    pub(crate) fn from_storage(blocks: Vec<Block>, start: usize, size: usize) -> Self {
        assert!(size >= HEADER_SIZE, "a frame has a header");
        assert!(
            start + size <= blocks.len() * BLOCK_SIZE,
            "the frame lies in its storage"
        );
        Self {
            blocks: Arc::new(blocks),
            start,
            size,
        }
    }

    /// The storage of a message back as a buffer; the storage itself when others hold it too.
    pub(crate) fn from_shared(
        mut blocks: Arc<Vec<Block>>,
        start: usize,
        size: usize,
    ) -> Result<Self, Arc<Vec<Block>>> {
        if Arc::get_mut(&mut blocks).is_none() {
            return Err(blocks);
        }
        Ok(Self {
            blocks,
            start,
            size,
        })
    }

    /// Length of the frame in bytes, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.blocks.as_bytes()[self.start..self.start + self.size]
    }

    /// The whole frame, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(blocks) = Arc::get_mut(&mut self.blocks) else {
            unreachable!("a buffer has one owner: it is made that way and never cloned");
        };
        &mut blocks.as_mut_bytes()[self.start..self.start + self.size]
    }

    /// The header bytes.
    #[must_use]
    pub fn header_bytes(&self) -> &[u8; HEADER_SIZE] {
        match self.bytes().first_chunk() {
            Some(header) => header,
            None => unreachable!("a frame has a header"),
        }
    }

    /// The header bytes, writable.
    pub fn header_bytes_mut(&mut self) -> &mut [u8; HEADER_SIZE] {
        match self.bytes_mut().first_chunk_mut() {
            Some(header) => header,
            None => unreachable!("a frame has a header"),
        }
    }

    /// A typed view of the header, unchecked.
    #[must_use]
    pub fn header<H: Header>(&self) -> &H {
        H::over(self.header_bytes())
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes()[HEADER_SIZE..]
    }

    /// The body, writable.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.bytes_mut()[HEADER_SIZE..]
    }

    /// Overwrites the header. The body and the length of the frame stay.
    pub fn set_header<H: Header>(&mut self, header: &H) {
        self.header_bytes_mut().copy_from_slice(header.bytes());
    }

    /// Lets the frame begin `by` bytes later in the same storage and end where it ended. What
    /// stood in front of the new body becomes the header region and is to be overwritten.
    ///
    /// # Panics
    ///
    /// When less than a header would remain.
    pub fn reframe(&mut self, by: usize) {
        assert!(
            by <= self.size - HEADER_SIZE,
            "the rest still holds a header"
        );
        self.start += by;
        self.size -= by;
    }

    /// Cuts the frame to `size` bytes.
    ///
    /// # Panics
    ///
    /// When `size` is below a header or above the present length.
    pub fn truncate(&mut self, size: usize) {
        assert!(size >= HEADER_SIZE, "a frame has a header");
        assert!(size <= self.size, "truncation does not grow");
        self.size = size;
    }

    /// Shares the frame read-only, in the memory it stands in.
    ///
    /// # Panics
    ///
    /// When the size field is not the length of the frame or the command byte is undefined:
    /// a message is a frame that passed the generic check.
    #[must_use]
    pub fn freeze(self) -> Message {
        self.assert_size_field();
        let command = GenericHeader::over(self.header_bytes())
            .frame
            .command_byte();
        assert!(
            crate::Command::from_u8(command).is_some(),
            "the command is defined"
        );
        let Self {
            blocks,
            start,
            size,
        } = self;
        Message::from_storage(blocks, start, size)
    }

    fn assert_size_field(&self) {
        let announced = GenericHeader::over(self.header_bytes()).frame.size();
        assert!(
            announced as usize == self.size,
            "the size field is the length of the frame"
        );
    }
}

impl std::fmt::Debug for FrameBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frame = &GenericHeader::over(self.header_bytes()).frame;
        write!(f, "FrameBuffer({} {} bytes)", frame.command(), self.size)
    }
}

/// The checks of chapter 01 section 2.4 on bytes that should be exactly one frame.
pub(crate) fn check_generic(bytes: &[u8]) -> Result<(), DecodeError> {
    let Some(header) = bytes.first_chunk::<HEADER_SIZE>() else {
        return Err(CloseReason::EndInsideFrame { have: bytes.len() }.into());
    };
    let frame = &GenericHeader::over(header).frame;
    let size = frame.size();
    if (size as usize) < HEADER_SIZE {
        return Err(CloseReason::BadSize {
            size,
            size_max: u32::MAX,
        }
        .into());
    }
    if bytes.len() < size as usize {
        return Err(CloseReason::EndInsideFrame { have: bytes.len() }.into());
    }
    if bytes.len() > size as usize {
        let left = bytes.len() - size as usize;
        return Err(DecodeError::Trailing {
            field: "frame",
            left,
        });
    }
    let byte = frame.command_byte();
    match crate::Command::from_u8(byte) {
        Some(_) => Ok(()),
        None => Err(CloseReason::BadCommand { byte }.into()),
    }
}
