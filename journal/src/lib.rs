//! What a replica keeps on disk, and what it may believe of it after a crash.
//!
//! ```text
//!                     DiskRequest ─────────────► ┌──────┐
//!   prepare ───► Wal                             │ Disk │  files in the server, a hostile one in
//!   views ─────► SuperblockFile                  │      │  the simulator, MemoryDisk in tests
//!                     ◄───────────── DiskCompletion ────┘
//!        ◄─── Durable { op, checksum }, Truncated, Drained; the record that is durable
//!
//!   many logs: Wal, Wal, Wal ───► GroupCommit ───► Disk: one write, one sync for all
//!
//!   at open:   DiskView ───► recover ───► Recovered: intact, damaged, torn
//!                       └──► load_superblock, open_snapshot, check_pairing
//! ```
//!
//! The prepare log of the metadata group is frames back to back, as they came over the wire
//! (chapter 04 section 5.5.1 of the protocol specification). A log of a partition group puts a
//! seal behind each, because its headers do not cover the bodies:
//!
//! ```text
//!   metadata/journal.wal
//!   ┌────────────┬──────┬────────────┬──────┬────────────┬────
//!   │ header 256 │ body │ header 256 │ body │ header 256 │ ...
//!   └────────────┴──────┴────────────┴──────┴────────────┴────
//!   prepares-{created_revision}/prepares.wal
//!   ┌────────────┬──────┬────────┬────────────┬──────┬────────┬────
//!   │ header 256 │ body │ XXH3 8 │ header 256 │ body │ XXH3 8 │ ...
//!   └────────────┴──────┴────────┴────────────┴──────┴────────┴────
//! ```
//!
//! A superblock is two files of 102 bytes, odd sequence numbers in one and even ones in the
//! other (chapter 03 section 9.1, chapter 04 section 5.5.2):
//!
//! ```text
//!   superblock.a, superblock.b
//!   ┌───────────────────────────────────────┬───────────────────────────┬────────┐
//!   │ magic 4 │ version 2 │ 0 2 │ sequence 8 │ record 66: identity, view, │ XXH3 8 │
//!   │ parent 8 │ record length 4            │ log view, commit, ...      │        │
//!   └───────────────────────────────────────┴───────────────────────────┴────────┘
//!   snapshot.bin
//!   ┌─────────┬────────────────────────────┐
//!   │ payload │ magic 4 │ XXH3 widened, 16 │
//!   └─────────┴────────────────────────────┘
//! ```
//!
//! What [`GroupCommit`] writes is in the file `group_commit/format.rs`.
//!
//! **What this crate does not do.** It opens no file and reads no clock: requests are values,
//! and ticks are counted by the caller. It takes no protocol decision: it reports a broken
//! chain and does not cut it, it keeps what the plane does not drop. Segments of partitions,
//! offset files and purge records have their layout in the partition plane.
//!
//! **Invariants.**
//!
//! - What was reported durable is there after any crash, until it is truncated or drained.
//! - What was not reported is there whole or not at all.
//! - Damage is never forgotten and never cut off: a damaged op stays known as damaged through
//!   rewrites and truncations until it is appended again or drained.
//! - The superblock never goes back: not in memory, not between the copies, not at boot.
//! - An entry above the checkpoint is never overwritten; a full log refuses.
//!
//! **What a scan cannot know.** The identity of a bare prepare does not cover its `view`, so a
//! flipped bit there goes unnoticed. Whether an invalid last record was acknowledged is decided
//! by signs that a whole sector of it was never written; without them it counts as damaged, and
//! a cluster that lost power as a whole may then have to wait for the replicas that do not have
//! it. Garbage without a believable header is attributed to every
//! op that is not there and to the one above the highest; had it held an op still higher, above
//! a hole, that op is missing rather than damaged.

#![forbid(unsafe_code)]

mod buffer;
mod disk;
mod group_commit;
mod memory_disk;
mod path;
mod record;
mod recovery;
mod scan;
mod snapshot_file;
mod superblock;
mod superblock_file;
mod wal;

pub use buffer::{ALIGNMENT, ReadBuffer, ReadBytes};
pub use disk::{
    Chunk, DirEntry, Disk, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskReply,
    DiskRequest, DiskVerb, DiskView, QueueId, ReadFileError, read_file,
};
pub use group_commit::{
    GATHERED_BYTES_MAX, GroupCommit, GroupCommitConfig, REDO_FILE_BYTES_DEFAULT, Replay,
    ReplayError, ReplayedView,
};
pub use memory_disk::{Fate, Fault, MemoryDisk, SECTOR_BYTES, Unsynced, UnsyncedKind};
pub use path::{DiskPath, NAME_BYTES_MAX, PATH_BYTES_MAX, PathError};
pub use record::{LogScope, RecordForm};
pub use recovery::{Damage, Entry, OpenError, Recovered, TORN_TAIL_BYTES_MAX, TornTail, recover};
pub use snapshot_file::{
    Pairing, PairingError, SNAPSHOT_TRAILER_BYTES, SnapshotFile, SnapshotFileError, check_pairing,
    open_snapshot, snapshot_chunks, snapshot_trailer,
};
pub use superblock::{
    Identity, RECORD_BYTES, RECORD_BYTES_SHORT, SUPERBLOCK_BYTES, SuperblockDecodeError,
    SuperblockRecord, decode_superblock, encode_superblock,
};
pub use superblock_file::{
    LoadedSuperblock, Persist, RETRY_TICKS_MAX, SuperblockCopy, SuperblockError, SuperblockFile,
    load_superblock,
};
pub use wal::{
    AppendRefusal, JOURNAL_SLOTS_DEFAULT, PARTITION_LOG_BYTES_DEFAULT, Wal, WalConfig, WalError,
    WalOutput,
};

/// The example of the README, kept compiling.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
