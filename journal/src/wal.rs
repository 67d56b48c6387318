//! The prepare log: appended in groups, cut at either end, one disk request at a time.
//!
//! The log in memory changes at once, the file follows in the order of the calls. Appends that
//! arrive while a write and its sync are in flight go out together in the next one, as chunks
//! that share the frames. Cutting off a suffix shortens the file where the rest of it is
//! untouched by that; where it is not, and for dropping a drained prefix, the survivors are
//! written to a new file that replaces the old one in one step.
//!
//! A prepare is reported durable once it and everything written before it is on stable storage,
//! unless it was truncated or replaced meanwhile. Another prepare for an op that is in the file
//! replaces it, also in one step: two records of one op would let damage to the newer bring the
//! older back.
//!
//! A request that finds no room is made again until there is room, and whatever comes after it
//! waits: to everybody else the disk is only slow. Any other failure ends the log: what is on disk
//! is then unknown, nothing more is written, and the plane must stop the group.

mod config;
mod file;
mod look;
mod work;

use std::collections::{BTreeMap, VecDeque};

use biplane_wire::{Checksum, Message, Op, PrepareHeader};
use thiserror::Error;

use self::file::{Content, Entered, File, Slot, Stored};
use self::work::{InFlight, Job, Then};
use crate::disk::{DiskCompletion, DiskError, DiskErrorKind, DiskRequest};
use crate::recovery::{Entry, Recovered};

pub use self::config::{JOURNAL_SLOTS_DEFAULT, PARTITION_LOG_BYTES_DEFAULT, WalConfig};

/// What a log wants done, and what has become true, in order.
#[derive(Clone, Debug)]
pub enum WalOutput {
    /// Hand this to the disk and its completion to [`Wal::complete`].
    Disk(DiskRequest),
    /// The prepare of this op with this identity is on stable storage.
    Durable {
        /// The op.
        op: Op,
        /// Its identity.
        checksum: Checksum,
    },
    /// No prepare of this op or a later one that was appended before the truncation can come
    /// back.
    Truncated {
        /// The lowest op cut off.
        from: Op,
    },
    /// The ops below the checkpoint no longer count against the limits of the file.
    Drained {
        /// The op that is kept.
        checkpoint: Op,
    },
}

/// Why a prepare was not taken. The log is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AppendRefusal {
    /// No slot or no room: a checkpoint must drain the log first.
    #[error("the log is full")]
    Full,
    /// The op was drained: a checkpoint covers it.
    #[error("the op is covered by a checkpoint")]
    Drained,
    /// The prepare is of another cluster or group.
    #[error("the prepare belongs to another cluster or group")]
    Foreign,
    /// Without an identity it could not be told from garbage when read back.
    #[error("the prepare carries no identity")]
    Unsealed,
    /// Larger than the largest frame.
    #[error("the prepare is larger than the log takes")]
    TooLong,
    /// An earlier request failed.
    #[error("the log has failed and takes nothing more")]
    Halted,
}

/// The log can no longer be trusted to write: stop the group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the prepare log failed: {0}")]
pub struct WalError(#[from] pub DiskError);

/// A request that found no room.
#[derive(Clone, Debug)]
struct NoRoom {
    /// How the last attempt failed.
    error: DiskError,
    /// Ticks until the next one; 0 while it is under way.
    pause: u32,
}

/// The prepare log of one group. See the file's head.
#[derive(Clone, Debug)]
pub struct Wal {
    config: WalConfig,
    slots: BTreeMap<u64, Slot>,
    file: File,
    jobs: VecDeque<Job>,
    in_flight: Option<InFlight>,
    /// The one in flight has found no room so far.
    no_room: Option<NoRoom>,
    /// Ops up to here are drained.
    floor: u64,
    /// Bytes of appends that are not in the file yet.
    pending_bytes: u64,
    token: u64,
    ticket: u64,
    halted: bool,
}

impl Wal {
    /// Goes on from what [`recover`](crate::recover) found: creates the file when it is absent,
    /// cuts its torn tail, replaces garbage by damage markers.
    #[must_use]
    pub fn open(config: WalConfig, recovered: &Recovered, out: &mut Vec<WalOutput>) -> Self {
        let mut wal = Self {
            config,
            slots: BTreeMap::new(),
            file: File::from_layout(&recovered.layout),
            jobs: VecDeque::new(),
            in_flight: None,
            no_room: None,
            floor: recovered.floor.0.saturating_sub(1),
            pending_bytes: 0,
            token: 0,
            ticket: 0,
            halted: false,
        };
        for entry in &recovered.entries {
            let op = entry.op().0;
            let content = match entry {
                Entry::Intact(message) => Content::of(message.clone()),
                Entry::Damaged(_) => Content::Damaged,
            };
            let place = recovered.layout.places.get(&op).copied();
            wal.ticket += 1;
            let (ticket, since) = (wal.ticket, wal.ticket);
            wal.slots.insert(
                op,
                Slot {
                    content,
                    ticket,
                    since,
                    place,
                    previous: None,
                },
            );
        }
        if !recovered.existed {
            wal.jobs.extend([Job::CreateDirs, Job::CreateFile]);
        } else if !recovered.layout.garbage.is_empty() {
            wal.jobs.push_back(Job::Rewrite);
        } else if recovered.torn.is_some() {
            wal.jobs.push_back(Job::Cut {
                len: recovered.layout.file_len,
            });
        }
        wal.pump(out);
        wal
    }

    /// Takes a prepare. [`WalOutput::Durable`] follows, at once when it is durable already.
    ///
    /// # Errors
    ///
    /// Why it was not taken.
    ///
    /// # Panics
    ///
    /// When the message is not a prepare.
    pub fn append(
        &mut self,
        prepare: Message,
        out: &mut Vec<WalOutput>,
    ) -> Result<(), AppendRefusal> {
        let header = *prepare.header::<PrepareHeader>();
        assert!(
            header.frame.command() == biplane_wire::Command::Prepare,
            "repair frames are restored before they are journaled"
        );
        let op = header.op().0;
        let checksum = header.frame.checksum();
        let len = self.config.form.record_len(prepare.size());
        if let Some(slot) = self.slots.get(&op)
            && slot.content.checksum() == Some(checksum)
            && !self.halted
        {
            if slot.place.is_some() {
                out.push(WalOutput::Durable {
                    op: Op(op),
                    checksum,
                });
            }
            return Ok(());
        }
        self.check_append(&header, len)?;
        self.ticket += 1;
        let ticket = self.ticket;
        let displaced = self.slots.remove(&op);
        let since = match &displaced {
            Some(Slot {
                content: Content::Prepare { .. },
                since,
                ..
            }) => *since,
            _ => ticket,
        };
        let previous = displaced.and_then(Slot::into_stored);
        let content = Content::of(prepare);
        self.slots.insert(
            op,
            Slot {
                content,
                ticket,
                since,
                place: None,
                previous,
            },
        );
        self.pending_bytes += len;
        self.jobs.push_back(Job::Append { op, ticket, len });
        self.pump(out);
        Ok(())
    }

    fn check_append(&self, header: &PrepareHeader, len: u64) -> Result<(), AppendRefusal> {
        let op = header.op().0;
        let scope = self.config.scope;
        if self.halted {
            return Err(AppendRefusal::Halted);
        }
        if header.frame.cluster() != scope.cluster || header.group() != scope.group {
            return Err(AppendRefusal::Foreign);
        }
        if header.frame.checksum().is_zero() {
            return Err(AppendRefusal::Unsealed);
        }
        if header.frame.size() > self.config.frame_bytes_max {
            return Err(AppendRefusal::TooLong);
        }
        if op <= self.floor {
            return Err(AppendRefusal::Drained);
        }
        if op - self.floor > self.config.slots_max || len > self.free_bytes() {
            return Err(AppendRefusal::Full);
        }
        Ok(())
    }

    /// Cuts off every prepare from `from` on: at once for readers of this log, and in the file
    /// before anything that is appended later. Answered by exactly one
    /// [`WalOutput::Truncated`].
    ///
    /// Damage is not cut off: what could not be read may have been acknowledged, and whoever
    /// cuts the log does not know otherwise. It goes when the op is appended or drained.
    pub fn truncate(&mut self, from: Op, out: &mut Vec<WalOutput>) {
        for (op, slot) in self.slots.split_off(&from.0) {
            match slot.into_stored() {
                Some(Stored {
                    content: Content::Damaged,
                    ticket,
                    place,
                }) => {
                    self.slots.insert(op, Slot::damaged(ticket, place));
                }
                Some(stored) => self.file.bury(op, stored.place),
                None => {}
            }
        }
        self.jobs.push_back(Job::Truncate { from: from.0 });
        self.pump(out);
    }

    /// Drops every op below `checkpoint`, which a durable snapshot covers, and keeps that op
    /// itself. Answered by exactly one [`WalOutput::Drained`].
    pub fn drain(&mut self, checkpoint: Op, out: &mut Vec<WalOutput>) {
        let kept = self.slots.split_off(&checkpoint.0);
        for (op, slot) in std::mem::replace(&mut self.slots, kept) {
            if let Some(stored) = slot.into_stored() {
                self.file.bury(op, stored.place);
            }
        }
        self.floor = self.floor.max(checkpoint.0.saturating_sub(1));
        self.jobs.push_back(Job::Drain {
            checkpoint: checkpoint.0,
        });
        self.pump(out);
    }

    /// Takes the completion of a request of this log's queue. One that found no room is made
    /// again by [`Wal::tick`].
    ///
    /// # Errors
    ///
    /// The request failed otherwise: the log has ended, stop the group.
    ///
    /// # Panics
    ///
    /// When it does not answer the request in flight.
    pub fn complete(
        &mut self,
        completion: DiskCompletion,
        out: &mut Vec<WalOutput>,
    ) -> Result<(), WalError> {
        assert!(
            completion.queue == self.config.queue,
            "the queue is this log's own"
        );
        assert!(
            completion.token == self.token,
            "one request is in flight, and this is it"
        );
        let done = self
            .in_flight
            .take()
            .expect("a completion answers a request in flight");
        self.no_room = None;
        if let Err(error) = completion.result {
            if error.kind == DiskErrorKind::NoSpace {
                self.wait_for_room(done, error);
                return Ok(());
            }
            self.halted = true;
            self.jobs.clear();
            return Err(WalError(error));
        }
        match done {
            InFlight::CreateDirs | InFlight::CreateFile => {}
            InFlight::Append { written, len } => {
                self.file.len += len;
                self.pending_bytes -= len;
                self.settle(&written, Some(out));
            }
            InFlight::Cut { len, then } => {
                self.file.cut(len);
                out.extend(then);
            }
            InFlight::Rewrite { written, len, then } => {
                self.file.replaced(len);
                self.settle(&written, None);
                match then {
                    Then::Nothing => {}
                    Then::Report(event) => out.push(event),
                    Then::Replaced { op, ticket, len } => {
                        self.pending_bytes -= len;
                        self.report(op, ticket, out);
                    }
                }
            }
        }
        self.pump(out);
        Ok(())
    }

    /// Enters where records stand now, and reports those appended just now. A record whose slot
    /// was truncated or took another prepare meanwhile is dead on arrival.
    fn settle(&mut self, written: &[(u64, Stored)], mut out: Option<&mut Vec<WalOutput>>) {
        for (op, stored) in written {
            let mut slot = self.slots.get_mut(op);
            let entered = slot.as_mut().and_then(|slot| slot.enter(stored));
            let is_rewrite = out.is_none();
            match (entered, slot) {
                (
                    Some(Entered {
                        displaced: Some(displaced),
                    }),
                    _,
                ) if !is_rewrite => {
                    self.file.bury(*op, displaced);
                }
                // What a rewrite displaced stood in the file that is gone.
                (Some(_), _) => {}
                (None, slot) => {
                    if let (Some(slot), true) = (slot, is_rewrite) {
                        slot.lose_mark();
                    }
                    self.file.bury(*op, stored.place);
                }
            }
            if let Some(out) = &mut out {
                self.report(*op, stored.ticket, out);
            }
        }
    }

    fn report(&self, op: u64, ticket: u64, out: &mut Vec<WalOutput>) {
        let slot = self.slots.get(&op).filter(|slot| slot.ticket == ticket);
        if let Some(checksum) = slot.and_then(|slot| slot.content.checksum()) {
            out.push(WalOutput::Durable {
                op: Op(op),
                checksum,
            });
        }
    }
}
