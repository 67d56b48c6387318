//! The accepting side: a bound number of handshakes at once, each in its own task.
//!
//! Nobody is known yet here, so nothing that a stranger does may cost more than a little: a small
//! task, 256 bytes, one of the slots for the handshake's budget, and now and then a log line. Part
//! of the slots is kept for the addresses of the roster, so that strangers elsewhere cannot keep a
//! replica from coming back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use biplane_handshake::INBOUND_HANDSHAKES_MAX;
use biplane_wire::Deframer;
use tracing::warn;

use super::{Shared, count, greeting, link, socket};
use crate::runtime::{self, TcpListener, TcpStream};

/// Of the handshakes in flight, so many may come from addresses outside of the roster. Replicas
/// behind a translated address still find these.
const INBOUND_STRANGERS_MAX: usize = INBOUND_HANDSHAKES_MAX * 3 / 4;
/// Pause after a failed accept: descriptors may be exhausted, and a hot loop helps nobody.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Handshakes in flight.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: AtomicUsize,
}

/// One handshake in flight, until dropped.
struct Slot(Arc<Slots>);

impl Slots {
    fn take(self: &Arc<Self>, is_roster: bool) -> Option<Slot> {
        let limit = if is_roster {
            INBOUND_HANDSHAKES_MAX
        } else {
            INBOUND_STRANGERS_MAX
        };
        // Only the accept loop takes, so the number can but fall in between.
        if self.taken.load(Ordering::Relaxed) >= limit {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Slot(Arc::clone(self)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts until the mesh closes.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Slots::default());
    let roster: Vec<IpAddr> = shared
        .config
        .peers
        .iter()
        .map(|(_, address)| address.ip().to_canonical())
        .collect();
    while let Some(accepted) = shared.unless_closing(listener.accept()).await {
        // However many are waiting: links and the node share this thread.
        runtime::yield_now().await;
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(withheld) = shared.log_budget.line() {
                    warn!(%error, withheld, "accepting a replica connection failed");
                }
                runtime::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = slots.take(roster.contains(&address.ip().to_canonical())) else {
            count(&shared.counters.handshakes_overflow);
            if let Some(withheld) = shared.log_budget.line() {
                warn!(%address, withheld, "too many handshakes in flight; one is turned away");
            }
            continue;
        };
        runtime::spawn(greet(stream, address, slot, Arc::clone(&shared)));
    }
    drop(listener);
    shared.listening.store(false, Ordering::Relaxed);
}

async fn greet(stream: TcpStream, address: SocketAddr, slot: Slot, shared: Arc<Shared>) {
    socket::tune(&stream);
    let greeted = shared
        .unless_closing(greeting::accept(&stream, &shared.config))
        .await;
    drop(slot);
    match greeted {
        Some(Ok(greeted)) => {
            let deframer = Deframer::new(shared.config.message_size_max)
                .with_recycler(Arc::clone(&shared.config.frames) as _);
            link::run(greeted, stream, deframer, shared).await;
        }
        Some(Err(error)) => {
            count(&shared.counters.handshakes_failed);
            if let Some(withheld) = shared.log_budget.line() {
                let (label, advice) = (error.label(), error.advice());
                warn!(%address, label, %error, advice, withheld, "replica handshake failed");
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_room_for_the_roster() {
        let slots = Arc::new(Slots::default());
        let mut held: Vec<Slot> = std::iter::from_fn(|| slots.take(false)).collect();
        assert_eq!(held.len(), INBOUND_STRANGERS_MAX);
        held.extend(std::iter::from_fn(|| slots.take(true)));
        assert_eq!(held.len(), INBOUND_HANDSHAKES_MAX);
        held.truncate(10);
        assert!(
            slots.take(false).is_some(),
            "a slot is free as soon as it is dropped"
        );
    }
}
