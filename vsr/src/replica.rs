//! The state of a replica and the one place where inputs are told apart.
//!
//! Handlers return why an input had no effect; what they want to say to others they note in
//! [`Pending`] or mark in the log, and [`Replica::settle`] at the end of every call says what
//! may be said by then. So no handler runs inside another, and a check at the top of one holds
//! to its end.

/// A line about a transition: `info`, but `debug` where nothing is at stake. Ten thousand groups
/// that nobody has written to elect with the failure of one node.
macro_rules! transition {
    ($replica:expr, $($fields:tt)*) => {
        if $replica.config.group.is_metadata() || $replica.op_head > biplane_wire::Op::ZERO {
            tracing::info!($($fields)*);
        } else {
            tracing::debug!($($fields)*);
        }
    };
}
use transition;

mod backup;
mod boot;
mod commit;
mod primary;
mod promises;
mod reconcile;
mod recovery;
mod repair;
mod start_view;
mod view_change;
mod vote;

use std::collections::VecDeque;

use biplane_wire::{
    Checksum, FramePrefix, GroupId, Op, PrepareHeader, ReplicaFrame, ReplicaId, View,
};

use crate::config::Config;
use crate::constants::VIEW_LAST;
use crate::early::Early;
use crate::io::{HaltReason, Input, Output};
use crate::log::{Log, LogMut};
use crate::outbound::Acknowledgements;
use crate::pending::{Pending, Record};
use crate::pipeline::{Pipeline, Waiting};
use crate::plane::Plane;
use crate::prng::Prng;
use crate::quorum::{Quorums, ReplicaSet};
use crate::replica::recovery::Probers;
use crate::status::{Begins, Ignored, IgnoredCounts, Status, StatusView, TransferStage};
use crate::suffix_merge::{MergedLog, Vote};
use crate::timeout::{TimerName, TimerSet};

/// The plane and the outputs of the call that is running.
pub(crate) struct Context<'a, P> {
    pub(crate) plane: &'a mut P,
    pub(crate) out: &'a mut Vec<Output>,
}

/// What a handler has to say about an input.
pub(crate) type Handled = Result<(), Ignored>;

/// A log that was adopted from an announcement, as long as it still has something to say about
/// what is missing here. Outlives view changes: a vote still describes the log of the last
/// adopted view.
///
/// While it is incomplete the log view is not recorded on disk. The headers below are known in
/// memory only; a replica that restarted under the new log view without bodies and headers
/// would pass for an authority on a log that ends too early, and committed ops that older logs
/// still hold would be cut.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    /// The announced head.
    pub(crate) head: Op,
    /// Descending from the head; `None` where the announcement names nothing.
    pub(crate) headers: Vec<Option<PrepareHeader>>,
    /// Every uncommitted op up to here is held, verified and durable.
    pub(crate) covered: Op,
    /// All of them are.
    pub(crate) is_complete: bool,
}

impl Adoption {
    pub(crate) fn at(&self, op: Op) -> Option<&PrepareHeader> {
        let index = usize::try_from(self.head.0.checked_sub(op.0)?).ok()?;
        self.headers.get(index)?.as_ref()
    }
}

/// The log a primary-elect works toward.
#[derive(Clone, Debug)]
pub(crate) struct Elect {
    pub(crate) merged: MergedLog,
    /// Every op up to here is held, verified and durable.
    pub(crate) covered: Op,
    /// Ops that were taken from peers for this log. Until the view starts they are not of the
    /// log this replica votes with.
    pub(crate) fetched: Vec<Fetched>,
}

/// An op that an elect took from a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub(crate) op: Op,
    /// It stands where something could not be read, which may have been acknowledged.
    pub(crate) fills_damage: bool,
}

/// What was collected for the view being formed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Votes {
    /// Senders of StartViewChange, this replica included.
    pub(crate) changers: ReplicaSet,
    /// At most one vote per replica, the first.
    pub(crate) cast: Vec<Vote>,
    /// Whether the own vote went out (or waits for the disk).
    pub(crate) own_sent: bool,
    /// The outcome, once decided.
    pub(crate) elect: Option<Elect>,
}

/// One replica of one group.
#[derive(Debug)]
pub struct Replica {
    pub(crate) config: Config,
    pub(crate) quorums: Quorums,
    pub(crate) status: Status,
    pub(crate) view: View,
    pub(crate) log_view: View,
    /// The log of `log_view` did not survive a restart.
    pub(crate) log_lost: bool,
    pub(crate) op_head: Op,
    pub(crate) commit_min: Op,
    /// Identity of the prepare at `commit_min`, when known.
    pub(crate) commit_min_checksum: Option<Checksum>,
    /// The header at `commit_min` where state was installed without the prepare: a vote of an
    /// idle group must be able to name it.
    pub(crate) commit_min_header: Option<PrepareHeader>,
    pub(crate) commit_max: Op,
    /// The commit point as far as it concerns the log of `log_view`; what is recorded with it.
    /// A commit point learned from a later log says nothing about the entries of this one.
    pub(crate) commit_logged: Op,
    pub(crate) last_timestamp: u64,
    /// Primary by index perhaps, but not to act as one.
    pub(crate) ceded: bool,
    /// Highest view seen in traffic that was ignored for it.
    pub(crate) view_observed: View,
    /// Must commit before recovered state answers clients.
    pub(crate) recovery_barrier: Op,
    pub(crate) transfer_stage: TransferStage,
    /// Freshest heartbeat: view, then counter within it. A primary counts on from what it last
    /// accepted.
    pub(crate) heartbeat: (View, u64),
    /// Heartbeats in a row that had nothing to say but that this primary lives.
    pub(crate) heartbeats_idle: u8,
    /// See [`Replica::set_mute`].
    pub(crate) is_mute: bool,
    pub(crate) probe_attempts: u8,
    /// Who else does not know who leads, as long as this replica does not.
    pub(crate) probers: Probers,
    pub(crate) timers: TimerSet,
    pub(crate) prng: Prng,
    pub(crate) log: Log,
    /// What came before the op below it.
    pub(crate) early: Early,
    pub(crate) adoption: Option<Adoption>,
    /// The announcement of this view named nothing at its commit point, so that the chain of
    /// committed ops hangs on nothing certain.
    pub(crate) is_blind: bool,
    pub(crate) votes: Votes,
    pub(crate) pipeline: Pipeline,
    pub(crate) requests: VecDeque<Waiting>,
    pub(crate) pending: Pending,
    pub(crate) acknowledgements: Acknowledgements,
    /// Highest op whose acknowledgement was considered in this view, contiguously.
    pub(crate) op_acknowledged: Op,
    /// Appends that were asked for.
    pub(crate) appends: u64,
    /// The highest number of an append, and the highest op, of those that acknowledgements went
    /// past before they were written.
    pub(crate) late: (u64, Op),
    /// Highest op that was not here when acknowledgements went past it, because it is committed
    /// without this replica.
    pub(crate) passed_over: Op,
    /// The same, where an acknowledgement waits for it to be recorded.
    pub(crate) holes_to_record: Op,
    pub(crate) connected: ReplicaSet,
    pub(crate) halted: Option<HaltReason>,
    pub(crate) ignored: IgnoredCounts,
}

impl Replica {
    /// The only way in for what happens outside. Outputs are appended to `out`, to be carried
    /// out in order.
    pub fn step<P: Plane>(&mut self, input: Input, plane: &mut P, out: &mut Vec<Output>) {
        if let Input::Tick { wall_micros } = input {
            // Most ticks end here, having looked at one line of memory.
            if !self.timers.tick(wall_micros) {
                return;
            }
        }
        if self.halted.is_some() {
            self.ignored.count(Ignored::Halted);
            return;
        }
        let mut cx = Context { plane, out };
        let handled = match input {
            Input::Tick { .. } => {
                self.serve_timers(&mut cx);
                Ok(())
            }
            Input::Frame(frame) => self.on_frame(frame, &mut cx),
            Input::Appended { op, checksum } => self.on_appended(op, checksum, &mut cx),
            Input::AppendFailed { op, checksum } => self.on_append_failed(op, checksum, &mut cx),
            Input::Truncated { from } => self.on_truncated(from),
            Input::ViewPersisted {
                view,
                log_view,
                commit_max,
            } => {
                let commit = commit_max;
                let record = Record {
                    view,
                    log_view,
                    commit,
                };
                self.on_persisted(record, &mut cx)
            }
            Input::PersistFailed => self.on_persist_failed(),
            Input::Peer { replica, connected } => self.on_peer(replica, connected),
        };
        if let Err(reason) = handled {
            self.ignored.count(reason);
        }
        self.settle(&mut cx);
    }

    fn on_frame<P: Plane>(&mut self, frame: ReplicaFrame, cx: &mut Context<'_, P>) -> Handled {
        match frame {
            ReplicaFrame::Prepare(frame) => self.on_prepare(frame.into_message(), cx),
            ReplicaFrame::PrepareOk(frame) => self.on_prepare_ok(frame.header()),
            ReplicaFrame::Commit(frame) => self.on_commit(frame.header()),
            ReplicaFrame::StartViewChange(frame) => self.on_start_view_change(frame.header(), cx),
            ReplicaFrame::DoViewChange(frame) => self.on_do_view_change(&frame, cx),
            ReplicaFrame::StartView(frame) => self.on_start_view(&frame, cx),
            ReplicaFrame::RequestStartView(frame) => self.on_request_start_view(frame.header(), cx),
            _ => Err(Ignored::NotForConsensus),
        }
    }

    /// The tick: every timer that has expired, in a fixed order. A handler may stop a timer
    /// that comes later.
    fn serve_timers<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        for name in TimerName::ALL {
            if !self.timers.is_expired(name) {
                continue;
            }
            match name {
                TimerName::Heartbeat => self.on_heartbeat_timer(cx),
                TimerName::StartViewChange => self.on_start_view_change_timer(),
                TimerName::DoViewChange => self.on_do_view_change_timer(),
                TimerName::Prepare => self.on_prepare_timer(cx),
                TimerName::Commit => self.on_commit_timer(cx),
                TimerName::Probe => self.on_probe_timer(cx),
                TimerName::ViewChangeStatus => self.on_view_change_status_timer(cx),
            }
        }
        self.timers.settle();
        self.promote_waiting(cx);
    }

    /// Ends every call: starts the view that has become complete, and lets out what may go.
    pub(crate) fn settle<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.halted.is_some() {
            return;
        }
        self.take_early(cx);
        if self.votes.elect.is_some() {
            self.try_start_view(cx);
        }
        self.complete_adoption();
        if self.status == Status::Normal && !self.is_completing() {
            self.commit_logged = self.commit_max;
        }
        self.request_persist(cx);
        self.keep_promises(cx);
        self.acknowledge_held(cx);
        if let Some(tick) = self.pending.retry_at() {
            self.timers.wake_at(tick);
        }
        if self.votes.elect.is_some() || !self.requests.is_empty() {
            self.timers.wake_at(self.timers.now() + 1);
        }
    }

    /// Stops for good.
    pub(crate) fn halt<P>(&mut self, reason: HaltReason, cx: &mut Context<'_, P>) {
        tracing::error!(node = self.config.replica.0, group = %self.config.group, ?reason, "halt");
        self.halted = Some(reason);
        cx.out.push(Output::Halt(reason));
    }

    /// Whether a frame is of this cluster and group and names a replica that exists.
    pub(crate) fn check_origin(&self, frame: &FramePrefix, group: GroupId) -> Handled {
        let is_ours = frame.cluster() == self.config.cluster
            && group == self.config.group
            && frame.replica().0 < self.config.replica_count;
        if !is_ours {
            return Err(Ignored::Foreign);
        }
        if frame.view() > VIEW_LAST {
            return Err(Ignored::ViewReserved);
        }
        Ok(())
    }

    /// As [`Self::check_origin`], for frames only their originator sends.
    pub(crate) fn check_sender(&self, frame: &FramePrefix, group: GroupId) -> Handled {
        self.check_origin(frame, group)?;
        if frame.replica() == self.config.replica {
            return Err(Ignored::FromSelf);
        }
        Ok(())
    }

    fn on_peer(&mut self, replica: ReplicaId, connected: bool) -> Handled {
        if replica.0 >= self.config.replica_count {
            return Err(Ignored::Foreign);
        }
        if connected {
            self.connected.insert(replica);
            // It may have missed something that all others know by now.
            self.hasten_heartbeat();
        } else {
            self.connected.remove(replica);
        }
        Ok(())
    }
}

/// Looking at a replica.
impl Replica {
    /// View.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Highest applied op.
    #[must_use]
    pub fn commit_min(&self) -> Op {
        self.commit_min
    }

    /// Highest op known to be committed.
    #[must_use]
    pub fn commit_max(&self) -> Op {
        self.commit_max
    }

    /// Highest op of the logical log. On a backup the bodies below it may be missing.
    #[must_use]
    pub fn op_head(&self) -> Op {
        self.op_head
    }

    /// Whether the status is Normal.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.status == Status::Normal
    }

    /// Primary of the current view.
    #[must_use]
    pub fn primary(&self) -> ReplicaId {
        self.view.primary(self.config.replica_count)
    }

    /// Whether this replica takes requests: primary of its view, normal, not ceded, not
    /// transferring.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.leads() && !self.is_transferring() && self.halted.is_none()
    }

    /// Whether recovered state may answer clients (chapter 03 section 3).
    #[must_use]
    pub fn is_caught_up_primary(&self) -> bool {
        self.is_primary()
            && self.commit_min == self.commit_max
            && self.commit_max >= self.recovery_barrier
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Access for dropping applied entries.
    pub fn log_mut(&mut self) -> LogMut<'_> {
        LogMut {
            log: &mut self.log,
            commit_min: self.commit_min,
        }
    }

    /// The freshest heartbeat taken from a primary, or sent as one: its view, then its counter.
    #[must_use]
    pub fn heartbeat(&self) -> (View, u64) {
        self.heartbeat
    }

    /// Where state transfer stands.
    #[must_use]
    pub fn transfer_stage(&self) -> TransferStage {
        self.transfer_stage
    }

    /// Why the replica stopped, if it did.
    #[must_use]
    pub fn halted(&self) -> Option<HaltReason> {
        self.halted
    }

    /// How often inputs had no effect, and why.
    #[must_use]
    pub fn ignored(&self) -> &IgnoredCounts {
        &self.ignored
    }

    /// What the replica was configured with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many ticks from now the first one comes that can have an effect: at least one. An
    /// owner of thousands of idle replicas lets the others pass with
    /// [`Replica::skip_ticks`], before it hands in anything else.
    #[must_use]
    pub fn ticks_to_wake(&self) -> u64 {
        self.timers.ticks_to_wake()
    }

    /// Moves the first heartbeat to some tick of its interval, chosen by `seed`. Primaries of
    /// thousands of groups that begin on one tick would all speak on one tick for ever after. A
    /// backup does not hear less for it: its own first deadline, an election, stays where it is.
    pub fn stagger_heartbeat(&mut self, seed: u64) {
        self.timers.stagger(TimerName::Commit, seed);
    }

    /// What the next tick would begin, if anything that occupies all replicas of the group. For
    /// hosts of thousands of groups, which cannot all elect at once: such a host may hold the
    /// tick back.
    #[must_use]
    pub fn begins_next_tick(&self) -> Option<Begins> {
        match self.status {
            _ if self.halted.is_some() => None,
            Status::Normal => {
                let gives_up = !self.leads() && self.timers.is_due_next(TimerName::Heartbeat);
                gives_up.then_some(Begins::Election)
            }
            Status::Recovering if self.timers.is_due_next(TimerName::Probe) => {
                let attempts = self.probe_attempts.saturating_add(1);
                match attempts < self.config.limits.view_probe_attempts_max {
                    false => Some(Begins::Election),
                    true => (attempts == 1).then_some(Begins::Question),
                }
            }
            Status::Recovering | Status::ViewChange => None,
        }
    }

    /// Lets `count` ticks pass that have no effect: fewer than [`Replica::ticks_to_wake`].
    ///
    /// # Panics
    ///
    /// When one of them would have had an effect.
    pub fn skip_ticks(&mut self, count: u64) {
        self.timers.skip(count);
    }

    /// All numbers at once.
    #[must_use]
    pub fn status(&self) -> StatusView {
        StatusView {
            status: self.status,
            view: self.view,
            log_view: self.log_view,
            view_durable: self.pending.durable().view,
            log_view_durable: self.pending.durable().log_view,
            op_head: self.op_head,
            commit_min: self.commit_min,
            commit_max: self.commit_max,
            primary: self.primary(),
            is_primary: self.is_primary(),
            ceded: self.ceded,
            recovery_barrier: self.recovery_barrier,
            transfer_stage: self.transfer_stage,
            prepares_in_flight: self.pipeline.len(),
            requests_queued: self.requests.len(),
            halted: self.halted,
        }
    }

    pub(crate) fn is_primary_by_index(&self) -> bool {
        self.primary() == self.config.replica
    }

    /// Whether this replica acts as primary of its view, though it may not be able to take
    /// requests at present: see [`Replica::is_primary`].
    #[must_use]
    pub fn leads(&self) -> bool {
        self.status == Status::Normal && self.is_primary_by_index() && !self.ceded
    }

    /// Whether ops of the adopted log are still missing.
    pub(crate) fn is_completing(&self) -> bool {
        self.adoption
            .as_ref()
            .is_some_and(|adoption| !adoption.is_complete)
    }

    pub(crate) fn is_transferring(&self) -> bool {
        self.transfer_stage != TransferStage::Idle
    }

    /// The prepare that the merged log names for `op`, or else the adopted one.
    pub(crate) fn named(&self, op: Op) -> Option<&PrepareHeader> {
        match &self.votes.elect {
            Some(elect) => elect.merged.at(op),
            None => self.adoption.as_ref().and_then(|adoption| adoption.at(op)),
        }
    }

    /// Head of the log this replica works toward: the merged one while it is elect, else its
    /// own. The own head moves only when a view starts, because a vote for a later view must
    /// not pass off the merged log as that of the own log view.
    pub(crate) fn op_target(&self) -> Op {
        self.votes
            .elect
            .as_ref()
            .map_or(self.op_head, |elect| elect.merged.head)
    }

    /// Identity of the prepare at `op`, from whatever knows it.
    pub(crate) fn identity_at(&self, op: Op) -> Option<Checksum> {
        if op == Op::ZERO {
            return Some(Checksum::ZERO);
        }
        if op == self.commit_min && self.commit_min_checksum.is_some() {
            return self.commit_min_checksum;
        }
        if let Some(header) = self.log.header(op) {
            return Some(header.frame.checksum());
        }
        self.named(op).map(|header| header.frame.checksum())
    }
}
