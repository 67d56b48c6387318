//! The client plane: connections, sessions, and what the node makes of each request.
//!
//! ```text
//!   connection ─ request ─► dispatch ─┬─ answered at once (ping, refusals, reads)
//!                                     ├─ metadata plane  ─┐
//!                                     ├─ partition plane ─┼─ token ─► answer
//!                                     └─ password threads ┘
//! ```
//!
//! Everything here runs on the node's loop. A request that cannot be answered at once leaves a
//! token behind; the plane's answer carries it, and the request's header is echoed from what was
//! remembered under it (chapter 07).

pub(crate) mod connection;
mod diagnose;
mod dispatch;
mod groups;
pub(crate) mod http;
mod login;
mod offsets;
mod polls;
mod reads;
pub(crate) mod reply;
mod resolve;
mod sends;
pub(crate) mod session;
pub(crate) mod system;
pub(crate) mod websocket;
mod writes;
