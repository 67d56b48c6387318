//! Two nodes that are configured differently: both say so, in words, and neither crashes.

use std::time::Duration;

use crate::nodes::{NodeSetup, Nodes, SECRET, auth};
use crate::tls::Files;

const OTHER_SECRET: &str = "fedcba9876543210fedcba9876543210";
const LIMIT: Duration = Duration::from_secs(15);

struct Row {
    what: &'static str,
    dialer: NodeSetup,
    acceptor: NodeSetup,
    /// What each of them logs, any of these.
    dialer_says: &'static [&'static str],
    acceptor_says: &'static [&'static str],
}

#[test]
fn nodes_that_do_not_fit_together_both_say_why() {
    let files = Files::new();
    let other_files = Files::new();
    let plain = NodeSetup::new(String::new());
    let named = |setup: &NodeSetup| NodeSetup {
        cluster: "another",
        ..setup.clone()
    };
    let secret = NodeSetup::new(auth(SECRET));
    let tls = |section: String| NodeSetup::new(format!("{}{section}", auth(SECRET)));
    let self_signed = tls("[cluster.tls]\nenabled = true\nself_signed = true\n".to_owned());
    let rows = [
        Row {
            what: "another secret",
            dialer: NodeSetup::new(auth(OTHER_SECRET)),
            acceptor: secret.clone(),
            dialer_says: &["\"mac_mismatch\""],
            acceptor_says: &["\"ended\"", "\"connection_lost\""],
        },
        Row {
            what: "authentication at the dialer alone",
            dialer: secret.clone(),
            acceptor: plain.clone(),
            dialer_says: &["\"unknown_command\"", "\"timed_out\""],
            acceptor_says: &["replica disconnected"],
        },
        Row {
            what: "authentication at the acceptor alone",
            dialer: plain.clone(),
            acceptor: secret.clone(),
            dialer_says: &["replica disconnected"],
            acceptor_says: &["\"auth_required\""],
        },
        Row {
            what: "another cluster, authenticated",
            dialer: named(&secret),
            acceptor: secret.clone(),
            dialer_says: &["\"cluster_mismatch\""],
            acceptor_says: &["\"cluster_mismatch\""],
        },
        Row {
            what: "another cluster, not authenticated",
            dialer: named(&plain),
            acceptor: plain.clone(),
            dialer_says: &["replica disconnected"],
            acceptor_says: &["\"cluster_mismatch\""],
        },
        Row {
            what: "TLS at the dialer alone",
            dialer: self_signed.clone(),
            acceptor: secret.clone(),
            dialer_says: &["\"tls_peer_closed\"", "\"tls_connection_lost\""],
            acceptor_says: &["\"tls_peer\""],
        },
        Row {
            what: "TLS at the acceptor alone",
            dialer: secret.clone(),
            acceptor: self_signed.clone(),
            dialer_says: &["\"tls_peer\"", "\"unanswered\"", "\"connection_lost\""],
            acceptor_says: &["\"tls_plaintext_peer\""],
        },
        Row {
            what: "a certificate of another authority",
            dialer: tls(files.section(&files)),
            acceptor: tls(other_files.section(&other_files)),
            dialer_says: &["\"tls_certificate\""],
            acceptor_says: &["\"tls_alert\"", "\"tls_peer_closed\""],
        },
        Row {
            what: "self-signed where an authority is asked for",
            dialer: tls(files.section(&files)),
            acceptor: self_signed,
            dialer_says: &["\"tls_certificate\""],
            acceptor_says: &["\"tls_alert\"", "\"tls_peer_closed\""],
        },
    ];
    for row in rows {
        let mut nodes = Nodes::new(2, false, "info");
        nodes.configure(0, &row.dialer);
        nodes.configure(1, &row.acceptor);
        nodes.start(1);
        nodes.start(0);
        for (node, says) in [(0, row.dialer_says), (1, row.acceptor_says)] {
            let what = format!("{}: node {node} says one of {says:?}", row.what);
            let line = crate::support::wait_until(&what, LIMIT, || {
                let log = nodes.log(node);
                let found = log
                    .lines()
                    .find(|line| says.iter().any(|text| line.contains(text)));
                found.map(str::to_owned).ok_or_else(|| "it does not".into())
            });
            println!("{}: node {node}: {}", row.what, line.trim());
        }
        nodes.check_alive();
    }
}

#[test]
fn what_cannot_be_protected_as_asked_does_not_start() {
    let files = Files::new();
    let tls = files.section(&files);
    let missing = tls.replace("cert.pem", "nowhere.pem");
    for (sections, says) in [
        (tls.clone(), "needs cluster.auth.enabled"),
        (
            format!("{}{missing}", auth(SECRET)),
            "cluster.tls.cert_file",
        ),
        (auth("too short"), "at least 32 bytes"),
    ] {
        let mut nodes = Nodes::new(2, false, "info");
        nodes.configure(0, &NodeSetup::new(sections));
        nodes.start(0);
        assert!(!nodes.wait_end(0), "{says}");
        let log = nodes.log(0);
        assert!(log.contains(says), "{says} not in {log}");
        assert!(!log.contains("too short"), "a secret is not quoted: {log}");
    }
}
