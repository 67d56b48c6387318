//! From what the disk held to a replica (chapter 03 section 9.3).
//!
//! A log may come back with holes, because prepares are journaled as they arrive and not in
//! order. It may contain strays: prepares journaled toward a log that was never recorded as
//! this replica's own, told by a view above the recorded log view. And it may contain leftovers
//! from before the recorded log, below its commit point; there the hash chain tells what was
//! committed.

use biplane_wire::{Checksum, Message, Op, View};

use super::recovery::Probers;
use super::{Replica, Votes};
use crate::config::{Boot, Config, LogEntry, OpenError, Start};
use crate::constants::VIEW_UNSURE;
use crate::log::{Held, Log, Storage, Trust, chains};
use crate::mutation::mutated;
use crate::pending::{Pending, Record};
use crate::pipeline::Pipeline;
use crate::prng::Prng;
use crate::quorum::{Quorums, ReplicaSet};
use crate::status::{IgnoredCounts, Status, TransferStage};
use crate::timeout::{TimerName, TimerSet};

/// Furthest apart two entries of one journal can be: far above any retention, far below what
/// would exhaust memory.
const LOG_SPAN_MAX: u64 = 1 << 24;

impl Replica {
    /// A replica as the disk left it. Its first outputs come with its first step.
    ///
    /// # Errors
    ///
    /// A configuration that is out of bounds, or a log that contradicts itself.
    pub fn open(config: Config, boot: Boot) -> Result<Self, OpenError> {
        config.validate()?;
        if boot.log_view > boot.view {
            return Err(OpenError::LogViewAboveView {
                view: boot.view,
                log_view: boot.log_view,
            });
        }
        let single = config.replica_count == 1;
        if boot.start == Start::Single && !single {
            return Err(OpenError::NotSingle {
                count: config.replica_count,
            });
        }
        let log = load(&config, &boot)?;
        let mut replica = Self::with_log(config, &boot, log);
        if single {
            replica.open_single()?;
            return Ok(replica);
        }
        replica.restore_log(&boot);
        match boot.start {
            Start::Fresh { view } => replica.open_fresh(view),
            Start::Used {
                await_transfer,
                view_floor,
            } => {
                replica.open_used(await_transfer, view_floor);
                replica.forget_unsure_marks();
            }
            Start::Single => unreachable!("a cluster of one was handled"),
        }
        Ok(replica)
    }

    fn with_log(config: Config, boot: &Boot, log: Log) -> Self {
        // A damaged entry at the top may have been acknowledged: the log does not end below it.
        let op_head = log.top().unwrap_or_default().max(boot.commit_min);
        let last_timestamp = log
            .iter()
            .map(|message| message.header::<biplane_wire::PrepareHeader>().timestamp())
            .fold(boot.last_timestamp, u64::max);
        Self {
            quorums: quorums(config.replica_count),
            status: Status::Recovering,
            view: boot.view,
            log_view: boot.log_view,
            log_lost: boot.log_lost,
            op_head,
            commit_min: boot.commit_min,
            commit_min_checksum: boot.commit_min_checksum,
            commit_min_header: None,
            commit_max: boot.commit_max.max(boot.commit_min),
            commit_logged: boot.commit_max.max(boot.commit_min),
            last_timestamp,
            ceded: false,
            view_observed: View(0),
            recovery_barrier: Op::ZERO,
            transfer_stage: TransferStage::Idle,
            heartbeat: (View(0), 0),
            heartbeats_idle: 0,
            is_mute: false,
            probe_attempts: 0,
            probers: Probers::new(config.replica, boot.view, config.replica_count),
            timers: TimerSet::new(config.timers.intervals()),
            prng: Prng::new(config.seed),
            log,
            early: crate::early::Early::default(),
            adoption: None,
            is_blind: false,
            votes: Votes::default(),
            pipeline: Pipeline::with_capacity(usize::from(config.limits.prepare_queue)),
            requests: std::collections::VecDeque::new(),
            pending: Pending::new(Record {
                view: boot.view,
                log_view: boot.log_view,
                // It may be lower than what the log taught since.
                commit: Op::ZERO,
            }),
            acknowledgements: crate::outbound::Acknowledgements::default(),
            op_acknowledged: Op::ZERO,
            appends: 0,
            late: (0, Op::ZERO),
            passed_over: Op::ZERO,
            holes_to_record: Op::ZERO,
            connected: ReplicaSet::all(config.replica_count),
            halted: None,
            ignored: IgnoredCounts::new(),
            config,
        }
    }

    /// Tells strays from the log of the recorded log view, finds head and commit point of that
    /// log, and which of its entries are sure.
    fn restore_log(&mut self, boot: &Boot) {
        if self.commit_min_checksum.is_none() {
            self.commit_min_checksum = match self.commit_min {
                Op::ZERO => Some(Checksum::ZERO),
                op => self.log.checksum(op),
            };
        }
        self.op_head = boot.commit_max.max(boot.commit_min);
        self.commit_max = self.op_head;
        let top = self.log.top().unwrap_or_default();
        let mut op = self.commit_min.next();
        while op <= top {
            let log_view = self.log_view;
            if let Some(held) = self.log.held_mut(op) {
                let (view, commit) = (held.header().frame.view(), held.header().commit());
                if view == VIEW_UNSURE {
                    held.trust = Trust::Suspect;
                    self.op_head = self.op_head.max(op);
                } else if view > log_view {
                    held.trust = Trust::Stray;
                } else {
                    self.op_head = self.op_head.max(op);
                    self.commit_max = self.commit_max.max(commit);
                }
            } else if self.log.is_damaged(op) {
                // It may have been acknowledged: the log does not end below it.
                self.op_head = self.op_head.max(op);
            }
            op = op.next();
        }
        // Committed ops are part of the log, whether they are held or not.
        self.op_head = self.op_head.max(self.commit_max);
        self.commit_logged = self.commit_max;
        self.judge_applied();
        self.judge_restored();
    }

    /// The mark of an entry that is not sure is for the boot that reads it, and that was this
    /// one. Peers, who may be sent the entry once it is confirmed, take the view of a frame at
    /// its word: to them one that no replica ever reaches is from another incarnation.
    fn forget_unsure_marks(&mut self) {
        let view = self.view;
        let marked = |held: &&mut Held| held.header().frame.view() == VIEW_UNSURE;
        for held in self.log.iter_held_mut().filter(marked) {
            held.message = held.message.prepare_in_view(view);
        }
    }

    /// Entries up to the applied op serve peers only, and only as far as the chain leads down
    /// from the op that was applied: state may have been installed over a journal that had
    /// something else.
    fn judge_applied(&mut self) {
        let mut expected = self.commit_min_checksum;
        let mut op = self.commit_min;
        let first = self.log.first().unwrap_or_default();
        while op >= first && op > Op::ZERO {
            let mut below = None;
            if let Some(held) = self.log.held_mut(op) {
                if expected == Some(held.checksum()) {
                    below = Some(held.header().parent());
                } else {
                    held.trust = Trust::Suspect;
                }
            }
            expected = below;
            op = Op(op.0 - 1);
        }
    }

    /// From the commit point up the journal is the log of the recorded log view: when that was
    /// recorded, everything else had been cut. Below it something older may be left over, so
    /// there an entry is sure when it was made in that view and no later one was entered, when the
    /// chain above leads to it, or when a prepare that stands on it knew it to be committed.
    fn judge_restored(&mut self) {
        let mut vouched = Op::ZERO;
        // Below a broken link nothing is sure, and a vote that showed both ends of it would
        // not even decode.
        let mut is_unbroken = true;
        // Times rise along a log: what is not older than a sure entry above is not of its log,
        // also where what stood between them is gone.
        let mut sure_since = None;
        let mut op = self.log.top().unwrap_or_default().min(self.op_head);
        while op > self.commit_min {
            let above = self
                .log
                .held(op.next())
                .filter(|above| above.trust != Trust::Stray);
            let link = match (above, self.log.checksum(op)) {
                (Some(above), Some(identity)) => Some(chains(above.header(), identity)),
                _ => None,
            };
            is_unbroken = is_unbroken && link != Some(false);
            let is_linked = link == Some(true);
            if !is_linked {
                vouched = Op::ZERO;
            }
            let is_above_sure = above.is_some_and(|above| above.trust == Trust::Verified);
            let is_named = is_linked && is_above_sure;
            // A prepare of a later log stands above, known to be committed, on something else.
            let is_refuted = link == Some(false) && is_above_sure;
            let (log_view, commit_max) = (self.log_view, self.commit_max);
            // A later view may have told the commit point, and this log have something else there.
            let is_own = self.view == log_view;
            let held = self
                .log
                .held_mut(op)
                .filter(|held| held.trust != Trust::Stray);
            if let Some(held) = held {
                vouched = vouched.max(held.header().commit());
                let is_owed = held.header().frame.view() == VIEW_UNSURE;
                let is_sure = op <= vouched
                    || is_named
                    || (held.header().frame.view() == log_view && (op > commit_max || is_own))
                    || (op >= commit_max && is_unbroken && !is_owed);
                let timestamp = held.header().timestamp();
                let is_late = sure_since.is_some_and(|above| timestamp >= above);
                let is_refuted = (is_refuted || is_late) && !mutated!(RefutedIsCertain);
                held.trust = if is_sure && !is_refuted {
                    sure_since = Some(timestamp);
                    Trust::Verified
                } else {
                    Trust::Suspect
                };
            }
            op = Op(op.0 - 1);
        }
    }

    /// A cluster of one: what is journaled is committed, and there is nobody to repair it from.
    fn open_single(&mut self) -> Result<(), OpenError> {
        if self.commit_min_checksum.is_none() {
            self.commit_min_checksum = self.log.checksum(self.commit_min);
        }
        self.op_head = self.op_head.max(self.commit_max);
        let mut op = self.commit_min.next();
        while op <= self.op_head {
            match self.log.held_mut(op) {
                Some(held) => held.trust = Trust::Verified,
                None => return Err(OpenError::SingleDamaged { op }),
            }
            op = op.next();
        }
        self.commit_max = self.op_head;
        self.commit_logged = self.commit_max;
        self.log_view = self.view;
        self.start_normal();
        Ok(())
    }

    fn open_fresh(&mut self, view: View) {
        self.view = self.view.max(view);
        self.log_view = self.view;
        self.start_normal();
    }

    fn start_normal(&mut self) {
        self.status = Status::Normal;
        self.op_acknowledged = self.commit_max;
        if self.is_primary_by_index() {
            self.timers.start(TimerName::Commit);
        } else {
            self.timers.start(TimerName::Heartbeat);
        }
        self.timers.wake_at(1);
    }

    fn open_used(&mut self, await_transfer: bool, view_floor: View) {
        if self.log_view == View(0) {
            self.view = self.view.max(view_floor);
        }
        let (own, count) = (self.config.replica, self.config.replica_count);
        self.probers = Probers::new(own, self.view, count);
        if self.commit_max < self.op_head {
            self.recovery_barrier = self.op_head;
        }
        self.ceded = true;
        if await_transfer {
            self.transfer_stage = TransferStage::AwaitingTarget;
        }
        self.timers.start(TimerName::Probe);
        self.timers.wake_at(1);
    }
}

fn quorums(replica_count: u8) -> Quorums {
    let mut quorums = Quorums::new(replica_count);
    quorums.replication -= u8::from(mutated!(ReplicationQuorumLow));
    quorums.view_change -= u8::from(mutated!(ViewChangeQuorumLow));
    quorums
}

/// The journal as a log. Every entry that is there is as durable as it will be.
fn load(config: &Config, boot: &Boot) -> Result<Log, OpenError> {
    let op_of = |entry: &LogEntry| match entry {
        LogEntry::Intact(message) => prepare_op(config, message),
        LogEntry::Damaged(op) => Ok(*op),
    };
    let mut log = Log::new(boot.commit_min.next());
    let mut previous: Option<Op> = None;
    let mut first: Option<Op> = None;
    for entry in &boot.log {
        let op = op_of(entry)?;
        if previous.is_some_and(|previous| op <= previous) || op == Op::ZERO {
            return Err(OpenError::LogOrder { op });
        }
        let lowest = *first.get_or_insert(op);
        // The applied op counts too: what is held must be within reach of it.
        let bottom = lowest.min(boot.commit_min.next());
        if op.0 - bottom.0 > LOG_SPAN_MAX {
            return Err(OpenError::LogSpan {
                first: bottom,
                last: op,
            });
        }
        previous = Some(op);
        match entry {
            LogEntry::Damaged(_) if mutated!(DamagedIsForgotten) => {}
            LogEntry::Damaged(op) => log.insert_damaged(*op),
            LogEntry::Intact(message) => log.insert(Held {
                message: message.clone(),
                number: 0,
                storage: Storage::Durable,
                trust: Trust::Verified,
                forward_due: false,
                acknowledge_due: false,
            }),
        }
    }
    Ok(log)
}

fn prepare_op(config: &Config, message: &Message) -> Result<Op, OpenError> {
    if message.command() != biplane_wire::Command::Prepare {
        return Err(OpenError::ForeignEntry { op: Op::ZERO });
    }
    let header = message.header::<biplane_wire::PrepareHeader>();
    let is_ours = header.frame.cluster() == config.cluster
        && (header.group() == config.group
            || (config.group.is_metadata() && header.group().0 == 0));
    if is_ours {
        Ok(header.op())
    } else {
        Err(OpenError::ForeignEntry { op: header.op() })
    }
}
