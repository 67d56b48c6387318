//! TLS material: PEM files, certificates minted at boot, and the one crypto provider.
//!
//! ```text
//!   cert_file, key_file, ca_file ─► checked at boot ─┐
//!                                                    ├─► connector, acceptor ─► sessions
//!   self_signed ─► minted at boot ───────────────────┘
//! ```
//!
//! Everything that can be wrong with a file is found before a port is opened, and named with the
//! configuration key it came from. Sessions themselves are in the files below this one.

mod client;
mod key_holder;
mod refusal;
mod replica;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_rustls::pki_types::pem::PemObject as _;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use futures_rustls::rustls;
use rustls::crypto::CryptoProvider;

pub(crate) use client::{ClientTls, TCP_KEYS, WEBSOCKET_KEYS};
#[cfg(test)]
pub(crate) use key_holder::KeyHolder;
pub(crate) use refusal::TlsRefusal;
pub(crate) use replica::{ReplicaTls, Session};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("configuration key {key}: cannot read {}: {source}", path.display())]
    Unreadable {
        /// Dotted path of the key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("configuration key {key}: {}: {reason}", path.display())]
    Invalid {
        /// Dotted path of the key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it. Never a part of its content.
        reason: String,
    },
    /// Certificate and key are refused together.
    #[error("configuration key {key}: {source}")]
    Refused {
        /// Dotted path of the key.
        key: &'static str,
        /// What the library said.
        source: rustls::Error,
    },
    /// No certificate can be minted.
    #[error("no certificate can be minted: {0}")]
    Mint(#[from] rcgen::Error),
}

/// A certificate chain, leaf first, and its key.
pub(crate) struct Credentials {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// The provider of every session. It is always named, never taken from the process, so that no
/// other library can change it.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Chain and key of the HTTP listener.
///
/// # Errors
/// [`TlsError`] that names the key of the configuration.
pub(crate) fn http_credentials(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let loaded = Credentials::load(("http.tls.cert_file", cert), ("http.tls.key_file", key))?;
    Ok((loaded.chain, loaded.key))
}

/// A client that believes the leaf of this file alone.
///
/// # Errors
/// [`TlsError`] when the file holds no certificate.
pub(crate) fn pinned_to(file: &Path) -> Result<rustls::ClientConfig, TlsError> {
    const KEY: &str = "--cert-file";
    let mut chain = CertificateDer::pem_slice_iter(&read(KEY, file)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| invalid(KEY, file, format!("no valid PEM: {error}")))?;
    if chain.is_empty() {
        return Err(invalid(KEY, file, "holds no certificate"));
    }
    pinned(KEY, chain.swap_remove(0))
}

/// A client that believes this leaf alone; `key` is where it came from.
///
/// # Errors
/// [`TlsError::Refused`].
pub(crate) fn pinned(
    key: &'static str,
    leaf: CertificateDer<'static>,
) -> Result<rustls::ClientConfig, TlsError> {
    let refused = |source| TlsError::Refused { key, source };
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(key_holder::KeyHolder::of(leaf, provider())))
        .with_no_client_auth();
    Ok(config)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })
}

fn invalid(key: &'static str, path: &Path, reason: impl Into<String>) -> TlsError {
    TlsError::Invalid {
        key,
        path: path.to_owned(),
        reason: reason.into(),
    }
}

impl Credentials {
    /// Reads a chain and a key (PKCS#8, PKCS#1 or SEC1), both PEM. The two keys name the
    /// configuration in errors.
    fn load(
        (cert_key, cert_file): (&'static str, &Path),
        (key_key, key_file): (&'static str, &Path),
    ) -> Result<Self, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(cert_key, cert_file)?)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(cert_key, cert_file, format!("no valid PEM: {error}")))?;
        if chain.is_empty() {
            return Err(invalid(cert_key, cert_file, "holds no certificate"));
        }
        // The error of the parser could quote what it stumbled over, so it is not passed on.
        let bytes = zeroize::Zeroizing::new(read(key_key, key_file)?);
        let key = PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_| invalid(key_key, key_file, "holds no private key in PEM form"))?;
        Ok(Self { chain, key })
    }

    /// Makes an ECDSA P-256 certificate for `names` (addresses or host names) that lives as long
    /// as the process.
    fn mint(names: Vec<String>) -> Result<Self, TlsError> {
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        Ok(Self {
            chain: vec![cert.der().clone()],
            key: key.into(),
        })
    }

    /// True when the leaf names this address.
    fn names(&self, address: IpAddr) -> bool {
        let Some(leaf) = self.chain.first() else {
            return false;
        };
        let name = rustls::pki_types::ServerName::IpAddress(address.into());
        rustls::server::ParsedCertificate::try_from(leaf)
            .and_then(|parsed| rustls::client::verify_server_name(&parsed, &name))
            .is_ok()
    }
}

/// The certificates of a file of trusted roots; those that do not parse are left out.
fn roots(key: &'static str, path: &Path) -> Result<rustls::RootCertStore, TlsError> {
    let mut store = rustls::RootCertStore::empty();
    let bytes = read(key, path)?;
    let parsed = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
    let (_, unusable) = store.add_parsable_certificates(parsed);
    if unusable > 0 {
        tracing::warn!(key, path = %path.display(), unusable, "certificates left out");
    }
    if store.is_empty() {
        return Err(invalid(key, path, "holds no usable certificate"));
    }
    Ok(store)
}
