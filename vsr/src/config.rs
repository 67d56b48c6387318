//! What a replica is told at its start: who it is, its limits, its intervals, and what the disk
//! held.
//!
//! Durations arrive in ticks; whoever reads the configuration file divides by the tick length.
//! The relations between values that chapter 03 section 5 demands are checked here once.

use biplane_wire::{Checksum, ClusterId, GroupId, Message, Op, ReplicaId, View};
use thiserror::Error;

use crate::constants::{PIPELINE_MAX, REPLICA_COUNT_MAX};
use crate::timeout::TimerName;

/// When a prepare goes on to the next replica of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// After the own append is durable (metadata plane).
    AfterDurable,
    /// At once; the own append runs meanwhile (partition plane).
    Immediately,
}

/// What stays the same for the life of a replica.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster; stamped on every frame, and frames of another are ignored.
    pub cluster: ClusterId,
    /// This replica, below `replica_count`.
    pub replica: ReplicaId,
    /// Members of the cluster, 1..=32.
    pub replica_count: u8,
    /// The group.
    pub group: GroupId,
    /// When prepares are passed on.
    pub forward: Forward,
    /// Whether a primary that forks its own log stops this replica (metadata) or the prepare is
    /// only dropped (partition).
    pub halt_on_fork: bool,
    /// Whether a client may have one message in pipeline and queue at most (metadata).
    pub single_in_flight: bool,
    /// Sizes.
    pub limits: Limits,
    /// Intervals in ticks.
    pub timers: Timers,
    /// Random per boot with the lowest bit set (metadata), or zero, which claims nothing.
    pub incarnation: u128,
    /// Seed of the retransmission jitter.
    pub seed: u64,
}

impl Config {
    /// Checks the values and their relations.
    ///
    /// # Errors
    ///
    /// The first relation that does not hold.
    pub fn validate(&self) -> Result<(), OpenError> {
        if self.replica_count == 0 || self.replica_count > REPLICA_COUNT_MAX {
            return Err(OpenError::ReplicaCount {
                count: self.replica_count,
            });
        }
        if self.replica.0 >= self.replica_count {
            return Err(OpenError::Replica {
                replica: self.replica,
                count: self.replica_count,
            });
        }
        self.limits.validate()?;
        self.timers.validate()
    }
}

/// Sizes a node chooses for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Prepares in flight, 1..=127. Keep it equal on all nodes: one with less may be unable to
    /// lead.
    pub prepare_queue: u16,
    /// Admitted requests that wait for a place among the prepares.
    pub request_queue: u16,
    /// Firings of the probe timer until an election is started instead, 1..=100.
    pub view_probe_attempts_max: u8,
    /// How far above the applied op a repaired prepare may lie. Bounds the memory a peer can
    /// make this replica set aside.
    pub repair_window: u32,
    /// Prepares above a gap that wait for it to be filled, at most; none on the metadata plane,
    /// where one client has one message in flight and a gap closes by itself.
    pub early_prepares: u16,
    /// Bytes of those, at most.
    pub early_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            prepare_queue: 32,
            request_queue: 64,
            view_probe_attempts_max: 5,
            repair_window: 16_384,
            early_prepares: 128,
            early_bytes: 16 << 20,
        }
    }
}

impl Limits {
    /// Everything small, so that tests run into every limit.
    #[must_use]
    pub const fn tiny() -> Self {
        Self {
            prepare_queue: 4,
            request_queue: 4,
            view_probe_attempts_max: 3,
            repair_window: 256,
            early_prepares: 6,
            early_bytes: 4 << 10,
        }
    }

    /// Checks the bounds.
    ///
    /// # Errors
    ///
    /// [`OpenError::Limit`] names the value.
    pub fn validate(&self) -> Result<(), OpenError> {
        if self.prepare_queue == 0 || u64::from(self.prepare_queue) > PIPELINE_MAX {
            return Err(OpenError::Limit {
                name: "prepare_queue",
                bounds: "1..=127",
            });
        }
        if !(1..=100).contains(&self.view_probe_attempts_max) {
            return Err(OpenError::Limit {
                name: "view_probe_attempts_max",
                bounds: "1..=100",
            });
        }
        if u64::from(self.repair_window) < 2 * PIPELINE_MAX {
            return Err(OpenError::Limit {
                name: "repair_window",
                bounds: "254..",
            });
        }
        Ok(())
    }
}

/// Intervals in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Until unacknowledged prepares are sent again.
    pub prepare: u32,
    /// Between heartbeats of a primary.
    pub commit: u32,
    /// Between heartbeats of a primary that has had nothing to say for a few of them: at least
    /// `commit`, at most a quarter of `heartbeat`.
    pub commit_idle: u32,
    /// Without a heartbeat until a backup acts.
    pub heartbeat: u32,
    /// Between view change messages of one kind.
    pub view_change_retransmit: u32,
    /// Until a view change is given up for the next one.
    pub view_change_status: u32,
    /// Between probes.
    pub request_start_view: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            prepare: 25,
            commit: 50,
            commit_idle: 50,
            heartbeat: 500,
            view_change_retransmit: 50,
            view_change_status: 500,
            request_start_view: 100,
        }
    }
}

impl Timers {
    /// Short ones in the proportions of the defaults, for tests.
    #[must_use]
    pub const fn tiny() -> Self {
        Self {
            prepare: 3,
            commit: 5,
            commit_idle: 5,
            heartbeat: 40,
            view_change_retransmit: 5,
            view_change_status: 50,
            request_start_view: 10,
        }
    }

    /// The same with heartbeats of idle groups as rare as backups and their elections allow. For
    /// hosts of thousands of groups: an idle group costs nothing but its heartbeats.
    #[must_use]
    pub const fn sparing(self) -> Self {
        let quarter = self.heartbeat / 4;
        Self {
            commit_idle: if quarter > self.commit {
                quarter
            } else {
                self.commit
            },
            ..self
        }
    }

    /// Checks that no interval is zero and that elections outlast what they wait for.
    ///
    /// # Errors
    ///
    /// [`OpenError::Timer`] names the relation.
    pub fn validate(&self) -> Result<(), OpenError> {
        let all = [
            self.prepare,
            self.commit,
            self.heartbeat,
            self.view_change_retransmit,
            self.view_change_status,
            self.request_start_view,
        ];
        if all.contains(&0) {
            return Err(OpenError::Timer {
                relation: "every interval is at least one tick",
            });
        }
        if u64::from(self.heartbeat) < 4 * u64::from(self.commit) {
            return Err(OpenError::Timer {
                relation: "heartbeat ≥ 4 × commit broadcast",
            });
        }
        if self.commit_idle < self.commit
            || u64::from(self.heartbeat) < 4 * u64::from(self.commit_idle)
        {
            return Err(OpenError::Timer {
                relation: "heartbeat ≥ 4 × idle commit broadcast ≥ 4 × commit broadcast",
            });
        }
        if u64::from(self.view_change_status) < 4 * u64::from(self.view_change_retransmit) {
            return Err(OpenError::Timer {
                relation: "view change status ≥ 4 × view change retransmit",
            });
        }
        Ok(())
    }

    /// In the order of [`TimerName::ALL`].
    pub(crate) fn intervals(&self) -> [u32; TimerName::ALL.len()] {
        TimerName::ALL.map(|name| match name {
            TimerName::Heartbeat => self.heartbeat,
            TimerName::StartViewChange | TimerName::DoViewChange => self.view_change_retransmit,
            TimerName::Prepare => self.prepare,
            TimerName::Commit => self.commit,
            TimerName::Probe => self.request_start_view,
            TimerName::ViewChangeStatus => self.view_change_status,
        })
    }
}

/// What kind of boot this is (chapter 03 section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The group never ran here. Normal at once in `view`, which is the view the group was
    /// created with. The owner has left a durable trace of the group before it says this.
    Fresh {
        /// View and log view to begin with.
        view: View,
    },
    /// The group ran here before: probing for the current view, and no promise until then.
    Used {
        /// Whether state is transferred before anything is acknowledged (metadata).
        await_transfer: bool,
        /// The view the group was created with; counts when the durable log view is zero.
        view_floor: View,
    },
    /// A cluster of one: everything journaled is committed.
    Single,
}

/// One entry of the log as the disk held it.
#[derive(Clone, Debug)]
pub enum LogEntry {
    /// A prepare that passed all checks.
    Intact(Message),
    /// There was an entry for this op and it cannot be read. It may have been acknowledged, so
    /// it is treated as unknown: not denied in a vote, not cut, repaired from peers.
    Damaged(Op),
}

/// What the disk held.
#[derive(Clone, Debug)]
pub struct Boot {
    /// Kind of boot.
    pub start: Start,
    /// Durable view; zero when there is no superblock.
    pub view: View,
    /// Durable log view; zero when there is no superblock.
    pub log_view: View,
    /// The log of `log_view` lived in memory and is gone. The replica then votes as one that
    /// has no log view, so that it is no authority on the end of a log it cannot know.
    pub log_lost: bool,
    /// Highest op that is applied to the state here.
    pub commit_min: Op,
    /// Identity of the prepare of `commit_min`, when it is known.
    pub commit_min_checksum: Option<Checksum>,
    /// Highest op known to be committed, at least what the superblock recorded along with the
    /// log view; what recovered prepares say is added to it.
    pub commit_max: Op,
    /// The journal, ascending by op. Gaps are allowed and are holes.
    pub log: Vec<LogEntry>,
    /// Floor of the timestamps of later prepares.
    pub last_timestamp: u64,
}

impl Boot {
    /// A group that starts empty in view 0.
    #[must_use]
    pub const fn fresh() -> Self {
        Self::empty(Start::Fresh { view: View(0) })
    }

    /// An empty log and zero numbers.
    #[must_use]
    pub const fn empty(start: Start) -> Self {
        Self {
            start,
            view: View(0),
            log_view: View(0),
            log_lost: false,
            commit_min: Op(0),
            commit_min_checksum: None,
            commit_max: Op(0),
            log: Vec::new(),
            last_timestamp: 0,
        }
    }
}

/// Why a replica cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Not 1..=32 replicas.
    #[error("{count} replicas: a cluster has 1 to 32")]
    ReplicaCount {
        /// The configured count.
        count: u8,
    },
    /// The own id is not in the roster.
    #[error("replica {replica} is not one of {count}")]
    Replica {
        /// The configured id.
        replica: ReplicaId,
        /// The configured count.
        count: u8,
    },
    /// A limit is out of bounds.
    #[error("{name} must be in {bounds}")]
    Limit {
        /// The limit.
        name: &'static str,
        /// Its bounds.
        bounds: &'static str,
    },
    /// Two intervals do not fit.
    #[error("timers: {relation}")]
    Timer {
        /// The relation that must hold.
        relation: &'static str,
    },
    /// The record on disk contradicts itself.
    #[error("log view {log_view} is above view {view}")]
    LogViewAboveView {
        /// Recorded view.
        view: View,
        /// Recorded log view.
        log_view: View,
    },
    /// The journal is not ascending.
    #[error("journal: op {op} is out of order")]
    LogOrder {
        /// The first op that does not exceed the one before it.
        op: Op,
    },
    /// The journal holds a prepare of another group or cluster, or something else entirely.
    #[error("journal: op {op} is not a prepare of this group")]
    ForeignEntry {
        /// Its op.
        op: Op,
    },
    /// The span of ops in the journal is implausible.
    #[error("journal: ops {first} to {last} are further apart than any log")]
    LogSpan {
        /// Lowest op.
        first: Op,
        /// Highest op.
        last: Op,
    },
    /// A cluster of one lost an entry, and there is nobody to repair it from.
    #[error("journal: op {op} is damaged or missing and this is the only replica")]
    SingleDamaged {
        /// Its op.
        op: Op,
    },
    /// A single start was asked for in a cluster of several.
    #[error("a single start needs a cluster of one, not of {count}")]
    NotSingle {
        /// The configured count.
        count: u8,
    },
}
