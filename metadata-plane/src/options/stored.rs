//! Options as the state keeps them, and the typed settings read from them.

use std::collections::BTreeMap;

use biplane_wire::{ErrorCode, Options, TlvBuilder, TlvField, TlvKind};

use super::setting::{Compression, DEFAULTS, Durability, Setting};

/// One stored option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOption {
    /// Kind of the value.
    pub kind: TlvKind,
    /// Bytes of the value.
    pub value: Vec<u8>,
    /// True where a client set it, false where the server filled in a default.
    pub explicit: bool,
}

/// Stored options by key. Keys outside the catalogue are kept: another version may know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionsMap {
    entries: BTreeMap<String, StoredOption>,
}

/// Checks what the grammar leaves open: a value of a known fixed-width kind has that width.
///
/// # Errors
///
/// 4042.
pub(crate) fn check_readable(options: &Options<'_>) -> Result<(), ErrorCode> {
    let readable = options.iter().all(|(_, value)| {
        value
            .kind
            .value_size()
            .is_none_or(|size| size == value.data.len())
    });
    if readable {
        Ok(())
    } else {
        Err(ErrorCode::InvalidOptionValue)
    }
}

impl StoredOption {
    fn field(&self) -> TlvField<'_> {
        TlvField {
            kind: self.kind,
            data: &self.value,
        }
    }
}

impl OptionsMap {
    /// Overlays the entries of a readable block, as the client's own or as derived ones.
    pub(crate) fn overlay(&mut self, options: &Options<'_>, explicit: bool) {
        for (key, value) in options.iter().filter(|(_, value)| value.kind.is_known()) {
            let stored = StoredOption {
                kind: value.kind,
                value: value.data.to_vec(),
                explicit,
            };
            self.entries.insert(key.to_owned(), stored);
        }
    }

    /// Inserts one entry, as a snapshot holds it.
    pub(crate) fn insert(&mut self, key: String, option: StoredOption) {
        self.entries.insert(key, option);
    }

    /// Options by key, ascending.
    pub fn entries(&self) -> &BTreeMap<String, StoredOption> {
        &self.entries
    }

    /// The typed value of a key of the catalogue; None where absent or unreadable.
    fn setting(&self, key: &str) -> Option<Setting> {
        let stored = self.entries.get(key)?;
        Setting::parse(key, &stored.field()).flatten()
    }

    /// The block of all entries with this flag, ascending by key.
    pub fn block(&self, explicit: bool) -> Vec<u8> {
        Self::encode(
            self.entries
                .iter()
                .filter(|(_, stored)| stored.explicit == explicit),
        )
    }

    /// The block of all entries, ascending by key.
    pub fn block_all(&self) -> Vec<u8> {
        Self::encode(self.entries.iter())
    }

    fn encode<'a>(entries: impl Iterator<Item = (&'a String, &'a StoredOption)>) -> Vec<u8> {
        let mut out = TlvBuilder::new();
        for (key, stored) in entries {
            out.option(key, stored.kind, &stored.value);
        }
        out.into_bytes()
    }

    /// Segment size of the topic in bytes; the default where none is stored.
    pub fn segment_size(&self) -> u64 {
        TopicSettings::read(self).segment_size
    }

    /// The stored map of a new topic and the fields that stand in its header.
    ///
    /// Derived entries come first, explicit ones over them; every key of the catalogue that can
    /// be read is stored in canonical form. Durability is taken from what the client sent only:
    /// a derived one is replaced by `replicated` (chapter 05, section 4.3.1).
    pub(crate) fn for_new_topic(
        explicit: &Options<'_>,
        derived: &Options<'_>,
    ) -> (Self, HeaderSettings) {
        let mut map = Self::default();
        map.overlay(derived, false);
        let derived = map.clone();
        map.overlay(explicit, true);
        for default in DEFAULTS {
            let key = default.key();
            let Some(entry) = map.entries.get(key) else {
                continue;
            };
            let own = Setting::parse(key, &entry.field()).flatten();
            let durability = matches!(
                default,
                Setting::Durability(_) | Setting::ConsumerOffsetDurability(_)
            );
            let typed = match own {
                _ if durability && !entry.explicit => Some(default),
                None if durability => Some(default),
                None => derived.setting(key),
                Some(setting) => Some(setting),
            };
            let Some(typed) = typed else {
                continue;
            };
            if let Some(entry) = map.entries.get_mut(key) {
                (entry.kind, entry.value) = typed.canonical();
            }
        }
        let header = HeaderSettings::read(&map);
        (map, header)
    }
}

/// The options that are also fields of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderSettings {
    pub(crate) compression: Compression,
    pub(crate) message_expiry: u64,
    pub(crate) max_topic_size: u64,
}

impl HeaderSettings {
    fn read(map: &OptionsMap) -> Self {
        let mut header = Self::default();
        header.overlay(
            map.entries.iter().map(|(key, s)| (key.as_str(), s.field())),
            true,
        );
        header
    }

    /// Takes over what the entries say; zeros only where `zeros` is set.
    pub(crate) fn overlay<'a>(
        &mut self,
        entries: impl Iterator<Item = (&'a str, TlvField<'a>)>,
        zeros: bool,
    ) {
        for (key, value) in entries {
            match Setting::parse(key, &value).flatten() {
                Some(setting) if setting.asks_for_default() && !zeros => {}
                Some(Setting::Compression(value)) => self.compression = value,
                Some(Setting::MessageExpiry(value)) => self.message_expiry = value,
                Some(Setting::MaxTopicSize(value)) => self.max_topic_size = value,
                _ => {}
            }
        }
    }
}

/// What a partition needs to know of its topic: every option, with defaults for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Compression of stored messages.
    pub compression: Compression,
    /// Age at which messages may be deleted, microseconds; `u64::MAX` never.
    pub message_expiry: u64,
    /// Size at which old segments may be deleted, bytes; `u64::MAX` unlimited.
    pub max_topic_size: u64,
    /// Size of a segment, bytes.
    pub segment_size: u64,
    /// When a message write counts as done.
    pub durability: Durability,
    /// When a consumer-offset write counts as done.
    pub consumer_offset_durability: Durability,
    /// Messages after which the journal is written out.
    pub messages_required_to_save: u32,
    /// Bytes after which the journal is written out.
    pub size_of_messages_required_to_save: u64,
    /// Whether segments reserve their space.
    pub preallocate_segments: bool,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self::read(&OptionsMap::default())
    }
}

impl TopicSettings {
    /// Reads a stored map; an absent, unreadable or zero entry gives the default of its key.
    pub fn read(map: &OptionsMap) -> Self {
        let mut settings = Self {
            compression: Compression::None,
            message_expiry: u64::MAX,
            max_topic_size: u64::MAX,
            segment_size: 0,
            durability: Durability::Replicated,
            consumer_offset_durability: Durability::Replicated,
            messages_required_to_save: 0,
            size_of_messages_required_to_save: 0,
            preallocate_segments: false,
        };
        for default in DEFAULTS {
            let stored = map.setting(default.key());
            settings.set(stored.filter(|s| !s.asks_for_default()).unwrap_or(default));
        }
        settings
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Compression(value) => self.compression = value,
            Setting::ConsumerOffsetDurability(value) => self.consumer_offset_durability = value,
            Setting::Durability(value) => self.durability = value,
            Setting::MaxTopicSize(value) => self.max_topic_size = value,
            Setting::MessageExpiry(value) => self.message_expiry = value,
            Setting::MessagesToSave(value) => self.messages_required_to_save = value,
            Setting::Preallocate(value) => self.preallocate_segments = value,
            Setting::SegmentSize(value) => self.segment_size = value,
            Setting::BytesToSave(value) => self.size_of_messages_required_to_save = value,
        }
    }
}
