//! A picture of the node for those who look at it from outside: metrics, `biplane status`, the
//! cluster page.
//!
//! It is taken in one turn of the loop, so its numbers belong together. Its size is bounded: of
//! many partitions the totals are told, and by name only those that need a look.

use std::cmp::Reverse;

use biplane_vsr::{Ignored, Status, TransferStage};
use biplane_wire::{GroupId, Op};
use serde::Serialize;

use super::Node;
use super::catch_up::{CatchUp, Work};
use crate::client::system::Totals;
use crate::clock;
use crate::file_disk::FileDisk;
use crate::file_disk::sync_meter::SyncTimes;
use crate::peer::Mesh;
use crate::peer::counters::{FlowReport, LinkCounters};

/// Partition groups that are named in a report.
pub(crate) const GROUPS_NAMED_MAX: usize = 200;

/// A node at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct NodeReport {
    /// Replica id.
    pub(crate) node: u8,
    /// Roster name.
    pub(crate) name: String,
    /// Name of the cluster.
    pub(crate) cluster: String,
    /// It serves everything it holds.
    pub(crate) ready: bool,
    /// Microseconds since its start.
    pub(crate) run_time: u64,
    /// Microseconds since the epoch, when the report was made.
    pub(crate) time: u64,
    /// The metadata group.
    pub(crate) metadata: GroupReport,
    /// All partition groups.
    pub(crate) partitions: GroupTotals,
    /// Those that need a look, the worst first; at most [`GROUPS_NAMED_MAX`].
    pub(crate) groups: Vec<GroupReport>,
    /// Links to the other nodes.
    pub(crate) links: Vec<LinkReport>,
    /// What the links counted, by name.
    pub(crate) counters: Vec<(&'static str, u64)>,
    /// Checksums that did not hold, by what they protect.
    pub(crate) seal_failures: Vec<(&'static str, u64)>,
    /// Client frames that were not taken, by the rule they broke.
    pub(crate) refused: Vec<(&'static str, u64)>,
    /// Partitions whose files could not be used.
    pub(crate) fenced: u64,
    /// How long syncs of the disk took, by what was synced.
    pub(crate) syncs: Vec<SyncTimes>,
    /// What the cluster holds, as this node knows it.
    pub(crate) totals: TotalsReport,
}

/// One group on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GroupReport {
    /// `metadata`, or `stream/topic/partition` by number.
    pub(crate) group: String,
    /// The same by name, where the names are known.
    pub(crate) name: String,
    /// `normal`, `view_change` or `recovering`.
    pub(crate) status: &'static str,
    /// View.
    pub(crate) view: u32,
    /// Replica that leads the view.
    pub(crate) primary: u8,
    /// This node does.
    pub(crate) leads: bool,
    /// Highest op of the log here.
    pub(crate) head: u64,
    /// Highest op applied here.
    pub(crate) commit: u64,
    /// Ops known to be committed that are not applied here.
    pub(crate) lag: u64,
    /// `idle`, `awaiting_target`, `fetching` or `installing`.
    pub(crate) transfer: &'static str,
    /// The repair or the transfer that runs here, in numbers.
    pub(crate) work: Option<Work>,
    /// How the last attempt to catch up ended, where it did not succeed.
    pub(crate) trouble: Option<String>,
}

/// Partition groups by what they are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct GroupTotals {
    /// All on this node.
    pub(crate) groups: u64,
    /// Led by this node.
    pub(crate) led: u64,
    /// In status normal.
    pub(crate) normal: u64,
    /// Choosing the log of a view.
    pub(crate) view_change: u64,
    /// Recovering.
    pub(crate) recovering: u64,
    /// With a state transfer.
    pub(crate) transferring: u64,
    /// With committed ops that are not applied here.
    pub(crate) lagging: u64,
    /// Sum of those ops.
    pub(crate) lag: u64,
    /// Sum of the applied ops.
    pub(crate) commit: u64,
    /// Highest view.
    pub(crate) view_max: u32,
}

/// A link to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LinkReport {
    /// The other node.
    pub(crate) node: u8,
    /// Its name.
    pub(crate) name: String,
    /// A connection is up.
    pub(crate) up: bool,
    /// Frames that wait to be written to it.
    pub(crate) queued: u64,
    /// Frames for it that were dropped, by reason.
    pub(crate) dropped: Vec<(&'static str, u64)>,
    /// Frames of it that were not passed on, by reason.
    pub(crate) refused: Vec<(&'static str, u64)>,
    /// Written to it, by what it was for.
    pub(crate) sent: Vec<FlowReport>,
    /// Received from it, by what it was for.
    pub(crate) received: Vec<FlowReport>,
}

/// What there is.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TotalsReport {
    pub(crate) streams: u32,
    pub(crate) topics: u32,
    pub(crate) partitions: u32,
    pub(crate) segments: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) consumer_groups: u32,
    pub(crate) users: u64,
    pub(crate) clients: u64,
}

const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Normal => "normal",
        Status::ViewChange => "view_change",
        Status::Recovering => "recovering",
    }
}

const fn stage_name(stage: TransferStage) -> &'static str {
    match stage {
        TransferStage::Idle => "idle",
        TransferStage::AwaitingTarget => "awaiting_target",
        TransferStage::Fetching => "fetching",
        TransferStage::Installing => "installing",
    }
}

fn lag(commit_min: Op, commit_max: Op) -> u64 {
    commit_max.0.saturating_sub(commit_min.0)
}

pub(super) fn group_report(
    name: String,
    replica: &biplane_vsr::Replica,
    catch_up: CatchUp,
) -> GroupReport {
    let status = replica.status();
    GroupReport {
        group: group_number(catch_up.group),
        name,
        status: status_name(status.status),
        view: status.view.0,
        primary: status.primary.0,
        leads: status.is_primary && status.status == Status::Normal,
        head: status.op_head.0,
        commit: status.commit_min.0,
        lag: lag(status.commit_min, status.commit_max),
        transfer: stage_name(status.transfer_stage),
        work: catch_up.work(),
        trouble: catch_up.trouble,
    }
}

fn group_number(group: GroupId) -> String {
    match group.unpack() {
        Some(key) => format!("{}/{}/{}", key.stream, key.topic, key.partition),
        None => group.to_string(),
    }
}

impl GroupTotals {
    fn add(&mut self, status: &biplane_vsr::StatusView) {
        let behind = lag(status.commit_min, status.commit_max);
        self.groups += 1;
        match status.status {
            Status::Normal => self.normal += 1,
            Status::ViewChange => self.view_change += 1,
            Status::Recovering => self.recovering += 1,
        }
        self.led += u64::from(status.is_primary && status.status == Status::Normal);
        self.transferring += u64::from(status.transfer_stage != TransferStage::Idle);
        self.lagging += u64::from(behind > 0);
        self.lag += behind;
        self.commit += status.commit_min.0;
        self.view_max = self.view_max.max(status.view.0);
    }
}

impl Node {
    /// The picture of this moment.
    pub(crate) fn report(&self) -> NodeReport {
        let mut totals = GroupTotals::default();
        let mut corrupt = 0;
        let mut troubled: Vec<(Reverse<(bool, u64)>, GroupId)> = Vec::new();
        for group in self.partitions.groups() {
            let Some(replica) = self.partitions.replica(group) else {
                continue;
            };
            let status = replica.status();
            totals.add(&status);
            corrupt += replica.ignored().get(Ignored::Corrupt);
            let behind = lag(status.commit_min, status.commit_max);
            let abnormal = status.status != Status::Normal
                || status.transfer_stage != TransferStage::Idle
                || self.partitions.no_room(group).is_some();
            if abnormal || behind > 0 {
                troubled.push((Reverse((abnormal, behind)), group));
            }
        }
        troubled.sort_unstable();
        let groups = troubled
            .iter()
            .take(GROUPS_NAMED_MAX)
            .filter_map(|(_, group)| {
                let replica = self.partitions.replica(*group)?;
                let catch_up = self.partition_catch_up(*group);
                Some(group_report(self.group_name(*group), replica, catch_up))
            })
            .collect();
        let now = clock::wall_micros();
        NodeReport {
            node: self.identity.replica.0,
            name: self.identity.own().name.clone(),
            cluster: self.identity.cluster_name.clone(),
            ready: self.glance.is_ready(),
            run_time: now.saturating_sub(self.started_micros),
            time: now,
            metadata: group_report(
                "metadata".to_owned(),
                self.metadata.replica(),
                self.metadata_catch_up(),
            ),
            partitions: totals,
            groups,
            links: self.links_report(),
            counters: self.mesh_counters(),
            seal_failures: self.seal_failures(corrupt),
            refused: self.listener.refused.counts(),
            fenced: self.fenced,
            syncs: self.disk.as_ref().map_or(Vec::new(), FileDisk::sync_times),
            totals: self.totals_report(),
        }
    }

    /// Names of stream and topic in place of their numbers; a partition that metadata has not told
    /// of yet has none.
    fn group_name(&self, group: GroupId) -> String {
        let streams = self.metadata.state().streams();
        let named = group.unpack().and_then(|key| {
            let stream = streams.by_id().get(&key.stream)?;
            let topic = stream.topics().get(&key.topic)?;
            Some(format!("{}/{}/{}", stream.name, topic.name, key.partition))
        });
        named.unwrap_or_else(|| group_number(group))
    }

    fn links_report(&self) -> Vec<LinkReport> {
        let peers = self.identity.roster.iter();
        let peers = peers.filter(|member| member.replica != self.identity.replica);
        peers
            .map(|member| {
                let peer = member.replica;
                let mesh = self.mesh.as_ref();
                let counters = mesh.and_then(|mesh| mesh.link_counters(peer));
                LinkReport {
                    node: peer.0,
                    name: member.name.clone(),
                    up: self.links.contains(&peer),
                    queued: mesh.map_or(0, |mesh| mesh.queued(peer) as u64),
                    dropped: counters.map_or(Vec::new(), LinkCounters::dropped),
                    refused: counters.map_or(Vec::new(), LinkCounters::refused),
                    sent: counters.map_or(Vec::new(), |counters| counters.sent.report()),
                    received: counters.map_or(Vec::new(), |counters| counters.received.report()),
                }
            })
            .collect()
    }

    fn mesh_counters(&self) -> Vec<(&'static str, u64)> {
        self.mesh.as_ref().map_or(Vec::new(), Mesh::totals)
    }

    fn totals_report(&self) -> TotalsReport {
        let Totals {
            streams,
            topics,
            partitions,
            groups,
            segments,
            messages,
            bytes,
        } = self.totals();
        TotalsReport {
            streams,
            topics,
            partitions,
            segments,
            messages,
            bytes,
            consumer_groups: groups,
            users: self.metadata.state().users().by_id().len() as u64,
            clients: self.clients.len() as u64,
        }
    }
}
