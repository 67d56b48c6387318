//! A cluster whose replicas speak TLS with certificates made here.

use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::load::Load;
use crate::nodes::{NodeSetup, Nodes, SECRET, auth};
use crate::support::seed;

/// A certificate authority, and one certificate of it for 127.0.0.1.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca = params.self_signed(&ca_key).expect("a certificate");
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
        let files = Self { folder };
        for (file, text) in [
            ("ca.pem", ca.pem()),
            ("cert.pem", leaf.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(files.path(file), text).expect("a file");
        }
        files
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The section of a node with this certificate that trusts the authority of `trusted`.
    pub(crate) fn section(&self, trusted: &Self) -> String {
        format!(
            "[cluster.tls]\nenabled = true\ncert_file = {:?}\nkey_file = {:?}\nca_file = {:?}\n",
            self.path("cert.pem"),
            self.path("key.pem"),
            trusted.path("ca.pem")
        )
    }
}

/// Lines of a PEM file that are the secret itself.
fn secret_lines(files: &Files) -> Vec<String> {
    let text = std::fs::read_to_string(files.path("key.pem")).expect("a file");
    text.lines()
        .filter(|line| !line.starts_with('-') && line.len() > 20)
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_tls_works_refuses_a_foreign_certificate_and_logs_no_secret() {
    let seed = seed("a_cluster_with_tls_works");
    let (files, foreign) = (Files::new(), Files::new());
    let sections =
        |files: &Files, trusted: &Files| format!("{}{}", auth(SECRET), files.section(trusted));
    // Everything that can be logged is logged.
    let mut nodes = Nodes::cluster(sections(&files, &files), false, "trace");
    let load = Load::start(&nodes.client_addresses(), seed, Duration::from_millis(20)).await;
    nodes.kill9(2);
    load.wait_served("two nodes").await;

    // Node 2 comes back with a certificate that nobody trusts: it is refused, the others serve.
    nodes.configure(2, &NodeSetup::new(sections(&foreign, &files)));
    nodes.start(2);
    nodes.wait_logged(0, "tls_certificate", Duration::from_secs(15));
    nodes.wait_logged(1, "tls_certificate", Duration::from_secs(15));
    nodes.wait_logged(2, "tls_alert", Duration::from_secs(15));
    load.wait_served("with a stranger at the door").await;
    nodes.kill9(2);

    nodes.configure(2, &NodeSetup::new(sections(&files, &files)));
    nodes.start(2);
    load.wait_served("three nodes again").await;
    let addresses = nodes.client_addresses();
    load.finish(&addresses, || nodes.check_alive()).await;

    // The secret, the key derived from it (a published vector) as hex and as numbers, and the
    // private keys of the certificates.
    let key = "39ec545024b097198cbf082b239525e97c0da3a60f3a18fd29f7d169de6a54be";
    let bytes = hex::decode(key).expect("hex");
    let numbers = format!("{:?}", &bytes[..8]);
    let mut secrets = vec![
        SECRET.to_owned(),
        key.to_owned(),
        key.to_uppercase(),
        numbers.trim_matches(['[', ']']).to_owned(),
    ];
    secrets.extend(secret_lines(&files));
    secrets.extend(secret_lines(&foreign));
    assert!(secrets.len() > 7);
    for node in 0..3 {
        let log = nodes.log(node);
        assert!(log.contains("TRACE"), "node {node} logs everything");
        for secret in &secrets {
            assert!(!log.contains(secret.as_str()), "node {node} logs a secret");
        }
    }
}
