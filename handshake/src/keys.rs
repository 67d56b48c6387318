//! The keys of a cluster: derived from the shared secrets, the current one to sign and verify, the
//! retiring one to verify only. A key leaves this file neither as bytes nor as text; what leaves is
//! a code made with it, or the answer which key a foreign code was made with.

use core::fmt;

use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

use crate::constants::{KEY_CONTEXT, MAC_LENGTH, SECRET_LENGTH_MIN};

/// Which of the two configured secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySlot {
    /// From `cluster.auth.shared_secret`: signs and verifies.
    Current,
    /// From `cluster.auth.previous_shared_secret`: verifies only. An operator may retire the old
    /// secret once no peer is verified with it any more.
    Previous,
}

impl KeySlot {
    /// The configuration key the secret comes from.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Current => "shared_secret",
            Self::Previous => "previous_shared_secret",
        }
    }
}

impl fmt::Display for KeySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Why a pair of secrets is refused (chapter 02 sections 7.1 and 7.3). Lengths are in bytes; the
/// secrets themselves are never part of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Authentication is on and there is no secret to sign with.
    #[error("cluster.auth.shared_secret is empty although authentication is on")]
    Missing,
    /// The secret is shorter than [`SECRET_LENGTH_MIN`].
    #[error("cluster.auth.{slot} has {length} bytes, at least {SECRET_LENGTH_MIN} are required")]
    TooShort {
        /// The secret in question.
        slot: KeySlot,
        /// Its length in bytes.
        length: usize,
    },
    /// Rotating from a secret to itself.
    #[error("cluster.auth.previous_shared_secret equals cluster.auth.shared_secret")]
    Equal,
}

/// Judges configured secrets without deriving keys. An empty string stands for "not configured",
/// which is legal here: these rules hold with authentication off, too (chapter 09 section 5.3).
///
/// # Errors
///
/// [`SecretError::TooShort`] or [`SecretError::Equal`].
pub fn check_secrets(shared: &str, previous: &str) -> Result<(), SecretError> {
    for (slot, secret) in [(KeySlot::Current, shared), (KeySlot::Previous, previous)] {
        let length = secret.len();
        if length != 0 && length < SECRET_LENGTH_MIN {
            return Err(SecretError::TooShort { slot, length });
        }
    }
    if !previous.is_empty() && previous == shared {
        return Err(SecretError::Equal);
    }
    Ok(())
}

/// What one node signs and verifies with. The keys are wiped from memory when the value is dropped,
/// and so is every clone; its `Debug` form says nothing about them.
#[derive(Clone)]
pub struct Keys {
    current: MacKey,
    previous: Option<MacKey>,
}

impl Keys {
    /// Derives the keys from the configured secrets, taken as their raw bytes: nothing is trimmed
    /// or decoded. `previous` is given while a secret is being replaced; `None` and an empty string
    /// mean the same.
    ///
    /// # Errors
    ///
    /// [`SecretError`] when a secret is missing, too short, or the two are equal.
    pub fn from_secrets(shared: &str, previous: Option<&str>) -> Result<Self, SecretError> {
        let previous = previous.unwrap_or_default();
        if shared.is_empty() {
            return Err(SecretError::Missing);
        }
        check_secrets(shared, previous)?;
        Ok(Self {
            current: MacKey::derive(shared.as_bytes()),
            previous: (!previous.is_empty()).then(|| MacKey::derive(previous.as_bytes())),
        })
    }

    /// The code of `transcript` under the current key. The previous key never signs.
    pub(crate) fn sign(&self, transcript: &[u8]) -> Mac {
        self.current.mac(transcript)
    }

    /// Which key `claimed` was made with over `transcript`, if any. Both keys are always tried and
    /// compared in constant time, so the time taken does not tell which one a peer holds.
    pub(crate) fn verify(&self, transcript: &[u8], claimed: &[u8; MAC_LENGTH]) -> Option<KeySlot> {
        let current = self.current.mac(transcript).matches(claimed);
        let previous = match &self.previous {
            Some(key) => key.mac(transcript).matches(claimed),
            None => Choice::from(0),
        };
        if bool::from(current) {
            Some(KeySlot::Current)
        } else if bool::from(previous) {
            Some(KeySlot::Previous)
        } else {
            None
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

/// One derived key.
#[derive(Clone)]
struct MacKey(Zeroizing<[u8; blake3::KEY_LEN]>);

impl MacKey {
    /// BLAKE3 in its key derivation mode (chapter 02 section 7.1).
    fn derive(secret: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        hasher.update(secret);
        let mut hash = hasher.finalize();
        let key = Self(Zeroizing::new(*hash.as_bytes()));
        hash.zeroize();
        hasher.zeroize();
        key
    }

    /// BLAKE3 in its keyed mode (chapter 02 section 7.2). The hasher holds a copy of the key and is
    /// wiped for that reason.
    fn mac(&self, transcript: &[u8]) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(transcript);
        let mut hash = hasher.finalize();
        let mac = Mac(Zeroizing::new(*hash.as_bytes()));
        hash.zeroize();
        hasher.zeroize();
        mac
    }
}

/// A code this node computed. It has no `==`: codes are compared by [`Mac::matches`] alone. One
/// that is only compared stays secret, since it would let whoever learns it pass as the peer.
pub(crate) struct Mac(Zeroizing<[u8; MAC_LENGTH]>);

impl Mac {
    fn matches(&self, claimed: &[u8; MAC_LENGTH]) -> Choice {
        self.0.as_slice().ct_eq(claimed.as_slice())
    }

    /// The bytes, to be put into a frame.
    pub(crate) fn as_bytes(&self) -> &[u8; MAC_LENGTH] {
        &self.0
    }
}

#[cfg(test)]
mod tests;
