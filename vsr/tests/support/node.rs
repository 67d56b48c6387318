//! One node: a replica, a plane that remembers, a disk that survives.

use std::collections::{BTreeMap, VecDeque};

use biplane_vsr::{
    Boot, Config, Durability, Input, LogEntry, Output, Plane, Promotion, Replica, Source, Start,
};
use biplane_wire::{Checksum, FrameBuffer, Message, Op, PrepareHeader, View};

use super::Kind;

/// A plane with the least of meanings: where it counts, every prepare takes one to three
/// positions of a sequence, and says in its body where they begin.
#[derive(Debug)]
pub struct TestPlane {
    pub durability: Durability,
    pub counts: bool,
    /// First position after the applied state that has no journal any more.
    pub floor_end: u64,
    /// First position and number of positions of what is journaled.
    pub positions: BTreeMap<Op, (u64, u64)>,
    pub refuses: bool,
    pub may_acknowledge: bool,
    pub promotion: Promotion,
    pub truncated: Vec<Op>,
}

/// First position and number of positions of a prepare.
pub fn positions(prepare: &Message) -> (u64, u64) {
    let op = prepare.header::<PrepareHeader>().op().0;
    let base = prepare
        .body()
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (base, 1 + op % 3)
}

impl TestPlane {
    pub fn new(kind: Kind) -> Self {
        let durability = if kind == Kind::Partition {
            Durability::Memory
        } else {
            Durability::Disk
        };
        Self {
            durability,
            counts: kind != Kind::Metadata,
            floor_end: 0,
            positions: BTreeMap::new(),
            refuses: false,
            may_acknowledge: true,
            promotion: Promotion::Prepare,
            truncated: Vec::new(),
        }
    }

    fn next(&self) -> u64 {
        let last = self.positions.values().next_back();
        last.map_or(self.floor_end, |(base, count)| base + count)
    }
}

impl Plane for TestPlane {
    fn durability(&self, _prepare: &PrepareHeader) -> Durability {
        self.durability
    }

    fn stamp(&mut self, header: &PrepareHeader, body: &mut [u8]) {
        if self.counts {
            let base = self.next();
            body[..8].copy_from_slice(&base.to_le_bytes());
            self.positions
                .insert(header.op(), (base, 1 + header.op().0 % 3));
        }
    }

    fn accept(&mut self, prepare: &Message, source: Source) -> Result<(), &'static str> {
        if self.refuses {
            return Err("refused by the test");
        }
        if !self.counts {
            return Ok(());
        }
        let op = prepare.header::<PrepareHeader>().op();
        let (base, count) = positions(prepare);
        let last = self.positions.keys().next_back().copied();
        let follows = last.is_none_or(|last| last.next() == op);
        if source == Source::Live && !(follows && base == self.next()) {
            return Err("not the next position");
        }
        self.positions.insert(op, (base, count));
        Ok(())
    }

    fn truncated(&mut self, from: Op, _removed: &[Message]) {
        self.positions.split_off(&from);
        self.truncated.push(from);
    }

    fn promote(&mut self, _request: &FrameBuffer) -> Promotion {
        self.promotion
    }

    fn may_acknowledge(&self) -> bool {
        self.may_acknowledge
    }
}

/// A write the disk has not finished.
#[derive(Clone, Debug)]
pub enum Write {
    Append(Message),
    Truncate(Op),
    View(View, View, Op),
}

pub struct Node {
    pub kind: Kind,
    pub config: Config,
    pub replica: Option<Replica>,
    pub plane: TestPlane,
    /// What survives a crash.
    pub journal: BTreeMap<Op, Message>,
    pub damaged: Vec<Op>,
    pub superblock: (View, View, Op),
    pub writes: VecDeque<Write>,
    /// Writes wait until released.
    pub holds_disk: bool,
    /// Superblock writes fail.
    pub superblock_fails: bool,
    pub applied: BTreeMap<Op, Checksum>,
    /// Applied state that survives without a journal, up to this op.
    pub floor: Op,
    pub answered: Vec<(u64, Op)>,
    pub notes: Vec<Output>,
}

impl Node {
    pub fn fresh(kind: Kind, config: Config) -> Self {
        let replica = Replica::open(config.clone(), Boot::fresh()).expect("a valid config");
        Self {
            kind,
            config,
            replica: Some(replica),
            plane: TestPlane::new(kind),
            journal: BTreeMap::new(),
            damaged: Vec::new(),
            superblock: (View(0), View(0), Op(0)),
            writes: VecDeque::new(),
            holds_disk: false,
            superblock_fails: false,
            applied: BTreeMap::new(),
            floor: Op(0),
            answered: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn note(&mut self, output: Output) {
        match output {
            Output::Append { prepare } => self.writes.push_back(Write::Append(prepare)),
            Output::Truncate { from } => self.writes.push_back(Write::Truncate(from)),
            Output::PersistView {
                view,
                log_view,
                commit_max,
            } => {
                self.writes
                    .push_back(Write::View(view, log_view, commit_max));
            }
            other => self.notes.push(other),
        }
    }

    /// Finishes what the disk was given, in order.
    pub fn completed_writes(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        if self.holds_disk {
            return inputs;
        }
        while let Some(input) = self.complete_one() {
            inputs.push(input);
        }
        inputs
    }

    pub fn complete_one(&mut self) -> Option<Input> {
        Some(match self.writes.pop_front()? {
            Write::Append(prepare) => {
                let header = *prepare.header::<PrepareHeader>();
                self.damaged.retain(|op| *op != header.op());
                self.journal.insert(header.op(), prepare);
                Input::Appended {
                    op: header.op(),
                    checksum: header.frame.checksum(),
                }
            }
            Write::Truncate(from) => {
                self.journal.retain(|op, _| *op < from);
                self.damaged.retain(|op| *op < from);
                Input::Truncated { from }
            }
            Write::View(..) if self.superblock_fails => Input::PersistFailed,
            Write::View(view, log_view, commit_max) => {
                let (view_before, log_view_before, _) = self.superblock;
                assert!(
                    view >= view_before && log_view >= log_view_before,
                    "never back"
                );
                self.superblock = (view, log_view, commit_max);
                Input::ViewPersisted {
                    view,
                    log_view,
                    commit_max,
                }
            }
        })
    }

    pub fn crash(&mut self) {
        self.replica = None;
        self.writes.clear();
        self.applied.retain(|op, _| *op <= self.floor);
    }

    pub fn restart(&mut self, start: Start) {
        assert!(self.replica.is_none(), "it was down");
        self.config.incarnation = self.config.incarnation.wrapping_mul(3);
        let floor_end = self.plane.floor_end;
        self.plane = TestPlane::new(self.kind);
        self.plane.floor_end = floor_end;
        let mut log: Vec<LogEntry> = Vec::new();
        for (op, message) in self.journal.range(self.floor..) {
            if self.damaged.contains(op) {
                continue;
            }
            log.push(LogEntry::Intact(message.clone()));
            if *op > self.floor {
                self.plane.positions.insert(*op, positions(message));
            }
        }
        let damaged = self.damaged.iter().filter(|op| **op > self.floor);
        log.extend(damaged.map(|op| LogEntry::Damaged(*op)));
        log.sort_by_key(|entry| match entry {
            LogEntry::Intact(message) => message.header::<PrepareHeader>().op(),
            LogEntry::Damaged(op) => *op,
        });
        let boot = Boot {
            view: self.superblock.0,
            log_view: self.superblock.1,
            log_lost: self.kind == Kind::Partition,
            commit_min: self.floor,
            commit_min_checksum: self.applied.get(&self.floor).copied(),
            commit_max: self.floor.max(self.superblock.2),
            log,
            ..Boot::empty(start)
        };
        self.replica = Some(Replica::open(self.config.clone(), boot).expect("a valid boot"));
    }

    pub fn up(&self) -> &Replica {
        self.replica.as_ref().expect("the node is up")
    }

    /// Whether an output was seen since the last look.
    pub fn noted(&self, is_it: impl Fn(&Output) -> bool) -> bool {
        self.notes.iter().any(is_it)
    }
}
