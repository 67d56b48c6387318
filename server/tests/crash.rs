//! Processes that die at any moment under load, the primary, another one, or all at once, and
//! what must still be there when they are back.
//!
//! A topic of durability `persisted` loses nothing acknowledged, whoever dies. A topic of
//! durability `replicated` loses nothing acknowledged while a majority stays up. Offsets have no
//! gap and are never given twice. A disk that is full is waited out, and a node with few file
//! descriptors serves many partitions.
//!
//! `BIPLANE_CRASH_ROUNDS=200` runs that many rounds instead of a few.

#[path = "crash/limits.rs"]
mod limits;
#[path = "crash/load.rs"]
mod load;
#[path = "crash/rounds.rs"]
mod rounds;
#[allow(dead_code, reason = "shared with the tests of the official client")]
mod support;
