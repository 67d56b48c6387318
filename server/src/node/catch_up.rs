//! Says how far this node is with catching up, and why it is not when nothing moves.
//!
//! A replica that was away repairs its journals and pulls state, group by group. Every few
//! seconds the log says what is under way: phase, artifact, bytes or operations done and to do,
//! rate, estimate. A group that is behind and has not moved for a minute is named at warn level,
//! with what went wrong last, once a minute.

use std::collections::BTreeMap;
use std::fmt;

use biplane_journal::DiskError;
use biplane_repair as repair;
use biplane_state_transfer as transfer;
use biplane_wire::GroupId;
use serde::Serialize;
use tracing::{info, warn};

use super::Node;

/// Ticks between two looks.
const LOOK_TICKS: u64 = 100;
/// Looks between two lines about one group.
const SAY_LOOKS: u64 = 5;
/// Ticks without a move after which a group is stuck, and between two warnings.
const STUCK_TICKS: u64 = 6_000;
/// Groups named one by one; the rest is counted.
const NAMED_MAX: usize = 8;

/// What a group that is behind is doing about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatchUp {
    /// The group.
    pub(crate) group: GroupId,
    /// Highest operation applied here.
    pub(crate) applied: u64,
    /// Highest operation known to be committed.
    pub(crate) committed: u64,
    /// Its journal repair, if one runs.
    pub(crate) repair: Option<repair::Progress>,
    /// Its state transfer, if one runs.
    pub(crate) transfer: Option<transfer::Progress>,
    /// How the last attempt ended, where it did not succeed.
    pub(crate) trouble: Option<String>,
}

impl CatchUp {
    /// What changes when it gets on.
    fn point(&self) -> (u64, u64, u64) {
        let stored = self.repair.map_or(0, |repair| repair.stored);
        let received = self
            .transfer
            .map_or(0, |transfer| transfer.bytes_done + transfer.bytes_received);
        (self.applied, stored, received)
    }

    /// What is under way, in numbers.
    pub(crate) fn work(&self) -> Option<Work> {
        let (kind, peer, phase, unit, done, total, per_second) = match (self.transfer, self.repair)
        {
            (Some(transfer), _) => (
                "transfer",
                transfer.peer,
                format!(
                    "{:?}, artifact {} of {}",
                    transfer.stage, transfer.artifact, transfer.artifacts
                ),
                "bytes",
                transfer.bytes_done,
                transfer.bytes_total,
                transfer.bytes_per_second(),
            ),
            (None, Some(repair)) => (
                "repair",
                repair.peer,
                format!("operations {} to {}", repair.from, repair.to),
                "operations",
                repair.at.0.saturating_sub(repair.from.0),
                (repair.to.0 + 1).saturating_sub(repair.from.0),
                repair.ops_per_second(),
            ),
            (None, None) => return None,
        };
        Some(Work {
            kind,
            peer: peer.0,
            phase,
            unit,
            done,
            total,
            per_second,
            seconds_left: total.saturating_sub(done).checked_div(per_second),
        })
    }
}

/// A repair or a transfer in numbers, for the log and for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Work {
    /// `repair` or `transfer`.
    pub(crate) kind: &'static str,
    /// The replica that serves it.
    pub(crate) peer: u8,
    /// What of it is being done.
    pub(crate) phase: String,
    /// `operations` or `bytes`.
    pub(crate) unit: &'static str,
    /// How many of them are here.
    pub(crate) done: u64,
    /// How many there are.
    pub(crate) total: u64,
    /// How many came in a second.
    pub(crate) per_second: u64,
    /// Seconds it will take at that rate, if there is one.
    pub(crate) seconds_left: Option<u64>,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            peer,
            phase,
            unit,
            done,
            total,
            per_second,
            ..
        } = self;
        write!(
            f,
            "{kind} from replica {peer}: {phase}, {done} of {total} {unit}, {per_second} a second"
        )?;
        match self.seconds_left {
            Some(seconds) => write!(f, ", about {seconds} s left"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op {} of {}", self.applied, self.committed)?;
        match self.work() {
            Some(work) => write!(f, ", {work}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Seen {
    since: u64,
    moved: u64,
    point: (u64, u64, u64),
    warned: Option<u64>,
    looks: u64,
    /// A line said that it catches up; another one will say that it has.
    announced: bool,
}

/// What to say of it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Say {
    Nothing,
    Progress,
    Stuck { seconds: u64 },
}

/// What was seen of the groups that are behind.
#[derive(Debug, Default)]
pub(crate) struct CatchUps(BTreeMap<GroupId, Seen>);

impl CatchUps {
    fn look(&mut self, found: &CatchUp, now: u64) -> Say {
        let point = found.point();
        let seen = self.0.entry(found.group).or_insert(Seen {
            since: now,
            moved: now,
            point,
            warned: None,
            looks: 0,
            announced: false,
        });
        if seen.point != point {
            (seen.point, seen.moved, seen.warned) = (point, now, None);
        }
        seen.looks += 1;
        let is_busy = found.repair.is_some() || found.transfer.is_some();
        let still = now - seen.moved;
        if still >= STUCK_TICKS && seen.warned.is_none_or(|at| now - at >= STUCK_TICKS) {
            seen.warned = Some(now);
            return Say::Stuck {
                seconds: still / 100,
            };
        }
        if is_busy && seen.looks.is_multiple_of(SAY_LOOKS) {
            seen.announced = true;
            return Say::Progress;
        }
        Say::Nothing
    }

    /// Forgets the groups that are not behind any more; those of which a line was said, with the
    /// ticks it took.
    fn ended(&mut self, lagging: &[CatchUp], now: u64) -> Vec<(GroupId, u64)> {
        let mut ended = Vec::new();
        self.0.retain(|group, seen| {
            let is_behind = lagging
                .binary_search_by_key(group, |found| found.group)
                .is_ok();
            if !is_behind && seen.announced {
                ended.push((*group, now - seen.since));
            }
            is_behind
        });
        ended
    }
}

/// What keeps a group from going on: a log without room comes before how a repair ended.
fn trouble(no_room: Option<&DiskError>, last: Option<&str>) -> Option<String> {
    match no_room {
        Some(error) => Some(format!("the disk is full, the log waits for room: {error}")),
        None => last.map(str::to_owned),
    }
}

impl Node {
    /// What the metadata group is doing about being behind.
    pub(super) fn metadata_catch_up(&self) -> CatchUp {
        CatchUp {
            group: GroupId::METADATA,
            applied: self.metadata.commit_min().0,
            committed: self.metadata.commit_max().0,
            repair: self.metadata.repair_progress(),
            transfer: self.metadata.transfer_progress(),
            trouble: trouble(self.metadata.no_room(), self.metadata.trouble()),
        }
    }

    /// The same of a partition.
    pub(super) fn partition_catch_up(&self, group: GroupId) -> CatchUp {
        let status = self.partitions.status(group);
        CatchUp {
            group,
            applied: status.map_or(0, |status| status.commit_min.0),
            committed: status.map_or(0, |status| status.commit_max.0),
            repair: self.partitions.repair_progress(group),
            transfer: self.partitions.transfer_progress(group),
            trouble: trouble(
                self.partitions.no_room(group),
                self.partitions.trouble(group),
            ),
        }
    }

    /// The groups that are behind, ascending.
    fn catching_up(&self) -> Vec<CatchUp> {
        let metadata = self.metadata.is_lagging().then(|| self.metadata_catch_up());
        let partitions = self.partitions.lagging();
        let partitions = partitions.map(|group| self.partition_catch_up(group));
        let mut found: Vec<CatchUp> = metadata.into_iter().chain(partitions).collect();
        found.sort_unstable_by_key(|found| found.group);
        found
    }

    pub(super) fn report_catch_up(&mut self) {
        if self.mesh.is_none() || !self.tick.is_multiple_of(LOOK_TICKS) {
            return;
        }
        let lagging = self.catching_up();
        let (mut named, mut unnamed) = (0, 0);
        for found in &lagging {
            match self.catch_ups.look(found, self.tick) {
                Say::Nothing => {}
                Say::Progress if named < NAMED_MAX => {
                    named += 1;
                    info!(group = %found.group, "catching up: {found}");
                }
                Say::Stuck { seconds } if named < NAMED_MAX => {
                    named += 1;
                    let reason = found.trouble.as_deref().unwrap_or(
                        "no peer that has what is missing answers; are enough nodes up and \
                         connected?",
                    );
                    warn!(
                        group = %found.group,
                        "behind and without progress for {seconds} s: {found}: {reason}"
                    );
                }
                Say::Progress | Say::Stuck { .. } => unnamed += 1,
            }
        }
        if unnamed > 0 {
            info!("and {unnamed} more groups are catching up");
        }
        let ended = self.catch_ups.ended(&lagging, self.tick);
        for (group, ticks) in ended.iter().take(NAMED_MAX) {
            info!(%group, "caught up after {} s", ticks / 100);
        }
        if let Some(more) = ended.len().checked_sub(NAMED_MAX + 1) {
            info!("and {} more groups have caught up", more + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::ReplicaId;

    use super::*;

    fn behind(applied: u64) -> CatchUp {
        CatchUp {
            group: GroupId(7),
            applied,
            committed: 100,
            repair: None,
            transfer: None,
            trouble: None,
        }
    }

    fn pulling(bytes_done: u64) -> CatchUp {
        CatchUp {
            transfer: Some(transfer::Progress {
                stage: transfer::Stage::Fetching,
                peer: ReplicaId(1),
                artifact: 2,
                artifacts: 5,
                bytes_done,
                bytes_total: 4_000,
                bytes_received: bytes_done,
                ticks: 100,
            }),
            ..behind(3)
        }
    }

    #[test]
    fn progress_is_said_every_few_looks_and_the_end_once() {
        let mut seen = CatchUps::default();
        let said: Vec<Say> = (1..=10)
            .map(|look| seen.look(&pulling(look * 10), look * LOOK_TICKS))
            .collect();
        let progress = |say: &&Say| **say == Say::Progress;
        assert_eq!(said.iter().filter(progress).count(), 2, "{said:?}");
        assert_eq!(seen.ended(&[pulling(1)], 1_100), []);
        assert_eq!(seen.ended(&[], 1_200), [(GroupId(7), 1_100)]);
        assert_eq!(seen.ended(&[], 1_300), []);
    }

    #[test]
    fn a_group_that_does_not_move_is_warned_of_once_a_minute_until_it_does() {
        let mut seen = CatchUps::default();
        let mut warned = Vec::new();
        for tick in (LOOK_TICKS..=2 * STUCK_TICKS + LOOK_TICKS).step_by(LOOK_TICKS as usize) {
            if let Say::Stuck { seconds } = seen.look(&behind(3), tick) {
                warned.push(seconds);
            }
        }
        assert_eq!(warned, [60, 120]);
        let next = 2 * STUCK_TICKS + 2 * LOOK_TICKS;
        assert_eq!(seen.look(&behind(4), next + STUCK_TICKS), Say::Nothing);
    }

    #[test]
    fn a_line_names_phase_amounts_rate_and_estimate() {
        assert_eq!(
            pulling(1_000).to_string(),
            "op 3 of 100, transfer from replica 1: Fetching, artifact 2 of 5, 1000 of 4000 bytes, \
             1000 a second, about 3 s left"
        );
        assert_eq!(behind(3).to_string(), "op 3 of 100");
        assert_eq!(behind(3).work(), None);
    }
}
