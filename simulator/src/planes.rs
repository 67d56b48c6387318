//! A machine of the planes that ship, joined as the server joins them.
//!
//! The metadata plane's committed topology is fed to the partition plane in commit order;
//! frames go to a plane by their group, disk completions by their queue, client requests by
//! their operation after the checks every node makes. What the server does besides (sockets,
//! passwords, balancing) has no place here.

mod members;
mod requests;
mod topology;

use std::collections::{BTreeMap, BTreeSet};

use biplane_journal::{DiskRequest, DiskView, GroupCommit, GroupCommitConfig, Replay};
use biplane_metadata_plane as metadata;
use biplane_metadata_plane::MetadataPlane;
use biplane_metadata_plane::io as metadata_io;
use biplane_metadata_plane::snapshot::{TableImage, decode_snapshot, encode_snapshot};
use biplane_partition_plane as partition;
use biplane_partition_plane::PartitionPlane;
use biplane_vsr::{Durability, Replica};
use biplane_wire::{GroupId, Operation, ReplicaFrame, ReplicaId, xxh3};

use crate::bare::cluster;
use crate::knobs::Knobs;
use crate::machine::{Bound, Cause, Effect, GroupFacts, Machine, core_bounds};

/// What a node of planes is made from.
#[derive(Clone, Debug)]
pub struct PlanesConfig {
    /// This replica.
    pub replica: u8,
    /// Members of the cluster.
    pub replica_count: u8,
    /// Intervals.
    pub timers: biplane_vsr::Timers,
    /// Whether every limit is tiny.
    pub tiny_limits: bool,
    /// Paths that are forced.
    pub knobs: Knobs,
    /// Another one at every boot.
    pub seed: u64,
    /// What the wall clock says.
    pub wall_micros: u64,
}

/// Name of the user all clients log in as.
pub const ROOT: &str = "iggy";

/// A node of planes. See the file's head.
pub struct PlanesNode {
    metadata: MetadataPlane,
    partitions: PartitionPlane,
    metadata_out: Vec<metadata_io::Output>,
    partition_out: Vec<partition::Output>,
    /// Gathers the synced writes of all partitions.
    commit: GroupCommit,
    disk_out: Vec<DiskRequest>,
    known: BTreeMap<GroupId, topology::Known>,
    metadata_facts: GroupFacts,
    /// What sizes of topics are divided by.
    scale: u64,
    ticks: u64,
    sessions_max: u64,
}

/// With tiny limits the smallest segment of a topic, a mebibyte, becomes two kibibytes.
const TINY_SCALE: u64 = 512;

/// Ticks between two looks at revocations.
const REVOCATION_TICKS: u64 = 10;

impl PlanesNode {
    /// Opens both planes from what the disk holds.
    ///
    /// # Errors
    ///
    /// The reason for which the node refuses to start, as text.
    pub fn open(
        config: &PlanesConfig,
        disk: &dyn DiskView,
        out: &mut Vec<Effect>,
    ) -> Result<Self, String> {
        let (plane, outputs) =
            MetadataPlane::open(metadata_config(config), disk, config.wall_micros)
                .map_err(|error| error.to_string())?;
        let replay = Replay::read(disk).map_err(|error| error.to_string())?;
        let sizes = if config.tiny_limits {
            GroupCommitConfig::tiny
        } else {
            GroupCommitConfig::new
        };
        let mut disk_out = Vec::new();
        let commit = GroupCommit::open(sizes(config.seed), replay, &mut disk_out);
        let mut node = Self {
            metadata: plane,
            partitions: PartitionPlane::new(partition_config(config)),
            metadata_out: outputs,
            partition_out: Vec::new(),
            commit,
            disk_out,
            known: BTreeMap::new(),
            metadata_facts: topology::metadata_facts(),
            scale: if config.tiny_limits { TINY_SCALE } else { 1 },
            ticks: 0,
            sessions_max: u64::from(metadata_config(config).limits.clients_table_max),
        };
        node.open_partitions(disk);
        for peer in (0..config.replica_count).filter(|&peer| peer != config.replica) {
            node.link(peer, false);
        }
        node.flush(disk, out);
        Ok(node)
    }

    fn step_metadata(&mut self, input: metadata_io::Input) {
        self.metadata.step(input, &mut self.metadata_out);
    }

    fn step_partitions(&mut self, input: partition::Input) {
        self.partitions.step(input, &mut self.partition_out);
    }

    fn link(&mut self, peer: u8, connected: bool) {
        let replica = ReplicaId(peer);
        self.step_metadata(metadata_io::Input::Peer { replica, connected });
        self.step_partitions(partition::Input::Peer { replica, connected });
    }

    fn frame(&mut self, from: u8, frame: ReplicaFrame) {
        match frame.route() {
            Some(group) if group.is_metadata() => {
                self.step_metadata(metadata_io::Input::Frame(frame));
            }
            Some(_) => {
                let from = ReplicaId(from);
                self.step_partitions(partition::Input::Frame { from, frame });
            }
            None => {}
        }
    }

    fn tick(&mut self, wall_micros: u64) {
        self.step_metadata(metadata_io::Input::Tick { wall_micros });
        self.step_partitions(partition::Input::Tick { wall_micros });
        self.commit.tick(&mut self.disk_out);
        self.ticks += 1;
        if self.ticks.is_multiple_of(REVOCATION_TICKS) {
            self.complete_revocations(wall_micros);
        }
    }

    /// Carries every output, and those that come of it, until none is left.
    fn flush(&mut self, disk: &dyn DiskView, out: &mut Vec<Effect>) {
        while !self.metadata_out.is_empty() || !self.partition_out.is_empty() {
            for output in std::mem::take(&mut self.metadata_out) {
                self.carry_metadata(output, disk, out);
            }
            for output in std::mem::take(&mut self.partition_out) {
                self.carry_partition(output, out);
            }
            while let Some(answer) = self.commit.next_answer() {
                self.step_partitions(partition::Input::Disk(answer));
            }
        }
        self.commit.flush(&mut self.disk_out);
        out.extend(self.disk_out.drain(..).map(Effect::Disk));
    }

    fn carry_metadata(
        &mut self,
        output: metadata_io::Output,
        disk: &dyn DiskView,
        out: &mut Vec<Effect>,
    ) {
        use metadata_io::Output;
        match output {
            Output::Send { to, message } => out.push(Effect::Send { to: to.0, message }),
            Output::Disk(request) => out.push(Effect::Disk(request)),
            Output::Topology(change) => self.on_topology(change, disk),
            Output::Confirmed => self.step_partitions(partition::Input::TopologyConfirmed),
            Output::Session(_) | Output::Role(_) => {}
            Output::Halt(reason) => out.push(Effect::Halt(format!("metadata: {reason:?}"))),
            answer => requests::carry_answer(answer, out),
        }
    }

    fn carry_partition(&mut self, output: partition::Output, out: &mut Vec<Effect>) {
        use partition::Output;
        match output {
            Output::Send { to, message } => out.push(Effect::Send { to: to.0, message }),
            Output::Disk(request) => self.commit.submit(request, &mut self.disk_out),
            Output::Fenced { group, reason } => out.push(Effect::Fenced { group, reason }),
            Output::Role(change) => {
                self.step_metadata(metadata_io::Input::PartitionView(change.view));
            }
            Output::Halt { group, reason } => {
                out.push(Effect::Halt(format!("partition {group}: {reason}")));
            }
            answer => requests::carry_partition_answer(answer, out),
        }
    }
}

impl Machine for PlanesNode {
    fn step(&mut self, cause: Cause, disk: &dyn DiskView, out: &mut Vec<Effect>) {
        match cause {
            Cause::Tick { wall_micros } => self.tick(wall_micros),
            Cause::Frame { from, frame } => self.frame(from, *frame),
            Cause::Disk(completion) => {
                if MetadataPlane::owns(completion.queue) {
                    self.step_metadata(metadata_io::Input::Disk(completion));
                } else {
                    self.commit.complete(completion, &mut self.disk_out);
                    while let Some(answer) = self.commit.next_answer() {
                        self.step_partitions(partition::Input::Disk(answer));
                    }
                }
            }
            Cause::Peer { peer, connected } => self.link(peer, connected),
            Cause::Call { token, call } => self.call(token, *call, out),
            Cause::Flush => self.step_partitions(partition::Input::FlushAll),
        }
        self.flush(disk, out);
    }

    fn groups(&self) -> Vec<GroupId> {
        let mut groups = vec![GroupId::METADATA];
        groups.extend(self.partitions.groups());
        groups
    }

    fn replica(&self, group: GroupId) -> Option<&Replica> {
        if group.is_metadata() {
            return Some(self.metadata.replica());
        }
        self.partitions.replica(group)
    }

    fn durability(&self, group: GroupId, operation: Operation) -> Durability {
        self.policy(group, operation)
    }

    fn facts(&self, group: GroupId) -> Option<GroupFacts> {
        self.group_facts(group)
    }

    fn digest(&self, group: GroupId) -> u64 {
        if group.is_metadata() {
            let state = self.metadata.state();
            let bytes =
                encode_snapshot(0, self.metadata.commit_min(), state, &TableImage::default());
            return xxh3(&bytes);
        }
        let current = self
            .partitions
            .stats(group)
            .map(|stats| stats.current_offset);
        // A restart may forget positions that were only promised from memory (chapter 04
        // section 2.11).
        let kept = self.policy(group, Operation::StoreConsumerOffset) == Durability::Disk;
        let offsets = kept.then(|| self.partitions.stored_offsets(group));
        xxh3(format!("{offsets:?} {current:?}").as_bytes())
    }

    fn next_offset(&self, group: GroupId) -> Option<u64> {
        let status = self.partitions.status(group)?;
        Some(status.committed_next)
    }

    fn sessions(&self, group: GroupId) -> u64 {
        if !group.is_metadata() {
            return 0;
        }
        let Ok(snapshot) = decode_snapshot(&self.metadata.encode_state()) else {
            return 0;
        };
        // Slots and older replies are not the same where the table came by transfer.
        let slots = snapshot.table.slots.iter().map(|(_, session)| session);
        let known = slots.chain(&snapshot.table.fences).map(|session| {
            let checksum = session.watermark_checksum;
            (
                session.client,
                session.epoch,
                session.user_id,
                session.watermark,
                checksum,
            )
        });
        let known: BTreeSet<_> = known.collect();
        xxh3(format!("{known:?}").as_bytes())
    }

    fn describe(&self, group: GroupId) -> String {
        if group.is_metadata() {
            return format!("{:?}", self.metadata.status().checkpoint_op);
        }
        let offsets = self.partitions.stored_offsets(group);
        let stats = self.partitions.stats(group);
        format!("stored {offsets:?} {stats:?}")
    }

    fn bounds(&self, out: &mut Vec<Bound>) {
        for group in self.groups() {
            if let Some(replica) = self.replica(group) {
                core_bounds(group, replica, out);
            }
            if !group.is_metadata() {
                let limits = self.partitions.limits();
                let keys = self.partitions.stored_offsets(group).len() as u64;
                // Consumers and groups are counted apart, and stores in flight are let through.
                let most = 2 * (limits.consumer_offsets_max as u64 + 128);
                out.push(Bound {
                    group,
                    what: "stored positions",
                    is: keys,
                    most,
                });
            }
        }
        out.push(Bound {
            group: GroupId::METADATA,
            what: "sessions",
            is: self.metadata.status().sessions as u64,
            most: self.sessions_max,
        });
    }

    fn is_flushed(&self) -> bool {
        self.partitions.is_flushed()
    }

    fn check_invariants(&self) {
        self.metadata.check_invariants();
        self.partitions.check_invariants();
    }
}

fn metadata_config(config: &PlanesConfig) -> metadata::Config {
    let mut limits = if config.tiny_limits {
        metadata::Limits::tiny()
    } else {
        metadata::Limits::default()
    };
    limits.frame_bytes_max = 1 << 20;
    limits.clients_table_max = limits.clients_table_max.min(64);
    metadata::Config {
        cluster: cluster(),
        replica: ReplicaId(config.replica),
        replica_count: config.replica_count,
        root: metadata::RootUser {
            username: ROOT.to_owned(),
            password_hash: "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA".to_owned(),
        },
        limits,
        timers: metadata::Timers {
            replica: config.timers,
            ..metadata::Timers::tiny()
        },
        incarnation: u128::from(config.seed) << 1 | 1,
        seed: config.seed,
    }
}

fn partition_config(config: &PlanesConfig) -> partition::Config {
    let mut limits = if config.tiny_limits {
        partition::Limits::tiny()
    } else {
        partition::Limits::default()
    };
    config.knobs.limit(&mut limits);
    partition::Config {
        cluster: cluster(),
        replica: ReplicaId(config.replica),
        replica_count: config.replica_count,
        limits,
        timers: config.timers.sparing(),
        view_probe_attempts_max: 3,
        seed: config.seed ^ 1,
    }
}
