//! Drives a handshake of either role over a socket (chapter 02 sections 6.2 and 6.3). The decisions
//! are the handshake crate's; this file moves its frames.

use std::io;

use biplane_handshake::{
    Acceptor, Action, Channel, Dialer, Established, RejectReason, SetupError, Then,
};
use biplane_wire::{CloseReason, Deframer, ReplicaId};
use futures::{AsyncReadExt as _, AsyncWriteExt as _};

use super::MeshConfig;
use crate::runtime::{self, TcpStream};

/// Largest frame of a peer that has not proven anything yet. Handshake frames have 256 bytes; a
/// body is legal and ignored, but nobody sends one, and 256 strangers at once must not be able to
/// make us hold 64 MiB each.
const HANDSHAKE_FRAME_MAX: u32 = 4096;

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
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Ended,
    /// The budget ran out.
    #[error("the handshake took longer than its budget")]
    TimedOut,
    /// Our own roster or keys forbid it.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The operating system has no randomness.
    #[error("no random nonce: {0}")]
    Nonce(getrandom::Error),
}

/// Runs the dialer's side.
pub(super) async fn dial(
    stream: &TcpStream,
    deframer: &mut Deframer,
    config: &MeshConfig,
    peer: ReplicaId,
) -> Result<Established, GreetingError> {
    let nonce = nonce(config)?;
    let dialer = Dialer::new(
        config.identity,
        peer,
        config.keys.clone(),
        Channel::Plaintext,
        nonce,
    )?;
    run(dialer.start(), stream, deframer, config).await
}

/// Runs the acceptor's side.
pub(super) async fn accept(
    stream: &TcpStream,
    deframer: &mut Deframer,
    config: &MeshConfig,
) -> Result<Established, GreetingError> {
    let nonce = nonce(config)?;
    let acceptor = Acceptor::new(
        config.identity,
        config.keys.clone(),
        Channel::Plaintext,
        nonce,
    )?;
    run(acceptor.start(), stream, deframer, config).await
}

fn nonce(config: &MeshConfig) -> Result<[u8; 32], GreetingError> {
    let mut nonce = [0; 32];
    if config.keys.is_some() {
        getrandom::fill(&mut nonce).map_err(GreetingError::Nonce)?;
    }
    Ok(nonce)
}

async fn run(
    first: Action,
    stream: &TcpStream,
    deframer: &mut Deframer,
    config: &MeshConfig,
) -> Result<Established, GreetingError> {
    deframer.set_size_max(HANDSHAKE_FRAME_MAX);
    let established = runtime::timeout(config.handshake_grace, exchange(first, stream, deframer))
        .await
        .ok_or(GreetingError::TimedOut)??;
    deframer.set_size_max(config.message_size_max);
    Ok(established)
}

async fn exchange(
    first: Action,
    mut stream: &TcpStream,
    deframer: &mut Deframer,
) -> Result<Established, GreetingError> {
    let mut action = first;
    loop {
        let written = match &action.send {
            Some(frame) => stream.write_all(frame.as_ref()).await,
            None => Ok(()),
        };
        let machine = match action.then {
            Then::Close(reason) => return Err(GreetingError::Rejected(reason)),
            Then::Established(established) => {
                written?;
                return Ok(established);
            }
            Then::Read(machine) => {
                written?;
                machine
            }
        };
        // Bytes behind this frame stay in the deframer: they are the first consensus frames.
        let frame = loop {
            if let Some(frame) = deframer.next()? {
                break frame;
            }
            let count = stream.read(deframer.read_slice()).await?;
            if count == 0 {
                return Err(GreetingError::Ended);
            }
            deframer.advance(count);
        };
        action = machine.step(frame.header_bytes());
    }
}
