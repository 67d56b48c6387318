//! The merge against every small set of votes, likely or not.
//!
//! Nothing is assumed of how the votes came about: each of three voters says anything about two
//! ops, each of five anything about one, under one of two log views, and every subset that is a
//! quorum is merged. A model that knows nothing of the algorithm judges the outcome:
//!
//! * it is the same for every order of the votes;
//! * what is decided is a chain, each link of it offered with its body by some voter;
//! * an op that the newest log names is dropped only if too few replicas are left that could
//!   have acknowledged it.

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

/// What the model has to say about an outcome.
fn judge(logs: &Logs, votes: &[Vote], count: u8, quorum: usize, outcome: &Merge) {
    let Merge::Decided(merged) = outcome else {
        return;
    };
    let log_view = votes
        .iter()
        .map(|vote| vote.log_view)
        .max()
        .unwrap_or_default();
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
        return;
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
}

#[test]
fn every_set_of_votes_of_three_about_two_ops() {
    let logs = Logs::new();
    let [zero, one, two] = [0, 1, 2].map(|replica| logs.votes(replica, 2));
    let (mut sets, mut decided) = (0_u64, 0_u64);
    let mut check = |votes: &[Vote]| {
        let outcome = merge(votes, 3, Op(0));
        for order in support::orders::orders(votes.len()) {
            let turned: Vec<Vote> = order.iter().map(|index| votes[*index].clone()).collect();
            assert!(
                merge(&turned, 3, Op(0)) == outcome,
                "order decides: {}",
                told(votes)
            );
        }
        judge(&logs, votes, 3, 2, &outcome);
        sets += 1;
        decided += u64::from(matches!(outcome, Merge::Decided(_)));
    };
    for first in &zero {
        for second in &one {
            let pair = [first.clone(), second.clone()];
            check(&pair);
            // All votes about both ops, and the shorter ones with every third of them.
            for third in two.iter().step_by(3) {
                check(&[&pair[..], std::slice::from_ref(third)].concat());
            }
        }
    }
    println!("{sets} sets, {decided} decided");
    assert!(decided > 10_000 && decided < sets);
}

#[test]
fn every_set_of_votes_of_five_about_one_op() {
    let logs = Logs::new();
    let all: Vec<Vec<Vote>> = (0..5).map(|replica| logs.votes(replica, 1)).collect();
    let kinds = all[0].len();
    let (mut sets, mut decided) = (0_u64, 0_u64);
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
            judge(&logs, &votes, 5, 3, &outcome);
            sets += 1;
            decided += u64::from(matches!(outcome, Merge::Decided(_)));
            let Some(place) = picked.iter().rposition(|kind| kind + 1 < kinds) else {
                break;
            };
            let next = picked[place] + 1;
            picked[place..].fill(next);
        }
    }
    println!("{sets} sets, {decided} decided");
    assert!(decided > 1000 && decided < sets);
}
