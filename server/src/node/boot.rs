//! From settings to a node that listens: folder, planes, disk threads, sockets, in this order. The
//! replica listener opens last, since until then a dialer is better refused (chapter 02 section
//! 2.1).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use biplane_handshake::{Keys, SecretError};
use biplane_journal::{GroupCommit, GroupCommitConfig, Replay};
use biplane_metadata_plane as metadata;
use biplane_metadata_plane::MetadataPlane;
use biplane_partition_plane as partition;
use biplane_partition_plane::PartitionPlane;
use biplane_wire::response::TransportKind;
use futures::future::Fuse;
use tracing::info;

use super::boot_error::BootError;
use super::root;
use super::{Inbox, Node};
use crate::client::connection::{self, ClientEvent, DoorKind, ListenerState};
use crate::client::http::Glance;
use crate::client::session::Clients;
use crate::client::websocket;
use crate::clock::{self, TickCounter};
use crate::config::{Config, Identity, ListenerTls, Variables};
use crate::diagnostics::{Diagnostics, Shown};
use crate::file_disk::{DataFolder, FileDisk, FolderError};
use crate::http::{HttpListener, HttpTlsFiles, Tokens, WebSetup};
use crate::mailbox::{self, Bell, Post};
use crate::notify;
use crate::observe::LogFiles;
use crate::passwords::Passwords;
use crate::peer::{self, INBOUND_CAPACITY, INBOUND_FIRST_CAPACITY, Inbound, Mesh, MeshConfig};
use crate::recycler::FramePool;
use crate::refusals::RefusalCounts;
use crate::runtime;
use crate::supervised::Report;
use crate::tls::{ClientTls, ReplicaTls, TCP_KEYS, TlsError, WEBSOCKET_KEYS};

/// Client requests waiting between all connections and the loop.
const CLIENT_CAPACITY: usize = 1024;
/// Threads that execute disk requests.
const DISK_THREADS: usize = 3;

/// What a node is started with.
#[derive(Debug)]
pub struct Settings {
    /// The configuration in effect.
    pub config: Config,
    /// The environment, for the credentials of the root user.
    pub variables: Variables,
    /// `--replica-id`.
    pub replica_id: Option<u8>,
    /// The data folder.
    pub folder: DataFolder,
    /// `--with-default-root-credentials`.
    pub with_default_root: bool,
    /// `--supervised`.
    pub supervised: bool,
}

/// Asks a running node to stop.
#[derive(Debug, Clone)]
pub struct StopHandle {
    stop: Post<()>,
}

impl StopHandle {
    /// Asks once; more often does no harm.
    pub fn stop(&self) {
        self.stop.post(());
    }
}

/// The boxes' other ends, held by the tasks that fill them.
struct Senders {
    peers: Inbound,
    clients: Post<ClientEvent>,
    stop: Post<()>,
}

/// What the replica plane is protected with.
struct Security {
    keys: Option<Keys>,
    tls: Option<ReplicaTls>,
}

impl Node {
    /// Clients are told the ports that were really bound.
    fn note_bound(&mut self, transport: &'static str, bound: SocketAddr) {
        let (identity, config) = (
            Arc::make_mut(&mut self.identity),
            Arc::make_mut(&mut self.config),
        );
        config.bound(&format!("{transport}.address"), bound);
        config.bound_port(identity.replica, transport, bound.port());
        identity.bound(|ports| match transport {
            "websocket" => ports.websocket = bound.port(),
            "http" => ports.http = bound.port(),
            _ => ports.tcp = bound.port(),
        });
    }

    /// Writes the configuration in effect, with the bound addresses, for whoever started the node.
    fn write_current(&self, folder: &Path) -> Result<(), BootError> {
        let path = folder.join("current_config.toml");
        let written = || -> io::Result<()> {
            // A reader that waits for the file never sees half of it.
            let temporary = folder.join("current_config.toml.tmp");
            std::fs::write(&temporary, self.config.effective_text())?;
            std::fs::rename(&temporary, &path)
        };
        written().map_err(|source| {
            let path = path.clone();
            BootError::Folder(FolderError::Unusable { path, source })
        })
    }

    /// Opens everything. The node does not run until [`Node::run`].
    ///
    /// # Errors
    /// [`BootError`] with one sentence for the operator.
    pub fn boot(mut settings: Settings) -> Result<(Self, StopHandle), BootError> {
        let identity = Arc::new(Identity::new(&settings.config, settings.replica_id)?);
        let security = Security {
            keys: keys(&settings.config)?,
            tls: replica_tls(&settings.config, &identity)?,
        };
        let mut web = WebDoor::open(&settings.config, &identity)?;
        settings.config.forget_secrets();
        let doors = Doors::open(&settings.config, &identity)?;
        let folder = settings.folder;
        let runtime_folder = folder.renew(&settings.config.runtime.path)?;
        let root = root::resolve(
            folder.path(),
            identity.clustered,
            &settings.variables,
            settings.with_default_root,
        )?;
        let view = folder.view();
        let seed = random_u64()?;
        let incarnation = u128::from(random_u64()?) << 64 | u128::from(random_u64()?) | 1;
        let metadata_config = metadata_config(&settings.config, &identity, root, incarnation, seed);
        let wall_micros = clock::wall_micros();
        let (plane, outputs) =
            MetadataPlane::open(metadata_config, &view, wall_micros).map_err(|reason| {
                BootError::Metadata {
                    folder: folder.path().to_owned(),
                    reason,
                }
            })?;
        let replay = Replay::read(&view).map_err(|reason| BootError::Redo {
            folder: folder.path().to_owned(),
            reason,
        })?;
        if replay.file_count() > 0 {
            info!(
                files = replay.file_count(),
                "files get the writes that a crash left in the redo files"
            );
        }
        let mut disk_out = Vec::new();
        let commit =
            GroupCommit::open(GroupCommitConfig::new(random_u64()?), replay, &mut disk_out);
        let partitions =
            PartitionPlane::new(partition_config(&settings.config, &identity, seed ^ 1));

        let bell = Arc::new(Bell::default());
        let (disk_post, disk) = mailbox::unbounded(&bell);
        let (password_post, password_done) = mailbox::unbounded(&bell);
        let (diagnostics_post, diagnostics_done) = mailbox::unbounded(&bell);
        let (first, peers_first) = mailbox::bounded(INBOUND_FIRST_CAPACITY, &bell);
        let (rest, peers) = mailbox::bounded(INBOUND_CAPACITY, &bell);
        let (client_post, clients) = mailbox::bounded(CLIENT_CAPACITY, &bell);
        let (stop_post, stop) = mailbox::unbounded(&bell);
        let senders = Senders {
            peers: Inbound { first, rest },
            clients: client_post,
            stop: stop_post,
        };
        let inbox = Inbox {
            bell,
            peers_first,
            peers,
            clients,
            disk,
            passwords: password_done,
            diagnostics: diagnostics_done,
            stop,
        };

        let frames = Arc::new(FramePool::default());
        let listener = Arc::new(ListenerState {
            message_size_max: message_size_max(&settings.config),
            outbox_capacity: settings.config.message_bus.peer_queue_capacity,
            events: senders.clients.clone(),
            handshake_grace: settings.config.message_bus.handshake_grace.0,
            close_grace: settings.config.message_bus.close_grace.0,
            closing: AtomicBool::new(false),
            frames: Arc::clone(&frames),
            refused: RefusalCounts::default(),
            accepted: AtomicU64::new(0),
        });
        let disk = FileDisk::start(&folder, DISK_THREADS, &disk_post)?;
        let passwords = Passwords::start(&password_post)?;
        let shown = Shown {
            config: settings.config.effective_text(),
            log: LogFiles::current(&settings.config.logging, folder.path()),
        };
        let diagnostics = Diagnostics::start(folder.path().to_owned(), shown, &diagnostics_post)?;
        let mut node = Self {
            identity,
            config: Arc::new(settings.config),
            metadata: plane,
            partitions,
            clients: Clients::default(),
            passwords,
            diagnostics,
            glance: Arc::new(Glance::default()),
            links: BTreeSet::new(),
            tick: 0,
            balance: HashMap::new(),
            started_micros: wall_micros,
            metadata_out: outputs,
            partition_out: Vec::new(),
            mesh: None,
            http: None,
            listener,
            folder,
            view,
            disk: Some(disk),
            commit,
            disk_out,
            full_said: None,
            frames,
            inbox,
            ticks: TickCounter::new(),
            alarm: Fuse::terminated(),
            partitions_ready: false,
            held_looked_at: 0,
            halted: None,
            seals: Default::default(),
            fenced: 0,
            supervised: settings.supervised,
            reported: None,
            catch_ups: Default::default(),
        };
        node.open_partitions();
        node.flush();
        node.listen(doors, security, &senders)?;
        if let Some(web) = web.take() {
            node.listen_http(web, &senders)?;
        }
        node.write_current(&runtime_folder)?;
        notify::ready();
        Ok((node, StopHandle { stop: senders.stop }))
    }

    fn listen_http(&mut self, web: WebDoor, senders: &Senders) -> Result<(), BootError> {
        let listener = peer::bind(web.address)?;
        let bound = listener.local_addr()?;
        self.note_bound("http", bound);
        info!(transport = "http", address = %bound, tls = web.tls.is_some(), "clients are served");
        let setup = WebSetup {
            config: self.config.http.clone(),
            identity: Arc::clone(&self.identity),
            tokens: web.tokens,
            glance: Arc::clone(&self.glance),
            events: senders.clients.clone(),
            message_size_max: message_size_max(&self.config),
            client_table_max: self.config.metadata.clients_table_max,
            tls: web.tls,
        };
        self.http = Some(HttpListener::start(listener, setup));
        Ok(())
    }

    fn listen(
        &mut self,
        doors: Doors,
        security: Security,
        senders: &Senders,
    ) -> Result<(), BootError> {
        let mut client = None;
        for door in doors.0 {
            let listener = peer::bind(door.address)?;
            let bound = listener.local_addr()?;
            self.note_bound(door.transport(), bound);
            client.get_or_insert(bound);
            info!(transport = door.transport(), address = %bound, "clients are served");
            let state = Arc::clone(&self.listener);
            runtime::spawn(connection::accept(listener, door.kind, state));
        }
        let replica = self.identity.own().replica_address;
        if let Some(listen) = replica {
            let frames = Arc::clone(&self.frames);
            let config = mesh_config(&self.config, &self.identity, listen, security, frames);
            for (peer, _) in &config.peers {
                // Nobody is connected yet, and the planes believe what they are told.
                self.on_link(*peer, false);
            }
            self.flush();
            self.mesh = Some(Mesh::start(config, senders.peers.clone())?);
        }
        info!(
            node = %self.identity.replica,
            cluster = %self.identity.cluster_name,
            clients = ?client,
            replicas = ?replica,
            "listening"
        );
        if self.supervised {
            Report::Listening {
                node: self.identity.replica.0,
                client: client
                    .map(|address| address.to_string())
                    .unwrap_or_default(),
                replica: replica
                    .map(|address| address.to_string())
                    .unwrap_or_default(),
            }
            .print();
        }
        Ok(())
    }
}

/// A client listener that is not bound yet.
struct Door {
    address: SocketAddr,
    kind: DoorKind,
}

/// The client listeners of a node.
struct Doors(Vec<Door>);

impl Doors {
    /// Loads certificates and settles addresses; nothing is bound.
    fn open(config: &Config, identity: &Identity) -> Result<Self, BootError> {
        let mut doors = Vec::new();
        let tls = |key, section: &ListenerTls| {
            let wanted = section.enabled;
            wanted.then(|| ClientTls::load(key, section)).transpose()
        };
        if config.tcp.enabled {
            doors.push(Door {
                address: identity.client_listen_address(config)?,
                kind: DoorKind::tcp(tls(TCP_KEYS, &config.tcp.tls)?),
            });
        }
        if config.websocket.enabled {
            let section = &config.websocket;
            let limits = websocket::Limits::of(section, config.message_bus.max_message_size.0);
            let tls = tls(WEBSOCKET_KEYS, &section.tls)?;
            doors.push(Door {
                address: identity.websocket_listen_address(config)?,
                kind: DoorKind::websocket(tls, limits),
            });
        }
        Ok(Self(doors))
    }
}

impl Door {
    /// The section of the configuration it comes from.
    fn transport(&self) -> &'static str {
        match self.kind.transport() {
            TransportKind::WebSocket => "websocket",
            _ => "tcp",
        }
    }
}

/// The HTTP listener before it is bound: what needs secrets and files.
struct WebDoor {
    address: SocketAddr,
    tokens: Tokens,
    tls: Option<HttpTlsFiles>,
}

impl WebDoor {
    fn open(config: &Config, identity: &Identity) -> Result<Option<Self>, BootError> {
        let section = &config.http;
        if !section.enabled {
            return Ok(None);
        }
        let tls = section.tls.enabled;
        Ok(Some(Self {
            address: identity.http_listen_address(config)?,
            tokens: Tokens::new(config)?,
            tls: tls.then(|| HttpTlsFiles::load(&section.tls)).transpose()?,
        }))
    }
}

fn keys(config: &Config) -> Result<Option<Keys>, SecretError> {
    let auth = &config.cluster.auth;
    if !auth.enabled {
        return Ok(None);
    }
    let previous = &auth.previous_shared_secret.0;
    let previous = (!previous.is_empty()).then_some(previous.as_str());
    Keys::from_secrets(&auth.shared_secret.0, previous).map(Some)
}

fn replica_tls(config: &Config, identity: &Identity) -> Result<Option<ReplicaTls>, TlsError> {
    let section = &config.cluster.tls;
    let Some(own) = identity.own().replica_address else {
        return Ok(None);
    };
    section
        .enabled
        .then(|| ReplicaTls::load(section, own.ip()))
        .transpose()
}

fn message_size_max(config: &Config) -> u32 {
    u32::try_from(config.message_bus.max_message_size.0).unwrap_or(u32::MAX)
}

fn mesh_config(
    config: &Config,
    identity: &Identity,
    listen: SocketAddr,
    security: Security,
    frames: Arc<FramePool>,
) -> MeshConfig {
    let bus = &config.message_bus;
    let peers = identity
        .roster
        .iter()
        .filter(|member| member.replica != identity.replica)
        .filter_map(|member| Some((member.replica, member.replica_address?)))
        .collect();
    MeshConfig {
        identity: biplane_handshake::Identity {
            cluster: identity.cluster,
            replica: identity.replica,
            replica_count: identity.replica_count(),
        },
        listen,
        peers,
        keys: security.keys,
        tls: security.tls,
        message_size_max: message_size_max(config),
        queue_capacity: bus.peer_queue_capacity,
        batch_max: bus.max_batch,
        handshake_grace: bus.handshake_grace.0,
        reconnect_period: bus.reconnect_period.0,
        close_timeout: bus.close_peer_timeout.0,
        close_grace: bus.close_grace.0,
        frames,
    }
}

fn replica_timers(config: &Config) -> biplane_vsr::Timers {
    let cluster = &config.cluster;
    biplane_vsr::Timers {
        prepare: cluster.prepare_retransmit_interval.ticks(),
        commit: cluster.commit_broadcast_interval.ticks(),
        commit_idle: cluster.commit_broadcast_interval.ticks(),
        heartbeat: cluster.heartbeat_timeout.ticks(),
        view_change_retransmit: cluster.view_change_retransmit_interval.ticks(),
        view_change_status: cluster.view_change_status_timeout.ticks(),
        request_start_view: cluster.request_start_view_retransmit_interval.ticks(),
    }
}

fn metadata_config(
    config: &Config,
    identity: &Identity,
    root: metadata::RootUser,
    incarnation: u128,
    seed: u64,
) -> metadata::Config {
    let cluster = &config.cluster;
    let wedged = cluster.superblock_wedged_fatal_timeout;
    let tokens = &config.personal_access_token.cleaner;
    metadata::Config {
        cluster: identity.cluster,
        replica: identity.replica,
        replica_count: identity.replica_count(),
        root,
        limits: metadata::Limits {
            journal_slots: config.metadata.journal_slots as u64,
            prepare_queue_depth: narrow(config.metadata.prepare_queue_depth),
            clients_table_max: narrow(config.metadata.clients_table_max),
            frame_bytes_max: message_size_max(config),
            repair_chunk_max: narrow(cluster.repair_chunk_max),
            view_probe_attempts_max: narrow(cluster.view_probe_attempts_max),
        },
        timers: metadata::Timers {
            replica: replica_timers(config),
            repair_retry_ticks: cluster.repair_retry_interval.ticks(),
            repair_gap_debounce_ticks: cluster.repair_gap_debounce_interval.ticks().max(50),
            superblock_stuck_ticks: if wedged.0.is_zero() {
                0
            } else {
                wedged.ticks()
            },
            token_cleaner_ticks: if tokens.enabled {
                tokens.interval.ticks()
            } else {
                0
            },
            ..metadata::Timers::default()
        },
        incarnation,
        seed,
    }
}

fn partition_config(config: &Config, identity: &Identity, seed: u64) -> partition::Config {
    let (section, cluster) = (&config.partition, &config.cluster);
    partition::Config {
        cluster: identity.cluster,
        replica: identity.replica,
        replica_count: identity.replica_count(),
        limits: partition::Limits {
            prepare_queue_depth: section.prepare_queue_depth,
            ring_entries: section.evicted_ring_capacity,
            ring_bytes: section.evicted_ring_bytes_max.as_usize(),
            dedup_clients_max: section.dedup_clients_max,
            consumer_offsets_max: section.consumer_offsets_max,
            validate_checksum: section.validate_checksum,
            wal_bytes_max: section.wal_bytes_max.0,
            message_bytes_max: config.message_bus.max_message_size.as_usize(),
            transfer_artifact_bytes_max: section.transfer_artifact_bytes_max.0,
            transfers_served_max: transfers_served(config),
            reconcile_ticks: config.sharding.reconcile_periodic_interval.ticks().into(),
            repair_chunk_max: cluster.repair_chunk_max,
            repair_retry_ticks: cluster.repair_retry_interval.ticks(),
            repair_gap_debounce_ticks: cluster.repair_gap_debounce_interval.ticks().max(50),
            retention_ticks: config.data_maintenance.messages.interval.ticks().into(),
            retention_enabled: config.data_maintenance.messages.cleaner_enabled,
            ..partition::Limits::default()
        },
        timers: replica_timers(config).sparing(),
        view_probe_attempts_max: narrow(cluster.view_probe_attempts_max),
        seed,
    }
}

/// How many transfers may be served at once (chapter 09 section 5.10).
fn transfers_served(config: &Config) -> usize {
    const ARTIFACT_MIN: u64 = (1 << 30) + (64 << 20);
    let section = &config.partition;
    let artifact = section.transfer_artifact_bytes_max.0.max(ARTIFACT_MIN);
    let slots = section.transfer_served_cache_bytes_max.0 / artifact;
    usize::try_from(slots).unwrap_or(usize::MAX).max(1)
}

/// Validated values fit; the limit of the narrow type stands for anything else.
fn narrow<T, N>(value: T) -> N
where
    N: TryFrom<T> + Bounded,
{
    N::try_from(value).unwrap_or(N::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u8 {
    const MAX: Self = Self::MAX;
}

impl Bounded for u16 {
    const MAX: Self = Self::MAX;
}

impl Bounded for u32 {
    const MAX: Self = Self::MAX;
}

fn random_u64() -> Result<u64, io::Error> {
    getrandom::u64().map_err(io::Error::other)
}
