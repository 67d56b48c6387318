//! Noticing that the group has lost what this replica applied (chapter 06 section 18).
//!
//! With the `replicated` policy a quorum that fails at once takes acknowledged operations with
//! it. The others go on without them; who still has them comes back with messages that no log
//! leads to. Staying so would serve what is lost, and its votes would stop elections. The proof
//! is the word of a primary of a view that this replica is not from: its log ends below what is
//! committed here, or what it has above the applied operation does not stand on it. Then the
//! files are set aside and the replica starts over from its peers.
//!
//! A persisted policy excludes such a loss, so there nothing is given up.

use biplane_vsr as vsr;
use biplane_wire::{
    Checksum, Op, PrepareHeader, ReplicaFrame, ReplicaId, StartViewHeader, Suffix, Typed,
};

use super::Group;
use crate::context::Context;

impl Group {
    /// Looks at a frame before it takes effect.
    pub(super) fn notice_loss(&self, frame: &ReplicaFrame, context: &mut Context<'_>) {
        let reason = match frame {
            ReplicaFrame::StartView(typed) => self.lost_by_announcement(typed, context),
            ReplicaFrame::Prepare(typed) => self.lost_by_prepare(typed.header()),
            _ => None,
        };
        if let Some(reason) = reason {
            self.give_up(reason, context);
        }
    }

    fn give_up(&self, reason: String, context: &mut Context<'_>) {
        if !self.state.persisted && context.node.is_replicated() {
            context.resets.push((self.spec.group, reason));
        }
    }

    /// Identity of the applied op, where it is known.
    fn applied_identity(&self) -> Option<Checksum> {
        let header = self.replica.log().header(self.replica.commit_min())?;
        let identity = header.frame.checksum();
        (!identity.is_zero()).then_some(identity)
    }

    /// Whether a header of the group's log contradicts what is applied here.
    fn contradicts_applied(&self, header: &PrepareHeader) -> bool {
        let Some(applied) = self.applied_identity() else {
            return false;
        };
        let op = self.replica.commit_min();
        let identity = header.frame.checksum();
        header.op() == op && !identity.is_zero() && identity != applied
            || header.op() == op.next() && header.parent() != applied
    }

    fn lost_by_announcement(
        &self,
        typed: &Typed<StartViewHeader>,
        context: &Context<'_>,
    ) -> Option<String> {
        let header = typed.header();
        let (view, status) = (header.frame.view(), self.replica.status());
        let replica_count = context.node.identity.replica_count;
        let is_of_primary = header.frame.replica() == view.primary(replica_count);
        // What is known to be committed here is of earlier views, and the log of this one was
        // made from a quorum that should have had it.
        if !is_of_primary || view <= status.log_view || view < status.view {
            return None;
        }
        let suffix = Suffix::of_start_view(typed).ok()?;
        if header.op() < status.commit_max {
            return Some(format!(
                "view {view} ends at op {}, {} is committed here",
                header.op(),
                status.commit_max
            ));
        }
        let around = [status.commit_min, status.commit_min.next()];
        let named = around.map(|op| suffix.at(op).and_then(|entry| entry.header));
        let differs = |header: &&PrepareHeader| self.contradicts_applied(header);
        named
            .into_iter()
            .flatten()
            .find(differs)
            .map(|header| self.disowned(header.op()))
    }

    /// A prepare of the present view, from its primary or passed on.
    fn lost_by_prepare(&self, header: &PrepareHeader) -> Option<String> {
        let is_near = header.op() <= self.replica.commit_min().next();
        let status = self.replica.status();
        let is_of_view = header.frame.view() == status.view
            && header.frame.replica() == status.primary
            && status.status == vsr::Status::Normal;
        let is_ours = self.replica.is_primary();
        let contradicts = is_near && is_of_view && !is_ours && self.contradicts_applied(header);
        (contradicts && header.identity_is_valid()).then(|| self.disowned(header.op()))
    }

    /// A repaired prepare that the log refused.
    pub(super) fn notice_loss_in_repair(
        &self,
        from: ReplicaId,
        header: &PrepareHeader,
        context: &mut Context<'_>,
    ) {
        let status = self.replica.status();
        let op = header.op();
        let is_named = self.replica.expected_identity(op) == Some(header.frame.checksum());
        let is_served = status.status == vsr::Status::Normal
            && from == status.primary
            && op <= status.commit_max;
        if op > status.commit_min && (is_named || is_served) && self.contradicts_applied(header) {
            let reason = self.disowned(op);
            self.give_up(reason, context);
        }
    }

    /// A transfer that would take back messages that are committed here.
    pub(super) fn notice_loss_in_transfer(&self, next_offset: u64, context: &mut Context<'_>) {
        let here = self.state.committed_next;
        if next_offset < here && !self.purge.is_due() {
            let reason = format!("the group has {next_offset} messages, here are {here}");
            self.give_up(reason, context);
        }
    }

    fn disowned(&self, op: Op) -> String {
        let applied = self.replica.commit_min();
        format!("op {op} of the group does not stand on op {applied} as it was applied here")
    }
}
