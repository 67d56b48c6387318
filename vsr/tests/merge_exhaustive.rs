//! The merge against every small history.
//!
//! A brute-force model plays all short lives of a group of three: in each of two views some
//! primary prepares up to two ops on top of a committed one, each replica takes them or not,
//! and a replica may enter the second view with or without its bodies. From what each replica
//! then has, its vote follows. For every history and every set of votes that is a quorum:
//!
//! * what a replication quorum acknowledged is never dropped and never replaced;
//! * with all votes in, the outcome is a decision;
//! * whatever is decided can be served by somebody who voted.

mod support;

use biplane_vsr::suffix_merge::{Merge, Vote, VoteEntry, merge};
use biplane_wire::{Checksum, Op, PrepareHeader, ReplicaId, View};
use support::frames::{self, PrepareParts};

const COUNT: u8 = 3;
const QUORUM: usize = 2;

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

/// What one replica has for one op.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    Nothing,
    /// The name, from an announcement.
    Name(PrepareHeader),
    Body(PrepareHeader),
    /// A body that cannot be read any more.
    Damaged(PrepareHeader),
}

impl Has {
    fn body(self) -> Option<PrepareHeader> {
        match self {
            Has::Body(header) | Has::Damaged(header) => Some(header),
            Has::Nothing | Has::Name(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    log_view: u32,
    /// Ops 2 and 3; op 1 is committed and held by all.
    has: [Has; 2],
}

impl Member {
    fn head(&self) -> u64 {
        (0..2)
            .rev()
            .find(|slot| self.has[*slot] != Has::Nothing)
            .map_or(1, |slot| slot as u64 + 2)
    }

    fn vote(&self, replica: u8, first: PrepareHeader) -> Vote {
        let head = self.head();
        let mut entries = Vec::new();
        for op in (2..=head).rev() {
            entries.push(match self.has[op as usize - 2] {
                Has::Nothing => VoteEntry {
                    header: None,
                    nack: true,
                    present: false,
                },
                Has::Damaged(_) => VoteEntry {
                    header: None,
                    nack: false,
                    present: false,
                },
                Has::Name(header) => VoteEntry {
                    header: Some(header),
                    nack: false,
                    present: false,
                },
                Has::Body(header) => VoteEntry {
                    header: Some(header),
                    nack: false,
                    present: true,
                },
            });
        }
        entries.push(VoteEntry {
            header: Some(first),
            nack: false,
            present: true,
        });
        Vote {
            replica: ReplicaId(replica),
            log_view: View(self.log_view),
            op: Op(head),
            commit: Op(1),
            entries,
        }
    }
}

type Group = [Member; 3];

/// All ways in which the members can take ops of one log: a prefix of it each.
fn prefixes(length: usize) -> Vec<[usize; 3]> {
    let mut all = Vec::new();
    for a in 0..=length {
        for b in 0..=length {
            for c in 0..=length {
                all.push([a, b, c]);
            }
        }
    }
    all
}

/// Histories of the first view: a log of two ops, each member holding a prefix.
fn first_view(first: PrepareHeader) -> Vec<Group> {
    let two = header(10, 2, first.frame.checksum());
    let three = header(10, 3, two.frame.checksum());
    let log = [two, three];
    let member = |length: usize| Member {
        log_view: 1,
        has: std::array::from_fn(|slot| {
            if slot < length {
                Has::Body(log[slot])
            } else {
                Has::Nothing
            }
        }),
    };
    prefixes(2)
        .into_iter()
        .map(|lengths| lengths.map(member))
        .collect()
}

/// What follows when `primary` starts the second view from the votes of a quorum that merge
/// decided on: it may add an op, and every other member joins or not, with bodies or names.
fn second_view(group: Group, first: PrepareHeader) -> Vec<Group> {
    let mut all = Vec::new();
    for absent in 0..3_u8 {
        let voters: Vec<u8> = (0..3).filter(|member| *member != absent).collect();
        let votes: Vec<Vote> = voters
            .iter()
            .map(|member| group[usize::from(*member)].vote(*member, first))
            .collect();
        let Merge::Decided(merged) = merge(&votes, COUNT, Op(0)) else {
            continue;
        };
        let mut log: Vec<PrepareHeader> = merged.headers.iter().rev().skip(1).copied().collect();
        for adds in [false, true] {
            if adds && log.len() < 2 {
                let parent = log.last().unwrap_or(&first).frame.checksum();
                log.push(header(20, log.len() as u64 + 2, parent));
            } else if adds {
                continue;
            }
            for primary in &voters {
                all.extend(joins(group, usize::from(*primary), &log));
            }
        }
    }
    all
}

/// The primary has the log of the second view; each other member stays in the first view,
/// adopts the names, or adopts the log with a prefix of the bodies.
fn joins(group: Group, primary: usize, log: &[PrepareHeader]) -> Vec<Group> {
    let adopted = |member: Member, bodies: usize| Member {
        log_view: 2,
        has: std::array::from_fn(|slot| match log.get(slot) {
            None => Has::Nothing,
            Some(header) if slot < bodies => Has::Body(*header),
            Some(header) if member.has[slot] == Has::Body(*header) => member.has[slot],
            Some(header) => Has::Name(*header),
        }),
    };
    let mut base = group;
    base[primary] = adopted(group[primary], log.len());
    let others: Vec<usize> = (0..3).filter(|member| *member != primary).collect();
    let mut all = Vec::new();
    for first in 0..log.len() + 2 {
        for second in 0..log.len() + 2 {
            let mut next = base;
            for (choice, member) in [first, second].into_iter().zip(&others) {
                if choice > 0 {
                    next[*member] = adopted(group[*member], choice - 1);
                }
            }
            all.push(next);
        }
    }
    all
}

/// What is or may be committed: a quorum has the body and was in a view that had it in its log.
fn committed(group: &Group) -> Vec<PrepareHeader> {
    let mut found = Vec::new();
    for slot in 0..2 {
        for member in group {
            let Some(header) = member.has[slot].body() else {
                continue;
            };
            let holders = group
                .iter()
                .filter(|other| other.has[slot].body() == Some(header))
                .filter(|other| slot == 0 || other.has[0].body().is_some())
                .count();
            if holders >= QUORUM && !found.contains(&header) {
                found.push(header);
            }
        }
    }
    found
}

/// Held by a quorum under the highest log view that names anything there: not superseded.
fn is_current(group: &Group, header: &PrepareHeader) -> bool {
    let slot = header.op().0 as usize - 2;
    let highest = group.iter().map(|member| member.log_view).max();
    group
        .iter()
        .filter(|member| Some(member.log_view) == highest)
        .all(|member| match member.has[slot] {
            Has::Nothing => false,
            Has::Name(other) | Has::Body(other) | Has::Damaged(other) => other == *header,
        })
}

fn check(group: &Group, first: PrepareHeader, damaged: bool) {
    let committed: Vec<PrepareHeader> = committed(group)
        .into_iter()
        .filter(|header| is_current(group, header))
        .collect();
    for subset in 1..8_u8 {
        let voters: Vec<u8> = (0..3).filter(|member| subset >> member & 1 == 1).collect();
        if voters.len() < QUORUM {
            continue;
        }
        let votes: Vec<Vote> = voters
            .iter()
            .map(|member| group[usize::from(*member)].vote(*member, first))
            .collect();
        let outcome = merge(&votes, COUNT, Op(0));
        for order in support::orders::orders(votes.len()) {
            let turned: Vec<Vote> = order.iter().map(|index| votes[*index].clone()).collect();
            assert!(
                merge(&turned, COUNT, Op(0)) == outcome,
                "the order of the votes decides: {group:#?} {voters:?}"
            );
        }
        match outcome {
            Merge::Decided(merged) => {
                for header in &committed {
                    let kept = merged.at(header.op());
                    assert_eq!(kept, Some(header), "committed: {group:#?} {voters:?}");
                }
                for header in &merged.headers {
                    let served = votes.iter().any(|vote| {
                        vote.at(header.op()).is_some_and(|entry| {
                            entry.present && entry.header.as_ref() == Some(header)
                        })
                    });
                    assert!(served, "nobody has {header:?}: {group:#?} {voters:?}");
                }
            }
            Merge::Await { .. } => assert!(voters.len() < 3, "all votes are in: {group:#?}"),
            Merge::Deadlock { .. } => assert!(damaged, "a decision exists: {group:#?}"),
        }
    }
}

#[test]
fn every_small_history_keeps_what_was_committed() {
    let first = header(10, 1, Checksum::ZERO);
    let mut histories = 0;
    for group in first_view(first) {
        check(&group, first, false);
        for group in second_view(group, first) {
            check(&group, first, false);
            histories += 1;
        }
    }
    println!("{histories} histories");
    assert!(histories > 1000);
}

/// One member may have lost the readability of one body: at worst the votes do not suffice.
#[test]
fn one_damaged_entry_never_loses_what_was_committed() {
    let first = header(10, 1, Checksum::ZERO);
    let mut histories = 0;
    for group in first_view(first) {
        for group in second_view(group, first).into_iter().chain([group]) {
            for member in 0..3 {
                for slot in 0..2 {
                    let Has::Body(header) = group[member].has[slot] else {
                        continue;
                    };
                    let mut group = group;
                    group[member].has[slot] = Has::Damaged(header);
                    check(&group, first, true);
                    histories += 1;
                }
            }
        }
    }
    println!("{histories} histories");
    assert!(histories > 1000);
}
