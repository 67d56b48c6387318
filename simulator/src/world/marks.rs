//! Rare things that a sweep must have met, counted where the world sees them.
//!
//! Marks are counters like all others; `tests/marks.rs` demands a floor for each, over a sweep of
//! the profiles.

use std::collections::BTreeMap;

use biplane_wire::{
    Command, DoViewChangeHeader, EvictionReason, GroupId, Message, Op, Operation, StartViewHeader,
    View,
};

use super::World;
use crate::machine::Answer;

/// What the votes of a view have said.
#[derive(Debug, Default)]
pub(crate) struct Votes {
    /// Highest log view of a vote, and the last op of the logs of that view; by group and view.
    best: BTreeMap<(GroupId, View), (View, Op)>,
}

impl Votes {
    /// Takes a vote in.
    fn vote(&mut self, header: &DoViewChangeHeader) {
        let key = (header.group(), header.frame.view());
        let log = (header.log_view(), header.op());
        let best = self.best.entry(key).or_insert(log);
        *best = (*best).max(log);
    }

    /// Whether an announcement ends below what a vote of the log view it follows had: the rest
    /// was dropped on a quorum of denials. Said once for each view.
    fn is_cut(&mut self, header: &StartViewHeader) -> bool {
        let key = (header.group(), header.frame.view());
        let best = self.best.remove(&key);
        best.is_some_and(|(_, last)| last > header.op())
    }
}

impl World {
    /// Looks at a view message that leaves.
    pub(super) fn mark_log(&mut self, message: &Message) {
        match message.command() {
            Command::DoViewChange => self.votes.vote(message.header()),
            Command::StartView if self.votes.is_cut(message.header()) => {
                self.counters.add("suffixes cut by a nack quorum", 1);
            }
            _ => {}
        }
    }

    /// Looks at an op that was committed for the first time.
    pub(super) fn mark_committed(&mut self, operation: Operation) {
        let name = match operation {
            Operation::CompleteConsumerGroupRevocation => "revocations completed",
            Operation::JoinConsumerGroup => "consumers joined",
            Operation::PurgeTopic | Operation::PurgeStream => "committed: purges",
            Operation::TruncatePartition => "committed: deletions of segments",
            Operation::StoreConsumerOffset => "committed: stored positions",
            Operation::DeleteConsumerOffset => "committed: deleted positions",
            _ => return,
        };
        self.counters.add(name, 1);
    }

    /// Looks at an answer.
    pub(super) fn mark_answer(&mut self, answer: &Answer) {
        let Answer::Evicted(reason) = answer else {
            return;
        };
        let name = match reason {
            EvictionReason::SessionTooLow => "sessions fenced",
            _ => "sessions evicted",
        };
        self.counters.add(name, 1);
    }

    /// A node went down; sometimes it was the last one that ran.
    pub(super) fn mark_down(&mut self) {
        if self.nodes.iter().all(|node| node.machine.is_none()) {
            self.counters.add("all nodes down at once", 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_starts_below_a_vote_of_its_log_view_is_cut_once() {
        let vote = |view: u32, log_view: u32, op: u64| {
            let mut header = DoViewChangeHeader::new(Command::DoViewChange);
            header.frame.set_view(View(view));
            header.set_log_view(View(log_view));
            header.set_op(Op(op));
            header
        };
        let start = |view: u32, op: u64| {
            let mut header = StartViewHeader::new(Command::StartView);
            header.frame.set_view(View(view));
            header.set_op(Op(op));
            header
        };
        let mut votes = Votes::default();
        votes.vote(&vote(3, 1, 9));
        votes.vote(&vote(3, 2, 7));
        assert!(!votes.is_cut(&start(3, 7)), "the older log does not count");
        votes.vote(&vote(4, 2, 7));
        assert!(votes.is_cut(&start(4, 6)));
        assert!(!votes.is_cut(&start(4, 6)), "said already");
    }
}
