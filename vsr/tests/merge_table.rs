//! The merge of votes, case by case (chapter 03 sections 8.5.1 and 17.13).
//!
//! Votes are written as in the specification: `log_view/op/commit [entries]`, an entry being
//! `a4P` (prepare of op 4 on chain a, body present), `a4` (header only), `_4n` (blank, denied)
//! or `_4` (blank). Chain b leaves chain a where the entry below it in the same vote says so.

mod support;

use biplane_vsr::suffix_merge::{Merge, Vote, VoteEntry, merge};
use biplane_wire::{Checksum, Op, PrepareHeader, ReplicaId, View};
use support::frames::{self, PrepareParts};

fn prepare(letter: u8, op: u64, commit: u64, parent: Checksum) -> PrepareHeader {
    let variant = u64::from(letter);
    let parts = PrepareParts {
        view: 0,
        replica: 0,
        op,
        commit,
        parent,
        variant,
    };
    *frames::prepare(parts).header::<PrepareHeader>()
}

/// The prepare of `op` on chain a.
fn a(op: u64) -> PrepareHeader {
    let mut parent = Checksum::ZERO;
    let mut header = prepare(b'a', 1, 0, parent);
    for op in 1..=op {
        header = prepare(b'a', op, 0, parent);
        parent = header.frame.checksum();
    }
    header
}

/// Parses one vote.
fn vote(replica: u8, text: &str) -> Vote {
    let (numbers, rest) = text.split_once(' ').expect("numbers and entries");
    let numbers: Vec<u64> = numbers
        .split('/')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let words: Vec<&str> = rest.trim_matches(['[', ']']).split_whitespace().collect();
    let mut entries: Vec<VoteEntry> = Vec::new();
    let mut below: Option<PrepareHeader> = None;
    for word in words.iter().rev() {
        let present = word.ends_with('P');
        let nack = word.ends_with('n');
        let core = word.trim_end_matches(['P', 'n']);
        let letter = core.as_bytes()[0];
        let (op, commit) = core[1..].split_once('c').unwrap_or((&core[1..], "0"));
        let (op, commit) = (
            op.parse().expect("an op"),
            commit.parse().expect("a commit"),
        );
        let header = match letter {
            b'_' => None,
            b'a' if commit == 0 => Some(a(op)),
            _ => {
                let parent = below.map(|below| below.frame.checksum());
                let parent = parent.unwrap_or_else(|| a(op - 1).frame.checksum());
                Some(prepare(letter, op, commit, parent))
            }
        };
        below = header;
        entries.push(VoteEntry {
            header,
            nack,
            present,
        });
    }
    entries.reverse();
    Vote {
        replica: ReplicaId(replica),
        log_view: View(numbers[0] as u32),
        op: Op(numbers[1]),
        commit: Op(numbers[2]),
        entries,
    }
}

fn outcome(count: u8, votes: &[&str]) -> String {
    let votes: Vec<Vote> = votes
        .iter()
        .enumerate()
        .map(|(replica, text)| vote(replica as u8, text))
        .collect();
    let name = |header: &PrepareHeader| {
        let op = header.op().0;
        let is_a = op > 0 && a(op).frame.checksum() == header.frame.checksum();
        format!("{}{op}", if is_a { "a" } else { "b" })
    };
    match merge(&votes, count, Op(0)) {
        Merge::Decided(merged) => {
            let headers: Vec<String> = merged.headers.iter().map(name).collect();
            let extras: Vec<String> = merged.extras.iter().map(name).collect();
            let mut text = format!(
                "head {} commit {} [{}]",
                merged.head,
                merged.commit,
                headers.join(" ")
            );
            if !extras.is_empty() {
                text += &format!(" extras [{}]", extras.join(" "));
            }
            text
        }
        Merge::Await { op } => format!("await {op}"),
        Merge::Deadlock { op } => format!("deadlock {op}"),
    }
}

fn check(name: &str, count: u8, votes: &[&str], expected: &str) {
    assert_eq!(outcome(count, votes), expected, "{name}: {votes:?}");
    // Who cast which vote does not matter, nor in which order they came.
    for order in support::orders::orders(votes.len()) {
        let turned: Vec<&str> = order.iter().map(|index| votes[*index]).collect();
        assert_eq!(outcome(count, &turned), expected, "{name}: {turned:?}");
    }
}

#[test]
fn table_of_the_specification() {
    let agree = "1/5/3 [a5P a4P a3P]";
    check("agree", 3, &[agree, agree], "head 5 commit 3 [a5 a4 a3]");
    let denied = "1/4/2 [_4n a3P a2P]";
    check(
        "nack quorum",
        3,
        &[denied, denied],
        "head 3 commit 2 [a3 a2]",
    );
    check(
        "one nack",
        3,
        &[denied, "1/4/2 [a4P a3P a2P]"],
        "head 4 commit 2 [a4 a3 a2]",
    );
    check(
        "short log",
        3,
        &["1/3/2 [a3P a2P]", denied],
        "head 3 commit 2 [a3 a2]",
    );
    let header_only = "1/4/3 [a4 a3P]";
    check(
        "header only",
        3,
        &[header_only, header_only],
        "head 3 commit 3 [a3]",
    );
    let blank = "1/4/3 [_4n a3P]";
    check(
        "header only and nack",
        3,
        &[header_only, blank],
        "head 3 commit 3 [a3]",
    );
    check("empty suffix", 3, &["1/4/3 []", blank], "await 4");
}

#[test]
fn table_of_the_specification_where_votes_disagree() {
    let (one, other) = ("2/4/3 [a4P a3P]", "2/4/3 [b4P a3P]");
    check("conflict", 3, &[one, other], "await 4");
    check("conflict, all votes", 3, &[one, other, one], "deadlock 4");
    check(
        "older log view",
        3,
        &["1/5/2 [b5P b4P b3P a2P]", "2/3/2 [a3P a2P]"],
        "head 3 commit 2 [a3 a2]",
    );
    check(
        "committed elsewhere",
        3,
        &["1/6/4 [a6P a5P a4P]", "2/7/5 [a7P a6P a5P]"],
        "head 7 commit 5 [a7 a6 a5] extras [a4]",
    );
}

#[test]
fn table_of_the_specification_at_the_commit_point() {
    let (blank, lost) = ("1/4/3 [_4n a3P]", "1/3/3 [_3n]");
    let compacted = "1/5/5 [_5]";
    check(
        "blank commit point",
        3,
        &[compacted, compacted, compacted],
        "deadlock 5",
    );
    check(
        "blank commit point, peer",
        3,
        &[compacted, "1/5/5 [a5P]"],
        "head 5 commit 5 [a5]",
    );
    let knowing = "1/5/3 [a5c4P a4P a3P]";
    check(
        "commit field of the head",
        3,
        &[knowing, knowing],
        "head 5 commit 4 [b5 a4]",
    );
    check("all deny the commit point", 3, &[lost, lost], "deadlock 3");
    check(
        "two nodes, one nack",
        2,
        &[blank, "1/4/3 [a4P a3P]"],
        "head 3 commit 3 [a3]",
    );
    let (short, long) = ("1/3/3 [a3P]", "1/4/3 [a4P a3P]");
    check(
        "five nodes, two nacks",
        5,
        &[blank, short, long],
        "head 4 commit 3 [a4 a3]",
    );
    check(
        "five nodes, three nacks",
        5,
        &[blank, short, short],
        "head 3 commit 3 [a3]",
    );
    check(
        "nothing",
        3,
        &["0/0/0 []", "0/0/0 []"],
        "head 0 commit 0 []",
    );
}

/// H19: two canonical votes that disagree are a corruption. Neither is a denial of the other.
#[test]
fn canonical_votes_that_disagree_do_not_deny_each_other() {
    check(
        "corrupted header",
        3,
        &["1/4/3 [b4P a3P]", "1/4/3 [a4P a3P]"],
        "await 4",
    );
    let votes = ["1/4/3 [b4P a3P]", "1/4/3 [a4P a3P]", "1/4/3 [a4P a3P]"];
    check("corrupted header, all votes", 3, &votes, "deadlock 4");
}

/// H21: committed entries below the canonical window are taken only on the word of the chain.
#[test]
fn committed_claims_below_the_window_need_the_chain() {
    let canonical = "2/7/5 [a7P a6P a5P]";
    check(
        "impostor",
        3,
        &["1/6/4 [a6P a5P b4P]", canonical],
        "head 7 commit 5 [a7 a6 a5]",
    );
    let votes = ["1/6/4 [a6P a5P a4P]", canonical, "1/6/4 [a6P a5P b4P]"];
    check("two claims", 3, &votes, "deadlock 4");
}

/// H16: the lowest op of a suffix says nothing about commits.
#[test]
fn lowest_op_of_a_suffix_is_no_evidence_of_commit() {
    let low = "1/5/0 [a5P a4P a3P]";
    check("clamped", 3, &[low, low], "await 1");
    let whole = "1/3/0 [a3P a2P a1P]";
    let denied = "1/3/0 [_3n _2n _1n]";
    check(
        "nothing committed",
        3,
        &[denied, denied],
        "head 0 commit 0 []",
    );
    check("kept", 3, &[whole, denied], "head 3 commit 0 [a3 a2 a1]");
}

/// A voter that lost its entry keeps silent about it, and silence of the canonical log is no
/// denial by it: what an older vote holds there may be what was committed.
#[test]
fn silence_of_the_canonical_log_is_no_denial() {
    let (damaged, older) = ("2/5/3 [_5 a4P a3P]", "1/5/3 [a5P a4P a3P]");
    check(
        "two nodes",
        2,
        &[damaged, older],
        "head 5 commit 3 [a5 a4 a3]",
    );
    check("one vote missing", 3, &[damaged, older], "await 5");
    check(
        "all votes",
        3,
        &[damaged, older, older],
        "head 5 commit 3 [a5 a4 a3]",
    );
    // The prepare above names what was lost.
    let below = "2/5/3 [a5P _4 a3P]";
    check(
        "named from above",
        3,
        &[below, older],
        "head 5 commit 3 [a5 a4 a3]",
    );
    let superseded = "1/5/3 [b5P b4P a3P]";
    check(
        "named, and it is another",
        2,
        &[below, superseded],
        "head 3 commit 3 [a3]",
    );
    // What does not stand on the canonical log is none of it.
    let off = "1/5/3 [b5P b4P a3P]";
    check(
        "off the chain",
        3,
        &[damaged, off, "1/4/3 [a4P a3P]"],
        "head 4 commit 3 [a4 a3]",
    );
}

#[test]
fn suffix_of_a_peer_cannot_make_the_merge_overflow() {
    let max = u64::MAX;
    let far = format!("1/{max}/{max} []");
    let votes: Vec<Vote> = vec![vote(0, &far), vote(1, "0/0/0 []")];
    assert!(matches!(merge(&votes, 3, Op(0)), Merge::Await { .. }));
    let near = format!("1/{max}/0 []");
    let votes: Vec<Vote> = vec![vote(0, &near), vote(1, "0/0/0 []")];
    assert_eq!(merge(&votes, 3, Op(0)), Merge::Await { op: Op(max - 127) });
}
