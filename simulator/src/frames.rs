//! Frames that were sent, by what they are and by link: a table for the end of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use biplane_wire::Command;

/// Counts of frames. Sums of runs are counts again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    sent: BTreeMap<(u8, u8, u8), (Command, u64)>,
}

impl Frames {
    /// A frame leaves a node for a peer.
    pub fn sent(&mut self, command: Command, from: u8, to: u8) {
        let entry = self.sent.entry((command as u8, from, to));
        entry.or_insert((command, 0)).1 += 1;
    }

    /// How many frames of a command left a node for a peer.
    #[must_use]
    pub fn count(&self, command: Command, from: u8, to: u8) -> u64 {
        self.sent
            .get(&(command as u8, from, to))
            .map_or(0, |it| it.1)
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sent.values().map(|it| it.1).sum()
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Self) {
        for (&key, &(command, count)) in &other.sent {
            self.sent.entry(key).or_insert((command, 0)).1 += count;
        }
    }

    /// A line for each command, a column for each link that was used.
    #[must_use]
    pub fn table(&self) -> String {
        let links: BTreeSet<(u8, u8)> = self.sent.keys().map(|key| (key.1, key.2)).collect();
        let commands: BTreeMap<u8, Command> =
            self.sent.iter().map(|(key, it)| (key.0, it.0)).collect();
        let mut text = format!("{:<22}", "frames sent by link");
        for (from, to) in &links {
            let _ = write!(text, " {:>8}", format!("{from}>{to}"));
        }
        text.push('\n');
        for &command in commands.values() {
            let _ = write!(text, "{:<22}", format!("{command:?}"));
            for &(from, to) in &links {
                let _ = write!(text, " {:>8}", self.count(command, from, to));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_command_and_link_and_summed() {
        let mut frames = Frames::default();
        frames.sent(Command::Prepare, 0, 1);
        frames.sent(Command::Prepare, 0, 1);
        frames.sent(Command::PrepareOk, 1, 0);
        let mut sum = frames.clone();
        sum.merge(&frames);
        assert_eq!(sum.count(Command::Prepare, 0, 1), 4);
        assert_eq!((sum.count(Command::Prepare, 1, 0), sum.total()), (0, 6));
        let table = sum.table();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0][4..], ["0>1", "1>0"]);
        assert_eq!(lines[1], ["Prepare", "4", "0"]);
        assert_eq!(lines[2], ["PrepareOk", "0", "2"]);
    }

    #[test]
    fn a_run_counts_what_it_sends() {
        let settings = ["requests=20".to_owned()];
        let outcome = crate::run(1, crate::Profile::Lite, &settings, false).expect("valid");
        let by_command = outcome
            .counters
            .iter()
            .filter(|it| it.0.starts_with("sent: "));
        let sum: u64 = by_command.map(|it| it.1).sum();
        assert!(sum > 0);
        assert_eq!(outcome.frames.total(), sum);
    }
}
