//! What stands on a disk is what its node stands for: recorded log views, and records of which a
//! node gave its word.

use std::ops::Range;

use biplane_journal::DiskPath;
use biplane_vsr::{Durability, Status};
use biplane_wire::{Checksum, GroupId, Message, Op, Operation, StartViewHeader, Suffix, Typed};

use super::{Promises, key};
use crate::oracle::{GroupKey, Look, Violation};

/// A record that was acknowledged and may be the only proof of it, and where it stands.
#[derive(Clone, Debug)]
pub struct OpenRecord {
    /// Its group.
    pub key: GroupKey,
    /// Its op.
    pub op: Op,
    /// Its identity.
    pub identity: Checksum,
    /// The log file.
    pub path: DiskPath,
    /// Its bytes there.
    pub bytes: Range<usize>,
}

/// Records at the end of a log that are spared.
const SPARED: usize = 4;

/// An op that a view starts with and that is not known to be committed: its number, identity
/// and operation.
pub(super) type Announced = (Op, Checksum, Operation);

impl Promises {
    /// Remembers what a view started with.
    pub(super) fn announce(&mut self, look: Look<'_>, message: &Message) {
        let Ok(frame) = Typed::<StartViewHeader>::decode(message.clone()) else {
            return;
        };
        let header = frame.header();
        let facts = look
            .machine
            .and_then(|machine| machine.facts(header.group()));
        let (Some(facts), Ok(suffix)) = (facts, Suffix::of_start_view(&frame)) else {
            return;
        };
        let place = (key(&facts, header.group()), header.frame.view());
        self.announced.entry(place).or_insert_with(|| {
            let named = suffix.iter().filter_map(|entry| entry.header);
            let open = named.filter(|named| named.op() > header.commit());
            open.map(|named| (named.op(), named.frame.checksum(), named.operation()))
                .collect()
        });
    }

    /// A log view on the disk says: this replica worked in that view, and what is not committed
    /// of the log it started with is here. A restart takes it at its word.
    ///
    /// # Errors
    ///
    /// A record of a view that is still being formed, or of a log that is not on the disk.
    pub(super) fn log_view(&mut self, look: Look<'_>, group: GroupId) -> Result<(), Violation> {
        const ORACLE: &str = "O3 log view is held";
        let Some(machine) = look.machine else {
            return Ok(());
        };
        let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group)) else {
            return Ok(());
        };
        let durable = self.reader.views(look.node, look.disk, &facts.superblock);
        let node = look.node;
        if replica.status().status == Status::ViewChange && durable.log_view >= replica.view() {
            let view = replica.view();
            let text = format!("n{node} has not started view {view}; its disk has {durable:?}");
            return Err(Violation::new(ORACLE, group, text));
        }
        // Who led it goes on writing while it announces; the first view starts with nothing.
        let count = replica.config().replica_count;
        let has_led = durable.log_view.primary(count).0 == node;
        if has_led || durable.log_view <= facts.first_view {
            return Ok(());
        }
        if replica.status().log_view != durable.log_view {
            // Another log is being taken on already, and what this one had may be gone.
            return Ok(());
        }
        let place = (key(&facts, group), durable.log_view);
        let open = self.announced.get(&place).cloned().unwrap_or_default();
        for (op, identity, operation) in open {
            // What went bad later is known to be missing, and never denied: the disk says so until
            // what was fetched in its place is written.
            let bad = (node, place.0, op, identity);
            let is_bad = replica.log().is_damaged(op)
                || self.went_bad.contains(&bad) && !replica.log().is_durable(op);
            let is_owed = op > replica.commit_max()
                && !is_bad
                && machine.durability(group, operation) == Durability::Disk;
            if !is_owed {
                continue;
            }
            self.log_views_checked += 1;
            if !self.holds_durably(look, group, (op, identity)) {
                let text = format!(
                    "n{node} recorded {durable:?}; that log has op {op} ({:016x}), its disk not",
                    identity.0
                );
                return Err(Violation::new(ORACLE, group, text));
            }
        }
        Ok(())
    }

    /// What a node acknowledged durably and nobody may have told it to be committed, with
    /// another record behind it: damage there is no torn tail. Only ops for which `owns` holds.
    #[must_use]
    pub fn open_records(
        &mut self,
        look: Look<'_>,
        owns: impl Fn(GroupId, Op) -> bool,
    ) -> Vec<OpenRecord> {
        let mut found = Vec::new();
        let Some(machine) = look.machine else {
            return found;
        };
        for group in machine.groups() {
            let (Some(replica), Some(facts)) = (machine.replica(group), machine.facts(group))
            else {
                continue;
            };
            let Some((path, overhead)) = &facts.prepare_log else {
                continue;
            };
            let Some(given) = self.given.get(&(look.node, key(&facts, group))) else {
                continue;
            };
            for (&op, &identity) in given.range(replica.commit_max().next()..) {
                let place =
                    self.reader
                        .place(look.node, look.disk, path, *overhead, (op, identity));
                if let Some(bytes) = place.filter(|_| owns(group, op)) {
                    let path = path.clone();
                    found.push(OpenRecord {
                        key: key(&facts, group),
                        op,
                        identity,
                        path,
                        bytes,
                    });
                }
            }
        }
        found
    }

    /// What stands in the logs of a node, each record with others behind it: what happens to one
    /// of these is no torn tail. Only ops for which `owns` holds.
    pub fn inner_records(
        &mut self,
        look: Look<'_>,
        owns: impl Fn(GroupId, Op) -> bool,
    ) -> Vec<OpenRecord> {
        let mut found = Vec::new();
        let Some(machine) = look.machine else {
            return found;
        };
        for group in machine.groups() {
            let Some(facts) = machine.facts(group) else {
                continue;
            };
            let Some((path, overhead)) = &facts.prepare_log else {
                continue;
            };
            let records = self.reader.records(look.node, look.disk, path, *overhead);
            let mut ends: Vec<usize> = records.iter().map(|it| it.2.end).collect();
            ends.sort_unstable();
            // An unreadable sector may hold the headers of as many records as begin in it.
            let behind = ends.iter().rev().nth(SPARED).copied().unwrap_or(0);
            let inner = records
                .into_iter()
                .filter(|(op, _, bytes)| bytes.end <= behind && owns(group, *op));
            found.extend(inner.map(|(op, identity, bytes)| OpenRecord {
                key: key(&facts, group),
                op,
                identity,
                path: path.clone(),
                bytes,
            }));
        }
        found
    }

    /// A record goes bad. It was held when it was acknowledged, and counts if it commits by that.
    pub fn damaged(&mut self, node: u8, record: &OpenRecord) {
        let place = (record.key, record.op, record.identity);
        self.from_memory.entry(place).or_default().insert(node);
        let bad = (node, record.key, record.op, record.identity);
        self.went_bad.insert(bad);
    }
}
