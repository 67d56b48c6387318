//! Headers of log repair (chapter 01 sections 6.14 and 6.15).

use zerocopy::little_endian::{U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, require};
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{GroupId, Op};

/// RequestPrepares (18).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestPreparesHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    from_op: U64,
    to_op: U64,
    group: U64,
    reserved: [u8; 88],
}

layout!(RequestPreparesHeader { nonce 128, from_op 144, to_op 152, group 160, reserved 168 });
accessors!(RequestPreparesHeader {
    /// Names the session; echoed in the closing frame.
    nonce / set_nonce: u128,
    /// First op wanted, nonzero.
    from_op / set_from_op: Op,
    /// Last op wanted, inclusive.
    to_op / set_to_op: Op,
    /// The group.
    group / set_group: GroupId,
});

impl Header for RequestPreparesHeader {
    const COMMANDS: &'static [Command] = &[Command::RequestPrepares];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        require(self.from_op() != Op::ZERO, FieldError::RangeStartZero)?;
        require(self.from_op() <= self.to_op(), FieldError::RangeReversed)
    }
}

/// RepairDone (20) and RangeEvicted (21): one layout under two command bytes.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RepairRangeReplyHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    op: U64,
    group: U64,
    reserved: [u8; 96],
}

layout!(RepairRangeReplyHeader { nonce 128, op 144, group 152, reserved 160 });
accessors!(RepairRangeReplyHeader {
    /// Echo of the request.
    nonce / set_nonce: u128,
    /// Done: last op served. Evicted: oldest op still retained.
    op / set_op: Op,
    /// The group.
    group / set_group: GroupId,
});

impl Header for RepairRangeReplyHeader {
    const COMMANDS: &'static [Command] = &[Command::RepairDone, Command::RangeEvicted];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()
    }
}
