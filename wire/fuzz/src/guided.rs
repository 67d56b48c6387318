//! libFuzzer over one target of `tests/support/targets.rs`, the one that `WIRE_FUZZ_TARGET` names.
#![no_main]

#[path = "../../tests/support/targets.rs"]
mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use targets::TARGETS;

fn chosen() -> fn(&[u8]) {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        let wanted = std::env::var("WIRE_FUZZ_TARGET").unwrap_or_default();
        match TARGETS.iter().find(|(name, _)| *name == wanted) {
            Some((_, target)) => *target,
            None => panic!("WIRE_FUZZ_TARGET is one of {names:?}"),
        }
    })
}

fuzz_target!(|bytes: &[u8]| chosen()(bytes));
