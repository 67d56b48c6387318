//! The metrics as Prometheus reads them: the names of chapter 08 section 7, and our own below
//! `biplane_` (what each means stands in docs/operations.md).
//!
//! The size is bounded: series by group exist for the groups a report names, series by peer for
//! the nodes of the roster.

use std::fmt::{Display, Write as _};

use crate::file_disk::sync_meter::BOUNDS_MICROS;
use crate::node::report::{GroupReport, LinkReport, NodeReport};
use crate::peer::counters::FlowReport;

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

/// Seconds of a number of microseconds, without an error of rounding.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
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
    refusals(&mut page, report);
    syncs(&mut page, report);
    page.0.push_str("# EOF\n");
    page.0
}

fn node(page: &mut Page, report: &NodeReport) {
    page.gauge(
        "biplane_ready",
        "1 when the node serves everything it holds",
        u8::from(report.ready),
    );
    page.gauge(
        "biplane_uptime_seconds",
        "Time since the start",
        seconds(report.run_time),
    );
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

/// Labels that name the peer of a link.
fn peer(link: &LinkReport) -> String {
    let node = label("peer", &link.node.to_string());
    format!("{node},{}", label("name", &link.name))
}

/// Counts by peer and reason.
type ByReason = fn(&LinkReport) -> &[(&'static str, u64)];

fn links(page: &mut Page, report: &NodeReport) {
    page.family("biplane_link_up", "gauge", "1 when the peer is connected");
    for link in &report.links {
        page.sample("biplane_link_up", &peer(link), u8::from(link.up));
    }
    let name = "biplane_link_queued_frames";
    page.family(name, "gauge", "Frames that wait to be written to the peer");
    for link in &report.links {
        page.sample(name, &peer(link), link.queued);
    }
    let families: [(&str, &str, ByReason); 2] = [
        (
            "biplane_link_frames_dropped",
            "Frames for the peer that were dropped, by reason",
            |link| &link.dropped,
        ),
        (
            "biplane_link_frames_refused",
            "Frames of the peer that were not passed on, by reason",
            |link| &link.refused,
        ),
    ];
    for (name, help, counts) in families {
        page.family(name, "counter", help);
        for link in &report.links {
            for (reason, count) in counts(link) {
                let labels = format!("{},{}", peer(link), label("reason", reason));
                page.sample(&format!("{name}_total"), &labels, count);
            }
        }
    }
    flows(page, report);
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

fn flows(page: &mut Page, report: &NodeReport) {
    type Field = fn(&FlowReport) -> u64;
    let families: [(&str, &str, Field); 2] = [
        (
            "biplane_link_frames",
            "Frames exchanged with the peer, by what they are for",
            |flow| flow.frames,
        ),
        (
            "biplane_link_bytes",
            "Bytes exchanged with the peer, by what they are for",
            |flow| flow.bytes,
        ),
    ];
    for (name, help, field) in families {
        page.family(name, "counter", help);
        for link in &report.links {
            for (direction, flows) in [("sent", &link.sent), ("received", &link.received)] {
                for flow in flows {
                    let (direction, traffic) = (
                        label("direction", direction),
                        label("traffic", flow.traffic),
                    );
                    let labels = format!("{},{direction},{traffic}", peer(link));
                    page.sample(&format!("{name}_total"), &labels, field(flow));
                }
            }
        }
    }
}

fn refusals(page: &mut Page, report: &NodeReport) {
    page.family(
        "biplane_seal_failures",
        "counter",
        "Checksums that did not hold, by what they protect",
    );
    for (kind, count) in &report.seal_failures {
        page.sample("biplane_seal_failures_total", &label("kind", kind), count);
    }
    page.family(
        "biplane_client_frames_refused",
        "counter",
        "Frames of clients that are no requests, by reason",
    );
    for (reason, count) in &report.refused {
        let labels = label("reason", reason);
        page.sample("biplane_client_frames_refused_total", &labels, count);
    }
    page.family(
        "biplane_partitions_fenced",
        "counter",
        "Partitions whose files could not be used",
    );
    page.sample("biplane_partitions_fenced_total", "", report.fenced);
}

fn syncs(page: &mut Page, report: &NodeReport) {
    let name = "biplane_disk_sync_seconds";
    page.family(
        name,
        "histogram",
        "How long the disk took to make something durable, by what it was",
    );
    for times in &report.syncs {
        let of = label("of", times.of);
        let mut until = 0;
        for (bucket, count) in times.counts.iter().enumerate() {
            until += count;
            let bound = BOUNDS_MICROS.get(bucket).copied();
            let bound = bound.map_or("+Inf".to_owned(), seconds);
            let labels = format!("{of},{}", label("le", &bound));
            page.sample(&format!("{name}_bucket"), &labels, until);
        }
        page.sample(&format!("{name}_sum"), &of, seconds(times.micros));
        page.sample(&format!("{name}_count"), &of, until);
    }
}

#[cfg(test)]
mod tests;
