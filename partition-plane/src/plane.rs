//! Many groups behind one entry point.
//!
//! The plane routes: a frame by its group, a completion by its queue, a client by the group the
//! driver resolved. What a group shares with its siblings (budgets, the serving side of state
//! transfers, the clock) is lent to it for the step.

use std::collections::{BTreeMap, BTreeSet};

use biplane_journal::{DiskCompletion, DiskView, QueueId};
use biplane_repair as repair;
use biplane_state_transfer as transfer;
use biplane_vsr as vsr;
use biplane_wire::{ClusterId, FrameBuffer, GroupId, ReplicaFrame, ReplicaId};

use crate::consumer_offsets::ConsumerKey;
use crate::context::{self, Context, Node, Queues, Scratch};
use crate::feeding::{Ahead, provide_limits};
use crate::group::{Group, Prospect};
use crate::io::{GroupSpec, Input, OffsetReply, Output, Outputs, PollQuery, PollReply};
use crate::limits::Limits;
use crate::load::Load;
use crate::pace::Pace;
use crate::parking::{Parked, Parking, refuse_without_group};
use crate::reconcile::Slot;
use crate::recovery::{self, NodeIdentity};
use crate::retention;
use crate::schedule::Schedule;
use crate::shared_superblock::{Change, SharedSuperblock};
use crate::stats::{GroupStatus, PartitionStats, SealedEnd};
use crate::status;
use crate::strangers::Strangers;

/// Repair sessions of all groups at once, and how many may start in one tick.
const REPAIRS_LIVE_MAX: u32 = 64;
const REPAIRS_ARMED_MAX: u32 = 16;

/// What a plane is made from.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterId,
    /// This replica.
    pub replica: ReplicaId,
    /// Replicas in the roster.
    pub replica_count: u8,
    /// Bounds.
    pub limits: Limits,
    /// Timers of the consensus core, in ticks.
    pub timers: vsr::Timers,
    /// Probes of a restarted replica before it takes part in elections.
    pub view_probe_attempts_max: u8,
    /// For all jitter and nonces; another one at every boot.
    pub seed: u64,
}

/// The partition plane of one node.
pub struct PartitionPlane {
    pub(crate) node: Node,
    pub(crate) slots: BTreeMap<GroupId, Slot>,
    pub(crate) owners: BTreeMap<Queues, GroupId>,
    /// Disk requests without an answer, by group.
    pub(crate) outstanding: BTreeMap<Queues, usize>,
    /// Groups that end.
    pub(crate) closing: BTreeSet<GroupId>,
    /// Groups that asked to start over, and why.
    pub(crate) resets: Vec<(GroupId, String)>,
    /// Promises of the groups without files, and changes on their way there.
    pub(crate) shared: SharedSuperblock,
    pub(crate) lines: Vec<Change>,
    /// Groups whose look at their peers is over and for which requests may wait.
    looked: Vec<GroupId>,
    pub(crate) pace: Pace,
    schedule: Schedule,
    /// Running groups that were not at rest when they were called last.
    pub(crate) restless: BTreeSet<GroupId>,
    /// Groups that do not run: opening, closing.
    pub(crate) unsettled: BTreeSet<GroupId>,
    /// Groups that were closed here: frames of the incarnation that is gone may still arrive,
    /// and nothing in them says so.
    pub(crate) retired: BTreeSet<GroupId>,
    pub(crate) strangers: Strangers,
    pub(crate) parking: Parking,
    pub(crate) next_slot: u64,
    pub(crate) seed: u64,
    pub(crate) disconnected: BTreeSet<ReplicaId>,
    resident_total: usize,
    now: u64,
    wall_micros: u64,
    tokens: u64,
    repairs: repair::Budget,
    pulls: transfer::PullBudget,
    pub(crate) provider: transfer::Provider,
    pub(crate) ahead: Ahead,
    pub(crate) load: Load,
    scratch: Scratch,
}

impl PartitionPlane {
    /// A plane without groups.
    pub fn new(config: Config) -> Self {
        let Config {
            cluster,
            replica,
            replica_count,
            limits,
            timers,
            ..
        } = config;
        let pulled = u32::try_from(limits.transfers_pulled_max).unwrap_or(u32::MAX);
        let provider = transfer::ProviderConfig {
            cluster,
            replica,
            replica_count,
            limits: provide_limits(&limits),
        };
        let identity = NodeIdentity {
            cluster,
            replica,
            replica_count,
        };
        Self {
            node: Node {
                identity,
                limits,
                timers,
                view_probe_attempts_max: config.view_probe_attempts_max,
            },
            slots: BTreeMap::new(),
            owners: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            closing: BTreeSet::new(),
            resets: Vec::new(),
            shared: SharedSuperblock::new(identity),
            lines: Vec::new(),
            looked: Vec::new(),
            pace: Pace::default(),
            schedule: Schedule::default(),
            restless: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            retired: BTreeSet::new(),
            strangers: Strangers::default(),
            parking: Parking::default(),
            next_slot: 0,
            seed: config.seed,
            disconnected: BTreeSet::new(),
            resident_total: 0,
            now: 0,
            wall_micros: 0,
            tokens: 0,
            repairs: repair::Budget::new(REPAIRS_LIVE_MAX, REPAIRS_ARMED_MAX),
            pulls: transfer::PullBudget::new(pulled),
            provider: transfer::Provider::new(provider),
            ahead: Ahead::default(),
            load: Load::default(),
            scratch: Scratch::default(),
        }
    }

    /// Who this node is, for [`recovery::recover`].
    pub fn identity(&self) -> NodeIdentity {
        self.node.identity
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The bounds it runs with.
    pub fn limits(&self) -> &Limits {
        &self.node.limits
    }

    /// The only way in. One line per kind of input.
    pub fn step(&mut self, input: Input, out: &mut Outputs) {
        let from = out.len();
        self.load.note(&input);
        match input {
            Input::Tick { wall_micros } => self.tick(wall_micros, out),
            Input::Frame { from, frame } => self.frame(from, frame, out),
            Input::Disk(done) => self.disk(done, out),
            Input::Peer { replica, connected } => self.peer(replica, connected, out),
            Input::OpenGroup { spec, recovered } => self.open(spec, *recovered, out),
            Input::CloseGroup { group } => self.close(group, None, out),
            Input::UpdateGroup(spec) => self.update(spec, out),
            Input::Submit {
                token,
                group,
                request,
            } => self.submit(token, group, request, out),
            Input::Poll {
                token,
                group,
                query,
            } => self.poll(token, group, query, out),
            Input::GetOffset { token, group, key } => self.get_offset(token, group, key, out),
            Input::ForgetOffset { group, key } => {
                self.visit(group, out, |group, context| {
                    group.forget_offset(key, context)
                });
            }
            Input::TopologyConfirmed => self.strangers.confirm(),
            Input::FlushAll => {
                self.each_group(out, |group, context| group.flush_all(context));
            }
        }
        for group in std::mem::take(&mut self.looked) {
            self.release_parked(group, out);
        }
        self.pass_lines(out);
        let until = out.len();
        self.count_requests(&out[from..until]);
        self.settle_slots(out);
        self.pass_lines(out);
        self.count_requests(&out[until..]);
    }

    /// Reads the partition's folder and opens the group: [`recovery::recover`] followed by
    /// [`Input::OpenGroup`]. Blocks on the disk.
    pub fn open_group(&mut self, spec: GroupSpec, view: &dyn DiskView, out: &mut Outputs) {
        self.shared.load(view);
        let recovered = recovery::recover(self.node.identity, &self.node.limits, &spec, view);
        self.step(
            Input::OpenGroup {
                spec,
                recovered: Box::new(recovered),
            },
            out,
        );
    }

    /// Whether completions of `queue` belong to this plane.
    pub fn owns(&self, queue: QueueId) -> bool {
        context::is_ours(queue)
    }

    pub(crate) fn parts<'a>(
        &'a mut self,
        out: &'a mut Outputs,
    ) -> (&'a mut BTreeMap<GroupId, Slot>, Context<'a>) {
        let context = Context {
            node: &self.node,
            out,
            now: self.now,
            wall_micros: self.wall_micros,
            confirmed: self.strangers.confirmed(),
            absent: &self.disconnected,
            tokens: &mut self.tokens,
            repairs: &mut self.repairs,
            pulls: &mut self.pulls,
            provider: &mut self.provider,
            resident_total: &mut self.resident_total,
            resets: &mut self.resets,
            lines: &mut self.lines,
            looked: &mut self.looked,
            pace: &mut self.pace,
            scratch: &mut self.scratch,
        };
        (&mut self.slots, context)
    }

    /// The one way to a running group: it learns the time before and says afterwards when it
    /// wants to be called. `false` when no such group runs.
    pub(crate) fn visit(
        &mut self,
        id: GroupId,
        out: &mut Outputs,
        action: impl FnOnce(&mut Group, &mut Context<'_>),
    ) -> bool {
        let (slots, mut context) = self.parts(out);
        let Some(Slot::Running(group)) = slots.get_mut(&id) else {
            return false;
        };
        group.catch_up(context.now);
        action(group, &mut context);
        let prospect = group.prospect(&mut context);
        self.file(id, &prospect);
        true
    }

    /// Remembers when a group is to be called, and whether it may have to be looked at before.
    pub(crate) fn file(&mut self, id: GroupId, prospect: &Prospect) {
        if let Some(wake) = prospect.wake {
            self.schedule.set(id, wake);
        }
        if prospect.is_at_rest {
            self.restless.remove(&id);
        } else {
            self.restless.insert(id);
        }
    }

    /// The group does not run any more.
    pub(crate) fn unfile(&mut self, id: GroupId) {
        self.pace.forget(id);
        self.restless.remove(&id);
    }

    fn each_group(
        &mut self,
        out: &mut Outputs,
        mut action: impl FnMut(&mut Group, &mut Context<'_>),
    ) {
        for group in self.groups().collect::<Vec<GroupId>>() {
            self.visit(group, out, &mut action);
        }
    }

    fn tick(&mut self, wall_micros: u64, out: &mut Outputs) {
        self.now += 1;
        self.wall_micros = wall_micros;
        self.repairs.begin_tick();
        self.pulls.begin_tick();
        self.take_resets(out);
        self.shared.pump(self.now, out);
        for group in self.pace.next_in_line(self.now) {
            self.tick_group(group, out);
        }
        for group in self.schedule.take(self.now) {
            self.tick_group(group, out);
        }
        // After the groups: one that is read for must have had this tick.
        self.tick_feeding(out);
        for group in self.unsettled.clone() {
            let (slots, mut context) = self.parts(out);
            if let Some(slot) = slots.get_mut(&group) {
                slot.tick(&mut context);
            }
        }
        if self
            .now
            .is_multiple_of(self.node.limits.reconcile_ticks.max(1))
        {
            for (_, token, request) in self.parking.pass(&self.node.limits) {
                refuse_without_group(token, &request, out);
            }
        }
    }

    /// A tick for a group whose turn it may be: it stands in line, or was filed under this tick
    /// and not moved forward since.
    fn tick_group(&mut self, group: GroupId, out: &mut Outputs) {
        let (slots, mut context) = self.parts(out);
        let Some(Slot::Running(running)) = slots.get_mut(&group) else {
            return;
        };
        if running.waits_in_line() || running.filed_at() == context.now {
            running.tick_in_turn(&mut context);
            let prospect = running.prospect(&mut context);
            self.file(group, &prospect);
        }
    }

    pub(crate) fn frame(&mut self, from: ReplicaId, frame: ReplicaFrame, out: &mut Outputs) {
        let Some(group) = frame.route().filter(|group| group.unpack().is_some()) else {
            return;
        };
        match self.slots.get(&group) {
            Some(Slot::Running(running)) => {
                let views = (running.spec.created_view, running.replica().view());
                let waits = !running.home().has_files() && running.is_for_files(&frame);
                if !self.strangers.admits(group, views, &frame) {
                    return;
                }
                if waits {
                    // What does not fit is dropped and sent again.
                    let parked = Parked::Frame { from, frame };
                    let _ = self.parking.park(group, parked, &self.node.limits);
                    self.visit(group, out, |group, context| group.make_files(context));
                    return;
                }
                self.visit(group, out, |group, context| {
                    group.frame(from, frame, context)
                });
            }
            Some(Slot::Refused { .. }) => {}
            Some(Slot::Opening(_) | Slot::Closing(_)) | None => {
                if matches!(frame, ReplicaFrame::Prepare(_)) && !self.retired.contains(&group) {
                    let parked = Parked::Frame { from, frame };
                    // What does not fit is dropped; repair brings it later.
                    let _ = self.parking.park(group, parked, &self.node.limits);
                }
            }
        }
    }

    fn disk(&mut self, done: DiskCompletion, out: &mut Outputs) {
        let Some(queues) = Queues::owner(done.queue) else {
            return;
        };
        if let Some(count) = self.outstanding.get_mut(&queues) {
            *count -= 1;
            if *count == 0 {
                self.outstanding.remove(&queues);
            }
        }
        if SharedSuperblock::owns(queues) {
            return self.shared_disk(&done, out);
        }
        let Some(group) = self.owners.get(&queues).copied() else {
            return;
        };
        self.slot_disk(group, queues, done, out);
    }

    fn peer(&mut self, replica: ReplicaId, connected: bool, out: &mut Outputs) {
        match connected {
            true => self.disconnected.remove(&replica),
            false => self.disconnected.insert(replica),
        };
        self.ahead.note_peer(connected, self.now);
        self.each_group(out, |group, context| {
            group.peer(replica, connected, context)
        });
    }

    /// Tells a new group which peers are not there.
    pub(crate) fn introduce_peers(&mut self, group: GroupId, out: &mut Outputs) {
        for replica in self.disconnected.clone() {
            self.visit(group, out, |group, context| {
                group.peer(replica, false, context)
            });
        }
    }

    pub(crate) fn submit(
        &mut self,
        token: u64,
        group: GroupId,
        request: FrameBuffer,
        out: &mut Outputs,
    ) {
        match self.slots.get(&group) {
            Some(Slot::Running(running)) => {
                let lacks_files = !running.home().has_files() && running.replica().is_primary();
                if lacks_files || running.looks_first() {
                    self.park_request(token, group, request, out);
                    self.visit(group, out, |group, context| {
                        group.make_files(context);
                        group.look_now(context);
                    });
                    return;
                }
                self.visit(group, out, |group, context| {
                    group.submit(token, request, context)
                });
            }
            Some(Slot::Refused { .. }) => refuse_without_group(token, &request, out),
            Some(Slot::Opening(_) | Slot::Closing(_)) | None => {
                self.park_request(token, group, request, out);
            }
        }
    }

    fn park_request(
        &mut self,
        token: u64,
        group: GroupId,
        request: FrameBuffer,
        out: &mut Outputs,
    ) {
        let parked = Parked::Request {
            token,
            request,
            passes: 0,
        };
        let refused = self.parking.park(group, parked, &self.node.limits);
        if let Err(Parked::Request { token, request, .. }) = refused {
            refuse_without_group(token, &request, out);
        }
    }

    pub(crate) fn poll(&mut self, token: u64, group: GroupId, query: PollQuery, out: &mut Outputs) {
        if let Some(Slot::Opening(opening)) = self.slots.get_mut(&group) {
            opening.polls.push((token, query));
            return;
        }
        if self.visit(group, out, |group, context| {
            group.poll(token, query, context)
        }) {
            return;
        }
        let partition = group.unpack().map_or(u32::MAX, |key| key.partition);
        let reply = match query.primary_only {
            true => PollReply::refused(status::NOT_ACCEPTED),
            false => PollReply::empty(partition, 0),
        };
        out.push(Output::PollReply { token, reply });
    }

    fn get_offset(&mut self, token: u64, group: GroupId, key: ConsumerKey, out: &mut Outputs) {
        let reply = match self.slots.get(&group) {
            Some(Slot::Running(running)) => running.get_offset(key),
            _ => OffsetReply {
                status: 0,
                body: None,
            },
        };
        out.push(Output::OffsetReply { token, reply });
    }

    pub(crate) fn running(&self, group: GroupId) -> Option<&Group> {
        match self.slots.get(&group) {
            Some(Slot::Running(running)) => Some(running),
            _ => None,
        }
    }

    /// The state of a group; `None` when it does not run here.
    pub fn status(&self, group: GroupId) -> Option<GroupStatus> {
        self.running(group).map(Group::status)
    }

    /// Statistics of a partition; `None` when it does not run here.
    pub fn stats(&self, group: GroupId) -> Option<PartitionStats> {
        self.running(group).map(Group::stats)
    }

    /// The consensus core of a group, for oracles and metrics.
    pub fn replica(&self, group: GroupId) -> Option<&vsr::Replica> {
        self.running(group).map(Group::replica)
    }

    /// Committed positions of a group, ascending.
    pub fn stored_offsets(&self, group: GroupId) -> Vec<(ConsumerKey, u64)> {
        self.running(group).map_or(Vec::new(), |running| {
            running.state().offsets.committed_all()
        })
    }

    /// Resolves a number of segments to delete into the offset up to which they go.
    pub fn sealed_end(&self, group: GroupId, segments_count: u32) -> SealedEnd {
        let Some(running) = self.running(group) else {
            return SealedEnd::Unknown;
        };
        match retention::sealed_end(running.segments(), segments_count) {
            Some(end) => SealedEnd::UpTo(end),
            None if running.status().caught_up => SealedEnd::Nothing,
            None => SealedEnd::Lagging,
        }
    }

    /// Whether a consumer group has committed everything it was served here.
    pub fn drained(&self, group: GroupId, consumer_group: u32) -> bool {
        self.running(group)
            .is_none_or(|running| running.is_drained(consumer_group))
    }

    /// Forgets what a consumer group was served here: the member that polled it is gone.
    pub fn forget_served(&mut self, group: GroupId, consumer_group: u32) {
        if let Some(Slot::Running(running)) = self.slots.get_mut(&group) {
            running.forget_served(consumer_group);
        }
    }

    /// Every group that runs here.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let running = |(group, slot): (&GroupId, &Slot)| match slot {
            Slot::Running(_) => Some(*group),
            _ => None,
        };
        self.slots.iter().filter_map(running)
    }

    fn count_requests(&mut self, outputs: &[Output]) {
        for output in outputs {
            if let Output::Disk(request) = output
                && let Some(queues) = Queues::owner(request.queue)
            {
                *self.outstanding.entry(queues).or_default() += 1;
            }
        }
    }
}
