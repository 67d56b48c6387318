//! The log suffix in the body of DoViewChange and StartView (chapter 01 sections 6.11, 6.12).
//!
//! ```text
//!   entry 0      entry 1      entry 2            bit i of a bitset
//!   op           op - 1       op - 2             speaks about entry i
//! +------------+------------+------------+
//! | 256 bytes  | 256 bytes  | 256 bytes  |  ...  at most 128 prepare headers
//! +------------+------------+------------+
//! ```
//!
//! A blank entry says nothing about its op and is recognised by equality of all 256 bytes, so
//! that one stray byte makes it a real entry with a wrong identity.

use thiserror::Error;
use zerocopy::FromBytes;

use crate::HEADER_SIZE;
use crate::checksum::body_seal;
use crate::decode::Typed;
use crate::header::{DoViewChangeHeader, Header, PrepareHeader, StartViewHeader};
use crate::ids::{Checksum, Op};
use crate::message::Message;
use crate::operation::Operation;

/// Largest number of entries; also the number of bits in a bitset.
pub const SUFFIX_ENTRIES_MAX: usize = 128;

/// A rule of section 6.11 that a suffix breaks. `entry` counts from 0 at the highest op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SuffixError {
    /// A non-empty body does not match `checksum_body`; zero does not match either.
    #[error("the body does not match its seal")]
    BodySeal,
    /// The body is not a multiple of 256 bytes.
    #[error("the body is not made of whole headers")]
    BodyLength,
    /// More entries than a bitset has bits.
    #[error("{count} entries are more than 128")]
    TooManyEntries {
        /// Entries found.
        count: usize,
    },
    /// The operation byte of an entry is undefined.
    #[error("entry {entry}: the operation is undefined")]
    EntryOperation {
        /// Index of the entry.
        entry: usize,
    },
    /// The command of an entry is not Prepare.
    #[error("entry {entry}: the command is not Prepare")]
    EntryCommand {
        /// Index of the entry.
        entry: usize,
    },
    /// A reserved region of an entry is not zero.
    #[error("entry {entry}: reserved bytes are not zero")]
    EntryReserved {
        /// Index of the entry.
        entry: usize,
    },
    /// The entry would describe an op below zero.
    #[error("entry {entry}: below op zero")]
    EntryBelowZero {
        /// Index of the entry.
        entry: usize,
    },
    /// The op of an entry is not the header's op minus its index.
    #[error("entry {entry}: op {op} is out of order")]
    EntryOp {
        /// Index of the entry.
        entry: usize,
        /// The op it names.
        op: Op,
    },
    /// The identity of an entry is wrong.
    #[error("entry {entry}: the identity does not match")]
    EntryIdentity {
        /// Index of the entry.
        entry: usize,
    },
    /// An older prepare is not older than the nearest one above it.
    #[error("entry {entry}: the timestamp is not below that of the entry above")]
    TimestampOrder {
        /// Index of the older entry.
        entry: usize,
    },
    /// The prepare above names another parent.
    #[error("entry {entry}: the entry above has another parent")]
    ParentMismatch {
        /// Index of the parent entry.
        entry: usize,
    },
}

/// What one entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixEntry<'a> {
    /// The op it speaks about.
    pub op: Op,
    /// The header; `None` when the entry is blank.
    pub header: Option<&'a PrepareHeader>,
    /// The sender never acknowledged this op.
    pub nack: bool,
    /// The sender holds the prepare with its body.
    pub present: bool,
}

/// A checked view over the entries of a received suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suffix<'a> {
    op_head: Op,
    entries: &'a [PrepareHeader],
    nack_bitset: u128,
    present_bitset: u128,
}

impl<'a> Suffix<'a> {
    /// The suffix of a vote; checks the body seal, then the body rules.
    ///
    /// # Errors
    ///
    /// The first rule that fails; the receiver drops the whole vote.
    pub fn of_do_view_change(vote: &'a Typed<DoViewChangeHeader>) -> Result<Self, SuffixError> {
        let header = vote.header();
        check_suffix_body_seal(header.frame.checksum_body(), vote.body())?;
        let bitsets = (header.nack_bitset(), header.present_bitset());
        Self::parse(header.op(), vote.body(), bitsets)
    }

    /// The suffix of a new view.
    ///
    /// # Errors
    ///
    /// [`SuffixError::BodySeal`] drops the frame. Any other reason only makes the suffix
    /// useless: the receiver adopts the announced op without it.
    pub fn of_start_view(start: &'a Typed<StartViewHeader>) -> Result<Self, SuffixError> {
        let header = start.header();
        check_suffix_body_seal(header.frame.checksum_body(), start.body())?;
        Self::parse(header.op(), start.body(), (0, 0))
    }

    /// The body rules on the entries below `op_head`; `bitsets` are nack, then present.
    ///
    /// # Errors
    ///
    /// The first rule that fails.
    pub fn parse(op_head: Op, body: &'a [u8], bitsets: (u128, u128)) -> Result<Self, SuffixError> {
        let Ok(entries) = <[PrepareHeader]>::ref_from_bytes(body) else {
            return Err(SuffixError::BodyLength);
        };
        if entries.len() > SUFFIX_ENTRIES_MAX {
            return Err(SuffixError::TooManyEntries {
                count: entries.len(),
            });
        }
        let mut child: Option<&PrepareHeader> = None;
        for (entry, header) in entries.iter().enumerate() {
            check_entry(entry, header, op_head)?;
            if header.is_blank() {
                continue;
            }
            check_chain(entry, header, child)?;
            child = Some(header);
        }
        let (nack_bitset, present_bitset) = bitsets;
        Ok(Self {
            op_head,
            entries,
            nack_bitset,
            present_bitset,
        })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The highest op, that of entry 0.
    #[must_use]
    pub fn op_head(&self) -> Op {
        self.op_head
    }

    /// Entry `index`, counted from the highest op.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<SuffixEntry<'a>> {
        let header = self.entries.get(index)?;
        let bit = |bitset: u128| bitset >> index & 1 == 1;
        Some(SuffixEntry {
            op: header.op(),
            header: (!header.is_blank()).then_some(header),
            nack: bit(self.nack_bitset),
            present: bit(self.present_bitset),
        })
    }

    /// What the suffix says about `op`; `None` when `op` lies outside of it.
    #[must_use]
    pub fn at(&self, op: Op) -> Option<SuffixEntry<'a>> {
        let index = self.op_head.0.checked_sub(op.0)?;
        self.get(usize::try_from(index).ok()?)
    }

    /// The entries from the highest op down.
    pub fn iter(&self) -> impl Iterator<Item = SuffixEntry<'a>> + '_ {
        (0..self.entries.len()).filter_map(|index| self.get(index))
    }
}

/// Whether the body seal of a suffix frame holds: an empty body always passes, a non-empty one
/// must match, and zero is no excuse (section 7.3).
///
/// # Errors
///
/// [`SuffixError::BodySeal`].
pub fn check_suffix_body_seal(stored: Checksum, body: &[u8]) -> Result<(), SuffixError> {
    if body.is_empty() || stored == body_seal(body) {
        Ok(())
    } else {
        Err(SuffixError::BodySeal)
    }
}

/// Body rule 1.
fn check_entry(entry: usize, header: &PrepareHeader, op_head: Op) -> Result<(), SuffixError> {
    if Operation::from_u8(header.operation_byte()).is_none() {
        return Err(SuffixError::EntryOperation { entry });
    }
    if header.frame.command_byte() != crate::Command::Prepare.as_u8() {
        return Err(SuffixError::EntryCommand { entry });
    }
    if !header.reserved_is_zero() {
        return Err(SuffixError::EntryReserved { entry });
    }
    let Some(op) = op_head.0.checked_sub(entry as u64) else {
        return Err(SuffixError::EntryBelowZero { entry });
    };
    if header.op() != Op(op) {
        return Err(SuffixError::EntryOp {
            entry,
            op: header.op(),
        });
    }
    Ok(())
}

/// Body rules 3 and 4, for a non-blank entry and the nearest non-blank one above it.
fn check_chain(
    entry: usize,
    header: &PrepareHeader,
    child: Option<&PrepareHeader>,
) -> Result<(), SuffixError> {
    if !header.identity_is_valid() {
        return Err(SuffixError::EntryIdentity { entry });
    }
    let Some(child) = child else { return Ok(()) };
    if header.timestamp() >= child.timestamp() {
        return Err(SuffixError::TimestampOrder { entry });
    }
    let adjacent = child.op() == header.op().next();
    let sealed = !header.frame.checksum().is_zero();
    if adjacent && sealed && child.parent() != header.frame.checksum() {
        return Err(SuffixError::ParentMismatch { entry });
    }
    Ok(())
}

/// Collects the suffix a replica sends, from the highest op down.
#[derive(Clone, Debug)]
pub struct SuffixBuilder {
    op_head: Op,
    body: Vec<u8>,
    nack_bitset: u128,
    present_bitset: u128,
}

impl SuffixBuilder {
    /// A suffix whose entry 0 describes `op_head`.
    #[must_use]
    pub fn new(op_head: Op) -> Self {
        Self {
            op_head,
            body: Vec::new(),
            nack_bitset: 0,
            present_bitset: 0,
        }
    }

    /// Number of entries so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len() / HEADER_SIZE
    }

    /// Whether there is no entry yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Whether one more entry fits: below 128 of them and above op zero.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < SUFFIX_ENTRIES_MAX && self.op_next().is_some()
    }

    /// The op the next entry describes; `None` below op zero.
    #[must_use]
    pub fn op_next(&self) -> Option<Op> {
        self.op_head.0.checked_sub(self.len() as u64).map(Op)
    }

    /// Adds the entry of the next lower op: its header, or a blank for `None`, and the two
    /// bits. A header that stands under the repair command is entered as a prepare.
    ///
    /// # Panics
    ///
    /// When there is no room, or the header is not that of [`SuffixBuilder::op_next`].
    pub fn push(&mut self, header: Option<&PrepareHeader>, nack: bool, present: bool) {
        assert!(self.has_room(), "the suffix has room");
        let Some(op) = self.op_next() else {
            unreachable!("room implies an op")
        };
        let bit = 1_u128 << self.len();
        let entry = match header {
            Some(header) => header.with_command(crate::Command::Prepare),
            None => PrepareHeader::blank(op),
        };
        assert!(entry.op() == op, "entries descend by one");
        self.body.extend_from_slice(entry.bytes());
        if nack {
            self.nack_bitset |= bit;
        }
        if present {
            self.present_bitset |= bit;
        }
    }

    /// The vote: fills `op`, bitsets, size, body seal and frame seal into `header`.
    #[must_use]
    pub fn do_view_change(&self, mut header: DoViewChangeHeader) -> Message {
        header.set_op(self.op_head);
        header.set_nack_bitset(self.nack_bitset);
        header.set_present_bitset(self.present_bitset);
        header.frame.set_checksum_body(self.seal());
        Message::sealed(header, &self.body)
    }

    /// The new view: fills `op`, size, body seal and frame seal into `header`. The bits have no
    /// place in this frame.
    #[must_use]
    pub fn start_view(&self, mut header: StartViewHeader) -> Message {
        header.set_op(self.op_head);
        header.frame.set_checksum_body(self.seal());
        Message::sealed(header, &self.body)
    }

    fn seal(&self) -> Checksum {
        if self.body.is_empty() {
            Checksum::ZERO
        } else {
            body_seal(&self.body)
        }
    }
}
