//! The generic view and the three handshake frames, which share its freedom from rules
//! (chapter 01 sections 6.1 and 6.22).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FramePrefix, Header, all_zero};
use crate::command::Command;
use crate::error::FieldError;

/// Any header, before its command has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GenericHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    area: [u8; 128],
}

layout!(GenericHeader { area 128 });
accessors!(GenericHeader {
    /// The opaque per-command area, bytes 128..256.
    area / set_area: [u8; 128],
});

impl Header for GenericHeader {
    const COMMANDS: &'static [Command] = &Command::ALL;
    const SEALED: bool = false;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()
    }
}

/// Status byte of a challenge. Values 4 and 5 are labels for logs and are never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HandshakeStatus {
    /// Go on.
    Ok = 0,
    /// The first frame was not a hello.
    UnknownCommand = 1,
    /// The dialer belongs to another cluster.
    ClusterMismatch = 2,
    /// The dialer's id is not below the acceptor's, or is out of range.
    DirectionalRule = 3,
    /// The dialer sent no nonce although authentication is on.
    AuthRequired = 4,
    /// The keyed hash is wrong.
    MacMismatch = 5,
}

impl HandshakeStatus {
    /// The status of a byte; `None` when undefined, which reads as a rejection.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Ok),
            1 => Some(Self::UnknownCommand),
            2 => Some(Self::ClusterMismatch),
            3 => Some(Self::DirectionalRule),
            4 => Some(Self::AuthRequired),
            5 => Some(Self::MacMismatch),
            _ => None,
        }
    }
}

/// ReplicaHello (14), ReplicaChallenge (15) and ReplicaFinish (16).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HandshakeHeader {
    /// Bytes 0..128.
    pub frame: FramePrefix,
    nonce: [u8; 32],
    mac: [u8; 32],
    status: u8,
    reserved: [u8; 63],
}

layout!(HandshakeHeader { nonce 128, mac 160, status 192, reserved 193 });
accessors!(HandshakeHeader {
    /// Nonce of the sender; zero when it sends none.
    nonce / set_nonce: [u8; 32],
    /// Keyed hash of the sender; zero when it sends none.
    mac / set_mac: [u8; 32],
    /// Status byte of a challenge as it stands; anything but zero is a rejection.
    status / set_status: u8,
});

impl HandshakeHeader {
    /// Whether a nonce is present: bytes 128..160 are not all zero.
    #[must_use]
    pub fn has_nonce(&self) -> bool {
        !all_zero(&self.nonce)
    }
}

impl Header for HandshakeHeader {
    const COMMANDS: &'static [Command] = &[
        Command::ReplicaHello,
        Command::ReplicaChallenge,
        Command::ReplicaFinish,
    ];
    const SEALED: bool = false;

    header_basics!();

    fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()
    }
}
