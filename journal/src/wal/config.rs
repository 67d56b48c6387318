//! Where a log stands, what it belongs to and how large it may become.

use biplane_wire::{ClusterId, GroupId};

use crate::disk::QueueId;
use crate::path::{DiskPath, PathError};
use crate::record::{LogScope, RecordForm};

/// Bytes after which a write takes no further prepare along.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// Default of `journal_slots`.
pub const JOURNAL_SLOTS_DEFAULT: u64 = 1024;

/// Default byte budget of the prepare log of a partition.
pub const PARTITION_LOG_BYTES_DEFAULT: u64 = 256 << 20;

/// What a [`Wal`](crate::Wal) is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalConfig {
    /// The file.
    pub path: DiskPath,
    /// The disk queue it uses, which nobody else may use.
    pub queue: QueueId,
    /// Whose prepares it holds.
    pub scope: LogScope,
    /// How they are written.
    pub form: RecordForm,
    /// Highest number of ops from the oldest kept to the newest.
    pub slots_max: u64,
    /// Highest length of the file in bytes.
    pub bytes_max: u64,
    /// Bytes after which one write is no longer extended by a further prepare.
    pub batch_bytes_max: u64,
    /// Largest frame taken.
    pub frame_bytes_max: u32,
    /// A drain rewrites the file only when at least this many bytes of it no longer count.
    pub rewrite_bytes_min: u64,
}

impl WalConfig {
    /// The metadata log, `metadata/journal.wal`: bare prepares, limited by slots.
    ///
    /// # Panics
    ///
    /// When `slots_max` is zero.
    #[must_use]
    pub fn metadata(
        queue: QueueId,
        cluster: ClusterId,
        slots_max: u64,
        frame_bytes_max: u32,
    ) -> Self {
        assert!(slots_max > 0, "a log holds something");
        Self {
            path: DiskPath::new("metadata/journal.wal").expect("a legal path"),
            queue,
            scope: LogScope {
                cluster,
                group: GroupId::METADATA,
            },
            form: RecordForm::Bare,
            slots_max,
            bytes_max: u64::MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            frame_bytes_max,
            rewrite_bytes_min: 1,
        }
    }

    /// The prepare log of a partition with a persisted policy,
    /// `{partition}/prepares-{created_revision}/prepares.wal`: sealed prepares, because headers
    /// of partition groups say nothing about their bodies; limited by `bytes_max`.
    ///
    /// # Errors
    ///
    /// When `partition` is too long to have a file below it.
    ///
    /// # Panics
    ///
    /// When `bytes_max` has no room for one frame of `frame_bytes_max`.
    pub fn partition(
        partition: &DiskPath,
        created_revision: u64,
        queue: QueueId,
        scope: LogScope,
        bytes_max: u64,
        frame_bytes_max: u32,
    ) -> Result<Self, PathError> {
        assert!(
            bytes_max > u64::from(frame_bytes_max),
            "a log holds something"
        );
        Ok(Self {
            path: partition.join(&format!("prepares-{created_revision}/prepares.wal"))?,
            queue,
            scope,
            form: RecordForm::Sealed,
            slots_max: u64::MAX,
            bytes_max,
            batch_bytes_max: BATCH_BYTES_MAX,
            frame_bytes_max,
            rewrite_bytes_min: bytes_max / 4,
        })
    }
}
