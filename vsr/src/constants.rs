//! Limits that are the same on every replica of a cluster, and how they relate.
//!
//! They follow from the wire: a view-change vote describes at most 128 ops, one of which is the
//! op at the commit point, so at most 127 uncommitted ops may ever exist (chapter 03 section
//! 6.1). Everything a node may choose for itself is in [`crate::Limits`].

use biplane_wire::{SUFFIX_ENTRIES_MAX, View};

/// Most replicas a group can have.
pub const REPLICA_COUNT_MAX: u8 = 32;
/// Most uncommitted ops a group can have: the suffix slots less the one at the commit point.
pub const PIPELINE_MAX: u64 = SUFFIX_ENTRIES_MAX as u64 - 1;
/// Doublings of the prepare retransmission interval before it stops growing.
pub const BACKOFF_EXPONENT_MAX: u32 = 4;
/// Ticks after which a failed superblock write is tried again, at most: one second.
pub const PERSIST_RETRY_TICKS_MAX: u64 = 100;
/// Probes that may wait for the superblock before they are answered; later ones come again.
pub const PROBE_ANSWERS_MAX: usize = REPLICA_COUNT_MAX as usize;
/// View under which an entry is journaled of which a later boot must not assume that it was part
/// of the recorded log. Never leaves this replica.
pub(crate) const VIEW_UNSURE: View = View(u32::MAX);
/// Highest view a replica enters. Frames of a higher one are ignored.
pub(crate) const VIEW_LAST: View = View(u32::MAX - 1);
/// Acknowledgement frames a replica keeps to be used again.
pub(crate) const ACKNOWLEDGEMENT_FRAMES_MAX: usize = 64;
/// Length of one tick.
pub const TICK_MILLIS: u64 = 10;

/// "Not accepted here": the request had no effect, another node may take it.
pub const CODE_NOT_ACCEPTED: u32 = 58;
/// "Not committed": the request may have an effect; ask again with the same number.
pub const CODE_NOT_COMMITTED: u32 = 57;

const _: () = {
    assert!(PIPELINE_MAX == 127);
    assert!(REPLICA_COUNT_MAX as u32 <= u32::BITS);
    assert!(PERSIST_RETRY_TICKS_MAX * TICK_MILLIS == 1000);
};

/// Heartbeats at the usual interval before those of an idle group become rarer: whoever missed
/// the first of them learns of the last commit all the same.
pub(crate) const HEARTBEATS_UNTIL_IDLE: u8 = 4;
