//! What a partition's folder says of purges (chapter 06 section 14.1).
//!
//! `purge.gen` says which purge the files have seen. It is written last of a purge and always
//! synced. `purge.floor`, a file of this server's own, says where in the log the last purge was;
//! it is written first, so that one that is cut short can be finished. Both are keyed by the
//! partition's incarnation: a record left behind by an earlier one can neither swallow a purge
//! nor cause one.

use biplane_wire::{Op, xxh3};

/// Size of the record.
pub const FILE_BYTES: usize = 16;
/// Name below the partition folder.
pub const FILE_NAME: &str = "purge.gen";

/// The record's bytes.
pub fn encode(generation: u64, created_revision: u64) -> [u8; FILE_BYTES] {
    let mut out = [0; FILE_BYTES];
    out[..8].copy_from_slice(&generation.to_le_bytes());
    out[8..].copy_from_slice(&created_revision.to_le_bytes());
    out
}

/// The applied generation: 0 when the record is short or of another incarnation.
pub fn decode(bytes: &[u8], created_revision: u64) -> u64 {
    let Some((generation, rest)) = bytes.split_first_chunk::<8>() else {
        return 0;
    };
    match rest.first_chunk::<8>() {
        Some(revision) if u64::from_le_bytes(*revision) == created_revision => {
            u64::from_le_bytes(*generation)
        }
        _ => 0,
    }
}

/// Name of the file that says where the last purge was.
pub const FLOOR_NAME: &str = "purge.floor";
/// Size of that file.
pub const FLOOR_BYTES: usize = 40;

/// Where the last purge was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Its generation.
    pub generation: u64,
    /// Committed operations up to here have no effect.
    pub op: Op,
    /// Whether the log did not say where the purge is.
    pub is_ahead: bool,
}

impl Floor {
    /// The file's bytes.
    pub fn encode(&self, created_revision: u64) -> [u8; FLOOR_BYTES] {
        let fields = [
            self.generation,
            created_revision,
            self.op.0,
            u64::from(self.is_ahead),
        ];
        let mut out = [0; FLOOR_BYTES];
        for (bytes, field) in out.chunks_exact_mut(8).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        let seal = xxh3(&out[..32]).to_le_bytes();
        out[32..].copy_from_slice(&seal);
        out
    }

    /// What the file says; `None` when it is damaged or of another incarnation.
    pub fn decode(bytes: &[u8], created_revision: u64) -> Option<Self> {
        let bytes: &[u8; FLOOR_BYTES] = bytes.try_into().ok()?;
        let field = |at: usize| {
            let field = bytes[at..].first_chunk::<8>().copied();
            field.map(u64::from_le_bytes)
        };
        if field(32)? != xxh3(&bytes[..32]) || field(8)? != created_revision {
            return None;
        }
        Some(Self {
            generation: field(0)?,
            op: Op(field(16)?),
            is_ahead: field(24)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_is_read_back_and_damage_or_another_incarnation_is_not() {
        let floor = Floor {
            generation: 2,
            op: Op(9),
            is_ahead: true,
        };
        let bytes = floor.encode(57);
        assert_eq!(Floor::decode(&bytes, 57), Some(floor));
        assert_eq!(Floor::decode(&bytes, 58), None);
        assert_eq!(Floor::decode(&bytes[..39], 57), None);
        for at in 0..FLOOR_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Floor::decode(&damaged, 57), None, "byte {at}");
        }
    }

    #[test]
    fn record_is_the_vector_and_is_keyed_by_the_incarnation() {
        let bytes = encode(2, 57);
        let mut want = [0; 16];
        (want[0], want[8]) = (2, 0x39);
        assert_eq!(bytes, want);
        assert_eq!(decode(&bytes, 57), 2);
        assert_eq!(decode(&bytes, 58), 0);
        assert_eq!(decode(&bytes[..15], 57), 0);
        assert_eq!(decode(&[], 57), 0);
    }
}
