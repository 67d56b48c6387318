//! A node as the world sees it: causes in, effects out, and looks for the oracles.
//!
//! There are two kinds of machine behind this trait: [`crate::planes`] runs the planes that
//! ship, joined as the server joins them; [`crate::bare`] runs bare consensus groups with the
//! smallest possible plane around them, which is quick and needs no client protocol.

use biplane_journal::{DiskCompletion, DiskPath, DiskRequest, DiskView};
use biplane_vsr::{Durability, Replica};
use biplane_wire::{
    ClientId, EvictionReason, GroupId, Message, Op, Operation, PartitionKey, ReplicaFrame, View,
};

/// What a client asks of a node.
#[derive(Clone, Debug)]
pub enum Call {
    /// Log in; the credentials are taken as verified.
    Register {
        /// Client id of the login.
        client: ClientId,
        /// User the credentials belong to.
        user_id: u32,
    },
    /// Log out, or the connection ended.
    Logout {
        /// Client.
        client: ClientId,
        /// Epoch of its session.
        session: u64,
        /// Number of the request.
        request: u64,
    },
    /// A request of a session: a metadata operation, or one of the replicated partition
    /// operations.
    Request {
        /// The group it is for.
        group: GroupId,
        /// Client.
        client: ClientId,
        /// User its connection is bound to.
        user_id: u32,
        /// Epoch of its session.
        session: u64,
        /// Number of the request.
        request: u64,
        /// Operation.
        operation: Operation,
        /// Body as the client sends it.
        body: Vec<u8>,
    },
    /// Ask what exists.
    Directory,
    /// Read messages.
    Poll {
        /// Partition.
        group: GroupId,
        /// Who reads.
        reader: Reader,
        /// What to read.
        query: PollCall,
    },
    /// Ask which partitions of a consumer group are one's own.
    Sync {
        /// The topic and the group in it.
        group: GroupAddress,
        /// The member.
        client: ClientId,
    },
}

/// A consumer group, by ids: stream, topic, group.
pub type GroupAddress = (u32, u32, u32);

/// Who reads, as the connection knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Client.
    pub client: ClientId,
    /// User.
    pub user_id: u32,
}

impl Reader {
    /// One that may read everything.
    pub const ROOT: Self = Self {
        client: ClientId(0),
        user_id: 0,
    };
}

/// What a node knows to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Stream ids.
    pub streams: Vec<u32>,
    /// Partitions.
    pub partitions: Vec<PartitionKey>,
    /// Consumer groups.
    pub groups: Vec<GroupAddress>,
    /// Users, the root user first.
    pub users: Vec<u32>,
}

/// Where a poll starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollFrom {
    /// At an offset.
    Offset(u64),
    /// At the first message kept.
    First,
    /// At the last messages.
    Last,
    /// Behind the stored position.
    Next,
    /// At the first batch of this broker time or later, in microseconds.
    Timestamp(u64),
}

/// A poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollCall {
    /// Number of the consumer, or of the consumer group.
    pub consumer: u32,
    /// Whether it is a group: the reader must own the partition.
    pub as_group: bool,
    /// Where it starts.
    pub from: PollFrom,
    /// Messages wanted at most.
    pub count: u32,
    /// Whether the position after it is stored.
    pub auto_commit: bool,
    /// Whether only a primary may answer.
    pub primary_only: bool,
}

/// What a node answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The session exists.
    Registered {
        /// Its epoch.
        session: u64,
        /// Highest request number committed before.
        watermark: u64,
    },
    /// A frame: a committed reply, or a refusal in one.
    Replied {
        /// Status field of the frame, or code in its result section; zero for success.
        code: u32,
        /// The frame.
        message: Message,
    },
    /// The answer to a poll.
    Polled {
        /// Zero or a status.
        status: u32,
        /// Body of the reply.
        body: Vec<u8>,
    },
    /// What exists, as far as this node has applied.
    Directory(Directory),
    /// The partitions a member may poll; `None` where it is no member.
    Synced(Option<Vec<u32>>),
    /// Not now. With `maybe`, it may have happened or may still happen.
    Transient {
        /// Whether the outcome is unknown.
        maybe: bool,
        /// The code.
        code: u32,
    },
    /// The session is gone, as asked.
    LoggedOut,
    /// The session is over.
    Evicted(EvictionReason),
    /// For good: the node says it will never happen.
    Refused(u32),
}

/// One cause for a node to act.
#[derive(Debug)]
pub enum Cause {
    /// 10 ms passed.
    Tick {
        /// Microseconds since the epoch.
        wall_micros: u64,
    },
    /// A frame of a peer.
    Frame {
        /// The peer at the other end of the connection.
        from: u8,
        /// The frame.
        frame: Box<ReplicaFrame>,
    },
    /// A disk request was carried out.
    Disk(DiskCompletion),
    /// A connection came or went.
    Peer {
        /// The peer.
        peer: u8,
        /// Whether it is reachable.
        connected: bool,
    },
    /// A client asks.
    Call {
        /// Echoed in the answer.
        token: u64,
        /// What it asks.
        call: Box<Call>,
    },
    /// The node is about to stop in good order: flush.
    Flush,
}

/// One effect of a node.
#[derive(Debug)]
pub enum Effect {
    /// A frame for a peer.
    Send {
        /// The peer.
        to: u8,
        /// The frame.
        message: Message,
    },
    /// Work for the disk.
    Disk(DiskRequest),
    /// An answer.
    Answer {
        /// Token of the call.
        token: u64,
        /// The answer.
        answer: Answer,
    },
    /// No answer will come.
    Forget {
        /// Token of the call.
        token: u64,
    },
    /// A partition was set aside or refuses service.
    Fenced {
        /// The group.
        group: GroupId,
        /// Why.
        reason: String,
    },
    /// The process stops.
    Halt(String),
}

/// What the oracles must know of a group to judge it.
#[derive(Clone, Debug)]
pub struct GroupFacts {
    /// Which incarnation of the id this is.
    pub incarnation: u64,
    /// Purges that metadata has committed for it.
    pub purges: u64,
    /// Segments up to this offset were deleted by request; 0 for none.
    pub deleted_up_to: u64,
    /// Whether old messages go by themselves.
    pub expires: bool,
    /// View a replica starts in that never took part.
    pub first_view: View,
    /// Folder of its superblock.
    pub superblock: DiskPath,
    /// Its prepare log, if it has one, and the bytes a record has beyond its frame.
    pub prepare_log: Option<(DiskPath, usize)>,
}

/// Something that must not exceed its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of which group.
    pub group: GroupId,
    /// Name of the limit.
    pub what: &'static str,
    /// How much there is.
    pub is: u64,
    /// How much there may be.
    pub most: u64,
}

/// A node. See the file's head.
pub trait Machine {
    /// The only way in.
    fn step(&mut self, cause: Cause, disk: &dyn DiskView, out: &mut Vec<Effect>);

    /// The groups that are open.
    fn groups(&self) -> Vec<GroupId>;

    /// The consensus core of a group.
    fn replica(&self, group: GroupId) -> Option<&Replica>;

    /// What must hold before an acknowledgement of this operation leaves.
    fn durability(&self, group: GroupId, operation: Operation) -> Durability;

    /// More about a group.
    fn facts(&self, group: GroupId) -> Option<GroupFacts>;

    /// A digest of the applied state of a group, equal on replicas that applied the same ops.
    fn digest(&self, group: GroupId) -> u64;

    /// The applied state of a group, for people.
    fn describe(&self, group: GroupId) -> String;

    /// Queues and tables, and how large they may become.
    fn bounds(&self, out: &mut Vec<Bound>) {
        for group in self.groups() {
            if let Some(replica) = self.replica(group) {
                core_bounds(group, replica, out);
            }
        }
    }

    /// Where the messages applied here end, for groups that have messages.
    fn next_offset(&self, _group: GroupId) -> Option<u64> {
        None
    }

    /// A digest of what a group remembers of its clients: who is logged in under which epoch,
    /// and up to which request each was served. Zero where a restart may forget it.
    fn sessions(&self, _group: GroupId) -> u64 {
        0
    }

    /// Whether everything asked for by [`Cause::Flush`] is on the disk.
    fn is_flushed(&self) -> bool;

    /// Panics when a core finds a contradiction in itself.
    fn check_invariants(&self);
}

/// The applied op of a group, for short.
#[must_use]
pub fn commit_min(machine: &dyn Machine, group: GroupId) -> Op {
    machine.replica(group).map_or(Op::ZERO, Replica::commit_min)
}

/// What the consensus core bounds by itself.
pub fn core_bounds(group: GroupId, replica: &Replica, out: &mut Vec<Bound>) {
    let (status, limits) = (replica.status(), replica.config().limits);
    let mut bound = |what, is: usize, most: u64| {
        out.push(Bound {
            group,
            what,
            is: is as u64,
            most,
        });
    };
    let queued = status.requests_queued;
    bound("requests queued", queued, u64::from(limits.request_queue));
    // What was inherited from a primary with a deeper queue is in flight as well.
    let pipeline = u64::from(limits.prepare_queue).max(127);
    bound("prepares in flight", status.prepares_in_flight, pipeline);
}
