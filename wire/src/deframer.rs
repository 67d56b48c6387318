//! Bytes to messages, without IO (chapter 01 section 2.4).
//!
//! ```text
//!            read_slice ──────────────┐ large frame: straight into its final buffer
//!   socket ─────────────► staging ────┴─► buffer ──► next ──► Message
//!                         small frames: many per read, copied out once
//! ```
//!
//! The driver asks [`Deframer::read_slice`] where the next bytes go, reads into it, reports
//! with [`Deframer::advance`], and takes frames with [`Deframer::next`] until there are none.
//! Not asking is backpressure: nothing is read and nothing grows.
//!
//! Cursors: `0 <= head <= tail <= staging.len()`; `staging[head..tail]` is received and not yet
//! handed out. While a large frame is being filled, `head == tail`.
//!
//! Memory is bounded by what arrived, not by what a header claims: a body is not allocated
//! before the size check, and a large one grows as its bytes come in. A reader that looks at
//! frames and lets them go uses [`Deframer::next_ref`], which takes no memory per frame.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use crate::HEADER_SIZE;
use crate::buffer::FrameBuffer;
use crate::command::Command;
use crate::error::CloseReason;
use crate::frame_ref::FrameRef;
use crate::header::{GenericHeader, Header};
use crate::message::Message;
use crate::storage::{BLOCK_SIZE, Recycler, Storage};

/// Bytes of the staging buffer.
pub const STAGING_SIZE: usize = 64 * 1024;
/// Frames up to this size are assembled in staging and copied out.
pub const SMALL_FRAME_SIZE_MAX: usize = 16 * 1024;
/// Memory a large frame gets before any of its bytes beyond the header arrived: enough for a body
/// of one mebibyte, which then never moves.
pub const LARGE_ALLOCATION_FIRST: usize = 1024 * 1024 + 64 * 1024;

/// Largest buffer kept from one frame read in place for the next.
const SPARE_SIZE_MAX: usize = 4 * 1024 * 1024;
const COMMAND_OFFSET: usize = 60;

const _: () = assert!(SMALL_FRAME_SIZE_MAX * 2 <= STAGING_SIZE);
const _: () = assert!(HEADER_SIZE <= SMALL_FRAME_SIZE_MAX);
const _: () = assert!(SMALL_FRAME_SIZE_MAX < LARGE_ALLOCATION_FIRST);
const _: () = assert!(LARGE_ALLOCATION_FIRST.is_multiple_of(BLOCK_SIZE));

/// A frame that is read into its own buffer.
struct Large {
    storage: Storage,
    filled: usize,
    size: usize,
}

/// Splits a byte stream into frames that passed the generic check.
pub struct Deframer {
    size_max: u32,
    staging: Vec<u8>,
    head: usize,
    tail: usize,
    large: Option<Large>,
    /// Memory of the last large frame that was read in place.
    spare: Option<Storage>,
    home: Option<Arc<dyn Recycler>>,
    failed: Option<CloseReason>,
}

/// Where the next whole frame stands.
enum Ready {
    Staged(Range<usize>),
    Large(Large),
}

impl Deframer {
    /// A deframer at the start of a stream that accepts frames up to `size_max` bytes. Memory
    /// is taken at the first read.
    #[must_use]
    pub fn new(size_max: u32) -> Self {
        Self {
            size_max,
            staging: Vec::new(),
            head: 0,
            tail: 0,
            large: None,
            spare: None,
            home: None,
            failed: None,
        }
    }

    /// Takes the memory of large frames from `home`, where it returns to.
    #[must_use]
    pub fn with_recycler(mut self, home: Arc<dyn Recycler>) -> Self {
        self.home = Some(home);
        self
    }

    /// Accepts frames up to `size_max` bytes from the next one on. A listener that does not know
    /// its peer yet starts with a small limit and raises it once it does.
    pub fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max;
    }

    /// Where the next bytes of the stream go. Empty after a failure, and while complete frames
    /// that were not taken with [`Deframer::next`] fill the staging buffer.
    pub fn read_slice(&mut self) -> &mut [u8] {
        if self.failed.is_some() {
            return &mut [];
        }
        if let Some(large) = &mut self.large {
            return large.unfilled();
        }
        if self.staging.is_empty() {
            self.staging = vec![0; STAGING_SIZE];
        }
        // Small frames must be able to complete behind what is pending, and a short tail would
        // cost a read call for a few bytes.
        if self.head > 0 && self.staging.len() - self.tail < SMALL_FRAME_SIZE_MAX {
            self.staging.copy_within(self.head..self.tail, 0);
            self.tail -= self.head;
            self.head = 0;
        }
        &mut self.staging[self.tail..]
    }

    /// Says that `count` bytes were read into the slice last returned.
    ///
    /// # Panics
    ///
    /// When `count` is more than that slice held.
    pub fn advance(&mut self, count: usize) {
        if let Some(large) = &mut self.large {
            assert!(
                count <= large.capacity() - large.filled,
                "no more than was offered"
            );
            large.filled += count;
        } else {
            assert!(
                count <= self.staging.len() - self.tail,
                "no more than was offered"
            );
            self.tail += count;
        }
    }

    /// Takes as many of `bytes` as there is room for and says how many. For tests and for
    /// transports that own their receive buffer; take frames in between until all are in.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = bytes.get(taken..).unwrap_or_default();
            let room = self.read_slice();
            let count = room.len().min(rest.len());
            let Some(count) = NonZeroUsize::new(count) else {
                break;
            };
            room[..count.get()].copy_from_slice(&rest[..count.get()]);
            self.advance(count.get());
            taken += count.get();
        }
        taken
    }

    /// The next whole frame, or `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// [`CloseReason::BadSize`] or [`CloseReason::BadCommand`]. The stream cannot be continued
    /// and every later call repeats the reason.
    #[allow(clippy::should_implement_trait)] // An iterator would end at `None`; a stream waits.
    pub fn next(&mut self) -> Result<Option<Message>, CloseReason> {
        Ok(match self.ready()? {
            None => None,
            Some(Ready::Staged(range)) => {
                let frame = &self.staging[range];
                Some(FrameBuffer::from_frame(frame).freeze())
            }
            Some(Ready::Large(Large { storage, size, .. })) => {
                Some(FrameBuffer::from_storage(storage, 0, size).freeze())
            }
        })
    }

    /// As [`Deframer::next`], without taking the frame out: it is borrowed from where it was
    /// received and gone with the next call. Takes no memory per frame, and the buffer of a
    /// large frame serves the next one.
    ///
    /// # Errors
    ///
    /// As [`Deframer::next`].
    pub fn next_ref(&mut self) -> Result<Option<FrameRef<'_>>, CloseReason> {
        let bytes = match self.ready()? {
            None => return Ok(None),
            Some(Ready::Staged(range)) => &self.staging[range],
            Some(Ready::Large(Large { storage, size, .. })) => {
                &self.spare.insert(storage).bytes()[..size]
            }
        };
        Ok(Some(FrameRef::checked(bytes)))
    }

    /// What the end of the stream means now.
    ///
    /// # Errors
    ///
    /// [`CloseReason::EndInsideFrame`] when part of a frame had arrived, or the earlier failure.
    pub fn finish(&self) -> Result<(), CloseReason> {
        if let Some(reason) = self.failed {
            return Err(reason);
        }
        match self.pending() {
            0 => Ok(()),
            have => Err(CloseReason::EndInsideFrame { have }),
        }
    }

    /// Bytes received and not yet handed out.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.large.as_ref().map_or(0, |large| large.filled) + (self.tail - self.head)
    }

    /// Bytes of memory held at this moment.
    #[must_use]
    pub fn memory(&self) -> usize {
        let large = self.large.as_ref().map(|large| &large.storage);
        let held = large.into_iter().chain(&self.spare).map(Storage::size);
        self.staging.capacity() + held.sum::<usize>()
    }

    /// The next whole frame, taken out of the cursors. A failure is remembered.
    fn ready(&mut self) -> Result<Option<Ready>, CloseReason> {
        if let Some(reason) = self.failed {
            return Err(reason);
        }
        if self
            .spare
            .as_ref()
            .is_some_and(|spare| spare.size() > SPARE_SIZE_MAX)
        {
            self.spare = None;
        }
        let ready = match self.large.take() {
            Some(large) if large.filled < large.size => {
                self.large = Some(large);
                Ok(None)
            }
            Some(large) => check_command(&large.storage.bytes()[..HEADER_SIZE])
                .map(|()| Some(Ready::Large(large))),
            None => self.next_staged(),
        };
        if let Err(reason) = ready {
            self.failed = Some(reason);
        }
        ready
    }

    fn next_staged(&mut self) -> Result<Option<Ready>, CloseReason> {
        let pending = &self.staging[self.head..self.tail];
        let Some(header) = pending.first_chunk::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let size = GenericHeader::over(header).frame.size();
        if (size as usize) < HEADER_SIZE || size > self.size_max {
            return Err(CloseReason::BadSize {
                size,
                size_max: self.size_max,
            });
        }
        let size = size as usize;
        if size <= pending.len() {
            check_command(header)?;
            let range = self.head..self.head + size;
            self.head = range.end;
            if self.head == self.tail {
                self.head = 0;
                self.tail = 0;
            }
            return Ok(Some(Ready::Staged(range)));
        }
        if size > SMALL_FRAME_SIZE_MAX {
            self.large = Some(Large::start(
                size,
                pending,
                self.spare.take(),
                self.home.as_ref(),
            ));
            self.head = 0;
            self.tail = 0;
        }
        Ok(None)
    }
}

impl Large {
    /// What recycled memory still holds is overwritten before it is looked at.
    fn start(
        size: usize,
        received: &[u8],
        spare: Option<Storage>,
        home: Option<&Arc<dyn Recycler>>,
    ) -> Self {
        let first = size.min(LARGE_ALLOCATION_FIRST);
        let mut storage = spare
            .filter(|spare| spare.size() >= first)
            .unwrap_or_else(|| Storage::at_least(first, home));
        sole(&mut storage)[..received.len()].copy_from_slice(received);
        Self {
            storage,
            filled: received.len(),
            size,
        }
    }

    fn capacity(&self) -> usize {
        self.size.min(self.storage.size())
    }

    /// The part to fill next. Doubles the memory when the part before is full, so a peer pays
    /// with bytes for every byte we allocate.
    fn unfilled(&mut self) -> &mut [u8] {
        if self.filled == self.capacity() && self.filled < self.size {
            self.storage
                .grow(self.size.min(self.filled.saturating_mul(2)));
        }
        let capacity = self.capacity();
        &mut sole(&mut self.storage)[self.filled..capacity]
    }
}

/// The bytes of storage that was never shared.
fn sole(storage: &mut Storage) -> &mut [u8] {
    match storage.bytes_mut() {
        Some(bytes) => bytes,
        None => unreachable!("a frame that is being received has one holder"),
    }
}

/// The last step of the generic check. It comes after the body was read, so that a peer sees
/// the same close whether or not its body fits one read.
fn check_command(header: &[u8]) -> Result<(), CloseReason> {
    let byte = header.get(COMMAND_OFFSET).copied().unwrap_or(u8::MAX);
    match Command::from_u8(byte) {
        Some(_) => Ok(()),
        None => Err(CloseReason::BadCommand { byte }),
    }
}

impl std::fmt::Debug for Deframer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Deframer({} bytes pending, failed: {:?})",
            self.pending(),
            self.failed
        )
    }
}
