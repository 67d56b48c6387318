//! Leaving a view, voting for the next, and starting it as its primary (chapter 03 sections
//! 8.1 to 8.6).
//!
//! A replica that wants a new view says so (StartViewChange). One that heard it from enough
//! others votes (DoViewChange). The primary of the new view merges a quorum of votes, fetches
//! the bodies it lacks while it stays in view change under its old log view, and only then
//! becomes normal and announces the log.

use biplane_wire::{DoViewChangeHeader, Op, StartViewChangeHeader, Suffix, Typed, View};

use super::{Context, Elect, Fetched, Handled, Replica};
use crate::constants::VIEW_LAST;
use crate::io::{Output, RoleChange};
use crate::log::Trust;
use crate::mutation::mutated;
use crate::pipeline::InFlight;
use crate::plane::Plane;
use crate::quorum::ReplicaSet;
use crate::status::{Ignored, Status, TransferStage};
use crate::suffix_merge::{Merge, MergedLog, Vote, merge};
use crate::timeout::TimerName;

impl Replica {
    /// Leaves the current view for `view`.
    pub(crate) fn enter_view_change<P>(&mut self, view: View, cx: &mut Context<'_, P>) {
        if view > VIEW_LAST {
            self.stay_in_last_view();
            return;
        }
        assert!(view > self.view, "a view is changed once");
        self.abandon_election();
        self.view = view;
        self.status = Status::ViewChange;
        self.votes.changers.insert(self.config.replica);
        self.release_clients(cx);
        self.pending.forget_promises();
        self.pending.start_view_change = true;
        self.timers.stop(TimerName::Heartbeat);
        self.timers.stop(TimerName::Commit);
        self.timers.stop(TimerName::Prepare);
        self.timers.stop(TimerName::DoViewChange);
        self.timers.start(TimerName::StartViewChange);
        self.timers.start(TimerName::ViewChangeStatus);
        self.timers.start(TimerName::Probe);
        cx.out.push(Output::Role(RoleChange::ViewChange { view }));
        super::transition!(
            self,
            node = self.config.replica.0,
            group = %self.config.group,
            view = view.0,
            "view change"
        );
    }

    /// There is no further view: a peer has driven the group there by numbers. Nothing can be
    /// elected any more, and what there is stays as it is.
    fn stay_in_last_view(&mut self) {
        self.timers.reset(TimerName::Heartbeat);
        self.timers.reset(TimerName::Probe);
        self.timers.reset(TimerName::ViewChangeStatus);
    }

    /// Forgets votes and outcome of a view that did not start. What was fetched for its log is
    /// not of the log this replica last worked in: it was never acknowledged, and passed off as
    /// a part of that log it would contradict those who have the rest of it. What is committed
    /// is part of every log. Where it took the place of something unreadable, that may have been
    /// acknowledged, and may have been the same: nothing is said of it.
    pub(crate) fn abandon_election(&mut self) {
        let votes = std::mem::take(&mut self.votes);
        let fetched = votes.elect.into_iter().flat_map(|elect| elect.fetched);
        let commit_max = self.commit_max;
        let uncommitted = fetched.filter(|it| it.op > commit_max && !mutated!(FetchedIsOwn));
        for Fetched { op, fills_damage } in uncommitted {
            if let Some(held) = self.log.held_mut(op) {
                held.trust = match fills_damage {
                    true => Trust::Suspect,
                    false => Trust::Stray,
                };
            }
        }
    }

    pub(crate) fn on_start_view_change<P: Plane>(
        &mut self,
        header: &StartViewChangeHeader,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        self.check_sender(&header.frame, header.group())?;
        if self.status == Status::Recovering && !mutated!(RecoveringVotes) {
            return Err(Ignored::Status);
        }
        let view = header.frame.view();
        if view < self.view {
            return Err(Ignored::ViewOlder);
        }
        if view > self.view {
            self.enter_view_change(view, cx);
        }
        if self.status != Status::ViewChange {
            return Err(Ignored::Status);
        }
        self.votes.changers.insert(header.frame.replica());
        let others = self.votes.changers.without(self.config.replica).len();
        if !self.votes.own_sent && others >= self.quorums.others_before_vote {
            self.votes.own_sent = true;
            self.pending.do_view_change = true;
            self.timers.start(TimerName::DoViewChange);
            if self.is_primary_by_index() {
                self.record_own_vote();
                self.decide(cx);
            }
        }
        Ok(())
    }

    pub(crate) fn on_do_view_change<P: Plane>(
        &mut self,
        frame: &Typed<DoViewChangeHeader>,
        cx: &mut Context<'_, P>,
    ) -> Handled {
        let header = frame.header();
        self.check_sender(&header.frame, header.group())?;
        if self.status == Status::Recovering && !mutated!(RecoveringVotes) {
            return Err(Ignored::Status);
        }
        let view = header.frame.view();
        if view < self.view {
            return Err(Ignored::ViewOlder);
        }
        let Ok(suffix) = Suffix::of_do_view_change(frame) else {
            return Err(Ignored::BadSuffix);
        };
        if view > self.view {
            self.enter_view_change(view, cx);
        }
        if !self.is_primary_by_index() {
            return Err(Ignored::NotPrimary);
        }
        if self.status != Status::ViewChange {
            return Err(Ignored::Status);
        }
        self.record_own_vote();
        let is_first = self
            .votes
            .cast
            .iter()
            .all(|vote| vote.replica != header.frame.replica());
        if !is_first {
            return Err(Ignored::Counted);
        }
        self.votes.cast.push(Vote::of_frame(header, &suffix));
        self.decide(cx);
        Ok(())
    }

    fn record_own_vote(&mut self) {
        let is_recorded = self
            .votes
            .cast
            .iter()
            .any(|vote| vote.replica == self.config.replica);
        if !is_recorded {
            let vote = self.own_vote();
            self.votes.cast.push(vote);
        }
    }

    /// Merges the votes once there is a quorum of them, and again with every further one until
    /// they suffice. Status, head and log view stay what they are.
    fn decide<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.votes.elect.is_some() {
            return;
        }
        if self.votes.cast.len() < usize::from(self.quorums.view_change) {
            return;
        }
        let merged = match merge(&self.votes.cast, self.config.replica_count, self.commit_min) {
            Merge::Decided(merged) => merged,
            Merge::Await { op } => {
                tracing::debug!(group = %self.config.group, op = op.0, "votes do not suffice");
                return;
            }
            Merge::Deadlock { op } => {
                tracing::error!(group = %self.config.group, op = op.0, "votes contradict");
                return;
            }
        };
        if !self.can_lead(&merged) {
            return;
        }
        let commit_known = self.commit_max;
        self.raise_commit_max(merged.commit);
        self.pipeline.clear();
        let covered = self.commit_min.min(merged.head);
        self.votes.elect = Some(Elect {
            merged,
            covered,
            fetched: Vec::new(),
        });
        self.reconcile(commit_known, cx);
        if mutated!(LogViewAtMerge) {
            self.log_view = self.view;
        }
    }

    fn can_lead(&self, merged: &MergedLog) -> bool {
        let commit = self.commit_max.max(merged.commit);
        if merged.head < commit {
            tracing::error!(
                group = %self.config.group,
                head = merged.head.0,
                commit = commit.0,
                "the votes end below what is committed"
            );
            return false;
        }
        let uncommitted = merged.head.0 - commit.0;
        if uncommitted > u64::from(self.config.limits.prepare_queue) {
            tracing::error!(
                group = %self.config.group,
                uncommitted,
                "more uncommitted prepares than this replica has room for"
            );
            return false;
        }
        true
    }

    /// The first op of the merged log that this elect cannot vouch for; `None` when it holds
    /// all of it, durably.
    fn first_uncovered(&mut self) -> Option<Op> {
        if mutated!(ElectWithoutBodies) {
            return None;
        }
        let elect = self.votes.elect.as_mut()?;
        let mut op = elect.covered.max(self.commit_min).next();
        while op <= elect.merged.head {
            if !self.log.is_verified(op) || !self.log.is_durable(op) {
                return Some(op);
            }
            elect.covered = op;
            op = op.next();
        }
        None
    }

    /// Starts the view if every op of its log, from the applied one up, is here.
    pub(crate) fn try_start_view<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        assert!(
            self.status == Status::ViewChange,
            "an elect is in view change"
        );
        assert!(
            self.is_primary_by_index(),
            "the elect is the primary of its view"
        );
        if self.transfer_stage == TransferStage::Installing || self.first_uncovered().is_some() {
            return;
        }
        let Some(elect) = self.votes.elect.take() else {
            return;
        };
        self.start_view(&elect.merged, cx);
    }

    fn start_view<P: Plane>(&mut self, merged: &MergedLog, cx: &mut Context<'_, P>) {
        self.status = Status::Normal;
        self.ceded = false;
        self.op_head = merged.head;
        self.log_view = self.view;
        self.log_lost = false;
        // A quorum voted for this view, so none can have started a higher one: what was seen of
        // one was not true.
        self.view_observed = self.view;
        for header in &merged.headers {
            self.last_timestamp = self.last_timestamp.max(header.timestamp());
        }
        self.adoption = None;
        self.is_blind = false;
        self.votes = super::Votes::default();
        self.recovery_barrier = self.recovery_barrier.min(self.op_head);
        self.pending.forget_promises();
        self.pending.start_view = true;
        self.abandon_transfer(cx);
        self.stop_view_change_timers();
        self.heartbeats_idle = 0;
        self.timers.start(TimerName::Commit);
        self.rebuild_pipeline();
        cx.out
            .push(Output::Role(RoleChange::Primary { view: self.view }));
        super::transition!(
            self,
            node = self.config.replica.0,
            group = %self.config.group,
            view = self.view.0,
            op = self.op_head.0,
            commit = self.commit_max.0,
            "leading"
        );
    }

    /// What is uncommitted becomes the pipeline again; own acknowledgements are counted as
    /// soon as the view is durable.
    fn rebuild_pipeline(&mut self) {
        self.pipeline.clear();
        self.op_acknowledged = self.commit_max;
        if mutated!(SuffixForgotten) {
            self.op_head = self.commit_max;
        }
        let mut op = self.commit_max.next();
        while op <= self.op_head {
            let header = self
                .log
                .header(op)
                .expect("coverage was checked up to the head");
            let entry = InFlight {
                op,
                checksum: header.frame.checksum(),
                client: header.client(),
                token: None,
                acknowledged: ReplicaSet::EMPTY,
                quorum: false,
            };
            self.pipeline.push(entry);
            op = op.next();
        }
        if !self.pipeline.is_empty() {
            self.timers.start(TimerName::Prepare);
        }
    }

    pub(crate) fn stop_view_change_timers(&mut self) {
        self.timers.stop(TimerName::StartViewChange);
        self.timers.stop(TimerName::DoViewChange);
        self.timers.stop(TimerName::ViewChangeStatus);
        self.timers.stop(TimerName::Probe);
    }

    pub(crate) fn on_start_view_change_timer(&mut self) {
        if self.status != Status::ViewChange {
            self.timers.stop(TimerName::StartViewChange);
            return;
        }
        self.timers.start(TimerName::StartViewChange);
        self.pending.start_view_change = true;
    }

    pub(crate) fn on_do_view_change_timer(&mut self) {
        if self.status != Status::ViewChange || !self.votes.own_sent {
            self.timers.stop(TimerName::DoViewChange);
            return;
        }
        self.timers.start(TimerName::DoViewChange);
        // An elect that has decided needs no more votes, and its own is of no use to others.
        if self.votes.elect.is_none() {
            self.pending.do_view_change = true;
        }
    }

    pub(crate) fn on_view_change_status_timer<P: Plane>(&mut self, cx: &mut Context<'_, P>) {
        if self.status != Status::ViewChange {
            self.timers.stop(TimerName::ViewChangeStatus);
            return;
        }
        self.enter_view_change(self.view.next(), cx);
    }
}
