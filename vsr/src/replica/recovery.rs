//! Probing for the current view, answering probes, and giving up on a silent primary
//! (chapter 03 sections 9.3 to 9.5).
//!
//! A replica that does not know whether its view still stands promises nothing until somebody
//! who leads tells it. When nobody does, everybody may have restarted at once, and it becomes a
//! voter with the log it has.

use biplane_wire::RequestStartViewHeader;

use super::{Context, Handled, Replica};
use crate::io::{Output, RoleChange};
use crate::pending::ProbeAnswer;
use crate::plane::Plane;
use crate::status::{Ignored, Status, TransferStage};
use crate::timeout::TimerName;

impl Replica {
    /// Stops working in this view and asks which one is current.
    pub(crate) fn begin_probe<P>(&mut self, cx: &mut Context<'_, P>) {
        self.status = Status::Recovering;
        self.probe_attempts = 0;
        self.release_clients(cx);
        self.pending.forget_promises();
        self.timers.stop(TimerName::Prepare);
        self.timers.stop(TimerName::Commit);
        self.timers.stop(TimerName::Heartbeat);
        self.timers.start(TimerName::Probe);
        cx.out
            .push(Output::Role(RoleChange::Recovering { view: self.view }));
        tracing::info!(
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
                if !self.is_primary_by_index() {
                    self.broadcast_request_start_view(cx.out);
                }
            }
            Status::Recovering => {
                self.probe_attempts = self.probe_attempts.saturating_add(1);
                if self.probe_attempts < self.config.limits.view_probe_attempts_max {
                    self.timers.start(TimerName::Probe);
                    self.broadcast_request_start_view(cx.out);
                    return;
                }
                if self.transfer_stage == TransferStage::AwaitingTarget {
                    self.abandon_transfer(cx);
                }
                self.enter_view_change(self.view.next(), cx);
            }
        }
    }

    pub(crate) fn on_request_start_view<P: Plane>(
        &mut self,
        header: &RequestStartViewHeader,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        self.check_sender(&header.frame, header.group())?;
        if self.status != Status::Normal {
            return Err(Ignored::Status);
        }
        let from = header.frame.replica();
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
