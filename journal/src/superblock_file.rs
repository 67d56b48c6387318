//! Two copies of a superblock, written in turn, and the rule that picks one at boot.
//!
//! Copy `a` takes the odd sequence numbers and copy `b` the even ones, so the older copy is
//! whole while the newer is being written, and each write replaces its file in one step. The
//! possible states of the pair are therefore few, and every other state means that a copy was
//! lost or damaged. As the lost one may have held the newer view, such a pair refuses boot
//! (chapter 04 section 5.6): voting again in a view already voted in loses data silently,
//! a refused boot does not.

use biplane_wire::View;
use thiserror::Error;

use crate::disk::{
    Chunk, DiskCompletion, DiskError, DiskOp, DiskRequest, DiskView, QueueId, ReadFileError,
    read_file,
};
use crate::path::{DiskPath, PathError};
use crate::superblock::{
    Identity, SUPERBLOCK_BYTES, SuperblockDecodeError, SuperblockRecord, decode_superblock,
    encode_superblock,
};

/// Longest pause between two attempts of a failing write: 1 s of 10 ms ticks.
pub const RETRY_TICKS_MAX: u32 = 100;

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuperblockCopy {
    /// `superblock.a`, odd sequence numbers.
    A,
    /// `superblock.b`, even sequence numbers.
    B,
}

impl SuperblockCopy {
    /// The file name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "superblock.a",
            Self::B => "superblock.b",
        }
    }

    /// The copy that a sequence number belongs to.
    #[must_use]
    pub fn of(sequence: u64) -> Self {
        if sequence % 2 == 1 { Self::A } else { Self::B }
    }
}

/// Why the superblock of a folder cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A copy is there and is not a superblock; it may have held the newer view.
    #[error("{copy:?}: {error}; it could hold the newer view, so this replica must not start")]
    Unverifiable {
        /// Which copy.
        copy: SuperblockCopy,
        /// What is wrong with it.
        error: SuperblockDecodeError,
    },
    /// A copy carries a sequence number of the other one.
    #[error("{copy:?} holds sequence {sequence}, which belongs to the other copy")]
    WrongCopy {
        /// Which copy.
        copy: SuperblockCopy,
        /// The sequence number in it.
        sequence: u64,
    },
    /// The copy that a pair of this age must have is absent.
    #[error("sequence {sequence} is there but its other copy, perhaps the newer, is missing")]
    CopyMissing {
        /// The sequence number of the copy that is there.
        sequence: u64,
    },
    /// The two copies are not neighbours in sequence.
    #[error("the copies hold sequences {a} and {b}, which were never a pair")]
    NotAPair {
        /// Sequence in copy `a`.
        a: u64,
        /// Sequence in copy `b`.
        b: u64,
    },
    /// The newer copy promises less than the older.
    #[error("the newer copy goes back from view {older} to {newer}")]
    WentBack {
        /// View of the older copy.
        older: View,
        /// View of the newer copy.
        newer: View,
    },
    /// The folder belongs to another replica, cluster or cluster size.
    #[error("the folder belongs to {}, this is {}", told(found), told(expected))]
    IdentityMismatch {
        /// Who is booting.
        expected: Identity,
        /// Who wrote the folder.
        found: Identity,
    },
}

/// An identity in words.
fn told(identity: &Identity) -> String {
    let Identity {
        cluster,
        replica,
        replica_count,
    } = identity;
    format!(
        "replica {replica} of {replica_count} in cluster {:032x}",
        cluster.0
    )
}

/// What a folder's superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedSuperblock {
    /// The newest record; `None` when no superblock was ever written.
    pub record: Option<SuperblockRecord>,
    /// Its sequence number; 0 without a record.
    pub sequence: u64,
}

/// Reads both copies in `dir` and applies the rules at the head of this file.
///
/// # Errors
///
/// Every state that a crash cannot have left; see [`SuperblockError`].
pub fn load_superblock(
    view: &dyn DiskView,
    dir: &DiskPath,
    identity: &Identity,
) -> Result<LoadedSuperblock, SuperblockError> {
    let a = load_copy(view, dir, SuperblockCopy::A)?;
    let b = load_copy(view, dir, SuperblockCopy::B)?;
    let Some((sequence, record)) = choose(a, b)? else {
        return Ok(LoadedSuperblock {
            record: None,
            sequence: 0,
        });
    };
    if record.identity != *identity {
        let (expected, found) = (*identity, record.identity);
        return Err(SuperblockError::IdentityMismatch { expected, found });
    }
    Ok(LoadedSuperblock {
        record: Some(record),
        sequence,
    })
}

type Found = Option<(u64, SuperblockRecord)>;

fn choose(a: Found, b: Found) -> Result<Found, SuperblockError> {
    let (older, newer) = match (a, b) {
        (None, None) => return Ok(None),
        (Some((1, record)), None) => return Ok(Some((1, record))),
        (Some((sequence, _)), None) | (None, Some((sequence, _))) => {
            return Err(SuperblockError::CopyMissing { sequence });
        }
        (Some(a), Some(b)) if a.0.abs_diff(b.0) != 1 => {
            return Err(SuperblockError::NotAPair { a: a.0, b: b.0 });
        }
        (Some(a), Some(b)) if a.0 < b.0 => (a, b),
        (Some(a), Some(b)) => (b, a),
    };
    if newer.1.view < older.1.view || newer.1.log_view < older.1.log_view {
        let (older, newer) = (older.1.view, newer.1.view);
        return Err(SuperblockError::WentBack { older, newer });
    }
    Ok(Some(newer))
}

fn load_copy(
    view: &dyn DiskView,
    dir: &DiskPath,
    copy: SuperblockCopy,
) -> Result<Found, SuperblockError> {
    let unverifiable = |error| SuperblockError::Unverifiable { copy, error };
    let length =
        |len: u64| SuperblockDecodeError::Length(usize::try_from(len).unwrap_or(usize::MAX));
    let path = copy_path(dir, copy).map_err(|_| unverifiable(length(0)))?;
    let bytes = match read_file(view, &path, SUPERBLOCK_BYTES as u64) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(ReadFileError::Disk(error)) => return Err(error.into()),
        Err(ReadFileError::TooLong { len, .. }) => return Err(unverifiable(length(len))),
    };
    let (sequence, record) = decode_superblock(bytes.as_bytes()).map_err(unverifiable)?;
    if SuperblockCopy::of(sequence) != copy {
        return Err(SuperblockError::WrongCopy { copy, sequence });
    }
    Ok(Some((sequence, record)))
}

fn copy_path(dir: &DiskPath, copy: SuperblockCopy) -> Result<DiskPath, PathError> {
    dir.join(copy.name())
}

/// Whether a record has to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// It will be reported by [`SuperblockFile::complete`], unless a newer one overtakes it.
    Queued,
    /// Exactly this record is durable and nothing newer is under way.
    AlreadyDurable,
}

/// Writes the superblock of one group: one write in flight, the newest record next.
#[derive(Clone, Debug)]
pub struct SuperblockFile {
    paths: [DiskPath; 2],
    queue: QueueId,
    durable: Option<SuperblockRecord>,
    sequence: u64,
    pending: Option<SuperblockRecord>,
    in_flight: Option<SuperblockRecord>,
    token: u64,
    failures: u32,
    wait_ticks: u32,
}

impl SuperblockFile {
    /// The writer for the folder `dir`, which must exist by the time of the first write, going
    /// on from what was loaded. All requests use `queue`, which nobody else may use.
    ///
    /// # Errors
    ///
    /// When `dir` is so long that no file fits below it.
    pub fn open(
        dir: &DiskPath,
        queue: QueueId,
        loaded: &LoadedSuperblock,
    ) -> Result<Self, PathError> {
        Ok(Self {
            paths: [
                copy_path(dir, SuperblockCopy::A)?,
                copy_path(dir, SuperblockCopy::B)?,
            ],
            queue,
            durable: loaded.record,
            sequence: loaded.sequence,
            pending: None,
            in_flight: None,
            token: 0,
            failures: 0,
            wait_ticks: 0,
        })
    }

    /// The record that is durable.
    #[must_use]
    pub fn durable(&self) -> Option<&SuperblockRecord> {
        self.durable.as_ref()
    }

    /// The newest record asked for; the durable one when nothing is under way. Take this one,
    /// change what moved, and hand it back to [`SuperblockFile::persist`].
    #[must_use]
    pub fn newest(&self) -> Option<&SuperblockRecord> {
        self.pending
            .as_ref()
            .or(self.in_flight.as_ref())
            .or(self.durable.as_ref())
    }

    /// Whether nothing waits to be written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_none() && self.in_flight.is_none()
    }

    /// Writes that failed since the last one that succeeded.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The queue whose completions belong here.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// Asks for `record` to become durable. While a write is in flight only the newest record
    /// is kept; its completion covers every older one.
    ///
    /// # Panics
    ///
    /// When view, log view or checkpoint go back, log view is above view, or the identity
    /// changes: a promise is never taken back.
    pub fn persist(&mut self, record: SuperblockRecord, out: &mut Vec<DiskRequest>) -> Persist {
        assert!(record.log_view <= record.view, "log view is not above view");
        if let Some(newest) = self.newest() {
            assert!(record.identity == newest.identity, "the identity stays");
            assert!(record.view >= newest.view, "the view does not go back");
            assert!(
                record.log_view >= newest.log_view,
                "the log view does not go back"
            );
            assert!(
                record.checkpoint_op >= newest.checkpoint_op,
                "checkpoints do not go back"
            );
        }
        if self.is_idle() && self.durable == Some(record) {
            return Persist::AlreadyDurable;
        }
        self.pending = Some(record);
        self.pump(out);
        Persist::Queued
    }

    /// One tick of 10 ms: a failed write is tried again when its pause is over.
    pub fn tick(&mut self, out: &mut Vec<DiskRequest>) {
        self.wait_ticks = self.wait_ticks.saturating_sub(1);
        self.pump(out);
    }

    /// Takes the completion of a request of this queue. Returns the record that became durable;
    /// `None` when the write failed and will be tried again by [`SuperblockFile::tick`].
    ///
    /// # Panics
    ///
    /// When the completion does not answer the write in flight.
    pub fn complete(
        &mut self,
        completion: &DiskCompletion,
        out: &mut Vec<DiskRequest>,
    ) -> Option<SuperblockRecord> {
        assert!(
            completion.queue == self.queue,
            "the queue is this superblock's own"
        );
        assert!(
            completion.token == self.token,
            "one write is in flight, and this is it"
        );
        let written = self
            .in_flight
            .take()
            .expect("a completion answers a write in flight");
        if completion.result.is_err() {
            // The copy may hold the old record or the new one. The next attempt goes to the
            // same copy under the same sequence number, so the other copy stays as it is.
            self.failures = self.failures.saturating_add(1);
            self.wait_ticks = retry_ticks(self.failures);
            self.pending.get_or_insert(written);
            return None;
        }
        self.failures = 0;
        self.wait_ticks = 0;
        self.sequence += 1;
        self.durable = Some(written);
        self.pump(out);
        Some(written)
    }

    fn pump(&mut self, out: &mut Vec<DiskRequest>) {
        if self.in_flight.is_some() || self.wait_ticks > 0 {
            return;
        }
        let Some(record) = self.pending.take() else {
            return;
        };
        let sequence = self.sequence + 1;
        let path = match SuperblockCopy::of(sequence) {
            SuperblockCopy::A => self.paths[0].clone(),
            SuperblockCopy::B => self.paths[1].clone(),
        };
        let bytes = encode_superblock(&record, sequence);
        self.in_flight = Some(record);
        self.token += 1;
        let op = DiskOp::Replace {
            path,
            data: vec![Chunk::Bytes(bytes.as_slice().into())],
        };
        out.push(DiskRequest {
            queue: self.queue,
            token: self.token,
            op,
        });
    }
}

/// Pause after the nth failure in a row: 10 ms · 2^n, at most one second, in ticks.
fn retry_ticks(failures: u32) -> u32 {
    1_u32
        .checked_shl(failures)
        .unwrap_or(RETRY_TICKS_MAX)
        .clamp(1, RETRY_TICKS_MAX)
}
