//! Sessions whose connection ended here and that must be logged out in the end.
//!
//! A single attempt would lose the logout to a request that is still in hand, to a view change
//! or to a lost frame, and with it the client's consumer-group memberships would stay for ever.
//! So the plane keeps trying for a while, until the session is gone from its table.

use std::collections::BTreeMap;

use biplane_wire::ClientId;

/// Ticks between two attempts for one session.
const RETRY_TICKS: u64 = 50;
/// Ticks after which a session is left to whoever logs in next under its client id.
const GIVE_UP_TICKS: u64 = 6_000;

/// One session to be logged out.
#[derive(Clone, Copy, Debug)]
struct Cleanup {
    age: u64,
}

/// Sessions to be logged out, by client and epoch.
#[derive(Debug, Default)]
pub(crate) struct Cleanups {
    open: BTreeMap<(ClientId, u64), Cleanup>,
}

impl Cleanups {
    /// A connection with this session ended; the first attempt has been made.
    pub(crate) fn add(&mut self, client: ClientId, session: u64) {
        self.open.insert((client, session), Cleanup { age: 0 });
    }

    /// One tick: drops what is over and gives what is to be tried again.
    pub(crate) fn due(&mut self, is_open: impl Fn(ClientId, u64) -> bool) -> Vec<(ClientId, u64)> {
        let mut due = Vec::new();
        self.open.retain(|(client, session), cleanup| {
            cleanup.age += 1;
            if !cleanup.age.is_multiple_of(RETRY_TICKS) {
                return true;
            }
            let goes_on = is_open(*client, *session) && cleanup.age < GIVE_UP_TICKS;
            if goes_on {
                due.push((*client, *session));
            }
            goes_on
        });
        due
    }
}
