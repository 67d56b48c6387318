//! What may be said once the view is on disk (chapter 03 section 9.2).
//!
//! Persistence fences what leaves, not what is done: queues are rebuilt, entries cut and ops
//! applied while the superblock is still being written. When the write completes, the replica
//! may be in another view or role, so every note is judged anew.

use biplane_wire::Op;

use super::{Context, Handled, Replica};
use crate::io::Output;
use crate::log::Storage;
use crate::mutation::mutated;
use crate::pending::Record;
use crate::plane::Plane;
use crate::status::{Ignored, Status};

impl Replica {
    /// Whether the superblock says what it should.
    pub(crate) fn view_is_durable(&self) -> bool {
        self.pending.durable().has_views_of(&self.record()) || mutated!(ViewBeforeRecord)
    }

    /// Whether a restart would know that this replica has the log of its log view.
    pub(crate) fn log_view_is_durable(&self) -> bool {
        self.pending.durable().log_view == self.log_view
    }

    /// Whether a restart would know how far the holes reach that lie below what is acknowledged
    /// here: what stands behind them in the file may become unreadable, and is not to be denied.
    /// If not, that is recorded before `op` is acknowledged. Nothing stands in a file where the
    /// log is in memory.
    pub(crate) fn holes_are_recorded<P: Plane>(&mut self, op: Op, cx: &mut Context<'_, P>) -> bool {
        let held = self.log.held(op);
        let is_in_memory = held.is_some_and(|held| held.storage == Storage::Memory);
        // The journal works in order: what was asked for before `op` is durable with it.
        if held.is_some_and(|held| held.number < self.late.0) {
            self.passed_over = self.passed_over.max(self.late.1);
        }
        let is_recorded = is_in_memory || self.passed_over <= self.pending.durable().commit;
        if !is_recorded {
            self.holes_to_record = self.passed_over;
            self.request_persist(cx);
        }
        is_recorded
    }

    /// What the superblock should say. The log view of an adopted log is recorded once that log
    /// is complete here.
    fn record(&self) -> Record {
        // A record that was asked for is on its way, and records never go back.
        let recorded = self.pending.requested();
        let log_view = if self.is_completing() && !mutated!(LogViewBeforeBodies) {
            recorded.log_view
        } else {
            self.log_view
        };
        let wanted = Record {
            view: self.view,
            log_view,
            commit: self.commit_logged,
        };
        // What is durable, or on its way, will do while it says how far holes reach.
        let known = [self.pending.durable(), recorded];
        let will_do =
            |known: &Record| known.has_views_of(&wanted) && self.holes_to_record <= known.commit;
        known.into_iter().find(will_do).unwrap_or(wanted)
    }

    /// Asks for the superblock write that is due, if one is.
    pub(crate) fn request_persist<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        let record = self.record();
        let now = self.timers.now();
        if self.pending.take_persist_request(record, now) {
            let Record {
                view,
                log_view,
                commit: commit_max,
            } = record;
            cx.out.push(Output::PersistView {
                view,
                log_view,
                commit_max,
            });
        }
    }

    pub(crate) fn on_persisted<P: Plane>(
        &mut self,
        record: Record,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        if record.view > self.view || record.log_view > self.log_view {
            return Err(Ignored::StaleCompletion);
        }
        self.pending.persisted(record);
        if !self.view_is_durable() {
            return Err(Ignored::StaleCompletion);
        }
        if self.leads() {
            self.forward_withheld(cx);
        }
        Ok(())
    }

    pub(crate) fn on_persist_failed(&mut self) -> Handled {
        if !mutated!(NoPersistRetry) {
            self.pending.persist_failed(self.timers.now());
        }
        Ok(())
    }

    /// Prepares of a new primary that had to wait for its view.
    fn forward_withheld<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        let mut op = self.commit_min.next();
        while op <= self.op_head {
            self.forward_when_allowed(op, cx);
            op = op.next();
        }
    }

    /// Sends what was noted, if the view is durable by now and the note still fits the role.
    pub(crate) fn keep_promises<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if !self.pending.has_promises() || !self.view_is_durable() {
            return;
        }
        let start_view_change = std::mem::take(&mut self.pending.start_view_change);
        let do_view_change = std::mem::take(&mut self.pending.do_view_change);
        let start_view = std::mem::take(&mut self.pending.start_view);
        let answers = std::mem::take(&mut self.pending.probe_answers);
        if self.status == Status::ViewChange {
            if start_view_change {
                self.broadcast_start_view_change(cx.out);
            }
            if do_view_change {
                self.broadcast_do_view_change(cx.out);
            }
        }
        if self.leads() {
            if start_view {
                self.broadcast_start_view(cx.out);
            }
            for answer in answers {
                self.answer_probe(answer, cx.out);
            }
        }
    }
}
