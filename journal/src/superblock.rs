//! What a replica has promised, in 66 bytes: identity, views, commit and checkpoint
//! (chapter 03 section 9.1), and the sealed form of it that stands in a file (chapter 04
//! section 5.5.2).
//!
//! The same layout serves the metadata group and every partition group; metadata leaves the
//! offset frontier zero, partitions leave the checkpoint zero.

use biplane_wire::{Checksum, ClusterId, Op, ReplicaId, View, xxh3};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a record.
pub const RECORD_BYTES: usize = 66;
/// Length of a record without offset frontier, written by older builds.
pub const RECORD_BYTES_SHORT: usize = 58;
/// Length of a superblock file.
pub const SUPERBLOCK_BYTES: usize = ENVELOPE_BYTES + RECORD_BYTES + SEAL_BYTES;

const ENVELOPE_BYTES: usize = 28;
const SEAL_BYTES: usize = 8;
const MAGIC: u32 = 0x5342_4C4B;
const VERSION: u16 = 1;

const _: () = assert!(SUPERBLOCK_BYTES == 102);

/// Who a data folder belongs to. A superblock of anyone else refuses boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Hash of the cluster name.
    pub cluster: ClusterId,
    /// Index of this replica.
    pub replica: ReplicaId,
    /// Number of replicas.
    pub replica_count: u8,
}

/// The durable state of one group on one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockRecord {
    /// Whose record it is.
    pub identity: Identity,
    /// The view this replica is in.
    pub view: View,
    /// The last view in which it was normal; never above `view`.
    pub log_view: View,
    /// Highest op known committed when the record was written.
    pub commit_max: Op,
    /// Op of the durable snapshot (metadata).
    pub checkpoint_op: Op,
    /// XXH3 of that snapshot's payload (metadata).
    pub checkpoint_checksum: Checksum,
    /// Lower bound of the offset counter (partitions).
    pub offset_frontier: u64,
}

/// Why bytes are not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SuperblockDecodeError {
    /// Shorter or longer than header, record and seal together.
    #[error("length {0} is not that of a superblock")]
    Length(usize),
    /// The file starts with something else.
    #[error("not a superblock: magic {0:#010x}")]
    Magic(u32),
    /// A format this build does not know.
    #[error("superblock version {0} is not supported")]
    Version(u16),
    /// The seal does not match the bytes.
    #[error("superblock seal does not match")]
    Seal,
    /// Sequence numbers start at 1.
    #[error("superblock sequence is zero")]
    SequenceZero,
    /// A record no replica can have written: `log_view` above `view`.
    #[error("log view {log_view} is above view {view}")]
    LogViewAboveView {
        /// The view.
        view: View,
        /// The log view.
        log_view: View,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    cluster: U128,
    replica: u8,
    replica_count: u8,
    view: U32,
    log_view: U32,
    commit_max: U64,
    checkpoint_op: U64,
    checkpoint_checksum: U128,
    offset_frontier: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEnvelope {
    magic: U32,
    version: U16,
    reserved: U16,
    sequence: U64,
    parent: U64,
    payload_len: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawRecord>() == RECORD_BYTES);
    assert!(offset_of!(RawRecord, replica) == 16);
    assert!(offset_of!(RawRecord, view) == 18);
    assert!(offset_of!(RawRecord, log_view) == 22);
    assert!(offset_of!(RawRecord, commit_max) == 26);
    assert!(offset_of!(RawRecord, checkpoint_op) == 34);
    assert!(offset_of!(RawRecord, checkpoint_checksum) == 42);
    assert!(offset_of!(RawRecord, offset_frontier) == RECORD_BYTES_SHORT);
    assert!(size_of::<RawEnvelope>() == ENVELOPE_BYTES);
    assert!(offset_of!(RawEnvelope, sequence) == 8);
    assert!(offset_of!(RawEnvelope, payload_len) == 24);
};

impl SuperblockRecord {
    /// The record of a replica that has promised nothing yet.
    #[must_use]
    pub fn fresh(identity: Identity) -> Self {
        Self {
            identity,
            view: View(0),
            log_view: View(0),
            commit_max: Op::ZERO,
            checkpoint_op: Op::ZERO,
            checkpoint_checksum: Checksum::ZERO,
            offset_frontier: 0,
        }
    }

    /// The record as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let raw = RawRecord {
            cluster: self.identity.cluster.into(),
            replica: self.identity.replica.0,
            replica_count: self.identity.replica_count,
            view: self.view.into(),
            log_view: self.log_view.into(),
            commit_max: self.commit_max.into(),
            checkpoint_op: self.checkpoint_op.into(),
            checkpoint_checksum: self.checkpoint_checksum.into(),
            offset_frontier: self.offset_frontier.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads a record of 66 bytes, or of 58 with an offset frontier of zero.
    ///
    /// # Errors
    ///
    /// Another length, or a log view above the view.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockDecodeError> {
        if bytes.len() != RECORD_BYTES && bytes.len() != RECORD_BYTES_SHORT {
            return Err(SuperblockDecodeError::Length(bytes.len()));
        }
        let mut padded = [0; RECORD_BYTES];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        let raw: RawRecord = zerocopy::transmute!(padded);
        let record = Self {
            identity: Identity {
                cluster: raw.cluster.into(),
                replica: ReplicaId(raw.replica),
                replica_count: raw.replica_count,
            },
            view: raw.view.into(),
            log_view: raw.log_view.into(),
            commit_max: raw.commit_max.into(),
            checkpoint_op: raw.checkpoint_op.into(),
            checkpoint_checksum: raw.checkpoint_checksum.into(),
            offset_frontier: raw.offset_frontier.into(),
        };
        if record.log_view > record.view {
            let (view, log_view) = (record.view, record.log_view);
            return Err(SuperblockDecodeError::LogViewAboveView { view, log_view });
        }
        Ok(record)
    }
}

/// A whole superblock file: the record with magic, version, sequence and seal around it.
///
/// # Panics
///
/// When `sequence` is zero.
#[must_use]
pub fn encode_superblock(record: &SuperblockRecord, sequence: u64) -> [u8; SUPERBLOCK_BYTES] {
    assert!(sequence > 0, "the first write has sequence 1");
    let envelope = RawEnvelope {
        magic: MAGIC.into(),
        version: VERSION.into(),
        reserved: 0.into(),
        sequence: sequence.into(),
        parent: 0.into(),
        payload_len: (RECORD_BYTES as u32).into(),
    };
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let (head, rest) = bytes.split_at_mut(ENVELOPE_BYTES);
    head.copy_from_slice(envelope.as_bytes());
    let (payload, _) = rest.split_at_mut(RECORD_BYTES);
    payload.copy_from_slice(&record.encode());
    let (sealed, seal) = bytes.split_at_mut(SUPERBLOCK_BYTES - SEAL_BYTES);
    seal.copy_from_slice(&xxh3(sealed).to_le_bytes());
    bytes
}

/// Reads a whole superblock file: its sequence and its record.
///
/// # Errors
///
/// The first check that fails: length, magic, version, seal, sequence, record.
pub fn decode_superblock(bytes: &[u8]) -> Result<(u64, SuperblockRecord), SuperblockDecodeError> {
    let wrong_length = SuperblockDecodeError::Length(bytes.len());
    let Ok((envelope, rest)) = RawEnvelope::read_from_prefix(bytes) else {
        return Err(wrong_length);
    };
    if envelope.magic.get() != MAGIC {
        return Err(SuperblockDecodeError::Magic(envelope.magic.get()));
    }
    if envelope.version.get() != VERSION {
        return Err(SuperblockDecodeError::Version(envelope.version.get()));
    }
    let Some((payload, seal)) = rest.split_last_chunk::<SEAL_BYTES>() else {
        return Err(wrong_length);
    };
    let announced = envelope.payload_len.get() as usize;
    if payload.len() != announced {
        return Err(wrong_length);
    }
    let sealed = bytes
        .get(..ENVELOPE_BYTES + announced)
        .ok_or(wrong_length)?;
    if u64::from_le_bytes(*seal) != xxh3(sealed) {
        return Err(SuperblockDecodeError::Seal);
    }
    if envelope.sequence.get() == 0 {
        return Err(SuperblockDecodeError::SequenceZero);
    }
    Ok((envelope.sequence.get(), SuperblockRecord::decode(payload)?))
}
