//! TLS towards clients (chapter 02 section 10.4): versions 1.2 and 1.3, no protocol names, no
//! client certificates.

use std::path::Path;
use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::{TlsAcceptor, TlsStream};
use tracing::info;

use super::{Credentials, TlsError, TlsRefusal, provider};
use crate::config::ListenerTls;
use crate::runtime::TcpStream;

/// The keys of a listener's files, for errors: certificate and key.
pub(crate) type FileKeys = (&'static str, &'static str);

/// Those of the TCP listener.
pub(crate) const TCP_KEYS: FileKeys = ("tcp.tls.cert_file", "tcp.tls.key_file");
/// Those of the WebSocket listener.
pub(crate) const WEBSOCKET_KEYS: FileKeys = ("websocket.tls.cert_file", "websocket.tls.key_file");
/// The name in a certificate that is minted.
const MINTED_NAME: &str = "localhost";

/// The server's side, ready for any number of sessions.
#[derive(Clone)]
pub(crate) struct ClientTls {
    acceptor: TlsAcceptor,
}

impl ClientTls {
    /// Loads the files. With `self_signed` a certificate is minted instead, but only while the
    /// file of the certificate does not exist (chapter 09 section 5.11).
    ///
    /// # Errors
    /// [`TlsError`] that names the key of the configuration.
    pub(crate) fn load(keys: FileKeys, section: &ListenerTls) -> Result<Self, TlsError> {
        let cert = Path::new(&section.cert_file);
        let credentials = if section.self_signed && !cert.exists() {
            info!(name = MINTED_NAME, "minting a certificate for clients");
            Credentials::mint(vec![MINTED_NAME.to_owned()])?
        } else {
            Credentials::load((keys.0, cert), (keys.1, Path::new(&section.key_file)))?
        };
        let refused = |source| TlsError::Refused {
            key: keys.0,
            source,
        };
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(credentials.chain, credentials.key)
            .map_err(refused)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Makes a session with whoever connected.
    pub(crate) async fn accept(
        &self,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TlsRefusal> {
        Ok(self.acceptor.accept(socket).await?.into())
    }
}
