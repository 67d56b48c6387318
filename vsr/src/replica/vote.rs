//! What this replica can say about its own log, op by op: the suffix of votes and of
//! announcements (chapter 03 section 8.4).
//!
//! The suffix is built from the log each time it is needed. Nothing is cached, so there is
//! nothing that could describe a log from before a truncation.

use biplane_wire::{Op, PrepareHeader, SuffixBuilder, View};

use super::Replica;
use crate::constants::PIPELINE_MAX;
use crate::log::{Storage, Trust};
use crate::mutation::mutated;
use crate::suffix_merge::{Vote, VoteEntry};

impl Replica {
    /// The commit point as votes and announcements state it: never above the head.
    pub(crate) fn commit_announced(&self) -> Op {
        self.commit_max.min(self.op_head)
    }

    /// The log view a vote may claim. One whose head this replica cannot name is none of its
    /// own: it took that log over, restarted before it had fetched the head, and lost the name.
    /// It has acknowledged nothing from there on, so whoever did is in some other vote, under
    /// the log view it was acknowledged in or a later one.
    pub(crate) fn log_view_announced(&self) -> View {
        if self.log_lost || self.is_headless() {
            View(0)
        } else {
            self.log_view
        }
    }

    /// Nothing is known of the head but that it is committed.
    fn is_headless(&self) -> bool {
        let head = self.op_head;
        let adopted = self.adoption.as_ref();
        let held = self.log.held(head);
        head > self.commit_min
            && head <= self.commit_max
            && adopted.is_none_or(|adoption| adoption.at(head).is_none())
            && held.is_none_or(|held| held.trust == Trust::Stray)
            && !self.log.is_damaged(head)
    }

    /// The ops the suffix describes, from the head down to the commit point.
    fn suffix_ops(&self) -> impl Iterator<Item = Op> + use<> {
        let top = self.op_head;
        let low = self
            .commit_announced()
            .max(Op(1))
            .max(Op(top.0.saturating_sub(PIPELINE_MAX)));
        (low.0..=top.0).rev().map(Op)
    }

    /// What is known here about `op`.
    ///
    /// A nack says that this replica never acknowledged the op. So an entry that could not be
    /// read, or one the adopted view did not confirm, is passed over in silence: it may have
    /// been acknowledged, and it may be wrong.
    fn evidence(&self, op: Op) -> VoteEntry {
        const SILENCE: VoteEntry = VoteEntry {
            header: None,
            nack: false,
            present: false,
        };
        let held = self.log.held(op).filter(|held| held.trust != Trust::Stray);
        if let Some(held) = held {
            return match held.storage {
                _ if held.trust != Trust::Verified => SILENCE,
                Storage::Writing => VoteEntry {
                    header: Some(*held.header()),
                    nack: false,
                    present: mutated!(WritingIsPresent),
                },
                Storage::Memory | Storage::Durable => VoteEntry {
                    header: Some(*held.header()),
                    nack: false,
                    present: true,
                },
            };
        }
        if self.log.is_damaged(op) && !mutated!(DamagedIsDenied) {
            return SILENCE;
        }
        if let Some(header) = self.commit_min_header.filter(|_| op == self.commit_min) {
            // Its effects are here, and nobody who has them too needs the body.
            return VoteEntry {
                header: Some(header),
                nack: false,
                present: true,
            };
        }
        // Also at the elect: without the name, a vote of an older log view that holds this very
        // prepare would count as a denial of it.
        if let Some(header) = self.adoption.as_ref().and_then(|adoption| adoption.at(op)) {
            return VoteEntry {
                header: Some(*header),
                ..SILENCE
            };
        }
        VoteEntry {
            nack: op > self.commit_announced(),
            ..SILENCE
        }
    }

    /// This replica's vote as the merge takes it.
    pub(crate) fn own_vote(&self) -> Vote {
        Vote {
            replica: self.config.replica,
            log_view: self.log_view_announced(),
            op: self.op_head,
            commit: self.commit_announced(),
            entries: self.suffix_ops().map(|op| self.evidence(op)).collect(),
        }
    }

    /// The same for the wire.
    pub(crate) fn own_suffix(&self) -> SuffixBuilder {
        let mut suffix = SuffixBuilder::new(self.op_head);
        for op in self.suffix_ops() {
            let entry = self.evidence(op);
            suffix.push(entry.header.as_ref(), entry.nack, entry.present);
        }
        suffix
    }

    /// The headers of the log this primary leads, for an announcement.
    pub(crate) fn announced_suffix(&self) -> SuffixBuilder {
        let mut suffix = SuffixBuilder::new(self.op_head);
        for op in self.suffix_ops() {
            let installed = self
                .commit_min_header
                .as_ref()
                .filter(|_| op == self.commit_min);
            let header: Option<&PrepareHeader> = self.log.header(op).or(installed);
            suffix.push(header, false, false);
        }
        suffix
    }
}
