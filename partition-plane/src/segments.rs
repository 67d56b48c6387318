//! Where an offset lives on disk: the segments of one partition and their sparse indexes
//! (chapter 06 sections 14.2 and 14.3).
//!
//! Pure bookkeeping. A [`FlushPlan`] says which bytes of which batches go where; it changes
//! nothing until every write of it completed, so a failed flush is simply planned again and
//! overwrites in place. The roll rule looks at committed bytes alone: however flushes are
//! grouped, every replica cuts its segments at the same batch.

use std::collections::VecDeque;
use std::ops::Range;

/// Size of an index entry.
pub const INDEX_ENTRY_BYTES: usize = 24;
/// Distance in log bytes between two entries of a rebuilt index, and of the index in memory.
pub const INDEX_STRIDE: u64 = 64 << 10;

/// One entry of an `.index` file: a batch and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Base offset of the batch.
    pub offset: u64,
    /// Base timestamp of the batch, in microseconds.
    pub timestamp: u64,
    /// Byte position of the batch in the `.log`.
    pub position: u64,
}

impl IndexEntry {
    /// The entry's bytes.
    pub fn encode(self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut out = [0; INDEX_ENTRY_BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.timestamp.to_le_bytes());
        out[16..].copy_from_slice(&self.position.to_le_bytes());
        out
    }

    /// Reads every whole entry; a trailing partial one is ignored.
    pub fn decode_all(bytes: &[u8]) -> Vec<Self> {
        let field = |entry: &[u8], at: usize| {
            let value = entry[at..at + 8].first_chunk::<8>();
            u64::from_le_bytes(*value.expect("eight bytes of a whole entry"))
        };
        let read = |entry: &[u8]| Self {
            offset: field(entry, 0),
            timestamp: field(entry, 8),
            position: field(entry, 16),
        };
        bytes.chunks_exact(INDEX_ENTRY_BYTES).map(read).collect()
    }
}

/// What the bookkeeping needs to know of a stamped batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMeta {
    /// Offset of its first message.
    pub base_offset: u64,
    /// Broker time of the batch, in microseconds.
    pub base_timestamp: u64,
    /// Messages in the batch, not zero.
    pub count: u32,
    /// Bytes of the batch, header included.
    pub len: u64,
}

impl BatchMeta {
    /// Offset of the last message.
    pub fn last_offset(&self) -> u64 {
        self.base_offset
            .saturating_add(u64::from(self.count))
            .saturating_sub(1)
    }

    /// Offset after the last message.
    pub fn next_offset(&self) -> u64 {
        self.base_offset.saturating_add(u64::from(self.count))
    }
}

/// Name of a segment's log file.
pub fn log_name(start: u64) -> String {
    format!("{start:020}.log")
}

/// Name of a segment's index file.
pub fn index_name(start: u64) -> String {
    format!("{start:020}.index")
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offset the file is named after.
    pub start: u64,
    /// Bytes of log that count.
    pub size: u64,
    /// Offset after the last message; `start` while empty.
    pub next: u64,
    /// Messages in it.
    pub messages: u64,
    /// Base timestamp of the newest batch; 0 while empty.
    pub max_timestamp: u64,
    /// Whether nothing is appended to it any more.
    pub sealed: bool,
    /// Length of the index file that counts.
    pub index_size: u64,
    /// Index in memory, thinned to the stride.
    pub index: Vec<IndexEntry>,
    /// XXH3 of its bytes, when it was read whole since the last append.
    pub digest: Option<u64>,
}

impl Segment {
    /// An empty segment.
    pub fn empty(start: u64) -> Self {
        Self {
            start,
            size: 0,
            next: start,
            messages: 0,
            max_timestamp: 0,
            sealed: false,
            index_size: 0,
            index: Vec::new(),
            digest: None,
        }
    }

    /// Offset of the last message, if any.
    pub fn end(&self) -> Option<u64> {
        (self.next > self.start).then(|| self.next - 1)
    }

    /// Adds a batch at the end, without touching the index file's length.
    pub fn append(&mut self, batch: &BatchMeta) {
        let far = |last: &IndexEntry| self.size - last.position >= INDEX_STRIDE;
        if self.index.last().is_none_or(far) {
            self.index.push(IndexEntry {
                offset: batch.base_offset,
                timestamp: batch.base_timestamp,
                position: self.size,
            });
        }
        self.digest = None;
        self.size += batch.len;
        self.next = batch.next_offset();
        self.messages += u64::from(batch.count);
        self.max_timestamp = self.max_timestamp.max(batch.base_timestamp);
    }

    /// A batch at or before `offset`.
    fn locate(&self, offset: u64) -> Location {
        self.location(self.index.partition_point(|entry| entry.offset <= offset))
    }

    /// A batch at or before the first of at least `timestamp`.
    fn locate_timestamp(&self, timestamp: u64) -> Location {
        self.location(
            self.index
                .partition_point(|entry| entry.timestamp <= timestamp),
        )
    }

    /// The place of the index entry before `after`, or the start.
    fn location(&self, after: usize) -> Location {
        let entry = after.checked_sub(1).map(|at| self.index[at]);
        let position = entry.map_or(0, |entry| entry.position);
        let next = self
            .index
            .get(after)
            .map_or(self.size, |next| next.position);
        Location {
            start: self.start,
            position,
            size: self.size,
            span: next.saturating_sub(position),
        }
    }
}

/// The part of a flush that goes into one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushPart {
    /// Segment the bytes go to.
    pub start: u64,
    /// Whether this flush creates the segment's files.
    pub creates: bool,
    /// Byte position of the first batch in the log.
    pub position: u64,
    /// Batches, as indexes into the slice the plan was made of.
    pub batches: Range<usize>,
    /// Entry for the index file (the chunk's first batch), and where it goes; `None` when the
    /// part only creates an empty segment.
    pub index: Option<(u64, IndexEntry)>,
}

/// Writes that make a run of batches durable.
#[derive(Debug, Clone)]
pub struct FlushPlan {
    /// One part per segment touched, ascending.
    pub parts: Vec<FlushPart>,
    batches: Vec<BatchMeta>,
}

/// A place to read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Segment, by its start offset.
    pub start: u64,
    /// Byte position of some batch at or before the wanted one.
    pub position: u64,
    /// Bytes of the segment that count.
    pub size: u64,
    /// Bytes from the position to the next one the index knows: a read of so many has a whole
    /// batch.
    pub span: u64,
}

/// The segments of one partition, ascending; the last one is active.
#[derive(Debug, Clone)]
pub struct Segments {
    list: VecDeque<Segment>,
    segment_size: u64,
}

impl Segments {
    /// One empty segment at `start`.
    pub fn fresh(start: u64, segment_size: u64) -> Self {
        Self {
            list: VecDeque::from([Segment::empty(start)]),
            segment_size: segment_size.max(1),
        }
    }

    /// Segments as recovery found them: contiguous, ascending, at least one.
    pub fn recovered(list: Vec<Segment>, segment_size: u64) -> Self {
        assert!(!list.is_empty(), "a partition has a segment");
        Self {
            list: list.into(),
            segment_size: segment_size.max(1),
        }
    }

    /// Changes the size at which segments are sealed from here on.
    pub fn set_segment_size(&mut self, segment_size: u64) {
        self.segment_size = segment_size.max(1);
    }

    /// Every segment, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.list.iter()
    }

    /// Number of segments.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The segment appended to.
    pub fn active(&self) -> &Segment {
        self.list.back().expect("a partition has a segment")
    }

    /// Offset after the last message on disk.
    pub fn next_offset(&self) -> u64 {
        self.active().next
    }

    /// Oldest message on disk, if there is any.
    pub fn first_offset(&self) -> Option<u64> {
        self.list
            .iter()
            .find(|segment| segment.size > 0)
            .map(|segment| segment.start)
    }

    /// Newest base timestamp on disk, or 0.
    pub fn max_timestamp(&self) -> u64 {
        self.list
            .iter()
            .map(|segment| segment.max_timestamp)
            .max()
            .unwrap_or(0)
    }

    /// Bytes of all logs.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.size).sum()
    }

    /// Messages of all logs.
    pub fn messages(&self) -> u64 {
        self.list.iter().map(|segment| segment.messages).sum()
    }

    /// Plans the append of `batches`, which continue the active segment without a hole.
    pub fn plan(&self, batches: Vec<BatchMeta>) -> FlushPlan {
        let mut parts = Vec::new();
        let mut cursor = Cursor::at(self.active());
        // A recovered active segment may already be full: it is sealed before the append.
        let mut creates = cursor.roll(self.segment_size);
        let mut from = 0;
        while from < batches.len() || creates {
            let until = cursor.fill(&batches[from..], self.segment_size) + from;
            parts.push(cursor.part(&batches, from..until, creates));
            from = until;
            creates = cursor.roll(self.segment_size);
        }
        FlushPlan { parts, batches }
    }

    /// Every write of `plan` completed.
    pub fn apply(&mut self, plan: FlushPlan) {
        for part in plan.parts {
            if part.creates {
                self.active_mut().sealed = true;
                self.list.push_back(Segment::empty(part.start));
            }
            let active = self.active_mut();
            plan.batches[part.batches]
                .iter()
                .for_each(|batch| active.append(batch));
            if let Some((at, _)) = part.index {
                active.index_size = at + INDEX_ENTRY_BYTES as u64;
            }
        }
    }

    fn active_mut(&mut self) -> &mut Segment {
        self.list.back_mut().expect("a partition has a segment")
    }

    /// Where to start reading for `offset`: its segment, or the oldest when it is gone.
    pub fn locate(&self, offset: u64) -> Option<Location> {
        let after = self.list.partition_point(|segment| segment.next <= offset);
        let segment = self
            .list
            .iter()
            .skip(after)
            .find(|segment| segment.size > 0)?;
        Some(segment.locate(offset))
    }

    /// Where to start reading for the first batch at or after `timestamp`.
    pub fn locate_timestamp(&self, timestamp: u64) -> Option<Location> {
        let fits = |segment: &&Segment| segment.size > 0 && segment.max_timestamp >= timestamp;
        Some(self.list.iter().find(fits)?.locate_timestamp(timestamp))
    }

    /// Where reading goes on after the segment named `start`.
    pub fn after(&self, start: u64) -> Option<Location> {
        let segment = self
            .list
            .iter()
            .find(|segment| segment.start > start && segment.size > 0)?;
        Some(segment.locate(segment.start))
    }

    /// Takes the oldest segment off, never the active one.
    pub fn remove_oldest(&mut self) -> Option<Segment> {
        if self.list.len() > 1 {
            self.list.pop_front()
        } else {
            None
        }
    }
}

/// The end of a segment while a flush is planned.
struct Cursor {
    start: u64,
    size: u64,
    next: u64,
    index_size: u64,
}

impl Cursor {
    fn at(segment: &Segment) -> Self {
        let Segment {
            start,
            size,
            next,
            index_size,
            ..
        } = *segment;
        Self {
            start,
            size,
            next,
            index_size,
        }
    }

    /// Moves to a new segment when this one is full.
    fn roll(&mut self, segment_size: u64) -> bool {
        let full = self.size >= segment_size;
        if full {
            *self = Self {
                start: self.next,
                size: 0,
                next: self.next,
                index_size: 0,
            };
        }
        full
    }

    /// Appends batches until the segment is full; returns how many.
    fn fill(&mut self, batches: &[BatchMeta], segment_size: u64) -> usize {
        for (taken, batch) in batches.iter().enumerate() {
            if self.size >= segment_size {
                return taken;
            }
            self.size += batch.len;
            self.next = batch.next_offset();
        }
        batches.len()
    }

    fn part(&mut self, batches: &[BatchMeta], range: Range<usize>, creates: bool) -> FlushPart {
        let bytes: u64 = batches[range.clone()].iter().map(|batch| batch.len).sum();
        let position = self.size - bytes;
        let index = batches[range.clone()].first().map(|first| {
            let at = self.index_size;
            self.index_size += INDEX_ENTRY_BYTES as u64;
            let (offset, timestamp) = (first.base_offset, first.base_timestamp);
            (
                at,
                IndexEntry {
                    offset,
                    timestamp,
                    position,
                },
            )
        });
        FlushPart {
            start: self.start,
            creates,
            position,
            batches: range,
            index,
        }
    }
}

#[cfg(test)]
mod tests;
