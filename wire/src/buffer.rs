//! The memory a frame lives in from socket to disk, while it still has one owner.
//!
//! It stands behind a reference count from the start, so that sharing the frame costs nothing
//! and a message nobody else holds becomes a buffer again.
//!
//! Storage is made of 16-byte blocks, so a frame that starts at the front of it is aligned
//! for every field of every header. [`FrameBuffer::reframe`] moves the start forward instead of
//! moving bytes: a request `[header][metadata][batch]` becomes a prepare `[header][batch]` in
//! the same memory, and the batch is never copied. A reframed header may stand unaligned, which
//! the header types allow.

use crate::HEADER_SIZE;
use crate::error::{CloseReason, DecodeError};
use crate::header::{GenericHeader, Header};
use crate::message::Message;
use crate::storage::{BLOCK_SIZE, Block, Storage};

/// A frame with a single owner, writable. At least a header long.
pub struct FrameBuffer {
    /// Held by nobody else.
    storage: Storage,
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
        let blocks: Vec<Block> = vec![0; size.div_ceil(BLOCK_SIZE)];
        Self::from_storage(Storage::new(blocks), 0, size)
    }

    /// A frame made of a header and a body.
    ///
    /// # Panics
    ///
    /// When the size field of `header` is not the length of both together.
    #[must_use]
    pub fn from_parts<H: Header>(header: &H, body: &[u8]) -> Self {
        crate::meter::copied(HEADER_SIZE + body.len());
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
        crate::meter::copied(bytes.len());
        let (whole, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        let mut blocks = Vec::with_capacity(bytes.len().div_ceil(BLOCK_SIZE));
        blocks.extend(whole.iter().map(|block| Block::from_ne_bytes(*block)));
        if !rest.is_empty() {
            let mut last = [0; BLOCK_SIZE];
            last[..rest.len()].copy_from_slice(rest);
            blocks.push(Block::from_ne_bytes(last));
        }
        Self::from_storage(Storage::new(blocks), 0, bytes.len())
    }

    /// `storage` has no other holder.
    pub(crate) fn from_storage(storage: Storage, start: usize, size: usize) -> Self {
        assert!(size >= HEADER_SIZE, "a frame has a header");
        assert!(
            start + size <= storage.size(),
            "the frame lies in its storage"
        );
        Self {
            storage,
            start,
            size,
        }
    }

    /// Length of the frame in bytes, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[self.start..self.start + self.size]
    }

    /// The whole frame, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self.storage.bytes_mut() {
            Some(bytes) => &mut bytes[self.start..self.start + self.size],
            None => unreachable!("a frame buffer has one owner"),
        }
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

    /// Shares the frame read-only.
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
            storage,
            start,
            size,
        } = self;
        Message::from_storage(storage, start, size)
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
