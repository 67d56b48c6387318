//! The state manifest: the artifacts an offer of state transfer consists of
//! (chapter 01 section 6.17, chapter 04 section 3.9).
//!
//! ```text
//! "ISM1" | count u32 | entry_len u8 | count x entry | XXH3 (u64) over everything before it
//! entry = kind u8 | frontier u64 | length u64 | checksum u64
//! ```

use thiserror::Error;

use crate::checksum::xxh3;
use crate::codec::{Codec, Cursor, body, write_length};

/// Largest number of artifacts.
pub const MANIFEST_ENTRIES_MAX: usize = 65_536;
const MAGIC: [u8; 4] = *b"ISM1";
const ENTRY_SIZE: u8 = 25;
const HEAD_SIZE: usize = 9;

/// Why bytes are not a manifest, in the order they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// Too short for what it says it holds, or bytes are left.
    #[error("the manifest is not as long as it says")]
    Truncated,
    /// The trailing hash does not match.
    #[error("the manifest does not match its checksum")]
    Checksum,
    /// The first four bytes are not the magic.
    #[error("the manifest has another magic")]
    Magic,
    /// More than 65 536 entries.
    #[error("the manifest has {0} entries")]
    TooManyEntries(u32),
    /// Entries shorter than 25 bytes.
    #[error("the manifest has entries of {0} bytes")]
    EntryTooShort(u8),
}

body! {
    /// One artifact.
    #[derive(Copy, Eq)]
    pub struct ManifestEntry {
        /// What it is; the plane judges the value.
        kind: u8,
        /// What it covers; the meaning depends on the kind.
        frontier: u64,
        /// Length in bytes.
        length: u64,
        /// XXH3 of its bytes.
        checksum: u64,
    }
}

/// A checked view over a received manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest<'a> {
    entries: &'a [u8],
    entry_size: usize,
}

impl<'a> Manifest<'a> {
    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ManifestError> {
        let Some((hashed, trailer)) = bytes.split_last_chunk::<8>() else {
            return Err(ManifestError::Truncated);
        };
        if xxh3(hashed) != u64::from_le_bytes(*trailer) {
            return Err(ManifestError::Checksum);
        }
        let Some((head, entries)) = hashed.split_first_chunk::<HEAD_SIZE>() else {
            return Err(ManifestError::Truncated);
        };
        let [m0, m1, m2, m3, c0, c1, c2, c3, entry_size] = *head;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(ManifestError::Magic);
        }
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        if count as usize > MANIFEST_ENTRIES_MAX {
            return Err(ManifestError::TooManyEntries(count));
        }
        if entry_size < ENTRY_SIZE {
            return Err(ManifestError::EntryTooShort(entry_size));
        }
        if count as usize * usize::from(entry_size) != entries.len() {
            return Err(ManifestError::Truncated);
        }
        Ok(Self {
            entries,
            entry_size: usize::from(entry_size),
        })
    }

    /// Number of artifacts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() / self.entry_size
    }

    /// Whether there are none. Well formed, and no plane accepts it as an offer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The artifacts in order; the index is what a chunk request names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ManifestEntry> + use<'a> {
        self.entries.chunks_exact(self.entry_size).map(|entry| {
            match ManifestEntry::read(&mut Cursor::new(entry), "entry") {
                Ok(entry) => entry,
                Err(_) => unreachable!("decode checked the length of entries"),
            }
        })
    }

    /// The artifact of an index.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<ManifestEntry> {
        self.iter().nth(usize::try_from(index).ok()?)
    }

    /// The bytes of a manifest.
    ///
    /// # Panics
    ///
    /// With more than 65 536 entries.
    #[must_use]
    pub fn encode(entries: &[ManifestEntry]) -> Vec<u8> {
        assert!(
            entries.len() <= MANIFEST_ENTRIES_MAX,
            "a manifest has at most 65 536 entries"
        );
        let mut bytes = MAGIC.to_vec();
        write_length(entries.len(), &mut bytes);
        bytes.push(ENTRY_SIZE);
        for entry in entries {
            entry.write(&mut bytes);
        }
        xxh3(&bytes).write(&mut bytes);
        bytes
    }
}
