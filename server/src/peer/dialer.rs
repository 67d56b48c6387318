//! The dialing side: one task per replica with a higher id, which keeps that link up.
//!
//! The first dials after boot and after a loss follow each other quickly and then slow down to the
//! sweep period, with some jitter. Waiting a whole period for the first retry would let the
//! heartbeat expire and change the view at every boot.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use biplane_vsr::Prng;
use biplane_wire::{Deframer, ReplicaId};
use tracing::{debug, warn};

use super::{Shared, count, greeting, link, listener};
use crate::runtime::{self, TcpStream};

/// Pause before the first retry.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// A link that lived this long was a good one: the next retry is a quick one again.
const GOOD_LINK: Duration = Duration::from_secs(1);
/// While an inbound link of the peer is up there is nothing to dial; look again after this.
const LINKED_PAUSE: Duration = Duration::from_millis(50);

/// Dials `peer` whenever it is not linked, until the mesh closes.
pub(super) async fn keep_dialed(peer: ReplicaId, address: SocketAddr, shared: Arc<Shared>) {
    let mut chance =
        Prng::new(u64::from(shared.config.identity.replica.0) << 8 | u64::from(peer.0));
    let mut pause = RETRY_FIRST;
    while !shared.registry.is_closing() {
        if shared.registry.is_linked(peer) {
            runtime::sleep(LINKED_PAUSE).await;
            continue;
        }
        if dial_once(peer, address, &shared).await >= GOOD_LINK {
            pause = RETRY_FIRST;
        }
        let jitter = chance.up_to(u64::try_from(pause.as_millis() / 4).unwrap_or(0).max(1));
        runtime::sleep(pause + Duration::from_millis(jitter)).await;
        pause = (pause * 2).min(shared.config.reconnect_period);
    }
}

/// One attempt; returns how long the link it made has lived, once that has ended.
async fn dial_once(peer: ReplicaId, address: SocketAddr, shared: &Arc<Shared>) -> Duration {
    let connect = TcpStream::connect(address);
    let stream = match runtime::timeout(shared.config.reconnect_period, connect).await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            debug!(%peer, %address, %error, "dialing a replica failed");
            return Duration::ZERO;
        }
        None => {
            debug!(%peer, %address, "dialing a replica timed out");
            return Duration::ZERO;
        }
    };
    listener::tune(&stream);
    let mut deframer = Deframer::new(shared.config.message_size_max);
    match greeting::dial(&stream, &mut deframer, &shared.config, peer).await {
        Ok(established) => {
            let started = Instant::now();
            link::run(established.peer(), stream, deframer, Arc::clone(shared)).await;
            started.elapsed()
        }
        Err(error) => {
            count(&shared.counters.handshakes_failed);
            warn!(%peer, %address, %error, "replica handshake failed");
            Duration::ZERO
        }
    }
}
