//! One registered connection: a reader that turns bytes into checked frames, and a writer that
//! turns queued frames into as few system calls as it can.

use std::io;
use std::sync::Arc;

use biplane_wire::{CloseReason, Deframer, Message, ReplicaFrame, ReplicaId, decode_replica};
use futures::AsyncReadExt as _;
use tracing::{debug, info, warn};

use super::registry::Link;
use super::{PeerEvent, Shared, count};
use crate::runtime::{self, Receiver, TcpStream};
use crate::vectored;

/// How a link ended.
#[derive(Debug, thiserror::Error)]
enum LinkEnd {
    #[error("the peer closed the connection")]
    Closed,
    #[error(transparent)]
    Framing(#[from] CloseReason),
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    #[error("this node is shutting down")]
    Stopping,
}

/// Registers a connection that finished its handshake and runs it to its end. Returns at once when
/// another connection of the peer stays.
pub(super) async fn run(
    peer: ReplicaId,
    stream: TcpStream,
    deframer: Deframer,
    shared: Arc<Shared>,
) {
    let Some((link, queue)) = shared.registry.register(peer, shared.config.queue_capacity) else {
        debug!(%peer, "a connection to this replica is already up; the new one is closed");
        return;
    };
    info!(%peer, "replica connected");
    shared.events.send(PeerEvent::Up { replica: peer }).await;
    let writer = runtime::spawn(write(stream.clone(), queue, Arc::clone(&shared)));
    let end = match read(peer, &stream, deframer, &link, &shared).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    link.close();
    let _ = stream.shutdown(std::net::Shutdown::Read);
    let _ = runtime::timeout(shared.config.close_timeout, writer).await;
    let _ = stream.shutdown(std::net::Shutdown::Both);
    if shared.registry.deregister(peer, &link) {
        info!(%peer, reason = %end, "replica disconnected");
        shared.events.send(PeerEvent::Down { replica: peer }).await;
    }
}

enum Never {}

async fn read(
    peer: ReplicaId,
    mut stream: &TcpStream,
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
                    warn!(%peer, %reason, "framing violation; the connection is closed");
                    return Err(reason.into());
                }
            }
        }
        let received = stream.read(deframer.read_slice()).await?;
        if received == 0 {
            deframer.finish()?;
            return Err(LinkEnd::Closed);
        }
        deframer.advance(received);
        link.mark_heard();
    }
}

async fn receive(peer: ReplicaId, message: Message, shared: &Shared) -> Result<(), LinkEnd> {
    let header = message.generic();
    let identity = &shared.config.identity;
    if header.frame.cluster() != identity.cluster
        || header.frame.replica().0 >= identity.replica_count
    {
        count(&shared.counters.foreign_frames);
        debug!(%peer, "a frame of another cluster or of no member is dropped");
        return Ok(());
    }
    match decode_replica(message) {
        // No server of this generation sends one to another, and executing it would let a replica
        // act for any client (chapter 01 section 6.3).
        Ok(ReplicaFrame::RoutedRequest(_)) => {
            count(&shared.counters.refused_frames);
            warn!(%peer, "a client request from a replica is dropped");
            Ok(())
        }
        Ok(frame) => {
            count(&shared.counters.frames_in);
            let event = PeerEvent::Frame { from: peer, frame };
            if shared.events.send(event).await {
                Ok(())
            } else {
                Err(LinkEnd::Stopping)
            }
        }
        Err(refusal) => {
            count(&shared.counters.refused_frames);
            warn!(%peer, label = refusal.label(), %refusal, "a frame is dropped");
            Ok(())
        }
    }
}

/// Writes until the queue is closed and empty, or the socket fails. The peer learns of an error by
/// the closed socket, and the reader of this link by the same.
async fn write(stream: TcpStream, queue: Receiver<Message>, shared: Arc<Shared>) {
    let mut batch: Vec<Message> = Vec::with_capacity(shared.config.batch_max);
    while let Ok(first) = queue.recv().await {
        batch.push(first);
        while batch.len() < shared.config.batch_max {
            match queue.try_recv() {
                Ok(message) => batch.push(message),
                Err(_) => break,
            }
        }
        if let Err(error) = vectored::write_all(&stream, &batch).await {
            debug!(%error, "writing to a replica failed");
            break;
        }
        let frames = batch.len() as u64;
        shared
            .counters
            .frames_out
            .fetch_add(frames, std::sync::atomic::Ordering::Relaxed);
        batch.clear();
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
