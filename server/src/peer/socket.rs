//! Options of replica sockets: how they are bound, and how a dead one is found out.
//!
//! TCP gives a connection to a host that vanished a quarter of an hour, and one on which nothing is
//! sent for ever. Between two backups nothing may be sent for hours. So the kernel is asked to
//! probe silent connections, and to give up on bytes that nobody acknowledges. No program at the
//! other end sees any of it.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tracing::debug;

use crate::runtime::{TcpListener, TcpStream};

/// Unacknowledged bytes or probes older than this end a replica connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);
/// Silence after which the kernel probes the other end, and again after as much.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// The same for a connection whose peer claims to have another one. The shortest the kernel knows.
const PROBE_AFTER_DOUBT: Duration = Duration::from_secs(1);
/// Connections the kernel completes before they are accepted; it lowers this to its own limit.
const BACKLOG: i32 = 4096;

/// A listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// What the operating system said.
    #[source]
    pub source: std::io::Error,
}

/// Binds exactly `address`, alone (chapter 02 section 2.1).
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let open = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        TcpListener::new(std::net::TcpListener::from(socket))
    };
    open().map_err(|source| ListenError { address, source })
}

/// Options of every replica connection. A refusal is harmless and only logged.
pub(super) fn tune(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY cannot be set");
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX)) {
        debug!(%error, "TCP_USER_TIMEOUT cannot be set");
    }
    probe_after(stream, PROBE_AFTER);
}

/// Has the kernel find out soon whether the other end still knows this connection.
pub(super) fn probe(stream: &TcpStream) {
    probe_after(stream, PROBE_AFTER_DOUBT);
}

fn probe_after(stream: &TcpStream, silence: Duration) {
    let keepalive = TcpKeepalive::new()
        .with_time(silence)
        .with_interval(silence);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        debug!(%error, "the connection cannot be probed");
    }
}
