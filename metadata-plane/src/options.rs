//! The catalogue of topic options: which keys exist, what their values may be, and how a request
//! becomes the explicit and derived blocks that are replicated.
//!
//! Streams and users have empty catalogues (protocol specification, chapter 05, section 9).

mod setting;
mod stored;
mod text;

use std::collections::BTreeMap;

pub use setting::{Compression, Durability, Setting};
pub(crate) use stored::{HeaderSettings, check_readable};
pub use stored::{OptionsMap, StoredOption, TopicSettings};

use biplane_wire::{ErrorCode, Options, TlvBuilder, TlvField, TlvKind};

use setting::DEFAULTS;

/// Largest segment and the default size of one, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Smallest segment, in bytes.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Segments are a multiple of this many bytes.
const SEGMENT_ALIGNMENT: u64 = 512;
/// Most bytes that preallocation may reserve for a new topic.
const PREALLOCATED_BYTES_MAX: u64 = 64 << 30;
/// Most partitions in one request.
pub const REQUEST_PARTITIONS_MAX: u32 = 1_000;

/// Keys that an update may carry.
const UPDATABLE: [&str; 3] = ["compression_algorithm", "max_topic_size", "message_expiry"];

/// Refuses every key: the catalogue of streams and of users.
pub(crate) fn check_empty(options: &Options<'_>) -> Result<(), ErrorCode> {
    if options.is_empty() {
        Ok(())
    } else {
        Err(ErrorCode::UnsupportedOptionKey)
    }
}

/// The options of a topic to be created, checked against the catalogue.
///
/// # Errors
///
/// 4041, 4042, 2015 or 1019, the first that applies in the order of chapter 05, section 3.2.
pub(crate) fn check_create(
    options: &Options<'_>,
    partitions: u32,
) -> Result<BTreeMap<&'static str, Setting>, ErrorCode> {
    let mut settings = BTreeMap::new();
    for (key, value) in options.iter() {
        let setting = parse_known(key, &value)?;
        settings.insert(setting.key(), setting);
    }
    let segment_size = match settings.get("segment_size") {
        Some(Setting::SegmentSize(size)) if *size != 0 => Some(*size),
        _ => None,
    };
    if segment_size.is_some_and(|size| !is_segment_size(size)) {
        return Err(ErrorCode::InvalidOptionValue);
    }
    let segment_size = segment_size.unwrap_or(SEGMENT_BYTES_MAX);
    let preallocate = settings.get("preallocate_segments") == Some(&Setting::Preallocate(true));
    let reserved = segment_size.saturating_mul(u64::from(partitions));
    if preallocate && reserved > PREALLOCATED_BYTES_MAX {
        return Err(ErrorCode::InvalidOptionValue);
    }
    if partitions > REQUEST_PARTITIONS_MAX {
        return Err(ErrorCode::TooManyPartitions);
    }
    check_topic_size(settings.get("max_topic_size"), segment_size)?;
    Ok(settings)
}

/// Checks the options of an update; `segment_size` is that of the stored topic.
///
/// # Errors
///
/// 4041, 4042 or 1019.
pub(crate) fn check_update(options: &Options<'_>, segment_size: u64) -> Result<(), ErrorCode> {
    let mut limit = None;
    for (key, value) in options.iter() {
        if !UPDATABLE.contains(&key) {
            return Err(ErrorCode::UnsupportedOptionKey);
        }
        let setting = parse_known(key, &value)?;
        if matches!(setting, Setting::MaxTopicSize(_)) {
            limit = Some(setting);
        }
    }
    check_topic_size(limit.as_ref(), segment_size)
}

fn check_topic_size(limit: Option<&Setting>, segment_size: u64) -> Result<(), ErrorCode> {
    match limit {
        Some(Setting::MaxTopicSize(size)) if *size != 0 && *size < segment_size => {
            Err(ErrorCode::InvalidTopicSize)
        }
        _ => Ok(()),
    }
}

fn is_segment_size(size: u64) -> bool {
    (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&size)
        && size.is_multiple_of(SEGMENT_ALIGNMENT)
}

/// Parses an entry whose key must be in the catalogue.
fn parse_known(key: &str, value: &TlvField<'_>) -> Result<Setting, ErrorCode> {
    match Setting::parse(key, value) {
        None => Err(ErrorCode::UnsupportedOptionKey),
        Some(None) => Err(ErrorCode::InvalidOptionValue),
        Some(Some(setting)) => Ok(setting),
    }
}

/// The explicit block in canonical form (values that ask for the default are dropped) and the
/// derived block with every other key at its default.
pub(crate) fn canonical_blocks(settings: &BTreeMap<&'static str, Setting>) -> (Vec<u8>, Vec<u8>) {
    let mut explicit = TlvBuilder::new();
    let mut derived = TlvBuilder::new();
    for default in DEFAULTS {
        match settings.get(default.key()) {
            Some(setting) if !setting.asks_for_default() => setting.encode(&mut explicit),
            _ => default.encode(&mut derived),
        }
    }
    (explicit.into_bytes(), derived.into_bytes())
}

/// One key of the catalogue as clients may ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDescription {
    /// Key.
    pub key: &'static str,
    /// Kind of the value in canonical form.
    pub kind: TlvKind,
    /// Default in canonical form.
    pub default: Vec<u8>,
    /// What it does, in a sentence.
    pub description: &'static str,
}

/// The catalogue of topic options, in the order in which it is described to clients.
pub fn describe_topic_options() -> Vec<OptionDescription> {
    DESCRIPTIONS
        .iter()
        .filter_map(|(key, description)| {
            let default = DEFAULTS.iter().find(|default| default.key() == *key)?;
            let (kind, value) = default.canonical();
            Some(OptionDescription {
                key,
                kind,
                default: value,
                description,
            })
        })
        .collect()
}

/// Keys in the order of the description, with their texts.
const DESCRIPTIONS: [(&str, &str); 9] = [
    (
        "compression_algorithm",
        "Compression of stored messages: none or gzip.",
    ),
    (
        "message_expiry",
        "Age in microseconds at which messages may be deleted.",
    ),
    (
        "max_topic_size",
        "Size in bytes at which the oldest segments may be deleted.",
    ),
    (
        "segment_size",
        "Size in bytes at which a segment is closed and a new one begun.",
    ),
    (
        "durability",
        "When a write counts as done: replicated, or persisted by a quorum.",
    ),
    (
        "consumer_offset_durability",
        "As durability, for stored consumer offsets.",
    ),
    (
        "messages_required_to_save",
        "Messages after which the journal is written out.",
    ),
    (
        "size_of_messages_required_to_save",
        "Bytes after which the journal is written out.",
    ),
    (
        "preallocate_segments",
        "Whether segments reserve their space when they are begun.",
    ),
];
