//! The records of a snapshot, field by field in the order in which they are written.
//!
//! Every record is a positional array. Fields are only ever appended; a field that older
//! writers lack has a default (protocol specification, chapter 04, section 4.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fields::{Bytes, OptionsRecord, Wide};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Top {
    pub(super) version: u32,
    pub(super) created_at: u64,
    pub(super) sequence_number: u64,
    pub(super) users: Option<UsersRecord>,
    pub(super) streams: Option<StreamsRecord>,
    pub(super) client_table: Option<ClientTableRecord>,
    #[serde(default)]
    pub(super) writer_release: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UsersRecord {
    pub(super) items: Vec<(u64, UserRecord)>,
    pub(super) tokens: Vec<(u32, Vec<(String, TokenRecord)>)>,
    pub(super) permissioner: PermissionerRecord,
}

/// An index that readers rebuild; written empty and not looked at.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PermissionerRecord(
    pub(super) Skipped,
    pub(super) Skipped,
    pub(super) Skipped,
    pub(super) Skipped,
    pub(super) Skipped,
    pub(super) Skipped,
);

/// Something that is read over and written as an empty array.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Skipped;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UserRecord {
    pub(super) id: u32,
    pub(super) username: String,
    pub(super) password_hash: String,
    pub(super) status: String,
    pub(super) created_at: u64,
    pub(super) permissions: Option<PermissionsRecord>,
    #[serde(default)]
    pub(super) options: OptionsRecord,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PermissionsRecord {
    pub(super) global: [bool; 10],
    pub(super) streams: Option<BTreeMap<u32, StreamPermissionsRecord>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StreamPermissionsRecord {
    pub(super) manage_stream: bool,
    pub(super) read_stream: bool,
    pub(super) manage_topics: bool,
    pub(super) read_topics: bool,
    pub(super) poll_messages: bool,
    pub(super) send_messages: bool,
    pub(super) topics: Option<BTreeMap<u32, [bool; 4]>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    pub(super) user_id: u32,
    pub(super) name: String,
    pub(super) hash: String,
    pub(super) expiry: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StreamsRecord {
    pub(super) items: Vec<(u64, StreamRecord)>,
    pub(super) revision: u64,
}

/// Size in bytes, messages and segments: for information only, written as zeros.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StatsRecord(pub(super) u64, pub(super) u64, pub(super) u64);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StreamRecord {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) stats: StatsRecord,
    pub(super) topics: Vec<(u64, TopicRecord)>,
    #[serde(default)]
    pub(super) options: OptionsRecord,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TopicRecord {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) message_expiry: u64,
    pub(super) compression: String,
    pub(super) max_topic_size: u64,
    pub(super) stats: StatsRecord,
    pub(super) partitions: Vec<PartitionRecord>,
    pub(super) groups: Vec<(u64, GroupRecord)>,
    #[serde(default)]
    pub(super) next_group_id: u64,
    #[serde(default)]
    pub(super) options: OptionsRecord,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartitionRecord {
    pub(super) id: u32,
    pub(super) consensus_group_id: u64,
    pub(super) created_at: u64,
    pub(super) created_revision: u64,
    pub(super) deleted_up_to_offset: u64,
    pub(super) purge_generation: u64,
    #[serde(default)]
    pub(super) created_view: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupRecord {
    pub(super) id: u64,
    pub(super) generation: u64,
    pub(super) name: String,
    pub(super) members: Vec<(u64, MemberRecord)>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    pub(super) id: u32,
    pub(super) client: Wide,
    pub(super) partitions: Vec<u32>,
    pub(super) pending: Vec<RevocationRecord>,
}

/// Partition, key of the target member, timestamp of the join.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RevocationRecord(pub(super) u32, pub(super) u32, pub(super) u64);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientTableRecord {
    pub(super) slots: Vec<(u32, SessionRecord)>,
    #[serde(default)]
    pub(super) fences: Vec<SessionRecord>,
}

/// A session or a fence, with its newest reply; a fence may have none.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    pub(super) client: Wide,
    pub(super) epoch: u64,
    pub(super) user_id: u32,
    pub(super) watermark: u64,
    pub(super) watermark_checksum: Wide,
    pub(super) reply: Bytes,
}
