//! What goes into the metadata plane and what comes out of it, as values.

use biplane_journal::{DiskCompletion, DiskRequest};
use biplane_vsr::{HaltReason as ReplicaHalt, RoleChange};
use biplane_wire::{
    ClientId, DecodeError, ErrorCode, EvictionReason, FrameBuffer, Message, Op, Operation,
    ReplicaFrame, ReplicaId, View,
};

use crate::revocation::RevocationKey;
use crate::state::topology::TopologyChange;

/// One cause for the plane to act.
#[derive(Debug)]
pub enum Input {
    /// 10 ms have passed; the wall clock is used for timestamps and expiries only.
    Tick {
        /// Microseconds since the epoch.
        wall_micros: u64,
    },
    /// A frame of the metadata group from another replica.
    Frame(ReplicaFrame),
    /// A disk request has been carried out or has failed.
    Disk(DiskCompletion),
    /// A replica connection came up or went down.
    Peer {
        /// The other replica.
        replica: ReplicaId,
        /// Whether it can be reached now.
        connected: bool,
    },
    /// A client request for the metadata log, after preflight.
    ///
    /// The header is routed: client and session are those bound to the connection, the group is
    /// the metadata group. Operations 128 to 149 but 138, and 68 in place of 138.
    Submit {
        /// Echoed in the answer.
        token: u64,
        /// Header and body.
        request: FrameBuffer,
    },
    /// A login whose credentials have been verified here.
    Register {
        /// Echoed in the answer.
        token: u64,
        /// Client id of the login frame.
        client: ClientId,
        /// User the credentials belong to.
        user_id: u32,
    },
    /// A logout, or the end of a connection with a bound session.
    Logout {
        /// Echoed in the answer.
        token: u64,
        /// Client id of the bound session.
        client: ClientId,
        /// Epoch of the bound session.
        session: u64,
        /// Request number of the client; [`DISCONNECT_REQUEST`] where a connection ended.
        request: u64,
    },
    /// A member has nothing left to do on a partition it must give up. Ignored unless this
    /// replica is a caught-up primary; may be repeated.
    CompleteRevocation(RevocationKey),
    /// A partition group of this node is in this view. New groups start above the views of
    /// deleted ones, see [`CreatedViews`](crate::preflight::CreatedViews).
    PartitionView(View),
}

/// Request number of the logout that servers make when a connection ends.
pub const DISCONNECT_REQUEST: u64 = u64::MAX;

/// One effect of the plane.
#[derive(Debug)]
pub enum Output {
    /// Send a frame to a replica.
    Send {
        /// Receiver.
        to: ReplicaId,
        /// Frame.
        message: Message,
    },
    /// The answer to a submitted request that is a frame: a committed reply, a reply from the
    /// cache, or a refusal in a result section.
    Reply {
        /// Token of the request.
        token: u64,
        /// Whole frame for the client. The reply to the creation of an access token still lacks
        /// the token, see [`splice_token`](crate::reply::splice_token).
        message: Message,
        /// What it is.
        outcome: Outcome,
    },
    /// A submitted request ends the session of its client.
    Evicted {
        /// Token of the request.
        token: u64,
        /// Reason for the eviction frame.
        reason: EvictionReason,
    },
    /// A submitted request gets no answer; its client times out and retries.
    Dropped {
        /// Token of the request.
        token: u64,
    },
    /// The answer to a register.
    Registered {
        /// Token of the register.
        token: u64,
        /// What became of it.
        outcome: RegisterOutcome,
    },
    /// The answer to a logout.
    LoggedOut {
        /// Token of the logout.
        token: u64,
        /// What became of it.
        outcome: LogoutOutcome,
    },
    /// Carry out a disk request.
    Disk(DiskRequest),
    /// A committed change of the topology; the same on every replica, in commit order.
    Topology(TopologyChange),
    /// A session began, moved or ended in the committed log; emitted on every replica.
    Session(SessionChange),
    /// Everything that was committed when the primary of the metadata group last proved to be
    /// one is applied here. Said again whenever it proves so.
    Confirmed,
    /// View or role of this replica changed.
    Role(RoleChange),
    /// The plane has stopped and ignores all input from now on: stop the process.
    Halt(HaltReason),
}

/// What a reply frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation committed with this op and code; now or, for a retry, earlier.
    Committed {
        /// Op of the prepare.
        op: Op,
        /// Operation of the prepare.
        operation: Operation,
        /// Result code; 0 is success.
        code: u32,
    },
    /// Nothing was committed on behalf of this submission: 51, 57, 58 or 59.
    Refused(ErrorCode),
}

/// What became of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// The session exists.
    Registered {
        /// Epoch of the session: the op of the register.
        session: u64,
        /// Highest request number the client has committed before.
        watermark: u64,
    },
    /// 57 where it may still happen, 58 where it will not; the client retries.
    Transient(ErrorCode),
    /// The client id belongs to another user; the login fails for good.
    OwnedByAnotherUser,
}

/// What became of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// The session is gone.
    LoggedOut {
        /// Op of the logout, or the applied op where the session was gone before.
        commit: Op,
    },
    /// 57 where it may still happen, 58 where it will not.
    Transient(ErrorCode),
}

/// A change in the table of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A register committed: connections bound to an earlier epoch of the client are unbound.
    Registered {
        /// Client.
        client: ClientId,
        /// Epoch from now on.
        session: u64,
        /// User of the session.
        user_id: u32,
    },
    /// A logout committed: connections bound to the client are unbound.
    Ended {
        /// Client.
        client: ClientId,
    },
}

/// Why the plane stopped.
#[derive(Debug)]
pub enum HaltReason {
    /// A committed prepare does not decode. No replica can apply it.
    Undecodable {
        /// Op of the prepare.
        op: Op,
        /// What is wrong with it.
        reason: DecodeError,
    },
    /// The consensus core found a contradiction.
    Replica(ReplicaHalt),
    /// The prepare log on disk can no longer be trusted or written.
    Journal(biplane_journal::WalError),
    /// The superblock could not be written for longer than allowed.
    SuperblockStuck,
}
