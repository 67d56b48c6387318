//! Offset arithmetic of chunks, on both sides.
//!
//! The receiver pulls in lockstep: one artifact at a time, one chunk in flight, each starting
//! where the last one ended. The server cuts what is asked to what it has and what fits a
//! frame. Nothing here trusts a number from a peer.

/// Where the receiver is in one artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkCursor {
    received: u64,
    len: u64,
}

/// Why a chunk does not continue the artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkMisfit {
    /// No bytes.
    Empty,
    /// It starts elsewhere: a duplicate, or the answer to another request.
    Offset,
    /// It goes beyond the end.
    Overrun,
}

impl ChunkCursor {
    pub(crate) fn new(len: u64) -> Self {
        Self { received: 0, len }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.len
    }

    /// Offset and length of the next request, or `None` when all is there.
    pub(crate) fn next(&self, chunk_bytes: u32) -> Option<(u64, u32)> {
        let left = self.len - self.received;
        let length = u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(chunk_bytes.max(1));
        (left > 0).then_some((self.received, length))
    }

    /// Takes a chunk of `length` bytes at `offset`. A server may send fewer bytes than asked.
    pub(crate) fn accept(&mut self, offset: u64, length: u64) -> Result<(), ChunkMisfit> {
        if length == 0 {
            return Err(ChunkMisfit::Empty);
        }
        if offset != self.received {
            return Err(ChunkMisfit::Offset);
        }
        if length > self.len - self.received {
            return Err(ChunkMisfit::Overrun);
        }
        self.received += length;
        Ok(())
    }
}

/// The part of an artifact of `len` bytes that answers a request for `wanted` bytes at `offset`;
/// `None` when the request starts at or behind the end.
pub(crate) fn served_length(len: u64, offset: u64, wanted: u32, chunk_bytes: u32) -> Option<u32> {
    let left = len.checked_sub(offset).filter(|left| *left > 0)?;
    let most = wanted.min(chunk_bytes).max(1);
    Some(u32::try_from(left).unwrap_or(u32::MAX).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_advances_by_what_came() {
        let mut cursor = ChunkCursor::new(10);
        assert_eq!(cursor.next(4), Some((0, 4)));
        assert_eq!(cursor.accept(0, 3), Ok(()));
        assert_eq!(cursor.next(100), Some((3, 7)));
        assert_eq!(cursor.accept(3, 7), Ok(()));
        assert!(cursor.is_complete());
        assert_eq!(cursor.next(4), None);
    }

    #[test]
    fn cursor_refuses_what_does_not_continue() {
        let mut cursor = ChunkCursor::new(10);
        assert_eq!(cursor.accept(0, 0), Err(ChunkMisfit::Empty));
        assert_eq!(cursor.accept(0, 11), Err(ChunkMisfit::Overrun));
        assert_eq!(cursor.accept(0, u64::MAX), Err(ChunkMisfit::Overrun));
        assert_eq!(cursor.accept(0, 4), Ok(()));
        assert_eq!(cursor.accept(0, 4), Err(ChunkMisfit::Offset), "a duplicate");
        assert_eq!(cursor.accept(u64::MAX, 1), Err(ChunkMisfit::Offset));
        assert_eq!(cursor.received(), 4);
    }

    #[test]
    fn an_empty_artifact_is_complete_from_the_start() {
        assert!(ChunkCursor::new(0).is_complete());
        assert_eq!(ChunkCursor::new(0).next(4), None);
    }

    #[test]
    fn server_cuts_to_length_and_frame() {
        assert_eq!(served_length(100, 0, 10, 64), Some(10));
        assert_eq!(served_length(100, 0, u32::MAX, 64), Some(64));
        assert_eq!(served_length(100, 95, 10, 64), Some(5));
        assert_eq!(served_length(100, 100, 10, 64), None);
        assert_eq!(served_length(100, u64::MAX, 10, 64), None);
        assert_eq!(
            served_length(u64::MAX, 1, u32::MAX, u32::MAX),
            Some(u32::MAX)
        );
    }
}
