//! Carries the planes' outputs to where they belong.
//!
//! A step only collects outputs; [`Node::flush`] carries them. An output can cause another step (a
//! committed topic opens partitions), whose outputs join the same queue, so there is no recursion
//! between handlers.

use biplane_metadata_plane::io as metadata;
use biplane_metadata_plane::io::SessionChange;
use biplane_partition_plane as partition;
use biplane_vsr::Status;
use biplane_wire::{Command, Message, ReplicaId};
use tracing::{info, warn};

use super::{Node, NodeEnd, Reported};
use crate::advice;
use crate::client::reply::{self, ClientFrame};
use crate::client::session::{Wait, Waiting};
use crate::supervised::Report;

/// Ticks between looks at the partitions of a node that has just started.
const READY_TICKS: u64 = 5;

/// Exit statuses of chapter 09 section 3.
const EXIT_FAILURE: u8 = 1;
const EXIT_LOG_LOST: u8 = 2;
const EXIT_SUPERBLOCK_STUCK: u8 = 3;

fn exit_status(reason: &metadata::HaltReason) -> u8 {
    match reason {
        metadata::HaltReason::SuperblockStuck => EXIT_SUPERBLOCK_STUCK,
        metadata::HaltReason::Journal(_)
        | metadata::HaltReason::Replica(biplane_vsr::HaltReason::AppendFailed { .. }) => {
            EXIT_LOG_LOST
        }
        metadata::HaltReason::Replica(_) | metadata::HaltReason::Undecodable { .. } => EXIT_FAILURE,
    }
}

fn is_acknowledgement(output: &partition::Output) -> bool {
    let partition::Output::Send { message, .. } = output else {
        return false;
    };
    message.command() == Command::PrepareOk
}

impl Node {
    /// Steps the metadata plane; outputs wait for [`Node::flush`].
    pub(crate) fn step_metadata(&mut self, input: metadata::Input) {
        self.metadata.step(input, &mut self.metadata_out);
    }

    /// Steps the partition plane; outputs wait for [`Node::flush`].
    pub(crate) fn step_partitions(&mut self, input: partition::Input) {
        self.partitions.step(input, &mut self.partition_out);
    }

    /// Carries every collected output, and those that come of it, until none is left.
    pub(crate) fn flush(&mut self) {
        while !self.metadata_out.is_empty() || !self.partition_out.is_empty() {
            let mut outputs = std::mem::take(&mut self.metadata_out);
            for output in outputs.drain(..) {
                self.carry_metadata(output);
            }
            // The allocation is worth keeping unless an output stepped the plane again.
            if self.metadata_out.is_empty() {
                self.metadata_out = outputs;
            }
            let mut outputs = std::mem::take(&mut self.partition_out);
            // A client waits for acknowledgements, nobody yet for what is passed down the chain:
            // they go first, each on a link of its own.
            outputs.sort_by_key(|output| !is_acknowledgement(output));
            for output in outputs.drain(..) {
                self.carry_partition(output);
            }
            if self.partition_out.is_empty() {
                self.partition_out = outputs;
            }
        }
    }

    fn carry_metadata(&mut self, output: metadata::Output) {
        use metadata::Output;
        match output {
            Output::Send { to, message } => {
                if let Some(mesh) = &self.mesh {
                    mesh.send_first(to, message);
                }
            }
            Output::Reply {
                token,
                message,
                outcome,
            } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.on_metadata_reply(waiting, message, outcome);
                }
            }
            Output::Evicted { token, reason } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.clients.unbind(waiting.connection);
                    self.evict_waiting(&waiting, reason);
                }
            }
            Output::Dropped { token } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.drop_waiting(&waiting);
                }
            }
            Output::Registered { token, outcome } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.on_registered(waiting, outcome);
                }
            }
            Output::LoggedOut { token, outcome } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.on_logged_out(&waiting, outcome);
                }
            }
            Output::Disk(request) => self.submit_disk(request),
            Output::Topology(change) => self.on_topology(change),
            Output::Session(SessionChange::Registered {
                client, session, ..
            }) => {
                self.unbind_older(client, Some(session));
            }
            Output::Session(SessionChange::Ended { client }) => self.unbind_older(client, None),
            Output::Confirmed => self.step_partitions(partition::Input::TopologyConfirmed),
            Output::Role(change) => info!(?change, "metadata role"),
            Output::Halt(reason) => {
                let status = exit_status(&reason);
                let (reason, advice) = advice::metadata_halt(&reason);
                self.halt(NodeEnd::Halted {
                    reason,
                    advice,
                    status,
                });
            }
        }
    }

    fn carry_partition(&mut self, output: partition::Output) {
        use partition::Output;
        match output {
            Output::Send { to, message } => self.send(to, message),
            Output::Reply {
                token,
                status,
                message,
            } => {
                self.seals.note_status(status);
                if let Some(waiting) = self.clients.take(token) {
                    self.finish(&waiting, ClientFrame::Message(message));
                }
            }
            Output::PollReply { token, reply } => {
                let Some(waiting) = self.clients.take(token) else {
                    return;
                };
                if let Wait::Poll { group } = waiting.wait {
                    self.on_polled(&waiting, group, reply);
                }
            }
            Output::OffsetReply { token, reply } => {
                if let Some(waiting) = self.clients.take(token) {
                    self.on_offset(&waiting, reply);
                }
            }
            Output::Disk(request) => self.submit_partition_disk(request),
            Output::Role(change) => {
                self.step_metadata(metadata::Input::PartitionView(change.view));
                tracing::debug!(group = %change.group, view = change.view.0,
                    primary = %change.primary, leads = change.is_primary, "partition role");
            }
            Output::Fenced { group, reason } => {
                self.fenced += 1;
                warn!(%group, %reason, "partition fenced");
            }
            Output::Halt { group, reason } => {
                self.halt(NodeEnd::Halted {
                    reason: format!("partition {group}: {reason}"),
                    advice: advice::PARTITION_HALT,
                    status: EXIT_FAILURE,
                });
            }
        }
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        if let Some(mesh) = &self.mesh {
            mesh.send(to, message);
        }
    }

    /// Remembers the first reason; the loop ends at its next turn.
    fn halt(&mut self, end: NodeEnd) {
        self.halted.get_or_insert(end);
    }

    fn drop_waiting(&mut self, waiting: &Waiting) {
        self.clients
            .drop_request(waiting.connection, waiting.size, waiting.ordered);
    }

    /// Tells log and supervisor when role, status or view of the metadata group have changed, or
    /// the node has become ready to serve.
    pub(super) fn report_role(&mut self) {
        let replica = self.metadata.replica();
        let status = replica.status();
        let normal = status.status == Status::Normal
            && (!status.is_primary || replica.is_caught_up_primary());
        let ready = normal && self.partitions_are_ready();
        self.update_glance(ready);
        let now = Reported {
            is_primary: status.is_primary,
            status: status.status,
            view: status.view,
            ready,
        };
        if self.reported == Some(now) {
            return;
        }
        self.reported = Some(now);
        let role = if now.is_primary { "primary" } else { "backup" };
        let status = match now.status {
            Status::Normal => "normal",
            Status::ViewChange => "view_change",
            Status::Recovering => "recovering",
        };
        info!(role, status, view = now.view.0, ready, "metadata group");
        if self.supervised {
            Report::Role {
                node: self.identity.replica.0,
                role: role.to_owned(),
                status: status.to_owned(),
                view: now.view.0,
                ready,
            }
            .print();
        }
    }

    /// True from the first moment on at which every partition here was in status Normal. Looked at
    /// now and then only: there may be thousands.
    fn partitions_are_ready(&mut self) -> bool {
        let opened = self.metadata.is_topology_settled();
        if !self.partitions_ready && opened && self.tick.is_multiple_of(READY_TICKS) {
            self.partitions_ready = self.partitions.is_settled();
        }
        self.partitions_ready
    }

    /// Members of consumer groups that were silent too long lose their session (chapter 07 section
    /// 10.1).
    pub(super) fn evict_stale_members(&mut self) {
        let heartbeat = &self.config.heartbeat;
        let interval = u64::from(heartbeat.interval.ticks());
        if !heartbeat.enabled || !self.tick.is_multiple_of(interval) {
            return;
        }
        let limit = interval + interval / 5;
        let state = self.metadata.state();
        let stale: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, session)| self.tick.saturating_sub(session.last_active) > limit)
            .filter(|(_, session)| {
                let client = session.bound.map(|bound| bound.client);
                client.is_some_and(|client| state.memberships_of(client).next().is_some())
            })
            .map(|(id, _)| id)
            .collect();
        for id in stale {
            let client = crate::client::session::Session::transport_id(id);
            let reason = biplane_wire::EvictionReason::StaleClient;
            let frame = reply::eviction(&self.identity, self.metadata_view(), client, reason);
            self.clients.push(id, frame);
            if let Some(bound) = self.clients.unbind(id) {
                self.log_out_lost(bound);
            }
        }
        self.flush();
    }

    /// A revoked partition is released once its old owner has committed what it was served
    /// (chapter 06 section 11.5), or when the rebalance takes too long.
    pub(super) fn complete_revocations(&mut self) {
        const PERIOD_TICKS: u64 = 10;
        if !self.tick.is_multiple_of(PERIOD_TICKS) || !self.metadata.replica().is_primary() {
            return;
        }
        let now = crate::clock::wall_micros();
        let timeout = self.config.consumer_group.rebalancing_timeout.0.as_micros();
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        let done: Vec<_> = self
            .metadata
            .state()
            .pending_revocations()
            .filter(|pending| {
                let key = pending.key;
                let group = biplane_wire::GroupId::partition(key.stream, key.topic, key.partition);
                let id = u32::try_from(key.group).ok();
                let drained = group
                    .zip(id)
                    .is_some_and(|(group, id)| self.partitions.drained(group, id));
                drained || now.saturating_sub(pending.created_at) >= timeout
            })
            .map(|pending| pending.key)
            .collect();
        for key in done {
            self.step_metadata(metadata::Input::CompleteRevocation(key));
        }
        self.flush();
    }
}
