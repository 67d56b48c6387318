//! A client's connection: bytes to requests on one side, replies to bytes on the other, over TCP or
//! WebSocket, with TLS or without.
//!
//! Nothing of the protocol is decided here beyond what chapter 07 section 3.1 says of frames that
//! are not requests: they are dropped, or the connection is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use biplane_wire::response::TransportKind;
use biplane_wire::{Command, Deframer, Message, Refusal, RequestHeader, Typed, decode_client};
use tracing::{debug, trace, warn};

use super::http::HttpEvent;
use super::reply::ClientFrame;
use super::websocket;
use crate::mailbox::Post;
use crate::recycler::FramePool;
use crate::refusals::RefusalCounts;
use crate::runtime::{self, Receiver, Sender, TcpListener, TcpStream, bounded};
use crate::stream::{self, Reader, Writer};
use crate::tls::{ClientTls, TlsRefusal};

/// Requests a connection may have in flight, counted with one more for each MiB of their size. A
/// client that sends faster than it is served is slowed by TCP, not by our memory.
pub(crate) const CREDIT: usize = 160;
/// Bytes of replies that may wait to be written before the connection's next request is served. A
/// client that does not read is not worth the memory of its answers.
const BACKLOG_MAX: usize = 8 << 20;
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
        /// How it came.
        transport: TransportKind,
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
    /// The client has read: a connection that had too much to write may go on.
    Drained {
        /// The connection.
        id: ConnectionId,
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
    /// `None` without a socket.
    backlog: Option<Arc<Backlog>>,
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    /// The node wants to know when there is room again.
    wanted: AtomicBool,
}

impl Backlog {
    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) >= BACKLOG_MAX
    }

    /// Counts what was written; true when the node is to be told.
    fn written(&self, bytes: usize) -> bool {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        !self.is_full() && self.wanted.swap(false, Ordering::SeqCst)
    }
}

impl Handle {
    /// The node's end of a connection without a socket: whoever made it bounds what is in flight.
    pub(crate) fn without_socket(outbox: Sender<ClientFrame>) -> Self {
        let (_, credit) = bounded(1);
        Self {
            outbox,
            credit,
            backlog: None,
        }
    }

    /// Queues a reply. False when the connection is gone or its queue is full; the client then runs
    /// into its own timeout.
    pub(crate) fn send(&self, frame: ClientFrame) -> bool {
        let Some(backlog) = &self.backlog else {
            return self.outbox.try_send(frame).is_ok();
        };
        let size = frame.size();
        backlog.bytes.fetch_add(size, Ordering::SeqCst);
        let sent = self.outbox.try_send(frame).is_ok();
        if !sent {
            backlog.bytes.fetch_sub(size, Ordering::SeqCst);
        }
        sent
    }

    /// True while too much waits to be written. [`ClientEvent::Drained`] follows in that case.
    pub(crate) fn is_clogged(&self) -> bool {
        let Some(backlog) = self.backlog.as_ref().filter(|backlog| backlog.is_full()) else {
            return false;
        };
        backlog.wanted.store(true, Ordering::SeqCst);
        // The writer may have made room in between, and seen nobody who wanted it.
        backlog.is_full() || !backlog.wanted.swap(false, Ordering::SeqCst)
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
    /// Replies queued per connection (chapter 07 section 3.3).
    pub(crate) outbox_capacity: usize,
    /// Towards the node.
    pub(crate) events: Post<ClientEvent>,
    /// Budget of the TLS and WebSocket handshakes together.
    pub(crate) handshake_grace: Duration,
    /// Time to end a TLS session in order.
    pub(crate) close_grace: Duration,
    /// Set when the node shuts down.
    pub(crate) closing: AtomicBool,
    /// Frames dropped because they are no requests.
    pub(crate) refused: RefusalCounts,
    /// Memory of received frames.
    pub(crate) frames: Arc<FramePool>,
    /// Connections accepted so far, by all listeners together: each has a number of its own.
    pub(crate) accepted: AtomicU64,
}

/// How a listener speaks with whoever connects.
#[derive(Clone)]
pub(crate) struct DoorKind {
    tls: Option<ClientTls>,
    websocket: Option<websocket::Limits>,
}

impl DoorKind {
    /// Frames one after the other.
    pub(crate) fn tcp(tls: Option<ClientTls>) -> Self {
        Self {
            tls,
            websocket: None,
        }
    }

    /// One frame per WebSocket message.
    pub(crate) fn websocket(tls: Option<ClientTls>, limits: websocket::Limits) -> Self {
        Self {
            tls,
            websocket: Some(limits),
        }
    }

    /// As clients and operators see it.
    pub(crate) fn transport(&self) -> TransportKind {
        match self.websocket {
            Some(_) => TransportKind::WebSocket,
            None => TransportKind::Tcp,
        }
    }

    /// Makes the halves of a connection.
    async fn greet(&self, socket: TcpStream) -> Result<Halves, Ungreeted> {
        match (&self.tls, &self.websocket) {
            (None, None) => Ok(Halves::bytes(stream::plain(socket))),
            (Some(tls), None) => Ok(Halves::bytes(stream::tls(tls.accept(socket).await?))),
            (None, Some(limits)) => Ok(Halves::messages(limits.accept(socket).await?)),
            (Some(tls), Some(limits)) => {
                let session = tls.accept(socket).await?;
                Ok(Halves::messages(limits.accept(session).await?))
            }
        }
    }
}

/// Why a connection never came to its first frame.
#[derive(Debug, thiserror::Error)]
enum Ungreeted {
    #[error("no TLS session ({label}): {0}", label = .0.label())]
    Tls(#[from] TlsRefusal),
    #[error("no WebSocket: {0}")]
    WebSocket(#[from] websocket::Refused),
}

/// Both directions of a connection.
struct Halves {
    reader: Incoming,
    writer: Outgoing,
}

enum Incoming {
    Bytes(Reader),
    Messages(websocket::Incoming),
}

enum Outgoing {
    Bytes(Writer),
    Messages(websocket::Outgoing),
}

impl Halves {
    fn bytes((reader, writer): (Reader, Writer)) -> Self {
        Self {
            reader: Incoming::Bytes(reader),
            writer: Outgoing::Bytes(writer),
        }
    }

    fn messages((reader, writer): (websocket::Incoming, websocket::Outgoing)) -> Self {
        Self {
            reader: Incoming::Messages(reader),
            writer: Outgoing::Messages(writer),
        }
    }
}

impl Incoming {
    /// Reads some bytes into `deframer`; false at the end of the stream, and when what arrived is
    /// no way to send a frame.
    async fn read(&mut self, deframer: &mut Deframer) -> bool {
        match self {
            Self::Bytes(reader) => match reader.read(deframer.read_slice()).await {
                Ok(0) | Err(_) => false,
                Ok(received) => {
                    deframer.advance(received);
                    true
                }
            },
            Self::Messages(reader) => reader.read(deframer).await,
        }
    }
}

impl Outgoing {
    async fn write_batch(&mut self, batch: &[ClientFrame]) -> std::io::Result<()> {
        match self {
            Self::Bytes(writer) => writer.write_batch(batch).await,
            Self::Messages(writer) => writer.write_batch(batch).await,
        }
    }

    async fn close(&mut self) {
        match self {
            Self::Bytes(writer) => {
                let _ = writer.close().await;
            }
            Self::Messages(writer) => writer.close().await,
        }
    }
}

/// Accepts clients for as long as the node runs.
pub(crate) async fn accept(listener: TcpListener, door: DoorKind, state: Arc<ListenerState>) {
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
        let id = state.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        runtime::spawn(run(id, address, stream, door.clone(), Arc::clone(&state)));
    }
}

async fn run(
    id: ConnectionId,
    address: SocketAddr,
    stream: TcpStream,
    door: DoorKind,
    state: Arc<ListenerState>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY cannot be set");
    }
    let greeted = runtime::timeout(state.handshake_grace, door.greet(stream.clone())).await;
    let halves = match greeted {
        Some(Ok(halves)) => halves,
        Some(Err(reason)) => {
            debug!(connection = id, %address, %reason, "a client is not let in");
            return;
        }
        None => {
            debug!(connection = id, %address, "the handshake of a client takes too long");
            return;
        }
    };
    let (outbox, replies) = bounded(state.outbox_capacity);
    let (permits, credit) = bounded(CREDIT);
    let backlog = Arc::new(Backlog::default());
    let handle = Handle {
        outbox,
        credit,
        backlog: Some(Arc::clone(&backlog)),
    };
    if !state
        .events
        .send(ClientEvent::Opened {
            id,
            address,
            transport: door.transport(),
            handle,
        })
        .await
    {
        return;
    }
    let outlet = Outlet {
        id,
        replies,
        backlog,
        state: Arc::clone(&state),
    };
    let writer = runtime::spawn(write(halves.writer, outlet, stream.clone()));
    read(id, halves.reader, &permits, &state).await;
    trace!(connection = id, %address, "client connection ended");
    state.events.send(ClientEvent::Closed { id }).await;
    let _ = stream.shutdown(std::net::Shutdown::Read);
    let _ = runtime::timeout(CLOSE_BUDGET, writer).await;
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

async fn read(id: ConnectionId, mut reader: Incoming, permits: &Sender<()>, state: &ListenerState) {
    let mut deframer =
        Deframer::new(state.message_size_max).with_recycler(Arc::clone(&state.frames) as _);
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
        if !reader.read(&mut deframer).await {
            return;
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
            state.refused.note(&refusal);
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

/// The connection's end of the queue of replies.
struct Outlet {
    id: ConnectionId,
    replies: Receiver<ClientFrame>,
    backlog: Arc<Backlog>,
    state: Arc<ListenerState>,
}

async fn write(mut writer: Outgoing, outlet: Outlet, socket: TcpStream) {
    let Outlet {
        id,
        replies,
        backlog,
        state,
    } = outlet;
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
        let written = batch.iter().map(ClientFrame::size).sum();
        batch.clear();
        if backlog.written(written) {
            state.events.send(ClientEvent::Drained { id }).await;
        }
    }
    let _ = runtime::timeout(state.close_grace, writer.close()).await;
    let _ = socket.shutdown(std::net::Shutdown::Both);
}
