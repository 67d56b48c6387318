//! Helpers of several test files.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses some of the helpers"
)]

pub mod bodies;
pub mod cluster;
pub mod model;
pub mod prng;

use biplane_metadata_plane::state::{Applied, MetadataState, Prepared};
use biplane_wire::{ClientId, Operation};

/// Timestamp that the specification's examples use.
pub const TS: u64 = 1_700_000_000_000_000;

/// A state with the root user alone.
pub fn fresh() -> MetadataState {
    MetadataState::with_root("iggy", "hash")
}

/// Applies an operation of root at `timestamp`.
pub fn apply_at(
    state: &mut MetadataState,
    operation: Operation,
    body: &[u8],
    user_id: u32,
    timestamp: u64,
) -> Applied {
    let client = ClientId(7);
    let prepared = Prepared {
        operation,
        client,
        user_id,
        timestamp,
        body,
    };
    let applied = state.apply(&prepared).expect("the body decodes");
    state.check_invariants();
    applied
}

/// Applies an operation of root at [`TS`].
pub fn apply(state: &mut MetadataState, operation: Operation, body: &[u8]) -> Applied {
    apply_at(state, operation, body, 0, TS)
}

/// Applies and gives the code.
pub fn code(state: &mut MetadataState, operation: Operation, body: &[u8]) -> u32 {
    apply(state, operation, body).code()
}

/// Bytes of a hexadecimal text; white space is skipped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a digit")).expect("small"))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
