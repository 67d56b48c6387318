//! What a node does for peers that are behind, or will be: reads for those it serves, and digests
//! for those that are away.
//!
//! Before a peer can be offered the segments of a partition each of them must have been read once.
//! A peer that is away comes back with little or nothing, so its primaries hash what they hold
//! while they have nothing else to do, group by group: then the peer is fed from its first
//! request on.

use std::ops::Bound;

use biplane_state_transfer::{self as transfer, ProvideOutput};
use biplane_wire::GroupId;

use crate::context::Context;
use crate::group::Group;
use crate::io::Outputs;
use crate::limits::Limits;
use crate::plane::PartitionPlane;
use crate::reconcile::Slot;

/// Groups looked at in one tick.
const LOOKED_AT_MAX: usize = 64;
/// Ticks between two searches through all groups.
const REST_TICKS: u64 = 3_000;
/// Ticks for which a peer that came back counts as away: by then it has asked for what it lacks.
const BACK_TICKS: u64 = 1_000;

/// The search for groups with segments whose digests are not known.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// It goes on behind this group.
    cursor: Option<GroupId>,
    /// Tick before which it does not begin again.
    rest: u64,
    /// Tick until which it goes on when all peers are there.
    until: u64,
}

impl Ahead {
    /// A peer came or went.
    pub(crate) fn note_peer(&mut self, connected: bool, now: u64) {
        match connected {
            true => self.until = now.saturating_add(BACK_TICKS),
            false => (self.cursor, self.rest) = (None, now),
        }
    }
}

/// Pacing and sizes of the serving side.
pub(crate) fn provide_limits(limits: &Limits) -> transfer::ProvideLimits {
    transfer::ProvideLimits {
        chunk_bytes: limits.transfer_chunk_bytes,
        idle_ticks: limits.repair_retry_ticks.saturating_mul(10),
        served_ticks: limits.repair_retry_ticks.saturating_mul(3),
        build_ticks: limits.repair_retry_ticks.saturating_mul(3),
        groups_served_max: u32::try_from(limits.transfers_served_max).unwrap_or(u32::MAX),
        hash_bytes_max: limits.transfer_hash_bytes,
        read_bytes: u32::try_from(limits.read_chunk_bytes).unwrap_or(u32::MAX),
        hash_reads: limits.transfer_hash_reads,
        block_bytes: limits.transfer_block_bytes,
        busy_tick_bytes: limits.transfer_busy_tick_bytes,
    }
}

impl PartitionPlane {
    /// A tick of what peers are served.
    pub(crate) fn tick_feeding(&mut self, out: &mut Outputs) {
        let mut effects = Vec::new();
        let load = self.load.look(self.now());
        self.provider.tick(load, &mut effects);
        for effect in effects {
            match effect {
                ProvideOutput::Send { to, message } => {
                    out.push(crate::Output::Send { to, message });
                }
                ProvideOutput::Read { group, .. } => {
                    self.visit(group, out, |group, context| {
                        group.act_on_provider(vec![effect], context);
                    });
                }
            }
        }
        if self.node.limits.transfer_hash_ahead {
            self.hash_ahead(load.is_some(), out);
        }
    }

    /// Looks for the next group whose segments should be hashed before a peer asks.
    fn hash_ahead(&mut self, is_busy: bool, out: &mut Outputs) {
        let now = self.now();
        if self.disconnected.is_empty() && now >= self.ahead.until {
            return self.provider.stop_hashing_ahead();
        }
        let has_time = !is_busy
            && now >= self.ahead.rest
            && !self.provider.is_hashing_ahead()
            && self.provider.groups_served().is_empty();
        if !has_time {
            return;
        }
        let from = self.ahead.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut groups = self.slots.range((from, Bound::Unbounded));
        let mut found = None;
        for _ in 0..LOOKED_AT_MAX {
            let Some((id, slot)) = groups.next() else {
                self.ahead.cursor = None;
                self.ahead.rest = now + REST_TICKS;
                break;
            };
            self.ahead.cursor = Some(*id);
            if matches!(slot, Slot::Running(group) if group.leads_segments()) {
                found = Some(*id);
                break;
            }
        }
        if let Some(id) = found {
            self.visit(id, out, Group::hash_ahead);
        }
    }
}

impl Group {
    /// Whether a peer would be offered segments by this replica.
    fn leads_segments(&self) -> bool {
        self.replica().is_primary() && self.stored_segments().next().is_some()
    }

    /// Hashes the segments whose digests are not known.
    fn hash_ahead(&mut self, context: &mut Context<'_>) {
        let artifacts = self.segment_artifacts();
        let mut out = Vec::new();
        context
            .provider
            .hash_ahead(self.spec.group, &artifacts, &mut out);
        self.act_on_provider(out, context);
    }
}
