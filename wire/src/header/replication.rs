//! Headers of normal operation: prepare, prepare-ok, commit (chapter 01 sections 6.6 to 6.9).

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::client::check_operation;
use super::{FramePrefix, Header, RoutedRequestHeader, UndefinedByte, all_zero, require_zero};
use crate::checksum::{body_seal, prepare_identity};
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{Checksum, ClientId, GroupId, Op, RequestNumber};

/// Prepare (6) and its repair form RepairPrepare (19).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PrepareHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    parent: U128,
    request_checksum: U128,
    op: U64,
    commit: U64,
    timestamp: U64,
    request: U64,
    operation: u8,
    padding: [u8; 7],
    group: U64,
    user_id: U32,
    reserved: [u8; 28],
}

layout!(PrepareHeader {
    client 128, parent 144, request_checksum 160, op 176, commit 184, timestamp 192,
    request 200, operation 208, padding 209, group 216, user_id 224, reserved 228,
});
accessors!(PrepareHeader {
    /// Client whose request this is.
    client / set_client: ClientId,
    /// Identity of the previous prepare of this group; zero when there is none.
    parent / set_parent: Checksum,
    /// Verbatim from the admitted request; zero in register and logout prepares.
    request_checksum / set_request_checksum: Checksum,
    /// Position in the group's log.
    op / set_op: Op,
    /// The primary's commit point when the prepare was built.
    commit / set_commit: Op,
    /// Microseconds since the epoch, strictly increasing per primary.
    timestamp / set_timestamp: u64,
    /// Request number.
    request / set_request: RequestNumber,
    /// The group's own id.
    group / set_group: GroupId,
    /// Authenticated user.
    user_id / set_user_id: u32,
});
operation_accessors!(PrepareHeader);

impl PrepareHeader {
    /// A prepare header with what it takes over from an admitted request: client, request
    /// number, request checksum, operation, user, release and group.
    #[must_use]
    pub fn for_request(request: &RoutedRequestHeader) -> Self {
        let mut header = Self::new(Command::Prepare);
        header.frame.set_release(request.frame.release());
        header.set_client(request.client());
        header.set_request(request.request());
        header.set_request_checksum(request.request_checksum());
        header.set_operation(request.operation());
        header.set_user_id(request.user_id());
        header.set_group(request.group());
        header
    }

    /// The entry of a view-change suffix that says nothing about `op` (section 6.11).
    #[must_use]
    pub fn blank(op: Op) -> Self {
        let mut header = Self::new(Command::Prepare);
        header.frame.set_size(0);
        header.set_op(op);
        header
    }

    /// Whether all 256 bytes are those of the blank entry of this op.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        *self == Self::blank(self.op())
    }

    /// The identity this header should carry; the same for both command bytes.
    #[must_use]
    pub fn identity(&self) -> Checksum {
        prepare_identity(self.bytes())
    }

    /// Stamps the identity. Done once, by the primary that builds the prepare, after every
    /// other field including the body seal is final.
    pub fn stamp_identity(&mut self) {
        let identity = self.identity();
        self.frame.set_checksum(identity);
    }

    /// Whether the stored identity may be trusted: it matches, or it is zero, which means that
    /// no producer sealed it (section 7.2).
    #[must_use]
    pub fn identity_is_valid(&self) -> bool {
        self.frame.checksum().is_zero() || self.frame.checksum() == self.identity()
    }

    /// Whether `body` is what the body seal covers; an unstamped seal has nothing to say.
    #[must_use]
    pub fn body_seal_is_valid(&self, body: &[u8]) -> bool {
        let stored = self.frame.checksum_body();
        stored.is_zero() || stored == body_seal(body)
    }

    /// The same prepare as it goes out in repair, or came in from it: only byte 60 differs.
    #[must_use]
    pub fn with_command(mut self, command: Command) -> Self {
        assert!(
            Self::COMMANDS.contains(&command),
            "the command uses this layout"
        );
        self.frame.set_command(command);
        self
    }

    /// Whether both reserved regions are zero.
    #[must_use]
    pub fn reserved_is_zero(&self) -> bool {
        all_zero(self.frame.reserved_frame()) && all_zero(&self.reserved)
    }
}

impl Header for PrepareHeader {
    const COMMANDS: &'static [Command] = &[Command::Prepare, Command::RepairPrepare];
    const SEALED: bool = false;

    header_basics!();
    visit_operation!();

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        check_operation(self.operation, 208)
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_reserved_zero()?;
        require_zero(&self.reserved, 228)
    }
}

/// PrepareOk (7).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PrepareOkHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    parent: U128,
    prepare_checksum: U128,
    op: U64,
    commit: U64,
    timestamp: U64,
    request: U64,
    operation: u8,
    padding: [u8; 7],
    group: U64,
    reserved: [u8; 48],
}

layout!(PrepareOkHeader {
    parent 128, prepare_checksum 144, op 160, commit 168, timestamp 176, request 184,
    operation 192, padding 193, group 200, reserved 208,
});
accessors!(PrepareOkHeader {
    /// Echo.
    parent / set_parent: Checksum,
    /// Identity of the acknowledged prepare.
    prepare_checksum / set_prepare_checksum: Checksum,
    /// Echo.
    op / set_op: Op,
    /// The acknowledger's own commit point.
    commit / set_commit: Op,
    /// Echo.
    timestamp / set_timestamp: u64,
    /// Echo.
    request / set_request: RequestNumber,
    /// The group of the prepare.
    group / set_group: GroupId,
});
operation_accessors!(PrepareOkHeader);

impl PrepareOkHeader {
    /// The acknowledgement of `prepare` with every echoed field filled in; cluster, view,
    /// replica, commit and seal remain to be set.
    #[must_use]
    pub fn acknowledging(prepare: &PrepareHeader) -> Self {
        let mut header = Self::new(Command::PrepareOk);
        header.set_parent(prepare.parent());
        header.set_prepare_checksum(prepare.frame.checksum());
        header.set_op(prepare.op());
        header.set_timestamp(prepare.timestamp());
        header.set_request(prepare.request());
        header.set_operation(prepare.operation());
        header.set_group(prepare.group());
        header
    }
}

impl Header for PrepareOkHeader {
    const COMMANDS: &'static [Command] = &[Command::PrepareOk];
    const SEALED: bool = true;

    header_basics!();
    visit_operation!();

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        check_operation(self.operation, 192)
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()
    }
}

/// Commit (9): commit point and heartbeat of the primary.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommitHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    commit_checksum: U128,
    timestamp_monotonic: U64,
    commit: U64,
    checkpoint_op: U64,
    group: U64,
    reserved: [u8; 80],
}

layout!(CommitHeader {
    commit_checksum 128, timestamp_monotonic 144, commit 152, checkpoint_op 160, group 168,
    reserved 176,
});
accessors!(CommitHeader {
    /// Unused, zero.
    commit_checksum / set_commit_checksum: Checksum,
    /// Liveness token: only a strictly greater value counts.
    timestamp_monotonic / set_timestamp_monotonic: u64,
    /// Commit point of the primary.
    commit / set_commit: Op,
    /// Unused, zero.
    checkpoint_op / set_checkpoint_op: Op,
    /// The group.
    group / set_group: GroupId,
});

impl Header for CommitHeader {
    const COMMANDS: &'static [Command] = &[Command::Commit];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_header_only()
    }
}
