//! From the votes of a view change to the log of the new view: keep, drop, or wait (pure;
//! chapter 03 section 8.5.1).
//!
//! Discarding an op needs proof, which is a nack quorum: too few replicas are left to have
//! committed it. Keeping an op needs a body somebody can serve. Everything else waits for more
//! votes. The votes of the highest log view are canonical; only votes behind it may deny an op
//! by holding something else, because two canonical votes that disagree are a corruption, not
//! an opinion.

use biplane_wire::{Checksum, DoViewChangeHeader, Op, PrepareHeader, ReplicaId, Suffix, View};

use crate::constants::PIPELINE_MAX;
use crate::mutation::mutated;
use crate::quorum::Quorums;

/// The vote of one replica.
#[derive(Clone, Debug)]
pub struct Vote {
    /// Who votes.
    pub replica: ReplicaId,
    /// The last view in which its log was authoritative.
    pub log_view: View,
    /// Highest op of its log; entry 0 of the suffix is about it.
    pub op: Op,
    /// Its commit point, at most `op`.
    pub commit: Op,
    /// What it knows about its log from `op` down.
    pub entries: Vec<VoteEntry>,
}

/// What a vote says about one op.
#[derive(Clone, Copy, Debug)]
pub struct VoteEntry {
    /// The prepare there; `None` when the vote does not know.
    pub header: Option<PrepareHeader>,
    /// The voter never acknowledged this op.
    pub nack: bool,
    /// The voter holds the prepare with its body and vouches for it.
    pub present: bool,
}

impl Vote {
    /// The vote in a received frame.
    #[must_use]
    pub fn of_frame(header: &DoViewChangeHeader, suffix: &Suffix<'_>) -> Self {
        let entry = |entry: biplane_wire::SuffixEntry<'_>| VoteEntry {
            header: entry.header.copied(),
            nack: entry.nack,
            present: entry.present,
        };
        Self {
            replica: header.frame.replica(),
            log_view: header.log_view(),
            op: header.op(),
            commit: header.commit(),
            entries: suffix.iter().map(entry).collect(),
        }
    }

    /// What the vote says about `op`; `None` when its suffix does not reach there.
    #[must_use]
    pub fn at(&self, op: Op) -> Option<&VoteEntry> {
        let index = self.op.0.checked_sub(op.0)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// The highest commit point this vote is evidence of. The lowest op of the suffix is not.
    fn commit_evidence(&self) -> Op {
        let head = self.entries.first().and_then(|entry| entry.header.as_ref());
        let embedded = head.map_or(Op::ZERO, PrepareHeader::commit);
        // No replica has more uncommitted ops than fit a suffix.
        let bound = Op(self.op.0.saturating_sub(PIPELINE_MAX));
        self.commit.max(embedded).max(bound)
    }
}

/// The log of a new view, as far as it is uncommitted.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedLog {
    /// Highest op.
    pub head: Op,
    /// Highest op proven to be committed.
    pub commit: Op,
    /// Headers of `head` down to the commit point, descending, without gap. Empty for an
    /// empty log; the one at the commit point may be missing where the merging replica has
    /// applied it.
    pub headers: Vec<PrepareHeader>,
    /// Committed prepares below those that only votes of older log views still name,
    /// descending.
    pub extras: Vec<PrepareHeader>,
}

impl MergedLog {
    /// The header this log names for `op`.
    #[must_use]
    pub fn at(&self, op: Op) -> Option<&PrepareHeader> {
        let index = self.head.0.checked_sub(op.0)?;
        let main = usize::try_from(index)
            .ok()
            .and_then(|index| self.headers.get(index));
        main.or_else(|| self.extras.iter().find(|header| header.op() == op))
    }
}

/// What the votes amount to.
#[derive(Clone, Debug, PartialEq)]
pub enum Merge {
    /// The log of the new view.
    Decided(MergedLog),
    /// Nothing can be said about this op yet; another vote may help.
    Await {
        /// The op.
        op: Op,
    },
    /// No vote that can still come would help, or the votes contradict what is committed.
    Deadlock {
        /// The op.
        op: Op,
    },
}

/// What the log of the new view has at one op, as far as the votes tell.
#[derive(Clone, Copy)]
enum Named<'a> {
    /// No vote that counts names a prepare.
    Nothing {
        /// Whether a canonical vote reaches to the op without a word about it. Then absence of
        /// a name is no sign of absence of the op.
        silent: bool,
    },
    One {
        header: &'a PrepareHeader,
        /// Log view of the votes it was taken from: what is behind that may deny it.
        log_view: View,
    },
    /// The prepare above names it as parent, and no vote has its header any more.
    Lost,
    Conflict,
}

struct Merger<'a> {
    votes: &'a [Vote],
    replica_count: u8,
    quorums: Quorums,
    log_view: View,
    commit: Op,
    applied: Op,
    /// Lowest op looked at.
    low: Op,
    /// What is named at `low` and up.
    named: Vec<Named<'a>>,
}

/// Merges the votes of one view, at least a view change quorum of them and one per replica.
///
/// `applied` is the highest op the merging replica has applied. When that is the commit point
/// itself, the prepare there need not be named or served by anybody: its effects are here.
#[must_use]
pub fn merge(votes: &[Vote], replica_count: u8, applied: Op) -> Merge {
    let commit = votes
        .iter()
        .map(Vote::commit_evidence)
        .max()
        .unwrap_or_default();
    let longest = votes.iter().max_by_key(|vote| (vote.op, vote.log_view));
    let log_view = match longest {
        Some(longest) if mutated!(LongestLogWins) => longest.log_view,
        _ => votes
            .iter()
            .map(|vote| vote.log_view)
            .max()
            .unwrap_or_default(),
    };
    let mut quorums = Quorums::new(replica_count);
    quorums.nack -= u8::from(mutated!(NackQuorumLow));
    let low = commit.max(Op(1));
    let named = Vec::new();
    let mut merger = Merger {
        votes,
        replica_count,
        quorums,
        log_view,
        commit,
        applied,
        low,
        named,
    };
    merger.name_all();
    merger.merge()
}

impl<'a> Merger<'a> {
    fn merge(&self) -> Merge {
        let head = match self.scan() {
            Ok(head) => head,
            Err(undecided) => return undecided,
        };
        let headers = match self.collect(head) {
            Ok(headers) => headers,
            Err(op) => return Merge::Deadlock { op },
        };
        match self.committed_elsewhere(&headers) {
            Ok(extras) => Merge::Decided(MergedLog {
                head,
                commit: self.commit,
                headers,
                extras,
            }),
            Err(op) => Merge::Deadlock { op },
        }
    }

    fn canonical_votes(&self) -> impl Iterator<Item = &'a Vote> + '_ {
        self.votes
            .iter()
            .filter(|vote| vote.log_view == self.log_view)
    }

    fn is_complete(&self) -> bool {
        self.votes.len() >= usize::from(self.replica_count)
    }

    /// Highest op any canonical vote knows of, or the commit point if that is higher.
    fn top(&self) -> Op {
        let canonical_head = self.canonical_votes().map(|vote| vote.op).max();
        canonical_head.unwrap_or_default().max(self.commit)
    }

    /// Fills `named`, from the top down so that a child can vouch for its parent.
    fn name_all(&mut self) {
        let mut child: Option<(&PrepareHeader, View)> = None;
        let mut named: Vec<Named<'a>> = Vec::new();
        for op in (self.low.0..=self.top().0).rev().map(Op) {
            let found = self.name(op, child);
            child = match found {
                Named::One { header, log_view } => Some((header, log_view)),
                Named::Nothing { .. } | Named::Lost | Named::Conflict => None,
            };
            named.push(found);
        }
        named.reverse();
        self.named = named;
        self.drop_guesses_off_the_chain();
    }

    /// A header taken from behind the canonical votes is none of their log when it does not
    /// stand on it.
    fn drop_guesses_off_the_chain(&mut self) {
        for op in (self.low.0..=self.top().0).map(Op) {
            let Named::One { header, log_view } = self.named(op) else {
                continue;
            };
            if log_view < self.log_view && self.stands(header) == Some(false) {
                let index = usize::try_from(op.0 - self.low.0).unwrap_or(usize::MAX);
                if let Some(named) = self.named.get_mut(index) {
                    *named = Named::Nothing { silent: true };
                }
            }
        }
    }

    /// Whether `header` stands on what is named below it; `None` when nothing is.
    fn stands(&self, header: &PrepareHeader) -> Option<bool> {
        match self.named(header.op().previous()?) {
            Named::One { header: below, .. } => {
                Some(names_as_parent(header, below.frame.checksum()))
            }
            _ => None,
        }
    }

    fn named(&self, op: Op) -> Named<'a> {
        let index =
            op.0.checked_sub(self.low.0)
                .and_then(|index| usize::try_from(index).ok());
        let found = index.and_then(|index| self.named.get(index));
        found.copied().unwrap_or(Named::Nothing { silent: true })
    }

    fn name(&self, op: Op, child: Option<(&PrepareHeader, View)>) -> Named<'a> {
        let silent = match self.unanimous(op, self.log_view) {
            Named::Nothing { silent } => silent,
            Named::One { header, log_view } => {
                // Two canonical votes disagree, one of them by what it has above.
                let canonical = child.filter(|(_, view)| *view == self.log_view);
                let identity = header.frame.checksum();
                let chains = canonical.is_none_or(|(child, _)| names_as_parent(child, identity));
                return if chains {
                    Named::One { header, log_view }
                } else {
                    Named::Conflict
                };
            }
            found => return found,
        };
        // No canonical voter has an entry here. The prepare above names the one there was, and
        // whoever has that one has no other.
        let parent = child
            .map(|(child, _)| child.parent())
            .filter(|parent| !parent.is_zero());
        if let Some(parent) = parent {
            let mut headers = self
                .votes
                .iter()
                .filter_map(|vote| vote.at(op)?.header.as_ref());
            return match headers.find(|header| header.frame.checksum() == parent) {
                Some(header) => Named::One {
                    header,
                    log_view: self.log_view,
                },
                None => Named::Lost,
            };
        }
        if silent && self.is_complete() {
            return self.name_behind_silence(op);
        }
        Named::Nothing { silent }
    }

    /// All votes are in, and the canonical ones have no word about `op`. Had a prepare there
    /// been committed, somebody besides the silent ones acknowledged it and has it under a log
    /// view at least that of the commit, and no later log view has another. So the highest log
    /// view that names anything decides.
    fn name_behind_silence(&self, op: Op) -> Named<'a> {
        let names = |vote: &&Vote| vote.at(op).is_some_and(|entry| entry.header.is_some());
        match self
            .votes
            .iter()
            .filter(names)
            .map(|vote| vote.log_view)
            .max()
        {
            Some(log_view) => self.unanimous(op, log_view),
            None => Named::Nothing { silent: true },
        }
    }

    /// What the votes of one log view name at `op`.
    fn unanimous(&self, op: Op, log_view: View) -> Named<'a> {
        let mut found: Option<&PrepareHeader> = None;
        let mut silent = false;
        for vote in self.votes.iter().filter(|vote| vote.log_view == log_view) {
            let entry = vote.at(op);
            let Some(header) = entry.and_then(|entry| entry.header.as_ref()) else {
                silent |= vote.op >= op && !entry.is_some_and(|entry| entry.nack);
                continue;
            };
            match found {
                Some(earlier) if earlier.frame.checksum() != header.frame.checksum() => {
                    return Named::Conflict;
                }
                Some(_) => {}
                None => found = Some(header),
            }
        }
        match found {
            Some(header) => Named::One { header, log_view },
            None => Named::Nothing { silent },
        }
    }

    /// The head: the highest op that no nack quorum denies, everything below it servable.
    fn scan(&self) -> Result<Op, Merge> {
        let top = self.top();
        for op in (self.low.0..=top.0).map(Op) {
            let named = self.named(op);
            let (copies, nacks) = self.count(op, named);
            if op == self.commit && op == self.applied {
                continue;
            }
            // What is committed stays as long as anybody has it, whoever lost it.
            let is_denied = nacks >= usize::from(self.quorums.nack);
            if is_denied && op > self.commit {
                return Ok(Op(op.0 - 1));
            }
            if is_denied && copies == 0 {
                return Err(Merge::Deadlock { op });
            }
            if copies == 0 || !matches!(named, Named::One { .. }) {
                return Err(self.undecided(op));
            }
        }
        Ok(top)
    }

    fn undecided(&self, op: Op) -> Merge {
        if self.is_complete() {
            Merge::Deadlock { op }
        } else {
            Merge::Await { op }
        }
    }

    /// How many votes can serve the prepare named at `op`, and how many deny it.
    fn count(&self, op: Op, named: Named<'_>) -> (usize, usize) {
        let (mut copies, mut nacks) = (0, 0);
        for vote in self.votes {
            if vote.op < op {
                nacks += 1;
                continue;
            }
            let Some(entry) = vote.at(op) else { continue };
            // Whether the vote has what is named; `None` when that cannot be said.
            let agrees = match (named, &entry.header) {
                (Named::One { header, .. }, Some(held)) => {
                    Some(header.frame.checksum() == held.frame.checksum())
                }
                (Named::Nothing { silent: false } | Named::Lost, Some(_)) => Some(false),
                (Named::Nothing { silent: true }, Some(held)) => self.stands(held),
                _ => None,
            };
            let log_view = match named {
                Named::One { log_view, .. } => log_view,
                Named::Nothing { .. } | Named::Lost | Named::Conflict => self.log_view,
            };
            let is_named = matches!(named, Named::One { .. });
            if is_named && agrees == Some(true) && entry.present {
                copies += 1;
            } else if entry.nack {
                nacks += 1;
            } else if entry.header.is_some()
                && !entry.present
                && op > vote.commit
                && !mutated!(NameIsNoDenial)
            {
                // It adopted the header and never had the body, so it never acknowledged it.
                nacks += 1;
            } else if vote.log_view < log_view && agrees == Some(false) {
                nacks += 1;
            }
        }
        (copies, nacks)
    }

    /// The named headers from `head` down to the commit point; `Err` names the op where they
    /// are missing or do not chain.
    fn collect(&self, head: Op) -> Result<Vec<PrepareHeader>, Op> {
        let mut headers: Vec<PrepareHeader> = Vec::new();
        for op in (self.low.0..=head.0).rev().map(Op) {
            let Named::One { header, .. } = self.named(op) else {
                if op == self.commit && op == self.applied {
                    break;
                }
                return Err(op);
            };
            let child = headers.last();
            if child.is_some_and(|child| !names_as_parent(child, header.frame.checksum())) {
                return Err(op);
            }
            headers.push(*header);
        }
        Ok(headers)
    }

    /// Committed prepares that only votes behind the canonical log view still name. Each must
    /// be named as parent by the one above it, or it is left out.
    fn committed_elsewhere(&self, kept: &[PrepareHeader]) -> Result<Vec<PrepareHeader>, Op> {
        let mut claims: Vec<PrepareHeader> = Vec::new();
        for vote in self
            .votes
            .iter()
            .filter(|vote| vote.log_view < self.log_view)
        {
            for header in vote.entries.iter().filter_map(|entry| entry.header) {
                let is_kept = kept.iter().any(|other| other.op() == header.op());
                if is_kept || header.op() > vote.commit {
                    continue;
                }
                match claims.iter().find(|other| other.op() == header.op()) {
                    Some(other) if other.frame.checksum() != header.frame.checksum() => {
                        return Err(header.op());
                    }
                    Some(_) => {}
                    None => claims.push(header),
                }
            }
        }
        claims.sort_by_key(|header| std::cmp::Reverse(header.op()));
        let mut extras: Vec<PrepareHeader> = Vec::new();
        for header in claims {
            let above = header.op().next();
            let child = extras.iter().chain(kept).find(|other| other.op() == above);
            if child.is_some_and(|child| names_as_parent(child, header.frame.checksum())) {
                extras.push(header);
            }
        }
        Ok(extras)
    }
}

/// Whether `child` stands on a prepare of this identity; a zero on either side was never sealed
/// and passes.
fn names_as_parent(child: &PrepareHeader, below: Checksum) -> bool {
    below.is_zero() || child.parent().is_zero() || child.parent() == below
}
