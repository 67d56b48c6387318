//! The loop: take what has arrived, at most so much of each kind, then let the sockets have their
//! turn.

use std::sync::atomic::Ordering;

use biplane_metadata_plane::io as metadata;
use biplane_partition_plane as partition;
use futures::FutureExt as _;
use futures::future::{BoxFuture, FusedFuture as _};
use tracing::{Instrument as _, error, info};

use super::{Node, NodeEnd, spans};
use crate::client::session::Wait;
use crate::clock;
use crate::notify;
use crate::passwords::PasswordDone;
use crate::peer::PeerEvent;
use crate::runtime;

/// Items of one kind served before the others get their turn.
const BUDGET: usize = 128;
/// Ticks between looks at held requests, and at idle sessions.
const HELD_TICKS: u64 = 5;
/// Ticks between looks at memory of frames that nobody needs.
const TRIM_TICKS: u64 = 100;
/// Ticks a stopping node listens longer than one commit interval, and at most.
const DRAIN_MARGIN_TICKS: u64 = 10;
const DRAIN_TICKS_MAX: u64 = 200;

impl Node {
    /// Runs until the node is asked to stop, or cannot go on.
    pub async fn run(self) -> NodeEnd {
        let span = spans::node(self.identity.replica);
        self.turns().instrument(span).await
    }

    /// The loop.
    async fn turns(mut self) -> NodeEnd {
        self.flush();
        self.report_role();
        loop {
            self.wait().await;
            let more = self.serve_arrived();
            self.serve_ticks();
            self.serve_held_when_due();
            self.serve_ready();
            self.commit_gathered();
            self.report_role();
            if let Some(end) = self.halted.take() {
                error!(reason = %end, "the node stops");
                self.close().await;
                return end;
            }
            if self.inbox.stop.try_recv().is_ok() {
                self.stop().await;
                return NodeEnd::Stopped;
            }
            if more {
                self.inbox.bell.ring();
            }
            runtime::yield_now().await;
        }
    }

    /// Until something has arrived or a tick is due.
    async fn wait(&mut self) {
        if self.alarm.is_terminated() {
            let tick: BoxFuture<'static, ()> = Box::pin(runtime::sleep(self.ticks.until_next()));
            self.alarm = tick.fuse();
        }
        futures::select_biased! {
            () = self.inbox.bell.wait().fuse() => {}
            () = &mut self.alarm => {}
        }
    }

    /// Serves a budget of each kind; true when something is left.
    fn serve_arrived(&mut self) -> bool {
        let mut more = false;
        // Completions first: they release promises that others wait for.
        for served in 0.. {
            let Ok(completion) = self.inbox.disk.try_recv() else {
                break;
            };
            self.on_disk(completion);
            if served == BUDGET {
                more = true;
                break;
            }
        }
        for first in [true, false] {
            for served in 0.. {
                let Some(event) = self.peer_event(first) else {
                    break;
                };
                self.on_peer(event);
                if served == BUDGET {
                    more = true;
                    break;
                }
            }
        }
        while let Ok(done) = self.inbox.passwords.try_recv() {
            self.on_password(done);
        }
        while let Ok(done) = self.inbox.diagnostics.try_recv() {
            self.on_diagnosed(done);
            self.flush();
        }
        for served in 0.. {
            let Ok(event) = self.inbox.clients.try_recv() else {
                break;
            };
            self.on_client(event);
            self.flush();
            if served == BUDGET {
                more = true;
                break;
            }
        }
        more
    }

    /// The next of what peers sent: of the metadata group, or of anything else.
    fn peer_event(&self, first: bool) -> Option<PeerEvent> {
        let inbox = if first {
            &self.inbox.peers_first
        } else {
            &self.inbox.peers
        };
        inbox.try_recv().ok()
    }

    fn on_peer(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Up { replica } => self.on_link(replica, true),
            PeerEvent::Down { replica } => self.on_link(replica, false),
            PeerEvent::Frame { from, frame } => {
                let _span = spans::frame(from, &frame).entered();
                match frame.route() {
                    Some(group) if group.is_metadata() => {
                        self.step_metadata(metadata::Input::Frame(frame));
                    }
                    Some(_) => self.step_partitions(partition::Input::Frame { from, frame }),
                    // An operation no plane has, or a group that is no partition.
                    None => {}
                }
                return self.flush();
            }
        }
        self.flush();
    }

    pub(super) fn on_link(&mut self, replica: biplane_wire::ReplicaId, connected: bool) {
        if connected {
            self.links.insert(replica);
        } else {
            self.links.remove(&replica);
        }
        self.step_metadata(metadata::Input::Peer { replica, connected });
        self.step_partitions(partition::Input::Peer { replica, connected });
    }

    fn on_password(&mut self, done: PasswordDone) {
        let (token, answer) = match done {
            PasswordDone::Verified { token, matches } => (token, Ok(matches)),
            PasswordDone::Hashed { token, hash } => (token, Err(hash)),
        };
        let Some(mut waiting) = self.clients.take(token) else {
            return;
        };
        match (std::mem::replace(&mut waiting.wait, Wait::Logout), answer) {
            (Wait::Credentials(login), Ok(matches)) => self.on_verified(waiting, login, matches),
            (Wait::Identify { user_id, answer }, Ok(matches)) => {
                Self::on_identified(user_id, &answer, matches);
            }
            (wait @ Wait::Hashing(_), Ok(matches)) => {
                waiting.wait = wait;
                self.on_current_verified(waiting, matches);
            }
            (wait @ Wait::Hashing(_), Err(hash)) => {
                waiting.wait = wait;
                self.on_hashed(waiting, hash);
            }
            _ => {}
        }
        self.flush();
    }

    fn serve_ticks(&mut self) {
        for _ in 0..self.ticks.due() {
            self.tick += 1;
            let wall_micros = clock::wall_micros();
            self.step_metadata(metadata::Input::Tick { wall_micros });
            self.flush();
            self.step_partitions(partition::Input::Tick { wall_micros });
            self.flush();
            self.tick_disk();
            if self.tick.is_multiple_of(TRIM_TICKS) {
                self.frames.trim();
            }
            self.evict_stale_members();
            self.complete_revocations();
            self.report_catch_up();
        }
    }

    /// Held requests are looked at when metadata has moved, and every few ticks.
    fn serve_held_when_due(&mut self) {
        let applied = self.metadata.commit_min().0;
        if applied != self.held_looked_at || self.tick.is_multiple_of(HELD_TICKS) {
            self.held_looked_at = applied;
            self.serve_held();
        }
    }

    /// Hears out the peers, flushes what is committed, ends every connection, and waits for the
    /// disk.
    ///
    /// A whole cluster is often stopped at once. What the last acknowledged writes need then is
    /// that the backups still learn that they are committed: only a committed prefix is flushed,
    /// and a topic's memory is gone with the process. So a node listens to its peers for one round
    /// of commit broadcasts before it flushes.
    async fn stop(&mut self) {
        info!("stopping");
        notify::stopping();
        self.listener.closing.store(true, Ordering::Relaxed);
        if self.mesh.is_some() {
            let interval = u64::from(self.config.cluster.commit_broadcast_interval.ticks());
            self.drain_until(self.tick + (interval + DRAIN_MARGIN_TICKS).min(DRAIN_TICKS_MAX))
                .await;
        }
        self.step_partitions(partition::Input::FlushAll);
        self.flush();
        let budget = self.config.sharding.shutdown_drain_timeout.ticks();
        let deadline = self.tick + u64::from(budget);
        while !self.partitions.is_flushed() && self.tick < deadline && self.halted.is_none() {
            self.wait().await;
            while let Ok(completion) = self.inbox.disk.try_recv() {
                self.on_disk(completion);
            }
            self.serve_ticks();
            self.commit_gathered();
            runtime::yield_now().await;
        }
        self.close().await;
    }

    /// Serves peers, disk and ticks, and no client, until `deadline`.
    async fn drain_until(&mut self, deadline: u64) {
        while self.tick < deadline && self.halted.is_none() {
            self.wait().await;
            while let Ok(completion) = self.inbox.disk.try_recv() {
                self.on_disk(completion);
            }
            while let Some(event) = self.peer_event(true).or_else(|| self.peer_event(false)) {
                self.on_peer(event);
            }
            self.serve_ticks();
            self.commit_gathered();
            runtime::yield_now().await;
        }
    }

    async fn close(&mut self) {
        self.listener.closing.store(true, Ordering::Relaxed);
        self.clients.close_all();
        if let Some(http) = self.http.take() {
            http.shut_down();
        }
        let refused = self.listener.refused.total();
        info!(refused, "client frames that were no requests");
        if let Some(mesh) = self.mesh.take() {
            mesh.shut_down().await;
            let counters = mesh.totals();
            info!(?counters, "the mesh is closed");
        }
        if let Some(disk) = self.disk.take() {
            disk.shut_down();
        }
        info!(folder = %self.folder.path().display(), "stopped");
    }
}
