//! The metrics as Prometheus reads them: the names of chapter 08 section 7, and our own below
//! `biplane_` (what each means stands in docs/operations.md).
//!
//! The size is bounded: series by group exist for the groups a report names, series by peer for
//! the nodes of the roster.

use std::fmt::{Display, Write as _};

use crate::node::report::{GroupReport, NodeReport};

/// The shard in labels; this server has one.
const SHARD: &str = "shard=\"0\"";

/// Collects the lines.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Says what the samples that follow are.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }
}

/// A label's value: quotes, backslashes and line ends are escaped.
fn label(name: &str, value: &str) -> String {
    let mut text = format!("{name}=\"");
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// The whole page. `requests` is what the HTTP listener has counted.
pub(crate) fn text(report: &NodeReport, requests: u64) -> String {
    let mut page = Page::default();
    page.family("http_requests", "counter", "HTTP requests seen");
    page.sample("http_requests_total", "", requests);
    let totals = &report.totals;
    page.gauge("streams", "Streams", totals.streams);
    page.gauge("topics", "Topics", totals.topics);
    page.gauge("partitions", "Partitions", totals.partitions);
    page.gauge("segments", "Segments on this node", totals.segments);
    page.gauge("messages", "Messages on this node", totals.messages);
    page.gauge("users", "Users", totals.users);
    page.gauge("clients", "Connected clients of this node", totals.clients);
    let dropped = report.counters.iter();
    let dropped = dropped.filter(|(name, _)| name.starts_with("dropped_"));
    let dropped: u64 = dropped.map(|(_, count)| count).sum();
    page.family(
        "frame_drops",
        "counter",
        "Frames for peers that were dropped",
    );
    page.sample("frame_drops_total", SHARD, dropped);
    node(&mut page, report);
    groups(&mut page, report);
    links(&mut page, report);
    page.0.push_str("# EOF\n");
    page.0
}

fn node(page: &mut Page, report: &NodeReport) {
    page.gauge(
        "biplane_ready",
        "1 when the node serves everything it holds",
        u8::from(report.ready),
    );
    let seconds = report.run_time as f64 / 1e6;
    page.gauge("biplane_uptime_seconds", "Time since the start", seconds);
    page.gauge(
        "biplane_message_bytes",
        "Bytes of messages on this node",
        report.totals.bytes,
    );
    page.gauge(
        "biplane_consumer_groups",
        "Consumer groups",
        report.totals.consumer_groups,
    );
}

fn groups(page: &mut Page, report: &NodeReport) {
    let all = &report.partitions;
    page.family(
        "biplane_partition_groups",
        "gauge",
        "Partition groups on this node by state",
    );
    for (state, count) in [
        ("normal", all.normal),
        ("view_change", all.view_change),
        ("recovering", all.recovering),
    ] {
        page.sample("biplane_partition_groups", &label("state", state), count);
    }
    for (name, help, value) in [
        (
            "biplane_partition_groups_led",
            "Partition groups led by this node",
            all.led,
        ),
        (
            "biplane_partition_groups_transferring",
            "Partition groups with a state transfer",
            all.transferring,
        ),
        (
            "biplane_partition_groups_lagging",
            "Partition groups with committed operations that are not applied here",
            all.lagging,
        ),
        (
            "biplane_partition_lag_operations",
            "Committed operations of all partition groups that are not applied here",
            all.lag,
        ),
        (
            "biplane_partition_view_max",
            "Highest view of a partition group",
            u64::from(all.view_max),
        ),
    ] {
        page.gauge(name, help, value);
    }
    let named = || std::iter::once(&report.metadata).chain(&report.groups);
    type Field = fn(&GroupReport) -> u64;
    let fields: [(&str, &str, Field); 6] = [
        ("biplane_group_view", "View", |group| group.view.into()),
        ("biplane_group_primary", "Replica that leads", |group| {
            group.primary.into()
        }),
        ("biplane_group_leads", "1 when this node leads", |group| {
            group.leads.into()
        }),
        ("biplane_group_head_op", "Highest operation", |group| {
            group.head
        }),
        ("biplane_group_commit_op", "Applied operation", |group| {
            group.commit
        }),
        (
            "biplane_group_lag_operations",
            "Committed operations that are not applied here",
            |group| group.lag,
        ),
    ];
    for (name, help, field) in fields {
        page.family(name, "gauge", help);
        for group in named() {
            page.sample(name, &label("group", &group.group), field(group));
        }
    }
    page.family(
        "biplane_group_state",
        "gauge",
        "1 for the state and the stage of state transfer a group is in",
    );
    for group in named() {
        let labels = [
            label("group", &group.group),
            label("status", group.status),
            label("transfer", group.transfer),
        ];
        page.sample("biplane_group_state", &labels.join(","), 1);
    }
}

fn links(page: &mut Page, report: &NodeReport) {
    page.family("biplane_link_up", "gauge", "1 when the peer is connected");
    for link in &report.links {
        let labels = [
            label("peer", &link.node.to_string()),
            label("name", &link.name),
        ];
        page.sample("biplane_link_up", &labels.join(","), u8::from(link.up));
    }
    page.family(
        "biplane_mesh_events",
        "counter",
        "What the links to other nodes counted, by kind",
    );
    for (name, count) in &report.counters {
        let labels = label("kind", name);
        page.sample("biplane_mesh_events_total", &labels, count);
    }
}

#[cfg(test)]
mod tests;
