//! Applying committed operations, in op order, on every replica alike (chapter 06 section 7.4).

use biplane_vsr as vsr;
use biplane_wire::{Message, Op, Operation, PrepareHeader};

use super::Group;
use crate::admission::AUTO_COMMIT_CLIENT;
use crate::batch::BatchHeader;
use crate::context::Context;
use crate::log_state::StampRefusal;
use crate::offset_request::OffsetRequest;
use crate::purge_marker;
use crate::reply;
use crate::resident::Resident;

/// What an applied operation means for the client that waits for it.
enum Effect {
    /// Messages became visible from this offset on.
    Appended { base_offset: u64 },
    /// A purge or a transfer took the effect back.
    Void,
    /// A stored position changed.
    Stored,
}

impl Group {
    /// Applies what is known committed and held.
    pub(crate) fn walk_commits(&mut self, context: &mut Context<'_>) {
        while let Some(prepare) = self.replica.next_committed() {
            let prepare = prepare.clone();
            let header = *prepare.header::<PrepareHeader>();
            if !self.continues(&header, prepare.body(), context) {
                return;
            }
            let effect = self.apply(&header, prepare, context);
            let token = self.replica.applied(header.op());
            self.state.forget_through(header.op());
            let base_offset = match effect {
                Effect::Appended { base_offset } => Some(base_offset),
                Effect::Void | Effect::Stored => None,
            };
            let confirmations = &mut context.scratch.confirmations;
            let reply =
                token.map(|_| reply::committed(&header, self.key, base_offset, confirmations));
            if let Some((token, reply)) = token.zip(reply) {
                self.answer_committed(token, &header, reply, context);
            }
            if header.client().0 == AUTO_COMMIT_CLIENT {
                self.auto_commit_done(&header, context);
            }
        }
    }

    /// Whether a committed operation may be applied: a purge comes first where the log says so,
    /// and a batch must follow the messages this replica has. One that leaves a hole is not
    /// applied: only a state transfer can fill it.
    fn continues(
        &mut self,
        header: &PrepareHeader,
        body: &[u8],
        context: &mut Context<'_>,
    ) -> bool {
        if purge_marker::is_marker(header, body) && header.op() > self.void_below() {
            self.reach_marker(header.op(), header.request().0);
            return false;
        }
        if header.operation() != Operation::SendMessages {
            return true;
        }
        let Some(batch) = BatchHeader::read(body) else {
            return false;
        };
        if self.is_without_effect(header.op(), Some(batch.base_offset)) {
            return true;
        }
        let expected = self.state.committed_next;
        let next = batch.meta().next_offset();
        if batch.base_offset == expected {
            self.state.marks = Vec::new();
            self.state.is_replaying = false;
            self.cold.decide();
            return true;
        }
        let (op, base_offset) = (header.op(), batch.base_offset);
        if base_offset > expected {
            self.state.refused_stamp = Some(StampRefusal {
                op,
                base_offset,
                expected,
            });
            return false;
        }
        // A batch is on disk whole or not at all: one that ends beyond what is here and begins
        // before it is another history, as is one that differs from what is here.
        let is_replay = self.state.is_replaying && next <= expected;
        if is_replay && !self.state.contradicts(&batch) {
            // One that ends before the messages do leaves open whether the group still has what
            // comes after it.
            if next == expected {
                self.cold.decide();
            }
            return true;
        }
        if base_offset == 0 {
            // The primary has purged, and has left no marker. Metadata will say so here too.
            if self.purge.is_wanted() {
                self.reach_start(op);
                return false;
            }
            if !self.state.is_replaying {
                self.state.refused_stamp = Some(StampRefusal {
                    op,
                    base_offset,
                    expected,
                });
                return false;
            }
        }
        let reason = format!("other messages are committed from offset {base_offset} on");
        context.resets.push((self.spec.group, reason));
        false
    }

    /// Operations up to here have lost their effect: to a purge that took place, or to one that
    /// the log is known to hold.
    fn void_below(&self) -> Op {
        let state = &self.state;
        let floor = state.purge_floor.max(state.installed);
        let marker = state.unapplied.last_marker(self.replica.commit_max());
        // One that is only suspected of being part of the log says nothing.
        let marker = marker.filter(|marker| self.replica.log().contains(*marker));
        let below_marker = marker.and_then(Op::previous);
        below_marker.map_or(floor, |below| floor.max(below))
    }

    /// Whether applying an operation changes nothing; `base_offset` if it is a batch.
    fn is_without_effect(&self, op: Op, base_offset: Option<u64>) -> bool {
        let starts_over = base_offset == Some(0);
        op <= self.void_below() || self.state.is_ahead && !starts_over
    }

    fn apply(
        &mut self,
        header: &PrepareHeader,
        prepare: Message,
        context: &mut Context<'_>,
    ) -> Effect {
        let at = self.state.resident.back().map(|last| last.next_offset);
        let at = at.unwrap_or(self.state.committed_next);
        let mut entry = Resident {
            op: header.op(),
            base_offset: at,
            next_offset: at,
            timestamp: header.timestamp(),
            message: prepare,
        };
        let is_batch = header.operation() == Operation::SendMessages;
        let batch = is_batch.then(|| BatchHeader::read(entry.message.body()));
        let base_offset = batch.flatten().map(|batch| batch.base_offset);
        if purge_marker::is_marker(header, entry.message.body()) {
            self.state.is_ahead = false;
            self.state.is_unmarked = false;
        }
        let effect = if self.is_without_effect(header.op(), base_offset) {
            Effect::Void
        } else if is_batch {
            self.state.is_ahead = false;
            self.apply_batch(&mut entry, context)
        } else {
            self.apply_offset(header, entry.message.body());
            Effect::Stored
        };
        let (client, request) = (header.client().0, header.request().0);
        self.state
            .dedup
            .commit(client, header.user_id(), request, header.op().0);
        self.resident_bytes += entry.message.size();
        *context.resident_total += entry.message.size();
        self.state.resident.push_back(entry);
        effect
    }

    fn apply_batch(&mut self, entry: &mut Resident, context: &Context<'_>) -> Effect {
        let Some(batch) = BatchHeader::read(entry.message.body()) else {
            unreachable!("a journaled batch was verified");
        };
        let meta = batch.meta();
        if self.state.resident.is_empty() || entry.base_offset == meta.base_offset {
            entry.base_offset = meta.base_offset;
            entry.next_offset = meta.next_offset();
        }
        if meta.next_offset() > self.state.committed_next {
            assert!(
                meta.base_offset == self.state.committed_next,
                "offsets have no hole"
            );
            if entry.base_offset != meta.base_offset {
                // What is in memory are the first operations of a log that is shorter than the
                // segments: the messages between are on disk alone.
                self.state.leave_to_disk(meta.base_offset);
                entry.base_offset = meta.base_offset;
                entry.next_offset = meta.next_offset();
            }
            self.state.committed_next = meta.next_offset();
            self.stats.messages_count += u64::from(meta.count);
            self.stats.size_bytes += meta.len;
            self.unflushed_bytes += meta.len;
            self.unflushed_since.get_or_insert(context.now);
        }
        Effect::Appended {
            base_offset: meta.base_offset,
        }
    }

    fn apply_offset(&mut self, header: &PrepareHeader, body: &[u8]) {
        let Ok(request) = OffsetRequest::decode(header.operation(), body) else {
            unreachable!("a journaled offset request was decoded");
        };
        let offsets = &mut self.state.offsets;
        match request.offset {
            Some(offset) if header.client().0 == AUTO_COMMIT_CLIENT => {
                offsets.fold(request.key, offset);
            }
            Some(offset) => offsets.store(request.key, offset),
            None => offsets.delete(request.key),
        }
    }

    /// The applied point moves over operations nobody can serve any more: their messages are in
    /// the segments (chapter 04 section 2.11).
    pub(crate) fn raise_floor(&mut self, to: Op, context: &mut Context<'_>) {
        if to <= self.replica.commit_min() {
            return;
        }
        self.forget_resident(context);
        self.cold.decide();
        self.state.forget_through(to);
        let commit_max = self.replica.commit_max();
        let out: &mut Vec<vsr::Output> = &mut context.scratch.vsr;
        self.replica
            .install_floor(to, None, commit_max, &mut self.state, out);
    }

    /// Drops what is in memory below an installed floor. The segments have its messages, or it
    /// was never applied here.
    fn forget_resident(&mut self, context: &mut Context<'_>) {
        let on_disk = self.segments.next_offset();
        while self
            .state
            .resident
            .front()
            .is_some_and(|entry| entry.next_offset <= on_disk)
        {
            if let Some(entry) = self.state.resident.pop_front() {
                self.resident_bytes -= entry.message.size();
                *context.resident_total -= entry.message.size();
            }
        }
    }
}
