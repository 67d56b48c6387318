//! The snapshot of the metadata state: to bytes and back.
//!
//! The payload is what state transfer ships and what stands in the snapshot file in front of
//! its trailer. Version 5 is written; versions 3 to 5 are read. Bytes of two replicas with the
//! same state need not be equal, because the writer's clock and the hash of the root password
//! are in them (protocol specification, chapter 04, section 4.1).

mod base64;
mod convert;
mod fields;
mod records;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::state::MetadataState;
use biplane_wire::Op;

/// Version that is written.
const VERSION: u32 = 5;
/// Oldest version that is read.
const VERSION_MIN: u32 = 3;
/// Release of the format: 0.11.0.
const WRITER_RELEASE: u32 = 0x2C00;

/// Why a snapshot is refused.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The version is not one that is read.
    #[error("snapshot version {0} is not supported")]
    Version(u64),
    /// The writer is newer than this release.
    #[error("the snapshot was written by the newer release {0}")]
    NewerRelease(u32),
    /// The bytes are not a snapshot.
    #[error("the snapshot does not decode: {0}")]
    Encoding(String),
    /// The records contradict each other or a limit.
    #[error("the snapshot is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// A session or a fence as a snapshot keeps it: with its newest reply alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionImage {
    /// Client.
    pub client: u128,
    /// Epoch.
    pub epoch: u64,
    /// User.
    pub user_id: u32,
    /// Highest committed request number.
    pub watermark: u64,
    /// Request checksum of that request.
    pub watermark_checksum: u128,
    /// The newest reply as a whole frame; empty where a fence has none.
    pub reply: Vec<u8>,
}

/// The client table as a snapshot keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableImage {
    /// Sessions with the slots they are in.
    pub slots: Vec<(u32, SessionImage)>,
    /// Fences, oldest first.
    pub fences: Vec<SessionImage>,
}

/// A snapshot, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Wall clock of the writer, microseconds.
    pub created_at: u64,
    /// The state holds exactly the effects of the ops up to this one.
    pub op: Op,
    /// Metadata.
    pub state: MetadataState,
    /// Sessions.
    pub table: TableImage,
}

/// Encodes a snapshot of `state` and `table` after `op`.
pub fn encode_snapshot(
    created_at: u64,
    op: Op,
    state: &MetadataState,
    table: &TableImage,
) -> Vec<u8> {
    let top = records::Top {
        version: VERSION,
        created_at,
        sequence_number: op.0,
        users: Some(convert::users_record(state.users())),
        streams: Some(convert::streams_record(state.streams())),
        client_table: Some(convert::table_record(table)),
        writer_release: WRITER_RELEASE,
    };
    let encoded = rmp_serde::to_vec(&top);
    assert!(encoded.is_ok(), "records of plain values always encode");
    encoded.unwrap_or_default()
}

/// Decodes the payload of a snapshot.
///
/// # Errors
///
/// [`SnapshotError`]: nothing of it can be used.
pub fn decode_snapshot(payload: &[u8]) -> Result<Snapshot, SnapshotError> {
    let encoding = |error: rmp_serde::decode::Error| SnapshotError::Encoding(error.to_string());
    let First(version) = rmp_serde::from_slice(payload).map_err(encoding)?;
    if !(u64::from(VERSION_MIN)..=u64::from(VERSION)).contains(&version) {
        return Err(SnapshotError::Version(version));
    }
    let top: records::Top = rmp_serde::from_slice(payload).map_err(encoding)?;
    if top.writer_release > WRITER_RELEASE {
        return Err(SnapshotError::NewerRelease(top.writer_release));
    }
    let users = top.users.ok_or(SnapshotError::Inconsistent("no users"))?;
    let streams = top
        .streams
        .ok_or(SnapshotError::Inconsistent("no streams"))?;
    let users = convert::users(users)?;
    let streams = convert::streams(streams)?;
    Ok(Snapshot {
        created_at: top.created_at,
        op: Op(top.sequence_number),
        state: MetadataState::restore(streams, users),
        table: convert::table(top.client_table.unwrap_or_default()),
    })
}

/// The first element of the outermost array: the version, whatever follows.
struct First(u64);

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = First;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array that starts with a version")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<First, A::Error> {
        let first = seq.next_element::<u64>()?;
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        first
            .map(First)
            .ok_or_else(|| serde::de::Error::invalid_length(0, &self))
    }
}

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstVisitor)
    }
}
