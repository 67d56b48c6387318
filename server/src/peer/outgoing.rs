//! What waits to be written to one peer.
//!
//! Frames of the metadata group have a queue of their own and go first: thousands of partitions
//! may be electing at the same time, and none of them can be created, found or led by anybody as
//! long as the metadata group cannot agree. Within each of the two queues frames keep their order.
//!
//! ```text
//!   metadata group ─► first ─┐
//!                            ├─► batch ─► one write
//!   partitions     ─► rest  ─┘
//! ```
//!
//! The writer sleeps on the second queue alone. A frame in the first leaves a token in the second;
//! where there is no room for the token, the writer is not asleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use biplane_wire::{HEADER_SIZE, Message};

use super::registry::Sent;
use crate::runtime::{Receiver, Sender, TrySendError, bounded};

/// Frames without a body that may wait for a peer beside those with one. Heartbeats and votes of
/// thousands of groups come in bursts, each of a few bytes, and what is dropped of them is sent
/// again by a timer, in the next burst.
pub(super) const BARE_FRAMES_MAX: usize = 16 << 10;

/// An entry of the second queue.
enum Entry {
    Frame(Message),
    /// Something is in the first.
    Token,
}

/// The end into which frames are put.
pub(super) struct Outgoing {
    first: Sender<Message>,
    rest: Sender<Entry>,
    /// Frames with a body in the second queue.
    bodies: Arc<AtomicUsize>,
    bodies_max: usize,
}

/// The writer's end.
pub(super) struct Waiting {
    first: Receiver<Message>,
    rest: Receiver<Entry>,
    bodies: Arc<AtomicUsize>,
}

/// Queues for at most `capacity` frames with a body of the partitions, and as many of any kind of
/// the metadata group.
pub(super) fn queues(capacity: usize) -> (Outgoing, Waiting) {
    let (first, first_waiting) = bounded(capacity);
    let (rest, rest_waiting) = bounded(capacity + BARE_FRAMES_MAX);
    let bodies = Arc::new(AtomicUsize::new(0));
    let outgoing = Outgoing {
        first,
        rest,
        bodies: Arc::clone(&bodies),
        bodies_max: capacity,
    };
    let waiting = Waiting {
        first: first_waiting,
        rest: rest_waiting,
        bodies,
    };
    (outgoing, waiting)
}

fn has_body(message: &Message) -> bool {
    message.size() > HEADER_SIZE
}

fn outcome<T>(sent: Result<(), TrySendError<T>>) -> Sent {
    match sent {
        Ok(()) => Sent::Queued,
        Err(TrySendError::Full(_)) => Sent::Full,
        Err(TrySendError::Closed(_)) => Sent::NoLink,
    }
}

impl Outgoing {
    /// Queues a frame of the metadata group.
    pub(super) fn send_first(&self, message: Message) -> Sent {
        let sent = outcome(self.first.try_send(message));
        if sent == Sent::Queued {
            // A full queue keeps the writer awake, and one that is closed needs it no more.
            let _ = self.rest.try_send(Entry::Token);
        }
        sent
    }

    /// Queues any other frame.
    pub(super) fn send(&self, message: Message) -> Sent {
        let is_counted = has_body(&message);
        if is_counted && self.bodies.fetch_add(1, Ordering::Relaxed) >= self.bodies_max {
            self.bodies.fetch_sub(1, Ordering::Relaxed);
            return Sent::Full;
        }
        let sent = outcome(self.rest.try_send(Entry::Frame(message)));
        if is_counted && sent != Sent::Queued {
            self.bodies.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }

    /// Takes no more; the writer writes what is there and ends.
    pub(super) fn close(&self) {
        self.first.close();
        self.rest.close();
    }

    /// Frames that wait.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }
}

impl Waiting {
    /// Waits for frames and appends what there is to `batch`, up to `most`. False when the queues
    /// are closed and empty.
    pub(super) async fn take(&self, batch: &mut Vec<Message>, most: usize) -> bool {
        while batch.is_empty() {
            let Ok(entry) = self.rest.recv().await else {
                self.take_first(batch, most);
                return !batch.is_empty();
            };
            self.take_first(batch, most);
            self.append(entry, batch);
            while batch.len() < most {
                let Ok(entry) = self.rest.try_recv() else {
                    break;
                };
                self.append(entry, batch);
            }
        }
        true
    }

    fn take_first(&self, batch: &mut Vec<Message>, most: usize) {
        while batch.len() < most {
            let Ok(message) = self.first.try_recv() else {
                break;
            };
            batch.push(message);
        }
    }

    fn append(&self, entry: Entry, batch: &mut Vec<Message>) {
        let Entry::Frame(message) = entry else {
            return;
        };
        if has_body(&message) {
            self.bodies.fetch_sub(1, Ordering::Relaxed);
        }
        batch.push(message);
    }

    /// Frames that wait.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing more will be put in.
    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.rest.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, CommitHeader, View};

    use super::*;
    use crate::runtime;

    fn frame(number: u32, body: &[u8]) -> Message {
        let mut header = CommitHeader::new(Command::Commit);
        header.frame.set_view(View(number));
        Message::sealed(header, body)
    }

    fn taken(waiting: &Waiting, most: usize) -> Vec<u32> {
        let mut batch = Vec::new();
        runtime::block_on(waiting.take(&mut batch, most));
        let number = |message: &Message| message.generic().frame.view().0;
        batch.iter().map(number).collect()
    }

    #[test]
    fn frames_of_the_metadata_group_overtake_those_of_partitions() {
        let (outgoing, waiting) = queues(4);
        for number in 1..=5 {
            assert_eq!(outgoing.send(frame(number, &[])), Sent::Queued);
        }
        for number in 11..=13 {
            assert_eq!(outgoing.send_first(frame(number, &[])), Sent::Queued);
        }
        assert_eq!(taken(&waiting, 4), [11, 12, 13, 1]);
        assert_eq!(outgoing.send_first(frame(14, &[7])), Sent::Queued);
        assert_eq!(taken(&waiting, 100), [14, 2, 3, 4, 5]);
        // The tokens that are left wake the writer for nothing, and are no frames.
        assert_eq!(outgoing.send_first(frame(15, &[])), Sent::Queued);
        assert_eq!(taken(&waiting, 100), [15]);
    }

    #[test]
    fn a_writer_that_sleeps_is_woken_by_either() {
        let (outgoing, waiting) = queues(4);
        let writer = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < 2_000 {
                seen.extend(taken(&waiting, 16));
            }
            seen
        });
        let put = |send: &dyn Fn(Message) -> Sent, number: u32| {
            while send(frame(number, &[])) == Sent::Full {
                std::thread::yield_now();
            }
        };
        for number in 0..1_000 {
            put(&|message| outgoing.send_first(message), 2 * number);
            put(&|message| outgoing.send(message), 2 * number + 1);
        }
        let seen = writer.join().expect("the writer ends well");
        for odd in [0, 1] {
            let of_one = seen.iter().filter(|number| **number % 2 == odd);
            assert!(of_one.is_sorted(), "each queue keeps its order");
        }
    }

    #[test]
    fn partitions_cannot_fill_the_queue_of_the_metadata_group() {
        let (outgoing, waiting) = queues(2);
        for _ in 0..2 {
            assert_eq!(outgoing.send(frame(1, &[7])), Sent::Queued);
        }
        assert_eq!(outgoing.send(frame(1, &[7])), Sent::Full);
        for _ in 0..BARE_FRAMES_MAX {
            assert_eq!(outgoing.send(frame(1, &[])), Sent::Queued);
        }
        assert_eq!(outgoing.send(frame(1, &[])), Sent::Full);
        assert_eq!(outgoing.send_first(frame(2, &[7])), Sent::Queued);
        assert_eq!(outgoing.send_first(frame(3, &[])), Sent::Queued);
        assert_eq!(outgoing.send_first(frame(4, &[])), Sent::Full);
        assert_eq!(taken(&waiting, 3), [2, 3, 1], "though there was no token");
    }

    #[test]
    fn what_is_queued_is_written_after_the_end() {
        let (outgoing, waiting) = queues(2);
        outgoing.send_first(frame(1, &[]));
        outgoing.send(frame(2, &[]));
        outgoing.close();
        assert_eq!(outgoing.send_first(frame(3, &[])), Sent::NoLink);
        assert_eq!(outgoing.send(frame(3, &[])), Sent::NoLink);
        assert_eq!(taken(&waiting, 100), [1, 2]);
        assert!(taken(&waiting, 100).is_empty());
    }
}
