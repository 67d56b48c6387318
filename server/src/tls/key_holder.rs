//! Trust without authorities: whose certificate it is matters less than that the peer holds its
//! key, which the signature over the session proves.
//!
//! Between replicas in self-signed mode any certificate will do (chapter 02 section 8). Who the
//! peer is, is proven afterwards: the code of the replica handshake covers a value that only the
//! two ends of this very session know, so a man in the middle ends up with two sessions and no
//! code that fits either. Between the HTTP listeners of a cluster whoever shows the very
//! certificate that this node shows is another node (chapter 08 section 6.2).

use std::sync::Arc;

use futures_rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use futures_rustls::rustls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Accepts who holds the key of the certificate, under every name.
#[derive(Debug)]
pub(crate) struct KeyHolder {
    /// The one leaf that is accepted, byte for byte; any if `None`.
    leaf: Option<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl KeyHolder {
    /// Of any certificate.
    pub(crate) fn of_any(provider: Arc<CryptoProvider>) -> Self {
        let leaf = None;
        Self { leaf, provider }
    }

    /// Of this certificate.
    pub(crate) fn of(leaf: CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Self {
        let leaf = Some(leaf);
        Self { leaf, provider }
    }
}

impl ServerCertVerifier for KeyHolder {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut wanted = self.leaf.iter();
        if wanted.all(|wanted| wanted.as_ref() == leaf.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        let reason = rustls::CertificateError::ApplicationVerificationFailure;
        Err(rustls::Error::InvalidCertificate(reason))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signature, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signature, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
