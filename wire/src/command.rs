//! Byte 60 of every header: what kind of frame this is (chapter 01 section 3).

use std::fmt;

/// The command of a frame. All 30 defined values; a larger byte closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Command {
    /// Never sent.
    Reserved = 0,
    /// Never sent.
    Ping = 1,
    /// Never sent.
    Pong = 2,
    /// Never sent.
    PingClient = 3,
    /// Never sent.
    PongClient = 4,
    /// Client to server; also accepted from a replica with the routed layout.
    Request = 5,
    /// Primary to the next replica of the ring.
    Prepare = 6,
    /// Backup to the primary of its view.
    PrepareOk = 7,
    /// Server to client.
    Reply = 8,
    /// Primary to all; also the heartbeat.
    Commit = 9,
    /// Any replica to all.
    StartViewChange = 10,
    /// Any replica to all.
    DoViewChange = 11,
    /// New primary to all, or to one prober.
    StartView = 12,
    /// Server to client; ends the session.
    Eviction = 13,
    /// Dialer to acceptor, first frame of a replica connection.
    ReplicaHello = 14,
    /// Acceptor to dialer.
    ReplicaChallenge = 15,
    /// Dialer to acceptor.
    ReplicaFinish = 16,
    /// Recovering replica to all.
    RequestStartView = 17,
    /// Lagging replica to a peer.
    RequestPrepares = 18,
    /// Serving peer to requester: a journaled prepare under another command byte.
    RepairPrepare = 19,
    /// Serving peer to requester: the range has been served.
    RepairDone = 20,
    /// Serving peer to requester: the range is no longer retained.
    RangeEvicted = 21,
    /// Requester to primary.
    RequestStateTransfer = 22,
    /// Primary to requester: an offer or a refusal.
    StateTransferTarget = 23,
    /// Requester to primary.
    RequestStateChunk = 24,
    /// Primary to requester.
    StateChunk = 25,
    /// Backup to primary: commit this login.
    ForwardRegister = 26,
    /// Primary to backup.
    ForwardRegisterResult = 27,
    /// Backup to primary: commit this logout.
    ForwardLogout = 28,
    /// Primary to backup.
    ForwardLogoutResult = 29,
}

impl Command {
    /// Every command in numeric order.
    pub const ALL: [Self; 30] = [
        Self::Reserved,
        Self::Ping,
        Self::Pong,
        Self::PingClient,
        Self::PongClient,
        Self::Request,
        Self::Prepare,
        Self::PrepareOk,
        Self::Reply,
        Self::Commit,
        Self::StartViewChange,
        Self::DoViewChange,
        Self::StartView,
        Self::Eviction,
        Self::ReplicaHello,
        Self::ReplicaChallenge,
        Self::ReplicaFinish,
        Self::RequestStartView,
        Self::RequestPrepares,
        Self::RepairPrepare,
        Self::RepairDone,
        Self::RangeEvicted,
        Self::RequestStateTransfer,
        Self::StateTransferTarget,
        Self::RequestStateChunk,
        Self::StateChunk,
        Self::ForwardRegister,
        Self::ForwardRegisterResult,
        Self::ForwardLogout,
        Self::ForwardLogoutResult,
    ];

    /// The command of a byte; `None` when the byte is undefined.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// The byte of a command.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

const _: () = {
    let mut index = 0;
    while index < Command::ALL.len() {
        assert!(Command::ALL[index] as usize == index);
        index += 1;
    }
};
