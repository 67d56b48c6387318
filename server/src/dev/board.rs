//! What is known of each node of a development cluster, and how it is shown.
//!
//! Pure: reports go in, lines for the terminal come out.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::supervised::Report;

/// One row of the table.
#[derive(Debug, Clone)]
struct Row {
    client: SocketAddr,
    replica: SocketAddr,
    listening: bool,
    ready: bool,
    role: Option<(String, String, u32)>,
    exited: Option<String>,
}

/// The table and the news since it was last drawn.
#[derive(Debug)]
pub(super) struct Board {
    rows: Vec<Row>,
    announced: bool,
}

impl Board {
    /// A board for nodes with these addresses, in order of replica id.
    pub(super) fn new(addresses: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Self {
        let rows = addresses
            .into_iter()
            .map(|(client, replica)| Row {
                client,
                replica,
                listening: false,
                ready: false,
                role: None,
                exited: None,
            })
            .collect();
        Self {
            rows,
            announced: false,
        }
    }

    /// Takes a report and returns the lines worth printing.
    pub(super) fn report(&mut self, report: Report) -> Vec<String> {
        let mut lines = Vec::new();
        match report {
            Report::Listening { node, .. } => {
                if let Some(row) = self.rows.get_mut(usize::from(node)) {
                    row.listening = true;
                    row.exited = None;
                }
            }
            Report::Role {
                node,
                role,
                status,
                view,
                ready,
            } => {
                let Some(row) = self.rows.get_mut(usize::from(node)) else {
                    return lines;
                };
                let before = row.role.replace((role.clone(), status.clone(), view));
                row.ready = ready;
                let changed = before.is_some_and(|before| before != (role.clone(), status, view));
                if self.announced && changed && ready {
                    lines.push(format!("node {node} is now {role} in view {view}"));
                }
            }
            Report::Failed { node, reason } => {
                if let Some(row) = self.rows.get_mut(usize::from(node)) {
                    row.exited = Some(reason);
                }
            }
        }
        if !self.announced && self.is_ready() {
            self.announced = true;
            lines.push(self.table());
            lines.push(format!(
                "the cluster is ready: connect to {} (user iggy, password iggy); Ctrl-C stops it",
                self.rows[self.primary().unwrap_or(0)].client
            ));
        }
        lines
    }

    /// A node's process ended while the cluster was meant to run.
    pub(super) fn exited(&mut self, node: u8, status: &str, log: &str, again: &str) -> Vec<String> {
        let Some(row) = self.rows.get_mut(usize::from(node)) else {
            return Vec::new();
        };
        row.listening = false;
        row.ready = false;
        row.role = None;
        let reason = row.exited.get_or_insert_with(|| status.to_owned()).clone();
        vec![
            format!("node {node} ended: {reason}"),
            format!("  its log: {log}"),
            format!("  start it again with: {again}"),
        ]
    }

    /// True when every node is up and agrees on one primary that serves.
    fn is_ready(&self) -> bool {
        let view = |row: &Row| row.role.as_ref().map(|(_, _, view)| *view);
        let Some(first) = self.rows.first().and_then(view) else {
            return false;
        };
        self.primary().is_some()
            && self
                .rows
                .iter()
                .all(|row| row.listening && row.ready && view(row) == Some(first))
    }

    fn primary(&self) -> Option<usize> {
        self.rows.iter().position(|row| {
            row.ready
                && row
                    .role
                    .as_ref()
                    .is_some_and(|(role, _, _)| role == "primary")
        })
    }

    /// The table as text.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<6}{:<22}{:<22}{:<10}{:<6}{}",
            "node", "clients", "replicas", "role", "view", "status"
        );
        for (node, row) in self.rows.iter().enumerate() {
            let (role, status, view) = match (&row.role, &row.exited) {
                (_, Some(reason)) => ("-", reason.as_str(), "-".to_owned()),
                (Some((role, status, view)), None) => {
                    (role.as_str(), status.as_str(), view.to_string())
                }
                (None, None) => ("-", "starting", "-".to_owned()),
            };
            let _ = write!(
                text,
                "\n{node:<6}{:<22}{:<22}{role:<10}{view:<6}{status}",
                row.client.to_string(),
                row.replica.to_string()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(node: u8, role: &str, view: u32) -> Report {
        Report::Role {
            node,
            role: role.to_owned(),
            status: "normal".to_owned(),
            view,
            ready: true,
        }
    }

    fn listening(node: u8) -> Report {
        Report::Listening {
            node,
            client: String::new(),
            replica: String::new(),
        }
    }

    fn board() -> Board {
        Board::new((0..3).map(|node| {
            (
                ([127, 0, 0, 1], 8090 + node).into(),
                ([127, 0, 0, 1], 9090 + node).into(),
            )
        }))
    }

    #[test]
    fn ready_is_said_once_when_all_nodes_agree() {
        let mut board = board();
        for node in 0..3 {
            assert!(board.report(listening(node)).is_empty());
        }
        assert!(board.report(role(0, "primary", 0)).is_empty());
        assert!(board.report(role(1, "backup", 0)).is_empty());
        let lines = board.report(role(2, "backup", 0));
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("127.0.0.1:9092"), "{}", lines[0]);
        assert!(lines[1].contains("ready") && lines[1].contains("127.0.0.1:8090"));
        assert!(board.report(role(2, "backup", 0)).is_empty());
    }

    #[test]
    fn a_new_primary_and_a_dead_node_are_news() {
        let mut board = board();
        for node in 0..3 {
            board.report(listening(node));
            board.report(role(node, if node == 0 { "primary" } else { "backup" }, 0));
        }
        let lines = board.exited(0, "killed by signal 9", "node-0.log", "biplane serve");
        assert!(lines[0].contains("signal 9"));
        assert_eq!(
            board.report(role(1, "primary", 1)),
            ["node 1 is now primary in view 1"]
        );
    }
}
