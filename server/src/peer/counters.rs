//! What the links count: for the mesh as a whole, and for each peer.
//!
//! The series of a peer are as many as there are reasons and kinds of traffic, so all of them
//! together are bounded by the roster.

use std::sync::atomic::{AtomicU64, Ordering};

use biplane_wire::{Command, Message};

use crate::refusals::RefusalCounts;

/// Counts of what is not counted of a single peer.
#[derive(Debug, Default)]
pub(crate) struct MeshCounters {
    /// Connections closed for a framing violation.
    pub(crate) closed_framing: AtomicU64,
    /// Handshakes that ended in a refusal, a timeout or an error.
    pub(crate) handshakes_failed: AtomicU64,
    /// Connections turned away because too many handshakes were in flight.
    pub(crate) handshakes_overflow: AtomicU64,
    /// Connections dialed.
    pub(crate) dials: AtomicU64,
    /// Links registered.
    pub(crate) links_up: AtomicU64,
    /// Finished handshakes whose peer had a link already.
    pub(crate) links_refused: AtomicU64,
    /// Writes, counted in batches.
    pub(crate) batches_out: AtomicU64,
}

impl MeshCounters {
    /// Every count of the mesh by name: its own, and those of all peers together.
    pub(super) fn totals(&self, links: &[LinkCounters]) -> Vec<(&'static str, u64)> {
        let all = |of: fn(&LinkCounters) -> u64| links.iter().map(of).sum::<u64>();
        vec![
            ("dropped_no_link", all(|link| read(&link.dropped_no_link))),
            (
                "dropped_queue_full",
                all(|link| read(&link.dropped_queue_full)),
            ),
            (
                "refused_frames",
                all(|link| link.refused.total() + read(&link.routed_requests)),
            ),
            ("foreign_frames", all(|link| read(&link.foreign))),
            ("lost_with_link", all(|link| read(&link.lost_with_link))),
            ("closed_framing", read(&self.closed_framing)),
            ("handshakes_failed", read(&self.handshakes_failed)),
            ("handshakes_overflow", read(&self.handshakes_overflow)),
            ("dials", read(&self.dials)),
            ("links_up", read(&self.links_up)),
            ("links_refused", read(&self.links_refused)),
            ("frames_out", all(|link| link.sent.total())),
            ("batches_out", read(&self.batches_out)),
            ("frames_in", all(|link| link.received.total())),
        ]
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What frames between replicas are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Prepares, their acknowledgements, and commits, which are the heartbeat, too.
    Replication,
    /// Choosing a view and its log.
    ViewChange,
    /// Prepares that a replica lacks.
    Repair,
    /// The state that a replica lacks.
    Transfer,
    /// Logins and logouts carried to the primary.
    Sessions,
    /// What no replica sends.
    Other,
}

impl Traffic {
    const COUNT: usize = Self::Other as usize + 1;
    const NAMES: [&'static str; Self::COUNT] = [
        "replication",
        "view_change",
        "repair",
        "transfer",
        "sessions",
        "other",
    ];

    const fn of(command: Command) -> Self {
        match command {
            Command::Prepare | Command::PrepareOk | Command::Commit => Self::Replication,
            Command::StartViewChange
            | Command::DoViewChange
            | Command::StartView
            | Command::RequestStartView => Self::ViewChange,
            Command::RequestPrepares
            | Command::RepairPrepare
            | Command::RepairDone
            | Command::RangeEvicted => Self::Repair,
            Command::RequestStateTransfer
            | Command::StateTransferTarget
            | Command::RequestStateChunk
            | Command::StateChunk => Self::Transfer,
            Command::ForwardRegister
            | Command::ForwardRegisterResult
            | Command::ForwardLogout
            | Command::ForwardLogoutResult => Self::Sessions,
            Command::Reserved
            | Command::Ping
            | Command::Pong
            | Command::PingClient
            | Command::PongClient
            | Command::Request
            | Command::Reply
            | Command::Eviction
            | Command::ReplicaHello
            | Command::ReplicaChallenge
            | Command::ReplicaFinish => Self::Other,
        }
    }
}

/// Frames and bytes in one direction, by what they are for.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    frames: [AtomicU64; Traffic::COUNT],
    bytes: [AtomicU64; Traffic::COUNT],
}

/// A kind of traffic in one direction at one moment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct FlowReport {
    /// What it is for.
    pub(crate) traffic: &'static str,
    /// Frames.
    pub(crate) frames: u64,
    /// Their bytes, headers included, without what TLS adds.
    pub(crate) bytes: u64,
}

impl Flow {
    /// One more frame.
    pub(super) fn note(&self, message: &Message) {
        let kind = Traffic::of(message.command()) as usize;
        self.frames[kind].fetch_add(1, Ordering::Relaxed);
        self.bytes[kind].fetch_add(message.size() as u64, Ordering::Relaxed);
    }

    /// Frames of all kinds.
    fn total(&self) -> u64 {
        self.frames.iter().map(read).sum()
    }

    /// All kinds.
    pub(crate) fn report(&self) -> Vec<FlowReport> {
        let kinds = Traffic::NAMES.iter().enumerate();
        kinds
            .map(|(kind, traffic)| FlowReport {
                traffic,
                frames: read(&self.frames[kind]),
                bytes: read(&self.bytes[kind]),
            })
            .collect()
    }
}

/// What is counted of one peer, over all links there were to it.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    /// Frames for it that were dropped because no connection was up.
    pub(super) dropped_no_link: AtomicU64,
    /// Frames for it that were dropped because its queue was full.
    pub(super) dropped_queue_full: AtomicU64,
    /// Frames queued or being written when the link was lost.
    pub(super) lost_with_link: AtomicU64,
    /// Frames of it that are of another cluster or of no member.
    pub(super) foreign: AtomicU64,
    /// Client requests it sent, which no replica does.
    pub(super) routed_requests: AtomicU64,
    /// Frames of it that typed decode refused.
    pub(super) refused: RefusalCounts,
    /// Written to it.
    pub(crate) sent: Flow,
    /// Received from it and passed on.
    pub(crate) received: Flow,
}

impl LinkCounters {
    /// Frames to it that were dropped, by reason.
    pub(crate) fn dropped(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("no_link", read(&self.dropped_no_link)),
            ("queue_full", read(&self.dropped_queue_full)),
            ("lost_with_link", read(&self.lost_with_link)),
        ]
    }

    /// Frames of it that were not passed on, by reason.
    pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.refused.counts();
        counts.push(("foreign", read(&self.foreign)));
        counts.push(("routed_request", read(&self.routed_requests)));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_and_transfer_are_told_from_what_is_new() {
        let names: Vec<(u8, &str)> = Command::ALL
            .iter()
            .map(|command| {
                let kind = Traffic::of(*command) as usize;
                (command.as_u8(), Traffic::NAMES[kind])
            })
            .filter(|(_, name)| *name != "other")
            .collect();
        let of = |name: &str| -> Vec<u8> {
            let found = names.iter().filter(|(_, known)| *known == name);
            found.map(|(byte, _)| *byte).collect()
        };
        assert_eq!(of("replication"), [6, 7, 9]);
        assert_eq!(of("view_change"), [10, 11, 12, 17]);
        assert_eq!(of("repair"), [18, 19, 20, 21]);
        assert_eq!(of("transfer"), [22, 23, 24, 25]);
        assert_eq!(of("sessions"), [26, 27, 28, 29]);
    }

    #[test]
    fn a_flow_counts_frames_and_their_bytes() {
        let flow = Flow::default();
        let header = || biplane_wire::CommitHeader::new(Command::Commit);
        flow.note(&Message::sealed(header(), &[]));
        flow.note(&Message::sealed(header(), &[0; 44]));
        let report = flow.report();
        let counted = report.iter().filter(|kind| kind.frames > 0);
        let counted: Vec<_> = counted.collect();
        let [only] = counted[..] else {
            panic!("{counted:?}");
        };
        assert_eq!(
            (only.traffic, only.frames, only.bytes),
            ("replication", 2, 256 + 256 + 44)
        );
    }
}
