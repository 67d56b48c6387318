//! Who waits for what the consensus core has in hand.
//!
//! The core knows a request by a number of ours. Behind it may stand a request of a client
//! connected here, a login or logout of a client connected here or at another replica, or
//! nobody, where the plane proposed something by itself.

use std::collections::BTreeMap;

use biplane_wire::{ClientId, ReplicaId, RoutedRequestHeader};

/// Where a login or logout came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The driver of this plane, under this token.
    Here(u64),
    /// Another replica, which forwarded it under this nonce.
    There { replica: ReplicaId, nonce: u128 },
    /// The plane itself.
    Nobody,
}

/// What happens when the core is done with a request.
#[derive(Clone, Debug)]
pub(crate) enum Waiter {
    /// A client request, with its header for the answer.
    Request {
        token: u64,
        echo: Box<RoutedRequestHeader>,
    },
    /// A login.
    Register { origin: Origin, client: ClientId },
    /// A logout.
    Logout { origin: Origin, client: ClientId },
    /// A proposal of the plane.
    Proposal,
}

/// Waiters by the number the core knows them by.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: BTreeMap<u64, Waiter>,
    next: u64,
}

impl Waiters {
    pub(crate) fn add(&mut self, waiter: Waiter) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, waiter);
        number
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<Waiter> {
        self.waiting.remove(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
