//! The turns of the machine: gathering, writing a batch, changing files, retiring an epoch.

use super::format::{
    BLOCK_BYTES, Head, batch_len, encode, entry_len, file_head, redo_dir, redo_path, zeros,
};
use super::replay::ReplayedView;
use super::{Files, GATHERED_NAME, GroupCommit, QUEUE_FILES, QUEUE_REDO, RETRY_TICKS};
use crate::disk::{
    Chunk, DiskCompletion, DiskError, DiskErrorKind, DiskOp, DiskReply, DiskRequest, DiskView,
    QueueId,
};
use crate::path::DiskPath;

/// Bytes after which a batch takes no further write along.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Zeros written at once when a file is made.
const ZEROS_BYTES: u64 = 256 << 10;

impl GroupCommit {
    /// Lets a request through, or hands it back when it must wait.
    pub(super) fn route(
        &mut self,
        request: DiskRequest,
        out: &mut Vec<DiskRequest>,
    ) -> Option<DiskRequest> {
        let under_way = self.under_way.get(&request.queue).copied();
        let super::UnderWay { gathered, direct } = under_way.unwrap_or_default();
        if self.is_gathered(&request.op) {
            if direct > 0 {
                return Some(request);
            }
            if self.files == Files::Failed {
                self.refuse(request);
                return None;
            }
            self.count(request.queue).gathered += 1;
            self.queued.push_back(request);
            return None;
        }
        let barred = self.is_barred(&request.op);
        if barred && self.files == Files::Failed {
            self.refuse(request);
            return None;
        }
        if gathered > 0 || barred {
            return Some(request);
        }
        self.count(request.queue).direct += 1;
        // A log that is cut asks for something else when there is no room.
        let is_write = matches!(request.op, DiskOp::Write { .. } | DiskOp::Replace { .. });
        if is_write && request.op.path().name() == GATHERED_NAME {
            let place = (request.queue, request.token);
            self.repeatable.insert(place, request.op.clone());
        }
        out.push(request);
        None
    }

    fn count(&mut self, queue: QueueId) -> &mut super::UnderWay {
        self.under_way.entry(queue).or_default()
    }

    /// What became of a request: to be handed to whoever submitted it.
    pub fn next_answer(&mut self) -> Option<DiskCompletion> {
        self.answers.pop_front()
    }

    /// `inner` with every write in place that its file does not have yet. Whoever reads files
    /// while this machine is at work reads through this.
    #[must_use]
    pub fn view<'a>(&'a self, inner: &'a dyn DiskView) -> ReplayedView<'a> {
        ReplayedView::new(inner, [&self.retiring, &self.dirty])
    }

    /// Whether nothing is under way and nothing waits. Writes of the present epoch may still be
    /// in the redo file alone.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty()
            && self.writing.is_none()
            && self.flushing.is_empty()
            && self.lines.is_empty()
            && self.under_way.is_empty()
            && self.answers.is_empty()
    }

    /// Takes the completion of a request this machine let through or made. Hand on the answers,
    /// then call [`Self::flush`].
    pub fn complete(&mut self, completion: DiskCompletion, out: &mut Vec<DiskRequest>) {
        let (queue, token) = (completion.queue, completion.token);
        if let Some(op) = self.repeatable.remove(&(queue, token))
            && let Err(error) = &completion.result
            && error.kind == DiskErrorKind::NoSpace
        {
            self.full.push(DiskRequest { queue, token, op });
            self.retry_at = self.now + RETRY_TICKS;
            return;
        }
        if completion.queue == QUEUE_FILES {
            self.on_file(completion.token, completion.result, out);
        } else if completion.queue == QUEUE_REDO {
            self.on_redo(completion.result, out);
        } else {
            self.count(completion.queue).direct -= 1;
            self.forget_idle(completion.queue);
            self.answers.push_back(completion);
        }
        self.release(out);
    }

    fn forget_idle(&mut self, queue: QueueId) {
        if self.under_way.get(&queue) == Some(&super::UnderWay::default()) {
            self.under_way.remove(&queue);
        }
    }

    /// Looks again at everybody who waits.
    fn release(&mut self, out: &mut Vec<DiskRequest>) {
        if self.lines.is_empty() {
            return;
        }
        let queues: Vec<QueueId> = self.lines.keys().copied().collect();
        for queue in queues {
            let Some(mut line) = self.lines.remove(&queue) else {
                continue;
            };
            while let Some(request) = line.pop_front() {
                if let Some(request) = self.route(request, out) {
                    line.push_front(request);
                    break;
                }
            }
            if !line.is_empty() {
                self.lines.insert(queue, line);
            }
        }
    }

    fn refuse(&mut self, request: DiskRequest) {
        let DiskRequest { queue, token, op } = request;
        let (verb, path) = (op.verb(), op.path().clone());
        let kind = DiskErrorKind::Io(None);
        self.forget_idle(queue);
        self.answers.push_back(DiskCompletion {
            queue,
            token,
            result: Err(DiskError { verb, path, kind }),
        });
    }

    /// Starts the next batch when none is under way: everything that has been submitted since
    /// the last one goes into it.
    pub fn flush(&mut self, out: &mut Vec<DiskRequest>) {
        if self.writing.is_some() {
            return;
        }
        match self.files {
            Files::Absent if !self.queued.is_empty() => self.create_files(out),
            Files::Ready => self.next_batch(out),
            _ => {}
        }
    }

    fn next_batch(&mut self, out: &mut Vec<DiskRequest>) {
        let wants_turn = self.wants_turn();
        if wants_turn && self.retired + 1 == self.epoch {
            self.turn(out);
        }
        let mut writes = Vec::new();
        let mut length = 0;
        while let Some(request) = self.queued.front() {
            let longer = length + entry_len(&request.op);
            let is_full = batch_len(longer) > BATCH_BYTES_MAX && !writes.is_empty();
            if is_full || !self.has_room(longer) {
                break;
            }
            length = longer;
            writes.extend(self.queued.pop_front());
        }
        let owes_note = self.flushed > self.retired && (wants_turn || !self.lines.is_empty());
        if !writes.is_empty() || owes_note {
            self.write_batch(writes, length, out);
        }
    }

    /// Whether a batch with entries of `length` bytes fits and leaves room for a note.
    fn has_room(&self, length: u64) -> bool {
        self.len + batch_len(length) + BLOCK_BYTES <= self.config.file_bytes
    }

    /// Whether the present epoch should end: its file is full, or somebody waits for a file it
    /// holds writes of.
    fn wants_turn(&self) -> bool {
        let is_full = |request: &DiskRequest| !self.has_room(entry_len(&request.op));
        let waits = |request: &DiskRequest| self.touched(&request.op, &self.dirty);
        self.queued.front().is_some_and(is_full)
            || self
                .lines
                .values()
                .any(|line| line.front().is_some_and(waits))
    }

    /// Begins the next epoch in the other file; the writes of this one go to where they belong.
    fn turn(&mut self, out: &mut Vec<DiskRequest>) {
        debug_assert!(self.retiring.is_empty(), "one epoch is retired at a time");
        self.retiring = std::mem::take(&mut self.dirty);
        self.epoch += 1;
        self.batch = 0;
        self.len = BLOCK_BYTES;
        self.flush_files(out);
    }

    fn write_batch(&mut self, writes: Vec<DiskRequest>, length: u64, out: &mut Vec<DiskRequest>) {
        let head = Head {
            epoch: self.epoch,
            batch: self.batch,
            retired: self.flushed,
        };
        let data = encode(head, &writes, self.config.salt);
        for request in &writes {
            if let DiskOp::Write {
                path, offset, data, ..
            } = &request.op
            {
                let held = self.dirty.entry(path.clone()).or_default();
                held.push((*offset, data.clone()));
            }
        }
        let op = DiskOp::Write {
            path: redo_path(self.epoch),
            offset: self.len,
            data,
            sync: true,
        };
        self.batch += 1;
        self.len += batch_len(length);
        self.noted = self.flushed;
        self.writing = Some(writes);
        let token = self.submit_own(QUEUE_REDO, op.clone(), out);
        self.repeatable.insert((QUEUE_REDO, token), op);
    }

    fn submit_own(&mut self, queue: QueueId, op: DiskOp, out: &mut Vec<DiskRequest>) -> u64 {
        self.token += 1;
        let token = self.token;
        out.push(DiskRequest { queue, token, op });
        token
    }

    /// Makes both files, as long as they will ever be: a sync of one then has no length and no
    /// new blocks to make durable.
    fn create_files(&mut self, out: &mut Vec<DiskRequest>) {
        self.files = Files::Creating;
        let zeros = zeros(ZEROS_BYTES.min(self.config.file_bytes));
        self.submit_own(QUEUE_REDO, DiskOp::CreateDirs { path: redo_dir() }, out);
        for epoch in [0, 1] {
            let mut data = vec![Chunk::from(file_head(self.config.salt))];
            let mut left = self.config.file_bytes - BLOCK_BYTES;
            while left >= zeros.len() as u64 {
                data.push(zeros.clone());
                left -= zeros.len() as u64;
            }
            data.push(super::format::zeros(left));
            let path = redo_path(epoch);
            self.submit_own(QUEUE_REDO, DiskOp::Replace { path, data }, out);
        }
        self.changes_left = 3;
        self.change_failed = false;
    }

    fn on_redo(&mut self, result: Result<DiskReply, DiskError>, out: &mut Vec<DiskRequest>) {
        match self.files {
            Files::Creating => {
                self.change_failed |= result.is_err();
                self.changes_left -= 1;
                if self.changes_left > 0 {
                    return;
                }
                if self.change_failed {
                    self.give_up(out);
                } else {
                    self.files = Files::Ready;
                }
            }
            _ => self.on_batch(result),
        }
    }

    /// Without redo files every write is synced where it belongs, as it was asked for.
    fn give_up(&mut self, out: &mut Vec<DiskRequest>) {
        self.files = Files::Off;
        for request in std::mem::take(&mut self.queued) {
            let under_way = self.count(request.queue);
            under_way.gathered -= 1;
            under_way.direct += 1;
            out.push(request);
        }
    }

    fn on_batch(&mut self, result: Result<DiskReply, DiskError>) {
        let mut answered: Vec<DiskRequest> = self.writing.take().unwrap_or_default();
        let failed = result.err().map(|error| error.kind);
        if failed.is_some() {
            // What stands in the file is unknown now. Nothing more may be promised; whoever is
            // refused stops, and a restart finds out what is there.
            self.files = Files::Failed;
            answered.extend(std::mem::take(&mut self.queued));
        } else {
            self.retired = self.noted;
            if self.retired + 1 == self.epoch {
                self.retiring.clear();
            }
        }
        for DiskRequest { queue, token, op } in answered {
            self.count(queue).gathered -= 1;
            self.forget_idle(queue);
            let result = match failed {
                None => Ok(DiskReply::Done),
                Some(kind) => Err(DiskError {
                    verb: op.verb(),
                    path: op.path().clone(),
                    kind,
                }),
            };
            self.answers.push_back(DiskCompletion {
                queue,
                token,
                result,
            });
        }
    }

    /// Writes and syncs every file of the epoch that is being retired.
    pub(super) fn flush_files(&mut self, out: &mut Vec<DiskRequest>) {
        let paths: Vec<DiskPath> = self.retiring.keys().cloned().collect();
        for path in &paths {
            self.flush_file(path, out);
        }
        self.finish_flush(out);
    }

    /// Neighbouring writes go out in one; the last one syncs them all.
    pub(super) fn flush_file(&mut self, path: &DiskPath, out: &mut Vec<DiskRequest>) {
        let mut runs: Vec<(u64, Vec<Chunk>, u64)> = Vec::new();
        for (offset, data) in self.retiring.get(path).into_iter().flatten() {
            let len = Chunk::total(data);
            match runs.last_mut() {
                Some((_, run, end)) if end == offset => {
                    run.extend(data.iter().cloned());
                    *end += len;
                }
                _ => runs.push((*offset, data.clone(), offset + len)),
            }
        }
        let last = runs.len().saturating_sub(1);
        for (index, (offset, data, _)) in runs.into_iter().enumerate() {
            let op = DiskOp::Write {
                path: path.clone(),
                offset,
                data,
                sync: index == last,
            };
            let token = self.submit_own(QUEUE_FILES, op, out);
            self.flushing.insert(token, path.clone());
        }
    }

    fn on_file(
        &mut self,
        token: u64,
        result: Result<DiskReply, DiskError>,
        out: &mut Vec<DiskRequest>,
    ) {
        let Some(path) = self.flushing.remove(&token) else {
            self.on_removed(result.is_ok());
            return;
        };
        match result {
            // Somebody took the folder away under us: there is no place for these writes.
            Ok(_) => {}
            Err(error) if error.kind == DiskErrorKind::NotFound => {}
            Err(_) => {
                if !self.unflushed.contains(&path) {
                    self.unflushed.push(path);
                }
                self.retry_at = self.now + RETRY_TICKS;
            }
        }
        self.finish_flush(out);
    }

    /// Once every file has its writes, the epoch can be retired.
    pub(super) fn finish_flush(&mut self, out: &mut Vec<DiskRequest>) {
        if !self.flushing.is_empty() || !self.unflushed.is_empty() {
            return;
        }
        if self.files == Files::Removing {
            self.remove_replayed(out);
        } else if self.flushed + 1 < self.epoch {
            self.flushed = self.epoch - 1;
        }
    }

    /// The files of an earlier life go, the older epoch first: the newer alone is never wrong.
    pub(super) fn remove_replayed(&mut self, out: &mut Vec<DiskRequest>) {
        self.change_failed = false;
        for path in self.replayed.clone() {
            self.submit_own(QUEUE_FILES, DiskOp::Remove { path }, out);
            self.submit_own(QUEUE_FILES, DiskOp::SyncDir { path: redo_dir() }, out);
            self.changes_left += 2;
        }
    }

    fn on_removed(&mut self, succeeded: bool) {
        self.change_failed |= !succeeded;
        self.changes_left -= 1;
        if self.changes_left > 0 {
            return;
        }
        if self.change_failed {
            self.retry_at = self.now + RETRY_TICKS;
            return;
        }
        self.replayed.clear();
        self.retiring.clear();
        self.files = Files::Absent;
    }

    /// Ten milliseconds passed: what failed is tried again. [`Self::flush`] follows.
    pub fn tick(&mut self, out: &mut Vec<DiskRequest>) {
        self.now += 1;
        if self.now < self.retry_at {
            return;
        }
        for request in std::mem::take(&mut self.full) {
            let place = (request.queue, request.token);
            self.repeatable.insert(place, request.op.clone());
            out.push(request);
        }
        if !self.unflushed.is_empty() {
            for path in std::mem::take(&mut self.unflushed) {
                self.flush_file(&path, out);
            }
        } else if self.files == Files::Removing && self.change_failed && self.changes_left == 0 {
            self.remove_replayed(out);
        }
    }
}
