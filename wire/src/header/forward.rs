//! Headers that carry a login or logout from a backup to the primary and its outcome back
//! (chapter 01 sections 6.20 and 6.21).
//!
//! Two traps of the layout: `client` and `nonce` swap places between request and result, and
//! the two outcome enumerations number the same words differently.

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, UndefinedByte, require, require_zero};
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{ClientId, Op, RequestNumber};

/// Outcome of a forwarded register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForwardRegisterOutcome {
    /// Committed.
    Ok = 0,
    /// The receiver is not the primary.
    NotPrimary = 1,
    /// Defined and never produced.
    NotCaughtUp = 2,
    /// No room; may be tried again.
    PipelineFull = 3,
    /// A register of this client is under way.
    InProgress = 4,
    /// Cancelled by a view change.
    Canceled = 5,
    /// The only terminal failure.
    ClientIdOwnedByAnotherUser = 6,
}

impl ForwardRegisterOutcome {
    /// Every outcome in numeric order.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::NotPrimary,
        Self::NotCaughtUp,
        Self::PipelineFull,
        Self::InProgress,
        Self::Canceled,
        Self::ClientIdOwnedByAnotherUser,
    ];

    /// The outcome of a byte; `None` when undefined.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Outcome of a forwarded logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForwardLogoutOutcome {
    /// Committed.
    Ok = 0,
    /// The receiver is not the primary.
    NotPrimary = 1,
    /// No room; may be tried again.
    PipelineFull = 2,
    /// A logout of this client is under way.
    InProgress = 3,
    /// Cancelled by a view change.
    Canceled = 4,
}

impl ForwardLogoutOutcome {
    /// Every outcome in numeric order.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::NotPrimary,
        Self::PipelineFull,
        Self::InProgress,
        Self::Canceled,
    ];

    /// The outcome of a byte; `None` when undefined.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// ForwardRegister (26).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ForwardRegisterHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    nonce: U128,
    user_id: U32,
    reserved: [u8; 92],
}

layout!(ForwardRegisterHeader { client 128, nonce 144, user_id 160, reserved 164 });
accessors!(ForwardRegisterHeader {
    /// Client that logs in, nonzero.
    client / set_client: ClientId,
    /// Correlates the result, nonzero.
    nonce / set_nonce: u128,
    /// The identity the backup verified. Credentials never travel.
    user_id / set_user_id: u32,
});

impl Header for ForwardRegisterHeader {
    const COMMANDS: &'static [Command] = &[Command::ForwardRegister];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_forward(&self.frame, self.client(), self.nonce())?;
        require_zero(&self.reserved, 164)
    }
}

/// ForwardRegisterResult (27).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ForwardRegisterResultHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    client: U128,
    epoch: U64,
    watermark: U64,
    reserved: [u8; 79],
    outcome: u8,
}

layout!(ForwardRegisterResultHeader {
    nonce 128, client 144, epoch 160, watermark 168, reserved 176, outcome 255,
});
accessors!(ForwardRegisterResultHeader {
    /// Echo of the request.
    nonce / set_nonce: u128,
    /// Echo of the request.
    client / set_client: ClientId,
    /// Commit op of the register: the session epoch.
    epoch / set_epoch: u64,
    /// Highest committed request number of the client.
    watermark / set_watermark: RequestNumber,
});

impl ForwardRegisterResultHeader {
    /// The outcome; `None` when the byte is undefined, which typed decode rules out.
    #[must_use]
    pub fn outcome(&self) -> Option<ForwardRegisterOutcome> {
        ForwardRegisterOutcome::from_u8(self.outcome)
    }

    /// Sets `outcome`.
    pub fn set_outcome(&mut self, outcome: ForwardRegisterOutcome) {
        self.outcome = outcome as u8;
    }
}

impl Header for ForwardRegisterResultHeader {
    const COMMANDS: &'static [Command] = &[Command::ForwardRegisterResult];
    const SEALED: bool = true;

    header_basics!();

    fn visit_enumerations(&self, visit: &mut crate::FieldVisitor<'_>) {
        let outcome = crate::summary::Shown(self.outcome());
        visit("outcome", &format_args!("{outcome:?}"));
    }

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        match self.outcome() {
            Some(_) => Ok(()),
            None => Err(undefined_outcome(self.outcome)),
        }
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_forward(&self.frame, self.client(), self.nonce())?;
        require_zero(&self.reserved, 176)?;
        let numbers_zero = self.epoch() == 0 && self.watermark() == RequestNumber(0);
        require(
            self.outcome == 0 || numbers_zero,
            FieldError::FailureWithNumbers,
        )
    }
}

/// ForwardLogout (28).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ForwardLogoutHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    client: U128,
    nonce: U128,
    session: U64,
    request: U64,
    reserved: [u8; 80],
}

layout!(ForwardLogoutHeader { client 128, nonce 144, session 160, request 168, reserved 176 });
accessors!(ForwardLogoutHeader {
    /// Client that logs out, nonzero.
    client / set_client: ClientId,
    /// Correlates the result, nonzero.
    nonce / set_nonce: u128,
    /// Session that is closed, nonzero.
    session / set_session: u64,
    /// Request number of the logout, nonzero.
    request / set_request: RequestNumber,
});

impl Header for ForwardLogoutHeader {
    const COMMANDS: &'static [Command] = &[Command::ForwardLogout];
    const SEALED: bool = true;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_forward(&self.frame, self.client(), self.nonce())?;
        require_zero(&self.reserved, 176)?;
        require(self.session() != 0, FieldError::SessionZero)?;
        require(self.request() != RequestNumber(0), FieldError::RequestZero)
    }
}

/// ForwardLogoutResult (29).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ForwardLogoutResultHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: U128,
    client: U128,
    commit: U64,
    reserved: [u8; 87],
    outcome: u8,
}

layout!(ForwardLogoutResultHeader {
    nonce 128, client 144, commit 160, reserved 168, outcome 255,
});
accessors!(ForwardLogoutResultHeader {
    /// Echo of the request.
    nonce / set_nonce: u128,
    /// Echo of the request.
    client / set_client: ClientId,
    /// Commit op of the logout; zero on failure.
    commit / set_commit: Op,
});

impl ForwardLogoutResultHeader {
    /// The outcome; `None` when the byte is undefined, which typed decode rules out.
    #[must_use]
    pub fn outcome(&self) -> Option<ForwardLogoutOutcome> {
        ForwardLogoutOutcome::from_u8(self.outcome)
    }

    /// Sets `outcome`.
    pub fn set_outcome(&mut self, outcome: ForwardLogoutOutcome) {
        self.outcome = outcome as u8;
    }
}

impl Header for ForwardLogoutResultHeader {
    const COMMANDS: &'static [Command] = &[Command::ForwardLogoutResult];
    const SEALED: bool = true;

    header_basics!();

    fn visit_enumerations(&self, visit: &mut crate::FieldVisitor<'_>) {
        let outcome = crate::summary::Shown(self.outcome());
        visit("outcome", &format_args!("{outcome:?}"));
    }

    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        match self.outcome() {
            Some(_) => Ok(()),
            None => Err(undefined_outcome(self.outcome)),
        }
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        validate_forward(&self.frame, self.client(), self.nonce())?;
        require_zero(&self.reserved, 168)?;
        let number_zero = self.commit() == Op::ZERO;
        require(
            self.outcome == 0 || number_zero,
            FieldError::FailureWithNumbers,
        )
    }
}

fn undefined_outcome(value: u8) -> UndefinedByte {
    UndefinedByte {
        offset: 255,
        value,
        is_operation: false,
    }
}

fn validate_forward(frame: &FramePrefix, client: ClientId, nonce: u128) -> Result<(), FieldError> {
    frame.require_header_only()?;
    require(client != ClientId(0), FieldError::ClientZero)?;
    require(nonce != 0, FieldError::NonceZero)
}
