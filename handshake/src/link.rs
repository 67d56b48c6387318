//! The words both roles share: who a node says it is, what the link under the frames is, and what a
//! completed handshake yields.

use core::fmt;

use biplane_wire::{ClusterId, ReplicaId};
use zeroize::Zeroize;

use crate::constants::{EXPORTER_LENGTH, NONCE_LENGTH};
use crate::keys::{KeySlot, Keys};
use crate::reject::SetupError;

/// The id of a cluster: the first 16 bytes of the BLAKE3 hash of its configured name, in order. The
/// name is taken as it is, case and blanks included. It separates clusters; it is no secret
/// (chapter 02 section 4).
#[must_use]
pub fn cluster_id(name: &str) -> ClusterId {
    let hash = blake3::hash(name.as_bytes());
    let (id, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("a hash has 32 bytes");
    ClusterId::from_digest(*id)
}

/// Who this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, from [`cluster_id`].
    pub cluster: ClusterId,
    /// The own id; below `replica_count`.
    pub replica: ReplicaId,
    /// Members of the roster.
    pub replica_count: u8,
}

impl Identity {
    /// The id is one of the roster.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        if self.replica.0 < self.replica_count {
            return Ok(());
        }
        Err(SetupError::ReplicaOutOfRange {
            replica: self.replica,
            replica_count: self.replica_count,
        })
    }
}

/// What carries the frames. It is hashed into both codes, so a relay between two TLS sessions, or
/// between TLS and a plain link, is found out (chapter 02 section 7.4).
#[derive(Clone)]
pub enum Channel {
    /// Bare TCP.
    Plaintext,
    /// TLS 1.3, with its handshake complete.
    Tls {
        /// Value exported from the session under [`EXPORTER_LABEL`](crate::EXPORTER_LABEL) without
        /// a context. It is wiped when the channel is dropped.
        exporter: [u8; EXPORTER_LENGTH],
    },
}

impl Channel {
    pub(crate) const fn mode(&self) -> u8 {
        match self {
            Self::Plaintext => 0,
            Self::Tls { .. } => 1,
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "Plaintext",
            Self::Tls { .. } => "Tls { .. }",
        })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Self::Tls { exporter } = self {
            exporter.zeroize();
        }
    }
}

/// A handshake that succeeded. Only this crate makes one, so holding it is the proof that a
/// connection may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    peer: ReplicaId,
    key: Option<KeySlot>,
}

impl Established {
    pub(crate) const fn new(peer: ReplicaId, key: Option<KeySlot>) -> Self {
        Self { peer, key }
    }

    /// Under which id to register the connection: the dialed one, or the one announced in the
    /// hello. With authentication on the peer is a member of the cluster, but which one is its
    /// word alone.
    #[must_use]
    pub const fn peer(&self) -> ReplicaId {
        self.peer
    }

    /// The key that the peer's code verified with; `None` when authentication is off, and then
    /// nothing at all is proven about the peer.
    #[must_use]
    pub const fn key(&self) -> Option<KeySlot> {
        self.key
    }
}

/// Keys and nonce of one authenticated handshake.
pub(crate) struct Auth {
    pub(crate) keys: Keys,
    pub(crate) nonce: [u8; NONCE_LENGTH],
}

impl Auth {
    /// Pairs keys with the nonce of this handshake, or refuses what must not be sent. With
    /// authentication off the nonce is not used and not judged.
    pub(crate) fn check(
        keys: Option<Keys>,
        channel: &Channel,
        nonce: [u8; NONCE_LENGTH],
    ) -> Result<Option<Self>, SetupError> {
        match (keys, channel) {
            (None, Channel::Tls { .. }) => Err(SetupError::TlsWithoutAuth),
            (None, Channel::Plaintext) => Ok(None),
            (Some(_), _) if nonce == [0; NONCE_LENGTH] => Err(SetupError::ZeroNonce),
            (Some(keys), _) => Ok(Some(Self { keys, nonce })),
        }
    }
}
