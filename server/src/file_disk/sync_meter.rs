//! How long the disk takes to make things durable: a histogram for each kind of file.
//!
//! Measured is the call alone, not the time a request waited for its thread: a slow disk and a
//! busy one are two things to look for.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use biplane_journal::{GroupCommit, QueueId};
use biplane_metadata_plane::MetadataPlane;
use serde::Serialize;

/// Upper bounds of the buckets in microseconds; one more holds what took longer.
pub(crate) const BOUNDS_MICROS: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// What is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// The files in which the small writes of all partitions wait together for their sync: small
    /// writes of persisted topics wait for these.
    Redo,
    /// Journal, superblock and snapshots of the metadata group: every change of metadata waits
    /// for these.
    Metadata,
    /// Segments and journals of partitions, and their folders: large writes of persisted topics
    /// wait for these. For all others only memory does.
    Partition,
}

impl Synced {
    /// All kinds, in the order they are told.
    const ALL: [Self; 3] = [Self::Redo, Self::Metadata, Self::Partition];

    /// Whose files a queue is about.
    pub(super) fn of(queue: QueueId) -> Self {
        if GroupCommit::is_urgent(queue) {
            Self::Redo
        } else if MetadataPlane::owns(queue) {
            Self::Metadata
        } else {
            Self::Partition
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Redo => "redo",
            Self::Metadata => "metadata",
            Self::Partition => "partition",
        }
    }
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

/// Shared by the disk threads and whoever reports.
#[derive(Debug, Default)]
pub(crate) struct SyncMeter {
    kinds: [Histogram; Synced::ALL.len()],
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SyncTimes {
    /// What was synced.
    pub(crate) of: &'static str,
    /// Syncs by bucket of [`BOUNDS_MICROS`], not summed up; the last holds the rest.
    pub(crate) counts: [u64; BUCKETS],
    /// How long all of them took together.
    pub(crate) micros: u64,
}

impl SyncMeter {
    /// Runs a sync and notes how long it took, also where it fails.
    pub(super) fn time(&self, of: Synced, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let started = Instant::now();
        let result = sync();
        self.note(of, started.elapsed());
        result
    }

    fn note(&self, of: Synced, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        let histogram = &self.kinds[of as usize];
        histogram.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        histogram.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// What was measured since the start.
    pub(crate) fn times(&self) -> Vec<SyncTimes> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = Synced::ALL.iter().zip(&self.kinds);
        kinds
            .map(|(of, histogram)| SyncTimes {
                of: of.name(),
                counts: std::array::from_fn(|bucket| read(&histogram.buckets[bucket])),
                micros: read(&histogram.micros),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_falls_into_the_first_bucket_that_holds_it() {
        let meter = SyncMeter::default();
        for micros in [0, 50, 51, 10_000_000, 10_000_001] {
            meter.note(Synced::Metadata, Duration::from_micros(micros));
        }
        let times = meter.times();
        let names: Vec<_> = times.iter().map(|times| times.of).collect();
        assert_eq!(names, ["redo", "metadata", "partition"]);
        let [redo, metadata, partition] = times.try_into().expect("three kinds");
        let mut expected = [0; BUCKETS];
        (expected[0], expected[1], expected[15], expected[16]) = (2, 1, 1, 1);
        assert_eq!(metadata.counts, expected);
        assert_eq!(metadata.micros, 20_000_102);
        assert_eq!(redo.counts, [0; BUCKETS]);
        assert_eq!(partition.micros, 0);
    }

    #[test]
    fn a_sync_that_fails_is_measured_too() {
        let meter = SyncMeter::default();
        let failed = meter.time(Synced::Redo, || Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(meter.times()[0].counts.iter().sum::<u64>(), 1);
    }
}
