//! TLV blocks: user headers and options (chapter 01 section 11.1).
//!
//! ```text
//! field = kind u8 | len u32 | data        1 <= len <= 255
//! block = key field | value field | key field | value field ...
//! ```

use std::collections::BTreeSet;

use crate::codec::{Codec, Cursor, write_length};
use crate::error::{BodyRule, DecodeError};
use crate::primitive::Bytes32;

/// Largest block of options in bytes.
pub const OPTIONS_SIZE_MAX: usize = 100_000;
/// Largest number of option pairs.
pub const OPTIONS_COUNT_MAX: usize = 1024;
/// Largest block of user headers a client accepts, in bytes.
pub const USER_HEADERS_SIZE_MAX: usize = 100_000;

/// Kind byte of a field. Kinds from 16 are unknown, valid on the wire, and preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlvKind(pub u8);

impl TlvKind {
    /// Any bytes.
    pub const RAW: Self = Self(1);
    /// UTF-8 text.
    pub const STRING: Self = Self(2);
    /// One byte.
    pub const BOOL: Self = Self(3);
    /// One byte.
    pub const U8: Self = Self(9);
    /// Two bytes.
    pub const U16: Self = Self(10);
    /// Four bytes.
    pub const U32: Self = Self(11);
    /// Eight bytes.
    pub const U64: Self = Self(12);

    /// The length a value of this kind must have; `None` when any will do.
    #[must_use]
    pub const fn value_size(self) -> Option<usize> {
        match self.0 {
            3 | 4 | 9 => Some(1),
            5 | 10 => Some(2),
            6 | 11 | 14 => Some(4),
            7 | 12 | 15 => Some(8),
            8 | 13 => Some(16),
            _ => None,
        }
    }

    /// Whether this generation gives the kind a meaning.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self.0, 1..=15)
    }
}

/// One field: a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TlvField<'a> {
    /// The kind byte.
    pub kind: TlvKind,
    /// 1..=255 bytes.
    pub data: &'a [u8],
}

impl<'a> TlvField<'a> {
    /// A text field.
    #[must_use]
    pub const fn string(text: &'a str) -> Self {
        Self {
            kind: TlvKind::STRING,
            data: text.as_bytes(),
        }
    }

    /// The text of a string field.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        (self.kind == TlvKind::STRING)
            .then(|| std::str::from_utf8(self.data).ok())
            .flatten()
    }

    /// The value of a u64 field.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.fixed(TlvKind::U64).map(u64::from_le_bytes)
    }

    /// The value of a u32 field.
    #[must_use]
    pub fn as_u32(&self) -> Option<u32> {
        self.fixed(TlvKind::U32).map(u32::from_le_bytes)
    }

    /// The value of a u8 field.
    #[must_use]
    pub fn as_u8(&self) -> Option<u8> {
        self.fixed(TlvKind::U8).map(u8::from_le_bytes)
    }

    /// The value of a bool field that is 0 or 1.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.fixed(TlvKind::BOOL)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn fixed<const N: usize>(&self, kind: TlvKind) -> Option<[u8; N]> {
        if self.kind == kind {
            self.data.try_into().ok()
        } else {
            None
        }
    }
}

impl<'a> Codec<'a> for TlvField<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let kind = u8::read(cursor, field)?;
        if kind == 0 {
            return Err(DecodeError::Undefined { field, value: 0 });
        }
        let length = u32::read(cursor, field)?;
        if !(1..=255).contains(&length) {
            return Err(DecodeError::Length {
                field,
                length: u64::from(length),
            });
        }
        let data = cursor.bytes(length as usize, field)?;
        Ok(Self {
            kind: TlvKind(kind),
            data,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        assert!(
            (1..=255).contains(&self.data.len()),
            "a field has 1 to 255 bytes"
        );
        assert!(self.kind.0 != 0, "kind 0 is no kind");
        out.push(self.kind.0);
        write_length(self.data.len(), out);
        out.extend_from_slice(self.data);
    }
}

/// A structurally valid block: user headers, or the outside of options. May be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlvBlock<'a> {
    bytes: &'a [u8],
}

impl<'a> TlvBlock<'a> {
    /// Checks the structure of all of `bytes`.
    ///
    /// # Errors
    ///
    /// The first broken structural rule.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        while cursor.remaining() > 0 {
            TlvField::read(&mut cursor, "key")?;
            if cursor.remaining() == 0 {
                return Err(BodyRule::KeyWithoutValue.into());
            }
            TlvField::read(&mut cursor, "value")?;
        }
        Ok(Self { bytes })
    }

    /// The block as it stands.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there are no pairs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Key and value of each pair in wire order.
    pub fn pairs(&self) -> impl Iterator<Item = (TlvField<'a>, TlvField<'a>)> + use<'a> {
        let mut cursor = Cursor::new(self.bytes);
        std::iter::from_fn(move || {
            let key = TlvField::read(&mut cursor, "key").ok()?;
            let value = TlvField::read(&mut cursor, "value").ok()?;
            Some((key, value))
        })
    }
}

/// A valid options block. In a request it runs to the end of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(TlvBlock<'a>);

impl<'a> Options<'a> {
    /// No options.
    pub const EMPTY: Self = Self(TlvBlock { bytes: &[] });

    /// Checks all of `bytes`, in the order of section 11.1.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > OPTIONS_SIZE_MAX {
            return Err(DecodeError::Length {
                field: "options",
                length: bytes.len() as u64,
            });
        }
        let options = Self(TlvBlock::parse(bytes)?);
        let count = options.0.pairs().count();
        if count > OPTIONS_COUNT_MAX {
            return Err(DecodeError::Length {
                field: "option pairs",
                length: count as u64,
            });
        }
        for (key, _) in options.0.pairs() {
            if key.kind != TlvKind::STRING {
                let value = u64::from(key.kind.0);
                return Err(DecodeError::Undefined {
                    field: "option key kind",
                    value,
                });
            }
            if key.as_str().is_none() {
                return Err(DecodeError::Utf8 {
                    field: "option key",
                });
            }
        }
        if options.has_duplicates() {
            return Err(BodyRule::OptionTwice.into());
        }
        Ok(options)
    }

    /// Sorted keys, the usual case, need no memory to compare.
    fn has_duplicates(&self) -> bool {
        let keys = || self.0.pairs().map(|(key, _)| key.data);
        if keys().is_sorted_by(|a, b| a < b) {
            return false;
        }
        let mut seen = BTreeSet::new();
        !keys().all(|key| seen.insert(key))
    }

    /// The block as it stands.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// Whether there are no options.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Key and value of each option in wire order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, TlvField<'a>)> + use<'a> {
        self.0
            .pairs()
            .filter_map(|(key, value)| key.as_str().map(|key| (key, value)))
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<TlvField<'a>> {
        self.iter()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value)
    }
}

impl<'a> Codec<'a> for Options<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        Self::parse(cursor.take_rest())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes());
    }
}

/// An options block behind its length in bytes, as it stands inside responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options32<'a>(pub Options<'a>);

impl<'a> Codec<'a> for Options32<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Options::parse(cursor.sub(field)?.rest()).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        Bytes32(self.0.bytes()).write(out);
    }
}

/// Writes a block pair by pair.
#[derive(Clone, Debug, Default)]
pub struct TlvBuilder {
    bytes: Vec<u8>,
}

impl TlvBuilder {
    /// An empty block.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Adds a pair.
    ///
    /// # Panics
    ///
    /// When a field is empty, longer than 255 bytes, or of kind 0.
    pub fn push(&mut self, key: TlvField<'_>, value: TlvField<'_>) -> &mut Self {
        key.write(&mut self.bytes);
        value.write(&mut self.bytes);
        self
    }

    /// Adds an option with a text key.
    ///
    /// # Panics
    ///
    /// As [`TlvBuilder::push`].
    pub fn option(&mut self, key: &str, kind: TlvKind, data: &[u8]) -> &mut Self {
        self.push(TlvField::string(key), TlvField { kind, data })
    }

    /// The block so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The block.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
