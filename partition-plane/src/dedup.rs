//! The deduplication window of one partition group (chapter 06 section 9).
//!
//! One entry per client: the highest committed request number and a 128-bit window below it. The
//! table changes only when an operation commits, so every replica holds the same one; requests
//! that are prepared or queued and not yet committed are remembered apart, on the primary alone.

use std::collections::BTreeMap;

/// Width of the window of one client, in request numbers.
pub const WINDOW_BITS: u64 = 128;

/// One client's row, as the CONSUMER_OFFSETS artifact ships it (chapter 04 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// User the session belongs to; another user under the same client id is a new client.
    pub user_id: u32,
    /// Highest committed request number.
    pub watermark: u64,
    /// Bit `k` set means request `watermark - k` is committed.
    pub window: u128,
    /// Op of the newest commit of this client; the lowest is evicted first.
    pub latest_commit: u64,
}

/// What the window says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not seen: execute it.
    New,
    /// The same request is prepared or queued: answer 57.
    InFlight,
    /// Already committed (or too old to tell): answer the duplicate reply.
    Duplicate,
}

/// Committed windows of the clients of one group, and the requests in flight on a primary.
#[derive(Debug, Clone)]
pub struct Dedup {
    entries: BTreeMap<u128, Entry>,
    capacity: usize,
    in_flight: Vec<(u128, u64)>,
}

impl Dedup {
    /// An empty table for at most `capacity` clients.
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            capacity: capacity.max(1),
            in_flight: Vec::new(),
        }
    }

    /// Clients the table holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Judges request `request` of `client` as `user_id`; `u128::MAX` (auto-commit) is always new.
    pub fn check(&self, client: u128, user_id: u32, request: u64) -> Verdict {
        if client == u128::MAX {
            return Verdict::New;
        }
        if self.in_flight.contains(&(client, request)) {
            return Verdict::InFlight;
        }
        let Some(entry) = self
            .entries
            .get(&client)
            .filter(|entry| entry.user_id == user_id)
        else {
            return Verdict::New;
        };
        if request > entry.watermark
            || biplane_vsr::mutated!(DedupForgetsNewest) && request == entry.watermark
        {
            return Verdict::New;
        }
        let below = entry.watermark - request;
        if below >= WINDOW_BITS || entry.window >> below & 1 == 1 {
            return Verdict::Duplicate;
        }
        Verdict::New
    }

    /// Remembers a request that was prepared or queued.
    pub fn began(&mut self, client: u128, request: u64) {
        if client != u128::MAX {
            self.in_flight.push((client, request));
        }
    }

    /// Forgets a request that will not commit here (denied on promotion).
    pub fn ended(&mut self, client: u128, request: u64) {
        if let Some(at) = self
            .in_flight
            .iter()
            .position(|held| *held == (client, request))
        {
            self.in_flight.swap_remove(at);
        }
    }

    /// Forgets every request in flight: the view changed.
    pub fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Records the commit of `request` of `client` at `op`.
    pub fn commit(&mut self, client: u128, user_id: u32, request: u64, op: u64) {
        if client == u128::MAX {
            return;
        }
        self.ended(client, request);
        let fresh = Entry {
            user_id,
            watermark: request,
            window: 1,
            latest_commit: op,
        };
        match self.entries.get_mut(&client) {
            Some(entry) if entry.user_id == user_id => entry.record(request, op),
            Some(entry) => *entry = fresh,
            None => {
                self.make_room();
                self.entries.insert(client, fresh);
            }
        }
    }

    fn make_room(&mut self) {
        while self.entries.len() >= self.capacity {
            let oldest = self
                .entries
                .iter()
                .min_by_key(|(client, entry)| (entry.latest_commit, **client));
            let Some((&client, _)) = oldest else { return };
            self.entries.remove(&client);
        }
    }

    /// The rows in ascending client order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u128, Entry)> + '_ {
        self.entries.iter().map(|(client, entry)| (*client, *entry))
    }

    /// Replaces the table by transferred rows, keeping the newest commits when over capacity.
    pub fn install(&mut self, rows: impl IntoIterator<Item = (u128, Entry)>) {
        self.entries = rows.into_iter().collect();
        self.in_flight.clear();
        while self.entries.len() > self.capacity {
            self.make_room();
        }
    }
}

impl Entry {
    fn record(&mut self, request: u64, op: u64) {
        self.latest_commit = op;
        if request > self.watermark {
            let gap = request - self.watermark;
            let moved = if gap >= WINDOW_BITS {
                0
            } else {
                self.window << gap
            };
            self.window = moved | 1;
            self.watermark = request;
        } else if self.watermark - request < WINDOW_BITS {
            self.window |= 1 << (self.watermark - request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_of_the_specification_table() {
        let mut dedup = Dedup::new(4);
        dedup.commit(7, 1, 5, 1);
        dedup.commit(7, 1, 8, 2);
        assert_eq!(dedup.entries().next().unwrap().1.window, 0b1001);
        assert_eq!(dedup.check(7, 1, 8), Verdict::Duplicate);
        assert_eq!(dedup.check(7, 1, 5), Verdict::Duplicate);
        assert_eq!(dedup.check(7, 1, 7), Verdict::New);
        dedup.commit(7, 1, 7, 3);
        assert_eq!(dedup.entries().next().unwrap().1.window, 0b1011);
        assert_eq!(dedup.check(7, 1, 9), Verdict::New);
        dedup.commit(7, 1, 200, 4);
        assert_eq!(dedup.entries().next().unwrap().1.window, 1);
        assert_eq!(dedup.check(7, 1, 73), Verdict::New);
        assert_eq!(dedup.check(7, 1, 72), Verdict::Duplicate);
    }

    #[test]
    fn another_user_replaces_the_entry_and_auto_commit_is_never_known() {
        let mut dedup = Dedup::new(4);
        dedup.commit(7, 1, 5, 1);
        assert_eq!(dedup.check(7, 2, 5), Verdict::New);
        dedup.commit(7, 2, 5, 2);
        assert_eq!(dedup.check(7, 1, 5), Verdict::New);
        dedup.commit(u128::MAX, 0, 1, 3);
        assert_eq!(dedup.check(u128::MAX, 0, 1), Verdict::New);
        assert_eq!(dedup.entries().len(), 1);
    }

    #[test]
    fn in_flight_until_commit_or_view_change() {
        let mut dedup = Dedup::new(4);
        dedup.began(7, 1);
        dedup.began(7, 2);
        assert_eq!(dedup.check(7, 1, 1), Verdict::InFlight);
        dedup.commit(7, 1, 1, 1);
        assert_eq!(dedup.check(7, 1, 1), Verdict::Duplicate);
        assert_eq!(dedup.check(7, 1, 2), Verdict::InFlight);
        dedup.forget_in_flight();
        assert_eq!(dedup.check(7, 1, 2), Verdict::New);
    }

    #[test]
    fn eviction_takes_the_oldest_newest_commit() {
        let mut dedup = Dedup::new(2);
        dedup.commit(1, 1, 1, 1);
        dedup.commit(2, 1, 1, 2);
        dedup.commit(1, 1, 2, 3);
        dedup.commit(3, 1, 1, 4);
        let clients: Vec<u128> = dedup.entries().map(|(client, _)| client).collect();
        assert_eq!(clients, [1, 3]);
    }
}
