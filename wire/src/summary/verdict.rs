//! Whether the checksums of a frame hold: what a receiver would find, in the order it looks.

use std::fmt;

use super::{Summary, by_command};
use crate::batch::{Batch, Verify};
use crate::checksum::body_seal;
use crate::command::Command;
use crate::decode::decode_header;
use crate::error::Refusal;
use crate::header::{
    CommitHeader, DoViewChangeHeader, EvictionHeader, ForwardLogoutHeader,
    ForwardLogoutResultHeader, ForwardRegisterHeader, ForwardRegisterResultHeader, GenericHeader,
    HandshakeHeader, Header, PrepareHeader, PrepareOkHeader, RepairRangeReplyHeader, ReplyHeader,
    RequestHeader, RequestPreparesHeader, RequestStartViewHeader, RequestStateChunkHeader,
    RequestStateTransferHeader, StartViewChangeHeader, StartViewHeader, StateChunkHeader,
    StateTransferTargetHeader,
};
use crate::manifest::Manifest;
use crate::operation::Operation;
use crate::suffix::check_suffix_body_seal;

/// What a checksum of a frame covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedPart {
    /// The header, by the frame seal.
    Seal,
    /// The header of a prepare, by its identity.
    Identity,
    /// The body, by `checksum_body`.
    BodySeal,
    /// A message batch, by its own checksums at both levels.
    Batch,
    /// A state manifest, by its trailing hash.
    Manifest,
    /// The body of a request, by the stamp of the client.
    Stamp,
}

impl fmt::Display for CheckedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seal => "seal",
            Self::Identity => "identity",
            Self::BodySeal => "body",
            Self::Batch => "batch",
            Self::Manifest => "manifest",
            Self::Stamp => "stamp",
        })
    }
}

/// What a receiver would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame carries no checksum, or only unstamped ones.
    Unsealed,
    /// What was checked holds: the header, and the body where something covers it.
    Sound(CheckedPart, Option<CheckedPart>),
    /// This part does not match its checksum.
    Broken(CheckedPart),
    /// Typed decode refuses the header for another reason than its seal.
    Refused(Refusal),
}

impl Verdict {
    /// Whether a receiver would take the frame as it stands.
    #[must_use]
    pub const fn is_acceptable(&self) -> bool {
        matches!(self, Self::Unsealed | Self::Sound(..))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsealed => f.write_str("no seal"),
            Self::Sound(part, None) => write!(f, "{part} ok"),
            Self::Sound(part, Some(other)) => write!(f, "{part} ok, {other} ok"),
            Self::Broken(part) => write!(f, "BAD {part}"),
            Self::Refused(refusal) => write!(f, "REFUSED {}: {refusal}", refusal.label()),
        }
    }
}

impl Summary<'_> {
    /// Runs the checks a receiver makes.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let command = self.command();
        let decoded = by_command!(command, H => decode_header::<H>(self.header).map(|_| H::SEALED));
        let sealed = match decoded {
            Ok(sealed) => sealed,
            Err(Refusal::Seal { .. }) => return Verdict::Broken(CheckedPart::Seal),
            Err(refusal) => return Verdict::Refused(refusal),
        };
        match command {
            Command::Request => self.request_verdict(),
            Command::Prepare | Command::RepairPrepare => self.prepare_verdict(),
            Command::DoViewChange | Command::StartView => self.suffix_verdict(),
            Command::StateTransferTarget => self.target_verdict(),
            _ if sealed => Verdict::Sound(CheckedPart::Seal, None),
            _ => Verdict::Unsealed,
        }
    }

    fn request_verdict(&self) -> Verdict {
        let stamp = self.over::<RequestHeader>().request_checksum();
        if stamp.is_zero() {
            Verdict::Unsealed
        } else if stamp == body_seal(self.body) {
            Verdict::Sound(CheckedPart::Stamp, None)
        } else {
            Verdict::Broken(CheckedPart::Stamp)
        }
    }

    fn prepare_verdict(&self) -> Verdict {
        let header = self.over::<PrepareHeader>();
        if !header.identity_is_valid() {
            return Verdict::Broken(CheckedPart::Identity);
        }
        if !header.body_seal_is_valid(self.body) {
            return Verdict::Broken(CheckedPart::BodySeal);
        }
        let mut of_body = None;
        if !header.frame.checksum_body().is_zero() {
            of_body = Some(CheckedPart::BodySeal);
        } else if header.operation() == Operation::SendMessages {
            if Batch::decode(self.body, Verify::Checksums).is_err() {
                return Verdict::Broken(CheckedPart::Batch);
            }
            of_body = Some(CheckedPart::Batch);
        }
        match (header.frame.checksum().is_zero(), of_body) {
            (false, of_body) => Verdict::Sound(CheckedPart::Identity, of_body),
            (true, Some(part)) => Verdict::Sound(part, None),
            (true, None) => Verdict::Unsealed,
        }
    }

    fn suffix_verdict(&self) -> Verdict {
        let stored = self.over::<GenericHeader>().frame.checksum_body();
        match check_suffix_body_seal(stored, self.body) {
            Ok(()) if self.body.is_empty() => Verdict::Sound(CheckedPart::Seal, None),
            Ok(()) => Verdict::Sound(CheckedPart::Seal, Some(CheckedPart::BodySeal)),
            Err(_) => Verdict::Broken(CheckedPart::BodySeal),
        }
    }

    fn target_verdict(&self) -> Verdict {
        if !self.over::<StateTransferTargetHeader>().available() {
            return Verdict::Sound(CheckedPart::Seal, None);
        }
        match Manifest::decode(self.body) {
            Ok(_) => Verdict::Sound(CheckedPart::Seal, Some(CheckedPart::Manifest)),
            Err(_) => Verdict::Broken(CheckedPart::Manifest),
        }
    }
}
