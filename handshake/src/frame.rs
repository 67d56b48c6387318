//! The three frames (chapter 02 section 5): a view of a foreign header that any bytes may be
//! behind, and the only place that builds the frames this crate sends. The layout itself belongs to
//! the wire crate.

use biplane_wire::{
    ClusterId, Command, HEADER_SIZE, HandshakeHeader, HandshakeStatus, Header, ReplicaId,
};

use crate::constants::NONCE_LENGTH;
use crate::keys::Mac;
use crate::link::Identity;
use crate::reject::RejectReason;

/// A frame to be sent: a header without a body, and without a checksum.
pub type Frame = [u8; HEADER_SIZE];

/// The header of a frame that was read, and its command. It proves that there are 256 bytes with a
/// possible size and an existing command; everything else is still to be judged.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) header: &'a HandshakeHeader,
    command: Command,
}

impl<'a> Received<'a> {
    /// What the framing rules of chapter 02 section 3 say about a header. The driver applies them
    /// as well, before it reads a body; here they are what makes any bytes safe to hand in.
    pub(crate) fn read(frame: &'a [u8]) -> Result<Self, RejectReason> {
        let Some((header, _body)) = frame.split_first_chunk::<HEADER_SIZE>() else {
            return Err(RejectReason::FrameTruncated {
                length: frame.len(),
            });
        };
        let header = HandshakeHeader::over(header);
        let size = header.frame.size();
        if (size as usize) < HEADER_SIZE {
            return Err(RejectReason::FrameSizeIllegal { size });
        }
        let command = header.frame.command_byte();
        match Command::from_u8(command) {
            Some(command) => Ok(Self { header, command }),
            None => Err(RejectReason::CommandIllegal { command }),
        }
    }

    /// The frame is the one that is due.
    pub(crate) fn expect_command(&self, expected: Command) -> Result<(), RejectReason> {
        if self.command == expected {
            return Ok(());
        }
        Err(RejectReason::UnknownCommand {
            expected,
            command: self.command,
        })
    }

    /// The frame belongs to the own cluster.
    pub(crate) fn expect_cluster(&self, cluster: ClusterId) -> Result<(), RejectReason> {
        if self.header.frame.cluster() == cluster {
            return Ok(());
        }
        Err(RejectReason::ClusterMismatch)
    }

    /// The frame comes from `peer` of `cluster`, by its own words.
    pub(crate) fn expect_sender(
        &self,
        cluster: ClusterId,
        peer: ReplicaId,
    ) -> Result<(), RejectReason> {
        self.expect_cluster(cluster)?;
        let found = self.header.frame.replica();
        if found == peer {
            return Ok(());
        }
        Err(RejectReason::PeerMismatch {
            expected: peer,
            found,
        })
    }
}

/// The dialer's first frame; without a nonce when authentication is off.
pub(crate) fn hello(identity: &Identity, nonce: Option<&[u8; NONCE_LENGTH]>) -> Frame {
    let mut header = blank(identity, Command::ReplicaHello);
    if let Some(nonce) = nonce {
        header.set_nonce(*nonce);
    }
    *header.bytes()
}

/// The acceptor's answer to an acceptable hello; status 0 is what the blank header holds.
pub(crate) fn challenge(identity: &Identity, nonce: &[u8; NONCE_LENGTH], mac: &Mac) -> Frame {
    let mut header = blank(identity, Command::ReplicaChallenge);
    header.set_nonce(*nonce);
    header.set_mac(*mac.as_bytes());
    *header.bytes()
}

/// The acceptor's answer to a hello it declines.
pub(crate) fn refusal(identity: &Identity, status: HandshakeStatus) -> Frame {
    assert!(
        !matches!(
            status,
            HandshakeStatus::Ok | HandshakeStatus::AuthRequired | HandshakeStatus::MacMismatch
        ),
        "success is not refused, and nothing about secrets is told"
    );
    let mut header = blank(identity, Command::ReplicaChallenge);
    header.set_status(status as u8);
    *header.bytes()
}

/// The dialer's last frame.
pub(crate) fn finish(identity: &Identity, mac: &Mac) -> Frame {
    let mut header = blank(identity, Command::ReplicaFinish);
    header.set_mac(*mac.as_bytes());
    *header.bytes()
}

fn blank(identity: &Identity, command: Command) -> HandshakeHeader {
    let mut header = HandshakeHeader::new(command);
    header.frame.set_cluster(identity.cluster);
    header.frame.set_replica(identity.replica);
    header
}
