//! The table of `biplane status`.

use std::fmt::Write as _;

use serde_json::Value;

use super::{ClusterStatus, NodeStatus};

/// The table.
pub(super) fn text(status: &ClusterStatus) -> String {
    let mut out = String::new();
    let primary = status.primary.as_deref().unwrap_or("none");
    let _ = writeln!(
        out,
        "cluster {}   metadata primary {primary}\n",
        status.cluster
    );
    let _ = writeln!(
        out,
        "{:<14} {:<22} {:<12} {:<9} {:>5} {:>9} {:>6} {:>7} {:>5} {:>7} {:>9}  disk free",
        "node",
        "address",
        "state",
        "role",
        "view",
        "applied",
        "behind",
        "groups",
        "led",
        "lagging",
        "dropped"
    );
    for node in &status.nodes {
        line(&mut out, node);
    }
    links(&mut out, status);
    work(&mut out, status);
    out
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn dropped(report: &Value) -> u64 {
    let counters = report["counters"].as_array().into_iter().flatten();
    let dropped = counters.filter(|counter| {
        let name = counter[0].as_str();
        name.is_some_and(|name| name.starts_with("dropped_"))
    });
    dropped.map(|counter| number(&counter[1])).sum()
}

fn line(out: &mut String, node: &NodeStatus) {
    let Some(report) = &node.report else {
        let _ = writeln!(out, "{:<14} {:<22} no answer", node.name, node.address);
        return;
    };
    let (metadata, groups) = (&report["metadata"], &report["partitions"]);
    let state = if node.is_ready() {
        "ready"
    } else {
        "catching up"
    };
    let status = metadata["status"].as_str().unwrap_or("?");
    let role = match (metadata["leads"] == Value::Bool(true), status) {
        (true, _) => "primary",
        (false, "normal") => "backup",
        (false, other) => other,
    };
    let disk = node.disk.as_ref();
    let disk = disk.map_or_else(
        || "?".to_owned(),
        |(free, total)| format!("{free} of {total}"),
    );
    let _ = writeln!(
        out,
        "{:<14} {:<22} {:<12} {:<9} {:>5} {:>9} {:>6} {:>7} {:>5} {:>7} {:>9}  {disk}",
        node.name,
        node.address,
        state,
        role,
        number(&metadata["view"]),
        number(&metadata["commit"]),
        number(&metadata["lag"]),
        number(&groups["groups"]),
        number(&groups["led"]),
        number(&groups["lagging"]),
        dropped(report),
    );
}

/// Links that are down or lost frames, as the node at their end sees them.
fn links(out: &mut String, status: &ClusterStatus) {
    let mut head = true;
    for node in &status.nodes {
        let Some(report) = &node.report else {
            continue;
        };
        for link in report["links"].as_array().into_iter().flatten() {
            let lost = losses(link);
            let is_up = link["up"] == Value::Bool(true);
            if is_up && lost.is_empty() {
                continue;
            }
            if head {
                out.push('\n');
                head = false;
            }
            let name = link["name"].as_str().unwrap_or("?");
            let state = if is_up { "up" } else { "down" };
            let _ = write!(out, "link {} to {name}: {state}", node.name);
            if !lost.is_empty() {
                let _ = write!(out, "; frames dropped: {}", lost.join(", "));
            }
            out.push('\n');
        }
    }
}

/// Frames for a peer that were dropped, by reason, where there are any.
fn losses(link: &Value) -> Vec<String> {
    let counts = link["dropped"].as_array().into_iter().flatten();
    let counts = counts.filter(|count| number(&count[1]) > 0);
    counts
        .map(|count| {
            let reason = count[0].as_str().unwrap_or("?").replace('_', " ");
            format!("{} {reason}", number(&count[1]))
        })
        .collect()
}

fn groups_of(node: &NodeStatus) -> Vec<&Value> {
    let Some(report) = &node.report else {
        return Vec::new();
    };
    let named = report["groups"].as_array().into_iter().flatten();
    std::iter::once(&report["metadata"]).chain(named).collect()
}

/// Repairs and transfers: how far they are, how long they will take, and what went wrong last
/// where nothing runs.
fn work(out: &mut String, status: &ClusterStatus) {
    let mut head = true;
    for node in &status.nodes {
        for group in groups_of(node) {
            let (lag, work) = (number(&group["lag"]), &group["work"]);
            if lag == 0 && work.is_null() {
                continue;
            }
            if head {
                let _ = writeln!(out, "\nrepairs and transfers");
                head = false;
            }
            let name = group["name"].as_str().unwrap_or("?");
            let said = match work.is_null() {
                false => progress(work),
                true => format!("waits, {lag} operations to come"),
            };
            let _ = write!(out, "  {:<14} {name:<18} {said}", node.name);
            if let Some(trouble) = group["trouble"].as_str() {
                let _ = write!(out, "; last: {trouble}");
            }
            out.push('\n');
        }
    }
}

fn progress(work: &Value) -> String {
    let text = |key: &str| work[key].as_str().unwrap_or("?");
    let (done, total) = (number(&work["done"]), number(&work["total"]));
    let part = (done * 100).checked_div(total).unwrap_or(0);
    let (kind, phase, unit) = (text("kind"), text("phase"), text("unit"));
    let (peer, rate) = (number(&work["peer"]), number(&work["per_second"]));
    let left = work["seconds_left"].as_u64();
    let left = left.map_or(String::new(), |left| format!(", about {left} s left"));
    format!(
        "{kind} from replica {peer}, {phase}: {part} %, {done} of {total} {unit}, {rate} a \
         second{left}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> ClusterStatus {
        let report = serde_json::json!({
            "ready": false,
            "metadata": { "name": "metadata", "status": "normal", "view": 3, "leads": true,
                "commit": 40, "lag": 0, "work": null, "trouble": null },
            "partitions": { "groups": 2, "led": 1, "lagging": 1 },
            "groups": [
                { "name": "shop/orders/1", "commit": 80, "lag": 20, "trouble": null, "work": {
                    "kind": "repair", "peer": 2, "phase": "operations 1 to 100", "done": 80,
                    "total": 100, "unit": "operations", "per_second": 10, "seconds_left": 2 } },
                { "name": "shop/orders/2", "commit": 1, "lag": 7, "work": null,
                    "trouble": "replica 2 stopped answering" },
            ],
            "links": [
                { "node": 1, "name": "node-1", "up": false, "dropped": [["no_link", 0]] },
                { "node": 2, "name": "node-2", "up": true,
                    "dropped": [["no_link", 4], ["queue_full", 1]] },
                { "node": 3, "name": "node-3", "up": true, "dropped": [["no_link", 0]] },
            ],
            "counters": [["dropped_no_link", 4], ["frames_in", 9], ["dropped_queue_full", 1]],
        });
        ClusterStatus {
            cluster: "c".to_owned(),
            primary: Some("node-0".to_owned()),
            nodes: vec![
                NodeStatus {
                    name: "node-0".to_owned(),
                    address: "127.0.0.1:3000".to_owned(),
                    report: Some(report),
                    disk: Some(("1 GB".to_owned(), "2 GB".to_owned())),
                },
                NodeStatus {
                    name: "node-1".to_owned(),
                    address: "127.0.0.1:3001".to_owned(),
                    report: None,
                    disk: None,
                },
            ],
        }
    }

    #[test]
    fn the_table_shows_who_is_away_and_what_is_being_done() {
        let text = text(&status());
        for part in [
            "metadata primary node-0",
            "catching up",
            "no answer",
            "link node-0 to node-1: down\n",
            "link node-0 to node-2: up; frames dropped: 4 no link, 1 queue full\n",
            "shop/orders/1 ",
            "1 GB of 2 GB",
            "repair from replica 2, operations 1 to 100: 80 %, 80 of 100 operations, 10 a second, \
             about 2 s left",
            "waits, 7 operations to come; last: replica 2 stopped answering",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("to node-3"), "nothing is wrong with it");
        let row = text.lines().find(|line| line.contains("127.0.0.1:3000"));
        let dropped = row.and_then(|row| row.split_whitespace().nth(11));
        assert_eq!(dropped, Some("5"), "{text}");
    }
}
