//! Misfortunes of disks: no room, writes and reads that go to another place, writes that were
//! confirmed and never happened.
//!
//! Which record may be hit on which node is dealt out by [`crate::fault_atlas`]: the cluster keeps
//! all copies of each record but one.

use biplane_wire::{Command, Message, StateChunkHeader};

use super::{Event, Phase, World};
use crate::disk::Stray;
use crate::fault_atlas;
use crate::oracle::promises::OpenRecord;
use crate::time::{MILLISECOND, SECOND};

fn place(record: &OpenRecord) -> std::ops::Range<u64> {
    record.bytes.start as u64..record.bytes.end as u64
}

impl World {
    /// A disk is full for a while.
    pub(super) fn fault_full(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        let this = &mut self.nodes[usize::from(node)];
        if this.disk.is_full() {
            return false;
        }
        this.disk.fill(true);
        let time = 50 * MILLISECOND + self.fault_prng.exponential(SECOND);
        self.log(|| format!("the disk of n{node} is full for {} ms", time / MILLISECOND));
        let due = self.queue.now() + time;
        self.queue.schedule(due, Event::Room { node });
        true
    }

    /// A disk has room again.
    pub(super) fn make_room(&mut self, node: u8) {
        self.log(|| format!("the disk of n{node} has room"));
        self.nodes[usize::from(node)].disk.fill(false);
    }

    /// Records of a node that may be hit there.
    fn records_to_hit(&mut self, node: u8) -> Vec<OpenRecord> {
        let (seed, count) = (self.options.seed, self.options.replicas);
        let scattered = self.options.scattered;
        let owns = |group, op| match scattered {
            true => fault_atlas::owns_op(seed, count, node, group, op),
            false => fault_atlas::owns_group(seed, count, node, group),
        };
        let look = self.nodes[usize::from(node)].look();
        self.oracles.promises.inner_records(look, owns)
    }

    /// A write was confirmed and never happened.
    pub(super) fn fault_lost_write(&mut self) -> bool {
        let nodes = 0..self.options.replicas;
        let records = nodes.flat_map(|node| {
            let records = self.records_to_hit(node).into_iter();
            records.map(move |record| (node, record))
        });
        let records: Vec<(u8, OpenRecord)> = records.collect();
        let Some((node, record)) = self.fault_prng.pick(&records).cloned() else {
            return false;
        };
        let disk = &mut self.nodes[usize::from(node)].disk;
        if !disk.unwrite(&record.path, &place(&record), Stray::Unwritten) {
            return false;
        }
        self.oracles.promises.damaged(node, &record);
        let (path, op) = (record.path.as_str(), record.op);
        self.log(|| format!("n{node} {path} op {op} was never written"));
        // It is not missed before the log is read, which is after the power was off.
        if self.fault_prng.chance(300_000) && self.may_forget(node) {
            let mode = self.draw_crash_mode();
            self.crash(node, mode);
            self.start_later(node);
        }
        true
    }

    /// A write went to the place of another record, or reads of one bring another one.
    pub(super) fn fault_misdirect(&mut self) -> bool {
        let Some(node) = self.draw_running() else {
            return false;
        };
        let records = self.records_to_hit(node);
        let Some(meant) = self.fault_prng.pick(&records).cloned() else {
            return false;
        };
        let is_read = self.fault_prng.chance(500_000);
        let across = self.options.across_logs;
        // What is written elsewhere must not reach into the record behind.
        let fits = |other: &&OpenRecord| {
            let is_other = (&other.path, other.op) != (&meant.path, meant.op);
            let is_near = across || other.path == meant.path;
            // A log that begins with a record of another one is refused, and not only unreadable.
            let struck = if is_read { &meant } else { other };
            let is_first = across && struck.bytes.start == 0;
            let fits = is_read || other.bytes.len() >= meant.bytes.len();
            is_other && is_near && !is_first && fits
        };
        let others: Vec<&OpenRecord> = records.iter().filter(fits).collect();
        let Some(other) = self.fault_prng.pick(&others).copied().cloned() else {
            return false;
        };
        let disk = &mut self.nodes[usize::from(node)].disk;
        let source = if is_read { &other } else { &meant };
        let Some(bytes) = disk.bytes_at(&source.path, &place(source)) else {
            return false;
        };
        let struck = match is_read {
            true => disk.misplace(&meant.path, &place(&meant), &bytes, Stray::Misread),
            false => {
                disk.misplace(&other.path, &place(&other), &bytes, Stray::Misplaced)
                    && disk.unwrite(&meant.path, &place(&meant), Stray::Misplaced)
            }
        };
        if struck {
            self.oracles.promises.damaged(node, &meant);
            if !is_read {
                self.oracles.promises.damaged(node, &other);
            }
        }
        self.log(|| {
            let (path, op) = (meant.path.as_str(), meant.op);
            let (there, of) = (other.path.as_str(), other.op);
            let what = if is_read {
                "is read from"
            } else {
                "was written to"
            };
            format!("n{node} {path} op {op} {what} {there} op {of}: {struck}")
        });
        struck
    }

    /// A frame as it leaves: a chunk of state may be what a disk gave back damaged, which its
    /// sender does not know and seals.
    pub(super) fn worn(&mut self, message: Message) -> Message {
        let is_chunk = message.command() == Command::StateChunk && !message.body().is_empty();
        let parts = self.options.chunk_parts;
        if !is_chunk || self.phase == Phase::Liveness || !self.chunk_prng.chance(parts) {
            return message;
        }
        self.counters.add("chunks of state damaged", 1);
        let header: StateChunkHeader = *message.header();
        let mut body = message.body().to_vec();
        let at = self.chunk_prng.index(body.len());
        body[at] ^= 1 << self.chunk_prng.below(8);
        Message::sealed(header, &body)
    }
}
