//! From a frame to a typed frame or a reason, in the order of chapter 01 section 5: select by
//! command, closed sets, seal, fields.
//!
//! Identity and body checks of a prepare are not part of this; they run where the prepare
//! enters a log.

use std::marker::PhantomData;

use crate::HEADER_SIZE;
use crate::checksum::{frame_seal, prepare_identity};
use crate::command::Command;
use crate::error::{CloseReason, Refusal};
use crate::header::{
    CommitHeader, DoViewChangeHeader, ForwardLogoutHeader, ForwardLogoutResultHeader,
    ForwardRegisterHeader, ForwardRegisterResultHeader, HandshakeHeader, Header, PrepareHeader,
    PrepareOkHeader, RepairRangeReplyHeader, RequestHeader, RequestPreparesHeader,
    RequestStartViewHeader, RequestStateChunkHeader, RequestStateTransferHeader,
    RoutedRequestHeader, StartViewChangeHeader, StartViewHeader, StateChunkHeader,
    StateTransferTargetHeader, UndefinedByte,
};
use crate::ids::GroupId;
use crate::message::Message;
use crate::operation::Operation;

/// A message whose header passed typed decode as `H`.
#[derive(Clone, PartialEq, Eq)]
pub struct Typed<H> {
    message: Message,
    kind: PhantomData<H>,
}

impl<H: Header> Typed<H> {
    /// Decodes a frame that must be of this kind.
    ///
    /// # Errors
    ///
    /// The first check of section 5 that fails.
    pub fn decode(message: Message) -> Result<Self, Refusal> {
        let command = message.command();
        if !H::COMMANDS.contains(&command) {
            return Err(Refusal::WrongCommand { command });
        }
        check::<H>(message.header_bytes(), command)?;
        Ok(Self {
            message,
            kind: PhantomData,
        })
    }

    /// The checked header.
    #[must_use]
    pub fn header(&self) -> &H {
        H::over(self.message.header_bytes())
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.message.body()
    }

    /// The frame.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The frame.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }
}

impl<H> std::fmt::Debug for Typed<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.message.fmt(f)
    }
}

/// A frame a replica may act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaFrame {
    /// Command 5. No server of this generation sends it; the receiver drops it.
    RoutedRequest(Typed<RoutedRequestHeader>),
    /// Command 6.
    Prepare(Typed<PrepareHeader>),
    /// Command 7.
    PrepareOk(Typed<PrepareOkHeader>),
    /// Command 9.
    Commit(Typed<CommitHeader>),
    /// Command 10.
    StartViewChange(Typed<StartViewChangeHeader>),
    /// Command 11.
    DoViewChange(Typed<DoViewChangeHeader>),
    /// Command 12.
    StartView(Typed<StartViewHeader>),
    /// Command 17.
    RequestStartView(Typed<RequestStartViewHeader>),
    /// Command 18.
    RequestPrepares(Typed<RequestPreparesHeader>),
    /// Command 19; byte 60 still says so, see [`Message::repair_to_prepare`].
    RepairPrepare(Typed<PrepareHeader>),
    /// Command 20.
    RepairDone(Typed<RepairRangeReplyHeader>),
    /// Command 21.
    RangeEvicted(Typed<RepairRangeReplyHeader>),
    /// Command 22.
    RequestStateTransfer(Typed<RequestStateTransferHeader>),
    /// Command 23.
    StateTransferTarget(Typed<StateTransferTargetHeader>),
    /// Command 24.
    RequestStateChunk(Typed<RequestStateChunkHeader>),
    /// Command 25.
    StateChunk(Typed<StateChunkHeader>),
    /// Command 26.
    ForwardRegister(Typed<ForwardRegisterHeader>),
    /// Command 27.
    ForwardRegisterResult(Typed<ForwardRegisterResultHeader>),
    /// Command 28.
    ForwardLogout(Typed<ForwardLogoutHeader>),
    /// Command 29.
    ForwardLogoutResult(Typed<ForwardLogoutResultHeader>),
}

impl ReplicaFrame {
    /// The frame, whatever its kind.
    #[must_use]
    pub fn message(&self) -> &Message {
        match self {
            Self::RoutedRequest(typed) => typed.message(),
            Self::Prepare(typed) | Self::RepairPrepare(typed) => typed.message(),
            Self::PrepareOk(typed) => typed.message(),
            Self::Commit(typed) => typed.message(),
            Self::StartViewChange(typed) => typed.message(),
            Self::DoViewChange(typed) => typed.message(),
            Self::StartView(typed) => typed.message(),
            Self::RequestStartView(typed) => typed.message(),
            Self::RequestPrepares(typed) => typed.message(),
            Self::RepairDone(typed) | Self::RangeEvicted(typed) => typed.message(),
            Self::RequestStateTransfer(typed) => typed.message(),
            Self::StateTransferTarget(typed) => typed.message(),
            Self::RequestStateChunk(typed) => typed.message(),
            Self::StateChunk(typed) => typed.message(),
            Self::ForwardRegister(typed) => typed.message(),
            Self::ForwardRegisterResult(typed) => typed.message(),
            Self::ForwardLogout(typed) => typed.message(),
            Self::ForwardLogoutResult(typed) => typed.message(),
        }
    }

    /// The operation of the frames that carry one; routing looks at it before the group.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        match self {
            Self::RoutedRequest(typed) => Some(typed.header().operation()),
            Self::Prepare(typed) | Self::RepairPrepare(typed) => Some(typed.header().operation()),
            Self::PrepareOk(typed) => Some(typed.header().operation()),
            _ => None,
        }
    }

    /// The group field as it stands, legal or not. The forward frames have none and belong to
    /// the metadata group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        match self {
            Self::RoutedRequest(typed) => typed.header().group(),
            Self::Prepare(typed) | Self::RepairPrepare(typed) => typed.header().group(),
            Self::PrepareOk(typed) => typed.header().group(),
            Self::Commit(typed) => typed.header().group(),
            Self::StartViewChange(typed) => typed.header().group(),
            Self::DoViewChange(typed) => typed.header().group(),
            Self::StartView(typed) => typed.header().group(),
            Self::RequestStartView(typed) => typed.header().group(),
            Self::RequestPrepares(typed) => typed.header().group(),
            Self::RepairDone(typed) | Self::RangeEvicted(typed) => typed.header().group(),
            Self::RequestStateTransfer(typed) => typed.header().group(),
            Self::StateTransferTarget(typed) => typed.header().group(),
            Self::RequestStateChunk(typed) => typed.header().group(),
            Self::StateChunk(typed) => typed.header().group(),
            Self::ForwardRegister(_)
            | Self::ForwardRegisterResult(_)
            | Self::ForwardLogout(_)
            | Self::ForwardLogoutResult(_) => GroupId::METADATA,
        }
    }

    /// The group the frame is for by the routing rules of section 10.4: a metadata operation
    /// goes to the metadata group whatever its group field says, a partition operation and a
    /// frame without operation go by the field. `None` when no plane claims the operation or
    /// the field names no legal group.
    #[must_use]
    pub fn route(&self) -> Option<GroupId> {
        let group = self.group();
        match self.operation() {
            Some(operation) if operation.is_metadata_plane() => Some(GroupId::METADATA),
            Some(operation) if operation.is_partition() => group.unpack().map(|_| group),
            Some(_) => None,
            None => group.is_legal().then_some(group),
        }
    }
}

/// Typed decode on the replica plane.
///
/// # Errors
///
/// The first check of section 5 that fails; every reason drops the frame and keeps the
/// connection.
pub fn decode_replica(message: Message) -> Result<ReplicaFrame, Refusal> {
    use ReplicaFrame as Frame;
    let command = message.command();
    match command {
        Command::Request => Typed::decode(message).map(Frame::RoutedRequest),
        Command::Prepare => Typed::decode(message).map(Frame::Prepare),
        Command::PrepareOk => Typed::decode(message).map(Frame::PrepareOk),
        Command::Commit => Typed::decode(message).map(Frame::Commit),
        Command::StartViewChange => Typed::decode(message).map(Frame::StartViewChange),
        Command::DoViewChange => Typed::decode(message).map(Frame::DoViewChange),
        Command::StartView => Typed::decode(message).map(Frame::StartView),
        Command::RequestStartView => Typed::decode(message).map(Frame::RequestStartView),
        Command::RequestPrepares => Typed::decode(message).map(Frame::RequestPrepares),
        Command::RepairPrepare => Typed::decode(message).map(Frame::RepairPrepare),
        Command::RepairDone => Typed::decode(message).map(Frame::RepairDone),
        Command::RangeEvicted => Typed::decode(message).map(Frame::RangeEvicted),
        Command::RequestStateTransfer => Typed::decode(message).map(Frame::RequestStateTransfer),
        Command::StateTransferTarget => Typed::decode(message).map(Frame::StateTransferTarget),
        Command::RequestStateChunk => Typed::decode(message).map(Frame::RequestStateChunk),
        Command::StateChunk => Typed::decode(message).map(Frame::StateChunk),
        Command::ForwardRegister => Typed::decode(message).map(Frame::ForwardRegister),
        Command::ForwardRegisterResult => Typed::decode(message).map(Frame::ForwardRegisterResult),
        Command::ForwardLogout => Typed::decode(message).map(Frame::ForwardLogout),
        Command::ForwardLogoutResult => Typed::decode(message).map(Frame::ForwardLogoutResult),
        Command::Reply | Command::Eviction => Err(Refusal::ClientBound { command }),
        Command::Reserved
        | Command::Ping
        | Command::Pong
        | Command::PingClient
        | Command::PongClient
        | Command::ReplicaHello
        | Command::ReplicaChallenge
        | Command::ReplicaFinish => Err(Refusal::WrongCommand { command }),
    }
}

/// Typed decode on the client plane: a request or nothing.
///
/// # Errors
///
/// The first check that fails; every reason drops the frame and keeps the connection.
pub fn decode_client(message: Message) -> Result<Typed<RequestHeader>, Refusal> {
    let command = message.command();
    match command {
        Command::Reply | Command::Eviction => Err(Refusal::ClientBound { command }),
        _ => Typed::decode(message),
    }
}

/// Typed decode of the frames before a replica connection is established. They have no rules
/// beyond their command; the handshake decides.
///
/// # Errors
///
/// [`Refusal::WrongCommand`] for any other command.
pub fn decode_handshake(message: Message) -> Result<Typed<HandshakeHeader>, Refusal> {
    Typed::decode(message)
}

/// Typed decode of a header in place: the same checks as [`Typed::decode`], for callers that do
/// not own the frame. Allocates nothing. Whether the size field is the length of the frame is
/// the caller's to know.
///
/// # Errors
///
/// The first check of section 5 that fails; [`Refusal::Generic`] when the command byte is
/// undefined.
pub fn decode_header<H: Header>(bytes: &[u8; HEADER_SIZE]) -> Result<&H, Refusal> {
    let header = H::over(bytes);
    let byte = header.frame().command_byte();
    let Some(command) = Command::from_u8(byte) else {
        return Err(CloseReason::BadCommand { byte }.into());
    };
    if !H::COMMANDS.contains(&command) {
        return Err(Refusal::WrongCommand { command });
    }
    check::<H>(bytes, command)?;
    Ok(header)
}

fn check<H: Header>(bytes: &[u8; HEADER_SIZE], command: Command) -> Result<(), Refusal> {
    let header = H::over(bytes);
    if let Err(undefined) = header.closed_sets() {
        return Err(refuse_undefined::<H>(bytes, command, undefined));
    }
    if H::SEALED {
        let stored = header.frame().checksum();
        let computed = frame_seal(bytes);
        if stored != computed {
            return Err(Refusal::Seal {
                command,
                stored,
                computed,
            });
        }
    }
    header
        .validate()
        .map_err(|rule| Refusal::Field { command, rule })
}

/// Section 5 step 2a: an undefined operation on an authentic frame is a sign of version skew
/// and counted apart from corruption.
#[cold]
fn refuse_undefined<H: Header>(
    bytes: &[u8; HEADER_SIZE],
    command: Command,
    undefined: UndefinedByte,
) -> Refusal {
    let UndefinedByte {
        offset,
        value,
        is_operation,
    } = undefined;
    let stored = H::over(bytes).frame().checksum();
    let authentic = match command {
        Command::Prepare | Command::RepairPrepare => stored == prepare_identity(bytes),
        _ if H::SEALED => stored == frame_seal(bytes),
        _ => true,
    };
    if is_operation && authentic {
        Refusal::UnknownOperation {
            command,
            operation: value,
        }
    } else {
        Refusal::BadEnum {
            command,
            offset,
            value,
        }
    }
}
