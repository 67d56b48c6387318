//! What the tests of this crate share: chains of prepares, and a log driven over a disk in
//! memory.

#![allow(dead_code, unreachable_pub)]

use biplane_journal::{
    DirEntry, Disk, DiskError, DiskErrorKind, DiskPath, DiskVerb, DiskView, Entry, Fate, LogScope,
    MemoryDisk, OpenError, QueueId, Recovered, Unsynced, UnsyncedKind, Wal, WalConfig, WalError,
    WalOutput, recover,
};
use biplane_wire::{
    Checksum, ClusterId, Command, GroupId, Message, Op, PrepareHeader, View, prepare,
};

pub const CLUSTER: ClusterId = ClusterId(0x00c1);
pub const PARTITION: GroupId = GroupId(0x0000_0005_0020_0007);

/// The body of an op: a length and content of its own, never zero bytes.
pub fn body_of(op: u64, variant: u8) -> Vec<u8> {
    let len = 40 + (op * 97 + u64::from(variant) * 31) % 700;
    (0..len)
        .map(|index| (index % 199) as u8 + 1 + variant)
        .collect()
}

pub fn prepare_of(group: GroupId, op: u64, parent: Checksum, variant: u8) -> Message {
    prepare_with_body(group, op, parent, &body_of(op, variant))
}

pub fn prepare_with_body(group: GroupId, op: u64, parent: Checksum, body: &[u8]) -> Message {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.frame.set_cluster(CLUSTER);
    header.frame.set_view(View(3));
    header.set_group(group);
    header.set_op(Op(op));
    header.set_commit(Op(op - 1));
    header.set_parent(parent);
    header.set_timestamp(1_000_000 + op);
    prepare::build_with_body(header, body)
}

/// Ops `first..=last`, each naming its predecessor.
pub fn chain(group: GroupId, first: u64, last: u64) -> Vec<Message> {
    chain_after(group, Checksum::ZERO, first, last, 0)
}

pub fn chain_after(
    group: GroupId,
    parent: Checksum,
    first: u64,
    last: u64,
    variant: u8,
) -> Vec<Message> {
    let mut parent = parent;
    let mut prepares = Vec::new();
    for op in first..=last {
        let message = prepare_of(group, op, parent, variant);
        parent = checksum(&message);
        prepares.push(message);
    }
    prepares
}

pub fn checksum(message: &Message) -> Checksum {
    message.generic().frame.checksum()
}

pub fn op(message: &Message) -> u64 {
    message.header::<PrepareHeader>().op().0
}

pub fn metadata_config() -> WalConfig {
    WalConfig::metadata(QueueId(1), CLUSTER, 64, 1 << 20)
}

pub fn partition_config() -> WalConfig {
    let dir = DiskPath::new("streams/5/topics/2/partitions/7").unwrap();
    let scope = LogScope {
        cluster: CLUSTER,
        group: PARTITION,
    };
    WalConfig::partition(&dir, 11, QueueId(2), scope, 4 << 20, 1 << 20).unwrap()
}

/// Both kinds of log.
pub fn configs() -> [WalConfig; 2] {
    [metadata_config(), partition_config()]
}

/// The file content of prepares written one after the other.
pub fn file_of(config: &WalConfig, prepares: &[Message]) -> Vec<u8> {
    prepares
        .iter()
        .flat_map(|message| record_of(config, message))
        .collect()
}

pub fn record_of(config: &WalConfig, message: &Message) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if config.form == biplane_journal::RecordForm::Sealed {
        let seal = biplane_wire::xxh3(&bytes);
        bytes.extend_from_slice(&seal.to_le_bytes());
    }
    bytes
}

/// Recovers a file of these bytes with the floor at `floor`.
pub fn recover_bytes(config: &WalConfig, bytes: &[u8], floor: u64) -> Result<Recovered, OpenError> {
    let mut disk = MemoryDisk::new();
    disk.put(&config.path, bytes);
    recover(config, &disk, Op(floor))
}

/// Short form of entries: positive for intact ops, negative for damaged ones.
pub fn summary(recovered: &Recovered) -> Vec<i64> {
    let number = |entry: &Entry| match entry {
        Entry::Intact(message) => op(message) as i64,
        Entry::Damaged(op) => -(op.0 as i64),
    };
    recovered.entries.iter().map(number).collect()
}

/// The identity of each intact op, zero for damaged ones.
pub fn identities(recovered: &Recovered) -> Vec<(u64, Checksum)> {
    let pair = |entry: &Entry| match entry {
        Entry::Intact(message) => (op(message), checksum(message)),
        Entry::Damaged(op) => (op.0, Checksum::ZERO),
    };
    recovered.entries.iter().map(pair).collect()
}

/// A log over a disk in memory. Requests go to the disk as they come.
#[derive(Clone)]
pub struct Rig {
    pub disk: MemoryDisk,
    pub wal: Wal,
    pub config: WalConfig,
    pub events: Vec<WalOutput>,
}

impl Rig {
    pub fn new(config: &WalConfig) -> Self {
        Self::on(config, MemoryDisk::new(), 0)
    }

    pub fn on(config: &WalConfig, disk: MemoryDisk, floor: u64) -> Self {
        let recovered = recover(config, &disk, Op(floor)).expect("the log opens");
        let mut out = Vec::new();
        let wal = Wal::open(config.clone(), &recovered, &mut out);
        let mut rig = Self {
            disk,
            wal,
            config: config.clone(),
            events: Vec::new(),
        };
        rig.dispatch(out);
        rig
    }

    fn dispatch(&mut self, out: Vec<WalOutput>) {
        self.wal.check_invariants();
        for output in out {
            match output {
                WalOutput::Disk(request) => self.disk.submit(request),
                event => self.events.push(event),
            }
        }
    }

    pub fn append(&mut self, message: &Message) {
        let mut out = Vec::new();
        self.wal
            .append(message.clone(), &mut out)
            .expect("the append is taken");
        self.dispatch(out);
    }

    pub fn truncate(&mut self, from: u64) {
        let mut out = Vec::new();
        self.wal.truncate(Op(from), &mut out);
        self.dispatch(out);
    }

    pub fn drain(&mut self, checkpoint: u64) {
        let mut out = Vec::new();
        self.wal.drain(Op(checkpoint), &mut out);
        self.dispatch(out);
    }

    /// Lets the ticks pass that a log waits before it tries again.
    pub fn pause(&mut self) {
        for _ in 0..10 {
            let mut out = Vec::new();
            self.wal.tick(&mut out);
            self.dispatch(out);
        }
    }

    /// Hands one completion to the log, if there is one.
    pub fn turn(&mut self) -> Result<bool, WalError> {
        let Some(completion) = self.disk.poll() else {
            return Ok(false);
        };
        let mut out = Vec::new();
        let result = self.wal.complete(completion, &mut out);
        self.dispatch(out);
        result.map(|()| true)
    }

    /// Runs until nothing is in flight.
    pub fn settle(&mut self) {
        while self.turn().expect("the disk works") {}
    }

    pub fn recover(&self) -> Recovered {
        recover(&self.config, &self.disk, Op(0)).expect("the log opens")
    }
}

/// Every fate one unsynced change can meet when writes survive from their start on.
pub fn fates_in_order(change: &Unsynced) -> Vec<Fate> {
    let mut fates = vec![Fate::Keep, Fate::Lose];
    if change.kind == UnsyncedKind::Data {
        fates.extend((1..change.sectors).map(|sectors| Fate::Torn { keep: 0..sectors }));
    }
    fates
}

/// As above, and the first sectors of a write may be the lost ones.
pub fn fates_with_holes(change: &Unsynced) -> Vec<Fate> {
    let mut fates = fates_in_order(change);
    if change.kind == UnsyncedKind::Data {
        let sectors = change.sectors;
        fates.extend((1..sectors).map(|lost| Fate::Torn {
            keep: lost..sectors,
        }));
    }
    fates
}

/// Calls `each` with a copy of the disk after every combination of fates.
pub fn every_crash(
    disk: &MemoryDisk,
    fates: fn(&Unsynced) -> Vec<Fate>,
    each: &mut dyn FnMut(MemoryDisk, &[Fate]),
) {
    let choices: Vec<Vec<Fate>> = disk.unsynced().iter().map(fates).collect();
    let mut picked = vec![0; choices.len()];
    loop {
        let pairs = picked.iter().zip(&choices);
        let fates: Vec<Fate> = pairs
            .map(|(index, choice)| choice[*index].clone())
            .collect();
        let mut crashed = disk.clone();
        let mut next = fates.iter();
        crashed.crash(&mut |_| next.next().expect("one fate per change").clone());
        each(crashed, &fates);
        let Some(place) =
            (0..picked.len()).find(|place| picked[*place] + 1 < choices[*place].len())
        else {
            return;
        };
        picked[place] += 1;
        picked[..place].fill(0);
    }
}

/// A disk with sectors that cannot be read.
pub struct Unreadable {
    pub disk: MemoryDisk,
    pub sectors: std::ops::Range<u64>,
}

impl DiskView for Unreadable {
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError> {
        self.disk.len(path)
    }

    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError> {
        let end = (offset + buf.len() as u64).div_ceil(512);
        if offset / 512 < self.sectors.end && end > self.sectors.start {
            let kind = DiskErrorKind::Io(Some(5));
            return Err(DiskError {
                verb: DiskVerb::Read,
                path: path.clone(),
                kind,
            });
        }
        self.disk.read(path, offset, buf)
    }

    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        self.disk.list(path)
    }
}
