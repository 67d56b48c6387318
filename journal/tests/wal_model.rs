//! Random calls, crashes and damage against a model that remembers what was promised.
//!
//! Every case is drawn from a seed that a failure prints; `WAL_MODEL_SEED` runs one alone and
//! `WAL_MODEL_CASES` another number of them.

mod support;

use std::collections::BTreeMap;

use biplane_journal::{Fate, MemoryDisk, Unsynced, UnsyncedKind, WalConfig, WalOutput};
use biplane_wire::{Checksum, Message, Op};
use support::*;

const CASES: u64 = 400;

/// xorshift64*: small, seeded, the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// What the log has been told and has promised.
#[derive(Default)]
struct Model {
    /// Every prepare ever made, by op and identity.
    made: BTreeMap<(u64, Checksum), Message>,
    /// What the calls so far should amount to once everything is written.
    log: BTreeMap<u64, Checksum>,
    /// What was reported durable and neither truncated, drained nor replaced since.
    promised: BTreeMap<u64, Checksum>,
    /// Ops that were damaged on disk while at rest, and whether a repair was tried since. A tried
    /// one may have reached the disk without a report, if another prepare followed it.
    damaged: BTreeMap<u64, bool>,
    /// Lowest op of a truncation or checkpoint that was asked for and not answered.
    floor: u64,
    variants: u8,
}

impl Model {
    fn next_prepare(&mut self, group: biplane_wire::GroupId, op: u64) -> Message {
        let parent = self
            .log
            .get(&op.saturating_sub(1))
            .copied()
            .unwrap_or(Checksum::ZERO);
        self.variants = self.variants.wrapping_add(1) % 50;
        let message = prepare_of(group, op, parent, self.variants);
        self.made.insert((op, checksum(&message)), message.clone());
        self.damaged.entry(op).and_modify(|tried| *tried = true);
        message
    }

    fn note(&mut self, events: &mut Vec<WalOutput>) {
        for event in events.drain(..) {
            if let WalOutput::Durable { op, checksum } = event
                && self.log.get(&op.0) == Some(&checksum)
            {
                self.promised.insert(op.0, checksum);
                self.damaged.remove(&op.0);
            }
        }
    }
}

struct Case {
    seed: u64,
    draw: Draw,
    config: WalConfig,
    rig: Rig,
    model: Model,
}

impl Case {
    fn new(seed: u64) -> Self {
        let config = if seed.is_multiple_of(2) {
            metadata_config()
        } else {
            partition_config()
        };
        let rig = Rig::new(&config);
        let draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self {
            seed,
            draw,
            config,
            rig,
            model: Model::default(),
        }
    }

    fn head(&self) -> u64 {
        self.model
            .log
            .last_key_value()
            .map_or(self.model.floor, |(op, _)| *op)
    }

    fn run(&mut self) {
        for _ in 0..60 {
            match self.draw.below(20) {
                0..=9 => self.append(),
                10..=11 => self.truncate(),
                12 => self.drain(),
                13 => self.replace(),
                14..=16 => {
                    self.rig.turn().unwrap();
                }
                17 => self.rig.settle(),
                18 => self.crash(),
                _ => self.damage(),
            }
            self.model.note(&mut self.rig.events);
            self.rig.wal.check_invariants();
        }
        self.crash();
    }

    fn append(&mut self) {
        // Now and then a hole is left, to be filled by some later call.
        let holes = self.model.floor + 1..=self.head();
        let hole = holes
            .into_iter()
            .find(|op| !self.model.log.contains_key(op));
        let op = match hole {
            Some(hole) if self.draw.below(2) == 0 => hole,
            _ => self.head() + 1 + self.draw.below(8) / 7,
        };
        if op - self.model.floor > self.config.slots_max.min(60) {
            return self.drain();
        }
        let message = self.model.next_prepare(self.config.scope.group, op);
        self.model.log.insert(op, checksum(&message));
        self.model.promised.remove(&op);
        self.rig.append(&message);
    }

    fn replace(&mut self) {
        let held: Vec<u64> = self.model.log.keys().copied().collect();
        if held.is_empty() {
            return;
        }
        let op = held[self.draw.below(held.len() as u64) as usize];
        let message = self.model.next_prepare(self.config.scope.group, op);
        self.model.log.insert(op, checksum(&message));
        self.model.promised.remove(&op);
        self.rig.append(&message);
    }

    fn truncate(&mut self) {
        let from = self.model.floor + 1 + self.draw.below(self.head() - self.model.floor + 2);
        self.model.log.split_off(&from);
        self.model.promised.split_off(&from);
        self.model.damaged.retain(|op, tried| *op < from || !*tried);
        self.rig.truncate(from);
        if self.draw.below(2) == 0 {
            self.rig.settle();
        }
    }

    fn drain(&mut self) {
        let checkpoint = self.model.floor + 1 + self.draw.below(self.head() - self.model.floor + 1);
        self.model.log = self.model.log.split_off(&checkpoint);
        self.model.promised = self.model.promised.split_off(&checkpoint);
        self.model.damaged = self.model.damaged.split_off(&checkpoint);
        self.model.floor = checkpoint - 1;
        self.rig.drain(checkpoint);
    }

    /// Power off. The calls before it may or may not have taken effect, but the promises hold.
    fn crash(&mut self) {
        let mut disk = self.rig.disk.clone();
        let draw = &mut self.draw;
        disk.crash(&mut |change| fate(draw, change));
        self.reopen(disk);
    }

    fn reopen(&mut self, disk: MemoryDisk) {
        self.rig = Rig::on(&self.config, disk, self.model.floor + 1);
        self.rig.settle();
        let recovered = self.rig.recover();
        let found: BTreeMap<u64, Checksum> = identities(&recovered)
            .into_iter()
            .filter(|(op, _)| *op > self.model.floor)
            .collect();
        for (op, promised) in &self.model.promised {
            let held = found.get(op);
            let damaged = self.model.damaged.contains_key(op);
            let kept = held == Some(promised) || (damaged && held == Some(&Checksum::ZERO));
            assert!(
                kept,
                "seed {}: op {op} was promised, found {held:?}",
                self.seed
            );
        }
        for (op, checksum) in &found {
            let known = self.model.made.contains_key(&(*op, *checksum)) || checksum.is_zero();
            assert!(known, "seed {}: op {op} came from nowhere", self.seed);
        }
        for op in self.model.damaged.keys() {
            assert!(
                found.contains_key(op),
                "seed {}: damaged op {op} was forgotten",
                self.seed
            );
        }
        // From here on the log is what was found.
        let damaged = found.iter().filter(|(_, checksum)| checksum.is_zero());
        self.model.damaged = damaged.map(|(op, _)| (*op, false)).collect();
        self.model.promised = found.clone();
        self.model
            .promised
            .retain(|_, checksum| !checksum.is_zero());
        self.model.log = found;
    }

    /// A byte goes bad while the node is down.
    fn damage(&mut self) {
        self.rig.settle();
        self.model.note(&mut self.rig.events);
        let recovered = self.rig.recover();
        let len = self.rig.wal.file_len();
        if len == 0 {
            return;
        }
        let mut disk = self.rig.disk.clone();
        let offset = self.draw.below(len);
        let mask = 1 << self.draw.below(8);
        disk.flip(&self.config.path, offset, mask);
        let spoiled = biplane_journal::recover(&self.config, &disk, Op(0)).unwrap();
        assert!(
            spoiled.torn.is_none(),
            "seed {}: a flip at {offset} was cut",
            self.seed
        );
        // Whatever was there is there still, as itself or as unknown.
        let after: BTreeMap<u64, Checksum> = identities(&spoiled).into_iter().collect();
        let head = after.last_key_value().map_or(0, |(op, _)| *op);
        for (op, before) in identities(&recovered) {
            let now = after.get(&op).copied();
            // The one thing a scan alone cannot conclude: that garbage stood above a hole at the
            // head. The commit point tells, since holes are below it.
            if now.is_none() && op > head {
                let mut heeded = spoiled.clone();
                heeded.heed_commit(Op(op - 1));
                let named = identities(&heeded)
                    .into_iter()
                    .any(|(known, _)| known == op);
                assert!(named, "seed {}: op {op} is forgotten", self.seed);
                self.model.promised.remove(&op);
                self.model.damaged.remove(&op);
                continue;
            }
            // The same bit can go bad twice, which heals it.
            let healed = before.is_zero() && now.is_some();
            let kept = now == Some(before) || now == Some(Checksum::ZERO) || healed;
            assert!(
                kept,
                "seed {}: op {op} went from {before} to {now:?}",
                self.seed
            );
            if now != Some(before) && op > self.model.floor {
                self.model.damaged.insert(op, false);
            }
        }
        self.reopen(disk);
    }
}

fn fate(draw: &mut Draw, change: &Unsynced) -> Fate {
    match draw.below(3) {
        0 => Fate::Keep,
        1 => Fate::Lose,
        _ if change.kind == UnsyncedKind::Data && change.sectors > 0 => Fate::Torn {
            keep: 0..draw.below(change.sectors),
        },
        _ => Fate::Lose,
    }
}

#[test]
fn promises_survive_calls_crashes_and_damage_in_any_order() {
    let seeds: Vec<u64> = match std::env::var("WAL_MODEL_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => {
            let cases = std::env::var("WAL_MODEL_CASES").map(|cases| cases.parse().unwrap());
            (1..=cases.unwrap_or(CASES)).collect()
        }
    };
    for seed in seeds {
        let case = std::panic::AssertUnwindSafe(|| Case::new(seed).run());
        if let Err(panic) = std::panic::catch_unwind(case) {
            eprintln!(
                "failed: WAL_MODEL_SEED={seed} cargo test -p biplane-journal --test wal_model"
            );
            std::panic::resume_unwind(panic);
        }
    }
}
