//! Committed batches to segment files (chapter 06 section 14.3).
//!
//! One flush of a group is under way at a time; what commits meanwhile goes with the next one,
//! so a busy disk makes flushes larger and not more frequent. A flush writes bodies straight
//! from the prepares in memory. The segments' cursors move when all its writes completed; after
//! a failure the same bytes are planned again at the same places.

use std::collections::VecDeque;

use biplane_journal::{Chunk, DiskError, DiskOp, DiskReply};

use crate::context::{Context, Queues, backoff};
use crate::paths::Paths;
use crate::resident::Resident;
use crate::segments::{FlushPart, FlushPlan, Segments};

/// The flush of one group.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    flight: Option<Flight>,
    failures: u32,
    retry_at: u64,
    /// Flush everything, whatever the thresholds say.
    pub(crate) forced: bool,
}

#[derive(Debug)]
struct Flight {
    plan: FlushPlan,
    waiting: Vec<u64>,
    error: Option<DiskError>,
}

/// What became of a completion handed to the flusher.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The token was not the flusher's.
    NotMine,
    /// Other writes of the flush are under way.
    Running,
    /// All writes completed; the segments include the batches now.
    Done {
        /// Segments this flush completed.
        sealed: Vec<u64>,
    },
    /// A write failed; the flush will be tried again.
    Failed(DiskError),
}

impl Flusher {
    /// Whether a flush is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether a flush may start now.
    pub(crate) fn may_start(&self, now: u64) -> bool {
        self.flight.is_none() && now >= self.retry_at
    }

    /// Forgets the flush under way: its segments are gone.
    pub(crate) fn abandon(&mut self) {
        self.flight = None;
        self.failures = 0;
        self.retry_at = 0;
    }

    /// Starts the flush of the batches of `resident` that are not on disk.
    pub(crate) fn start(
        &mut self,
        resident: &VecDeque<Resident>,
        segments: &Segments,
        files: (&Paths, Queues),
        sync: bool,
        context: &mut Context<'_>,
    ) {
        let batches = unflushed(resident, segments, context);
        if batches.is_empty() {
            return;
        }
        let plan = segments.plan(batches.iter().map(|entry| entry.meta()).collect());
        let mut waiting = Vec::new();
        let last = plan.parts.len() - 1;
        for (at, part) in plan.parts.iter().enumerate() {
            // A full segment is durable before the next one has anything: power that fails leaves
            // no hole between two of them, which a lone replica could not fill.
            let sync = Sync {
                log: sync || at < last,
                index: sync,
            };
            write_part(part, &batches, files, sync, context, &mut waiting);
        }
        if sync && plan.parts.iter().any(|part| part.creates) {
            let path = files.0.dir().clone();
            waiting.push(context.submit(files.1.files(), DiskOp::SyncDir { path }));
        }
        self.flight = Some(Flight {
            plan,
            waiting,
            error: None,
        });
    }

    /// The answer to a write.
    pub(crate) fn complete(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        segments: &mut Segments,
        context: &Context<'_>,
    ) -> Flushed {
        let Some(flight) = &mut self.flight else {
            return Flushed::NotMine;
        };
        let Some(at) = flight.waiting.iter().position(|waiting| *waiting == token) else {
            return Flushed::NotMine;
        };
        flight.waiting.swap_remove(at);
        if let Err(error) = result {
            flight.error.get_or_insert_with(|| error.clone());
        }
        if !flight.waiting.is_empty() {
            return Flushed::Running;
        }
        let Some(flight) = self.flight.take() else {
            return Flushed::NotMine;
        };
        if let Some(error) = flight.error {
            self.failures += 1;
            self.retry_at =
                context.now + backoff(self.failures, context.node.limits.disk_retry_ticks_max);
            return Flushed::Failed(error);
        }
        self.failures = 0;
        let before = segments.count();
        segments.apply(flight.plan);
        let sealed = segments
            .iter()
            .skip(before - 1)
            .take(segments.count() - before);
        Flushed::Done {
            sealed: sealed.map(|segment| segment.start).collect(),
        }
    }
}

/// The batches in memory that the segments lack, up to what one flush takes.
fn unflushed<'a>(
    resident: &'a VecDeque<Resident>,
    segments: &Segments,
    context: &Context<'_>,
) -> Vec<&'a Resident> {
    let limits = &context.node.limits;
    let on_disk = segments.next_offset();
    let first = resident.partition_point(|entry| entry.next_offset <= on_disk);
    let mut bytes = 0;
    let mut batches = Vec::new();
    for entry in resident.range(first..).filter(|entry| entry.count() > 0) {
        if batches.len() >= limits.flush_batches_max || bytes >= limits.flush_bytes_max {
            break;
        }
        bytes += entry.message.body().len();
        batches.push(entry);
    }
    if let Some(first) = batches.first() {
        assert!(
            first.base_offset == on_disk,
            "a flush continues the segments without a hole"
        );
    }
    batches
}

/// What is durable when it is written.
#[derive(Clone, Copy)]
struct Sync {
    log: bool,
    index: bool,
}

fn write_part(
    part: &FlushPart,
    batches: &[&Resident],
    (paths, queues): (&Paths, Queues),
    sync: Sync,
    context: &mut Context<'_>,
    waiting: &mut Vec<u64>,
) {
    let data: Vec<Chunk> = batches[part.batches.clone()]
        .iter()
        .map(|entry| Chunk::Body(entry.message.clone()))
        .collect();
    let (path, offset) = (paths.log(part.start), part.position);
    waiting.push(context.submit(
        queues.files(),
        DiskOp::Write {
            path,
            offset,
            data,
            sync: sync.log,
        },
    ));
    let path = paths.index(part.start);
    let (offset, data) = match part.index {
        Some((at, entry)) => (at, vec![Chunk::Bytes(entry.encode().as_slice().into())]),
        None => (0, Vec::new()),
    };
    waiting.push(context.submit(
        queues.files(),
        DiskOp::Write {
            path,
            offset,
            data,
            sync: sync.index,
        },
    ));
}
