//! Misfortunes of links: connections that are gone on one side, links that stand still one after
//! the other, partitions that come and go, clients that are cut off.

use std::collections::BTreeMap;

use super::{Event, World};
use crate::partitions::Cuts;
use crate::time::{MILLISECOND, Nanos, SECOND, TICK};

/// A partition that comes and goes.
#[derive(Clone, Debug)]
pub(crate) struct Flapping {
    cuts: Cuts,
    /// Mean time between two changes.
    mean: Nanos,
    /// Changes that are left.
    left: u64,
    is_cut: bool,
    /// Frames that had been cut before.
    before: u64,
}

/// How a client is cut from a node.
#[derive(Clone, Copy, Debug)]
struct ClientCut {
    until: Nanos,
    requests: bool,
    answers: bool,
}

/// Clients that do not reach a node, or are not reached by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientCuts {
    cuts: BTreeMap<(usize, u8), ClientCut>,
}

impl ClientCuts {
    fn of(&self, client: usize, node: u8, now: Nanos) -> Option<ClientCut> {
        let cut = self.cuts.get(&(client, node)).copied();
        cut.filter(|cut| cut.until > now)
    }
}

impl World {
    /// One side of a connection is gone.
    pub(super) fn fault_half_open(&mut self) -> bool {
        let Some(pair) = self.draw_pair() else {
            return true;
        };
        let now = self.queue.now();
        let until = now + 200 * MILLISECOND + self.fault_prng.exponential(2 * SECOND);
        let dials_again = self.fault_prng.chance(500_000);
        self.open_half(pair, until, dials_again)
    }

    /// The connection of the second node of a pair to the first is gone, and the first does not
    /// know until `until`. False without a connection.
    pub(crate) fn open_half(&mut self, pair: (u8, u8), until: Nanos, dials_again: bool) -> bool {
        let now = self.queue.now();
        let mut events = Vec::new();
        let network = &mut self.network;
        let struck = network.half_open(now, pair, until, dials_again, &mut events);
        if struck {
            let (blind, peer) = pair;
            self.log(|| format!("n{peer} loses its connection to n{blind}, who does not know"));
        }
        self.schedule_net(events);
        struck
    }

    /// Some nodes' links, or some links, stand still one after the other, and go on in another
    /// order.
    pub(super) fn fault_swizzle(&mut self) -> bool {
        let count = self.options.replicas;
        if count < 2 {
            return true;
        }
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let pairs: Vec<(u8, u8)> = pairs.filter(|(a, b)| a != b).collect();
        let whole_nodes = self.fault_prng.chance(500_000);
        let mut members: Vec<Vec<(u8, u8)>> = match whole_nodes {
            true => (0..count)
                .map(|node| {
                    let touches = |pair: &&(u8, u8)| pair.0 == node || pair.1 == node;
                    pairs.iter().filter(touches).copied().collect()
                })
                .collect(),
            false => pairs.iter().map(|&pair| vec![pair]).collect(),
        };
        self.fault_prng.shuffle(&mut members);
        let most = members.len() as u64;
        let size = self.fault_prng.between(most.min(2), most) as usize;
        members.truncate(size);
        // All stand still at last, and are released one by one.
        let step = self.fault_prng.between(10, 300) * MILLISECOND;
        let mut releases: Vec<usize> = (0..size).collect();
        self.fault_prng.shuffle(&mut releases);
        let now = self.queue.now();
        for (order, (links, &release)) in members.iter().zip(&releases).enumerate() {
            let from = now + order as u64 * step;
            let until = now + (size + release) as u64 * step;
            for &(a, b) in links {
                self.queue.schedule(
                    from,
                    Event::Stand {
                        from: a,
                        to: b,
                        until,
                    },
                );
            }
        }
        self.log(|| format!("{size} members stand still one by one, released as {releases:?}"));
        true
    }

    /// The network falls apart and together again, many times.
    pub(super) fn fault_flap(&mut self) -> bool {
        let Some((cuts, shape, one_way)) = self.drawn_cuts() else {
            return false;
        };
        let heartbeat = u64::from(self.options.timers.heartbeat) * TICK;
        // From quicker than a frame is repeated to about an election.
        let mean = heartbeat / self.fault_prng.between(1, 40);
        let left = self.fault_prng.between(4, 30);
        self.log(|| format!("partition {shape:?} one way {one_way} comes and goes {left} times"));
        self.partitioned = true;
        self.flapping = Some(Flapping {
            cuts,
            mean: mean.max(MILLISECOND),
            left,
            is_cut: false,
            before: self.network.counts().cut,
        });
        self.flap();
        true
    }

    /// The partition that comes and goes does so.
    pub(super) fn flap(&mut self) {
        let now = self.queue.now();
        let Some(mut flapping) = self.flapping.take() else {
            return;
        };
        if flapping.left == 0 {
            self.flapping = Some(flapping);
            self.end_flapping();
            return self.rejoin();
        }
        flapping.left -= 1;
        flapping.is_cut = !flapping.is_cut;
        let cuts = match flapping.is_cut {
            true => flapping.cuts.clone(),
            false => Cuts::none(self.options.replicas),
        };
        let events = self.network.set_cuts(now, cuts);
        self.schedule_net(events);
        let wait = flapping.mean / 4 + self.fault_prng.exponential(flapping.mean);
        self.flapping = Some(flapping);
        self.queue.schedule(now + wait, Event::Flap);
    }

    /// The partition that comes and goes does so no more.
    pub(super) fn end_flapping(&mut self) {
        if let Some(flapping) = self.flapping.take() {
            let cut = self.network.counts().cut - flapping.before;
            self.counters.add("frames cut by flapping", cut);
        }
    }

    /// Clients and nodes do not hear each other, in one direction or both.
    pub(super) fn fault_cutoff(&mut self) -> bool {
        let now = self.queue.now();
        let until = now + 50 * MILLISECOND + self.fault_prng.exponential(2 * SECOND);
        let (requests, answers) =
            [(true, true), (true, false), (false, true)][self.fault_prng.index(3)];
        let all_nodes = self.fault_prng.chance(300_000);
        let all_clients = self.fault_prng.chance(300_000);
        let node = self.fault_prng.below(u64::from(self.options.replicas)) as u8;
        let cut = ClientCut {
            until,
            requests,
            answers,
        };
        for client in 0..self.clients.len() {
            if !all_clients && !self.fault_prng.chance(500_000) {
                continue;
            }
            for other in (0..self.options.replicas).filter(|&it| all_nodes || it == node) {
                self.client_cuts.cuts.insert((client, other), cut);
            }
        }
        self.log(|| {
            let of = if all_nodes {
                "all nodes".to_owned()
            } else {
                format!("n{node}")
            };
            format!("clients are cut from {of}: requests {requests}, answers {answers}")
        });
        true
    }

    /// Whether what a client sends to a node does not arrive.
    pub(super) fn loses_request(&mut self, client: usize, node: u8) -> bool {
        let cut = self.client_cuts.of(client, node, self.queue.now());
        let lost = cut.is_some_and(|cut| cut.requests);
        self.counters.add("requests cut", u64::from(lost));
        lost
    }

    /// Whether what a node answers to a client does not arrive.
    pub(super) fn loses_answer(&mut self, client: usize, node: u8) -> bool {
        let cut = self.client_cuts.of(client, node, self.queue.now());
        let lost = cut.is_some_and(|cut| cut.answers);
        self.counters.add("answers cut", u64::from(lost));
        lost
    }
}
