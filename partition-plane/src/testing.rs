//! Bytes that the tests of several files share: the frames and batches of chapter 06
//! section 23.

use biplane_wire::batch::FRAME_HEADER_SIZE;
use biplane_wire::{BatchHeader, xxh3};

use crate::batch::{BATCH_HEADER, stamp};

/// Base time of the vectors, in microseconds.
pub(crate) const T: u64 = 1_700_000_000_000_000;

/// F0 to F3 of section 23.2.
pub(crate) static FRAMES: std::sync::LazyLock<[Vec<u8>; 4]> = std::sync::LazyLock::new(|| {
    let id = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
    [
        frame(1, 0, 0, b"hello", b""),
        frame(2, 1, 5, b"world!", b""),
        frame(3, 0, 0, b"third", b""),
        frame(id, 0, 0, b"pay", b"HDRS"),
    ]
});

/// One message frame.
pub(crate) fn frame(id: u128, delta: u32, time: u32, payload: &[u8], headers: &[u8]) -> Vec<u8> {
    let mut out = vec![0; FRAME_HEADER_SIZE];
    out[8..24].copy_from_slice(&id.to_le_bytes());
    out[24..28].copy_from_slice(&delta.to_le_bytes());
    out[28..32].copy_from_slice(&time.to_le_bytes());
    out[32..36].copy_from_slice(&(headers.len() as u32).to_le_bytes());
    out[36..40].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(headers);
    let checksum = xxh3(&out[8..]);
    out[..8].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// A batch as a producer sends it, of arbitrary frames.
pub(crate) fn batch_of(frames: &[Vec<u8>], origin_timestamp: u64) -> Vec<u8> {
    let length = BATCH_HEADER + frames.iter().map(Vec::len).sum::<usize>();
    let mut header = BatchHeader::new();
    header.set_origin_timestamp(origin_timestamp);
    header.set_batch_length(length as u64);
    header.set_message_count(frames.len() as u32);
    let mut out = header.to_bytes().to_vec();
    frames.iter().for_each(|frame| out.extend_from_slice(frame));
    stamp(&mut out, 0, 0);
    out
}

/// A batch as a producer sends it, of the vectors' frames.
pub(crate) fn producer_batch(frames: &[usize], origin_timestamp: u64) -> Vec<u8> {
    let frames: Vec<Vec<u8>> = frames.iter().map(|at| FRAMES[*at].clone()).collect();
    batch_of(&frames, origin_timestamp)
}

/// A stamped batch of the vectors' frames.
pub(crate) fn stamped(
    frames: &[usize],
    origin: u64,
    partition: u64,
    base_offset: u64,
    base_timestamp: u64,
) -> Vec<u8> {
    let mut batch = producer_batch(frames, origin);
    batch[..8].copy_from_slice(&partition.to_le_bytes());
    stamp(&mut batch, base_offset, base_timestamp);
    batch
}

/// The segment of section 23.8: batches A and B.
pub(crate) fn segment_of_two() -> Vec<u8> {
    let mut bytes = stamped(&[0, 1], T, 3, 0, T + 100);
    bytes.extend(stamped(&[2], T + 150, 3, 2, T + 200));
    bytes
}
