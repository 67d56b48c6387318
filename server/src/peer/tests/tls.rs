//! TLS between replicas: who gets a session, what is bound to it, and that it carries frames.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use biplane_wire::{Command, CommitHeader, Message, ReplicaId};
use futures_rustls::rustls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::support::*;
use crate::config::ClusterTls;
use crate::tls::{ReplicaTls, TlsError};

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn self_signed() -> Option<ReplicaTls> {
    let section = ClusterTls {
        enabled: true,
        self_signed: true,
        ..ClusterTls::default()
    };
    Some(ReplicaTls::load(&section, OWN).expect("a certificate is minted"))
}

/// A certificate authority and one certificate of it for `name`, as files.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca = params.self_signed(&ca_key).expect("a certificate");
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
        let write = |file: &str, text: String| {
            std::fs::write(folder.path().join(file), text).expect("a file");
        };
        write("ca.pem", ca.pem());
        write("cert.pem", leaf.pem());
        write("key.pem", key.serialize_pem());
        Self { folder }
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    /// The own certificate, with the authority of `trusted`.
    fn section(&self, trusted: &Self) -> ClusterTls {
        ClusterTls {
            enabled: true,
            self_signed: false,
            cert_file: self.path("cert.pem"),
            key_file: self.path("key.pem"),
            ca_file: trusted.path("ca.pem"),
        }
    }

    fn tls(&self, trusted: &Self) -> Option<ReplicaTls> {
        Some(ReplicaTls::load(&self.section(trusted), OWN).expect("good files"))
    }
}

/// Both directions, small frames and one of several records.
fn assert_carries(low: &Running, high: &Running) {
    low.wait_up(2);
    high.wait_up(0);
    for view in 0..100 {
        assert!(low.mesh.send(ReplicaId(2), commit(view)));
        assert!(high.mesh.send(ReplicaId(0), commit_from(2, view)));
    }
    for view in 0..100 {
        assert_eq!((high.wait_frame(0), low.wait_frame(2)), (view, view));
    }
    // It has a body, which a commit must not have: it arrives whole, and is then refused.
    let mut header = CommitHeader::new(Command::Commit);
    header.frame.set_cluster(identity(0).cluster);
    let large = Message::sealed(header, &vec![0x5a; 3 << 20]);
    assert!(low.mesh.send(ReplicaId(2), large));
    assert!(low.mesh.send(ReplicaId(2), commit(200)));
    assert_eq!(high.wait_frame(0), 200);
}

#[test]
fn self_signed_nodes_with_one_secret_are_linked() {
    let addresses = addresses();
    let low = Running::secured(0, &addresses, keys(S1), self_signed());
    let high = Running::secured(2, &addresses, keys(S1), self_signed());
    assert_carries(&low, &high);
}

#[test]
fn self_signed_nodes_with_different_secrets_are_not() {
    let addresses = addresses();
    let low = Running::secured(0, &addresses, keys(S1), self_signed());
    let high = Running::secured(2, &addresses, keys(S2), self_signed());
    low.wait_count(|counters| &counters.handshakes_failed, 2);
    low.assert_quiet();
    high.assert_quiet();
}

#[test]
fn certificates_of_the_trusted_authority_are_accepted_and_others_are_not() {
    let (ours, theirs) = (Files::new("127.0.0.1"), Files::new("127.0.0.1"));
    let addresses = addresses();
    let low = Running::secured(0, &addresses, keys(S1), ours.tls(&ours));
    {
        let stranger = Running::secured(2, &addresses, keys(S1), theirs.tls(&theirs));
        low.wait_count(|counters| &counters.handshakes_failed, 2);
        low.assert_quiet();
        stranger.assert_quiet();
    }
    {
        // Self-signed is no way around.
        let stranger = Running::secured(2, &addresses, keys(S1), self_signed());
        low.wait_count(|counters| &counters.handshakes_failed, 4);
        stranger.assert_quiet();
    }
    let high = Running::secured(2, &addresses, keys(S1), ours.tls(&ours));
    assert_carries(&low, &high);
}

#[test]
fn a_certificate_must_name_the_address_of_the_roster() {
    let (ours, elsewhere) = (Files::new("127.0.0.1"), Files::new("127.0.0.2"));
    let addresses = addresses();
    let low = Running::secured(0, &addresses, keys(S1), ours.tls(&elsewhere));
    let high = Running::secured(2, &addresses, keys(S1), elsewhere.tls(&ours));
    low.wait_count(|counters| &counters.handshakes_failed, 2);
    low.assert_quiet();
    high.assert_quiet();
}

/// What a library client makes of the acceptor: its own error, or the acceptor's alert, or the
/// end of the stream.
fn session_with(
    address: SocketAddr,
    change: impl FnOnce(&mut ClientConfig),
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let socket = TcpStream::connect(address).expect("the mesh listens");
    session_over(socket, change, versions)
}

fn session_over(
    socket: TcpStream,
    change: impl FnOnce(&mut ClientConfig),
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(crate::tls::KeyHolder::of_any(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"iggy-replica".to_vec()];
    change(&mut config);
    let name = ServerName::IpAddress(OWN.into());
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    socket.set_read_timeout(Some(LIMIT)).expect("an option");
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
            return Err(error.to_string());
        }
    }
    Ok(stream)
}

#[test]
fn older_versions_and_other_protocols_are_refused() {
    use rustls::version::{TLS12, TLS13};
    let addresses = addresses();
    let high = Running::secured(2, &addresses, keys(S1), self_signed());
    let nothing = |_: &mut ClientConfig| {};

    let mut stream = session_with(addresses[2], nothing, &[&TLS13]).expect("a session");
    stream
        .write_all(&hello(Some([1; 32])))
        .expect("the mesh reads");
    let mut challenge = [0; 256];
    stream.read_exact(&mut challenge).expect("a challenge");
    assert_eq!((challenge[60], challenge[192]), (15, 0));
    drop(stream);

    let error = session_with(addresses[2], nothing, &[&TLS12]).expect_err("TLS 1.2");
    println!("TLS 1.2: {error}");
    let other = |config: &mut ClientConfig| config.alpn_protocols = vec![b"h2".to_vec()];
    let error = session_with(addresses[2], other, &[&TLS13]).expect_err("another protocol");
    println!("ALPN h2: {error}");
    // Whoever names no protocol gets a session and then no answer.
    let none = |config: &mut ClientConfig| config.alpn_protocols.clear();
    if let Ok(mut stream) = session_with(addresses[2], none, &[&TLS13]) {
        let _ = stream.write_all(&hello(Some([1; 32])));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    high.wait_count(|counters| &counters.handshakes_failed, 4);
    high.assert_quiet();
}

#[test]
fn one_side_with_tls_and_one_without_are_not_linked() {
    for tls_dials in [true, false] {
        let addresses = addresses();
        let tls = |on: bool| if on { self_signed() } else { None };
        let low = Running::secured(0, &addresses, keys(S1), tls(tls_dials));
        let high = Running::secured(2, &addresses, keys(S1), tls(!tls_dials));
        low.wait_count(|counters| &counters.handshakes_failed, 2);
        high.wait_count(|counters| &counters.handshakes_failed, 2);
        low.assert_quiet();
        high.assert_quiet();
    }
}

#[test]
fn strangers_at_a_tls_port_are_gone_at_once_or_with_the_budget() {
    let addresses = addresses();
    let high = Running::secured(2, &addresses, keys(S1), self_signed());
    let start = Instant::now();
    let mut garbage = Raw::connect(addresses[2]);
    garbage.say(&[0xff; 600]);
    garbage.rest();
    let mut huge = Raw::connect(addresses[2]);
    // A record of the largest size that a length field can claim.
    huge.say(&[&[0x16, 3, 1, 0xff, 0xff][..], &[1; 1000]].concat());
    huge.rest();
    assert!(start.elapsed() < Duration::from_millis(1_900), "at once");

    let mut silent = Raw::connect(addresses[2]);
    let mut half = Raw::connect(addresses[2]);
    half.say(&[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]);
    assert_eq!((silent.rest(), half.rest()), (Vec::new(), Vec::new()));
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(1_900) && took < Duration::from_secs(8),
        "{took:?}"
    );
    high.wait_count(|counters| &counters.handshakes_failed, 4);
    high.assert_quiet();
}

/// The session takes most of the budget; what is left of it is for the frames.
#[test]
fn the_budget_is_one_for_tls_and_frames() {
    let addresses = addresses();
    let high = Running::secured(2, &addresses, keys(S1), self_signed());
    let start = Instant::now();
    let waits = |_: &mut ClientConfig| {};
    let slow = TcpStream::connect(addresses[2]).expect("the mesh listens");
    thread::sleep(Duration::from_millis(1_400));
    let stream = session_over(slow, waits, &[&rustls::version::TLS13]);
    let mut stream = stream.expect("a session");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let took = start.elapsed();
    assert_eq!(answer, b"");
    assert!(took < Duration::from_secs(3), "{took:?} of a budget of 2 s");
    high.wait_count(|counters| &counters.handshakes_failed, 1);
    high.assert_quiet();
}

/// A man in the middle: one TLS session with each side, and every byte passed on as it is.
fn relay(from: SocketAddr, to: SocketAddr, tls: ServerConfig) {
    let listener = TcpListener::bind(from).expect("a free port");
    let tls = Arc::new(tls);
    thread::spawn(move || {
        for near in listener.incoming().take(3) {
            let near = near.expect("a connection");
            near.set_read_timeout(Some(LIMIT)).expect("an option");
            let session = ServerConnection::new(Arc::clone(&tls)).expect("a session");
            let mut near = StreamOwned::new(session, near);
            let mut far = session_with(to, |_| {}, &[&rustls::version::TLS13]).expect("a session");
            // Hello, then challenge, then what follows, if anything does.
            let mut frame = [0; 256];
            let mut forward = true;
            loop {
                let read = if forward {
                    near.read_exact(&mut frame)
                } else {
                    far.read_exact(&mut frame)
                };
                if read.is_err() {
                    break;
                }
                let written = if forward {
                    far.write_all(&frame).and_then(|()| far.flush())
                } else {
                    near.write_all(&frame).and_then(|()| near.flush())
                };
                if written.is_err() {
                    break;
                }
                forward = !forward;
            }
        }
    });
}

#[test]
fn a_code_of_one_channel_is_useless_on_another() {
    let mut addresses = addresses();
    let high = Running::secured(2, &addresses, keys(S1), self_signed());
    let real = addresses[2];
    addresses[2] = super::support::addresses()[0];
    let minted = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("minted");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(minted.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![minted.cert.der().clone()], key.into())
        .expect("a certificate");
    tls.alpn_protocols = vec![b"iggy-replica".to_vec()];
    relay(addresses[2], real, tls);
    // The dialer accepts the relay's certificate: in self-signed mode it accepts any. The code of
    // the real acceptor does not fit its session.
    let low = Running::secured(0, &addresses, keys(S1), self_signed());
    low.wait_count(|counters| &counters.handshakes_failed, 2);
    low.assert_quiet();
    high.assert_quiet();
}

#[derive(Debug, Default)]
struct CapturedSecrets(Mutex<Vec<u8>>);

impl rustls::KeyLog for CapturedSecrets {
    fn log(&self, label: &str, _random: &[u8], secret: &[u8]) {
        if label == "EXPORTER_SECRET" {
            *self.0.lock().expect("not poisoned") = secret.to_vec();
        }
    }
}

/// Ties the vectors of the handshake crate to what the library exports: label, no context, length.
#[test]
fn the_exported_value_is_the_one_of_the_specification() {
    use biplane_handshake::EXPORTER_LABEL;
    use ring::{digest, hkdf};
    let addresses = addresses();
    let _high = Running::secured(2, &addresses, keys(S1), self_signed());
    let captured = Arc::new(CapturedSecrets::default());
    let log = Arc::clone(&captured);
    let stream = session_with(
        addresses[2],
        |config| config.key_log = log,
        &[&rustls::version::TLS13],
    )
    .expect("a session");
    let exported = stream
        .conn
        .export_keying_material([0; 32], EXPORTER_LABEL, None)
        .expect("exported");

    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let expand = |secret: &[u8], label: &[u8], length: usize| -> Vec<u8> {
        let label = [b"tls13 ", label].concat();
        let empty = digest::digest(&digest::SHA384, b"");
        let (label_length, length_byte) = ([label.len() as u8], [0, length as u8]);
        let info = [
            &length_byte[..],
            &label_length,
            &label,
            &[48],
            empty.as_ref(),
        ];
        let mut output = vec![0; length];
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA384, secret)
            .expand(&info, Length(length))
            .and_then(|expanded| expanded.fill(&mut output))
            .expect("a short output");
        output
    };
    let master = captured.0.lock().expect("not poisoned").clone();
    assert_eq!(master.len(), 48, "the suite in use hashes with SHA-384");
    let derived = expand(&master, b"iggy replica psk binding", 48);
    assert_eq!(expand(&derived, b"exporter", 32), exported);
}

#[test]
fn bad_files_are_named_with_their_key() {
    let (files, others) = (Files::new("127.0.0.1"), Files::new("127.0.0.1"));
    let good = files.section(&files);
    let garbage = files.path("garbage.pem");
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n!!\n").expect("a file");
    let empty = files.path("empty.pem");
    std::fs::write(&empty, "").expect("a file");
    let refused = |section: &ClusterTls| -> TlsError {
        ReplicaTls::load(section, OWN)
            .err()
            .expect("must be refused")
    };
    for file in [files.path("missing.pem"), garbage, empty] {
        let cert = ClusterTls {
            cert_file: file.clone(),
            ..good.clone()
        };
        let key = ClusterTls {
            key_file: file.clone(),
            ..good.clone()
        };
        let ca = ClusterTls {
            ca_file: file.clone(),
            ..good.clone()
        };
        for (section, name) in [(cert, "cert_file"), (key, "key_file"), (ca, "ca_file")] {
            let text = refused(&section).to_string();
            assert!(text.contains(&format!("cluster.tls.{name}")), "{text}");
        }
    }
    let mixed = ClusterTls {
        key_file: others.path("key.pem"),
        ..good.clone()
    };
    let text = refused(&mixed).to_string();
    assert!(text.contains("cluster.tls.cert_file"), "{text}");
    // A file of roots may hold other things than roots.
    let ca = std::fs::read_to_string(files.path("ca.pem")).expect("a file");
    let noisy = files.path("noisy.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&noisy, format!("{broken}{ca}")).expect("a file");
    let section = ClusterTls {
        ca_file: noisy,
        ..good
    };
    assert!(ReplicaTls::load(&section, OWN).is_ok());
    assert!(Path::new(&section.ca_file).exists());
}
