//! Looking at a log, and what must hold of it between any two calls.

use biplane_wire::{Checksum, Op};

use super::Wal;
use super::work::{InFlight, Job, Then};
use crate::disk::{DiskError, QueueId};

impl Wal {
    /// Ops that can still be appended above the newest one before the log is full.
    #[must_use]
    pub fn free_slots(&self) -> u64 {
        let newest = self.last_op().map_or(self.floor, |op| op.0.max(self.floor));
        self.config.slots_max.saturating_sub(newest - self.floor)
    }

    /// Bytes of records that can still be appended before the log is full.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let used = self.file.len.saturating_add(self.pending_bytes);
        self.config.bytes_max.saturating_sub(used)
    }

    /// Whether this very prepare is on stable storage.
    #[must_use]
    pub fn is_durable(&self, op: Op, checksum: Checksum) -> bool {
        let slot = self.slots.get(&op.0);
        slot.is_some_and(|slot| slot.place.is_some() && slot.content.checksum() == Some(checksum))
    }

    /// Whether the op was found damaged and has not been repaired.
    #[must_use]
    pub fn is_damaged(&self, op: Op) -> bool {
        self.slots
            .get(&op.0)
            .is_some_and(|slot| slot.content.checksum().is_none())
    }

    /// Lowest op held, damaged ones and those still being written included.
    #[must_use]
    pub fn first_op(&self) -> Option<Op> {
        self.slots.first_key_value().map(|(op, _)| Op(*op))
    }

    /// Highest op held, damaged ones and those still being written included.
    #[must_use]
    pub fn last_op(&self) -> Option<Op> {
        self.slots.last_key_value().map(|(op, _)| Op(*op))
    }

    /// Whether nothing is in flight or waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.jobs.is_empty()
    }

    /// Whether a request has failed.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// What the disk has no room for, while this log waits for some: nothing becomes durable
    /// meanwhile.
    #[must_use]
    pub fn no_room(&self) -> Option<&DiskError> {
        self.no_room.as_ref().map(|waiting| &waiting.error)
    }

    /// Length of the file in bytes, without what is in flight.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file.len
    }

    /// The queue whose completions belong here.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.config.queue
    }

    /// Asserts what must hold between any two calls.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_invariants(&self) {
        if let Some(first) = self.first_op() {
            assert!(first.0 > self.floor, "no slot is drained");
        }
        self.file.check_invariants(&self.slots);
        let waiting = self.jobs.iter().map(|job| match job {
            Job::Append { len, .. } => *len,
            _ => 0,
        });
        let in_flight = match &self.in_flight {
            Some(
                InFlight::Append { len, .. }
                | InFlight::Rewrite {
                    then: Then::Replaced { len, .. },
                    ..
                },
            ) => *len,
            _ => 0,
        };
        assert!(
            self.no_room.is_none() || self.in_flight.is_some(),
            "what waits for room is in flight"
        );
        if !self.halted {
            let pending = waiting.sum::<u64>() + in_flight;
            assert!(
                pending == self.pending_bytes,
                "pending bytes are those of waiting appends"
            );
            assert!(
                self.in_flight.is_some() || self.jobs.is_empty(),
                "nothing waits for nothing"
            );
        }
    }
}
