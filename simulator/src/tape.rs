//! Draws written down, so that a run can be repeated without any generator.
//!
//! A tape has a reel for every stream: what was drawn from it, in order, as values and not as
//! random bits. So it says what happened and not how it came to that: this delay of the packet
//! with this number on this link, these bits of that sector in the fault with that number, this
//! request of that client. A replay takes value by value from the reels; there is no generator
//! in it that could be asked. A replay that asks for a stream that is not there, for more values
//! than were drawn, or for a smaller number than comes next, no longer fits, and says so.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

/// What was drawn, by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The values of each stream, in order.
    pub streams: BTreeMap<String, Vec<u64>>,
}

impl Recording {
    /// Number of draws.
    #[must_use]
    pub fn draws(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }
}

/// The values of one stream, while it is written or read.
#[derive(Debug, Default)]
struct Reel {
    values: Vec<u64>,
    next: usize,
}

/// One stream of a tape.
#[derive(Clone, Debug)]
pub struct Track {
    reel: Rc<RefCell<Reel>>,
    misfit: Rc<Cell<bool>>,
    /// Where what is taken is written down, when other values will do.
    taken: Option<Rc<RefCell<Reel>>>,
}

impl Track {
    /// Writes a value down.
    pub(crate) fn keep(&self, value: u64) {
        self.reel.borrow_mut().values.push(value);
    }

    /// The next value, which must not be above `most`.
    pub(crate) fn next(&self, most: u64) -> u64 {
        let mut reel = self.reel.borrow_mut();
        let value = reel.values.get(reel.next).copied();
        reel.next += 1;
        if let Some(taken) = &self.taken {
            let value = value.unwrap_or(0).min(most);
            taken.borrow_mut().values.push(value);
            return value;
        }
        match value {
            Some(value) if value <= most => value,
            _ => {
                self.misfit.set(true);
                0
            }
        }
    }
}

/// The streams of one run, written down or read. Copies are the same tape.
#[derive(Clone, Debug)]
pub struct Tape {
    tracks: Rc<RefCell<BTreeMap<String, Track>>>,
    opened: Rc<RefCell<BTreeMap<String, u32>>>,
    misfit: Rc<Cell<bool>>,
    is_read: bool,
    /// Where what is taken is written down: a tape that is bent to what a run asks for.
    taken: Option<Box<Tape>>,
}

impl Tape {
    /// An empty one, to be written.
    #[must_use]
    pub fn blank() -> Self {
        Self::with(BTreeMap::new(), false)
    }

    /// One that is read.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        Self::with(recording.streams.clone(), true)
    }

    fn with(streams: BTreeMap<String, Vec<u64>>, is_read: bool) -> Self {
        let misfit = Rc::new(Cell::new(false));
        let track = |values| Track {
            reel: Rc::new(RefCell::new(Reel { values, next: 0 })),
            misfit: misfit.clone(),
            taken: None,
        };
        let tracks = streams
            .into_iter()
            .map(|(label, values)| (label, track(values)))
            .collect();
        Self {
            tracks: Rc::new(RefCell::new(tracks)),
            opened: Rc::default(),
            misfit,
            is_read,
            taken: None,
        }
    }

    /// One that is read, and gives what fits where a run asks for other draws than were recorded:
    /// the most that is allowed for a value above, zero for one that is missing. What a run took
    /// is its recording.
    #[must_use]
    pub fn bent(recording: &Recording) -> Self {
        let mut tape = Self::of(recording);
        tape.taken = Some(Box::new(Self::blank()));
        tape
    }

    /// Whether [`Tape::recording`] is what was drawn in the run at hand.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.is_read || self.taken.is_some()
    }

    /// Whether values come from it.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// The stream of a label. Asked for again, a label is another stream.
    pub(crate) fn track(&self, label: &str) -> Track {
        let mut opened = self.opened.borrow_mut();
        let count = opened.entry(label.to_owned()).or_default();
        *count += 1;
        let name = match *count {
            1 => label.to_owned(),
            count => format!("{label}#{count}"),
        };
        let empty = || Track {
            reel: Rc::default(),
            misfit: self.misfit.clone(),
            taken: None,
        };
        let mut track = self
            .tracks
            .borrow_mut()
            .entry(name)
            .or_insert_with(empty)
            .clone();
        track.taken = self.taken.as_ref().map(|taken| taken.track(label).reel);
        track
    }

    /// Whether a run asked for what is not on it.
    #[must_use]
    pub fn is_misfit(&self) -> bool {
        self.misfit.get() && self.taken.is_none()
    }

    /// What is on it.
    #[must_use]
    pub fn recording(&self) -> Recording {
        if let Some(taken) = &self.taken {
            return taken.recording();
        }
        let tracks = self.tracks.borrow();
        let values = tracks
            .iter()
            .map(|(label, track)| (label.clone(), track.reel.borrow().values.clone()));
        Recording {
            streams: values.filter(|(_, values)| !values.is_empty()).collect(),
        }
    }
}

/// Values as text: hexadecimal, and `*n` for n zeros in a row (most chances are not taken).
#[must_use]
pub fn encode(values: &[u64]) -> String {
    let mut text = String::new();
    let mut rest = values;
    while let Some((&value, after)) = rest.split_first() {
        if !text.is_empty() {
            text.push(' ');
        }
        let zeros = rest.iter().take_while(|&&value| value == 0).count();
        if zeros > 0 {
            let _ = write!(text, "*{zeros:x}");
            rest = &rest[zeros..];
        } else {
            let _ = write!(text, "{value:x}");
            rest = after;
        }
    }
    text
}

/// Values of a text.
///
/// # Errors
///
/// The word that is none.
pub fn decode(text: &str) -> Result<Vec<u64>, String> {
    /// More zeros in a row than any run draws.
    const ZEROS_MAX: u64 = 1 << 32;
    let mut values = Vec::new();
    for word in text.split_ascii_whitespace() {
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| format!("no draw: {word}"));
        match word.strip_prefix('*') {
            Some(zeros) => {
                let zeros = number(zeros)?;
                if zeros > ZEROS_MAX {
                    return Err(format!("no draw: {word}"));
                }
                values.extend(std::iter::repeat_n(0, zeros as usize));
            }
            None => values.push(number(word)?),
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_zeros_take_little_room() {
        for values in [vec![], vec![0], vec![7, 0, 0, 0, 255, 0], vec![u64::MAX]] {
            assert_eq!(decode(&encode(&values)), Ok(values));
        }
        assert_eq!(encode(&[0; 1000]), "*3e8");
        for wrong in ["x", "*", "1 *ffffffffffffffff", "-1"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bent_tape_gives_what_fits_and_keeps_what_it_gave() {
        let blank = Tape::blank();
        let track = blank.track("a");
        [3, 9].into_iter().for_each(|value| track.keep(value));
        let bent = Tape::bent(&blank.recording());
        let track = bent.track("a");
        assert_eq!((track.next(5), track.next(5), track.next(5)), (3, 5, 0));
        assert_eq!(bent.track("b").next(7), 0);
        assert!(!bent.is_misfit());
        let taken = bent.recording();
        assert_eq!(taken.streams["a"], [3, 5, 0]);
        assert_eq!(taken.streams["b"], [0]);
    }

    #[test]
    fn a_tape_gives_back_what_was_kept_and_says_when_it_does_not_fit() {
        let blank = Tape::blank();
        let first = blank.track("a");
        first.keep(3);
        first.keep(9);
        blank.track("a").keep(5);
        let recording = blank.recording();
        assert_eq!((recording.streams.len(), recording.draws()), (2, 3));
        let tape = Tape::of(&recording);
        let track = tape.track("a");
        assert_eq!((track.next(3), track.next(10)), (3, 9));
        assert_eq!(tape.track("a").next(u64::MAX), 5);
        assert!(!tape.is_misfit());
        assert_eq!(track.next(u64::MAX), 0);
        assert!(tape.is_misfit(), "one more than was drawn");
        let small = Tape::of(&recording);
        assert_eq!(small.track("a").next(2), 0);
        assert!(small.is_misfit(), "3 is more than 2");
        let other = Tape::of(&recording);
        assert_eq!(other.track("b").next(2), 0);
        assert!(other.is_misfit(), "nothing was drawn from b");
    }
}
