//! Frames from the node to a client: replies by origin (chapter 07 section 5.4) and evictions.

use std::io::IoSlice;
use std::sync::Arc;

use biplane_partition_plane::BodyPart;
use biplane_wire::{
    ClientId, Command, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Header as _,
    Message, Op, Operation, ProtocolVersion, ReplyHeader, RequestHeader, View, result,
};

use crate::config::Identity;
use crate::vectored::Slices;

/// A frame in a client's outbox.
#[derive(Debug)]
pub(crate) enum ClientFrame {
    /// A frame that is one message.
    Message(Message),
    /// A header in front of a body that lies where it was stored.
    Parts {
        /// The header.
        header: Box<[u8; HEADER_SIZE]>,
        /// The body, in order.
        body: Vec<BodyPart>,
    },
}

impl ClientFrame {
    /// Bytes on the wire.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Message(message) => message.size(),
            Self::Parts { body, .. } => {
                let body = body.iter().map(|part| part.as_bytes().len());
                HEADER_SIZE + body.sum::<usize>()
            }
        }
    }
}

impl Slices for ClientFrame {
    fn append<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        match self {
            Self::Message(message) => message.append(out),
            Self::Parts { header, body } => {
                out.push(IoSlice::new(header.as_slice()));
                out.extend(
                    body.iter()
                        .map(BodyPart::as_bytes)
                        .filter(|bytes| !bytes.is_empty())
                        .map(IoSlice::new),
                );
            }
        }
    }
}

/// What a reply that is not a committed one says about positions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    /// `op`: the session for reads, 0 or a commit point elsewhere.
    pub(crate) op: u64,
    /// `commit`: the metadata commit point of this node.
    pub(crate) commit: Op,
}

/// The header of a reply that echoes its request: everything but position, status and size.
fn echo(request: &RequestHeader, client: ClientId, position: Position) -> ReplyHeader {
    let mut reply = ReplyHeader::new(Command::Reply);
    reply.frame.set_cluster(request.frame.cluster());
    reply.frame.set_view(request.frame.view());
    reply.frame.set_release(request.frame.release());
    reply.frame.set_replica(request.frame.replica());
    reply.set_request_checksum(request.request_checksum());
    reply.set_client(client);
    reply.set_op(Op(position.op));
    reply.set_commit(position.commit);
    reply.set_timestamp(request.timestamp());
    reply.set_request(request.request());
    reply.set_operation(request.operation());
    reply
}

/// A refusal by status: the body is empty.
pub(crate) fn status(
    request: &RequestHeader,
    client: ClientId,
    position: Position,
    code: ErrorCode,
) -> ClientFrame {
    status_code(request, client, position, code.as_u32())
}

/// A refusal by a status that a plane chose.
pub(crate) fn status_code(
    request: &RequestHeader,
    client: ClientId,
    position: Position,
    status: u32,
) -> ClientFrame {
    let mut reply = echo(request, client, position);
    reply.set_status(status);
    ClientFrame::Message(Message::from_parts(reply, &[]))
}

/// A success with `body` as it stands.
pub(crate) fn success(
    request: &RequestHeader,
    client: ClientId,
    position: Position,
    body: &[u8],
) -> ClientFrame {
    ClientFrame::Message(Message::from_parts(echo(request, client, position), body))
}

/// A refusal in the result section, for operations whose replies are framed that way. `operation`
/// may be the rewritten one.
pub(crate) fn rejection(
    request: &RequestHeader,
    operation: Operation,
    client: ClientId,
    position: Position,
    code: ErrorCode,
) -> ClientFrame {
    let mut reply = echo(request, client, position);
    reply.set_operation(operation);
    ClientFrame::Message(Message::from_parts(
        reply,
        &result::rejection(code.as_u32()),
    ))
}

/// A success whose body is in parts; `len` is their length.
pub(crate) fn parts(
    request: &RequestHeader,
    client: ClientId,
    position: Position,
    body: Vec<BodyPart>,
    len: usize,
) -> ClientFrame {
    let mut reply = echo(request, client, position);
    let size = u32::try_from(HEADER_SIZE + len).unwrap_or(u32::MAX);
    reply.frame.set_size(size);
    ClientFrame::Parts {
        header: Box::new(*reply.bytes()),
        body,
    }
}

/// An eviction. `client` must not be zero.
pub(crate) fn eviction(
    identity: &Arc<Identity>,
    view: View,
    client: ClientId,
    reason: EvictionReason,
) -> ClientFrame {
    let mut header = EvictionHeader::new(Command::Eviction);
    header.frame.set_cluster(identity.cluster);
    header.frame.set_view(view);
    header.frame.set_replica(identity.replica);
    header.set_client(client);
    header.set_reason(reason);
    if reason == EvictionReason::IncompatibleProtocol {
        header.set_version_max(ProtocolVersion::CURRENT.0);
        header.set_version_min(ProtocolVersion::MIN.0);
    }
    ClientFrame::Message(Message::from_parts(header, &[]))
}
