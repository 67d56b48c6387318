//! The snapshot file: trailer, pairing, and the checkpoint sequence under every crash.

mod support;

use std::sync::Arc;

use biplane_journal::{
    Chunk, Disk, DiskOp, DiskPath, DiskRequest, Identity, MemoryDisk, Pairing, PairingError,
    QueueId, ReadBytes, SnapshotFileError, SuperblockFile, SuperblockRecord, Wal, WalOutput,
    check_pairing, load_superblock, open_snapshot, read_file, recover, snapshot_chunks,
};
use biplane_wire::{Checksum, Op, ReplicaId, View};
use support::*;

const IDENTITY: Identity = Identity {
    cluster: CLUSTER,
    replica: ReplicaId(0),
    replica_count: 3,
};

fn file_bytes(payload: &[u8]) -> Vec<u8> {
    let chunks = snapshot_chunks(Arc::from(payload));
    chunks
        .iter()
        .flat_map(Chunk::slices)
        .flatten()
        .copied()
        .collect()
}

#[test]
fn a_trailer_vouches_for_every_bit_of_the_payload() {
    let whole = file_bytes(b"the state at op 9");
    let open = |bytes: &[u8]| open_snapshot(&ReadBytes::copy_of(bytes));
    let good = open(&whole).unwrap();
    assert!(good.sealed);
    assert_eq!(good.payload.as_bytes(), b"the state at op 9");
    assert_eq!(good.checksum, Checksum::of(b"the state at op 9"));
    for byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1;
        let is_magic = (whole.len() - 20..whole.len() - 16).contains(&byte);
        match open(&flipped) {
            // Without its magic it is a file of an old build, and no checksum names it.
            Ok(file) => assert!(is_magic && !file.sealed && file.checksum != good.checksum),
            Err(error) => assert!(matches!(error, SnapshotFileError::Checksum { .. })),
        }
    }
}

#[test]
fn files_without_payload_or_trailer_are_told_apart() {
    let open = |bytes: &[u8]| open_snapshot(&ReadBytes::copy_of(bytes));
    assert_eq!(open(b""), Err(SnapshotFileError::Empty));
    assert_eq!(open(&file_bytes(b"")), Err(SnapshotFileError::Empty));
    let old = open(b"short").unwrap();
    assert!(!old.sealed);
    assert_eq!(old.checksum, Checksum::of(b"short"));
}

#[test]
fn every_pairing_has_one_verdict() {
    let record = |op: u64, sum: u128| SuperblockRecord {
        checkpoint_op: Op(op),
        checkpoint_checksum: Checksum(sum),
        ..SuperblockRecord::fresh(IDENTITY)
    };
    let snapshot = |op: u64, sum: u128| Some((Op(op), Checksum(sum)));
    let missing = Err(PairingError::SnapshotMissing {
        checkpoint_op: Op(5),
    });
    let older = Err(PairingError::SnapshotOlder {
        snapshot_op: Op(4),
        checkpoint_op: Op(5),
    });
    let differs = Err(PairingError::SnapshotDiffers {
        checkpoint_op: Op(5),
    });
    for (superblock, snapshot, wanted) in [
        (None, None, Ok(Pairing::Empty)),
        (None, snapshot(5, 1), Ok(Pairing::SnapshotNewer)),
        (Some(record(0, 0)), None, Ok(Pairing::Empty)),
        (
            Some(record(0, 0)),
            snapshot(0, 1),
            Ok(Pairing::SnapshotNewer),
        ),
        (
            Some(record(0, 0)),
            snapshot(5, 1),
            Ok(Pairing::SnapshotNewer),
        ),
        (Some(record(5, 1)), None, missing),
        (Some(record(5, 1)), snapshot(4, 1), older),
        (Some(record(5, 1)), snapshot(5, 1), Ok(Pairing::Paired)),
        (Some(record(5, 1)), snapshot(5, 2), differs),
        (
            Some(record(5, 1)),
            snapshot(6, 2),
            Ok(Pairing::SnapshotNewer),
        ),
    ] {
        assert_eq!(check_pairing(superblock.as_ref(), snapshot), wanted);
    }
}

/// A node that checkpoints: log, snapshot and superblock, each on its own queue.
struct Node {
    disk: MemoryDisk,
    wal: Wal,
    superblock: SuperblockFile,
    durable_head: u64,
}

const SNAPSHOT_QUEUE: QueueId = QueueId(9);

fn snapshot_path() -> DiskPath {
    DiskPath::new("metadata/snapshot.bin").unwrap()
}

/// A snapshot is its op as text; enough to see which one is there.
fn payload(op: u64) -> Vec<u8> {
    format!("state at {op}").into_bytes()
}

impl Node {
    fn start(steps: u64) -> Self {
        let mut disk = MemoryDisk::new();
        disk.put(&DiskPath::new("metadata/journal.wal").unwrap(), b"");
        disk.halt_after(steps);
        let config = metadata_config();
        let recovered = recover(&config, &disk, Op(0)).unwrap();
        let dir = DiskPath::new("metadata").unwrap();
        let loaded = load_superblock(&disk, &dir, &IDENTITY).unwrap();
        let superblock = SuperblockFile::open(&dir, QueueId(8), &loaded).unwrap();
        let wal = Wal::open(config, &recovered, &mut Vec::new());
        Self {
            disk,
            wal,
            superblock,
            durable_head: 0,
        }
    }

    /// Hands requests over and works until nothing moves; false when the disk stopped before.
    fn run(&mut self, out: Vec<WalOutput>) -> bool {
        let mut out = out;
        loop {
            for output in std::mem::take(&mut out) {
                match output {
                    WalOutput::Disk(request) => self.disk.submit(request),
                    WalOutput::Durable { op, .. } => self.durable_head = op.0,
                    WalOutput::Truncated { .. } | WalOutput::Drained { .. } => {}
                }
            }
            let Some(completion) = self.disk.poll() else {
                return self.wal.is_idle() && self.superblock.is_idle();
            };
            if completion.queue == self.wal.queue() {
                self.wal.complete(completion, &mut out).unwrap();
            } else if completion.queue == self.superblock.queue() {
                self.superblock
                    .complete(&completion, &mut Vec::new())
                    .unwrap();
            }
        }
    }

    /// Chapter 04 section 5.2: snapshot, then superblock, then log.
    fn checkpoint(&mut self, op: u64) -> bool {
        let data = snapshot_chunks(Arc::from(payload(op)));
        let replace = DiskOp::Replace {
            path: snapshot_path(),
            data,
        };
        let request = DiskRequest {
            queue: SNAPSHOT_QUEUE,
            token: op,
            op: replace,
        };
        self.disk.submit(request);
        if !self.run(Vec::new()) || self.disk.in_flight() > 0 {
            return false;
        }
        let record = SuperblockRecord {
            view: View(1),
            checkpoint_op: Op(op),
            checkpoint_checksum: Checksum::of(&payload(op)),
            ..SuperblockRecord::fresh(IDENTITY)
        };
        let mut requests = Vec::new();
        self.superblock.persist(record, &mut requests);
        requests
            .into_iter()
            .for_each(|request| self.disk.submit(request));
        if !self.run(Vec::new()) {
            return false;
        }
        let mut out = Vec::new();
        self.wal.drain(Op(op), &mut out);
        self.run(out)
    }

    fn script(steps: u64) -> Self {
        let mut node = Self::start(steps);
        let prepares = chain(metadata_config().scope.group, 1, 9);
        let mut next = prepares.iter();
        for checkpoint in [3, 6, 9] {
            for message in next.by_ref().take(3) {
                let mut out = Vec::new();
                node.wal.append(message.clone(), &mut out).unwrap();
                if !node.run(out) {
                    return node;
                }
            }
            if !node.checkpoint(checkpoint) {
                return node;
            }
        }
        node
    }
}

#[test]
fn a_crash_during_a_checkpoint_loses_no_durable_op() {
    let total = Node::script(u64::MAX).disk.steps_done();
    let mut newer_seen = false;
    for steps in 0..=total {
        let node = Node::script(steps);
        every_crash(&node.disk, fates_with_holes, &mut |disk, fates| {
            let case = format!("{steps} steps, {fates:?}");
            let dir = DiskPath::new("metadata").unwrap();
            let superblock = load_superblock(&disk, &dir, &IDENTITY).unwrap().record;
            let snapshot = read_file(&disk, &snapshot_path(), 1 << 20)
                .unwrap()
                .map(|bytes| {
                    let file = open_snapshot(&bytes).unwrap();
                    assert!(file.sealed, "{case}");
                    let text = std::str::from_utf8(file.payload.as_bytes())
                        .unwrap()
                        .to_owned();
                    let op: u64 = text.rsplit(' ').next().unwrap().parse().unwrap();
                    (Op(op), file.checksum)
                });
            let pairing = check_pairing(superblock.as_ref(), snapshot).unwrap();
            newer_seen |= pairing == Pairing::SnapshotNewer;
            let floor = snapshot.map_or(Op::ZERO, |(op, _)| op);
            let recovered = recover(&metadata_config(), &disk, floor).unwrap();
            let head = recovered.contiguous_head().0;
            assert!(head >= node.durable_head, "{case}: head {head}");
            if floor > Op::ZERO {
                assert_eq!(
                    recovered.entries[0].op(),
                    floor,
                    "{case}: the checkpoint op is kept"
                );
            }
        });
    }
    assert!(
        newer_seen,
        "some crash fell between snapshot and superblock"
    );
}
