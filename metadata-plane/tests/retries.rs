//! A request that is asked again after whatever may have happened in between: it gets the answer
//! it got, or the refusal that says that it took effect, and it never takes effect again.

mod support;

use biplane_metadata_plane::io::{Outcome, RegisterOutcome};
use biplane_wire::{ErrorCode, EvictionReason, Op, Operation};
use support::bodies::name;
use support::cluster::{Answer, Client, Cluster, Request};

/// Requests of one client, with the bytes of their answers.
struct Done {
    client: Client,
    requests: Vec<(Request, Vec<u8>)>,
}

impl Done {
    /// A client that creates streams named after their numbers.
    fn new(cluster: &mut Cluster, id: u128, count: u64) -> Self {
        let primary = cluster.await_primary();
        let client = Client::login(cluster, primary, id);
        let mut done = Self {
            client,
            requests: Vec::new(),
        };
        (0..count).for_each(|_| done.another(cluster, primary));
        done
    }

    fn another(&mut self, cluster: &mut Cluster, node: usize) {
        let stream = format!("c{}-{}", self.client.id.0, self.client.next);
        let request = self.client.request(Operation::CreateStream, name(&stream));
        let Answer::Reply(message, Outcome::Committed { code: 0, .. }) =
            cluster.call(node, &request)
        else {
            panic!("{stream} is created");
        };
        self.requests.push((request, message.to_vec()));
    }

    /// Asks for everything again: the newest `cached` get their bytes, all others are told that
    /// they took effect, and the log is no longer for it.
    fn ask_again(&self, cluster: &mut Cluster, node: usize, cached: usize) {
        let before = cluster.plane(node).commit_min();
        let streams = cluster.plane(node).state().streams().by_id().len();
        let known = self.requests.len() - cached.min(self.requests.len());
        for (at, (request, reply)) in self.requests.iter().enumerate() {
            let request = Request {
                session: self.client.session,
                ..request.clone()
            };
            match cluster.call(node, &request) {
                Answer::Reply(message, _) if at >= known => {
                    assert_eq!(&message.to_vec(), reply, "request {}", request.number);
                }
                Answer::Reply(_, Outcome::Refused(code)) if at < known => {
                    assert_eq!(code, ErrorCode::RequestAlreadyApplied);
                }
                other => panic!("request {} of {known}: {other:?}", request.number),
            }
        }
        assert_eq!(cluster.plane(node).commit_min(), before, "nothing new");
        let after = cluster.plane(node).state().streams().by_id().len();
        assert_eq!(after, streams);
    }
}

/// Replies that a session keeps in memory.
const RING: usize = 5;

#[test]
fn after_a_primary_change() {
    let mut cluster = Cluster::new(3);
    let mut done = Done::new(&mut cluster, 7, 8);
    done.ask_again(&mut cluster, 0, RING);
    for dead in 0..2 {
        cluster.crash(dead);
        let primary = cluster.await_primary();
        assert_ne!(primary, dead);
        done.ask_again(&mut cluster, primary, RING);
        done.another(&mut cluster, primary);
        cluster.start(dead);
        cluster.await_convergence();
    }
}

#[test]
fn after_a_restart_of_all_nodes() {
    // The second time the requests are below a checkpoint, which keeps the newest reply alone.
    for more in [0, 300] {
        let mut cluster = Cluster::new(3);
        let done = Done::new(&mut cluster, 7, 8);
        Done::new(&mut cluster, 8, more);
        cluster.await_convergence();
        assert_eq!(cluster.plane(0).status().checkpoint_op > Op(10), more > 0);
        (0..3).for_each(|node| cluster.crash(node));
        (0..3).for_each(|node| cluster.start(node));
        let primary = cluster.await_primary();
        cluster.await_convergence();
        let cached = if more == 0 { RING } else { 1 };
        done.ask_again(&mut cluster, primary, cached);
    }
}

#[test]
fn after_an_eviction() {
    let mut cluster = Cluster::new(3);
    let mut done = Done::new(&mut cluster, 7, 8);
    let primary = cluster.await_primary();
    // As many others as the table has slots: the one that committed longest ago has to go.
    for id in 100.. {
        Done::new(&mut cluster, id, 1);
        if cluster.plane(primary).session(done.client.id).is_none() {
            break;
        }
        assert!(id < 200, "the table is small");
    }
    let (last, _) = done.requests.last().expect("it asked").clone();
    let answer = cluster.call(primary, &last);
    assert!(
        matches!(answer, Answer::Evicted(EvictionReason::NoSession)),
        "{answer:?}"
    );
    // It logs in again, at another node, and is told how far it had come.
    let other = (primary + 1) % 3;
    let RegisterOutcome::Registered { session, watermark } =
        cluster.register(other, done.client.id, 0)
    else {
        panic!("it may come back");
    };
    assert_eq!(watermark, last.number);
    done.client.session = session;
    done.ask_again(&mut cluster, primary, 1);
    cluster.crash(primary);
    let next = cluster.await_primary();
    done.ask_again(&mut cluster, next, 1);
    done.another(&mut cluster, next);
    done.ask_again(&mut cluster, next, 2);
}

#[test]
fn after_a_state_transfer() {
    let mut cluster = Cluster::new(3);
    let done = Done::new(&mut cluster, 7, 8);
    Done::new(&mut cluster, 8, 300);
    cluster.await_convergence();
    let primary = cluster.await_primary();
    let joiner = (primary + 1) % 3;
    cluster.wipe(joiner);
    cluster.start(joiner);
    cluster.await_convergence();
    let moved = cluster.delivered.get(&biplane_wire::Command::StateChunk);
    assert!(
        moved.is_some_and(|chunks| *chunks > 0),
        "it was transferred"
    );
    // The one that had nothing leads and answers for what it never saw.
    cluster.crash(primary);
    let next = cluster.await_primary();
    assert_eq!(next, joiner, "the next of the ring");
    done.ask_again(&mut cluster, next, RING);
}
