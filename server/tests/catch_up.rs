//! Nodes that lost their data and come back, as real processes: what they fetch, while what goes
//! on around them, and that they are worth a survivor afterwards.
//!
//! `BIPLANE_CATCH_UP_MB` makes the figures of `catch_up_figures` larger.

#[path = "catch_up/content.rs"]
mod content;
#[path = "catch_up/figures.rs"]
mod figures;
#[path = "catch_up/interrupted.rs"]
mod interrupted;
#[path = "catch_up/scene.rs"]
mod scene;
#[allow(dead_code, reason = "shared with the tests of the official client")]
mod support;
#[path = "catch_up/wiped.rs"]
mod wiped;
