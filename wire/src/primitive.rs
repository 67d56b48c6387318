//! The shared primitive encodings (chapter 01 section 11): names, identifiers, consumers,
//! partitioning, polling strategy, acknowledgement level, texts.

use crate::checksum::xxh32;
use crate::codec::{Codec, Cursor};
use crate::error::DecodeError;

/// `len u8 | UTF-8`, 1..=255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// A name.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Length`] when empty or longer than 255 bytes.
    pub fn new(text: &'a str) -> Result<Self, DecodeError> {
        match text.len() {
            1..=255 => Ok(Self(text)),
            length => Err(DecodeError::Length {
                field: "name",
                length: length as u64,
            }),
        }
    }

    /// The text.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> Codec<'a> for Name<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let Text8(text) = Text8::read(cursor, field)?;
        if text.is_empty() {
            return Err(DecodeError::Length { field, length: 0 });
        }
        Ok(Self(text))
    }

    fn write(&self, out: &mut Vec<u8>) {
        Text8(self.0).write(out);
    }
}

/// `len u8 | UTF-8`, 0..=255 bytes: passwords and tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text8<'a>(&'a str);

impl<'a> Text8<'a> {
    /// A short text.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Length`] when longer than 255 bytes.
    pub fn new(text: &'a str) -> Result<Self, DecodeError> {
        match text.len() {
            0..=255 => Ok(Self(text)),
            length => Err(DecodeError::Length {
                field: "text",
                length: length as u64,
            }),
        }
    }

    /// The text.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

/// Passwords and tokens stand in these fields and must not reach a log.
impl std::fmt::Debug for Text8<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Text8({} bytes)", self.0.len())
    }
}

impl<'a> Codec<'a> for Text8<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let length = u8::read(cursor, field)?;
        utf8(cursor.bytes(usize::from(length), field)?, field).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let length = u8::try_from(self.0.len()).expect("checked at construction");
        out.push(length);
        out.extend_from_slice(self.0.as_bytes());
    }
}

/// `len u32 | UTF-8`, possibly empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text32<'a>(pub &'a str);

impl<'a> Codec<'a> for Text32<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        utf8(cursor.sub(field)?.rest(), field).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        Bytes32(self.0.as_bytes()).write(out);
    }
}

/// `len u32 | bytes`, possibly empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes32<'a>(pub &'a [u8]);

impl<'a> Codec<'a> for Bytes32<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        cursor.sub(field).map(|sub| Self(sub.rest()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        crate::codec::write_length(self.0.len(), out);
        out.extend_from_slice(self.0);
    }
}

fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8 { field })
}

/// `kind u8 | len u8 | value`: a resource by id or by name. Numeric 0 is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier<'a> {
    /// Kind 1.
    Numeric(u32),
    /// Kind 2.
    Named(Name<'a>),
}

impl<'a> Identifier<'a> {
    /// An identifier by name.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Length`] when empty or longer than 255 bytes.
    pub fn named(name: &'a str) -> Result<Self, DecodeError> {
        Name::new(name).map(Self::Named)
    }
}

impl std::fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Numeric(id) => id.fmt(f),
            Self::Named(name) => name.fmt(f),
        }
    }
}

impl<'a> Codec<'a> for Identifier<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        // Truncation is reported before the kind is looked at.
        let (kind, value) = read_tagged(cursor, field)?;
        match kind {
            1 => read_u32(value, field).map(Self::Numeric),
            2 if value.is_empty() => Err(DecodeError::Length { field, length: 0 }),
            2 => utf8(value, field).map(|text| Self::Named(Name(text))),
            _ => Err(DecodeError::Undefined {
                field,
                value: u64::from(kind),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Numeric(id) => {
                out.extend_from_slice(&[1, 4]);
                id.write(out);
            }
            Self::Named(name) => {
                out.push(2);
                name.write(out);
            }
        }
    }
}

/// Reads `kind u8 | len u8 | value`.
fn read_tagged<'a>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<(u8, &'a [u8]), DecodeError> {
    let kind = u8::read(cursor, field)?;
    let length = u8::read(cursor, field)?;
    let value = cursor.bytes(usize::from(length), field)?;
    Ok((kind, value))
}

/// A tagged value that must be a `u32`.
fn read_u32(value: &[u8], field: &'static str) -> Result<u32, DecodeError> {
    match value.try_into() {
        Ok(bytes) => Ok(u32::from_le_bytes(bytes)),
        Err(_) => Err(DecodeError::Length {
            field,
            length: value.len() as u64,
        }),
    }
}

/// What a stored position belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConsumerKind {
    /// A single consumer.
    Consumer = 1,
    /// A consumer group.
    Group = 2,
}

/// `kind u8 | Identifier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer<'a> {
    /// Consumer or group.
    pub kind: ConsumerKind,
    /// Which one.
    pub id: Identifier<'a>,
}

impl Consumer<'_> {
    /// The numeric id positions are stored under: the id itself, or XXH32 of the name. For a
    /// named group metadata has to say instead, hence `None`.
    #[must_use]
    pub fn numeric_id(&self) -> Option<u32> {
        match (self.kind, self.id) {
            (_, Identifier::Numeric(id)) => Some(id),
            (ConsumerKind::Consumer, Identifier::Named(name)) => {
                Some(xxh32(name.as_str().as_bytes()))
            }
            (ConsumerKind::Group, Identifier::Named(_)) => None,
        }
    }
}

impl<'a> Codec<'a> for Consumer<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let kind = match u8::read(cursor, field)? {
            1 => ConsumerKind::Consumer,
            2 => ConsumerKind::Group,
            value => {
                return Err(DecodeError::Undefined {
                    field,
                    value: u64::from(value),
                });
            }
        };
        let id = Identifier::read(cursor, field)?;
        Ok(Self { kind, id })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        self.id.write(out);
    }
}

/// `flag u8 | u32`, always five bytes. Present only when the flag is exactly 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionalPartition(pub Option<u32>);

impl<'a> Codec<'a> for OptionalPartition {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let [flag, value @ ..] = *cursor.array::<5>(field)?;
        Ok(Self((flag == 1).then_some(u32::from_le_bytes(value))))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.0.is_some()));
        self.0.unwrap_or(0).write(out);
    }
}

/// `kind u8 | len u8 | value`: how a batch finds its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning<'a> {
    /// Kind 1: round robin at the contacted node.
    Balanced,
    /// Kind 2: this partition.
    PartitionId(u32),
    /// Kind 3: by hash of a key of 1..=255 bytes.
    MessagesKey(&'a [u8]),
}

impl Partitioning<'_> {
    /// Index in the topic's partition list a key maps to.
    #[must_use]
    pub fn key_index(key: &[u8], partition_count: u32) -> Option<u32> {
        xxh32(key).checked_rem(partition_count)
    }
}

impl<'a> Codec<'a> for Partitioning<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let (kind, value) = read_tagged(cursor, field)?;
        match kind {
            1 if value.is_empty() => Ok(Self::Balanced),
            2 => read_u32(value, field).map(Self::PartitionId),
            3 if !value.is_empty() => Ok(Self::MessagesKey(value)),
            1 | 3 => Err(DecodeError::Length {
                field,
                length: value.len() as u64,
            }),
            _ => Err(DecodeError::Undefined {
                field,
                value: u64::from(kind),
            }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Balanced => out.extend_from_slice(&[1, 0]),
            Self::PartitionId(id) => {
                out.extend_from_slice(&[2, 4]);
                id.write(out);
            }
            Self::MessagesKey(key) => {
                assert!((1..=255).contains(&key.len()), "a key has 1 to 255 bytes");
                out.extend_from_slice(&[3, key.len() as u8]);
                out.extend_from_slice(key);
            }
        }
    }
}

/// Where a poll starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PollingKind {
    /// At an offset.
    Offset = 1,
    /// At a broker timestamp in microseconds.
    Timestamp = 2,
    /// At the first retained message.
    First = 3,
    /// At the newest messages.
    Last = 4,
    /// Behind the stored position.
    Next = 5,
}

/// `kind u8 | value u64`. The value is carried and ignored for the last three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PollingStrategy {
    /// The kind.
    pub kind: PollingKind,
    /// Offset or timestamp.
    pub value: u64,
}

impl<'a> Codec<'a> for PollingStrategy {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let [kind, value @ ..] = *cursor.array::<9>(field)?;
        let kind = match kind {
            1 => PollingKind::Offset,
            2 => PollingKind::Timestamp,
            3 => PollingKind::First,
            4 => PollingKind::Last,
            5 => PollingKind::Next,
            _ => {
                return Err(DecodeError::Undefined {
                    field,
                    value: u64::from(kind),
                });
            }
        };
        Ok(Self {
            kind,
            value: u64::from_le_bytes(value),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        self.value.write(out);
    }
}

/// When a consumer-offset write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AckLevel {
    /// Locally, in a group of one replica.
    NoAck = 0,
    /// After commit.
    Quorum = 1,
}

impl<'a> Codec<'a> for AckLevel {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        match u8::read(cursor, field)? {
            0 => Ok(Self::NoAck),
            1 => Ok(Self::Quorum),
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
