//! Many short lives of a cluster under reordering, loss, duplication, partitions, crashes, slow
//! and failing disks, and damaged journals. Whatever happens, no two nodes apply different
//! prepares for one op, every invariant holds after every step, and once the faults stop the
//! cluster converges and nothing that was applied anywhere is missing.
//!
//! A failure names its seed; `CHAOS_SEED=<seed> cargo test -p biplane-vsr --test chaos` runs
//! that one life, and `CHAOS_RUNS=<n>` runs more of them.

mod support;

use biplane_vsr::{Input, Prng, Start};
use biplane_wire::{Op, View};
use support::{Cluster, Kind};

struct Chaos {
    cluster: Cluster,
    prng: Prng,
    kind: Kind,
    /// The node whose journal may be damaged by a crash.
    fragile: u8,
}

fn pick(prng: &mut Prng, below: u64) -> u64 {
    prng.up_to(below - 1)
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let kind = match pick(&mut prng, 5) {
            0 => Kind::Partition,
            1 | 2 => Kind::Persisted,
            _ => Kind::Metadata,
        };
        let count = [2, 3, 3, 3, 4, 5][pick(&mut prng, 6) as usize];
        let cluster = Cluster::new(kind, count);
        let fragile = pick(&mut prng, u64::from(count)) as u8;
        Self {
            cluster,
            prng,
            kind,
            fragile,
        }
    }

    fn node(&mut self) -> u8 {
        let count = u64::from(self.cluster.count());
        pick(&mut self.prng, count) as u8
    }

    fn one_in(&mut self, odds: u64) -> bool {
        pick(&mut self.prng, odds) == 0
    }

    fn step(&mut self) {
        match pick(&mut self.prng, 100) {
            0..=54 => self.deliver(),
            55..=69 => self.write(),
            70..=79 => self.submit(),
            80..=93 => self.tick(),
            94 => self.network(),
            95 => self.disk(),
            96 => self.repair(),
            97 => self.evict(),
            _ => self.life(),
        }
    }

    fn deliver(&mut self) {
        let waiting = self.cluster.packets.len() as u64;
        if waiting == 0 {
            return;
        }
        // Mostly in order, sometimes not.
        let index = if self.one_in(4) {
            pick(&mut self.prng, waiting)
        } else {
            0
        };
        let Some(packet) = self.cluster.packets.remove(index as usize) else {
            return;
        };
        if self.one_in(20) {
            return;
        }
        if self.one_in(20) {
            self.cluster.packets.push_back(packet.clone());
        }
        self.cluster.deliver(packet);
    }

    fn write(&mut self) {
        let node = self.node();
        let target = &mut self.cluster.nodes[usize::from(node)];
        if target.holds_disk {
            return;
        }
        if let Some(input) = target.complete_one() {
            self.cluster.step(node, input);
        }
    }

    fn submit(&mut self) {
        let node = match self.cluster.primary() {
            Some(primary) if !self.one_in(5) => primary,
            _ => self.node(),
        };
        self.cluster.submit(node);
    }

    fn tick(&mut self) {
        self.cluster.ticks += 1;
        let wall_micros = self.cluster.wall_micros();
        for node in 0..self.cluster.count() {
            // Clocks do not run alike.
            if !self.one_in(10) {
                self.cluster.step(node, Input::Tick { wall_micros });
            }
        }
    }

    fn network(&mut self) {
        match pick(&mut self.prng, 4) {
            0 => {
                let node = self.node();
                self.cluster.isolate(node);
            }
            1 => {
                let (from, to) = (self.node(), self.node());
                if from != to {
                    self.cluster.cut_one_way(from, to);
                }
            }
            2 => {
                let (one, other) = (self.node(), self.node());
                if one != other {
                    self.cluster.cut(one, other);
                }
            }
            _ => self.cluster.heal(),
        }
    }

    fn disk(&mut self) {
        let node = self.node();
        let hold = self.one_in(3);
        let fail = self.one_in(3);
        let target = &mut self.cluster.nodes[usize::from(node)];
        target.holds_disk = hold;
        target.superblock_fails = fail;
    }

    fn repair(&mut self) {
        self.cluster.repair();
    }

    /// Forgets old entries, as after a checkpoint.
    fn evict(&mut self) {
        let node = self.node();
        let keep = pick(&mut self.prng, 20);
        let target = &mut self.cluster.nodes[usize::from(node)];
        let Some(replica) = target.replica.as_mut() else {
            return;
        };
        let through = Op(replica.commit_min().0.saturating_sub(keep));
        let is_kept = target.journal.contains_key(&through) && !target.damaged.contains(&through);
        if through > target.floor && (is_kept || self.kind == Kind::Partition) {
            replica.log_mut().evict_through(through);
            // The applied state is on disk, and the journal below it is not needed.
            target.floor = through;
            target.plane.floor_end = self.cluster.ends.get(&through).copied().unwrap_or(0);
            target.plane.positions.retain(|op, _| *op > through);
            target.journal.retain(|op, _| *op >= through);
            target.damaged.retain(|op| *op > through);
        }
    }

    /// Crashes and restarts. What lives in memory only survives no restart, so partitions of
    /// that kind are spared.
    fn life(&mut self) {
        let node = self.node();
        let is_up = self.cluster.nodes[usize::from(node)].replica.is_some();
        if !is_up {
            if self.one_in(2) {
                self.restart(node);
            }
        } else if self.kind != Kind::Partition && self.one_in(3) {
            self.cluster.crash(node);
        }
    }

    fn restart(&mut self, node: u8) {
        if node == self.fragile && self.one_in(2) {
            let ops: Vec<Op> = self.cluster.nodes[usize::from(node)]
                .journal
                .keys()
                .copied()
                .collect();
            if !ops.is_empty() {
                let hit = ops[pick(&mut self.prng, ops.len() as u64) as usize];
                let damaged = &mut self.cluster.nodes[usize::from(node)].damaged;
                if !damaged.contains(&hit) {
                    damaged.push(hit);
                }
            }
        }
        let await_transfer = self.kind == Kind::Metadata && self.one_in(2);
        let start = Start::Used {
            await_transfer,
            view_floor: View(0),
        };
        self.cluster.restart_as(node, start);
    }

    fn finish(&mut self) {
        self.cluster.heal();
        for node in 0..self.cluster.count() {
            let target = &mut self.cluster.nodes[usize::from(node)];
            target.holds_disk = false;
            target.superblock_fails = false;
            if target.replica.is_none() {
                self.restart(node);
            }
        }
        self.cluster.assert_converges();
        let last = self
            .cluster
            .committed
            .keys()
            .next_back()
            .copied()
            .unwrap_or_default();
        for node in 0..self.cluster.count() {
            let all = self.cluster.status(node).commit_min >= last;
            assert!(
                all,
                "node {node} has all up to {last}:\n{}",
                self.cluster.describe()
            );
            let applied = &self.cluster.nodes[usize::from(node)].applied;
            assert_eq!(applied.len() as u64, self.cluster.status(node).commit_min.0);
        }
        self.cluster.commit(2);
        self.cluster.assert_converges();
    }
}

fn live(seed: u64, steps: u32) -> u64 {
    let mut chaos = Chaos::new(seed);
    for _ in 0..steps {
        chaos.step();
    }
    chaos.finish();
    chaos.cluster.committed.len() as u64
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn faults_never_split_the_log_and_healing_ends_them() {
    if let Some(seed) = environment("CHAOS_SEED") {
        live(seed, 3000);
        return;
    }
    let runs = environment("CHAOS_RUNS").unwrap_or(150);
    let first = environment("CHAOS_FIRST").unwrap_or(1);
    let mut committed = 0;
    for seed in first..first + runs {
        let outcome = std::panic::catch_unwind(|| live(seed, 3000));
        match outcome {
            Ok(ops) => committed += ops,
            Err(cause) => {
                println!("failing seed: CHAOS_SEED={seed}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    println!("{runs} lives, {committed} ops");
    assert!(committed > runs, "the faults leave room for work");
}

#[test]
fn same_seed_gives_the_same_life() {
    for seed in [3, 14] {
        let trace = |seed| {
            let mut chaos = Chaos::new(seed);
            let mut trace = Vec::new();
            for _ in 0..1500 {
                chaos.step();
                if let Some(packet) = chaos.cluster.packets.back() {
                    trace.push((packet.to, biplane_wire::xxh3(&packet.message.to_vec())));
                }
            }
            trace
        };
        assert!(trace(seed) == trace(seed), "seed {seed}");
    }
}
