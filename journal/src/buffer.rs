//! Bytes read from a disk: filled once, then shared and sliced without copies.
//!
//! A poll answer is many slices of few reads. [`ReadBuffer`] is the writable form a disk fills,
//! [`ReadBytes`] the shared form everything after it holds. Both start at a multiple of
//! [`ALIGNMENT`] bytes, so that typed views over records with aligned fields stay possible.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

/// Alignment of the first byte of every buffer.
pub const ALIGNMENT: usize = align_of::<u128>();

const _: () = assert!(ALIGNMENT == 16);

/// A zeroed buffer of fixed length that has one owner.
pub struct ReadBuffer {
    words: Vec<u128>,
    len: usize,
}

impl ReadBuffer {
    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(ALIGNMENT)],
            len,
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }

    /// The bytes, writable.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.len]
    }

    /// Forgets what lies beyond the first `len` bytes; a longer `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives up writing and shares the bytes.
    #[must_use]
    pub fn freeze(self) -> ReadBytes {
        let end = self.len;
        ReadBytes {
            words: Arc::new(self.words),
            range: 0..end,
        }
    }
}

/// Shared read-only bytes, or a part of them. Cloning and slicing copy nothing.
#[derive(Clone)]
pub struct ReadBytes {
    words: Arc<Vec<u128>>,
    range: Range<usize>,
}

impl ReadBytes {
    /// A copy of `bytes`, for tests and small values.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = ReadBuffer::zeroed(bytes.len());
        buffer.as_mut_bytes().copy_from_slice(bytes);
        buffer.freeze()
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.words.as_bytes()[self.range.clone()]
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The part `range` of these bytes, sharing the allocation; `None` when it reaches beyond.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        if start > end || end > self.range.end {
            return None;
        }
        Some(Self {
            words: Arc::clone(&self.words),
            range: start..end,
        })
    }
}

impl AsRef<[u8]> for ReadBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for ReadBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for ReadBytes {}

impl fmt::Debug for ReadBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_never_reach_beyond_their_parent() {
        let bytes = ReadBytes::copy_of(b"0123456789abcdefXYZ");
        assert_eq!(bytes.len(), 19);
        let middle = bytes.slice(4..18).unwrap();
        assert_eq!(middle.as_bytes(), b"456789abcdefXY");
        assert_eq!(middle.slice(12..14).unwrap().as_bytes(), b"XY");
        assert!(middle.slice(12..15).is_none());
        assert!(bytes.slice(0..20).is_none());
        assert!(bytes.slice(usize::MAX..usize::MAX).is_none());
        assert!(bytes.slice(19..19).unwrap().is_empty());
    }

    #[test]
    fn a_short_read_is_cut_before_it_is_shared() {
        let mut buffer = ReadBuffer::zeroed(40);
        buffer.as_mut_bytes()[..3].copy_from_slice(b"abc");
        buffer.truncate(3);
        buffer.truncate(30);
        assert_eq!(buffer.freeze().as_bytes(), b"abc");
    }

    #[test]
    fn every_buffer_is_aligned() {
        for len in [0, 1, 15, 16, 17, 4096] {
            let mut buffer = ReadBuffer::zeroed(len);
            assert_eq!(buffer.as_mut_bytes().len(), len);
            assert_eq!(buffer.freeze().as_bytes().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
