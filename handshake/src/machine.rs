//! Both roles behind one type, so that a driver is one loop: write what the action holds, then read
//! a frame, register, or close. The machine is consumed by each step and comes back inside the next
//! action; when a handshake is over there is no machine left to feed.

use crate::acceptor::{Acceptor, AwaitFinish, HelloOutcome};
use crate::dialer::{AfterHello, AwaitChallenge, Dialer};
use crate::frame::Frame;
use crate::link::Established;
use crate::reject::RejectReason;

/// What the driver does next: first `send`, then `then`.
#[derive(Debug)]
#[must_use]
pub struct Action {
    /// A frame to write and flush on its own. When `then` is [`Then::Close`] a failed write is
    /// ignored; in any other case it ends the handshake.
    pub send: Option<Frame>,
    /// What follows the write.
    pub then: Then,
}

/// What follows the write of an [`Action`].
#[derive(Debug)]
#[must_use]
#[expect(
    clippy::large_enum_variant,
    reason = "one short-lived value per connection"
)]
pub enum Then {
    /// Read one whole frame, within the handshake's budget, and hand it to [`Machine::step`]. Bytes
    /// that follow the frame in the read buffer belong to consensus and must be kept.
    Read(Machine),
    /// Register the connection.
    Established(Established),
    /// Log the reason and close the connection.
    Close(RejectReason),
}

/// A handshake of either role that waits for a frame.
#[derive(Debug)]
#[must_use]
pub enum Machine {
    /// A dialer that waits for the challenge.
    Dialer(AwaitChallenge),
    /// An acceptor that waits for the hello.
    Acceptor(Acceptor),
    /// An acceptor that waits for the finish.
    AcceptorFinish(AwaitFinish),
}

impl Dialer {
    /// The first action of a dialer: to send the hello.
    pub fn start(self) -> Action {
        let (frame, next) = self.hello();
        let then = match next {
            AfterHello::Established(established) => Then::Established(established),
            AfterHello::AwaitChallenge(state) => Then::Read(Machine::Dialer(state)),
        };
        Action {
            send: Some(frame),
            then,
        }
    }
}

impl Acceptor {
    /// The first action of an acceptor: to read.
    pub fn start(self) -> Action {
        Action {
            send: None,
            then: Then::Read(Machine::Acceptor(self)),
        }
    }
}

impl Machine {
    /// Takes one frame, of which only the 256 header bytes are looked at, and answers with what to
    /// do next. Total: any bytes give an action.
    pub fn step(self, frame: &[u8]) -> Action {
        match self {
            Self::Dialer(state) => match state.on_challenge(frame) {
                Ok(finish) => Action {
                    send: Some(finish.frame),
                    then: Then::Established(finish.established),
                },
                Err(reason) => Action {
                    send: None,
                    then: Then::Close(reason),
                },
            },
            Self::Acceptor(state) => match state.on_hello(frame) {
                HelloOutcome::Accepted(established) => Action {
                    send: None,
                    then: Then::Established(established),
                },
                HelloOutcome::SendChallenge { frame, next } => Action {
                    send: Some(frame),
                    then: Then::Read(Self::AcceptorFinish(next)),
                },
                HelloOutcome::Reject(rejection) => Action {
                    send: rejection.frame,
                    then: Then::Close(rejection.reason),
                },
            },
            Self::AcceptorFinish(state) => match state.on_finish(frame) {
                Ok(established) => Action {
                    send: None,
                    then: Then::Established(established),
                },
                Err(reason) => Action {
                    send: None,
                    then: Then::Close(reason),
                },
            },
        }
    }
}
