//! Random transfers over links that lose, repeat and reorder, from a server whose offers lapse,
//! change and are refused: the puller is always in a state it can leave, never takes bytes that
//! are not those of one offer, and has exactly the server's bytes soon after the links heal.
//!
//! A failing run prints its seed; `TRANSFER_SEED=n cargo test -p biplane-state-transfer --test
//! lossy_link` runs that one alone.

mod support;

use std::collections::VecDeque;

use biplane_state_transfer::{Gate, ManifestEntry, PartitionGate, PullOutput, Stage};
use biplane_vsr::Prng;
use biplane_wire::{GroupId, Message, ReplicaId};
use support::{Node, PULLER, SERVER, Source, partition_gate, partition_group, pattern};

const RUNS: u64 = 300;

/// Frames under way with the ticks they still take.
#[derive(Default)]
struct Link {
    frames: VecDeque<(u64, ReplicaId, Message)>,
}

impl Link {
    fn send(&mut self, peer: ReplicaId, frame: Message, prng: &mut Prng, faulty: bool) {
        if faulty && prng.up_to(99) < 25 {
            return;
        }
        let delay = if faulty { prng.up_to(12) } else { 0 };
        if faulty && prng.up_to(99) < 10 {
            self.frames
                .push_back((delay + prng.up_to(30), peer, frame.clone()));
        }
        self.frames.push_back((delay, peer, frame));
    }

    fn due(&mut self) -> Vec<(ReplicaId, Message)> {
        let mut due = Vec::new();
        for (delay, peer, frame) in std::mem::take(&mut self.frames) {
            match delay {
                0 => due.push((peer, frame)),
                _ => self.frames.push_back((delay - 1, peer, frame)),
            }
        }
        due
    }
}

struct Run {
    node: Node,
    source: Source,
    requests: Link,
    answers: Link,
    prng: Prng,
    /// Bytes of every offer that ever existed, by manifest entry.
    offered: Vec<(ManifestEntry, Vec<u8>)>,
}

impl Run {
    fn new(group: GroupId, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let node = Node::new(group, prng.next_u64());
        let bytes = |prng: &mut Prng, max| {
            let len = usize::try_from(prng.up_to(max)).expect("small");
            pattern(len, prng.up_to(255) as u8)
        };
        let source = if group.is_metadata() {
            let snapshot = bytes(&mut prng, 300);
            Source::metadata(&snapshot, &bytes(&mut prng, 100))
        } else {
            let count = prng.up_to(4);
            let segments: Vec<(u64, Vec<u8>)> = (0..count)
                .map(|index| (index * 10, bytes(&mut prng, 150)))
                .collect();
            Source::partition(&segments, &bytes(&mut prng, 60))
        };
        let (requests, answers, offered) = (Link::default(), Link::default(), Vec::new());
        let mut run = Self {
            node,
            source,
            requests,
            answers,
            prng,
            offered,
        };
        run.note_offer();
        run
    }

    fn note_offer(&mut self) {
        for (kind, frontier, bytes) in &self.source.artifacts {
            let (length, checksum) = (bytes.len() as u64, biplane_wire::xxh3(bytes));
            let entry = ManifestEntry {
                kind: *kind,
                frontier: *frontier,
                length,
                checksum,
            };
            self.offered.push((entry, bytes.clone()));
        }
    }

    /// What may happen to a server: it loses its offers, gets more data, or has to refuse.
    fn disturb(&mut self) {
        let group = self.source.group;
        match self.prng.up_to(60) {
            0 => self.source.provider.withdraw(group),
            1 => {
                self.source.provider.forget(group);
                let last = self.source.artifacts.len() - 1;
                let salt = self.prng.up_to(255) as u8;
                let index = usize::try_from(self.prng.up_to(last as u64)).expect("small");
                self.source.artifacts[index]
                    .2
                    .extend_from_slice(&pattern(9, salt));
                self.note_offer();
            }
            2 if !group.is_metadata() => {
                let repairing = self.prng.up_to(1) == 0;
                let gate = PartitionGate {
                    repairing,
                    ..partition_gate()
                };
                self.source.gate = Gate::Partition(gate);
            }
            _ => {}
        }
    }

    fn tick(&mut self, faulty: bool) {
        if faulty {
            self.disturb();
        }
        for (to, request) in self.requests.due() {
            // Replica 1 is down.
            if to == SERVER {
                for (_, answer) in self.source.receive(PULLER, &request) {
                    self.answers.send(SERVER, answer, &mut self.prng, faulty);
                }
            }
        }
        // Storage answers when it likes.
        while !self.source.reads.is_empty() && (!faulty || self.prng.up_to(2) > 0) {
            for (_, answer) in self.source.read_one() {
                self.answers.send(SERVER, answer, &mut self.prng, faulty);
            }
        }
        for (_, answer) in self.source.tick() {
            self.answers.send(SERVER, answer, &mut self.prng, faulty);
        }
        for (from, answer) in self.answers.due() {
            self.node.receive(from, &answer);
        }
        self.node.tick();
        for (to, request) in self.node.take_sent() {
            self.requests.send(to, request, &mut self.prng, faulty);
        }
        self.react(faulty);
    }

    /// What the owner does: judges what is fetched, and starts over when an attempt is gone.
    fn react(&mut self, faulty: bool) {
        if self.node.puller.is_fetched() {
            self.check_fetched();
            if faulty && self.prng.up_to(1) == 0 {
                let count = self
                    .node
                    .fetched
                    .as_ref()
                    .map_or(0, |offer| offer.entries.len());
                let blamed = u32::try_from(self.prng.up_to(count as u64)).expect("small");
                self.node
                    .with(|puller, out| puller.reject(Some(blamed), out));
            }
        } else if self.node.puller.stage() == Stage::Idle && !self.node.puller.is_scheduled() {
            self.node.start(SERVER);
        }
    }

    /// Every artifact of a fetched offer is, as a whole, one that was offered.
    fn check_fetched(&self) {
        let offer = self.node.fetched.as_ref().expect("it is fetched");
        for (entry, bytes) in offer.entries.iter().zip(self.node.artifacts()) {
            let found = self
                .offered
                .iter()
                .any(|(of, offered)| of == entry && *offered == bytes);
            assert!(found, "an artifact nobody offered: {entry:?}");
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("TRANSFER_SEED") {
        Ok(seed) => vec![seed.parse().expect("TRANSFER_SEED is a number")],
        Err(_) => (0..RUNS).collect(),
    }
}

fn check(group: GroupId) {
    for seed in seeds() {
        let mut run = Run::new(group, seed);
        let ticks = run.prng.up_to(400);
        (0..ticks).for_each(|_| run.tick(true));
        if let Gate::Partition(gate) = &mut run.source.gate {
            *gate = partition_gate();
        }
        run.source.provider.forget(group);
        let mut calm = 0;
        let same = |run: &Run| {
            let now = run
                .source
                .artifacts
                .iter()
                .map(|(_, _, bytes)| bytes.clone());
            run.node.puller.is_fetched() && run.node.artifacts() == now.collect::<Vec<_>>()
        };
        while !same(&run) && calm < 60_000 {
            run.tick(false);
            calm += 1;
            // The last chunk of an older offer may have been under way: whole, but not the newest.
            if run.node.puller.is_fetched() && !same(&run) {
                run.node.with(|puller, out| puller.cancel(out));
            }
        }
        assert!(
            same(&run),
            "seed {seed}: not the server's bytes after {calm} calm ticks"
        );
        run.node.install();
        assert_eq!(run.node.puller.stage(), Stage::Idle, "seed {seed}");
    }
}

#[test]
fn metadata_arrives_whole_after_any_loss() {
    check(GroupId::METADATA);
}

#[test]
fn partition_arrives_whole_after_any_loss() {
    check(partition_group());
}

#[test]
fn same_seed_gives_the_same_run() {
    let history = |seed| {
        let mut run = Run::new(partition_group(), seed);
        let mut history = Vec::new();
        for _ in 0..300 {
            run.tick(true);
            let progress = run.node.puller.progress();
            history.push((
                progress,
                run.requests.frames.len(),
                run.answers.frames.len(),
            ));
        }
        history
    };
    assert_eq!(history(11), history(11));
}

#[test]
fn silence_ends_every_attempt() {
    for group in [GroupId::METADATA, partition_group()] {
        let mut node = Node::new(group, 3);
        let mut out: Vec<PullOutput> = Vec::new();
        node.puller.start(SERVER, &mut node.budget, &mut out);
        node.ticks(31);
        assert_eq!(node.puller.stage(), Stage::Idle, "{group}");
        assert_eq!(node.puller.is_scheduled(), !group.is_metadata());
    }
}
