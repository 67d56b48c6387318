//! What a service manager is told (`sd_notify`): that the node serves, and that it stops. Without
//! `NOTIFY_SOCKET` nothing is told to nobody.

use sd_notify::NotifyState;
use tracing::debug;

/// Every listener accepts.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The node was asked to stop.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        debug!(%error, "the service manager cannot be told");
    }
}
