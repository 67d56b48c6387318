//! The one file that names the asynchronous runtime. Everything else in the server asks this module
//! for tasks, sockets, timers and channels, so that replacing the runtime touches one file.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

pub use async_std::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, unbounded};
pub use async_std::task::{JoinHandle, block_on};
pub use tcp::{TcpListener, TcpStream};

mod tcp;

/// Sets the number of executor threads. Must run before the first task is spawned.
///
/// A node's protocol work is one loop; sockets of the same node gain nothing from being on another
/// core until there are cores to spare, and lose a wake-up per frame.
pub fn configure(threads: usize) {
    let config = async_global_executor::GlobalExecutorConfig::default()
        .with_min_threads(threads.max(1))
        .with_max_threads(threads.max(1))
        .with_thread_name_fn(Box::new(|| "biplane".to_owned()));
    async_global_executor::init_with_config(config);
}

/// Starts a task.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    async_std::task::spawn(future)
}

/// Runs blocking work (password hashing) outside the executor threads.
pub fn spawn_blocking<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    async_std::task::spawn_blocking(work)
}

/// Waits.
pub async fn sleep(duration: Duration) {
    async_std::task::sleep(duration).await;
}

/// The result of `future`, or `None` when `duration` passes first.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    async_std::future::timeout(duration, future).await.ok()
}

/// Lets every other task that can run have its turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
