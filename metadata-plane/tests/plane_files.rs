//! The plane and its files: crash points of checkpoints and installs, foreign snapshots, disks
//! that fail, logs that are full.

mod support;

use biplane_journal::{DiskErrorKind, DiskPath, DiskVerb, Fault, MemoryDisk};
use biplane_metadata_plane::io::{HaltReason, Input, Outcome, Output, RegisterOutcome};
use biplane_metadata_plane::state::MetadataState;
use biplane_metadata_plane::{Config, Limits, MetadataPlane, OpenError, RootUser, Timers};
use biplane_wire::{ClusterId, Command, Op, Operation, ReplicaId};
use support::bodies::name;
use support::cluster::{Answer, Client, Cluster};

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).expect("a legal path")
}

fn config() -> Config {
    Config {
        cluster: ClusterId(0xB1B1),
        replica: ReplicaId(0),
        replica_count: 1,
        root: RootUser {
            username: "iggy".into(),
            password_hash: "hash".into(),
        },
        limits: Limits::tiny(),
        timers: Timers::tiny(),
        incarnation: 9,
        seed: 9,
    }
}

/// A single node with `count` streams.
fn node_with_streams(count: u32) -> (Cluster, Client) {
    let mut cluster = Cluster::new(1);
    let mut client = Client::login(&mut cluster, 0, 7);
    for number in 0..count {
        let request = client.request(Operation::CreateStream, name(&format!("s{number}")));
        assert_eq!(cluster.commit(0, &request), 0);
    }
    (cluster, client)
}

#[test]
fn checkpoint_may_be_interrupted_after_every_disk_step() {
    // A checkpoint comes with op 192: 256 slots, 64 of them free.
    for halt_after in 0..40 {
        let (mut cluster, mut client) = node_with_streams(189);
        assert_eq!(cluster.plane(0).status().checkpoint_op, Op(0));
        let steps = cluster.nodes[0].disk.steps_done();
        cluster.nodes[0].disk.halt_after(steps + halt_after);
        let mut acknowledged = 189;
        for number in 189..196 {
            let request = client.request(Operation::CreateStream, name(&format!("s{number}")));
            let token = cluster.submit(0, &request);
            cluster.settle();
            if let Some(Answer::Reply(_, Outcome::Committed { .. })) = cluster.answers.get(&token) {
                acknowledged += 1;
            }
        }
        cluster.restart(0);
        let state = cluster.plane(0).state();
        let streams = state.streams().by_id().len();
        assert!(
            streams >= acknowledged,
            "after {halt_after} steps: {streams} of {acknowledged}"
        );
        assert!(streams <= 196);
        state.check_invariants();
        let session = cluster
            .plane(0)
            .session(client.id)
            .expect("the session lives");
        assert_eq!(session.watermark.0, streams as u64);
        client.next = session.watermark.0 + 1;
        let request = client.request(Operation::CreateStream, name("after"));
        assert_eq!(cluster.commit(0, &request), 0, "after {halt_after} steps");
    }
}

#[test]
fn install_may_be_interrupted_after_every_disk_step() {
    for halt_after in 0..24 {
        let mut cluster = Cluster::new(3);
        cluster.await_primary();
        let mut client = Client::login(&mut cluster, 0, 7);
        for number in 0..200 {
            let request = client.request(Operation::CreateStream, name(&format!("s{number}")));
            assert_eq!(cluster.commit(0, &request), 0);
        }
        assert!(cluster.plane(0).status().checkpoint_op > Op(0));
        cluster.wipe(2);
        cluster.start(2);
        cluster.nodes[2].disk.halt_after(halt_after);
        cluster.run(150);
        cluster.restart(2);
        cluster.await_convergence();
        assert!(
            cluster.delivered.contains_key(&Command::StateChunk),
            "step {halt_after}"
        );
        assert_eq!(cluster.plane(2).state().streams().by_id().len(), 200);
        cluster.restart(2);
        cluster.await_convergence();
        assert_eq!(cluster.plane(2).state().streams().by_id().len(), 200);
    }
}

#[test]
fn node_opens_on_the_snapshot_of_a_peer() {
    let mut disk = MemoryDisk::new();
    let file = include_bytes!("golden/metadata-snapshot.bin");
    disk.put(&path("metadata/snapshot.bin"), file);
    let (plane, outputs) = MetadataPlane::open(config(), &disk, 1).expect("opens");
    plane.check_invariants();
    assert_eq!(plane.commit_min(), Op(0x77f));
    assert!(
        outputs
            .iter()
            .all(|output| matches!(output, Output::Disk(_) | Output::Role(_)))
    );
    assert!(plane.state().topology().count() > 0);
    let mut damaged = file.to_vec();
    damaged[100] ^= 1;
    disk.put(&path("metadata/snapshot.bin"), &damaged);
    assert!(matches!(
        MetadataPlane::open(config(), &disk, 1),
        Err(OpenError::SnapshotFile(_))
    ));
}

#[test]
fn files_that_contradict_each_other_refuse_the_boot() {
    let (mut cluster, _) = node_with_streams(250);
    assert!(cluster.plane(0).status().checkpoint_op > Op(0));
    cluster.crash(0);
    let disk = &cluster.nodes[0].disk;
    let with = |change: &dyn Fn(&mut MemoryDisk)| {
        let mut copy = MemoryDisk::new();
        for file in [
            "snapshot.bin",
            "superblock.a",
            "superblock.b",
            "journal.wal",
        ] {
            let file = path(&format!("metadata/{file}"));
            if let Some(bytes) = disk.get(&file) {
                copy.put(&file, &bytes);
            }
        }
        change(&mut copy);
        MetadataPlane::open(config(), &copy, 1).map(|(plane, _)| plane.commit_min())
    };
    assert_eq!(with(&|_| {}).ok(), Some(Op(251)));
    let lost = with(&|disk| {
        let mut fresh = MemoryDisk::new();
        for file in ["superblock.a", "superblock.b", "journal.wal"] {
            let file = path(&format!("metadata/{file}"));
            fresh.put(&file, &disk.get(&file).expect("there"));
        }
        *disk = fresh;
    });
    assert!(matches!(lost, Err(OpenError::Pairing(_))), "{lost:?}");
    let damaged = with(&|disk| {
        disk.flip(&path("metadata/superblock.b"), 40, 1);
    });
    assert!(
        matches!(damaged, Err(OpenError::Superblock(_))),
        "{damaged:?}"
    );
    let limits = Limits {
        journal_slots: 255,
        ..Limits::tiny()
    };
    let refused = MetadataPlane::open(Config { limits, ..config() }, disk, 1);
    assert!(matches!(refused, Err(OpenError::Limit(_))));
}

#[test]
fn superblock_that_cannot_be_written_stops_the_plane() {
    let mut disk = MemoryDisk::new();
    disk.fail(Fault {
        verb: DiskVerb::Replace,
        path: Some(path("metadata/superblock.a")),
        kind: DiskErrorKind::NoSpace,
        after: 0,
    });
    let (mut plane, outputs) = MetadataPlane::open(config(), &disk, 1).expect("opens");
    let mut queue: Vec<Output> = outputs;
    let mut halted = None;
    for tick in 0..3_000 {
        let mut out = Vec::new();
        for output in queue.drain(..) {
            if let Output::Disk(request) = output {
                // The superblock never comes to be; everything else is done at once.
                let is_superblock = format!("{:?}", request.op).contains("superblock");
                let result = if is_superblock {
                    let error = biplane_journal::DiskError {
                        verb: DiskVerb::Replace,
                        path: path("metadata/superblock.a"),
                        kind: DiskErrorKind::NoSpace,
                    };
                    Err(error)
                } else {
                    Ok(biplane_journal::DiskReply::Done)
                };
                let (queue, token) = (request.queue, request.token);
                let completion = biplane_journal::DiskCompletion {
                    queue,
                    token,
                    result,
                };
                plane.step(Input::Disk(completion), &mut out);
            } else if let Output::Halt(reason) = output {
                halted = Some((tick, reason));
            }
        }
        plane.step(
            Input::Tick {
                wall_micros: 1 + tick * 10_000,
            },
            &mut out,
        );
        queue = out;
    }
    let (tick, reason) = halted.expect("stopped");
    assert!(matches!(reason, HaltReason::SuperblockStuck));
    assert!(
        (1_000..1_100).contains(&tick),
        "after the configured time: {tick}"
    );
}

#[test]
fn full_log_refuses_requests_until_the_checkpoint_is_done() {
    let (mut cluster, mut client) = node_with_streams(189);
    // The snapshot cannot be written at the first two attempts.
    for _ in 0..2 {
        cluster.nodes[0].disk.fail(Fault {
            verb: DiskVerb::Rename,
            path: Some(path("metadata/snapshot.bin")),
            kind: DiskErrorKind::NoSpace,
            after: 0,
        });
    }
    let mut refused = 0;
    let mut committed = 0;
    for number in 0..120 {
        let request = client.request(Operation::CreateStream, name(&format!("x{number}")));
        match cluster.call(0, &request) {
            Answer::Reply(_, Outcome::Committed { .. }) => committed += 1,
            Answer::Reply(_, Outcome::Refused(code)) => {
                assert_eq!(code.as_u32(), 58);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        refused > 0 && committed >= 60,
        "{refused} refused, {committed} committed"
    );
    cluster.run(1_000);
    assert!(cluster.plane(0).status().checkpoint_op > Op(0));
    let request = client.request(Operation::CreateStream, name("after"));
    assert_eq!(cluster.commit(0, &request), 0);
}

#[test]
fn state_of_a_stopped_node_is_what_its_log_says() {
    let (mut cluster, _) = node_with_streams(10);
    let expected = cluster.plane(0).state().clone();
    cluster.crash(0);
    let opened = MetadataPlane::open(config(), &cluster.nodes[0].disk, 1);
    let state: MetadataState = opened.expect("opens").0.state().clone();
    assert_eq!(state, expected);
}

#[test]
fn committed_prepare_that_does_not_decode_refuses_the_boot() {
    use biplane_wire::{GroupId, PrepareHeader, prepare};
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(ClusterId(0xB1B1));
    header.set_group(GroupId::METADATA);
    header.set_op(Op(1));
    header.set_operation(Operation::CreateStream);
    header.set_timestamp(5);
    let message = prepare::build_with_body(header, &[0]);
    let mut disk = MemoryDisk::new();
    disk.put(&path("metadata/journal.wal"), &message.to_vec());
    let opened = MetadataPlane::open(config(), &disk, 1).map(|_| ());
    assert!(
        matches!(opened, Err(OpenError::Undecodable { op: 1, .. })),
        "{opened:?}"
    );
}

/// The journal of a node finds no room until the faults are cleared.
fn fill(cluster: &mut Cluster, node: usize) {
    for _ in 0..10_000 {
        cluster.nodes[node].disk.fail(Fault {
            verb: DiskVerb::Write,
            path: Some(path("metadata/journal.wal")),
            kind: DiskErrorKind::NoSpace,
            after: 0,
        });
    }
}

#[test]
fn without_room_nothing_is_acknowledged_and_requests_are_refused() {
    let (mut cluster, mut client) = node_with_streams(3);
    fill(&mut cluster, 0);
    let request = client.request(Operation::CreateStream, name("waits"));
    let token = cluster.submit(0, &request);
    cluster.run(300);
    assert!(!cluster.answers.contains_key(&token), "it is not durable");
    let plane = cluster.plane(0);
    let error = plane.no_room().expect("the log waits for room");
    assert_eq!(error.path, path("metadata/journal.wal"));
    assert!(plane.is_lagging(), "and says so");
    let mut other = Client {
        id: biplane_wire::ClientId(8),
        session: 0,
        next: 1,
    };
    let login = cluster.register(0, other.id, 0);
    assert!(
        !matches!(login, RegisterOutcome::Registered { .. }),
        "{login:?}"
    );
    cluster.nodes[0].disk.clear_faults();
    cluster.run(20);
    assert!(cluster.plane(0).no_room().is_none());
    assert!(
        matches!(
            cluster.answers.get(&token),
            Some(Answer::Reply(_, Outcome::Committed { code: 0, .. }))
        ),
        "what waited is done"
    );
    other.session = cluster.login(0, other.id);
    fill(&mut cluster, 0);
    let request = client.request(Operation::CreateStream, name("waits too"));
    let token = cluster.submit(0, &request);
    cluster.settle();
    let refused = other.request(Operation::CreateStream, name("later"));
    match cluster.call(0, &refused) {
        Answer::Reply(_, Outcome::Refused(code)) => assert_eq!(code.as_u32(), 58),
        other => panic!("{other:?}"),
    }
    // Power fails while it waits: what was acknowledged is there.
    cluster.crash(0);
    cluster.nodes[0].disk.clear_faults();
    cluster.start(0);
    cluster.await_primary();
    assert!(!cluster.answers.contains_key(&token));
    let names: Vec<String> = (0..3).map(|number| format!("s{number}")).collect();
    for stream in names.iter().map(String::as_str).chain(["waits"]) {
        let request = client.request(Operation::CreateStream, name(stream));
        assert_ne!(cluster.commit(0, &request), 0, "{stream} is there");
    }
    assert_eq!(cluster.commit(0, &refused), 0);
}

/// Prepares of this plane leave when they are durable here: a primary without room would hold
/// up everybody for as long as its heartbeats came.
#[test]
fn a_primary_without_room_is_replaced_and_catches_up() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.await_primary(), 0);
    let mut client = Client::login(&mut cluster, 0, 7);
    fill(&mut cluster, 0);
    let request = client.request(Operation::CreateStream, name("s"));
    cluster.submit(0, &request);
    cluster.run(10);
    assert!(cluster.plane(0).status().replica.is_primary, "not at once");
    cluster.run_until("another primary", |cluster| {
        cluster.primary().is_some_and(|primary| primary != 0)
    });
    let primary = cluster.await_primary();
    // It was never passed on.
    assert_eq!(cluster.commit(primary, &request), 0);
    cluster.run(200);
    assert!(cluster.plane(0).no_room().is_some());
    cluster.nodes[0].disk.clear_faults();
    cluster.run(20);
    assert!(cluster.plane(0).no_room().is_none());
    cluster.await_convergence();
    assert!(cluster.plane(0).state().clone() == cluster.plane(primary).state().clone());
}
