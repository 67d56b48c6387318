//! The pulling side of repair: what is missing, whom to ask, when to ask again.
//!
//! One requester serves one group and has at most one session. What is missing is not found
//! here: the replica states it as a [`RepairNeed`], for as long as it is so, and every decision
//! is taken anew from that. A lost frame, a crash of the peer or a change of view therefore
//! never leaves a session behind that waits for something nobody will send.
//!
//! Progress is measured by ops stored in the log, not by ops applied: on the metadata plane a
//! stored op is applied only after its write is durable, and the chunk after it need not wait
//! for that.

mod pacing;
mod report;
mod session;

use biplane_vsr::Nonces;
use biplane_wire::{
    ClusterId, Command, GroupId, Header, Op, PrepareHeader, RepairRangeReplyHeader, ReplicaId, View,
};

pub use self::report::{Ingested, Progress, RepairIgnored, RepairOutput, SessionOutcome, trouble};
use self::session::Session;
use crate::budget::Budget;
use crate::connect::{Connect, ConnectFacts, HeldOp, History, connect};
use crate::limits::RepairLimits;
use crate::peers;
use crate::view::{GroupStatus, GroupView, NeedKind, PlaneKind, RepairNeed, TransferState};

/// What a requester is made from.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Stamped into every request.
    pub cluster: ClusterId,
    /// The group.
    pub group: GroupId,
    /// This replica.
    pub replica: ReplicaId,
    /// Members of the cluster, at least one.
    pub replica_count: u8,
    /// The plane of the group.
    pub plane: PlaneKind,
    /// Pacing.
    pub limits: RepairLimits,
    /// For the nonces; another one at every boot.
    pub seed: u64,
}

/// A wish to start without waiting for the debounce.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    peer: Option<ReplicaId>,
    ticks_left: u32,
}

/// The pulling side of one group.
#[derive(Clone, Debug)]
pub struct Requester {
    config: RequesterConfig,
    nonces: Nonces,
    session: Option<Session>,
    /// How long the gap has lasted, in ticks.
    gap_ticks: u32,
    prompt: Option<Prompt>,
    /// Ticks in which no session is opened.
    cooldown: u32,
    /// The peer of the last session that led nowhere.
    failed: Option<ReplicaId>,
    /// Sessions in a row that a peer ended because it retains nothing useful.
    refusals: u32,
    /// The applied point when a state transfer was last asked for.
    armed_at: Option<Op>,
    normal_in: Option<View>,
    was_transferring: bool,
}

impl Requester {
    /// A requester without a session.
    ///
    /// # Panics
    ///
    /// When the replica is not a member of the cluster.
    #[must_use]
    pub fn new(config: RequesterConfig) -> Self {
        assert!(
            config.replica.0 < config.replica_count,
            "the replica is in the roster"
        );
        Self {
            config,
            nonces: Nonces::new(config.seed),
            session: None,
            gap_ticks: 0,
            prompt: None,
            cooldown: 0,
            failed: None,
            refusals: 0,
            armed_at: None,
            normal_in: None,
            was_transferring: false,
        }
    }

    /// Whether a session is open.
    #[must_use]
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Starts without debounce when something is missing, preferring `peer`: the replica that
    /// served or refused a state transfer, or the sender of an adopted StartView. The wish
    /// lapses after the debounce interval.
    pub fn prompt(&mut self, peer: Option<ReplicaId>) {
        let ticks_left = self.config.limits.gap_debounce_ticks.max(1);
        self.prompt = Some(Prompt { peer, ticks_left });
    }

    /// The connection to a replica is gone: a session with it moves on at the next tick.
    pub fn on_peer_lost(&mut self, peer: ReplicaId) {
        if let Some(session) = self.session.as_mut().filter(|session| session.peer == peer) {
            session.peer_lost = true;
        }
    }

    /// One tick: closes what no longer holds, retries, opens what is due.
    pub fn tick(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        budget: &mut Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        self.cooldown = self.cooldown.saturating_sub(1);
        self.observe(group);
        self.settle(group, need, out);
        self.count_gap(group, need);
        self.retry(group, need, budget, out);
        self.open_if_due(group, need, budget, out);
        self.age_prompt();
        if self.session.is_some() {
            budget.note_live();
        }
    }

    /// Looks again after a step that changed log, commit point, view or transfer stage. No time
    /// passes.
    pub fn advance(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        budget: &mut Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        self.observe(group);
        self.settle(group, need, out);
        if self.session.as_ref().is_some_and(|session| session.resume) {
            self.request(group, need, out);
        }
        self.open_if_due(group, need, budget, out);
    }

    /// Whether a repair frame falls into the open session. Content is [`crate::verify()`]'s
    /// matter, and the log has the last word.
    ///
    /// # Errors
    ///
    /// Why the frame is dropped.
    pub fn admits(&self, group: &GroupView, header: &PrepareHeader) -> Result<(), RepairIgnored> {
        let Some(session) = &self.session else {
            return Err(RepairIgnored::NoSession);
        };
        if session.view != group.view || !matches_status(session.kind, group.status) {
            return Err(RepairIgnored::NotInView);
        }
        if group.transfer == TransferState::Active {
            return Err(RepairIgnored::Transferring);
        }
        let lowest = match session.kind {
            NeedKind::Elect => session.opened_at.min(session.from),
            NeedKind::Gap | NeedKind::Suffix => group.commit_min.next(),
        };
        if header.op() < lowest || header.op() > session.to {
            return Err(RepairIgnored::OutsideWindow);
        }
        Ok(())
    }

    /// A repair frame passed [`Requester::admits`] and all checks of its content. `content` says
    /// what a connect test would see in it; metadata says [`HeldOp::Other`].
    pub fn on_ingested(&mut self, op: Op, outcome: Ingested, content: HeldOp) {
        let Some(session) = self.session.as_mut().filter(|session| op <= session.to) else {
            return;
        };
        session.idle = 0;
        let advances = session.see(op, content);
        match outcome {
            Ingested::Stored => {
                session.stored += 1;
                session.stored_in_round += 1;
            }
            // What is here, and not proven, counts where a floor is judged.
            Ingested::OutOfReach | Ingested::Duplicate if advances => session.stored_in_round += 1,
            Ingested::OutOfReach | Ingested::Duplicate => {}
        }
    }

    /// RangeEvicted: the peer no longer has the start of the range.
    pub fn on_range_evicted(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        reply: &RepairRangeReplyHeader,
        budget: &mut Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        self.observe(group);
        self.settle(group, need, out);
        let plane = self.config.plane;
        let Some(session) = self.matching(reply, Command::RangeEvicted) else {
            return;
        };
        if biplane_vsr::mutated!(RefusalIgnored) {
            return;
        }
        let nothing_useful = reply.op() <= group.commit_min.next();
        match plane {
            _ if session.is_elect() => self.refused(need, out),
            PlaneKind::Partition if nothing_useful || group.purge_deferred => return,
            PlaneKind::Partition => {
                let floor = reply.op().previous().unwrap_or(Op::ZERO);
                session.mark_floor(floor.min(group.commit_max));
                return;
            }
            PlaneKind::Metadata if nothing_useful => self.refused(need, out),
            PlaneKind::Metadata => self.arm_transfer(group, SessionOutcome::Evicted, out),
        }
        self.open_if_due(group, need, budget, out);
    }

    /// RepairDone: the peer has sent what it was going to send. The owner walks the commits
    /// first, so that `group` and `need` show what the chunk brought.
    pub fn on_done(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        reply: &RepairRangeReplyHeader,
        history: &impl History,
        budget: &mut Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        self.observe(group);
        if self.matching(reply, Command::RepairDone).is_none() {
            return;
        }
        let deferred = self.config.plane == PlaneKind::Partition && group.purge_deferred;
        if !deferred && !self.judge_floor(group, history, out) {
            self.settle(group, need, out);
            self.next_chunk(group, need, out);
        }
        self.open_if_due(group, need, budget, out);
    }

    /// The session's floor, if the peer named one. Returns whether that ends the round.
    fn judge_floor(
        &mut self,
        group: &GroupView,
        history: &impl History,
        out: &mut Vec<RepairOutput>,
    ) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let Some(floor) = &mut session.floor else {
            return false;
        };
        if floor.op <= group.commit_min {
            session.floor = None;
            return false;
        }
        let (op, to) = (floor.op, session.to);
        let window = match op < to {
            true => floor.evidence.merge(history.window(op, to), to),
            false => Default::default(),
        };
        floor.resume_at = window.first_missing;
        if let Some(missing) = window.first_missing {
            floor.evidence.follow(missing);
        }
        let stand_in = history.stand_in();
        match connect(&ConnectFacts {
            floor: op,
            to,
            stand_in,
            window,
        }) {
            Connect::Raise(to) => {
                session.floor = None;
                session.resume = true;
                session.stalled_rounds = 0;
                out.push(RepairOutput::RaiseFloor { to });
                true
            }
            Connect::Refused => {
                self.arm_transfer(group, SessionOutcome::FloorRefused, out);
                true
            }
            Connect::Wait => false,
        }
    }

    /// Asks for the rest at once when the last chunk brought something. Asking again at once
    /// after a chunk that brought nothing would spin against a peer that has nothing.
    fn next_chunk(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        out: &mut Vec<RepairOutput>,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        if session.has_progressed(group.commit_min) {
            session.stalled_rounds = 0;
            self.refusals = 0;
            self.failed = None;
            self.request(group, need, out);
        }
    }

    fn open_if_due(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        budget: &mut Budget,
        out: &mut Vec<RepairOutput>,
    ) {
        let Some(need) = need else { return };
        if self.session.is_some() || self.cooldown > 0 {
            return;
        }
        let may =
            matches_status(need.kind, group.status) && group.transfer != TransferState::Active;
        let debounced = self.gap_ticks >= self.config.limits.gap_debounce_ticks;
        let due = need.kind != NeedKind::Gap || debounced || self.prompt.is_some();
        if !may || !due {
            return;
        }
        let Some(range) = window(group, need) else {
            return;
        };
        let Some(peer) = self.choose_peer(group, need) else {
            return;
        };
        if is_elect(need) {
            budget.arm_urgent();
        } else if !budget.try_arm() {
            return;
        }
        self.open(group, need, peer, range, out);
    }

    fn choose_peer(&self, group: &GroupView, need: &RepairNeed) -> Option<ReplicaId> {
        let RequesterConfig {
            replica,
            replica_count,
            ..
        } = self.config;
        let failed = self
            .failed
            .filter(|_| !biplane_vsr::mutated!(PeerNeverChanges));
        if is_elect(need) {
            return peers::next_source(replica, &need.sources, failed);
        }
        let hint = self.prompt.and_then(|prompt| prompt.peer);
        let primary = group.primary(replica_count);
        peers::next_peer(replica, replica_count, primary, hint, failed)
    }

    fn open(
        &mut self,
        group: &GroupView,
        need: &RepairNeed,
        peer: ReplicaId,
        (from, to): (Op, Op),
        out: &mut Vec<RepairOutput>,
    ) {
        assert!(
            peer != self.config.replica,
            "a replica does not repair from itself"
        );
        let nonce = self.nonces.draw();
        self.prompt = None;
        self.gap_ticks = 0;
        self.session = Some(Session::new(nonce, peer, need.kind, group.view, (from, to)));
        out.push(RepairOutput::Opened {
            peer,
            from,
            to,
            kind: need.kind,
        });
        self.request(group, Some(need), out);
    }

    /// Sends the request for what is missing now, to the same peer under the same nonce.
    fn request(
        &mut self,
        group: &GroupView,
        need: Option<&RepairNeed>,
        out: &mut Vec<RepairOutput>,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let Some((from, to)) = need.and_then(|need| window(group, need)) else {
            return;
        };
        let resume_at = session.floor.as_ref().and_then(|floor| floor.resume_at);
        let from = resume_at.filter(|at| *at <= to).unwrap_or(from).max(from);
        session.begin_round(from, to, group.commit_min);
        let RequesterConfig {
            cluster,
            group,
            replica,
            ..
        } = self.config;
        let message = session.request(cluster, group, replica);
        out.push(RepairOutput::Send {
            to: session.peer,
            message,
        });
    }

    fn matching(
        &mut self,
        reply: &RepairRangeReplyHeader,
        command: Command,
    ) -> Option<&mut Session> {
        if reply.group() != self.config.group || reply.frame().command() != command {
            return None;
        }
        self.session
            .as_mut()
            .filter(|session| session.nonce == reply.nonce())
    }
}

/// The window to ask for: everything that is missing, in one piece; the peer cuts it.
fn window(group: &GroupView, need: &RepairNeed) -> Option<(Op, Op)> {
    let lowest = if is_elect(need) {
        Op(1)
    } else {
        group.commit_min.next()
    };
    let from = need.from.max(lowest);
    (from <= need.to).then_some((from, need.to))
}

fn is_elect(need: &RepairNeed) -> bool {
    need.kind == NeedKind::Elect
}

fn matches_status(kind: NeedKind, status: GroupStatus) -> bool {
    match kind {
        NeedKind::Gap | NeedKind::Suffix => status == GroupStatus::Normal,
        NeedKind::Elect => status == GroupStatus::ViewChange,
    }
}
