//! Clients and nodes: calls on their way, answers on theirs, and connections that break.

use biplane_wire::{ClientId, Codec as _, GroupId, Op, Operation, ReplyHeader, RequestNumber};

use biplane_wire::response::PolledMessages;

use super::{Event, World};
use crate::client::Action;
use crate::machine::{Answer, Call, Cause, PollFrom};
use crate::options::MachineKind;
use crate::oracle::acknowledged::Acknowledgement;
use crate::oracle::{GroupKey, Oracles};
use crate::time::Nanos;

/// A call that has been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnderWay {
    /// Who waits; `None` once the client gave the attempt up.
    pub(crate) client: Option<usize>,
    /// The group it is for.
    pub(crate) group: Option<GroupId>,
    /// The client that logs in by it.
    pub(crate) registers: Option<ClientId>,
    /// Whether it asks for the messages of a time.
    pub(crate) by_time: bool,
}

impl World {
    pub(crate) fn on_wake(&mut self, client: usize) {
        let now = self.queue.now();
        if self.clients[client].wake_at.is_some_and(|at| at <= now) {
            self.clients[client].wake_at = None;
        }
        let action = self.clients[client].wake(now);
        self.act(client, action);
    }

    fn act(&mut self, client: usize, action: Action) {
        let now = self.queue.now();
        match action {
            Action::Wait { until } => self.wake_client(client, until),
            Action::Call {
                node,
                call,
                deadline,
            } => {
                let token = self.next_token;
                self.next_token += 1;
                if let Call::Request {
                    group,
                    client,
                    request,
                    session,
                    ..
                } = &call
                {
                    let number = RequestNumber(*request);
                    self.oracles.exactly_once.sends(*group, *client, number);
                    if group.is_metadata() {
                        self.oracles.fencing.sends(*client, number, *session);
                    }
                }
                let registers = match &call {
                    Call::Register { client, .. } => Some(*client),
                    _ => None,
                };
                let from = match &call {
                    Call::Poll { query, .. } => Some(query.from),
                    _ => None,
                };
                let by_time = matches!(from, Some(PollFrom::Timestamp(_)));
                self.history.invoked(client, now, &call);
                let old = self.clients[client].sent(token);
                if let Some(under_way) = old.and_then(|old| self.calls.get_mut(&old)) {
                    under_way.client = None;
                }
                let group = self.clients[client].pending_group();
                self.calls.insert(
                    token,
                    UnderWay {
                        client: Some(client),
                        group,
                        registers,
                        by_time,
                    },
                );
                let arrives = !self.loses_request(client, node);
                if let Some(late) = self.clients[client].travel().filter(|_| arrives) {
                    let call = Box::new(call);
                    self.queue
                        .schedule(now + late, Event::Call { node, token, call });
                }
                self.wake_client(client, deadline);
            }
            Action::Nothing => {}
        }
    }

    pub(crate) fn wake_client(&mut self, client: usize, at: Nanos) {
        if self.clients[client].wake_at.is_none_or(|known| known > at) {
            self.clients[client].wake_at = Some(at);
            self.queue.schedule(at, Event::Wake { client });
        }
    }

    pub(crate) fn on_call(&mut self, node: u8, token: u64, call: Box<Call>) {
        if !self
            .nodes
            .iter()
            .any(|it| it.id == node && it.machine.is_some())
        {
            // Connection refused: the client knows that nothing happened.
            let answer = Answer::Transient {
                maybe: false,
                code: 58,
            };
            let due = self.queue.now() + crate::time::MILLISECOND;
            self.queue.schedule(
                due,
                Event::Answer {
                    token,
                    answer: Box::new(answer),
                },
            );
            return;
        }
        if let Some(mutation) = self.options.mutation {
            let machine = self.nodes[usize::from(node)].machine.as_ref();
            let head = |group| {
                let replica = machine.and_then(|machine| machine.replica(group));
                replica.map_or(Op::ZERO, biplane_vsr::Replica::op_head)
            };
            if let Some(answer) = mutation.early_answer(&call, head) {
                self.answer(node, token, answer);
                return;
            }
        }
        self.give(node, Cause::Call { token, call });
    }

    /// A node answers: the oracles hear it first, then the client, if the way is free.
    pub(crate) fn answer(&mut self, node: u8, token: u64, answer: Answer) {
        let answer = match self.options.mutation {
            Some(mutation) => mutation.answer(answer),
            None => answer,
        };
        self.judge_answer(node, token, &answer);
        self.mark_answer(&answer);
        self.log(|| {
            format!(
                "n{node} answers {token} {}",
                crate::report::describe_answer(&answer)
            )
        });
        let client = self.calls.get(&token).and_then(|call| call.client);
        let Some(client) = client else {
            self.calls.remove(&token);
            self.audit_answer(token, &answer);
            return;
        };
        let arrives = !self.loses_answer(client, node);
        if let Some(late) = self.clients[client].travel().filter(|_| arrives) {
            let due = self.queue.now() + late;
            self.queue.schedule(
                due,
                Event::Answer {
                    token,
                    answer: Box::new(answer),
                },
            );
        }
    }

    /// Success names an op: the canonical log must hold the request there.
    fn judge_answer(&mut self, node: u8, token: u64, answer: &Answer) {
        let registers = self.calls.get(&token).and_then(|call| call.registers);
        if let (Some(client), Answer::Registered { session, .. }) = (registers, answer) {
            let Oracles {
                fencing, committed, ..
            } = &mut self.oracles;
            let log = GroupKey {
                group: GroupId::METADATA,
                incarnation: 0,
            };
            let judged = fencing.registered(client, *session, committed.canon(log));
            return self.judge(judged);
        }
        let call = self.calls.get(&token);
        let by_time = call.is_some_and(|call| call.by_time);
        let Some(group) = call.and_then(|call| call.group) else {
            return;
        };
        let machine = self.nodes[usize::from(node)].machine.as_ref();
        let Some(facts) = machine.and_then(|machine| machine.facts(group)) else {
            return;
        };
        let key = GroupKey {
            group,
            incarnation: facts.incarnation,
        };
        if self.oracles.exposed.contains(&key) {
            return;
        }
        let judged = match answer {
            Answer::Replied { message, .. } => {
                let header: &ReplyHeader = message.header();
                let operation = header.operation_byte();
                let planes = self.options.machine == MachineKind::Planes;
                // A repetition that a partition recognised is answered without its op.
                let sent = operation == Operation::SendMessages.as_u8();
                let repeated = !sent || message.body().is_empty();
                if planes && !group.is_metadata() && repeated {
                    return;
                }
                let what = Acknowledgement {
                    client: header.client(),
                    request: header.request(),
                };
                if sent && planes {
                    self.oracles.messages.told_by(key, message.body());
                }
                let key = self.log_key(node, group, &facts);
                let Oracles {
                    acknowledged,
                    committed,
                    exactly_once,
                    ..
                } = &mut self.oracles;
                acknowledged
                    .answer(node, key, header.op(), what, committed)
                    .and_then(|()| {
                        exactly_once.answers(key, what.client, what.request, header.op())
                    })
            }
            Answer::Polled { status: 0, body } if is_resync(body) => return,
            Answer::Polled { status: 0, body } if by_time && has_messages(body) => {
                self.counters.add("polls by time with messages", 1);
                self.oracles.messages.polled(node, key, body)
            }
            Answer::Polled { status: 0, body } => self.oracles.messages.polled(node, key, body),
            _ => return,
        };
        self.judge(judged);
    }

    /// No answer will come: the client finds out by waiting.
    pub(crate) fn forget(&mut self, token: u64) {
        self.calls.remove(&token);
    }

    pub(crate) fn on_answer(&mut self, token: u64, answer: Answer) {
        let Some(client) = self.calls.remove(&token).and_then(|call| call.client) else {
            return;
        };
        let now = self.queue.now();
        let before = self.clients[client].completed();
        let action = self.clients[client].answered(now, token, &answer);
        let done = self.clients[client].completed() - before;
        self.completed += done;
        if done > 0 {
            self.history.completed(client, now, &answer);
        }
        self.act(client, action);
    }

    /// A node went down: some of its clients notice at once.
    pub(crate) fn connections_lost(&mut self, node: u8) {
        let now = self.queue.now();
        for client in 0..self.clients.len() {
            if self.clients[client].lost_connection(node) {
                self.wake_client(client, now + crate::time::MILLISECOND);
            }
        }
    }
}

/// Whether a poll was turned down because the reader does not own the partition.
fn is_resync(body: &[u8]) -> bool {
    body.starts_with(&PolledMessages::RESYNC.to_le_bytes())
}

/// Whether the answer to a poll brings anything.
fn has_messages(body: &[u8]) -> bool {
    PolledMessages::decode(body).is_ok_and(|answer| answer.messages_count > 0)
}
