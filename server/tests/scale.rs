//! Many partitions on one machine: what it costs to create them, to hold them, to stop and start
//! the cluster, and to have nothing to do.
//!
//! A few streams by default, so that it takes seconds. For the figures, with a build that is
//! optimised:
//!
//! ```text
//! BIPLANE_SCALE_STREAMS=10000 BIPLANE_TEST_PROGRAM=target/release/biplane \
//!     cargo test -p biplane-server --test scale -- --nocapture
//! ```

#[path = "scale/figures.rs"]
mod figures;
#[path = "scale/process.rs"]
mod process;
#[allow(dead_code, reason = "shared with the tests of the official client")]
mod support;
#[path = "scale/topology.rs"]
mod topology;
