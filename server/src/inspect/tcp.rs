//! TCP streams from captured segments: in order of sequence number, whatever order, overlap or
//! repetition they were captured in, and on behind a hole.
//!
//! Memory is bounded: segments that came early wait up to [`EARLY_SIZE_MAX`] bytes a direction,
//! then what is missing counts as lost; the number of directions and the memory of all together
//! are bounded too.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::stream::{Found, Splitter};

/// Bytes that may wait for what should come before them, for each direction.
const EARLY_SIZE_MAX: usize = 4 * 1024 * 1024;
/// Segments that may wait, for each direction.
const EARLY_COUNT_MAX: usize = 8 * 1024;
/// Directions remembered at once; the one silent for longest makes room.
const DIRECTIONS_MAX: usize = 4 * 1024;
/// Memory of all directions together; one that would exceed it loses its unfinished frame.
const MEMORY_MAX: usize = 512 * 1024 * 1024;

/// Who sends to whom.
pub(super) type Direction = (SocketAddr, SocketAddr);

/// A captured TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) sequence: u32,
    pub(super) syn: bool,
    /// FIN or RST.
    pub(super) last: bool,
    pub(super) payload: &'a [u8],
}

/// What comes out, with the direction it belongs to.
pub(super) enum Event<'a> {
    Found(Found<'a>),
    /// This many bytes were not captured.
    Gap(u64),
    /// The unfinished frame was given up for memory.
    GivenUp,
}

/// Takes what comes out.
pub(super) type Sink<'s> = dyn FnMut(Direction, Event<'_>) + 's;

/// One direction of a connection.
struct Stream {
    splitter: Splitter,
    /// Sequence number of the next byte, unwrapped to 64 bits.
    next: u64,
    /// Segments behind a hole, by unwrapped sequence number.
    early: BTreeMap<u64, Vec<u8>>,
    early_size: usize,
    /// Sequence number behind the last byte, once a FIN was seen.
    end: Option<u64>,
    touched: u64,
}

/// All directions.
pub(super) struct Reassembly {
    size_max: u32,
    streams: BTreeMap<Direction, Stream>,
    memory: usize,
    clock: u64,
}

impl Reassembly {
    pub(super) fn new(size_max: u32) -> Self {
        Self {
            size_max,
            streams: BTreeMap::new(),
            memory: 0,
            clock: 0,
        }
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) const fn memory(&self) -> usize {
        self.memory
    }

    /// Takes one segment and hands out what it completes.
    pub(super) fn segment(
        &mut self,
        direction: Direction,
        segment: Segment<'_>,
        sink: &mut Sink<'_>,
    ) {
        self.clock += 1;
        let known = self.streams.get(&direction);
        let is_new_connection = segment.syn
            && known.is_some_and(|known| known.next as u32 != segment.sequence.wrapping_add(1));
        if is_new_connection {
            self.end(direction, sink);
        }
        if !self.streams.contains_key(&direction) {
            if !segment.syn && segment.payload.is_empty() {
                return; // Nothing to begin a stream with.
            }
            self.make_room(sink);
            self.streams
                .insert(direction, Stream::start(self.size_max, &segment));
        }
        let Some(stream) = self.streams.get_mut(&direction) else {
            return;
        };
        let before = stream.memory();
        stream.touched = self.clock;
        stream.take(&segment, &mut |event| sink(direction, event));
        self.memory = self.memory - before + stream.memory();
        if self.memory > MEMORY_MAX {
            let before = stream.memory();
            stream.give_up(&mut |event| sink(direction, event));
            self.memory = self.memory - before + stream.memory();
        }
        if stream.is_over() {
            self.end(direction, sink);
        }
    }

    /// The end of the capture: hands out what every direction still holds.
    pub(super) fn finish(mut self, sink: &mut Sink<'_>) {
        while let Some(direction) = self.streams.keys().next().copied() {
            self.end(direction, sink);
        }
    }

    fn end(&mut self, direction: Direction, sink: &mut Sink<'_>) {
        if let Some(mut stream) = self.streams.remove(&direction) {
            self.memory -= stream.memory();
            stream.finish(&mut |event| sink(direction, event));
        }
    }

    fn make_room(&mut self, sink: &mut Sink<'_>) {
        if self.streams.len() < DIRECTIONS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.touched);
        if let Some(direction) = oldest.map(|(direction, _)| *direction) {
            self.end(direction, sink);
        }
    }
}

/// Takes what comes out of one direction.
type StreamSink<'s> = dyn FnMut(Event<'_>) + 's;

impl Stream {
    /// Without a SYN the connection was there before the capture, and a frame may be under way.
    fn start(size_max: u32, segment: &Segment<'_>) -> Self {
        // Far enough from zero for segments that come late.
        let sequence = (1 << 33) + u64::from(segment.sequence);
        let (splitter, next) = if segment.syn {
            (Splitter::new(size_max), sequence + 1)
        } else {
            (Splitter::joining(size_max), sequence)
        };
        Self {
            splitter,
            next,
            early: BTreeMap::new(),
            early_size: 0,
            end: None,
            touched: 0,
        }
    }

    fn memory(&self) -> usize {
        self.splitter.memory() + self.early_size
    }

    /// The unwrapped number nearest to where the stream stands.
    fn unwrap(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.next as u32) as i32;
        self.next.saturating_add_signed(i64::from(distance))
    }

    fn take(&mut self, segment: &Segment<'_>, sink: &mut StreamSink<'_>) {
        let start = self.unwrap(segment.sequence) + u64::from(segment.syn);
        let end = start + segment.payload.len() as u64;
        if segment.last {
            self.end = Some(end);
        }
        if start > self.next {
            self.put_aside(start, segment.payload);
            if self.early_size > EARLY_SIZE_MAX || self.early.len() > EARLY_COUNT_MAX {
                self.jump(sink);
            }
        } else {
            self.deliver(start, segment.payload, sink);
        }
        self.drain(sink);
    }

    /// Of two segments at one place the longer one is kept.
    fn put_aside(&mut self, start: u64, payload: &[u8]) {
        if payload.is_empty() {
            return;
        }
        let kept = self.early.entry(start).or_default();
        if kept.len() < payload.len() {
            self.early_size += payload.len() - kept.len();
            *kept = payload.to_vec();
        }
    }

    /// Feeds what lies at or behind `next` of bytes that start at or before it.
    fn deliver(&mut self, start: u64, payload: &[u8], sink: &mut StreamSink<'_>) {
        let known = usize::try_from(self.next - start).unwrap_or(usize::MAX);
        if let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) {
            self.next += new.len() as u64;
            self.splitter
                .feed(new, &mut |found| sink(Event::Found(found)));
        }
    }

    /// Feeds the early segments that are next by now.
    fn drain(&mut self, sink: &mut StreamSink<'_>) {
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.next {
                return;
            }
            let (start, payload) = entry.remove_entry();
            self.early_size -= payload.len();
            self.deliver(start, &payload, sink);
        }
    }

    /// Gives up what is missing before the first early segment.
    fn jump(&mut self, sink: &mut StreamSink<'_>) {
        if let Some((start, _)) = self.early.first_key_value() {
            let missing = start - self.next;
            self.next = *start;
            self.splitter
                .gap(missing, &mut |found| sink(Event::Found(found)));
            sink(Event::Gap(missing));
        }
    }

    /// Gives up everything that is held.
    fn give_up(&mut self, sink: &mut StreamSink<'_>) {
        self.early.clear();
        self.early_size = 0;
        self.splitter.gap(0, &mut |found| sink(Event::Found(found)));
        sink(Event::GivenUp);
    }

    fn is_over(&self) -> bool {
        self.early.is_empty() && self.end.is_some_and(|end| end <= self.next)
    }

    fn finish(&mut self, sink: &mut StreamSink<'_>) {
        while !self.early.is_empty() {
            self.jump(sink);
            self.drain(sink);
        }
        self.splitter.finish(&mut |found| sink(Event::Found(found)));
    }
}
