//! The file `snapshot.bin`: a payload, a trailer that seals it, and the rule that pairs it with
//! the superblock (chapter 04 sections 4.1.6 and 5.4).
//!
//! A snapshot is written with [`DiskOp::Replace`], so a crash leaves the old file or the new
//! one; the superblock that names it is written afterwards. A snapshot newer than the
//! superblock says is therefore ordinary, an older one means that a durable file was lost.
//!
//! [`DiskOp::Replace`]: crate::DiskOp::Replace

use std::sync::Arc;

use biplane_wire::{Checksum, Op};
use thiserror::Error;

use crate::buffer::ReadBytes;
use crate::disk::Chunk;
use crate::superblock::SuperblockRecord;

/// Length of the trailer.
pub const SNAPSHOT_TRAILER_BYTES: usize = 20;

const TRAILER_MAGIC: u32 = 0x4953_4E50;

/// The trailer of a payload: magic, then XXH3 of the payload widened to 128 bits.
#[must_use]
pub fn snapshot_trailer(payload: &[u8]) -> [u8; SNAPSHOT_TRAILER_BYTES] {
    let mut trailer = [0; SNAPSHOT_TRAILER_BYTES];
    let (magic, checksum) = trailer.split_at_mut(4);
    magic.copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
    checksum.copy_from_slice(&Checksum::of(payload).0.to_le_bytes());
    trailer
}

/// The content of the file for a payload: what a `Replace` of `snapshot.bin` writes.
#[must_use]
pub fn snapshot_chunks(payload: Arc<[u8]>) -> Vec<Chunk> {
    let trailer = snapshot_trailer(&payload);
    vec![
        Chunk::Bytes(payload),
        Chunk::Bytes(trailer.as_slice().into()),
    ]
}

/// A snapshot file taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The payload: also the artifact of a state transfer.
    pub payload: ReadBytes,
    /// XXH3 of the payload, as superblock and manifest name it.
    pub checksum: Checksum,
    /// Whether a trailer vouched for it. Files of old builds have none; accept them with a
    /// warning, and only where the superblock names their checksum.
    pub sealed: bool,
}

/// Why a snapshot file is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SnapshotFileError {
    /// There are no bytes but a trailer, or none at all.
    #[error("the snapshot file is empty")]
    Empty,
    /// The trailer's checksum is not that of the payload.
    #[error("the snapshot payload hashes to {computed}, its trailer says {stored}")]
    Checksum {
        /// From the trailer.
        stored: Checksum,
        /// From the payload.
        computed: Checksum,
    },
}

/// Takes the bytes of `snapshot.bin` apart and verifies the trailer.
///
/// # Errors
///
/// No payload, or a trailer that contradicts it.
pub fn open_snapshot(file: &ReadBytes) -> Result<SnapshotFile, SnapshotFileError> {
    let bytes = file.as_bytes();
    if bytes.is_empty() {
        return Err(SnapshotFileError::Empty);
    }
    let Some((payload, stored)) = split_trailer(bytes) else {
        let checksum = Checksum::of(bytes);
        return Ok(SnapshotFile {
            payload: file.clone(),
            checksum,
            sealed: false,
        });
    };
    if payload.is_empty() {
        return Err(SnapshotFileError::Empty);
    }
    let computed = Checksum::of(payload);
    if stored != computed {
        return Err(SnapshotFileError::Checksum { stored, computed });
    }
    let payload = file
        .slice(0..payload.len())
        .expect("a payload is a part of its file");
    Ok(SnapshotFile {
        payload,
        checksum: computed,
        sealed: true,
    })
}

fn split_trailer(bytes: &[u8]) -> Option<(&[u8], Checksum)> {
    let (payload, trailer) = bytes.split_last_chunk::<SNAPSHOT_TRAILER_BYTES>()?;
    let (magic, checksum) = trailer.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*magic) != TRAILER_MAGIC {
        return None;
    }
    let stored = u128::from_le_bytes(checksum.try_into().ok()?);
    Some((payload, Checksum(stored)))
}

/// How superblock and snapshot stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Neither names a checkpoint.
    Empty,
    /// The superblock names this snapshot.
    Paired,
    /// A crash came between writing the snapshot and writing the superblock; the prepare log
    /// still covers the difference. Persist the pairing before dropping log entries.
    SnapshotNewer,
}

/// A superblock and a snapshot that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PairingError {
    /// The superblock names a checkpoint and there is no snapshot.
    #[error("the snapshot of checkpoint {checkpoint_op} is missing")]
    SnapshotMissing {
        /// The op the superblock names.
        checkpoint_op: Op,
    },
    /// The snapshot is older than the superblock says.
    #[error("the snapshot is at op {snapshot_op}, the superblock names checkpoint {checkpoint_op}")]
    SnapshotOlder {
        /// Op of the snapshot.
        snapshot_op: Op,
        /// The op the superblock names.
        checkpoint_op: Op,
    },
    /// The ops agree and the checksums do not.
    #[error("the snapshot of checkpoint {checkpoint_op} is another one than the superblock names")]
    SnapshotDiffers {
        /// The op both name.
        checkpoint_op: Op,
    },
}

/// The rule of chapter 04 section 5.4 step 2. `snapshot` is the op the snapshot reflects and
/// XXH3 of its payload.
///
/// # Errors
///
/// Every combination that must refuse boot.
pub fn check_pairing(
    superblock: Option<&SuperblockRecord>,
    snapshot: Option<(Op, Checksum)>,
) -> Result<Pairing, PairingError> {
    let checkpoint_op = superblock.map_or(Op::ZERO, |record| record.checkpoint_op);
    let Some((snapshot_op, checksum)) = snapshot else {
        if checkpoint_op == Op::ZERO {
            return Ok(Pairing::Empty);
        }
        return Err(PairingError::SnapshotMissing { checkpoint_op });
    };
    if snapshot_op < checkpoint_op {
        return Err(PairingError::SnapshotOlder {
            snapshot_op,
            checkpoint_op,
        });
    }
    if snapshot_op > checkpoint_op {
        return Ok(Pairing::SnapshotNewer);
    }
    match superblock {
        // Without a checkpoint there is nothing a snapshot at op 0 could be compared with.
        Some(record) if record.checkpoint_op != Op::ZERO => {
            if record.checkpoint_checksum == checksum {
                Ok(Pairing::Paired)
            } else {
                Err(PairingError::SnapshotDiffers { checkpoint_op })
            }
        }
        _ => Ok(Pairing::SnapshotNewer),
    }
}
