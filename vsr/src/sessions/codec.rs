//! The table as bytes for a peer, and as values for a snapshot (chapter 03 sections 7.7, 7.8,
//! chapter 04 section 4.2).
//!
//! A transferred table carries the whole rings but not the slot numbers: sessions are packed
//! into the first slots. A snapshot keeps the slot numbers and only the newest reply of each.

use biplane_wire::{Checksum, ClientId, Command, Message, RequestNumber, xxh3};
use thiserror::Error;

use super::fences::Fence;
use super::{ClientTable, RING_MAX, SLOTS_MAX, Session};
use crate::mutation::mutated;

const MAGIC_WITH_FENCES: &[u8; 4] = b"ICT3";
const MAGIC_WITHOUT_FENCES: &[u8; 4] = b"ICT2";
const TRAILER_SIZE: usize = size_of::<u64>();

/// One slot in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSnapshot {
    /// Its number.
    pub slot: usize,
    /// The client.
    pub client: ClientId,
    /// Its epoch.
    pub epoch: u64,
    /// Its user.
    pub user_id: u32,
    /// Highest committed request.
    pub watermark: RequestNumber,
    /// Request checksum of that request.
    pub watermark_checksum: Checksum,
    /// The newest reply.
    pub reply: Message,
}

/// Why bytes or values are not a client table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableDecodeError {
    /// The trailer does not match.
    #[error("client table: the checksum does not match")]
    Checksum,
    /// Neither of the known layouts.
    #[error("client table: unknown layout")]
    Magic,
    /// The bytes end early.
    #[error("client table: it ends inside {field}")]
    Truncated {
        /// What was being read.
        field: &'static str,
    },
    /// More entries than any table has.
    #[error("client table: {count} {what} are more than 65536")]
    TooMany {
        /// Entries or fences.
        what: &'static str,
        /// How many were announced.
        count: u32,
    },
    /// A session without a reply, or with more than five.
    #[error("client table: {count} replies in one session")]
    RingLength {
        /// How many were announced.
        count: u8,
    },
    /// A cached reply is not a reply frame of the announced length.
    #[error("client table: a cached reply does not decode")]
    Reply,
    /// Two sessions of one client.
    #[error("client table: client {client} appears twice")]
    DuplicateClient {
        /// The client.
        client: ClientId,
    },
    /// Two sessions in one slot.
    #[error("client table: slot {slot} appears twice")]
    DuplicateSlot {
        /// The slot.
        slot: usize,
    },
    /// A slot number no table has.
    #[error("client table: slot {slot} is out of range")]
    SlotOutOfRange {
        /// The slot.
        slot: usize,
    },
    /// Bytes are left over.
    #[error("client table: {left} bytes too many")]
    Trailing {
        /// How many.
        left: usize,
    },
}

impl ClientTable {
    /// The table in the transfer layout with fences.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC_WITH_FENCES.to_vec();
        put_count(&mut out, self.len());
        for (_, session) in self.sessions() {
            out.extend_from_slice(&session.client.0.to_le_bytes());
            out.extend_from_slice(&session.epoch.to_le_bytes());
            out.extend_from_slice(&session.user_id.to_le_bytes());
            out.extend_from_slice(&session.watermark.0.to_le_bytes());
            out.extend_from_slice(&session.watermark_checksum.0.to_le_bytes());
            out.push(u8::try_from(session.ring.len()).expect("a ring has at most 5 replies"));
            for reply in &session.ring {
                put_reply(&mut out, Some(reply));
            }
        }
        put_count(&mut out, self.fences.len());
        for fence in self.fences.iter() {
            out.extend_from_slice(&fence.client.0.to_le_bytes());
            out.extend_from_slice(&fence.epoch.to_le_bytes());
            out.extend_from_slice(&fence.user_id.to_le_bytes());
            out.extend_from_slice(&fence.watermark.0.to_le_bytes());
            out.extend_from_slice(&fence.watermark_checksum.0.to_le_bytes());
            put_reply(&mut out, fence.reply.as_ref());
        }
        let trailer = xxh3(&out);
        out.extend_from_slice(&trailer.to_le_bytes());
        out
    }

    /// A table from either transfer layout. It has `capacity` slots, or more if it holds more
    /// sessions; of more fences than slots the oldest go.
    ///
    /// # Errors
    ///
    /// The first rule the bytes break; they may come from a peer.
    ///
    /// # Panics
    ///
    /// When the capacity is not in 2..=65536.
    pub fn decode(bytes: &[u8], capacity: usize) -> Result<Self, TableDecodeError> {
        let Some(split) = bytes.len().checked_sub(TRAILER_SIZE) else {
            return Err(TableDecodeError::Checksum);
        };
        let (content, trailer) = bytes.split_at(split);
        if xxh3(content).to_le_bytes() != trailer {
            return Err(TableDecodeError::Checksum);
        }
        let mut reader = Reader { rest: content };
        let with_fences = match reader.take::<4>("magic")? {
            magic if &magic == MAGIC_WITH_FENCES => true,
            magic if &magic == MAGIC_WITHOUT_FENCES => false,
            _ => return Err(TableDecodeError::Magic),
        };
        let count = reader.count("entries")?;
        let mut table = Self::new(capacity.max(count));
        for slot in 0..count {
            let session = reader.session()?;
            if mutated!(TableNotInstalled) {
                continue;
            }
            if table.get(session.client).is_some() {
                return Err(TableDecodeError::DuplicateClient {
                    client: session.client,
                });
            }
            table.place(slot, session);
        }
        if with_fences {
            let count = reader.count("fences")?;
            let fences: Result<Vec<_>, _> = (0..count).map(|_| reader.fence()).collect();
            table.fences.load(fences?);
        }
        match reader.rest.len() {
            0 => Ok(table),
            left => Err(TableDecodeError::Trailing { left }),
        }
    }

    /// The slots for a snapshot, ascending; fences are in [`ClientTable::fences`].
    pub fn snapshot(&self) -> impl Iterator<Item = SlotSnapshot> + '_ {
        self.sessions().map(|(slot, session)| SlotSnapshot {
            slot,
            client: session.client,
            epoch: session.epoch,
            user_id: session.user_id,
            watermark: session.watermark,
            watermark_checksum: session.watermark_checksum,
            reply: session.latest_reply().clone(),
        })
    }

    /// A table from a snapshot, every session in its old slot. It has `capacity` slots, or more
    /// if an occupied one lies higher.
    ///
    /// # Errors
    ///
    /// Slots that no table has, or two of a kind; such a snapshot must not be started from.
    ///
    /// # Panics
    ///
    /// When the capacity is not in 2..=65536.
    pub fn restore(
        capacity: usize,
        slots: impl IntoIterator<Item = SlotSnapshot>,
        fences: impl IntoIterator<Item = Fence>,
    ) -> Result<Self, TableDecodeError> {
        let slots: Vec<SlotSnapshot> = slots.into_iter().collect();
        let highest = slots.iter().map(|held| held.slot).max();
        if let Some(slot) = highest.filter(|slot| *slot >= SLOTS_MAX) {
            return Err(TableDecodeError::SlotOutOfRange { slot });
        }
        let mut table = Self::new(capacity.max(highest.map_or(0, |slot| slot + 1)));
        for held in slots {
            if held.reply.command() != Command::Reply {
                return Err(TableDecodeError::Reply);
            }
            if table.get(held.client).is_some() {
                return Err(TableDecodeError::DuplicateClient {
                    client: held.client,
                });
            }
            if table.slots[held.slot].is_some() {
                return Err(TableDecodeError::DuplicateSlot { slot: held.slot });
            }
            let mut session = Session {
                client: held.client,
                epoch: held.epoch,
                user_id: held.user_id,
                watermark: held.watermark,
                watermark_checksum: held.watermark_checksum,
                ring: vec![held.reply],
                latest_commit: 0,
            };
            session.refresh_latest_commit();
            table.place(held.slot, session);
        }
        let fences: Vec<Fence> = fences.into_iter().collect();
        let mut replies = fences.iter().filter_map(|fence| fence.reply.as_ref());
        if replies.any(|reply| reply.command() != Command::Reply) {
            return Err(TableDecodeError::Reply);
        }
        table.fences.load(fences);
        Ok(table)
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a table has at most 65536 of anything");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_reply(out: &mut Vec<u8>, reply: Option<&Message>) {
    let size = reply.map_or(0, Message::size);
    let size = u32::try_from(size).expect("a frame fits its size field");
    out.extend_from_slice(&size.to_le_bytes());
    for slice in reply.iter().flat_map(|reply| reply.slices()) {
        out.extend_from_slice(slice);
    }
}

/// Cuts values off the front of foreign bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], TableDecodeError> {
        let Some((value, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(TableDecodeError::Truncated { field });
        };
        self.rest = rest;
        Ok(*value)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, TableDecodeError> {
        self.take(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, TableDecodeError> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn u128(&mut self, field: &'static str) -> Result<u128, TableDecodeError> {
        self.take(field).map(u128::from_le_bytes)
    }

    fn count(&mut self, what: &'static str) -> Result<usize, TableDecodeError> {
        let count = self.u32(what)?;
        match usize::try_from(count) {
            Ok(count) if count <= SLOTS_MAX => Ok(count),
            _ => Err(TableDecodeError::TooMany { what, count }),
        }
    }

    fn session(&mut self) -> Result<Session, TableDecodeError> {
        let client = ClientId(self.u128("client")?);
        let epoch = self.u64("epoch")?;
        let user_id = self.u32("user")?;
        let watermark = RequestNumber(self.u64("watermark")?);
        let watermark_checksum = Checksum(self.u128("watermark checksum")?);
        let [count] = self.take("ring length")?;
        if !(1..=RING_MAX).contains(&usize::from(count)) {
            return Err(TableDecodeError::RingLength { count });
        }
        let mut ring = Vec::with_capacity(RING_MAX);
        for _ in 0..count {
            ring.push(self.reply()?.ok_or(TableDecodeError::Reply)?);
        }
        let mut session = Session {
            client,
            epoch,
            user_id,
            watermark,
            watermark_checksum,
            ring,
            latest_commit: 0,
        };
        session.refresh_latest_commit();
        Ok(session)
    }

    fn fence(&mut self) -> Result<Fence, TableDecodeError> {
        Ok(Fence {
            client: ClientId(self.u128("fence client")?),
            epoch: self.u64("fence epoch")?,
            user_id: self.u32("fence user")?,
            watermark: RequestNumber(self.u64("fence watermark")?),
            watermark_checksum: Checksum(self.u128("fence checksum")?),
            reply: self.reply()?,
        })
    }

    /// A reply frame under its length; `None` for length 0.
    fn reply(&mut self) -> Result<Option<Message>, TableDecodeError> {
        let length = self.u32("reply length")? as usize;
        if length == 0 {
            return Ok(None);
        }
        let Some((frame, rest)) = self.rest.split_at_checked(length) else {
            return Err(TableDecodeError::Truncated { field: "reply" });
        };
        self.rest = rest;
        let message = Message::from_bytes(frame).map_err(|_| TableDecodeError::Reply)?;
        if message.command() != Command::Reply {
            return Err(TableDecodeError::Reply);
        }
        Ok(Some(message))
    }
}
