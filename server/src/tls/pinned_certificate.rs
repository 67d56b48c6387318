//! Trust between the HTTP listeners of a cluster: whoever shows the very certificate that this node
//! shows is another node (chapter 08 section 6.2).

use std::sync::Arc;

use futures_rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use futures_rustls::rustls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Accepts one leaf, byte for byte, under every name.
#[derive(Debug)]
pub(crate) struct PinnedCertificate {
    leaf: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl PinnedCertificate {
    pub(crate) fn new(leaf: CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Self {
        Self { leaf, provider }
    }
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if leaf.as_ref() == self.leaf.as_ref() {
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
