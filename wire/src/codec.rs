//! Reading and writing the encodings inside bodies: a bounded cursor and the trait every body
//! type implements (chapter 01 section 11).
//!
//! Decoding borrows from the frame. A decoder consumes a prefix and leaves the rest, because
//! trailing bytes in a request body are ignored unless a rule says otherwise.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{BodyRule, DecodeError};
use crate::ids::ClientId;

/// Reads from the front of a slice and never beyond its end.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of bytes that have not been read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads everything that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Reads `need` bytes; `field` names them in the error.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Truncated`].
    pub fn bytes(&mut self, need: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let have = self.rest.len();
        match self.rest.split_at_checked(need) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated { field, need, have }),
        }
    }

    /// Reads an array.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Truncated`].
    pub fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8; N], DecodeError> {
        let have = self.rest.len();
        match self.rest.split_first_chunk() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated {
                field,
                need: N,
                have,
            }),
        }
    }

    /// Reads a `u32` length and returns a cursor over exactly that many bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Truncated`].
    pub fn sub(&mut self, field: &'static str) -> Result<Cursor<'a>, DecodeError> {
        let length = u32::read(self, field)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.bytes(length, field).map(Cursor::new)
    }

    /// Reads a typed slice of `count` records in place.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Truncated`]; nothing is allocated whatever `count` claims.
    pub fn records<T>(&mut self, count: u32, field: &'static str) -> Result<&'a [T], DecodeError>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned,
    {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let need = count.saturating_mul(size_of::<T>());
        let bytes = self.bytes(need, field)?;
        match <[T]>::ref_from_bytes(bytes) {
            Ok(records) => Ok(records),
            Err(_) => Err(DecodeError::Length {
                field,
                length: need as u64,
            }),
        }
    }

    /// Requires that nothing is left.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Trailing`].
    pub fn finish(&self, field: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing { field, left }),
        }
    }
}

/// An encoding that can be read from and written to a body.
pub trait Codec<'a>: Sized {
    /// Reads from the front of `cursor`; `field` names the value in errors of primitives.
    ///
    /// # Errors
    ///
    /// Why the bytes are not this encoding.
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError>;

    /// Appends the encoding.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a body and ignores what follows.
    ///
    /// # Errors
    ///
    /// Why the bytes are not this encoding.
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(&mut Cursor::new(bytes), "body")
    }

    /// Reads a body that must end where the encoding ends.
    ///
    /// # Errors
    ///
    /// As [`Codec::decode`], or [`DecodeError::Trailing`].
    fn decode_exact(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, "body")?;
        cursor.finish("body")?;
        Ok(value)
    }

    /// The encoding as a new vector.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl<'a> Codec<'a> for $integer {
            fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
                cursor.array(field).map(|bytes| Self::from_le_bytes(*bytes))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, f32);

/// Nonzero reads as true; written as 0 or 1.
impl<'a> Codec<'a> for bool {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        u8::read(cursor, field).map(|byte| byte != 0)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<'a> Codec<'a> for ClientId {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        u128::read(cursor, field).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl<'a, const N: usize> Codec<'a> for &'a [u8; N] {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        cursor.array(field)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(*self);
    }
}

/// Records back to back to the end of the body, without a count.
impl<'a, T: Codec<'a>> Codec<'a> for Vec<T> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let mut records = Self::new();
        while cursor.remaining() > 0 {
            let before = cursor.remaining();
            records.push(T::read(cursor, field)?);
            if cursor.remaining() == before {
                return Err(BodyRule::EmptyRecord.into());
            }
        }
        Ok(records)
    }

    fn write(&self, out: &mut Vec<u8>) {
        for record in self {
            record.write(out);
        }
    }
}

/// A `u32` count and that many records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted<T>(pub Vec<T>);

impl<'a, T: Codec<'a>> Codec<'a> for Counted<T> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let count = u32::read(cursor, field)?;
        read_many(cursor, count, field).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_length(self.0.len(), out);
        self.0.write(out);
    }
}

/// Reads `count` records. Memory grows with the records that are there, not with the count.
pub(crate) fn read_many<'a, T: Codec<'a>>(
    cursor: &mut Cursor<'a>,
    count: u32,
    field: &'static str,
) -> Result<Vec<T>, DecodeError> {
    let mut records = Vec::new();
    for _ in 0..count {
        let before = cursor.remaining();
        records.push(T::read(cursor, field)?);
        if cursor.remaining() == before {
            return Err(BodyRule::EmptyRecord.into());
        }
    }
    Ok(records)
}

/// Appends a length or count that our own code keeps within 32 bits.
pub(crate) fn write_length(length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).expect("lengths inside a frame fit 32 bits");
    length.write(out);
}

/// A list of `u32` read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct U32List<'a>(&'a [U32]);

impl<'a> U32List<'a> {
    /// The values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.0.iter().map(|value| value.get())
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Codec<'a> for U32List<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let count = u32::read(cursor, field)?;
        cursor.records(count, field).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_length(self.0.len(), out);
        out.extend_from_slice(self.0.as_bytes());
    }
}

impl std::fmt::Debug for U32List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Declares a body type whose encoding is its fields one after the other.
macro_rules! body {
    (
        $(#[$meta:meta])*
        pub struct $name:ident<$lt:lifetime> {
            $($(#[$field_meta:meta])* $field:ident : $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name<$lt> {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl<$lt> $crate::codec::Codec<$lt> for $name<$lt> {
            fn read(
                cursor: &mut $crate::codec::Cursor<$lt>,
                _field: &'static str,
            ) -> Result<Self, $crate::error::DecodeError> {
                $(let $field = <$ty as $crate::codec::Codec<$lt>>::read(
                    cursor,
                    stringify!($field),
                )?;)*
                Ok(Self { $($field),* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                $($crate::codec::Codec::write(&self.$field, out);)*
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident : $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl<'a> $crate::codec::Codec<'a> for $name {
            fn read(
                cursor: &mut $crate::codec::Cursor<'a>,
                _field: &'static str,
            ) -> Result<Self, $crate::error::DecodeError> {
                $(let $field = <$ty as $crate::codec::Codec<'a>>::read(
                    cursor,
                    stringify!($field),
                )?;)*
                Ok(Self { $($field),* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                $($crate::codec::Codec::write(&self.$field, out);)*
            }
        }
    };
}

pub(crate) use body;
