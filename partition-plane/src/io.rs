//! What goes into the plane and what comes out: plain values, no calls back.
//!
//! Clients are known here only by a token the driver chose; every [`Output`] that answers a
//! client carries the token of its request and no token is answered twice.

use std::ops::Range;
use std::sync::Arc;

use biplane_journal::{DiskCompletion, DiskRequest, ReadBytes};
use biplane_wire::{FrameBuffer, GroupId, Message, ReplicaFrame, ReplicaId, View};

use crate::consumer_offsets::ConsumerKey;
use crate::limits::TopicOptions;
use crate::poll::Strategy;
use crate::recovery::Recovered;

/// What metadata says about one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// The packed stream, topic and partition.
    pub group: GroupId,
    /// Metadata revision that created the partition: tells incarnations of one id apart.
    pub created_revision: u64,
    /// View a fresh group starts in (chapter 06 section 2.1); ignored when files exist.
    pub created_view: View,
    /// Whether the creating operation is being applied right now. After a restart, or when
    /// metadata came by a transfer, the group may have run for long elsewhere: then a missing
    /// folder makes the replica ask its peers before it takes part.
    pub is_new: bool,
    /// Options of the topic.
    pub options: TopicOptions,
    /// Committed purge generation.
    pub purge_generation: u64,
    /// Committed deletion watermark (chapter 06 section 15.2); 0 for none.
    pub deleted_up_to: u64,
}

/// A poll, resolved: strings hashed or looked up, permissions and group fence checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollQuery {
    /// Whose stored position Next and auto-commit use.
    pub key: ConsumerKey,
    /// Where to start.
    pub strategy: Strategy,
    /// Messages wanted at most.
    pub count: u32,
    /// Whether the position after this poll is stored.
    pub auto_commit: bool,
    /// Whether only the primary may answer (command code 104).
    pub primary_only: bool,
}

/// A cause.
#[derive(Debug)]
pub enum Input {
    /// 10 ms passed.
    Tick {
        /// Wall clock in microseconds since the epoch.
        wall_micros: u64,
    },
    /// A frame of a peer whose group is a partition.
    Frame {
        /// The authenticated peer it came from.
        from: ReplicaId,
        /// The frame, typed.
        frame: ReplicaFrame,
    },
    /// The answer to an [`Output::Disk`].
    Disk(DiskCompletion),
    /// The connection to a peer came or went.
    Peer {
        /// The peer.
        replica: ReplicaId,
        /// Whether frames reach it.
        connected: bool,
    },
    /// Metadata names a partition: materialise it, or bring the options of a running one up to
    /// date. A running group of another incarnation is closed and removed first.
    OpenGroup {
        /// What metadata says.
        spec: GroupSpec,
        /// What [`crate::recovery::recover`] found in its folder.
        recovered: Box<Recovered>,
    },
    /// Metadata no longer names the partition: stop it and remove its folder.
    CloseGroup {
        /// The group.
        group: GroupId,
    },
    /// New options, purge generation or deletion watermark of a running partition.
    UpdateGroup(GroupSpec),
    /// A client operation (160, 161 or 162).
    Submit {
        /// Echoed in the answer.
        token: u64,
        /// The group the driver resolved.
        group: GroupId,
        /// Routed request header and the client's body, metadata prefix included.
        request: FrameBuffer,
    },
    /// A poll.
    Poll {
        /// Echoed in the answer.
        token: u64,
        /// The group.
        group: GroupId,
        /// The resolved query.
        query: PollQuery,
    },
    /// A read of a stored position.
    GetOffset {
        /// Echoed in the answer.
        token: u64,
        /// The group.
        group: GroupId,
        /// Whose position.
        key: ConsumerKey,
    },
    /// A group or consumer is gone: the primary submits a delete of its stored position.
    ForgetOffset {
        /// The group.
        group: GroupId,
        /// Whose position.
        key: ConsumerKey,
    },
    /// Metadata here includes everything that was committed when its primary last spoke. The
    /// host repeats it whenever that is known anew.
    TopologyConfirmed,
    /// The node is about to stop: flush every committed prefix now. [`crate::PartitionPlane::
    /// is_flushed`] says when it is done.
    FlushAll,
}

/// A run of bytes of a poll body, shared with the log, the disk read or standing alone.
#[derive(Debug, Clone)]
pub enum BodyPart {
    /// The whole body of a prepare: one batch.
    Body(Message),
    /// Frames of a batch that is sent in part.
    BodyRange(Message, Range<usize>),
    /// A rewritten batch header, or the prefix of the body.
    Bytes(Arc<[u8]>),
    /// Bytes read from a segment.
    Read(ReadBytes),
}

impl BodyPart {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Body(message) => message.body(),
            Self::BodyRange(message, range) => message.body().get(range.clone()).unwrap_or(&[]),
            Self::Bytes(bytes) => bytes,
            Self::Read(bytes) => bytes.as_bytes(),
        }
    }
}

/// Concatenates the parts of a poll body: for tests and small answers.
pub fn concat_parts(parts: &[BodyPart]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| part.as_bytes())
        .copied()
        .collect()
}

/// The answer to a poll.
#[derive(Debug, Clone)]
pub struct PollReply {
    /// 0, or a status code and then the body is empty.
    pub status: u32,
    /// The body: the 16-byte prefix, then batch records.
    pub body: Vec<BodyPart>,
    /// Length of the body.
    pub body_len: usize,
    /// Messages in it.
    pub count: u32,
    /// Offset of the last of them.
    pub last_offset: Option<u64>,
}

/// The answer to a read of a stored position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetReply {
    /// 0, or a status code.
    pub status: u32,
    /// `partition_id, current_offset, stored_offset`; `None` when nothing is stored.
    pub body: Option<[u8; 20]>,
}

/// A transition worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// The group.
    pub group: GroupId,
    /// Its view now.
    pub view: View,
    /// The primary of that view.
    pub primary: ReplicaId,
    /// Whether this node leads it and is in status Normal.
    pub is_primary: bool,
}

/// An effect.
#[derive(Debug)]
pub enum Output {
    /// A frame for a peer.
    Send {
        /// The peer.
        to: ReplicaId,
        /// The frame.
        message: Message,
    },
    /// The answer to a [`Input::Submit`]: a whole Reply frame, refusals included.
    Reply {
        /// Token of the request.
        token: u64,
        /// Its status: 0 or a refusal.
        status: u32,
        /// The frame.
        message: Message,
    },
    /// The answer to a [`Input::Poll`].
    PollReply {
        /// Token of the poll.
        token: u64,
        /// The answer.
        reply: PollReply,
    },
    /// The answer to a [`Input::GetOffset`].
    OffsetReply {
        /// Token of the read.
        token: u64,
        /// The answer.
        reply: OffsetReply,
    },
    /// Work for the disk.
    Disk(DiskRequest),
    /// A group changed view or role.
    Role(RoleChange),
    /// A partition whose files cannot be used was set aside or refuses service.
    Fenced {
        /// The group.
        group: GroupId,
        /// Why, for the log.
        reason: String,
    },
    /// The process must stop.
    Halt {
        /// The group that cannot go on.
        group: GroupId,
        /// Why, for the log.
        reason: String,
    },
}

/// Effects of a step, in the order they came about.
pub type Outputs = Vec<Output>;
