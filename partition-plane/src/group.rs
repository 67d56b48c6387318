//! One partition group: its replica, its files, its repair and its clients, composed.
//!
//! Every entry point works the same way: the input goes to the machine it is for, then
//! [`Group::settle`] follows the consequences to their end. vsr's outputs become disk requests
//! and frames, committed operations are applied, repair looks again, flushes start. No machine
//! calls another; what one says to the next passes through here.

mod cold_start;
mod commit;
mod frames;
pub(crate) mod home;
mod install;
mod lost;
mod maintenance;
mod open;
mod persist;
mod polls;
mod progress;
mod purge;
mod raise;
mod repairs;
mod requests;
mod spool;
mod storage;
mod transfer_in;
mod transfer_out;

use biplane_journal::{LoadedSuperblock, SuperblockFile};
use biplane_repair::Requester;
use biplane_state_transfer::Puller;
use biplane_vsr as vsr;
use biplane_wire::{PartitionKey, PrepareHeader, ReplicaId};

use crate::admission;
use crate::context::{Context, Queues};
use crate::flush::Flusher;
use crate::group::cold_start::ColdStart;
use crate::group::home::Home;
use crate::group::persist::LogGlue;
use crate::group::polls::Polls;
use crate::group::purge::Purge;
use crate::group::raise::Raise;
use crate::group::requests::Clients;
use crate::group::storage::OffsetWriter;
use crate::group::transfer_in::TransferIn;
use crate::io::{GroupSpec, Output, RoleChange};
use crate::log_state::LogState;
use crate::offset_request::OffsetRequest;
use crate::paths::Paths;
use crate::reply::Origin;
use crate::segments::Segments;
use crate::stats::{GroupStatus, PartitionStats};

/// Ticks for which the repair side looks at a replica that has just become Normal, idle or not.
const OBSERVED_TICKS: u64 = 2;

/// What comes next for a group.
pub(crate) struct Prospect {
    /// The tick on which it is to be called; `None` when it will be called early enough, or
    /// stands in line.
    pub(crate) wake: Option<u64>,
    /// It knows who leads, has applied what is committed, and has nothing under way.
    pub(crate) is_at_rest: bool,
}

/// A running group.
pub(crate) struct Group {
    pub(crate) spec: GroupSpec,
    key: PartitionKey,
    paths: Paths,
    queues: Queues,
    replica: vsr::Replica,
    state: LogState,
    segments: Segments,
    flusher: Flusher,
    offset_writer: OffsetWriter,
    home: Home,
    superblock: SuperblockFile,
    log: LogGlue,
    requester: Requester,
    puller: Puller,
    transfer: TransferIn,
    /// The applied point is to be raised.
    raise: Option<Raise>,
    cold: ColdStart,
    purge: Purge,
    clients: Clients,
    polls: Polls,
    /// Lower bound of the next offset that survives an empty partition (chapter 06 section 16.3).
    frontier: u64,
    /// Tick up to which the replica was told of the time.
    ticked_at: u64,
    /// Its next tick would begin an election, or ask who leads, and many others do: its clock
    /// stands still.
    waits_in_line: bool,
    /// The tick on which it is called next, unless that is over.
    filed_at: u64,
    /// What [`Prospect`] said last.
    is_at_rest: bool,
    /// The call that is running has changed nothing of what that depends on.
    is_undisturbed: bool,
    /// Bytes of the resident prepares.
    resident_bytes: usize,
    /// Bytes of the batches not on disk yet.
    unflushed_bytes: u64,
    /// Tick since which a committed batch waits for its flush.
    unflushed_since: Option<u64>,
    /// Tick of the next retention pass.
    retention_at: u64,
    /// Tick since which live batches are refused for their offsets.
    refusing_since: Option<u64>,
    /// Whether the replica is in status Normal, and since which tick.
    settled_since: Option<u64>,
    stats: PartitionStats,
    /// How the last attempt to catch up ended, where it did not succeed.
    trouble: Option<String>,
}

impl Group {
    /// Follows the consequences of an input until nothing more happens.
    pub(crate) fn settle(&mut self, context: &mut Context<'_>) {
        loop {
            self.translate(context);
            self.walk_commits(context);
            let mut out = std::mem::take(&mut context.scratch.vsr);
            let promoted = self.replica.promote(&mut self.state, &mut out);
            context.scratch.vsr = out;
            if !promoted && context.scratch.vsr.is_empty() {
                break;
            }
        }
        self.advance_repair(context);
        self.maintain(context);
        // A superblock that need not be written any more made the replica speak again.
        self.translate(context);
    }

    /// Turns vsr's outputs into effects of the plane.
    fn translate(&mut self, context: &mut Context<'_>) {
        while !context.scratch.vsr.is_empty() {
            let mut outputs = std::mem::take(&mut context.scratch.vsr);
            for output in outputs.drain(..) {
                self.translate_one(output, context);
            }
            // Handing an append to the log may have made the replica speak again.
            if context.scratch.vsr.is_empty() {
                context.scratch.vsr = outputs;
                return;
            }
        }
    }

    fn translate_one(&mut self, output: vsr::Output, context: &mut Context<'_>) {
        match output {
            vsr::Output::Send { to, message } => context.send(to, message),
            vsr::Output::Append { prepare } => self.append(prepare, context),
            vsr::Output::Truncate { from } => self.truncate_log(from, context),
            vsr::Output::PersistView {
                view,
                log_view,
                commit_max,
            } => {
                self.persist_view(view, log_view, commit_max, context);
            }
            vsr::Output::Promoted { .. } => {}
            vsr::Output::Denied {
                token,
                request,
                code,
                ..
            } => {
                self.denied(token, &request, code, context);
            }
            vsr::Output::Canceled { token, .. } => self.canceled(token, context),
            vsr::Output::Transfer(notice) => self.on_transfer_notice(notice, context),
            vsr::Output::Role(role) => self.on_role(role, context),
            vsr::Output::Halt(reason) => {
                let (group, reason) = (self.spec.group, format!("{reason:?}"));
                context.out.push(Output::Halt { group, reason });
            }
        }
    }

    /// Hands the replica an input; [`Group::settle`] follows.
    fn step_replica(&mut self, input: vsr::Input, context: &mut Context<'_>) {
        self.replica
            .step(input, &mut self.state, &mut context.scratch.vsr);
    }

    fn on_role(&mut self, role: vsr::RoleChange, context: &mut Context<'_>) {
        self.settled_since = match role {
            vsr::RoleChange::Primary { .. } | vsr::RoleChange::Backup { .. } => {
                context.pace.ended(self.spec.group, context.now);
                Some(context.now)
            }
            vsr::RoleChange::ViewChange { .. } | vsr::RoleChange::Recovering { .. } => None,
        };
        self.begin_cold_start(context);
        self.tell_role(context);
    }

    fn tell_role(&mut self, context: &mut Context<'_>) {
        let is_primary = self.replica.is_primary();
        self.state.dedup.forget_in_flight();
        self.state.offsets.forget_promises();
        self.clients.forget_auto_commits();
        if is_primary {
            self.adopt_suffix();
        } else {
            context.provider.withdraw(self.spec.group);
        }
        self.refusing_since = None;
        self.state.refused_stamp = None;
        context.out.push(Output::Role(RoleChange {
            group: self.spec.group,
            view: self.replica.view(),
            primary: self.replica.primary(),
            is_primary,
        }));
    }

    /// Lets the replica see the ticks up to `now` that passed without this group being called:
    /// none of them could have had an effect.
    pub(crate) fn catch_up(&mut self, now: u64) {
        if !self.waits_in_line {
            self.replica.skip_ticks(now - self.ticked_at);
            if !self.is_at_rest {
                self.puller.skip_ticks(now - self.ticked_at);
            }
        }
        self.ticked_at = now;
    }

    /// Ends every call: what the plane has to know of the group until the next.
    pub(crate) fn prospect(&mut self, context: &mut Context<'_>) -> Prospect {
        if self.waits_in_line {
            if self.replica.begins_next_tick().is_some() {
                self.is_at_rest = false;
                return Prospect {
                    wake: None,
                    is_at_rest: false,
                };
            }
            // The primary was heard meanwhile, or a peer has begun.
            self.waits_in_line = false;
            context.pace.forget(self.spec.group);
        }
        let now = context.now;
        let was_disturbed = !std::mem::take(&mut self.is_undisturbed);
        if was_disturbed && self.cold.take_end() {
            context.looked.push(self.spec.group);
        }
        if was_disturbed && !self.is_still(now) {
            self.is_at_rest = false;
            return self.prospect_at(now, now + 1);
        }
        if was_disturbed {
            self.is_at_rest = self.replica.is_normal() && self.is_quiet(now);
        }
        let mut wake = (now + self.replica.ticks_to_wake())
            .min(self.retention_at)
            .min(self.cold.wakes_at().unwrap_or(u64::MAX));
        if !self.is_at_rest {
            wake = wake.min(now.saturating_add(self.puller.ticks_to_wake()));
        }
        self.prospect_at(now, wake.max(now + 1))
    }

    /// A call that comes earlier than it must has no effect but that the next is filed: every
    /// heartbeat puts off the deadline of a backup, and most of these need not be filed.
    fn prospect_at(&mut self, now: u64, wake: u64) -> Prospect {
        let is_filed = (now + 1..=wake).contains(&self.filed_at);
        if !is_filed {
            self.filed_at = wake;
        }
        Prospect {
            wake: (!is_filed).then_some(wake),
            is_at_rest: self.is_at_rest,
        }
    }

    /// Hands the replica of a group at rest what may be no more than a sign of life: a heartbeat,
    /// or a tick. Whether it was no more: then nothing else here has changed, and nothing else
    /// need be looked at. Of thousands of idle groups hardly any memory is at hand.
    fn stays_at_rest(&mut self, input: vsr::Input, context: &mut Context<'_>) -> bool {
        let was_at_rest = self.is_at_rest
            && context.now < self.retention_at
            && !self.cold.wants_tick(context.now);
        self.step_replica(input, context);
        let commit = self.replica.commit_max();
        self.is_undisturbed = was_at_rest
            && self.replica.is_normal()
            && self.replica.commit_min() == commit
            && self.replica.op_head() == commit
            && context.scratch.vsr.iter().all(vsr::Output::is_send);
        if self.is_undisturbed {
            self.translate(context);
        }
        self.is_undisturbed
    }

    /// A primary answers for what its log holds uncommitted, whoever admitted it: a retry of
    /// such a request must not be executed beside it.
    fn adopt_suffix(&mut self) {
        let mut op = self.replica.commit_min().next();
        while op <= self.replica.op_head() {
            if let Some(prepare) = self.replica.log().get(op) {
                let header = prepare.header::<PrepareHeader>();
                let (client, request) = (header.client().0, header.request().0);
                self.state.dedup.began(client, request);
                let stored = admission::decode_if_offset(header.operation(), prepare.body());
                if let Ok(Some(OffsetRequest {
                    key,
                    offset: Some(_),
                })) = stored
                {
                    self.state.offsets.promise(key);
                }
            }
            op = op.next();
        }
    }

    /// As [`Group::tick`], but a replica that is about to elect, or to ask who leads, waits for
    /// its turn. Its clock stands still meanwhile: should the primary be heard, nothing was
    /// missed.
    pub(crate) fn tick_in_turn(&mut self, context: &mut Context<'_>) {
        self.filed_at = 0;
        self.catch_up(context.now - 1);
        if let Some(begins) = self.replica.begins_next_tick() {
            let (group, is_complete) = (self.spec.group, context.absent.is_empty());
            self.waits_in_line = !context.pace.admit(group, begins, is_complete, context.now);
            if self.waits_in_line {
                self.ticked_at = context.now;
                return;
            }
        }
        self.tick(context);
    }

    /// Ten milliseconds passed.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
        let wall_micros = context.wall_micros;
        self.catch_up(context.now - 1);
        self.ticked_at = context.now;
        if self.stays_at_rest(vsr::Input::Tick { wall_micros }, context) {
            return;
        }
        if self.is_quiet(context.now) {
            // A heartbeat, and nothing that comes of it.
            self.translate(context);
            if self.is_quiet(context.now) {
                return;
            }
        }
        self.tick_home(context);
        self.tick_files(context);
        self.tick_purge(context);
        self.tick_polls(context);
        self.tick_repair(context);
        self.tick_raise(context);
        self.tick_transfer(context);
        self.tick_cold_start(context);
        self.tick_refusals(context);
        self.tick_retention(context);
        self.settle(context);
    }

    /// Whether a tick can change nothing here beyond what the replica itself did: thousands of
    /// idle groups share one processor.
    pub(crate) fn is_quiet(&self, now: u64) -> bool {
        self.is_still(now) && !self.cold.wants_tick(now) && !self.transfer.is_busy(&self.puller)
    }

    /// The same but for a look at the peers, which knows when it goes on.
    fn is_still(&self, now: u64) -> bool {
        let applied = self.replica.commit_min();
        self.rests(now)
            && applied == self.replica.commit_max()
            && applied == self.replica.op_head()
            && self.unflushed_since.is_none()
            && self.state.refused_stamp.is_none()
            && now < self.retention_at
            && !self.purge.is_due()
            && !(self.state.is_ahead && self.replica.is_primary())
            && !self.requester.has_session()
            && (!self.transfer.is_busy(&self.puller) || self.puller.is_looking())
            && !self.transfer.offers_wanted.hold_requests()
            && self.polls.is_idle()
            && !self.state.offsets.is_dirty()
            && self.superblock.failures() == 0
            && !self.log.is_syncing()
            && self.log.no_room().is_none()
            && !self.home.is_failing()
    }

    /// Whether the repair side has had its look. Where there is no log there is nothing to
    /// repair, whatever the status: thousands of empty groups may elect at once.
    fn rests(&self, now: u64) -> bool {
        match self.settled_since {
            Some(since) => now > since + OBSERVED_TICKS,
            None => self.home.is_line(),
        }
    }

    /// The connection to a peer came or went.
    pub(crate) fn peer(&mut self, replica: ReplicaId, connected: bool, context: &mut Context<'_>) {
        if !connected {
            self.requester.on_peer_lost(replica);
        }
        self.step_replica(vsr::Input::Peer { replica, connected }, context);
        self.settle(context);
    }

    pub(crate) fn origin(&self, context: &Context<'_>) -> Origin {
        Origin {
            cluster: context.node.identity.cluster,
            view: self.replica.view(),
            replica: context.node.identity.replica,
            commit_max: self.replica.commit_max(),
        }
    }

    /// Whether its clock stands still until it may begin what its next tick begins.
    pub(crate) fn waits_in_line(&self) -> bool {
        self.waits_in_line
    }

    /// The tick on which it is called next, if that lies ahead.
    pub(crate) fn filed_at(&self) -> u64 {
        self.filed_at
    }

    /// Whether a request for this primary waits until it has looked at its peers.
    pub(crate) fn looks_first(&self) -> bool {
        self.replica.leads() && self.cold.makes_wait()
    }

    pub(crate) fn queues(&self) -> Queues {
        self.queues
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(crate) fn replica(&self) -> &vsr::Replica {
        &self.replica
    }

    pub(crate) fn state(&self) -> &LogState {
        &self.state
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Whether every committed batch and every stored position has reached its file.
    pub(crate) fn is_flushed(&self) -> bool {
        self.segments.next_offset() >= self.state.committed_next
            && !self.state.offsets.is_dirty()
            && self.offset_writer.is_idle()
    }

    /// The views this node promised for the group, for the folder that comes after this one.
    pub(crate) fn promises(&self) -> LoadedSuperblock {
        LoadedSuperblock {
            record: self.promised(),
            sequence: 0,
        }
    }

    /// Metadata changed options, purge generation or deletion watermark.
    pub(crate) fn update(&mut self, spec: GroupSpec, context: &mut Context<'_>) {
        self.want_purge(spec.purge_generation, context.now);
        self.segments.set_segment_size(spec.options.segment_size);
        self.spec = spec;
        self.apply_truncation(context);
        self.settle(context);
    }

    pub(crate) fn stats(&self) -> PartitionStats {
        PartitionStats {
            segments_count: u32::try_from(self.segments.count()).unwrap_or(u32::MAX),
            current_offset: self.state.committed().unwrap_or(0),
            ..self.stats
        }
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let status = self.replica.status();
        GroupStatus {
            view: status.view,
            primary: status.primary,
            is_primary: status.is_primary,
            caught_up: self.replica.is_caught_up_primary(),
            commit_min: status.commit_min,
            commit_max: status.commit_max,
            head: status.op_head,
            transferring: status.transfer_stage != vsr::TransferStage::Idle,
            next_offset: self.state.next_offset,
            committed_next: self.state.committed_next,
            flushed_next: self.segments.next_offset(),
            purge_generation: self.purge.applied(),
        }
    }

    /// What holds between any two steps.
    pub(crate) fn check_invariants(&self) {
        self.replica.check_invariants();
        self.requester.check_invariants();
        self.puller.check_invariants();
        let state = &self.state;
        assert!(
            state.unapplied.has_marker() || state.committed_next <= state.next_offset,
            "visible messages were minted"
        );
        let mut last: Option<&crate::resident::Resident> = None;
        for entry in &state.resident {
            if let Some(last) = last {
                assert!(last.op < entry.op, "resident operations ascend");
                assert!(
                    last.next_offset == entry.base_offset,
                    "resident offsets are contiguous"
                );
            }
            last = Some(entry);
        }
        let flushed = self.segments.next_offset();
        let memory = state.resident_offsets();
        assert!(
            self.transfer.is_installing()
                || flushed >= state.committed_next
                || (memory.contains(&flushed) && memory.end == state.committed_next),
            "what is not on disk is in memory: {flushed} of {} in {memory:?}",
            state.committed_next
        );
    }
}
