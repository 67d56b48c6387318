//! Memory of large frames, kept for the next ones.
//!
//! A frame of a mebibyte that is allocated and freed is mapped, zeroed and unmapped page by page.
//! Here its memory waits for the next frame of about its size. What is kept is bounded, and what
//! nobody has asked for in a while is freed: a node that has become idle is as small as it was.

use std::collections::BTreeMap;

use biplane_wire::{Recycler, Spare};
use parking_lot::Mutex;

/// Bytes kept at most.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Memory by its size.
#[derive(Debug, Default)]
pub(crate) struct FramePool {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_size: BTreeMap<usize, Vec<Spare>>,
    bytes: usize,
    /// The fewest bytes kept since the last look: so many were not needed.
    bytes_min: usize,
}

impl Kept {
    fn pop(&mut self, size: usize) -> Option<Spare> {
        let spares = self.by_size.get_mut(&size)?;
        let spare = spares.pop();
        if spares.is_empty() {
            self.by_size.remove(&size);
        }
        self.bytes -= spare.as_ref().map_or(0, Spare::size);
        spare
    }
}

impl Recycler for FramePool {
    fn take(&self, size: usize) -> Option<Spare> {
        let mut kept = self.kept.lock();
        // A quarter more than needed may be wasted, or frames of one size would not serve those
        // of nearly the same.
        let fits = size..=size + size / 4;
        let found = kept.by_size.range(fits).next().map(|(size, _)| *size)?;
        let spare = kept.pop(found);
        kept.bytes_min = kept.bytes_min.min(kept.bytes);
        spare
    }

    fn give(&self, spare: Spare) {
        let size = spare.size();
        let mut freed = Vec::new();
        let mut kept = self.kept.lock();
        if size > KEPT_BYTES_MAX {
            return;
        }
        kept.by_size.entry(size).or_default().push(spare);
        kept.bytes += size;
        // Sizes that were wanted once make room for those that are wanted now.
        while kept.bytes > KEPT_BYTES_MAX {
            let other = kept.by_size.keys().copied().find(|other| *other != size);
            freed.extend(kept.pop(other.unwrap_or(size)));
        }
        drop(kept);
        drop(freed);
    }
}

impl FramePool {
    /// Frees what was not needed since the last call.
    pub(crate) fn trim(&self) {
        let mut freed = Vec::new();
        let mut kept = self.kept.lock();
        let mut unneeded = kept.bytes_min;
        while let Some(size) = kept.by_size.keys().next_back().copied() {
            if size > unneeded {
                break;
            }
            unneeded -= size;
            freed.extend(kept.pop(size));
        }
        kept.bytes_min = kept.bytes;
        drop(kept);
        drop(freed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use biplane_wire::{Deframer, FrameBuffer, Message, PrepareHeader};

    use super::*;

    fn frame(size: usize) -> Vec<u8> {
        let mut header = PrepareHeader::new(biplane_wire::Command::Prepare);
        header.frame.set_size(u32::try_from(size).unwrap());
        FrameBuffer::from_parts(&header, &vec![7; size - 256])
            .bytes()
            .to_vec()
    }

    fn receive(deframer: &mut Deframer, bytes: &[u8]) -> Message {
        let mut rest = bytes;
        loop {
            let taken = deframer.push(rest);
            rest = &rest[taken..];
            if let Some(message) = deframer.next().unwrap() {
                return message;
            }
        }
    }

    fn kept(pool: &FramePool) -> usize {
        pool.kept.lock().bytes
    }

    #[test]
    fn the_memory_of_a_frame_serves_the_next_and_goes_when_nobody_wants_it() {
        let pool = Arc::new(FramePool::default());
        let mut deframer = Deframer::new(64 << 20).with_recycler(pool.clone());
        let first = receive(&mut deframer, &frame(1_000_000));
        let place = first.body().as_ptr();
        let held = first.clone();
        drop(first);
        assert_eq!(kept(&pool), 0, "somebody still holds it");
        drop(held);
        assert!(kept(&pool) >= 1_000_000);
        let second = receive(&mut deframer, &frame(900_000));
        assert_eq!(second.body().as_ptr(), place);
        assert_eq!(second.body(), &vec![7; 900_000 - 256]);
        assert_eq!(kept(&pool), 0);
        drop(second);
        pool.trim();
        pool.trim();
        assert_eq!(kept(&pool), 0);
    }

    #[test]
    fn a_much_larger_memory_does_not_serve_and_the_whole_is_bounded() {
        let pool = Arc::new(FramePool::default());
        let mut deframer = Deframer::new(64 << 20).with_recycler(pool.clone());
        drop(receive(&mut deframer, &frame(1_000_000)));
        let before = kept(&pool);
        let small = receive(&mut deframer, &frame(100_000));
        assert_eq!(kept(&pool), before, "a tenth of it was asked for");
        drop(small);
        let many: Vec<Message> = (0..160)
            .map(|_| receive(&mut deframer, &frame(600_000)))
            .collect();
        drop(many);
        assert!(kept(&pool) <= KEPT_BYTES_MAX);
        assert!(kept(&pool) > KEPT_BYTES_MAX / 2);
    }
}
