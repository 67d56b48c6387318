//! Every bound of the plane by name, with the defaults of chapter 06 section 20, and the options
//! of one topic.

/// Bounds of one node's partition plane. All durations are ticks of 10 ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Prepares in flight per group, `1..=127`.
    pub prepare_queue_depth: usize,
    /// Flushed prepares a group keeps in memory for repair and for readers of the tail.
    pub ring_entries: usize,
    /// Bytes of those.
    pub ring_bytes: usize,
    /// How many times as much is kept while a peer is behind: it must find what came while it
    /// took the state.
    pub ring_stretch: usize,
    /// Ticks for which a peer counts as behind after it asked for something it lacks.
    pub peer_behind_ticks: u64,
    /// Ticks for which requests wait at most until an offer of the state can be made.
    pub offer_wait_ticks: u64,
    /// Ticks without such a wait after one that was for nothing.
    pub offer_rest_ticks: u64,
    /// Clients of one deduplication table.
    pub dedup_clients_max: usize,
    /// Stored positions per kind and group.
    pub consumer_offsets_max: usize,
    /// Bytes of one group's prepare log (persisted policies).
    pub wal_bytes_max: u64,
    /// Largest prepare of a group with a prepare log.
    pub wal_prepare_bytes_max: usize,
    /// Largest frame of a peer.
    pub message_bytes_max: usize,
    /// Largest artifact of a state transfer.
    pub transfer_artifact_bytes_max: u64,
    /// Groups that may be serving a state transfer at once.
    pub transfers_served_max: usize,
    /// Groups that may be pulling a state transfer at once.
    pub transfers_pulled_max: usize,
    /// Bytes hashed for one state transfer request before it is put off.
    pub transfer_hash_bytes: u64,
    /// Bytes of state transfer served in one tick while clients have work for the node.
    pub transfer_busy_tick_bytes: u64,
    /// Bytes of one state transfer chunk.
    pub transfer_chunk_bytes: u32,
    /// Bytes of segments read, and written, at once for such chunks.
    pub transfer_block_bytes: u32,
    /// Reads under way at once for the digests of one group.
    pub transfer_hash_reads: u32,
    /// Whether segments are hashed before a peer asks for them, while one is away and the node has
    /// nothing else to do.
    pub transfer_hash_ahead: bool,
    /// RepairPrepare frames answered to one request.
    pub repair_chunk_max: usize,
    /// Ticks between two requests of a stalled repair or transfer.
    pub repair_retry_ticks: u32,
    /// Ticks a gap must last before it is repaired.
    pub repair_gap_debounce_ticks: u32,
    /// Whether batches read from disk are verified in full.
    pub validate_checksum: bool,
    /// Bytes of one read of a poll.
    pub read_chunk_bytes: usize,
    /// Bytes of one poll reply; at least one batch is returned whatever its size.
    pub poll_bytes_max: usize,
    /// Bytes of one group that may wait for their flush before a primary refuses requests and a
    /// backup drops prepares.
    pub unflushed_bytes_max: u64,
    /// Bytes of prepares all groups keep in memory; when they have more, each keeps less of what
    /// is on disk, and takes little more than its disk does.
    pub resident_bytes_max: usize,
    /// Ticks a poll may wait for the disk.
    pub poll_ticks_max: u64,
    /// Ticks after which a committed message is flushed whatever the thresholds say.
    pub flush_delay_ticks: u64,
    /// Bytes of one flush; more is flushed by the next.
    pub flush_bytes_max: usize,
    /// Bodies of one flush.
    pub flush_batches_max: usize,
    /// Frames parked per group that is not materialised yet.
    pub park_frames: usize,
    /// Bytes parked per group.
    pub park_bytes_group: usize,
    /// Bytes parked in all.
    pub park_bytes: usize,
    /// Reconciler passes after which a parked request is refused.
    pub park_passes: u32,
    /// Ticks between two reconciler passes.
    pub reconcile_ticks: u64,
    /// Ticks between two retention passes of a group.
    pub retention_ticks: u64,
    /// Whether retention runs at all.
    pub retention_enabled: bool,
    /// Segments one pass may remove.
    pub retention_segments_max: usize,
    /// Longest pause between two attempts of a failed write.
    pub disk_retry_ticks_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            prepare_queue_depth: 32,
            ring_entries: 4096,
            ring_bytes: 16 << 20,
            ring_stretch: 8,
            peer_behind_ticks: 1_000,
            offer_wait_ticks: 50,
            offer_rest_ticks: 1_000,
            dedup_clients_max: 4096,
            consumer_offsets_max: 4096,
            wal_bytes_max: 256 << 20,
            wal_prepare_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            transfer_artifact_bytes_max: 1088 << 20,
            transfers_served_max: 2,
            transfers_pulled_max: 4,
            transfer_hash_bytes: 16 << 30,
            transfer_busy_tick_bytes: 1 << 20,
            transfer_chunk_bytes: 256 << 10,
            transfer_block_bytes: 1 << 20,
            transfer_hash_reads: 2,
            transfer_hash_ahead: true,
            repair_chunk_max: 128,
            repair_retry_ticks: 100,
            repair_gap_debounce_ticks: 100,
            validate_checksum: true,
            read_chunk_bytes: 1 << 20,
            poll_bytes_max: 48 << 20,
            unflushed_bytes_max: 256 << 20,
            resident_bytes_max: 2 << 30,
            poll_ticks_max: 1000,
            flush_delay_ticks: 20,
            flush_bytes_max: 16 << 20,
            flush_batches_max: 1024,
            park_frames: 128,
            park_bytes_group: 64 << 20,
            park_bytes: 256 << 20,
            park_passes: 3,
            reconcile_ticks: 100,
            retention_ticks: 6000,
            retention_enabled: true,
            retention_segments_max: 16,
            disk_retry_ticks_max: 100,
        }
    }
}

impl Limits {
    /// Small bounds: tests and simulations reach every one of them.
    pub fn tiny() -> Self {
        Self {
            prepare_queue_depth: 4,
            ring_entries: 8,
            ring_bytes: 16 << 10,
            ring_stretch: 4,
            peer_behind_ticks: 200,
            offer_wait_ticks: 20,
            offer_rest_ticks: 200,
            dedup_clients_max: 8,
            consumer_offsets_max: 4,
            wal_bytes_max: 64 << 10,
            wal_prepare_bytes_max: 16 << 10,
            message_bytes_max: 64 << 10,
            transfer_artifact_bytes_max: 1 << 20,
            transfer_hash_bytes: 16 << 10,
            transfer_busy_tick_bytes: 2 << 10,
            transfer_chunk_bytes: 512,
            transfer_block_bytes: 512,
            transfer_hash_reads: 1,
            transfer_hash_ahead: false,
            repair_chunk_max: 4,
            repair_retry_ticks: 20,
            repair_gap_debounce_ticks: 10,
            read_chunk_bytes: 1 << 10,
            poll_bytes_max: 16 << 10,
            unflushed_bytes_max: 64 << 10,
            resident_bytes_max: 64 << 10,
            poll_ticks_max: 200,
            flush_delay_ticks: 4,
            flush_bytes_max: 8 << 10,
            flush_batches_max: 8,
            park_frames: 4,
            park_bytes_group: 16 << 10,
            park_bytes: 32 << 10,
            reconcile_ticks: 10,
            retention_ticks: 50,
            retention_segments_max: 2,
            disk_retry_ticks_max: 8,
            ..Self::default()
        }
    }
}

/// When an operation counts as kept (chapter 06 section 7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DurabilityPolicy {
    /// In the memory of a quorum.
    #[default]
    Replicated,
    /// On the stable storage of a quorum.
    Persisted,
}

/// The options of a topic that its partitions obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicOptions {
    /// Policy of SendMessages.
    pub durability: DurabilityPolicy,
    /// Policy of stored positions.
    pub consumer_offset_durability: DurabilityPolicy,
    /// Unflushed messages that force a flush.
    pub messages_required_to_save: u32,
    /// Unflushed bytes that force a flush.
    pub size_of_messages_required_to_save: u64,
    /// Bytes at which a segment is sealed.
    pub segment_size: u64,
    /// Age in microseconds after which messages may go; `u64::MAX` or 0 for never.
    pub message_expiry: u64,
    /// Bytes of the topic above which old segments go; `u64::MAX` or 0 for no bound.
    pub max_topic_size: u64,
    /// Partitions that share `max_topic_size`.
    pub partitions_count: u32,
}

impl Default for TopicOptions {
    fn default() -> Self {
        Self {
            durability: DurabilityPolicy::Replicated,
            consumer_offset_durability: DurabilityPolicy::Replicated,
            messages_required_to_save: 1024,
            size_of_messages_required_to_save: 1 << 20,
            segment_size: 1 << 30,
            message_expiry: u64::MAX,
            max_topic_size: u64::MAX,
            partitions_count: 1,
        }
    }
}

impl TopicOptions {
    /// Whether any operation of the topic needs the prepare log (chapter 06 section 3.3).
    pub fn needs_prepare_log(&self) -> bool {
        let persisted = DurabilityPolicy::Persisted;
        self.durability == persisted || self.consumer_offset_durability == persisted
    }
}
