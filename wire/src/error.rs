//! Why bytes are not a frame, a frame is not acceptable, or a body does not decode.
//!
//! Errors compare by value so that a test names the exact reason. Three levels are kept apart:
//! [`CloseReason`] ends the connection, [`Refusal`] costs the frame alone, and [`DecodeError`]
//! is about the inside of a body, where the answer depends on who asked.

use thiserror::Error;

use crate::batch::BatchError;
use crate::command::Command;
use crate::ids::Checksum;

/// Why a byte stream can no longer be read as frames (chapter 01 section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// The size field is below a header or above the configured maximum.
    #[error("frame size {size} is outside 256..={size_max}")]
    BadSize {
        /// The size field.
        size: u32,
        /// The limit that applied.
        size_max: u32,
    },
    /// The command byte is above 29.
    #[error("command byte {byte} is undefined")]
    BadCommand {
        /// The byte at offset 60.
        byte: u8,
    },
    /// The stream ended inside a frame.
    #[error("stream ended {have} bytes into a frame")]
    EndInsideFrame {
        /// Bytes of the unfinished frame that had arrived.
        have: usize,
    },
}

impl CloseReason {
    /// The label of chapter 01 section 1.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::BadSize { .. } => "BAD_SIZE",
            Self::BadCommand { .. } => "BAD_ENUM",
            Self::EndInsideFrame { .. } => "END_INSIDE_FRAME",
        }
    }
}

/// A rule of chapter 01 section 6 that a header breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The command byte does not use this layout.
    #[error("the command does not use this layout")]
    Command,
    /// `client` must be nonzero.
    #[error("client is zero")]
    ClientZero,
    /// `operation` must be nonzero.
    #[error("operation is zero")]
    OperationZero,
    /// A register carries no session.
    #[error("a register names a session")]
    SessionNotZero,
    /// A register is request zero.
    #[error("a register has a request number")]
    RequestNotZero,
    /// `session` must be nonzero.
    #[error("session is zero")]
    SessionZero,
    /// `request` must be nonzero.
    #[error("request number is zero")]
    RequestZero,
    /// A reserved region that is checked is not zero.
    #[error("reserved bytes from {offset} are not zero")]
    ReservedNotZero {
        /// Offset of the region in the header.
        offset: u8,
    },
    /// The frame must be a header without body.
    #[error("the size is not that of a header alone")]
    SizeNotHeaderOnly,
    /// The size is below that of a header.
    #[error("the size is below that of a header")]
    SizeBelowHeader,
    /// `release` must be zero.
    #[error("release is not zero")]
    ReleaseNotZero,
    /// `log_view` must not exceed `view`.
    #[error("log view is after the view")]
    LogViewAfterView,
    /// `commit` must not exceed `op`.
    #[error("commit is after op")]
    CommitAfterOp,
    /// The suffix is not a multiple of a header.
    #[error("the body is not made of whole headers")]
    BodyNotWholeHeaders,
    /// The suffix has more than 128 entries.
    #[error("the suffix has more than 128 entries")]
    TooManyEntries,
    /// A bit speaks about an entry that is not there.
    #[error("a bit is set beyond the entries of the suffix")]
    BitBeyondEntries,
    /// `from_op` must be nonzero.
    #[error("the range starts at op zero")]
    RangeStartZero,
    /// `from_op` must not exceed `to_op`.
    #[error("the range ends before it starts")]
    RangeReversed,
    /// `available` must be 0 or 1.
    #[error("available is not a boolean")]
    AvailableNotBoolean,
    /// `unavailable_transient` must be 0 or 1.
    #[error("unavailable_transient is not a boolean")]
    TransientNotBoolean,
    /// An offer cannot be a transient refusal.
    #[error("both available and unavailable_transient are set")]
    AvailableAndTransient,
    /// A refusal has no body.
    #[error("a refusal has a body")]
    RefusalWithBody,
    /// `len` must be nonzero.
    #[error("the wanted length is zero")]
    LengthZero,
    /// `nonce` must be nonzero.
    #[error("nonce is zero")]
    NonceZero,
    /// A failed outcome carries no numbers.
    #[error("a failed outcome carries numbers")]
    FailureWithNumbers,
    /// `reason` must be nonzero.
    #[error("eviction reason is zero")]
    ReasonZero,
    /// Reason 14 needs a window with 1 <= min <= max.
    #[error("the protocol version window is degenerate")]
    VersionWindowDegenerate,
    /// Only reason 14 carries a window.
    #[error("a protocol version window without its reason")]
    VersionWindowUnexpected,
}

/// What to do with the connection a refused frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Discard the frame, keep the connection, send nothing.
    Drop,
    /// Tear the connection down, send nothing.
    Close,
}

/// Why a whole frame is not acceptable (chapter 01 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The generic check failed.
    #[error(transparent)]
    Generic(#[from] CloseReason),
    /// A command that has no business on this plane.
    #[error("{command} does not belong on this plane")]
    WrongCommand {
        /// The command of the frame.
        command: Command,
    },
    /// A command only a client receives.
    #[error("{command} is bound for a client")]
    ClientBound {
        /// The command of the frame.
        command: Command,
    },
    /// An enumerated byte has an undefined value.
    #[error("{command}: byte {value} at {offset} is undefined")]
    BadEnum {
        /// The command of the frame.
        command: Command,
        /// Offset of the byte in the header.
        offset: u8,
        /// The byte.
        value: u8,
    },
    /// An authentic frame of a later generation: the operation byte is undefined here.
    #[error("{command}: operation {operation} is not known to this release")]
    UnknownOperation {
        /// The command of the frame.
        command: Command,
        /// The operation byte.
        operation: u8,
    },
    /// The frame seal is wrong; a zero seal is wrong too.
    #[error("{command}: stored seal {stored} but computed {computed}")]
    Seal {
        /// The command of the frame.
        command: Command,
        /// What the header says.
        stored: Checksum,
        /// What its bytes hash to.
        computed: Checksum,
    },
    /// A field rule is broken.
    #[error("{command}: {rule}")]
    Field {
        /// The command of the frame.
        command: Command,
        /// The first rule that failed.
        rule: FieldError,
    },
}

impl Refusal {
    /// The label of chapter 01 section 1.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Generic(reason) => reason.label(),
            Self::WrongCommand { .. } => "WRONG_COMMAND",
            Self::ClientBound { .. } => "CLIENT_BOUND",
            Self::BadEnum { .. } => "BAD_ENUM",
            Self::UnknownOperation { .. } => "UNKNOWN_OP",
            Self::Seal { .. } => "SEAL",
            Self::Field { .. } => "FIELD",
        }
    }

    /// Only the generic check closes; everything else costs the frame alone.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Generic(_) => Disposition::Close,
            _ => Disposition::Drop,
        }
    }
}

/// Why bytes inside a frame do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] CloseReason),
    /// The bytes end before the field does.
    #[error("truncated: {field} needs {need} bytes and {have} are left")]
    Truncated {
        /// What was being read.
        field: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// Bytes are left where the encoding must end.
    #[error("{left} bytes are left after {field}")]
    Trailing {
        /// What had been read.
        field: &'static str,
        /// Bytes left.
        left: usize,
    },
    /// A length is not one the encoding allows.
    #[error("{field} has length {length}")]
    Length {
        /// What was being read.
        field: &'static str,
        /// The length.
        length: u64,
    },
    /// A value is outside its closed set.
    #[error("{field} has the undefined value {value}")]
    Undefined {
        /// What was being read.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// Text is not UTF-8.
    #[error("{field} is not UTF-8")]
    Utf8 {
        /// What was being read.
        field: &'static str,
    },
    /// A relation between fields does not hold.
    #[error(transparent)]
    Rule(#[from] BodyRule),
    /// The batch of a send is not acceptable.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// A relation between the fields of a body that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyRule {
    /// A TLV block has an odd number of fields.
    #[error("a key without a value")]
    KeyWithoutValue,
    /// Two options have the same key, byte for byte.
    #[error("an option key appears twice")]
    OptionTwice,
    /// A record of a list took no bytes, so the list would never end.
    #[error("a list of records without length")]
    EmptyRecord,
    /// "All" stands beside other types in a snapshot request.
    #[error("all snapshot types and others")]
    AllTypesAndOthers,
    /// The operation is rewritten before replication, or is none of the metadata plane.
    #[error("the operation is not a metadata prepare")]
    NotAMetadataPrepare,
}
