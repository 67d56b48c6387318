//! The merge against every small set of votes, likely or not.
//!
//! Nothing is assumed of how the votes came about: each of three voters says anything about two
//! ops, each of five anything about one, under one of two log views, and every subset that is a
//! quorum is merged. A model that knows nothing of the algorithm judges the outcome:
//!
//! * it is the same for every order of the votes;
//! * what is decided is a chain, each link of it offered with its body by some voter;
//! * an op that any vote of the newest log reaches is dropped only if a nack quorum denies it, or
//!   one below it;
//! * an op that the newest log names is dropped or replaced only if too few replicas are left
//!   that could have acknowledged it. This last claim needs votes that some history can bring
//!   about: those of the newest log view are of one log, and have no hole in it. Sets in which
//!   they are not are counted, and held to the other claims.

mod support;

use biplane_vsr::suffix_merge::{Merge, Vote, VoteEntry, merge};
use biplane_wire::{Checksum, Op, PrepareHeader, ReplicaId, View};
use support::frames::{self, PrepareParts};

fn header(variant: u64, op: u64, parent: Checksum) -> PrepareHeader {
    let parts = PrepareParts {
        view: 0,
        replica: 0,
        op,
        commit: 0,
        parent,
        variant,
    };
    *frames::prepare(parts).header::<PrepareHeader>()
}

/// What a voter says about an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Never acknowledged it.
    Denies,
    /// Knows nothing, and may have forgotten.
    Silent,
    /// Knows the name of one of two prepares.
    Names(usize),
    /// Has it.
    Has(usize),
}

const SAYINGS: [Says; 6] = [
    Says::Denies,
    Says::Silent,
    Says::Names(0),
    Says::Names(1),
    Says::Has(0),
    Says::Has(1),
];

/// Op 1, and two chains of ops 2 and 3 above it.
struct Logs {
    first: PrepareHeader,
    chains: [[PrepareHeader; 2]; 2],
}

impl Logs {
    fn new() -> Self {
        let first = header(0, 1, Checksum::ZERO);
        let chain = |variant| {
            let two = header(variant, 2, first.frame.checksum());
            [two, header(variant, 3, two.frame.checksum())]
        };
        Self {
            first,
            chains: [chain(1), chain(2)],
        }
    }

    /// A vote that says these things about ops 2 and up; `None` when its headers are no chain,
    /// so that no peer would get it through the decoder.
    fn vote(&self, replica: u8, log_view: u32, says: &[Says]) -> Option<Vote> {
        let mut entries = vec![VoteEntry {
            header: Some(self.first),
            nack: false,
            present: true,
        }];
        let mut below = Some(0);
        for (slot, says) in says.iter().enumerate() {
            let (chain, nack, present) = match says {
                Says::Denies => (None, true, false),
                Says::Silent => (None, false, false),
                Says::Names(chain) => (Some(*chain), false, false),
                Says::Has(chain) => (Some(*chain), false, true),
            };
            let is_broken = slot > 0 && chain.is_some() && below.is_some() && chain != below;
            if is_broken {
                return None;
            }
            below = chain;
            let header = chain.map(|chain| self.chains[chain][slot]);
            entries.push(VoteEntry {
                header,
                nack,
                present,
            });
        }
        entries.reverse();
        Some(Vote {
            replica: ReplicaId(replica),
            log_view: View(log_view),
            op: Op(says.len() as u64 + 1),
            commit: Op(1),
            entries,
        })
    }

    /// Every vote about at most `ops` ops.
    fn votes(&self, replica: u8, ops: usize) -> Vec<Vote> {
        let mut sayings: Vec<Vec<Says>> = vec![Vec::new()];
        let mut all = sayings.clone();
        for _ in 0..ops {
            let longer = sayings
                .iter()
                .flat_map(|says| SAYINGS.map(|next| [says.as_slice(), &[next]].concat()));
            sayings = longer.collect();
            all.extend(sayings.iter().cloned());
        }
        let views = [1, 2];
        let made = views.into_iter().flat_map(|view| {
            let made = all
                .iter()
                .filter_map(move |says| self.vote(replica, view, says));
            made.collect::<Vec<_>>()
        });
        made.collect()
    }
}

/// The votes as in the specification, for people.
fn told(votes: &[Vote]) -> String {
    let entry = |entry: &VoteEntry| match &entry.header {
        None if entry.nack => "_n".to_owned(),
        None => "_".to_owned(),
        Some(header) => {
            let sum = header.frame.checksum().0 & 0xff;
            format!(
                "{}:{sum:02x}{}",
                header.op(),
                if entry.present { "P" } else { "" }
            )
        }
    };
    let vote = |vote: &Vote| {
        let entries: Vec<String> = vote.entries.iter().map(entry).collect();
        let (view, op, commit) = (vote.log_view, vote.op, vote.commit);
        format!("{view}/{op}/{commit} [{}]", entries.join(" "))
    };
    votes.iter().map(vote).collect::<Vec<_>>().join("; ")
}

/// Whether a voter could have acknowledged this prepare, given what it says.
fn could_have(vote: &Vote, header: &PrepareHeader, log_view: View) -> bool {
    if vote.op < header.op() {
        return false;
    }
    // Nobody acknowledges an op above one it never had.
    let mut below = (vote.commit.next().0..header.op().0).map(Op);
    let never_had = |entry: &VoteEntry| entry.nack || entry.header.is_some() && !entry.present;
    if below.any(|op| vote.at(op).is_some_and(never_had)) {
        return false;
    }
    // Nor one that stands on something else than it has.
    let held_below = header.op().previous().and_then(|op| vote.at(op)?.header);
    let stands = held_below.is_none_or(|held| held.frame.checksum() == header.parent());
    if !stands && vote.log_view < log_view {
        return false;
    }
    let Some(entry) = vote.at(header.op()) else {
        return true;
    };
    match &entry.header {
        _ if entry.nack => false,
        None => true,
        Some(held) if held == header => entry.present || header.op() <= vote.commit,
        // It has something else. Of the newest log view both cannot be true, so that proves
        // nothing; an older one was superseded before this was acknowledged.
        Some(_) if !entry.present => false,
        Some(_) => vote.log_view == log_view,
    }
}

/// Whether a voter denies the prepare at `op`, in any of the ways a vote can: its log is shorter,
/// it says so, it has only the name of something that is not committed, or it comes from an older
/// log and has something else there than `canon`, or than nothing.
fn denies(vote: &Vote, op: Op, canon: Option<&PrepareHeader>, log_view: View) -> bool {
    let Some(entry) = vote.at(op) else {
        return vote.op < op;
    };
    let Some(held) = &entry.header else {
        return entry.nack;
    };
    !entry.present && op > vote.commit || vote.log_view < log_view && canon != Some(held)
}

/// Nothing that a vote of the newest log view reaches is dropped unless a nack quorum denies it or
/// the first op that goes with it, whatever the votes say otherwise.
fn judge_drop(votes: &[Vote], nack_quorum: usize, log_view: View, head: Op) {
    let mut canonical = votes.iter().filter(|vote| vote.log_view == log_view);
    if canonical.clone().all(|vote| vote.op <= head) {
        return;
    }
    let op = head.next();
    let canon = canonical.find_map(|vote| vote.at(op)?.header);
    let denials = votes
        .iter()
        .filter(|vote| denies(vote, op, canon.as_ref(), log_view));
    assert!(
        denials.count() >= nack_quorum,
        "op {op} is dropped without proof: {}",
        told(votes)
    );
}

/// What the model has to say about an outcome; whether all its claims applied.
fn judge(logs: &Logs, votes: &[Vote], count: u8, quorum: usize, outcome: &Merge) -> bool {
    let Merge::Decided(merged) = outcome else {
        return true;
    };
    let log_view = votes
        .iter()
        .map(|vote| vote.log_view)
        .max()
        .unwrap_or_default();
    judge_drop(
        votes,
        usize::from(count) - quorum + 1,
        log_view,
        merged.head,
    );
    let mut below: Option<&PrepareHeader> = None;
    for header in merged.headers.iter().rev() {
        let chains = below.is_none_or(|below| header.parent() == below.frame.checksum());
        assert!(chains, "the outcome is a chain: {}", told(votes));
        below = Some(header);
        let offers = |vote: &&Vote| {
            let entry = vote.at(header.op());
            entry.is_some_and(|entry| entry.present && entry.header.as_ref() == Some(header))
        };
        assert!(
            votes.iter().any(|vote| offers(&vote)),
            "nobody has it: {}",
            told(votes)
        );
    }
    let canonical = votes.iter().filter(|vote| vote.log_view == log_view);
    // Whoever worked in a view had its whole log. A vote of that view with a hole below what it
    // knows is none that any replica casts, and proves nothing.
    let has_hole = |vote: &Vote| {
        let known = vote.entries.iter().take_while(|entry| !entry.nack);
        let known = known.filter(|entry| entry.header.is_some()).count();
        known > 0 && vote.entries.iter().any(|entry| entry.nack)
    };
    // And its log is one: votes of it that contradict each other prove nothing either.
    let chains = |chain: usize| {
        let named = canonical.clone().flat_map(|vote| &vote.entries);
        let named = named.filter_map(|entry| entry.header);
        named.filter(|header| header.op() > Op(1)).all(|header| {
            let slot = usize::try_from(header.op().0 - 2).expect("small");
            logs.chains[chain][slot] == header
        })
    };
    if canonical.clone().any(has_hole) || !(chains(0) || chains(1)) {
        return false;
    }
    for header in canonical
        .flat_map(|vote| &vote.entries)
        .filter_map(|it| it.header)
    {
        if merged.at(header.op()) == Some(&header) {
            continue;
        }
        let unheard = usize::from(count) - votes.len();
        let heard = votes
            .iter()
            .filter(|vote| could_have(vote, &header, log_view));
        assert!(
            unheard + heard.count() < quorum,
            "op {} may be committed: {} gives head {}",
            header.op(),
            told(votes),
            merged.head
        );
    }
    true
}

/// How many sets were looked at.
#[derive(Debug, Default)]
struct Tally {
    sets: u64,
    decided: u64,
    /// Decided on votes that no history brings about.
    impossible: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Merge, applied: bool) {
        self.sets += 1;
        self.decided += u64::from(matches!(outcome, Merge::Decided(_)));
        self.impossible += u64::from(!applied);
    }

    fn check(&self) {
        println!("{self:?}");
        assert!(self.decided > 1000 && self.decided < self.sets);
        assert!(
            self.impossible < self.decided / 2,
            "most sets are judged whole"
        );
    }
}

#[test]
fn every_set_of_votes_of_three_about_two_ops() {
    let logs = Logs::new();
    let all = [0, 1, 2].map(|replica| logs.votes(replica, 2));
    let mut tally = Tally::default();
    let mut check = |votes: &[Vote]| {
        let outcome = merge(votes, 3, Op(0));
        let applied = judge(&logs, votes, 3, 2, &outcome);
        tally.add(&outcome, applied);
        outcome
    };
    for first in &all[0] {
        for second in &all[1] {
            let pair = [first.clone(), second.clone()];
            check(&pair);
            check_orders(&pair);
            for third in &all[2] {
                check(&[&pair[..], std::slice::from_ref(third)].concat());
            }
        }
    }
    // Who says what was all there is above; in which order it comes need be asked once of each
    // three things said.
    for (a, first) in all[0].iter().enumerate() {
        for (b, second) in all[1].iter().enumerate().skip(a) {
            for third in &all[2][b..] {
                check_orders(&[first.clone(), second.clone(), third.clone()]);
            }
        }
    }
    tally.check();
}

/// The outcome is the same for every order of the votes.
fn check_orders(votes: &[Vote]) {
    let outcome = merge(votes, 3, Op(0));
    for order in support::orders::orders(votes.len()) {
        let turned: Vec<Vote> = order.iter().map(|index| votes[*index].clone()).collect();
        assert!(
            merge(&turned, 3, Op(0)) == outcome,
            "order decides: {}",
            told(votes)
        );
    }
}

#[test]
fn every_set_of_votes_of_five_about_one_op() {
    let logs = Logs::new();
    let all: Vec<Vec<Vote>> = (0..5).map(|replica| logs.votes(replica, 1)).collect();
    let kinds = all[0].len();
    let mut tally = Tally::default();
    for size in 3..=5_u32 {
        // Who says what does not matter, so ascending kinds are all there are.
        let mut picked = vec![0; size as usize];
        loop {
            let of = |(replica, kind): (usize, &usize)| all[replica][*kind].clone();
            let votes: Vec<Vote> = picked.iter().enumerate().map(of).collect();
            let outcome = merge(&votes, 5, Op(0));
            for turn in 1..votes.len() {
                let mut turned = votes.clone();
                turned.rotate_left(turn);
                assert!(
                    merge(&turned, 5, Op(0)) == outcome,
                    "order decides: {}",
                    told(&votes)
                );
                turned.reverse();
                assert!(
                    merge(&turned, 5, Op(0)) == outcome,
                    "order decides: {}",
                    told(&votes)
                );
            }
            let applied = judge(&logs, &votes, 5, 3, &outcome);
            tally.add(&outcome, applied);
            let Some(place) = picked.iter().rposition(|kind| kind + 1 < kinds) else {
                break;
            };
            let next = picked[place] + 1;
            picked[place..].fill(next);
        }
    }
    tally.check();
}
