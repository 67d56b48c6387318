//! The bytes of one file: what readers see, what a crash cannot take, and the writes in between.
//!
//! A write changes the visible side at once and waits as [`Pending`]; a sync moves it to the
//! durable side. Damage is an overlay on top of both, so that healing it is exact and pristine
//! bytes never get lost.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::prng::Prng;

/// The unit in which unsynced bytes survive a crash or not, and in which damage strikes.
pub const SECTOR: u64 = 512;

/// How a crash treats what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
    /// Everything had reached the disk.
    KeepAll,
    /// Nothing had.
    LoseAll,
    /// A prefix of the changes had, in the order they were made.
    Prefix,
    /// Each change meets its own fate.
    Subset,
    /// Each change meets its own fate, and writes may be torn or garbled.
    Torn,
}

/// What happens to one unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It had reached the disk.
    Keep,
    /// It had not.
    Lose,
    /// Some of its sectors had.
    Tear,
    /// Its sectors hold something, but not what was written.
    Garble,
}

/// Draws fates in one mode.
#[derive(Debug)]
pub struct Fates<'a> {
    mode: CrashMode,
    keep_first: u64,
    seen: u64,
    /// Changes of which only a part, or garbage, was kept.
    pub torn: u64,
    prng: &'a mut Prng,
}

impl<'a> Fates<'a> {
    /// For a crash that finds `changes` unsynced changes.
    pub fn new(mode: CrashMode, changes: u64, prng: &'a mut Prng) -> Self {
        let keep_first = prng.below(changes + 1);
        Self {
            mode,
            keep_first,
            seen: 0,
            torn: 0,
            prng,
        }
    }

    /// The fate of the next change.
    pub fn next(&mut self) -> Fate {
        self.seen += 1;
        match self.mode {
            CrashMode::KeepAll => Fate::Keep,
            CrashMode::LoseAll => Fate::Lose,
            CrashMode::Prefix if self.seen <= self.keep_first => Fate::Keep,
            CrashMode::Prefix => Fate::Lose,
            CrashMode::Subset if self.prng.chance(500_000) => Fate::Keep,
            CrashMode::Subset => Fate::Lose,
            CrashMode::Torn => {
                let fate = match self.prng.weighted(&[3, 3, 3, 1]) {
                    0 => Fate::Keep,
                    1 => Fate::Lose,
                    2 => Fate::Tear,
                    _ => Fate::Garble,
                };
                self.torn += u64::from(matches!(fate, Fate::Tear | Fate::Garble));
                fate
            }
        }
    }
}

/// A change of a file that no sync has covered.
#[derive(Clone, Debug)]
enum Pending {
    Data {
        offset: u64,
        bytes: Vec<u8>,
        abandoned: bool,
    },
    Length {
        len: u64,
        abandoned: bool,
    },
}

impl Pending {
    fn abandoned(&self) -> bool {
        match self {
            Self::Data { abandoned, .. } | Self::Length { abandoned, .. } => *abandoned,
        }
    }

    fn abandon(&mut self) {
        match self {
            Self::Data { abandoned, .. } | Self::Length { abandoned, .. } => *abandoned = true,
        }
    }

    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Data { offset, bytes, .. } => overwrite(to, *offset, bytes),
            Self::Length { len, .. } => to.resize(*len as usize, 0),
        }
    }
}

/// Why a sector reads as something else than was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// A write went to another place.
    Misplaced,
    /// A read came from another place; until the power is off.
    Misread,
    /// A write never happened.
    Unwritten,
}

/// Damage of one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Every read returns the bytes changed in the same way.
    Rot {
        /// Position within the sector.
        at: u16,
        /// Flipped bits of that byte; not zero.
        mask: u8,
    },
    /// Every read fails.
    Unreadable,
    /// Every read returns these bytes.
    Other {
        /// The bytes of the whole sector.
        bytes: Box<[u8; SECTOR as usize]>,
        /// How it came to that.
        why: Stray,
    },
}

impl Damage {
    fn is_stray(&self, of: Stray) -> bool {
        matches!(self, Self::Other { why, .. } if *why == of)
    }
}

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub struct FileContent {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    damage: BTreeMap<u64, Damage>,
    generation: u64,
    /// What stood under the last write of each byte, where that is kept.
    before: Option<Vec<u8>>,
    /// Whether a read brought the bytes of another place.
    misread: Cell<bool>,
}

impl FileContent {
    /// A file whose content is durable.
    #[must_use]
    pub fn durable_from(bytes: Vec<u8>) -> Self {
        Self {
            visible: bytes.clone(),
            durable: bytes,
            ..Self::default()
        }
    }

    /// Length as readers see it, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.visible.len() as u64
    }

    /// The bytes a crash cannot take, without damage.
    #[must_use]
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Rises with each change of the durable side.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes into the volatile side.
    pub fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if let Some(before) = &mut self.before {
            let end = offset as usize + bytes.len();
            let old = self.visible.get(offset as usize..).unwrap_or(&[]);
            let mut old = old[..old.len().min(bytes.len())].to_vec();
            old.resize(bytes.len(), 0);
            before.resize(before.len().max(end), 0);
            before[offset as usize..end].copy_from_slice(&old);
        }
        overwrite(&mut self.visible, offset, &bytes);
        self.forget_damage(offset, bytes.len() as u64);
        self.pending.push(Pending::Data {
            offset,
            bytes,
            abandoned: false,
        });
    }

    /// Changes the length on the volatile side.
    pub fn set_len(&mut self, len: u64) {
        self.visible.resize(len as usize, 0);
        if let Some(before) = &mut self.before {
            before.truncate(len as usize);
        }
        self.damage.split_off(&len.div_ceil(SECTOR));
        self.pending.push(Pending::Length {
            len,
            abandoned: false,
        });
    }

    /// Makes what was written durable, except what an earlier sync failed on.
    pub fn sync(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.generation += 1;
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if change.abandoned() {
                self.pending.push(change);
            } else {
                change.apply(&mut self.durable);
            }
        }
    }

    /// A sync failed: what it should have covered may or may not be there, and no later sync
    /// says so.
    pub fn fail_sync(&mut self) {
        self.pending.iter_mut().for_each(Pending::abandon);
    }

    /// Number of changes that no sync has covered.
    #[must_use]
    pub fn unsynced(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Whether the bytes under later writes are kept from now on.
    pub fn remember(&mut self, keep: bool) {
        if keep {
            self.before.get_or_insert_default();
        }
    }

    /// What stood at a place before it was written last; zeros where that is not known.
    #[must_use]
    pub fn before(&self, place: &Range<u64>) -> Vec<u8> {
        let kept = self.before.as_deref().unwrap_or(&[]);
        let kept = kept.get(place.start as usize..).unwrap_or(&[]);
        let len = (place.end - place.start) as usize;
        let mut bytes = kept[..kept.len().min(len)].to_vec();
        bytes.resize(len, 0);
        bytes
    }

    /// Whether what is at a place was synced and nothing has changed it since.
    #[must_use]
    pub fn is_settled(&self, place: &Range<u64>) -> bool {
        let range = place.start as usize..place.end as usize;
        let durable = self.durable.get(range.clone());
        durable.is_some() && durable == self.visible.get(range)
    }

    /// Reads bring other bytes from `offset` on.
    pub fn stray(&mut self, offset: u64, bytes: &[u8], why: Stray) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % SECTOR) as usize;
            let count = (SECTOR as usize - within).min(bytes.len() - done);
            let mut sector = Box::new([0; SECTOR as usize]);
            match self.damage.get(&(at / SECTOR)) {
                Some(Damage::Other { bytes, .. }) => sector.clone_from(bytes),
                _ => {
                    let start = (at - within as u64) as usize;
                    let rest = self.visible.get(start..).unwrap_or(&[]);
                    let len = rest.len().min(sector.len());
                    sector[..len].copy_from_slice(&rest[..len]);
                }
            }
            sector[within..within + count].copy_from_slice(&bytes[done..done + count]);
            let damage = Damage::Other { bytes: sector, why };
            self.damage.insert(at / SECTOR, damage);
            done += count;
        }
    }

    /// Whether a read of these bytes meets a stray of a kind.
    #[must_use]
    pub fn meets(&self, offset: u64, len: usize, why: Stray) -> bool {
        let met = self.damage_at(offset, len).any(|it| it.is_stray(why));
        if met && why == Stray::Misread {
            self.misread.set(true);
        }
        met
    }

    fn damage_at(&self, offset: u64, len: usize) -> impl Iterator<Item = &Damage> {
        let end = offset.saturating_add(len as u64).min(self.size());
        let sectors = offset / SECTOR..end.div_ceil(SECTOR).max(offset / SECTOR);
        self.damage.range(sectors).map(|(_, damage)| damage)
    }

    /// Power off and on.
    pub fn crash(&mut self, fates: &mut Fates<'_>) {
        if self.misread.take() {
            self.damage
                .retain(|_, damage| !damage.is_stray(Stray::Misread));
        }
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() && self.visible.len() == self.durable.len() {
            return;
        }
        self.generation += 1;
        for change in pending {
            match fates.next() {
                Fate::Keep => change.apply(&mut self.durable),
                Fate::Lose => {}
                fate => self.crash_data(change, fate, fates.prng),
            }
        }
        self.visible.clone_from(&self.durable);
    }

    fn crash_data(&mut self, change: Pending, fate: Fate, prng: &mut Prng) {
        let Pending::Data {
            offset, mut bytes, ..
        } = change
        else {
            return;
        };
        let prefix_only = prng.chance(500_000);
        let stop = prng.below(bytes.len() as u64 + 1);
        let mut start = 0u64;
        while start < bytes.len() as u64 {
            let position = offset + start;
            let end = (start + SECTOR - position % SECTOR).min(bytes.len() as u64);
            let part = &mut bytes[start as usize..end as usize];
            let keep = if prefix_only {
                end <= stop
            } else {
                prng.chance(500_000)
            };
            if keep && fate == Fate::Garble {
                part.iter_mut().for_each(|byte| *byte = prng.bits() as u8);
            }
            if keep {
                overwrite(&mut self.durable, position, part);
            }
            start = end;
        }
    }

    /// Reads visible bytes as the hardware returns them; `None` when a sector cannot be read.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.visible.get(start..).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        if self.damage.is_empty() || count == 0 {
            return Some(count);
        }
        let end = offset + count as u64;
        for (&sector, damage) in self.damage.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            match damage {
                Damage::Unreadable => return None,
                Damage::Other { bytes, .. } => {
                    let start = (sector * SECTOR).max(offset);
                    let stop = ((sector + 1) * SECTOR).min(end);
                    let within = (start - sector * SECTOR) as usize;
                    let len = (stop - start) as usize;
                    let from = (start - offset) as usize;
                    into[from..from + len].copy_from_slice(&bytes[within..within + len]);
                }
                &Damage::Rot { at, mask } => {
                    let position = sector * SECTOR + u64::from(at);
                    if (offset..end).contains(&position) {
                        into[(position - offset) as usize] ^= mask;
                    }
                }
            }
        }
        Some(count)
    }

    /// Whether a read of these bytes meets damage.
    #[must_use]
    pub fn is_damaged(&self, offset: u64, len: usize) -> bool {
        let is_hurt = |damage: &Damage| !matches!(damage, Damage::Other { .. });
        self.damage_at(offset, len).any(is_hurt)
    }

    /// Damages the sector at `position`; false when the file ends before.
    pub fn damage(&mut self, position: u64, damage: Damage) -> bool {
        if position >= self.size() {
            return false;
        }
        self.damage.insert(position / SECTOR, damage);
        true
    }

    /// Takes all damage back.
    pub fn heal(&mut self) {
        self.damage.clear();
    }

    /// Number of damaged sectors.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.damage.len()
    }

    /// New bytes are good bytes: a sector that is written again works again.
    fn forget_damage(&mut self, offset: u64, len: u64) {
        if self.damage.is_empty() || len == 0 {
            return;
        }
        let first = offset / SECTOR;
        let end = (offset + len).div_ceil(SECTOR);
        let hit: Vec<u64> = self
            .damage
            .range(first..end)
            .map(|(&sector, _)| sector)
            .collect();
        for sector in hit {
            self.damage.remove(&sector);
        }
    }
}

fn overwrite(to: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[start..end].copy_from_slice(bytes);
}
