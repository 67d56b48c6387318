//! TLS between replicas (chapter 02 section 8): version 1.3, one protocol name, no client
//! certificates, no resumption, and a value exported from each session that the replica handshake
//! hashes into both of its codes.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use biplane_handshake::{ALPN, Channel, EXPORTER_LABEL, EXPORTER_LENGTH};
use futures_rustls::pki_types::ServerName;
use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::server::NoServerSessionStorage;
use futures_rustls::rustls::version::TLS13;
use futures_rustls::rustls::{ClientConfig, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tracing::warn;

use super::key_holder::KeyHolder;
use super::{Credentials, TlsError, TlsRefusal, provider, roots};
use crate::config::ClusterTls;
use crate::runtime::TcpStream;

const CERT_KEY: &str = "cluster.tls.cert_file";
const KEY_KEY: &str = "cluster.tls.key_file";
const CA_KEY: &str = "cluster.tls.ca_file";

/// Both roles of a node, ready for any number of sessions.
#[derive(Clone)]
pub(crate) struct ReplicaTls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

/// A session whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Session {
    /// The stream inside it.
    pub(crate) stream: TlsStream<TcpStream>,
    /// What the replica handshake hashes.
    pub(crate) channel: Channel,
}

impl ReplicaTls {
    /// Loads the files, or mints a certificate for the own address.
    ///
    /// # Errors
    /// [`TlsError`] that names the key of the configuration.
    pub(crate) fn load(section: &ClusterTls, own: IpAddr) -> Result<Self, TlsError> {
        let provider = provider();
        let refused = |key| move |source| TlsError::Refused { key, source };
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(refused("cluster.tls"))?;
        let (credentials, mut client) = if section.self_signed {
            if section.names_a_file() {
                warn!("cluster.tls.self_signed is on: the files of cluster.tls are not used");
            }
            let verifier = KeyHolder::of_any(Arc::clone(&provider));
            let client = client
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth();
            (Credentials::mint(vec![own.to_string()])?, client)
        } else {
            let credentials = Credentials::load(
                (CERT_KEY, Path::new(&section.cert_file)),
                (KEY_KEY, Path::new(&section.key_file)),
            )?;
            if !credentials.names(own) {
                warn!(
                    %own,
                    "the certificate in cluster.tls.cert_file does not name this node's address; \
                     peers will refuse it"
                );
            }
            let roots = roots(CA_KEY, Path::new(&section.ca_file))?;
            let client = client.with_root_certificates(roots).with_no_client_auth();
            (credentials, client)
        };
        client.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would skip the certificate; the mesh dials far too seldom to care.
        client.resumption = Resumption::disabled();

        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(refused("cluster.tls"))?
            .with_no_client_auth()
            .with_single_cert(credentials.chain, credentials.key)
            .map_err(refused(CERT_KEY))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
    }

    /// The client's side, towards the roster address `peer`.
    pub(crate) async fn dial(
        &self,
        stream: TcpStream,
        peer: IpAddr,
    ) -> Result<Session, TlsRefusal> {
        // An address as a name: no SNI is sent, and the certificate needs it as an IP SAN.
        let name = ServerName::IpAddress(peer.into());
        let stream = self.connector.connect(name, stream).await?;
        Session::check(stream.into())
    }

    /// The server's side.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Session, TlsRefusal> {
        let stream = self.acceptor.accept(stream).await?;
        Session::check(stream.into())
    }
}

impl Session {
    /// A peer that offers no protocol at all passes the library's check, but no replica does that.
    fn check(stream: TlsStream<TcpStream>) -> Result<Self, TlsRefusal> {
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(ALPN) {
            return Err(TlsRefusal::NoProtocol);
        }
        let exporter = match &stream {
            TlsStream::Client(inner) => {
                let (_, session) = inner.get_ref();
                session.export_keying_material([0; EXPORTER_LENGTH], EXPORTER_LABEL, None)?
            }
            TlsStream::Server(inner) => {
                let (_, session) = inner.get_ref();
                session.export_keying_material([0; EXPORTER_LENGTH], EXPORTER_LABEL, None)?
            }
        };
        Ok(Self {
            stream,
            channel: Channel::Tls { exporter },
        })
    }
}
