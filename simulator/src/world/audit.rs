//! The end of a run: every node is read from the first offset to the last, partition by
//! partition, and must serve every committed message.

use biplane_wire::{Codec as _, GroupId, Verify, response::PolledMessages};

use super::World;
use super::calls::UnderWay;
use crate::machine::{Answer, Call, Cause, PollCall, PollFrom, Reader};
use crate::oracle::{GroupKey, Violation};

/// A consumer that no client uses.
const AUDITOR: u32 = 1 << 20;
/// Messages asked for at once.
const CHUNK: u32 = 500;

/// Where the reading stands.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    started: bool,
    todo: Vec<(u8, GroupId)>,
    next: u64,
    token: Option<u64>,
}

impl World {
    /// Goes on reading; true when everything was read.
    pub(crate) fn audited(&mut self) -> bool {
        if !self.audit.started {
            self.audit.started = true;
            for node in &self.nodes {
                let groups = node.machine.as_ref().map(|machine| machine.groups());
                let groups = groups.unwrap_or_default().into_iter();
                let partitions = groups.filter(|group| !group.is_metadata());
                self.audit
                    .todo
                    .extend(partitions.map(|group| (node.id, group)));
            }
            self.audit_step();
        }
        self.audit.todo.is_empty()
    }

    fn audit_key(&self) -> Option<(u8, GroupKey)> {
        let &(node, group) = self.audit.todo.last()?;
        let machine = self.nodes[usize::from(node)].machine.as_ref()?;
        let incarnation = machine.facts(group)?.incarnation;
        Some((node, GroupKey { group, incarnation }))
    }

    /// Whether nothing can be said about what a partition must serve.
    fn skips_audit(&self, key: GroupKey) -> bool {
        let partition = self.oracles.messages.partition(key);
        let purging = partition.is_some_and(|partition| partition.awaits_purge());
        purging || self.oracles.exposed.contains(&key)
    }

    /// Asks for the next run of messages.
    fn audit_step(&mut self) {
        while let Some((node, key)) = self.audit_key() {
            let written = self
                .oracles
                .messages
                .partition(key)
                .map_or(0, |it| it.owed());
            if self.audit.next >= written || self.skips_audit(key) {
                self.audit.todo.pop();
                self.audit.next = 0;
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            self.audit.token = Some(token);
            self.calls.insert(
                token,
                UnderWay {
                    client: None,
                    group: Some(key.group),
                    registers: None,
                    by_time: false,
                },
            );
            let query = PollCall {
                consumer: AUDITOR,
                as_group: false,
                from: PollFrom::Offset(self.audit.next),
                count: CHUNK,
                auto_commit: false,
                primary_only: false,
            };
            let call = Box::new(Call::Poll {
                group: key.group,
                reader: Reader::ROOT,
                query,
            });
            self.give(node, Cause::Call { token, call });
            return;
        }
    }

    /// An answer to the auditor: it must begin where was asked, and bring something.
    pub(crate) fn audit_answer(&mut self, token: u64, answer: &Answer) {
        if self.audit.token != Some(token) {
            return;
        }
        self.audit.token = None;
        let Some((node, key)) = self.audit_key() else {
            return;
        };
        let next = self.audit.next;
        let machine = self.nodes[usize::from(node)].machine.as_ref();
        let facts = machine.and_then(|machine| machine.facts(key.group));
        // The oldest messages may be gone for good reason.
        let (up_to, expires) = facts.map_or((0, false), |it| (it.deleted_up_to, it.expires));
        let may_begin = |first: u64| {
            first == next || first > next && (expires || up_to > 0 && first <= up_to + 1)
        };
        let found = match answer {
            Answer::Polled { status: 0, body } => offsets(body),
            _ => None,
        };
        match found {
            None if may_begin(
                self.oracles
                    .messages
                    .partition(key)
                    .map_or(0, |it| it.owed()),
            ) =>
            {
                self.audit.todo.pop();
                self.audit.next = 0;
                self.audit_step();
            }
            Some((first, last)) if may_begin(first) => {
                self.counters.add("runs of messages read at the end", 1);
                self.audit.next = last + 1;
                self.audit_step();
            }
            other => {
                let text = format!(
                    "n{node} was asked for offset {next} and serves {other:?}; answer {}",
                    crate::report::describe_answer(answer)
                );
                let violation = Violation::new("O5 acknowledged kept", key.group, text);
                self.judge(Err(violation));
            }
        }
    }
}

/// First and last offset of a poll's answer.
fn offsets(body: &[u8]) -> Option<(u64, u64)> {
    let answer = PolledMessages::decode(body).ok()?;
    let batches: Vec<_> = answer
        .batches(Verify::Layout)
        .collect::<Result<_, _>>()
        .ok()?;
    let first = batches.first()?;
    let first = first.offset_of(&first.frames().next()?);
    let last = batches.last()?.offset_last()?;
    Some((first, last))
}
