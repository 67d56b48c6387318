//! A group put together from what its folder holds (chapter 03 section 9.3, chapter 04 section
//! 5.3, chapter 06 section 16.3).

use std::collections::VecDeque;

use biplane_repair::{PlaneKind as RepairPlane, RepairLimits, Requester, RequesterConfig};
use biplane_state_transfer::{PlaneKind as TransferPlane, PullLimits, Puller, PullerConfig};
use biplane_vsr as vsr;
use biplane_wire::{Op, Operation, PrepareHeader, View};

use super::Group;
use super::cold_start::ColdStart;
use super::home::Home;
use super::persist::LogGlue;
use super::polls::Polls;
use super::purge::Purge;
use super::requests::Clients;
use super::storage::OffsetWriter;
use super::transfer_in::TransferIn;
use crate::batch::BatchHeader;
use crate::consumer_offsets::ConsumerOffsets;
use crate::context::{Context, Node};
use crate::dedup::Dedup;
use crate::flush::Flusher;
use crate::io::Output;
use crate::log_state::LogState;
use crate::opening::{Begin, Opening};
use crate::prepare_log;
use crate::purge_marker;
use crate::recovery::{Recovered, Verdict};
use crate::segments::Segments;
use crate::stats::PartitionStats;
use crate::unapplied::Unapplied;

/// One tick in milliseconds.
const TICK_MILLIS: u64 = 10;
/// Odd multiplier that spreads group ids over seeds.
pub(super) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Group {
    /// Opens the group whose files are in order.
    pub(crate) fn open(
        opening: Opening,
        seed: u64,
        context: &mut Context<'_>,
    ) -> Result<Self, String> {
        let Opening {
            spec,
            recovered,
            paths,
            queues,
            superblock,
            begin,
            line,
            ..
        } = opening;
        let node = context.node;
        let key = spec.group.unpack().ok_or("not a partition group")?;
        let seed = seed ^ spec.group.0.wrapping_mul(SPREAD) ^ context.now;
        let mut log_out = Vec::new();
        let wal = prepare_log::open(
            node.identity,
            &node.limits,
            &spec,
            paths.dir(),
            queues.prepare_log(),
            &recovered.log,
            &mut log_out,
        )?;
        let boot = boot_of(&spec, &recovered, begin, node);
        let commit_min = boot.commit_min;
        let persisted = wal.is_some();
        let mut state = state_of(&recovered, persisted, node);
        follow_recovered(&mut state, &recovered, commit_min);
        let config = replica_config(spec.group, node, seed);
        let replica = vsr::Replica::open(config, boot).map_err(|error| error.to_string())?;
        let frontier = recovered
            .superblock
            .record
            .map_or(0, |record| record.offset_frontier);
        let found = recovered.segments.iter().any(|segment| segment.size > 0);
        let segments = Segments::recovered(recovered.segments, spec.options.segment_size);
        let stats = PartitionStats::of(&segments);
        let mut group = Self {
            key,
            requester: Requester::new(requester_config(spec.group, node, seed)),
            puller: Puller::new(puller_config(spec.group, node, seed)),
            purge: Purge::new(
                recovered.applied_generation,
                spec.purge_generation,
                context.now,
            ),
            retention_at: context.now + node.limits.retention_ticks,
            spec,
            paths,
            queues,
            replica,
            state,
            segments,
            flusher: Flusher::default(),
            offset_writer: OffsetWriter::default(),
            home: line.map_or(Home::Files, |(view, log_view)| Home::Line {
                view,
                log_view,
            }),
            superblock,
            log: LogGlue::new(wal, commit_min, found),
            transfer: TransferIn::default(),
            raise: None,
            cold: ColdStart::new(begin == Begin::Used && !persisted),
            clients: Clients::default(),
            polls: Polls::default(),
            frontier,
            ticked_at: context.now,
            waits_in_line: false,
            filed_at: 0,
            is_at_rest: false,
            is_undisturbed: false,
            resident_bytes: 0,
            unflushed_bytes: 0,
            unflushed_since: None,
            refusing_since: None,
            settled_since: None,
            stats,
            trouble: None,
        };
        // Otherwise thousands of frames would go at once into queues that drop what does not fit.
        group.replica.stagger_heartbeat(seed);
        group.begin(log_out, context);
        Ok(group)
    }
}

fn boot_of(
    spec: &crate::io::GroupSpec,
    recovered: &Recovered,
    begin: Begin,
    node: &Node,
) -> vsr::Boot {
    let record = recovered.superblock.record;
    let start = match begin {
        _ if !node.is_replicated() => vsr::Start::Single,
        Begin::Fresh => vsr::Start::Fresh {
            view: spec.created_view,
        },
        Begin::Used => vsr::Start::Used {
            await_transfer: false,
            view_floor: spec.created_view,
        },
    };
    let created = if begin == Begin::Fresh {
        spec.created_view
    } else {
        View(0)
    };
    let newest = recovered
        .segments
        .iter()
        .map(|segment| segment.max_timestamp)
        .max();
    // Without a prepare log, or with one that was set aside, the log of the last view is gone
    // with the memory it was in.
    let set_aside = matches!(recovered.verdict, Verdict::SetAside { .. });
    let log_lost = begin == Begin::Used && (set_aside || !spec.options.needs_prepare_log());
    // What a purge took back need not be applied again.
    let purged = recovered
        .purged
        .filter(|_| !log_lost && node.is_replicated());
    let purged = purged.map_or(Op::ZERO, |floor| floor.op);
    vsr::Boot {
        log_lost: log_lost && node.is_replicated(),
        view: record.map_or(created, |record| record.view),
        log_view: record.map_or(created, |record| record.log_view),
        // Segments have no op numbers: only a prepare log says how far they go.
        commit_min: record
            .map_or(Op::ZERO, |record| record.checkpoint_op)
            .max(purged),
        commit_min_checksum: None,
        // What the view that wrote the log knew, not what a stray record of another claims. A
        // log that is gone commits nothing.
        commit_max: match log_lost {
            true => Op::ZERO,
            false => record.map_or(Op::ZERO, |record| record.commit_max),
        },
        log: recovered.log.entries(),
        last_timestamp: newest.unwrap_or(0),
        ..vsr::Boot::empty(start)
    }
}

/// What the log holds above what is applied counts as journaled.
fn follow_recovered(state: &mut LogState, recovered: &Recovered, applied: Op) {
    for entry in recovered.log.entries() {
        let vsr::LogEntry::Intact(prepare) = entry else {
            continue;
        };
        let header = prepare.header::<PrepareHeader>();
        let (op, body) = (header.op(), prepare.body());
        if op <= applied {
            continue;
        }
        if purge_marker::is_marker(header, body) {
            state.unapplied.marker(op);
        } else if header.operation() == Operation::SendMessages
            && let Some(batch) = BatchHeader::read(body)
        {
            let next = batch.meta().next_offset();
            state.unapplied.batch(op, batch.base_offset, next);
        }
    }
    state.follow_log();
}

fn state_of(recovered: &Recovered, persisted: bool, node: &Node) -> LogState {
    let end = recovered.segments.last().map_or(0, |segment| segment.next);
    let mut offsets = ConsumerOffsets::new(node.limits.consumer_offsets_max);
    for (key, offset) in recovered.offsets.iter().filter(|_| end > 0) {
        offsets.restore(*key, *offset);
    }
    LogState {
        next_offset: end,
        unapplied: Unapplied::default(),
        committed_next: end,
        rewind_floor: end,
        unbacked: if recovered.segments.iter().any(|segment| segment.size > 0) {
            0
        } else {
            end
        },
        marks: recovered.marks.clone(),
        retained_from: 0,
        purge_floor: Op::ZERO,
        is_ahead: recovered.purged.is_some_and(|floor| {
            floor.is_ahead && floor.generation == recovered.applied_generation && end == 0
        }),
        is_unmarked: recovered.purged.is_some_and(|floor| {
            floor.is_ahead && floor.generation == recovered.applied_generation
        }),
        is_replaying: end > 0,
        installed: Op::ZERO,
        purge_deferred: false,
        persisted,
        refused_stamp: None,
        resident: VecDeque::new(),
        dedup: Dedup::new(node.limits.dedup_clients_max),
        offsets,
    }
}

fn replica_config(group: biplane_wire::GroupId, node: &Node, seed: u64) -> vsr::Config {
    let depth = u16::try_from(node.limits.prepare_queue_depth)
        .unwrap_or(u16::MAX)
        .clamp(1, 127);
    vsr::Config {
        cluster: node.identity.cluster,
        replica: node.identity.replica,
        replica_count: node.identity.replica_count,
        group,
        forward: vsr::Forward::Immediately,
        halt_on_fork: false,
        single_in_flight: false,
        limits: vsr::Limits {
            prepare_queue: depth,
            request_queue: depth * 2,
            view_probe_attempts_max: node.view_probe_attempts_max,
            ..vsr::Limits::default()
        },
        timers: node.timers,
        incarnation: 0,
        seed,
    }
}

fn requester_config(group: biplane_wire::GroupId, node: &Node, seed: u64) -> RequesterConfig {
    RequesterConfig {
        cluster: node.identity.cluster,
        group,
        replica: node.identity.replica,
        replica_count: node.identity.replica_count,
        plane: RepairPlane::Partition,
        limits: RepairLimits {
            retry_ticks: node.limits.repair_retry_ticks,
            gap_debounce_ticks: node.limits.repair_gap_debounce_ticks,
            ..RepairLimits::default()
        },
        seed,
    }
}

fn puller_config(group: biplane_wire::GroupId, node: &Node, seed: u64) -> PullerConfig {
    let retry_millis = u64::from(node.limits.repair_retry_ticks) * TICK_MILLIS;
    let frame_max = u32::try_from(node.limits.message_bytes_max).unwrap_or(u32::MAX);
    PullerConfig {
        cluster: node.identity.cluster,
        group,
        replica: node.identity.replica,
        replica_count: node.identity.replica_count,
        plane: TransferPlane::Partition,
        limits: PullLimits {
            chunk_bytes: node.limits.transfer_chunk_bytes,
            ..PullLimits::new(
                retry_millis,
                frame_max,
                node.limits.transfer_artifact_bytes_max,
            )
        },
        seed: seed.rotate_left(17),
    }
}

impl Group {
    fn begin(&mut self, outputs: Vec<biplane_journal::WalOutput>, context: &mut Context<'_>) {
        for output in outputs {
            if let biplane_journal::WalOutput::Disk(request) = output {
                context.out.push(Output::Disk(request));
            }
        }
        if self.replica.status().status == vsr::Status::Normal {
            self.settled_since = Some(context.now);
        }
        self.tell_role(context);
        self.settle(context);
    }
}
