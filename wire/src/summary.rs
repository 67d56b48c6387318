//! A frame in words: one line for logs and test failures, its key numbers, all its header
//! fields, and whether its checksums hold. The `inspect` command of the server prints these.

use std::fmt;

use crate::HEADER_SIZE;
use crate::command::Command;
use crate::frame_ref::FrameRef;
use crate::header::{
    CommitHeader, DoViewChangeHeader, EvictionHeader, ForwardLogoutHeader,
    ForwardLogoutResultHeader, ForwardRegisterHeader, ForwardRegisterResultHeader, GenericHeader,
    HandshakeHeader, Header, PrepareHeader, PrepareOkHeader, RepairRangeReplyHeader, ReplyHeader,
    RequestHeader, RequestPreparesHeader, RequestStartViewHeader, RequestStateChunkHeader,
    RequestStateTransferHeader, StartViewChangeHeader, StartViewHeader, StateChunkHeader,
    StateTransferTargetHeader,
};
use crate::ids::{Checksum, ClientId, ClusterId, GroupId, Op, ReplicaId, RequestNumber, View};
use crate::message::Message;

mod verdict;

pub use verdict::{CheckedPart, Verdict};

/// Takes the name of a field and its value as text.
pub type FieldVisitor<'v> = dyn FnMut(&'static str, &dyn fmt::Display) + 'v;

/// Evaluates an expression with the header type of a command.
macro_rules! by_command {
    ($command:expr, $kind:ident => $each:expr) => {
        match $command {
            Command::Request => by_command!(@ RequestHeader, $kind => $each),
            Command::Prepare | Command::RepairPrepare => {
                by_command!(@ PrepareHeader, $kind => $each)
            }
            Command::PrepareOk => by_command!(@ PrepareOkHeader, $kind => $each),
            Command::Reply => by_command!(@ ReplyHeader, $kind => $each),
            Command::Commit => by_command!(@ CommitHeader, $kind => $each),
            Command::StartViewChange => by_command!(@ StartViewChangeHeader, $kind => $each),
            Command::DoViewChange => by_command!(@ DoViewChangeHeader, $kind => $each),
            Command::StartView => by_command!(@ StartViewHeader, $kind => $each),
            Command::Eviction => by_command!(@ EvictionHeader, $kind => $each),
            Command::ReplicaHello | Command::ReplicaChallenge | Command::ReplicaFinish => {
                by_command!(@ HandshakeHeader, $kind => $each)
            }
            Command::RequestStartView => by_command!(@ RequestStartViewHeader, $kind => $each),
            Command::RequestPrepares => by_command!(@ RequestPreparesHeader, $kind => $each),
            Command::RepairDone | Command::RangeEvicted => {
                by_command!(@ RepairRangeReplyHeader, $kind => $each)
            }
            Command::RequestStateTransfer => {
                by_command!(@ RequestStateTransferHeader, $kind => $each)
            }
            Command::StateTransferTarget => {
                by_command!(@ StateTransferTargetHeader, $kind => $each)
            }
            Command::RequestStateChunk => by_command!(@ RequestStateChunkHeader, $kind => $each),
            Command::StateChunk => by_command!(@ StateChunkHeader, $kind => $each),
            Command::ForwardRegister => by_command!(@ ForwardRegisterHeader, $kind => $each),
            Command::ForwardRegisterResult => {
                by_command!(@ ForwardRegisterResultHeader, $kind => $each)
            }
            Command::ForwardLogout => by_command!(@ ForwardLogoutHeader, $kind => $each),
            Command::ForwardLogoutResult => {
                by_command!(@ ForwardLogoutResultHeader, $kind => $each)
            }
            Command::Reserved
            | Command::Ping
            | Command::Pong
            | Command::PingClient
            | Command::PongClient => by_command!(@ GenericHeader, $kind => $each),
        }
    };
    (@ $header:ident, $kind:ident => $each:expr) => {{
        type $kind = $header;
        $each
    }};
}
use by_command;

/// Header and body of a frame, to be described. Nothing about them need hold.
#[derive(Clone, Copy)]
pub struct Summary<'a> {
    header: &'a [u8; HEADER_SIZE],
    body: &'a [u8],
}

/// The numbers that place a frame in the life of its group; `None` where its kind has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyNumbers {
    /// The group field as it stands, legal or not.
    pub group: Option<GroupId>,
    /// The op it is about; of a range, the last.
    pub op: Option<Op>,
    /// The commit point it carries.
    pub commit: Option<Op>,
}

impl<'a> Summary<'a> {
    /// What there is to say about a header and the body behind it.
    #[must_use]
    pub const fn new(header: &'a [u8; HEADER_SIZE], body: &'a [u8]) -> Self {
        Self { header, body }
    }

    fn over<H: Header>(&self) -> &'a H {
        H::over(self.header)
    }

    fn command(&self) -> Command {
        self.over::<GenericHeader>().frame.command()
    }

    /// View of the prefix, group, op and commit.
    #[must_use]
    pub fn key_numbers(&self) -> KeyNumbers {
        let mut numbers = KeyNumbers::default();
        match self.command() {
            Command::Prepare | Command::RepairPrepare => {
                let h = self.over::<PrepareHeader>();
                numbers.set(Some(h.group()), Some(h.op()), Some(h.commit()));
            }
            Command::PrepareOk => {
                let h = self.over::<PrepareOkHeader>();
                numbers.set(Some(h.group()), Some(h.op()), Some(h.commit()));
            }
            Command::Reply => {
                let h = self.over::<ReplyHeader>();
                numbers.set(None, Some(h.op()), Some(h.commit()));
            }
            Command::Commit => {
                let h = self.over::<CommitHeader>();
                numbers.set(Some(h.group()), None, Some(h.commit()));
            }
            Command::StartViewChange => {
                numbers.group = Some(self.over::<StartViewChangeHeader>().group());
            }
            Command::DoViewChange => {
                let h = self.over::<DoViewChangeHeader>();
                numbers.set(Some(h.group()), Some(h.op()), Some(h.commit()));
            }
            Command::StartView => {
                let h = self.over::<StartViewHeader>();
                numbers.set(Some(h.group()), Some(h.op()), Some(h.commit()));
            }
            Command::RequestStartView => {
                numbers.group = Some(self.over::<RequestStartViewHeader>().group());
            }
            _ => self.recovery_numbers(&mut numbers),
        }
        numbers
    }

    fn recovery_numbers(&self, numbers: &mut KeyNumbers) {
        match self.command() {
            Command::RequestPrepares => {
                let h = self.over::<RequestPreparesHeader>();
                numbers.set(Some(h.group()), Some(h.to_op()), None);
            }
            Command::RepairDone | Command::RangeEvicted => {
                let h = self.over::<RepairRangeReplyHeader>();
                numbers.set(Some(h.group()), Some(h.op()), None);
            }
            Command::RequestStateTransfer => {
                numbers.group = Some(self.over::<RequestStateTransferHeader>().group());
            }
            Command::StateTransferTarget => {
                let h = self.over::<StateTransferTargetHeader>();
                numbers.set(Some(h.group()), Some(h.commit_op()), Some(h.commit_max()));
            }
            Command::RequestStateChunk => {
                numbers.group = Some(self.over::<RequestStateChunkHeader>().group());
            }
            Command::StateChunk => {
                numbers.group = Some(self.over::<StateChunkHeader>().group());
            }
            // These have no group field and belong to the metadata group.
            Command::ForwardRegister
            | Command::ForwardRegisterResult
            | Command::ForwardLogout
            | Command::ForwardLogoutResult => numbers.group = Some(GroupId::METADATA),
            _ => {}
        }
    }

    /// Writes what sets this frame apart from others of its kind, key numbers left out: the
    /// operation, a range, a status. Begins with a blank, or is empty.
    ///
    /// # Errors
    ///
    /// When `out` fails.
    pub fn write_details(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match self.command() {
            Command::Request => {
                let h = self.over::<RequestHeader>();
                let (client, request) = (h.client().0, h.request());
                match (h.operation(), crate::ClientCode::from_u32(h.code())) {
                    (crate::Operation::NonReplicated, Some(code)) => write!(out, " {code:?}")?,
                    (operation, _) => write!(out, " {operation}")?,
                }
                write!(out, " client {client:x} request {request}")
            }
            Command::Prepare | Command::RepairPrepare => {
                let h = self.over::<PrepareHeader>();
                write!(out, " {} id {:016x}", h.operation(), h.frame.checksum().0)
            }
            Command::PrepareOk => write!(out, " {}", self.over::<PrepareOkHeader>().operation()),
            Command::Reply => {
                let h = self.over::<ReplyHeader>();
                let (operation, request, status) = (h.operation(), h.request(), h.status());
                write!(out, " {operation} request {request} status {status}")
            }
            Command::DoViewChange => {
                let h = self.over::<DoViewChangeHeader>();
                let entries = self.body.len() / HEADER_SIZE;
                write!(out, " log view {} entries {entries}", h.log_view())
            }
            Command::StartView => write!(out, " entries {}", self.body.len() / HEADER_SIZE),
            Command::Eviction => write!(out, " {:?}", self.over::<EvictionHeader>().reason()),
            _ => self.write_recovery_details(out),
        }
    }

    fn write_recovery_details(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match self.command() {
            Command::RequestPrepares => {
                let h = self.over::<RequestPreparesHeader>();
                write!(out, " ops {}..={}", h.from_op(), h.to_op())
            }
            Command::StateTransferTarget => {
                let h = self.over::<StateTransferTargetHeader>();
                match (h.available(), h.unavailable_transient()) {
                    (true, _) => write!(out, " offer"),
                    (false, true) => write!(out, " refused for now"),
                    (false, false) => write!(out, " refused"),
                }
            }
            Command::RequestStateChunk => {
                let h = self.over::<RequestStateChunkHeader>();
                write!(out, " artifact {} at {}", h.artifact(), h.offset())
            }
            Command::StateChunk => {
                let h = self.over::<StateChunkHeader>();
                write!(out, " artifact {} at {}", h.artifact(), h.offset())
            }
            Command::ForwardRegister => {
                write!(
                    out,
                    " client {:x}",
                    self.over::<ForwardRegisterHeader>().client().0
                )
            }
            Command::ForwardLogout => {
                write!(
                    out,
                    " client {:x}",
                    self.over::<ForwardLogoutHeader>().client().0
                )
            }
            Command::ForwardRegisterResult => {
                let h = self.over::<ForwardRegisterResultHeader>();
                write!(out, " {:?}", Shown(h.outcome()))
            }
            Command::ForwardLogoutResult => {
                let h = self.over::<ForwardLogoutResultHeader>();
                write!(out, " {:?}", Shown(h.outcome()))
            }
            Command::ReplicaHello | Command::ReplicaChallenge | Command::ReplicaFinish => {
                let h = self.over::<HandshakeHeader>();
                let nonce = if h.has_nonce() {
                    "with nonce"
                } else {
                    "without nonce"
                };
                write!(out, " {nonce} status {}", h.status())
            }
            _ => Ok(()),
        }
    }

    /// Every field of the header in wire order, the prefix first, reserved regions left out.
    pub fn visit_fields(&self, visit: &mut FieldVisitor<'_>) {
        let command = self.command();
        self.over::<GenericHeader>().frame.visit_fields(visit);
        by_command!(command, H => {
            let header = self.over::<H>();
            header.visit_fields(visit);
            header.visit_enumerations(visit);
        });
    }
}

impl KeyNumbers {
    fn set(&mut self, group: Option<GroupId>, op: Option<Op>, commit: Option<Op>) {
        *self = Self { group, op, commit };
    }
}

impl<'a> From<FrameRef<'a>> for Summary<'a> {
    fn from(frame: FrameRef<'a>) -> Self {
        Self::new(frame.header_bytes(), frame.body())
    }
}

impl<'a> From<&'a Message> for Summary<'a> {
    fn from(message: &'a Message) -> Self {
        Self::new(message.header_bytes(), message.body())
    }
}

/// The line for logs.
impl fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = &self.over::<GenericHeader>().frame;
        let (command, size) = (frame.command(), frame.size());
        write!(
            f,
            "{command}({size}B from {} v{}",
            frame.replica(),
            frame.view()
        )?;
        let KeyNumbers { group, op, commit } = self.key_numbers();
        if let Some(group) = group {
            write!(f, " {group}")?;
        }
        if let Some(op) = op {
            write!(f, " op {op}")?;
        }
        if let Some(commit) = commit {
            write!(f, " commit {commit}")?;
        }
        self.write_details(f)?;
        f.write_str(")")
    }
}

/// A field value as text.
pub(crate) struct Shown<T>(pub(crate) T);

macro_rules! shown_as_displayed {
    ($($ty:ty),*) => {$(
        impl fmt::Display for Shown<$ty> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_displayed!(
    u8,
    u32,
    u64,
    bool,
    Op,
    View,
    ReplicaId,
    RequestNumber,
    GroupId
);

impl fmt::Display for Shown<u128> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            value => write!(f, "{value:#x}"),
        }
    }
}

macro_rules! shown_as_hex {
    ($($ty:ty),*) => {$(
        impl fmt::Display for Shown<$ty> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Shown(self.0.0).fmt(f)
            }
        }
    )*};
}

shown_as_hex!(Checksum, ClientId, ClusterId);

impl<const N: usize> fmt::Display for Shown<[u8; N]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|byte| *byte == 0) {
            return f.write_str("0");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An enumeration as its word; a byte outside the set has none.
impl<T: fmt::Debug> fmt::Debug for Shown<Option<T>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("undefined"),
        }
    }
}
