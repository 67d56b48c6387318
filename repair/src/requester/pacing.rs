//! When a session begins, waits, repeats itself and gives up (chapter 04 section 2.12).
//!
//! Everything here is local pacing without effect on the wire format. Two rules run through it:
//! whatever a peer answers at network speed must not be answered at network speed for ever, and
//! whatever a peer does not answer must be asked again.

use super::report::{RepairOutput, SessionOutcome};
use super::{Prompt, Requester, is_elect, matches_status, window};
use crate::budget::Budget;
use crate::view::{GroupStatus, GroupView, RepairNeed, TransferState};

impl Requester {
    /// Events that are visible in the group's state and prompt a session: entering Normal in a
    /// view (a StartView was adopted) and the end of a state transfer.
    pub(super) fn observe(&mut self, group: &GroupView) {
        let transferring = group.transfer == TransferState::Active;
        if self.was_transferring && !transferring && self.prompt.is_none() {
            self.prompt(None);
        }
        self.was_transferring = transferring;
        let normal_in = (group.status == GroupStatus::Normal).then_some(group.view);
        if normal_in != self.normal_in {
            self.normal_in = normal_in;
            self.failed = None;
            self.refusals = 0;
            if normal_in.is_some() && self.prompt.is_none() {
                self.prompt(None);
            }
        }
        if self.armed_at.is_some_and(|at| group.commit_min > at) {
            self.armed_at = None;
            self.cooldown = 0;
        }
    }

    /// Closes a session whose reason is gone.
    pub(super) fn settle(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        out: &mut Vec<RepairOutput>,
    ) {
        let Some(session) = &self.session else { return };
        let outcome = if session.view != group.view {
            SessionOutcome::ViewChanged
        } else if group.transfer == TransferState::Active {
            SessionOutcome::TransferStarted
        } else if need.is_none_or(|need| is_elect(need) != session.is_elect())
            || need.and_then(|need| window(group, need)).is_none()
        {
            SessionOutcome::Complete
        } else if !matches_status(session.kind, group.status) {
            SessionOutcome::StatusChanged
        } else {
            return;
        };
        if outcome == SessionOutcome::Complete {
            self.failed = None;
            self.refusals = 0;
        }
        self.close(outcome, out);
    }

    pub(super) fn close(&mut self, outcome: SessionOutcome, out: &mut Vec<RepairOutput>) {
        if let Some(session) = self.session.take() {
            out.push(RepairOutput::Closed {
                peer: session.peer,
                outcome,
            });
        }
    }

    pub(super) fn count_gap(&mut self, group: &GroupView, need: Option<&RepairNeed>) {
        let eligible = need.is_some() && group.status == GroupStatus::Normal;
        let waiting = eligible && self.session.is_none();
        self.gap_ticks = if waiting {
            self.gap_ticks.saturating_add(1)
        } else {
            0
        };
    }

    pub(super) fn age_prompt(&mut self) {
        self.prompt = self.prompt.and_then(|prompt| {
            let ticks_left = prompt.ticks_left.checked_sub(1).filter(|left| *left > 0)?;
            Some(Prompt {
                ticks_left,
                ..prompt
            })
        });
    }

    pub(super) fn retry(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        budget: &Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        let limits = self.config.limits;
        let Some(session) = &mut self.session else {
            return;
        };
        session.ticks = session.ticks.saturating_add(1);
        session.idle = session.idle.saturating_add(1);
        if session.peer_lost {
            return self.rotate(SessionOutcome::PeerLost, false, out);
        }
        if session.resume {
            return self.request(group, need, out);
        }
        if session.idle < limits.retry_ticks {
            return;
        }
        session.stalled_rounds = session.stalled_rounds.saturating_add(1);
        if session.stalled_rounds > limits.stalled_rounds_max {
            let step_back = budget.is_contended() && !session.is_elect();
            return self.rotate(SessionOutcome::Stalled, step_back, out);
        }
        self.request(group, need, out);
    }

    /// The peer retains nothing of use: on to the next one, and after a whole round of such
    /// answers a pause, because they come as fast as the network carries them.
    pub(super) fn refused(&mut self, need: Option<&RepairNeed>, out: &mut Vec<RepairOutput>) {
        self.refusals = self.refusals.saturating_add(1);
        let candidates = match need {
            Some(need) if is_elect(need) => need.sources.len(),
            _ => usize::from(self.config.replica_count).saturating_sub(1),
        };
        let all_refused = usize::try_from(self.refusals).is_ok_and(|count| count >= candidates);
        if all_refused {
            self.refusals = 0;
        }
        self.rotate(SessionOutcome::Refused, all_refused, out);
    }

    pub(super) fn rotate(
        &mut self,
        outcome: SessionOutcome,
        step_back: bool,
        out: &mut Vec<RepairOutput>,
    ) {
        let Some(session) = &self.session else { return };
        self.failed = Some(session.peer);
        self.close(outcome, out);
        let retry_ticks = self.config.limits.retry_ticks;
        if step_back {
            self.cooldown = self.cooldown.max(retry_ticks);
        }
        let ticks_left = retry_ticks.saturating_add(1);
        self.prompt = Some(Prompt {
            peer: None,
            ticks_left,
        });
    }

    /// The log cannot be completed by repair. The pause keeps a transfer that is refused and a
    /// repair that is evicted from chasing each other; it ends early when the transfer worked.
    pub(super) fn arm_transfer(
        &mut self,
        group: &GroupView,
        outcome: SessionOutcome,
        out: &mut Vec<RepairOutput>,
    ) {
        if group.transfer != TransferState::Idle {
            if outcome == SessionOutcome::FloorRefused {
                self.close(outcome, out);
                self.cooldown = self.cooldown.max(self.config.limits.retry_ticks);
            }
            return;
        }
        let Some(session) = &self.session else { return };
        let primary = group.primary(self.config.replica_count);
        let from = if primary == self.config.replica {
            session.peer
        } else {
            primary
        };
        self.close(outcome, out);
        self.cooldown = self.cooldown.max(self.config.limits.retry_ticks);
        self.armed_at = Some(group.commit_min);
        out.push(RepairOutput::ArmTransfer { from });
    }
}
