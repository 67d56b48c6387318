//! Why a TLS handshake came to nothing, in words an operator can act on.
//!
//! A peer that refuses often says nothing at all: the original server closes the connection without
//! the alert. So the end of the stream is a refusal here, and the text names what may be behind it.

use std::io;

use futures_rustls::rustls;
use rustls::{AlertDescription, CertificateError, Error as TlsLibraryError, PeerIncompatible};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsRefusal {
    /// What arrived is no TLS.
    #[error("the peer does not speak TLS: is cluster.tls.enabled equal on both nodes?")]
    PlaintextPeer,
    /// The stream ended.
    #[error(
        "the peer closed the connection during the TLS handshake: it refuses this node, or \
         cluster.tls.enabled is not equal on both nodes"
    )]
    PeerClosed,
    /// The peer sent an alert.
    #[error("the peer refuses the TLS handshake: {0:?}")]
    Alert(AlertDescription),
    /// The peer's certificate does not pass.
    #[error("the peer's certificate is refused: {0}")]
    Certificate(CertificateError),
    /// No version or cipher suite in common.
    #[error("the peer does not offer TLS 1.3 as it is spoken here: {0:?}")]
    Incompatible(PeerIncompatible),
    /// The peer is no replica.
    #[error("the peer does not name the protocol iggy-replica")]
    NoProtocol,
    /// Anything else the library objects to.
    #[error("TLS: {0}")]
    Other(TlsLibraryError),
    /// The socket failed.
    #[error("connection lost during the TLS handshake: {0}")]
    Io(io::Error),
}

impl TlsRefusal {
    /// Short fixed text for logs.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::PlaintextPeer => "tls_plaintext_peer",
            Self::PeerClosed => "tls_peer_closed",
            Self::Alert(_) => "tls_alert",
            Self::Certificate(_) => "tls_certificate",
            Self::Incompatible(_) => "tls_incompatible",
            Self::NoProtocol => "tls_no_protocol",
            Self::Other(_) => "tls_error",
            Self::Io(_) => "tls_connection_lost",
        }
    }
}

impl From<io::Error> for TlsRefusal {
    fn from(error: io::Error) -> Self {
        let library = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<TlsLibraryError>());
        match library {
            Some(library) => Self::from(library.clone()),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::PeerClosed,
            None => Self::Io(error),
        }
    }
}

impl From<TlsLibraryError> for TlsRefusal {
    fn from(error: TlsLibraryError) -> Self {
        match error {
            // Bytes that are no TLS record at all. A peer that is only strange fails later.
            TlsLibraryError::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType
                | rustls::InvalidMessage::UnknownProtocolVersion
                | rustls::InvalidMessage::InvalidEmptyPayload
                | rustls::InvalidMessage::MessageTooLarge,
            ) => Self::PlaintextPeer,
            TlsLibraryError::AlertReceived(alert) => Self::Alert(alert),
            TlsLibraryError::InvalidCertificate(reason) => Self::Certificate(reason),
            TlsLibraryError::PeerIncompatible(reason) => Self::Incompatible(reason),
            TlsLibraryError::NoApplicationProtocol => Self::NoProtocol,
            other => Self::Other(other),
        }
    }
}
