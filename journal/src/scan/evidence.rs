//! Whether bytes at the end of a file were never written as they should have been.
//!
//! An interrupted write leaves some of its sectors as they were before, which beyond the old
//! end of the file means zeros, or full of something else altogether. Data that was written and
//! went bad later looks different: most of it is still there. The difference decides whether
//! the last record is cut off or counts as damaged, so only signs that a whole sector is wrong
//! are taken, and none where a prepare may legitimately look like that.

use biplane_wire::{HEADER_SIZE, Header, PrepareHeader};

use super::reader::{READ_BYTES, Reader};
use crate::disk::DiskError;
use crate::memory_disk::SECTOR_BYTES;
use crate::record::{LogScope, RecordForm};

/// Shortest run of zeros that tells where the bytes there are never all zeros: a header starts
/// with its identity, a sealed record ends with its seal.
const ZEROS_MIN: usize = 16;
/// Shortest run of zeros at the end of a bare record, whose body may end in some.
const ZEROS_MIN_BARE_END: usize = 64;
/// Fewest fixed bytes of a header in a sector by which it is judged.
const FIXED_BYTES_MIN: usize = 16;

/// Bytes at the end of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    /// A record must have started at `start`.
    pub(super) starts_record: bool,
}

/// Whether some sector of the stretch was never written.
pub(super) fn was_interrupted(
    reader: &mut Reader<'_>,
    scope: LogScope,
    form: RecordForm,
    stretch: Stretch,
) -> Result<bool, DiskError> {
    let Stretch {
        start,
        end,
        starts_record,
    } = stretch;
    if starts_record
        && let Some(header) = reader.header(start)?
        && has_garbled_sector(&header, scope, start)
        && !reader.is_unreadable(start, end)
    {
        return Ok(true);
    }
    let mut piece = vec![0; READ_BYTES];
    let mut offset = start;
    let mut found = false;
    while offset < end {
        // Pieces end at sector boundaries, so no sector is split between two of them.
        let stop = (offset / SECTOR_BYTES * SECTOR_BYTES + READ_BYTES as u64).min(end);
        let bytes = &mut piece[..(stop - offset) as usize];
        reader.read_exact(offset, bytes)?;
        found |= has_zero_sector(bytes, form, offset, start, end);
        offset = stop;
    }
    Ok(found && !reader.is_unreadable(start, end))
}

/// Splits bytes that stand at `offset` at sector boundaries.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut position = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let in_sector = (SECTOR_BYTES - position % SECTOR_BYTES) as usize;
        let (sector, after) = rest.split_at(in_sector.min(rest.len()));
        let at = position;
        position += sector.len() as u64;
        rest = after;
        Some((at, sector))
    })
}

fn has_zero_sector(bytes: &[u8], form: RecordForm, offset: u64, start: u64, end: u64) -> bool {
    sectors(offset, bytes).any(|(at, sector)| {
        let is_end = at + sector.len() as u64 == end;
        let zeros_min = match form {
            _ if at == start => ZEROS_MIN,
            RecordForm::Sealed if is_end => ZEROS_MIN,
            // Any payload may have zeros in its middle.
            RecordForm::Sealed => return false,
            RecordForm::Bare if is_end => ZEROS_MIN_BARE_END,
            RecordForm::Bare => SECTOR_BYTES as usize,
        };
        sector.len() >= zeros_min && sector.iter().all(|byte| *byte == 0)
    })
}

/// Whether the header at `start` has next to none of the bytes that every header of this log
/// has, in some sector of it. A bit or a few that went bad leave most of them.
fn has_garbled_sector(header: &[u8; HEADER_SIZE], scope: LogScope, start: u64) -> bool {
    let fixed = fixed_bytes(scope);
    let mut index = 0;
    sectors(start, header).any(|(_, sector)| {
        let known = fixed[index..index + sector.len()].iter().zip(sector);
        index += sector.len();
        let (mut count, mut wrong) = (0, 0);
        for (byte, found) in known.filter_map(|(byte, found)| byte.map(|byte| (byte, *found))) {
            count += 1;
            wrong += usize::from(byte != found);
        }
        count >= FIXED_BYTES_MIN && wrong * 2 > count
    })
}

/// The bytes that all headers of a log share; `None` where they differ.
fn fixed_bytes(scope: LogScope) -> [Option<u8>; HEADER_SIZE] {
    let mut header = PrepareHeader::new(biplane_wire::Command::Prepare);
    header.frame.set_cluster(scope.cluster);
    header.set_group(scope.group);
    let is_fixed = |index: usize| matches!(index, 32..48 | 60 | 62..128 | 209..224 | 228..256);
    let mut fixed = [None; HEADER_SIZE];
    for (index, byte) in header.bytes().iter().enumerate() {
        if is_fixed(index) {
            fixed[index] = Some(*byte);
        }
    }
    fixed
}
