//! Adopting the log a new primary announces (chapter 03 section 8.7).
//!
//! The head is taken over at once, the bodies follow. What disagrees with the announced log is
//! cut before anything is acknowledged, and the superblock says so only after the journal did.

use biplane_wire::{StartViewHeader, Suffix, SuffixError, Typed};

use super::{Adoption, Context, Handled, Replica};
use crate::constants::PIPELINE_MAX;
use crate::io::{Output, RoleChange, TransferNotice};
use crate::mutation::mutated;
use crate::plane::Plane;
use crate::status::{Ignored, Status, TransferStage};
use crate::timeout::TimerName;

impl Replica {
    pub(crate) fn on_start_view<P: Plane>(
        &mut self,
        frame: &Typed<StartViewHeader>,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        let header = frame.header();
        self.check_sender(&header.frame, header.group())?;
        let suffix = match Suffix::of_start_view(frame) {
            Ok(suffix) => Some(suffix),
            Err(SuffixError::BodySeal) => return Err(Ignored::Corrupt),
            Err(error) => {
                tracing::warn!(group = %self.config.group, %error, "announced log unreadable");
                None
            }
        };
        let view = header.frame.view();
        if header.frame.replica() != view.primary(self.config.replica_count) {
            return Err(Ignored::NotFromPrimary);
        }
        if view < self.view {
            return Err(Ignored::ViewOlder);
        }
        if self.answers_an_earlier_life(header) {
            return Err(Ignored::OtherIncarnation);
        }
        if header.op() < self.commit_max && !mutated!(AdoptsBelowCommit) {
            tracing::warn!(
                group = %self.config.group,
                op = header.op().0,
                commit = self.commit_max.0,
                "announced log ends below what is committed"
            );
            return Err(Ignored::BelowCommit);
        }
        let is_known = view == self.log_view && header.op() <= self.op_head;
        if self.status == Status::Normal && is_known && !mutated!(ViewAdoptedAgain) {
            // Said before, or overtaken by prepares of the same view.
            let raised = self.raise_commit_max(header.commit());
            return if raised {
                Ok(())
            } else {
                Err(Ignored::NothingNew)
            };
        }
        if self.is_overtaken(header) {
            return Err(Ignored::NothingNew);
        }
        let entries = suffix.iter().flat_map(Suffix::iter);
        let headers = entries.map(|entry| entry.header.copied()).collect();
        let adoption = Adoption {
            head: header.op(),
            headers,
            covered: header.commit(),
            is_complete: false,
        };
        self.adopt(header, adoption, cx);
        Ok(())
    }

    /// An answer to a probe of this replica before it restarted, which would move its head
    /// back within a view.
    fn answers_an_earlier_life(&self, header: &StartViewHeader) -> bool {
        let own = self.config.incarnation;
        self.status == Status::Recovering
            && own != 0
            && header.incarnation() != 0
            && header.incarnation() != own
            && header.frame.view() <= self.view
            && header.op() < self.op_head
    }

    /// An announcement from before a prepare of the same view that is here: this replica may
    /// have acknowledged that prepare, restarted, and hears the old word again. A primary's log
    /// does not become shorter within its view.
    fn is_overtaken(&self, header: &StartViewHeader) -> bool {
        let view = header.frame.view();
        let last = self.log.last().filter(|last| *last > header.op());
        let last = last.and_then(|last| self.log.header(last));
        view == self.log_view && last.is_some_and(|last| last.frame.view() == view)
    }

    fn adopt<P: Plane>(
        &mut self,
        header: &StartViewHeader,
        adoption: Adoption,
        cx: &mut Context<'_, P>,
    ) {
        let view = header.frame.view();
        let commit_known = self.commit_max;
        self.release_clients(cx);
        self.pipeline.clear();
        self.view = view;
        self.log_view = view;
        self.log_lost = false;
        self.status = Status::Normal;
        self.ceded = false;
        self.abandon_election();
        self.raise_commit_max(header.commit());
        self.is_blind = header.commit().0 > 0 && adoption.at(header.commit()).is_none();
        self.adoption = Some(adoption);
        self.op_head = header.op();
        if self.op_head.0 != 0 {
            self.recovery_barrier = self.recovery_barrier.min(self.op_head);
        }
        self.reconcile(commit_known, cx);
        self.pending.forget_promises();
        // The primary may know less to be committed than this replica, and then needs its word
        // for those ops too.
        let uncommitted_low = self.op_head.0.saturating_sub(PIPELINE_MAX);
        self.op_acknowledged = header.commit().max(biplane_wire::Op(uncommitted_low));
        self.note_holes();
        self.stop_view_change_timers();
        self.timers.stop(TimerName::Prepare);
        self.timers.stop(TimerName::Commit);
        self.timers.start(TimerName::Heartbeat);
        cx.out.push(Output::Role(RoleChange::Backup { view }));
        if self.transfer_stage == TransferStage::AwaitingTarget {
            let from = header.frame.replica();
            cx.out
                .push(Output::Transfer(TransferNotice::Begin { from }));
        }
        super::transition!(
            self,
            node = self.config.replica.0,
            group = %self.config.group,
            view = view.0,
            op = self.op_head.0,
            commit = self.commit_max.0,
            "following"
        );
    }
}
