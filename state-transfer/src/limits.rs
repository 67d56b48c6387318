//! The limits of state transfer: pacing in ticks of 10 ms, sizes in bytes, and their relations.

use biplane_wire::HEADER_SIZE;

/// Length of a tick in milliseconds.
pub const TICK_MILLIS: u64 = 10;

/// Largest chunk payload, whatever the frame limit allows.
pub const CHUNK_BYTES_MAX: u32 = 262_144;

/// Largest artifact of the metadata plane.
pub const METADATA_ARTIFACT_BYTES_MAX: u64 = 1 << 30;

/// Largest sum of the artifacts of the metadata plane.
pub const METADATA_TOTAL_BYTES_MAX: u64 = 4 << 30;

/// Default of `transfer_artifact_bytes_max`: the largest segment that can be transferred.
pub const SEGMENT_BYTES_MAX_DEFAULT: u64 = 1088 << 20;

/// Largest CONSUMER_OFFSETS artifact.
pub const OFFSETS_BYTES_MAX: u64 = (96 << 20) + 4;

/// Largest sum of the artifacts of a partition.
pub const PARTITION_TOTAL_BYTES_MAX: u64 = 1 << 40;

/// Entries of each table of a CONSUMER_OFFSETS artifact.
pub const OFFSETS_ENTRIES_MAX: u32 = 1 << 20;

/// Largest checkpoint prepare inside a CONSUMER_OFFSETS artifact.
pub const CHECKPOINT_PREPARE_BYTES_MAX: u32 = 64 << 20;

/// Stalls without progress after which an attempt is given up.
pub(crate) const STALLS_MAX_DEFAULT: u32 = 5;

/// Failed attempts after which a metadata transfer is given up.
pub(crate) const FAILURES_MAX_DEFAULT: u32 = 5;

/// Partition transfers that run at once on the receiving side of a plane.
pub const PULLS_MAX_DEFAULT: u32 = 4;

/// Largest exponent of the pause after failures: about a minute with the default interval. Whoever
/// is asked is not burdened by that, and a replica that had a bad quarter of an hour shall not wait
/// for another one.
pub(crate) const BACKOFF_EXPONENT_MAX: u32 = 6;

/// Bytes hashed on behalf of one request before it is told to come back. A request that is told
/// so pauses for a retry interval; what bounds the wait is the time an offer may take to build.
pub(crate) const HASH_BYTES_MAX_DEFAULT: u64 = 16 << 30;

/// Bytes asked of storage at once while hashing.
pub(crate) const READ_BYTES_DEFAULT: u32 = 1 << 20;

/// Reads of one group that are under way at once while hashing.
pub(crate) const HASH_READS_DEFAULT: u32 = 2;

/// Bytes asked of storage at once for chunks.
pub(crate) const BLOCK_BYTES_DEFAULT: u32 = 1 << 20;

/// Bytes served in one tick of 10 ms while the node has other work.
pub(crate) const BUSY_TICK_BYTES_DEFAULT: u64 = 1 << 20;

/// Memory that bounds how many groups are served at once.
pub(crate) const SERVE_BYTES_DEFAULT: u64 = 2176 << 20;

/// What a segment may exceed its configured size by, for the same bound.
pub(crate) const SEGMENT_SLACK_BYTES: u64 = 64 << 20;

const _: () = assert!(METADATA_ARTIFACT_BYTES_MAX <= METADATA_TOTAL_BYTES_MAX);
const _: () = assert!(SEGMENT_BYTES_MAX_DEFAULT <= PARTITION_TOTAL_BYTES_MAX);
const _: () = assert!(CHECKPOINT_PREPARE_BYTES_MAX as u64 <= OFFSETS_BYTES_MAX);
const _: () = assert!(READ_BYTES_DEFAULT as u64 <= HASH_BYTES_MAX_DEFAULT);

/// Pacing and sizes of the receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Ticks without progress before the outstanding request is sent again
    /// (`cluster.repair_retry_interval`).
    pub retry_ticks: u32,
    /// Consecutive stalls after which the attempt is given up.
    pub stalls_max: u32,
    /// Failed attempts after which a metadata transfer is given up.
    pub failures_max: u32,
    /// Payload asked for at once.
    pub chunk_bytes: u32,
    /// Largest SEGMENT_LOG accepted (`transfer_artifact_bytes_max`).
    pub segment_bytes_max: u64,
}

impl PullLimits {
    /// From the configured retry interval, frame limit and segment limit.
    #[must_use]
    pub fn new(retry_millis: u64, frame_bytes_max: u32, segment_bytes_max: u64) -> Self {
        Self {
            retry_ticks: ticks(retry_millis),
            stalls_max: STALLS_MAX_DEFAULT,
            failures_max: FAILURES_MAX_DEFAULT,
            chunk_bytes: chunk_bytes_max(frame_bytes_max),
            segment_bytes_max,
        }
    }

    /// Small values, so that tests meet every limit soon.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            retry_ticks: 10,
            stalls_max: 2,
            failures_max: 3,
            chunk_bytes: 16,
            segment_bytes_max: 4_096,
        }
    }
}

/// Pacing and sizes of the serving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvideLimits {
    /// Largest payload of a chunk.
    pub chunk_bytes: u32,
    /// Ticks without a request after which an offer lapses.
    pub idle_ticks: u32,
    /// The same after the last byte of the last artifact was served.
    pub served_ticks: u32,
    /// Ticks a request may wait for its offer to be built.
    pub build_ticks: u32,
    /// Distinct groups served at once.
    pub groups_served_max: u32,
    /// Bytes hashed on behalf of one request.
    pub hash_bytes_max: u64,
    /// Bytes asked of storage at once while hashing.
    pub read_bytes: u32,
    /// Such reads that are under way at once for one group.
    pub hash_reads: u32,
    /// Bytes asked of storage at once for chunks, at least one of them. Twice as much is kept
    /// ready for each offer that is pulled.
    pub block_bytes: u32,
    /// Bytes served in one tick while the node has other work.
    pub busy_tick_bytes: u64,
}

impl ProvideLimits {
    /// From the configured retry interval, frame limit, largest transferable segment and
    /// configured segment size.
    #[must_use]
    pub fn new(
        retry_millis: u64,
        frame_bytes_max: u32,
        segment_bytes_max: u64,
        segment_bytes: u64,
    ) -> Self {
        let retry = ticks(retry_millis);
        let largest = segment_bytes_max.max(segment_bytes.saturating_add(SEGMENT_SLACK_BYTES));
        let groups = (SERVE_BYTES_DEFAULT / largest.max(1)).max(1);
        Self {
            chunk_bytes: chunk_bytes_max(frame_bytes_max),
            idle_ticks: retry.saturating_mul(10),
            served_ticks: retry.saturating_mul(3),
            build_ticks: retry.saturating_mul(3),
            groups_served_max: u32::try_from(groups).unwrap_or(u32::MAX),
            hash_bytes_max: HASH_BYTES_MAX_DEFAULT,
            read_bytes: READ_BYTES_DEFAULT,
            hash_reads: HASH_READS_DEFAULT,
            block_bytes: BLOCK_BYTES_DEFAULT,
            busy_tick_bytes: BUSY_TICK_BYTES_DEFAULT,
        }
    }

    /// Small values, so that tests meet every limit soon.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            chunk_bytes: 16,
            idle_ticks: 100,
            served_ticks: 30,
            build_ticks: 30,
            groups_served_max: 2,
            hash_bytes_max: 256,
            read_bytes: 64,
            hash_reads: 1,
            block_bytes: 16,
            busy_tick_bytes: 32,
        }
    }

    /// Chunks that are read at once.
    pub(crate) fn chunks_per_block(&self) -> usize {
        (self.block_bytes / self.chunk_bytes.max(1)).max(1) as usize
    }
}

/// The largest chunk payload that fits a frame of `frame_bytes_max`, at least one byte.
#[must_use]
pub fn chunk_bytes_max(frame_bytes_max: u32) -> u32 {
    frame_bytes_max
        .saturating_sub(HEADER_SIZE as u32)
        .clamp(1, CHUNK_BYTES_MAX)
}

fn ticks(millis: u64) -> u32 {
    u32::try_from(millis / TICK_MILLIS)
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_the_frame_limit() {
        assert_eq!(chunk_bytes_max(64 << 20), CHUNK_BYTES_MAX);
        assert_eq!(chunk_bytes_max(4_096), 3_840);
        assert_eq!(chunk_bytes_max(200), 1);
    }

    #[test]
    fn default_sizes_allow_two_groups_at_once() {
        let limits = ProvideLimits::new(1_000, 64 << 20, SEGMENT_BYTES_MAX_DEFAULT, 1 << 30);
        assert_eq!(limits.groups_served_max, 2);
        assert_eq!((limits.idle_ticks, limits.served_ticks), (1_000, 300));
    }

    #[test]
    fn a_segment_larger_than_the_bound_still_leaves_one_group() {
        let limits = ProvideLimits::new(5, 64 << 20, 8 << 30, 4 << 30);
        assert_eq!((limits.groups_served_max, limits.idle_ticks), (1, 10));
    }
}
