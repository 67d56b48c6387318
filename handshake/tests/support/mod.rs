//! What the handshake tests share: the inputs of the published vectors, frames written as runs of
//! bytes, and both roles on one wire.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use biplane_handshake::{
    Acceptor, Action, AfterHello, AwaitChallenge, AwaitFinish, Channel, Dialer, Established, Frame,
    HelloOutcome, Identity, Keys, RejectReason, Rejection, Then, cluster_id,
};
use biplane_wire::ReplicaId;

pub const CLUSTER: &str = "iggy-cluster";
pub const S1: &str = "0123456789abcdef0123456789abcdef";
pub const S2: &str = "fedcba9876543210fedcba9876543210";

/// 32 bytes that count upwards.
pub fn counting(from: u8) -> [u8; 32] {
    core::array::from_fn(|index| from.wrapping_add(index as u8))
}

pub fn node(replica: u8) -> Identity {
    Identity {
        cluster: cluster_id(CLUSTER),
        replica: ReplicaId(replica),
        replica_count: 3,
    }
}

pub fn keys(shared: &str) -> Option<Keys> {
    Some(Keys::from_secrets(shared, None).expect("a legal secret"))
}

pub fn rotating(shared: &str, previous: &str) -> Option<Keys> {
    Some(Keys::from_secrets(shared, Some(previous)).expect("legal secrets"))
}

pub fn tls(exporter: [u8; 32]) -> Channel {
    Channel::Tls { exporter }
}

/// Replica 0 dialing replica 2 with the nonce of the vectors.
pub fn dialer(auth: Option<Keys>, channel: Channel) -> Dialer {
    Dialer::new(node(0), ReplicaId(2), auth, channel, counting(0)).expect("a legal dial")
}

/// Replica 2 with the nonce of the vectors.
pub fn acceptor(auth: Option<Keys>, channel: Channel) -> Acceptor {
    Acceptor::new(node(2), auth, channel, counting(0x80)).expect("a legal acceptor")
}

/// A frame as `(offset, hex)` runs; all other bytes are zero.
pub fn frame(runs: &[(usize, &str)]) -> Frame {
    let mut frame = [0; 256];
    for (at, run) in runs {
        let run = hex::decode(run).expect("hex");
        frame[*at..][..run.len()].copy_from_slice(&run);
    }
    frame
}

/// `frame` with one byte replaced.
pub fn with(frame: &Frame, at: usize, byte: u8) -> Frame {
    let mut frame = *frame;
    frame[at] = byte;
    frame
}

/// The hello of an authenticating dialer, and the state behind it.
pub fn hello(dialer: Dialer) -> (Frame, AwaitChallenge) {
    match dialer.hello() {
        (frame, AfterHello::AwaitChallenge(state)) => (frame, state),
        (_, AfterHello::Established(_)) => panic!("authentication is on"),
    }
}

/// The challenge that answers an acceptable hello, and the state behind it.
pub fn challenge(acceptor: Acceptor, hello: &[u8]) -> (Frame, AwaitFinish) {
    match acceptor.on_hello(hello) {
        HelloOutcome::SendChallenge { frame, next } => (frame, next),
        other => panic!("expected a challenge, got {other:?}"),
    }
}

pub fn rejection(acceptor: Acceptor, hello: &[u8]) -> Rejection {
    match acceptor.on_hello(hello) {
        HelloOutcome::Reject(rejection) => rejection,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

/// How one side of a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Established(Established),
    Closed(RejectReason),
    /// It waits for a frame that never comes: the other side is done or has closed. On a real link
    /// it sees the end of the stream, or its budget runs out.
    Starved,
}

impl End {
    pub fn peer(&self) -> Option<u8> {
        match self {
            Self::Established(established) => Some(established.peer().0),
            _ => None,
        }
    }
    pub fn label(&self) -> &'static str {
        match self {
            Self::Established(_) => "established",
            Self::Closed(reason) => reason.label(),
            Self::Starved => "starved",
        }
    }
}

/// A finished exchange.
pub struct Exchange {
    pub dialer: End,
    pub acceptor: End,
    /// All frames, in the order they were written; the dialer's first.
    pub frames: Vec<Frame>,
}

/// Runs both roles over a perfect link until neither has anything to read.
pub fn connect(dialer: Dialer, acceptor: Acceptor) -> Exchange {
    let mut actions = [Some(dialer.start()), Some(acceptor.start())];
    let mut machines = [None, None];
    let mut ends = [None, None];
    let mut inbox = [Vec::new(), Vec::new()];
    let mut frames = Vec::new();
    loop {
        for side in [0, 1] {
            if let Some(Action { send, then }) = actions[side].take() {
                frames.extend(send);
                inbox[1 - side].extend(send);
                match then {
                    Then::Read(machine) => machines[side] = Some(machine),
                    Then::Established(established) => {
                        ends[side] = Some(End::Established(established));
                    }
                    Then::Close(reason) => ends[side] = Some(End::Closed(reason)),
                }
            }
            if machines[side].is_some() && !inbox[side].is_empty() {
                let frame: Frame = inbox[side].remove(0);
                actions[side] = machines[side].take().map(|machine| machine.step(&frame));
            }
        }
        let readable = |side: usize| machines[side].is_some() && !inbox[side].is_empty();
        if actions.iter().all(Option::is_none) && !readable(0) && !readable(1) {
            let [dialer, acceptor] = ends.map(|end| end.unwrap_or(End::Starved));
            return Exchange {
                dialer,
                acceptor,
                frames,
            };
        }
    }
}

/// A small seeded generator (xorshift64*), so that a failing run can be repeated from its seed.
pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = (self.next() >> 56) as u8;
        }
    }
}
