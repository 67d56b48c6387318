//! After a restart of all replicas: nobody has a log, and their segments may end at different
//! offsets (chapter 04 section 5.4, chapter 06 section 18).
//!
//! With the `replicated` policy a log lives in memory. When a quorum lost it, the view that
//! starts has an empty log and its primary mints where its own segments end, which may be below
//! what another replica still has on disk. So a primary that finds itself in that place looks
//! at its peers first: it asks each for a state transfer and takes the state of one whose
//! segments reach further. Until then it takes no requests. A backup in the same place offers
//! what it has, although it leads nothing: no log contradicts it.
//!
//! A peer serves few groups at once and has to hash what it offers, and all groups of a node look
//! around together. So "not now" is no answer: a primary asks again, for seconds and not for
//! ever, and a backup until it is told. Who has nothing at all says so for good.
//!
//! The same holds where the log is not lost but ends before the segments do: its last operations
//! were in the memory of a quorum alone. Replicas that never had them cannot know, so whoever is
//! looked at by its primary compares in turn.
//!
//! Of tens of thousands of partitions that were restarted together most have never been written
//! to. A replica without files looks later: when a client wants something that depends on it, when
//! a peer looks, which is how one with files makes itself known, and in any case after a while.
//! Until it has looked it has not, and takes no requests: the first to come waits for the look.

use biplane_state_transfer::{Ended, artifact_kind};
use biplane_vsr as vsr;
use biplane_wire::{Manifest, ManifestEntry, Op, ReplicaId, StateTransferTargetHeader, Typed};

use super::Group;
use super::open::SPREAD;
use crate::context::Context;

/// Ticks one peer has to answer, and between two rounds.
const PATIENCE: u64 = 50;
/// Ticks until a peer is asked again whose state there was no place to take.
const PAUSE: u64 = 10;
/// Rounds of a primary over all peers: the first may find them between two views.
const ROUNDS: u32 = 3;
/// Rounds of a primary that a peer has told to come back, and of a backup, which asks the primary
/// alone and finds it looking around itself.
const PATIENT_ROUNDS: u32 = 20;
/// Longest pause of a backup that is told to come back, in ticks.
const PAUSE_MAX: u64 = 6_000;
/// Rounds of a backup that has no files, each twice as long as the one before, and ticks of the
/// first: there may be thousands of them.
const DORMANT_ROUNDS: u32 = 3;
const DORMANT_PATIENCE: u64 = 100;
/// Ticks after which a replica without files looks though nobody made it, and over how many more
/// of them those of a node are spread.
const LATER: u64 = 3_000;
const LATER_SPREAD: u64 = 6_000;

/// The look at the peers.
#[derive(Debug, Default)]
pub(crate) struct ColdStart {
    /// Whether this replica was opened on files of an earlier run, without a log, or follows one
    /// that was, and no log has said yet where the messages end.
    possible: bool,
    stage: Look,
    /// Who was asked in this round said that it cannot answer now.
    is_put_off: bool,
    /// Peers that have said in this round that they have nothing.
    nothing: u8,
    /// The look was left for later and has begun since: requests wait for its end.
    is_late: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Look {
    #[default]
    NotNeeded,
    /// The log has ops that are not here yet. They may turn out to say nothing of messages.
    Waiting,
    /// Peers are asked when there is a reason, or at this tick.
    Later { at: u64 },
    /// Peers are asked one after the other.
    Asking {
        next: u8,
        round: u32,
        /// The peer that was asked last has until then; the next round begins then.
        until: u64,
        asked: bool,
    },
    /// A peer has more: its state is being taken. If that fails, this one is asked next.
    Taking { next: u8, round: u32 },
    /// A primary took what one peer has. From here on the others are asked only so that one
    /// without files looks for it now, and not some time later.
    Telling { next: u8 },
}

impl Look {
    /// Peers are asked from the first on.
    fn begin(now: u64) -> Self {
        Self::Asking {
            next: 0,
            round: 0,
            until: now,
            asked: false,
        }
    }

    /// A peer is asked again after a pause.
    fn again(next: u8, round: u32, now: u64) -> Self {
        Self::Asking {
            next,
            round,
            until: now + PAUSE,
            asked: false,
        }
    }
}

impl ColdStart {
    /// A transfer ended. One that did not bring what a peer has is tried again; a peer that had
    /// no time for it does not use up the rounds.
    pub(super) fn on_transfer_ended(&mut self, outcome: Ended, leads: bool, now: u64) {
        if let Look::Taking { next, round } = self.stage {
            self.stage = match outcome {
                Ended::Installed if leads => Look::Telling { next: next + 1 },
                Ended::Installed => Look::NotNeeded,
                Ended::Refused => Look::again(next, round, now),
                Ended::Abandoned | Ended::Failed | Ended::Cancelled => {
                    Look::again(next, round + 1, now)
                }
            };
        }
    }

    pub(super) fn new(possible: bool) -> Self {
        Self {
            possible,
            ..Self::default()
        }
    }

    /// The tick by which the look goes on, unless an answer comes first.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        match self.stage {
            Look::NotNeeded => None,
            Look::Later { at } => Some(at),
            Look::Asking { until, .. } => Some(until),
            Look::Waiting | Look::Taking { .. } | Look::Telling { .. } => Some(0),
        }
    }

    /// Whether peers are being asked.
    fn is_under_way(&self) -> bool {
        matches!(self.stage, Look::Asking { .. } | Look::Taking { .. })
    }

    /// Whether a tick has something to do for the look.
    pub(super) fn wants_tick(&self, now: u64) -> bool {
        match self.stage {
            Look::Later { at } => at <= now,
            Look::Waiting | Look::Telling { .. } => true,
            _ => self.is_under_way(),
        }
    }

    /// Whether requests wait for a look that nobody had a reason for before.
    pub(crate) fn makes_wait(&self) -> bool {
        match self.stage {
            Look::Later { .. } => true,
            _ => self.is_late && self.is_under_way(),
        }
    }

    /// Says once that a look is over for which requests may wait.
    pub(super) fn take_end(&mut self) -> bool {
        let is_over = self.is_late && !self.is_under_way();
        self.is_late &= !is_over;
        is_over
    }

    /// The log had messages, or a state of it was installed, or all were purged: from here on
    /// repair and refused stamps tell when something is missing.
    pub(super) fn decide(&mut self) {
        self.possible = false;
    }

    /// Whether requests have to wait.
    pub(super) fn is_looking(&self) -> bool {
        matches!(self.stage, Look::Later { .. }) || self.is_under_way()
    }
}

impl Group {
    /// Nothing of a log is known here, neither entries nor a commit point.
    fn has_empty_log(&self) -> bool {
        let status = self.replica.status();
        status.status == vsr::Status::Normal
            && status.op_head == Op::ZERO
            && status.commit_max == Op::ZERO
    }

    /// No log says where the messages end. Stored positions that came since say nothing of the
    /// messages below them, and a log that lost its last operations ends before they do: others
    /// may have more, or less.
    fn is_open_ended(&self) -> bool {
        self.cold.possible
            && self.segments.next_offset() >= self.state.committed_next
            && (self.has_empty_log() || self.has_no_messages_left())
    }

    /// The log has no hole above what is applied, and no messages there.
    fn has_no_messages_left(&self) -> bool {
        let status = self.replica.status();
        let unapplied = &self.state.unapplied;
        let mut open = status.commit_min.0 + 1..=status.op_head.max(status.commit_max).0;
        status.status == vsr::Status::Normal
            && unapplied.last_next().is_none()
            && !unapplied.has_marker()
            && open.all(|op| self.replica.log().contains(Op(op)))
    }

    /// Whether there is nothing here for a peer that looks around, neither now nor later: no log,
    /// no messages, and no look of its own that may bring some.
    pub(super) fn has_nothing(&self) -> bool {
        let is_empty = self.segments.next_offset() == 0
            && self.frontier == 0
            && self.state.rewind_floor == 0
            && !self.purge.is_due();
        self.has_empty_log() && is_empty && !self.may_find_more()
    }

    /// Whether this primary is still looking around: what it would offer a backup now is perhaps
    /// not what it will lead with.
    pub(super) fn may_find_more(&self) -> bool {
        self.replica.leads() && self.cold.is_looking()
    }

    /// Whether this backup may offer its segments to a primary that has no log either.
    pub(super) fn is_cold_backup(&self) -> bool {
        self.is_open_ended()
            && !self.replica.leads()
            && !self.transfer.is_busy(&self.puller)
            && self.segments.next_offset() > 0
    }

    /// The replica entered a view as primary or as backup, or left one.
    pub(super) fn begin_cold_start(&mut self, context: &Context<'_>) {
        let looks = context.node.is_replicated() && self.is_open_ended();
        self.cold.stage = match looks {
            // A view change does not stop an install, and what it brings is what was looked for.
            true if self.transfer.is_installing() => Look::Taking { next: 0, round: 0 },
            true if self.home.is_line() => {
                let spread = self.spec.group.0.wrapping_mul(SPREAD) >> 32;
                let at = context.now + LATER + spread % LATER_SPREAD;
                Look::Later { at }
            }
            true => Look::begin(context.now),
            false if context.node.is_replicated() => self.not_now(),
            false => Look::NotNeeded,
        };
        self.cold.nothing = 0;
    }

    /// There is a reason to look now, if that was left for later.
    pub(crate) fn look_now(&mut self, context: &mut Context<'_>) {
        if let Look::Later { .. } = self.cold.stage {
            self.cold.stage = match self.is_open_ended() {
                true => Look::begin(context.now),
                false => Look::NotNeeded,
            };
            self.cold.is_late = true;
        }
    }

    /// A primary that asks for state looks around: its messages may reach further than its log
    /// does, which is all that this backup has.
    pub(super) fn follow_look_of(&mut self, peer: ReplicaId, context: &Context<'_>) {
        let follows = self.replica.is_normal()
            && !self.replica.leads()
            && peer == self.replica.primary()
            && !self.state.persisted
            && context.node.is_replicated();
        if follows && !self.cold.possible {
            self.cold.possible = true;
            self.cold.stage = Look::Waiting;
        }
    }

    /// There is a log: whether that ends the look, or only what comes of it will tell.
    fn not_now(&self) -> Look {
        match self.cold.possible && self.replica.is_normal() {
            true => Look::Waiting,
            false => Look::NotNeeded,
        }
    }

    pub(super) fn tick_cold_start(&mut self, context: &mut Context<'_>) {
        let busy = self.transfer.is_busy(&self.puller);
        match self.cold.stage {
            Look::NotNeeded => {}
            Look::Waiting => self.begin_cold_start(context),
            Look::Later { at } if context.now < at => {}
            Look::Later { .. } => self.look_now(context),
            Look::Taking { .. } if busy => {}
            Look::Taking { .. } => self.cold.stage = Look::NotNeeded,
            Look::Telling { next } => self.tell_next(next, context),
            Look::Asking { asked, .. } if !self.is_open_ended() => {
                // A log came up by itself: repair and refused stamps decide from here on, once
                // there are messages in it.
                self.cold.stage = self.not_now();
                if asked && busy {
                    self.cancel_transfer(context);
                }
            }
            Look::Asking {
                next,
                round,
                until,
                asked,
            } => {
                // A refusal schedules another attempt; here the next peer is asked instead.
                let answered = asked && (!busy || self.puller.is_scheduled());
                if !answered && context.now < until {
                    return;
                }
                if busy {
                    self.cancel_transfer(context);
                }
                self.ask_next(next, round, context);
            }
        }
    }

    /// Being asked makes a peer look; what it answers changes nothing.
    fn tell_next(&mut self, next: u8, context: &mut Context<'_>) {
        if self.puller.is_looking() {
            self.cancel_transfer(context);
        }
        let identity = context.node.identity;
        let is_over = next >= identity.replica_count || !self.replica.leads();
        if is_over || self.transfer.is_busy(&self.puller) {
            self.cold.stage = Look::NotNeeded;
            return;
        }
        self.cold.stage = Look::Telling { next: next + 1 };
        let peer = ReplicaId(next);
        if peer != identity.replica && !context.absent.contains(&peer) {
            self.look_at(peer, context);
        }
    }

    fn ask_next(&mut self, next: u8, round: u32, context: &mut Context<'_>) {
        let identity = context.node.identity;
        let leads = self.replica.leads();
        // Where nobody has written anything, no primary will ever have anything to offer.
        let patience = match !leads && self.home.is_line() {
            true => DORMANT_PATIENCE << round.min(DORMANT_ROUNDS),
            false => PATIENCE,
        };
        if next >= identity.replica_count {
            let (next, round, asked) = (0, round + 1, false);
            let is_put_off = std::mem::take(&mut self.cold.is_put_off);
            let nothing = std::mem::take(&mut self.cold.nothing);
            let others = if leads { identity.replica_count - 1 } else { 1 };
            if nothing >= others {
                self.cold.stage = Look::NotNeeded;
                return;
            }
            let rounds = match (leads, is_put_off) {
                (true, false) => ROUNDS,
                (false, true) => u32::MAX,
                (false, false) if self.home.is_line() => DORMANT_ROUNDS,
                (true, true) | (false, false) => PATIENT_ROUNDS,
            };
            let late = u64::from(round.saturating_sub(PATIENT_ROUNDS).max(1));
            let until = context.now + (patience * late).min(PAUSE_MAX);
            self.cold.stage = match round < rounds {
                true => Look::Asking {
                    next,
                    round,
                    until,
                    asked,
                },
                false => Look::NotNeeded,
            };
            return;
        }
        let peer = ReplicaId(next);
        let wanted = peer != identity.replica && (leads || peer == self.replica.primary());
        let asked = wanted && !context.absent.contains(&peer);
        self.cold.stage = Look::Asking {
            next: next + 1,
            round,
            until: context.now + if asked { patience } else { 0 },
            asked,
        };
        if asked {
            self.look_at(peer, context);
        }
    }

    /// A descriptor arrived while peers are asked: whether it is worth taking. The longer chain
    /// ends in a later segment, or further in the same one. A backup that has more than its
    /// primary, which looked around before it answered, has what no quorum will ever have: it
    /// starts over.
    pub(super) fn is_worth_taking(
        &mut self,
        target: &Typed<StateTransferTargetHeader>,
        context: &mut Context<'_>,
    ) -> bool {
        let (next, round) = match self.cold.stage {
            Look::Asking { next, round, .. } => (next, round),
            Look::Telling { .. } => return false,
            _ => return true,
        };
        if !target.header().available() {
            let header = target.header();
            let is_put_off = header.unavailable_transient();
            // It has nothing in this view, knows of no log, and looks for nothing itself: asked
            // again it would say the same.
            let is_final = !is_put_off
                && header.commit_max() == Op::ZERO
                && header.frame.view() == self.replica.view();
            self.cold.is_put_off |= is_put_off;
            self.cold.nothing += u8::from(is_final);
            return true;
        }
        let mut filled = self.segments.iter().filter(|segment| segment.size > 0);
        let last = filled.next_back();
        let digest = last.and_then(|segment| segment.digest);
        let ours = last.map_or((0, 0), |segment| (segment.start, segment.size));
        let Some(entry) = last_segment(target.body()) else {
            return false;
        };
        let theirs = (entry.frontier, entry.length);
        // Of a peer that was in an earlier view: what it has by now, or looks for, may be more.
        let is_late = target.header().frame.view() < self.replica.view();
        if theirs > ours {
            // Whatever prevents it, this peer is asked again: to pass it over would be to mint
            // over what it has.
            let next = next.saturating_sub(1);
            let takes = !is_late && self.puller.take_place(context.pulls);
            self.cold.stage = match takes {
                true => Look::Taking { next, round },
                false => Look::again(next, round + u32::from(is_late), context.now),
            };
            return takes;
        }
        if self.replica.leads() {
            // Who leads and has more keeps it.
        } else if is_late {
            self.cold.stage = Look::again(next.saturating_sub(1), round + 1, context.now);
        } else {
            self.cold.stage = Look::NotNeeded;
            let differs = digest.is_some_and(|digest| digest != entry.checksum);
            if theirs < ours || differs {
                let reason = format!("other messages than the primary: {ours:?} {theirs:?}");
                context.resets.push((self.spec.group, reason));
            }
        }
        false
    }
}

impl Group {
    /// Whether taking this descriptor would bring files. A peer that is merely looked at and has
    /// no messages either brings none.
    pub(super) fn offers_messages(&self, target: &Typed<StateTransferTargetHeader>) -> bool {
        let is_look = matches!(self.cold.stage, Look::Asking { .. });
        target.header().available()
            && (!is_look || last_segment(target.body()).is_some_and(|entry| entry.length > 0))
    }
}

/// The segment an offer ends with.
fn last_segment(manifest: &[u8]) -> Option<ManifestEntry> {
    let manifest = Manifest::decode(manifest).ok()?;
    let segments = manifest
        .iter()
        .filter(|entry| entry.kind == artifact_kind::SEGMENT_LOG);
    segments.max_by_key(|entry| entry.frontier)
}
