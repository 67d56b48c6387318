//! A frame shared read-only by journal, sender and state machine.
//!
//! Cloning counts a reference. A message may carry a replaced header in front of a shared body:
//! that is how a retransmission rewrites the view, and how a journaled prepare goes out as a
//! repair, without touching or copying the bytes the journal holds.

use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::HEADER_SIZE;
use crate::buffer::{BLOCK_SIZE, Block, FrameBuffer};
use crate::command::Command;
use crate::error::DecodeError;
use crate::header::{GenericHeader, Header, PrepareHeader};
use crate::ids::View;

/// A frame that passed the generic check: its size field is its length and its command byte is
/// defined. Nothing else is known about it.
#[derive(Clone)]
pub struct Message {
    storage: Arc<Vec<Block>>,
    start: usize,
    size: usize,
    replaced: Option<Arc<[u8; HEADER_SIZE]>>,
}

impl Message {
    pub(crate) fn from_storage(storage: Arc<Vec<Block>>, start: usize, size: usize) -> Self {
        debug_assert!(size >= HEADER_SIZE);
        debug_assert!(start + size <= storage.len() * BLOCK_SIZE);
        Self {
            storage,
            start,
            size,
            replaced: None,
        }
    }

    /// A copy of exactly one frame.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Frame`] when the generic check fails or the length is not the size field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        FrameBuffer::from_bytes(bytes).map(FrameBuffer::freeze)
    }

    /// A frame made of a header and a copy of `body`; sets the size field.
    ///
    /// For unsealed kinds and for frames whose checksums are already final, because a seal
    /// covers the size: see [`Message::sealed`] and [`crate::prepare::build`].
    #[must_use]
    pub fn from_parts<H: Header>(mut header: H, body: &[u8]) -> Self {
        set_size(&mut header, body.len());
        FrameBuffer::from_parts(&header, body).freeze()
    }

    /// A control frame made of a header and a copy of `body`; sets the size field, then the
    /// frame seal.
    #[must_use]
    pub fn sealed<H: Header>(mut header: H, body: &[u8]) -> Self {
        set_size(&mut header, body.len());
        crate::checksum::seal(&mut header);
        FrameBuffer::from_parts(&header, body).freeze()
    }

    fn stored(&self) -> &[u8] {
        &self.storage.as_bytes()[self.start..self.start + self.size]
    }

    /// Length of the frame in bytes, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The header bytes.
    #[must_use]
    pub fn header_bytes(&self) -> &[u8; HEADER_SIZE] {
        if let Some(replaced) = &self.replaced {
            return replaced;
        }
        match self.stored().first_chunk() {
            Some(header) => header,
            None => unreachable!("a frame has a header"),
        }
    }

    /// The body, `frame[256..size]`.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.stored()[HEADER_SIZE..]
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> Command {
        self.generic().frame.command()
    }

    /// The header without regard to its command.
    #[must_use]
    pub fn generic(&self) -> &GenericHeader {
        GenericHeader::over(self.header_bytes())
    }

    /// The header as `H`. Its bytes have not been checked unless typed decode did so.
    ///
    /// # Panics
    ///
    /// When the command of the frame does not use the layout of `H`.
    #[must_use]
    pub fn header<H: Header>(&self) -> &H {
        let command = self.command();
        assert!(
            H::COMMANDS.contains(&command),
            "the command uses this layout"
        );
        H::over(self.header_bytes())
    }

    /// The frame as one slice; `None` when the header was replaced and stands apart.
    #[must_use]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match self.replaced {
            None => Some(self.stored()),
            Some(_) => None,
        }
    }

    /// The frame as the two slices to write one after the other. The second is empty when the
    /// first is the whole frame.
    #[must_use]
    pub fn slices(&self) -> [&[u8]; 2] {
        match &self.replaced {
            None => [self.stored(), &[]],
            Some(header) => [header.as_slice(), self.body()],
        }
    }

    /// A copy of the frame.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().concat()
    }

    /// The same body under another header of the same size.
    ///
    /// # Panics
    ///
    /// When the size field of `header` is not the size of this frame.
    #[must_use]
    pub fn with_header<H: Header>(&self, header: &H) -> Self {
        assert!(
            header.frame().size() as usize == self.size,
            "the body stays the same"
        );
        assert!(
            header.validate_command().is_ok(),
            "the command uses this layout"
        );
        Self {
            replaced: Some(Arc::new(*header.bytes())),
            ..self.clone()
        }
    }

    /// Overwrites the header in place when nobody else holds this frame; whether that was so.
    /// For small frames that are sent again and again: the memory of one whose last receiver is
    /// done serves the next.
    ///
    /// # Panics
    ///
    /// When the size field of `header` is not the size of this frame.
    pub fn reuse_for<H: Header>(&mut self, header: &H) -> bool {
        assert!(
            header.frame().size() as usize == self.size,
            "the body stays the same"
        );
        assert!(
            header.validate_command().is_ok(),
            "the command uses this layout"
        );
        let Some(blocks) = Arc::get_mut(&mut self.storage) else {
            return false;
        };
        self.replaced = None;
        let place = self.start..self.start + HEADER_SIZE;
        blocks.as_mut_bytes()[place].copy_from_slice(header.bytes());
        true
    }

    /// This prepare as it is retransmitted in `view`: the one field that may change. The same
    /// message when it already carries that view.
    ///
    /// # Panics
    ///
    /// When this is not a prepare.
    #[must_use]
    pub fn prepare_in_view(&self, view: View) -> Self {
        let header = self.header::<PrepareHeader>();
        if header.frame.view() == view {
            return self.clone();
        }
        let mut header = *header;
        header.frame.set_view(view);
        self.with_header(&header)
    }

    /// This journaled prepare as a repair frame: byte 60 becomes 19.
    ///
    /// # Panics
    ///
    /// When this is not a prepare.
    #[must_use]
    pub fn prepare_to_repair(&self) -> Self {
        let header = *self.header::<PrepareHeader>();
        self.with_header(&header.with_command(Command::RepairPrepare))
    }

    /// The prepare a repair frame carries: byte 60 becomes 6 again. In place when this message
    /// is the only owner of its bytes.
    ///
    /// # Panics
    ///
    /// When this is neither a prepare nor a repair frame.
    #[must_use]
    pub fn repair_to_prepare(self) -> Self {
        let header = self
            .header::<PrepareHeader>()
            .with_command(Command::Prepare);
        match self.try_unique() {
            Ok(mut buffer) => {
                buffer.set_header(&header);
                buffer.freeze()
            }
            Err(shared) => shared.with_header(&header),
        }
    }

    /// The frame back with a single owner, when nobody else holds its bytes. A replaced header
    /// is written into the buffer.
    ///
    /// # Errors
    ///
    /// The message itself when it is shared.
    pub fn try_unique(self) -> Result<FrameBuffer, Self> {
        let Self {
            storage,
            start,
            size,
            replaced,
        } = self;
        match FrameBuffer::from_shared(storage, start, size) {
            Ok(mut buffer) => {
                if let Some(header) = replaced {
                    *buffer.header_bytes_mut() = *header;
                }
                Ok(buffer)
            }
            Err(storage) => Err(Self {
                storage,
                start,
                size,
                replaced,
            }),
        }
    }

    /// The frame with a single owner; copies only when it is shared.
    #[must_use]
    pub fn into_unique(self) -> FrameBuffer {
        match self.try_unique() {
            Ok(buffer) => buffer,
            Err(shared) => {
                let mut buffer = FrameBuffer::zeroed(shared.size);
                *buffer.header_bytes_mut() = *shared.header_bytes();
                buffer.body_mut().copy_from_slice(shared.body());
                buffer
            }
        }
    }

    /// Bytes of memory the storage of this frame takes, for queue accounting.
    #[must_use]
    pub fn storage_size(&self) -> usize {
        self.storage.len() * BLOCK_SIZE
    }
}

fn set_size<H: Header>(header: &mut H, body_size: usize) {
    let size = u32::try_from(HEADER_SIZE + body_size);
    header
        .frame_mut()
        .set_size(size.expect("the sender keeps frames within the size field"));
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.header_bytes() == other.header_bytes() && self.body() == other.body()
    }
}

impl Eq for Message {}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::summary::Summary::from(self).fmt(f)
    }
}
