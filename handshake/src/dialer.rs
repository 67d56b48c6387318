//! The connecting side, one type per state (chapter 02 section 6.3). A state is consumed by the
//! step it takes, so no step can be taken twice and no nonce can be used twice:
//!
//! ```text
//! auth off    Dialer ── hello() ──► Established
//! auth on     Dialer ── hello() ──► AwaitChallenge
//!                                        │
//!                                on_challenge(frame) ──► Finish | RejectReason
//! ```
//!
//! With authentication off the dialer must not wait for anything: the acceptor answers neither
//! success nor failure, and a refusal shows as the end of the stream.

use core::fmt;

use biplane_wire::{Command, HandshakeStatus, ReplicaId};

use crate::constants::NONCE_LENGTH;
use crate::frame::{self, Frame, Received};
use crate::keys::Keys;
use crate::link::{Auth, Channel, Established, Identity};
use crate::reject::{RejectReason, SetupError};
use crate::transcript::{Direction, Transcript};

/// A dialer that has sent nothing yet.
pub struct Dialer {
    link: DialedLink,
    auth: Option<Auth>,
}

/// What the dialer knows about the connection it opened.
struct DialedLink {
    identity: Identity,
    peer: ReplicaId,
    channel: Channel,
}

/// What follows the hello.
#[derive(Debug)]
#[must_use]
pub enum AfterHello {
    /// Authentication is off: once the hello is written the connection is registered and consensus
    /// frames may follow at once.
    Established(Established),
    /// Authentication is on: one frame is to be read.
    AwaitChallenge(AwaitChallenge),
}

/// A dialer that has sent its nonce and waits for the acceptor's.
#[must_use]
pub struct AwaitChallenge {
    link: DialedLink,
    auth: Auth,
}

/// The acceptor proved itself; the dialer's own proof is to be sent.
#[derive(Debug)]
#[must_use]
pub struct Finish {
    /// Write and flush this first.
    pub frame: Frame,
    /// Then register this. The acceptor does not confirm: if it refuses the finish, the registered
    /// connection ends.
    pub established: Established,
}

impl Dialer {
    /// Begins a handshake with `peer`. `auth` is `None` when authentication is off, and then the
    /// nonce is not used. Otherwise the nonce comes from the operating system's generator, fresh
    /// for this handshake.
    ///
    /// # Errors
    ///
    /// [`SetupError`] when the roster forbids this dial, when TLS is on without authentication, or
    /// when the nonce is all zero.
    pub fn new(
        identity: Identity,
        peer: ReplicaId,
        auth: Option<Keys>,
        channel: Channel,
        nonce: [u8; NONCE_LENGTH],
    ) -> Result<Self, SetupError> {
        identity.check()?;
        let Identity {
            replica,
            replica_count,
            ..
        } = identity;
        if peer.0 >= replica_count {
            return Err(SetupError::PeerOutOfRange {
                peer,
                replica_count,
            });
        }
        if peer <= replica {
            return Err(SetupError::PeerNotHigher { replica, peer });
        }
        let auth = Auth::check(auth, &channel, nonce)?;
        Ok(Self {
            link: DialedLink {
                identity,
                peer,
                channel,
            },
            auth,
        })
    }

    /// The first frame, to be written and flushed, and what comes after it.
    pub fn hello(self) -> (Frame, AfterHello) {
        let Self { link, auth } = self;
        match auth {
            None => {
                let established = Established::new(link.peer, None);
                (
                    frame::hello(&link.identity, None),
                    AfterHello::Established(established),
                )
            }
            Some(auth) => {
                let hello = frame::hello(&link.identity, Some(&auth.nonce));
                (
                    hello,
                    AfterHello::AwaitChallenge(AwaitChallenge { link, auth }),
                )
            }
        }
    }
}

impl AwaitChallenge {
    /// Judges the acceptor's frame. Only its header is looked at; a body is legal and ignored.
    ///
    /// The order is that of chapter 02 section 6.3: command, status, then the sender, then the
    /// code. The code covers the dialed id, not the one in the header. That the header's cluster
    /// and id are compared at all is a liberty the chapter allows; it turns a wrong address in the
    /// roster into a reason that says so.
    ///
    /// # Errors
    ///
    /// The [`RejectReason`] to log before the connection is closed; nothing is to be sent.
    pub fn on_challenge(self, frame: &[u8]) -> Result<Finish, RejectReason> {
        let challenge = Received::read(frame)?;
        let DialedLink {
            identity,
            peer,
            channel,
        } = &self.link;
        challenge.expect_command(Command::ReplicaChallenge)?;
        let status = challenge.header.status();
        if status != HandshakeStatus::Ok as u8 {
            return Err(RejectReason::Refused { status });
        }
        challenge.expect_sender(identity.cluster, *peer)?;
        let transcript = Transcript {
            cluster: identity.cluster,
            dialer: identity.replica,
            acceptor: *peer,
            dialer_nonce: &self.auth.nonce,
            acceptor_nonce: &challenge.header.nonce(),
            channel,
        };
        let keys = &self.auth.keys;
        let key = keys
            .verify(
                transcript.bytes(Direction::Acceptor).as_slice(),
                &challenge.header.mac(),
            )
            .ok_or(RejectReason::MacMismatch)?;
        let mac = keys.sign(transcript.bytes(Direction::Dialer).as_slice());
        Ok(Finish {
            frame: frame::finish(identity, &mac),
            established: Established::new(*peer, Some(key)),
        })
    }

    /// The dialed id.
    #[must_use]
    pub const fn peer(&self) -> ReplicaId {
        self.link.peer
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("identity", &self.link.identity)
            .field("peer", &self.link.peer)
            .field("channel", &self.link.channel)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AwaitChallenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitChallenge")
            .field("identity", &self.link.identity)
            .field("peer", &self.link.peer)
            .field("channel", &self.link.channel)
            .finish_non_exhaustive()
    }
}
