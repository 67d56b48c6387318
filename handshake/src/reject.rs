//! Every reason for which a handshake ends without a peer, as a value: a test names the exact
//! reason, a log line its label, a counter its variant. A reason says what was seen, never what a
//! key or a code was.

use biplane_wire::{Command, HandshakeStatus, ReplicaId};

/// Why a handshake was refused, by this side or by the other. The connection is closed in all
/// cases; the acceptor may have one frame to send first (chapter 02 sections 6.2 and 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// Fewer bytes than a header: the stream ended inside the frame.
    #[error("the frame ends after {length} of 256 header bytes")]
    FrameTruncated {
        /// Bytes that were there.
        length: usize,
    },
    /// The size field is below the length of a header.
    #[error("the frame announces a size of {size}, below its own header")]
    FrameSizeIllegal {
        /// The size field, in bytes.
        size: u32,
    },
    /// The command byte is outside the enumeration. Such a frame does not count as read, so it is
    /// never answered.
    #[error("command {command} does not exist")]
    CommandIllegal {
        /// The command byte.
        command: u8,
    },
    /// A legal frame, but not the one this step expects. For a dialer this is also what a peer
    /// looks like that has authentication off and begins with consensus traffic.
    #[error("expected {expected}, got {command}")]
    UnknownCommand {
        /// The command this step expects.
        expected: Command,
        /// The command of the frame.
        command: Command,
    },
    /// The frame names another cluster.
    #[error("the peer belongs to another cluster")]
    ClusterMismatch,
    /// The announced id is not below the own one, or not a member of the roster.
    #[error("replica {announced} may not dial this node")]
    DirectionalRule {
        /// The id in the hello.
        announced: ReplicaId,
    },
    /// Authentication is on here and the hello carries no nonce: the peer has it off.
    #[error("the peer does not authenticate")]
    AuthRequired,
    /// The code verifies under neither key: another secret, another TLS session, a replayed, a
    /// reflected or an altered frame.
    #[error("the peer's code does not verify")]
    MacMismatch,
    /// The frame is sent by another replica than the one this handshake is with: the roster maps
    /// the dialed id to a wrong address, or the finish contradicts the hello.
    #[error("expected replica {expected}, but {found} answers")]
    PeerMismatch {
        /// The dialed id, or the id of the hello.
        expected: ReplicaId,
        /// The id in this frame.
        found: ReplicaId,
    },
    /// The acceptor refused, and said why.
    #[error("the acceptor refused with status {status}, {}", status_label(*status))]
    Refused {
        /// The status byte, not zero. An undefined value is legal and means "refused", too.
        status: u8,
    },
}

impl RejectReason {
    /// Short fixed text for logs and counters. Reasons that the protocol names carry its label; a
    /// refusal carries the label of the acceptor's status (chapter 02 section 5.1).
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::FrameTruncated { .. } => "frame_truncated",
            Self::FrameSizeIllegal { .. } => "frame_size_illegal",
            Self::CommandIllegal { .. } => "command_illegal",
            Self::UnknownCommand { .. } => "unknown_command",
            Self::ClusterMismatch => "cluster_mismatch",
            Self::DirectionalRule { .. } => "directional_rule",
            Self::AuthRequired => "auth_required",
            Self::MacMismatch => "mac_mismatch",
            Self::PeerMismatch { .. } => "peer_mismatch",
            Self::Refused { status } => status_label(*status),
        }
    }

    /// The refusal came from the other side; this side had nothing to object to.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// The protocol's name of a status byte (chapter 02 section 5.1). An undefined value is read as
/// `unknown_command`.
fn status_label(status: u8) -> &'static str {
    match HandshakeStatus::from_u8(status) {
        Some(HandshakeStatus::Ok) => "ok",
        Some(HandshakeStatus::ClusterMismatch) => "cluster_mismatch",
        Some(HandshakeStatus::DirectionalRule) => "directional_rule",
        Some(HandshakeStatus::AuthRequired) => "auth_required",
        Some(HandshakeStatus::MacMismatch) => "mac_mismatch",
        Some(HandshakeStatus::UnknownCommand) | None => "unknown_command",
    }
}

/// Why a handshake cannot even begin: the caller's configuration or its source of randomness is
/// broken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The own id is not below the replica count.
    #[error("replica {replica} is outside a roster of {replica_count}")]
    ReplicaOutOfRange {
        /// The own id.
        replica: ReplicaId,
        /// Members of the roster.
        replica_count: u8,
    },
    /// The dialed id is not below the replica count.
    #[error("peer {peer} is outside a roster of {replica_count}")]
    PeerOutOfRange {
        /// The dialed id.
        peer: ReplicaId,
        /// Members of the roster.
        replica_count: u8,
    },
    /// A replica dials higher ids only (chapter 02 section 2.2).
    #[error("replica {replica} does not dial {peer}, it waits for that peer's call")]
    PeerNotHigher {
        /// The own id.
        replica: ReplicaId,
        /// The dialed id.
        peer: ReplicaId,
    },
    /// TLS alone proves no membership, so it is refused without authentication (chapter 02
    /// section 8).
    #[error("cluster.tls needs cluster.auth")]
    TlsWithoutAuth,
    /// An all-zero nonce reads as "no nonce"; a generator that yields it is broken.
    #[error("the nonce is all zero")]
    ZeroNonce,
}
