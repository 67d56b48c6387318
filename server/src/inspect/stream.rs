//! A byte stream to frames that goes on behind whatever is broken.
//!
//! A connection must close at the first bad size; a reader for people must not. Behind damage it
//! hunts: the next 256 bytes whose checksum and fields prove them a header are where frames start
//! again. A header that does not hold is believed about its size only if another header or the
//! end of the stream stands where its frame would end.

use std::io::{self, Read};

use biplane_wire::{
    CheckedPart, CloseReason, Command, FrameRef, GenericHeader, HEADER_SIZE, Header, Summary,
    Verdict,
};

use super::printer::Printer;

/// What a walk finds; offsets are those of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A whole frame.
    Frame(u64, FrameRef<'a>),
    /// A frame whose command byte is undefined.
    Unknown {
        /// Where it starts.
        offset: u64,
        /// Its command byte.
        command: u8,
        /// Its size field.
        size: u32,
    },
    /// Bytes that are no frame.
    Skipped {
        /// Where they start.
        offset: u64,
        /// How many there are.
        count: u64,
        /// What was wrong with the first of them.
        reason: Reason,
    },
    /// The stream ends, or has a hole, inside a frame.
    Cut {
        /// Where the frame starts.
        offset: u64,
        /// Bytes of it that are there.
        have: usize,
        /// Bytes it should have; `None` when even its header is not whole.
        size: Option<u32>,
    },
}

/// Why a place in the stream is not the start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The stream was joined in the middle.
    Joined,
    /// The size field is out of range.
    Size(CloseReason),
    /// The header does not hold and no frame follows where its size says.
    Header(Command),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Joined => f.write_str("no frame starts here"),
            Self::Size(reason) => reason.fmt(f),
            Self::Header(command) => write!(f, "the header of a {command} does not hold"),
        }
    }
}

/// Reads and prints a stream of frames.
pub(super) fn walk(mut input: impl Read, printer: &mut Printer<impl io::Write>) -> io::Result<()> {
    let mut splitter = Splitter::new(printer.options().size_max);
    let mut buffer = vec![0; 64 * 1024];
    let print = |printer: &mut Printer<_>, found: Found<'_>| {
        let offset = found.offset();
        printer.found(&format_args!("@{offset}"), &found);
    };
    loop {
        let count = input.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        splitter.feed(&buffer[..count], &mut |found| print(printer, found));
        printer.check()?;
    }
    splitter.finish(&mut |found| print(printer, found));
    printer.check()
}

impl Found<'_> {
    /// Where it starts.
    #[must_use]
    pub(super) const fn offset(&self) -> u64 {
        match self {
            Self::Frame(offset, _)
            | Self::Unknown { offset, .. }
            | Self::Skipped { offset, .. }
            | Self::Cut { offset, .. } => *offset,
        }
    }

    /// What to say about it when it is no frame.
    #[must_use]
    pub(super) fn note(&self) -> Option<String> {
        Some(match self {
            Self::Frame(..) => return None,
            Self::Unknown { command, size, .. } => {
                format!("unknown command {command}, {size} bytes: of a later release or damaged")
            }
            Self::Skipped { count, reason, .. } => format!("{count} bytes skipped: {reason}"),
            Self::Cut { have, size, .. } => match size {
                Some(size) => format!("cut: {have} of the {size} bytes of a frame"),
                None => format!("cut: {have} bytes of a frame, less than its header"),
            },
        })
    }
}

/// Takes what is found.
pub(super) type Sink<'s> = dyn FnMut(Found<'_>) + 's;

/// Bytes that are being skipped.
struct Skip {
    offset: u64,
    reason: Reason,
}

/// Splits a stream. Holds at most one frame and what was fed last.
pub(super) struct Splitter {
    size_max: u32,
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    skip: Option<Skip>,
}

/// Whether a frame starts somewhere; open until more bytes are there.
enum Certainty {
    Yes,
    No,
    Open,
}

/// What to do at the front of the buffer.
enum Step {
    Wait,
    Take(usize),
    Hunt(Reason),
}

impl Splitter {
    /// A splitter at the start of a stream of frames of at most `size_max` bytes.
    #[must_use]
    pub(super) fn new(size_max: u32) -> Self {
        Self {
            size_max,
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            skip: None,
        }
    }

    /// A splitter that joins a stream at any place.
    #[must_use]
    pub(super) fn joining(size_max: u32) -> Self {
        let mut splitter = Self::new(size_max);
        splitter.hunt(Reason::Joined);
        splitter
    }

    /// Bytes of memory held.
    #[must_use]
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Takes the next bytes and hands out what they complete.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut Sink<'_>) {
        self.buffer.extend_from_slice(bytes);
        self.advance(false, sink);
        // Keep what is pending at the front, and give a large frame's memory back.
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.capacity() > 2 * self.buffer.len() + 256 * 1024 {
            self.buffer.shrink_to(self.buffer.len() + 64 * 1024);
        }
    }

    /// Says that `count` bytes are missing here; the frame they belonged to is cut.
    pub(super) fn gap(&mut self, count: u64, sink: &mut Sink<'_>) {
        self.finish(sink);
        self.offset += count;
        self.hunt(Reason::Joined);
    }

    /// The end of the stream: hands out what is left.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.advance(true, sink);
        let left = self.pending().len();
        if self.skip.is_some() {
            self.consume(left);
            self.end_skip(sink);
        } else if left > 0 {
            let size = self.header().map(|header| header.frame.size());
            let (offset, have) = (self.offset, left);
            sink(Found::Cut { offset, have, size });
            self.consume(left);
        }
        self.buffer.clear();
        self.start = 0;
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn header(&self) -> Option<&GenericHeader> {
        self.pending().first_chunk().map(GenericHeader::over)
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    fn hunt(&mut self, reason: Reason) {
        let offset = self.offset;
        self.skip = Some(Skip { offset, reason });
    }

    fn end_skip(&mut self, sink: &mut Sink<'_>) {
        if let Some(Skip { offset, reason }) = self.skip.take() {
            let count = self.offset - offset;
            if count > 0 {
                sink(Found::Skipped {
                    offset,
                    count,
                    reason,
                });
            }
        }
    }

    fn advance(&mut self, at_end: bool, sink: &mut Sink<'_>) {
        loop {
            if self.skip.is_some() {
                if !self.find_header(at_end) {
                    return;
                }
                self.end_skip(sink);
            }
            match self.step(at_end) {
                Step::Wait => return,
                Step::Take(size) => {
                    self.hand_out(size, sink);
                    self.consume(size);
                }
                Step::Hunt(reason) => {
                    self.hunt(reason);
                    self.consume(1);
                }
            }
        }
    }

    /// Moves to the next place that is a header beyond doubt; `false` when more bytes are needed.
    fn find_header(&mut self, at_end: bool) -> bool {
        let places = (self.pending().len() + 1).saturating_sub(HEADER_SIZE);
        for place in 0..places {
            match self.certainty(place, at_end) {
                Certainty::No => {}
                Certainty::Yes => {
                    self.consume(place);
                    return true;
                }
                Certainty::Open => {
                    self.consume(place);
                    return false;
                }
            }
        }
        self.consume(places);
        false
    }

    /// Whether a frame starts at a place behind the front of the buffer.
    fn certainty(&self, place: usize, at_end: bool) -> Certainty {
        let bytes = self.pending().get(place..).unwrap_or_default();
        let Some(header) = bytes.first_chunk::<HEADER_SIZE>() else {
            return Certainty::Open;
        };
        if !may_start(header, self.size_max) {
            return Certainty::No;
        }
        let frame = &GenericHeader::over(header).frame;
        if !matches!(frame.command(), Command::Prepare | Command::RepairPrepare) {
            return Certainty::Yes;
        }
        // The entries of a suffix are headers of prepares too, without their bodies.
        let size = frame.size() as usize;
        let Some(body) = bytes.get(HEADER_SIZE..size) else {
            return if at_end {
                Certainty::No
            } else {
                Certainty::Open
            };
        };
        let followed = || match bytes.get(size..).map(<[u8]>::first_chunk::<HEADER_SIZE>) {
            Some(Some(next)) => may_start(next, self.size_max),
            _ => bytes.len() == size,
        };
        match Summary::new(header, body).verdict() {
            Verdict::Sound(_, Some(_)) => Certainty::Yes,
            // Nothing vouches for this body but the place where it ends.
            verdict if !verdict.is_acceptable() => Certainty::No,
            _ if bytes.len() < size + HEADER_SIZE && !at_end => Certainty::Open,
            _ if followed() => Certainty::Yes,
            _ => Certainty::No,
        }
    }

    fn step(&self, at_end: bool) -> Step {
        let Some(bytes) = self.pending().first_chunk::<HEADER_SIZE>() else {
            return Step::Wait;
        };
        let header = GenericHeader::over(bytes);
        let size = header.frame.size();
        let size_max = self.size_max;
        if (size as usize) < HEADER_SIZE || size > size_max {
            return Step::Hunt(Reason::Size(CloseReason::BadSize { size, size_max }));
        }
        let size = size as usize;
        let have = self.pending().len();
        if have < size && !(at_end && is_doubtful(bytes)) {
            return Step::Wait;
        }
        if size == HEADER_SIZE || !is_doubtful(bytes) {
            return Step::Take(size);
        }
        // Only what follows can say whether the size of a damaged header is right.
        let ends_here = at_end && have == size;
        match self.certainty(size, at_end) {
            Certainty::Yes => Step::Take(size),
            _ if ends_here => Step::Take(size),
            Certainty::Open if !at_end => Step::Wait,
            Certainty::Open | Certainty::No => Step::Hunt(Reason::Header(header.frame.command())),
        }
    }

    fn hand_out(&self, size: usize, sink: &mut Sink<'_>) {
        let bytes = &self.pending()[..size];
        let offset = self.offset;
        match FrameRef::parse(bytes) {
            Ok(frame) => sink(Found::Frame(offset, frame)),
            // Size and length agree, so it is the command.
            Err(_) => sink(Found::Unknown {
                offset,
                command: bytes[60],
                size: size as u32,
            }),
        }
    }
}

/// What a header says about itself, its body not looked at.
fn header_verdict(header: &[u8; HEADER_SIZE]) -> Verdict {
    Summary::new(header, &[]).verdict()
}

/// Whether the checksum of a header, where its kind has one, contradicts it.
fn is_doubtful(header: &[u8; HEADER_SIZE]) -> bool {
    matches!(
        header_verdict(header),
        Verdict::Broken(CheckedPart::Seal | CheckedPart::Identity)
    )
}

/// Whether a frame may start with these bytes: its fields and its checksum hold. Cheap questions
/// come first, because the answer is no nearly everywhere.
fn may_start(header: &[u8; HEADER_SIZE], size_max: u32) -> bool {
    let frame = &GenericHeader::over(header).frame;
    let in_range = (HEADER_SIZE as u32..=size_max).contains(&frame.size());
    let command = Command::from_u8(frame.command_byte());
    let Some(command) = command.filter(|command| *command >= Command::Request && in_range) else {
        return false;
    };
    if frame.reserved_frame().iter().any(|byte| *byte != 0) {
        return false;
    }
    let unsealed = matches!(
        command,
        Command::Request
            | Command::Reply
            | Command::Eviction
            | Command::ReplicaHello
            | Command::ReplicaChallenge
            | Command::ReplicaFinish
    );
    if unsealed != frame.checksum().is_zero() {
        return false;
    }
    !matches!(
        header_verdict(header),
        Verdict::Refused(_) | Verdict::Broken(CheckedPart::Seal | CheckedPart::Identity)
    )
}
