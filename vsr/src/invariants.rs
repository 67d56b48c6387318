//! What must hold of a replica between any two calls.
//!
//! Owners in tests and simulations call this after every step; it walks the whole log, so a
//! server does not.

use biplane_wire::Op;

use crate::log::{Trust, chains};
use crate::replica::Replica;
use crate::status::Status;

impl Replica {
    /// Panics when the replica contradicts itself.
    ///
    /// # Panics
    ///
    /// On the first invariant that does not hold.
    pub fn check_invariants(&self) {
        self.check_ladder();
        self.check_log();
        self.check_election();
        if self.leads() && self.halted.is_none() {
            self.check_primary();
        }
        let limits = &self.config.limits;
        assert!(self.early.len() <= usize::from(limits.early_prepares));
        assert!(self.early.bytes() <= limits.early_bytes);
        assert!(self.requests.len() <= usize::from(self.config.limits.request_queue));
        if !self.requests.is_empty() {
            assert!(self.leads(), "requests wait at the primary only");
        }
    }

    fn check_ladder(&self) {
        let durable = self.pending.durable();
        assert!(
            durable.view <= self.view,
            "the record is not ahead of memory"
        );
        assert!(durable.log_view <= self.log_view, "nor is its log view");
        assert!(
            self.log_view <= self.view,
            "a log is of a view that was reached"
        );
        assert!(
            self.commit_min <= self.commit_max,
            "only committed ops are applied"
        );
        assert!(
            self.commit_min <= self.op_head,
            "applied ops are part of the log"
        );
        if self.status == Status::Normal {
            assert!(
                self.log_view == self.view,
                "a normal replica has the log of its view"
            );
            assert!(!self.ceded, "normal replicas have found their role");
        }
    }

    fn check_log(&self) {
        let entries: Vec<_> = self
            .log
            .iter_held()
            .map(|message| {
                let header = message.header::<biplane_wire::PrepareHeader>();
                assert!(
                    header.frame.cluster() == self.config.cluster,
                    "only own entries"
                );
                header
            })
            .collect();
        for pair in entries.windows(2) {
            let [below, above] = pair else { continue };
            assert!(below.op() < above.op(), "entries ascend");
            let is_sure = |op| {
                self.log
                    .held(op)
                    .is_some_and(|held| held.trust == Trust::Verified)
            };
            let adjacent = below.op().next() == above.op();
            if adjacent && is_sure(below.op()) && is_sure(above.op()) {
                assert!(
                    chains(above, below.frame.checksum()),
                    "verified neighbours chain: op {} to {}",
                    above.op(),
                    below.op()
                );
            }
        }
        // What a failed election fetched may stand above the own head until a view starts.
        if self.status == Status::Normal {
            let reach = self.op_head.max(self.commit_max);
            assert!(
                self.log.top().is_none_or(|last| last <= reach),
                "nothing above the log"
            );
        }
    }

    fn check_election(&self) {
        if let Some(elect) = &self.votes.elect {
            assert!(
                self.status == Status::ViewChange,
                "an elect is in view change"
            );
            assert!(self.is_primary_by_index(), "an elect is to be primary");
            assert!(
                elect.merged.head >= self.commit_max,
                "committed ops survive"
            );
        }
        let voters = self.votes.cast.iter().map(|vote| vote.replica.0);
        let mut seen = crate::quorum::ReplicaSet::EMPTY;
        for voter in voters {
            assert!(
                seen.insert(biplane_wire::ReplicaId(voter)),
                "one vote per replica"
            );
        }
    }

    fn check_primary(&self) {
        assert!(
            self.commit_max <= self.op_head,
            "a primary holds what it committed"
        );
        let in_flight = self.op_head.0 - self.commit_max.0;
        assert!(in_flight <= u64::from(self.config.limits.prepare_queue));
        let mut op = self.commit_min.next();
        while op <= self.op_head {
            assert!(self.log.is_verified(op), "a primary holds its log");
            op = op.next();
        }
        let mut expected: Option<Op> = None;
        for entry in self.pipeline.iter() {
            assert!(
                expected.is_none_or(|op| op == entry.op),
                "the pipeline has no gap"
            );
            assert!(self.log.checksum(entry.op) == Some(entry.checksum));
            expected = Some(entry.op.next());
        }
        if let Some(next) = expected {
            assert!(next == self.op_head.next(), "the pipeline ends at the head");
        }
        if self.pipeline.is_empty() {
            assert!(
                self.op_head == self.commit_max,
                "what is uncommitted is in flight"
            );
        }
    }
}
