//! The two header types inside a batch and the batch checksum over them
//! (chapter 01 sections 12.1 to 12.3).

use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BATCH_HEADER_SIZE, FRAME_HEADER_SIZE};
use crate::header::all_zero;

macro_rules! fields {
    ($name:ident { $($(#[$meta:meta])* $field:ident / $set:ident : $view:ty),* $(,)? }) => {
        impl $name {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $field(&self) -> $view {
                    self.$field.get()
                }

                #[doc = concat!("Sets `", stringify!($field), "`.")]
                pub fn $set(&mut self, value: $view) {
                    self.$field.set(value);
                }
            )*
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field()))*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// The 256 bytes in front of the message frames.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    partition_id: U64,
    base_offset: U64,
    base_timestamp: U64,
    origin_timestamp: U64,
    batch_length: U64,
    batch_checksum: U64,
    message_count: U32,
    reserved: [u8; 204],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<BatchHeader>() == BATCH_HEADER_SIZE);
    assert!(offset_of!(BatchHeader, partition_id) == 0);
    assert!(offset_of!(BatchHeader, base_offset) == 8);
    assert!(offset_of!(BatchHeader, base_timestamp) == 16);
    assert!(offset_of!(BatchHeader, origin_timestamp) == 24);
    assert!(offset_of!(BatchHeader, batch_length) == 32);
    assert!(offset_of!(BatchHeader, batch_checksum) == 40);
    assert!(offset_of!(BatchHeader, message_count) == 48);
    assert!(offset_of!(BatchHeader, reserved) == 52);
};

fields!(BatchHeader {
    /// Partition; the producer sends 0, the server fills it at admission.
    partition_id / set_partition_id: u64,
    /// Offset of the first message of the batch as sent; filled at journal append.
    base_offset / set_base_offset: u64,
    /// Timestamp of the prepare in microseconds, flat for the batch.
    base_timestamp / set_base_timestamp: u64,
    /// Smallest origin timestamp of the messages, microseconds.
    origin_timestamp / set_origin_timestamp: u64,
    /// Length of header and frames in bytes.
    batch_length / set_batch_length: u64,
    /// Checksum over six fields and the stored frame checksums.
    batch_checksum / set_batch_checksum: u64,
    /// Number of frames.
    message_count / set_message_count: u32,
});

impl BatchHeader {
    /// A zeroed header.
    #[must_use]
    pub fn new() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }

    /// The header in front of `bytes`; nothing of it is checked.
    #[must_use]
    pub fn over(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BATCH_HEADER_SIZE] {
        zerocopy::transmute!(*self)
    }

    /// Whether bytes 52..256 are zero, as they must be.
    #[must_use]
    pub fn reserved_is_zero(&self) -> bool {
        all_zero(&self.reserved)
    }

    /// The batch checksum of this header over the stored frame checksums, in order.
    #[must_use]
    pub fn checksum_over(&self, frame_checksums: impl Iterator<Item = u64>) -> u64 {
        let mut hash = ChecksumHash::new(self);
        for checksum in frame_checksums {
            hash.add(checksum);
        }
        hash.finish()
    }
}

impl Default for BatchHeader {
    fn default() -> Self {
        Self::new()
    }
}

/// The batch checksum while frames are walked. Frame checksums are gathered, because the
/// hasher is fast on blocks and slow on eight bytes at a time.
pub(super) struct ChecksumHash {
    hasher: Xxh3,
    gathered: [u8; Self::GATHER_SIZE],
    used: usize,
}

impl ChecksumHash {
    const GATHER_SIZE: usize = 256;

    pub(super) fn new(header: &BatchHeader) -> Self {
        let mut hasher = Xxh3::new();
        let fixed = [
            header.partition_id,
            header.base_offset,
            header.base_timestamp,
            header.origin_timestamp,
            header.batch_length,
        ];
        hasher.update(fixed.as_bytes());
        hasher.update(header.message_count.as_bytes());
        Self {
            hasher,
            gathered: [0; Self::GATHER_SIZE],
            used: 0,
        }
    }

    pub(super) fn add(&mut self, frame_checksum: u64) {
        let end = self.used + 8;
        self.gathered[self.used..end].copy_from_slice(&frame_checksum.to_le_bytes());
        self.used = end;
        if end == Self::GATHER_SIZE {
            crate::meter::hashed(end);
            self.hasher.update(&self.gathered);
            self.used = 0;
        }
    }

    pub(super) fn finish(mut self) -> u64 {
        crate::meter::hashed(self.used);
        self.hasher.update(&self.gathered[..self.used]);
        self.hasher.digest()
    }
}

/// The 48 bytes in front of each message.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FrameHeader {
    checksum: U64,
    id: U128,
    offset_delta: U32,
    timestamp_delta: U32,
    user_headers_length: U32,
    payload_length: U32,
    reserved: U64,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_SIZE);
    assert!(offset_of!(FrameHeader, checksum) == 0);
    assert!(offset_of!(FrameHeader, id) == 8);
    assert!(offset_of!(FrameHeader, offset_delta) == 24);
    assert!(offset_of!(FrameHeader, timestamp_delta) == 28);
    assert!(offset_of!(FrameHeader, user_headers_length) == 32);
    assert!(offset_of!(FrameHeader, payload_length) == 36);
    assert!(offset_of!(FrameHeader, reserved) == 40);
};

fields!(FrameHeader {
    /// XXH3 from frame offset 8 to the end of the frame.
    checksum / set_checksum: u64,
    /// Message id; 0 is legal and the server assigns none.
    id / set_id: u128,
    /// Index in the batch as sent; never renumbered.
    offset_delta / set_offset_delta: u32,
    /// Microseconds after the batch's origin timestamp.
    timestamp_delta / set_timestamp_delta: u32,
    /// Bytes of user headers, behind the payload.
    user_headers_length / set_user_headers_length: u32,
    /// Bytes of payload, behind this header.
    payload_length / set_payload_length: u32,
    /// Zero.
    reserved / set_reserved: u64,
});

impl FrameHeader {
    /// A zeroed header.
    #[must_use]
    pub fn new() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }

    /// Length of the whole frame; cannot overflow, as both lengths are 32 bits.
    #[must_use]
    pub fn frame_length(&self) -> u64 {
        FRAME_HEADER_SIZE as u64
            + u64::from(self.payload_length())
            + u64::from(self.user_headers_length())
    }
}

impl Default for FrameHeader {
    fn default() -> Self {
        Self::new()
    }
}
