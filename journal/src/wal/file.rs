//! What stands where in the file of a log, and what no longer counts there.
//!
//! A slot is what the log holds of one op. While a new prepare for an op waits to be written,
//! the record it will replace is still the one in the file, and a rewrite for another reason
//! must carry it over.

use std::collections::BTreeMap;

use biplane_wire::{Checksum, Message, PrepareHeader};

use crate::recovery::{Layout, Place};

#[derive(Clone, Debug)]
pub(super) enum Content {
    Prepare {
        message: Message,
        checksum: Checksum,
    },
    /// Found unreadable; the file holds damage or a marker for it.
    Damaged,
}

impl Content {
    pub(super) fn of(message: Message) -> Self {
        let checksum = message.header::<PrepareHeader>().frame.checksum();
        Self::Prepare { message, checksum }
    }

    pub(super) fn message(&self) -> Option<&Message> {
        match self {
            Self::Prepare { message, .. } => Some(message),
            Self::Damaged => None,
        }
    }

    pub(super) fn checksum(&self) -> Option<Checksum> {
        match self {
            Self::Prepare { checksum, .. } => Some(*checksum),
            Self::Damaged => None,
        }
    }
}

/// A record in the file.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) content: Content,
    pub(super) ticket: u64,
    pub(super) place: Place,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) content: Content,
    /// Tells this append from an earlier one of the same op.
    pub(super) ticket: u64,
    /// Ticket of the first append of this op since it was last truncated.
    pub(super) since: u64,
    /// Where it stands; `None` until it is durable.
    pub(super) place: Option<Place>,
    /// What stands in the file for this op until then.
    pub(super) previous: Option<Stored>,
}

impl Slot {
    /// What is known of an op whose damage stands at `place`.
    pub(super) fn damaged(ticket: u64, place: Place) -> Self {
        let content = Content::Damaged;
        Self {
            content,
            ticket,
            since: ticket,
            place: Some(place),
            previous: None,
        }
    }

    /// What the file holds for this op by now.
    pub(super) fn stored(&self) -> Option<(&Content, u64)> {
        match (&self.place, &self.previous) {
            (Some(_), _) => Some((&self.content, self.ticket)),
            (None, Some(previous)) => Some((&previous.content, previous.ticket)),
            (None, None) => None,
        }
    }

    pub(super) fn into_stored(self) -> Option<Stored> {
        let Self {
            content,
            ticket,
            place,
            previous,
            ..
        } = self;
        match place {
            Some(place) => Some(Stored {
                content,
                ticket,
                place,
            }),
            None => previous,
        }
    }

    /// Enters what was written and where; `None` when this slot has nothing to do with it any
    /// more.
    pub(super) fn enter(&mut self, written: &Stored) -> Option<Entered> {
        if self.ticket == written.ticket {
            self.place = Some(written.place);
            let displaced = self.previous.take().map(|previous| previous.place);
            return Some(Entered { displaced });
        }
        if let Some(previous) = &mut self.previous
            && previous.ticket == written.ticket
        {
            previous.place = written.place;
            return Some(Entered { displaced: None });
        }
        if self.place.is_some() || written.ticket < self.since {
            return None;
        }
        // A newer append waits behind this one: until that is written, this one counts.
        let displaced = self
            .previous
            .replace(written.clone())
            .map(|previous| previous.place);
        Some(Entered { displaced })
    }

    /// A rewrite has left this op's damage out, because a repair was to take its place that was
    /// truncated meanwhile. The next rewrite writes a marker.
    pub(super) fn lose_mark(&mut self) {
        if matches!(self.content, Content::Damaged) {
            self.place = Some(Place::NOWHERE);
        }
        if let Some(previous) = &mut self.previous
            && matches!(previous.content, Content::Damaged)
        {
            previous.place = Place::NOWHERE;
        }
    }

    fn is_unmarked(&self) -> bool {
        self.place_in_file() == Some(Place::NOWHERE)
    }

    fn place_in_file(&self) -> Option<Place> {
        self.place
            .or(self.previous.as_ref().map(|previous| previous.place))
    }
}

/// A slot has learned where its record stands.
pub(super) struct Entered {
    /// Where the record stands that it has taken the place of.
    pub(super) displaced: Option<Place>,
}

/// How a suffix of ops leaves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncation {
    /// It never got there.
    Nothing,
    /// The file ends where it started.
    Cut { len: u64 },
    /// It stands between records that stay.
    Rewrite,
}

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// Length in bytes, without what is in flight.
    pub(super) len: u64,
    /// By op, records that no longer count.
    dead: BTreeMap<u64, Vec<Place>>,
}

impl File {
    pub(super) fn from_layout(layout: &Layout) -> Self {
        let mut file = Self {
            len: layout.file_len,
            dead: BTreeMap::new(),
        };
        for dead in &layout.dead {
            file.bury(dead.op, dead.place);
        }
        file
    }

    /// The record of `op` at `place` no longer counts.
    pub(super) fn bury(&mut self, op: u64, place: Place) {
        if place == Place::NOWHERE {
            return;
        }
        self.dead.entry(op).or_default().push(place);
    }

    /// Whether a record of `op` that no longer counts still stands in the file.
    pub(super) fn has_dead(&self, op: u64) -> bool {
        self.dead.contains_key(&op)
    }

    /// The file was shortened.
    pub(super) fn cut(&mut self, len: u64) {
        self.len = len;
        self.dead.retain(|_, places| {
            places.retain(|place| place.offset < len);
            !places.is_empty()
        });
    }

    /// The file was replaced by one of `len` bytes without dead records.
    pub(super) fn replaced(&mut self, len: u64) {
        self.len = len;
        self.dead.clear();
    }

    /// What must happen so that no dead record of an op from `from` on is left to come back.
    pub(super) fn truncation(&self, from: u64, slots: &BTreeMap<u64, Slot>) -> Truncation {
        if slots.values().any(Slot::is_unmarked) {
            return Truncation::Rewrite;
        }
        let doomed = self.dead.range(from..).flat_map(|(_, places)| places);
        let Some(lowest) = doomed.map(|place| place.offset).min() else {
            return Truncation::Nothing;
        };
        let kept = slots.values().filter_map(Slot::place_in_file);
        if kept.map(Place::end).max().is_some_and(|end| end > lowest) {
            return Truncation::Rewrite;
        }
        Truncation::Cut { len: lowest }
    }

    /// Bytes of the file that hold nothing a reader needs.
    pub(super) fn dead_bytes(&self, slots: &BTreeMap<u64, Slot>) -> u64 {
        let places = slots.values().filter_map(Slot::place_in_file);
        let live: u64 = places.map(|place| place.len).sum();
        self.len.saturating_sub(live)
    }

    pub(super) fn check_invariants(&self, slots: &BTreeMap<u64, Slot>) {
        for place in slots.values().filter_map(Slot::place_in_file) {
            assert!(place.end() <= self.len, "a record lies in the file");
        }
        for place in self.dead.values().flatten() {
            assert!(place.end() <= self.len, "a dead record lies in the file");
        }
        for slot in slots.values() {
            assert!(
                slot.place.is_none() || slot.previous.is_none(),
                "a durable record has replaced its predecessor"
            );
        }
    }
}
