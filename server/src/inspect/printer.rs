//! Lines for people: one a frame, one for whatever is not a frame, and a count at the end.

use std::fmt;
use std::io::{self, Write};

use biplane_wire::{FrameRef, GroupId, Summary};

use super::body;
use super::stream::Found;

/// What is printed, and the largest frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Every header field and what the body holds.
    pub(super) full: bool,
    /// Largest frame in bytes.
    pub(super) size_max: u32,
}

/// How many frames went by.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Whole frames.
    pub frames: u64,
    /// Frames that a receiver would not take.
    pub refused: u64,
    /// Lines about something that is no frame.
    pub notes: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frames,
            refused,
            notes,
        } = self;
        write!(
            f,
            "{frames} frames, {refused} not acceptable, {notes} notes"
        )
    }
}

/// Writes lines and counts. An error of the output is kept and ends the walk at its next check.
pub(super) struct Printer<W> {
    options: Options,
    output: W,
    tally: Tally,
    failed: Option<io::Error>,
}

impl<W: Write> Printer<W> {
    /// A printer that has written nothing.
    pub(super) fn new(options: Options, output: W) -> Self {
        Self {
            options,
            output,
            tally: Tally::default(),
            failed: None,
        }
    }

    /// What it was told to print.
    pub(super) const fn options(&self) -> Options {
        self.options
    }

    /// Prints what was found at a place.
    pub(super) fn found(&mut self, place: &dyn fmt::Display, found: &Found<'_>) {
        match (found, found.note()) {
            (Found::Frame(_, frame), _) => self.frame(place, *frame),
            (_, Some(note)) => self.note(place, &note),
            (_, None) => {}
        }
    }

    /// Prints a line about something that is no frame.
    pub(super) fn note(&mut self, place: &dyn fmt::Display, text: &dyn fmt::Display) {
        self.tally.notes += 1;
        let place = place.to_string();
        self.write(format_args!("{place:<12} ! {text}\n"));
    }

    fn frame(&mut self, place: &dyn fmt::Display, frame: FrameRef<'_>) {
        let summary = Summary::from(frame);
        let verdict = summary.verdict();
        self.tally.frames += 1;
        self.tally.refused += u64::from(!verdict.is_acceptable());
        let place = place.to_string();
        let prefix = &frame.generic().frame;
        let numbers = summary.key_numbers();
        let mut details = String::new();
        // Writing to a string does not fail.
        let _ = summary.write_details(&mut details);
        self.write(format_args!(
            "{place:<12} {:<21} replica {} view {:<3} {:<12} op {:<6} commit {:<6} {:>7} B  \
             {}{}{}\n",
            prefix.command().to_string(),
            prefix.replica(),
            prefix.view().to_string(),
            group_text(numbers.group),
            or_dash(numbers.op),
            or_dash(numbers.commit),
            frame.size(),
            verdict,
            if details.is_empty() { "" } else { " |" },
            details,
        ));
        if self.options.full {
            self.fields(&summary);
            let mut lines = Vec::new();
            body::describe(frame, &mut |line| lines.push(line));
            for line in lines {
                self.write(format_args!("    {line}\n"));
            }
        }
    }

    fn fields(&mut self, summary: &Summary<'_>) {
        let mut fields = Vec::new();
        summary.visit_fields(&mut |name, value| fields.push((name, value.to_string())));
        for (name, value) in fields {
            self.write(format_args!("    {name:<22} {value}\n"));
        }
    }

    fn write(&mut self, line: fmt::Arguments<'_>) {
        if self.failed.is_none()
            && let Err(error) = self.output.write_fmt(line)
        {
            self.failed = Some(error);
        }
    }

    /// Whether the output still takes lines.
    ///
    /// # Errors
    ///
    /// That it does not; the reason comes from [`Printer::finish`].
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(io::Error::from(error.kind())),
        }
    }

    /// Writes out what is buffered; the count.
    ///
    /// # Errors
    ///
    /// When the output failed, now or before.
    pub(super) fn finish(mut self) -> io::Result<Tally> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.output.flush().map(|()| self.tally),
        }
    }
}

/// A group as stream/topic/partition.
fn group_text(group: Option<GroupId>) -> String {
    group.map_or_else(|| "-".to_owned(), |group| group.to_string())
}

fn or_dash(number: Option<impl fmt::Display>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}
