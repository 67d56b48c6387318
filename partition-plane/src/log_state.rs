//! What a group's log means: which offset is minted or expected next, which messages are
//! visible, which committed operations are still in memory (chapter 06 sections 3, 5, 6).
//!
//! This is the side of a group that vsr asks while it orders prepares: stamping on the primary,
//! the checks of a backup, rewinding when a suffix is dropped. Every rule that moves the next
//! offset is the same function on every replica, or a backup could never acknowledge again.

use std::collections::VecDeque;
use std::ops::Range;

use biplane_vsr as vsr;
use biplane_wire::{
    FrameBuffer, Header, Message, Op, Operation, PrepareHeader, RoutedRequestHeader,
};

use crate::admission;
use crate::batch::{self, BatchHeader};
use crate::consumer_offsets::ConsumerOffsets;
use crate::dedup::Dedup;
use crate::offset_request::OffsetRequest;
use crate::poll::{Selection, Taken};
use crate::purge_marker;
use crate::resident::{MessageSource, Resident};
use crate::scan::BatchMark;
use crate::unapplied::Unapplied;

/// Counters of one group's log, and its committed operations in memory.
#[derive(Debug)]
pub(crate) struct LogState {
    /// Offset the next message gets, uncommitted ones included: where the log's last batch or
    /// purge marker leaves it.
    pub(crate) next_offset: u64,
    /// Operations above the applied one that move the next offset.
    pub(crate) unapplied: Unapplied,
    /// Offset after the last committed message; 0 while the partition is empty.
    pub(crate) committed_next: u64,
    /// Below this a rewind never goes: recovered, installed or committed.
    pub(crate) rewind_floor: u64,
    /// Offsets below this one are claimed by the superblock's frontier alone: no segment on disk
    /// reaches it. They may be gone for good reason (retention), or because a crash cut an
    /// install short; so they do not stand in for ops that this replica has not seen.
    pub(crate) unbacked: u64,
    /// Base offset and checksum of the last batches a restarted replica has on disk: what is
    /// delivered again must be the same.
    pub(crate) marks: Vec<BatchMark>,
    /// Messages below this were removed with their segments; those still in memory are for
    /// repair alone.
    pub(crate) retained_from: u64,
    /// Ops at or below this lost their effect to a purge.
    pub(crate) purge_floor: Op,
    /// The partition was purged without a marker in the log: until one comes, or a batch that
    /// starts over, the log still tells of what was purged.
    pub(crate) is_ahead: bool,
    /// No marker confirmed the last purge here yet: one that comes later takes back what has
    /// come since.
    pub(crate) is_unmarked: bool,
    /// Committed batches may repeat what the segments had when the group was opened.
    pub(crate) is_replaying: bool,
    /// Operations applied by a transfer or a purge before they are walked here.
    pub(crate) installed: Op,
    /// Whether a committed purge waits to be applied: nothing is acknowledged meanwhile.
    pub(crate) purge_deferred: bool,
    /// Whether acknowledging an operation promises that it is on disk.
    pub(crate) persisted: bool,
    /// A live batch was refused because its offset is not the one expected here.
    pub(crate) refused_stamp: Option<StampRefusal>,
    /// Applied operations that are kept in memory, ascending.
    pub(crate) resident: VecDeque<Resident>,
    /// Requests committed before, and those in flight.
    pub(crate) dedup: Dedup,
    /// Stored positions.
    pub(crate) offsets: ConsumerOffsets,
}

/// A batch that does not continue this replica's offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StampRefusal {
    /// Op of the prepare.
    pub(crate) op: Op,
    /// Offset the primary gave it.
    pub(crate) base_offset: u64,
    /// Offset expected here.
    pub(crate) expected: u64,
}

impl LogState {
    /// Offset of the last committed message.
    pub(crate) fn committed(&self) -> Option<u64> {
        self.committed_next.checked_sub(1)
    }

    /// Whether a committed batch below the recovered end contradicts what is on disk there.
    pub(crate) fn contradicts(&self, batch: &BatchHeader) -> bool {
        let known = self
            .marks
            .first()
            .is_some_and(|first| batch.base_offset >= first.0);
        known
            && match self
                .marks
                .binary_search_by_key(&batch.base_offset, |mark| mark.0)
            {
                Ok(at) => self.marks[at].1 != batch.checksum,
                Err(_) => true,
            }
    }

    /// The offsets of the committed messages in memory that a poll may return. Usually the tail
    /// of the log; while a restarted replica applies again what its segments have, a window in
    /// the middle.
    pub(crate) fn resident_offsets(&self) -> Range<u64> {
        let first = self.resident.front().map_or(0, |entry| entry.base_offset);
        let next = self.resident.back().map_or(0, |entry| entry.next_offset);
        first.max(self.retained_from)..next
    }

    /// Nothing in memory is read or flushed from there any more; a batch at `offset` follows.
    pub(crate) fn leave_to_disk(&mut self, offset: u64) {
        for entry in &mut self.resident {
            (entry.base_offset, entry.next_offset) = (offset, offset);
        }
    }

    /// Whether the first batch of at least this broker time is in memory, if it exists at all:
    /// something older is in memory as well, and nothing newer is missing.
    pub(crate) fn is_time_resident(&self, timestamp: u64) -> bool {
        let (Some(oldest), Some(newest)) = (self.resident.front(), self.resident.back()) else {
            return false;
        };
        let reaches = newest.timestamp >= timestamp || newest.next_offset == self.committed_next;
        oldest.timestamp < timestamp && oldest.base_offset >= self.retained_from && reaches
    }

    /// The batches in memory that a poll may return, from entry `index` on.
    fn readable_from(&self, index: usize) -> impl Iterator<Item = &Resident> {
        let retained = |entry: &Resident| entry.next_offset <= self.retained_from;
        let first = self.resident.partition_point(retained).max(index);
        self.resident
            .range(first..)
            .filter(|entry| entry.count() > 0)
    }

    /// Offers every batch in memory from where the selection looks.
    pub(crate) fn select(&self, selection: &mut Selection) {
        let first = match selection.looking_for() {
            crate::poll::Start::Nothing => return,
            crate::poll::Start::Offset(offset) => self
                .resident
                .partition_point(|entry| entry.next_offset <= offset),
            crate::poll::Start::Timestamp(timestamp) => self
                .resident
                .partition_point(|entry| entry.timestamp < timestamp),
        };
        for entry in self.readable_from(first) {
            let source = MessageSource(&entry.message);
            if selection.offer(&entry.meta(), &source) == Taken::Done {
                return;
            }
        }
    }

    fn accept_batch(
        &mut self,
        header: &PrepareHeader,
        body: &[u8],
        source: vsr::Source,
    ) -> Result<(), &'static str> {
        let stamped = match source {
            // Its bytes were verified when it was accepted the first time.
            vsr::Source::Restored => BatchHeader::read(body).ok_or("the batch is incomplete")?,
            vsr::Source::Live | vsr::Source::Repair => {
                batch::verify(body).map_err(|_| "the batch does not verify")?
            }
        };
        let Some(next) = stamped.base_offset.checked_add(u64::from(stamped.count)) else {
            return Err("the offsets of the batch overflow");
        };
        let op = header.op();
        if source != vsr::Source::Live {
            if op > self.purge_floor && op > self.installed {
                self.unapplied.batch(op, stamped.base_offset, next);
                self.follow_log();
            }
            return Ok(());
        }
        if stamped.base_timestamp != header.timestamp() {
            return Err("the batch is stamped with another time than its prepare");
        }
        let is_purged = self.is_ahead && !self.unapplied.starts_over();
        if stamped.base_offset != self.next_offset && !is_purged {
            self.refused_stamp = Some(StampRefusal {
                op: header.op(),
                base_offset: stamped.base_offset,
                expected: self.next_offset,
            });
            return Err("the batch does not continue the offsets here");
        }
        self.unapplied.batch(op, stamped.base_offset, next);
        self.follow_log();
        Ok(())
    }

    /// The next offset is where the log leaves it. What is committed here is never below it,
    /// unless a purge stands in between.
    pub(crate) fn follow_log(&mut self) {
        let here = self.committed_next.max(self.rewind_floor);
        self.next_offset = match self.unapplied.last_next() {
            Some(_) if self.is_ahead && !self.unapplied.starts_over() => here,
            Some(next) if self.unapplied.has_marker() => next,
            Some(next) => next.max(here),
            None => here,
        };
    }

    /// Offsets below this one a transferred state must include.
    pub(crate) fn kept_offset(&self) -> u64 {
        match self.is_unmarked {
            true => 0,
            false => self.committed_next.max(self.rewind_floor),
        }
    }

    /// Operations up to `op` are applied, or their effect is here.
    pub(crate) fn forget_through(&mut self, op: Op) {
        if self.unapplied.forget_through(op) {
            self.follow_log();
        }
    }
}

impl vsr::Plane for LogState {
    fn durability(&self, _prepare: &PrepareHeader) -> vsr::Durability {
        // With a prepare log every operation goes through it: an acknowledgement covers the
        // history below the op as well.
        if self.persisted {
            vsr::Durability::Disk
        } else {
            vsr::Durability::Memory
        }
    }

    fn stamp(&mut self, header: &PrepareHeader, body: &mut [u8]) {
        if header.operation() == Operation::SendMessages {
            let meta = batch::stamp(body, self.next_offset, header.timestamp());
            self.next_offset = meta.next_offset();
            self.unapplied
                .batch(header.op(), meta.base_offset, self.next_offset);
        } else if purge_marker::is_marker(header, body) {
            self.unapplied.marker(header.op());
            self.next_offset = 0;
        }
    }

    fn accept(&mut self, prepare: &Message, source: vsr::Source) -> Result<(), &'static str> {
        let header = prepare.header::<PrepareHeader>();
        match header.operation() {
            Operation::SendMessages => self.accept_batch(header, prepare.body(), source),
            Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset => {
                OffsetRequest::decode(header.operation(), prepare.body())
                    .map_err(|_| "the offset request does not decode")?;
                if purge_marker::is_marker(header, prepare.body())
                    && header.op() > self.purge_floor
                    && header.op() > self.installed
                {
                    self.unapplied.marker(header.op());
                    self.follow_log();
                }
                Ok(())
            }
            _ => Err("not an operation of a partition"),
        }
    }

    fn truncated(&mut self, from: Op, removed: &[Message]) {
        for prepare in removed {
            let header = prepare.header::<PrepareHeader>();
            self.dedup.ended(header.client().0, header.request().0);
        }
        if vsr::mutated!(OffsetNotRewound) {
            return;
        }
        self.unapplied.truncate(from);
        // What takes the place of the operations that went was not purged.
        if let Some(below) = from.previous() {
            self.purge_floor = self.purge_floor.min(below);
        }
        self.follow_log();
    }

    fn promote(&mut self, request: &FrameBuffer) -> vsr::Promotion {
        let header = RoutedRequestHeader::over(request.header_bytes());
        match admission::recheck(self, header, request.body()) {
            Ok(()) => vsr::Promotion::Prepare,
            Err(status) => vsr::Promotion::Deny(status),
        }
    }

    fn may_acknowledge(&self) -> bool {
        !self.purge_deferred
    }
}
