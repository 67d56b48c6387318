//! Entering prepares into the log, taking them out, and telling leftovers from the view's log.
//!
//! When a view is adopted or about to be led, its log is known from the head down to the commit
//! point by name, and below that by the hash chain as far as it is unbroken. What disagrees is
//! cut, together with what stands on it. What can be neither confirmed nor refuted stays as a
//! suspect: it may be the only copy of something committed, and it may be wrong.

use biplane_wire::{Checksum, Message, Op, PrepareHeader};

use super::{Context, Replica};
use crate::constants::{PIPELINE_MAX, VIEW_UNSURE};
use crate::io::Output;
use crate::log::{Held, Storage, Trust, chains};
use crate::mutation::mutated;
use crate::plane::{Durability, Plane, Source};

impl Replica {
    /// Enters a prepare the plane has accepted, over whatever stood at its op, and asks for the
    /// append its durability needs.
    pub(crate) fn journal<P: Plane>(
        &mut self,
        message: Message,
        trust: Trust,
        forward_due: bool,
        cx: &mut Context<'_, P>,
    ) {
        let header = message.header::<PrepareHeader>();
        let op = header.op();
        assert!(op > self.commit_min, "applied ops are never entered again");
        self.last_timestamp = self.last_timestamp.max(header.timestamp());
        let durability = cx.plane.durability(header);
        let storage = match durability {
            Durability::Memory => Storage::Memory,
            Durability::Disk if mutated!(HeldBeforeSync) => Storage::Durable,
            Durability::Disk => Storage::Writing,
        };
        if durability == Durability::Disk {
            let prepare = self.journaled_form(&message, trust);
            cx.out.push(Output::Append { prepare });
        }
        self.appends += u64::from(durability == Durability::Disk);
        let held = Held {
            message,
            number: self.appends,
            storage,
            trust,
            forward_due,
            acknowledge_due: false,
        };
        self.log.insert(held);
        if forward_due {
            self.forward_when_allowed(op, cx);
        }
        if trust == Trust::Verified {
            self.spread_trust(op);
        } else {
            self.vouch(op);
        }
    }

    /// The prepare under the view with which it goes to disk; the identity does not cover the
    /// view, and nobody but a later boot of this replica reads it there.
    ///
    /// That boot must know which entries belong to the log of the recorded log view. Those
    /// carry a view up to it. What is journaled toward a log that is not recorded yet carries
    /// the present view, which is higher: never acknowledged, not part of the older log. And
    /// what takes the place of an unreadable entry, or is not proven yet, is marked as unsure:
    /// the older log may have had, and this replica acknowledged, something else.
    fn journaled_form(&self, message: &Message, trust: Trust) -> Message {
        let header = message.header::<PrepareHeader>();
        let view = header.frame.view();
        let recorded = self.pending.durable().log_view;
        let is_recorded = self.log_view_is_durable() && self.votes.elect.is_none();
        let fills_damage = self.log.is_damaged(header.op());
        let is_above_own = self.votes.elect.is_some() && header.op() > self.op_head;
        message.prepare_in_view(match (is_recorded, trust) {
            // The log this replica votes with ends below: it never had anything here.
            _ if is_above_own => self.view,
            (_, Trust::Stray | Trust::Suspect | Trust::Offered) => VIEW_UNSURE,
            (true, Trust::Verified) => view.min(recorded),
            (false, Trust::Verified) if fills_damage => VIEW_UNSURE,
            (false, Trust::Verified) => self.view,
        })
    }

    /// Whether `op` is near enough to the applied op to be held.
    pub(crate) fn is_within_window(&self, op: Op) -> bool {
        op.0.saturating_sub(self.commit_min.0) <= u64::from(self.config.limits.repair_window)
    }

    /// Takes everything from `from` on out of the log. Verified entries up to the head come
    /// back: they only stood above something wrong.
    ///
    /// On disk those stay where they are, and so does what stands behind a hole and may be right.
    /// They may have been acknowledged, and between a truncation and their second append a crash
    /// would find them gone: this replica would then deny what it promised. What is wrong below
    /// them therefore stays on disk too, as a stray, until the right prepare is written over it; a
    /// log view is not recorded before that.
    pub(crate) fn cut<P: Plane>(&mut self, from: Op, cx: &mut Context<'_, P>) {
        assert!(from > self.commit_min, "applied ops are never taken out");
        let damaged = self.damaged_between(from, self.op_target());
        let (kept, doubtful) = if mutated!(CutTakesWhatItKeeps) {
            (None, Vec::new())
        } else {
            (self.last_kept_on_disk(from), self.doubtful_above(from))
        };
        let spared = kept.max(doubtful.last().copied());
        let cut_from = spared.map_or(from, Op::next);
        let reached_disk = self.log.reaches_disk(cut_from);
        let removed = self.log.remove_from(from);
        let messages: Vec<Message> = removed.iter().map(|held| held.message.clone()).collect();
        cx.plane.truncated(from, &messages);
        if reached_disk {
            cx.out.push(Output::Truncate { from: cut_from });
            self.pending.truncation_started(cut_from);
        }
        self.op_acknowledged = self.op_acknowledged.min(Op(from.0 - 1));
        for mut held in removed {
            let op = held.header().op();
            let is_right = held.trust == Trust::Verified && op <= self.op_target();
            let is_doubtful = doubtful.contains(&op);
            let goes_back = (is_right || is_doubtful)
                && cx.plane.accept(&held.message, Source::Restored).is_ok();
            let is_kept = goes_back && is_right;
            let is_on_disk = held.storage != Storage::Memory && op < cut_from;
            if is_on_disk && !is_kept {
                // What the plane will not have back was right all the same, and no denial.
                held.trust = if is_right || is_doubtful {
                    Trust::Suspect
                } else {
                    Trust::Stray
                };
                held.forward_due = false;
                held.acknowledge_due = false;
            }
            if is_kept || is_on_disk {
                self.log.insert(held);
            }
        }
        // What could not be read may have been acknowledged, and still cannot be denied.
        for op in damaged {
            if self.log.held(op).is_none() {
                self.log.insert_damaged(op);
            }
        }
    }

    /// The highest op from `from` on whose record on disk has to survive a cut.
    fn last_kept_on_disk(&self, from: Op) -> Option<Op> {
        let top = self.log.top()?.min(self.op_target());
        let mut ops = (from.0..=top.0).rev().map(Op);
        ops.find(|op| {
            let held = self.log.held(*op);
            held.is_some_and(|it| it.trust == Trust::Verified && it.storage != Storage::Memory)
        })
    }

    /// Ops above `from`, whose entry is wrong, of which this replica may have acknowledged what it
    /// has on disk and would deny it after a restart, although nothing says that it is wrong too:
    /// neither is it contradicted from above nor does it stand on something wrong. Ascending.
    fn doubtful_above(&self, from: Op) -> Vec<Op> {
        let top = self.log.top().unwrap_or_default().min(self.op_target());
        let recorded = self.pending.durable().commit;
        let mut doubtful = Vec::new();
        let mut wrong = self.log.checksum(from);
        let mut op = from.next();
        while op <= top {
            let held = self.log.held(op);
            wrong = held.and_then(|held| {
                let is_wrong = wrong.is_some_and(|below| chains(held.header(), below))
                    || self.judged(held.header()) == Some(false);
                let may_be_denied = op > recorded
                    && held.trust == Trust::Suspect
                    && held.storage != Storage::Memory;
                if !is_wrong && may_be_denied {
                    doubtful.push(op);
                }
                is_wrong.then(|| held.checksum())
            });
            op = op.next();
        }
        doubtful
    }

    /// Whether a header is the one that the view names for its op, or that the certain prepare
    /// above stands on; `None` where neither says.
    fn judged(&self, header: &PrepareHeader) -> Option<bool> {
        match self.named(header.op()) {
            Some(named) => Some(is_same(header, named)),
            None => {
                let child = self.certain_above(header.op())?;
                Some(chains(child, header.frame.checksum()))
            }
        }
    }

    fn damaged_between(&self, from: Op, to: Op) -> Vec<Op> {
        let top = self.log.top().unwrap_or_default().min(to);
        (from.0..=top.0)
            .map(Op)
            .filter(|op| self.log.is_damaged(*op))
            .collect()
    }

    /// Brings the log in line with the one the view names (see [`Self::named`]) up to its
    /// head. `commit_known` is the commit point known here before the view: entries up to
    /// it were confirmed once and need no new proof.
    pub(crate) fn reconcile<P: Plane>(&mut self, commit_known: Op, cx: &mut Context<'_, P>) {
        self.doubt_above(commit_known);
        let lowest_wrong = self.judge_entries();
        let above = self.op_target().next();
        if self.log.reaches(above) && !mutated!(LeftoversStay) {
            self.cut(above, cx);
        }
        if let Some(from) = lowest_wrong {
            self.cut(from, cx);
        }
    }

    fn doubt_above(&mut self, commit_known: Op) {
        let top = self.log.top().unwrap_or_default();
        let mut op = self.commit_min.max(commit_known).next();
        while op <= top {
            if let Some(held) = self.log.held_mut(op) {
                held.trust = Trust::Suspect;
                held.forward_due = false;
                held.acknowledge_due = false;
            }
            op = op.next();
        }
    }

    /// From the head down: confirms every entry that is named or that the chain leads to, and
    /// marks as suspect what they contradict. The lowest op that is contradicted.
    fn judge_entries(&mut self) -> Option<Op> {
        let mut lowest_wrong = None;
        let mut op = self.log.top().unwrap_or_default().min(self.op_target());
        while op > self.commit_min {
            let held = self.log.held(op).map(Held::header);
            // The entry above was judged before this one, so its trust is final.
            let is_right = held.and_then(|held| self.judged(held));
            if let (Some(is_right), Some(held)) = (is_right, self.log.held_mut(op)) {
                held.trust = if is_right {
                    Trust::Verified
                } else {
                    Trust::Suspect
                };
                if !is_right {
                    lowest_wrong = Some(op);
                }
            }
            op = Op(op.0 - 1);
        }
        self.report_applied_disagreement();
        lowest_wrong
    }

    fn report_applied_disagreement(&self) {
        let (Some(named), Some(applied)) = (self.named(self.commit_min), self.commit_min_checksum)
        else {
            return;
        };
        let named = named.frame.checksum();
        if !named.is_zero() && !applied.is_zero() && named != applied {
            tracing::error!(
                node = self.config.replica.0,
                group = %self.config.group,
                op = self.commit_min.0,
                "the view names another prepare than the one applied here"
            );
        }
    }

    /// `op` has become certain: so does what it names below it, as far as the chain is held.
    pub(crate) fn spread_trust(&mut self, op: Op) {
        let mut above = op;
        while above > self.commit_min.next() {
            let below = Op(above.0 - 1);
            let (Some(child), Some(held)) = (self.log.held(above), self.log.held(below)) else {
                break;
            };
            let is_named = chains(child.header(), held.checksum());
            if held.trust == Trust::Verified {
                break;
            }
            if !is_named {
                self.suspect(below);
                break;
            }
            self.verify(below);
            above = below;
        }
        if self.is_blind {
            self.trust_what_stands_on(op);
        }
    }

    /// Without a name to hang the chain on, a committed op that a peer offers is believed when
    /// it stands on a certain one.
    fn trust_what_stands_on(&mut self, op: Op) {
        let mut below = op;
        while below < self.commit_max {
            let above = below.next();
            let (Some(parent), Some(held)) = (self.log.held(below), self.log.held(above)) else {
                break;
            };
            let stands = chains(held.header(), parent.checksum());
            if held.trust != Trust::Offered || !stands {
                break;
            }
            self.verify(above);
            below = above;
        }
    }

    /// Whether a prepare made certain that an op below it was committed: its primary knew, and
    /// the unbroken chain from it down is that primary's log. Looks up from `op` for such a
    /// prepare, then marks what it makes certain.
    pub(crate) fn vouch(&mut self, op: Op) {
        let mut commit = Op::ZERO;
        let mut at = op;
        // A prepare trails the commit point by one pipeline at most.
        for _ in 0..2 * PIPELINE_MAX {
            let Some(held) = self.log.held(at) else { break };
            commit = commit.max(held.header().commit());
            let Some(above) = self.log.held(at.next()) else {
                break;
            };
            if commit >= op || !chains(above.header(), held.checksum()) {
                break;
            }
            at = at.next();
        }
        let mut at = op;
        while at > commit {
            let (Some(held), Some(below)) = (
                self.log.held(at),
                at.previous().and_then(|below| self.log.held(below)),
            ) else {
                return;
            };
            if !chains(held.header(), below.checksum()) {
                return;
            }
            at = Op(at.0 - 1);
        }
        if at > self.commit_min && !self.log.is_verified(at) && self.log.held(at).is_some() {
            self.verify(at);
            self.spread_trust(at);
        }
    }

    fn suspect(&mut self, op: Op) {
        if let Some(held) = self.log.held_mut(op) {
            held.trust = Trust::Suspect;
        }
    }

    pub(crate) fn verify(&mut self, op: Op) {
        if let Some(held) = self.log.held_mut(op) {
            held.trust = Trust::Verified;
        }
    }

    /// What is known for certain of the identity directly below `op`: the applied op, or a
    /// verified entry.
    pub(crate) fn certain_below(&self, op: Op) -> Option<Checksum> {
        let below = op.previous()?;
        if below == self.commit_min {
            return self.commit_min_checksum;
        }
        let held = self.log.held(below)?;
        (held.trust == Trust::Verified).then(|| held.checksum())
    }

    /// Identity of the prepare of `op`, when it is certain.
    pub(crate) fn certain_identity(&self, op: Op) -> Option<Checksum> {
        let named = self.named(op).map(|named| named.frame.checksum());
        named.or_else(|| self.certain_below(op.next()))
    }

    /// The header directly above `op`, when it is certain.
    pub(crate) fn certain_above(&self, op: Op) -> Option<&PrepareHeader> {
        let above = op.next();
        if let Some(named) = self.named(above) {
            return Some(named);
        }
        let held = self.log.held(above)?;
        (held.trust == Trust::Verified).then(|| held.header())
    }
}

/// Whether two headers are of one prepare. A zero identity was never sealed and passes.
pub(crate) fn is_same(one: &PrepareHeader, other: &PrepareHeader) -> bool {
    let (one, other) = (one.frame.checksum(), other.frame.checksum());
    one == other || one.is_zero() || other.is_zero()
}
