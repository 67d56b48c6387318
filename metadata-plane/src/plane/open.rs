//! From the files of a node to a plane (protocol specification, chapter 04, sections 5.3 and
//! 5.4).

use biplane_journal::{
    DiskView, Entry, Identity, Pairing, Recovered, WalConfig, check_pairing, load_superblock,
    open_snapshot, read_file, recover,
};
use biplane_repair::{Budget, PlaneKind as RepairPlane, RepairLimits, Requester, RequesterConfig};
use biplane_state_transfer::{
    METADATA_ARTIFACT_BYTES_MAX, MemorySpool, PlaneKind, ProvideLimits, Provider, ProviderConfig,
    PullBudget, PullLimits, Puller, PullerConfig, SEGMENT_BYTES_MAX_DEFAULT, TICK_MILLIS,
};
use biplane_vsr::sessions::ClientTable;
use biplane_vsr::{Boot, Forward, Limits, LogEntry, Prng, Replica, Start};
use biplane_wire::{GroupId, Message, Op, PrepareHeader, View};

use super::MetadataPlane;
use super::births::Births;
use super::cleanups::Cleanups;
use super::config::{Config, OpenError};
use super::confirmation::Confirmation;
use super::machine::Machine;
use super::storage::{Found, QUEUE_LOG, Saved, Storage, folder, snapshot_path};
use super::waiters::Waiters;
use crate::forwarding::Forwarding;
use crate::io::{HaltReason, Output};
use crate::preflight::{CreatedViews, GroupNumbers};
use crate::sessions;
use crate::snapshot::decode_snapshot;
use crate::state::MetadataState;

/// Bytes of a snapshot file beyond the payload.
const TRAILER_BYTES: u64 = 64;

impl MetadataPlane {
    /// Opens the plane on what the disk holds, and applies what is known committed.
    ///
    /// The outputs are disk requests and frames; changes of topology and sessions that the
    /// replayed log contains are not among them, because [`MetadataState::topology`] lists
    /// everything. `disk` is read here and not kept.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the node must not start.
    pub fn open(
        config: Config,
        disk: &dyn DiskView,
        wall_micros: u64,
    ) -> Result<(Self, Vec<Output>), OpenError> {
        config.limits.validate()?;
        let found = read(&config, disk)?;
        let (state, table) = restore(&config, &found)?;
        let mut requests = Vec::new();
        let storage = Storage::open(&found.files, &mut requests)?;
        let replica = open_replica(&config, &found)?;
        let mut numbers = GroupNumbers::above(state.streams().consensus_group_id_max());
        numbers.views = CreatedViews::new(config.replica_count);
        // What was deleted before the snapshot is not known any more.
        numbers.note_state(state.streams());
        for prepare in found.files.log.entries.iter().filter_map(Entry::message) {
            let header = prepare.header::<PrepareHeader>();
            numbers.raise_from(header.operation(), prepare.body());
        }
        let machine = Machine {
            state,
            table,
            numbers,
            table_frontier: Op::ZERO,
            caught_up: false,
            op_limit: storage.op_limit(),
            has_room: true,
        };
        let floor = found.floor();
        let holds_floor = replica.log().contains(floor);
        let watermark = floor.previous().filter(|_| holds_floor).unwrap_or(floor);
        let mut plane = Self::compose(config, machine, storage, replica, watermark);
        plane.wall_micros = wall_micros;
        let mut out: Vec<Output> = requests.into_iter().map(Output::Disk).collect();
        plane.begin_transfer_wait(&mut out);
        plane.settle(&mut out);
        plane.find_removals(found.files.log.entries.iter().filter_map(Entry::message));
        match halt_of(&mut out) {
            Some(HaltReason::Undecodable { op, reason }) => {
                Err(OpenError::Undecodable { op: op.0, reason })
            }
            _ => Ok((plane, out)),
        }
    }

    fn compose(
        config: Config,
        machine: Machine,
        storage: Storage,
        replica: Replica,
        watermark: Op,
    ) -> Self {
        let mut seeds = Prng::new(config.seed);
        let retry_millis = u64::from(config.timers.repair_retry_ticks) * TICK_MILLIS;
        let frame_bytes_max = config.limits.frame_bytes_max;
        let requester = Requester::new(RequesterConfig {
            cluster: config.cluster,
            group: GroupId::METADATA,
            replica: config.replica,
            replica_count: config.replica_count,
            plane: RepairPlane::Metadata,
            limits: RepairLimits {
                retry_ticks: config.timers.repair_retry_ticks,
                gap_debounce_ticks: config.timers.repair_gap_debounce_ticks,
                ..RepairLimits::default()
            },
            seed: seeds.next_u64(),
        });
        let puller = Puller::new(PullerConfig {
            cluster: config.cluster,
            group: GroupId::METADATA,
            replica: config.replica,
            replica_count: config.replica_count,
            plane: PlaneKind::Metadata,
            limits: PullLimits::new(retry_millis, frame_bytes_max, SEGMENT_BYTES_MAX_DEFAULT),
            seed: seeds.next_u64(),
        });
        let provider = Provider::new(ProviderConfig {
            cluster: config.cluster,
            replica: config.replica,
            replica_count: config.replica_count,
            limits: ProvideLimits::new(
                retry_millis,
                frame_bytes_max,
                SEGMENT_BYTES_MAX_DEFAULT,
                SEGMENT_BYTES_MAX_DEFAULT,
            ),
        });
        let births = Births::of(&replica);
        let forwarding = Forwarding::new(config.cluster, config.replica, config.incarnation);
        Self {
            config,
            replica,
            machine,
            storage,
            requester,
            repair_budget: Budget::unlimited(),
            puller,
            trouble: None,
            pull_budget: PullBudget::unlimited(),
            spool: MemorySpool::default(),
            provider,
            install: None,
            forwarding,
            waiters: Waiters::default(),
            cleanups: Cleanups::default(),
            confirmation: Confirmation::default(),
            births,
            unsettled: None,
            expired: Vec::new(),
            watermark,
            wall_micros: 0,
            ticks: 0,
            core_outputs: Vec::new(),
            halted: false,
        }
    }
}

/// What the disk held, with what was decided about it.
struct Contents {
    files: Found,
    pairing: Pairing,
    snapshot: Option<crate::snapshot::Snapshot>,
}

impl Contents {
    /// The op that the snapshot covers.
    fn floor(&self) -> Op {
        self.files.saved.as_ref().map_or(Op::ZERO, |saved| saved.op)
    }
}

fn read(config: &Config, disk: &dyn DiskView) -> Result<Contents, OpenError> {
    let identity = Identity {
        cluster: config.cluster,
        replica: config.replica,
        replica_count: config.replica_count,
    };
    let superblock = load_superblock(disk, &folder()?, &identity)?;
    let limit = METADATA_ARTIFACT_BYTES_MAX + TRAILER_BYTES;
    let mut saved = None;
    let mut snapshot = None;
    if let Some(bytes) = read_file(disk, &snapshot_path()?, limit)? {
        let file = open_snapshot(&bytes)?;
        let decoded = decode_snapshot(file.payload.as_bytes())?;
        saved = Some(Saved::new(decoded.op, file.payload.as_bytes().into()));
        snapshot = Some(decoded);
    }
    let named = saved.as_ref().map(|saved| (saved.op, saved.checksum));
    let pairing = check_pairing(superblock.record.as_ref(), named)?;
    let floor = named.map_or(Op::ZERO, |(op, _)| op);
    let log_config = WalConfig::metadata(
        QUEUE_LOG,
        config.cluster,
        config.limits.journal_slots,
        config.limits.frame_bytes_max,
    );
    let mut log = recover(&log_config, disk, floor)?;
    let recorded = superblock.record.as_ref();
    log.heed_commit(recorded.map_or(Op::ZERO, |record| record.commit_max));
    let files = Found {
        identity,
        superblock,
        log,
        log_config,
        saved,
    };
    Ok(Contents {
        files,
        pairing,
        snapshot,
    })
}

/// State and sessions: those of the snapshot, else the root user and nobody.
fn restore(config: &Config, found: &Contents) -> Result<(MetadataState, ClientTable), OpenError> {
    let capacity = usize::try_from(config.limits.clients_table_max).unwrap_or(usize::MAX);
    match &found.snapshot {
        Some(snapshot) => {
            let table = sessions::restore(&snapshot.table, capacity)?;
            Ok((snapshot.state.clone(), table))
        }
        None => {
            let root = &config.root;
            let state = MetadataState::with_root(&root.username, &root.password_hash);
            Ok((state, ClientTable::new(capacity)))
        }
    }
}

fn open_replica(config: &Config, found: &Contents) -> Result<Replica, OpenError> {
    let superblock = found.files.superblock.record.as_ref();
    let log = &found.files.log;
    let floor = found.floor();
    let is_fresh = superblock.is_none() && log.is_empty() && found.snapshot.is_none();
    let start = match (config.replica_count, is_fresh) {
        (1, _) => Start::Single,
        (_, true) => Start::Fresh { view: View(0) },
        // Without a superblock the log tells the view, and nothing tells a log view.
        (_, false) => {
            let view_floor = if superblock.is_none() {
                log.last_view()
            } else {
                View(0)
            };
            Start::Used {
                await_transfer: true,
                view_floor,
            }
        }
    };
    let commit_max = superblock.map_or(Op::ZERO, |record| record.commit_max);
    let mut seeds = Prng::new(config.seed ^ u64::from(config.replica.0));
    let boot = Boot {
        view: superblock.map_or(View(0), |record| record.view),
        log_view: superblock.map_or(View(0), |record| record.log_view),
        // The node has run and its log file is not there: it cannot know what was in it.
        log_lost: superblock.is_some() && !log.existed,
        commit_min: floor,
        // What prepares of the log say about commits is the core's to judge.
        commit_max: commit_max.max(floor),
        log: log_entries(log, floor, trusts_floor(config, found)),
        ..Boot::empty(start)
    };
    let core = biplane_vsr::Config {
        cluster: config.cluster,
        replica: config.replica,
        replica_count: config.replica_count,
        group: GroupId::METADATA,
        forward: Forward::AfterDurable,
        halt_on_fork: true,
        single_in_flight: true,
        limits: Limits {
            prepare_queue: config.limits.prepare_queue_depth,
            request_queue: config.limits.prepare_queue_depth.saturating_mul(2),
            view_probe_attempts_max: config.limits.view_probe_attempts_max,
            early_prepares: 0,
            ..Limits::default()
        },
        timers: config.timers.replica,
        incarnation: config.incarnation | 1,
        seed: seeds.next_u64(),
    };
    Ok(Replica::open(core, boot)?)
}

/// Whether the log entry at the op of the snapshot is the prepare that was committed there.
///
/// It is where a checkpoint of our own wrote the snapshot. Where a transferred snapshot was
/// written and the node stopped before the superblock named it, the entry may be a leftover
/// that was never committed; then a chain from a later entry must vouch for it.
fn trusts_floor(config: &Config, found: &Contents) -> bool {
    if found.pairing != Pairing::SnapshotNewer || config.replica_count == 1 {
        return true;
    }
    let floor = found.floor();
    let mut expected = None;
    for entry in &found.files.log.entries {
        let Some(prepare) = entry.message() else {
            return false;
        };
        let header = prepare.header::<PrepareHeader>();
        if expected.is_some_and(|parent| header.parent() != parent) {
            return false;
        }
        if header.op() > floor && expected.is_some() && header.commit() >= floor {
            return true;
        }
        expected = Some(header.frame.checksum());
    }
    false
}

fn log_entries(log: &Recovered, floor: Op, keep_floor: bool) -> Vec<LogEntry> {
    let first = if keep_floor { floor } else { floor.next() };
    log.entries
        .iter()
        .filter(|entry| entry.op() >= first)
        .map(|entry| match entry {
            Entry::Intact(message) => LogEntry::Intact(Message::clone(message)),
            Entry::Damaged(op) => LogEntry::Damaged(*op),
        })
        .collect()
}

/// Drops what a full listing makes superfluous; gives the reason to stop, if there is one.
fn halt_of(out: &mut Vec<Output>) -> Option<HaltReason> {
    out.retain(|output| !matches!(output, Output::Topology(_) | Output::Session(_)));
    let at = out
        .iter()
        .position(|output| matches!(output, Output::Halt(_)))?;
    match out.swap_remove(at) {
        Output::Halt(reason) => Some(reason),
        _ => None,
    }
}
