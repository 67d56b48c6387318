//! The accepting side: a bound number of handshakes at once, each in its own task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use biplane_handshake::INBOUND_HANDSHAKES_MAX;
use biplane_wire::Deframer;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tracing::{debug, warn};

use super::{Shared, count, greeting, link};
use crate::runtime::{self, TcpListener, TcpStream};

/// Unacknowledged bytes older than this end a replica connection, so that a host that vanished
/// without a word does not hold its link for the quarter of an hour TCP would give it.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);
/// Pause after a failed accept: descriptors may be exhausted, and a hot loop helps nobody.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from(std::net::TcpListener::from(socket)))
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
}

/// Accepts for as long as the node runs.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let in_flight = Arc::new(AtomicUsize::new(0));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "accepting a replica connection failed");
                runtime::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if shared.registry.is_closing() {
            return;
        }
        if in_flight.load(Ordering::Relaxed) >= INBOUND_HANDSHAKES_MAX {
            count(&shared.counters.handshakes_overflow);
            warn!(%address, "too many handshakes in flight; the connection is closed");
            continue;
        }
        in_flight.fetch_add(1, Ordering::Relaxed);
        let (shared, in_flight) = (Arc::clone(&shared), Arc::clone(&in_flight));
        runtime::spawn(async move {
            tune(&stream);
            let mut deframer = Deframer::new(shared.config.message_size_max);
            let greeted = greeting::accept(&stream, &mut deframer, &shared.config).await;
            in_flight.fetch_sub(1, Ordering::Relaxed);
            match greeted {
                Ok(established) => {
                    link::run(established.peer(), stream, deframer, shared).await;
                }
                Err(error) => {
                    count(&shared.counters.handshakes_failed);
                    warn!(%address, %error, "replica handshake failed");
                }
            }
        });
    }
}
