//! What a log does with the disk: jobs in the order of the calls, one request at a time.

use biplane_wire::{HEADER_SIZE, Message, Op};

use super::file::{Content, Stored, Truncation};
use super::{NoRoom, Wal, WalOutput};
use crate::disk::{Chunk, DiskError, DiskOp, DiskRequest};
use crate::path::DiskPath;

/// Ticks between attempts to find room.
const RETRY_TICKS: u32 = 10;
use crate::recovery::Place;

#[derive(Clone, Debug)]
pub(super) enum Job {
    CreateDirs,
    CreateFile,
    /// Cut what recovery found torn.
    Cut {
        len: u64,
    },
    /// Replace garbage by markers.
    Rewrite,
    Append {
        op: u64,
        ticket: u64,
        len: u64,
    },
    Truncate {
        from: u64,
    },
    Drain {
        checkpoint: u64,
    },
}

/// What was asked of the disk, and all it takes to ask for the same again.
#[derive(Clone, Debug)]
pub(super) enum InFlight {
    CreateDirs,
    CreateFile,
    Append {
        written: Vec<(u64, Stored)>,
        len: u64,
    },
    Cut {
        len: u64,
        then: Option<WalOutput>,
    },
    Rewrite {
        written: Vec<(u64, Stored)>,
        len: u64,
        then: Then,
    },
}

/// What the completion of a rewrite means.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// The file is in order.
    Nothing,
    /// Say so.
    Report(WalOutput),
    /// This append, of a record of `len` bytes, has replaced an earlier record of its op.
    Replaced { op: u64, ticket: u64, len: u64 },
}

impl Wal {
    /// Starts the next job when nothing is in flight. Jobs that need no disk are done at once.
    pub(super) fn pump(&mut self, out: &mut Vec<WalOutput>) {
        while self.in_flight.is_none() && !self.halted {
            let Some(job) = self.jobs.pop_front() else {
                return;
            };
            match job {
                Job::CreateDirs => self.submit(InFlight::CreateDirs, out),
                Job::CreateFile => self.submit(InFlight::CreateFile, out),
                Job::Cut { len } => self.cut(len, None, out),
                Job::Rewrite => self.rewrite(Then::Nothing, out),
                Job::Append { op, ticket, len } if self.replaces(op, ticket) => {
                    self.rewrite(Then::Replaced { op, ticket, len }, out);
                }
                Job::Append { op, ticket, len } => self.write_batch(op, ticket, len, out),
                Job::Truncate { from } => self.start_truncate(from, out),
                Job::Drain { checkpoint } => {
                    let drained = WalOutput::Drained {
                        checkpoint: Op(checkpoint),
                    };
                    if self.file.dead_bytes(&self.slots) >= self.config.rewrite_bytes_min.max(1) {
                        self.rewrite(Then::Report(drained), out);
                    } else {
                        out.push(drained);
                    }
                }
            }
        }
    }

    /// Whether a waiting append finds a prepare for its op in the file. Damage is no prepare: a
    /// repair is appended like anything else, and until then the damage is what is known.
    fn replaces(&self, op: u64, ticket: u64) -> bool {
        let Some(slot) = self.slots.get(&op).filter(|slot| slot.ticket == ticket) else {
            return false;
        };
        let previous = slot
            .previous
            .as_ref()
            .and_then(|stored| stored.content.message());
        previous.is_some() || self.file.has_dead(op)
    }

    /// Writes an append and the appends right behind it in one request.
    fn write_batch(&mut self, op: u64, ticket: u64, len: u64, out: &mut Vec<WalOutput>) {
        let mut written = Vec::new();
        let mut batch_len = 0;
        let mut next = Some((op, ticket, len));
        while let Some((op, ticket, len)) = next {
            let slot = self.slots.get(&op).filter(|slot| slot.ticket == ticket);
            // An append that was truncated or replaced while it waited is not written at all.
            if let Some(message) = slot.and_then(|slot| slot.content.message()) {
                let place = Place {
                    offset: self.file.len + batch_len,
                    len,
                };
                let content = Content::of(message.clone());
                written.push((
                    op,
                    Stored {
                        content,
                        ticket,
                        place,
                    },
                ));
                batch_len += len;
            } else {
                self.pending_bytes -= len;
            }
            next = match self.jobs.front() {
                Some(&Job::Append { op, ticket, len })
                    if batch_len + len <= self.config.batch_bytes_max
                        && !self.replaces(op, ticket) =>
                {
                    self.jobs.pop_front();
                    Some((op, ticket, len))
                }
                _ => None,
            };
        }
        if written.is_empty() {
            return;
        }
        let len = batch_len;
        self.submit(InFlight::Append { written, len }, out);
    }

    fn start_truncate(&mut self, from: u64, out: &mut Vec<WalOutput>) {
        let truncated = WalOutput::Truncated { from: Op(from) };
        match self.file.truncation(from, &self.slots) {
            Truncation::Nothing => out.push(truncated),
            Truncation::Cut { len } => self.cut(len, Some(truncated), out),
            Truncation::Rewrite => self.rewrite(Then::Report(truncated), out),
        }
    }

    fn cut(&mut self, len: u64, then: Option<WalOutput>, out: &mut Vec<WalOutput>) {
        self.submit(InFlight::Cut { len, then }, out);
    }

    /// Replaces the file by one that holds what it should hold by now and nothing else.
    fn rewrite(&mut self, then: Then, out: &mut Vec<WalOutput>) {
        self.submit(self.rewritten(then), out);
    }

    fn rewritten(&self, then: Then) -> InFlight {
        let replacing = match then {
            Then::Replaced { ticket, .. } => Some(ticket),
            Then::Nothing | Then::Report(_) => None,
        };
        let mut written = Vec::new();
        let mut file_len = 0;
        for (&op, slot) in &self.slots {
            let stored = if replacing == Some(slot.ticket) {
                Some((&slot.content, slot.ticket))
            } else {
                slot.stored()
            };
            let Some((content, ticket)) = stored else {
                continue;
            };
            let size = content.message().map_or(HEADER_SIZE, Message::size);
            let place = Place {
                offset: file_len,
                len: self.config.form.record_len(size),
            };
            file_len += place.len;
            written.push((
                op,
                Stored {
                    content: content.clone(),
                    ticket,
                    place,
                },
            ));
        }
        InFlight::Rewrite {
            written,
            len: file_len,
            then,
        }
    }

    fn submit(&mut self, in_flight: InFlight, out: &mut Vec<WalOutput>) {
        debug_assert!(self.in_flight.is_none(), "one request at a time");
        let op = self.op_of(&in_flight);
        self.token += 1;
        self.in_flight = Some(in_flight);
        let queue = self.config.queue;
        out.push(WalOutput::Disk(DiskRequest {
            queue,
            token: self.token,
            op,
        }));
    }

    /// The same bytes for the same place, however often it is asked: nothing else changes the
    /// file meanwhile.
    fn op_of(&self, in_flight: &InFlight) -> DiskOp {
        let path = self.config.path.clone();
        match in_flight {
            InFlight::CreateDirs => DiskOp::CreateDirs {
                path: path.parent().unwrap_or_else(DiskPath::root),
            },
            InFlight::CreateFile => DiskOp::Replace {
                path,
                data: Vec::new(),
            },
            InFlight::Append { written, .. } => DiskOp::Write {
                path,
                offset: self.file.len,
                data: self.encoded(written),
                sync: true,
            },
            InFlight::Cut { len, .. } => DiskOp::Truncate { path, len: *len },
            InFlight::Rewrite { written, .. } => DiskOp::Replace {
                path,
                data: self.encoded(written),
            },
        }
    }

    fn encoded(&self, written: &[(u64, Stored)]) -> Vec<Chunk> {
        let (form, scope) = (self.config.form, self.config.scope);
        let mut data = Vec::new();
        for (op, stored) in written {
            match stored.content.message() {
                Some(message) => form.encode(message, &mut data),
                None => form.encode_marker(scope, Op(*op), &mut data),
            }
        }
        data
    }

    /// A request found no room. It stays the one in flight, so that nothing overtakes it, and is
    /// made again by a tick. What an attempt left behind the end of the file is written over by
    /// the next, and a torn tail to whoever reads the file before.
    pub(super) fn wait_for_room(&mut self, refused: InFlight, error: DiskError) {
        self.in_flight = Some(match refused {
            // The length may have changed without being durable, and a sync that failed once may
            // report nothing the next time. A new file owes nothing to the old one.
            InFlight::Cut { then, .. } => self.rewritten(match then {
                Some(event) => Then::Report(event),
                None => Then::Nothing,
            }),
            same => same,
        });
        let pause = RETRY_TICKS;
        self.no_room = Some(NoRoom { error, pause });
    }

    /// Ten milliseconds passed: what found no room is tried again from time to time.
    pub fn tick(&mut self, out: &mut Vec<WalOutput>) {
        let Some(waiting) = self.no_room.as_mut().filter(|waiting| waiting.pause > 0) else {
            return;
        };
        waiting.pause -= 1;
        if waiting.pause == 0
            && let Some(refused) = self.in_flight.take()
        {
            self.submit(refused, out);
        }
    }
}
