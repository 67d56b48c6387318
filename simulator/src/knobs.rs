//! Rare paths of the cores, forced by values that the cores take anyway: a small buffer, an early
//! timeout, tiny chunks, refused ranges, short reads. The cores have no branch for these.

use biplane_partition_plane as partition;
use biplane_vsr::Timers;

use crate::prng::Prng;

/// One forced path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// Room for a few prepares and a few frames, and no more.
    SmallBuffers,
    /// Backups lose patience long before a primary is late.
    EarlyTimeouts,
    /// Repair and transfer go in the smallest pieces.
    TinyChunks,
    /// Hardly anything is kept for peers: who asks is told that it is gone.
    RefusedRanges,
    /// A read of messages brings less than a batch at a time.
    ShortReads,
    /// Peers are served from blocks read ahead, and what those that are away will ask for is hashed
    /// before.
    ReadsAhead,
}

/// The paths that are forced in a run, a set of [`Knob`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    forced: [bool; Knobs::NAMED.len()],
}

/// Each is forced in a quarter of runs.
const QUARTER: u32 = 250_000;

impl Knobs {
    /// Every knob with its name on the command line.
    pub const NAMED: [(Knob, &'static str); 6] = [
        (Knob::SmallBuffers, "buffers"),
        (Knob::EarlyTimeouts, "timeouts"),
        (Knob::TinyChunks, "chunks"),
        (Knob::RefusedRanges, "ranges"),
        (Knob::ShortReads, "reads"),
        (Knob::ReadsAhead, "ahead"),
    ];

    /// Each by draw.
    #[must_use]
    pub fn drawn(prng: &mut Prng) -> Self {
        Self {
            forced: std::array::from_fn(|_| prng.chance(QUARTER)),
        }
    }

    /// Those of a list with `+` between the names; `none` for none.
    ///
    /// # Errors
    ///
    /// A name that is none.
    pub fn from_names(text: &str) -> Result<Self, String> {
        let mut knobs = Self::default();
        for name in text.split('+').filter(|name| *name != "none") {
            let index = Self::NAMED.iter().position(|(_, known)| *known == name);
            knobs.forced[index.ok_or(format!("no knob {name}"))?] = true;
        }
        Ok(knobs)
    }

    /// Whether a path is forced.
    #[must_use]
    pub fn has(&self, knob: Knob) -> bool {
        let index = Self::NAMED.iter().position(|(known, _)| *known == knob);
        index.is_some_and(|index| self.forced[index])
    }

    /// What of the limits of partitions these change.
    pub fn limit(&self, limits: &mut partition::Limits) {
        if self.has(Knob::SmallBuffers) {
            limits.park_frames = limits.park_frames.min(2);
            limits.flush_batches_max = limits.flush_batches_max.min(2);
            limits.unflushed_bytes_max = limits.unflushed_bytes_max.min(16 << 10);
            limits.resident_bytes_max = limits.resident_bytes_max.min(32 << 10);
        }
        if self.has(Knob::TinyChunks) {
            limits.repair_chunk_max = 1;
            limits.transfer_chunk_bytes = limits.transfer_chunk_bytes.min(300);
            limits.transfer_hash_bytes = limits.transfer_hash_bytes.min(1 << 10);
        }
        if self.has(Knob::RefusedRanges) {
            limits.ring_entries = limits.ring_entries.min(5);
            limits.ring_stretch = 1;
        }
        if self.has(Knob::ShortReads) {
            limits.read_chunk_bytes = limits.read_chunk_bytes.min(300);
        }
        let reads = if self.has(Knob::ReadsAhead) { 3 } else { 1 };
        limits.transfer_hash_ahead = self.has(Knob::ReadsAhead);
        limits.transfer_hash_reads = reads;
        limits.transfer_block_bytes = reads * limits.transfer_chunk_bytes;
    }

    /// What of the intervals these change.
    #[must_use]
    pub fn time(&self, timers: Timers) -> Timers {
        if !self.has(Knob::EarlyTimeouts) {
            return timers;
        }
        Timers {
            // Three heartbeats may be late, not eight.
            heartbeat: (4 * timers.commit).min(timers.heartbeat),
            commit_idle: timers.commit,
            request_start_view: (timers.request_start_view / 2).max(2),
            ..timers
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_each_knob_changes_something() {
        for (knob, name) in Knobs::NAMED {
            let knobs = Knobs::from_names(name).expect("its own name");
            let others = Knobs::NAMED.iter().filter(|(other, _)| knobs.has(*other));
            assert!(knobs.has(knob) && others.count() == 1);
            for sizes in [partition::Limits::tiny(), partition::Limits::default()] {
                let (mut limits, mut unforced) = (sizes.clone(), sizes);
                knobs.limit(&mut limits);
                Knobs::default().limit(&mut unforced);
                let times = knobs.time(Timers::tiny());
                times.validate().expect("intervals that fit");
                let changed = format!("{limits:?}") != format!("{unforced:?}");
                assert!(changed || times != Timers::tiny(), "{name}");
            }
        }
        let both = Knobs::from_names("chunks+reads").expect("two names");
        assert!(both.has(Knob::TinyChunks) && both.has(Knob::ShortReads));
        assert_eq!(Knobs::from_names("none"), Ok(Knobs::default()));
        assert!(Knobs::from_names("nope").is_err());
    }
}
