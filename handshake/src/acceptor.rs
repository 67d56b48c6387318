//! The accepting side, one type per state (chapter 02 section 6.2):
//!
//! ```text
//! auth off    Acceptor ── on_hello(frame) ──► Accepted | Reject
//! auth on     Acceptor ── on_hello(frame) ──► SendChallenge | Reject
//!                                                  │
//!                                             AwaitFinish
//!                                                  │
//!                                           on_finish(frame) ──► Established | RejectReason
//! ```
//!
//! Nothing is sent before a whole first frame has been read, and with authentication off nothing is
//! sent at all: a dialer without authentication would take any answer for consensus traffic.

use core::fmt;

use biplane_wire::{Command, HandshakeStatus, ReplicaId};

use crate::constants::NONCE_LENGTH;
use crate::frame::{self, Frame, Received};
use crate::keys::Keys;
use crate::link::{Auth, Channel, Established, Identity};
use crate::reject::{RejectReason, SetupError};
use crate::transcript::{Direction, Transcript};

/// An acceptor that has read nothing yet.
pub struct Acceptor {
    identity: Identity,
    channel: Channel,
    auth: Option<Auth>,
}

/// What an acceptor makes of a first frame.
#[derive(Debug)]
#[must_use]
pub enum HelloOutcome {
    /// Authentication is off and the hello is in order: register, send nothing.
    Accepted(Established),
    /// Authentication is on and the hello is in order so far: write and flush the frame, then read
    /// one more.
    SendChallenge {
        /// The challenge.
        frame: Frame,
        /// The state that judges the answer.
        next: AwaitFinish,
    },
    /// Close.
    Reject(Rejection),
}

/// A refused hello.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rejection {
    /// A frame to write before the connection is closed, if the dialer is to be told. That the
    /// write may fail is of no interest.
    pub frame: Option<Frame>,
    /// What to log.
    pub reason: RejectReason,
}

/// An acceptor that has sent its nonce and its proof, and waits for the dialer's.
#[must_use]
pub struct AwaitFinish {
    identity: Identity,
    channel: Channel,
    auth: Auth,
    peer: ReplicaId,
    dialer_nonce: [u8; NONCE_LENGTH],
}

impl Acceptor {
    /// Begins a handshake with whoever connected. `auth` is `None` when authentication is off, and
    /// then the nonce is not used. Otherwise the nonce comes from the operating system's generator,
    /// fresh for this handshake.
    ///
    /// # Errors
    ///
    /// [`SetupError`] when the identity is outside its roster, when TLS is on without
    /// authentication, or when the nonce is all zero.
    pub fn new(
        identity: Identity,
        auth: Option<Keys>,
        channel: Channel,
        nonce: [u8; NONCE_LENGTH],
    ) -> Result<Self, SetupError> {
        identity.check()?;
        let auth = Auth::check(auth, &channel, nonce)?;
        Ok(Self {
            identity,
            channel,
            auth,
        })
    }

    /// Judges the first frame. Only its header is looked at; a body is legal and ignored.
    pub fn on_hello(self, frame: &[u8]) -> HelloOutcome {
        let hello = match Received::read(frame) {
            Ok(hello) => hello,
            // It does not count as a frame, so nobody is told (chapter 02 section 6.2, check 1).
            Err(reason) => {
                return HelloOutcome::Reject(Rejection {
                    frame: None,
                    reason,
                });
            }
        };
        match self.judge_hello(&hello) {
            Ok(peer) => self.welcome(peer, &hello),
            Err(reason) => HelloOutcome::Reject(self.reject(reason, &hello)),
        }
    }

    /// Checks 2 to 6 of the acceptor's table, in order.
    fn judge_hello(&self, hello: &Received<'_>) -> Result<ReplicaId, RejectReason> {
        let Identity {
            cluster,
            replica,
            replica_count,
        } = self.identity;
        hello.expect_command(Command::ReplicaHello)?;
        hello.expect_cluster(cluster)?;
        let announced = hello.header.frame.replica();
        if announced.0 >= replica_count || announced >= replica {
            return Err(RejectReason::DirectionalRule { announced });
        }
        if self.auth.is_some() && !hello.header.has_nonce() {
            return Err(RejectReason::AuthRequired);
        }
        Ok(announced)
    }

    /// Checks 5 and 7: the hello is in order.
    fn welcome(self, peer: ReplicaId, hello: &Received<'_>) -> HelloOutcome {
        let Self {
            identity,
            channel,
            auth,
        } = self;
        let Some(auth) = auth else {
            return HelloOutcome::Accepted(Established::new(peer, None));
        };
        let next = AwaitFinish {
            identity,
            channel,
            auth,
            peer,
            dialer_nonce: hello.header.nonce(),
        };
        let mac = next
            .auth
            .keys
            .sign(next.transcript().bytes(Direction::Acceptor).as_slice());
        let frame = frame::challenge(&next.identity, &next.auth.nonce, &mac);
        HelloOutcome::SendChallenge { frame, next }
    }

    /// A dialer is told why only if both sides speak the authenticated form, and only what reveals
    /// nothing about secrets: in any other case a frame would be taken for consensus traffic.
    fn reject(&self, reason: RejectReason, hello: &Received<'_>) -> Rejection {
        let status = match reason {
            RejectReason::UnknownCommand { .. } => Some(HandshakeStatus::UnknownCommand),
            RejectReason::ClusterMismatch => Some(HandshakeStatus::ClusterMismatch),
            RejectReason::DirectionalRule { .. } => Some(HandshakeStatus::DirectionalRule),
            _ => None,
        };
        let told = self.auth.is_some() && hello.header.has_nonce();
        let frame = status
            .filter(|_| told)
            .map(|status| frame::refusal(&self.identity, status));
        Rejection { frame, reason }
    }
}

impl AwaitFinish {
    /// Judges the second frame. Only its header is looked at; a body is legal and ignored. Whatever
    /// the outcome, nothing is to be sent. That the header's cluster and id are compared with the
    /// hello is a liberty that chapter 02 section 6.3 allows.
    ///
    /// # Errors
    ///
    /// The [`RejectReason`] to log before the connection is closed.
    pub fn on_finish(self, frame: &[u8]) -> Result<Established, RejectReason> {
        let finish = Received::read(frame)?;
        finish.expect_command(Command::ReplicaFinish)?;
        finish.expect_sender(self.identity.cluster, self.peer)?;
        let transcript = self.transcript().bytes(Direction::Dialer);
        let key = self
            .auth
            .keys
            .verify(transcript.as_slice(), &finish.header.mac());
        match key {
            Some(key) => Ok(Established::new(self.peer, Some(key))),
            None => Err(RejectReason::MacMismatch),
        }
    }

    /// The id announced in the hello. It is only a claim until the finish is accepted.
    #[must_use]
    pub const fn peer(&self) -> ReplicaId {
        self.peer
    }

    fn transcript(&self) -> Transcript<'_> {
        Transcript {
            cluster: self.identity.cluster,
            dialer: self.peer,
            acceptor: self.identity.replica,
            dialer_nonce: &self.dialer_nonce,
            acceptor_nonce: &self.auth.nonce,
            channel: &self.channel,
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("identity", &self.identity)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AwaitFinish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitFinish")
            .field("identity", &self.identity)
            .field("peer", &self.peer)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
