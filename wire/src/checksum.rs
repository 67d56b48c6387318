//! The hash regimes of the wire: frame seal, prepare identity, body seal (chapter 01 section 7).
//!
//! All of them are XXH3 with seed 0. They detect corruption; they prove nothing about who sent
//! a frame. What differs is the input, and mixing the inputs up yields values that look right.

use xxhash_rust::xxh3::xxh3_64;

use crate::HEADER_SIZE;
use crate::header::Header;
use crate::ids::Checksum;

/// XXH3 of nothing. The body seal of a metadata prepare without a body is this, not zero.
pub const XXH3_EMPTY: u64 = 0x2d06_8005_38d3_94c2;

/// XXH3, 64 bits, seed 0.
#[must_use]
pub fn xxh3(bytes: &[u8]) -> u64 {
    crate::meter::hashed(bytes.len());
    xxh3_64(bytes)
}

/// XXH32, seed 0: ids of named consumers and key routing.
#[must_use]
pub fn xxh32(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh32::xxh32(bytes, 0)
}

impl Checksum {
    /// A 64-bit hash zero-extended to the width of a checksum field.
    #[must_use]
    pub const fn from_hash(hash: u64) -> Self {
        Self(hash as u128)
    }

    /// XXH3 of `bytes` in the width of a checksum field.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(xxh3(bytes))
    }
}

/// The frame seal: XXH3 over header bytes 16..256 (section 7.1).
#[must_use]
pub fn frame_seal(header: &[u8; HEADER_SIZE]) -> Checksum {
    let (_, sealed) = header.split_at(16);
    Checksum::of(sealed)
}

/// The prepare identity: XXH3 over the header with checksum and view zeroed and the command
/// byte set to `Prepare` (section 7.2). The same for a prepare and its repair form.
#[must_use]
pub fn prepare_identity(header: &[u8; HEADER_SIZE]) -> Checksum {
    let mut hashed = *header;
    hashed[0..16].fill(0);
    hashed[52..56].fill(0);
    hashed[60] = crate::Command::Prepare.as_u8();
    Checksum::of(&hashed)
}

/// The body seal of a frame that has one (section 7.3).
#[must_use]
pub fn body_seal(body: &[u8]) -> Checksum {
    Checksum::of(body)
}

/// Stamps the frame seal. Do this last: the seal covers every other header byte.
pub fn seal<H: Header>(header: &mut H) {
    const { assert!(H::SEALED, "only sealed header kinds carry a frame seal") };
    let value = frame_seal(header.bytes());
    header.frame_mut().set_checksum(value);
}

/// Whether the stored seal is right. A zero seal is a wrong one.
#[must_use]
pub fn seal_is_valid<H: Header>(header: &H) -> bool {
    header.frame().checksum() == frame_seal(header.bytes())
}
