//! Random runs over links that lose, repeat and reorder: whatever happens on the way, the log is
//! whole soon after the links heal, and it is the log of the servers.
//!
//! A failing run prints its seed; `REPAIR_SEED=n cargo test -p biplane-repair --test lossy_link`
//! runs that one alone.

mod support;

use std::collections::VecDeque;

use biplane_vsr::Prng;
use biplane_wire::{GroupId, Message, Op, ReplicaId, RequestPreparesHeader};
use support::{Backup, Server, partition_group};

const RUNS: u64 = 300;

/// Frames under way, each with the ticks it still takes.
struct Link<T> {
    frames: VecDeque<(u64, T)>,
}

impl<T: Clone> Link<T> {
    fn new() -> Self {
        Self {
            frames: VecDeque::new(),
        }
    }

    fn send(&mut self, frame: T, prng: &mut Prng, faulty: bool) {
        if faulty && prng.up_to(99) < 25 {
            return;
        }
        let delay = if faulty { prng.up_to(15) } else { 1 };
        if faulty && prng.up_to(99) < 10 {
            self.frames
                .push_back((delay + prng.up_to(20), frame.clone()));
        }
        self.frames.push_back((delay, frame));
    }

    fn due(&mut self) -> Vec<T> {
        let mut due = Vec::new();
        let waiting = std::mem::take(&mut self.frames);
        for (delay, frame) in waiting {
            match delay {
                0 => due.push(frame),
                _ => self.frames.push_back((delay - 1, frame)),
            }
        }
        due
    }
}

struct Run {
    backup: Backup,
    servers: Vec<(ReplicaId, Server)>,
    requests: Link<(ReplicaId, RequestPreparesHeader)>,
    answers: Link<Message>,
    prng: Prng,
}

impl Run {
    /// Sizes, chunk limits and who answers at all come from the seed.
    fn new(group: GroupId, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let commit_min = prng.up_to(30);
        let commit_max = commit_min + 1 + prng.up_to(300);
        let mut backup = Backup::new(group, commit_min, commit_max, prng.next_u64());
        backup.stand_in = commit_min;
        let mut servers = Vec::new();
        for replica in [0, 1] {
            let head = commit_max + prng.up_to(5);
            let mut server = Server::new(group, 1, commit_max, head);
            server.facts.chunk_max = 1 + u32::try_from(prng.up_to(40)).expect("small");
            if prng.up_to(3) == 0 {
                let unreadable = commit_min + 1 + prng.up_to(commit_max - commit_min);
                server.unreadable = Some(unreadable);
            }
            servers.push((ReplicaId(replica), server));
        }
        let (requests, answers) = (Link::new(), Link::new());
        Self {
            backup,
            servers,
            requests,
            answers,
            prng,
        }
    }

    fn tick(&mut self, faulty: bool) {
        let room = self.prng.up_to(60);
        for (to, request) in self.requests.due() {
            let server = self.servers.iter().find(|(replica, _)| *replica == to);
            let Some((_, server)) = server else { continue };
            let mut left = if faulty { room } else { u64::MAX };
            for frame in server.answer(&request) {
                if left > 0 {
                    self.answers.send(frame, &mut self.prng, faulty);
                }
                left = left.saturating_sub(1);
            }
        }
        for frame in self.answers.due() {
            self.backup.receive(&frame);
        }
        self.backup.tick();
        for (to, request) in self.backup.sent() {
            self.requests.send((to, request), &mut self.prng, faulty);
        }
    }

    fn heal(&mut self) {
        self.servers
            .iter_mut()
            .for_each(|(_, server)| server.unreadable = None);
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("REPAIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("REPAIR_SEED is a number")],
        Err(_) => (0..RUNS).collect(),
    }
}

fn check(group: GroupId) {
    for seed in seeds() {
        let mut run = Run::new(group, seed);
        let ticks = run.prng.up_to(200);
        (0..ticks).for_each(|_| run.tick(true));
        run.heal();
        let mut calm = 0;
        while run.backup.view.commit_min < run.backup.view.commit_max && calm < 2_000 {
            run.tick(false);
            calm += 1;
        }
        let (view, log) = (&run.backup.view, &run.backup.log);
        assert_eq!(
            view.commit_min, view.commit_max,
            "seed {seed}: not healed in {calm} ticks"
        );
        for (op, prepare) in log {
            let served = run.servers[0].1.log.get(op);
            assert_eq!(served, Some(prepare), "seed {seed}: op {op} differs");
        }
        (0..40).for_each(|_| run.tick(false));
        assert!(
            !run.backup.requester.has_session(),
            "seed {seed}: a session is left open"
        );
        assert!(
            run.backup.transfers.is_empty(),
            "seed {seed}: nothing was evicted"
        );
    }
}

#[test]
fn metadata_log_heals_after_any_loss() {
    check(GroupId::METADATA);
}

#[test]
fn partition_log_heals_after_any_loss() {
    check(partition_group());
}

/// With an evicted start the outcome depends on the segments alone, whatever is lost.
#[test]
fn floor_is_raised_exactly_when_the_segments_reach_it() {
    for seed in seeds() {
        let mut run = Run::new(partition_group(), seed);
        let (min, max) = (run.backup.view.commit_min.0, run.backup.view.commit_max.0);
        let retained_from = min + 2 + run.prng.up_to(max - min);
        if retained_from > max {
            continue;
        }
        for (_, server) in &mut run.servers {
            server.log.retain(|op, _| *op >= retained_from);
            server.facts.retained_from = Op(retained_from);
        }
        let reaches = run.prng.up_to(1) == 0;
        run.backup.reach = if run.prng.up_to(1) == 0 { 1 } else { u64::MAX };
        run.backup.stand_in = if reaches {
            retained_from - 1
        } else {
            retained_from - 2
        };
        let ticks = run.prng.up_to(200);
        (0..ticks).for_each(|_| run.tick(true));
        run.heal();
        // The log reaches further once the applied point does.
        (0..2_000).for_each(|_| run.tick(false));
        let applied = run.backup.view.commit_min.0;
        if reaches {
            assert_eq!(
                applied, max,
                "seed {seed}: the segments reach {retained_from}"
            );
            assert!(
                run.backup.transfers.is_empty(),
                "seed {seed}: no transfer is needed"
            );
        } else {
            assert_eq!(applied, min, "seed {seed}: a hole must not be jumped over");
            assert!(
                !run.backup.transfers.is_empty(),
                "seed {seed}: only a transfer helps"
            );
        }
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let history = |seed| {
        let mut run = Run::new(GroupId::METADATA, seed);
        let mut history = Vec::new();
        for _ in 0..200 {
            run.tick(true);
            history.push((run.backup.view.commit_min, run.requests.frames.len()));
        }
        history
    };
    assert_eq!(history(11), history(11));
}
