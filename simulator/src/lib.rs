//! A whole cluster in one thread: the crates that ship, driven by a hostile virtual world.
//!
//! ```text
//!   seed, profile ──► options ──► world ──► verdict, counters, trace hash
//!                                   │
//!         ┌───────────┬─────────────┼───────────┬─────────────┐
//!      network      disks        clocks   process faults   clients
//!         └───────────┴──────┬──────┴───────────┘             │
//!               node 0 … node R-1: the shipped planes         │
//!                           │ causes and effects              │ calls and answers
//!                           └──────────► oracles ◄────────────┘
//! ```
//!
//! A run is a pure function of the commit, the seed and the profile. It has two phases: in the
//! first everything that was drawn may go wrong and oracles watch every step; then all is
//! healed and the cluster must finish its work and converge.
//!
//! **What this crate does not do.** It has no rule of the protocol of its own: what a node does
//! is decided by the cores, and what the server decides besides is in [`machine`]s that do as
//! the server does. Oracles restate claims of the protocol documents, never the code.
//!
//! **Invariants.** Oracles, logs and counters draw nothing; turning them on or off leaves the
//! trace hash equal. Iteration over maps is ordered. No clock, file, thread or socket is used
//! inside a run.
#![forbid(unsafe_code)]

pub mod bare;
pub mod bundle;
pub mod cli;
pub mod client;
pub mod coverage;
pub mod disk;
pub mod fault_atlas;
pub mod faults;
pub mod frames;
pub mod history;
pub mod knobs;
pub mod linear;
pub mod machine;
pub mod mutations;
pub mod network;
pub mod options;
pub mod oracle;
pub mod overrides;
pub mod partitions;
pub mod plan;
pub mod planes;
pub mod play;
pub mod prng;
pub mod queue;
pub mod report;
pub mod shrink;
pub mod tape;
pub mod time;
pub mod workload;
pub mod world;

pub use options::{Options, Profile};
pub use prng::Streams;
pub use world::{Outcome, Verdict, World};

/// Runs one seed of a profile to its verdict, with settings made by hand.
///
/// # Errors
///
/// A setting that does not exist or does not fit.
pub fn run(
    seed: u64,
    profile: Profile,
    settings: &[String],
    keep_log: bool,
) -> Result<Outcome, String> {
    run_from(Streams::new(seed), seed, profile, settings, keep_log)
}

/// The same with every draw written down ([`Outcome::recording`]).
///
/// # Errors
///
/// A setting that does not exist or does not fit.
pub fn record(
    seed: u64,
    profile: Profile,
    settings: &[String],
    keep_log: bool,
) -> Result<Outcome, String> {
    run_from(Streams::recorded(seed), seed, profile, settings, keep_log)
}

/// Runs with draws from streams that may be those of an earlier run.
///
/// # Errors
///
/// A setting that does not exist or does not fit.
pub fn run_from(
    streams: Streams,
    seed: u64,
    profile: Profile,
    settings: &[String],
    keep_log: bool,
) -> Result<Outcome, String> {
    let mut options = Options::drawn_from(&streams, seed, profile);
    for setting in settings {
        overrides::apply(&mut options, setting)?;
    }
    report::quiet_panics();
    Ok(World::drawing_from(streams, options, keep_log).run())
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
