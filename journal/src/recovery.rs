//! From what a scan found to what a replica may claim: intact, damaged, torn, missing.
//!
//! The four are kept apart because a replica says different things about them in a view change.
//! An intact op is offered. A *missing* one was provably never acknowledged here, as nothing
//! that was synced is gone, so it may be nacked. A *damaged* one was there: it is unknown, never
//! nacked, never cut off, and repaired from others. A *torn tail* is what the last write left
//! when it was interrupted; it was never synced, so it was never acknowledged, and it is cut.
//!
//! A tail counts as torn only with evidence: the file ends inside the record, or a sector of it
//! was never written (`scan/evidence.rs`). An invalid last record without such evidence is
//! damage like any other.
//! A record of another log behind records of this one is damage, too: a write or a read went
//! astray, and what should stand there is unknown. Where it comes first the file is not what its
//! name says, and is refused.
//! A stretch without a believable header may have held any op that is not there, or one above the
//! highest (more, where more records fit); all of these then count as damaged. Where the log
//! has holes the highest op that is readable may be far below the highest that was written: the
//! commit point of the superblock bridges that ([`Recovered::heed_commit`]).

use std::collections::BTreeMap;

use biplane_wire::{Checksum, HEADER_SIZE, Message, Op, PrepareHeader, View};
use thiserror::Error;

use crate::disk::{DiskError, DiskView};
use crate::path::DiskPath;
use crate::scan::{Finding, Found, ScanError, Scanner};
use crate::wal::WalConfig;

/// A tail longer than this is no interrupted write: nothing of it is cut.
pub const TORN_TAIL_BYTES_MAX: u64 = 64 << 20;

/// Highest distance between two ops of one log: more records would not fit a file.
const OP_SPAN_MAX: u64 = 1 << 21;

/// Ops this far below the highest are not holes: a log is not extended over gaps of this length,
/// so they were drained.
const GAP_OPS_MAX: u64 = 1 << 14;

/// Ops a log can be ahead of its commit point (chapter 03 section 6.1).
const PIPELINE_OPS_MAX: u64 = 127;

/// Why a log cannot be opened at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An authentic record of another cluster or group stands where the file begins, before any
    /// of its own.
    #[error("{path}: the record at byte {offset} belongs to another cluster or group")]
    Foreign {
        /// The file.
        path: DiskPath,
        /// Where the record starts.
        offset: u64,
    },
    /// The ops in the file are further apart than any log lets them get.
    #[error("{path}: op {op} cannot stand in one log with the others")]
    OpOutOfReach {
        /// The file.
        path: DiskPath,
        /// The highest op.
        op: Op,
    },
}

/// What the log says about one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The prepare, verified.
    Intact(Message),
    /// It was here and is not readable any more.
    Damaged(Op),
}

impl Entry {
    /// The op.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Intact(message) => message.header::<PrepareHeader>().op(),
            Self::Damaged(op) => *op,
        }
    }

    /// The prepare, where it is intact.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Intact(message) => Some(message),
            Self::Damaged(_) => None,
        }
    }
}

/// A damaged stretch of the file, for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The op, where a believable header names it.
    pub op: Option<Op>,
}

/// The rest of an interrupted write. [`crate::Wal::open`] cuts it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// First byte; the length of the file after the cut.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// What a log file holds, as plain data.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Whether the file was there.
    pub existed: bool,
    /// One entry per op at or above the floor, ascending. An op above the floor that is not
    /// named was never durable here.
    pub entries: Vec<Entry>,
    /// Damaged stretches, in file order, those of ops below the floor included.
    pub damage: Vec<Damage>,
    /// What was cut off at the end.
    pub torn: Option<TornTail>,
    /// Ops whose parent is not the intact op before them.
    pub chain_breaks: Vec<Op>,
    /// Highest `commit` in any believable header: ops up to it are known committed.
    pub commit_max: Op,
    /// The floor the scan was given.
    pub floor: Op,
    pub(crate) layout: Layout,
}

/// Where the entries stand in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// Length of the file once its torn tail is cut.
    pub(crate) file_len: u64,
    /// By op, for every entry.
    pub(crate) places: BTreeMap<u64, Place>,
    /// Records that the entries do not name: superseded or below the floor.
    pub(crate) dead: Vec<Dead>,
    /// Stretches whose ops only this scan can conclude: the file is rewritten with markers.
    pub(crate) garbage: Vec<Garbage>,
}

/// A stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Place {
    /// Not in the file.
    pub(crate) const NOWHERE: Self = Self { offset: 0, len: 0 };

    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// A stretch of unknown content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Garbage {
    pub(crate) place: Place,
    /// How many records above the highest readable one it may have held. Zero where all that is
    /// unknown is which of the lower ones it was.
    pub(crate) records: u64,
}

/// A record in the file that no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) op: u64,
    pub(crate) place: Place,
}

impl Recovered {
    /// Highest op named, intact or damaged; zero when none is.
    #[must_use]
    pub fn head(&self) -> Op {
        self.entries.last().map_or(Op::ZERO, Entry::op)
    }

    /// Highest op up to which everything above the floor is intact and chained; the floor
    /// itself when the next op is not.
    #[must_use]
    pub fn contiguous_head(&self) -> Op {
        let mut head = self.floor;
        for entry in &self.entries {
            let expected = head.next();
            if entry.op() < expected {
                continue;
            }
            if entry.op() != expected
                || entry.message().is_none()
                || self.chain_breaks.contains(&expected)
            {
                break;
            }
            head = expected;
        }
        head
    }

    /// Takes into account up to where the superblock says that ops are committed.
    ///
    /// Whoever acknowledged an op knew every op below its commit point to be safe elsewhere, and
    /// may have holes there. So what garbage held may stand right above the commit point, however
    /// low the highest readable op is; what is unknown there must not be denied.
    pub fn heed_commit(&mut self, commit: Op) {
        let Some(&Garbage { place, .. }) = self.layout.garbage.first() else {
            return;
        };
        let reach = reach(&self.layout.garbage, commit.0, commit.0);
        let above = commit.0.saturating_add(1).max(self.floor.0);
        for op in above..=reach {
            if self.layout.places.contains_key(&op) {
                continue;
            }
            self.layout.places.insert(op, place);
            self.entries.push(Entry::Damaged(Op(op)));
        }
        self.entries.sort_by_key(Entry::op);
    }

    /// View in the header of the highest intact op: what the log says about the view when there
    /// is no superblock.
    #[must_use]
    pub fn last_view(&self) -> View {
        let newest = self.entries.iter().rev().find_map(Entry::message);
        newest.map_or(View(0), |message| message.generic().frame.view())
    }

    /// Whether the file says nothing at all: no record, no damage, no torn tail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.damage.is_empty()
            && self.torn.is_none()
            && self.layout.dead.is_empty()
    }
}

/// Scans the log of `config` and classifies what it holds. `floor` is the op up to which a
/// durable snapshot covers the log: lower ops are left out, the op itself is kept. Reads with
/// calls that wait, in bounded pieces; changes nothing.
///
/// # Errors
///
/// A failing disk, or a file that is not this group's log.
pub fn recover(config: &WalConfig, view: &dyn DiskView, floor: Op) -> Result<Recovered, OpenError> {
    let path = &config.path;
    let length = view.len(path)?;
    let file_len = length.unwrap_or(0);
    let mut scanner = Scanner::new(view, path, config.scope, config.form, file_len);
    let failed = |error| match error {
        ScanError::Disk(error) => OpenError::Disk(error),
        ScanError::Foreign { offset } => OpenError::Foreign {
            path: path.clone(),
            offset,
        },
    };
    let mut found = scanner.walk().map_err(failed)?;
    let kept_len = cut_torn_tail(&mut scanner, &mut found, file_len).map_err(failed)?;
    let torn = (kept_len < file_len).then_some(TornTail {
        offset: kept_len,
        len: file_len - kept_len,
    });
    let mut recovered = classify(found, floor).map_err(|op| OpenError::OpOutOfReach {
        path: path.clone(),
        op,
    })?;
    recovered.existed = length.is_some();
    recovered.torn = torn;
    recovered.layout.file_len = kept_len;
    Ok(recovered)
}

/// Takes from the end of `found` what an interrupted write left. Returns the length of the file
/// without it.
fn cut_torn_tail(
    scanner: &mut Scanner<'_>,
    found: &mut Vec<Found>,
    file_len: u64,
) -> Result<u64, ScanError> {
    let mut kept = found.len();
    for (index, last) in found.iter().enumerate().rev() {
        let torn = match last.finding {
            Finding::Intact(_) | Finding::Astray { .. } => false,
            Finding::CutOff => true,
            Finding::BodyDamaged { .. } | Finding::Garbage { .. } => {
                scanner.was_interrupted(found, index)?
            }
        };
        if !torn || file_len - last.offset > TORN_TAIL_BYTES_MAX {
            break;
        }
        kept = index;
    }
    let kept_len = found.get(kept).map_or(file_len, |first| first.offset);
    found.truncate(kept);
    Ok(kept_len)
}

/// The newest record of one op while the findings are gone through.
struct Latest {
    place: Place,
    checksum: Checksum,
    message: Option<Message>,
    doubtful: bool,
}

#[derive(Default)]
struct Classifier {
    latest: BTreeMap<u64, Latest>,
    dead: Vec<Dead>,
    damage: Vec<Damage>,
    commit_max: u64,
    garbage: Vec<Garbage>,
    /// Highest op whose header stands in the body of another record.
    covered: u64,
}

/// Fails with the highest op when the ops are out of each other's reach.
fn classify(found: Vec<Found>, floor: Op) -> Result<Recovered, Op> {
    let mut classifier = Classifier::default();
    for each in found {
        classifier.take(each);
    }
    let lowest = classifier.latest.keys().find(|op| **op >= floor.0);
    if let (Some(lowest), Some((op, _))) = (lowest, classifier.latest.last_key_value())
        && op - lowest > OP_SPAN_MAX
    {
        return Err(Op(*op));
    }
    classifier.doubt_broken_chains();
    let attributed = classifier.attribute_garbage(floor.0);
    Ok(classifier.finish(floor, attributed))
}

impl Classifier {
    fn take(&mut self, found: Found) {
        let place = Place {
            offset: found.offset,
            len: found.len,
        };
        let (op, latest) = match found.finding {
            Finding::Intact(message) => {
                let header = *message.header::<PrepareHeader>();
                self.commit_max = self.commit_max.max(header.commit().0);
                let checksum = header.frame.checksum();
                let message = Some(message);
                (
                    header.op().0,
                    Latest {
                        place,
                        checksum,
                        message,
                        doubtful: found.doubtful,
                    },
                )
            }
            Finding::BodyDamaged {
                op,
                checksum,
                commit,
                covers,
            } => {
                self.commit_max = self.commit_max.max(commit.0);
                if let Some(covered) = covers {
                    self.covered = self.covered.max(covered.0);
                    self.garbage.push(Garbage { place, records: 0 });
                }
                self.damage.push(Damage {
                    offset: found.offset,
                    len: found.len,
                    op: Some(op),
                });
                (
                    op.0,
                    Latest {
                        place,
                        checksum,
                        message: None,
                        doubtful: found.doubtful,
                    },
                )
            }
            finding @ (Finding::Garbage { .. } | Finding::Astray { .. } | Finding::CutOff) => {
                self.damage.push(Damage {
                    offset: found.offset,
                    len: found.len,
                    op: None,
                });
                // Fewer bytes than a header were no record.
                if place.len >= HEADER_SIZE as u64 {
                    let records = match finding {
                        Finding::Garbage { records } | Finding::Astray { records } => records,
                        _ => 1,
                    };
                    self.garbage.push(Garbage { place, records });
                }
                return;
            }
        };
        self.supersede(op, latest);
    }

    /// The later record of an op counts. A damaged one does not displace an intact record of
    /// the very same prepare.
    ///
    /// Of two records of one prepare the damaged one may be no record of it at all: its header
    /// strayed there, and what should stand there is unknown. Most often it was the first, went
    /// bad and was repaired, and then nothing is missing; a second one behind an intact first is
    /// rare otherwise.
    fn supersede(&mut self, op: u64, latest: Latest) {
        let held = self.latest.get(&op);
        let twin = held.filter(|held| held.checksum == latest.checksum);
        let is_held = twin.is_some_and(|held| held.message.is_some());
        let is_read = latest.message.is_some();
        let strayed = match (is_held, is_read) {
            (true, false) => Some((latest.place, 1)),
            (false, true) => twin.map(|held| (held.place, 0)),
            (true, true) | (false, false) => None,
        };
        if let Some((place, records)) = strayed {
            self.garbage.push(Garbage { place, records });
        }
        let displaced = match is_held && !is_read {
            true => Some(latest),
            false => self.latest.insert(op, latest),
        };
        if let Some(displaced) = displaced {
            self.dead.push(Dead {
                op,
                place: displaced.place,
            });
        }
    }

    /// A record found by searching that does not fit its neighbours may be the content of a
    /// damaged body: its op counts as damaged.
    fn doubt_broken_chains(&mut self) {
        let mut doubted = Vec::new();
        for op in breaks(&self.latest) {
            let pair = [op.saturating_sub(1), op];
            let is_doubtful = |op: &u64| self.latest.get(op).is_some_and(|each| each.doubtful);
            doubted.extend(pair.into_iter().filter(is_doubtful));
        }
        for op in doubted {
            if let Some(latest) = self.latest.get_mut(&op) {
                latest.message = None;
            }
        }
    }

    /// The ops at or above the floor that garbage may have held, each with a place in it.
    ///
    /// Records stand in the order they were appended, and repairs fill holes late, so the
    /// neighbours of a stretch prove nothing about it. It may have held any op that is not
    /// there, and one above all that are.
    fn attribute_garbage(&self, floor: u64) -> BTreeMap<u64, Place> {
        let mut attributed = BTreeMap::new();
        let head = self
            .latest
            .last_key_value()
            .map_or(floor, |(op, _)| (*op).max(floor));
        let first = floor.max(1).max(head.saturating_sub(GAP_OPS_MAX));
        if let Some(Garbage { place, .. }) = self.garbage.first() {
            let limit = self.commit_max.max(head).saturating_add(PIPELINE_OPS_MAX);
            let covered = if self.covered <= limit {
                self.covered
            } else {
                0
            };
            let reach = reach(&self.garbage, head, self.commit_max).max(covered);
            let missing = (first..=reach).filter(|op| !self.latest.contains_key(op));
            attributed.extend(missing.map(|op| (op, *place)));
        }
        attributed
    }

    fn finish(mut self, floor: Op, attributed: BTreeMap<u64, Place>) -> Recovered {
        let mut layout = Layout {
            garbage: std::mem::take(&mut self.garbage),
            ..Layout::default()
        };
        let counted = self.latest.split_off(&floor.0);
        for (op, below) in std::mem::take(&mut self.latest) {
            self.dead.push(Dead {
                op,
                place: below.place,
            });
        }
        let chain_breaks = breaks(&counted).into_iter().map(Op).collect();
        layout.places = attributed;
        layout
            .places
            .extend(counted.iter().map(|(op, latest)| (*op, latest.place)));
        let mut counted = counted;
        let entry = |op: &u64| match counted.remove(op).and_then(|latest| latest.message) {
            Some(message) => Entry::Intact(message),
            None => Entry::Damaged(Op(*op)),
        };
        let entries = layout.places.keys().map(entry).collect();
        layout.dead = self.dead;
        Recovered {
            existed: true,
            entries,
            damage: self.damage,
            torn: None,
            chain_breaks,
            commit_max: Op(self.commit_max),
            floor,
            layout,
        }
    }
}

/// The highest op that garbage may have held above `head`: one for each stretch, or more where it
/// may have been more records, as far as they can have been in flight above `commit`.
fn reach(garbage: &[Garbage], head: u64, commit: u64) -> u64 {
    let stretches = garbage.iter().filter(|it| it.records > 0).count() as u64;
    let records: u64 = garbage.iter().map(|stretch| stretch.records).sum();
    let limit = commit.saturating_add(PIPELINE_OPS_MAX);
    head.saturating_add(records)
        .min(limit)
        .max(head.saturating_add(stretches))
}

/// Ops whose parent differs from the checksum of the intact op before them.
fn breaks(latest: &BTreeMap<u64, Latest>) -> Vec<u64> {
    let mut broken = Vec::new();
    let mut before: Option<(u64, Checksum)> = None;
    for (&op, each) in latest {
        let Some(message) = &each.message else {
            before = None;
            continue;
        };
        if let Some((previous, checksum)) = before
            && previous.checked_add(1) == Some(op)
            && message.header::<PrepareHeader>().parent() != checksum
        {
            broken.push(op);
        }
        before = Some((op, each.checksum));
    }
    broken
}
