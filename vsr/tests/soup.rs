//! Frames that no sane peer would send, in any order, to a replica in any state: it may ignore
//! them, vote, follow, or stop, but it does not contradict itself and it does not panic.
//!
//! Frames pass typed decode, as they do in a server; their numbers are near the state of the
//! replica or anywhere at all. `SOUP_SEED=<seed>` runs one seed, `SOUP_RUNS=<n>` more of them.

mod support;

use biplane_vsr::{Boot, Input, LogEntry, Output, Prng, Replica, Start, TransferStage};
use biplane_wire::{Checksum, Message, Op, PrepareHeader, ReplicaId, View};
use support::frames::{self, Entry, PrepareParts};
use support::node::TestPlane;
use support::{Kind, config};

/// An entry of a suffix: header, nack, present.
type MadeUp = (Option<Message>, bool, bool);

struct Soup {
    replica: Replica,
    plane: TestPlane,
    prng: Prng,
    /// Prepares that were made up, to be referred to again.
    known: Vec<Message>,
    waiting: Vec<Input>,
    trace: u64,
}

impl Soup {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let kind = [Kind::Metadata, Kind::Persisted, Kind::Partition][prng.up_to(2) as usize];
        let count = prng.up_to(4) as u8 + 1;
        let replica = prng.up_to(u64::from(count) - 1) as u8;
        let mut config = config(kind, replica, count);
        config.group = support::GROUP;
        let known = frames::chain(prng.up_to(3) as u32, 1, 6, Checksum::ZERO, 1);
        let start = match prng.up_to(2) {
            0 => Start::Fresh {
                view: View(prng.up_to(3) as u32),
            },
            _ => Start::Used {
                await_transfer: prng.up_to(1) == 1,
                view_floor: View(0),
            },
        };
        let held = prng.up_to(5) as usize;
        let held = if matches!(start, Start::Fresh { .. }) {
            0
        } else {
            held
        };
        let log = known[..held]
            .iter()
            .cloned()
            .map(LogEntry::Intact)
            .collect();
        let boot = Boot {
            log,
            ..Boot::empty(start)
        };
        let replica = Replica::open(config, boot).expect("a valid boot");
        let mut plane = TestPlane::new(kind);
        plane.counts = false;
        Self {
            replica,
            plane,
            prng,
            known,
            waiting: Vec::new(),
            trace: 0,
        }
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.prng.up_to(odds - 1) == 0
    }

    fn number(&mut self, near: u64) -> u64 {
        match self.prng.up_to(19) {
            0 => self.prng.next_u64(),
            1 => u64::MAX - self.prng.up_to(3),
            2 => 0,
            _ => near.saturating_add(self.prng.up_to(6)).saturating_sub(3),
        }
    }

    fn view(&mut self) -> u32 {
        match self.prng.up_to(39) {
            0 => u32::MAX - self.prng.up_to(2) as u32,
            _ => {
                let near = u64::from(self.replica.view().0);
                (near + self.prng.up_to(3)).saturating_sub(1) as u32
            }
        }
    }

    fn op(&mut self) -> u64 {
        let near = [self.replica.op_head().0, self.replica.commit_min().0];
        let near = near[self.prng.up_to(1) as usize];
        self.number(near)
    }

    fn prepare(&mut self) -> Message {
        if self.one_in(3) {
            let index = self.prng.up_to(self.known.len() as u64 - 1) as usize;
            let view = View(self.view());
            return self.known[index].prepare_in_view(view);
        }
        let op = self.op();
        let below = op.wrapping_sub(1);
        let parent = self
            .replica
            .log()
            .header(Op(below))
            .map(|below| below.frame.checksum());
        let parent = match self.prng.up_to(4) {
            0 => Checksum(u128::from(self.prng.up_to(2))),
            _ => parent.unwrap_or_default(),
        };
        let near = self.replica.commit_max().0;
        let commit = self.number(near);
        let parts = PrepareParts {
            view: self.view(),
            replica: self.prng.up_to(4) as u8,
            op,
            commit,
            parent,
            variant: self.prng.up_to(1),
        };
        let message = frames::prepare(parts);
        self.known.push(message.clone());
        message
    }

    /// A suffix that decodes: a chain down from its head, with holes.
    fn suffix(&mut self) -> (u64, u64, Vec<MadeUp>) {
        let op = self.op();
        let length = self.prng.up_to(5).min(op);
        let commit = self.number(op).min(op);
        let low = (op - length).saturating_add(1);
        let variant = self.prng.up_to(1);
        let view = self.view();
        let parent = self.replica.log().header(Op(low.wrapping_sub(1)));
        let parent = parent
            .map(|header| header.frame.checksum())
            .unwrap_or_default();
        let chain = if length == 0 || op > 1 << 40 {
            Vec::new()
        } else {
            frames::chain(view, low, op, parent, variant)
        };
        self.known.extend(chain.iter().cloned());
        let mut entries = Vec::new();
        for message in chain.into_iter().rev() {
            let header = (!self.one_in(4)).then_some(message);
            let (nack, present) = (self.one_in(4), self.one_in(2));
            entries.push((header, nack, present));
        }
        (op, commit, entries)
    }

    fn frame(&mut self) -> Message {
        let from = self.prng.up_to(5) as u8;
        let view = self.view();
        match self.prng.up_to(8) {
            0 | 1 => self.prepare(),
            2 => {
                let prepare = self.prepare();
                frames::prepare_ok(from, view, &prepare)
            }
            3 => {
                let near = self.replica.commit_max().0;
                let (commit, counter) = (self.number(near), self.prng.up_to(50));
                frames::commit(from, view, commit, counter)
            }
            4 | 5 => frames::start_view_change(from, view),
            6 => {
                let (op, commit, entries) = self.suffix();
                let entries: Vec<Entry<'_>> = entries
                    .iter()
                    .map(|(header, nack, present)| (header.as_ref(), *nack, *present))
                    .collect();
                let log_view = self.prng.up_to(u64::from(view.min(9))) as u32;
                frames::do_view_change(from, view, log_view, (op, commit), &entries)
            }
            7 => {
                let (op, commit, entries) = self.suffix();
                let entries: Vec<Option<&Message>> =
                    entries.iter().map(|(header, ..)| header.as_ref()).collect();
                let incarnation = u128::from(self.prng.up_to(2));
                frames::start_view(view, (op, commit), incarnation, &entries)
            }
            _ => frames::request_start_view(from, view, u128::from(self.prng.up_to(2))),
        }
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        match self.prng.up_to(19) {
            0..=11 => {
                let message = self.frame();
                if let Ok(frame) = biplane_wire::decode_replica(message) {
                    self.replica
                        .step(Input::Frame(frame), &mut self.plane, &mut out);
                }
            }
            12 | 13 => {
                let input = Input::Tick { wall_micros: 1 };
                for _ in 0..=self.prng.up_to(30) {
                    self.replica.step(input.clone(), &mut self.plane, &mut out);
                }
            }
            14 | 15 => {
                if !self.waiting.is_empty() {
                    let input = self.waiting.remove(0);
                    self.replica.step(input, &mut self.plane, &mut out);
                }
            }
            16 => {
                let request = frames::request(u128::from(self.prng.up_to(9)) + 1, 1, &[0; 16]);
                let _ = self.replica.admit(request, 1, 1, &mut self.plane, &mut out);
            }
            17 => {
                let prepare = self.prepare();
                self.replica
                    .ingest_repaired(prepare, &mut self.plane, &mut out);
            }
            18 => {
                let connected = self.one_in(2);
                let replica = ReplicaId(self.prng.up_to(5) as u8);
                let input = Input::Peer { replica, connected };
                self.replica.step(input, &mut self.plane, &mut out);
            }
            _ => self.owner(&mut out),
        }
        self.after(out);
    }

    /// What an owner may do at any time.
    fn owner(&mut self, out: &mut Vec<Output>) {
        match self.prng.up_to(3) {
            0 => {
                let next = [TransferStage::Idle, TransferStage::AwaitingTarget];
                let next = next[self.prng.up_to(1) as usize];
                if self.replica.transfer_stage().may_become(next) {
                    self.replica.set_transfer_stage(next);
                }
            }
            1 => {
                let keep = self.prng.up_to(3);
                let through = Op(self.replica.commit_min().0.saturating_sub(keep));
                self.replica.log_mut().evict_through(through);
            }
            2 => {
                let floor = Op(self
                    .replica
                    .commit_min()
                    .0
                    .saturating_add(self.prng.up_to(2)));
                if self.replica.status().status != biplane_vsr::Status::Normal
                    || !self.replica.is_primary()
                {
                    let known = (self.one_in(2)).then_some(Checksum(3));
                    self.replica
                        .install_floor(floor, known, floor, &mut self.plane, out);
                }
            }
            _ => self.plane.may_acknowledge = self.one_in(2),
        }
    }

    fn after(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Append { prepare } => {
                    let header = prepare.header::<PrepareHeader>();
                    let (op, checksum) = (header.op(), header.frame.checksum());
                    self.waiting.push(Input::Appended { op, checksum });
                }
                Output::Truncate { from } => self.waiting.push(Input::Truncated { from }),
                Output::PersistView {
                    view,
                    log_view,
                    commit_max,
                } => {
                    let input = if self.one_in(4) {
                        Input::PersistFailed
                    } else {
                        Input::ViewPersisted {
                            view,
                            log_view,
                            commit_max,
                        }
                    };
                    self.waiting.push(input);
                }
                Output::Send { to, message } => {
                    assert!(biplane_wire::decode_replica(message.clone()).is_ok());
                    let sum = biplane_wire::xxh3(&message.to_vec());
                    self.trace = self
                        .trace
                        .wrapping_mul(31)
                        .wrapping_add(sum)
                        .wrapping_add(u64::from(to.0));
                }
                _ => {}
            }
        }
        while let Some(prepare) = self.replica.next_committed() {
            let op = prepare.header::<PrepareHeader>().op();
            self.replica.applied(op);
        }
        self.replica.check_invariants();
    }
}

fn life(seed: u64) -> u64 {
    let mut soup = Soup::new(seed);
    for _ in 0..600 {
        soup.step();
    }
    soup.trace
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn absurd_peers_do_not_confuse_a_replica() {
    let runs = environment("SOUP_RUNS").unwrap_or(400);
    let seeds = match environment("SOUP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..runs + 1,
    };
    for seed in seeds {
        if let Err(cause) = std::panic::catch_unwind(|| life(seed)) {
            println!("failing seed: SOUP_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn same_seed_gives_the_same_frames() {
    for seed in 1..20 {
        assert_eq!(life(seed), life(seed), "seed {seed}");
    }
}
