//! Promises that wait for the disk.
//!
//! A frame that speaks for a view may leave only when that view is on disk, and by then the
//! replica may be in another one. So nothing here is a frame: it is a note of what would be
//! said, and when the write completes the note is judged again in the view the replica is in
//! (see `Replica::view_became_durable`). Entering a view drops all notes of the one before.

use biplane_wire::{Op, ReplicaId, View};

use crate::constants::{PERSIST_RETRY_TICKS_MAX, PROBE_ANSWERS_MAX};

/// An answer owed to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAnswer {
    pub(crate) to: ReplicaId,
    pub(crate) incarnation: u128,
}

/// What the superblock says of a group's views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) view: View,
    pub(crate) log_view: View,
    /// The commit point recorded with them.
    pub(crate) commit: Op,
}

impl Record {
    /// Whether both say the same of views.
    pub(crate) fn has_views_of(&self, other: &Self) -> bool {
        (self.view, self.log_view) == (other.view, other.log_view)
    }
}

/// How the superblock write stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persist {
    /// Nothing was asked for since the last record was durable.
    Settled,
    /// Asked for.
    Requested,
    /// Failed; to be asked for again at this tick.
    RetryAt(u64),
}

/// What waits for a write.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    durable: Record,
    /// The last record asked for.
    requested: Record,
    persist: Persist,
    failures: u32,
    /// `from` of every truncation the journal has not confirmed, oldest first.
    truncations: Vec<Op>,
    pub(crate) start_view_change: bool,
    pub(crate) do_view_change: bool,
    /// Broadcast of the own view.
    pub(crate) start_view: bool,
    pub(crate) probe_answers: Vec<ProbeAnswer>,
}

impl Pending {
    pub(crate) fn new(durable: Record) -> Self {
        Self {
            durable,
            requested: durable,
            persist: Persist::Settled,
            failures: 0,
            truncations: Vec::new(),
            start_view_change: false,
            do_view_change: false,
            start_view: false,
            probe_answers: Vec::new(),
        }
    }

    pub(crate) fn durable(&self) -> Record {
        self.durable
    }

    /// The last record that was asked for; at least the durable one.
    pub(crate) fn requested(&self) -> Record {
        self.requested
    }

    /// Whether anything waits to be said.
    pub(crate) fn has_promises(&self) -> bool {
        self.start_view_change
            || self.do_view_change
            || self.start_view
            || !self.probe_answers.is_empty()
    }

    /// Notes of an older view or role are void.
    pub(crate) fn forget_promises(&mut self) {
        self.start_view_change = false;
        self.do_view_change = false;
        self.start_view = false;
        self.probe_answers.clear();
    }

    /// Remembers whom to answer; the latest probe of a peer counts.
    pub(crate) fn owe_answer(&mut self, answer: ProbeAnswer) {
        self.probe_answers.retain(|owed| owed.to != answer.to);
        if self.probe_answers.len() < PROBE_ANSWERS_MAX {
            self.probe_answers.push(answer);
        }
    }

    /// Whether a write of `wanted` is to be asked for at tick `now`; then it counts as asked.
    ///
    /// The journal comes first: if the superblock said that the log of a view is installed
    /// while entries that view discarded were still on disk, a crash would bring them back as
    /// part of it.
    pub(crate) fn take_persist_request(&mut self, wanted: Record, now: u64) -> bool {
        // A higher commit point than is wanted may be recorded: by the plane with its checkpoint,
        // or before a restart. It stays, and whoever asked again would be told so again.
        if wanted.has_views_of(&self.durable) && wanted.commit <= self.durable.commit {
            self.persist = Persist::Settled;
            self.failures = 0;
            return false;
        }
        if !self.truncations.is_empty() {
            return false;
        }
        let is_new = wanted != self.requested;
        let is_due = match self.persist {
            Persist::Settled => true,
            Persist::Requested => is_new,
            Persist::RetryAt(tick) => is_new || tick <= now,
        };
        if is_due {
            self.requested = wanted;
            self.persist = Persist::Requested;
        }
        is_due
    }

    /// When to look again, if a retry is waiting.
    pub(crate) fn retry_at(&self) -> Option<u64> {
        match self.persist {
            Persist::RetryAt(tick) => Some(tick),
            _ => None,
        }
    }

    /// A write completed with these values, whoever asked for it. Records only ever move forward.
    pub(crate) fn persisted(&mut self, done: Record) {
        let views = |it: &Record| (it.view, it.log_view);
        self.durable.commit = match done.has_views_of(&self.durable) {
            true => self.durable.commit.max(done.commit),
            false if views(&done) < views(&self.durable) => self.durable.commit,
            false => done.commit,
        };
        self.durable.view = self.durable.view.max(done.view);
        self.durable.log_view = self.durable.log_view.max(done.log_view);
        self.requested.view = self.requested.view.max(done.view);
        self.requested.log_view = self.requested.log_view.max(done.log_view);
        if self.durable.has_views_of(&self.requested) {
            (self.persist, self.failures) = (Persist::Settled, 0);
        }
    }

    /// A write failed at tick `now`: ask again after 1, 2, 4 ... ticks, at most a second.
    pub(crate) fn persist_failed(&mut self, now: u64) {
        if self.persist == Persist::Settled {
            return;
        }
        let wait = 1_u64
            .checked_shl(self.failures)
            .unwrap_or(PERSIST_RETRY_TICKS_MAX);
        self.failures = (self.failures + 1).min(63);
        self.persist = Persist::RetryAt(now + wait.min(PERSIST_RETRY_TICKS_MAX));
    }

    pub(crate) fn truncation_started(&mut self, from: Op) {
        self.truncations.push(from);
    }

    /// The journal confirmed a truncation; whether it was one of ours.
    pub(crate) fn truncation_done(&mut self, from: Op) -> bool {
        let Some(index) = self.truncations.iter().position(|waiting| *waiting == from) else {
            return false;
        };
        self.truncations.remove(index);
        true
    }

    /// Whether an append of `op` that completes now was issued before a truncation that took
    /// it out again. The journal works in order, so a completion that arrives while the
    /// truncation is out belongs to the entry that is gone, even if an equal one came back.
    pub(crate) fn is_cut(&self, op: Op) -> bool {
        self.truncations.iter().any(|from| *from <= op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Record = Record {
        view: View(0),
        log_view: View(0),
        commit: Op::ZERO,
    };
    const ONE: Record = Record {
        view: View(1),
        log_view: View(0),
        commit: Op::ZERO,
    };

    #[test]
    fn superblock_waits_for_the_journal_to_cut() {
        let mut pending = Pending::new(ZERO);
        pending.truncation_started(Op(4));
        assert!(!pending.take_persist_request(ONE, 0));
        assert!(!pending.truncation_done(Op(5)));
        assert!(pending.truncation_done(Op(4)));
        assert!(pending.take_persist_request(ONE, 0));
        assert!(!pending.take_persist_request(ONE, 0), "asked once");
        let two = Record {
            view: View(2),
            ..ONE
        };
        assert!(
            pending.take_persist_request(two, 0),
            "a newer record is asked for at once"
        );
        pending.persisted(two);
        assert!(!pending.take_persist_request(two, 9));
    }

    #[test]
    fn failed_writes_are_retried_later_and_later() {
        let mut pending = Pending::new(ZERO);
        assert!(pending.take_persist_request(ONE, 0));
        let mut now = 0;
        for wait in [1, 2, 4, 8, 16, 32, 64, 100, 100] {
            pending.persist_failed(now);
            assert!(
                !pending.take_persist_request(ONE, now + wait - 1),
                "after {wait}"
            );
            assert_eq!(pending.retry_at(), Some(now + wait));
            assert!(pending.take_persist_request(ONE, now + wait));
            now += wait;
        }
        for _ in 0..100 {
            pending.persist_failed(now);
        }
        assert_eq!(pending.retry_at(), Some(now + PERSIST_RETRY_TICKS_MAX));
    }

    #[test]
    fn records_move_forward_only() {
        let mut pending = Pending::new(Record {
            view: View(3),
            log_view: View(2),
            commit: Op(7),
        });
        let done = |view, log_view, commit| Record {
            view: View(view),
            log_view: View(log_view),
            commit: Op(commit),
        };
        pending.persisted(done(5, 2, 9));
        pending.persisted(done(4, 4, 8));
        assert_eq!(
            pending.durable(),
            Record {
                view: View(5),
                log_view: View(4),
                commit: Op(9),
            }
        );
    }

    #[test]
    fn commit_point_is_durable_when_a_write_says_so() {
        let mut pending = Pending::new(ZERO);
        let at = |commit| Record {
            commit: Op(commit),
            ..ONE
        };
        assert!(pending.take_persist_request(at(9), 0));
        // Somebody else's write of the same views completes first, and may have replaced ours.
        pending.persisted(at(5));
        assert_eq!(pending.durable(), at(5));
        assert!(pending.take_persist_request(at(9), 0), "asked again");
        pending.persist_failed(3);
        assert!(!pending.take_persist_request(at(9), 3));
        assert!(pending.take_persist_request(at(9), 4));
        pending.persisted(at(9));
        assert_eq!(pending.durable(), at(9));
        assert!(!pending.take_persist_request(at(9), 5));
        pending.persisted(at(5));
        assert_eq!(pending.durable(), at(9), "never back");
        assert!(!pending.take_persist_request(at(5), 6), "it says more");
    }

    #[test]
    fn completion_during_a_cut_belongs_to_the_entry_that_is_gone() {
        let mut pending = Pending::new(ZERO);
        pending.truncation_started(Op(4));
        assert!(!pending.is_cut(Op(3)));
        assert!(pending.is_cut(Op(4)) && pending.is_cut(Op(9)));
        pending.truncation_done(Op(4));
        assert!(!pending.is_cut(Op(4)));
    }

    #[test]
    fn latest_probe_of_a_peer_is_the_one_answered() {
        let mut pending = Pending::new(ZERO);
        for incarnation in [1, 3] {
            pending.owe_answer(ProbeAnswer {
                to: ReplicaId(2),
                incarnation,
            });
        }
        assert_eq!(
            pending.probe_answers,
            [ProbeAnswer {
                to: ReplicaId(2),
                incarnation: 3
            }]
        );
    }
}
