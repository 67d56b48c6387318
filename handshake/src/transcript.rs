//! What the keyed hash covers: 143 bytes that name the cluster, both ends, both nonces, the kind of
//! link and the side that speaks (chapter 02 section 7.2). Both ends lay out the same bytes; the
//! only difference between the two codes of one handshake is the last byte, which is what makes a
//! reflected code worthless.

use biplane_wire::{ClusterId, ReplicaId};
use zeroize::{Zeroize, Zeroizing};

use crate::constants::{EXPORTER_LENGTH, NONCE_LENGTH, TRANSCRIPT_TAG};
use crate::link::Channel;

/// Bytes of a transcript.
pub(crate) const TRANSCRIPT_LENGTH: usize = 143;

/// Which end made, or is said to have made, the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Dialer,
    Acceptor,
}

impl Direction {
    const fn byte(self) -> u8 {
        match self {
            Self::Dialer => 1,
            Self::Acceptor => 2,
        }
    }
}

/// The facts both ends must agree on. The ids are ordered by role, so the lower one stands first on
/// either side of the link.
pub(crate) struct Transcript<'a> {
    pub(crate) cluster: ClusterId,
    pub(crate) dialer: ReplicaId,
    pub(crate) acceptor: ReplicaId,
    pub(crate) dialer_nonce: &'a [u8; NONCE_LENGTH],
    pub(crate) acceptor_nonce: &'a [u8; NONCE_LENGTH],
    pub(crate) channel: &'a Channel,
}

impl Transcript<'_> {
    /// The bytes to be hashed. They hold the exporter value of the session and wipe themselves.
    pub(crate) fn bytes(&self, direction: Direction) -> Zeroizing<[u8; TRANSCRIPT_LENGTH]> {
        let mut exporter = match self.channel {
            Channel::Plaintext => [0; EXPORTER_LENGTH],
            Channel::Tls { exporter } => *exporter,
        };
        let parts: [&[u8]; 9] = [
            TRANSCRIPT_TAG,
            &self.cluster.to_bytes(),
            &[self.dialer.0],
            &[self.acceptor.0],
            self.dialer_nonce,
            self.acceptor_nonce,
            &[self.channel.mode()],
            &exporter,
            &[direction.byte()],
        ];
        let mut bytes = Zeroizing::new([0; TRANSCRIPT_LENGTH]);
        let mut rest = bytes.as_mut_slice();
        for part in parts {
            // The lengths of all parts are constants that add up, so the split cannot fail.
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        assert!(rest.is_empty(), "the parts fill the transcript exactly");
        exporter.zeroize();
        bytes
    }
}

#[cfg(test)]
mod tests;
