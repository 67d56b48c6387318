//! The memory of frames: shared by counting, and with a way back for memory that serves again.
//!
//! An allocation of a mebibyte is mapped by the kernel page by page, zeroed, and unmapped when it
//! is freed: for a frame that lives for a moment, that costs more than its bytes. A server that
//! receives such frames hands a [`Recycler`] to its deframers. Memory that came through one goes
//! back to it when the last holder of the frame lets go, whoever that is.

use std::fmt;
use std::sync::Arc;

use zerocopy::IntoBytes;

/// One 16-byte block of storage. Integers allocate zeroed without a pass over the memory.
pub(crate) type Block = u128;

pub(crate) const BLOCK_SIZE: usize = size_of::<Block>();

/// Keeps memory between two frames. Called from whatever thread reads or drops a frame.
pub trait Recycler: fmt::Debug + Send + Sync {
    /// Memory of at least `size` bytes and not of much more, or none: then it is allocated.
    fn take(&self, size: usize) -> Option<Spare>;

    /// Memory nobody needs any more. Dropping it frees it.
    fn give(&self, spare: Spare);
}

/// Memory without a frame. What it holds is what its last frame held: it is given only to
/// whoever overwrites it before anybody looks.
pub struct Spare(Arc<Blocks>);

impl Spare {
    /// Bytes of memory.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.blocks.len() * BLOCK_SIZE
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spare({} bytes)", self.size())
    }
}

struct Blocks {
    blocks: Vec<Block>,
    home: Option<Arc<dyn Recycler>>,
}

/// Storage with one holder or several. Cloning counts a reference.
#[derive(Clone)]
pub(crate) struct Storage {
    /// `None` only while it is being dropped.
    shared: Option<Arc<Blocks>>,
}

impl Storage {
    pub(crate) fn new(blocks: Vec<Block>) -> Self {
        let home = None;
        Self {
            shared: Some(Arc::new(Blocks { blocks, home })),
        }
    }

    /// At least `size` bytes: recycled ones where there are any, zeroed ones otherwise. The
    /// caller overwrites whatever it shows to anybody.
    pub(crate) fn at_least(size: usize, home: Option<&Arc<dyn Recycler>>) -> Self {
        let fresh = || Self::new(vec![0; size.div_ceil(BLOCK_SIZE)]);
        let Some(home) = home else {
            return fresh();
        };
        let mut storage = match home.take(size).filter(|spare| spare.size() >= size) {
            Some(Spare(shared)) => Self {
                shared: Some(shared),
            },
            None => fresh(),
        };
        if let Some(blocks) = storage.unique() {
            blocks.home = Some(Arc::clone(home));
        }
        storage
    }

    fn unique(&mut self) -> Option<&mut Blocks> {
        self.shared.as_mut().and_then(Arc::get_mut)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.shared {
            Some(shared) => shared.blocks.as_bytes(),
            None => &[],
        }
    }

    /// The bytes, writable, when nobody else holds them.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.unique().map(|unique| unique.blocks.as_mut_bytes())
    }

    /// Whether nobody else holds the bytes.
    pub(crate) fn is_unique(&mut self) -> bool {
        self.unique().is_some()
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        self.bytes().len()
    }

    /// Makes it `size` bytes long when it is shorter; new bytes are zero. Only for a sole holder.
    pub(crate) fn grow(&mut self, size: usize) {
        let count = size.div_ceil(BLOCK_SIZE);
        if let Some(Blocks { blocks, .. }) = self.unique()
            && count > blocks.len()
        {
            blocks.reserve_exact(count - blocks.len());
            blocks.resize(count, 0);
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let Some(mut shared) = self.shared.take() else {
            return;
        };
        // Of two holders that let go at the same moment neither may see itself alone; the memory
        // is freed then, which is right too.
        if let Some(blocks) = Arc::get_mut(&mut shared)
            && let Some(home) = blocks.home.take()
        {
            home.give(Spare(shared));
        }
    }
}
