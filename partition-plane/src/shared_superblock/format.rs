//! The bytes of the shared superblock: batches of changes, one behind the other, each with a
//! checksum of its own.

use std::collections::BTreeMap;

use biplane_wire::{GroupId, View, xxh3};

use super::{Change, Line};
use crate::recovery::NodeIdentity;

const MAGIC: &[u8; 8] = b"bipldorm";
const HEAD: usize = 40;
const ENTRY: usize = 32;
const TAIL: usize = 8;
const KEEP: u8 = 1;
const DROP: u8 = 2;

/// Changes of one batch at most.
pub(super) const CHANGES_MAX: usize = 1 << 20;

/// Why a file cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("batch {batch} at byte {at} is damaged")]
    Damaged { batch: u64, at: usize },
    #[error("it belongs to another replica, cluster or cluster size")]
    Foreign,
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) lines: BTreeMap<GroupId, Line>,
}

/// One batch.
pub(super) fn encode(identity: NodeIdentity, batch: u64, changes: &[Change]) -> Vec<u8> {
    assert!(changes.len() <= CHANGES_MAX, "a batch has a limit");
    let mut out = Vec::with_capacity(HEAD + changes.len() * ENTRY + TAIL);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&batch.to_le_bytes());
    out.extend_from_slice(&identity.cluster.0.to_le_bytes());
    out.extend_from_slice(&[identity.replica.0, identity.replica_count, 0, 0]);
    let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for change in changes {
        let (kind, line) = match change.line {
            Some(line) => (KEEP, line),
            None => (DROP, Line::default()),
        };
        out.extend_from_slice(&change.group.0.to_le_bytes());
        out.extend_from_slice(&change.revision.to_le_bytes());
        out.extend_from_slice(&line.view.0.to_le_bytes());
        out.extend_from_slice(&line.log_view.0.to_le_bytes());
        out.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    }
    out.extend_from_slice(&xxh3(&out).to_le_bytes());
    out
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

/// The whole batch that `bytes` begin with, its number and its entries.
fn whole(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let number = u64_at(bytes, 8)?;
    let count = usize::try_from(u32_at(bytes, 36)?).ok()?;
    if count > CHANGES_MAX {
        return None;
    }
    let end = HEAD + count * ENTRY;
    (xxh3(bytes.get(..end)?) == u64_at(bytes, end)?)
        .then(|| (number, &bytes[..HEAD], &bytes[HEAD..end]))
}

fn change(entry: &[u8]) -> Option<Change> {
    let group = GroupId(u64_at(entry, 0)?);
    let revision = u64_at(entry, 8)?;
    let line = Line {
        revision,
        view: View(u32_at(entry, 16)?),
        log_view: View(u32_at(entry, 20)?),
    };
    let line = match entry[24] {
        KEEP if line.log_view <= line.view => Some(line),
        DROP => None,
        _ => return None,
    };
    Some(Change {
        group,
        revision,
        line,
    })
}

/// Reads a file. A last batch that is not whole was never answered and does not count; one with
/// a whole batch behind it is damage, and then nothing in the file can be believed: what it
/// promised may have been said to others.
pub(super) fn decode(bytes: &[u8], identity: NodeIdentity) -> Result<Found, FormatError> {
    let mut lines: BTreeMap<GroupId, Line> = BTreeMap::new();
    let (mut at, mut batch) = (0, 0);
    while at < bytes.len() {
        let damaged = FormatError::Damaged { batch, at };
        let Some((number, head, entries)) = whole(&bytes[at..]) else {
            let follows = (at + 1..bytes.len()).any(|next| whole(&bytes[next..]).is_some());
            // The first batch replaces its file in one step, so it is never torn.
            if follows || batch == 0 {
                return Err(damaged);
            }
            break;
        };
        let (cluster, members) = head[16..].split_at(16);
        let own = [identity.replica.0, identity.replica_count, 0, 0];
        if cluster != identity.cluster.0.to_le_bytes() || members[..4] != own {
            return Err(FormatError::Foreign);
        }
        if number != batch {
            return Err(damaged);
        }
        for entry in entries.chunks_exact(ENTRY) {
            let Some(change) = change(entry) else {
                return Err(damaged);
            };
            match change.line {
                Some(line) => drop(lines.insert(change.group, line)),
                // Of another incarnation, the line is not the one that was taken back.
                None => lines.retain(|group, line| {
                    *group != change.group || line.revision != change.revision
                }),
            }
        }
        at += HEAD + entries.len() + TAIL;
        batch += 1;
    }
    Ok(Found { lines })
}

#[cfg(test)]
mod tests {
    use biplane_wire::{ClusterId, ReplicaId};

    use super::*;

    const OWN: NodeIdentity = NodeIdentity {
        cluster: ClusterId(0xC1),
        replica: ReplicaId(1),
        replica_count: 3,
    };

    fn keep(group: u64, revision: u64, view: u32, log_view: u32) -> Change {
        Change {
            group: GroupId(group),
            revision,
            line: Some(Line {
                revision,
                view: View(view),
                log_view: View(log_view),
            }),
        }
    }

    fn take_back(group: u64, revision: u64) -> Change {
        Change {
            group: GroupId(group),
            revision,
            line: None,
        }
    }

    fn file() -> Vec<u8> {
        let batches = [
            vec![keep(1, 10, 2, 2), keep(2, 11, 2, 2), keep(3, 12, 2, 2)],
            vec![keep(2, 11, 5, 2), take_back(3, 12)],
            vec![take_back(1, 9)],
        ];
        let encoded = batches.iter().zip(0..);
        encoded
            .flat_map(|(changes, batch)| encode(OWN, batch, changes))
            .collect()
    }

    #[test]
    fn later_changes_stand_and_lines_of_another_incarnation_stay() {
        let found = decode(&file(), OWN).unwrap();
        let views: Vec<_> = found
            .lines
            .iter()
            .map(|(group, line)| (group.0, line.revision, line.view.0, line.log_view.0))
            .collect();
        assert_eq!(views, [(1, 10, 2, 2), (2, 11, 5, 2)]);
    }

    #[test]
    fn a_torn_last_batch_does_not_count_and_nothing_else_is_forgiven() {
        let bytes = file();
        let last = bytes.len() - (HEAD + ENTRY + TAIL);
        for cut in last..bytes.len() {
            let found = decode(&bytes[..cut], OWN).unwrap();
            assert_eq!(found.lines.len(), 2, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let read = decode(&bytes, OWN);
            assert_eq!(read.is_ok(), at >= last, "flip at {at}: {read:?}");
        }
        let first = HEAD + 3 * ENTRY + TAIL;
        assert!(decode(&bytes[..first - 1], OWN).is_err(), "never torn");
        assert!(decode(&bytes[first..], OWN).is_err(), "a batch is missing");
        assert!(decode(&[], OWN).unwrap().lines.is_empty());
    }

    #[test]
    fn the_file_of_another_node_is_refused() {
        for other in [
            NodeIdentity {
                replica: ReplicaId(2),
                ..OWN
            },
            NodeIdentity {
                replica_count: 5,
                ..OWN
            },
            NodeIdentity {
                cluster: ClusterId(0xC2),
                ..OWN
            },
        ] {
            assert_eq!(decode(&file(), other), Err(FormatError::Foreign));
        }
    }
}
