//! Headers of a view change (chapter 01 sections 6.10 to 6.13).

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, require};
use crate::HEADER_SIZE;
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{GroupId, Op, View};
use crate::suffix::SUFFIX_ENTRIES_MAX;

/// StartViewChange (10).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StartViewChangeHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    group: U64,
    reserved: [u8; 120],
}

layout!(StartViewChangeHeader { group 128, reserved 136 });
accessors!(StartViewChangeHeader {
    /// The group.
    group / set_group: GroupId,
});

impl Header for StartViewChangeHeader {
    const COMMANDS: &'static [Command] = &[Command::StartViewChange];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_no_release()
    }
}

/// DoViewChange (11): a vote with the sender's log suffix as body.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DoViewChangeHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    op: U64,
    commit: U64,
    group: U64,
    log_view: U32,
    reserved: [u8; 68],
    nack_bitset: U128,
    present_bitset: U128,
}

layout!(DoViewChangeHeader {
    op 128, commit 136, group 144, log_view 152, reserved 156, nack_bitset 224,
    present_bitset 240,
});
accessors!(DoViewChangeHeader {
    /// Highest op in the sender's log.
    op / set_op: Op,
    /// The sender's commit point.
    commit / set_commit: Op,
    /// The group.
    group / set_group: GroupId,
    /// View in which the sender's log was last authoritative.
    log_view / set_log_view: View,
    /// Bit i: the sender never acknowledged the op of entry i.
    nack_bitset / set_nack_bitset: u128,
    /// Bit i: the sender holds the body of entry i.
    present_bitset / set_present_bitset: u128,
});

impl Header for DoViewChangeHeader {
    const COMMANDS: &'static [Command] = &[Command::DoViewChange];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_no_release()?;
        require(
            self.log_view() <= self.frame.view(),
            FieldError::LogViewAfterView,
        )?;
        require(self.commit() <= self.op(), FieldError::CommitAfterOp)?;
        let entries = validate_suffix_size(&self.frame)?;
        // A shift by 128 is not a shift; a full suffix has no bit out of range.
        let out_of_range = u128::MAX.checked_shl(entries).unwrap_or(0);
        let bits = self.nack_bitset() | self.present_bitset();
        require(bits & out_of_range == 0, FieldError::BitBeyondEntries)
    }
}

/// StartView (12): the log suffix of a new view, or numbers only.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StartViewHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    op: U64,
    commit: U64,
    group: U64,
    reserved: [u8; 88],
    incarnation: U128,
}

layout!(StartViewHeader { op 128, commit 136, group 144, reserved 152, incarnation 240 });
accessors!(StartViewHeader {
    /// Highest op of the view's log.
    op / set_op: Op,
    /// Commit point of the new primary.
    commit / set_commit: Op,
    /// The group.
    group / set_group: GroupId,
    /// Echo of the probe; zero when unsolicited.
    incarnation / set_incarnation: u128,
});

impl Header for StartViewHeader {
    const COMMANDS: &'static [Command] = &[Command::StartView];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_no_release()?;
        require(self.commit() <= self.op(), FieldError::CommitAfterOp)?;
        validate_suffix_size(&self.frame).map(|_| ())
    }
}

/// RequestStartView (17): the probe of a recovering replica.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestStartViewHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    group: U64,
    reserved: [u8; 104],
    incarnation: U128,
}

layout!(RequestStartViewHeader { group 128, reserved 136, incarnation 240 });
accessors!(RequestStartViewHeader {
    /// The group.
    group / set_group: GroupId,
    /// Per-boot value of the requester; zero claims nothing.
    incarnation / set_incarnation: u128,
});

impl Header for RequestStartViewHeader {
    const COMMANDS: &'static [Command] = &[Command::RequestStartView];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_no_release()
    }
}

/// The size rules shared by the two frames with a suffix; the number of entries.
fn validate_suffix_size(frame: &FramePrefix) -> Result<u32, FieldError> {
    let header_size = HEADER_SIZE as u32;
    require(frame.size() >= header_size, FieldError::SizeBelowHeader)?;
    let body = frame.body_size();
    require(
        body.is_multiple_of(header_size),
        FieldError::BodyNotWholeHeaders,
    )?;
    let entries = body / header_size;
    require(
        entries <= SUFFIX_ENTRIES_MAX as u32,
        FieldError::TooManyEntries,
    )?;
    Ok(entries)
}
