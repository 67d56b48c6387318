//! A mesh on free ports, and a peer made of a plain socket that can say anything.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use biplane_handshake::{Action, Channel, Dialer, Frame, Identity, Keys, Then, cluster_id};
use biplane_wire::{Command, CommitHeader, Header as _, Message, ReplicaId, View};

use super::super::{Inbound, Mesh, MeshConfig, MeshCounters, PeerEvent};
use crate::mailbox::{self, Bell};
use crate::runtime::{self, Receiver};
use crate::tls::ReplicaTls;

pub(super) const S1: &str = "0123456789abcdef0123456789abcdef";
pub(super) const S2: &str = "fedcba9876543210fedcba9876543210";
/// How long anything may take that is to happen.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How long something is watched that is not to happen.
pub(super) const WHILE: Duration = Duration::from_millis(300);

pub(super) fn identity(replica: u8) -> Identity {
    Identity {
        cluster: cluster_id("mesh-test"),
        replica: ReplicaId(replica),
        replica_count: 3,
    }
}

pub(super) fn keys(secret: &str) -> Option<Keys> {
    Some(Keys::from_secrets(secret, None).expect("a legal secret"))
}

/// Three addresses with free ports, below the range of outgoing connections.
pub(super) fn addresses() -> Vec<SocketAddr> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = u64::from(std::process::id()) * 31;
    let mut found = Vec::new();
    while found.len() < 3 {
        let step = base + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(11_000 + step % 20_000).expect("below 31,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            found.push((Ipv4Addr::LOCALHOST, port).into());
        }
    }
    found
}

/// A configuration with short budgets for replica `id`.
pub(super) fn config(id: u8, addresses: &[SocketAddr]) -> MeshConfig {
    let peers = (0..3u8)
        .filter(|peer| *peer != id)
        .map(|peer| (ReplicaId(peer), addresses[usize::from(peer)]))
        .collect();
    MeshConfig {
        identity: identity(id),
        listen: addresses[usize::from(id)],
        peers,
        keys: None,
        tls: None,
        message_size_max: 64 << 20,
        queue_capacity: 256,
        batch_max: 256,
        handshake_grace: Duration::from_secs(2),
        reconnect_period: Duration::from_millis(200),
        close_timeout: Duration::from_secs(2),
        close_grace: Duration::from_secs(1),
        frames: Arc::default(),
    }
}

/// A running mesh and what it reported.
pub(super) struct Running {
    pub(super) mesh: Mesh,
    pub(super) events: Receiver<PeerEvent>,
}

impl Running {
    pub(super) fn start(config: MeshConfig) -> Self {
        let bell = Arc::new(Bell::default());
        let (post, events) = mailbox::bounded(1024, &bell);
        let inbound = Inbound {
            first: post.clone(),
            rest: post,
        };
        let mesh = runtime::block_on(async { Mesh::start(config, inbound) }).expect("a free port");
        Self { mesh, events }
    }

    /// With authentication and TLS as given.
    pub(super) fn secured(
        id: u8,
        addresses: &[SocketAddr],
        keys: Option<Keys>,
        tls: Option<ReplicaTls>,
    ) -> Self {
        Self::start(MeshConfig {
            keys,
            tls,
            ..config(id, addresses)
        })
    }

    /// The next event, or `None` when the time is over.
    pub(super) fn event(&self, limit: Duration) -> Option<PeerEvent> {
        runtime::block_on(runtime::timeout(limit, self.events.recv())).and_then(Result::ok)
    }

    pub(super) fn wait_up(&self, peer: u8) {
        match self.event(LIMIT) {
            Some(PeerEvent::Up { replica }) => assert_eq!(replica, ReplicaId(peer)),
            other => panic!("expected that replica {peer} is up, got {other:?}"),
        }
    }

    pub(super) fn wait_down(&self, peer: u8) {
        match self.event(LIMIT) {
            Some(PeerEvent::Down { replica }) => assert_eq!(replica, ReplicaId(peer)),
            other => panic!("expected that replica {peer} is down, got {other:?}"),
        }
    }

    /// The view of the next frame, which came by the link of `peer`.
    pub(super) fn wait_frame(&self, peer: u8) -> u32 {
        match self.event(LIMIT) {
            Some(PeerEvent::Frame { from, frame }) => {
                assert_eq!(from, ReplicaId(peer));
                frame.message().generic().frame.view().0
            }
            other => panic!("expected a frame of replica {peer}, got {other:?}"),
        }
    }

    pub(super) fn assert_quiet(&self) {
        let event = self.event(WHILE);
        assert!(event.is_none(), "nothing was to happen: {event:?}");
    }

    /// Waits until the count of all peers with this name is `least` or more; what it is then.
    pub(super) fn wait_total(&self, name: &str, least: u64) -> u64 {
        let start = Instant::now();
        loop {
            let totals = self.mesh.totals();
            let found = totals.iter().find(|(known, _)| *known == name);
            let (_, value) = *found.expect("a count of that name");
            if value >= least {
                return value;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{value} instead of {least}: {totals:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a counter has reached `least`.
    pub(super) fn wait_count(&self, of: impl Fn(&MeshCounters) -> &AtomicU64, least: u64) -> u64 {
        let start = Instant::now();
        loop {
            let value = of(self.mesh.counters()).load(Ordering::Relaxed);
            if value >= least {
                return value;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{value} instead of {least}: {:?}",
                self.mesh.counters()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        runtime::block_on(self.mesh.shut_down());
    }
}

/// A commit of replica 0 in `view`, which tells frames apart.
pub(super) fn commit(view: u32) -> Message {
    commit_from(0, view)
}

pub(super) fn commit_from(replica: u8, view: u32) -> Message {
    let mut header = CommitHeader::new(Command::Commit);
    header.frame.set_cluster(identity(0).cluster);
    header.frame.set_replica(ReplicaId(replica));
    header.frame.set_view(View(view));
    Message::sealed(header, &[])
}

/// A socket that speaks for itself.
pub(super) struct Raw {
    pub(super) socket: TcpStream,
}

impl Raw {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the mesh listens");
        socket.set_read_timeout(Some(LIMIT)).expect("an option");
        socket.set_nodelay(true).expect("an option");
        Self { socket }
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the mesh reads");
    }

    pub(super) fn frame(&mut self) -> Frame {
        let mut frame = [0; 256];
        self.socket.read_exact(&mut frame).expect("a frame");
        frame
    }

    /// Everything up to the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.socket.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("expected the end of the stream: {error}"),
        }
        bytes
    }

    pub(super) fn assert_open(&self) {
        self.socket
            .set_read_timeout(Some(WHILE))
            .expect("an option");
        let read = self.socket.peek(&mut [0]);
        let waits = read.as_ref().is_err_and(|error| {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        });
        assert!(waits, "the connection stays and nothing is said: {read:?}");
        self.socket
            .set_read_timeout(Some(LIMIT))
            .expect("an option");
    }

    /// Plays the dialer `own` towards `peer` to its end.
    pub(super) fn greet(&mut self, own: u8, peer: u8, keys: Option<Keys>) {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).expect("randomness");
        let dialer = Dialer::new(
            identity(own),
            ReplicaId(peer),
            keys,
            Channel::Plaintext,
            nonce,
        );
        let mut action: Action = dialer.expect("a legal dial").start();
        loop {
            if let Some(frame) = action.send {
                self.say(&frame);
            }
            match action.then {
                Then::Read(machine) => action = machine.step(&self.frame()),
                Then::Established(_) => return,
                Then::Close(reason) => panic!("the handshake fails: {reason}"),
            }
        }
    }
}

/// The hello of replica 0, without or with a nonce.
pub(super) fn hello(nonce: Option<[u8; 32]>) -> Frame {
    let auth = nonce.map(|_| keys(S1).expect("keys"));
    let dialer = Dialer::new(
        identity(0),
        ReplicaId(2),
        auth,
        Channel::Plaintext,
        nonce.unwrap_or_default(),
    );
    dialer.expect("a legal dial").start().send.expect("a hello")
}

/// `bytes` with some of them replaced.
pub(super) fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// A frame with a correct seal whose header bytes were changed on the way.
pub(super) fn resealed(message: &Message, at: usize, new: &[u8]) -> Vec<u8> {
    let changed = with(&message.to_vec(), at, new);
    let mut header = *CommitHeader::over(changed.first_chunk().expect("a header"));
    biplane_wire::checksum::seal(&mut header);
    header.bytes().to_vec()
}
