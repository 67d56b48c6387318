//! How an attempt ends, and what follows (chapter 04 section 3.8).

use biplane_wire::{ManifestEntry, ReplicaId, StateTransferTargetHeader};

use super::peers::next_peer;
use super::report::{Ended, PullOutput};
use super::{PullView, Puller, PullerConfig};
use crate::budget::PullBudget;
use crate::limits::BACKOFF_EXPONENT_MAX;
use crate::stage::{PlaneKind, Stage};

/// What a failure of a partition's attempt costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charge {
    /// One flat retry interval.
    Nothing,
    /// A pause that doubles with each failure.
    Failure,
}

impl Puller {
    /// An artifact the owner looked into does not hold (`artifact`), or the whole failed a check
    /// of the install (`None`). What was verified and is not blamed is kept.
    ///
    /// Ignored outside of Fetching: an install that began is reported by
    /// [`Puller::install_failed`].
    pub fn reject(&mut self, artifact: Option<u32>, out: &mut Vec<PullOutput>) {
        if self.stage != Stage::Fetching {
            return;
        }
        let fetch = self
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.fetch.as_ref());
        let blamed = artifact.and_then(|index| {
            fetch?
                .offer
                .entries
                .get(usize::try_from(index).ok()?)
                .copied()
        });
        if let Some(entry) = blamed {
            self.verified.remove(&entry);
            out.push(PullOutput::Discard { entry });
        }
        self.failed = self.attempt.as_ref().map(|attempt| attempt.peer);
        self.fail(out);
    }

    /// As [`Puller::reject`], of an artifact that was reported complete: its content was looked
    /// into afterwards, perhaps for another attempt than the one that runs.
    pub fn disprove(&mut self, entry: &ManifestEntry, out: &mut Vec<PullOutput>) {
        self.verified.remove(entry);
        out.push(PullOutput::Discard { entry: *entry });
        let fetch = self
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.fetch.as_ref());
        if fetch.is_some_and(|fetch| fetch.offer.entries.contains(entry)) {
            self.reject(None, out);
        }
    }

    /// The pulled state is current.
    ///
    /// # Panics
    ///
    /// When no install was begun.
    pub fn installed(&mut self, out: &mut Vec<PullOutput>) {
        assert!(
            self.stage == Stage::Installing,
            "what is installed was being installed"
        );
        self.failures = 0;
        self.failed = None;
        self.owed = false;
        self.verified.clear();
        let peer = self.attempt.as_ref().map(|attempt| attempt.peer);
        self.end(Ended::Installed, peer, out);
    }

    /// The install went wrong after it had begun; the owner has brought the group to a state in
    /// which it can start over. Nothing staged is trusted any more.
    ///
    /// # Panics
    ///
    /// When no install was begun.
    pub fn install_failed(&mut self, out: &mut Vec<PullOutput>) {
        assert!(
            self.stage == Stage::Installing,
            "what failed was being installed"
        );
        self.discard_verified(out);
        match self.config.plane {
            PlaneKind::Metadata => self.end(Ended::Failed, None, out),
            PlaneKind::Partition => {
                self.owed = true;
                self.rest(Charge::Failure, Ended::Failed, out);
            }
        }
    }

    /// Gives up: the probe of a boot ran out, or the group's data was purged.
    ///
    /// Ignored while an install runs. From its first durable step on the files are neither the
    /// old state nor the new one, so it goes on to [`Puller::installed`] or
    /// [`Puller::install_failed`].
    pub fn cancel(&mut self, out: &mut Vec<PullOutput>) {
        if self.stage == Stage::Installing {
            return;
        }
        self.rearm = None;
        self.owed = false;
        let active = self.stage != Stage::Idle;
        self.discard_partial(out);
        self.discard_verified(out);
        if active {
            self.end(Ended::Cancelled, None, out);
        }
    }

    /// The peer has no offer, or dropped the one it made.
    pub(super) fn refused(&mut self, transient: bool, view: &PullView, out: &mut Vec<PullOutput>) {
        let Some(peer) = self.attempt.as_ref().map(|attempt| attempt.peer) else {
            return;
        };
        self.discard_partial(out);
        if self.config.plane == PlaneKind::Metadata {
            self.discard_verified(out);
            return self.end(Ended::Refused, Some(peer), out);
        }
        let is_primary = peer == view.view.primary(self.config.replica_count);
        self.failed = (!transient || !is_primary).then_some(peer);
        let charge = if transient {
            // Who answers gets ready as long as it is asked. A pause that grew over peers that
            // are silent would keep it from getting on.
            self.failures = 0;
            Charge::Nothing
        } else {
            Charge::Failure
        };
        self.rest(charge, Ended::Refused, out);
    }

    /// Whether a partition's offer is of no use, whatever its artifacts are.
    pub(super) fn turns_down(
        &mut self,
        target: &StateTransferTargetHeader,
        view: &PullView,
        out: &mut Vec<PullOutput>,
    ) -> bool {
        if biplane_vsr::mutated!(OlderOfferTaken) {
            return false;
        }
        let contradicts_itself = target.commit_op() > target.commit_max();
        let knows_less = target.frame.view() < view.view || target.commit_max() < view.commit_max;
        // It would erase ops this replica acknowledged and knows committed, so the install would
        // refuse it; a later offer of the same peer will do.
        let falls_short = target.commit_op() < view.commit_max.max(view.commit_min);
        let peer = self.attempt.as_ref().map(|attempt| attempt.peer);
        if contradicts_itself {
            self.failed = peer;
            self.rest(Charge::Failure, Ended::Refused, out);
        } else if knows_less {
            self.failed = peer;
            self.rest(Charge::Nothing, Ended::Refused, out);
        } else if falls_short {
            self.failed = None;
            self.rest(Charge::Nothing, Ended::Refused, out);
        }
        contradicts_itself || knows_less || falls_short
    }

    /// No progress for a retry interval.
    pub(super) fn stall(&mut self, out: &mut Vec<PullOutput>) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.stalls = attempt.stalls.saturating_add(1);
        if attempt.stalls <= self.config.limits.stalls_max {
            return self.send_request(out);
        }
        self.failed = Some(attempt.peer);
        self.discard_partial(out);
        match self.config.plane {
            PlaneKind::Metadata => {
                self.failures = 0;
                self.discard_verified(out);
                self.end(Ended::Abandoned, None, out);
            }
            PlaneKind::Partition => self.rest(Charge::Failure, Ended::Abandoned, out),
        }
    }

    /// The bytes, the offer or the content did not hold. The peer stays the same unless the
    /// caller moved on from it: what arrived damaged once may arrive whole next time.
    pub(super) fn fail(&mut self, out: &mut Vec<PullOutput>) {
        self.discard_partial(out);
        if self.config.plane == PlaneKind::Partition {
            return self.rest(Charge::Failure, Ended::Failed, out);
        }
        self.failures = self.failures.saturating_add(1);
        let Some(peer) = self.attempt.take().map(|attempt| attempt.peer) else {
            return;
        };
        if self.failures < self.config.limits.failures_max {
            return self.open(peer, out);
        }
        self.failures = 0;
        self.discard_verified(out);
        self.end(Ended::Abandoned, None, out);
    }

    /// Counts the pause of a partition down and starts its next attempt, unless repair closed
    /// the gap meanwhile. After an install that removed old segments and failed, repair can close
    /// the gap of ops, but it does not bring the messages back.
    pub(super) fn count_down(
        &mut self,
        view: &PullView,
        budget: &mut PullBudget,
        out: &mut Vec<PullOutput>,
    ) {
        let Some(left) = self.rearm else { return };
        if view.commit_min >= view.commit_max && !self.owed {
            self.rearm = None;
            self.failures = 0;
            return self.discard_verified(out);
        }
        let left = left.saturating_sub(1);
        self.rearm = Some(left);
        if left > 0 {
            return;
        }
        let PullerConfig {
            replica,
            replica_count,
            ..
        } = self.config;
        let primary = view.view.primary(replica_count);
        match next_peer(replica, replica_count, primary, self.failed) {
            Some(peer) => self.start(peer, budget, out),
            None => self.rearm = None,
        }
    }

    /// Ends the attempt and schedules the next one.
    fn rest(&mut self, charge: Charge, outcome: Ended, out: &mut Vec<PullOutput>) {
        let retry_ticks = self.config.limits.retry_ticks;
        let pause = match charge {
            Charge::Nothing => retry_ticks,
            Charge::Failure => {
                self.failures = self.failures.saturating_add(1);
                retry_ticks.saturating_mul(1 << self.failures.min(BACKOFF_EXPONENT_MAX))
            }
        };
        self.end(outcome, None, out);
        self.rearm = Some(pause);
    }

    fn end(&mut self, outcome: Ended, repair_from: Option<ReplicaId>, out: &mut Vec<PullOutput>) {
        self.attempt = None;
        self.paused = false;
        self.set_stage(Stage::Idle, out);
        out.push(PullOutput::Ended {
            outcome,
            repair_from,
        });
    }

    /// Drops what is there of the artifact that was being pulled.
    fn discard_partial(&mut self, out: &mut Vec<PullOutput>) {
        let fetch = self
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.fetch.as_ref());
        let partial = fetch.filter(|fetch| fetch.received() > 0);
        if let Some(entry) = partial.and_then(|fetch| fetch.current()) {
            out.push(PullOutput::Discard { entry });
        }
    }

    fn discard_verified(&mut self, out: &mut Vec<PullOutput>) {
        out.extend(
            self.verified
                .drain()
                .map(|entry| PullOutput::Discard { entry }),
        );
    }
}
