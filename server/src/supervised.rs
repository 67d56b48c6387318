//! What a supervised node says to its supervisor: one JSON object a line on standard output.
//!
//! `biplane dev` reads these lines to draw its table. Any other supervisor may do the same; the
//! fields are stable.

use std::io::Write;

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The listeners are open.
    Listening {
        /// Replica id.
        node: u8,
        /// Client address.
        client: String,
        /// Replica address; empty without clustering.
        replica: String,
    },
    /// Role, view or status of the metadata group changed.
    Role {
        /// Replica id.
        node: u8,
        /// `primary` or `backup`.
        role: String,
        /// `normal`, `view_change` or `recovering`.
        status: String,
        /// View number.
        view: u32,
        /// True when this node serves clients now.
        ready: bool,
    },
    /// The node stops because it cannot go on.
    Failed {
        /// Replica id.
        node: u8,
        /// One sentence.
        reason: String,
    },
}

impl Report {
    /// Writes the line to standard output. A supervisor that went away is not an error here: the
    /// node notices it by its closed standard input.
    pub fn print(&self) {
        let Ok(line) = serde_json::to_string(self) else {
            return;
        };
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }

    /// Reads one line; `None` when it is not a report.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let report = Report::Role {
            node: 2,
            role: "primary".to_owned(),
            status: "normal".to_owned(),
            view: 7,
            ready: true,
        };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::parse(&line), Some(report));
        assert_eq!(Report::parse("2026-01-01 INFO something"), None);
    }
}
