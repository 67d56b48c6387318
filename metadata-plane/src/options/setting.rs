//! One typed topic option: parsing of every accepted form and the canonical encoding.

use super::SEGMENT_BYTES_MAX;
use super::text::{duration_micros, size_bytes};
use biplane_wire::{TlvBuilder, TlvField, TlvKind};

/// Most messages a journal may be told to hold back.
const MESSAGES_TO_SAVE_MAX: u32 = 16_777_216;
/// Most bytes a journal may be told to hold back.
const BYTES_TO_SAVE_MAX: u64 = 1 << 30;

/// Compression of stored messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Stored as sent.
    #[default]
    None,
    /// Gzip.
    Gzip,
}

impl Compression {
    /// Number in replies: 1 none, 2 gzip.
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Gzip => 2,
        }
    }

    /// Name in options and snapshots.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
        }
    }

    /// From the name in options and snapshots.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// When a partition write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the memory of a quorum.
    #[default]
    Replicated,
    /// On the disks of a quorum.
    Persisted,
}

impl Durability {
    /// Name in options.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Persisted => "persisted",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Replicated, Self::Persisted]
            .into_iter()
            .find(|durability| durability.as_str().eq_ignore_ascii_case(name))
    }
}

/// A topic option with a value of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `compression_algorithm`.
    Compression(Compression),
    /// `consumer_offset_durability`.
    ConsumerOffsetDurability(Durability),
    /// `durability`.
    Durability(Durability),
    /// `max_topic_size` in bytes; 0 asks for the default, `u64::MAX` is unlimited.
    MaxTopicSize(u64),
    /// `message_expiry` in microseconds; 0 asks for the default, `u64::MAX` is never.
    MessageExpiry(u64),
    /// `messages_required_to_save`.
    MessagesToSave(u32),
    /// `preallocate_segments`.
    Preallocate(bool),
    /// `segment_size` in bytes; 0 asks for the default.
    SegmentSize(u64),
    /// `size_of_messages_required_to_save` in bytes; 0 asks for the default.
    BytesToSave(u64),
}

/// Every key at its default, ascending by key: the order of canonical blocks.
pub(super) const DEFAULTS: [Setting; 9] = [
    Setting::Compression(Compression::None),
    Setting::ConsumerOffsetDurability(Durability::Replicated),
    Setting::Durability(Durability::Replicated),
    Setting::MaxTopicSize(u64::MAX),
    Setting::MessageExpiry(u64::MAX),
    Setting::MessagesToSave(1_024),
    Setting::Preallocate(false),
    Setting::SegmentSize(SEGMENT_BYTES_MAX),
    Setting::BytesToSave(1_048_576),
];

impl Setting {
    /// The key of the option.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Compression(_) => "compression_algorithm",
            Self::ConsumerOffsetDurability(_) => "consumer_offset_durability",
            Self::Durability(_) => "durability",
            Self::MaxTopicSize(_) => "max_topic_size",
            Self::MessageExpiry(_) => "message_expiry",
            Self::MessagesToSave(_) => "messages_required_to_save",
            Self::Preallocate(_) => "preallocate_segments",
            Self::SegmentSize(_) => "segment_size",
            Self::BytesToSave(_) => "size_of_messages_required_to_save",
        }
    }

    /// Parses a value; None where the key is unknown, Some(None) where the value does not fit.
    pub(super) fn parse(key: &str, value: &TlvField<'_>) -> Option<Option<Self>> {
        Some(match key {
            "compression_algorithm" => compression(value).map(Self::Compression),
            "consumer_offset_durability" => durability(value).map(Self::ConsumerOffsetDurability),
            "durability" => durability(value).map(Self::Durability),
            "max_topic_size" => number(value, topic_size).map(Self::MaxTopicSize),
            "message_expiry" => number(value, expiry).map(Self::MessageExpiry),
            "messages_required_to_save" => messages_to_save(value).map(Self::MessagesToSave),
            "preallocate_segments" => truth(value).map(Self::Preallocate),
            "segment_size" => number(value, size_or_default).map(Self::SegmentSize),
            "size_of_messages_required_to_save" => number(value, size_or_default)
                .filter(|size| *size <= BYTES_TO_SAVE_MAX)
                .map(Self::BytesToSave),
            _ => return None,
        })
    }

    /// True where the value is the zero that stands for the default of the server.
    pub const fn asks_for_default(&self) -> bool {
        match self {
            Self::MaxTopicSize(value)
            | Self::MessageExpiry(value)
            | Self::SegmentSize(value)
            | Self::BytesToSave(value) => *value == 0,
            _ => false,
        }
    }

    /// Kind and bytes of the value in canonical form.
    pub fn canonical(&self) -> (TlvKind, Vec<u8>) {
        match self {
            Self::Compression(value) => (TlvKind::STRING, value.as_str().as_bytes().to_vec()),
            Self::ConsumerOffsetDurability(value) | Self::Durability(value) => {
                (TlvKind::STRING, value.as_str().as_bytes().to_vec())
            }
            Self::MaxTopicSize(value)
            | Self::MessageExpiry(value)
            | Self::SegmentSize(value)
            | Self::BytesToSave(value) => (TlvKind::U64, value.to_le_bytes().to_vec()),
            Self::MessagesToSave(value) => (TlvKind::U32, value.to_le_bytes().to_vec()),
            Self::Preallocate(value) => (TlvKind::BOOL, vec![u8::from(*value)]),
        }
    }

    /// Appends the entry in canonical form.
    pub(super) fn encode(&self, out: &mut TlvBuilder) {
        let (kind, value) = self.canonical();
        out.option(self.key(), kind, &value);
    }
}

fn compression(value: &TlvField<'_>) -> Option<Compression> {
    match value.as_u8() {
        Some(1) => Some(Compression::None),
        Some(2) => Some(Compression::Gzip),
        Some(_) => None,
        None => value.as_str().and_then(Compression::from_name),
    }
}

fn durability(value: &TlvField<'_>) -> Option<Durability> {
    value.as_str().and_then(Durability::from_name)
}

fn number(value: &TlvField<'_>, parse: fn(&str) -> Option<u64>) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(parse))
}

fn messages_to_save(value: &TlvField<'_>) -> Option<u32> {
    value
        .as_u32()
        .or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()))
        .filter(|count| (1..=MESSAGES_TO_SAVE_MAX).contains(count))
}

fn truth(value: &TlvField<'_>) -> Option<bool> {
    value.as_bool().or_else(|| match value.as_str()? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    })
}

fn expiry(text: &str) -> Option<u64> {
    match text {
        "none" | "None" | "unlimited" | "Unlimited" | "never_expire" => Some(u64::MAX),
        "default" | "Default" | "server_default" | "Server_default" => Some(0),
        _ => duration_micros(text),
    }
}

fn topic_size(text: &str) -> Option<u64> {
    match text {
        "unlimited" => Some(u64::MAX),
        "0" | "server_default" => Some(0),
        _ => size_bytes(text),
    }
}

fn size_or_default(text: &str) -> Option<u64> {
    match text {
        "0" | "none" | "None" | "unlimited" | "Unlimited" => Some(0),
        _ => size_bytes(text),
    }
}
