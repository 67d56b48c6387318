//! Clients that retry while nodes crash, links break and frames get lost: every acknowledged
//! request took effect once, on all replicas.

mod support;

use std::collections::BTreeMap;

use biplane_metadata_plane::io::{Input, Outcome, RegisterOutcome};
use biplane_wire::{ClientId, Identifier, Operation};
use support::bodies::name;
use support::cluster::{Answer, Cluster, Request};
use support::prng::{Prng, seed};

/// A client with one request at a time, which it repeats until it knows the outcome.
struct Worker {
    id: ClientId,
    session: Option<u64>,
    number: u64,
    /// Token of what is in hand.
    token: Option<u64>,
    /// Ticks since it was sent.
    waited: u64,
    done: Vec<(String, Vec<u8>)>,
}

impl Worker {
    fn new(id: u128) -> Self {
        let id = ClientId(id);
        Self {
            id,
            session: None,
            number: 1,
            token: None,
            waited: 0,
            done: Vec::new(),
        }
    }

    fn stream(&self) -> String {
        format!("c{}-{}", self.id.0, self.number)
    }

    fn request(&self, session: u64) -> Request {
        let (client, number) = (self.id, self.number);
        let (operation, body) = (Operation::CreateStream, name(&self.stream()));
        Request {
            client,
            session,
            number,
            operation,
            body,
            in_flight: Vec::new(),
        }
    }

    /// Looks at the answer, if there is one, and sends the next or the same again.
    fn turn(&mut self, cluster: &mut Cluster, prng: &mut Prng) {
        self.waited += 1;
        let answer = self
            .token
            .and_then(|token| cluster.answers.get(&token).cloned());
        match answer {
            Some(answer) => self.take(answer),
            // The node it was sent to may be gone: ask another one.
            None if self.waited > 120 => self.token = None,
            None => {}
        }
        if self.token.is_some() {
            return;
        }
        self.waited = 0;
        let node = prng.below(cluster.nodes.len() as u64) as usize;
        if cluster.nodes[node].plane.is_none() {
            return;
        }
        self.token = Some(match self.session {
            Some(session) => cluster.submit(node, &self.request(session)),
            None => {
                let token = cluster.token();
                let (client, user_id) = (self.id, 0);
                cluster.input(
                    node,
                    Input::Register {
                        token,
                        client,
                        user_id,
                    },
                );
                token
            }
        });
    }

    fn take(&mut self, answer: Answer) {
        self.token = None;
        match answer {
            Answer::Registered(RegisterOutcome::Registered { session, watermark }) => {
                self.session = Some(session);
                assert!(
                    watermark <= self.number,
                    "nothing was done on behalf of the future"
                );
            }
            Answer::Registered(RegisterOutcome::Transient(_)) => {}
            Answer::Registered(RegisterOutcome::OwnedByAnotherUser) => panic!("it is ours"),
            Answer::Reply(message, Outcome::Committed { code, .. }) => {
                assert_eq!(code, 0, "created once, so never a name that exists");
                self.done.push((self.stream(), message.to_vec()));
                self.number += 1;
            }
            Answer::Reply(_, Outcome::Refused(_)) | Answer::Dropped => {}
            Answer::Evicted(_) => self.session = None,
            Answer::LoggedOut(_) => panic!("nobody logs out here"),
        }
    }
}

fn disturb(cluster: &mut Cluster, prng: &mut Prng) {
    let node = prng.below(3) as usize;
    match prng.below(4) {
        0 if cluster.nodes[node].plane.is_some() => cluster.crash_by_chance(node, prng),
        1 => cluster.nodes[node].is_cut_off = true,
        2 => cluster.nodes[node].is_cut_off = false,
        _ => {}
    }
    for node in 0..3 {
        if cluster.nodes[node].plane.is_none() && prng.below(3) == 0 {
            cluster.start(node);
        }
    }
}

fn run(seed: u64, ticks: u64) -> u64 {
    println!("round with seed {seed}");
    let mut prng = Prng::new(seed);
    let mut cluster = Cluster::new(3);
    cluster.noise = Some((Prng::new(seed ^ 0xA5A5), 20));
    let mut workers: Vec<Worker> = (1..=4).map(Worker::new).collect();
    for tick in 0..ticks {
        cluster.run(1);
        if tick % 100 == 99 {
            disturb(&mut cluster, &mut prng);
        }
        for worker in &mut workers {
            worker.turn(&mut cluster, &mut prng);
        }
    }
    heal(&mut cluster);
    check(&mut cluster, &workers);
    workers.iter().map(|worker| worker.done.len() as u64).sum()
}

fn heal(cluster: &mut Cluster) {
    cluster.noise = None;
    for node in 0..3 {
        cluster.nodes[node].is_cut_off = false;
        if cluster.nodes[node].plane.is_none() {
            cluster.start(node);
        }
    }
    cluster.await_primary();
    cluster.run(300);
    cluster.await_convergence();
}

fn check(cluster: &mut Cluster, workers: &[Worker]) {
    let primary = cluster.await_primary();
    let state = cluster.plane(primary).state();
    let mut expected: BTreeMap<&str, ()> = BTreeMap::new();
    for worker in workers {
        for (stream, reply) in &worker.done {
            let found = state
                .streams()
                .stream(&Identifier::named(stream).expect("a name"));
            let found = found.unwrap_or_else(|| panic!("{stream} was acknowledged and is gone"));
            // The reply carries the id that the stream still has.
            assert_eq!(reply[260..264], found.id.to_le_bytes(), "{stream}");
            expected.insert(stream, ());
        }
    }
    let unacknowledged = state.streams().by_id().len() - expected.len();
    assert!(
        unacknowledged <= workers.len(),
        "at most the last request of each client is open"
    );
}

#[test]
fn acknowledged_requests_survive_crashes_partitions_and_loss() {
    let first = seed(41);
    let done: u64 = (0..3).map(|round| run(first + round, 2_000)).sum();
    println!("{done} requests were acknowledged");
    assert!(done > 200, "the clusters were mostly able to work: {done}");
}
