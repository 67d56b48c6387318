//! The partition plane: one replicated log of messages per topic partition.
//!
//! ```text
//!                 Input                                             Output
//!   Tick, Peer ─────────┐                                     ┌───► Send (frame to a peer)
//!   Frame (peer) ───────┤    ┌──────── PartitionPlane ──────┐ ├───► Reply, PollReply, OffsetReply
//!   Disk (completion) ──┼───►│ Group Group Group Group ...  │─┼───► Disk (request)
//!   OpenGroup, Close .. ┤    └──────────────────────────────┘ ├───► Role, Fenced
//!   Submit, Poll, .. ───┘                                     └───► Halt
//!
//!   Group:  admission ► vsr::Replica ► commit walk ► resident ► flush ► segments
//!                       repair, state-transfer       polls ◄──┴─────────┘
//! ```
//!
//! A group composes one consensus core with what its operations mean: batches get offsets when
//! they are stamped, become visible when they commit, and go to segment files later; consumer
//! positions are stored through the same log. One buffer holds a batch from the socket on: the
//! request is reframed in place into a prepare, and log, chain, segment write and poll reply
//! share it.
//!
//! **What this crate does not do.** No sockets, files, clocks or threads: every effect is a
//! value. It resolves no names and checks no permissions or group membership; the driver does
//! that before it submits. It does not encrypt.
//!
//! **Invariants.** Offsets of a partition have no gap and none is given to two committed
//! messages. What is visible is committed. What is not on disk is in memory. A frame of a view
//! leaves only when the view is durable; an operation under a persisted policy is acknowledged
//! only when it is. Segment bounds depend on committed bytes alone, never on flush timing. A
//! damaged file is set aside or refused, never cut.
//!
//! The rules are chapters 03, 04 and 06 of the protocol specification; `docs/protocol` has the
//! pages on the normal case, storage and state transfer.
#![forbid(unsafe_code)]

pub mod admission;
pub mod batch;
pub mod consumer_offsets;
mod context;
pub mod dedup;
mod dormant;
mod feeding;
mod flush;
mod group;
mod io;
mod limits;
mod load;
mod log_state;
pub mod offset_request;
mod opening;
mod overview;
mod pace;
mod parking;
mod paths;
mod plane;
pub mod poll;
mod poll_job;
mod prepare_log;
mod purge_marker;
pub mod purge_record;
mod reconcile;
pub mod recovery;
mod reply;
mod resident;
mod retention;
mod scan;
mod schedule;
mod script;
pub mod segments;
mod shared_superblock;
mod stats;
pub mod status;
mod strangers;
#[cfg(test)]
mod testing;
mod unapplied;

pub use consumer_offsets::ConsumerKey;
pub use io::{
    BodyPart, GroupSpec, Input, OffsetReply, Output, Outputs, PollQuery, PollReply, RoleChange,
    concat_parts,
};
pub use limits::{DurabilityPolicy, Limits, TopicOptions};
pub use plane::{Config, PartitionPlane};
pub use poll::Strategy;
pub use stats::{GroupStatus, PartitionStats, SealedEnd};
