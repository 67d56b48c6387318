//! Rules of `[[cluster.nodes]]` (chapter 09 section 5.6).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::config::advertised::{self, Network};
use crate::config::problem::Problems;
use crate::config::sections::{Cluster, Config, RosterNode};

/// Replicas that the acknowledgement sets of this server can hold.
const NODES_MAX: usize = 32;
/// Selectors of a node.
const SELECTORS_MAX: usize = 16;

/// Checks names, ids, addresses and what clients are told.
pub(super) fn roster(cluster: &Cluster, problems: &mut Problems) {
    let count = cluster.nodes.len();
    let key = "cluster.nodes";
    problems.check(count > 0, key, "clustering is on but the roster is empty");
    problems.check(
        count <= NODES_MAX,
        key,
        format!("at most {NODES_MAX} replicas form a cluster"),
    );
    let (mut names, mut ids, mut endpoints) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, node) in cluster.nodes.iter().enumerate() {
        let key = |name: &str| format!("cluster.nodes[{index}].{name}");
        problems.check(
            !node.name.trim().is_empty(),
            &key("name"),
            "must not be blank",
        );
        let ip = node.ip.parse::<IpAddr>().ok();
        problems.check(ip.is_some(), &key("ip"), "is not a literal IP address");
        problems.check(
            ip.is_none_or(|ip| !ip.is_unspecified()),
            &key("ip"),
            "must not be a wildcard address",
        );
        let name = node.name.as_str();
        problems.check(names.insert(name), &key("name"), "the name is used twice");
        let id = usize::from(node.replica_id);
        problems.check(
            id < count,
            &key("replica_id"),
            format!("replica_id {id} must be below the {count} nodes"),
        );
        problems.check(
            ids.insert(id),
            &key("replica_id"),
            format!("replica_id {id} is used twice"),
        );
        let ports = node.ports;
        for (name, port) in [
            ("ports.tcp", ports.tcp),
            ("ports.tcp_replica", ports.tcp_replica),
            ("ports.quic", ports.quic),
            ("ports.http", ports.http),
            ("ports.websocket", ports.websocket),
        ] {
            let endpoint = (node.ip.as_str(), port);
            problems.check(
                port == 0 || endpoints.insert(endpoint),
                &key(name),
                format!("{}:{port} is used twice", node.ip),
            );
        }
        told(index, node, problems);
    }
    twice_told(cluster, problems);
}

/// What one node has clients told.
fn told(index: usize, node: &RosterNode, problems: &mut Problems) {
    let neither = "is neither an IP address nor a host name";
    if let Some(address) = &node.advertised_address {
        let key = format!("cluster.nodes[{index}].advertised_address");
        problems.check(advertised::is_valid(address), &key, neither);
    }
    let key = format!("cluster.nodes[{index}].advertised_addresses");
    let selectors = &node.advertised_addresses;
    problems.check(
        selectors.len() <= SELECTORS_MAX,
        &key,
        format!("at most {SELECTORS_MAX} entries"),
    );
    let mut networks = Vec::new();
    for (entry, selector) in selectors.iter().enumerate() {
        let key = |name: &str| format!("{key}[{entry}].{name}");
        match Network::parse(&selector.client_cidr) {
            None => problems.add(&key("client_cidr"), "is not a network such as 10.0.0.0/8"),
            Some(network) if networks.contains(&network) => {
                problems.add(&key("client_cidr"), "the network is used twice");
            }
            Some(network) => networks.push(network),
        }
        problems.check(
            advertised::is_valid(&selector.address),
            &key("address"),
            neither,
        );
    }
}

/// Two nodes that tell the same clients the same place cannot both be found there.
fn twice_told(cluster: &Cluster, problems: &mut Problems) {
    for (index, later) in cluster.nodes.iter().enumerate() {
        for earlier in &cluster.nodes[..index] {
            let ports = |node: &RosterNode| {
                let ports = node.ports;
                [ports.tcp, ports.quic, ports.http, ports.websocket]
                    .into_iter()
                    .filter(|port| *port != 0)
                    .collect::<BTreeSet<_>>()
            };
            if ports(earlier).is_disjoint(&ports(later)) {
                continue;
            }
            let (ours, theirs) = (places(later), places(earlier));
            let clash = ours.iter().any(|(network, host)| {
                theirs.iter().any(|(other, same)| {
                    let meet = meet((*network, &ours), (*other, &theirs));
                    host == same && meet
                })
            });
            problems.check(
                !clash,
                &format!("cluster.nodes[{index}]"),
                format!(
                    "some clients would be told the same address and port as for node {}",
                    earlier.name
                ),
            );
        }
    }
}

type Told = (Option<Network>, String);

/// The addresses of a node by the clients that are told them; `None` is everybody else.
fn places(node: &RosterNode) -> Vec<Told> {
    let default = node.advertised_address.as_ref().unwrap_or(&node.ip);
    let mut places = vec![(None, advertised::canonical(default))];
    for selector in &node.advertised_addresses {
        if let Some(network) = Network::parse(&selector.client_cidr) {
            places.push((Some(network), advertised::canonical(&selector.address)));
        }
    }
    places
}

/// True when some client may be told both. A default does not reach a network that another entry of
/// its node covers.
fn meet(one: (Option<Network>, &[Told]), other: (Option<Network>, &[Told])) -> bool {
    let reaches = |network: Network, places: &[Told]| {
        let covered = |(place, _): &Told| place.is_some_and(|place| place.covers(network));
        !places.iter().any(covered)
    };
    match (one.0, other.0) {
        (None, None) => true,
        (Some(network), None) => reaches(network, other.1),
        (None, Some(network)) => reaches(network, one.1),
        (Some(one), Some(other)) => one.meets(other),
    }
}

/// Every entry has a port for every transport that this node serves.
pub(super) fn ports(config: &Config, problems: &mut Problems) {
    for (index, node) in config.cluster.nodes.iter().enumerate() {
        for (transport, enabled, port) in [
            ("quic", config.quic.enabled, node.ports.quic),
            ("http", config.http.enabled, node.ports.http),
            ("websocket", config.websocket.enabled, node.ports.websocket),
        ] {
            problems.check(
                !enabled || port != 0,
                &format!("cluster.nodes[{index}].ports.{transport}"),
                format!("is mandatory while {transport}.enabled is true"),
            );
        }
    }
}
