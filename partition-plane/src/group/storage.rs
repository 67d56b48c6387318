//! Files of a running group: who a completion is for, when a flush starts, which prepares may
//! leave memory, how stored positions reach their files (chapter 06 sections 3.1, 10.5, 14.3).

use biplane_journal::{Chunk, DiskCompletion, DiskError, DiskOp, DiskReply};
use biplane_wire::Op;

use super::Group;
use crate::consumer_offsets::{ConsumerKey, ConsumerOffsets, FileChange, encode_file};
use crate::context::{Context, Queues, backoff};
use crate::flush::Flushed;
use crate::paths::Paths;

/// Share of its ring a group keeps while all groups together have too much in memory.
const CROWDED_SHARE: usize = 16;
/// Share of what a group may have unflushed that it may have then.
const CROWDED_UNFLUSHED: u64 = 256;

/// Writes of offset files under way. One queue carries them all, so two writes of a key arrive
/// in order.
#[derive(Debug, Default)]
pub(crate) struct OffsetWriter {
    in_flight: Vec<(u64, ConsumerKey)>,
    failures: u32,
    retry_at: u64,
}

impl OffsetWriter {
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether some file may be older than the stored positions.
    pub(crate) fn is_behind(&self, offsets: &ConsumerOffsets) -> bool {
        offsets.is_dirty() || !self.is_idle()
    }

    /// Submits a write for every file that is behind; `submitted` learns token and key of each.
    fn start(
        &mut self,
        offsets: &mut ConsumerOffsets,
        (paths, queues): (&Paths, Queues),
        sync: bool,
        context: &mut Context<'_>,
        mut submitted: impl FnMut(u64, ConsumerKey),
    ) {
        if context.now < self.retry_at {
            return;
        }
        while let Some(FileChange { key, value }) = offsets.take_dirty() {
            let path = paths.offset(key);
            if value.is_none() && sync {
                // The checkpoint of the prepare log may pass this removal soon: a name that
                // comes back after a loss of power would bring the position back for good.
                let folder = path.parent().unwrap_or_else(|| path.clone());
                let token = context.submit(queues.offsets(), DiskOp::Remove { path });
                self.in_flight.push((token, key));
                let token = context.submit(queues.offsets(), DiskOp::SyncDir { path: folder });
                self.in_flight.push((token, key));
                submitted(token, key);
                continue;
            }
            let data = value.map(|value| vec![Chunk::Bytes(encode_file(value).as_slice().into())]);
            let op = match data {
                Some(data) if sync => DiskOp::Replace { path, data },
                Some(data) => DiskOp::Write {
                    path,
                    offset: 0,
                    data,
                    sync: false,
                },
                None => DiskOp::Remove { path },
            };
            let token = context.submit(queues.offsets(), op);
            self.in_flight.push((token, key));
            submitted(token, key);
        }
    }

    fn complete(&mut self, token: u64) -> Option<ConsumerKey> {
        let at = self
            .in_flight
            .iter()
            .position(|(waiting, _)| *waiting == token)?;
        Some(self.in_flight.remove(at).1)
    }
}

impl Group {
    /// A completion of one of this group's queues.
    pub(crate) fn on_disk(&mut self, done: DiskCompletion, context: &mut Context<'_>) {
        if done.queue == self.queues.superblock() {
            self.on_superblock_disk(done, context);
        } else if done.queue == self.queues.prepare_log() {
            self.on_log_disk(done, context);
        } else if self.transfer.spool.owns(done.token) {
            self.on_spool(done.token, done.result, context);
        } else if done.queue == self.queues.files() {
            self.on_file(done.token, done.result, context);
        } else if done.queue == self.queues.offsets() {
            self.on_offset_file(done.token, &done.result, context);
        } else if !self.on_poll_read(done.token, &done.result, context) {
            self.on_provider_read(done.token, &done.result, context);
        }
        self.settle(context);
    }

    fn on_file(
        &mut self,
        token: u64,
        result: Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        match self
            .flusher
            .complete(token, &result, &mut self.segments, context)
        {
            Flushed::Done { sealed } => {
                self.sync_sealed(&sealed, context);
                self.flushed(context);
            }
            Flushed::Running => {}
            Flushed::Failed(error) => {
                tracing::warn!(group = %self.spec.group, %error, "flush failed, will retry");
            }
            Flushed::NotMine => {
                if !self.on_home_step(token, &result, context)
                    && !self.on_log_files_step(token, &result, context)
                    && !self.on_purge_step(token, &result, context)
                {
                    self.on_install_step(token, &result, context);
                }
            }
        }
    }

    /// Makes full segments durable on the side, so that a loss of power leaves a torn tail in
    /// the last one and no hole in the chain. Nothing waits for it.
    fn sync_sealed(&self, sealed: &[u64], context: &mut Context<'_>) {
        if self.spec.options.needs_prepare_log() {
            return;
        }
        for start in sealed {
            for path in [self.paths.log(*start), self.paths.index(*start)] {
                context.submit(self.queues.spool(), DiskOp::Sync { path });
            }
        }
    }

    /// The segments have grown: replies that waited for it leave, memory may be freed.
    fn flushed(&mut self, context: &mut Context<'_>) {
        let on_disk = self.segments.next_offset();
        let first = self
            .state
            .resident
            .partition_point(|entry| entry.next_offset <= on_disk);
        self.unflushed_bytes = self
            .state
            .resident
            .range(first..)
            .map(|entry| entry.message.body().len() as u64)
            .sum();
        self.unflushed_since = (self.unflushed_bytes > 0).then_some(context.now);
        if on_disk >= self.state.committed_next {
            self.flusher.forced = false;
        }
        self.answer_flushed(on_disk, context);
    }

    fn on_offset_file(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) {
        let Some(key) = self.offset_writer.complete(token) else {
            return;
        };
        match result {
            Ok(_) => {
                self.offset_writer.failures = 0;
                self.answer_stored(token, context);
            }
            Err(error) => {
                tracing::warn!(group = %self.spec.group, %error, "offset write failed");
                self.offset_writer.failures += 1;
                let pause = context.node.limits.disk_retry_ticks_max;
                self.offset_writer.retry_at =
                    context.now + backoff(self.offset_writer.failures, pause);
                self.state.offsets.mark_dirty(key);
                self.clients.rearm_stored(token);
            }
        }
    }

    /// What is looked at after every step: flush, offset files, memory.
    pub(super) fn maintain(&mut self, context: &mut Context<'_>) {
        if self.flush_is_due(context) {
            let sync = self.spec.options.needs_prepare_log();
            let files = (&self.paths, self.queues);
            self.flusher
                .start(&self.state.resident, &self.segments, files, sync, context);
        }
        if self.clients.has_stored_waiting() {
            self.write_offsets(context);
        }
        self.serve_wanted_offers(context);
        self.checkpoint_log(context);
        self.evict(context);
    }

    /// Whether the disk is so far behind that nothing more may come into memory: for this group
    /// alone, or for all groups together, of which each may keep a little.
    pub(super) fn is_overfull(&self, context: &Context<'_>) -> bool {
        let limits = &context.node.limits;
        let crowded = *context.resident_total > limits.resident_bytes_max;
        self.unflushed_bytes > limits.unflushed_bytes_max
            || crowded && self.unflushed_bytes > limits.unflushed_bytes_max / CROWDED_UNFLUSHED
    }

    fn flush_is_due(&self, context: &Context<'_>) -> bool {
        let waiting = self
            .state
            .committed_next
            .saturating_sub(self.segments.next_offset());
        if waiting == 0 || !self.flusher.may_start(context.now) || self.files_are_busy() {
            return false;
        }
        let options = &self.spec.options;
        let late = self
            .unflushed_since
            .is_some_and(|since| context.now - since >= context.node.limits.flush_delay_ticks);
        self.flusher.forced
            || late
            || self.clients.has_flush_waiting()
            || waiting >= u64::from(options.messages_required_to_save)
            || self.unflushed_bytes >= options.size_of_messages_required_to_save
            || self.segments.active().size >= options.segment_size
    }

    /// Whether a purge or an install moves the files around.
    pub(super) fn files_are_busy(&self) -> bool {
        self.purge.is_running() || self.transfer.is_installing()
    }

    pub(super) fn write_offsets(&mut self, context: &mut Context<'_>) {
        if self.files_are_busy() {
            return;
        }
        let sync = self.spec.options.needs_prepare_log();
        let files = (&self.paths, self.queues);
        let clients = &mut self.clients;
        self.offset_writer.start(
            &mut self.state.offsets,
            files,
            sync,
            context,
            |token, key| {
                clients.stored_submitted(key, token);
            },
        );
    }

    /// Frees prepares that are on disk, beyond what repair and readers of the tail may want.
    fn evict(&mut self, context: &mut Context<'_>) {
        let limits = &context.node.limits;
        let stretch = match self.transfer.offers_wanted.is_peer_behind(context.now) {
            true => limits.ring_stretch,
            false => 1,
        };
        let (ring_entries, ring_bytes) =
            (limits.ring_entries * stretch, limits.ring_bytes * stretch);
        let on_disk = self.segments.next_offset();
        let mut through = Op::ZERO;
        let resident = &mut self.state.resident;
        while resident.len() > 1
            && (resident.len() > ring_entries
                || self.resident_bytes > ring_bytes
                || *context.resident_total > limits.resident_bytes_max
                    && self.resident_bytes > limits.ring_bytes / CROWDED_SHARE)
            && resident
                .front()
                .is_some_and(|entry| entry.next_offset <= on_disk)
        {
            if let Some(entry) = resident.pop_front() {
                self.resident_bytes -= entry.message.size();
                *context.resident_total -= entry.message.size();
                through = entry.op;
            }
        }
        if through > Op::ZERO {
            self.replica.log_mut().evict_through(through);
        }
    }

    /// Retries of failed writes, and the offset files of a replicated group.
    pub(super) fn tick_files(&mut self, context: &mut Context<'_>) {
        if self.superblock.failures() > 0 {
            self.superblock.tick(&mut context.scratch.disk);
            context.pass_disk();
        }
        self.tick_log(context);
        if self.state.offsets.is_dirty() {
            self.write_offsets(context);
        }
    }

    /// Everything committed goes to disk now.
    pub(crate) fn flush_all(&mut self, context: &mut Context<'_>) {
        self.flusher.forced = true;
        self.write_offsets(context);
        self.settle(context);
    }
}
