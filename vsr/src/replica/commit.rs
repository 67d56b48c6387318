//! Moving the commit point, and what the owner does with it: applying, evicting, installing.
//!
//! `commit_max` is what is known to be committed anywhere; `commit_min` is what is applied here.
//! The first only rises. The second rises by one per applied op, or jumps when transferred
//! state or a repaired floor takes the place of the ops below it.

use biplane_wire::{Checksum, Message, Op};

use super::{Context, Handled, Replica};
use crate::io::{Output, TransferNotice};
use crate::log::{Trust, chains};
use crate::mutation::mutated;
use crate::plane::Plane;
use crate::status::{Ignored, Status, TransferStage};
use crate::timeout::TimerName;

impl Replica {
    /// The next prepare to apply: known to be committed, held, and proven to be the one the
    /// cluster committed. `None` when there is none, or when it has to be repaired first.
    #[must_use]
    pub fn next_committed(&self) -> Option<&Message> {
        if self.commit_min >= self.commit_max || self.halted.is_some() {
            return None;
        }
        match self.log.held(self.commit_min.next()) {
            Some(held) if held.trust == Trust::Verified || mutated!(SuspectApplied) => {
                Some(&held.message)
            }
            _ => None,
        }
    }

    /// The owner applied what [`Self::next_committed`] gave it. The token of the request when
    /// this replica admitted it as primary of this view, so that it is the one to answer.
    ///
    /// # Panics
    ///
    /// When `op` is not the next one to be applied.
    pub fn applied(&mut self, op: Op) -> Option<u64> {
        assert!(
            op == self.commit_min.next(),
            "ops are applied one after the other"
        );
        assert!(op <= self.commit_max, "only committed ops are applied");
        let held = self.log.held(op);
        assert!(
            held.is_some_and(|held| held.trust == Trust::Verified) || mutated!(SuspectApplied),
            "it is the committed one"
        );
        self.commit_min_checksum = held.map(crate::log::Held::checksum);
        self.commit_min = op;
        self.commit_min_header = None;
        // An elect may apply committed ops of the merged log that reach above its own.
        self.op_head = self.op_head.max(op);
        let entry = self.pipeline.pop(op)?;
        if self.pipeline.is_empty() {
            self.timers.stop(TimerName::Prepare);
        }
        entry.token
    }

    pub(crate) fn raise_commit_max(&mut self, op: Op) -> bool {
        let raised = op > self.commit_max;
        if raised {
            self.commit_max = op;
        }
        raised
    }

    /// Tells the core where state transfer stands.
    ///
    /// # Panics
    ///
    /// When the transition is not in the table of [`TransferStage::may_become`].
    pub fn set_transfer_stage(&mut self, stage: TransferStage) {
        assert!(
            self.transfer_stage.may_become(stage),
            "a legal transition of the stage"
        );
        self.transfer_stage = stage;
        // Acknowledgements held back during the transfer go out with the next tick.
        self.timers.wake_at(self.timers.now() + 1);
    }

    /// Gives a transfer up unless it is past the point of return.
    pub(crate) fn abandon_transfer<P>(&mut self, cx: &mut Context<'_, P>) {
        if self.transfer_stage.may_become(TransferStage::Idle) && self.is_transferring() {
            self.transfer_stage = TransferStage::Idle;
            cx.out.push(Output::Transfer(TransferNotice::Abandoned));
        }
    }

    /// The state here now includes every op up to `floor`, without having applied them one by
    /// one: transferred state was installed, or the disk turned out to hold their effects.
    /// Nothing happens when `floor` is not above the applied op, except that `commit_max` is
    /// taken over.
    ///
    /// Entries up to `floor` leave the log, but for the one at `floor` if it is the one that
    /// was committed. Entries above it stay when they chain to it or are part of the view's log;
    /// others are leftovers that would collide with ops still to come, and go.
    pub fn install_floor<P: Plane>(
        &mut self,
        floor: Op,
        head_checksum: Option<Checksum>,
        commit_max: Op,
        plane: &mut P,
        out: &mut Vec<Output>,
    ) {
        let mut cx = Context { plane, out };
        self.raise_commit_max(commit_max.max(floor));
        let merged_head = self.votes.elect.as_ref().map(|elect| elect.merged.head);
        if merged_head.is_some_and(|head| head < self.commit_max) {
            // More is committed than the votes could tell: this is not the log to lead with.
            let votes = super::Votes {
                elect: None,
                ..self.votes.clone()
            };
            self.abandon_election();
            self.votes = votes;
        }
        if floor > self.commit_min {
            let known = self
                .log
                .header(floor)
                .or_else(|| self.named(floor))
                .copied();
            let named = known.map(|header| header.frame.checksum());
            let identity = head_checksum.or(named);
            self.commit_min = floor;
            self.commit_min_checksum = identity;
            self.commit_min_header = known.filter(|_| named == identity);
            let keeps_floor = identity.is_some() && self.log.checksum(floor) == identity;
            let below = if keeps_floor { Op(floor.0 - 1) } else { floor };
            self.log.evict_through(below);
            self.op_head = self.op_head.max(floor);
            for (token, op) in self.pipeline.drop_through(floor) {
                cx.out.push(Output::Canceled { token, op });
            }
            self.cut_unchained_above_floor(&mut cx);
            self.extend_head();
        }
        self.settle(&mut cx);
    }

    fn cut_unchained_above_floor<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        let above = self.commit_min.next();
        let stays = match self.log.held(above) {
            None => true,
            Some(held) if held.trust == Trust::Verified => true,
            Some(held) => self
                .commit_min_checksum
                .is_some_and(|floor| chains(held.header(), floor)),
        };
        if !stays {
            self.cut(above, cx);
            // Without an adopted log that reaches higher, the log now ends where it was cut.
            if self.named(self.op_head).is_none() && self.log.held(self.op_head).is_none() {
                self.op_head = self.log.top().unwrap_or_default().max(self.commit_min);
            }
        }
    }

    /// The head follows what was journaled directly above it.
    pub(crate) fn extend_head(&mut self) {
        let is_own = |held: &crate::log::Held| held.trust != Trust::Stray;
        while self.log.held(self.op_head.next()).is_some_and(is_own) {
            self.op_head = self.op_head.next();
        }
    }

    /// An adopted log whose uncommitted ops are all here, durably, is this replica's own: its
    /// log view may be recorded and its ops acknowledged. Its names serve until every prepare
    /// they name is here, because the chain of what was committed before hangs on them.
    pub(crate) fn complete_adoption(&mut self) {
        let Some(adoption) = &mut self.adoption else {
            return;
        };
        // A commit point learned while another view is formed says nothing of this log.
        if !adoption.is_complete && self.status == Status::Normal {
            let mut op = adoption.covered.max(self.commit_max).next();
            while op <= adoption.head && self.log.is_verified(op) && self.log.is_durable(op) {
                adoption.covered = op;
                op = op.next();
            }
            adoption.is_complete = op > adoption.head;
        }
        let is_served = |header: &biplane_wire::PrepareHeader| {
            header.op() <= self.commit_min || self.log.is_verified(header.op())
        };
        if adoption.is_complete && adoption.headers.iter().flatten().all(is_served) {
            self.adoption = None;
        }
    }

    pub(crate) fn on_truncated(&mut self, from: Op) -> Handled {
        if self.pending.truncation_done(from) {
            Ok(())
        } else {
            Err(Ignored::StaleCompletion)
        }
    }
}
