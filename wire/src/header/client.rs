//! Headers of the client plane: request, routed request, reply, eviction
//! (chapter 01 sections 6.2 to 6.5).

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, UndefinedByte, require, require_zero};
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{Checksum, ClientId, GroupId, Op, RequestNumber};
use crate::operation::Operation;

/// Request (5) as a client sends it.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    request_checksum: U128,
    timestamp: U64,
    request: U64,
    operation: u8,
    padding: [u8; 7],
    session: U64,
    user_id: U32,
    code: U32,
    reserved: [u8; 56],
}

layout!(RequestHeader {
    client 128, request_checksum 144, timestamp 160, request 168, operation 176, padding 177,
    session 184, user_id 192, code 196, reserved 200,
});
accessors!(RequestHeader {
    /// Client-chosen random id, nonzero.
    client / set_client: ClientId,
    /// XXH3 of the body, or zero when the client did not stamp it.
    request_checksum / set_request_checksum: Checksum,
    /// Informational.
    timestamp / set_timestamp: u64,
    /// Request number.
    request / set_request: RequestNumber,
    /// Session epoch from the login reply.
    session / set_session: u64,
    /// Ignored on input; the server overwrites it with the authenticated user.
    user_id / set_user_id: u32,
    /// Command code of operation 2; zero otherwise.
    code / set_code: u32,
});
operation_accessors!(RequestHeader);

impl Header for RequestHeader {
    const COMMANDS: &'static [Command] = &[Command::Request];
    const SEALED: bool = false;

    header_basics!();
    visit_operation!();

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        check_operation(self.operation, 176)
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_request(
            self.client(),
            self.operation(),
            self.session(),
            self.request(),
        )
    }
}

/// Request (5) between the parts of a server and, in principle, between replicas: the same
/// bytes with the group at 248..256 (section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RoutedRequestHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    request_checksum: U128,
    timestamp: U64,
    request: U64,
    operation: u8,
    padding: [u8; 7],
    session: U64,
    user_id: U32,
    code: U32,
    reserved: [u8; 48],
    group: U64,
}

layout!(RoutedRequestHeader {
    client 128, request_checksum 144, timestamp 160, request 168, operation 176, padding 177,
    session 184, user_id 192, code 196, reserved 200, group 248,
});
accessors!(RoutedRequestHeader {
    /// Client id; after promotion the one the connection is bound to.
    client / set_client: ClientId,
    /// Verbatim from the client; never recomputed over a rewritten body.
    request_checksum / set_request_checksum: Checksum,
    /// Informational.
    timestamp / set_timestamp: u64,
    /// Request number.
    request / set_request: RequestNumber,
    /// Session epoch; after promotion the bound one.
    session / set_session: u64,
    /// Authenticated user.
    user_id / set_user_id: u32,
    /// Command code of operation 2; zero otherwise.
    code / set_code: u32,
    /// Group the request was resolved to. Zero is a real partition, see [`GroupId`].
    group / set_group: GroupId,
});
operation_accessors!(RoutedRequestHeader);

impl RoutedRequestHeader {
    /// Promotes a client header: every byte is kept except 248..256, where the client can put
    /// anything and the server puts the group it resolved.
    #[must_use]
    pub fn promote(request: &RequestHeader, group: GroupId) -> Self {
        let mut promoted = *Self::over(request.bytes());
        promoted.set_group(group);
        promoted
    }
}

impl Header for RoutedRequestHeader {
    const COMMANDS: &'static [Command] = &[Command::Request];
    const SEALED: bool = false;

    header_basics!();
    visit_operation!();

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        check_operation(self.operation, 176)
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_request(
            self.client(),
            self.operation(),
            self.session(),
            self.request(),
        )
    }
}

fn validate_request(
    client: ClientId,
    operation: Operation,
    session: u64,
    request: RequestNumber,
) -> Result<(), FieldError> {
    require(client != ClientId(0), FieldError::ClientZero)?;
    require(operation != Operation::Reserved, FieldError::OperationZero)?;
    match operation {
        Operation::Register => {
            require(session == 0, FieldError::SessionNotZero)?;
            require(request == RequestNumber(0), FieldError::RequestNotZero)
        }
        // A read repeats the current number and a ping may come before any login.
        Operation::NonReplicated => Ok(()),
        _ => {
            require(session != 0, FieldError::SessionZero)?;
            require(request != RequestNumber(0), FieldError::RequestZero)
        }
    }
}

pub(super) fn check_operation(byte: u8, offset: u8) -> Result<(), UndefinedByte> {
    match Operation::from_u8(byte) {
        Some(_) => Ok(()),
        None => Err(UndefinedByte {
            offset,
            value: byte,
            is_operation: true,
        }),
    }
}

/// Reply (8).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReplyHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    request_checksum: U128,
    context: U128,
    client: U128,
    op: U64,
    commit: U64,
    timestamp: U64,
    request: U64,
    operation: u8,
    padding: [u8; 7],
    status: U32,
    reserved: [u8; 36],
}

layout!(ReplyHeader {
    request_checksum 128, context 144, client 160, op 176, commit 184, timestamp 192,
    request 200, operation 208, padding 209, status 216, reserved 220,
});
accessors!(ReplyHeader {
    /// Echo of the request's checksum.
    request_checksum / set_request_checksum: Checksum,
    /// Always zero.
    context / set_context: u128,
    /// Client the reply is for.
    client / set_client: ClientId,
    /// Op of the prepare, or what section 14.3 says for replies without one.
    op / set_op: Op,
    /// Commit point; clients keep it as their metadata watermark.
    commit / set_commit: Op,
    /// Timestamp of the prepare, or an echo.
    timestamp / set_timestamp: u64,
    /// Echo of the request number.
    request / set_request: RequestNumber,
    /// Zero, or an error code and then the body is empty.
    status / set_status: u32,
});
operation_accessors!(ReplyHeader);

impl Header for ReplyHeader {
    const COMMANDS: &'static [Command] = &[Command::Reply];
    const SEALED: bool = false;

    header_basics!();
    visit_operation!();

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        check_operation(self.operation, 208)
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()
    }
}

/// Why a session ends (section 6.5). Undefined bytes are possible from later servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EvictionReason {
    /// Not a reason.
    Reserved = 0,
    /// No bound session, or the client table does not know the client.
    NoSession = 1,
    /// Not sent by this server.
    ClientReleaseTooLow = 2,
    /// Not sent by this server.
    ClientReleaseTooHigh = 3,
    /// An operation no client may send.
    InvalidRequestOperation = 4,
    /// The body of a metadata operation does not decode at preparation.
    InvalidRequestBody = 5,
    /// Not sent by this server.
    InvalidRequestBodySize = 6,
    /// The session was fenced by a newer login.
    SessionTooLow = 7,
    /// Not sent by this server.
    SessionReleaseMismatch = 8,
    /// Wrong user or password.
    InvalidCredentials = 9,
    /// Wrong or expired access token.
    InvalidToken = 10,
    /// The user is inactive.
    UserInactive = 11,
    /// Another terminal login failure.
    SessionError = 12,
    /// A consumer-group member missed its heartbeats.
    StaleClient = 13,
    /// The version gate refused the client; the header carries the window.
    IncompatibleProtocol = 14,
    /// The login body has no decodable version prefix or no known shape.
    MalformedLogin = 15,
}

impl EvictionReason {
    /// Every reason in numeric order.
    pub const ALL: [Self; 16] = [
        Self::Reserved,
        Self::NoSession,
        Self::ClientReleaseTooLow,
        Self::ClientReleaseTooHigh,
        Self::InvalidRequestOperation,
        Self::InvalidRequestBody,
        Self::InvalidRequestBodySize,
        Self::SessionTooLow,
        Self::SessionReleaseMismatch,
        Self::InvalidCredentials,
        Self::InvalidToken,
        Self::UserInactive,
        Self::SessionError,
        Self::StaleClient,
        Self::IncompatibleProtocol,
        Self::MalformedLogin,
    ];

    /// The reason of a byte; `None` when undefined.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// The byte of a reason.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

/// Eviction (13): terminal for the session, correlated with no request.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EvictionHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    version_max: U32,
    version_min: U32,
    reserved: [u8; 103],
    reason: u8,
}

layout!(EvictionHeader {
    client 128, version_max 144, version_min 148, reserved 152, reason 255,
});
accessors!(EvictionHeader {
    /// Client or transport id, nonzero.
    client / set_client: ClientId,
    /// Largest accepted packed protocol version; only with reason 14.
    version_max / set_version_max: u32,
    /// Smallest accepted packed protocol version; only with reason 14.
    version_min / set_version_min: u32,
});

impl EvictionHeader {
    /// The reason; an undefined byte reads as [`EvictionReason::Reserved`].
    #[must_use]
    pub fn reason(&self) -> EvictionReason {
        EvictionReason::from_u8(self.reason).unwrap_or(EvictionReason::Reserved)
    }

    /// Sets `reason`.
    pub fn set_reason(&mut self, reason: EvictionReason) {
        self.reason = reason.as_u8();
    }
}

impl Header for EvictionHeader {
    const COMMANDS: &'static [Command] = &[Command::Eviction];
    const SEALED: bool = false;

    header_basics!();

    fn visit_enumerations(&self, visit: &mut crate::FieldVisitor<'_>) {
        let reason = EvictionReason::from_u8(self.reason);
        visit(
            "reason",
            &format_args!("{:?}", crate::summary::Shown(reason)),
        );
    }

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        match EvictionReason::from_u8(self.reason) {
            Some(_) => Ok(()),
            None => Err(UndefinedByte {
                offset: 255,
                value: self.reason,
                is_operation: false,
            }),
        }
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.frame.require_header_only()?;
        require(self.client() != ClientId(0), FieldError::ClientZero)?;
        self.frame.require_reserved_zero()?;
        require_zero(&self.reserved, 152)?;
        require(
            self.reason() != EvictionReason::Reserved,
            FieldError::ReasonZero,
        )?;
        let (max, min) = (self.version_max(), self.version_min());
        if self.reason() == EvictionReason::IncompatibleProtocol {
            require(min != 0 && max >= min, FieldError::VersionWindowDegenerate)
        } else {
            require(min == 0 && max == 0, FieldError::VersionWindowUnexpected)
        }
    }
}
