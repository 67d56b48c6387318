//! How other tasks and threads reach the node's loop: typed boxes, and one bell for all of them.
//!
//! The loop takes from every box without waiting and sleeps on the bell alone, so a wake-up costs
//! one
//! atomic swap however many boxes there are.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;

use crate::runtime::{self, Receiver, Sender, TrySendError};

/// Wakes the loop.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    /// Something is in a box.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Returns once the bell has been rung since the last return.
    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.rung.swap(false, Ordering::AcqRel) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// The sending end of a box.
#[derive(Debug)]
pub(crate) struct Post<T> {
    sender: Sender<T>,
    bell: Arc<Bell>,
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            bell: Arc::clone(&self.bell),
        }
    }
}

impl<T> Post<T> {
    /// Waits for room. False when the loop is gone.
    pub(crate) async fn send(&self, item: T) -> bool {
        let sent = match self.sender.try_send(item) {
            Ok(()) => true,
            Err(TrySendError::Full(item)) => {
                self.bell.ring();
                self.sender.send(item).await.is_ok()
            }
            Err(TrySendError::Closed(_)) => false,
        };
        self.bell.ring();
        sent
    }

    /// Never waits; for boxes without a limit. False when the loop is gone.
    pub(crate) fn post(&self, item: T) -> bool {
        let sent = self.sender.try_send(item).is_ok();
        self.bell.ring();
        sent
    }
}

/// A box for at most `capacity` items.
pub(crate) fn bounded<T>(capacity: usize, bell: &Arc<Bell>) -> (Post<T>, Receiver<T>) {
    let (sender, receiver) = runtime::bounded(capacity);
    (
        Post {
            sender,
            bell: Arc::clone(bell),
        },
        receiver,
    )
}

/// A box without a limit, for answers to work the node itself asked for.
pub(crate) fn unbounded<T>(bell: &Arc<Bell>) -> (Post<T>, Receiver<T>) {
    let (sender, receiver) = runtime::unbounded();
    (
        Post {
            sender,
            bell: Arc::clone(bell),
        },
        receiver,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let bell = Arc::new(Bell::default());
        let (post, items) = unbounded(&bell);
        assert!(post.post(7));
        runtime::block_on(bell.wait());
        assert_eq!(items.try_recv(), Ok(7));
    }

    #[test]
    fn a_waiting_loop_wakes_for_an_item_from_another_thread() {
        let bell = Arc::new(Bell::default());
        let (post, items) = bounded(1, &bell);
        let thread = std::thread::spawn(move || {
            for item in 0..100 {
                assert!(runtime::block_on(post.send(item)));
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 100 {
            runtime::block_on(bell.wait());
            while let Ok(item) = items.try_recv() {
                seen.push(item);
            }
        }
        thread.join().expect("the sender ends well");
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_box_without_a_reader_says_so() {
        let bell = Arc::new(Bell::default());
        let (post, items) = unbounded(&bell);
        drop(items);
        assert!(!post.post(1));
    }
}
