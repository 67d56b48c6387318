//! Requests about the server itself: snapshot, options, clients, attached sessions.

use crate::codec::{Codec, Cursor, body};
use crate::error::{BodyRule, DecodeError};
use crate::ids::ClientId;

/// Compression of a diagnostic snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SnapshotCompression {
    /// No compression.
    Stored = 1,
    /// Deflate.
    Deflated = 2,
    /// Bzip2.
    Bzip2 = 3,
    /// Zstandard.
    Zstd = 4,
    /// LZMA.
    Lzma = 5,
    /// XZ.
    Xz = 6,
}

impl<'a> Codec<'a> for SnapshotCompression {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            1 => Ok(Self::Stored),
            2 => Ok(Self::Deflated),
            3 => Ok(Self::Bzip2),
            4 => Ok(Self::Zstd),
            5 => Ok(Self::Lzma),
            6 => Ok(Self::Xz),
            value => Err(DecodeError::Undefined {
                field,
                value: u64::from(value),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

/// A part of a diagnostic snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SnapshotType {
    /// Overview of the file system.
    FilesystemOverview = 1,
    /// Running processes.
    ProcessList = 2,
    /// Use of resources.
    ResourceUsage = 3,
    /// A test entry.
    Test = 4,
    /// Logs of the server.
    ServerLogs = 5,
    /// Configuration of the server.
    ServerConfig = 6,
    /// All parts; must stand alone.
    All = 100,
}

impl SnapshotType {
    /// The type of a byte; `None` when undefined.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::FilesystemOverview),
            2 => Some(Self::ProcessList),
            3 => Some(Self::ResourceUsage),
            4 => Some(Self::Test),
            5 => Some(Self::ServerLogs),
            6 => Some(Self::ServerConfig),
            100 => Some(Self::All),
            _ => None,
        }
    }
}

/// GetSnapshot (11): `compression u8 | count u8 | type u8 x count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetSnapshot<'a> {
    /// Compression of the archive.
    pub compression: SnapshotCompression,
    types: &'a [u8],
}

impl<'a> GetSnapshot<'a> {
    /// A request for the parts whose bytes are `types`.
    ///
    /// # Errors
    ///
    /// An undefined type, [`SnapshotType::All`] with others, or more than 255 types.
    pub fn new(compression: SnapshotCompression, types: &'a [u8]) -> Result<Self, DecodeError> {
        if let Some(value) = types
            .iter()
            .find(|byte| SnapshotType::from_u8(**byte).is_none())
        {
            let value = u64::from(*value);
            return Err(DecodeError::Undefined {
                field: "snapshot type",
                value,
            });
        }
        if types.len() > 1 && types.contains(&(SnapshotType::All as u8)) {
            return Err(BodyRule::AllTypesAndOthers.into());
        }
        if types.len() > usize::from(u8::MAX) {
            let length = types.len() as u64;
            return Err(DecodeError::Length {
                field: "snapshot types",
                length,
            });
        }
        Ok(Self { compression, types })
    }

    /// The wanted parts.
    pub fn types(&self) -> impl Iterator<Item = SnapshotType> + use<'a> {
        self.types
            .iter()
            .filter_map(|byte| SnapshotType::from_u8(*byte))
    }
}

impl<'a> Codec<'a> for GetSnapshot<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let compression = SnapshotCompression::read(cursor, "compression")?;
        let count = u8::read(cursor, "count")?;
        let types = cursor.bytes(usize::from(count), "snapshot types")?;
        Self::new(compression, types)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.compression.write(out);
        let count = u8::try_from(self.types.len()).expect("checked at construction");
        out.push(count);
        out.extend_from_slice(self.types);
    }
}

/// Whose options a catalog describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OptionScope {
    /// Options of topics.
    Topic = 1,
    /// Options of streams; there are none.
    Stream = 2,
    /// Options of users; there are none.
    User = 3,
}

impl<'a> Codec<'a> for OptionScope {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            1 => Ok(Self::Topic),
            2 => Ok(Self::Stream),
            3 => Ok(Self::User),
            value => Err(DecodeError::Undefined {
                field,
                value: u64::from(value),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

body! {
    /// DescribeOptions (13).
    #[derive(Copy, Eq)]
    pub struct DescribeOptions {
        /// Whose options.
        scope: OptionScope,
    }
}

body! {
    /// AttachConsumerSession (14), and the first part of a routing answer: the session to act
    /// for.
    #[derive(Copy, Eq)]
    pub struct AttachConsumerSession {
        /// Client id of the parent session.
        client: ClientId,
        /// Epoch of the parent session.
        session: u64,
        /// Metadata commit the serving node must have applied.
        metadata_watermark: u64,
    }
}

body! {
    /// GetClient (21).
    #[derive(Copy, Eq)]
    pub struct GetClient {
        /// Low 32 bits of a transport id.
        client_id: u32,
    }
}
