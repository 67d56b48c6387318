//! What clients asked and were told, and whether it can be explained by one order.
//!
//! The operations with results that tell something are kept: streams of the metadata group, and
//! messages appended to a partition. A history is written as one line of JSON per call and
//! return, in the manner of Jepsen, and read back from such lines, so that histories recorded
//! from real processes are checked by the same code.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::request::{CreateStream, StreamRequest};
use biplane_wire::response::SendConfirmations;
use biplane_wire::{
    ClientId, Codec as _, GroupId, Identifier, Message, Operation as WireOperation, ReplyHeader,
    RequestNumber, SendMessages,
};
use serde::{Deserialize, Serialize};

use crate::linear::{self, Finding, Model, Operation};
use crate::machine::{Answer, Call};
use crate::oracle::{Violation, show_group};

/// Attempts of a search before it is given up.
const BUDGET: u64 = 300_000;

/// First of the processes that stand for repetitions.
const REPETITIONS: usize = 1 << 20;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "f", rename_all = "kebab-case")]
pub enum Asked {
    /// A stream is created.
    CreateStream {
        /// Its name.
        name: String,
    },
    /// A stream is deleted.
    DeleteStream {
        /// Its id.
        id: u32,
    },
    /// Messages are appended to a partition.
    Append {
        /// The partition's group.
        group: u64,
        /// Number of messages.
        count: u64,
    },
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The stream has this id.
    Created(u32),
    /// It is done.
    Done,
    /// The messages begin at this offset.
    At(u64),
    /// Nothing was done, with this code.
    Refused(u32),
}

/// One line of a written history.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    process: usize,
    #[serde(rename = "type")]
    kind: Kind,
    time: u64,
    asked: Asked,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    told: Option<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Invoke,
    Ok,
    Fail,
    Info,
}

/// A history. See the file's head.
#[derive(Debug, Default)]
pub struct History {
    operations: Vec<(usize, Operation<Asked, Told>)>,
    /// The operation each process waits for, and how often it was sent.
    open: BTreeMap<usize, (usize, u32)>,
    /// The appends by the numbers that clients gave them.
    appends: BTreeMap<(GroupId, ClientId, RequestNumber), usize>,
    /// Groups of which nothing can be said: ids that are used again, or permitted losses.
    unsure: BTreeSet<GroupId>,
    checked: u64,
}

/// The codes of the two refusals that say something about the state.
const STREAM_MISSING: u32 = 1009;
const STREAM_EXISTS: u32 = 1012;

fn asked_of(call: &Call) -> Option<Asked> {
    let Call::Request {
        group,
        operation,
        body,
        ..
    } = call
    else {
        return None;
    };
    match operation {
        WireOperation::CreateStream => {
            let request = CreateStream::decode(body).ok()?;
            let name = request.name.as_str().to_owned();
            Some(Asked::CreateStream { name })
        }
        WireOperation::DeleteStream => match StreamRequest::decode(body).ok()?.stream {
            Identifier::Numeric(id) => Some(Asked::DeleteStream { id }),
            Identifier::Named(_) => None,
        },
        WireOperation::SendMessages if !group.is_metadata() => {
            let (metadata, _) = SendMessages::decode_metadata(body).ok()?;
            let count = u64::from(metadata.messages_count);
            let group = group.0;
            Some(Asked::Append { group, count })
        }
        _ => None,
    }
}

fn told_of(asked: &Asked, answer: &Answer) -> Option<Told> {
    match answer {
        Answer::Refused(code) => Some(Told::Refused(*code)),
        // Applied before, and what came of it is forgotten.
        Answer::Replied { code: 59, .. } => None,
        Answer::Replied { code, message } if *code == 0 => success(asked, message),
        Answer::Replied { code, .. } => Some(Told::Refused(*code)),
        _ => None,
    }
}

fn success(asked: &Asked, message: &Message) -> Option<Told> {
    let body = message.body();
    debug_assert!(message.header::<ReplyHeader>().status() == 0);
    match asked {
        Asked::CreateStream { .. } => {
            let id = body.get(4..8)?.try_into().ok()?;
            Some(Told::Created(u32::from_le_bytes(id)))
        }
        Asked::DeleteStream { .. } => Some(Told::Done),
        Asked::Append { .. } => {
            let told = SendConfirmations::decode(body).ok()?;
            told.0.first().map(|first| Told::At(first.base_offset))
        }
    }
}

impl History {
    /// A process sends a call, perhaps not for the first time.
    pub fn invoked(&mut self, process: usize, now: u64, call: &Call) {
        let Some(asked) = asked_of(call) else {
            self.open.remove(&process);
            return;
        };
        if let Some((open, sent)) = self.open.get_mut(&process)
            && self.operations[*open].1.asked == asked
        {
            *sent += 1;
            return;
        }
        let operation = Operation {
            called: now,
            returned: None,
            asked,
        };
        if let (
            Asked::Append { .. },
            Call::Request {
                group,
                client,
                request,
                ..
            },
        ) = (&operation.asked, call)
        {
            let number = (*group, *client, RequestNumber(*request));
            self.appends.insert(number, self.operations.len());
        }
        self.open.insert(process, (self.operations.len(), 1));
        self.operations.push((process, operation));
    }

    /// An append took effect once more. Which requests were carried out a partition remembers in
    /// memory: a replica that was restarted has forgotten, and where it leads, a request that
    /// was sent again may be carried out again (chapter 06 section 9). So the second effect is
    /// an operation beside the first, of a process of its own that is never answered.
    pub fn repeated(&mut self, group: GroupId, client: ClientId, request: RequestNumber) {
        let Some(&first) = self.appends.get(&(group, client, request)) else {
            return;
        };
        let again = Operation {
            returned: None,
            ..self.operations[first].1.clone()
        };
        let process = REPETITIONS + self.operations.len();
        self.operations.push((process, again));
    }

    /// The outcome of what a process asked is known, or it gives up.
    pub fn completed(&mut self, process: usize, now: u64, answer: &Answer) {
        let Some((open, sent)) = self.open.remove(&process) else {
            return;
        };
        if sent > 1 && matches!(answer, Answer::Refused(_)) {
            // This attempt was turned down; one before it may have taken effect.
            return;
        }
        let operation = &mut self.operations[open].1;
        operation.returned = told_of(&operation.asked, answer).map(|told| (now, told));
    }

    /// Nothing can be said about the order in a group.
    pub fn exempt(&mut self, group: GroupId) {
        self.unsure.insert(group);
    }

    /// Operations whose place was found.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// The history as lines, by time.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (process, operation) in &self.operations {
            let line = |kind, time, told: Option<&Told>| Line {
                process: *process,
                kind,
                time,
                asked: operation.asked.clone(),
                told: told.cloned(),
            };
            lines.push(line(Kind::Invoke, operation.called, None));
            match &operation.returned {
                None => {}
                Some((at, told @ Told::Refused(_))) => {
                    lines.push(line(Kind::Fail, *at, Some(told)));
                }
                Some((at, told)) => lines.push(line(Kind::Ok, *at, Some(told))),
            }
        }
        lines.sort_by_key(|line| line.time);
        let write = |line: &Line| serde_json::to_string(line).unwrap_or_default();
        lines.iter().map(write).collect()
    }

    /// Reads lines back.
    ///
    /// # Errors
    ///
    /// The number of the line that does not fit, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut history = Self::default();
        for (number, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            let wrong = |error: &dyn std::fmt::Display| format!("line {number}: {error}");
            let line: Line = serde_json::from_str(text).map_err(|error| wrong(&error))?;
            let process = line.process;
            if line.kind == Kind::Invoke {
                if history.open.contains_key(&process) {
                    return Err(wrong(&"the process waits for another answer"));
                }
                history.open.insert(process, (history.operations.len(), 1));
                let operation = Operation {
                    called: line.time,
                    returned: None,
                    asked: line.asked,
                };
                history.operations.push((process, operation));
                continue;
            }
            let Some((open, _)) = history.open.remove(&process) else {
                return Err(wrong(&"the process waits for nothing"));
            };
            let operation = &mut history.operations[open].1;
            if operation.asked != line.asked {
                return Err(wrong(&"an answer to something else"));
            }
            operation.returned = line.told.map(|told| (line.time, told));
        }
        Ok(history)
    }

    /// Whether each object has an order that explains everything.
    ///
    /// # Errors
    ///
    /// The object that has none.
    pub fn check(&mut self) -> Result<(), Violation> {
        let of_streams = |asked: &Asked| !matches!(asked, Asked::Append { .. });
        self.check_object(GroupId::METADATA, &Streams, of_streams)?;
        let groups: BTreeSet<u64> = self
            .operations
            .iter()
            .filter_map(|(_, operation)| match operation.asked {
                Asked::Append { group, .. } => Some(group),
                _ => None,
            })
            .collect();
        for group in groups {
            if self.unsure.contains(&GroupId(group)) {
                continue;
            }
            let of_group = |asked: &Asked| match asked {
                Asked::Append { group: other, .. } => *other == group,
                _ => false,
            };
            self.check_object(GroupId(group), &Appends, of_group)?;
        }
        Ok(())
    }

    fn check_object<M>(
        &mut self,
        group: GroupId,
        model: &M,
        concerns: impl Fn(&Asked) -> bool,
    ) -> Result<(), Violation>
    where
        M: Model<Asked = Asked, Told = Told>,
    {
        let of_object = self.operations.iter().map(|(_, operation)| operation);
        let history: Vec<_> = of_object
            .filter(|operation| concerns(&operation.asked))
            .cloned()
            .collect();
        match linear::check(model, &history, BUDGET) {
            Finding::Linearizable => {
                self.checked += history.len() as u64;
                Ok(())
            }
            Finding::Undecided => Ok(()),
            Finding::Stuck { longest, stuck } => {
                let text = format!(
                    "no order of {} operations explains {:?}; {longest} have a place ({})",
                    history.len(),
                    history.get(stuck),
                    show_group(group)
                );
                Err(Violation::new("O8 linearizability", group, text))
            }
        }
    }
}

/// Streams by id; names are unique and ids the lowest free ones.
struct Streams;

impl Model for Streams {
    type State = BTreeMap<u32, String>;
    type Asked = Asked;
    type Told = Told;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, asked: &Asked, told: Option<&Told>) -> Option<Self::State> {
        let mut after = state.clone();
        let result = match asked {
            Asked::CreateStream { name } if state.values().any(|known| known == name) => {
                Told::Refused(STREAM_EXISTS)
            }
            Asked::CreateStream { name } => {
                let id = (0..).find(|id| !state.contains_key(id))?;
                after.insert(id, name.clone());
                Told::Created(id)
            }
            Asked::DeleteStream { id } => match after.remove(id) {
                Some(_) => Told::Done,
                None => Told::Refused(STREAM_MISSING),
            },
            Asked::Append { .. } => return None,
        };
        match told {
            None => Some(after),
            Some(told) if *told == result => Some(after),
            // Turned down for what the caller is, not for what is there.
            Some(Told::Refused(code)) if ![STREAM_EXISTS, STREAM_MISSING].contains(code) => {
                Some(state.clone())
            }
            Some(_) => None,
        }
    }
}

/// The next offset of a partition.
struct Appends;

impl Model for Appends {
    type State = u64;
    type Asked = Asked;
    type Told = Told;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, asked: &Asked, told: Option<&Told>) -> Option<u64> {
        let Asked::Append { count, .. } = asked else {
            return None;
        };
        match told {
            Some(Told::Refused(_)) => Some(*state),
            Some(Told::At(offset)) if offset != state => None,
            _ => Some(state + count),
        }
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{BatchBuilder, Partitioning, SendMetadata};

    use super::*;

    fn create(process: usize, times: (u64, u64), name: &str, told: &Told) -> String {
        let asked = Asked::CreateStream {
            name: name.to_owned(),
        };
        exchange(process, times, &asked, told)
    }

    fn exchange(process: usize, times: (u64, u64), asked: &Asked, told: &Told) -> String {
        let line = |kind, time, told: Option<&Told>| Line {
            process,
            kind,
            time,
            asked: asked.clone(),
            told: told.cloned(),
        };
        let lines = [
            line(Kind::Invoke, times.0, None),
            line(Kind::Ok, times.1, Some(told)),
        ];
        let write = |line: &Line| serde_json::to_string(line).expect("a line");
        lines.iter().map(write).collect::<Vec<_>>().join("\n")
    }

    fn check(parts: &[String]) -> Result<u64, Violation> {
        let mut history = History::parse(&parts.join("\n")).expect("it parses");
        history.check().map(|()| history.checked())
    }

    #[test]
    fn histories_with_an_order_pass_and_come_back_as_they_were_written() {
        let parts = [
            create(0, (0, 10), "a", &Told::Created(1)),
            create(1, (5, 8), "b", &Told::Created(0)),
            create(1, (11, 12), "a", &Told::Refused(STREAM_EXISTS)),
        ];
        assert_eq!(check(&parts), Ok(3));
        let history = History::parse(&parts.join("\n")).expect("it parses");
        let again = History::parse(&history.lines().join("\n")).expect("it parses");
        assert_eq!(history.lines(), again.lines());
    }

    #[test]
    fn a_name_given_twice_and_an_id_given_twice_are_found() {
        let name = [
            create(0, (0, 1), "a", &Told::Created(0)),
            create(1, (2, 3), "a", &Told::Created(1)),
        ];
        assert!(check(&name).is_err());
        let id = [
            create(0, (0, 1), "a", &Told::Created(0)),
            create(1, (2, 3), "b", &Told::Created(0)),
        ];
        assert_eq!(check(&id).expect_err("twice").oracle, "O8 linearizability");
    }

    #[test]
    fn appends_follow_each_other_in_real_time() {
        let append = |count| Asked::Append { group: 7, count };
        let good = [
            exchange(0, (0, 9), &append(2), &Told::At(3)),
            exchange(1, (1, 8), &append(3), &Told::At(0)),
        ];
        assert_eq!(check(&good), Ok(2));
        let lost = [
            exchange(0, (0, 1), &append(2), &Told::At(0)),
            exchange(1, (2, 3), &append(3), &Told::At(0)),
        ];
        assert!(check(&lost).is_err());
        let backwards = [
            exchange(0, (0, 1), &append(2), &Told::At(3)),
            exchange(1, (2, 3), &append(3), &Told::At(0)),
        ];
        assert!(check(&backwards).is_err());
    }

    /// Sends two messages to a partition, as request `request` of client 7.
    fn send(group: GroupId, request: u64) -> Call {
        let mut batch = BatchBuilder::new();
        for id in [1, 2] {
            batch.push(id, 1, &[0; 16], &[]).expect("a small batch");
        }
        let metadata = SendMetadata {
            stream: Identifier::Numeric(1),
            topic: Identifier::Numeric(1),
            partitioning: Partitioning::PartitionId(0),
            messages_count: 2,
        };
        Call::Request {
            group,
            client: ClientId(7),
            user_id: 0,
            session: 1,
            request,
            operation: WireOperation::SendMessages,
            body: SendMessages::encode(&metadata, &batch.finish().expect("a small batch")),
        }
    }

    /// The answer to the only client that waits: its messages begin at `offset`.
    fn answered(history: &mut History, now: u64, offset: u64) {
        let (open, _) = history.open.remove(&0).expect("it waits");
        history.operations[open].1.returned = Some((now, Told::At(offset)));
    }

    #[test]
    fn an_append_that_a_restarted_replica_repeats_has_a_place_for_each_effect() {
        let group = GroupId::partition(1, 1, 0).expect("small ids");
        let told = |repetitions: u32| {
            let mut history = History::default();
            // The first answer is lost; another client is told what follows; the repetition is
            // carried out once more and answered.
            history.invoked(0, 0, &send(group, 1));
            history.invoked(0, 5, &send(group, 1));
            for _ in 0..repetitions {
                history.repeated(group, ClientId(7), RequestNumber(1));
            }
            history.invoked(1, 2, &send(group, 9));
            let (between, _) = history.open.remove(&1).expect("it waits");
            history.operations[between].1.returned = Some((3, Told::At(2)));
            answered(&mut history, 8, 4);
            history
        };
        assert!(
            told(0).check().is_err(),
            "no effect explains offsets 0 and 1"
        );
        assert_eq!(told(1).check(), Ok(()));
        let again = History::parse(&told(1).lines().join("\n")).expect("it parses");
        assert_eq!(again.lines(), told(1).lines());
        // A repetition is one more effect and not any number of them.
        let mut third = told(1);
        third.invoked(0, 9, &send(group, 2));
        answered(&mut third, 10, 8);
        assert!(third.check().is_err());
    }

    #[test]
    fn lines_that_do_not_fit_are_refused() {
        let invoke = create(0, (0, 1), "a", &Told::Done);
        let invoke = invoke.lines().next().expect("a line");
        assert!(History::parse(&format!("{invoke}\n{invoke}")).is_err());
        assert!(History::parse("{}").is_err());
        let done = create(0, (0, 1), "a", &Told::Done);
        let done = done.lines().last().expect("a line");
        assert!(History::parse(done).is_err());
    }
}
