//! The file `purge.gen`: which purge the files of a partition have seen (chapter 06 section 14.1).
//!
//! Written last of a purge and always synced. It is keyed by the partition's incarnation, so a
//! record left behind by an earlier one can neither swallow a purge nor cause one.

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

#[cfg(test)]
mod tests {
    use super::*;

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
