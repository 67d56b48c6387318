//! When the state here is known to be up to date.
//!
//! A replica that was away applies the past op by op, and what it knows of the topology may be
//! gone by then. Whoever needs to know better waits for a confirmation: the primary spoke, and
//! everything it called committed is applied here; or this replica leads and a quorum has just
//! followed it. A primary that merely believes to lead is believed late: one that was deposed
//! would have heard of it by then.

use biplane_wire::Op;

/// Ticks between two confirmations of a primary. Acknowledgements that were on their way when it
/// was deposed may still come for a while.
const PAUSE_TICKS: u64 = 50;

/// Heartbeat timeouts for which an idle primary must have led undisturbed.
const IDLE_TIMEOUTS: u64 = 4;

/// What was heard and is not applied yet.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    /// Commit point of the freshest heartbeat.
    heard: Option<Op>,
    /// Tick from which a commit of our own counts again.
    next_at: u64,
    /// Tick from which leading alone counts.
    idle_until: u64,
}

impl Confirmation {
    /// The primary of this replica's view named its commit point.
    pub(super) fn heard(&mut self, commit: Op) {
        self.heard = Some(commit);
    }

    /// A quorum has followed this replica, which leads.
    pub(super) fn followed(&mut self, op: Op, now: u64) {
        if now >= self.next_at {
            self.next_at = now + PAUSE_TICKS;
            self.heard = Some(op);
        }
    }

    /// A tick passed; `leads` says what is applied where this replica is a caught-up primary.
    pub(super) fn tick(&mut self, leads: Option<Op>, heartbeat_ticks: u64, now: u64) {
        let pause = IDLE_TIMEOUTS * heartbeat_ticks;
        match leads {
            None => self.idle_until = now + pause,
            Some(_) if now < self.idle_until => {}
            Some(op) => {
                self.idle_until = now + pause;
                self.heard = Some(op);
            }
        }
    }

    /// Whether what was heard is applied; says so once.
    pub(super) fn is_due(&mut self, applied: Op) -> bool {
        self.heard.take_if(|heard| *heard <= applied).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_counts_once_its_commit_point_is_applied() {
        let mut confirmation = Confirmation::default();
        assert!(!confirmation.is_due(Op(9)), "nothing was heard");
        confirmation.heard(Op(7));
        assert!(!confirmation.is_due(Op(6)));
        assert!(confirmation.is_due(Op(7)));
        assert!(!confirmation.is_due(Op(8)), "said once");
    }

    #[test]
    fn a_primary_confirms_by_its_commits_and_not_too_often() {
        let mut confirmation = Confirmation::default();
        confirmation.followed(Op(1), 0);
        assert!(confirmation.is_due(Op(1)));
        confirmation.followed(Op(2), PAUSE_TICKS - 1);
        assert!(!confirmation.is_due(Op(2)));
        confirmation.followed(Op(3), PAUSE_TICKS);
        assert!(confirmation.is_due(Op(3)));
    }

    #[test]
    fn a_primary_that_nobody_contradicts_is_believed_late() {
        let mut confirmation = Confirmation::default();
        confirmation.tick(None, 10, 5);
        for now in 6..45 {
            confirmation.tick(Some(Op(3)), 10, now);
            assert!(!confirmation.is_due(Op(3)), "at {now}");
        }
        confirmation.tick(Some(Op(3)), 10, 45);
        assert!(confirmation.is_due(Op(3)));
        confirmation.tick(Some(Op(3)), 10, 46);
        assert!(!confirmation.is_due(Op(3)));
    }
}
