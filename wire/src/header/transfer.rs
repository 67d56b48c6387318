//! Headers of state transfer (chapter 01 sections 6.16 to 6.19).

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, require};
use crate::HEADER_SIZE;
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{GroupId, Op};

/// RequestStateTransfer (22).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestStateTransferHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    group: U64,
    reserved: [u8; 104],
}

layout!(RequestStateTransferHeader { nonce 128, group 144, reserved 152 });
accessors!(RequestStateTransferHeader {
    /// Names the session; echoed in every answer.
    nonce / set_nonce: u128,
    /// The group.
    group / set_group: GroupId,
});

impl Header for RequestStateTransferHeader {
    const COMMANDS: &'static [Command] = &[Command::RequestStateTransfer];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_header_only()
    }
}

/// StateTransferTarget (23): an offer with a manifest as body, or a refusal.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StateTransferTargetHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    commit_op: U64,
    group: U64,
    available: u8,
    unavailable_transient: u8,
    padding: [u8; 6],
    commit_max: U64,
    reserved: [u8; 80],
}

layout!(StateTransferTargetHeader {
    nonce 128, commit_op 144, group 152, available 160, unavailable_transient 161,
    padding 162, commit_max 168, reserved 176,
});
accessors!(StateTransferTargetHeader {
    /// Echo of the request.
    nonce / set_nonce: u128,
    /// The server's applied frontier; zero on a refusal.
    commit_op / set_commit_op: Op,
    /// The group.
    group / set_group: GroupId,
    /// The server's commit point, on offers and refusals alike.
    commit_max / set_commit_max: Op,
});

impl StateTransferTargetHeader {
    /// Whether this is an offer.
    #[must_use]
    pub fn available(&self) -> bool {
        self.available == 1
    }

    /// Whether a refusal may be followed by an offer later.
    #[must_use]
    pub fn unavailable_transient(&self) -> bool {
        self.unavailable_transient == 1
    }

    /// Makes this an offer.
    pub fn set_offer(&mut self) {
        self.available = 1;
        self.unavailable_transient = 0;
    }

    /// Makes this a refusal.
    pub fn set_refusal(&mut self, transient: bool) {
        self.available = 0;
        self.unavailable_transient = u8::from(transient);
    }
}

impl Header for StateTransferTargetHeader {
    const COMMANDS: &'static [Command] = &[Command::StateTransferTarget];
    const SEALED: bool = true;

    header_basics!();

    fn visit_enumerations(&self, visit: &mut crate::FieldVisitor<'_>) {
        visit("available", &self.available);
        visit("unavailable_transient", &self.unavailable_transient);
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        require(self.available <= 1, FieldError::AvailableNotBoolean)?;
        require(
            self.unavailable_transient <= 1,
            FieldError::TransientNotBoolean,
        )?;
        let both = self.available == 1 && self.unavailable_transient == 1;
        require(!both, FieldError::AvailableAndTransient)?;
        let header_only = self.frame.size() == HEADER_SIZE as u32;
        require(
            self.available == 1 || header_only,
            FieldError::RefusalWithBody,
        )
    }
}

/// RequestStateChunk (24).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestStateChunkHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    offset: U64,
    group: U64,
    length: U32,
    artifact: U32,
    reserved: [u8; 88],
}

layout!(RequestStateChunkHeader {
    nonce 128, offset 144, group 152, length 160, artifact 164, reserved 168,
});
accessors!(RequestStateChunkHeader {
    /// Names the session.
    nonce / set_nonce: u128,
    /// Byte offset in the artifact.
    offset / set_offset: u64,
    /// The group.
    group / set_group: GroupId,
    /// Wanted length of the reply body, nonzero; the server may send less.
    length / set_length: u32,
    /// Index in the manifest.
    artifact / set_artifact: u32,
});

impl Header for RequestStateChunkHeader {
    const COMMANDS: &'static [Command] = &[Command::RequestStateChunk];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        require(self.length() != 0, FieldError::LengthZero)?;
        self.frame.require_header_only()
    }
}

/// StateChunk (25): artifact bytes as body.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StateChunkHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    offset: U64,
    group: U64,
    artifact: U32,
    reserved: [u8; 92],
}

layout!(StateChunkHeader { nonce 128, offset 144, group 152, artifact 160, reserved 164 });
accessors!(StateChunkHeader {
    /// Echo of the request.
    nonce / set_nonce: u128,
    /// Echo of the request.
    offset / set_offset: u64,
    /// The group.
    group / set_group: GroupId,
    /// Echo of the request.
    artifact / set_artifact: u32,
});

impl Header for StateChunkHeader {
    const COMMANDS: &'static [Command] = &[Command::StateChunk];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        require(
            self.frame.size() >= HEADER_SIZE as u32,
            FieldError::SizeBelowHeader,
        )
    }
}
