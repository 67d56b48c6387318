//! One registered connection: a reader that turns bytes into checked frames, and a writer that
//! turns queued frames into as few system calls as it can.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use biplane_wire::{CloseReason, Deframer, Message, ReplicaFrame, ReplicaId, decode_replica};
use tracing::{debug, info, warn};

use super::greeting::Greeted;
use super::outgoing::Waiting;
use super::registry::{Link, Registration};
use super::{PeerEvent, Shared, count};
use crate::runtime::{self, TcpStream};
use crate::stream::{Reader, Writer};

/// How a link ended.
#[derive(Debug, thiserror::Error)]
enum LinkEnd {
    #[error("the peer closed the connection")]
    Closed,
    #[error(transparent)]
    Framing(#[from] CloseReason),
    #[error("the peer speaks TLS and this node does not: cluster.tls.enabled must be equal")]
    TlsPeer,
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    #[error("this node is shutting down")]
    Stopping,
}

/// Registers a connection that finished its handshake and runs it to its end. Returns at once when
/// another connection of the peer stays. `socket` is the one below reader and writer.
pub(super) async fn run(
    greeted: Greeted,
    socket: TcpStream,
    deframer: Deframer,
    shared: Arc<Shared>,
) {
    let Greeted {
        established,
        mut reader,
        writer,
    } = greeted;
    let (peer, key) = (established.peer(), established.key());
    let capacity = shared.config.queue_capacity;
    let registered = shared
        .registry
        .register(peer, capacity, socket.clone(), key.is_some());
    let (link, queue, replaced) = match registered {
        Registration::New {
            link,
            queue,
            replaced,
        } => (link, queue, replaced),
        Registration::Kept => {
            count(&shared.counters.links_refused);
            debug!(%peer, "a connection to this replica is already up; the new one is closed");
            return;
        }
        Registration::Refused => return,
    };
    count(&shared.counters.links_up);
    if let Some(withheld) = shared.link_log_budget.line() {
        let key = key.map(|key| key.label());
        info!(%peer, replaced, key, withheld, "replica connected");
    }
    shared
        .events
        .rest
        .send(PeerEvent::Up { replica: peer })
        .await;
    let writer = runtime::spawn(write(
        peer,
        writer,
        queue,
        socket.clone(),
        Arc::clone(&shared),
    ));
    let end = match read(peer, &mut reader, deframer, &link, &shared).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    if shared.registry.retire(peer, &link) {
        if let Some(withheld) = shared.link_log_budget.line() {
            info!(%peer, reason = %end, withheld, "replica disconnected");
        }
        shared
            .events
            .rest
            .send(PeerEvent::Down { replica: peer })
            .await;
        shared.registry.free(peer, &link);
    }
    let _ = socket.shutdown(Shutdown::Read);
    let _ = runtime::timeout(shared.config.close_timeout, writer).await;
    let _ = socket.shutdown(Shutdown::Both);
    shared.registry.ended();
}

enum Never {}

async fn read(
    peer: ReplicaId,
    reader: &mut Reader,
    mut deframer: Deframer,
    link: &Link,
    shared: &Shared,
) -> Result<Never, LinkEnd> {
    loop {
        loop {
            match deframer.next() {
                Ok(Some(message)) => receive(peer, message, shared).await?,
                Ok(None) => break,
                Err(reason) => {
                    count(&shared.counters.closed_framing);
                    return Err(framing(reader, reason));
                }
            }
        }
        let received = reader.read(deframer.read_slice()).await?;
        if received == 0 {
            return Err(match deframer.finish() {
                Ok(()) => LinkEnd::Closed,
                Err(reason) => framing(reader, reason),
            });
        }
        deframer.advance(received);
        link.mark_heard();
    }
}

/// A dialer without authentication learns only here that the acceptor speaks TLS.
fn framing(reader: &Reader, reason: CloseReason) -> LinkEnd {
    if reader.opened_like_tls() {
        LinkEnd::TlsPeer
    } else {
        LinkEnd::Framing(reason)
    }
}

async fn receive(peer: ReplicaId, message: Message, shared: &Shared) -> Result<(), LinkEnd> {
    let header = message.generic();
    let (identity, link) = (&shared.config.identity, shared.link(peer));
    if header.frame.cluster() != identity.cluster
        || header.frame.replica().0 >= identity.replica_count
    {
        link.inspect(|link| count(&link.foreign));
        debug!(%peer, "a frame of another cluster or of no member is dropped");
        return Ok(());
    }
    match decode_replica(message) {
        // No server of this generation sends one to another, and executing it would let a replica
        // act for any client (chapter 01 section 6.3).
        Ok(ReplicaFrame::RoutedRequest(_)) => {
            link.inspect(|link| count(&link.routed_requests));
            if let Some(withheld) = shared.link_log_budget.line() {
                warn!(%peer, withheld, "a client request from a replica is dropped");
            }
            Ok(())
        }
        Ok(frame) => {
            link.inspect(|link| link.received.note(frame.message()));
            let post = shared.events.of(&frame);
            let event = PeerEvent::Frame { from: peer, frame };
            if post.send(event).await {
                Ok(())
            } else {
                Err(LinkEnd::Stopping)
            }
        }
        Err(refusal) => {
            link.inspect(|link| link.refused.note(&refusal));
            if let Some(withheld) = shared.link_log_budget.line() {
                let label = refusal.label();
                warn!(%peer, label, %refusal, withheld, "a frame is dropped");
            }
            Ok(())
        }
    }
}

/// Writes until the queue is closed and empty, or the socket fails. The peer learns of an error by
/// the closed socket, and the reader of this link by the same.
async fn write(
    peer: ReplicaId,
    mut writer: Writer,
    queue: Waiting,
    socket: TcpStream,
    shared: Arc<Shared>,
) {
    let of_peer = shared.link(peer);
    let mut batch: Vec<Message> = Vec::with_capacity(shared.config.batch_max);
    while queue.take(&mut batch, shared.config.batch_max).await {
        if let Err(error) = writer.write_batch(&batch).await {
            debug!(%error, "writing to a replica failed");
            let lost = (batch.len() + queue.len()) as u64;
            if let Some(of_peer) = of_peer {
                of_peer.lost_with_link.fetch_add(lost, Ordering::Relaxed);
            }
            break;
        }
        if let Some(of_peer) = of_peer {
            batch.iter().for_each(|message| of_peer.sent.note(message));
        }
        count(&shared.counters.batches_out);
        batch.clear();
    }
    let _ = runtime::timeout(shared.config.close_grace, writer.close()).await;
    let _ = socket.shutdown(Shutdown::Both);
}
