//! Old segments and stuck replicas: what a group looks after from time to time (chapter 06
//! sections 15.1, 15.2 and 22 row 9).

use biplane_journal::DiskOp;
use biplane_vsr as vsr;
use biplane_wire::ReplicaId;

use super::Group;
use crate::context::Context;
use crate::retention::{self, Pass};

/// Ticks for which a backup refuses live batches before it looks for another way.
const REFUSING_TICKS: u64 = 150;

impl Group {
    /// Old segments by age and size, and those a client asked to delete.
    pub(super) fn tick_retention(&mut self, context: &mut Context<'_>) {
        if context.now < self.retention_at {
            return;
        }
        self.retention_at = context.now + context.node.limits.retention_ticks;
        if context.node.limits.retention_enabled {
            let options = &self.spec.options;
            let pass = Pass {
                now_micros: context.wall_micros,
                message_expiry: options.message_expiry,
                size_max: retention::partition_bytes_max(options, &context.node.limits),
                barrier: self.state.offsets.barrier(),
                segments_max: context.node.limits.retention_segments_max,
            };
            let count = retention::expired(&self.segments, &pass);
            self.remove_segments(count, context);
        }
        self.apply_truncation(context);
    }

    /// Deletes sealed segments up to the committed watermark. What a barrier or the budget of a
    /// pass leaves is taken by a later pass.
    pub(crate) fn apply_truncation(&mut self, context: &mut Context<'_>) {
        let up_to = self.spec.deleted_up_to;
        if up_to == 0 || self.purge.is_wanted() {
            return;
        }
        let barrier = self.state.offsets.barrier();
        let most = context.node.limits.retention_segments_max;
        let count = retention::up_to(&self.segments, up_to, barrier, most);
        self.remove_segments(count, context);
        if count == most {
            self.retention_at = context.now + 1;
        }
    }

    fn remove_segments(&mut self, count: usize, context: &mut Context<'_>) {
        if count == 0 || self.files_are_busy() || self.flusher.is_busy() {
            return;
        }
        context.provider.forget(self.spec.group);
        for _ in 0..count {
            let Some(segment) = self.segments.remove_oldest() else {
                return;
            };
            self.state.retained_from = segment.next;
            self.stats.messages_count = self.stats.messages_count.saturating_sub(segment.messages);
            self.stats.size_bytes = self.stats.size_bytes.saturating_sub(segment.size);
            // Oldest first, so that a crash in between leaves a contiguous chain.
            for path in [
                self.paths.log(segment.start),
                self.paths.index(segment.start),
            ] {
                context.submit(self.queues.files(), DiskOp::Remove { path });
            }
        }
        let path = self.paths.dir().clone();
        context.submit(self.queues.files(), DiskOp::SyncDir { path });
    }

    /// The primary, or, for the primary itself, the next replica that is there.
    pub(super) fn whom_to_ask(&self, primary: ReplicaId, context: &Context<'_>) -> ReplicaId {
        let identity = context.node.identity;
        if primary != identity.replica {
            return primary;
        }
        let count = identity.replica_count;
        let others = (1..count).map(|step| ReplicaId((identity.replica.0 + step) % count));
        let mut present = others.filter(|peer| !context.absent.contains(peer));
        present.next().unwrap_or(primary)
    }

    /// A backup that refuses the primary's batches can never acknowledge again by itself. When
    /// it lacks messages it asks for the whole state; when it has messages the primary does not
    /// know, which only the loss of a quorum's memory can leave behind, its files are set aside
    /// and it starts over from its peers.
    pub(super) fn tick_refusals(&mut self, context: &mut Context<'_>) {
        let Some(refused) = self.state.refused_stamp else {
            self.refusing_since = None;
            return;
        };
        let status = self.replica.status();
        let settled = status.status == vsr::Status::Normal;
        let progressed = refused.expected != self.state.next_offset
            && refused.expected != self.state.committed_next;
        if !settled || progressed || self.purge.is_wanted() || self.transfer.is_busy(&self.puller) {
            self.state.refused_stamp = None;
            self.refusing_since = None;
            return;
        }
        let since = *self.refusing_since.get_or_insert(context.now);
        if context.now - since < REFUSING_TICKS {
            return;
        }
        self.refusing_since = None;
        self.state.refused_stamp = None;
        if refused.base_offset > refused.expected {
            self.arm_transfer(self.whom_to_ask(status.primary, context), context);
        } else if status.op_head <= status.commit_min {
            let from = refused.base_offset;
            let reason = format!("messages from offset {from} on are unknown to the primary");
            context.resets.push((self.spec.group, reason));
        }
    }
}
