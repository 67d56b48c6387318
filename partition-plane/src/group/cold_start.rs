//! After a restart of all replicas: nobody has a log, and their segments may end at different
//! offsets (chapter 04 section 5.4, chapter 06 section 18).
//!
//! With the `replicated` policy a log lives in memory. When a quorum lost it, the view that
//! starts has an empty log and its primary mints where its own segments end, which may be below
//! what another replica still has on disk. So a primary that finds itself in that place looks
//! at its peers first: it asks each for a state transfer and takes the state of one whose
//! segments reach further. Until then it takes no requests. A backup in the same place offers
//! what it has, although it leads nothing: no log contradicts it.

use biplane_state_transfer::artifact_kind;
use biplane_vsr as vsr;
use biplane_wire::{Manifest, Op, ReplicaId, StateTransferTargetHeader, Typed};

use super::Group;
use crate::context::Context;

/// Ticks one peer has to answer.
const PATIENCE: u64 = 50;
/// Rounds over all peers: the first may find them between two views.
const ROUNDS: u32 = 3;

/// The look at the peers.
#[derive(Debug, Default)]
pub(crate) struct ColdStart {
    /// Whether this replica was opened on files of an earlier run, without a log.
    possible: bool,
    stage: Look,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Look {
    #[default]
    NotNeeded,
    /// Peers are asked one after the other.
    Asking {
        next: u8,
        round: u32,
        since: u64,
        asked: Option<ReplicaId>,
    },
    /// A peer has more: its state is being taken.
    Taking,
}

impl ColdStart {
    pub(super) fn new(possible: bool) -> Self {
        Self {
            possible,
            stage: Look::NotNeeded,
        }
    }

    /// Whether requests have to wait.
    pub(super) fn is_looking(&self) -> bool {
        self.stage != Look::NotNeeded
    }
}

impl Group {
    /// Nothing of a log is known here, neither entries nor a commit point.
    fn has_no_log(&self) -> bool {
        let status = self.replica.status();
        self.cold.possible
            && status.status == vsr::Status::Normal
            && status.op_head == Op::ZERO
            && status.commit_max == Op::ZERO
    }

    /// Whether this backup may offer its segments to a primary that has no log either.
    pub(super) fn is_cold_backup(&self) -> bool {
        self.has_no_log()
            && !self.replica.is_primary()
            && !self.transfer.is_busy(&self.puller)
            && self.segments.next_offset() > 0
    }

    /// The replica became primary, or stopped being it.
    pub(super) fn begin_cold_start(&mut self, context: &Context<'_>) {
        let looks = context.node.is_replicated() && self.replica.is_primary() && self.has_no_log();
        self.cold.stage = match looks {
            true => Look::Asking {
                next: 0,
                round: 0,
                since: context.now,
                asked: None,
            },
            false => Look::NotNeeded,
        };
    }

    pub(super) fn tick_cold_start(&mut self, context: &mut Context<'_>) {
        match self.cold.stage {
            Look::NotNeeded => {}
            Look::Taking => {
                if !self.transfer.is_busy(&self.puller) {
                    self.cold.stage = Look::NotNeeded;
                }
            }
            Look::Asking {
                next,
                round,
                since,
                asked,
            } => {
                let busy = self.transfer.is_busy(&self.puller);
                // A refusal schedules another attempt; here the next peer is asked instead.
                let waits = busy && !self.puller.is_scheduled();
                if asked.is_some() && waits && context.now < since + PATIENCE {
                    return;
                }
                if busy {
                    self.cancel_transfer(context);
                }
                self.ask_next(next, round, context);
            }
        }
    }

    fn ask_next(&mut self, next: u8, round: u32, context: &mut Context<'_>) {
        let identity = context.node.identity;
        let (next, round) = if next >= identity.replica_count {
            (0, round + 1)
        } else {
            (next, round)
        };
        if round >= ROUNDS {
            self.cold.stage = Look::NotNeeded;
            return;
        }
        let peer = ReplicaId(next);
        let asks = peer != identity.replica && !context.absent.contains(&peer);
        let (since, asked) = (context.now, asks.then_some(peer));
        self.cold.stage = Look::Asking {
            next: next + 1,
            round,
            since,
            asked,
        };
        if asks {
            self.arm_transfer(peer, context);
        }
    }

    /// A descriptor arrived while peers are asked: whether it is worth taking. The longer chain
    /// ends in a later segment, or further in the same one.
    pub(super) fn is_worth_taking(&mut self, target: &Typed<StateTransferTargetHeader>) -> bool {
        if !matches!(self.cold.stage, Look::Asking { .. }) || !target.header().available() {
            return true;
        }
        let active = self.segments.active();
        let ours = (active.start, active.size);
        let entries = Manifest::decode(target.body());
        let last = entries.ok().and_then(|entries| {
            let segments = entries
                .iter()
                .filter(|e| e.kind == artifact_kind::SEGMENT_LOG);
            segments.map(|entry| (entry.frontier, entry.length)).max()
        });
        let more = last.is_some_and(|theirs| theirs > ours);
        if more {
            self.cold.stage = Look::Taking;
        }
        more
    }
}
