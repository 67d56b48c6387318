//! The serving side of repair: one request in, one chunk out (chapter 04 sections 2.4 and 2.5).
//!
//! It keeps nothing between two requests. Stored prepares go out as they are; only the command
//! byte of a replaced header differs, and the body is shared with the journal. The order of the
//! frames is part of the protocol: a notice about an evicted start comes first, because the
//! receiver acts on it when the closing frame arrives, and the closing frame always comes.

use biplane_wire::{
    ClusterId, Command, GroupId, Header, Message, Op, PrepareHeader, RepairRangeReplyHeader,
    ReplicaId, RequestPreparesHeader,
};

use crate::view::{GroupStatus, PlaneKind};

/// Where the prepares of a group are found.
pub trait PrepareSource {
    /// The stored prepare at `op`, if it can be read now.
    fn prepare(&self, op: Op) -> Option<Message>;

    /// The first op of `[from, to]` whose header is journaled. The range is bounded by numbers
    /// a peer chose, so this is a look-up among entries, not a walk over op numbers.
    fn next_held(&self, from: Op, to: Op) -> Option<Op>;
}

/// What the server knows about itself and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeFacts {
    /// Stamped into the control frames.
    pub cluster: ClusterId,
    /// This replica.
    pub replica: ReplicaId,
    /// The group.
    pub group: GroupId,
    /// Its plane.
    pub plane: PlaneKind,
    /// Status of this replica.
    pub status: GroupStatus,
    /// A state transfer is wanted or under way here.
    pub transferring: bool,
    /// A committed purge is not applied here yet.
    pub purge_deferred: bool,
    /// The primary of this replica's view.
    pub primary: ReplicaId,
    /// The first op that can be retained. Metadata: one above the watermark of the last
    /// checkpoint. Partition: the oldest evicted, else the oldest resident op, else one above
    /// the applied point; and above the purge floor in any case.
    pub retained_from: Op,
    /// Highest op known committed.
    pub commit_max: Op,
    /// Highest op the log claims.
    pub head: Op,
    /// `cluster.repair_chunk_max`.
    pub chunk_max: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// No frame was sent.
    Ignored(ServeIgnored),
    /// The closing frame was sent, with what came before it.
    Answered {
        /// Start of what is retained, if the requester was told.
        evicted: Option<Op>,
        /// How many prepares were handed over.
        count: u32,
        /// The op of the closing frame.
        last: Op,
    },
}

/// Why a request stays without an answer; the requester's timer asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeIgnored {
    /// The range is empty or starts at zero.
    BadRange,
    /// A committed purge is not applied here: the answer would hand out what is about to go.
    PurgeDeferred,
    /// Not in a status in which this plane serves.
    Status,
    /// A state transfer is under way here.
    Transferring,
    /// The request names another group.
    WrongGroup,
}

/// What a request comes to: where to start, and what to say first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    evicted: Option<Op>,
    /// First op to send; `None` when nothing is held.
    start: Option<Op>,
    to: Op,
    /// The closing op when no prepare is sent.
    last: Op,
}

/// Answers a request: `[RangeEvicted] RepairPrepare* RepairDone`, or nothing at all.
///
/// `send` hands one frame to the requester's queue and returns false when it was refused; the
/// chunk ends there.
pub fn serve(
    request: &RequestPreparesHeader,
    facts: &ServeFacts,
    source: &impl PrepareSource,
    mut send: impl FnMut(Message) -> bool,
) -> Served {
    if let Some(reason) = declines(request, facts) {
        return Served::Ignored(reason);
    }
    let Plan {
        evicted,
        start,
        to,
        mut last,
    } = plan(request, facts, source);
    if let Some(op) = evicted {
        send(range_reply(Command::RangeEvicted, op, request, facts));
    }
    let mut count = 0;
    let mut next = start;
    while let Some(op) = next.filter(|op| *op <= to && count < facts.chunk_max) {
        let Some(prepare) = source.prepare(op) else {
            break;
        };
        assert!(
            prepare.header::<PrepareHeader>().op() == op,
            "the log is indexed by op"
        );
        if !send(prepare.prepare_to_repair()) {
            break;
        }
        last = op;
        count += 1;
        next = op.0.checked_add(1).map(Op);
    }
    send(range_reply(Command::RepairDone, last, request, facts));
    Served::Answered {
        evicted,
        count,
        last,
    }
}

fn declines(request: &RequestPreparesHeader, facts: &ServeFacts) -> Option<ServeIgnored> {
    let (from, to) = (request.from_op(), request.to_op());
    let by_elect = request.frame().replica() == facts.primary;
    let serves = match (facts.plane, facts.status) {
        (_, GroupStatus::Normal) => true,
        (PlaneKind::Metadata, GroupStatus::ViewChange) => true,
        (PlaneKind::Partition, GroupStatus::ViewChange) => by_elect,
        (_, GroupStatus::Recovering) => false,
    };
    if request.group() != facts.group {
        Some(ServeIgnored::WrongGroup)
    } else if from == Op::ZERO || from > to {
        Some(ServeIgnored::BadRange)
    } else if !serves {
        Some(ServeIgnored::Status)
    } else if facts.transferring {
        Some(ServeIgnored::Transferring)
    } else if facts.plane == PlaneKind::Partition && facts.purge_deferred {
        Some(ServeIgnored::PurgeDeferred)
    } else {
        None
    }
}

fn plan(request: &RequestPreparesHeader, facts: &ServeFacts, source: &impl PrepareSource) -> Plan {
    let from = request.from_op();
    // The requester may name any number; what lies above is not held by anyone.
    let to = request.to_op().min(facts.commit_max.max(facts.head));
    let lowest = from.max(facts.retained_from);
    match facts.plane {
        PlaneKind::Metadata => match source.next_held(lowest, to) {
            Some(start) => {
                let evicted = (start > from).then_some(start);
                Plan {
                    evicted,
                    start: Some(start),
                    to,
                    last: before(start),
                }
            }
            None => {
                let evicted = Some(to.next().max(lowest));
                Plan {
                    evicted,
                    start: None,
                    to,
                    last: before(from),
                }
            }
        },
        PlaneKind::Partition => {
            let evicted = (facts.retained_from > from).then_some(facts.retained_from);
            Plan {
                evicted,
                start: Some(lowest),
                to,
                last: before(lowest),
            }
        }
    }
}

fn before(op: Op) -> Op {
    op.previous().unwrap_or(Op::ZERO)
}

fn range_reply(
    command: Command,
    op: Op,
    request: &RequestPreparesHeader,
    facts: &ServeFacts,
) -> Message {
    let mut header = RepairRangeReplyHeader::new(command);
    header.frame.set_cluster(facts.cluster);
    header.frame.set_replica(facts.replica);
    header.set_nonce(request.nonce());
    header.set_op(op);
    header.set_group(facts.group);
    Message::sealed(header, &[])
}
