//! Limits and lengths of the handshake, with their names. The machines of this crate have no clock
//! and no sockets, so the time limits here are kept by the driver; they live beside the protocol
//! because both ends of a link have to agree on them (chapter 02 section 1).

use core::time::Duration;

/// Bytes of a nonce (chapter 02 section 1).
pub const NONCE_LENGTH: usize = 32;

/// Bytes of a message authentication code (chapter 02 section 1).
pub const MAC_LENGTH: usize = 32;

/// Bytes of the value exported from a TLS session (chapter 02 section 7.4).
pub const EXPORTER_LENGTH: usize = 32;

/// Fewest bytes a shared secret may have; there is no upper limit (chapter 02 section 7.1).
pub const SECRET_LENGTH_MIN: usize = 32;

/// Label under which the TLS 1.3 exporter value is asked for, without a context
/// (chapter 02 section 7.4).
pub const EXPORTER_LABEL: &[u8] = b"iggy replica psk binding";

/// The one application protocol that both ends of a replica TLS session name
/// (chapter 02 section 8).
pub const ALPN: &[u8] = b"iggy-replica";

/// Default of `message_bus.handshake_grace`: one budget for the TLS handshake and the frames
/// together, measured by each side for itself and never restarted in between.
pub const HANDSHAKE_GRACE: Duration = Duration::from_secs(10);

/// What is added to the grace period before a pending dial, or a slot of an inbound handshake, is
/// given up although nothing reported its end.
pub const SLOT_EXPIRY_MARGIN: Duration = Duration::from_secs(5);

/// Inbound handshakes a node keeps in flight; one more connection is closed at once, without a
/// byte (chapter 02 section 2.3).
pub const INBOUND_HANDSHAKES_MAX: usize = 256;

/// Age at which a pending dial or an inbound slot expires, for a given grace period: 15 s with
/// the default (chapter 02 sections 2.2 and 2.3).
#[must_use]
pub const fn slot_expiry(handshake_grace: Duration) -> Duration {
    handshake_grace.saturating_add(SLOT_EXPIRY_MARGIN)
}

/// Context string of the key derivation, without a terminator (chapter 02 section 7.1).
pub(crate) const KEY_CONTEXT: &str = "apache-iggy replica-auth v1 psk->mac-key";

/// First bytes of every transcript (chapter 02 section 7.2).
pub(crate) const TRANSCRIPT_TAG: &[u8; 27] = b"apache-iggy replica-auth v1";

const _: () = {
    assert!(
        MAC_LENGTH == blake3::OUT_LEN,
        "a whole hash is sent, never a prefix"
    );
    assert!(EXPORTER_LABEL.len() == 24, "the label has no terminator");
    assert!(
        slot_expiry(HANDSHAKE_GRACE).as_secs() == 15,
        "a slot outlives its handshake"
    );
};
