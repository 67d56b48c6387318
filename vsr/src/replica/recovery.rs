//! Probing for the current view, answering probes, and giving up on a silent primary
//! (chapter 03 sections 9.3 to 9.5).
//!
//! A replica that does not know whether its view still stands promises nothing until somebody
//! who leads tells it. When nobody does, everybody may have restarted at once, and it becomes a
//! voter with the log it has: when its questions have run out, or as soon as everybody else has
//! been heard to ask the same.

use biplane_wire::{ReplicaId, RequestStartViewHeader, View};

use super::{Context, Handled, Replica};
use crate::io::{Output, RoleChange};
use crate::mutation::mutated;
use crate::pending::ProbeAnswer;
use crate::plane::Plane;
use crate::quorum::ReplicaSet;
use crate::status::{Ignored, Status, TransferStage};
use crate::timeout::TimerName;

/// Who has been heard to ask for the current view while this replica asks too.
///
/// When that is everybody, nobody leads, and to wait for an answer is to wait for nothing. The
/// argument, with `w` the highest view named by any of them or by this replica:
///
/// - A replica that asks is not normal: it neither leads nor acknowledges.
/// - The primary of `w` asked under `w` (or is this replica). The elect of a view does not ask,
///   so it asked as one that recovers, and such a one leaves `w` for a higher view only, unless
///   somebody else announces one. So view `w` has not started since, and never will.
/// - A lower view can have started meanwhile only among replicas that have seen `w` or will hear
///   of `w + 1` in any case.
///
/// So the next view is the one everybody must go to anyway, and going there at once differs
/// from going there when the probes have run out in time alone. Safety rests on none of this: a
/// replica votes with what its disk holds, no more and no less than it would some seconds later,
/// and a wrong guess costs one view change. Replicas that do not do this ignore the messages of
/// the view change until their own probes have run out, and then find that view under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probers {
    heard: ReplicaSet,
    /// Highest view named.
    view: View,
    /// Whether the primary of that view is among them.
    includes_primary: bool,
}

impl Probers {
    /// Nobody yet but `replica` itself, in `view`.
    pub(crate) fn new(replica: ReplicaId, view: View, replica_count: u8) -> Self {
        Self {
            heard: ReplicaSet::EMPTY,
            view,
            includes_primary: view.primary(replica_count) == replica,
        }
    }

    /// `from` asked in `view`; `own` asks as well.
    fn hear(&mut self, from: ReplicaId, view: View, own: ReplicaId, replica_count: u8) {
        self.heard.insert(from);
        let primary = view.primary(replica_count);
        if view > self.view {
            self.view = view;
            // Whoever recovers in a lower view has not started this one.
            self.includes_primary = primary == own;
        }
        self.includes_primary |= view == self.view && primary == from;
    }

    /// Whether `others` are all among them and their highest view is dead.
    fn are_all(&self, others: ReplicaSet) -> bool {
        self.includes_primary && others.minus(self.heard).is_empty()
    }
}

impl Replica {
    /// Stops working in this view and asks which one is current.
    pub(crate) fn begin_probe<P>(&mut self, cx: &mut Context<'_, P>) {
        self.status = Status::Recovering;
        self.probe_attempts = 0;
        self.probers = Probers::new(self.config.replica, self.view, self.config.replica_count);
        self.release_clients(cx);
        self.pending.forget_promises();
        self.timers.stop(TimerName::Prepare);
        self.timers.stop(TimerName::Commit);
        self.timers.stop(TimerName::Heartbeat);
        self.timers.start(TimerName::Probe);
        cx.out
            .push(Output::Role(RoleChange::Recovering { view: self.view }));
        super::transition!(
            self,
            node = self.config.replica.0,
            group = %self.config.group,
            view = self.view.0,
            observed = self.view_observed.0,
            "probing"
        );
    }

    /// The primary has been silent for too long.
    pub(crate) fn on_heartbeat_timer<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.status != Status::Normal || self.leads() {
            self.timers.stop(TimerName::Heartbeat);
        } else if self.view_observed > self.view {
            self.begin_probe(cx);
        } else {
            self.enter_view_change(self.view.next(), cx);
        }
    }

    pub(crate) fn on_probe_timer<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        match self.status {
            Status::Normal => self.timers.stop(TimerName::Probe),
            Status::ViewChange => {
                self.timers.start(TimerName::Probe);
                // Covers a lost announcement. The elect has nobody to ask.
                if !self.is_primary_by_index() && !mutated!(NoViewProbe) {
                    self.broadcast_request_start_view(cx.out);
                }
            }
            Status::Recovering => {
                self.probe_attempts = self.probe_attempts.saturating_add(1);
                if self.probe_attempts < self.config.limits.view_probe_attempts_max {
                    self.timers.start(TimerName::Probe);
                    self.broadcast_request_start_view(cx.out);
                    self.elect_if_nobody_leads(cx);
                    return;
                }
                self.elect_after_probing(self.view.next(), cx);
            }
        }
    }

    /// Nobody answers: becomes a voter with the log it has.
    fn elect_after_probing<P>(&mut self, view: View, cx: &mut Context<'_, P>) {
        if self.transfer_stage == TransferStage::AwaitingTarget {
            self.abandon_transfer(cx);
        }
        self.enter_view_change(view, cx);
    }

    /// Elects at once when everybody else asks who leads too (see [`Probers`]). Not before the
    /// own question went out, or the others could not know.
    fn elect_if_nobody_leads<P>(&mut self, cx: &mut Context<'_, P>) {
        let others = ReplicaSet::all(self.config.replica_count).without(self.config.replica);
        if self.probe_attempts == 0 || !self.probers.are_all(others) {
            return;
        }
        super::transition!(
            self,
            node = self.config.replica.0,
            group = %self.config.group,
            view = self.probers.view.0,
            "everybody probes"
        );
        self.elect_after_probing(self.probers.view.next(), cx);
    }

    pub(crate) fn on_request_start_view<P: Plane>(
        &mut self,
        header: &RequestStartViewHeader,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        self.check_sender(&header.frame, header.group())?;
        let from = header.frame.replica();
        if self.status == Status::Recovering {
            let (own, count) = (self.config.replica, self.config.replica_count);
            self.probers.hear(from, header.frame.view(), own, count);
            self.elect_if_nobody_leads(cx);
            return Ok(());
        }
        if self.status != Status::Normal {
            return Err(Ignored::Status);
        }
        if from == self.primary() {
            if header.frame.view() != self.view {
                // Left over from another time at which the same replica was to lead.
                return Err(Ignored::ViewOlder);
            }
            // Our primary asks who leads: it does not.
            self.enter_view_change(self.view.next(), cx);
            return Ok(());
        }
        if !self.leads() || self.log_view != self.view {
            return Err(Ignored::NotPrimary);
        }
        self.pending.owe_answer(ProbeAnswer {
            to: from,
            incarnation: header.incarnation(),
        });
        Ok(())
    }
}
