//! What is missing here, and taking it in when a peer sends it (chapter 03 section 6.9,
//! chapter 04 sections 2.2, 2.6, 2.7).
//!
//! A repaired prepare comes from a journal, not from the primary, and its frame names no
//! session. So it is believed for its content only: the adopted or merged log names it, a
//! certain neighbour names it, or it stands on a certain neighbour and its op is committed.

use biplane_wire::{Checksum, Command, Message, Op, PrepareHeader, ReplicaId, prepare};

use super::reconcile::is_same;
use super::{Context, Elect, Fetched, Replica};
use crate::io::{Ingest, IngestRefusal, NeedKind, Output, RepairNeed};
use crate::log::{Held, Trust, chains};
use crate::mutation::mutated;
use crate::plane::{Plane, Source};
use crate::status::Status;

impl Replica {
    /// What this replica misses now, if anything. Nothing while state is transferred, and
    /// nothing while it neither works nor is about to lead.
    #[must_use]
    pub fn repair_need(&self) -> Option<RepairNeed> {
        if self.is_transferring() || self.halted.is_some() {
            return None;
        }
        match (self.status, &self.votes.elect) {
            (Status::Normal, _) => self.need_of_follower(),
            (Status::ViewChange, Some(elect)) => self.need_of_elect(elect),
            _ => None,
        }
    }

    fn need_of_follower(&self) -> Option<RepairNeed> {
        let view = self.view;
        let need = |kind, from, to| RepairNeed {
            kind,
            from,
            to,
            sources: Vec::new(),
            view,
        };
        if mutated!(GapUnreported) {
            return None;
        }
        let suffix = self.missing_of_suffix();
        let gap = self.missing_between(self.commit_min.next(), self.commit_max);
        if let Some((from, to)) = gap {
            let to = if suffix.is_some() && to == self.commit_max {
                to.max(self.op_head)
            } else {
                to
            };
            return Some(need(NeedKind::Gap, from, to));
        }
        suffix.map(|from| need(NeedKind::Suffix, from, self.op_head))
    }

    /// What a peer sent already and only waits for proof is not asked for again.
    fn is_here(&self, op: Op) -> bool {
        let held = self.log.held(op);
        held.is_some_and(|held| matches!(held.trust, Trust::Verified | Trust::Offered))
    }

    /// The ops of a range that a peer has to send next.
    ///
    /// Where a leftover stands, a peer's word against it decides nothing; the chain from above
    /// does. So holes come first, wherever they are, and then the leftovers from the top down,
    /// each as soon as the prepare above it is certain. To ask for the lowest leftover first
    /// would bring a chunk that is refused, again and again, if there are more of them than a
    /// chunk has room for. Only where what would prove them has no room yet are they asked for
    /// from below: most are right, and what a peer agrees with makes room.
    fn missing_between(&self, from: Op, to: Op) -> Option<(Op, Op)> {
        let mut first = from;
        while first <= to && self.is_here(first) {
            first = first.next();
        }
        if first > to {
            return None;
        }
        let mut hole = first;
        while hole <= to && self.log.held(hole).is_some() {
            hole = hole.next();
        }
        // There is no room yet for what is far above.
        if hole <= to && self.is_within_window(hole) {
            return Some((hole, to));
        }
        let mut op = first;
        while op <= to {
            let fits = self.log.held(op).is_some() || self.is_within_window(op);
            if fits && !self.is_here(op) && self.certain_above(op).is_some() {
                return Some((op, op));
            }
            op = op.next();
        }
        Some((first, to))
    }

    /// The lowest op above the commit point that the adopted log names and that is not here.
    fn missing_of_suffix(&self) -> Option<Op> {
        let headers = self.adoption.as_ref()?.headers.iter().flatten();
        let missing = headers
            .map(PrepareHeader::op)
            .filter(|op| *op > self.commit_max && !self.log.is_verified(*op));
        missing.min()
    }

    fn need_of_elect(&self, elect: &Elect) -> Option<RepairNeed> {
        let low = elect.covered.max(self.commit_min).next();
        let (from, to) = self.missing_between(low, elect.merged.head)?;
        let sources = self.elect_sources(from);
        Some(RepairNeed {
            kind: NeedKind::Elect,
            from,
            to,
            sources,
            view: self.view,
        })
    }

    /// Voters that can serve `op`, best first: where the merged log names it, those that hold
    /// that prepare; where it does not, those that know the op to be committed. What others
    /// hold there may have been replaced. Higher log views first.
    fn elect_sources(&self, op: Op) -> Vec<ReplicaId> {
        let named = self.named(op);
        let others = self
            .votes
            .cast
            .iter()
            .filter(|vote| vote.replica != self.config.replica);
        let mut ranked: Vec<_> = others
            .filter_map(|vote| {
                let entry = vote.at(op).filter(|entry| entry.present);
                let held = entry.and_then(|entry| entry.header.as_ref());
                let is_named =
                    matches!((held, named), (Some(held), Some(named)) if is_same(held, named));
                let rank = match (is_named, vote.commit >= op, held.is_some()) {
                    (true, ..) => 0,
                    (false, true, _) => 1,
                    (false, false, true) if named.is_none() => 2,
                    _ => return None,
                };
                Some((rank, std::cmp::Reverse(vote.log_view), vote.replica))
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, _, replica)| replica).collect()
    }

    /// The identity a prepare for `op` must have, where something certain says so.
    #[must_use]
    pub fn expected_identity(&self, op: Op) -> Option<Checksum> {
        if let Some(named) = self.named(op) {
            return Some(named.frame.checksum());
        }
        self.certain_above(op).map(PrepareHeader::parent)
    }

    /// A prepare from the journal of a peer, its command restored. All checks happen here.
    pub fn ingest_repaired<P: Plane>(
        &mut self,
        prepare: Message,
        plane: &mut P,
        out: &mut Vec<Output>,
    ) -> Ingest {
        let mut cx = Context { plane, out };
        let outcome = match self.examine(&prepare) {
            Ok(Verdict::Enter(trust)) => self.enter_repaired(prepare, trust, &mut cx),
            Ok(Verdict::Held) => {
                self.agree_with_peer(prepare.header::<PrepareHeader>().op());
                Ingest::Duplicate
            }
            Err(reason) => Ingest::Ignored(reason),
        };
        self.settle(&mut cx);
        outcome
    }

    fn examine(&self, prepare: &Message) -> Result<Verdict, IngestRefusal> {
        if prepare.command() != Command::Prepare {
            return Err(IngestRefusal::Corrupt);
        }
        let header = prepare.header::<PrepareHeader>();
        let is_own_group = header.group() == self.config.group
            // Old metadata logs carry no group.
            || (self.config.group.is_metadata()
                && header.group().0 == 0
                && header.operation().is_metadata_plane());
        if header.frame.cluster() != self.config.cluster || !is_own_group {
            return Err(IngestRefusal::Corrupt);
        }
        if prepare::verify_ingest(header, prepare.body()).is_err() {
            return Err(IngestRefusal::Corrupt);
        }
        let is_working = self.status == Status::Normal || self.votes.elect.is_some();
        if !is_working || self.halted.is_some() {
            return Err(IngestRefusal::Status);
        }
        if self.is_transferring() {
            return Err(IngestRefusal::Transferring);
        }
        let op = header.op();
        if op <= self.commit_min {
            return Err(IngestRefusal::Applied);
        }
        let top = match &self.votes.elect {
            Some(elect) => elect.merged.head,
            None => self.commit_max.max(self.op_head),
        };
        if op > top || !self.is_within_window(op) {
            return Err(IngestRefusal::OutOfScope);
        }
        self.judge(header)
    }

    /// Whether the content is believed, and how much.
    fn judge(&self, header: &PrepareHeader) -> Result<Verdict, IngestRefusal> {
        let op = header.op();
        if mutated!(RepairUnchecked) && self.log.held(op).is_none() {
            return Ok(Verdict::Enter(Trust::Verified));
        }
        if self.named(op).is_some_and(|named| !is_same(named, header)) {
            return Err(IngestRefusal::NotNamed);
        }
        let is_here = |held: &Held| held.trust == Trust::Verified || is_same(held.header(), header);
        if self.log.held(op).is_some_and(is_here) {
            return Ok(Verdict::Held);
        }
        if self.contradicts_neighbours(header) {
            return Err(IngestRefusal::Unchained);
        }
        if self.is_certain(header) {
            return Ok(Verdict::Enter(Trust::Verified));
        }
        if op > self.commit_max {
            return Err(IngestRefusal::NotNamed);
        }
        if self
            .log
            .held(op)
            .is_some_and(|held| held.trust != Trust::Stray)
        {
            // One word against another: what is here stays until the chain decides.
            return Err(IngestRefusal::Unchained);
        }
        Ok(Verdict::Enter(Trust::Offered))
    }

    fn contradicts_neighbours(&self, header: &PrepareHeader) -> bool {
        let identity = header.frame.checksum();
        let above = self.certain_above(header.op());
        let below = self.certain_below(header.op());
        above.is_some_and(|above| !chains(above, identity))
            || below.is_some_and(|below| !chains(header, below))
    }

    /// Whether a prepare that contradicts nothing is proven to be of this view's log.
    fn is_certain(&self, header: &PrepareHeader) -> bool {
        let op = header.op();
        let is_committed = op <= self.commit_max;
        let is_of_view = self.status == Status::Normal && header.frame.view() == self.view;
        self.named(op).is_some()
            || self.certain_above(op).is_some()
            // Its primary numbers an op once, and what it sends again is of its log.
            || (is_committed && is_of_view)
            || (is_committed && self.is_blind && self.certain_below(op).is_some())
            || (is_committed && self.is_blind && op == self.commit_min.next())
    }

    fn enter_repaired<P: Plane>(
        &mut self,
        prepare: Message,
        trust: Trust,
        cx: &mut Context<'_, P>,
    ) -> Ingest {
        let op = prepare.header::<PrepareHeader>().op();
        if self.log.held(op).is_some() {
            self.cut(op, cx);
        }
        if let Err(reason) = cx.plane.accept(&prepare, Source::Repair) {
            return Ingest::Ignored(IngestRefusal::Plane(reason));
        }
        let fills_damage = self.log.is_damaged(op);
        self.journal(prepare, trust, false, cx);
        match &mut self.votes.elect {
            Some(elect) => elect.fetched.push(Fetched { op, fills_damage }),
            None => self.extend_head(),
        }
        Ingest::Journaled
    }

    /// A peer has the same prepare that is only suspected of being right here.
    fn agree_with_peer(&mut self, op: Op) {
        let Some(held) = self.log.held(op) else {
            return;
        };
        if held.trust == Trust::Verified {
            return;
        }
        let header = *held.header();
        if self.contradicts_neighbours(&header) {
            return;
        }
        let is_certain = self.is_certain(&header);
        if !is_certain && op > self.commit_max {
            return;
        }
        if let Some(held) = self.log.held_mut(op) {
            held.trust = if is_certain {
                Trust::Verified
            } else {
                Trust::Offered
            };
        }
        if is_certain {
            self.spread_trust(op);
        } else {
            self.vouch(op);
        }
    }
}

/// What to do with a repaired prepare.
enum Verdict {
    /// It is here already.
    Held,
    /// It goes into the log.
    Enter(Trust),
}
