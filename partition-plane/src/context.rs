//! What a group is lent for one step: the outputs, the clock of ticks, the counters it shares
//! with its siblings. Nothing here outlives the step.

use std::collections::BTreeSet;

use biplane_journal::{DiskOp, DiskRequest, QueueId};
use biplane_repair as repair;
use biplane_state_transfer as transfer;
use biplane_vsr as vsr;
use biplane_wire::{GroupId, Message, ReplicaId};

use crate::io::{Output, Outputs};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::recovery::NodeIdentity;
use crate::reply::Confirmations;
use crate::shared_superblock::Change;

/// Top bit pattern of every disk queue of this plane.
const QUEUE_MARK: u64 = 1 << 62;
/// Distance between the queues of two groups. Odd, so that drivers that deal queues out to
/// threads by their number spread the same kind of work of many groups.
const QUEUE_STRIDE: u64 = 9;

/// Facts and bounds of the node that never change.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) identity: NodeIdentity,
    pub(crate) limits: Limits,
    pub(crate) timers: vsr::Timers,
    pub(crate) view_probe_attempts_max: u8,
}

impl Node {
    /// Whether other replicas exist.
    pub(crate) fn is_replicated(&self) -> bool {
        self.identity.replica_count > 1
    }
}

/// The disk queues of one group. Requests of one queue are executed in order, and each queue
/// has one subject: what must be ordered shares a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queues(u64);

impl Queues {
    /// The queues of the `slot`-th group opened since the node started, counted from 1; slots are
    /// never reused, so an answer for a closed group finds nobody.
    pub(crate) fn of_slot(slot: u64) -> Self {
        Self(slot)
    }

    /// The queues of what all groups share.
    pub(crate) fn shared() -> Self {
        Self(0)
    }

    /// Whose queue this is.
    pub(crate) fn owner(queue: QueueId) -> Option<Self> {
        is_ours(queue).then_some(Self((queue.0 & !QUEUE_MARK) / QUEUE_STRIDE))
    }

    fn queue(self, kind: u64) -> QueueId {
        QueueId(QUEUE_MARK | (self.0 * QUEUE_STRIDE + kind))
    }

    pub(crate) fn superblock(self) -> QueueId {
        self.queue(0)
    }

    pub(crate) fn prepare_log(self) -> QueueId {
        self.queue(1)
    }

    /// Segments, folders and every script that moves files.
    pub(crate) fn files(self) -> QueueId {
        self.queue(2)
    }

    pub(crate) fn offsets(self) -> QueueId {
        self.queue(3)
    }

    /// One of several queues for reads, which need no order among themselves.
    pub(crate) fn reads(self, token: u64) -> QueueId {
        self.queue(4 + token % 3)
    }

    /// Spooling of a state transfer.
    pub(crate) fn spool(self) -> QueueId {
        self.queue(7)
    }
}

/// Whether a queue belongs to the partition plane.
pub(crate) fn is_ours(queue: QueueId) -> bool {
    queue.0 >> 62 == 1
}

/// Lent to a group for one step.
pub(crate) struct Context<'a> {
    pub(crate) node: &'a Node,
    pub(crate) out: &'a mut Outputs,
    /// Ticks since the node started.
    pub(crate) now: u64,
    /// Wall clock in microseconds, as of the last tick.
    pub(crate) wall_micros: u64,
    /// Times that metadata here was confirmed to be up to date.
    pub(crate) confirmed: u64,
    /// Peers that are not connected.
    pub(crate) absent: &'a BTreeSet<ReplicaId>,
    pub(crate) tokens: &'a mut u64,
    pub(crate) repairs: &'a mut repair::Budget,
    pub(crate) pulls: &'a mut transfer::PullBudget,
    pub(crate) provider: &'a mut transfer::Provider,
    /// Bytes of prepares in the memory of all groups.
    pub(crate) resident_total: &'a mut usize,
    /// Groups that ask to be taken down and opened again without data, and why.
    pub(crate) resets: &'a mut Vec<(GroupId, String)>,
    /// Changes of lines in the shared superblock.
    pub(crate) lines: &'a mut Vec<Change>,
    /// Groups that have looked at their peers because somebody waits for it.
    pub(crate) looked: &'a mut Vec<GroupId>,
    /// Elections of all groups.
    pub(crate) pace: &'a mut Pace,
    /// Scratch space, so that a step of an idle group allocates nothing.
    pub(crate) scratch: &'a mut Scratch,
}

/// Vectors reused from step to step.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) vsr: Vec<vsr::Output>,
    pub(crate) repair: Vec<repair::RepairOutput>,
    pub(crate) pull: Vec<transfer::PullOutput>,
    pub(crate) disk: Vec<DiskRequest>,
    pub(crate) confirmations: Confirmations,
}

impl Context<'_> {
    /// A token no request of this plane carried before.
    pub(crate) fn token(&mut self) -> u64 {
        *self.tokens += 1;
        *self.tokens
    }

    /// Submits `op` and returns its token.
    pub(crate) fn submit(&mut self, queue: QueueId, op: DiskOp) -> u64 {
        let token = self.token();
        self.out
            .push(Output::Disk(DiskRequest { queue, token, op }));
        token
    }

    pub(crate) fn send(&mut self, to: ReplicaId, message: Message) {
        self.out.push(Output::Send { to, message });
    }

    /// Passes on what a journal machine asked of the disk.
    pub(crate) fn pass_disk(&mut self) {
        self.out
            .extend(self.scratch.disk.drain(..).map(Output::Disk));
    }
}

/// Pause before the next attempt of something that failed `failures` times: doubling from one
/// tick.
pub(crate) fn backoff(failures: u32, ticks_max: u64) -> u64 {
    1u64.checked_shl(failures.min(32))
        .unwrap_or(u64::MAX)
        .min(ticks_max.max(1))
}
