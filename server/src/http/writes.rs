//! Writes: metadata one at a time for each credential and repeated until their outcome is known,
//! partition writes side by side within two caps (chapter 08 sections 2.4 and 3.3).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use biplane_wire::request::ClientRequest;
use biplane_wire::{ClientCode, ErrorCode, EvictionReason};

use super::Web;
use super::answer::Answer;
use super::ask::Outcome;
use super::call::{Call, Caller};
use super::sessions::{Entry, Submitted};
use crate::runtime;

/// How long a metadata write is repeated.
const REPLAY_BUDGET: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const REPLAY_PAUSE: Duration = Duration::from_millis(50);
/// How long an attempt that is not answered is waited for.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// How long a partition write is waited for.
const PARTITION_LIMIT: Duration = Duration::from_secs(10);
/// Partition writes in flight of one session.
const SESSION_WRITES_MAX: usize = 32;
/// Partition writes in flight of the node.
const NODE_WRITES_MAX: usize = 128;

/// A place among the partition writes in flight.
struct Place {
    web: Arc<Web>,
    entry: Arc<Entry>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.web.partition_writes.fetch_sub(1, Ordering::AcqRel);
        self.entry.writes.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts up unless the limit is reached.
fn take(counter: &AtomicUsize, limit: usize) -> bool {
    let taken = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
        (count < limit).then_some(count + 1)
    });
    taken.is_ok()
}

fn place(web: &Arc<Web>, entry: &Arc<Entry>) -> Result<Place, Answer> {
    if !take(&entry.writes, SESSION_WRITES_MAX) {
        let reason = "Too many writes of this session are in flight";
        return Err(Answer::transport(429, "too_many_in_flight_writes", reason));
    }
    if !take(&web.partition_writes, NODE_WRITES_MAX) {
        entry.writes.fetch_sub(1, Ordering::AcqRel);
        let reason = "Too many writes are in flight on this node";
        return Err(Answer::transport(503, "server_busy", reason));
    }
    Ok(Place {
        web: Arc::clone(web),
        entry: Arc::clone(entry),
    })
}

impl Web {
    /// A metadata write to its end. It goes on when the caller hangs up: a request in the log
    /// cannot be called back, and its number must not be used again.
    ///
    /// # Errors
    /// The answer of the error.
    pub(crate) async fn write(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
        request: &ClientRequest<'_>,
    ) -> Result<Vec<u8>, Answer> {
        if !self.glance.is_primary() {
            return Err(Answer::error(ErrorCode::TransientNotAccepted));
        }
        let (code, body) = self.encode(request)?;
        let entry = self.sessions.entry(caller)?;
        let (web, caller, address) = (Arc::clone(self), caller.clone(), call.head.peer);
        runtime::spawn(async move {
            let _turn = entry.turn.lock().await;
            web.write_in_turn(&caller, &entry, address, code, &body)
                .await
        })
        .await
    }

    async fn write_in_turn(
        &self,
        caller: &Caller,
        entry: &Arc<Entry>,
        address: SocketAddr,
        code: ClientCode,
        body: &[u8],
    ) -> Result<Vec<u8>, Answer> {
        let started = Instant::now();
        let mut open = self.open(entry, address).await?;
        let mut submitted = open.submit(code, body).await;
        // Once an attempt may have been accepted, no later refusal takes that back.
        let mut doubtful = false;
        let mut fresh = false;
        loop {
            let Some(request) = submitted else {
                self.sessions.forget(caller, entry);
                return Err(Answer::no_answer());
            };
            let number = request.number;
            match request.outcome(ATTEMPT_LIMIT).await {
                Outcome::Payload(payload) => return Ok(payload),
                Outcome::Code(57) => doubtful = true,
                Outcome::Code(58) => {}
                Outcome::Code(other) => return Err(Answer::error_number(other)),
                Outcome::Nothing => doubtful = true,
                Outcome::Evicted(EvictionReason::InvalidRequestBody) => {
                    return Err(Answer::error(ErrorCode::InvalidCommand));
                }
                Outcome::Evicted(_) => {
                    // The session is gone from the client table; the request was not accepted
                    // on it, unless an earlier attempt was.
                    if doubtful || fresh {
                        self.sessions.forget(caller, entry);
                        return Err(Answer::no_answer());
                    }
                    fresh = true;
                    open = self.open(entry, address).await?;
                    submitted = open.submit(code, body).await;
                    continue;
                }
            }
            let refused = !doubtful && !self.glance.is_primary();
            if refused || started.elapsed() >= REPLAY_BUDGET {
                return Err(Answer::error(match doubtful {
                    true => ErrorCode::TransientNotCommitted,
                    false => ErrorCode::TransientNotAccepted,
                }));
            }
            runtime::sleep(REPLAY_PAUSE).await;
            submitted = open.submit_again(code, body, number).await;
        }
    }

    /// A partition write, admitted and submitted; its answer is waited for by the returned
    /// future.
    ///
    /// # Errors
    /// The answer of the error: a cap is reached, or there is no session.
    pub(crate) async fn submit_partition(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
        code: ClientCode,
        body: &[u8],
        late: &'static str,
    ) -> Result<PartitionWrite, Answer> {
        let entry = self.sessions.entry(caller)?;
        let place = place(self, &entry)?;
        let open = self.open(&entry, call.head.peer).await?;
        let Some(submitted) = open.submit(code, body).await else {
            self.sessions.forget(caller, &entry);
            return Err(Answer::no_answer());
        };
        Ok(PartitionWrite {
            submitted,
            late,
            caller: caller.clone(),
            place,
        })
    }

    /// Ends the session of a credential; the credential itself stays good.
    ///
    /// # Errors
    /// 503 when the end could not be agreed upon.
    pub(crate) async fn log_out(self: &Arc<Self>, caller: &Caller) -> Result<(), Answer> {
        // Dropping the last user of the entry closes its connection, which ends the session.
        if let Some(entry) = self.sessions.remove(caller) {
            let _turn = entry.turn.lock().await;
        }
        Ok(())
    }
}

/// A partition write in flight.
pub(crate) struct PartitionWrite {
    submitted: Submitted,
    late: &'static str,
    caller: Caller,
    place: Place,
}

impl PartitionWrite {
    /// The payload of its answer.
    ///
    /// # Errors
    /// The answer of the error; 504 when it takes too long.
    pub(crate) async fn payload(self) -> Result<Vec<u8>, Answer> {
        match self.submitted.outcome(PARTITION_LIMIT).await {
            Outcome::Payload(payload) => Ok(payload),
            Outcome::Code(code) => Err(Answer::error_number(code)),
            Outcome::Evicted(_) => {
                let sessions = &self.place.web.sessions;
                sessions.forget(&self.caller, &self.place.entry);
                Err(Answer::no_answer())
            }
            Outcome::Nothing => Err(Answer::transport(
                504,
                self.late,
                "The write is not confirmed in time; it may still be carried out",
            )),
        }
    }
}
