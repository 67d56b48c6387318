//! The replica handshake: how two nodes of a cluster find out, on a fresh connection, whether they
//! belong together (chapter 02 sections 4 to 8 of the protocol specification).
//!
//! ```text
//!                            ┌────────────────────────────┐
//!   Identity, peer ────────► │                            │ ────► frames to write (256 bytes)
//!   Keys, Channel, nonce ──► │  Dialer        Acceptor    │
//!                            │  AwaitChallenge AwaitFinish│ ────► Established { peer, key }
//!   frames that were read ─► │                            │ ────► RejectReason
//!                            └────────────────────────────┘
//! ```
//!
//! ```text
//! auth off   dialer ── hello ─────────────────────────────► acceptor
//! auth on    dialer ── hello(nonce) ──────────────────────► acceptor
//!            dialer ◄───────────── challenge(nonce, code) ── acceptor
//!            dialer ── finish(code) ──────────────────────► acceptor
//! ```
//!
//! A driver that serves both roles calls [`Dialer::start`] or [`Acceptor::start`] and then obeys
//! [`Action`]s; one that wants the steps in its own hands calls the states directly.
//!
//! # What it does not do
//!
//! - No sockets, no TLS, no clock, no randomness: frames, the exporter value and nonces are handed
//!   in. The budget of a handshake is a name here ([`HANDSHAKE_GRACE`]) and a timer in the driver.
//! - No framing: the driver reads whole frames, drains their bodies, and keeps the bytes behind
//!   them. Of a frame that is handed in, the header alone is looked at.
//! - No registration, no policy of reconnecting, no table of peers.
//! - No proof of *which* replica a peer is: whoever holds the secret may announce any id below the
//!   acceptor's. No protection of what follows on a plain link.
//!
//! # Invariants
//!
//! - A state is consumed by its step; a nonce signs one transcript pair and no more.
//! - [`Established`] is made by this crate alone, and with authentication on only after the peer's
//!   code verified over both nonces of this very handshake.
//! - A code is only ever produced with the current key, and compared in constant time.
//! - With authentication off the acceptor sends nothing, and the dialer reads nothing.
//! - A refusal tells a peer nothing about secrets: a missing nonce and a wrong code are answered
//!   with silence.
//! - Keys, codes and exporter values are wiped when dropped, and no `Debug` form shows them.
//! - Same inputs, same frames: the crate holds no hidden state.

#![forbid(unsafe_code)]

mod acceptor;
mod constants;
mod dialer;
mod frame;
mod keys;
mod link;
mod machine;
mod reject;
mod transcript;

pub use acceptor::{Acceptor, AwaitFinish, HelloOutcome, Rejection};
pub use constants::{
    ALPN, EXPORTER_LABEL, EXPORTER_LENGTH, HANDSHAKE_GRACE, INBOUND_HANDSHAKES_MAX, MAC_LENGTH,
    NONCE_LENGTH, SECRET_LENGTH_MIN, SLOT_EXPIRY_MARGIN, slot_expiry,
};
pub use dialer::{AfterHello, AwaitChallenge, Dialer, Finish};
pub use frame::Frame;
pub use keys::{KeySlot, Keys, SecretError, check_secrets};
pub use link::{Channel, Established, Identity, cluster_id};
pub use machine::{Action, Machine, Then};
pub use reject::{RejectReason, SetupError};

/// The example in the README, kept true by the test command.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
