//! The backup at work: accepting prepares in order, passing them on, acknowledging what it
//! holds, following heartbeats (chapter 03 sections 6.3 to 6.5, 6.8).

use biplane_wire::{Checksum, CommitHeader, Message, Op, PrepareHeader, prepare};

use super::reconcile::is_same;
use super::{Context, Handled, Replica};
use crate::config::Forward;
use crate::io::{HaltReason, Output};
use crate::log::{Storage, Trust, chains};
use crate::mutation::mutated;
use crate::plane::{Plane, Source};
use crate::status::{Ignored, Status};
use crate::timeout::TimerName;

impl Replica {
    /// The table of chapter 03 section 6.4; the first condition that holds decides.
    pub(crate) fn on_prepare<P: Plane>(
        &mut self,
        message: Message,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        let header = message.header::<PrepareHeader>();
        self.check_origin(&header.frame, header.group())?;
        if prepare::verify_ingest(header, message.body()).is_err() {
            return Err(Ignored::Corrupt);
        }
        if self.is_transferring() {
            return Err(Ignored::Transferring);
        }
        if self.status != Status::Normal {
            return Err(Ignored::Status);
        }
        let (op, view) = (header.op(), header.frame.view());
        if view > self.view {
            // No sign of life of our primary: the heartbeat timer runs on, and when it expires
            // this replica asks for the newer view instead of starting another.
            self.view_observed = self.view_observed.max(view);
            return Err(Ignored::ViewNewer);
        }
        if view < self.view {
            return Err(Ignored::ViewOlder);
        }
        if self.leads() {
            return Err(Ignored::OwnPrepare);
        }
        // Even a prepare that cannot be taken says what is committed.
        self.raise_commit_max(header.commit());
        if op <= self.commit_min {
            // A primary elected with a lower commit point may lack this acknowledgement, and
            // with the third replica behind nobody else can give it.
            match self.log.held(op) {
                Some(held) if !is_equal_prepare(&held.message, &message) => {}
                Some(held) if held.trust == Trust::Verified => self.acknowledge_again(op, cx),
                _ => self.acknowledge_evicted(header, cx),
            }
            return Err(Ignored::Applied);
        }
        if let Some(held) = self.log.held(op) {
            let is_equal = is_equal_prepare(&held.message, &message);
            if is_equal || held.trust == Trust::Verified {
                return self.on_prepare_again(message, is_equal, cx);
            }
        }
        self.check_parent(header, cx)?;
        if op <= self.op_head {
            return self.fill_hole(message, cx);
        }
        if !self.is_within_window(op) {
            return Err(Ignored::Gap);
        }
        if op != self.op_head.next() {
            let limits = &self.config.limits;
            self.early.keep(message, view, limits);
            return Err(Ignored::Gap);
        }
        self.check_timestamp(header)?;
        if let Err(reason) = cx.plane.accept(&message, Source::Live) {
            tracing::warn!(group = %self.config.group, op = op.0, reason, "prepare refused");
            return Err(Ignored::Plane);
        }
        self.op_head = op;
        self.journal(message, Trust::Verified, true, cx);
        Ok(())
    }

    /// Looks at the prepares that waited for the op below them, as far as it is here now.
    pub(crate) fn take_early<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.early.is_empty() {
            return;
        }
        if self.status != Status::Normal || self.leads() || self.is_transferring() {
            self.early.clear();
            return;
        }
        while let Some(message) = self.early.take(self.op_head.next(), self.view) {
            if let Err(reason) = self.on_prepare(message, cx) {
                self.ignored.count(reason);
            }
        }
    }

    /// Row 8: the entry is here. Passed on and acknowledged once more, since the primary asks.
    fn on_prepare_again<P: Plane>(
        &mut self,
        message: Message,
        is_equal: bool,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        if !is_equal {
            return Err(Ignored::Differs);
        }
        let op = message.header::<PrepareHeader>().op();
        self.verify(op);
        self.spread_trust(op);
        self.forward_again(message, cx);
        self.acknowledge_again(op, cx);
        Ok(())
    }

    /// Passes a prepare on under the view in which it came; the entry keeps the view under
    /// which it was journaled.
    fn forward_again<P: Plane>(&mut self, message: Message, cx: &mut Context<'_, P>) {
        let op = message.header::<PrepareHeader>().op();
        let Some(held) = self.log.held_mut(op) else {
            return;
        };
        if self.config.forward == Forward::Immediately || held.is_durable() {
            self.forward_prepare(&message, cx.out);
        } else {
            held.message = message;
            held.forward_due = true;
        }
    }

    /// Rows 9 and 9b: the chain to the op before, as far as that is here.
    fn check_parent<P>(&mut self, header: &PrepareHeader, cx: &mut Context<'_, P>) -> Handled {
        let Some(below) = header.op().previous() else {
            return Err(Ignored::Unchained);
        };
        if mutated!(ParentUnchecked) {
            return Ok(());
        }
        if let Some(held) = self.log.header(below) {
            if chains(header, held.frame.checksum()) {
                return Ok(());
            }
            if held.frame.view() == header.frame.view() && self.config.halt_on_fork {
                self.halt(HaltReason::ForkedLog { op: header.op() }, cx);
            }
            return Err(Ignored::Unchained);
        }
        match self.certain_identity(below) {
            Some(identity) if !chains(header, identity) => Err(Ignored::Unchained),
            _ => Ok(()),
        }
    }

    fn check_timestamp(&self, header: &PrepareHeader) -> Handled {
        let Some(below) = header.op().previous() else {
            return Ok(());
        };
        let earlier = self.log.header(below).or_else(|| self.named(below));
        match earlier {
            // A suffix with such a pair in it could not be decoded by anybody.
            Some(earlier) if header.timestamp() <= earlier.timestamp() => Err(Ignored::Timestamp),
            _ => Ok(()),
        }
    }

    /// Row 10: an op of the log that was adopted, whose body is missing or doubtful here. The
    /// prepare is of the current view, so what has to be shown is that it is no stray: the
    /// adopted suffix names it, or it links to a neighbour and contradicts none.
    fn fill_hole<P: Plane>(&mut self, message: Message, cx: &mut Context<'_, P>) -> Handled {
        let header = message.header::<PrepareHeader>();
        let op = header.op();
        if !self.is_within_window(op) {
            return Err(Ignored::Gap);
        }
        let identity = header.frame.checksum();
        match self.named(op) {
            Some(named) if !is_same(named, header) => return Err(Ignored::Differs),
            Some(_) => {}
            None => {
                let above = self.certain_above(op).map(|above| chains(above, identity));
                if above == Some(false) {
                    return Err(Ignored::Unchained);
                }
                let below = op.previous().and_then(|below| self.certain_identity(below));
                if above.is_none() && below.is_none() {
                    return Err(Ignored::Gap);
                }
            }
        }
        if self.log.held(op).is_some() {
            // A leftover of an older view stands here, and the view has something else.
            self.cut(op, cx);
        }
        if let Err(reason) = cx.plane.accept(&message, Source::Repair) {
            tracing::warn!(group = %self.config.group, op = op.0, reason, "prepare refused");
            return Err(Ignored::Plane);
        }
        self.journal(message, Trust::Verified, true, cx);
        self.acknowledge_again(op, cx);
        Ok(())
    }

    /// Passes the prepare of `op` to the next replica, if it is due and may go now.
    pub(crate) fn forward_when_allowed<P: Plane>(&mut self, op: Op, cx: &mut Context<'_, P>) {
        let Some(held) = self.log.held(op) else {
            return;
        };
        let is_ready = self.config.forward == Forward::Immediately || held.is_durable();
        if !held.forward_due || !is_ready {
            return;
        }
        let is_current = self.status == Status::Normal
            && !self.is_transferring()
            && held.header().frame.view() == self.view
            && op > self.commit_min;
        if is_current && self.leads() && !self.view_is_durable() {
            return;
        }
        if is_current {
            self.forward_prepare(&held.message, cx.out);
        }
        if let Some(held) = self.log.held_mut(op) {
            held.forward_due = false;
        }
    }

    /// Acknowledges what has become durable, in order: an acknowledgement promises that every
    /// op from the commit point up to it is held too.
    pub(crate) fn acknowledge_held<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.status != Status::Normal || self.op_acknowledged >= self.op_head {
            return;
        }
        if self.is_transferring() || self.ceded {
            return;
        }
        if !self.is_recorded() {
            return;
        }
        while self.op_acknowledged < self.op_head {
            let op = self.op_acknowledged.next();
            if !self.may_promise(op) {
                let limit = self.commit_max.min(self.op_head);
                if op > limit {
                    return;
                }
                // What is committed without this replica needs no word of it.
                self.op_acknowledged = match self.log.held(op) {
                    None => self.log.last_empty(op, limit),
                    Some(_) => op,
                };
                match self.log.held(op) {
                    // On its way to the disk, perhaps behind what follows it.
                    Some(held) if held.trust == Trust::Verified => {
                        self.late = (held.number.max(self.late.0), op);
                    }
                    _ => self.passed_over = self.op_acknowledged,
                }
                continue;
            }
            if !self.holes_are_recorded(op, cx) {
                return;
            }
            if !cx.plane.may_acknowledge() {
                self.timers.wake_at(self.timers.now() + 1);
                return;
            }
            self.acknowledge(op, cx);
            self.op_acknowledged = op;
        }
    }

    /// Acknowledgements begin above what is committed: notes how far holes reach below.
    pub(crate) fn note_holes(&mut self) {
        let mut op = self.op_acknowledged;
        while op > self.commit_min && self.log.held(op).is_some() {
            op = Op(op.0 - 1);
        }
        if op > self.commit_min {
            self.passed_over = self.passed_over.max(op);
        }
    }

    /// Whether a restart would know of the view and of its log.
    fn is_recorded(&self) -> bool {
        self.view_is_durable() && self.log_view_is_durable()
    }

    /// Whether `op` is held as the plane asks, and is known to be of this view's log. What a
    /// peer merely offered may still turn out to be another's, and a vote would not show it.
    fn may_promise(&self, op: Op) -> bool {
        self.log.is_durable(op) && self.log.is_verified(op)
    }

    fn acknowledge<P: Plane>(&mut self, op: Op, cx: &mut Context<'_, P>) {
        if self.leads() {
            let Some(identity) = self.log.checksum(op) else {
                return;
            };
            let counted = self.count_acknowledgement(op, identity, self.config.replica);
            if let Err(reason) = counted {
                self.ignored.count(reason);
            }
        } else {
            self.send_prepare_ok(op, cx.out);
        }
    }

    /// The primary sent a prepare that was considered before: answer again, now or when it is
    /// durable.
    fn acknowledge_again<P: Plane>(&mut self, op: Op, cx: &mut Context<'_, P>) {
        if op > self.op_acknowledged {
            return;
        }
        let may =
            self.is_recorded() && self.holes_are_recorded(op, cx) && cx.plane.may_acknowledge();
        if !self.log.is_durable(op) {
            if let Some(held) = self.log.held_mut(op) {
                held.acknowledge_due = true;
            }
        } else if may && self.may_promise(op) {
            self.send_prepare_ok(op, cx.out);
        }
    }

    /// The entry was applied and evicted. What is committed at an op is one prepare, and the
    /// log of every later view has it, so the one the primary sends is the one applied here.
    fn acknowledge_evicted<P: Plane>(&mut self, header: &PrepareHeader, cx: &mut Context<'_, P>) {
        if self.is_recorded()
            && self.holes_are_recorded(header.op(), cx)
            && cx.plane.may_acknowledge()
            && header.op() > Op::ZERO
        {
            self.send_prepare_ok_applied(header, cx.out);
        }
    }

    pub(crate) fn on_appended<P: Plane>(
        &mut self,
        op: Op,
        checksum: Checksum,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        if self.pending.is_cut(op) {
            return Err(Ignored::StaleCompletion);
        }
        let Some(held) = self
            .log
            .held_mut(op)
            .filter(|held| held.checksum() == checksum)
        else {
            return Err(Ignored::StaleCompletion);
        };
        if held.storage != Storage::Writing {
            return Err(Ignored::StaleCompletion);
        }
        held.storage = Storage::Durable;
        let acknowledge_due = std::mem::take(&mut held.acknowledge_due);
        self.forward_when_allowed(op, cx);
        let is_backup = self.status == Status::Normal && !self.leads();
        if acknowledge_due && is_backup && op > self.commit_min && !self.is_transferring() {
            self.acknowledge_again(op, cx);
        }
        Ok(())
    }

    pub(crate) fn on_append_failed<P: Plane>(
        &mut self,
        op: Op,
        checksum: Checksum,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        if self.pending.is_cut(op) || self.log.checksum(op) != Some(checksum) {
            return Err(Ignored::StaleCompletion);
        }
        let Some(held) = self.log.held(op) else {
            return Err(Ignored::StaleCompletion);
        };
        let is_fresh = held.storage == Storage::Writing && op > self.commit_min;
        if !is_fresh || self.log.top() != Some(op) || !self.take_back(op, checksum, cx) {
            self.halt(HaltReason::AppendFailed { op }, cx);
        }
        Ok(())
    }

    /// Undoes the newest entry, whose append failed; whether that was possible.
    fn take_back<P: Plane>(&mut self, op: Op, checksum: Checksum, cx: &mut Context<'_, P>) -> bool {
        if self.leads() {
            // What left this replica already cannot be unsaid, and its op not be given again.
            if self.config.forward == Forward::Immediately || self.op_head != op {
                return false;
            }
            let Some(entry) = self.pipeline.pop_back(op, checksum) else {
                return false;
            };
            if let Some(token) = entry.token {
                cx.out.push(Output::Canceled { token, op });
            }
            if self.pipeline.is_empty() {
                self.timers.stop(TimerName::Prepare);
            }
        }
        let removed = self.log.remove_from(op);
        let messages: Vec<_> = removed.into_iter().map(|held| held.message).collect();
        cx.plane.truncated(op, &messages);
        let below = Op(op.0 - 1);
        self.op_acknowledged = self.op_acknowledged.min(below);
        let is_adopted = self.named(self.op_head).is_some();
        if self.op_head == op && !is_adopted {
            self.op_head = below;
        }
        true
    }

    /// The heartbeat of the primary (chapter 03 section 6.8).
    pub(crate) fn on_commit(&mut self, header: &CommitHeader) -> Handled {
        self.check_sender(&header.frame, header.group())?;
        let view = header.frame.view();
        let is_from_primary = header.frame.replica() == view.primary(self.config.replica_count);
        if self.is_primary_by_index() {
            if view > self.view {
                self.view_observed = self.view_observed.max(view);
                return Err(Ignored::ViewNewer);
            }
            if view < self.view && is_from_primary && self.leads() {
                // A primary of the past that does not know it yet. Everybody hears the answer.
                self.pending.start_view = true;
                return Ok(());
            }
            return Err(Ignored::NotFromPrimary);
        }
        if self.status != Status::Normal {
            return Err(Ignored::Status);
        }
        if view > self.view {
            self.view_observed = self.view_observed.max(view);
            return Err(Ignored::ViewNewer);
        }
        if view < self.view {
            return Err(Ignored::ViewOlder);
        }
        if !is_from_primary {
            return Err(Ignored::NotFromPrimary);
        }
        let fresh = (view, header.timestamp_monotonic());
        let is_fresh = fresh > self.heartbeat;
        if is_fresh {
            self.heartbeat = fresh;
            self.timers.reset(TimerName::Heartbeat);
            self.acknowledgements.release_idle();
        }
        let raised = self.raise_commit_max(header.commit());
        if is_fresh || raised {
            Ok(())
        } else {
            Err(Ignored::NothingNew)
        }
    }
}

/// Whether two frames are one prepare. Where the header vouches for the body the identity
/// decides; elsewhere the bodies are compared too.
fn is_equal_prepare(held: &Message, received: &Message) -> bool {
    let (one, other) = (
        held.header::<PrepareHeader>(),
        received.header::<PrepareHeader>(),
    );
    if one.frame.checksum() != other.frame.checksum() {
        return false;
    }
    !one.frame.checksum_body().is_zero() || held.body() == received.body()
}
