//! The dialing side: one task per replica with a higher id, which keeps that link up.
//!
//! For a while after boot and after a loss the dials follow each other quickly, then they slow down
//! to the sweep period. Waiting a whole period for the first retry would let the heartbeat expire
//! and change the view at every boot, and a peer that was restarted is back within seconds. A peer
//! that answers and refuses is not asked again so soon: somebody has to change its configuration,
//! or ours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use biplane_vsr::Prng;
use biplane_wire::{Deframer, ReplicaId};
use tracing::{debug, warn};

use super::{Shared, count, greeting, link, socket};
use crate::runtime::{self, TcpStream};

/// Pause before the first retry; the following ones double.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Longest pause while retries are quick.
const QUICK_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long after boot or a loss retries are quick.
const QUICK_FOR: Duration = Duration::from_secs(30);
/// A link that lived this long was a good one: its loss is followed by quick retries.
const GOOD_LINK: Duration = Duration::from_secs(1);
/// A connection attempt gets the sweep period, within these bounds: less would not do for a slow
/// network, more would only wait for a host that is away.
const CONNECT_LIMITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// The old link of the peer is about to be forgotten; look again after this.
const LINKED_PAUSE: Duration = Duration::from_millis(20);

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// Nobody answered.
    Unreachable,
    /// The handshake failed.
    Refused,
    /// There was a link, for this long.
    Linked(Duration),
}

/// When to dial again.
#[derive(Debug)]
struct Pace {
    period: Duration,
    pause: Duration,
    /// Since the boot or the loss of the last good link.
    since: Instant,
}

impl Pace {
    fn new(period: Duration) -> Self {
        Self {
            period,
            pause: RETRY_FIRST,
            since: Instant::now(),
        }
    }

    /// The pause after `attempt`, before jitter.
    fn after(&mut self, attempt: Attempt) -> Duration {
        if matches!(attempt, Attempt::Linked(lived) if lived >= GOOD_LINK) {
            *self = Self::new(self.period);
        }
        let pause = self.pause;
        let quick = attempt != Attempt::Refused && self.since.elapsed() < QUICK_FOR;
        let longest = if quick {
            QUICK_PAUSE_MAX.min(self.period)
        } else {
            self.period
        };
        self.pause = (pause * 2).min(longest);
        pause.min(longest)
    }
}

/// Dials `peer` whenever it is not linked, until the mesh closes.
pub(super) async fn keep_dialed(peer: ReplicaId, address: SocketAddr, shared: Arc<Shared>) {
    let identity = shared.config.identity;
    let mut chance = Prng::new(u64::from(identity.replica.0) << 8 | u64::from(peer.0));
    let mut pace = Pace::new(shared.config.reconnect_period);
    loop {
        let pause = if shared.registry.is_linked(peer) {
            LINKED_PAUSE
        } else {
            let Some(attempt) = dial_once(peer, address, &shared).await else {
                return;
            };
            let pause = pace.after(attempt);
            // Downwards, so that the period stays the longest pause.
            let spread = u64::try_from(pause.as_millis() / 4).unwrap_or(u64::MAX);
            pause - Duration::from_millis(chance.up_to(spread.max(1)).min(spread))
        };
        if shared.unless_closing(runtime::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// One attempt; returns when it failed, or when the link that it made has ended. `None`: the mesh
/// closes.
async fn dial_once(peer: ReplicaId, address: SocketAddr, shared: &Arc<Shared>) -> Option<Attempt> {
    count(&shared.counters.dials);
    let [least, most] = CONNECT_LIMITS;
    let limit = shared.config.reconnect_period.clamp(least, most);
    let connect = runtime::timeout(limit, TcpStream::connect(address));
    let stream = match shared.unless_closing(connect).await? {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            debug!(%peer, %address, %error, "dialing a replica failed");
            return Some(Attempt::Unreachable);
        }
        None => {
            debug!(%peer, %address, "dialing a replica timed out");
            return Some(Attempt::Unreachable);
        }
    };
    socket::tune(&stream);
    let greeting = greeting::dial(&stream, &shared.config, peer, address.ip());
    match shared.unless_closing(greeting).await? {
        Ok(greeted) => {
            let started = Instant::now();
            let deframer = Deframer::new(shared.config.message_size_max)
                .with_recycler(Arc::clone(&shared.config.frames) as _);
            // To its end even when the mesh closes: what is queued is still to be written.
            link::run(greeted, stream, deframer, Arc::clone(shared)).await;
            Some(Attempt::Linked(started.elapsed()))
        }
        Err(error) => {
            count(&shared.counters.handshakes_failed);
            let (label, advice) = (error.label(), error.advice());
            warn!(%peer, %address, label, %error, advice, "replica handshake failed");
            Some(if error.is_refusal() {
                Attempt::Refused
            } else {
                Attempt::Unreachable
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(5);

    #[test]
    fn retries_are_quick_for_a_while_and_then_keep_the_period() {
        let mut pace = Pace::new(PERIOD);
        let pauses: Vec<u128> = (0..7)
            .map(|_| pace.after(Attempt::Unreachable).as_millis())
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        pace.since -= QUICK_FOR;
        let later: Vec<u128> = (0..4)
            .map(|_| pace.after(Attempt::Unreachable).as_millis())
            .collect();
        assert_eq!(later, [1000, 2000, 4000, 5000]);
    }

    #[test]
    fn a_good_link_makes_the_next_retries_quick_and_a_short_one_does_not() {
        let mut pace = Pace::new(PERIOD);
        pace.since -= QUICK_FOR;
        while pace.after(Attempt::Unreachable) < PERIOD {}
        let short = Attempt::Linked(Duration::from_millis(3));
        assert_eq!(pace.after(short), PERIOD);
        assert_eq!(pace.after(Attempt::Linked(GOOD_LINK)), RETRY_FIRST);
        assert_eq!(pace.after(Attempt::Unreachable), RETRY_FIRST * 2);
    }

    #[test]
    fn a_refusal_is_not_answered_with_haste() {
        let mut pace = Pace::new(PERIOD);
        while pace.after(Attempt::Refused) < PERIOD {}
        assert_eq!(pace.after(Attempt::Refused), PERIOD);
    }

    #[test]
    fn no_pause_is_longer_than_the_period() {
        let mut pace = Pace::new(Duration::from_millis(80));
        let pauses: Vec<u128> = (0..4)
            .map(|_| pace.after(Attempt::Unreachable).as_millis())
            .collect();
        assert_eq!(pauses, [50, 80, 80, 80]);
    }
}
