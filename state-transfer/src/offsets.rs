//! The CONSUMER_OFFSETS artifact: what a partition is besides its messages (chapter 04 section
//! 4.4).
//!
//! ```text
//! "ICO1" | version u8 | purge generation u64 | next offset u64
//! | consumers u32 | groups u32 | dedup u32
//! | { id u32, offset u64 }* | { id u32, offset u64 }*
//! | { client u128, watermark u64, latest commit u64, user u32, window u128 }*
//! | present u8 | checksum u128 | prepare length u32 | prepare
//! | XXH3 (u64) over everything before it
//! ```
//!
//! An earlier layout under the same magic and version has neither the deduplication table nor
//! the checkpoint. It is read when the length fits it exactly, which no artifact of the present
//! layout can: with the same counts that one is at least 25 bytes longer.

use biplane_wire::{Checksum, ClientId, Message, Op, xxh3};

use crate::limits::{CHECKPOINT_PREPARE_BYTES_MAX, OFFSETS_ENTRIES_MAX};

const MAGIC: [u8; 4] = *b"ICO1";
const VERSION: u8 = 1;
const STORED_SIZE: usize = 12;
const DEDUP_SIZE: usize = 52;
const EARLIER_FIXED: u64 = 29 + 8;

/// A stored position of a consumer or of a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    /// Numeric consumer id, or id of the group.
    pub id: u32,
    /// The last offset it stored.
    pub offset: u64,
}

/// The request window of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupEntry {
    /// The client, not zero.
    pub client: ClientId,
    /// Its highest committed request.
    pub watermark: u64,
    /// Op of its newest committed request: the order of eviction.
    pub latest_commit: Op,
    /// Its user.
    pub user_id: u32,
    /// Bit i says that request `watermark - i` is committed.
    pub committed_window: u128,
}

/// What is known about the prepare at the op of the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// Nothing: the parent of the next prepare can not be compared with anything.
    #[default]
    Unknown,
    /// Its identity, and the prepare itself where it was at hand.
    Known {
        /// Identity; zero at op 0, whose chain is known to be empty.
        checksum: Checksum,
        /// Header and body, in stored form.
        prepare: Option<Message>,
    },
}

/// The artifact as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerOffsets {
    /// Purge generation applied on the server.
    pub purge_generation: u64,
    /// Offset the next message will get.
    pub next_offset: u64,
    /// Positions of consumers, strictly ascending by id.
    pub consumers: Vec<StoredOffset>,
    /// Positions of consumer groups, strictly ascending by id.
    pub groups: Vec<StoredOffset>,
    /// Windows of producers, strictly ascending by client.
    pub dedup: Vec<DedupEntry>,
    /// The prepare at the op of the artifact.
    pub checkpoint: Checkpoint,
}

/// Why bytes are not such an artifact, or values can not become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffsetsError {
    /// The checkpoint flag is neither 0 nor 1.
    #[error("the checkpoint flag is {0}")]
    BadFlag(u8),
    /// The magic is not `ICO1`.
    #[error("the artifact has another magic")]
    BadMagic,
    /// The checkpoint prepare is not a frame of the length given.
    #[error("the checkpoint prepare is not a frame")]
    BadPrepare,
    /// Another version.
    #[error("the artifact has version {0}")]
    BadVersion(u8),
    /// The trailer does not match.
    #[error("the artifact does not match its checksum")]
    Checksum,
    /// Ids or clients repeat or descend.
    #[error("a table is not in strictly ascending order")]
    NotAscending,
    /// The checkpoint prepare is larger than a prepare may be.
    #[error("the checkpoint prepare is too large")]
    PrepareTooLarge,
    /// A table has more entries than it may.
    #[error("a table has too many entries")]
    TooManyEntries,
    /// Bytes are left over.
    #[error("the artifact is followed by other bytes")]
    TrailingBytes,
    /// Bytes are missing.
    #[error("the artifact is shorter than it says")]
    Truncated,
    /// The checkpoint is absent and yet has a value.
    #[error("an absent checkpoint has a value")]
    UnexpectedCheckpoint,
    /// A producer without client id.
    #[error("a producer has client id zero")]
    ZeroClient,
}

impl ConsumerOffsets {
    /// The purge generation of an artifact, without decoding the rest.
    #[must_use]
    pub fn purge_generation_of(bytes: &[u8]) -> Option<u64> {
        let generation = bytes.get(5..13)?.first_chunk()?;
        Some(u64::from_le_bytes(*generation))
    }

    /// The bytes of the artifact.
    ///
    /// # Errors
    ///
    /// Which rule the values break; such a partition has no offer to make.
    pub fn encode(&self) -> Result<Vec<u8>, OffsetsError> {
        let counts = [self.consumers.len(), self.groups.len(), self.dedup.len()];
        check_ascending(self.consumers.iter().map(|stored| stored.id))?;
        check_ascending(self.groups.iter().map(|stored| stored.id))?;
        check_dedup(&self.dedup)?;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.purge_generation.to_le_bytes());
        bytes.extend_from_slice(&self.next_offset.to_le_bytes());
        for count in counts {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            check_count(count)?;
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        for stored in self.consumers.iter().chain(&self.groups) {
            bytes.extend_from_slice(&stored.id.to_le_bytes());
            bytes.extend_from_slice(&stored.offset.to_le_bytes());
        }
        for entry in &self.dedup {
            bytes.extend_from_slice(&entry.client.0.to_le_bytes());
            bytes.extend_from_slice(&entry.watermark.to_le_bytes());
            bytes.extend_from_slice(&entry.latest_commit.0.to_le_bytes());
            bytes.extend_from_slice(&entry.user_id.to_le_bytes());
            bytes.extend_from_slice(&entry.committed_window.to_le_bytes());
        }
        self.encode_checkpoint(&mut bytes)?;
        let trailer = xxh3(&bytes);
        bytes.extend_from_slice(&trailer.to_le_bytes());
        Ok(bytes)
    }

    fn encode_checkpoint(&self, bytes: &mut Vec<u8>) -> Result<(), OffsetsError> {
        let (present, checksum, prepare) = match &self.checkpoint {
            Checkpoint::Unknown => (0, Checksum::ZERO, None),
            Checkpoint::Known { checksum, prepare } => (1, *checksum, prepare.as_ref()),
        };
        let length = prepare.map_or(0, Message::size);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if length > CHECKPOINT_PREPARE_BYTES_MAX {
            return Err(OffsetsError::PrepareTooLarge);
        }
        bytes.push(present);
        bytes.extend_from_slice(&checksum.0.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        for slice in prepare.iter().flat_map(|prepare| prepare.slices()) {
            bytes.extend_from_slice(slice);
        }
        Ok(())
    }

    /// Reads an artifact of either layout.
    ///
    /// # Errors
    ///
    /// The first rule of section 4.4.2 that fails.
    pub fn decode(bytes: &[u8]) -> Result<Self, OffsetsError> {
        let (sealed, trailer) = bytes
            .split_last_chunk::<8>()
            .ok_or(OffsetsError::Checksum)?;
        if u64::from_le_bytes(*trailer) != xxh3(sealed) {
            return Err(OffsetsError::Checksum);
        }
        let mut reader = Reader { rest: sealed };
        if reader.take::<4>()? != MAGIC {
            return Err(OffsetsError::BadMagic);
        }
        let [version] = reader.take()?;
        if version != VERSION {
            return Err(OffsetsError::BadVersion(version));
        }
        let purge_generation = reader.u64()?;
        let next_offset = reader.u64()?;
        let consumer_count = reader.u32()?;
        let group_count = reader.u32()?;
        let stored = u64::from(consumer_count) + u64::from(group_count);
        let earlier = bytes.len() as u64 == EARLIER_FIXED + STORED_SIZE as u64 * stored;
        let dedup_count = if earlier { 0 } else { reader.u32()? };
        let consumers = reader.stored(consumer_count)?;
        let groups = reader.stored(group_count)?;
        let dedup = reader.dedup(dedup_count)?;
        let checkpoint = if earlier {
            Checkpoint::Unknown
        } else {
            reader.checkpoint()?
        };
        if !reader.rest.is_empty() {
            return Err(OffsetsError::TrailingBytes);
        }
        Ok(Self {
            purge_generation,
            next_offset,
            consumers,
            groups,
            dedup,
            checkpoint,
        })
    }
}

/// A cursor over foreign bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], OffsetsError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(OffsetsError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, OffsetsError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, OffsetsError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, OffsetsError> {
        self.take().map(u128::from_le_bytes)
    }

    /// The bytes of a table, before anything is allocated for it.
    fn table(&mut self, count: u32, size: usize) -> Result<&'a [u8], OffsetsError> {
        check_count(count)?;
        let length = (count as usize)
            .checked_mul(size)
            .ok_or(OffsetsError::Truncated)?;
        let (table, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(OffsetsError::Truncated)?;
        self.rest = rest;
        Ok(table)
    }

    fn stored(&mut self, count: u32) -> Result<Vec<StoredOffset>, OffsetsError> {
        let mut table = Reader {
            rest: self.table(count, STORED_SIZE)?,
        };
        let mut entries = Vec::with_capacity(count as usize);
        while !table.rest.is_empty() {
            entries.push(StoredOffset {
                id: table.u32()?,
                offset: table.u64()?,
            });
        }
        check_ascending(entries.iter().map(|stored| stored.id))?;
        Ok(entries)
    }

    fn dedup(&mut self, count: u32) -> Result<Vec<DedupEntry>, OffsetsError> {
        let mut table = Reader {
            rest: self.table(count, DEDUP_SIZE)?,
        };
        let mut entries = Vec::with_capacity(count as usize);
        while !table.rest.is_empty() {
            entries.push(DedupEntry {
                client: ClientId(table.u128()?),
                watermark: table.u64()?,
                latest_commit: Op(table.u64()?),
                user_id: table.u32()?,
                committed_window: table.u128()?,
            });
        }
        check_dedup(&entries)?;
        Ok(entries)
    }

    fn checkpoint(&mut self) -> Result<Checkpoint, OffsetsError> {
        let [present] = self.take()?;
        let checksum = Checksum(self.u128()?);
        let length = self.u32()?;
        match present {
            0 if !checksum.is_zero() || length != 0 => {
                return Err(OffsetsError::UnexpectedCheckpoint);
            }
            0 => return Ok(Checkpoint::Unknown),
            1 => {}
            flag => return Err(OffsetsError::BadFlag(flag)),
        }
        if length > CHECKPOINT_PREPARE_BYTES_MAX {
            return Err(OffsetsError::PrepareTooLarge);
        }
        let (bytes, rest) = self
            .rest
            .split_at_checked(length as usize)
            .ok_or(OffsetsError::Truncated)?;
        self.rest = rest;
        let prepare = match length {
            0 => None,
            _ => Some(Message::from_bytes(bytes).map_err(|_| OffsetsError::BadPrepare)?),
        };
        Ok(Checkpoint::Known { checksum, prepare })
    }
}

fn check_count(count: u32) -> Result<(), OffsetsError> {
    if count <= OFFSETS_ENTRIES_MAX {
        Ok(())
    } else {
        Err(OffsetsError::TooManyEntries)
    }
}

fn check_ascending<T: PartialOrd>(ids: impl Iterator<Item = T>) -> Result<(), OffsetsError> {
    let mut last = None;
    for id in ids {
        if last.is_some_and(|last| last >= id) {
            return Err(OffsetsError::NotAscending);
        }
        last = Some(id);
    }
    Ok(())
}

fn check_dedup(entries: &[DedupEntry]) -> Result<(), OffsetsError> {
    if entries.iter().any(|entry| entry.client == ClientId(0)) {
        return Err(OffsetsError::ZeroClient);
    }
    check_ascending(entries.iter().map(|entry| entry.client))
}
