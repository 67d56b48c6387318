//! A client: one request in flight, retried until its outcome is known.
//!
//! An outcome is success, a refusal that proves nothing happened, or unknown: a timeout, a lost
//! connection, a transient status that says so. Unknown is retried with the same number, maybe
//! at another node. What is asked for comes from a `Workload`.

use biplane_wire::GroupId;

use crate::machine::{Answer, Call};
use crate::options::Options;
use crate::prng::{Prng, Streams};
use crate::time::{MILLISECOND, Nanos, SECOND};
use crate::workload::{Step, WorkloadKind};

/// What a client does next.
#[derive(Clone, Debug)]
pub enum Action {
    /// Nothing before this time.
    Wait {
        /// When to ask again.
        until: Nanos,
    },
    /// Send a call.
    Call {
        /// To this node.
        node: u8,
        /// What.
        call: Call,
        /// When it counts as lost.
        deadline: Nanos,
    },
    /// Nothing any more.
    Nothing,
}

#[derive(Debug)]
struct Pending {
    call: Call,
    /// The attempt under way; `None` while it pauses between attempts.
    token: Option<u64>,
    /// When the attempt counts as lost, or the pause is over.
    until: Nanos,
    attempts: u32,
    started: Nanos,
}

/// A client. See the file's head.
#[derive(Debug)]
pub struct Client {
    index: u32,
    prng: Prng,
    /// Nodes it may ask.
    nodes: Vec<u8>,
    node: u8,
    think_mean: Nanos,
    loss_parts: u32,
    pending: Option<Pending>,
    next_at: Nanos,
    completed: u64,
    finish: Option<u64>,
    workload: WorkloadKind,
    /// When the world asks next.
    pub(crate) wake_at: Option<Nanos>,
}

impl Client {
    /// The client with this number.
    #[must_use]
    pub fn new(index: u32, options: &Options, streams: &Streams) -> Self {
        let mut prng = streams.numbered("client", u64::from(index));
        Self {
            index,
            nodes: (0..options.replicas).collect(),
            node: prng.below(u64::from(options.replicas)) as u8,
            think_mean: options.think_mean,
            loss_parts: options.network.loss_parts,
            pending: None,
            next_at: 0,
            completed: 0,
            finish: None,
            workload: WorkloadKind::new(index, options),
            wake_at: None,
            prng,
        }
    }

    /// Requests that ended in success or in a refusal for good.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// The group the pending call is for.
    #[must_use]
    pub fn pending_group(&self) -> Option<GroupId> {
        match &self.pending.as_ref()?.call {
            Call::Request { group, .. } | Call::Poll { group, .. } => Some(*group),
            Call::Register { .. } | Call::Logout { .. } => Some(GroupId::METADATA),
            Call::Directory | Call::Sync { .. } => None,
        }
    }

    /// Faults are over: finish what is pending, do `more` requests, then rest. Only `nodes` are
    /// there to be asked.
    pub fn finish_after(&mut self, more: u64, nodes: &[u8]) {
        self.finish = Some(more);
        self.nodes = nodes.to_vec();
        if !nodes.contains(&self.node) {
            self.choose_node();
            if let Some(pending) = &mut self.pending {
                pending.until = 0;
            }
        }
        self.loss_parts = 0;
        self.think_mean = self.think_mean.min(50 * MILLISECOND);
    }

    /// Why the client is not at rest, once it shall be.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        match (&self.pending, self.finish) {
            (Some(pending), _) => Some(format!(
                "client {} waits for {} since {} after {} attempts",
                self.index,
                crate::report::describe_call(&pending.call),
                crate::time::show(pending.started),
                pending.attempts
            )),
            (None, Some(0)) => None,
            (None, _) => Some(format!("client {} has more to ask", self.index)),
        }
    }

    /// How long a frame to or from a node takes; `None` when it is lost.
    pub fn travel(&mut self) -> Option<Nanos> {
        if self.prng.chance(self.loss_parts) {
            return None;
        }
        Some(MILLISECOND / 10 + self.prng.exponential(MILLISECOND / 2))
    }

    /// The client looks at its clock.
    pub fn wake(&mut self, now: Nanos) -> Action {
        if let Some(pending) = &self.pending {
            if now < pending.until {
                return Action::Wait {
                    until: pending.until,
                };
            }
            if pending.token.is_some() {
                self.choose_node();
            }
            return self.send(now);
        }
        if self.finish == Some(0) {
            return Action::Nothing;
        }
        if now < self.next_at {
            return Action::Wait {
                until: self.next_at,
            };
        }
        let call = self.workload.next(&mut self.prng);
        self.pending = Some(Pending {
            call,
            token: None,
            until: now,
            attempts: 0,
            started: now,
        });
        self.send(now)
    }

    fn choose_node(&mut self) {
        self.node = self.prng.pick(&self.nodes).copied().unwrap_or(self.node);
    }

    fn send(&mut self, now: Nanos) -> Action {
        let deadline = now + SECOND + self.prng.exponential(SECOND / 2);
        let Some(pending) = &mut self.pending else {
            return Action::Nothing;
        };
        pending.attempts += 1;
        pending.until = deadline;
        Action::Call {
            node: self.node,
            call: pending.call.clone(),
            deadline,
        }
    }

    /// The call was sent under this token; the token of the attempt before is returned.
    pub fn sent(&mut self, token: u64) -> Option<u64> {
        self.pending
            .as_mut()
            .and_then(|pending| pending.token.replace(token))
    }

    /// An answer came.
    pub fn answered(&mut self, now: Nanos, token: u64, answer: &Answer) -> Action {
        let Some(pending) = &mut self.pending else {
            return Action::Nothing;
        };
        if pending.token != Some(token) {
            return Action::Nothing;
        }
        pending.token = None;
        match self.workload.outcome(&pending.call, answer) {
            Step::Done => {
                self.pending = None;
                self.completed += 1;
                if let Some(more) = &mut self.finish {
                    *more = more.saturating_sub(1);
                }
                self.next_at = now + self.prng.exponential(self.think_mean);
                Action::Wait {
                    until: self.next_at,
                }
            }
            Step::Retry => {
                let pause = 5 * MILLISECOND + self.prng.exponential(30 * MILLISECOND);
                pending.until = now + pause;
                let until = pending.until;
                self.choose_node();
                Action::Wait { until }
            }
            Step::Replace(call) => {
                pending.call = call;
                pending.attempts = 0;
                pending.until = now;
                Action::Wait { until: now }
            }
        }
    }

    /// The connection to a node broke; whether this client notices.
    pub fn lost_connection(&mut self, node: u8) -> bool {
        let notices = self.prng.chance(500_000);
        match &mut self.pending {
            Some(pending) if self.node == node && pending.token.is_some() && notices => {
                pending.until = 0;
                true
            }
            _ => false,
        }
    }
}
