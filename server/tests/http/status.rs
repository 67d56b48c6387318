//! `biplane status` against real nodes, with TLS and without: what it prints and how it exits.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::support::web::WebCluster;
use super::support::web_tls::Certificate;
use super::support::{PASSWORD, TestFolder, USER, wait_until};

fn status(cluster: &WebCluster, node: usize, password: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_biplane"))
        .args(["status", "--username", USER, "--address"])
        .arg(cluster.address(node).to_string())
        .args(more)
        .env("BIPLANE_PASSWORD", password)
        .env_remove("BIPLANE_TOKEN")
        .output()
        .expect("the command runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let told = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {:?} {told}", output.stdout)
    })
}

#[test]
fn it_exits_with_what_is_worst() {
    let mut cluster = WebCluster::start(3, "");
    let all = status(&cluster, 0, PASSWORD, &["--json"]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    let told = json(&all);
    assert_eq!(told["cluster"], "web");
    let nodes = told["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node["report"]["ready"] == true));
    assert!(nodes.iter().all(|node| node["disk"].is_array()));
    let primary = told["primary"].as_str().expect("a primary").to_owned();
    let table = status(&cluster, 1, PASSWORD, &[]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        text.contains(&format!("metadata primary {primary}")),
        "{text}"
    );
    for node in 0..3 {
        assert!(text.contains(&format!("node-{node}")), "{text}");
    }
    let refused = status(&cluster, 0, "wrong", &[]);
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        told.contains("400") && told.contains("credentials"),
        "{told}"
    );
    let away = (0..3)
        .find(|node| primary != format!("node-{node}"))
        .expect("a backup");
    let asked = (0..3).find(|node| *node != away).expect("another");
    cluster.kill9(away);
    let less = status(&cluster, asked, PASSWORD, &[]);
    assert_eq!(less.status.code(), Some(2), "{less:?}");
    let text = String::from_utf8_lossy(&less.stdout).into_owned();
    assert!(text.contains("no answer"), "{text}");
    let nobody = status(&cluster, away, PASSWORD, &[]);
    assert_eq!(nobody.status.code(), Some(1));
    cluster.restart(away);
    wait_until("the node that was away", Duration::from_secs(30), || {
        let back = status(&cluster, asked, PASSWORD, &[]);
        match back.status.code() {
            Some(0) => Ok(()),
            _ => Err(String::from_utf8_lossy(&back.stdout).into_owned()),
        }
    });
}

#[test]
fn with_tls_only_the_right_certificate_is_believed() {
    let folder = TestFolder::new();
    let own = Arc::new(Certificate::new(folder.path(), "own"));
    let other = Certificate::new(folder.path(), "other");
    let path = |certificate: &Certificate| certificate.cert.display().to_string();
    let (own_path, other_path) = (path(&own), path(&other));
    let cluster = WebCluster::launch_tls(1, own);
    wait_until("a node with TLS", Duration::from_secs(30), || {
        let told = status(&cluster, 0, PASSWORD, &["--cert-file", &own_path]);
        match told.status.code() {
            Some(0) => Ok(()),
            _ => Err(String::from_utf8_lossy(&told.stderr).into_owned()),
        }
    });
    for more in [&["--cert-file", other_path.as_str()][..], &[]] {
        let told = status(&cluster, 0, PASSWORD, more);
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        let text = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(text.contains("does not answer"), "{text}");
    }
}
