//! HTTP over TLS: a certificate for loopback, and sessions that believe nothing else.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::pki_types::ServerName;
use futures_rustls::rustls;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::web::{WebAnswer, parse};

const ANSWER_LIMIT: Duration = Duration::from_secs(45);

/// A session of a client.
pub(crate) type Session = StreamOwned<ClientConnection, TcpStream>;

/// A certificate that is its own authority, as files, and who believes it.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) cert: PathBuf,
    key: PathBuf,
    roots: Arc<RootCertStore>,
}

impl Certificate {
    /// Makes one in `folder`; `name` tells it from others.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let names = vec!["127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        fs::write(path("cert"), made.cert.pem()).expect("a file");
        fs::write(path("key"), made.signing_key.serialize_pem()).expect("a file");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        Self {
            cert: path("cert"),
            key: path("key"),
            roots: Arc::new(roots),
        }
    }

    /// The section of the configuration that shows it.
    pub(crate) fn section(&self) -> String {
        format!(
            "[http.tls]\nenabled = true\ncert_file = {:?}\nkey_file = {:?}\n",
            self.cert, self.key
        )
    }

    /// A session in which the client offers these protocols.
    ///
    /// # Errors
    /// What the socket or the library said.
    pub(crate) fn session(&self, address: SocketAddr, alpn: &[&str]) -> Result<Session, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let told = |error: std::io::Error| error.to_string();
        let mut socket =
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).map_err(told)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT)).map_err(told)?;
        let name = ServerName::IpAddress(address.ip().into());
        let mut session =
            ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(told)?;
        }
        Ok(StreamOwned::new(session, socket))
    }

    /// Sends these very bytes and reads an answer.
    ///
    /// # Errors
    /// What the socket or the library said, or what is wrong with the answer.
    pub(crate) fn raw(&self, address: SocketAddr, bytes: &[u8]) -> Result<WebAnswer, String> {
        let mut session = self.session(address, &["http/1.1"])?;
        let sent = session.write_all(bytes);
        let mut answer = Vec::new();
        // A connection may end without the farewell of TLS; the length of the body tells whether
        // something is missing.
        let read = session.read_to_end(&mut answer);
        parse(&answer).ok_or_else(|| format!("no answer (sent {sent:?}, read {read:?})"))
    }
}
