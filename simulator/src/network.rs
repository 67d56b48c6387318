//! The network between replicas: one connection per pair, and everything that goes wrong on it.
//!
//! Two transports. A *stream* is what production uses: frames of one connection arrive in order
//! and are lost only with the connection (or refused by a full queue); after a reconnect,
//! stragglers of the old connection may still arrive among frames of the new one. A *datagram*
//! is harsher on purpose: each frame may be lost, delayed past others, or come again later.
//!
//! The network knows no protocol. It is told what to send and answers with events and their
//! due times; whoever owns the event queue brings them back.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use biplane_wire::Message;

use crate::partitions::Cuts;
use crate::prng::{Prng, Streams};
use crate::time::{MICROSECOND, MILLISECOND, Nanos, SECOND};

/// How bad the network is. Probabilities in parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Whether frames travel alone instead of in connections.
    pub datagram: bool,
    /// Shortest delay.
    pub delay_min: Nanos,
    /// Mean of the delay above it.
    pub delay_mean: Nanos,
    /// Frames from a second, fifty times slower tail.
    pub slow_parts: u32,
    /// Frames lost: refused by a queue (stream) or on the way (datagram).
    pub loss_parts: u32,
    /// Frames that come again later (datagram).
    pub replay_parts: u32,
    /// Frames damaged where their checksum covers them.
    pub corrupt_parts: u32,
    /// Sends that break the connection.
    pub reset_parts: u32,
    /// Frames waiting in one direction until the newest is refused.
    pub queue_max: usize,
    /// Mean time until a broken connection is dialed again.
    pub redial_mean: Nanos,
}

impl NetworkOptions {
    /// Quick, in order, without loss.
    #[must_use]
    pub const fn calm() -> Self {
        Self {
            datagram: false,
            delay_min: 50 * MICROSECOND,
            delay_mean: 200 * MICROSECOND,
            slow_parts: 0,
            loss_parts: 0,
            replay_parts: 0,
            corrupt_parts: 0,
            reset_parts: 0,
            queue_max: 4096,
            redial_mean: 100 * MILLISECOND,
        }
    }
}

/// What happened to frames, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Handed to the network.
    pub sent: u64,
    /// Handed to a receiver.
    pub delivered: u64,
    /// Lost by draw.
    pub lost: u64,
    /// Sent without a connection.
    pub unconnected: u64,
    /// Refused by a full queue.
    pub overflowed: u64,
    /// Damaged on the way.
    pub corrupted: u64,
    /// Delivered a second time.
    pub replayed: u64,
    /// Of a broken connection, lost with it.
    pub lost_with_connection: u64,
    /// Of a broken connection, delivered after all.
    pub stragglers: u64,
    /// Stopped at a cut.
    pub cut: u64,
    /// Connections broken.
    pub resets: u64,
    /// Sent into a connection that only the sender still believed in.
    pub into_half_open: u64,
    /// Delayed by a clog.
    pub clogged: u64,
    /// Delayed because links stood still one after the other.
    pub swizzled: u64,
}

/// An event to be brought back when it is due.
#[derive(Clone, Debug)]
pub enum NetEvent {
    /// A frame reaches the receiver.
    Deliver(Box<Packet>),
    /// A node finds out about its connection to a peer.
    Notice {
        /// The node.
        node: u8,
        /// Its peer.
        peer: u8,
        /// Whether the connection is up.
        connected: bool,
        /// The connection this is about.
        epoch: u32,
    },
    /// Time to dial again.
    Redial {
        /// One end.
        a: u8,
        /// The other.
        b: u8,
    },
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Sender.
    pub from: u8,
    /// Receiver.
    pub to: u8,
    /// The connection it was sent on.
    pub epoch: u32,
    /// The frame, perhaps damaged.
    pub bytes: Payload,
}

/// What travels: a frame, or bytes that were one.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Untouched.
    Frame(Message),
    /// Damaged on the way.
    Damaged(Vec<u8>),
}

#[derive(Debug)]
struct Direction {
    prng: Prng,
    last_due: Nanos,
    in_flight: usize,
    clogged_until: Nanos,
    /// The same, where it is one of several links that stand still one after the other.
    swizzled_until: Nanos,
    /// Stopped at a cut, in order; a connection holds them back instead of losing them.
    held: VecDeque<Packet>,
    /// Whether the sender believes in the connection.
    sender_sees: bool,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    up: bool,
    epoch: u32,
    /// The side that has not heard of the end.
    blind: Option<u8>,
}

/// All links of a cluster.
#[derive(Debug)]
pub struct Network {
    count: u8,
    options: NetworkOptions,
    directions: Vec<Direction>,
    connections: Vec<Connection>,
    running: Vec<bool>,
    cuts: Cuts,
    counts: NetworkCounts,
}

type Events = Vec<(Nanos, NetEvent)>;

impl Network {
    /// Links between `count` replicas, all down.
    #[must_use]
    pub fn new(count: u8, options: NetworkOptions, streams: &Streams) -> Self {
        let pairs = usize::from(count) * usize::from(count);
        let direction = |index| Direction {
            prng: streams.numbered("link", index as u64),
            last_due: 0,
            in_flight: 0,
            clogged_until: 0,
            swizzled_until: 0,
            held: VecDeque::new(),
            sender_sees: false,
        };
        Self {
            count,
            options,
            directions: (0..pairs).map(direction).collect(),
            connections: vec![
                Connection {
                    up: false,
                    epoch: 0,
                    blind: None,
                };
                pairs
            ],
            running: vec![false; usize::from(count)],
            cuts: Cuts::none(count),
            counts: NetworkCounts::default(),
        }
    }

    /// Other delays and probabilities from now on.
    pub fn set_options(&mut self, options: NetworkOptions) {
        self.options = options;
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }

    fn at(&self, from: u8, to: u8) -> usize {
        usize::from(from) * usize::from(self.count) + usize::from(to)
    }

    fn pair(&self, a: u8, b: u8) -> usize {
        self.at(a.min(b), a.max(b))
    }

    /// Whether frames pass from one replica to the other now.
    #[must_use]
    pub fn passes(&self, from: u8, to: u8) -> bool {
        !self.cuts.is_cut(from, to)
    }

    /// Sends a frame; what becomes of it is in the events.
    pub fn send(&mut self, now: Nanos, from: u8, to: u8, message: Message) -> Events {
        self.counts.sent += 1;
        let mut events = Events::new();
        let index = self.at(from, to);
        let epoch = self.connections[self.pair(from, to)].epoch;
        if !self.options.datagram {
            if !self.directions[index].sender_sees {
                self.counts.unconnected += 1;
                return events;
            }
            let connection = self.connections[self.pair(from, to)];
            if !connection.up {
                self.counts.into_half_open += u64::from(connection.blind == Some(from));
                self.counts.lost_with_connection += 1;
                return events;
            }
            let direction = &mut self.directions[index];
            if direction.in_flight + direction.held.len() >= self.options.queue_max {
                self.counts.overflowed += 1;
                return events;
            }
            if direction.prng.chance(self.options.reset_parts) {
                self.reset(now, from, to, &mut events);
                self.counts.lost_with_connection += 1;
                return events;
            }
        }
        let options = self.options;
        let direction = &mut self.directions[index];
        if direction.prng.chance(options.loss_parts) {
            self.counts.lost += 1;
            return events;
        }
        let bytes = if direction.prng.chance(options.corrupt_parts) {
            self.counts.corrupted += 1;
            damage(&message, &mut direction.prng)
        } else {
            Payload::Frame(message)
        };
        let packet = Packet {
            from,
            to,
            epoch,
            bytes,
        };
        if options.datagram && direction.prng.chance(options.replay_parts) {
            self.counts.replayed += 1;
            let late = now + direction.prng.between(0, 2 * SECOND);
            direction.in_flight += 1;
            events.push((late, NetEvent::Deliver(Box::new(packet.clone()))));
        }
        let due = self.due(now, index);
        events.push((due, NetEvent::Deliver(Box::new(packet))));
        events
    }

    fn due(&mut self, now: Nanos, index: usize) -> Nanos {
        let options = self.options;
        let direction = &mut self.directions[index];
        let mut delay = options.delay_min + direction.prng.exponential(options.delay_mean);
        if direction.prng.chance(options.slow_parts) {
            delay += direction.prng.exponential(options.delay_mean * 50);
        }
        let free = now + delay;
        let stands = direction.clogged_until.max(direction.swizzled_until);
        self.counts.clogged += u64::from(direction.clogged_until > free);
        self.counts.swizzled += u64::from(direction.swizzled_until > free);
        let mut due = free.max(stands);
        if !options.datagram {
            due = due.max(direction.last_due + 1);
        }
        direction.last_due = direction.last_due.max(due);
        direction.in_flight += 1;
        due
    }

    /// A packet is due: it comes back if the receiver gets it.
    pub fn arrive(&mut self, packet: Packet) -> Option<Packet> {
        let index = self.at(packet.from, packet.to);
        let connection = self.connections[self.pair(packet.from, packet.to)];
        let cut = self.cuts.is_cut(packet.from, packet.to);
        let direction = &mut self.directions[index];
        direction.in_flight = direction.in_flight.saturating_sub(1);
        if !self.running[usize::from(packet.to)] {
            self.counts.lost_with_connection += 1;
            return None;
        }
        if cut {
            self.counts.cut += 1;
            if !self.options.datagram && packet.epoch == connection.epoch {
                direction.held.push_back(packet);
            }
            return None;
        }
        if !self.options.datagram {
            if packet.epoch == connection.epoch && !direction.held.is_empty() {
                direction.held.push_back(packet);
                return None;
            }
            if packet.epoch != connection.epoch {
                // The receiver may still have had it in its buffers when the connection broke.
                if !direction.prng.chance(300_000) {
                    self.counts.lost_with_connection += 1;
                    return None;
                }
                self.counts.stragglers += 1;
            }
        }
        self.counts.delivered += 1;
        Some(packet)
    }

    /// Ends the connection of a pair; the number of the one that ended.
    fn end(&mut self, a: u8, b: u8) -> Option<u32> {
        let pair = self.pair(a, b);
        let connection = &mut self.connections[pair];
        if !connection.up {
            return None;
        }
        let old = connection.epoch;
        connection.up = false;
        connection.epoch += 1;
        for (node, peer) in [(a, b), (b, a)] {
            let index = self.at(node, peer);
            let held = std::mem::take(&mut self.directions[index].held);
            self.counts.lost_with_connection += held.len() as u64;
        }
        self.counts.resets += 1;
        Some(old)
    }

    /// Breaks the connection of a pair. Frames under way become stragglers or are lost.
    pub fn reset(&mut self, now: Nanos, a: u8, b: u8, events: &mut Events) {
        let Some(old) = self.end(a, b) else {
            return;
        };
        for (node, peer) in [(a, b), (b, a)] {
            let index = self.at(node, peer);
            let direction = &mut self.directions[index];
            let notice = NetEvent::Notice {
                node,
                peer,
                connected: false,
                epoch: old,
            };
            let late = direction.prng.exponential(20 * MILLISECOND);
            events.push((now + late, notice));
        }
        self.redial_later(now, a, b, events);
    }

    /// The connection of a pair is gone for `peer` alone: `blind` goes on sending into it until
    /// `until`, or until the peer's next connection takes its place. False without a connection.
    pub fn half_open(
        &mut self,
        now: Nanos,
        (blind, peer): (u8, u8),
        until: Nanos,
        dials_again: bool,
        events: &mut Events,
    ) -> bool {
        let sees = |from, to| self.directions[self.at(from, to)].sender_sees;
        if !sees(blind, peer) || !sees(peer, blind) {
            return false;
        }
        let Some(epoch) = self.end(blind, peer) else {
            return false;
        };
        let pair = self.pair(blind, peer);
        self.connections[pair].blind = Some(blind);
        for (node, peer, late) in [(peer, blind, now), (blind, peer, until)] {
            let connected = false;
            let notice = NetEvent::Notice {
                node,
                peer,
                connected,
                epoch,
            };
            events.push((late, notice));
        }
        let again = if dials_again { now } else { until };
        self.redial_later(again, peer, blind, events);
        true
    }

    /// Whoever still believes in a connection that is gone finds out now, and dials.
    pub fn end_half_open(&mut self, now: Nanos, events: &mut Events) {
        for a in 0..self.count {
            for b in a + 1..self.count {
                let pair = self.pair(a, b);
                let connection = self.connections[pair];
                let Some(node) = connection.blind.filter(|_| !connection.up) else {
                    continue;
                };
                let notice = NetEvent::Notice {
                    node,
                    peer: if node == a { b } else { a },
                    connected: false,
                    epoch: connection.epoch - 1,
                };
                events.push((now, notice));
                self.redial_later(now, a, b, events);
            }
        }
    }

    fn redial_later(&mut self, now: Nanos, a: u8, b: u8, events: &mut Events) {
        let index = self.at(a, b);
        let mean = self.options.redial_mean;
        let wait = mean / 2 + self.directions[index].prng.exponential(mean / 2);
        events.push((now + wait, NetEvent::Redial { a, b }));
    }

    /// A dial attempt is due.
    pub fn redial(&mut self, now: Nanos, a: u8, b: u8, events: &mut Events) {
        let pair = self.pair(a, b);
        if self.connections[pair].up {
            return;
        }
        let alive = self.running[usize::from(a)] && self.running[usize::from(b)];
        if !alive {
            return;
        }
        if self.cuts.is_cut(a, b) || self.cuts.is_cut(b, a) {
            self.redial_later(now, a, b, events);
            return;
        }
        self.connections[pair].up = true;
        self.connections[pair].blind = None;
        let epoch = self.connections[pair].epoch;
        for (node, peer) in [(a, b), (b, a)] {
            let index = self.at(node, peer);
            let late = self.directions[index].prng.exponential(2 * MILLISECOND);
            let notice = NetEvent::Notice {
                node,
                peer,
                connected: true,
                epoch,
            };
            events.push((now + late, notice));
        }
    }

    /// A node finds out; false when it is about a connection of the past.
    pub fn notice(&mut self, node: u8, peer: u8, connected: bool, epoch: u32) -> bool {
        let connection = self.connections[self.pair(node, peer)];
        let index = self.at(node, peer);
        let current = if connected {
            connection.up && connection.epoch == epoch
        } else {
            !connection.up || connection.epoch > epoch
        };
        let changes = current && self.directions[index].sender_sees != connected;
        // Breaking and dialing again may be quicker than the news of the break.
        if changes && (connected || !connection.up) {
            self.directions[index].sender_sees = connected;
            return true;
        }
        false
    }

    /// A node starts: it dials everyone.
    pub fn start(&mut self, now: Nanos, node: u8, events: &mut Events) {
        self.running[usize::from(node)] = true;
        for peer in (0..self.count).filter(|&peer| peer != node) {
            let index = self.at(node, peer);
            self.directions[index].sender_sees = false;
            self.redial_later(now, node, peer, events);
        }
    }

    /// A node stops: its connections break.
    pub fn stop(&mut self, now: Nanos, node: u8, events: &mut Events) {
        for peer in (0..self.count).filter(|&peer| peer != node) {
            self.reset(now, node, peer, events);
            let index = self.at(node, peer);
            self.directions[index].sender_sees = false;
        }
        self.running[usize::from(node)] = false;
    }

    /// Nothing passes in this direction before `until`.
    pub fn clog(&mut self, from: u8, to: u8, until: Nanos) {
        let index = self.at(from, to);
        let direction = &mut self.directions[index];
        direction.clogged_until = direction.clogged_until.max(until);
    }

    /// The same for one of several links that stand still one after the other.
    pub fn swizzle(&mut self, from: u8, to: u8, until: Nanos) {
        let index = self.at(from, to);
        let direction = &mut self.directions[index];
        direction.swizzled_until = direction.swizzled_until.max(until);
    }

    /// Replaces the cuts. Frames that were held at a cut go on in their order.
    pub fn set_cuts(&mut self, now: Nanos, cuts: Cuts) -> Events {
        self.cuts = cuts;
        let mut events = Events::new();
        for from in 0..self.count {
            for to in 0..self.count {
                if from == to || self.cuts.is_cut(from, to) {
                    continue;
                }
                let index = self.at(from, to);
                for packet in std::mem::take(&mut self.directions[index].held) {
                    let due = self.due(now, index);
                    events.push((due, NetEvent::Deliver(Box::new(packet))));
                }
            }
        }
        events
    }

    /// Takes clogs back.
    pub fn unclog(&mut self) {
        for direction in &mut self.directions {
            direction.clogged_until = 0;
            direction.swizzled_until = 0;
        }
    }
}

/// Flips a bit of the header that every checksum of a replica frame covers.
fn damage(message: &Message, prng: &mut Prng) -> Payload {
    let mut bytes = message.to_vec();
    // Bytes 0..16 are the checksum itself, 48..56 size and (for prepares uncovered) view: a
    // damaged size would desynchronise a stream, which is the deframer's test and not this one.
    let at = 62 + prng.index(256 - 62);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << prng.below(8);
    }
    Payload::Damaged(bytes)
}
