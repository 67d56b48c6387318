//! Drives a handshake of either role over a socket (chapter 02 sections 6.2 and 6.3): TLS first
//! where it is on, then the frames. The decisions are the handshake crate's; this file moves its
//! frames, within one budget for all of it.
//!
//! A handshake frame is read to its last byte and not one further, so what follows it stays in the
//! socket for whoever reads next, and a stranger gets 256 bytes of memory and no more.

use std::io;
use std::net::IpAddr;

use biplane_handshake::{
    Acceptor, Action, Channel, Dialer, Established, NONCE_LENGTH, RejectReason, SetupError, Then,
};
use biplane_wire::{CloseReason, GenericHeader, HEADER_SIZE, Header as _, ReplicaId};

use super::MeshConfig;
use crate::runtime::{self, TcpStream};
use crate::stream::{self, Reader, Writer};
use crate::tls::{Session, TlsRefusal};

/// Read at once of a body that nobody looks at.
const DRAIN_SIZE: usize = 1024;

/// A connection whose peer may be registered.
pub(super) struct Greeted {
    /// The proof.
    pub(super) established: Established,
    /// What the peer sends next.
    pub(super) reader: Reader,
    /// To the peer.
    pub(super) writer: Writer,
}

/// Why a connection was not registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetingError {
    /// The peer was refused, or refused us.
    #[error("refused: {0}")]
    Rejected(RejectReason),
    /// The stream holds no frame.
    #[error(transparent)]
    Framing(#[from] CloseReason),
    /// The socket failed.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection where an answer was due.
    #[error(
        "the peer closed the connection instead of answering: it refuses this node and says why \
         in its own log (secret, cluster.auth or cluster.tls)"
    )]
    Unanswered,
    /// The peer closed the connection before it had said anything, or in the middle of a frame.
    #[error("the peer closed the connection after {have} of 256 bytes")]
    Ended {
        /// Bytes of the frame that were there.
        have: usize,
    },
    /// The budget ran out.
    #[error("the handshake took longer than its budget")]
    TimedOut,
    /// TLS is off here.
    #[error("the peer speaks TLS and this node does not: cluster.tls.enabled must be equal")]
    TlsPeer,
    /// TLS is on here, and there is no session.
    #[error(transparent)]
    Tls(#[from] TlsRefusal),
    /// Our own roster or keys forbid it.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The operating system has no randomness.
    #[error("no random nonce: {0}")]
    Nonce(getrandom::Error),
}

impl GreetingError {
    /// Short fixed text for logs: the protocol's own label where there is one.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Rejected(reason) => reason.label(),
            Self::Framing(_) => "framing",
            Self::Io(_) => "connection_lost",
            Self::Unanswered => "unanswered",
            Self::Ended { .. } => "ended",
            Self::TimedOut => "timed_out",
            Self::TlsPeer => "tls_peer",
            Self::Tls(refusal) => refusal.label(),
            Self::Setup(_) => "setup",
            Self::Nonce(_) => "nonce",
        }
    }

    /// What an operator does about it, where it is not a stranger's fault or the network's.
    pub(super) fn advice(&self) -> Option<&'static str> {
        let Self::Rejected(reason) = self else {
            return None;
        };
        match reason.label() {
            "cluster_mismatch" => Some("cluster.name must be equal on both nodes"),
            "auth_required" | "mac_mismatch" => Some(
                "cluster.auth must be on with one shared_secret on both nodes; while it is being \
                 changed, the old one is previous_shared_secret",
            ),
            "directional_rule" => Some(
                "[[cluster.nodes]] must be the same on all nodes, and no two of them may be \
                 started with one --replica-id",
            ),
            "peer_mismatch" => Some(
                "another node listens at this address: compare [[cluster.nodes]] with the \
                 --replica-id of each host",
            ),
            _ => None,
        }
    }

    /// True when the peer was there and the two do not fit; false when the network or a peer that
    /// is busy may be to blame.
    pub(super) fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Io(_) | Self::TimedOut | Self::Ended { .. } | Self::Tls(TlsRefusal::Io(_))
        )
    }
}

/// Runs the dialer's side towards `peer`, whose roster address is `ip`.
pub(super) async fn dial(
    stream: &TcpStream,
    config: &MeshConfig,
    peer: ReplicaId,
    ip: IpAddr,
) -> Result<Greeted, GreetingError> {
    let whole = async {
        let session = match &config.tls {
            Some(tls) => Some(tls.dial(stream.clone(), ip).await?),
            None => None,
        };
        let (reader, writer, channel) = halves(stream, session);
        let (identity, keys) = (config.identity, config.keys.clone());
        let dialer = Dialer::new(identity, peer, keys, channel, nonce(config)?)?;
        exchange(dialer.start(), reader, writer, config.message_size_max).await
    };
    let within = runtime::timeout(config.handshake_grace, whole).await;
    match within.ok_or(GreetingError::TimedOut)? {
        Err(GreetingError::Ended { have: 0 }) => Err(GreetingError::Unanswered),
        other => other,
    }
}

/// Runs the acceptor's side.
pub(super) async fn accept(
    stream: &TcpStream,
    config: &MeshConfig,
) -> Result<Greeted, GreetingError> {
    let whole = async {
        let session = match &config.tls {
            Some(tls) => Some(tls.accept(stream.clone()).await?),
            None => None,
        };
        let (reader, writer, channel) = halves(stream, session);
        let acceptor = Acceptor::new(
            config.identity,
            config.keys.clone(),
            channel,
            nonce(config)?,
        )?;
        exchange(acceptor.start(), reader, writer, config.message_size_max).await
    };
    let within = runtime::timeout(config.handshake_grace, whole).await;
    within.ok_or(GreetingError::TimedOut)?
}

fn halves(stream: &TcpStream, session: Option<Session>) -> (Reader, Writer, Channel) {
    match session {
        Some(session) => {
            let (reader, writer) = stream::tls(session.stream);
            (reader, writer, session.channel)
        }
        None => {
            let (reader, writer) = stream::plain(stream.clone());
            (reader, writer, Channel::Plaintext)
        }
    }
}

fn nonce(config: &MeshConfig) -> Result<[u8; NONCE_LENGTH], GreetingError> {
    let mut nonce = [0; NONCE_LENGTH];
    if config.keys.is_some() {
        getrandom::fill(&mut nonce).map_err(GreetingError::Nonce)?;
    }
    Ok(nonce)
}

async fn exchange(
    first: Action,
    mut reader: Reader,
    mut writer: Writer,
    message_size_max: u32,
) -> Result<Greeted, GreetingError> {
    let mut action = first;
    loop {
        let written = match &action.send {
            Some(frame) => writer.write_flushed(frame).await,
            None => Ok(()),
        };
        let machine = match action.then {
            Then::Close(reason) => {
                let _ = writer.close().await;
                return Err(GreetingError::Rejected(reason));
            }
            Then::Established(established) => {
                written?;
                return Ok(Greeted {
                    established,
                    reader,
                    writer,
                });
            }
            Then::Read(machine) => {
                written?;
                machine
            }
        };
        let header = read_frame(&mut reader, message_size_max).await?;
        action = machine.step(&header);
    }
}

/// Reads one frame by the rules of chapter 02 section 3, and keeps its header. A body is legal in a
/// handshake frame and means nothing.
async fn read_frame(
    reader: &mut Reader,
    size_max: u32,
) -> Result<[u8; HEADER_SIZE], GreetingError> {
    let mut header = [0; HEADER_SIZE];
    let mut have = 0;
    while have < HEADER_SIZE {
        let count = reader.read(&mut header[have..]).await?;
        // A hello of TLS can be shorter than a frame; waiting for the rest would take the whole
        // budget, at both ends.
        if reader.opened_like_tls() {
            return Err(GreetingError::TlsPeer);
        }
        if count == 0 {
            return Err(GreetingError::Ended { have });
        }
        have += count;
    }
    let size = GenericHeader::over(&header).frame.size();
    if (size as usize) < HEADER_SIZE || size > size_max {
        return Err(CloseReason::BadSize { size, size_max }.into());
    }
    let mut rest = size as usize - HEADER_SIZE;
    let mut sink = [0; DRAIN_SIZE];
    while rest > 0 {
        let count = reader.read(&mut sink[..rest.min(DRAIN_SIZE)]).await?;
        if count == 0 {
            let have = size as usize - rest;
            return Err(CloseReason::EndInsideFrame { have }.into());
        }
        rest -= count;
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_do_not_fit_are_told_which_keys_to_compare() {
        let peer = ReplicaId(1);
        let advice = |reason| GreetingError::Rejected(reason).advice();
        for (reason, key) in [
            (RejectReason::ClusterMismatch, "cluster.name"),
            (RejectReason::AuthRequired, "shared_secret"),
            (RejectReason::MacMismatch, "shared_secret"),
            (
                RejectReason::DirectionalRule { announced: peer },
                "[[cluster.nodes]]",
            ),
            (
                RejectReason::PeerMismatch {
                    expected: peer,
                    found: ReplicaId(2),
                },
                "--replica-id",
            ),
            // What the other side has found out is told in the same words.
            (RejectReason::Refused { status: 2 }, "cluster.name"),
        ] {
            let advice = advice(reason).expect(key);
            assert!(advice.contains(key), "{advice}");
        }
        assert_eq!(advice(RejectReason::FrameSizeIllegal { size: 1 }), None);
        assert_eq!(GreetingError::TimedOut.advice(), None);
    }
}
