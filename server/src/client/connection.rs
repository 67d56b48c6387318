//! A client's TCP connection: bytes to requests on one side, replies to bytes on the other.
//!
//! Nothing of the protocol is decided here beyond what chapter 07 section 3.1 says of frames that
//! are not requests: they are dropped, or the connection is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use biplane_wire::{Command, Deframer, Message, Refusal, RequestHeader, Typed, decode_client};
use tracing::{debug, trace, warn};

use super::http::HttpEvent;
use super::reply::ClientFrame;
use crate::mailbox::Post;
use crate::runtime::{self, Receiver, Sender, TcpListener, TcpStream, bounded};
use crate::stream::{self, Reader, Writer};
use crate::tls::ClientTls;

/// Requests a connection may have in flight, counted with one more for each MiB of their size. A
/// client that sends faster than it is served is slowed by TCP, not by our memory.
pub(crate) const CREDIT: usize = 160;
/// Replies queued per connection (chapter 07 section 3.3).
const OUTBOX_CAPACITY: usize = 256;
/// Replies per vectored write.
const BATCH_MAX: usize = 64;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time to write what is queued when the node shuts down.
const CLOSE_BUDGET: Duration = Duration::from_secs(2);

/// Names a connection for as long as the process lives.
pub(crate) type ConnectionId = u64;

/// What connections tell the node.
pub(crate) enum ClientEvent {
    /// A connection was accepted.
    Opened {
        /// The connection.
        id: ConnectionId,
        /// The other end.
        address: SocketAddr,
        /// The node's end.
        handle: Handle,
    },
    /// A request that passed typed decode.
    Request {
        /// The connection.
        id: ConnectionId,
        /// The frame.
        request: Typed<RequestHeader>,
    },
    /// Something that came over HTTP.
    Http(HttpEvent),
    /// The connection is gone.
    Closed {
        /// The connection.
        id: ConnectionId,
    },
}

/// The node's end of a connection.
#[derive(Debug)]
pub(crate) struct Handle {
    outbox: Sender<ClientFrame>,
    credit: Receiver<()>,
}

impl Handle {
    /// The node's end of a connection without a socket: whoever made it bounds what is in flight.
    pub(crate) fn without_socket(outbox: Sender<ClientFrame>) -> Self {
        let (_, credit) = bounded(1);
        Self { outbox, credit }
    }

    /// Queues a reply. False when the connection is gone or its queue is full; the client then runs
    /// into its own timeout.
    pub(crate) fn send(&self, frame: ClientFrame) -> bool {
        self.outbox.try_send(frame).is_ok()
    }

    /// Gives back what a request of `size` bytes took.
    pub(crate) fn release(&self, size: usize) {
        for _ in 0..cost(size) {
            let _ = self.credit.try_recv();
        }
    }

    /// Ends the connection once what is queued has been written.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }
}

fn cost(size: usize) -> usize {
    (1 + size / (1024 * 1024)).min(CREDIT)
}

/// What the accept loop and the connections share.
pub(crate) struct ListenerState {
    /// Largest accepted frame.
    pub(crate) message_size_max: u32,
    /// Towards the node.
    pub(crate) events: Post<ClientEvent>,
    /// With TLS; plain otherwise.
    pub(crate) tls: Option<ClientTls>,
    /// Budget of a TLS handshake.
    pub(crate) handshake_grace: Duration,
    /// Time to end a TLS session in order.
    pub(crate) close_grace: Duration,
    /// Set when the node shuts down.
    pub(crate) closing: AtomicBool,
    /// Frames dropped because they are no requests.
    pub(crate) refused: AtomicU64,
}

/// Accepts clients for as long as the node runs.
pub(crate) async fn accept(listener: TcpListener, state: Arc<ListenerState>) {
    let mut next: ConnectionId = 1;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "accepting a client failed");
                runtime::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if state.closing.load(Ordering::Relaxed) {
            return;
        }
        let id = next;
        next += 1;
        runtime::spawn(run(id, address, stream, Arc::clone(&state)));
    }
}

async fn run(id: ConnectionId, address: SocketAddr, stream: TcpStream, state: Arc<ListenerState>) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY cannot be set");
    }
    let (reader, writer) = match &state.tls {
        None => stream::plain(stream.clone()),
        Some(tls) => {
            match runtime::timeout(state.handshake_grace, tls.accept(stream.clone())).await {
                Some(Ok(session)) => stream::tls(session),
                Some(Err(error)) => {
                    let label = error.label();
                    debug!(connection = id, %address, label, %error, "no TLS session");
                    return;
                }
                None => {
                    debug!(connection = id, %address, "the TLS handshake takes too long");
                    return;
                }
            }
        }
    };
    let (outbox, replies) = bounded(OUTBOX_CAPACITY);
    let (permits, credit) = bounded(CREDIT);
    let handle = Handle { outbox, credit };
    if !state
        .events
        .send(ClientEvent::Opened {
            id,
            address,
            handle,
        })
        .await
    {
        return;
    }
    let grace = state.close_grace;
    let writer = runtime::spawn(write(writer, replies, stream.clone(), grace));
    read(id, reader, &permits, &state).await;
    trace!(connection = id, %address, "client connection ended");
    state.events.send(ClientEvent::Closed { id }).await;
    let _ = stream.shutdown(std::net::Shutdown::Read);
    let _ = runtime::timeout(CLOSE_BUDGET, writer).await;
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

async fn read(id: ConnectionId, mut reader: Reader, permits: &Sender<()>, state: &ListenerState) {
    let mut deframer = Deframer::new(state.message_size_max);
    loop {
        loop {
            match deframer.next() {
                Ok(Some(message)) => {
                    if !pass_on(id, message, permits, state).await {
                        return;
                    }
                }
                Ok(None) => break,
                Err(reason) => {
                    warn!(connection = id, %reason, "framing violation; the client is cut off");
                    return;
                }
            }
        }
        match reader.read(deframer.read_slice()).await {
            Ok(0) | Err(_) => return,
            Ok(received) => deframer.advance(received),
        }
    }
}

/// False when the node or the connection is gone.
async fn pass_on(
    id: ConnectionId,
    message: Message,
    permits: &Sender<()>,
    state: &ListenerState,
) -> bool {
    let size = message.size();
    match check(message) {
        Ok(request) => {
            for _ in 0..cost(size) {
                if permits.send(()).await.is_err() {
                    return false;
                }
            }
            state
                .events
                .send(ClientEvent::Request { id, request })
                .await
        }
        Err(refusal) => {
            state.refused.fetch_add(1, Ordering::Relaxed);
            warn!(connection = id, label = refusal.label(), %refusal, "a client frame is dropped");
            true
        }
    }
}

fn check(message: Message) -> Result<Typed<RequestHeader>, Refusal> {
    let command = message.command();
    if command != Command::Request {
        return Err(Refusal::WrongCommand { command });
    }
    decode_client(message)
}

async fn write(
    mut writer: Writer,
    replies: Receiver<ClientFrame>,
    socket: TcpStream,
    close_grace: Duration,
) {
    let mut batch: Vec<ClientFrame> = Vec::with_capacity(BATCH_MAX);
    while let Ok(first) = replies.recv().await {
        batch.push(first);
        while batch.len() < BATCH_MAX {
            match replies.try_recv() {
                Ok(frame) => batch.push(frame),
                Err(_) => break,
            }
        }
        if writer.write_batch(&batch).await.is_err() {
            break;
        }
        batch.clear();
    }
    let _ = runtime::timeout(close_grace, writer.close()).await;
    let _ = socket.shutdown(std::net::Shutdown::Both);
}
