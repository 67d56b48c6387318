//! Field types of a snapshot whose encoding is not that of the language: 128-bit numbers, byte
//! strings, option maps.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base64;
use super::records::Skipped;
use crate::options::{OptionsMap, StoredOption};
use biplane_wire::TlvKind;

/// A 128-bit number: 16 bytes, big-endian. Plain integers are read too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wide(pub(super) u128);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0.to_be_bytes())
    }
}

struct WideVisitor;

impl Visitor<'_> for WideVisitor {
    type Value = Wide;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("16 bytes or an integer")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Wide, E> {
        let bytes =
            <[u8; 16]>::try_from(bytes).map_err(|_| E::invalid_length(bytes.len(), &self))?;
        Ok(Wide(u128::from_be_bytes(bytes)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Wide, E> {
        Ok(Wide(value.into()))
    }
}

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WideVisitor)
    }
}

/// A byte string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

impl Serialize for Skipped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(std::iter::empty::<u8>())
    }
}

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Names of the value kinds, from kind 1 on.
const KIND_NAMES: [&str; 15] = [
    "raw", "string", "bool", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16",
    "uint32", "uint64", "uint128", "float32", "float64",
];

fn kind_name(kind: TlvKind) -> Option<&'static str> {
    KIND_NAMES.get(usize::from(kind.0).checked_sub(1)?).copied()
}

fn kind_of(name: &str) -> Option<TlvKind> {
    let at = KIND_NAMES.iter().position(|known| *known == name)?;
    u8::try_from(at + 1).ok().map(TlvKind)
}

/// Stored options: a map from [kind, base64] to [[kind, base64], explicit].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionsRecord(pub(super) OptionsMap);

impl Serialize for OptionsRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.entries().iter().map(|(key, option)| {
            // Unknown kinds are never stored.
            let kind = kind_name(option.kind).unwrap_or("raw");
            let key = ("string", base64::encode(key.as_bytes()));
            (
                key,
                ((kind, base64::encode(&option.value)), option.explicit),
            )
        }))
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = OptionsRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OptionsRecord, A::Error> {
        type Text = (String, String);
        let mut options = OptionsMap::default();
        while let Some((key, value)) = map.next_entry::<Text, (Text, bool)>()? {
            let bad = || A::Error::custom("an option does not decode");
            let ((value_kind, value), explicit) = value;
            if key.0 != "string" {
                return Err(bad());
            }
            let key = base64::decode(&key.1).and_then(|key| String::from_utf8(key).ok());
            let key = key
                .filter(|key| (1..=255).contains(&key.len()))
                .ok_or_else(bad)?;
            let kind = kind_of(&value_kind).ok_or_else(bad)?;
            let value = base64::decode(&value)
                .filter(|value| (1..=255).contains(&value.len()))
                .ok_or_else(bad)?;
            options.insert(
                key,
                StoredOption {
                    kind,
                    value,
                    explicit,
                },
            );
        }
        Ok(OptionsRecord(options))
    }

    // An empty collection may come as an empty array.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OptionsRecord, A::Error> {
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(OptionsRecord::default()),
            Some(_) => Err(A::Error::custom("options are a map")),
        }
    }
}

impl<'de> Deserialize<'de> for OptionsRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionsVisitor)
    }
}
