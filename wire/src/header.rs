//! The 256-byte headers as typed views over wire bytes (chapter 01 sections 4 and 6).
//!
//! Every header starts with [`FramePrefix`] and fills 256 bytes. The types are unaligned and
//! little-endian, so a header is read in place wherever it stands; constants assert the size of
//! each type and the offset of each field. Bytes that are enumerations stay bytes in the struct
//! and get typed getters, because a view over foreign bytes must be valid for every value.

use zerocopy::little_endian::{U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::HEADER_SIZE;
use crate::command::Command;
use crate::error::FieldError;
use crate::ids::{Checksum, ClusterId, ReplicaId, View};

/// Asserts the size of a header type and the offset of each of its own fields.
macro_rules! layout {
    ($name:ident { $($field:ident $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $crate::HEADER_SIZE);
            assert!(align_of::<$name>() == 1);
            assert!(std::mem::offset_of!($name, frame) == 0);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

/// Getters, setters, `new` and a terse `Debug` of a header type.
macro_rules! accessors {
    ($name:ident { $($(#[$meta:meta])* $field:ident / $set:ident : $view:ty),* $(,)? }) => {
        impl $name {
            /// A zeroed header of `command` with the size of a frame without body.
            ///
            /// # Panics
            ///
            /// When `command` does not use this layout.
            #[must_use]
            pub fn new(command: $crate::Command) -> Self {
                assert!(
                    <Self as $crate::Header>::COMMANDS.contains(&command),
                    "the command uses this layout"
                );
                let mut header = <Self as zerocopy::FromZeros>::new_zeroed();
                header.frame.set_size($crate::HEADER_SIZE as u32);
                header.frame.set_command(command);
                header
            }

            $(
                $(#[$meta])*
                #[must_use]
                pub fn $field(&self) -> $view {
                    self.$field.into()
                }

                #[doc = concat!("Sets `", stringify!($field), "`.")]
                pub fn $set(&mut self, value: $view) {
                    self.$field = value.into();
                }
            )*
        }

        impl $name {
            // A request is shown by its client layout, so that of the routed one stays unused.
            #[allow(dead_code)]
            pub(crate) fn visit_fields(&self, visit: &mut $crate::FieldVisitor<'_>) {
                $(visit(stringify!($field), &$crate::summary::Shown(self.$field()));)*
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("frame", &self.frame)
                    $(.field(stringify!($field), &self.$field()))*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// The shared part of every `Header` implementation.
macro_rules! header_basics {
    () => {
        fn frame(&self) -> &$crate::FramePrefix {
            &self.frame
        }

        fn frame_mut(&mut self) -> &mut $crate::FramePrefix {
            &mut self.frame
        }
    };
}

/// Shows the operation byte among the fields of a header.
macro_rules! visit_operation {
    () => {
        fn visit_enumerations(&self, visit: &mut $crate::FieldVisitor<'_>) {
            match $crate::Operation::from_u8(self.operation) {
                Some(operation) => visit("operation", &operation),
                None => visit("operation", &format_args!("undefined({})", self.operation)),
            }
        }
    };
}

/// The operation byte of a header: typed getter, raw getter and setter.
macro_rules! operation_accessors {
    ($name:ident) => {
        impl $name {
            /// The operation. An undefined byte reads as [`Operation::Reserved`], which no
            /// plane claims; a frame that passed typed decode holds a defined one.
            ///
            /// [`Operation::Reserved`]: crate::Operation::Reserved
            #[must_use]
            pub fn operation(&self) -> $crate::Operation {
                $crate::Operation::from_u8(self.operation).unwrap_or($crate::Operation::Reserved)
            }

            /// The operation byte as it stands.
            #[must_use]
            pub fn operation_byte(&self) -> u8 {
                self.operation
            }

            /// Sets `operation`.
            pub fn set_operation(&mut self, operation: $crate::Operation) {
                self.operation = operation.as_u8();
            }
        }
    };
}

mod client;
mod forward;
mod handshake;
mod repair;
mod replication;
mod transfer;
mod view_change;

pub use client::{EvictionHeader, EvictionReason, ReplyHeader, RequestHeader, RoutedRequestHeader};
pub use forward::{
    ForwardLogoutHeader, ForwardLogoutOutcome, ForwardLogoutResultHeader, ForwardRegisterHeader,
    ForwardRegisterOutcome, ForwardRegisterResultHeader,
};
pub use handshake::{GenericHeader, HandshakeHeader, HandshakeStatus};
pub use repair::{RepairRangeReplyHeader, RequestPreparesHeader};
pub use replication::{CommitHeader, PrepareHeader, PrepareOkHeader};
pub use transfer::{
    RequestStateChunkHeader, RequestStateTransferHeader, StateChunkHeader,
    StateTransferTargetHeader,
};
pub use view_change::{
    DoViewChangeHeader, RequestStartViewHeader, StartViewChangeHeader, StartViewHeader,
};

/// A byte outside its closed set, found before seal and fields are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndefinedByte {
    /// Offset in the header.
    pub offset: u8,
    /// The byte found there.
    pub value: u8,
    /// Whether it is the operation byte, which gets the treatment of section 5 step 2a.
    pub is_operation: bool,
}

/// A typed 256-byte header.
pub trait Header:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + 'static
{
    /// The commands that use this layout.
    const COMMANDS: &'static [Command];
    /// Whether the header carries a frame seal.
    const SEALED: bool;

    /// The common prefix.
    fn frame(&self) -> &FramePrefix;

    /// The common prefix, writable.
    fn frame_mut(&mut self) -> &mut FramePrefix;

    /// The closed-set check of section 5 step 2.
    ///
    /// # Errors
    ///
    /// The first enumerated byte with an undefined value.
    fn closed_sets(&self) -> Result<(), UndefinedByte> {
        Ok(())
    }

    /// The field rules of section 6, in their order; includes the command rule.
    ///
    /// # Errors
    ///
    /// The first rule the header breaks.
    fn validate(&self) -> Result<(), FieldError>;

    /// The fields that are enumerations or flags, as words: name and value.
    fn visit_enumerations(&self, visit: &mut crate::FieldVisitor<'_>) {
        let _ = visit;
    }

    /// The header as wire bytes.
    fn bytes(&self) -> &[u8; HEADER_SIZE] {
        const { assert!(size_of::<Self>() == HEADER_SIZE) };
        match self.as_bytes().try_into() {
            Ok(bytes) => bytes,
            Err(_) => unreachable!("every header type is 256 bytes"),
        }
    }

    /// A typed view over wire bytes, without any check.
    fn over(bytes: &[u8; HEADER_SIZE]) -> &Self {
        const { assert!(size_of::<Self>() == HEADER_SIZE) };
        match Self::ref_from_bytes(bytes) {
            Ok(header) => header,
            Err(_) => unreachable!("every header type is 256 unaligned bytes"),
        }
    }

    /// The rule that opens every list: the command byte is one of [`Header::COMMANDS`].
    ///
    /// # Errors
    ///
    /// [`FieldError::Command`].
    fn validate_command(&self) -> Result<(), FieldError> {
        match Command::from_u8(self.frame().command_byte()) {
            Some(command) if Self::COMMANDS.contains(&command) => Ok(()),
            _ => Err(FieldError::Command),
        }
    }
}

/// The first 128 bytes of every header (section 4).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FramePrefix {
    checksum: U128,
    checksum_body: U128,
    cluster: U128,
    size: U32,
    view: U32,
    release: U32,
    command: u8,
    replica: u8,
    reserved_frame: [u8; 66],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<FramePrefix>() == 128);
    assert!(offset_of!(FramePrefix, checksum_body) == 16);
    assert!(offset_of!(FramePrefix, cluster) == 32);
    assert!(offset_of!(FramePrefix, size) == 48);
    assert!(offset_of!(FramePrefix, view) == 52);
    assert!(offset_of!(FramePrefix, release) == 56);
    assert!(offset_of!(FramePrefix, command) == 60);
    assert!(offset_of!(FramePrefix, replica) == 61);
    assert!(offset_of!(FramePrefix, reserved_frame) == 62);
};

macro_rules! prefix_fields {
    ($($(#[$meta:meta])* $field:ident / $set:ident : $view:ty),* $(,)?) => {
        impl FramePrefix {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $field(&self) -> $view {
                    self.$field.into()
                }

                #[doc = concat!("Sets `", stringify!($field), "`.")]
                pub fn $set(&mut self, value: $view) {
                    self.$field = value.into();
                }
            )*

            pub(crate) fn visit_fields(&self, visit: &mut crate::FieldVisitor<'_>) {
                visit("command", &self.command());
                $(visit(stringify!($field), &crate::summary::Shown(self.$field()));)*
            }
        }
    };
}

prefix_fields! {
    /// Frame seal, prepare identity, or zero.
    checksum / set_checksum: Checksum,
    /// Body seal or zero.
    checksum_body / set_checksum_body: Checksum,
    /// The cluster the sender belongs to.
    cluster / set_cluster: ClusterId,
    /// Length of the whole frame in bytes, header included.
    size / set_size: u32,
    /// View of the sender, where its frame kind stamps one.
    view / set_view: View,
    /// Zero on everything this server originates; a prepare copies it from the request.
    release / set_release: u32,
    /// Replica id of the sender; of the original primary on a prepare.
    replica / set_replica: ReplicaId,
}

impl FramePrefix {
    /// The command. An undefined byte reads as [`Command::Reserved`], which is dropped
    /// everywhere; a frame that passed the generic check holds a defined one.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::from_u8(self.command).unwrap_or(Command::Reserved)
    }

    /// The command byte as it stands.
    #[must_use]
    pub fn command_byte(&self) -> u8 {
        self.command
    }

    /// Sets `command`.
    pub fn set_command(&mut self, command: Command) {
        self.command = command.as_u8();
    }

    /// The 66 bytes at 62..128.
    #[must_use]
    pub fn reserved_frame(&self) -> &[u8; 66] {
        &self.reserved_frame
    }

    /// Length of the body the size field announces; zero when the size is below a header.
    #[must_use]
    pub fn body_size(&self) -> u32 {
        self.size().saturating_sub(HEADER_SIZE as u32)
    }

    pub(crate) fn require_header_only(&self) -> Result<(), FieldError> {
        require(
            self.size() == HEADER_SIZE as u32,
            FieldError::SizeNotHeaderOnly,
        )
    }

    pub(crate) fn require_no_release(&self) -> Result<(), FieldError> {
        require(self.release() == 0, FieldError::ReleaseNotZero)
    }

    pub(crate) fn require_reserved_zero(&self) -> Result<(), FieldError> {
        require_zero(&self.reserved_frame, 62)
    }
}

impl std::fmt::Debug for FramePrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FramePrefix")
            .field("command", &self.command())
            .field("size", &self.size())
            .field("view", &self.view())
            .field("replica", &self.replica())
            .field("checksum", &format_args!("{:016x}", self.checksum().0))
            .finish_non_exhaustive()
    }
}

pub(crate) fn require(holds: bool, otherwise: FieldError) -> Result<(), FieldError> {
    if holds { Ok(()) } else { Err(otherwise) }
}

pub(crate) fn require_zero(bytes: &[u8], offset: u8) -> Result<(), FieldError> {
    require(all_zero(bytes), FieldError::ReservedNotZero { offset })
}

/// Whether every byte is zero, without a branch per byte.
pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |seen, byte| seen | byte) == 0
}
